/* Records of the pointwise operators of one operand, made of unary.def, and
 * of clone and cast. y = f(x) element by element; dx = dy f'(x). */
#include <math.h>
#include <string.h>

#include "runtime/cost/cost.h"
#include "src/ops/infer.h"
#include "src/ops/kernel/copy.h"
#include "src/ops/kernel/pointwise.h"
#include "src/ops/layout_cost.h"

static double param(const LpGrad *g, int i)
{
    const LpAttr *a = &g->attr[i];
    return a->kind == LP_ATTR_FLOAT    ? a->f
           : a->kind == LP_ATTR_SCALAR ? lp_scalar_f(a->s)
                                       : (double)a->i;
}
#define P(i) param(g, i)
#define PK(i) K(P(i))

static LpVal polygamma_of(LpGrad *g, int n)
{
    LpAttr a = lp_attr_int(n);
    return lp_emit(g->b, LP_OP_polygamma, &g->in[0], 1, &a);
}
#define POLYGAMMA(n) polygamma_of(g, n)

/* y = x t, t = tanh(softplus(x)): t + x sigmoid(x) (1 - t^2) */
static LpVal mish_grad(LpGrad *g)
{
    LpAttr a[2] = {lp_attr_float(1), lp_attr_float(20)};
    LpVal t = OP1(tanh, lp_emit(g->b, LP_OP_softplus, &g->in[0], 1, a));
    LpVal s = MUL(X, OP1(sigmoid, X));
    return MUL(DY, ADD(t, MUL(s, SUB(K(1), MUL(t, t)))));
}

/* ---- choice of loops ------------------------------------------------------
 */
static int select_round(const LpKernelReq *r, LpDtype type, LpPwNode *n)
{
    int64_t d = r->attr[0].i;
    n->p[0].f = pow(10, fabs((double)d));
    if (d == 0 || type == LP_I64)
        return LP_LOOP_round;
    return d > 0 ? LP_LOOP_round_up : LP_LOOP_round_down;
}

static int select_not(const LpKernelReq *r, LpDtype type, LpPwNode *n)
{
    (void)type, (void)n;
    return r->out[0].dtype == LP_BOOL ? LP_LOOP_logical_not
                                      : LP_LOOP_bitwise_not;
}

static int select_gelu(const LpKernelReq *r, LpDtype type, LpPwNode *n)
{
    (void)type, (void)n;
    return strcmp(r->attr[0].str, "tanh") == 0 ? LP_LOOP_gelu_tanh
                                               : LP_LOOP_gelu;
}

static double largest(LpDtype t)
{
    return t == LP_F16    ? 65504
           : t == LP_BF16 ? 0x1.fep127
           : t == LP_F32  ? 0x1.fffffep127
                          : 0x1.fffffffffffffp1023;
}

static int select_nan_to_num(const LpKernelReq *r, LpDtype type, LpPwNode *n)
{
    double top = largest(r->out[0].dtype);
    (void)type;
    if (r->attr[1].kind == LP_ATTR_NONE)
        n->p[1].f = top;
    if (r->attr[2].kind == LP_ATTR_NONE)
        n->p[2].f = -top;
    return LP_LOOP_nan_to_num;
}

/* ---- records --------------------------------------------------------------
 */
#define BOOLEAN_GRAD "a boolean result has no gradient"

#define UNARY(name, tail, policy_, cost_, e, reads, gx, where_)                \
    static void grad_##name(LpGrad *g)                                         \
    {                                                                          \
        g->din[0] = gx;                                                        \
    }                                                                          \
    static const LpPointwise data_##name = {.loop = LP_LOOP_##name,            \
                                            .policy = LP_PW_##policy_,         \
                                            .cost = LP_EW_##cost_,             \
                                            .domain = where_,                  \
                                            .select =                          \
                                                LOOP_CHOICE(LP_OP_##name)};    \
    LpOp op_##name = {                                                         \
        .flags = LP_OPF_POINTWISE | LP_OPF_INPLACE_OK,                         \
        .forms = #name "(Tensor self" tail,                                    \
        .infer = lp_infer_pointwise,                                           \
        .prepare = lp_pointwise_prepare,                                       \
        .cost = lp_rule_pointwise,                                             \
        .grad = grad_##name,                                                   \
        .grad_in = (reads)&1,                                                  \
        .grad_out = (reads) >> 3,                                              \
        .data = &data_##name,                                                  \
    };
#define LOOP_CHOICE(id)                                                        \
    ((id) == LP_OP_round         ? select_round                                \
     : (id) == LP_OP_gelu        ? select_gelu                                 \
     : (id) == LP_OP_nan_to_num  ? select_nan_to_num                           \
     : (id) == LP_OP_bitwise_not ? select_not                                  \
                                 : NULL)
#define TEST(name, tail, e, ie)                                                \
    static const LpPointwise data_##name = {.loop = LP_LOOP_##name,            \
                                            .policy = LP_PW_BOOL,              \
                                            .cost = LP_EW_compare,             \
                                            .domain = ""};                     \
    LpOp op_##name = {                                                         \
        .flags = LP_OPF_POINTWISE,                                             \
        .forms = #name "(Tensor self" tail,                                    \
        .infer = lp_infer_pointwise,                                           \
        .prepare = lp_pointwise_prepare,                                       \
        .cost = lp_rule_pointwise,                                             \
        .no_grad = BOOLEAN_GRAD,                                               \
        .data = &data_##name,                                                  \
    };
#include "src/ops/unary.def"

static void grad_identity(LpGrad *g)
{
    g->din[0] = DY; /* the caller casts it back */
}

static const LpPointwise data_identity = {.policy = LP_PW_CAST, .domain = ""};

/* A copy with memory of its own. */
/* Strided copies know transposes; fused, a clone is an identity. */
static LpStatus prepare_clone(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    return lp_copy_kernel(&r->in[0], 0, &r->out[0], r->threads, k);
}

LpOp op_clone = {
    .flags = LP_OPF_POINTWISE | LP_OPF_INPLACE_OK,
    .forms = "clone(Tensor self) -> Tensor @fm",
    .infer = lp_infer_pointwise,
    .prepare = prepare_clone,
    .cost = lp_rule_copy,
    .grad = grad_identity,
    .data = &data_identity,
};

/* To another type: rounds once; a float becomes an integer towards zero. */
LpOp op_cast = {
    .flags = LP_OPF_POINTWISE,
    .forms = "cast(Tensor self, ScalarType dtype) -> Tensor @p",
    .infer = lp_infer_pointwise,
    .prepare = lp_pointwise_prepare,
    .cost = lp_rule_pointwise,
    .grad = grad_identity,
    .data = &data_identity,
};

static void expand_positive(LpBuilder *b, const LpAttr *attr, const LpVal *in,
                            int n_in, LpVal *out, int n_out)
{
    (void)b, (void)attr, (void)n_in, (void)n_out;
    out[0] = in[0];
}

LpOp op_positive = {
    .kind = LP_OP_COMPOSITE,
    .forms = "positive(Tensor self) -> Tensor @fm",
    .expand = expand_positive,
};
