/* Matrix products.
 *
 * mm [m, k] [k, n] -> [m, n]:   d self = dy other^T,   d other = self^T dy.
 * bmm the same for every member of a batch. Everything else is made of them:
 * ranks are matched by reshapes, a broadcast batch by expand. Operands may have
 * any strides; a transposed view is passed to the kernel as it is.
 *
 * Where half and float32 meet, the host refuses as PyTorch does; on the device
 * the second operand (the weights) follows the type of the first. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/rules.h"

/* ---- shape rules --------------------------------------------------------- */
static LpStatus check_pair(const LpInfer *x, int ndim, const char *second)
{
    const LpType *l = &x->in[0], *r = &x->in[1];
    const char *op = x->op->name;
    LP_FAIL_IF(l->ndim != ndim || r->ndim != ndim, x->err, LP_E_RUNTIME,
               "%s: `self` and `%s` must have %d dimensions, got shapes %s "
               "and %s",
               op, second, ndim, lp_shape_str(l), lp_shape_str(r));
    LP_FAIL_IF(l->shape[ndim - 1] != r->shape[ndim - 2], x->err, LP_E_RUNTIME,
               "%s: shapes %s and %s cannot be multiplied: the last size of "
               "`self` (%lld) must equal the last but one of `%s` (%lld)",
               op, lp_shape_str(l), lp_shape_str(r),
               (long long)l->shape[ndim - 1], second,
               (long long)r->shape[ndim - 2]);
    LP_FAIL_IF(l->dtype != r->dtype, x->err, LP_E_RUNTIME,
               "%s: `self` and `%s` must have the same dtype, got %s and %s",
               op, second, lp_dtype_name(l->dtype), lp_dtype_name(r->dtype));
    LP_FAIL_IF(l->dtype == LP_BOOL, x->err, LP_E_NOT_IMPLEMENTED,
               "%s is not implemented for bool", op);
    return LP_OK;
}

static LpStatus infer_mm(LpInfer *x)
{
    LP_TRY(check_pair(x, 2, "mat2"));
    x->out[0] = x->in[0];
    x->out[0].shape[1] = x->in[1].shape[1];
    return LP_OK;
}

static LpStatus infer_bmm(LpInfer *x)
{
    LP_TRY(check_pair(x, 3, "mat2"));
    LP_FAIL_IF(x->in[0].shape[0] != x->in[1].shape[0], x->err, LP_E_RUNTIME,
               "bmm: `self` %s and `mat2` %s must have the same batch size",
               lp_shape_str(&x->in[0]), lp_shape_str(&x->in[1]));
    x->out[0] = x->in[0];
    x->out[0].shape[2] = x->in[1].shape[2];
    return LP_OK;
}

static void grad_product(LpGrad *g)
{
    if (g->need[0])
        g->din[0] = lp_op2(g->b, g->op->id, g->dout[0],
                           lp_transpose(g->b, g->in[1], -2, -1));
    if (!g->need[1])
        return;
    LpVal a = g->in[0], d = g->dout[0];
    if (g->b->turned && g->b->turned(g->b, g->in[1])) /* lies as it does */
        g->din[1] = lp_transpose(
            g->b, lp_op2(g->b, g->op->id, lp_transpose(g->b, d, -2, -1), a), -2,
            -1);
    else
        g->din[1] = lp_op2(g->b, g->op->id, lp_transpose(g->b, a, -2, -1), d);
}

LP_PRIMITIVE(mm, "mm(Tensor self, Tensor mat2) -> Tensor @fmo", infer_mm,
             lp_mm_prepare, lp_rule_product,
             .flags = LP_OPF_CACHED | LP_OPF_PLANNED,
             .product = LP_PRODUCT_MATRIX, .mix = LP_MIX_FOLLOW,
             .cast = LP_CAST_NARROW, .grad = grad_product, .grad_in = 3,
             .readers = LP_READERS(2, 1, 0, 0), .work = lp_mm_work)

LP_PRIMITIVE(bmm, "bmm(Tensor self, Tensor mat2) -> Tensor @fmo", infer_bmm,
             lp_mm_prepare, lp_rule_product,
             .flags = LP_OPF_CACHED | LP_OPF_PLANNED,
             .product = LP_PRODUCT_MATRIX, .mix = LP_MIX_FOLLOW,
             .cast = LP_CAST_NARROW, .grad = grad_product, .grad_in = 3,
             .readers = LP_READERS(2, 1, 0, 0), .work = lp_mm_work)

/* ---- any rank ------------------------------------------------------------ */
bool lp_alike(LpBuilder *b, LpVal w, LpVal x, const char *op, const char *what)
{
    if (w == LP_NOVAL || x == LP_NOVAL || !b->on_host || lp_failed(b))
        return !lp_failed(b);
    LpDtype tw = lp_type(b, w)->dtype, tx = lp_type(b, x)->dtype;
    if (tw == tx)
        return true;
    return LP_REFUSE(b, LP_E_RUNTIME,
                     "%s: `%s` must have the same dtype as the first operand, "
                     "got %s and %s",
                     op, what, lp_dtype_name(tw), lp_dtype_name(tx));
}

/* x [..., k] folded to two dimensions times y [k, n]. */
static LpVal folded(LpBuilder *b, LpVal x, LpVal y)
{
    LpType t = *lp_type(b, x);
    if (t.ndim == 2)
        return lp_op2(b, LP_OP_mm, x, y);
    int64_t k = t.shape[t.ndim - 1];
    int64_t flat[2] = {lp_elements(t.shape, t.ndim - 1), k};
    LpVal r = lp_op2(b, LP_OP_mm, lp_reshape(b, x, flat, 2), y);
    t.shape[t.ndim - 1] = lp_type(b, y)->shape[1];
    return lp_reshape(b, r, t.shape, t.ndim);
}

/* x with its leading dimensions broadcast to those of `batch` (n of them) and
 * folded into one. */
static LpVal batched(LpBuilder *b, LpVal x, const LpType *batch)
{
    LpType t = *lp_type(b, x), to = *batch;
    to.ndim = (int8_t)(batch->ndim + 2);
    to.shape[to.ndim - 2] = t.shape[t.ndim - 2];
    to.shape[to.ndim - 1] = t.shape[t.ndim - 1];
    if (!lp_shape_eq(&t, &to))
        x = lp_expand_as(b, x, &to);
    int64_t flat[3] = {lp_elements(batch->shape, batch->ndim),
                       to.shape[to.ndim - 2], to.shape[to.ndim - 1]};
    return to.ndim == 3 ? x : lp_reshape(b, x, flat, 3);
}

static LpVal broadcast_product(LpBuilder *b, LpVal x, LpVal y)
{
    LpType tx = *lp_type(b, x), ty = *lp_type(b, y), batch = tx, by = ty;
    batch.ndim = (int8_t)(tx.ndim - 2);
    by.ndim = (int8_t)(ty.ndim - 2);
    if (lp_broadcast(&batch, &by, b->err) != LP_OK) {
        lp_err_context(b->err, "in the batch dimensions of matmul");
        return LP_NOVAL;
    }
    LpVal r =
        lp_op2(b, LP_OP_bmm, batched(b, x, &batch), batched(b, y, &batch));
    batch.shape[batch.ndim] = tx.shape[tx.ndim - 2];
    batch.shape[batch.ndim + 1] = ty.shape[ty.ndim - 1];
    int n = batch.ndim + 2;
    return n == 3 ? r : lp_reshape(b, r, batch.shape, n);
}

static void cannot(LpBuilder *b, const LpType *x, const LpType *y)
{
    const char *sa = lp_shape_str(x), *sb = lp_shape_str(y);
    if (x->ndim == 0 || y->ndim == 0)
        lp_fail(b->err, LP_E_RUNTIME,
                "matmul: shapes %s and %s cannot be multiplied: both need at "
                "least 1 dimension",
                sa, sb);
    else
        lp_fail(b->err, LP_E_RUNTIME,
                "matmul: shapes %s and %s cannot be multiplied: size mismatch, "
                "the last size of the first (%lld) must equal the %s size of "
                "the second (%lld)",
                sa, sb, (long long)x->shape[x->ndim - 1],
                y->ndim > 1 ? "last but one" : "only",
                (long long)y->shape[y->ndim > 1 ? y->ndim - 2 : 0]);
}

LpVal lp_matmul(LpBuilder *b, LpVal x, LpVal y)
{
    if (!lp_alike(b, y, x, "matmul", "other"))
        return LP_NOVAL;
    LpType tx = *lp_type(b, x), ty = *lp_type(b, y);
    if (tx.ndim == 0 || ty.ndim == 0 ||
        tx.shape[tx.ndim - 1] != ty.shape[ty.ndim > 1 ? ty.ndim - 2 : 0]) {
        cannot(b, &tx, &ty);
        return LP_NOVAL;
    }
    LpVal x2 = tx.ndim == 1 ? lp_unsqueeze(b, x, 0) : x;
    LpVal y2 = ty.ndim == 1 ? lp_unsqueeze(b, y, 1) : y;
    LpVal r = ty.ndim <= 2 ? folded(b, x2, y2) : broadcast_product(b, x2, y2);
    if (lp_failed(b) || (tx.ndim > 1 && ty.ndim > 1))
        return r;
    LpType t = *lp_type(b, r); /* drop the ones put in */
    int n = t.ndim;
    if (ty.ndim == 1)
        n--;
    else
        t.shape[n - 2] = t.shape[n - 1];
    if (tx.ndim == 1)
        n--;
    return lp_reshape(b, r, t.shape, n);
}

LP_FORMULA(matmul,
           "matmul(Tensor self, Tensor other) -> Tensor @fmo\n"
           "matmul(Tensor self, Tensor other) -> Tensor @lo",
           .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    return lp_matmul(b, in[0], in[1]);
}

/* ---- vectors ------------------------------------------------------------- */
bool lp_ranks(LpBuilder *b, const char *op, LpVal x, int nx, LpVal y, int ny)
{
    const LpType *tx = lp_type(b, x), *ty = lp_type(b, y);
    if (lp_failed(b))
        return false;
    if (tx->ndim == nx && ty->ndim == ny)
        return true;
    lp_fail(b->err, LP_E_RUNTIME,
            "%s takes operands of %d and %d dimensions, got shapes %s and %s",
            op, nx, ny, lp_shape_str(tx), lp_shape_str(ty));
    return false;
}

LP_FORMULA(mv, "mv(Tensor self, Tensor vec) -> Tensor @fmo")
{
    bool ok = lp_ranks(b, "mv", in[0], 2, in[1], 1);
    return ok ? lp_matmul(b, in[0], in[1]) : LP_NOVAL;
}

LP_FORMULA(dot, "dot(Tensor self, Tensor tensor) -> Tensor @fmo\n"
                "vdot(Tensor self, Tensor tensor) -> Tensor @fmo")
{
    bool ok = lp_ranks(b, "dot", in[0], 1, in[1], 1);
    return ok ? lp_matmul(b, in[0], in[1]) : LP_NOVAL;
}

LP_FORMULA(inner, "inner(Tensor self, Tensor other) -> Tensor @fmo",
           .cast = LP_CAST_NARROW)
{
    LpType tx = lp_type_of(b, in[0]), ty = lp_type_of(b, in[1]);
    if (tx.ndim == 0 || ty.ndim == 0)
        return lp_mul(b, in[0], in[1]);
    if (ty.ndim == 1)
        return lp_matmul(b, in[0], in[1]);
    /* every row of self with every row of other */
    int64_t k = ty.shape[ty.ndim - 1];
    int64_t flat[2] = {lp_elements(ty.shape, ty.ndim - 1), k};
    LpVal y = lp_transpose(b, lp_reshape(b, in[1], flat, 2), 0, 1);
    LpVal r = lp_matmul(b, in[0], y);
    int64_t shape[2 * LP_MAX_DIMS];
    int n = tx.ndim - 1;
    memcpy(shape, tx.shape, (size_t)n * sizeof *shape);
    memcpy(shape + n, ty.shape, (size_t)(ty.ndim - 1) * sizeof *shape);
    return lp_reshape(b, r, shape, n + ty.ndim - 1);
}

LP_FORMULA(outer, "outer(Tensor self, Tensor vec2) -> Tensor @fmc\n"
                  "ger(Tensor self, Tensor vec2) -> Tensor @fmc")
{
    if (!lp_ranks(b, "outer", in[0], 1, in[1], 1))
        return LP_NOVAL;
    return lp_mul(b, lp_unsqueeze(b, in[0], 1), lp_unsqueeze(b, in[1], 0));
}
