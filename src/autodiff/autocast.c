/* The lists are PyTorch 2.15's for the CPU (the kernels registered for its
 * dispatch key AutocastCPU), by the operators of this project that do the same;
 * a composition of its listed operators (inner, tensordot, einsum) stands
 * beside them. */
#include "src/autodiff/autocast.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/ops/ops.h"

typedef enum { AS_IS, NARROW, WIDE, WIDEST } Policy;

static const char *const narrow[] = {"mm",
                                     "bmm",
                                     "matmul",
                                     "linear",
                                     "addmm",
                                     "baddbmm",
                                     "addbmm",
                                     "vecdot",
                                     "inner",
                                     "tensordot",
                                     "tensordot_lists",
                                     "chain_matmul",
                                     "multi_dot",
                                     "matrix_power",
                                     "conv1d",
                                     "conv1d_padding",
                                     "conv2d",
                                     "conv2d_padding",
                                     "conv3d",
                                     "conv3d_padding",
                                     "conv_transpose1d",
                                     "conv_transpose2d",
                                     "conv_transpose3d",
                                     "scaled_dot_product_attention",
                                     "lstm_layer",
                                     "rnn_layer",
                                     "prelu"};
static const char *const wide[] = {"prod",
                                   "trace",
                                   "cdist",
                                   "quantile",
                                   "nanquantile",
                                   "avg_pool3d",
                                   "max_pool3d",
                                   "max_pool3d_with_indices",
                                   "adaptive_avg_pool3d",
                                   "adaptive_max_pool3d",
                                   "adaptive_max_pool3d_with_indices",
                                   "mse_loss",
                                   "l1_loss",
                                   "smooth_l1_loss",
                                   "huber_loss",
                                   "binary_cross_entropy",
                                   "binary_cross_entropy_with_logits",
                                   "kl_div",
                                   "poisson_nll_loss",
                                   "margin_ranking_loss",
                                   "hinge_embedding_loss",
                                   "soft_margin_loss",
                                   "nll_loss",
                                   "cross_entropy",
                                   "inv_ex",
                                   "cholesky_ex",
                                   "cholesky_inverse",
                                   "cholesky_solve",
                                   "lu_solve",
                                   "qr",
                                   "geqrf",
                                   "householder_product",
                                   "ormqr",
                                   "solve_ex",
                                   "triangular_solve",
                                   "tensorinv",
                                   "tensorsolve",
                                   "lstsq",
                                   "svd",
                                   "svd_old",
                                   "svdvals",
                                   "eigh",
                                   "eigvalsh",
                                   "matrix_rank",
                                   "cond",
                                   "cond_named"};
static const char *const widest[] = {"cat", "stack", "index_copy"};

static LpDtype target = LP_DT_NONE;
static uint8_t *policies; /* by operator id; made once, kept to the end */

LpDtype lp_autocast_get(void)
{
    return target;
}

void lp_autocast_set(LpDtype t)
{
    target = t;
}

static LpStatus set(const char *const *names, size_t n, Policy p, LpErr *e)
{
    for (size_t i = 0; i < n; i++) {
        const LpOp *op = lp_op_find(names[i]);
        LP_FAIL_IF(!op, e, LP_E_INTERNAL, "autocast: no operator is called %s",
                   names[i]);
        policies[op->id] = (uint8_t)p;
    }
    return LP_OK;
}

static LpStatus make_policies(LpErr *e)
{
    policies = lp_calloc((size_t)lp_n_ops, 1);
    LP_FAIL_IF(!policies, e, LP_E_MEMORY, "out of memory");
    LP_TRY(set(narrow, sizeof narrow / sizeof *narrow, NARROW, e));
    LP_TRY(set(wide, sizeof wide / sizeof *wide, WIDE, e));
    return set(widest, sizeof widest / sizeof *widest, WIDEST, e);
}

/* Does an equation sum over a letter of an operand behind the first? Only then
 * a product of matrices is made of it. */
static bool contracts(const char *eq)
{
    int count[256] = {0};
    const char *arrow = strstr(eq, "->");
    const char *end = arrow ? arrow : eq + strlen(eq);
    for (const char *p = eq; p < end; p++)
        count[(unsigned char)*p]++;
    bool behind = false;
    for (const char *p = eq; p < end; p++) {
        behind |= *p == ',';
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
        bool kept =
            arrow ? strchr(arrow, *p) != NULL : count[(unsigned char)*p] == 1;
        if (behind && letter && !kept)
            return true;
    }
    return false;
}

static Policy policy_of(const LpOp *op, const LpAttr *attr)
{
    if (op == &op_einsum)
        return contracts(attr[0].str) ? NARROW : AS_IS;
    if (op == &op_pad)
        return strcmp(attr[1].str, "reflect") == 0 ||
                       strcmp(attr[1].str, "replicate") == 0
                   ? WIDE
                   : AS_IS;
    return (Policy)policies[op->id];
}

static bool short_float(LpDtype t)
{
    return t == LP_F16 || t == LP_BF16;
}

/* The type to which float16, bfloat16 and float32 operands go. */
static LpDtype wanted(Policy p, const LpArg *in, int n_in)
{
    if (p == NARROW)
        return target;
    if (p == WIDE)
        return LP_F32;
    for (int i = 0; i < n_in; i++)
        if (in[i].t && in[i].t->dtype == LP_F32)
            return LP_F32;
    return LP_DT_NONE;
}

static LpStatus cast_all(LpArg *arg, int n, LpDtype to, LpErr *e)
{
    LpAttr attr[] = {lp_attr_dtype(to)};
    for (int i = 0; i < n; i++) {
        LpTensor *t = arg[i].t, *cast = NULL;
        if (!t)
            continue;
        int results = 0;
        bool other = to != LP_DT_NONE && t->dtype != to &&
                     (t->dtype == LP_F32 || short_float(t->dtype));
        LpStatus s =
            other ? lp_op_call(&op_cast, &arg[i], 1, attr, &cast, &results, e)
                  : LP_OK;
        if (s != LP_OK) {
            while (i-- > 0)
                lp_tensor_release(arg[i].t);
            return s;
        }
        arg[i].t = other ? cast : lp_tensor_retain(t);
    }
    return LP_OK;
}

static LpStatus call_cast(Policy p, const LpOp *op, const LpArg *in, int n_in,
                          const LpAttr *attr, LpTensor **out, int *n_out,
                          LpErr *e)
{
    LpArg own[LP_MAX_IN], *arg = own;
    if (n_in > LP_MAX_IN) {
        arg = lp_calloc((size_t)n_in, sizeof *arg);
        LP_FAIL_IF(!arg, e, LP_E_MEMORY, "out of memory");
    }
    memcpy(arg, in, (size_t)n_in * sizeof *arg);
    LpStatus s = cast_all(arg, n_in, wanted(p, in, n_in), e);
    if (s == LP_OK) {
        s = lp_op_call(op, arg, n_in, attr, out, n_out, e);
        for (int i = 0; i < n_in; i++)
            lp_tensor_release(arg[i].t);
    }
    if (arg != own)
        lp_free(arg);
    return s;
}

LpStatus lp_autocast_call(const LpOp *op, const LpArg *in, int n_in,
                          const LpAttr *attr, LpTensor **out, int *n_out,
                          LpErr *e)
{
    if (target == LP_DT_NONE)
        return lp_op_call(op, in, n_in, attr, out, n_out, e);
    if (!policies)
        LP_TRY(make_policies(e));
    Policy p = policy_of(op, attr);
    if (p == AS_IS)
        return lp_op_call(op, in, n_in, attr, out, n_out, e);
    return call_cast(p, op, in, n_in, attr, out, n_out, e);
}
