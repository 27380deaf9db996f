/* Drawing positions: permutations, and samples by weight. */
#include <math.h>
#include <string.h>

#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/gather_sort.h"
#include "src/kernel/random/random_words.h"
#include "src/kernel/state.h"

/* ---- randperm ------------------------------------------------------------ */
typedef struct Perm {
    LpDesc out;
    uint64_t site;
    int64_t n;
} Perm;

#define LOOK (1 << 20) /* items between two looks for Ctrl-C */

/* The end of the run of items from i on before the next look; i if it says
 * stop. */
static int64_t run_end(int64_t i, int64_t n)
{
    return lp_kernel_stops() ? i : n - i > LOOK ? i + LOOK : n;
}

static void count_places(const uint64_t *x, int64_t n, int shift,
                         int64_t *count)
{
    for (int64_t i = 0; i < n; i++)
        count[x[i] >> shift]++;
}

static void to_places(const uint64_t *x, int64_t n, int shift, int64_t *start,
                      uint64_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[start[x[i] >> shift]++] = x[i];
}

/* Items from … to of x, before which all are in order. */
static void insert(uint64_t *x, int64_t from, int64_t to)
{
    for (int64_t i = from > 0 ? from : 1; i < to; i++) {
        uint64_t v = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1] > v; j--)
            x[j] = x[j - 1];
        x[j] = v;
    }
}

/* Items in order, whose leading bits are evenly spread: by these into places,
 * then by insertion. x: the items, sorted to `to`; start: room for 2^bits + 1.
 */
static void sort_spread(const uint64_t *x, int64_t n, int bits, int64_t *start,
                        uint64_t *to)
{
    int shift = 64 - bits;
    memset(start, 0, (((size_t)1 << bits) + 1) * sizeof *start);
    for (int64_t i = 0, end; i < n && (end = run_end(i, n)) > i; i = end)
        count_places(x + i, end - i, shift, start + 1);
    for (int64_t b = 1, sum = 0; b <= (int64_t)1 << bits; b++)
        start[b] = sum += start[b];
    for (int64_t i = 0, end; i < n && (end = run_end(i, n)) > i; i = end)
        to_places(x + i, end - i, shift, start, to);
    for (int64_t i = 0, end; i < n && (end = run_end(i, n)) > i; i = end)
        insert(to, i, end);
}

/* Neighbours of equal first words go by their second ones. */
static void settle(const LpRandom *r2, uint64_t *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            return;
        for (int64_t j = i; j > 0 && x[j] >> 32 == x[j - 1] >> 32; j--) {
            if (lp_random_word(r2, (uint32_t)x[j - 1]) <=
                lp_random_word(r2, (uint32_t)x[j]))
                break;
            uint64_t v = x[j];
            x[j] = x[j - 1];
            x[j - 1] = v;
        }
    }
}

/* Leading bits that randperm sorts n items by, at least 1: a place for each, so
 * that few are left to insertion, while the places stay in the cache; an eighth
 * as many for more. */
static int spread_bits(int64_t n)
{
    enum { CACHED = 14 };
    int bits = 1;
    while (bits < 32 && (bits < CACHED ? 1 : INT64_C(8)) << bits <= n)
        bits++;
    return bits;
}

/* The order of the numbers' signed words of 64 bits. work: items of the first
 * word and a position, as many again, and the places of sort_spread */
LP_KERNEL_RUN(run_randperm)
{
    const Perm *s = k->state;
    LpRandom r = lp_draw_stream(rc, s->site),
             r2 = lp_draw_stream(rc, s->site ^ LP_DRAW_SECOND);
    uint64_t *x = work, *sorted = x + s->n;
    uint32_t hi[LP_DRAW_BLOCK];
    for (int64_t i = 0; i < s->n; i += LP_DRAW_BLOCK) {
        int64_t m = s->n - i < LP_DRAW_BLOCK ? s->n - i : LP_DRAW_BLOCK;
        if (i % LOOK == 0 && lp_kernel_stops())
            return LP_OK;
        lp_draw_words(&r, i, m, hi);
        for (int64_t j = 0; j < m; j++)
            x[i + j] =
                (uint64_t)(hi[j] ^ 0x80000000u) << 32 | (uint64_t)(i + j);
    }
    sort_spread(x, s->n, spread_bits(s->n), (int64_t *)(void *)(sorted + s->n),
                sorted);
    settle(&r2, sorted, s->n);
    if (lp_kernel_stops())
        return LP_OK;
    for (int64_t i = 0; i < s->n; i++)
        sorted[i] &= UINT32_MAX;
    lp_convert(LP_I64, sorted, 1, s->out.dtype, out[0], s->out.strides[0],
               s->n);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_randperm_prepare)
{
    int64_t n = r->out[0].shape[0];
    LP_FAIL_IF(n > UINT32_MAX, e, LP_E_RUNTIME,
               "randperm: n is %lld; it must be at most 4294967295",
               (long long)n);
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Perm), run_randperm, k, e));
    Perm *s = k->state;
    *s = (Perm){.out = r->out[0], .site = r->site, .n = n};
    k->work_bytes = (size_t)n * 2 * sizeof(uint64_t) +
                    (((size_t)1 << spread_bits(n)) + 1) * sizeof(int64_t);
    k->threads = 1;
    return LP_OK;
}

/* ---- multinomial --------------------------------------------------------- */
typedef struct Urn {
    LpDesc in, out;
    uint64_t site;
    int64_t rows, n, samples;
    bool replacement;
} Urn;

static LpStatus check_weights(const double *p, int64_t n, int64_t samples,
                              bool replacement, LpErr *e)
{
    double sum = 0;
    int64_t some = 0;
    for (int64_t i = 0; i < n; i++) {
        LP_FAIL_IF(!(p[i] >= 0) || isinf(p[i]), e, LP_E_RUNTIME,
                   "probability tensor contains either `inf`, `nan` or element "
                   "< 0 (%g at position %lld)",
                   p[i], (long long)i);
        sum += p[i];
        some += p[i] > 0;
    }
    LP_FAIL_IF(!(sum > 0), e, LP_E_RUNTIME,
               "invalid multinomial distribution (sum of probabilities <= 0)");
    LP_FAIL_IF(!replacement && some < samples, e, LP_E_RUNTIME,
               "invalid multinomial distribution (with replacement=False, not "
               "enough non-negative category to sample: %lld of %lld)",
               (long long)some, (long long)samples);
    return LP_OK;
}

/* With replacement: where u falls in the running sum. */
static void draw_again(const LpRandom *r, const LpRandom *r2, int64_t row,
                       const Urn *s, double *p, int64_t *to)
{
    for (int64_t i = 1; i < s->n; i++)
        p[i] += p[i - 1];
    for (int64_t j = 0; j < s->samples; j++) {
        uint64_t at = (uint64_t)(row * s->samples + j);
        double u =
            lp_random_unit2(lp_random_word(r, at), lp_random_word(r2, at)) *
            p[s->n - 1];
        int64_t lo = 0, hi = s->n - 1;
        while (lo < hi) {
            int64_t mid = lo + (hi - lo) / 2;
            if (p[mid] > u)
                hi = mid;
            else
                lo = mid + 1;
        }
        to[j] = lo;
    }
}

/* Without: an exponential time of rate p for each, the first ones win
 * (Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
 * 2006). */
static void draw_once(const LpRandom *r, const LpRandom *r2, int64_t row,
                      const Urn *s, double *p, LpSortItem *x, int64_t *to)
{
    uint32_t hi[LP_DRAW_BLOCK], lo[LP_DRAW_BLOCK];
    int64_t all = (row + 1) * s->n;
    for (int64_t i = 0, at = row * s->n; i < s->n;) {
        int64_t skip = at % 4, m = all - at + skip;
        m = m < LP_DRAW_BLOCK ? m : LP_DRAW_BLOCK;
        lp_draw_words(r, at - skip, m, hi);
        lp_draw_words(r2, at - skip, m, lo);
        for (int64_t j = skip; j < m; j++, i++, at++) {
            double u = lp_draw_open(hi[j], lo[j]);
            p[i] = p[i] > 0 ? -log(u) / p[i] : INFINITY;
        }
    }
    lp_sort_keys(LP_F64, p, 1, s->n, x);
    lp_sort_best(x, x + s->n, s->n, s->samples, false);
    for (int64_t j = 0; j < s->samples; j++)
        to[j] = x[j].at;
}

/* work: weights, results, items twice */
LP_KERNEL_RUN(run_multinomial)
{
    const Urn *s = k->state;
    LpRandom r = lp_draw_stream(rc, s->site),
             r2 = lp_draw_stream(rc, s->site ^ LP_DRAW_SECOND);
    LpDesc pd = lp_desc_plain(&s->in, LP_F64),
           od = lp_desc_plain(&s->out, LP_I64);
    LpSortItem *x = work;
    double *p = (double *)(void *)(x + 2 * s->n);
    int64_t *to = (int64_t *)(void *)(p + s->rows * s->n);
    lp_copy_strided(&s->in, in[0], &pd, p);
    for (int64_t i = 0; i < s->rows; i++) {
        double *w = p + i * s->n;
        LP_TRY(check_weights(w, s->n, s->samples, s->replacement, e));
        if (s->replacement)
            draw_again(&r, &r2, i, s, w, to + i * s->samples);
        else
            draw_once(&r, &r2, i, s, w, x, to + i * s->samples);
    }
    lp_copy_strided(&od, to, &s->out, out[0]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_multinomial_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Urn), run_multinomial, k, e));
    Urn *s = k->state;
    const LpDesc *d = &r->in[0];
    *s = (Urn){.in = *d,
               .out = r->out[0],
               .site = r->site,
               .rows = d->ndim == 2 ? d->shape[0] : 1,
               .n = d->shape[d->ndim - 1],
               .samples = r->attr[LP_MULTINOMIAL_NUM_SAMPLES].i,
               .replacement = r->attr[LP_MULTINOMIAL_REPLACEMENT].i != 0};
    k->work_bytes = (size_t)s->n * 2 * sizeof(LpSortItem) +
                    (size_t)(s->rows * (s->n + s->samples)) * 8;
    k->threads = 1;
    return LP_OK;
}
