/* What the neural-network operators cost on the device: their shapes put into
 * the words of runtime/cost. Gradients of the input and of the weights of a
 * convolution are planned as such; what a matrix product is a gradient of, its
 * operator does not tell: the request does. */
#include "src/ops/cost_ctx.h"
#include "src/ops/infer.h"
#include "src/ops/layout_cost.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/nn/recurrent.h"

void lp_rule_product(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *a = &r->in[0], *b = &r->in[1];
    int n = a->ndim;
    LpMatmulShape s = {.groups = n == 3 ? a->shape[0] : 1,
                       .m = a->shape[n - 2],
                       .k = a->shape[n - 1],
                       .n = b->shape[n - 1]};
    lp_cost_add(out, lp_cost_matmul(&x, lp_cost_type(a->dtype), s,
                                    (LpConvPass)r->pass));
}

/* `v`, not 1, times a tensor of type t. */
static void times(const LpCostReq *r, LpScalar v, const LpType *t, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    if (lp_scalar_f(v) != 1)
        lp_cost_add(out,
                    lp_cost_elementwise(&x, LP_EW_mul, LP_EW_SCALAR,
                                        lp_cost_type(t->dtype), lp_numel(t)));
}

/* The addition of operand 2 to the result. */
static void addend(const LpCostReq *r, LpCost *out)
{
    const LpAttr one = lp_attr_scalar(lp_int(1));
    const LpType in[2] = {r->out[0], r->in[2]};
    LpCostReq q = *r;
    q.op = &op_add;
    q.attr = &one;
    q.in = in;
    q.n_in = 2;
    lp_rule_pointwise(&q, out);
}

void lp_rule_product_plus(const LpCostReq *r, LpCost *out)
{
    LpScalar beta = r->attr[LP_PLUS_BETA].s;
    lp_rule_product(r, out);
    times(r, r->attr[LP_PLUS_ALPHA].s, &r->out[0], out);
    if (lp_scalar_f(beta) == 0)
        return;
    times(r, beta, &r->in[2], out);
    addend(r, out);
}

/* ---- convolution --------------------------------------------------------- */
/* Shape of the forward pass from src (the larger side) to dst. */
static LpConvShape conv_shape(const LpAttr *a, const LpType *src,
                              const LpType *w, const LpType *dst)
{
    int n = src->ndim - 2;
    int64_t groups = a[LP_CONV_GROUPS].i;
    LpConvShape s = {.groups = groups,
                     .batch = src->shape[0],
                     .in = src->shape[1] / groups,
                     .out = dst->shape[1] / groups};
    for (int i = 0; i < 3; i++) {
        bool have = i < n;
        s.field[i] = have ? src->shape[2 + i] : 1;
        s.kernel[i] = have ? w->shape[2 + i] : 1;
        s.stride[i] = have ? a[LP_CONV_STRIDE].v[i] : 1;
        s.dilation[i] = have ? a[LP_CONV_DILATION].v[i] : 1;
        s.pad_lower[i] = have ? a[LP_CONV_PADDING].v[i] : 0;
        s.pad_upper[i] = have ? a[LP_CONV_PADDING].v[n + i] : 0;
    }
    return s;
}

/* A transposed convolution is the gradient of another to its input, and that
 * one's is a forward pass. */
static void convolution(const LpCostReq *r, const LpAttr *a, LpConvPass pass,
                        const LpType *big, const LpType *w, const LpType *small,
                        LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    if (a[LP_CONV_TRANSPOSED].i) {
        const LpType *t = big;
        big = small;
        small = t;
        if (pass != LP_PASS_WU)
            pass = pass == LP_PASS_BWD ? LP_PASS_FWD : LP_PASS_BWD;
    }
    LpConvShape s = conv_shape(a, big, w, small);
    lp_cost_add(out, lp_cost_conv(&x, lp_cost_type(big->dtype), &s, pass));
}

void lp_rule_convolution(const LpCostReq *r, LpCost *out)
{
    convolution(r, r->attr, LP_PASS_FWD, &r->in[0], &r->in[1], &r->out[0], out);
}

void lp_rule_convolution_plus(const LpCostReq *r, LpCost *out)
{
    lp_rule_convolution(r, out);
    addend(r, out);
}

void lp_rule_convolution_input(const LpCostReq *r, LpCost *out)
{
    convolution(r, r->attr + LP_CONV_BACK_STRIDE, LP_PASS_BWD, &r->out[0],
                &r->in[1], &r->in[0], out);
}

void lp_rule_convolution_weight(const LpCostReq *r, LpCost *out)
{
    convolution(r, r->attr + LP_CONV_BACK_STRIDE, LP_PASS_WU, &r->in[1],
                &r->out[0], &r->in[0], out);
}

/* ---- pooling ------------------------------------------------------------- */
/* From the larger side to the smaller. Strides are what the sizes of both make
 * them; so are windows that the attributes do not tell. */
static LpPoolShape pool_shape(const LpCostReq *r, const LpPoolFacts *f,
                              const LpType *big, const LpType *small, int n)
{
    const LpAttr *kernel = f->windowed ? &r->attr[f->window] : NULL;
    LpPoolShape s = {.batch = 1, .chans = 1};
    int at = big->ndim - n;
    for (int i = 0; i < at; i++)
        *(i == at - 1 ? &s.chans : &s.batch) *= big->shape[i];
    for (int i = 0; i < 3; i++) {
        int d = i - (3 - n); /* the last of them is the width */
        s.field[i] = d < 0 ? 1 : big->shape[at + d];
        s.out[i] = d < 0 ? 1 : small->shape[at + d];
        int64_t most = s.out[i] > 0 ? s.out[i] : 1;
        s.stride[i] = (s.field[i] + most - 1) / most;
        s.kernel[i] = d >= 0 && kernel ? kernel->v[d] : s.stride[i];
    }
    return s;
}

void lp_rule_pool(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpPoolFacts *f = r->op->data;
    LpRedOp op = f->max ? LP_RED_MAX : LP_RED_ADD;
    const LpType *big = f->backward ? &r->out[0] : &r->in[0];
    const LpType *small = f->backward ? &r->in[0] : &r->out[0];
    int n = f->windowed ? r->attr[f->window].n : big->ndim - 2;
    LpPoolShape s = pool_shape(r, f, big, small, n > 3 ? 3 : n < 1 ? 1 : n);
    LpCostType t = lp_cost_type(r->in[0].dtype);
    lp_cost_add(out, f->backward ? lp_cost_pool_grad(&x, op, t, &s)
                                 : lp_cost_pool(&x, op, t, &s));
}

/* ---- softmax, normalisation ---------------------------------------------- */
typedef struct Lines {
    int64_t rows, cols;
    LpCostType type;
} Lines;

static Lines lines_of(const LpCostReq *r)
{
    const LpType *t = &r->out[0];
    Lines l = {.cols = t->ndim ? t->shape[r->attr[LP_SOFTMAX_DIM].i] : 1,
               .type = lp_cost_type(t->dtype)};
    l.rows = l.cols ? lp_numel(t) / l.cols : 0;
    return l;
}

void lp_rule_softmax(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    Lines l = lines_of(r);
    lp_cost_add(out, lp_cost_softmax(&x, l.type, l.rows, l.cols));
}

void lp_rule_log_softmax(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    Lines l = lines_of(r);
    lp_rule_softmax(r, out);
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_log, LP_EW_UNARY_INPLACE,
                                         l.type, l.rows));
}

void lp_rule_softmax_back(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    Lines l = lines_of(r);
    lp_cost_add(out, lp_cost_softmax_grad(&x, l.type, l.rows, l.cols));
}

static int64_t channels(const LpType *weight)
{
    return weight->dtype == LP_DT_NONE ? 0 : lp_numel(weight);
}

void lp_rule_norm(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    lp_cost_add(out, lp_cost_norm(&x, lp_cost_type(r->in[0].dtype),
                                  lp_numel(&r->in[0]), lp_numel(&r->out[1]),
                                  channels(&r->in[1]), false));
}

void lp_rule_norm_back(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    lp_cost_add(out, lp_cost_norm_grad(&x, lp_cost_type(r->in[1].dtype),
                                       lp_numel(&r->in[1]), lp_numel(&r->in[2]),
                                       channels(&r->in[4])));
}

/* ---- recurrent layers ---------------------------------------------------- */
/* A loop over the steps, as PopLibs has it; so is a projection. `in` are the
 * operands of the forward. */
static LpRnnShape recurrent_shape(const LpRnnKindInfo *k, const LpType *in)
{
    const LpType *t = &in[k->at[LP_RNN_X]];
    return (LpRnnShape){.steps = t->shape[0],
                        .batch = t->shape[1],
                        .in = t->shape[2],
                        .hidden = in[k->at[LP_RNN_W_IH]].shape[0] / k->gates,
                        .gates = k->gates};
}

/* Size of the projected state; 0: not projected. */
static int64_t projection(const LpRnnKindInfo *k, const LpType *in)
{
    int hr = k->at[LP_RNN_W_HR];
    return hr < 0 || in[hr].dtype == LP_DT_NONE ? 0 : in[hr].shape[0];
}

void lp_rule_recurrent(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpRnnKindInfo *k = lp_rnn_info(lp_rnn_kind(r->op, r->attr));
    LpRnnShape s = recurrent_shape(k, r->in);
    LpCostType t = lp_cost_type(r->in[0].dtype);
    LpConvPass pass = (LpConvPass)r->pass;
    lp_cost_add(out, lp_cost_rnn(&x, t, &s, pass));
    LpMatmulShape m = {1, s.batch, s.hidden, projection(k, r->in)};
    if (m.n > 0)
        lp_cost_add(out,
                    lp_cost_repeat(lp_cost_matmul(&x, t, m, pass), s.steps));
}

void lp_rule_recurrent_back(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpRnnKindInfo *k = lp_rnn_info(lp_rnn_kind(r->op, r->attr));
    const LpType *in = r->in + 1 + k->n_state;
    LpRnnShape s = recurrent_shape(k, in);
    LpCostType t = lp_cost_type(in[0].dtype);
    lp_cost_add(out, lp_cost_rnn_grad(&x, t, &s));
    int64_t size = projection(k, in);
    if (size == 0)
        return;
    LpMatmulShape bwd = {1, s.batch, size, s.hidden};
    LpMatmulShape wu = {1, size, s.batch, s.hidden};
    LpCost p = lp_cost_matmul(&x, t, bwd, LP_PASS_FWD);
    lp_cost_add(&p, lp_cost_matmul(&x, t, wu, LP_PASS_FWD));
    lp_cost_add(out, lp_cost_repeat(p, s.steps));
}

/* ---- losses, dropout ----------------------------------------------------- */
static LpCost sum_of(const LpCostCtx *x, LpCostType t, const LpType *in)
{
    return lp_cost_reduce(x, LP_RED_ADD, t, in->shape, in->ndim,
                          (1u << in->ndim) - 1);
}

/* Of all elements of `in`, unless they stay apart. */
static void reduced(const LpCostReq *r, const LpType *in, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *y = &r->out[0];
    if (y->ndim == 0 && in->ndim > 0)
        lp_cost_add(out, sum_of(&x, lp_cost_type(y->dtype), in));
}

static void weighted(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_mul, LP_EW_BINARY,
                                         lp_cost_type(r->out[0].dtype),
                                         lp_numel(&r->in[1])));
}

void lp_rule_identity_loss(const LpCostReq *r, LpCost *out)
{
    reduced(r, &r->in[0], out);
}

void lp_rule_nll(const LpCostReq *r, LpCost *out)
{
    weighted(r, out);
    reduced(r, &r->in[1], out);
}

void lp_rule_nll_back(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *dx = &r->out[0];
    lp_cost_add(out, lp_cost_fill(&x, lp_cost_type(dx->dtype), lp_numel(dx)));
    weighted(r, out);
}

/* One that drops nothing is a copy where it is not its operand (PopART,
 * DropoutBaseOp::canBeReplacedByIdentity). */
void lp_rule_dropout(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    if (!r->attr[LP_DROPOUT_TRAINING].i || r->attr[LP_DROPOUT_P].f == 0) {
        lp_rule_copy(r, out);
        return;
    }
    lp_cost_add(out,
                lp_cost_random(&x, LP_RND_DROPOUT, lp_cost_type(r->in[0].dtype),
                               lp_numel(&r->in[0])));
}
