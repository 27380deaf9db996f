/* The operator that ends a program: abort_if. */
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/hooks.h"
#include "src/kernel/state.h"

typedef struct Abort {
    LpCopyPlan copy;
    LpDesc in, truth; /* the operand; as booleans, one behind the other */
} Abort;

LP_KERNEL_RUN(run_abort)
{
    const Abort *s = k->state;
    const unsigned char *is = work;
    if (in[0] != out[0])
        lp_copy_run(&s->copy, in[0], out[0]);
    lp_copy_strided(&s->in, in[0], &s->truth, work);
    for (int64_t i = 0, n = lp_desc_numel(&s->truth); i < n; i++)
        LP_FAIL_IF(is[i], e, LP_E_ABORT,
                   "Abort Program: element %lld of the condition is not 0",
                   (long long)i);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_abort_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Abort), run_abort, k, e));
    Abort *s = k->state;
    lp_copy_plan(&r->in[0], &r->out[0], r->threads, &s->copy);
    s->in = r->in[0];
    s->truth = lp_desc_plain(&r->in[0], LP_BOOL);
    k->work_bytes = (size_t)lp_desc_numel(&s->truth);
    return LP_OK;
}
