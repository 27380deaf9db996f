/* The CTC beam search decoder of PopTorch. */
#include "src/base/checked.h"
#include "src/kernel/nn/nn.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/layout_cost.h"
#include "src/ops/nn/nnop.h"

static LpStatus check_shapes(const LpInfer *x)
{
    const LpType *probs = &x->in[0], *lengths = &x->in[1];
    LP_FAIL_IF(!lp_is_float(probs->dtype) || probs->ndim != 3, x->err,
               LP_E_POPTORCH,
               "ctc_beam_search_decoder: probs must be a floating-point tensor "
               "of shape [input_length, batch_size, num_classes], got %s%s",
               lp_dtype_name(probs->dtype), lp_shape_str(probs));
    bool integers = lp_dtype_kind(lengths->dtype) == LP_KIND_INT;
    LP_FAIL_IF(!integers || lengths->ndim != 1 ||
                   lengths->shape[0] != probs->shape[1],
               x->err, LP_E_POPTORCH,
               "ctc_beam_search_decoder: lengths must be a tensor of %lld "
               "integers, one for each sample, got %s%s",
               (long long)probs->shape[1], lp_dtype_name(lengths->dtype),
               lp_shape_str(lengths));
    return LP_OK;
}

static LpStatus infer(LpInfer *x)
{
    LP_TRY(check_shapes(x));
    const LpType *probs = &x->in[0];
    int64_t blank = x->attr[LP_CTC_BLANK].i;
    int64_t width = x->attr[LP_CTC_BEAM_WIDTH].i;
    int64_t paths = x->attr[LP_CTC_TOP_PATHS].i;
    LP_FAIL_IF(blank < 0 || blank >= probs->shape[2] ||
                   probs->shape[2] > INT32_MAX,
               x->err, LP_E_POPTORCH,
               "ctc_beam_search_decoder: blank must be one of the %lld classes "
               "of probs, from 0, got %lld",
               (long long)probs->shape[2], (long long)blank);
    LP_FAIL_IF(width < 1 || paths < 1 || paths > width, x->err, LP_E_POPTORCH,
               "ctc_beam_search_decoder: beam_width must be positive and "
               "top_paths 1 to beam_width, got %lld and %lld",
               (long long)width, (long long)paths);
    int64_t n = probs->shape[1];
    x->out[0] = (LpType){.dtype = probs->dtype, .ndim = 2, .shape = {n, paths}};
    x->out[1] = (LpType){.dtype = LP_I32, .ndim = 2, .shape = {n, paths}};
    x->out[2] = (LpType){
        .dtype = LP_I32, .ndim = 3, .shape = {n, paths, probs->shape[0]}};
    return LP_OK;
}

/* Every step: the candidates' probabilities, their exchange, and the best of
 * them, charged as in lp_rule_sort. */
static void cost(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const int64_t *shape = r->in[0].shape;
    int64_t most = INT64_C(1) << 40, per;
    int64_t width = r->attr[LP_CTC_BEAM_WIDTH].i;
    if (!lp_mul_i64(width, shape[2], &per) || per > most)
        per = most;
    int64_t n = shape[1] > 0 && per > most / shape[1] ? most : per * shape[1];
    LpCost c =
        lp_cost_elementwise(&x, LP_EW_add, LP_EW_BINARY, LP_COST_FLOAT, n);
    lp_cost_add(&c, lp_cost_elementwise(&x, LP_EW_exp, LP_EW_UNARY,
                                        LP_COST_FLOAT, shape[1] * width));
    lp_cost_add(&c, lp_cost_elementwise(&x, LP_EW_log, LP_EW_UNARY,
                                        LP_COST_FLOAT, shape[1] * width));
    LpCost stage = lp_cost_exchange(&x, LP_COST_FLOAT, n, n);
    lp_cost_add(&stage, lp_cost_elementwise(&x, LP_EW_min, LP_EW_BINARY,
                                            LP_COST_FLOAT, n));
    int64_t stages = 0;
    for (int64_t w = 1, k = 1; w < per; w *= 2, k++)
        stages += k;
    lp_cost_add(&c, lp_cost_repeat(stage, stages));
    lp_cost_add(out, lp_cost_repeat(c, shape[0]));
}

LP_PRIMITIVE(ctc_beam_search_decoder,
             "ctc_beam_search_decoder(Tensor probs, Tensor lengths, int "
             "blank=0, int beam_width=100, int top_paths=1) -> (Tensor "
             "probabilities, Tensor path_lengths, Tensor paths) @p",
             infer, lp_ctc_prepare, cost, .no_grad = "a search has no gradient")
