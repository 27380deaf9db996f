/* What comes from streaming memory and goes to it: for every run the parameters
 * and accumulators that it reads and that live there, once each; stashes and
 * values on their way that leave the chip; for the weight update all that lives
 * there. */
#include "src/passes/ipu/ipu.h"

static LpStatus add(LpIpuPlan *p, LpTransferOf of, size_t at, int run,
                    bool load, int64_t bytes)
{
    LP_IPU_ADD(p, transfer, p->err, (LpTransfer){of, at, run, load, bytes});
    return LP_OK;
}

static LpStatus there_and_back(LpIpuPlan *p, size_t var, int run)
{
    int64_t bytes = lp_type_bytes(&p->step->var[var].type);
    LP_TRY(add(p, LP_TRANSFER_VAR, var, run, true, bytes));
    return add(p, LP_TRANSFER_VAR, var, run, false, bytes);
}

static LpStatus read_by(LpIpuPlan *p, LpVal v, int run)
{
    if (p->var_of[v] < 0)
        return LP_OK;
    size_t at = (size_t)p->var_of[v];
    const LpVariable *var = &p->step->var[at];
    if (!lp_ipu_off_chip(p, var))
        return LP_OK;
    if (var->role == LP_VAR_PARAM)
        return add(p, LP_TRANSFER_VAR, at, run, true,
                   lp_ipu_kept_bytes(p, var));
    return var->role == LP_VAR_ACCUM ? there_and_back(p, at, run) : LP_OK;
}

/* Accumulators that no entry of a run reads. */
static LpStatus sums(LpIpuPlan *p)
{
    for (size_t i = 0; i < p->n_partial; i++) {
        size_t var = (size_t)p->partial[i].var;
        const LpVariable *v = &p->step->var[var];
        if (!lp_ipu_off_chip(p, v))
            continue;
        LP_TRY(there_and_back(p, var, p->partial[i].run));
        if (i == 0 || p->partial[i - 1].var != p->partial[i].var)
            LP_TRY(there_and_back(p, var, lp_ipu_pass_making(p, v->micro_out)));
    }
    return LP_OK;
}

static LpStatus values(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    for (size_t i = 0; i < p->n_stash; i++) {
        const LpStash *s = &p->stash[i];
        int64_t bytes = lp_type_bytes(lp_graph_type(g, s->v));
        for (int back = 0; back < 2 && s->off_chip; back++)
            LP_TRY(add(p, LP_TRANSFER_STASH, i, lp_pass_of(p, s->stage, back),
                       back, bytes));
    }
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        int64_t bytes = lp_type_bytes(lp_graph_type(g, m->v));
        if (!m->off_chip)
            continue;
        LP_TRY(add(p, LP_TRANSFER_COPY, i, m->from, false, bytes));
        LP_TRY(add(p, LP_TRANSFER_COPY, i, m->to, true, bytes));
    }
    return LP_OK;
}

static LpStatus update(LpIpuPlan *p)
{
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        int64_t bytes = lp_ipu_kept_bytes(p, v);
        if (!lp_ipu_off_chip(p, v))
            continue;
        if (v->update_in != LP_NOVAL)
            LP_TRY(add(p, LP_TRANSFER_VAR, i, -1, true, bytes));
        if (v->update_out != LP_NOVAL)
            LP_TRY(add(p, LP_TRANSFER_VAR, i, -1, false, bytes));
    }
    return LP_OK;
}

LpStatus lp_ipu_transfers(LpIpuPlan *p)
{
    for (int run = 0; run < p->n_pass; run++)
        for (uint32_t i = 0; i < p->pass[run].n_read; i++)
            LP_TRY(read_by(p, p->pass[run].read[i], run));
    LP_TRY(sums(p));
    LP_TRY(values(p));
    return update(p);
}
