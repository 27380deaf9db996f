/* Running products, products of all others, and the linear recurrence that
 * their gradients are.
 *
 * Of y_i = x_0 … x_i the gradient is dx_j = y_(j-1) s_j with
 * s_j = dy_j + x_(j+1) s_(j+1): linear in time and memory, and without a
 * division, so zeros do no harm. A recurrence's gradient is one again, of
 * the other direction. */
#include <math.h>

#include "runtime/cost/cost.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/ops/reduce/reduce.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* v moved one place on along d, or one back; `fill` at the free end. */
static LpVal moved(LpBuilder *b, LpVal v, int64_t d, bool on, double fill)
{
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, v);
    int64_t n = t.shape[d];
    t.shape[d] = n < 1 ? n : 1;
    LpVal end = lp_full(b, &t, lp_float(fill));
    LpVal rest = lp_slice(b, v, (int)d, on ? 0 : 1, on ? n - 1 : n, 1);
    return lp_cat(b, (LpVal[]){on ? end : rest, on ? rest : end}, 2, (int)d);
}

static LpVal recurrence(LpBuilder *b, LpVal a, LpVal v, int64_t d, bool reverse)
{
    LpAttr attr[2] = {lp_attr_ints(&d, 1), lp_attr_bool(reverse)};
    return lp_emit(b, LP_OP_recurrence, (LpVal[]){a, v}, 2, attr);
}

/* dx of y = cumprod(x), of one wide type. Sums that left the range count as
 * nothing where a product before them came to 0. */
static LpVal product_grad(LpGrad *g, LpVal x, LpVal y, LpVal dy, int64_t d)
{
    LpVal before = moved(g->b, y, d, true, 1);
    LpVal s = recurrence(g->b, moved(g->b, x, d, false, 0), dy, d, true);
    LpVal lost = AND(EQ(before, K(0)), EQ(OP1(abs, s), K(INFINITY)));
    return WHERE(lost, K(0), MUL(before, s));
}

static LpVal wide(LpBuilder *b, LpVal v, LpDtype t)
{
    return lp_cast(b, v, t == LP_F64 ? LP_F64 : LP_F32);
}

static bool is_empty(LpGrad *g, LpVal v)
{
    return lp_failed(g->b) || lp_numel(lp_type(g->b, v)) == 0;
}

/* ---- running products ---------------------------------------------------- */
static LP_KERNEL_PREPARE(prepare_cumprod)
{
    return lp_line_prepare(r, LP_LINE_CUMPROD, k, e);
}

static void grad_cumprod(LpGrad *g)
{
    if (g->attr[LP_CUMSUM_DIM].n == 0 || is_empty(g, X)) {
        g->din[0] = DY;
        return;
    }
    LpDtype t = lp_type(g->b, R)->dtype;
    LpVal x = wide(g->b, lp_cast(g->b, X, t), t);
    g->din[0] = product_grad(g, x, wide(g->b, R, t), wide(g->b, DY, t),
                             g->attr[LP_CUMSUM_DIM].v[0]);
}

LP_PRIMITIVE(cumprod,
             "cumprod.own(Tensor self, int[1] dim, ScalarType? dtype=None) -> "
             "Tensor @p\n"
             "cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> "
             "Tensor @fmid",
             lp_infer_running, prepare_cumprod, lp_rule_running,
             .cost_row = LP_EW_mul, .grad = grad_cumprod, .grad_in = 1,
             .grad_out = 1)

/* ---- recurrences --------------------------------------------------------- */
static LpStatus infer_recurrence(LpInfer *x)
{
    LpDtype t = x->in[0].dtype;
    LP_TRY(lp_reduce_dims(x));
    LP_FAIL_IF(!lp_shape_eq(&x->in[0], &x->in[1]) || t != x->in[1].dtype ||
                   (t != LP_F32 && t != LP_F64) ||
                   x->attr[LP_RUNNING_DIM].n > 1,
               x->err, LP_E_RUNTIME,
               "recurrence: self and other must have one shape and one type, "
               "float32 or float64, and dim one dimension; got %s and %s and "
               "%d dimensions",
               lp_dtype_name(t), lp_dtype_name(x->in[1].dtype),
               x->attr[LP_RUNNING_DIM].n);
    return lp_view_same(x);
}

/* u_j = dy_j + a_(j+1) u_(j+1) is what other gets, u_j y_(j-1) what self. */
static void grad_recurrence(LpGrad *g)
{
    bool reverse = g->attr[LP_RUNNING_REVERSE].i != 0;
    if (g->attr[LP_RUNNING_DIM].n == 0 || is_empty(g, X)) {
        g->din[0] = MUL(DY, K(0));
        g->din[1] = DY;
        return;
    }
    int64_t d = g->attr[LP_RUNNING_DIM].v[0];
    LpVal next = moved(g->b, X, d, reverse, 0);
    LpVal u = recurrence(g->b, next, DY, d, !reverse);
    g->din[0] = MUL(u, moved(g->b, R, d, !reverse, 0));
    g->din[1] = u;
}

/* y_j = d_j + a_j y_(j-1), from the end in reverse */
LP_PRIMITIVE(recurrence,
             "recurrence(Tensor self, Tensor other, int[1] dim, bool "
             "reverse=False) -> Tensor @p",
             infer_recurrence, lp_recurrence_prepare, lp_rule_recurrence,
             .grad = grad_recurrence, .grad_in = 1, .grad_out = 1)

/* ---- products of the others ---------------------------------------------- */
static LpStatus infer_others(LpInfer *x)
{
    LP_TRY(lp_reduce_dims(x));
    x->out[0] = x->in[0];
    return LP_OK;
}

static LP_KERNEL_PREPARE(prepare_others)
{
    return lp_line_prepare(r, LP_LINE_OTHERS, k, e);
}

/* Of x [.., n]: y_i is the product of those before i times that of those
 * behind, each a running product moved on by one. */
static LpVal others_grad(LpGrad *g, LpVal x, LpVal dy, int64_t d)
{
    LpAttr a[2] = {lp_attr_ints(&d, 1), LP_NONE_ATTR};
    LpVal run[2], other[2], dx[2], way[2] = {x, lp_flip(g->b, x, d)};
    for (int i = 0; i < 2; i++) {
        run[i] = lp_emit(g->b, LP_OP_cumprod, &way[i], 1, a);
        other[i] = lp_flip(g->b, moved(g->b, run[i], d, true, 1), d);
    }
    for (int i = 0; i < 2; i++) {
        LpVal share = MUL(i ? lp_flip(g->b, dy, d) : dy, other[1 - i]);
        share = moved(g->b, share, d, false, 0);
        dx[i] = product_grad(g, way[i], run[i], share, d);
    }
    return ADD(dx[0], lp_flip(g->b, dx[1], d));
}

/* The reduced dimensions are flattened to one first. */
static void grad_others(LpGrad *g)
{
    LpType like = *lp_type(g->b, X);
    const LpAttr *dims = &g->attr[LP_RUNNING_DIM];
    int64_t order[LP_MAX_DIMS], back[LP_MAX_DIMS], flat[LP_MAX_DIMS];
    int kept = 0, at = 0;
    if (dims->n == 0 || is_empty(g, X))
        return;
    for (int d = 0; d < like.ndim; d++) {
        if (at < dims->n && dims->v[at] == d)
            at++;
        else
            order[kept++] = d;
    }
    for (int i = 0; i < dims->n; i++)
        order[kept + i] = dims->v[i];
    LpType there = like;
    flat[kept] = 1;
    for (int d = 0; d < like.ndim; d++) {
        back[order[d]] = d;
        there.shape[d] = like.shape[order[d]];
        if (d < kept)
            flat[d] = there.shape[d];
        else
            flat[kept] *= there.shape[d];
    }
    LpVal v[2] = {X, DY};
    for (int i = 0; i < 2; i++) {
        v[i] = lp_permute(g->b, v[i], order, like.ndim);
        v[i] = lp_reshape(g->b, v[i], flat, kept + 1);
        v[i] = wide(g->b, v[i], like.dtype);
    }
    LpVal dx = others_grad(g, v[0], v[1], kept);
    dx = lp_reshape(g->b, dx, there.shape, there.ndim);
    g->din[0] = lp_permute(g->b, dx, back, like.ndim);
}

/* y_i = prod of x_l, l != i */
LP_PRIMITIVE(prod_others, "prod_others(Tensor self, int[] dim) -> Tensor @p",
             infer_others, prepare_others, lp_rule_others,
             .cost_row = LP_EW_mul, .grad = grad_others, .grad_in = 1)
