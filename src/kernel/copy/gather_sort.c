/* Sorting, the largest few, binary search, histograms. */
#include "src/kernel/copy/gather_sort.h"

#include <math.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/half.h"
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"

#define CHUNK 256
#define BLOCK 32
#define LOOK (1 << 20) /* items between two looks for Ctrl-C */
#define SMALL 48       /* insertion sort below */
#define DIGIT 8        /* bits */
#define RADIX (1 << DIGIT)
#define DIGITS (64 / DIGIT)
#define FEW 2048 /* values for which no thread is woken */

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

/* Of float32 and what fits into it: 32 bits, from 0 on. */
static inline int64_t key_of_float(float v)
{
    int32_t bits = (int32_t)lp_float_bits(v + 0.0F); /* no -0 */
    int32_t key = bits ^ (bits >> 31 & INT32_MAX);
    return v != v ? UINT32_MAX : (int64_t)key + -(int64_t)INT32_MIN;
}

/* n values, at most CHUNK, as keys. */
static void chunk_keys(LpDtype t, const void *p, int64_t step, int64_t n,
                       int64_t *key)
{
    float narrow[CHUNK];
    double wide[CHUNK];
    if (!lp_is_float(t)) {
        lp_convert(t, p, step, LP_I64, key, 1, n);
    } else if (t == LP_F64) {
        lp_convert(t, p, step, LP_F64, wide, 1, n);
        for (int64_t j = 0; j < n; j++)
            key[j] = key_of_double(wide[j]);
    } else {
        const float *v = p;
        if (t != LP_F32 || step != 1) {
            lp_convert(t, p, step, LP_F32, narrow, 1, n);
            v = narrow;
        }
        for (int64_t j = 0; j < n; j++)
            key[j] = key_of_float(v[j]);
    }
}

/* Items first .. n - 1. */
static void keys(LpDtype t, const void *p, int64_t step, int64_t first,
                 int64_t n, LpSortItem *to)
{
    int64_t bytes = (int64_t)lp_dtype_size(t), key[CHUNK];
    for (int64_t i = first; i < n; i += CHUNK) {
        int64_t m = lp_min(n - i, CHUNK);
        chunk_keys(t, (const char *)p + i * step * bytes, step, m, key);
        for (int64_t j = 0; j < m; j++)
            to[i + j] = (LpSortItem){key[j], i + j};
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

/* Keys as they are sorted: from 0 on, the least first, or the greatest. */
typedef struct Order {
    uint64_t flip, add;
    uint64_t most;
} Order;

static inline uint64_t digit_of(int64_t key, Order o, int shift)
{
    return (((uint64_t)key ^ o.flip) + o.add) >> shift & (RADIX - 1);
}

static Order order_of(const LpSortItem *x, int64_t n, bool descending)
{
    int64_t least = x->key, most = x->key;
    for (int64_t i = 1; i < n; i++) {
        least = x[i].key < least ? x[i].key : least;
        most = x[i].key > most ? x[i].key : most;
    }
    return (Order){.flip = descending ? UINT64_MAX : 0,
                   .add = descending ? (uint64_t)most + 1 : -(uint64_t)least,
                   .most = (uint64_t)most - (uint64_t)least};
}

/* How often each digit occurs at each place; false at Ctrl-C. */
static bool count_digits(const LpSortItem *x, int64_t n, Order o, int digits,
                         int64_t count[DIGITS][RADIX])
{
    memset(count, 0, (size_t)digits * sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            return false;
        for (int d = 0; d < digits; d++)
            count[d][digit_of(x[i].key, o, DIGIT * d)]++;
    }
    return true;
}

/* By one digit, of which there are count[]; false at Ctrl-C. */
static bool by_digit(const LpSortItem *from, LpSortItem *to, int64_t n,
                     int shift, Order o, const int64_t *count)
{
    int64_t start[RADIX], sum = 0;
    for (int d = 0; d < RADIX; d++) {
        start[d] = sum;
        sum += count[d];
    }
    for (int64_t i = 0; i < n; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            return false;
        to[start[digit_of(from[i].key, o, shift)]++] = from[i];
    }
    return true;
}

/* Least significant digit first, by the digits that the keys' range has:
 * stable. At Ctrl-C x holds each item still, or one of them twice. */
void lp_sort_items(LpSortItem *x, LpSortItem *tmp, int64_t n, bool descending)
{
    int64_t count[DIGITS][RADIX];
    int digits = 0;
    if (n < SMALL) {
        insertion(x, n, descending);
        return;
    }
    Order o = order_of(x, n, descending);
    while (digits < DIGITS && o.most >> DIGIT * digits)
        digits++;
    if (!count_digits(x, n, o, digits, count))
        return;
    LpSortItem *from = x, *to = tmp;
    for (int d = 0; d < digits; d++) {
        if (!by_digit(from, to, n, DIGIT * d, o, count[d]))
            return;
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

static void make_heap(LpSortItem *h, int64_t k, bool largest)
{
    for (int64_t i = k / 2; i-- > 0;)
        sink(h, k, i, largest);
}

/* A heap's items in the order in which results are given. */
static void unheap(LpSortItem *h, int64_t k, bool largest)
{
    for (int64_t m = k; m > 1;) { /* the worst to the end */
        LpSortItem t = h[0];
        h[0] = h[--m];
        h[m] = t;
        sink(h, m, 0, largest);
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
    make_heap(x, k, largest);
    for (int64_t i = k; i < n; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            return;
        if (worse(x[0], x[i], largest)) {
            x[0] = x[i];
            sink(x, k, 0, largest);
        }
    }
    unheap(x, k, largest);
}

/* May one of BLOCK floats be better than one? All unless they are no better as
 * numbers. */
static bool some_better(const float *v, float than, bool largest)
{
    int some = 0;
    if (largest)
        for (int j = 0; j < BLOCK; j++)
            some |= !(v[j] <= than);
    else
        for (int j = 0; j < BLOCK; j++)
            some |= !(v[j] >= than);
    return some;
}

/* How many of n floats are no better than the worst so far, in whole blocks. */
static int64_t skipped(const float *v, int64_t n, float worst, bool largest)
{
    int64_t i = 0;
    while (i + BLOCK <= n && !some_better(v + i, worst, largest))
        i += BLOCK;
    return i;
}

/* The same of values, few of n: those that are no better than the worst so far
 * (later ones are not at its key) never become items. */
static void best_few(LpDtype t, const char *p, int64_t step, int64_t n,
                     int64_t k, bool largest, LpSortItem *x)
{
    int64_t bytes = (int64_t)lp_dtype_size(t), key[CHUNK];
    const float *v = t == LP_F32 && step == 1 ? (const void *)p : NULL;
    keys(t, p, step, 0, k, x);
    make_heap(x, k, largest);
    for (int64_t i = k, m; i < n; i += m) {
        i += v ? skipped(v + i, n - i, v[x[0].at], largest) : 0;
        m = lp_min(n - i, v ? BLOCK : CHUNK);
        if (lp_kernel_stops())
            return;
        chunk_keys(t, p + i * step * bytes, step, m, key);
        for (int64_t j = 0; j < m; j++)
            if (largest ? key[j] > x[0].key : key[j] < x[0].key) {
                x[0] = (LpSortItem){key[j], i + j};
                sink(x, k, 0, largest);
            }
    }
    unheap(x, k, largest);
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

static void sort_values(const Sort *s, const char *in, int64_t step,
                        LpSortItem *x)
{
    int64_t n = s->n;
    if (s->k > 0 && s->k <= n / 16) {
        best_few(s->in.dtype, in, step, n, s->k, s->descending, x);
        return;
    }
    for (int64_t i = 0; i < n && !lp_kernel_stops(); i += LOOK)
        keys(s->in.dtype, in, step, i, n - i < LOOK ? n : i + LOOK, x);
    if (lp_kernel_stops())
        return;
    if (s->k < n)
        lp_sort_best(x, x + n, n, s->k, s->descending);
    else
        lp_sort_items(x, x + n, n, s->descending);
}

static void sort_line(const Sort *s, int64_t line, const char *in, char *values,
                      char *indices, LpSortItem *x)
{
    int64_t bytes = (int64_t)lp_dtype_size(s->in.dtype);
    int64_t step = s->in.ndim == 0 ? 1 : s->in.strides[s->dim];
    int64_t vs = s->in.ndim == 0 ? 1 : s->values.strides[s->dim];
    int64_t is = s->in.ndim == 0 ? 1 : s->indices.strides[s->dim];
    in += line_offset(&s->in, s->dim, &s->in, line) * bytes;
    values += line_offset(&s->values, s->dim, &s->in, line) * bytes;
    int64_t *at = (int64_t *)(void *)indices +
                  line_offset(&s->indices, s->dim, &s->in, line);
    sort_values(s, in, step, x);
    if (lp_kernel_stops())
        return; /* some items are none yet */
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
    LpDtype type;    /* compared in */
    int64_t n;       /* edges in a row */
    int64_t rows;    /* rows of edges; 1: one for all values */
    int64_t per_row; /* values in a row */
    int threads;
} Search;

/* The first place whose edge stands `rel` v, >= or >; NaN is behind all. The
 * edges that are looked at are PyTorch's, so that unsorted ones (NaN between
 * numbers) give the same. No branch depends on them. */
#define SEARCH(name, T, rel)                                                   \
    static void name(const void *xp, int64_t n, const void *vp, int64_t count, \
                     int64_t *to)                                              \
    {                                                                          \
        const T *x = xp, *values = vp;                                         \
        for (int64_t i = 0; i < count; i++) {                                  \
            const T v = values[i];                                             \
            int64_t lo = 0, hi = n;                                            \
            while (lo < hi) {                                                  \
                int64_t mid = lo + (hi - lo) / 2;                              \
                int64_t here = -(int64_t)(x[mid] rel v);                       \
                hi = (mid & here) | (hi & ~here);                              \
                lo = (lo & here) | ((mid + 1) & ~here);                        \
            }                                                                  \
            to[i] = lo;                                                        \
        }                                                                      \
    }
#define SEARCHES(T)                                                            \
    SEARCH(left_of_##T, T, >=)                                                 \
    SEARCH(right_of_##T, T, >)
SEARCHES(float)
SEARCHES(double)
SEARCHES(int64_t)

typedef void (*SearchFn)(const void *x, int64_t n, const void *v, int64_t count,
                         int64_t *to);

static SearchFn searcher(LpDtype t, bool right)
{
    if (t == LP_F32)
        return right ? right_of_float : left_of_float;
    if (t == LP_F64)
        return right ? right_of_double : left_of_double;
    return right ? right_of_int64_t : left_of_int64_t;
}

/* The operand as contiguous memory of type t: as it lies, or a copy at `to`. */
static const char *as_plain(const LpDesc *d, const void *p, LpDtype t, char *to)
{
    LpDesc out = lp_desc_plain(d, t);
    if (d->dtype == t && !d->is_imm && lp_desc_contiguous(d))
        return p;
    lp_copy_strided(d, p, &out, to);
    return to;
}

static void to_plain(const LpDesc *d, const void *p, LpDtype t, void *to)
{
    LpDesc out = lp_desc_plain(d, t);
    lp_copy_strided(d, p, &out, to);
}

/* Edges in the order that the sorter gives them. */
static LpStatus sort_edges(const Search *s, const char *edges,
                           const int64_t *by, char *to, LpErr *e)
{
    size_t bytes = lp_dtype_size(s->type);
    for (int64_t i = 0; i < s->n * s->rows; i++) {
        LP_FAIL_IF(by[i] < 0 || by[i] >= s->n, e, LP_E_INDEX,
                   "searchsorted: sorter index %lld out of range",
                   (long long)by[i]);
        int64_t from = i - i % s->n + by[i];
        memcpy(to + (size_t)i * bytes, edges + (size_t)from * bytes, bytes);
    }
    return LP_OK;
}

/* Values [from, to) of all rows. */
static void search_part(const Search *s, const char *edges, const char *values,
                        int64_t from, int64_t to, int64_t *found)
{
    int64_t bytes = (int64_t)lp_dtype_size(s->type);
    SearchFn search = searcher(s->type, s->right);
    while (from < to) {
        int64_t row = from / s->per_row;
        int64_t n = lp_min(to, (row + 1) * s->per_row) - from;
        search(edges + row * s->n * bytes, s->n, values + from * bytes, n,
               found + from);
        from += n;
    }
}

/* work: edges, values, edges by the sorter, sorter, results; 8 bytes each */
LP_KERNEL_RUN(run_search)
{
    const Search *s = k->state;
    int64_t ne = s->n * s->rows, nv = s->per_row * s->rows;
    char *room = work;
    const char *edges = as_plain(&s->edges, in[0], s->type, room);
    const char *values = as_plain(&s->values, in[1], s->type, room + ne * 8);
    char *sorted = room + (ne + nv) * 8;
    int64_t *by = (int64_t *)(void *)(sorted + ne * 8), *found = by + ne;
    if (s->sorted_by) {
        to_plain(&s->sorter, in[2], LP_I64, by);
        LP_TRY(sort_edges(s, edges, by, sorted, e));
        edges = sorted;
    }
    bool plain = s->out.dtype == LP_I64 && lp_desc_contiguous(&s->out);
    int64_t *to = plain ? out[0] : found;
    int64_t part = (nv + s->threads - 1) / s->threads;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int t = 0; t < s->threads; t++)
        search_part(s, edges, values, t * part, lp_min((t + 1) * part, nv), to);
    LpDesc fd = lp_desc_plain(&s->out, LP_I64);
    if (!plain)
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
    bool real = lp_is_float(s->edges.dtype) || lp_is_float(s->values.dtype);
    bool narrow = s->edges.dtype == LP_F32 && s->values.dtype == LP_F32;
    s->type = narrow && !s->values.is_imm ? LP_F32 : real ? LP_F64 : LP_I64;
    int64_t ne = lp_desc_numel(&s->edges), nv = lp_desc_numel(&s->values);
    s->n = s->edges.ndim == 0 ? 1 : s->edges.shape[s->edges.ndim - 1];
    s->rows = s->n > 0 && s->edges.ndim > 1 ? ne / s->n : 1;
    s->per_row = s->rows > 0 ? nv / s->rows : 0;
    s->threads = nv < FEW ? 1 : r->threads;
    k->work_bytes = (size_t)(3 * ne + 2 * nv) * 8;
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
