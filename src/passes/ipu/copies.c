/* Values that move between runs, by the strategy's routes, and variables that
 * an IPU reads from another. */
#include "src/passes/ipu/strategy.h"

typedef struct Copies {
    LpIpuPlan *p;
    const LpGraph *g;
    int *mark; /* by value: run that was last found to read it */
    int *far;  /* by value and direction: farthest run to read it, -1: none */
} Copies;

static LpStatus add_copy(Copies *c, LpVal v, int from, int to, bool off_chip)
{
    LpIpuPlan *p = c->p;
    LP_IPU_ADD(
        p, copy, p->err,
        (LpIpuCopy){v, from, to, p->pass[from].ipu, p->pass[to].ipu, off_chip});
    return LP_OK;
}

/* What lives off chip each IPU brings for itself, hyper-parameters come from
 * the host. */
static LpStatus replicate(Copies *c, int var, int ipu)
{
    LpIpuPlan *p = c->p;
    const LpVariable *v = &p->step->var[var];
    if (v->role == LP_VAR_HYPER || lp_ipu_off_chip(p, v) ||
        lp_ipu_has(p, var, ipu))
        return LP_OK;
    LP_IPU_ADD(p, replicated, p->err, (LpReplicatedVar){var, ipu});
    return LP_OK;
}

/* The run in which v is made, or from which it can be had by a backward run:
 * forward values of later stages leave with the backward run of theirs. */
static int source(const Copies *c, LpVal v, const LpStagePass *reader)
{
    const LpIpuPlan *p = c->p;
    bool back = lp_is_backward(c->p, v) ||
                (reader->backward && p->val_stage[v] > reader->stage);
    return lp_pass_of(p, p->val_stage[v], back);
}

static LpStatus read_by(Copies *c, LpVal v, int run)
{
    LpIpuPlan *p = c->p;
    if (c->mark[v] == run)
        return LP_OK;
    c->mark[v] = run;
    const LpStagePass *r = &p->pass[run];
    if (lp_ipu_is_free(p, v))
        return replicate(c, p->var_of[v], r->ipu);
    int from = source(c, v, r);
    if (from == run || (r->backward && !p->pass[from].backward))
        return LP_OK; /* made here, or stashed by the forward run */
    LpRoute route = p->strategy->route
                        ? p->strategy->route(p, &p->pass[from], r)
                        : LP_ROUTE_DIRECT;
    if (route != LP_ROUTE_HOPS)
        return add_copy(c, v, from, run, route == LP_ROUTE_OFF_CHIP);
    int *far = &c->far[2 * v + p->pass[from].backward];
    if (run > *far)
        *far = run;
    return LP_OK;
}

static LpStatus chain(Copies *c, LpVal v)
{
    for (int back = 0; back < 2; back++) {
        int to = c->far[2 * v + (LpVal)back];
        if (to < 0)
            continue;
        for (int r = source(c, v, &c->p->pass[to]); r < to; r++)
            LP_TRY(add_copy(c, v, r, r + 1, false));
    }
    return LP_OK;
}

LpStatus lp_ipu_copies(LpIpuPlan *p)
{
    Copies c = {.p = p, .g = p->step->micro};
    size_t at = p->n_stash; /* those of the first stage are the last */
    if (p->n_stage == 1)
        return LP_OK;
    c.mark = lp_ipu_marks(p, c.g->n_value);
    c.far = lp_ipu_marks(p, 2 * c.g->n_value);
    LP_TRY(p->err->code);
    for (int run = 0; run < p->n_pass; run++) {
        const LpStagePass *r = &p->pass[run];
        for (uint32_t i = 0; i < r->n_read; i++)
            LP_TRY(read_by(&c, r->read[i], run));
        size_t end = at;
        while (!r->backward && at > 0 && p->stash[at - 1].stage == r->stage)
            at--;
        for (size_t i = at; i < end; i++)
            LP_TRY(read_by(&c, p->stash[i].v, run));
    }
    for (LpVal v = 1; v < c.g->n_value; v++)
        LP_TRY(chain(&c, v));
    return LP_OK;
}
