/* The operator of torch.autograd.Function. It lives from the trace to the
 * first pass after the reverse sweep: canonicalise puts its operands in the
 * place of its results. */
#include "src/ops/function.h"

#include <string.h>

#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"
#include "src/ops/layout_cost.h"
#include "src/ops/ops.h"

void (*lp_function_rule)(LpGrad *g);

static LpStatus infer(LpInfer *x)
{
    int64_t n = x->attr[LP_FUNCTION_RESULTS].i;
    LP_FAIL_IF(n < 1 || n > LP_MAX_OUT || n > x->n_in, x->err, LP_E_VALUE,
               "custom_function: %lld results of %d operands; 1 to %d are "
               "allowed",
               (long long)n, x->n_in, LP_MAX_OUT);
    x->n_out = (int)n;
    memcpy(x->out, x->in, (size_t)n * sizeof *x->out);
    return LP_OK;
}

static void grad(LpGrad *g)
{
    if (g->attr[LP_FUNCTION_RULE].i == LP_FUNCTION_WRITTEN)
        g->din[1] = g->dout[0];
    else if (lp_function_rule)
        lp_function_rule(g);
    else
        lp_fail(g->b->err, LP_E_INTERNAL, "there is no script to ask");
}

typedef struct Sizes {
    int n;
    LpDesc in[LP_MAX_OUT], out[LP_MAX_OUT];
} Sizes;

LP_KERNEL_RUN(run)
{
    const Sizes *s = k->state;
    for (int i = 0; i < s->n; i++)
        lp_copy_strided(&s->in[i], in[i], &s->out[i], out[i]);
    return LP_OK;
}

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Sizes), run, k, e));
    Sizes *s = k->state;
    s->n = r->n_out;
    memcpy(s->in, r->in, (size_t)r->n_out * sizeof *s->in);
    memcpy(s->out, r->out, (size_t)r->n_out * sizeof *s->out);
    k->threads = 1;
    return LP_OK;
}

LpOp op_custom_function = {
    .flags = LP_OPF_MARKER,
    .forms = "custom_function(Tensor[] tensors, int results, int rule, int "
             "trace, bool materialize) -> Tensor[] @p",
    .infer = infer,
    .grad = grad,
    .grad_in = 1u << 31,
    .grad_out = 0xff,
    .prepare = prepare,
    .cost = lp_rule_view,
};
