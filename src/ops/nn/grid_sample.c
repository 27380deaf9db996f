/* Values of pictures [N, C, (D,) H, W] at coordinates [N, (d,) h, w, axes] in
 * -1 … 1, of which the first speaks of the last dimension (PyTorch's
 * grid_sampler; lua/torch/nn/functional/grid.lua checks what users give).
 * Sampling is separable: along each axis a point has a few taps, each a place
 * and a weight; its value is the sum over all combinations of taps, the
 * corners. Places have no gradient, weights have one.
 *
 * The device has no such operation: a trace inlines lookups and products. The
 * formulas are those of src/kernel/nn/gridloops_t.h. */
#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/view/view.h"

static LpStatus check(LpInfer *x, int self)
{
    const LpType *t = &x->in[self], *grid = &x->in[self + 1];
    int n = t->ndim - 2;
    LP_FAIL_IF((n != 2 && n != 3) || grid->ndim != t->ndim, x->err,
               LP_E_RUNTIME,
               "grid_sample: expected input and grid to have 4 or 5 "
               "dimensions, as many each, got shapes %s and %s",
               lp_shape_str(t), lp_shape_str(grid));
    LP_FAIL_IF(t->dtype != grid->dtype || !lp_is_float(t->dtype), x->err,
               LP_E_RUNTIME,
               "grid_sample: expected input and grid to have the same floating "
               "point type, got %s and %s",
               lp_dtype_name(t->dtype), lp_dtype_name(grid->dtype));
    LP_FAIL_IF(grid->shape[0] != t->shape[0], x->err, LP_E_RUNTIME,
               "grid_sample: expected input and grid to have the same batch "
               "size, got shapes %s and %s",
               lp_shape_str(t), lp_shape_str(grid));
    LP_FAIL_IF(grid->shape[n + 1] != n, x->err, LP_E_RUNTIME,
               "grid_sample: expected grid to have size %d in its last "
               "dimension, got shape %s",
               n, lp_shape_str(grid));
    LP_FAIL_IF(lp_elements(t->shape + 2, n) == 0, x->err, LP_E_RUNTIME,
               "grid_sample: expected input to have non-empty spatial "
               "dimensions, got shape %s",
               lp_shape_str(t));
    int64_t mode = x->attr[LP_GRID_INTERPOLATION_MODE].i;
    int64_t padding = x->attr[LP_GRID_PADDING_MODE].i;
    LP_FAIL_IF(mode < LP_GRID_BILINEAR || mode > LP_GRID_BICUBIC ||
                   padding < LP_GRID_ZEROS || padding > LP_GRID_REFLECTION,
               x->err, LP_E_RUNTIME,
               "%s: interpolation mode %lld and padding mode %lld; they are "
               "from 0 to 2",
               x->op->name, (long long)mode, (long long)padding);
    return LP_OK;
}

static LpType result_of(const LpType *self, const LpType *grid)
{
    LpType t = *self;
    for (int d = 2; d < t.ndim; d++)
        t.shape[d] = grid->shape[d - 1];
    return t;
}

static LpStatus infer(LpInfer *x)
{
    LP_TRY(check(x, 0));
    x->out[0] = result_of(&x->in[0], &x->in[1]);
    return LP_OK;
}

static LpStatus infer_back(LpInfer *x)
{
    LP_TRY(check(x, 1));
    LpType grad = result_of(&x->in[1], &x->in[2]);
    LP_TRY(lp_need_float(x, 0, "grad"));
    LP_TRY(lp_need_shape(x, 0, "grad", &grad));
    x->out[0] = x->in[1];
    x->out[1] = x->in[2];
    return LP_OK;
}

/* ---- the expansion ------------------------------------------------------- */
/* Of each tap: the place, what it weighs, and how that changes with the
 * coordinate; [N, points] each. */
typedef struct Taps {
    LpVal at[4], weight[4], slope[4];
} Taps;

typedef struct Corners {
    LpVal planes; /* [N, C, elements] */
    LpType point; /* [N, points] */
    int axes, taps, count;
    int64_t size[3]; /* of the axis that coordinate i speaks of */
    Taps axis[3];
} Corners;

static LpVal scaled(LpBuilder *b, LpVal x, double by, double plus)
{
    x = by == 1 ? x : lp_mul(b, x, lp_immf(b, by));
    return plus == 0 ? x : lp_add(b, x, lp_immf(b, plus));
}

/* floor or round (to so many decimals), without a gradient. */
static LpVal fixed(LpBuilder *b, int op, LpVal x)
{
    LpAttr decimals = lp_attr_int(0);
    return lp_op1(b, LP_OP_detach, lp_emit(b, op, &x, 1, &decimals));
}

static LpVal both(LpBuilder *b, LpVal x, int low, double lo, int high,
                  double hi)
{
    return lp_op2(b, LP_OP_logical_and, lp_op2(b, low, x, lp_immf(b, lo)),
                  lp_op2(b, high, x, lp_immf(b, hi)));
}

/* Thrown back at the outer edges (the outermost centres if `align`). */
static LpVal reflected(LpBuilder *b, LpVal x, double size, bool align,
                       LpVal *slope)
{
    double low = align ? 0 : -0.5, span = align ? size - 1 : size;
    if (span == 0) {
        *slope = lp_zeros_as(b, x, lp_dtype_of(b, x));
        return *slope;
    }
    LpVal v = scaled(b, x, 1, -low), one = lp_immf(b, 1), less = lp_immf(b, -1);
    LpVal before = lp_op2(b, LP_OP_lt, v, lp_immf(b, 0));
    v = lp_op1(b, LP_OP_abs, v);
    LpVal flips = fixed(b, LP_OP_floor, scaled(b, v, 1 / span, 0));
    LpVal extra = lp_sub(b, v, scaled(b, flips, span, 0));
    LpVal half = fixed(b, LP_OP_floor, scaled(b, flips, 0.5, 0));
    LpVal odd = lp_op2(b, LP_OP_ne, flips, lp_mul(b, half, lp_immf(b, 2)));
    *slope =
        lp_cast(b, lp_where(b, lp_op2(b, LP_OP_ne, odd, before), less, one),
                lp_dtype_of(b, x));
    v = lp_where(b, odd, lp_sub(b, lp_immf(b, span), extra), extra);
    return scaled(b, v, 1, low);
}

/* Into 0 … size - 1, without a slope where it ends up at a border. *slope:
 * none is 1. */
static LpVal padded(LpBuilder *b, LpVal x, double size, const LpAttr *attr,
                    LpVal *slope)
{
    *slope = LP_NOVAL;
    if (attr[LP_GRID_PADDING_MODE].i == LP_GRID_ZEROS)
        return x;
    if (attr[LP_GRID_PADDING_MODE].i == LP_GRID_REFLECTION)
        x = reflected(b, x, size, attr[LP_GRID_ALIGN_CORNERS].i, slope);
    LpVal inside = both(b, x, LP_OP_gt, 0, LP_OP_lt, size - 1);
    LpVal in = lp_cast(b, inside, lp_dtype_of(b, x));
    *slope = *slope == LP_NOVAL ? in : lp_mul(b, *slope, in);
    /* NaN becomes 0 */
    LpVal low = lp_op2(b, LP_OP_gt, x, lp_immf(b, 0)), zero = lp_immf(b, 0);
    LpVal to = lp_where(b, low, lp_op1(b, LP_OP_detach, x), zero);
    to = lp_op2(b, LP_OP_minimum, to, lp_immf(b, size - 1));
    return lp_where(b, inside, x, to);
}

/* A tap outside has the place 0 and weighs nothing, NaN of a NaN. */
static void put(LpBuilder *b, Taps *t, int k, LpVal at, double size,
                LpVal weight, LpVal slope, LpVal beyond)
{
    LpVal inside = both(b, at, LP_OP_ge, 0, LP_OP_le, size - 1);
    LpVal zero = lp_immf(b, 0);
    at = lp_where(b, inside, lp_op1(b, LP_OP_detach, at), zero);
    t->at[k] = lp_cast(b, at, LP_I64);
    t->weight[k] = lp_where(b, inside, weight, beyond);
    t->slope[k] = lp_where(b, inside, slope, zero);
}

/* c[0] t^3 + … + c[3]; its slope in *slope, times `by`. */
static LpVal cubic(LpBuilder *b, LpVal t, const double *c, double by,
                   LpVal *slope)
{
    LpVal v = scaled(b, t, c[0], c[1]), d = scaled(b, t, 3 * c[0], 2 * c[1]);
    v = scaled(b, lp_mul(b, v, t), 1, c[2]);
    d = scaled(b, lp_mul(b, d, t), 1, c[2]);
    *slope = scaled(b, d, by, 0);
    return scaled(b, lp_mul(b, v, t), 1, c[3]);
}

static void axis_taps(LpBuilder *b, LpVal x, double size, const LpAttr *attr,
                      Taps *to)
{
    static const double near[] = {1.25, -2.25, 0, 1}; /* Keys 1981, a = -0.75 */
    static const double far[] = {-0.75, 3.75, -6, 3};
    bool align = attr[LP_GRID_ALIGN_CORNERS].i;
    double by = align ? (size - 1) / 2 : size / 2;
    LpVal u = scaled(b, scaled(b, x, 1, 1), by, align ? 0 : -0.5), d;
    if (attr[LP_GRID_INTERPOLATION_MODE].i == LP_GRID_BICUBIC) {
        LpVal low = fixed(b, LP_OP_floor, u), t = lp_sub(b, u, low), slope;
        for (int k = 0; k < 4; k++) {
            LpVal off = k < 2 ? scaled(b, t, 1, 1 - k)
                              : lp_sub(b, lp_immf(b, k - 1), t);
            LpVal w = cubic(b, off, k == 0 || k == 3 ? far : near,
                            k < 2 ? by : -by, &slope);
            put(b, to, k, padded(b, scaled(b, low, 1, k - 1), size, attr, &d),
                size, w, slope, lp_sub(b, t, t));
        }
        return;
    }
    u = padded(b, u, size, attr, &d);
    LpVal one = lp_full(b, lp_type(b, x), lp_float(1));
    if (attr[LP_GRID_INTERPOLATION_MODE].i == LP_GRID_NEAREST) {
        put(b, to, 0, fixed(b, LP_OP_round, u), size, one,
            lp_zeros_as(b, x, lp_dtype_of(b, x)), lp_immf(b, 0));
        return;
    }
    LpVal low = fixed(b, LP_OP_floor, u), t = lp_sub(b, u, low);
    LpVal beyond = lp_sub(b, u, u);
    d = lp_mul(b, d == LP_NOVAL ? one : d, lp_immf(b, by));
    put(b, to, 0, low, size, lp_sub(b, lp_immf(b, 1), t), lp_neg(b, d), beyond);
    put(b, to, 1, scaled(b, low, 1, 1), size, t, d, beyond);
}

/* In float32 of narrower types. */
static Corners corners_of(LpBuilder *b, const LpAttr *attr, LpVal self,
                          LpVal grid)
{
    LpType t = lp_type_of(b, self), g = lp_type_of(b, grid);
    LpDtype wide = t.dtype == LP_F64 ? LP_F64 : LP_F32;
    Corners q = {.axes = t.ndim - 2};
    int64_t mode = attr[LP_GRID_INTERPOLATION_MODE].i;
    q.taps = mode == LP_GRID_BICUBIC ? 4 : mode == LP_GRID_NEAREST ? 1 : 2;
    q.count = q.taps * q.taps * (q.axes == 3 ? q.taps : 1);
    int64_t flat[] = {t.shape[0], t.shape[1], lp_elements(t.shape + 2, q.axes)};
    q.planes = lp_reshape(b, lp_cast(b, self, wide), flat, 3);
    int64_t points[] = {g.shape[0], lp_elements(g.shape + 1, q.axes)};
    q.point =
        (LpType){.dtype = wide, .ndim = 2, .shape = {points[0], points[1]}};
    grid = lp_cast(b, grid, wide);
    for (int a = 0; a < q.axes; a++) {
        q.size[a] = t.shape[t.ndim - 1 - a];
        LpVal x = lp_slice(b, grid, g.ndim - 1, a, a + 1, 1);
        axis_taps(b, lp_reshape(b, x, points, 2), (double)q.size[a], attr,
                  &q.axis[a]);
    }
    return q;
}

static int tap_of(const Corners *q, int c, int axis)
{
    for (int a = 0; a < axis; a++)
        c /= q->taps;
    return c % q->taps;
}

/* Where corner c lies in a plane, for all channels: [N, C, points]. */
static LpVal place(LpBuilder *b, const Corners *q, int c)
{
    LpVal at = LP_NOVAL;
    for (int a = q->axes - 1; a >= 0; a--) {
        LpVal tap = q->axis[a].at[tap_of(q, c, a)];
        at = at == LP_NOVAL
                 ? tap
                 : lp_add(b, lp_mul(b, at, lp_immi(b, q->size[a])), tap);
    }
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, q->planes);
    t.shape[2] = q->point.shape[1];
    return lp_expand_as(b, lp_unsqueeze(b, at, 1), &t);
}

/* What corner c weighs, or if `slope` is an axis how that changes with its
 * coordinate. */
static LpVal weight(LpBuilder *b, const Corners *q, int c, int slope)
{
    LpVal w = LP_NOVAL;
    for (int a = q->axes - 1; a >= 0; a--) {
        int k = tap_of(q, c, a);
        LpVal v = a == slope ? q->axis[a].slope[k] : q->axis[a].weight[k];
        w = w == LP_NOVAL ? v : lp_mul(b, w, v);
    }
    return w;
}

static LpVal gather(LpBuilder *b, const Corners *q, LpVal at)
{
    LpAttr dim = lp_attr_int(2);
    return lp_emit(b, LP_OP_gather, (LpVal[]){q->planes, at}, 2, &dim);
}

static LpVal plus(LpBuilder *b, LpVal sum, LpVal x)
{
    return sum == LP_NOVAL ? x : lp_add(b, sum, x);
}

LP_EXPAND(expand_sampler)
{
    LpType self = lp_type_of(b, in[0]), grid = lp_type_of(b, in[1]);
    LpType made = result_of(&self, &grid);
    Corners q = corners_of(b, attr, in[0], in[1]);
    LpVal sum = LP_NOVAL;
    for (int c = 0; c < q.count && !lp_failed(b); c++) {
        LpVal w = lp_unsqueeze(b, weight(b, &q, c, -1), 1);
        sum = plus(b, sum, lp_mul(b, gather(b, &q, place(b, &q, c)), w));
    }
    out[0] = lp_cast(b, lp_reshape(b, sum, made.shape, made.ndim), self.dtype);
}

LP_EXPAND(expand_back)
{
    LpType self = lp_type_of(b, in[1]), grid = lp_type_of(b, in[2]);
    Corners q = corners_of(b, attr, in[1], in[2]);
    LpVal sum[3] = {0};
    if (lp_failed(b))
        return;
    LpAttr dim = lp_attr_int(2);
    int64_t flat[] = {self.shape[0], self.shape[1], q.point.shape[1]};
    LpVal dy = lp_reshape(b, lp_cast(b, in[0], q.point.dtype), flat, 3);
    LpVal dx = lp_zeros_as(b, q.planes, q.point.dtype);
    for (int c = 0; c < q.count && !lp_failed(b); c++) {
        LpVal at = place(b, &q, c), w = weight(b, &q, c, -1);
        LpVal part = lp_mul(b, dy, lp_unsqueeze(b, w, 1));
        dx = lp_emit(b, LP_OP_scatter_add, (LpVal[]){dx, at, part}, 3, &dim);
        LpVal v = lp_sum(b, lp_mul(b, gather(b, &q, at), dy), (int64_t[]){1}, 1,
                         false);
        for (int a = 0; a < q.axes; a++)
            sum[a] = plus(b, sum[a], lp_mul(b, v, weight(b, &q, c, a)));
    }
    for (int a = 0; a < q.axes; a++)
        sum[a] = lp_unsqueeze(b, sum[a], 2);
    LpVal dgrid = lp_cat(b, sum, q.axes, 2);
    out[0] = lp_cast(b, lp_reshape_as(b, dx, &self), self.dtype);
    out[1] = lp_cast(b, lp_reshape_as(b, dgrid, &grid), grid.dtype);
}

static void grad(LpGrad *g)
{
    lp_emit_n(g->b, LP_OP_grid_sampler_backward,
              (LpVal[]){g->dout[0], g->in[0], g->in[1]}, 3, g->attr, g->din);
}

LP_PRIMITIVE(grid_sampler,
             "grid_sampler(Tensor input, Tensor grid, int interpolation_mode, "
             "int padding_mode, bool align_corners) -> Tensor @p\n"
             "_grid_sampler(Tensor input, Tensor grid, int interpolation_mode, "
             "int padding_mode, bool align_corners) -> Tensor @p",
             infer, lp_grid_prepare, NULL, .kind = LP_OP_FUSED,
             .expand = expand_sampler, .grad = grad, .grad_in = 3,
             .back = &op_grid_sampler_backward)

LP_PRIMITIVE(grid_sampler_backward,
             "grid_sampler_backward(Tensor grad, Tensor input, Tensor grid, "
             "int interpolation_mode, int padding_mode, bool align_corners) -> "
             "(Tensor input, Tensor grid) @p",
             infer_back, lp_grid_back_prepare, NULL, .kind = LP_OP_FUSED,
             .expand = expand_back)
