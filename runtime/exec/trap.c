/* Faults on demand: a run fails before a chosen instruction of a micro-batch,
 * or behind the last one, where the update would begin. Replicas that run side
 * by side end theirs; the error is that of the one that fails. */
#include <inttypes.h>

#include "runtime/exec/exec_impl.h"

void lp_exec_set_trap(LpExec *x, int64_t iteration, double share)
{
    x->trap = (LpTrap){.iteration = iteration < 0 ? 0 : iteration + 1,
                       .share = share};
    x->finished = 0;
}

int64_t lp_exec_finished(const LpExec *x)
{
    return x->finished;
}

/* Of a device iteration, the update aside. */
static int64_t instructions(const LpExec *x)
{
    return x->replicas * x->p->step->gradient_accumulation *
           (int64_t)x->p->micro.n;
}

void lp_trap_begin(LpExec *x, int64_t iteration)
{
    LpTrap *t = &x->trap;
    t->now = t->iteration == iteration + 1;
    t->at = (int64_t)(t->share * (double)instructions(x));
}

int64_t lp_trap_before(const LpExec *x, const LpCode *c, int64_t replica,
                       const LpRunCtx *rc)
{
    if (!x->trap.now || c != &x->p->micro)
        return -1;
    int64_t batch = rc->micro_batch - (uint32_t)x->micro_batch;
    int64_t before = replica * x->p->step->gradient_accumulation + batch;
    return x->trap.at - before * (int64_t)c->n;
}

bool lp_trap_at_end(const LpExec *x)
{
    return x->trap.now && x->trap.at == instructions(x);
}

LpStatus lp_trap_spring(const LpExec *x, LpErr *e)
{
    return lp_fail(e, LP_E_FAULT,
                   "a fault on demand, at instruction %" PRId64 " of %" PRId64,
                   x->trap.at, instructions(x));
}
