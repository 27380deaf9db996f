/* What the neural-network operators cost on the device: their shapes put into
 * the words of runtime/cost. Gradients of the input and of the weights of a
 * convolution are planned as such; what a matrix product is a gradient of, its
 * operator does not tell: the request does. */
#include <string.h>

#include "runtime/cost/cost.h"
#include "src/ir/cost.h"
#include "src/ops/nnop.h"

static LpCostCtx context(const LpCostReq *r)
{
    LpCostCtx x = lp_cost_ctx(r->chip);
    x.tiles = r->tiles;
    x.proportion = r->memory_proportion;
    x.partials = r->partials == LP_F16 ? LP_COST_HALF : LP_COST_FLOAT;
    x.cache = r->cache;
    return x;
}

static LpCostType cost_type(LpDtype t)
{
    return t == LP_F16 || t == LP_BF16 ? LP_COST_HALF
           : lp_is_float(t)            ? LP_COST_FLOAT
                                       : LP_COST_INT;
}

void lp_rule_product(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = context(r);
    const LpType *a = &r->in[0], *b = &r->in[1];
    int n = a->ndim;
    LpMatmulShape s = {.groups = n == 3 ? a->shape[0] : 1,
                       .m = a->shape[n - 2],
                       .k = a->shape[n - 1],
                       .n = b->shape[n - 1]};
    lp_cost_add(out, lp_cost_matmul(&x, cost_type(a->dtype), s,
                                    (LpConvPass)r->pass));
}

/* ---- convolution ----------------------------------------------------------
 */
/* Shape of the forward pass from src (the larger side) to dst. */
static LpConvShape conv_shape(const LpAttr *a, const LpType *src,
                              const LpType *w, const LpType *dst)
{
    int n = src->ndim - 2;
    int64_t groups = a[5].i;
    LpConvShape s = {.groups = groups,
                     .batch = src->shape[0],
                     .in = src->shape[1] / groups,
                     .out = dst->shape[1] / groups};
    for (int i = 0; i < 3; i++) {
        bool have = i < n;
        s.field[i] = have ? src->shape[2 + i] : 1;
        s.kernel[i] = have ? w->shape[2 + i] : 1;
        s.stride[i] = have ? a[0].v[i] : 1;
        s.dilation[i] = have ? a[2].v[i] : 1;
        s.pad_lower[i] = have ? a[1].v[i] : 0;
        s.pad_upper[i] = have ? a[1].v[n + i] : 0;
    }
    return s;
}

/* The three operators by which of their types is source, weight and
 * destination; a transposed one has its sides exchanged. */
void lp_rule_convolution(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = context(r);
    const char *name = r->op->name;
    bool input = strcmp(name, "convolution_backward_input") == 0;
    bool weight = strcmp(name, "convolution_backward_weight") == 0;
    const LpAttr *a = r->attr + (input || weight);
    const LpType *big = &r->in[0], *w = &r->in[1], *small = &r->out[0];
    LpConvPass pass = LP_PASS_FWD;
    if (input) {
        small = &r->in[0];
        big = &r->out[0];
        pass = LP_PASS_BWD;
    } else if (weight) {
        small = &r->in[0];
        big = &r->in[1];
        w = &r->out[0];
        pass = LP_PASS_WU;
    }
    if (a[3].i) {
        const LpType *t = big;
        big = small;
        small = t;
        if (pass != LP_PASS_WU)
            pass = input ? LP_PASS_FWD : LP_PASS_BWD;
    }
    LpConvShape s = conv_shape(a, big, w, small);
    lp_cost_add(out, lp_cost_conv(&x, cost_type(big->dtype), &s, pass));
}

/* ---- pooling --------------------------------------------------------------
 */
void lp_rule_pool(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = context(r);
    const char *name = r->op->name;
    LpRedOp op = strstr(name, "max") ? LP_RED_MAX : LP_RED_ADD;
    int64_t n_in = lp_numel(&r->in[0]), n_out = lp_numel(&r->out[0]);
    bool back = strstr(name, "_backward") != NULL;
    int64_t big = back ? n_out : n_in, small = back ? n_in : n_out;
    int64_t window = small > 0 ? (big + small - 1) / small : 1;
    const LpAttr *kernel = strncmp(name, "avg_pool", 8) == 0 ? &r->attr[back]
                           : strcmp(name, "max_pool") == 0   ? &r->attr[0]
                                                             : NULL;
    for (int i = 0; kernel && i < kernel->n; i++)
        window = i == 0 ? kernel->v[0] : window * kernel->v[i];
    LpCostType t = cost_type(r->in[0].dtype);
    lp_cost_add(out, back ? lp_cost_pool_grad(&x, op, t, big, small, window)
                          : lp_cost_pool(&x, op, t, big, small, window));
}

/* ---- softmax, normalisation -----------------------------------------------
 */
void lp_rule_softmax(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = context(r);
    const LpType *t = &r->out[0];
    int64_t cols = t->ndim ? t->shape[r->attr[0].i] : 1;
    int64_t rows = cols ? lp_numel(t) / cols : 0;
    LpCostType c = cost_type(t->dtype);
    bool back = strstr(r->op->name, "_backward") != NULL;
    lp_cost_add(out, back ? lp_cost_softmax_grad(&x, c, rows, cols)
                          : lp_cost_softmax(&x, c, rows, cols));
    if (strncmp(r->op->name, "log_", 4) == 0 && !back)
        lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_log, LP_EW_UNARY_INPLACE,
                                             c, rows));
}

void lp_rule_norm(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = context(r);
    bool back = strstr(r->op->name, "_backward") != NULL;
    const LpType *in = &r->in[back];
    int64_t sets = lp_numel(back ? &r->in[2] : &r->out[1]);
    const LpType *w = &r->in[back ? 4 : 1];
    int64_t chans = w->dtype == LP_DT_NONE ? 0 : lp_numel(w);
    LpCostType t = cost_type(in->dtype);
    int64_t n = lp_numel(in);
    lp_cost_add(out, back ? lp_cost_norm_grad(&x, t, n, sets, chans)
                          : lp_cost_norm(&x, t, n, sets, chans, false));
}

/* ---- losses, dropout ------------------------------------------------------
 */
static LpCost sum_of(const LpCostCtx *x, LpCostType t, const LpType *in)
{
    return lp_cost_reduce(x, LP_RED_ADD, t, in->shape, in->ndim,
                          (1u << in->ndim) - 1);
}

void lp_rule_loss(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = context(r);
    const LpType *y = &r->out[0];
    LpCostType t = cost_type(y->dtype);
    if (strcmp(r->op->name, "nll_loss_backward") == 0) {
        lp_cost_add(out, lp_cost_fill(&x, t, lp_numel(y)));
        lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_mul, LP_EW_BINARY, t,
                                             lp_numel(&r->in[1])));
    } else if (strcmp(r->op->name, "nll_loss_forward") == 0) {
        lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_mul, LP_EW_BINARY, t,
                                             lp_numel(&r->in[1])));
        if (y->ndim == 0 && r->in[1].ndim > 0)
            lp_cost_add(out, sum_of(&x, t, &r->in[1]));
    } else if (y->ndim == 0 && r->in[0].ndim > 0) {
        lp_cost_add(out, sum_of(&x, t, &r->in[0]));
    }
}

void lp_rule_dropout(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = context(r);
    lp_cost_add(out,
                lp_cost_random(&x, LP_RND_DROPOUT, cost_type(r->in[0].dtype),
                               lp_numel(&r->in[0])));
}
