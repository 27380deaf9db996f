/* What a run may touch: variables of its own IPU, copies that the plan keeps
 * there, and of what lives in streaming memory that which a transfer brings. */
#include "runtime/exec/replay_state.h"

bool lp_replay_copies(const LpReplay *x, LpTransferOf of, size_t at, int run,
                      bool load)
{
    for (size_t i = 0; i < x->p->n_transfer; i++) {
        const LpTransfer *t = &x->p->transfer[i];
        if (t->of == of && t->at == at && t->run == run && t->load == load)
            return true;
    }
    return false;
}

static bool in_row(const LpRow *row, int run)
{
    for (uint32_t i = 0; i < row->n; i++)
        if (row->act[i].kind == LP_ACT_COMPUTE && row->act[i].run == run)
            return true;
    return false;
}

bool lp_replay_has(const LpReplay *x, size_t i, int run, bool load)
{
    const LpIpuPlan *p = x->p;
    if (!lp_ipu_off_chip(p, &p->step->var[i]) ||
        lp_replay_copies(x, LP_TRANSFER_VAR, i, run, load))
        return true;
    if (run < 0 || !load || !p->pass[run].backward ||
        x->row->order == LP_ORDER_AT_ONCE)
        return false;
    /* the turning row still has what its forward run brought */
    int forward = lp_pass_of(p, p->pass[run].stage, false);
    return in_row(x->row, forward) &&
           lp_replay_copies(x, LP_TRANSFER_VAR, i, forward, true);
}

void *lp_replay_find(const LpReplay *x, size_t i, int run)
{
    const LpIpuPlan *p = x->p;
    const LpVariable *v = &p->step->var[i];
    int ipu = p->pass[run].ipu;
    if (lp_ipu_off_chip(p, v))
        return lp_replay_has(x, i, run, true) ? lp_replay_here(x, i) : NULL;
    if (p->var_ipu[i] == ipu || v->role == LP_VAR_HYPER)
        return lp_replay_here(x, i);
    for (size_t k = 0; k < p->n_share; k++)
        if (p->share[k].var == (int)i && p->share[k].ipu == ipu)
            return x->share[(size_t)x->replica * p->n_share + k];
    return NULL;
}
