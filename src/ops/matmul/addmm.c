/* Matrix products with an addend, and the layers made of them.
 *
 * In float32 and float64 they are composed of a product and an addition. In the
 * half types PyTorch adds in float32 and rounds once: there a product with its
 * addend is one operator, mm_plus or bmm_plus, whose gradients are those of the
 * product. On the device it is charged as the product and the addition. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/kernel/product/plus.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/rules.h"

/* ---- rounded once -------------------------------------------------------- */
/* The addend, called `name`, must broadcast to the product's type. */
static LpStatus check_addend(const LpType *addend, const LpType *product,
                             const char *op, const char *name, LpErr *err)
{
    LpType t = *addend, both = *product;
    LpErr probe = {0};
    LP_FAIL_IF(lp_broadcast(&both, &t, &probe) != LP_OK ||
                   !lp_shape_eq(&both, product),
               err, LP_E_RUNTIME,
               "%s: %s of shape %s cannot be expanded to the product's "
               "shape %s",
               op, name, lp_shape_str(addend), lp_shape_str(product));
    return LP_OK;
}

static const LpOp *product_of(const LpOp *plus)
{
    return plus == &op_mm_plus ? &op_mm : &op_bmm;
}

static LpStatus infer_plus(LpInfer *x)
{
    const LpType *t = &x->in[2];
    LpInfer q = *x;
    q.op = product_of(x->op);
    q.n_in = 2;
    LP_TRY(q.op->infer(&q));
    LP_TRY(check_addend(t, &x->out[0], x->op->name, "the addend", x->err));
    LP_FAIL_IF(t->dtype != x->out[0].dtype || !lp_is_float(t->dtype), x->err,
               LP_E_RUNTIME,
               "%s: the product and the addend must have one floating-point "
               "type, got %s and %s",
               x->op->name, lp_dtype_name(x->out[0].dtype),
               lp_dtype_name(t->dtype));
    return LP_OK;
}

static LpVal times(LpBuilder *b, LpVal v, LpScalar s)
{
    return v == LP_NOVAL || lp_scalar_f(s) == 1 ? v
                                                : lp_mul(b, v, lp_imm(b, s));
}

static void grad_plus(LpGrad *g)
{
    LpGrad q = *g;
    q.op = product_of(g->op);
    q.n_in = 2;
    q.op->grad(&q);
    for (int i = 0; i < 2; i++)
        g->din[i] = times(g->b, g->din[i], g->attr[LP_PLUS_ALPHA].s);
    if (g->need[2])
        g->din[2] = times(g->b, g->dout[0], g->attr[LP_PLUS_BETA].s);
}

const LpPlusOps lp_plus_ops = {&op_mul, &op_add, &op_cast};
#define PLUS(name)                                                             \
    LP_PRIMITIVE(name,                                                         \
                 #name "(Tensor self, Tensor mat2, Tensor addend, Scalar "     \
                       "beta, Scalar alpha) -> Tensor @p",                     \
                 infer_plus, lp_mm_plus_prepare, lp_rule_product_plus,         \
                 .flags = LP_OPF_CACHED | LP_OPF_PLANNED,                      \
                 .product = LP_PRODUCT_MATRIX, .grad = grad_plus,              \
                 .grad_in = 3, .readers = LP_READERS(2, 1, 0, 0),              \
                 .work = lp_mm_work, .data = &lp_plus_ops)
PLUS(mm_plus)
PLUS(bmm_plus)

/* beta addend + alpha x y */
static LpVal emit_plus(LpBuilder *b, int op, LpVal x, LpVal y, LpVal addend,
                       LpScalar beta, LpScalar alpha)
{
    LpAttr a[2] = {lp_attr_scalar(beta), lp_attr_scalar(alpha)};
    return lp_emit(b, op, (LpVal[]){x, y, addend}, 3, a);
}

/* x, y and addend are all of one half type. */
static bool all_half(LpBuilder *b, LpVal x, LpVal y, LpVal addend)
{
    if (lp_failed(b))
        return false;
    LpDtype t = lp_type(b, x)->dtype;
    return lp_is_half(t) && lp_type(b, y)->dtype == t &&
           lp_type(b, addend)->dtype == t;
}

/* ---- with an addend ------------------------------------------------------ */
static bool is_one(LpScalar s)
{
    return lp_scalar_f(s) == 1;
}

/* `self` broadcasts to what a product, of type `want`, is. */
static bool expands(LpBuilder *b, LpVal self, const LpType *want,
                    const char *op)
{
    return check_addend(lp_type(b, self), want, op, "`self`", b->err) == LP_OK;
}

/* beta self + alpha r; self is not read when beta is 0, and of the operators
 * that BLAS computes the product when alpha is 0 (`skips`). */
static LpVal plus(LpBuilder *b, LpVal self, LpVal r, const LpAttr *attr,
                  const char *op, bool skips)
{
    LpScalar beta = attr[LP_PLUS_BETA].s, alpha = attr[LP_PLUS_ALPHA].s;
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = *lp_type(b, self), want = *lp_type(b, r);
    if (!expands(b, self, &want, op))
        return LP_NOVAL;
    bool whole = !lp_is_float(t.dtype);
    if (whole) { /* integers: so are alpha and beta, and the result */
        alpha = lp_int(lp_scalar_i(alpha));
        beta = lp_int(lp_scalar_i(beta));
    }
    if (lp_scalar_f(alpha) == 0 && !whole && skips)
        r = lp_regardless(b, lp_zeros_as(b, r, want.dtype), r);
    else if (!is_one(alpha))
        r = lp_mul(b, r, lp_imm(b, alpha));
    if (lp_scalar_f(beta) != 0) {
        if (!is_one(beta))
            self = lp_mul(b, self, lp_imm(b, beta));
        r = lp_add(b, self, r);
    } else if (!whole) {
        r = lp_regardless(b, r, self);
    }
    return whole ? lp_cast(b, r, t.dtype) : r;
}

/* The same for a product, whose dtype self must have on the host. */
static LpVal scaled(LpBuilder *b, LpVal self, LpVal r, const LpAttr *attr,
                    const char *op)
{
    if (lp_failed(b))
        return LP_NOVAL;
    LpDtype t = lp_type(b, self)->dtype, want = lp_type(b, r)->dtype;
    if (b->on_host && t != want)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "%s: `self` must have the same dtype as the product, got %s "
            "and %s",
            op, lp_dtype_name(t), lp_dtype_name(want));
    return plus(b, self, r, attr, op, strcmp(op, "baddbmm") != 0);
}

/* The same of a product that has only been asked for. */
static LpVal added(LpBuilder *b, int product, const LpVal *in,
                   const LpAttr *attr, const char *op)
{
    int n = product == LP_OP_mm ? 2 : 3;
    LpType x = *lp_type(b, in[1]), y = *lp_type(b, in[2]);
    if (!all_half(b, in[1], in[2], in[0]) || x.ndim != n || y.ndim != n)
        return scaled(b, in[0], lp_op2(b, product, in[1], in[2]), attr, op);
    x.shape[n - 1] = y.shape[n - 1];
    if (!expands(b, in[0], &x, op))
        return LP_NOVAL;
    return emit_plus(b, n == 2 ? LP_OP_mm_plus : LP_OP_bmm_plus, in[1], in[2],
                     in[0], attr[LP_PLUS_BETA].s, attr[LP_PLUS_ALPHA].s);
}

#define ADDED(name, product, x, y)                                             \
    LP_FORMULA(name,                                                           \
               #name "(Tensor self, Tensor " #x ", Tensor " #y ", *, "         \
                     "Scalar beta=1, Scalar alpha=1) -> Tensor @fmio",         \
               .cast = LP_CAST_NARROW)                                         \
    {                                                                          \
        return added(b, LP_OP_##product, in, attr, #name);                     \
    }
ADDED(addmm, mm, mat1, mat2)
ADDED(baddbmm, bmm, batch1, batch2)

static LpVal member(LpBuilder *b, LpVal x, int64_t i)
{
    LpAttr a[2] = {lp_attr_int(0), lp_attr_int(i)};
    return lp_emit(b, LP_OP_select, &x, 1, a);
}

/* As PyTorch does on the CPU: half sums are rounded after each product. */
static LpVal added_one_by_one(LpBuilder *b, const LpVal *in, const LpAttr *attr)
{
    LpVal sum = in[0];
    LpScalar beta = attr[LP_PLUS_BETA].s;
    int64_t n = lp_type(b, in[1])->shape[0];
    for (int64_t i = 0; i < n && !lp_failed(b); i++) {
        sum = emit_plus(b, LP_OP_mm_plus, member(b, in[1], i),
                        member(b, in[2], i), sum, beta, attr[LP_PLUS_ALPHA].s);
        beta = lp_int(1);
    }
    return sum;
}

LP_FORMULA(addbmm,
           "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar "
           "beta=1, Scalar alpha=1) -> Tensor @fmio",
           .cast = LP_CAST_NARROW)
{
    if (!lp_ranks(b, "addbmm", in[1], 3, in[2], 3))
        return LP_NOVAL;
    LpType x = *lp_type(b, in[1]), y = *lp_type(b, in[2]);
    if (all_half(b, in[1], in[2], in[0]) && x.shape[0] == y.shape[0] &&
        x.shape[0] > 0) {
        LpType one = {.ndim = 2, .shape = {x.shape[1], y.shape[2]}};
        if (expands(b, in[0], &one, "addbmm"))
            return added_one_by_one(b, in, attr);
    }
    LpVal r = lp_op2(b, LP_OP_bmm, in[1], in[2]);
    LpDtype t = lp_type(b, r)->dtype; /* sums of integers are int64 */
    r = lp_cast(b, lp_sum(b, r, (int64_t[]){0}, 1, false), t);
    return scaled(b, in[0], r, attr, "addbmm");
}

LP_FORMULA(addmv,
           "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, "
           "Scalar alpha=1) -> Tensor @fmio")
{
    if (!lp_ranks(b, "addmv", in[1], 2, in[2], 1))
        return LP_NOVAL;
    if (!all_half(b, in[1], in[2], in[0])) {
        return scaled(b, in[0], lp_matmul(b, in[1], in[2]), attr, "addmv");
    }
    LpType r = {.ndim = 1, .shape = {lp_type(b, in[1])->shape[0]}};
    if (!expands(b, in[0], &r, "addmv"))
        return LP_NOVAL;
    LpVal self =
        lp_type(b, in[0])->ndim == 1 ? lp_unsqueeze(b, in[0], 1) : in[0];
    LpVal y = emit_plus(b, LP_OP_mm_plus, in[1], lp_unsqueeze(b, in[2], 1),
                        self, attr[LP_PLUS_BETA].s, attr[LP_PLUS_ALPHA].s);
    return lp_reshape(b, y, r.shape, 1);
}

/* s as a number of type t has it; PyTorch rounds it first. */
static LpScalar rounded(LpScalar s, LpDtype t)
{
    uint16_t bits;
    if (!lp_is_half(t))
        return s;
    lp_scalar_store(s, t, &bits);
    return lp_scalar_load(t, &bits);
}

/* Every step is rounded, and alpha multiplies vec1, as in PyTorch. */
LP_FORMULA(addr,
           "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, "
           "Scalar alpha=1) -> Tensor @fmic")
{
    if (!lp_ranks(b, "addr", in[1], 1, in[2], 1))
        return LP_NOVAL;
    LpDtype one =
        lp_dtype_promote(lp_type(b, in[1])->dtype, lp_type(b, in[2])->dtype);
    LpDtype t = lp_dtype_promote(lp_type(b, in[0])->dtype, one);
    LpAttr a[2] = {lp_attr_scalar(rounded(attr[LP_PLUS_BETA].s, t)),
                   lp_attr_scalar(rounded(attr[LP_PLUS_ALPHA].s, t))};
    LpVal u = lp_unsqueeze(b, in[1], 1), v = lp_unsqueeze(b, in[2], 0);
    if (lp_is_float(t)) {
        u = times(b, lp_cast(b, u, t), a[LP_PLUS_ALPHA].s);
        a[LP_PLUS_ALPHA] = lp_attr_scalar(lp_int(1));
    }
    LpVal r = lp_mul(b, u, v);
    return lp_failed(b) ? LP_NOVAL
                        : plus(b, lp_cast(b, in[0], t), r, a, "addr", false);
}

/* ---- layers -------------------------------------------------------------- */
/* x [..., k] times y [k, n], plus bias [n], in a half type. */
static LpVal half_linear(LpBuilder *b, LpVal x, LpVal y, LpVal bias)
{
    LpType t = *lp_type(b, x);
    int64_t k = t.shape[t.ndim - 1];
    int64_t flat[2] = {lp_elements(t.shape, t.ndim - 1), k};
    if (t.ndim != 2)
        x = lp_reshape(b, x, flat, 2);
    LpVal r = emit_plus(b, LP_OP_mm_plus, x, y, bias, lp_int(1), lp_int(1));
    if (t.ndim == 2 || lp_failed(b))
        return r;
    t.shape[t.ndim - 1] = lp_type(b, r)->shape[1];
    return lp_reshape(b, r, t.shape, t.ndim);
}

/* y = x w^T + bias; x [..., k], w [n, k] or [k], bias [n] */
LP_FORMULA(linear,
           "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor "
           "@no",
           .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    LpVal w = in[1], bias = in[2];
    if (!lp_alike(b, w, in[0], "linear", "weight") ||
        !lp_alike(b, bias, in[0], "linear", "bias"))
        return LP_NOVAL;
    LpType tx = *lp_type(b, in[0]), tw = *lp_type(b, w);
    if (tx.ndim == 0 || tw.ndim < 1 || tw.ndim > 2 ||
        tx.shape[tx.ndim - 1] != tw.shape[tw.ndim - 1])
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "linear: `input` of shape %s does not fit `weight` of shape "
            "%s: the last sizes must be equal, and weight has 2 dimensions "
            "(out, in)",
            lp_shape_str(&tx), lp_shape_str(&tw));
    if (tw.ndim == 2)
        w = lp_transpose(b, w, 0, 1);
    if (bias != LP_NOVAL && tw.ndim == 2 && all_half(b, in[0], w, bias) &&
        lp_type(b, bias)->ndim < 2)
        return half_linear(b, in[0], w, bias);
    LpVal y = lp_matmul(b, in[0], w);
    return bias == LP_NOVAL ? y : lp_add(b, y, bias);
}

/* y[.., o] = x1[.., i] w[o, i, j] x2[.., j] + bias[o] */
LP_FORMULA(bilinear,
           "bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? "
           "bias=None) -> Tensor @fn",
           .mix = LP_MIX_FOLLOW)
{
    LpVal w = in[2], bias = in[3];
    if (!lp_alike(b, w, in[0], "bilinear", "weight") ||
        !lp_alike(b, bias, in[0], "bilinear", "bias"))
        return LP_NOVAL;
    LpType t1 = *lp_type(b, in[0]), t2 = *lp_type(b, in[1]);
    LpType tw = *lp_type(b, w);
    bool ok = t1.ndim > 0 && t1.ndim == t2.ndim && tw.ndim == 3 &&
              lp_sizes_eq(&t1, &t2, t1.ndim - 1);
    if (!ok || t1.shape[t1.ndim - 1] != tw.shape[1] ||
        t2.shape[t2.ndim - 1] != tw.shape[2])
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "bilinear: `input1` %s and `input2` %s must agree in all but "
            "the last size and fit `weight` %s (out, in1, in2)",
            lp_shape_str(&t1), lp_shape_str(&t2), lp_shape_str(&tw));
    int64_t rows = lp_elements(t1.shape, t1.ndim - 1);
    int64_t o = tw.shape[0], i = tw.shape[1], j = tw.shape[2];
    LpVal x1 = lp_reshape(b, in[0], (int64_t[]){rows, i}, 2);
    LpVal x2 = lp_reshape(b, in[1], (int64_t[]){rows, j, 1}, 3);
    LpVal p = lp_permute(b, w, (int64_t[]){1, 0, 2}, 3);
    p = lp_reshape(b, p, (int64_t[]){i, o * j}, 2);
    LpVal y = lp_op2(b, LP_OP_mm, x1, p);
    y = lp_reshape(b, y, (int64_t[]){rows, o, j}, 3);
    y = lp_op2(b, LP_OP_bmm, y, x2);
    t1.shape[t1.ndim - 1] = o;
    y = lp_reshape(b, y, t1.shape, t1.ndim);
    return bias == LP_NOVAL ? y : lp_add(b, y, bias);
}
