/* Sorting, the largest few, binary search, histograms. */
#include "src/kernel/copy/gather_sort.h"

#include <math.h>
#include <string.h>

#include "src/base/half.h"
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"

#define CHUNK 256
#define LOOK (1 << 20) /* items between two looks for Ctrl-C */
#define SMALL 16       /* insertion sort below */
#define MANY 4096      /* by digits from here on */
#define DIGIT 11       /* bits */

/* ---- keys ---------------------------------------------------------------- */
/* The bits of a float, made to order like an integer. */
static int64_t key_of_double(double v)
{
    if (v != v)
        return INT64_MAX;
    if (v == 0)
        v = 0; /* -0 */
    int64_t bits = (int64_t)lp_double_bits(v);
    return bits < 0 ? (int64_t)(~(uint64_t)bits ^ ((uint64_t)1 << 63)) : bits;
}

/* Items first .. n - 1. */
static void keys(LpDtype t, const void *p, int64_t step, int64_t first,
                 int64_t n, LpSortItem *to)
{
    bool real = lp_is_float(t);
    int64_t bytes = (int64_t)lp_dtype_size(t);
    for (int64_t i = first; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        const char *from = (const char *)p + i * step * bytes;
        double f[CHUNK];
        int64_t w[CHUNK];
        lp_convert(t, from, step, real ? LP_F64 : LP_I64,
                   real ? (void *)f : (void *)w, 1, m);
        for (int64_t j = 0; j < m; j++)
            to[i + j] = (LpSortItem){real ? key_of_double(f[j]) : w[j], i + j};
    }
}

void lp_sort_keys(LpDtype t, const void *p, int64_t step, int64_t n,
                  LpSortItem *to)
{
    keys(t, p, step, 0, n, to);
}

static void insertion(LpSortItem *x, int64_t n, bool down)
{
    for (int64_t i = 1; i < n; i++) {
        LpSortItem v = x[i];
        int64_t j = i;
        while (j > 0 && (down ? x[j - 1].key < v.key : x[j - 1].key > v.key)) {
            x[j] = x[j - 1];
            j--;
        }
        x[j] = v;
    }
}

static void merge(const LpSortItem *x, LpSortItem *to, int64_t lo, int64_t mid,
                  int64_t hi, bool down)
{
    int64_t i = lo, j = mid;
    for (int64_t k = lo; k < hi; k++) {
        bool left =
            j >= hi ||
            (i < mid && (down ? x[i].key >= x[j].key : x[i].key <= x[j].key));
        to[k] = left ? x[i++] : x[j++];
    }
}

/* Least significant digit first, by digits in which keys differ: stable. The
 * sign's digit counts as unsigned, and downward as its complement. */
static void radix(LpSortItem *x, LpSortItem *tmp, int64_t n, bool down)
{
    uint64_t some = 0, all = ~(uint64_t)0;
    for (int64_t i = 0; i < n; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            return;
        some |= (uint64_t)x[i].key;
        all &= (uint64_t)x[i].key;
    }
    const uint64_t mask = (1 << DIGIT) - 1;
    uint64_t flip = (uint64_t)1 << 63, differ = some & ~all;
    flip = down ? ~flip : flip;
    LpSortItem *from = x, *to = tmp;
    for (int shift = 0; shift < 64; shift += DIGIT) {
        if ((differ >> shift & mask) == 0)
            continue;
        int64_t start[(1 << DIGIT) + 1] = {0};
        for (int64_t i = 0; i < n; i++) {
            if (i % LOOK == 0 && lp_kernel_stops())
                return; /* all items are there, in another order */
            start[(((uint64_t)from[i].key ^ flip) >> shift & mask) + 1]++;
        }
        for (int d = 1; d <= 1 << DIGIT; d++)
            start[d] += start[d - 1];
        for (int64_t i = 0; i < n; i++) {
            if (i % LOOK == 0 && lp_kernel_stops())
                return; /* x holds each item still, or one of them twice */
            to[start[((uint64_t)from[i].key ^ flip) >> shift & mask]++] =
                from[i];
        }
        LpSortItem *swap = from;
        from = to;
        to = swap;
    }
    if (from != x)
        memcpy(x, from, (size_t)n * sizeof *x);
}

void lp_sort_items(LpSortItem *x, LpSortItem *tmp, int64_t n, bool descending)
{
    if (n >= MANY) {
        radix(x, tmp, n, descending);
        return;
    }
    LpSortItem *from = x, *to = tmp;
    for (int64_t lo = 0; lo < n; lo += SMALL)
        insertion(x + lo, n - lo < SMALL ? n - lo : SMALL, descending);
    for (int64_t w = SMALL; w < n; w *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * w) {
            int64_t mid = lo + w < n ? lo + w : n;
            int64_t hi = lo + 2 * w < n ? lo + 2 * w : n;
            merge(from, to, lo, mid, hi, descending);
        }
        LpSortItem *swap = from;
        from = to;
        to = swap;
    }
    if (from != x)
        memcpy(x, from, (size_t)n * sizeof *x);
}

/* ---- the largest few ----------------------------------------------------- */
/* Is a worse than b, in the order in which results are given? */
static bool worse(LpSortItem a, LpSortItem b, bool largest)
{
    if (a.key != b.key)
        return largest ? a.key < b.key : a.key > b.key;
    return a.at > b.at;
}

/* A heap of the best k so far, the worst on top. */
static void sink(LpSortItem *h, int64_t k, int64_t i, bool largest)
{
    for (;;) {
        int64_t c = 2 * i + 1;
        if (c >= k)
            return;
        if (c + 1 < k && worse(h[c + 1], h[c], largest))
            c++;
        if (!worse(h[c], h[i], largest))
            return;
        LpSortItem t = h[c];
        h[c] = h[i];
        h[i] = t;
        i = c;
    }
}

void lp_sort_best(LpSortItem *x, LpSortItem *tmp, int64_t n, int64_t k,
                  bool largest)
{
    if (k == 0)
        return;
    if (k > n / 4) {
        lp_sort_items(x, tmp, n, largest);
        return;
    }
    for (int64_t i = k / 2; i-- > 0;)
        sink(x, k, i, largest);
    for (int64_t i = k; i < n; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            return;
        if (worse(x[0], x[i], largest)) {
            x[0] = x[i];
            sink(x, k, 0, largest);
        }
    }
    for (int64_t m = k; m > 1;) { /* the worst to the end */
        LpSortItem t = x[0];
        x[0] = x[--m];
        x[m] = t;
        sink(x, m, 0, largest);
    }
}

/* ---- sort, topk ---------------------------------------------------------- */
typedef struct Sort {
    LpDesc in, values, indices;
    int dim;
    int64_t n, k; /* k = n: all */
    bool descending;
    int64_t lines;
    int threads;
} Sort;

static int64_t line_offset(const LpDesc *d, int dim, const LpDesc *shape,
                           int64_t line)
{
    int64_t off = 0;
    for (int i = d->ndim - 1; i >= 0; i--) {
        if (i == dim)
            continue;
        off += line % shape->shape[i] * d->strides[i];
        line /= shape->shape[i];
    }
    return off;
}

static void sort_line(const Sort *s, int64_t line, const char *in, char *values,
                      char *indices, LpSortItem *x)
{
    int64_t bytes = (int64_t)lp_dtype_size(s->in.dtype), n = s->n;
    int64_t step = s->in.ndim == 0 ? 1 : s->in.strides[s->dim];
    int64_t vs = s->in.ndim == 0 ? 1 : s->values.strides[s->dim];
    int64_t is = s->in.ndim == 0 ? 1 : s->indices.strides[s->dim];
    in += line_offset(&s->in, s->dim, &s->in, line) * bytes;
    values += line_offset(&s->values, s->dim, &s->in, line) * bytes;
    int64_t *at = (int64_t *)(void *)indices +
                  line_offset(&s->indices, s->dim, &s->in, line);
    for (int64_t i = 0; i < n; i += LOOK) {
        if (lp_kernel_stops())
            return; /* some items are none yet */
        keys(s->in.dtype, in, step, i, n - i < LOOK ? n : i + LOOK, x);
    }
    if (s->k < n)
        lp_sort_best(x, x + n, n, s->k, s->descending);
    else
        lp_sort_items(x, x + n, n, s->descending);
    for (int64_t i = 0; i < s->k; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            return;
        memcpy(values + i * vs * bytes, in + x[i].at * step * bytes,
               (size_t)bytes);
        at[i * is] = x[i].at;
    }
}

/* work: for every thread 2 n items */
LP_KERNEL_RUN(run_sort)
{
    const Sort *s = k->state;
    int64_t part = (s->lines + s->threads - 1) / s->threads;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++) {
        LpSortItem *x = (LpSortItem *)work + t * 2 * s->n;
        for (int64_t l = t * part; l < (t + 1) * part && l < s->lines; l++)
            if (!lp_kernel_stops())
                sort_line(s, l, in[0], out[0], out[1], x);
    }
    return LP_OK;
}

static LpStatus prepare_sort(const LpKernelReq *r, int dim, int64_t count,
                             bool descending, LpKernel *k, LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Sort), run_sort, k, e));
    Sort *s = k->state;
    *s = (Sort){.in = r->in[0],
                .values = r->out[0],
                .indices = r->out[1],
                .dim = dim,
                .descending = descending};
    s->n = s->in.ndim == 0 ? 1 : s->in.shape[dim];
    s->k = count < 0 || s->in.ndim == 0 ? s->n : count;
    s->lines = s->n > 0 ? lp_desc_numel(&s->in) / s->n : 0;
    s->threads = lp_desc_numel(&s->in) < 1 << 14 || s->lines < r->threads
                     ? 1
                     : r->threads;
    k->work_bytes = (size_t)s->threads * 2 * (size_t)s->n * sizeof(LpSortItem);
    return LP_OK;
}

LP_PREPARE_AS(lp_sort_prepare,
              prepare_sort(r, (int)r->attr[LP_SORT_DIM].i, -1,
                           r->attr[LP_SORT_DESCENDING].i != 0, k, e))
LP_PREPARE_AS(lp_topk_prepare,
              prepare_sort(r, (int)r->attr[LP_TOPK_DIM].i, r->attr[LP_TOPK_K].i,
                           r->attr[LP_TOPK_LARGEST].i != 0, k, e))

/* ---- searchsorted -------------------------------------------------------- */
typedef struct Search {
    LpDesc edges, values, out, sorter;
    bool right, sorted_by;
    int64_t n;       /* edges in a row */
    int64_t rows;    /* rows of edges; 1: one for all values */
    int64_t per_row; /* values in a row */
} Search;

/* The first place whose edge is >= v, with `right` > v; `nan` is a key that no
 * such comparison holds of. */
static int64_t search(const LpSortItem *x, int64_t n, int64_t key, bool right,
                      const int64_t *nan)
{
    if (nan && key == *nan)
        return n;
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        bool unlike = nan && x[mid].key == *nan;
        if (unlike || (right ? x[mid].key <= key : x[mid].key < key))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void to_plain(const LpDesc *d, const void *p, LpDtype t, void *to)
{
    LpDesc out = lp_desc_plain(d, t);
    lp_copy_strided(d, p, &out, to);
}

/* work: edges and values as plain int64 or double, sorter and results as
 * int64, keys of one row, keys of a chunk of values */
LP_KERNEL_RUN(run_search)
{
    const Search *s = k->state;
    int64_t ne = s->n * s->rows, nv = s->per_row * s->rows;
    bool real = lp_is_float(s->edges.dtype) || lp_is_float(s->values.dtype);
    LpDtype t = real ? LP_F64 : LP_I64;
    const int64_t nan = key_of_double((double)NAN);
    char *edges = work, *values = edges + ne * 8;
    int64_t *by = (int64_t *)(void *)(values + nv * 8), *found = by + ne;
    LpSortItem *row = (LpSortItem *)(void *)(found + nv + (ne & 1));
    LpSortItem *key = row + 2 * s->n;
    to_plain(&s->edges, in[0], t, edges);
    to_plain(&s->values, in[1], t, values);
    if (s->sorted_by)
        to_plain(&s->sorter, in[2], LP_I64, by);
    for (int64_t r = 0; r < s->rows; r++) {
        LpSortItem *x = row + s->n;
        lp_sort_keys(t, edges + r * s->n * 8, 1, s->n, x);
        for (int64_t i = 0; i < s->n; i++) {
            int64_t from = s->sorted_by ? by[r * s->n + i] : i;
            LP_FAIL_IF(from < 0 || from >= s->n, e, LP_E_INDEX,
                       "searchsorted: sorter index %lld out of range",
                       (long long)from);
            row[i] = x[from];
        }
        for (int64_t i = 0; i < s->per_row; i++) {
            int64_t at = r * s->per_row + i;
            lp_sort_keys(t, values + at * 8, 1, 1, key);
            found[at] =
                search(row, s->n, key->key, s->right, real ? &nan : NULL);
        }
    }
    LpDesc fd = lp_desc_plain(&s->out, LP_I64);
    lp_copy_strided(&fd, found, &s->out, out[0]);
    return LP_OK;
}

/* operands: sorted_sequence, values (tensor or number), sorter or hole;
 * attributes: out_int32, right */
LP_KERNEL_PREPARE(lp_searchsorted_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Search), run_search, k, e));
    Search *s = k->state;
    s->edges = r->in[0];
    s->values = r->in[1];
    s->out = r->out[0];
    s->right = r->attr[LP_SEARCHSORTED_RIGHT].i != 0;
    s->sorted_by = r->n_in > 2 && r->in[2].dtype != LP_DT_NONE;
    if (s->sorted_by)
        s->sorter = r->in[2];
    int64_t ne = lp_desc_numel(&s->edges), nv = lp_desc_numel(&s->values);
    s->n = s->edges.ndim == 0 ? 1 : s->edges.shape[s->edges.ndim - 1];
    s->rows = s->n > 0 && s->edges.ndim > 1 ? ne / s->n : 1;
    s->per_row = s->rows > 0 ? nv / s->rows : 0;
    k->work_bytes = (size_t)(2 * ne + 2 * nv + 1) * 8 +
                    (size_t)(2 * s->n + 1) * sizeof(LpSortItem);
    k->threads = 1;
    return LP_OK;
}

/* ---- histc --------------------------------------------------------------- */
typedef struct Hist {
    LpDesc in, out;
    int64_t n, bins;
    double min, max;
} Hist;

/* work: the data and the counts in double */
LP_KERNEL_RUN(run_histc)
{
    const Hist *s = k->state;
    double *v = work, *count = v + s->n, lo = s->min, hi = s->max;
    to_plain(&s->in, in[0], LP_F64, v);
    memset(count, 0, (size_t)s->bins * sizeof *count);
    if (lo == hi && s->n > 0) {
        lo = hi = v[0];
        for (int64_t i = 1; i < s->n; i++) {
            lo = v[i] < lo || v[i] != v[i] ? v[i] : lo;
            hi = v[i] > hi || v[i] != v[i] ? v[i] : hi;
        }
    }
    LP_FAIL_IF(!isfinite(lo) || !isfinite(hi), e, LP_E_RUNTIME,
               "range of [%g, %g] is not finite", lo, hi);
    if (lo == hi) {
        lo -= 1;
        hi += 1;
    }
    for (int64_t i = 0; i < s->n; i++) {
        if (!(v[i] >= lo && v[i] <= hi))
            continue;
        int64_t b = (int64_t)((v[i] - lo) / (hi - lo) * (double)s->bins);
        count[b < s->bins ? b : s->bins - 1] += 1;
    }
    lp_convert(LP_F64, count, 1, s->out.dtype, out[0], s->out.strides[0],
               s->bins);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_histc_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Hist), run_histc, k, e));
    Hist *s = k->state;
    *s = (Hist){.in = r->in[0],
                .out = r->out[0],
                .n = lp_desc_numel(&r->in[0]),
                .bins = r->attr[LP_HISTC_BINS].i,
                .min = lp_scalar_f(r->attr[LP_HISTC_MIN].s),
                .max = lp_scalar_f(r->attr[LP_HISTC_MAX].s)};
    k->work_bytes = (size_t)(s->n + s->bins) * sizeof(double);
    k->threads = 1;
    return LP_OK;
}
