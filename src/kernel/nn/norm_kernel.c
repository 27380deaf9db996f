/* Kernels of layer, group and batch normalisation and their gradients.
 *
 * All take mean and variance in two passes: the second over (x - mean)^2, so
 * data far from 0 keeps its precision. With xhat = (x - mean) rstd over m
 * elements that share their statistics, and g = dy w:
 *
 *     dx = rstd (g - sum(g) / m - xhat sum(g xhat) / m)
 *     dw = sum(dy xhat)      db = sum(dy)
 *
 * With half statistics (LpNumerics.half_statistics) float16 is normalised as
 * the device does it by default: the variance is the mean of the squares less
 * the mean's square, taken in one pass in float32, and mean and rstd are
 * rounded to float16 before they are used. What running averages are made of is
 * float32.
 *
 * Rows, groups or channels are split over the threads. Only the gradients of
 * layer norm's parameters add across threads: each has a partial sum, added in
 * order of the threads. */
#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/loops/pointwise.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/nn/norm_blocked.h"
#include "src/kernel/plain.h"

/* layer: rows of n. group, batch: x [batch, channels, inner]. */
typedef struct Norm {
    int64_t rows, n;
    int64_t batch, channels, inner, groups;
    double eps;
    bool relu; /* batch: one operand more */
    bool half; /* statistics are halves, of one pass */
    /* layer: the matrices are halves, row by row computed in float32 */
    bool halves;
    LpConvert widen, round;
} Norm;

bool lp_half_statistics(const LpKernelReq *r, int i)
{
    LpDtype t = r->in[i].dtype;
    return r->numerics.half_statistics &&
           (t == LP_F16 || (r->widened && t == LP_F32));
}

#define T float
#define L f32
#define F(name) name##_f32
#define SQRT sqrtf
#include "src/kernel/nn/norm_kernel_t.h"
#undef T
#undef L
#undef F
#undef SQRT
#define T double
#define L f64
#define F(name) name##_f64
#define SQRT sqrt
#include "src/kernel/nn/norm_kernel_t.h"

#define CORE(name)                                                             \
    LP_PLAIN_CORE(name)                                                        \
    {                                                                          \
        const Norm *s = (const void *)p->param;                                \
        int64_t all = s->rows * s->n + s->batch * s->channels * s->inner;      \
        int threads = lp_plain_width(p, all);                                  \
        if (p->compute == LP_F64)                                              \
            name##_f64(s, in, out, work, threads);                             \
        else                                                                   \
            name##_f32(s, in, out, work, threads);                             \
        return LP_OK;                                                          \
    }
CORE(layer)
CORE(layer_back)
CORE(group)
CORE(group_back)
CORE(batch)
CORE(batch_back)

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, Norm s,
                        LpPlainCore core, size_t work_elems, LpErr *e)
{
    LpDtype t = lp_plain_type(r->out[0].dtype);
    return lp_plain_prepare(r, k, core, t, &s, sizeof s,
                            work_elems * lp_dtype_size(t), e);
}

/* The last `n` axes are normalised together. */
static Norm rows_of(const LpDesc *x, int n)
{
    return (Norm){.rows = lp_elements(x->shape, x->ndim - n),
                  .n = lp_elements(x->shape + x->ndim - n, n)};
}

static Norm channels_of(const LpDesc *x, int64_t groups)
{
    return (Norm){.batch = x->shape[0],
                  .channels = x->shape[1],
                  .inner = lp_elements(x->shape + 2, x->ndim - 2),
                  .groups = groups};
}

/* Of layer norm operands [0, in) and result 0 are matrices of rows, for each of
 * which and thread there is a row of work. */
static LpStatus by_rows(const LpKernelReq *r, LpKernel *k, Norm s, int in,
                        LpPlainCore core, size_t work_elems, LpErr *e)
{
    LpDtype t = r->out[0].dtype;
    s.halves = lp_is_half(t) && lp_desc_contiguous(&r->out[0]);
    for (int i = 0; i < in; i++)
        s.halves =
            s.halves && r->in[i].dtype == t && lp_desc_contiguous(&r->in[i]);
    if (!s.halves)
        return prepare(r, k, s, core, work_elems, e);
    s.widen = lp_convert_loop(t, LP_F32);
    s.round = lp_convert_loop(LP_F32, t);
    work_elems += (size_t)((in + 1) * s.n * r->threads);
    return lp_plain_prepare_but(r, k, core, LP_F32, &s, sizeof s,
                                work_elems * sizeof(float), (1u << in) - 1, 1,
                                e);
}

/* (x, w, b; normalized_shape, eps) -> y, mean, rstd */
LP_KERNEL_PREPARE(lp_layer_norm_prepare)
{
    Norm s = rows_of(&r->in[0], r->attr[LP_LAYER_NORM_NORMALIZED_SHAPE].n);
    s.eps = r->attr[LP_LAYER_NORM_EPS].f;
    s.half = lp_half_statistics(r, 0);
    return by_rows(r, k, s, 1, layer, 0, e);
}

/* (dy, x, mean, rstd, w; normalized_shape) -> dx, dw, db */
LP_KERNEL_PREPARE(lp_layer_norm_back_prepare)
{
    Norm s = rows_of(&r->in[0], r->attr[LP_LAYER_NORM_NORMALIZED_SHAPE].n);
    return by_rows(r, k, s, 2, layer_back, (size_t)(2 * s.n * r->threads), e);
}

/* (x, w, b; num_groups, eps) -> y, mean, rstd */
LP_KERNEL_PREPARE(lp_group_norm_prepare)
{
    Norm s = channels_of(&r->in[0], r->attr[LP_GROUP_NORM_NUM_GROUPS].i);
    s.eps = r->attr[LP_GROUP_NORM_EPS].f;
    s.half = lp_half_statistics(r, 0);
    return prepare(r, k, s, group, 0, e);
}

/* (dy, x, mean, rstd, w; num_groups) -> dx, dw, db */
LP_KERNEL_PREPARE(lp_group_norm_back_prepare)
{
    Norm s = channels_of(&r->in[0], r->attr[LP_GROUP_NORM_NUM_GROUPS].i);
    return prepare(r, k, s, group_back, (size_t)(2 * s.batch * s.channels), e);
}

/* (x, w, b (, other); eps) -> y, mean, var */
LP_KERNEL_PREPARE(lp_batch_norm_prepare)
{
    if (r->out[0].block)
        return lp_batch_norm_blocked(r, k, e);
    Norm s = channels_of(&r->in[0], 1);
    s.eps = r->attr[LP_BATCH_NORM_EPS].f;
    s.relu = r->n_in > 3;
    s.half = lp_half_statistics(r, 0);
    return prepare(r, k, s, batch, (size_t)(2 * s.channels), e);
}

/* (dy, x, mean, var, w (, y); eps) -> dx, dw, db */
LP_KERNEL_PREPARE(lp_batch_norm_back_prepare)
{
    if (r->out[0].block)
        return lp_batch_norm_back_blocked(r, k, e);
    Norm s = channels_of(&r->in[0], 1);
    s.eps = r->attr[LP_BATCH_NORM_EPS].f;
    s.relu = r->n_in > 5;
    s.half = lp_half_statistics(r, 1);
    int64_t masked = s.relu ? s.batch * s.inner : 0; /* dy */
    return prepare(r, k, s, batch_back, (size_t)((4 + masked) * s.channels), e);
}
