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
    LP_FAIL_IF(!LP_GROW(p->copy, p->cap_copy, p->n_copy), p->err, LP_E_MEMORY,
               "out of memory");
    p->copy[p->n_copy++] =
        (LpIpuCopy){v, from, to, p->pass[from].ipu, p->pass[to].ipu, off_chip};
    return LP_OK;
}

/* What lives off chip each IPU brings for itself, hyper-parameters come from
 * the host. */
static LpStatus share(Copies *c, int var, int ipu)
{
    LpIpuPlan *p = c->p;
    const LpVariable *v = &p->step->var[var];
    if (v->role == LP_VAR_HYPER || lp_ipu_off_chip(p, v) ||
        lp_ipu_has(p, var, ipu))
        return LP_OK;
    LP_FAIL_IF(!LP_GROW(p->share, p->cap_share, p->n_share), p->err,
               LP_E_MEMORY, "out of memory");
    p->share[p->n_share++] = (LpShare){var, ipu};
    return LP_OK;
}

/* The run in which v is made, or from which it can be had by a backward run:
 * forward values of later stages leave with the backward run of theirs. */
static int source(const Copies *c, LpVal v, const LpStagePass *reader)
{
    const LpIpuPlan *p = c->p;
    bool back = lp_is_backward(c->g, v) ||
                (reader->backward && p->val_stage[v] > reader->stage);
    return lp_pass_of(p, p->val_stage[v], back);
}

static LpStatus read_by(Copies *c, LpVal v, int run)
{
    LpIpuPlan *p = c->p;
    if (!lp_is_value(v) || c->mark[v] == run)
        return LP_OK;
    c->mark[v] = run;
    const LpStagePass *r = &p->pass[run];
    if (lp_ipu_is_free(p, v))
        return share(c, p->var_of[v], r->ipu);
    int from = source(c, v, r);
    if (from == run || (r->backward && !p->pass[from].backward))
        return LP_OK; /* made here, or stashed by the forward run */
    LpRoute route =
        p->how->route ? p->how->route(p, &p->pass[from], r) : LP_ROUTE_DIRECT;
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

static LpStatus build(Copies *c)
{
    LpIpuPlan *p = c->p;
    for (int run = 0; run < p->n_pass; run++) {
        const LpStagePass *r = &p->pass[run];
        for (uint32_t i = 0; i < r->n; i++) {
            const LpGraphNode *d = &c->g->node[r->entry[i].node];
            for (uint32_t k = 0; k < d->n_in; k++)
                LP_TRY(read_by(c, d->in[k], run));
        }
        for (size_t i = 0; !r->backward && i < p->n_stash; i++)
            if (p->stash[i].stage == r->stage)
                LP_TRY(read_by(c, p->stash[i].v, run));
    }
    for (LpVal v = 1; v < c->g->n_value; v++)
        LP_TRY(chain(c, v));
    return LP_OK;
}

LpStatus lp_ipu_copies(LpIpuPlan *p)
{
    Copies c = {.p = p, .g = p->step->micro};
    size_t n = c.g->n_value;
    c.mark = lp_alloc(n * sizeof *c.mark);
    c.far = lp_alloc(2 * n * sizeof *c.far);
    LpStatus s = LP_OK;
    if (!c.mark || !c.far)
        s = lp_fail(p->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < n && s == LP_OK; i++)
        c.mark[i] = c.far[2 * i] = c.far[2 * i + 1] = -1;
    if (s == LP_OK)
        s = build(&c);
    lp_free(c.mark);
    lp_free(c.far);
    return s;
}
