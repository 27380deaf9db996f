/* Results whose size depends on the data. Measuring and running both walk the
 * operand; nothing is kept in between, so a kernel may be run on other data
 * of the same measure. */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/gather_sort.h"
#include "src/kernel/copy/hooks.h"
#include "src/kernel/state.h"

#define LOOK (1 << 20) /* items between two looks for Ctrl-C */

/* A contiguous copy of an operand in type t; freed by the caller. */
static void *contiguous(const LpDesc *d, const void *p, LpDtype t, LpErr *e)
{
    LpDesc to = lp_desc_plain(d, t);
    int64_t n = lp_desc_numel(d);
    void *copy = lp_alloc((size_t)(n + 1) * lp_dtype_size(t));
    if (!copy)
        lp_fail(e, LP_E_MEMORY, "no memory for a copy of %lld elements",
                (long long)n);
    else
        lp_copy_strided(d, p, &to, copy);
    return copy;
}

/* ---- nonzero ------------------------------------------------------------- */
static bool is_mask(const LpDesc *d)
{
    return d->dtype == LP_BOOL && lp_desc_contiguous(d);
}

/* Eight at once: the lowest bit of each byte that is not 0, then their sum. */
static int64_t count_set(const uint8_t *x, int64_t n)
{
    const uint64_t ones = UINT64_MAX / 255, low = ones * 127;
    int64_t found = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t v;
        memcpy(&v, x + i, sizeof v);
        v = (((v & low) + low) | v) >> 7 & ones;
        found += (int64_t)(v * ones >> 56);
    }
    for (; i < n; i++)
        found += x[i] != 0;
    return found;
}

LP_KERNEL_MEASURE(lp_nonzero_measure)
{
    int64_t n = lp_desc_numel(&r->in[0]);
    bool mask = is_mask(&r->in[0]);
    uint8_t *copy = mask ? NULL : contiguous(&r->in[0], in[0], LP_BOOL, e);
    if (!mask && !copy)
        return LP_E_MEMORY;
    out[0].shape[0] = count_set(mask ? in[0] : copy, n);
    lp_free(copy);
    return LP_OK;
}

/* Writes the positions of a line's set elements at the rows from `row` on, of
 * which there are `most`; returns the row behind them. Each element is written,
 * and what is not set is written over: whether it is cannot be foreseen. */
static int64_t set_in_line(const uint8_t *set, int64_t n, int64_t *to,
                           int64_t step, int64_t row, int64_t most)
{
    for (int64_t i = 0; i < n && row < most; i++) {
        to[row * step] = i;
        row += set[i] != 0;
    }
    return row;
}

LP_KERNEL_RUN(run_nonzero)
{
    const LpDesc *d = k->state, *o = d + 1;
    LpDesc plain = lp_desc_plain(d, LP_BOOL);
    const uint8_t *set = is_mask(d) ? in[0] : work;
    int last = d->ndim - 1;
    int64_t most = o->shape[0], row = 0, at[LP_MAX_DIMS] = {0}, *to = out[0];
    int64_t n = last < 0 ? 1 : d->shape[last];
    if (set == work)
        lp_copy_strided(d, in[0], &plain, work);
    if (last < 0)
        return LP_OK;
    for (int64_t left = lp_desc_numel(d); left > 0; left -= n, set += n) {
        int64_t from = row;
        row = set_in_line(set, n, to + last * o->strides[1], o->strides[0], row,
                          most);
        for (int j = 0; j < last; j++)
            for (int64_t i = from; i < row; i++)
                to[i * o->strides[0] + j * o->strides[1]] = at[j];
        for (int j = last - 1; j >= 0 && ++at[j] == d->shape[j]; j--)
            at[j] = 0;
    }
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_nonzero_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, 2 * sizeof(LpDesc), run_nonzero, k, e));
    LpDesc *d = k->state;
    d[0] = r->in[0];
    d[1] = r->out[0];
    k->work_bytes = (size_t)lp_desc_numel(&d[0]);
    k->threads = 1;
    return LP_OK;
}

/* ---- unique -------------------------------------------------------------- */
/* n slices of `width` elements each, contiguous; groups[i] is the number of
 * the group of slice i, first[g] one slice of group g. */
typedef struct Groups {
    int64_t n, width, n_groups;
    int64_t *group, *first, *count;
    LpSortItem *key; /* [n][width] by slice, then scratch */
} Groups;

static int compare_slices(const Groups *g, int64_t a, int64_t b)
{
    const LpSortItem *x = g->key + a * g->width, *y = g->key + b * g->width;
    for (int64_t i = 0; i < g->width; i++)
        if (x[i].key != y[i].key)
            return x[i].key < y[i].key ? -1 : 1;
    return 0;
}

/* Stable merge sort of slice numbers. */
static void sort_slices(const Groups *g, int64_t *x, int64_t *tmp, int64_t n)
{
    for (int64_t w = 1; w < n; w *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * w) {
            int64_t mid = lo + w < n ? lo + w : n;
            int64_t hi = lo + 2 * w < n ? lo + 2 * w : n;
            int64_t i = lo, j = mid, k = lo;
            while (i < mid || j < hi)
                tmp[k++] =
                    j >= hi || (i < mid && compare_slices(g, x[i], x[j]) <= 0)
                        ? x[i++]
                        : x[j++];
        }
        memcpy(x, tmp, (size_t)n * sizeof *x);
    }
}

static void free_groups(Groups *g)
{
    lp_free(g->group);
    lp_free(g->first);
    lp_free(g->count);
    lp_free(g->key);
}

/* The operand with `dim` first, so that slices are contiguous. */
static LpDesc slices_of(const LpKernelReq *r, int64_t *n, int64_t *width)
{
    LpDesc d = r->in[0];
    int64_t all = lp_desc_numel(&d);
    if (r->attr[LP_UNIQUE_DIM].kind == LP_ATTR_NONE || d.ndim == 0) {
        *n = all;
        *width = 1;
        return d;
    }
    int dim = (int)r->attr[LP_UNIQUE_DIM].i;
    int64_t size = d.shape[dim], step = d.strides[dim];
    for (int i = dim; i > 0; i--) {
        d.shape[i] = d.shape[i - 1];
        d.strides[i] = d.strides[i - 1];
    }
    d.shape[0] = size;
    d.strides[0] = step;
    *n = size;
    *width = size > 0 ? all / size : 0;
    return d;
}

/* Slices of one element: their keys are sorted themselves. */
static LpStatus group_values(Groups *g, bool sort, LpErr *e)
{
    LpSortItem *x = g->key;
    if (sort) {
        LpSortItem *tmp = lp_alloc(((size_t)g->n + 1) * sizeof *tmp);
        LP_FAIL_IF(!tmp, e, LP_E_MEMORY, "no memory for unique");
        lp_sort_items(x, tmp, g->n, false);
        lp_free(tmp);
    }
    g->n_groups = 0;
    for (int64_t i = 0; i < g->n; i++) {
        if (i % LOOK == 0 && lp_kernel_stops())
            break;
        if (i == 0 || x[i - 1].key != x[i].key)
            g->first[g->n_groups++] = x[i].at;
        g->group[x[i].at] = g->n_groups - 1;
        g->count[g->n_groups - 1]++;
    }
    return LP_OK;
}

static LpStatus find_groups(const LpKernelReq *r, const void *in, Groups *g,
                            LpErr *e)
{
    LpDesc d = slices_of(r, &g->n, &g->width);
    size_t n = (size_t)g->n + 1;
    int64_t *order = lp_alloc(2 * n * sizeof *order);
    g->group = lp_alloc(n * sizeof *g->group);
    g->first = lp_alloc(n * sizeof *g->first);
    g->count = lp_calloc(n, sizeof *g->count);
    g->key = lp_alloc((n * (size_t)g->width + 1) * sizeof *g->key);
    void *copy = contiguous(&d, in, d.dtype, e);
    if (!order || !g->group || !g->first || !g->count || !g->key || !copy) {
        lp_free(order);
        lp_free(copy);
        return lp_fail(e, LP_E_MEMORY, "no memory for unique");
    }
    lp_sort_keys(d.dtype, copy, 1, g->n * g->width, g->key);
    lp_free(copy);
    if (g->width == 1) {
        lp_free(order);
        return group_values(g, !r->attr[LP_UNIQUE_CONSECUTIVE].i, e);
    }
    for (int64_t i = 0; i < g->n; i++)
        order[i] = i;
    if (!r->attr[LP_UNIQUE_CONSECUTIVE].i)
        sort_slices(g, order, order + n, g->n);
    g->n_groups = 0;
    for (int64_t i = 0; i < g->n; i++) {
        if (i == 0 || compare_slices(g, order[i - 1], order[i]) != 0)
            g->first[g->n_groups++] = order[i];
        g->group[order[i]] = g->n_groups - 1;
        g->count[g->n_groups - 1]++;
    }
    lp_free(order);
    return LP_OK;
}

/* Neighbours that lie in line are compared as they are. count: the groups.
 * fill: their values, and what else is wanted; the last group comes first, so
 * that of equal elements (0, -0) the first one stays, and in count where the
 * group begins, from which it is made. */
#define LINE(T, SAME)                                                          \
    static int64_t count_##T(const void *p, int64_t n)                         \
    {                                                                          \
        const T *x = p;                                                        \
        int64_t same = 0;                                                      \
        for (int64_t i = 1; i < n; i++)                                        \
            same += SAME(x[i - 1], x[i]);                                      \
        return n - same;                                                       \
    }                                                                          \
    static bool fill_##T(const void *p, int64_t n, int64_t groups, void *to,   \
                         int64_t *group, int64_t *count)                       \
    {                                                                          \
        const T *x = p;                                                        \
        T *y = to;                                                             \
        int64_t k = groups - 1, i = n - 1;                                     \
        for (; i > 0 && k >= 0 && !group && !count; i--) {                     \
            y[k] = x[i];                                                       \
            k -= !SAME(x[i - 1], x[i]);                                        \
        }                                                                      \
        for (; i > 0 && k >= 0 && !group; i--) {                               \
            y[k] = x[i];                                                       \
            count[k] = i;                                                      \
            k -= !SAME(x[i - 1], x[i]);                                        \
        }                                                                      \
        for (; i > 0 && k >= 0; i--) {                                         \
            y[k] = x[i];                                                       \
            group[i] = k;                                                      \
            if (count)                                                         \
                count[k] = i;                                                  \
            k -= !SAME(x[i - 1], x[i]);                                        \
        }                                                                      \
        if (i != 0 || k != 0)                                                  \
            return n == 0 && groups == 0;                                      \
        y[0] = x[0];                                                           \
        if (group)                                                             \
            group[0] = 0;                                                      \
        for (int64_t j = 0; count && j < groups; j++)                          \
            count[j] =                                                         \
                (j + 1 < groups ? count[j + 1] : n) - (j > 0 ? count[j] : 0);  \
        return true;                                                           \
    }
#define SAME_BITS(a, b) ((a) == (b))
#define SAME_REAL(a, b) (((a) == (b)) | (((a) != (a)) & ((b) != (b))))
LINE(uint8_t, SAME_BITS)
LINE(int32_t, SAME_BITS)
LINE(int64_t, SAME_BITS)
LINE(float, SAME_REAL)
LINE(double, SAME_REAL)

typedef struct Line {
    int64_t (*count)(const void *x, int64_t n);
    /* false: there are not so many groups */
    bool (*fill)(const void *x, int64_t n, int64_t groups, void *to,
                 int64_t *group, int64_t *count);
} Line;

/* NULL: groups are found by keys. */
static const Line *line_of(const LpKernelReq *r)
{
    static const Line by_type[LP_N_DTYPES] = {
        [LP_BOOL] = {count_uint8_t, fill_uint8_t},
        [LP_U8] = {count_uint8_t, fill_uint8_t},
        [LP_I32] = {count_int32_t, fill_int32_t},
        [LP_I64] = {count_int64_t, fill_int64_t},
        [LP_F32] = {count_float, fill_float},
        [LP_F64] = {count_double, fill_double}};
    const LpDesc *d = &r->in[0];
    bool flat = r->attr[LP_UNIQUE_DIM].kind == LP_ATTR_NONE || d->ndim <= 1;
    if (!r->attr[LP_UNIQUE_CONSECUTIVE].i || !flat || !lp_desc_contiguous(d) ||
        !by_type[d->dtype].count)
        return NULL;
    return &by_type[d->dtype];
}

LP_KERNEL_MEASURE(lp_unique_measure)
{
    Groups g = {0};
    const Line *line = line_of(r);
    bool counts = r->attr[LP_UNIQUE_RETURN_COUNTS].i != 0;
    if (line) {
        int64_t n = lp_desc_numel(&r->in[0]);
        out[0].shape[0] = line->count(in[0], n);
        out[2].shape[0] = counts ? out[0].shape[0] : 0;
        return LP_OK;
    }
    LpStatus st = find_groups(r, in[0], &g, e);
    int dim = r->attr[LP_UNIQUE_DIM].kind == LP_ATTR_NONE
                  ? 0
                  : (int)r->attr[LP_UNIQUE_DIM].i;
    out[0].shape[r->in[0].ndim == 0 ? 0 : dim] = g.n_groups;
    out[2].shape[0] = counts ? g.n_groups : 0;
    free_groups(&g);
    return st;
}

typedef struct Unique {
    LpAttr attr[LP_UNIQUE_ATTRS];
    LpDesc in, out[3];
} Unique;

/* Slice `first[g]` of the operand to slice g of the result. */
static void copy_groups(const Unique *u, const Groups *g, const char *in,
                        char *out)
{
    LpDesc from = u->in, to = u->out[0];
    int64_t bytes = (int64_t)lp_dtype_size(from.dtype);
    if (u->attr[LP_UNIQUE_DIM].kind == LP_ATTR_NONE || from.ndim == 0) {
        LpDesc plain = lp_desc_plain(&from, from.dtype);
        bool dense = lp_desc_contiguous(&from);
        for (int64_t i = 0; i < g->n_groups; i++) {
            int64_t rest = g->first[i], off = dense ? rest : 0;
            for (int d = 0; d < from.ndim && !dense; d++) {
                off += rest / plain.strides[d] * from.strides[d];
                rest %= plain.strides[d];
            }
            memcpy(out + i * to.strides[0] * bytes, in + off * bytes,
                   (size_t)bytes);
        }
        return;
    }
    int dim = (int)u->attr[LP_UNIQUE_DIM].i;
    from.shape[dim] = to.shape[dim] = 1;
    for (int64_t i = 0; i < g->n_groups; i++)
        lp_copy_strided(&from, in + g->first[i] * from.strides[dim] * bytes,
                        &to, out + i * to.strides[dim] * bytes);
}

LP_KERNEL_RUN(run_unique)
{
    static const char changed[] =
        "unique: the data changed while it was measured";
    const Unique *u = k->state;
    LpKernelReq r = {.attr = u->attr, .n_in = 1, .in = &u->in};
    Groups g = {0};
    const Line *line = line_of(&r);
    bool inverse = u->attr[LP_UNIQUE_RETURN_INVERSE].i != 0;
    bool counts = u->attr[LP_UNIQUE_RETURN_COUNTS].i != 0;
    bool plain = true;
    for (int i = 0; i < 3; i++)
        plain = plain && lp_desc_contiguous(&u->out[i]);
    if (line && plain) {
        LP_FAIL_IF(!line->fill(in[0], lp_desc_numel(&u->in), u->out[0].shape[0],
                               out[0], inverse ? out[1] : NULL,
                               counts ? out[2] : NULL),
                   e, LP_E_RUNTIME, "%s", changed);
        return LP_OK;
    }
    LpStatus st = find_groups(&r, in[0], &g, e);
    if (st == LP_OK && lp_kernel_stops()) {
        free_groups(&g);
        return LP_OK;
    }
    int dim = r.attr[LP_UNIQUE_DIM].kind == LP_ATTR_NONE
                  ? 0
                  : (int)r.attr[LP_UNIQUE_DIM].i;
    if (st == LP_OK && u->in.ndim > 0 && g.n_groups != u->out[0].shape[dim])
        st = lp_fail(e, LP_E_RUNTIME, "%s", changed);
    if (st == LP_OK) {
        LpDesc pi = lp_desc_plain(&u->out[1], LP_I64);
        LpDesc pc = lp_desc_plain(&u->out[2], LP_I64);
        copy_groups(u, &g, in[0], out[0]);
        if (inverse)
            lp_copy_strided(&pi, g.group, &u->out[1], out[1]);
        if (counts)
            lp_copy_strided(&pc, g.count, &u->out[2], out[2]);
    }
    free_groups(&g);
    return st;
}

LP_KERNEL_PREPARE(lp_unique_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Unique), run_unique, k, e));
    Unique *u = k->state;
    memcpy(u->attr, r->attr, sizeof u->attr);
    u->in = r->in[0];
    memcpy(u->out, r->out, sizeof u->out);
    k->threads = 1;
    return LP_OK;
}

/* ---- repeat_interleave --------------------------------------------------- */
LP_KERNEL_MEASURE(lp_repeat_measure)
{
    int64_t n = lp_desc_numel(&r->in[0]), sum = 0;
    int64_t *count = contiguous(&r->in[0], in[0], LP_I64, e);
    LpStatus st = count ? LP_OK : LP_E_MEMORY;
    for (int64_t i = 0; i < n && st == LP_OK; i++)
        if (count[i] < 0)
            st = lp_fail(e, LP_E_RUNTIME,
                         "repeats can not be negative, "
                         "got %lld",
                         (long long)count[i]);
        else if (__builtin_add_overflow(sum, count[i], &sum))
            st = lp_fail(e, LP_E_RUNTIME, "the repeats' sum overflows");
    lp_free(count);
    out[0].shape[0] = sum;
    return st;
}

/* work: the repeats, the positions */
LP_KERNEL_RUN(run_repeat)
{
    const LpDesc *d = k->state;
    LpDesc plain = lp_desc_plain(&d[0], LP_I64);
    int64_t *count = work, *at = count + d[0].shape[0], left = d[1].shape[0];
    lp_copy_strided(&d[0], in[0], &plain, count);
    for (int64_t i = 0; i < d[0].shape[0]; i++) {
        if (count[i] < 0 || count[i] > left)
            break;
        for (int64_t j = 0; j < count[i]; j++)
            *at++ = i;
        left -= count[i];
    }
    LP_FAIL_IF(left != 0, e, LP_E_RUNTIME,
               "the data changed while it was measured");
    lp_convert(LP_I64, at - d[1].shape[0], 1, LP_I64, out[0], d[1].strides[0],
               d[1].shape[0]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_repeat_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, 2 * sizeof(LpDesc), run_repeat, k, e));
    LpDesc *d = k->state;
    d[0] = r->in[0];
    d[1] = r->out[0];
    k->work_bytes = (size_t)(d[0].shape[0] + d[1].shape[0]) * sizeof(int64_t);
    k->threads = 1;
    return LP_OK;
}

/* ---- bincount ------------------------------------------------------------ */
static bool is_plain_int64(const LpDesc *d)
{
    return d->dtype == LP_I64 && lp_desc_contiguous(d);
}

LP_KERNEL_MEASURE(lp_bincount_measure)
{
    const LpDesc *d = &r->in[0];
    int64_t n = lp_desc_numel(d), signs = 0, most = 0;
    int64_t *copy = is_plain_int64(d) ? NULL : contiguous(d, in[0], LP_I64, e);
    const int64_t *v = copy ? copy : in[0];
    LpStatus st = copy || is_plain_int64(d) ? LP_OK : LP_E_MEMORY;
    for (int64_t i = 0; i < n && st == LP_OK; i++) {
        signs |= v[i];
        if (v[i] > most)
            most = v[i];
    }
    for (int64_t i = 0; i < n && (signs < 0 || most >= INT32_MAX); i++)
        if (v[i] < 0 || v[i] >= INT32_MAX) {
            st = lp_fail(e, LP_E_RUNTIME,
                         "bincount only supports 1-d non-negative integral "
                         "inputs below 2^31, got %lld at position %lld",
                         (long long)v[i], (long long)i);
            break;
        }
    lp_free(copy);
    most = n > 0 ? most + 1 : 0;
    int64_t least = r->attr[LP_BINCOUNT_MINLENGTH].i;
    out[0].shape[0] = most > least ? most : least;
    return st;
}

typedef struct Bins {
    LpDesc in, weights, out;
    bool weighted;
} Bins;

/* Two tables by turns, so that a number seldom waits for its last count. */
static LpStatus count_each(const int64_t *v, int64_t n, int64_t bins,
                           int64_t *count, LpErr *e)
{
    int64_t *other = count + bins;
    memset(count, 0, (size_t)(2 * bins) * sizeof *count);
    for (int64_t i = 0; i < n; i += 2) {
        uint64_t a = (uint64_t)v[i], b = i + 1 < n ? (uint64_t)v[i + 1] : a;
        LP_FAIL_IF((a > b ? a : b) >= (uint64_t)bins, e, LP_E_RUNTIME,
                   "bincount: the data changed while it was measured");
        count[a]++;
        other[b] += i + 1 < n;
    }
    for (int64_t i = 0; i < bins; i++)
        count[i] += other[i];
    return LP_OK;
}

/* work: indices, counts or sums, counts or weights */
LP_KERNEL_RUN(run_bincount)
{
    const Bins *s = k->state;
    int64_t n = s->in.shape[0], bins = s->out.shape[0];
    int64_t *copy = work, *count = copy + n;
    double *sum = (double *)(void *)count, *w = sum + bins;
    const int64_t *v = is_plain_int64(&s->in) ? in[0] : copy;
    if (v == copy)
        lp_convert(s->in.dtype, in[0], s->in.strides[0], LP_I64, copy, 1, n);
    if (!s->weighted) {
        LP_TRY(count_each(v, n, bins, count, e));
        lp_convert(LP_I64, count, 1, s->out.dtype, out[0], s->out.strides[0],
                   bins);
        return LP_OK;
    }
    memset(sum, 0, (size_t)bins * sizeof *sum);
    lp_convert(s->weights.dtype, in[1], s->weights.strides[0], LP_F64, w, 1, n);
    for (int64_t i = 0; i < n; i++) {
        LP_FAIL_IF(v[i] < 0 || v[i] >= bins, e, LP_E_RUNTIME,
                   "bincount: the data changed while it was measured");
        sum[v[i]] += w[i];
    }
    lp_convert(LP_F64, sum, 1, s->out.dtype, out[0], s->out.strides[0], bins);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_bincount_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Bins), run_bincount, k, e));
    Bins *s = k->state;
    s->in = r->in[0];
    s->weighted = r->n_in > 1 && r->in[1].dtype != LP_DT_NONE;
    if (s->weighted)
        s->weights = r->in[1];
    s->out = r->out[0];
    int64_t n = s->in.shape[0], bins = s->out.shape[0];
    k->work_bytes =
        (size_t)(n + bins + (s->weighted ? n : bins)) * sizeof(int64_t);
    k->threads = 1;
    return LP_OK;
}
