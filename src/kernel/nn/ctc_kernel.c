/* Beam search over the prefixes of a CTC output (Hannun et al., "First-Pass
 * Large Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent
 * DNNs", 2014; what PopLibs' ctc_infer does).
 *
 * A prefix has two probabilities, of the alignments that end in a blank and of
 * those that end in its last label. Every step a prefix stays as it is, by a
 * blank or its last label again, and grows by each other label; what grows
 * into a prefix that is a beam already adds to that. The `width` most probable
 * ones go on; of equal ones those that stay come first, then the order of
 * beams and of labels. */
#include <math.h>

#include "src/base/checked.h"
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/plain.h"

/* A prefix: its parent's labels and one more. Number 0 is the empty one. */
typedef struct Prefix {
    int32_t parent, label, length;
    int32_t child, next; /* the last one that was made, its older sister; -1 */
    int32_t beam;        /* that it is now; -1: none */
} Prefix;

typedef struct Beam {
    int32_t prefix;
    double blank, label; /* log probabilities of alignments that end so */
    double total;        /* of both */
} Beam;

/* What may be a beam of the next step. */
typedef struct Candidate {
    Beam now;
    int32_t label; /* that prefix grows by; -1: it stays */
    int64_t order;
} Candidate;

typedef struct Search {
    int64_t steps, batch, classes, width, paths, blank;
    size_t at_beam, at_heap, at_merged, bytes; /* places in scratch */
    /* of one sample */
    LpDtype t;
    const void *probs;
    int64_t sample;
    Prefix *prefix;
    int64_t n_prefix;
    Beam *beam;
    int64_t n_beam;
    Candidate *heap; /* the best ones so far; the worst of them first */
    int64_t n_heap, n_seen;
    int32_t *merged; /* by label: the beam that growing by it gives, -1 */
} Search;

static double log_add(double a, double b)
{
    double high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

static double log_prob(const Search *s, int64_t step, int64_t label)
{
    return lp_real_at(s->t, s->probs,
                      (step * s->batch + s->sample) * s->classes + label);
}

/* ---- the best candidates ------------------------------------------------- */
static bool worse(const Candidate *a, const Candidate *b)
{
    double x = a->now.total, y = b->now.total;
    return x != y ? !(x > y) : a->order > b->order;
}

static void sink(Candidate *heap, int64_t n, int64_t at)
{
    for (int64_t low; (low = 2 * at + 1) < n; at = low) {
        if (low + 1 < n && worse(&heap[low + 1], &heap[low]))
            low++;
        if (!worse(&heap[low], &heap[at]))
            return;
        Candidate c = heap[at];
        heap[at] = heap[low];
        heap[low] = c;
    }
}

static void offer(Search *s, Candidate c)
{
    c.order = s->n_seen++;
    c.now.total = log_add(c.now.blank, c.now.label);
    if (s->n_heap < s->width) {
        int64_t at = s->n_heap++;
        for (; at > 0 && worse(&c, &s->heap[(at - 1) / 2]); at = (at - 1) / 2)
            s->heap[at] = s->heap[(at - 1) / 2];
        s->heap[at] = c;
    } else if (worse(&s->heap[0], &c)) {
        s->heap[0] = c;
        sink(s->heap, s->n_heap, 0);
    }
}

/* Best first. */
static void sort(Search *s)
{
    for (int64_t n = s->n_heap; n-- > 1;) {
        Candidate c = s->heap[0];
        s->heap[0] = s->heap[n];
        s->heap[n] = c;
        sink(s->heap, n, 0);
    }
}

/* ---- a step -------------------------------------------------------------- */
static double grown(const Search *s, const Beam *b, int64_t step, int64_t label)
{
    bool again = s->prefix[b->prefix].label == label;
    return (again ? b->blank : b->total) + log_prob(s, step, label);
}

/* Marks the labels by which beam i grows into other beams. */
static void mark(Search *s, int64_t i, bool on)
{
    const Prefix *p = s->prefix;
    for (int32_t c = p[s->beam[i].prefix].child; c >= 0; c = p[c].next)
        if (p[c].beam >= 0)
            s->merged[p[c].label] = on ? p[c].beam : -1;
}

static Beam stays(const Search *s, int64_t i, int64_t step)
{
    const Beam *b = &s->beam[i];
    const Prefix *p = &s->prefix[b->prefix];
    Beam now = *b;
    now.blank = b->total + log_prob(s, step, s->blank);
    if (p->label >= 0)
        now.label = b->label + log_prob(s, step, p->label);
    if (p->parent >= 0 && s->prefix[p->parent].beam >= 0) {
        const Beam *parent = &s->beam[s->prefix[p->parent].beam];
        now.label = log_add(now.label, grown(s, parent, step, p->label));
    }
    return now;
}

static void offer_all(Search *s, int64_t step)
{
    s->n_heap = s->n_seen = 0;
    for (int64_t i = 0; i < s->n_beam; i++)
        offer(s, (Candidate){.now = stays(s, i, step), .label = -1});
    for (int64_t i = 0; i < s->n_beam; i++) {
        mark(s, i, true);
        for (int64_t label = 0; label < s->classes; label++) {
            if (label == s->blank || s->merged[label] >= 0)
                continue;
            Beam now = {.prefix = s->beam[i].prefix,
                        .blank = -INFINITY,
                        .label = grown(s, &s->beam[i], step, label)};
            if (now.label != -INFINITY)
                offer(s, (Candidate){.now = now, .label = (int32_t)label});
        }
        mark(s, i, false);
    }
}

static int32_t child_of(Search *s, int32_t parent, int32_t label)
{
    Prefix *p = s->prefix;
    for (int32_t c = p[parent].child; c >= 0; c = p[c].next)
        if (p[c].label == label)
            return c;
    int32_t made = (int32_t)s->n_prefix++;
    p[made] = (Prefix){.parent = parent,
                       .label = label,
                       .length = p[parent].length + 1,
                       .child = -1,
                       .next = p[parent].child,
                       .beam = -1};
    p[parent].child = made;
    return made;
}

static void next_beams(Search *s)
{
    sort(s);
    for (int64_t i = 0; i < s->n_beam; i++)
        s->prefix[s->beam[i].prefix].beam = -1;
    s->n_beam = s->n_heap;
    for (int64_t i = 0; i < s->n_heap; i++) {
        Beam now = s->heap[i].now;
        if (s->heap[i].label >= 0)
            now.prefix = child_of(s, now.prefix, s->heap[i].label);
        s->prefix[now.prefix].beam = (int32_t)i;
        s->beam[i] = now;
    }
}

/* ---- a sample ------------------------------------------------------------ */
static void begin(Search *s)
{
    s->prefix[0] = (Prefix){-1, -1, 0, -1, -1, 0};
    s->n_prefix = s->n_beam = 1;
    s->beam[0] = (Beam){0, 0, -INFINITY, 0};
    for (int64_t c = 0; c < s->classes; c++)
        s->merged[c] = -1;
}

/* Path k of the sample; without a beam for it an empty one that cannot be. */
static void write_path(const Search *s, int64_t k, void *const *out)
{
    int64_t at = s->sample * s->paths + k;
    bool found = k < s->n_beam;
    const Beam *b = &s->beam[found ? k : 0];
    const Prefix *p = &s->prefix[found ? b->prefix : 0];
    int64_t *path = (int64_t *)out[2] + at * s->steps;
    lp_real_set(s->t, out[0], at, found ? b->total : -INFINITY);
    ((int64_t *)out[1])[at] = p->length;
    for (int64_t i = p->length; i < s->steps; i++)
        path[i] = s->blank;
    for (; p->parent >= 0; p = &s->prefix[p->parent])
        path[p->length - 1] = p->label;
}

LP_PLAIN_CORE(ctc_core)
{
    Search s = *(const Search *)(const void *)p->param;
    char *room = work;
    const int64_t *length = in[1];
    s.t = (LpDtype)p->compute;
    s.probs = in[0];
    s.prefix = work;
    s.beam = (void *)(room + s.at_beam);
    s.heap = (void *)(room + s.at_heap);
    s.merged = (void *)(room + s.at_merged);
    for (s.sample = 0; s.sample < s.batch; s.sample++) {
        int64_t n = length[s.sample];
        LP_FAIL_IF(n < 0 || n > s.steps, e, LP_E_POPTORCH,
                   "ctc_beam_search_decoder: length %lld of sample %lld is "
                   "not one of 0 to %lld, the steps of probs",
                   (long long)n, (long long)s.sample, (long long)s.steps);
        begin(&s);
        for (int64_t step = 0; step < n && !lp_kernel_stops(); step++) {
            offer_all(&s, step);
            next_beams(&s);
        }
        for (int64_t k = 0; k < s.paths; k++)
            write_path(&s, k, out);
    }
    return LP_OK;
}

/* ---- preparing ----------------------------------------------------------- */
/* n elements behind those that have their place. */
static bool room_for(Search *s, int64_t n, size_t size, size_t *at)
{
    size_t bytes;
    *at = s->bytes;
    return lp_mul_size((size_t)n, size, &bytes) &&
           lp_add_size(bytes, 63, &bytes) &&
           lp_add_size(s->bytes, bytes & ~(size_t)63, &s->bytes);
}

LP_KERNEL_PREPARE(lp_ctc_prepare)
{
    const int64_t *shape = r->in[0].shape;
    Search s = {.steps = shape[0],
                .batch = shape[1],
                .classes = shape[2],
                .width = r->attr[LP_CTC_BEAM_WIDTH].i,
                .paths = r->attr[LP_CTC_TOP_PATHS].i,
                .blank = r->attr[LP_CTC_BLANK].i};
    int64_t most;
    size_t first;
    bool fits = lp_mul_i64(s.steps, s.width, &most) && most < INT32_MAX &&
                room_for(&s, most + 1, sizeof(Prefix), &first) &&
                room_for(&s, s.width, sizeof(Beam), &s.at_beam) &&
                room_for(&s, s.width, sizeof(Candidate), &s.at_heap) &&
                room_for(&s, s.classes, sizeof(int32_t), &s.at_merged);
    LP_FAIL_IF(!fits, e, LP_E_MEMORY,
               "ctc_beam_search_decoder: %lld beams of %lld steps are too many",
               (long long)s.width, (long long)s.steps);
    return lp_plain_prepare(r, k, ctc_core, lp_plain_type(r->in[0].dtype), &s,
                            sizeof s, s.bytes, e);
}
