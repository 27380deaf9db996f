/* gather and the scatters. For every position p of the index,
 *
 *   gather   out[p with p[dim] = index[p]] … as source:  out[p] = self[q]
 *   scatter  out[q] = how(out[q], src[p])
 *
 * where q is p with its coordinate `dim` replaced by index[p]. Setting and
 * gathering move bytes. The other scatters compute in double, float or int64:
 * operands of narrower types are widened into scratch, summed, and rounded
 * once. They run in the order of p, split over threads only along dimensions
 * other than `dim`, where no two threads meet. */
#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/gather.h"
#include "src/kernel/copy/hooks.h"
#include "src/kernel/state.h"

#define PARALLEL (1 << 16) /* elements */

typedef struct Elements {
    LpType index_type; /* shape of the index */
    LpDesc index, far; /* far: the side addressed through the index */
    LpDesc near;       /* the side at p */
    int dim;
    int64_t size;  /* of far along dim */
    bool to_far;   /* scatter */
    bool near_imm; /* the source is a number */
    LpScalar imm;
    LpScatterHow how;
    bool include_self, wide;
    LpDtype acc;         /* type computed in */
    LpCopyPlan self_in;  /* self to the result or the wide copy */
    LpCopyPlan near_in;  /* source to its wide copy */
    LpCopyPlan out_back; /* wide copy to the result */
    int threads;
    const char *name;
} Elements;

/* ---- walking ------------------------------------------------------------- */
/* A part of the walk over the index: coordinates of `cut` in [c0, c1). Calls
 * `line` for every run along the last dimension. */
typedef struct Line {
    const int64_t *index; /* contiguous */
    const char *near;
    char *far;
    int64_t n, near_step;
    int64_t far_step; /* of the last dimension; 0 if it is dim */
    int64_t far_dim;  /* stride along dim */
} Line;
typedef void (*LineFn)(const Elements *s, const Line *l, void *ctx);

static void walk(const Elements *s, const int64_t *index, const char *near,
                 char *far, int cut, int64_t c0, int64_t c1, LineFn fn,
                 void *ctx)
{
    int nd = s->index_type.ndim, last = nd - 1;
    int64_t shape[LP_MAX_DIMS] = {1}, at[LP_MAX_DIMS] = {0}, is[LP_MAX_DIMS];
    int64_t nb = (int64_t)lp_dtype_size(s->near.dtype), rows = 1;
    int64_t fb = (int64_t)lp_dtype_size(s->far.dtype);
    memcpy(shape, s->index_type.shape, sizeof shape);
    lp_contiguous_strides(&s->index_type, is);
    shape[cut] = c1 - c0;
    index += c0 * is[cut];
    near += c0 * s->near.strides[cut] * nb;
    if (cut != s->dim)
        far += c0 * s->far.strides[cut] * fb;
    rows *= lp_elements(shape, last);
    Line l = {.n = shape[last],
              .near_step = s->near.strides[last],
              .far_step = last == s->dim ? 0 : s->far.strides[last],
              .far_dim = s->far.strides[s->dim]};
    for (int64_t r = 0; r < rows && l.n > 0; r++) {
        l.index = index;
        l.near = near;
        l.far = far;
        fn(s, &l, ctx);
        for (int i = last - 1; i >= 0; i--) {
            int64_t f = i == s->dim ? 0 : s->far.strides[i] * fb;
            index += is[i];
            near += s->near.strides[i] * nb;
            far += f;
            if (++at[i] < shape[i])
                break;
            index -= is[i] * shape[i];
            near -= s->near.strides[i] * shape[i] * nb;
            far -= f * shape[i];
            at[i] = 0;
        }
    }
}

/* The walk, split along the longest dimension that is not dim (a gather may
 * be split along dim too). */
static void walk_all(const Elements *s, const int64_t *index, const char *near,
                     char *far, LineFn fn, void *ctx)
{
    int nd = s->index_type.ndim, cut = -1;
    for (int i = 0; i < nd; i++)
        if ((i != s->dim || !s->to_far) &&
            (cut < 0 || s->index_type.shape[i] > s->index_type.shape[cut]))
            cut = i;
    int64_t n = cut < 0 ? 0 : s->index_type.shape[cut];
    int threads = lp_numel(&s->index_type) < PARALLEL ? 1 : s->threads;
    if (cut < 0 || n < 2 * threads || threads == 1) {
        walk(s, index, near, far, 0, 0, s->index_type.shape[0], fn, ctx);
        return;
    }
    int64_t part = (n + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t c1 = (t + 1) * part < n ? (t + 1) * part : n;
        if (t * part < c1)
            walk(s, index, near, far, cut, t * part, c1, fn, ctx);
    }
}

/* Is one of n numbers negative or above `most`? Their signs say so, at once. */
static bool strays(const int64_t *x, int64_t n, int64_t most, int threads)
{
    int64_t sign = 0;
    threads = n < PARALLEL ? 1 : threads;
#pragma omp parallel for num_threads(threads) schedule(static)                 \
    reduction(|                                                                \
              : sign)
    for (int64_t i = 0; i < n; i++)
        sign |= x[i] | (int64_t)((uint64_t)most - (uint64_t)x[i]);
    return sign < 0;
}

/* The index as it lies if it is plain, else a copy of it in `work`. */
static LpStatus load_index(const Elements *s, const void *p, int64_t *work,
                           const int64_t **index, LpErr *e)
{
    int64_t n = lp_numel(&s->index_type);
    const int64_t *x = p;
    if (s->index.dtype != LP_I64 || !lp_desc_contiguous(&s->index)) {
        lp_index_load(&s->index, p, &s->index_type, work);
        x = work;
    }
    *index = x;
    if (!strays(x, n, s->size - 1, s->threads))
        return LP_OK;
    for (int64_t i = 0; i < n; i++)
        LP_FAIL_IF(x[i] < 0 || x[i] >= s->size, e, LP_E_RUNTIME,
                   "%s: index %lld is out of bounds for dimension %d with size "
                   "%lld (at position %lld of the index; indices count from 0)",
                   s->name, (long long)x[i], s->dim, (long long)s->size,
                   (long long)i);
    return LP_OK;
}

/* ---- moving -------------------------------------------------------------- */
/* The statement for all elements of a line: q is the far side's element, p the
 * near side's. Rows of the last dimension need no factors. */
#define EACH(l, ...)                                                           \
    if ((l)->far_step == 0 && (l)->far_dim == 1 && (l)->near_step == 1)        \
        for (int64_t p = 0; p < (l)->n; p++) {                                 \
            int64_t q = (l)->index[p];                                         \
            __VA_ARGS__;                                                       \
        }                                                                      \
    else                                                                       \
        for (int64_t i = 0; i < (l)->n; i++) {                                 \
            int64_t q = i * (l)->far_step + (l)->index[i] * (l)->far_dim;      \
            int64_t p = i * (l)->near_step;                                    \
            __VA_ARGS__;                                                       \
        }

#define MOVE(T)                                                                \
    static void get_##T(const Elements *s, const Line *l, void *ctx)           \
    {                                                                          \
        (void)s, (void)ctx;                                                    \
        T *to = (T *)(void *)(uintptr_t)l->near;                               \
        const T *from = (const T *)(const void *)l->far;                       \
        EACH(l, to[p] = from[q])                                               \
    }                                                                          \
    static void set_##T(const Elements *s, const Line *l, void *ctx)           \
    {                                                                          \
        (void)s, (void)ctx;                                                    \
        const T *from = (const T *)(const void *)l->near;                      \
        T *to = (T *)(void *)l->far;                                           \
        EACH(l, to[q] = from[p])                                               \
    }
MOVE(uint8_t)
MOVE(uint16_t)
MOVE(uint32_t)
MOVE(uint64_t)

static LineFn mover(size_t bytes, bool set)
{
    static const LineFn by_size[][2] = {[1] = {get_uint8_t, set_uint8_t},
                                        [2] = {get_uint16_t, set_uint16_t},
                                        [4] = {get_uint32_t, set_uint32_t},
                                        [8] = {get_uint64_t, set_uint64_t}};
    return by_size[bytes][set];
}

LP_KERNEL_RUN(run_gather)
{
    const Elements *s = k->state;
    const int64_t *index;
    LP_TRY(load_index(s, in[1], work, &index, e));
    walk_all(s, index, out[0], in[0], mover(lp_dtype_size(s->far.dtype), false),
             NULL);
    return LP_OK;
}

/* ---- reducing ------------------------------------------------------------ */
/* *x and the element that arrives are a and b. */
#define REDUCE(F, T, how, expr)                                                \
    static void how##_line_##F(const Elements *s, const Line *l, void *ctx)    \
    {                                                                          \
        (void)s, (void)ctx;                                                    \
        const T *from = (const T *)(const void *)l->near;                      \
        T *to = (T *)(void *)l->far;                                           \
        EACH(l, const T a = to[q], b = from[p]; to[q] = expr)                  \
    }
#define REDUCES(F, T, sum_, prod_)                                             \
    REDUCE(F, T, sum, sum_)                                                    \
    REDUCE(F, T, prod, prod_)                                                  \
    REDUCE(F, T, max, a != a || a > b ? a : b)                                 \
    REDUCE(F, T, min, a != a || a < b ? a : b)
REDUCES(F64, double, a + b, a *b)
REDUCES(F32, float, a + b, a *b)
/* integers wrap around */
REDUCES(I64, int64_t, (int64_t)((uint64_t)a + (uint64_t)b),
        (int64_t)((uint64_t)a *(uint64_t)b))

static LineFn reducer(LpDtype t, LpScatterHow how)
{
    int c = t == LP_F64 ? 0 : t == LP_F32 ? 1 : 2;
#define ROW(how)                                                               \
    {                                                                          \
        how##_line_F64, how##_line_F32, how##_line_I64                         \
    }
    static const LineFn fn[][3] = {
        [LP_SCATTER_SUM] = ROW(sum),  [LP_SCATTER_PROD] = ROW(prod),
        [LP_SCATTER_MEAN] = ROW(sum), [LP_SCATTER_AMAX] = ROW(max),
        [LP_SCATTER_AMIN] = ROW(min),
    };
#undef ROW
    return how == LP_SCATTER_SET ? mover(lp_dtype_size(t), true) : fn[how][c];
}

/* What an element starts from when it does not take part itself. */
static LpScalar neutral(LpScatterHow how, LpDtype t)
{
    bool real = t != LP_I64;
    switch (how) {
    case LP_SCATTER_PROD:
        return lp_int(1);
    case LP_SCATTER_AMAX:
        return real ? lp_float(-INFINITY) : lp_int(INT64_MIN);
    case LP_SCATTER_AMIN:
        return real ? lp_float(INFINITY) : lp_int(INT64_MAX);
    default:
        return lp_int(0);
    }
}

/* Writes the same number to every place the index names. */
static void set_all(const Elements *s, const int64_t *index, char *far,
                    LpScalar v)
{
    Elements one = *s;
    _Alignas(8) char bits[8];
    lp_scalar_store(v, s->far.dtype, bits);
    memset(one.near.strides, 0, sizeof one.near.strides);
    one.near.dtype = s->far.dtype;
    walk_all(&one, index, bits, far, mover(lp_dtype_size(s->far.dtype), true),
             NULL);
}

/* sum / count; integers round down, as PyTorch's do. */
static void divide(const Elements *s, void *sum, const int64_t *count,
                   int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t c = count[i];
        if (c <= 1)
            continue;
        if (s->acc == LP_F64) {
            ((double *)sum)[i] /= (double)c;
        } else if (s->acc == LP_F32) {
            ((float *)sum)[i] /= (float)c;
        } else {
            int64_t v = ((int64_t *)sum)[i], d = v / c;
            ((int64_t *)sum)[i] = d - (v % c != 0 && v < 0);
        }
    }
}

static void take_mean(const Elements *s, const int64_t *index, void *sum,
                      int64_t *count)
{
    int64_t n = lp_desc_numel(&s->far), one = 1;
    Elements c = *s;
    c.far.dtype = c.near.dtype = LP_I64;
    memset(c.near.strides, 0, sizeof c.near.strides);
    for (int64_t i = 0; i < n; i++)
        count[i] = s->include_self;
    walk_all(&c, index, (const char *)&one, (char *)count, sum_line_I64, NULL);
    divide(s, sum, count, n);
}

/* work: index; wide copies of self and source; counts of a mean */
LP_KERNEL_RUN(run_scatter)
{
    const Elements *s = k->state;
    const int64_t *index;
    int64_t n = lp_numel(&s->index_type), far_n = lp_desc_numel(&s->far);
    int64_t bytes = (int64_t)lp_dtype_size(s->acc),
            *count = (int64_t *)work + n;
    LP_TRY(load_index(s, in[1], work, &index, e));
    char *far = s->wide ? (char *)(count + far_n) : out[0];
    char *near = s->wide ? far + far_n * bytes : in[2];
    if (s->wide || in[0] != out[0])
        lp_copy_run(&s->self_in, in[0], far);
    if (s->wide && !s->near_imm)
        lp_copy_run(&s->near_in, in[2], near);
    _Alignas(8) char number[8];
    if (s->near_imm) {
        lp_scalar_store(s->imm, s->far.dtype, number);
        near = number;
    }
    if (n > 0) {
        if (!s->include_self && s->how != LP_SCATTER_SET)
            set_all(s, index, far, neutral(s->how, s->acc));
        walk_all(s, index, near, far, reducer(s->far.dtype, s->how), NULL);
        if (s->how == LP_SCATTER_MEAN)
            take_mean(s, index, far, count);
    }
    if (s->wide)
        lp_copy_run(&s->out_back, far, out[0]);
    return LP_OK;
}

/* ---- preparing ----------------------------------------------------------- */
static LpStatus elements(const LpKernelReq *r, LpKernelRun run, LpKernel *k,
                         LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Elements), run, k, e));
    Elements *s = k->state;
    s->index = lp_at_least_1d(&r->in[1]);
    s->index_type = lp_type_of_desc(&s->index);
    s->index_type.dtype = LP_I64;
    s->dim = (int)r->attr[LP_INDEX_DIM].i;
    s->threads = r->threads;
    s->name = r->op->name;
    k->work_bytes = (size_t)lp_numel(&s->index_type) * sizeof(int64_t);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_gather_prepare)
{
    LP_TRY(elements(r, run_gather, k, e));
    Elements *s = k->state;
    s->far = lp_at_least_1d(&r->in[0]);
    s->near = lp_at_least_1d(&r->out[0]);
    s->size = s->far.shape[s->dim];
    return LP_OK;
}

LpStatus lp_scatter_elements(const LpKernelReq *r, LpScatterHow how,
                             bool include_self, LpKernel *k, LpErr *e)
{
    LP_TRY(elements(r, run_scatter, k, e));
    Elements *s = k->state;
    LpDesc self = lp_at_least_1d(&r->in[0]), out = lp_at_least_1d(&r->out[0]);
    LpDesc src = lp_at_least_1d(&r->in[2]);
    s->to_far = true;
    s->how = how;
    s->include_self = include_self;
    s->near_imm = r->in[2].is_imm;
    s->imm = r->in[2].imm;
    s->size = out.shape[s->dim];
    s->acc = out.dtype;
    if (how != LP_SCATTER_SET)
        s->acc = out.dtype == LP_F64      ? LP_F64
                 : lp_is_float(out.dtype) ? LP_F32
                                          : LP_I64;
    s->wide = s->acc != out.dtype || how == LP_SCATTER_MEAN ||
              (!s->near_imm && src.dtype != out.dtype);
    s->far = s->wide ? lp_desc_plain(&out, s->acc) : out;
    s->near = s->wide ? lp_desc_plain(&src, s->acc) : src;
    if (s->near_imm) {
        memset(s->near.strides, 0, sizeof s->near.strides);
        s->near.dtype = s->far.dtype;
    }
    if (s->wide || how == LP_SCATTER_MEAN) {
        size_t far_n = (size_t)lp_desc_numel(&s->far);
        size_t near_n = s->near_imm ? 0 : (size_t)lp_desc_numel(&s->near);
        k->work_bytes +=
            far_n * sizeof(int64_t) + (far_n + near_n) * lp_dtype_size(s->acc);
    }
    lp_copy_plan(&self, &s->far, r->threads, &s->self_in);
    if (!s->near_imm)
        lp_copy_plan(&src, &s->near, r->threads, &s->near_in);
    lp_copy_plan(&s->far, &out, r->threads, &s->out_back);
    return LP_OK;
}
