/* count_beyond: how many elements lie within an edge and how many beyond, added
 * to the counts before; one that is not finite counts as infinitely many. What
 * the search for a loss scale looks at (src/passes/scaling.c).
 *
 * The IPU is charged what a histogram of two bins takes: a comparison of every
 * element, a reduction. */
#include "runtime/cost/cost.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/infer.h"

static LpStatus infer_beyond(LpInfer *x)
{
    static const LpType counts = {.dtype = LP_F32, .ndim = 1, .shape = {2}};
    LP_FAIL_IF(!lp_is_float(x->in[0].dtype), x->err, LP_E_RUNTIME,
               "count_beyond: the tensor must be of a floating type, got %s",
               lp_dtype_name(x->in[0].dtype));
    const LpType *before = &x->in[1];
    LP_FAIL_IF(before->dtype != LP_DT_NONE && (!lp_is_float(before->dtype) ||
                                               !lp_shape_eq(before, &counts)),
               x->err, LP_E_RUNTIME,
               "count_beyond: before must be two counts of a floating type, "
               "got %s%s",
               lp_dtype_name(before->dtype), lp_shape_str(before));
    LP_FAIL_IF(!(x->attr[LP_COUNT_BEYOND_EDGE].f >= 0), x->err, LP_E_VALUE,
               "count_beyond: edge must be 0 or more, got %g",
               x->attr[LP_COUNT_BEYOND_EDGE].f);
    x->out[0] = counts;
    return LP_OK;
}

static void cost_beyond(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *in = &r->in[0];
    LpCostType t = lp_cost_type(in->dtype);
    uint32_t all = (1u << in->ndim) - 1;
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_compare, LP_EW_SCALAR, t,
                                         lp_numel(in)));
    lp_cost_add(out,
                lp_cost_reduce(&x, LP_RED_ADD, t, in->shape, in->ndim, all));
}

LP_PRIMITIVE(count_beyond,
             "count_beyond(Tensor self, Tensor? before=None, *, float edge) -> "
             "Tensor @p",
             infer_beyond, lp_count_beyond_prepare, cost_beyond,
             .no_grad = "counts have no gradient")
