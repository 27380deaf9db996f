/* The driver of gather.h. A run has two steps: indices become offsets (and
 * are checked, on one thread, so that the first bad one is named), then rows
 * move. A row is a copy plan over the inner dimensions. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/copy_view.h"
#include "src/kernel/copy/gather.h"
#include "src/kernel/state.h"

#define PARALLEL_BYTES (1 << 18)
/* Rows lie anywhere: the beginnings of those to come are fetched ahead, after
 * which the processor sees how they go on. */
#define AHEAD 4
#define SOME 512 /* bytes of each */
#define LINE 64

static void fetch(const char *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes && at < SOME; at += LINE)
        __builtin_prefetch(row + at);
}

typedef struct Rows {
    LpRowsReq q;
    LpDesc a, b;                  /* as summed: float copies of half types */
    LpCopyPlan row;               /* from the side read to the side written */
    int64_t n_place;              /* rows of the indices */
    int64_t place_b[LP_MAX_DIMS]; /* strides of the place in b */
    int n_outer;
    int64_t outer[LP_MAX_DIMS], outer_a[LP_MAX_DIMS], outer_b[LP_MAX_DIMS];
    int64_t n_outers;
    LpCopyPlan before; /* operand a to the result or the sum */
    LpCopyPlan dense;  /* b to its float copy */
    LpCopyPlan after;  /* the sum to the result */
    bool sums;         /* in a float copy */
} Rows;

LpDesc lp_at_least_1d(const LpDesc *d)
{
    LpDesc r = *d;
    if (r.ndim == 0) {
        r.ndim = 1;
        r.shape[0] = r.strides[0] = 1;
    }
    return r;
}

void lp_index_load(const LpDesc *d, const void *p, const LpType *place,
                   int64_t *to)
{
    LpType t = *place;
    t.dtype = LP_I64;
    LpDesc out = lp_desc_of(&t);
    LpCopyPlan plan;
    lp_copy_plan(d, &out, 1, &plan);
    lp_copy_run(&plan, p, to);
}

/* ---- offsets ------------------------------------------------------------- */
/* The index's elements as they lie if they are those of the place, else a copy.
 */
static const int64_t *index_of(const Rows *s, int k, const void *p,
                               int64_t *copy)
{
    const LpDesc *d = &s->q.index[k];
    if (d->dtype == LP_I64 && lp_desc_contiguous(d) &&
        lp_desc_numel(d) == s->n_place)
        return p;
    lp_index_load(d, p, &s->q.place, copy);
    return copy;
}

static LpStatus add_offsets(const Rows *s, int k, const int64_t *index,
                            int64_t *off, LpErr *e)
{
    const LpRowsReq *q = &s->q;
    int64_t size = s->a.shape[q->dim[k]], step = s->a.strides[q->dim[k]];
    int64_t wrap = q->wrap ? size : 0, sign = 0; /* of what lies outside */
    for (int64_t j = 0; j < s->n_place; j++) {
        int64_t i = index[j] + (index[j] < 0 ? wrap : 0);
        sign |= i | (int64_t)((uint64_t)size - 1 - (uint64_t)i);
        off[j] = (int64_t)((uint64_t)off[j] + (uint64_t)i * (uint64_t)step);
    }
    for (int64_t j = 0; j < s->n_place && sign < 0; j++)
        LP_FAIL_IF(index[j] < -wrap || index[j] >= size, e, LP_E_INDEX,
                   "%s: index %lld is out of bounds for dimension %d with size "
                   "%lld (at position %lld of the index; indices count from 0)",
                   q->name, (long long)index[j], q->dim[k], (long long)size,
                   (long long)j);
    return LP_OK;
}

/* Marks the rows that an addition leaves out. */
static void mark_skipped(const Rows *s, int64_t *off)
{
    int64_t at = s->q.skip * s->a.strides[s->q.dim[0]];
    for (int64_t j = 0; s->q.skips && j < s->n_place; j++)
        if (off[j] == at)
            off[j] = -1;
}

/* Rows of a; -1: left out. */
static LpStatus addressed_offsets(const Rows *s, void *const *in, int64_t *off,
                                  int64_t *index, LpErr *e)
{
    for (int64_t j = 0; j < s->n_place; j++) /* of none there is no work */
        off[j] = 0;
    for (int i = 0; i < s->q.n_indexed; i++)
        LP_TRY(
            add_offsets(s, i, index_of(s, i, in[s->q.slot[i]], index), off, e));
    mark_skipped(s, off);
    return LP_OK;
}

static void dense_offsets(const Rows *s, int64_t *off)
{
    int64_t at[LP_MAX_DIMS] = {0}, o = 0, last = s->q.place.ndim - 1;
    const LpType *t = &s->q.place;
    int64_t n = last < 0 ? 1 : t->shape[last];
    int64_t step = last < 0 ? 0 : s->place_b[last];
    for (int64_t left = s->n_place; left > 0; left -= n, off += n) {
        for (int64_t j = 0; j < n; j++)
            off[j] = o + j * step;
        for (int64_t i = last - 1; i >= 0; i--) {
            o += s->place_b[i];
            if (++at[i] < t->shape[i])
                break;
            o -= s->place_b[i] * t->shape[i];
            at[i] = 0;
        }
    }
}

/* ---- rows ---------------------------------------------------------------- */
static void outer_offsets(const Rows *s, int64_t o, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = s->n_outer - 1; i >= 0; i--) {
        int64_t k = o % s->outer[i];
        o /= s->outer[i];
        *a += k * s->outer_a[i];
        *b += k * s->outer_b[i];
    }
}

/* Rows of one element: d[to[j]] = s[from[j]], or +=; `take`: to[j] = to[0] + j.
 */
#define LONE(T)                                                                \
    static void move_##T(const void *sp, const int64_t *from, void *dp,        \
                         const int64_t *to, int64_t n)                         \
    {                                                                          \
        const T *s = sp;                                                       \
        T *d = dp;                                                             \
        for (int64_t j = 0; j < n; j++)                                        \
            d[to[j]] = s[from[j]];                                             \
    }                                                                          \
    static void take_##T(const void *sp, const int64_t *from, void *dp,        \
                         const int64_t *to, int64_t n)                         \
    {                                                                          \
        const T *s = sp;                                                       \
        T *d = (T *)dp + (n > 0 ? to[0] : 0);                                  \
        for (int64_t j = 0; j < n; j++)                                        \
            d[j] = s[from[j]];                                                 \
    }
#define LONE_SUM(T)                                                            \
    static void add_##T(const void *sp, const int64_t *from, void *dp,         \
                        const int64_t *to, int64_t n)                          \
    {                                                                          \
        const T *s = sp;                                                       \
        T *d = dp;                                                             \
        for (int64_t j = 0; j < n; j++)                                        \
            if (to[j] >= 0)                                                    \
                d[to[j]] += s[from[j]];                                        \
    }
LONE(uint8_t)
LONE(uint16_t)
LONE(uint32_t)
LONE(uint64_t)
LONE_SUM(float)
LONE_SUM(double)
LONE_SUM(uint32_t)
LONE_SUM(uint64_t)

typedef void (*LoneFn)(const void *s, const int64_t *from, void *d,
                       const int64_t *to, int64_t n);

static LoneFn lone_mover(size_t bytes, bool in_line)
{
    static const LoneFn by_size[][2] = {[1] = {move_uint8_t, take_uint8_t},
                                        [2] = {move_uint16_t, take_uint16_t},
                                        [4] = {move_uint32_t, take_uint32_t},
                                        [8] = {move_uint64_t, take_uint64_t}};
    return by_size[bytes][in_line];
}

/* NULL: narrow types, which wrap. */
static LoneFn lone_adder(LpDtype t)
{
    static const LoneFn by_type[LP_N_DTYPES] = {[LP_F32] = add_float,
                                                [LP_F64] = add_double,
                                                [LP_I32] = add_uint32_t,
                                                [LP_I64] = add_uint64_t};
    return by_type[t];
}

static bool is_lone(const Rows *s)
{
    return s->row.n == 1 && s->row.shape[0] == 1;
}

/* Rows j0 … j1 - 1 of one outer index, whose elements begin at a and b. */
static void copy_run(const Rows *s, const int64_t *oa, const int64_t *ob,
                     char *a, char *b, int64_t j0, int64_t j1)
{
    bool gather = s->q.mode == LP_ROWS_GATHER;
    const int64_t *from = gather ? oa : ob, *to = gather ? ob : oa;
    const char *src = gather ? a : b;
    char *dst = gather ? b : a;
    int64_t fb = (int64_t)lp_dtype_size(s->row.from);
    int64_t tb = (int64_t)lp_dtype_size(s->row.to);
    bool same = s->row.from == s->row.to;
    size_t bytes = (size_t)(s->row.shape[0] * tb);
    if (same && is_lone(s)) {
        bool in_line = gather && lp_is_dense(s->q.place.shape, s->place_b,
                                             s->q.place.ndim);
        lone_mover((size_t)tb, in_line)(src, from + j0, dst, to + j0, j1 - j0);
        return;
    }
    bool piece =
        same && s->row.n == 1 && s->row.src[0] == 1 && s->row.dst[0] == 1;
    for (int64_t j = j0; j < j1; j++) {
        if (j + AHEAD < j1)
            fetch(src + from[j + AHEAD] * fb, (int64_t)bytes);
        if (piece)
            memcpy(dst + to[j] * tb, src + from[j] * fb, bytes);
        else
            lp_copy_run(&s->row, src + from[j] * fb, dst + to[j] * tb);
    }
}

/* Rows [r0, r1) of all (o, j). */
static void copy_rows(const Rows *s, const int64_t *oa, const int64_t *ob,
                      char *a, char *b, int64_t r0, int64_t r1)
{
    int64_t ab = (int64_t)lp_dtype_size(s->a.dtype);
    int64_t bb = (int64_t)lp_dtype_size(s->b.dtype), la, lb;
    for (int64_t r = r0; r < r1;) {
        int64_t j0 = r % s->n_place, j1 = lp_min(s->n_place, j0 + r1 - r);
        outer_offsets(s, r / s->n_place, &la, &lb);
        copy_run(s, oa, ob, a + la * ab, b + lb * bb, j0, j1);
        r += j1 - j0;
    }
}

static void move_all(const Rows *s, const int64_t *oa, const int64_t *ob,
                     char *a, char *b)
{
    int64_t rows = s->n_outers * s->n_place;
    int64_t size = lp_elements(s->row.shape, s->row.n);
    int threads = s->q.threads;
    /* a put must keep the order of j: its threads take whole outers */
    int64_t unit = s->q.mode == LP_ROWS_PUT ? s->n_place : 1;
    if (rows * size * (int64_t)lp_dtype_size(s->b.dtype) < PARALLEL_BYTES ||
        rows / unit < 2)
        threads = 1;
    int64_t part = (rows / unit + threads - 1) / threads * unit;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t r1 = (t + 1) * part < rows ? (t + 1) * part : rows;
        copy_rows(s, oa, ob, a, b, t * part, r1);
    }
}

/* ---- additions ----------------------------------------------------------- */
/* dst += src over a plan's dimensions. */
static void add_row(const LpCopyPlan *p, const char *s, char *d)
{
    int last = p->n - 1;
    int64_t bytes = (int64_t)lp_dtype_size(p->to), at[LP_MAX_DIMS] = {0};
    int64_t rows = lp_elements(p->shape, last);
    for (int64_t r = 0; r < rows; r++) {
        lp_add_strided(p->to, s, p->src[last], d, p->dst[last], p->shape[last]);
        for (int i = last - 1; i >= 0; i--) {
            s += p->src[i] * bytes;
            d += p->dst[i] * bytes;
            if (++at[i] < p->shape[i])
                break;
            s -= p->src[i] * p->shape[i] * bytes;
            d -= p->dst[i] * p->shape[i] * bytes;
            at[i] = 0;
        }
    }
}

/* Columns [c0, c1) of the row's widest dimension, all rows of the outer
 * indices [o0, o1). */
static void add_columns(const Rows *s, const int64_t *oa, const int64_t *ob,
                        char *a, const char *b, int wide, const int64_t c[2],
                        const int64_t outers[2])
{
    LpCopyPlan p = s->row;
    int64_t bytes = (int64_t)lp_dtype_size(p.to), la, lb;
    LoneFn lone = is_lone(s) ? lone_adder(p.to) : NULL;
    p.shape[wide] = c[1] - c[0];
    a += c[0] * p.dst[wide] * bytes;
    b += c[0] * p.src[wide] * bytes;
    for (int64_t o = outers[0]; o < outers[1]; o++) {
        outer_offsets(s, o, &la, &lb);
        if (lone) {
            lone(b + lb * bytes, ob, a + la * bytes, oa, s->n_place);
            continue;
        }
        for (int64_t j = 0; j < s->n_place; j++) {
            if (j + AHEAD < s->n_place)
                fetch(a + (la + oa[j + AHEAD]) * bytes,
                      p.shape[p.n - 1] * bytes);
            if (oa[j] >= 0)
                add_row(&p, b + (lb + ob[j]) * bytes, a + (la + oa[j]) * bytes);
        }
    }
}

/* Threads take columns or, where there are more, outer indices: no two meet. */
static void add_all(const Rows *s, const int64_t *oa, const int64_t *ob,
                    char *a, const char *b)
{
    int wide = 0, threads = s->q.threads;
    int64_t all = s->n_outers * s->n_place;
    all *= lp_elements(s->row.shape, s->row.n);
    for (int i = 0; i < s->row.n; i++)
        if (s->row.shape[i] > s->row.shape[wide])
            wide = i;
    int64_t columns = s->row.shape[wide];
    bool outers = s->n_outers > columns;
    int64_t n = outers ? s->n_outers : columns;
    if (all * (int64_t)lp_dtype_size(s->row.to) < PARALLEL_BYTES || n < 32)
        threads = 1;
    int64_t part = (n + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t mine[] = {t * part, lp_min((t + 1) * part, n)};
        const int64_t c[] = {0, columns}, o[] = {0, s->n_outers};
        if (mine[0] < mine[1])
            add_columns(s, oa, ob, a, b, wide, outers ? c : mine,
                        outers ? mine : o);
    }
}

/* ---- what is written over ------------------------------------------------ */
/* kept: offsets of a, indices, rows */
static size_t row_bytes(const Rows *s)
{
    return (size_t)s->row.shape[0] * lp_dtype_size(s->a.dtype);
}

static bool is_in_pieces(const Rows *s)
{
    return s->q.mode != LP_ROWS_GATHER && s->q.a_slot >= 0 && !s->sums &&
           s->row.n == 1 && (s->row.dst[0] == 1 || s->row.shape[0] == 1);
}

static void each_piece(const Rows *s, const int64_t *off, char *a, char *kept,
                       bool keep)
{
    size_t bytes = row_bytes(s);
    int64_t size = (int64_t)lp_dtype_size(s->a.dtype), la, lb;
    for (int64_t o = 0; o < s->n_outers; o++) {
        outer_offsets(s, o, &la, &lb);
        for (int64_t j = 0; j < s->n_place; j++, kept += bytes) {
            char *row = a + (la + off[j]) * size;
            if (off[j] >= 0)
                memcpy(keep ? kept : row, keep ? row : kept, bytes);
        }
    }
}

static void keep_rows(const LpKernel *k, void *const *in, void *kept)
{
    const Rows *s = k->state;
    int64_t *off = kept, *index = off + s->n_place;
    LpErr e = {0};
    if (addressed_offsets(s, in, off, index, &e) != LP_OK)
        memset(off, -1, (size_t)s->n_place * sizeof *off); /* run will fail */
    each_piece(s, off, in[s->q.a_slot], (char *)(index + s->n_place), true);
}

static void put_rows_back(const LpKernel *k, void *out, void *kept)
{
    const Rows *s = k->state;
    int64_t *off = kept;
    each_piece(s, off, out, (char *)(off + 2 * s->n_place), false);
}

static const LpKernelUndo undo_rows = {keep_rows, put_rows_back};

/* ---- the kernel ---------------------------------------------------------- */
/* work: offsets of a and of b, indices; then the float copies of a and b */
LP_KERNEL_RUN(run_rows)
{
    const Rows *s = k->state;
    const LpRowsReq *q = &s->q;
    int64_t *oa = work, *ob = oa + s->n_place, *index = ob + s->n_place;
    bool gather = q->mode == LP_ROWS_GATHER;
    LP_TRY(addressed_offsets(s, in, oa, index, e));
    dense_offsets(s, ob);
    char *a = gather ? in[q->a_slot] : out[0];
    char *b = gather ? out[0] : in[q->b_slot];
    if (s->sums) {
        char *sum = (char *)(index + s->n_place), *to = b;
        a = sum;
        b = sum + lp_desc_numel(&s->a) * (int64_t)lp_dtype_size(s->a.dtype);
        lp_copy_run(&s->dense, to, b);
    }
    if (!gather && q->a_slot < 0)
        lp_fill_strided(&s->a, a, lp_int(0));
    else if (!gather && a != in[q->a_slot])
        lp_copy_run(&s->before, in[q->a_slot], a);
    if (s->row.empty || s->n_outers == 0 || (s->n_place == 0 && !s->sums))
        return LP_OK;
    if (q->mode == LP_ROWS_ADD)
        add_all(s, oa, ob, a, b);
    else
        move_all(s, oa, ob, a, b);
    if (s->sums)
        lp_copy_run(&s->after, a, out[0]);
    return LP_OK;
}

/* Sorts b's dimensions into outer, place and inner ones, a's into outer and
 * inner ones in the same order. */
static void set_dims(Rows *s, int threads)
{
    const LpRowsReq *q = &s->q;
    LpDesc ra = {.dtype = s->a.dtype}, rb = {.dtype = s->b.dtype};
    int place_end = q->place_dim + q->place.ndim, da = 0, k = 0;
    s->n_outers = 1;
    for (int i = 0; i < s->b.ndim; i++) {
        if (i >= q->place_dim && i < place_end) {
            s->place_b[i - q->place_dim] = s->b.strides[i];
            continue;
        }
        while (k < q->n_indexed && q->dim[k] == da) {
            da++;
            k++;
        }
        if (i < q->place_dim) {
            s->outer[s->n_outer] = s->b.shape[i];
            s->outer_a[s->n_outer] = s->a.strides[da];
            s->outer_b[s->n_outer++] = s->b.strides[i];
            s->n_outers *= s->b.shape[i];
        } else {
            ra.shape[ra.ndim] = rb.shape[rb.ndim] = s->b.shape[i];
            ra.strides[ra.ndim++] = s->a.strides[da];
            rb.strides[rb.ndim++] = s->b.strides[i];
        }
        da++;
    }
    if (q->mode == LP_ROWS_GATHER)
        lp_copy_plan(&ra, &rb, threads, &s->row);
    else
        lp_copy_plan(&rb, &ra, threads, &s->row);
}

LpStatus lp_rows_prepare(const LpRowsReq *q, LpKernel *k, LpErr *e)
{
    LP_TRY(lp_kernel_state(q->name, sizeof(Rows), run_rows, k, e));
    Rows *s = k->state;
    s->q = *q;
    s->a = q->a;
    s->b = q->b;
    s->n_place = lp_numel(&q->place);
    s->sums = q->mode == LP_ROWS_ADD &&
              (q->a.dtype == LP_F16 || q->a.dtype == LP_BF16);
    k->work_bytes = (size_t)s->n_place * 3 * sizeof(int64_t);
    if (s->sums) {
        s->a = lp_desc_plain(&q->a, LP_F32);
        s->b = lp_desc_plain(&q->b, LP_F32);
        k->work_bytes += (size_t)(lp_desc_numel(&s->a) + lp_desc_numel(&s->b)) *
                         sizeof(float);
    }
    if (q->mode != LP_ROWS_GATHER && q->a_slot >= 0)
        lp_copy_plan(&q->before, &s->a, q->threads, &s->before);
    lp_copy_plan(&q->b, &s->b, q->threads, &s->dense);
    lp_copy_plan(&s->a, &q->a, q->threads, &s->after);
    set_dims(s, 1);
    if (is_in_pieces(s)) {
        k->undo = &undo_rows;
        k->undo_bytes =
            (size_t)s->n_place *
            (2 * sizeof(int64_t) + (size_t)s->n_outers * row_bytes(s));
    }
    k->threads = q->threads;
    return LP_OK;
}
