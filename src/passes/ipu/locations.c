/* Where tensors are: what holds for their kind, or what is said of one by name
 * (popart: determineTensorLocation). */
#include <string.h>

#include "src/passes/ipu/ipu.h"

/* What is said of a name, of several the first; NULL: nothing. */
static const LpLocation *own(const LpIpuOptions *o, const char *name)
{
    for (size_t i = 0; name && i < o->n_own; i++)
        if (strcmp(o->own[i].name, name) == 0)
            return &o->own[i].at;
    return NULL;
}

static const LpLocation *own_of_value(const LpIpuOptions *o, const LpValue *v)
{
    const LpLocation *l = own(o, v->name);
    for (const LpName *n = v->more; n && !l; n = n->next)
        l = own(o, n->text);
    return l;
}

static const LpLocation *of_kind(const LpIpuPlan *p, const LpVariable *v)
{
    switch (v->role) {
    case LP_VAR_PARAM:
        return &p->o.location[LP_LOC_WEIGHT];
    case LP_VAR_STATE:
        return &p->o.location[LP_LOC_OPTIMIZER];
    case LP_VAR_ACCUM:
        return &p->o.location[LP_LOC_ACCUMULATOR];
    default:
        return NULL;
    }
}

/* What is said of a marker's result is said of what it marks. */
static LpStatus of_values(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    p->val_location = lp_ipu_alloc(p, g->n_value, sizeof *p->val_location);
    LP_TRY(p->err->code);
    for (LpVal v = 1; v < g->n_value; v++)
        p->val_location[v] = own_of_value(&p->o, &g->value[v]);
    for (size_t n = g->n_node; n-- > 0;) {
        const LpGraphNode *d = &g->node[n];
        bool marks = d->op->flags & LP_OPF_MARKER && d->n_in && d->n_out;
        if (marks && lp_is_value(d->in[0]) && !p->val_location[d->in[0]])
            p->val_location[d->in[0]] = p->val_location[d->out];
    }
    return LP_OK;
}

LpStatus lp_ipu_locations(LpIpuPlan *p)
{
    size_t n = p->step->n_var;
    p->var_location = lp_ipu_alloc(p, n, sizeof *p->var_location);
    p->o.own = lp_ipu_keep(p, p->o.own, p->o.n_own, sizeof *p->o.own);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < n; i++) {
        const LpVariable *v = &p->step->var[i];
        const LpLocation *kind = of_kind(p, v);
        const LpLocation *one = kind ? own(&p->o, v->name) : NULL;
        p->var_location[i] = one ? one : kind;
    }
    LpStatus s = p->o.n_own ? of_values(p) : LP_OK;
    p->o.own = NULL; /* its names are the caller's */
    p->o.n_own = 0;
    return s;
}

const LpLocation *lp_ipu_location(const LpIpuPlan *p, const LpVariable *v)
{
    return p->var_location[v - p->step->var];
}

const LpLocation *lp_ipu_val_location(const LpIpuPlan *p, LpVal v)
{
    const LpLocation *l = p->val_location ? p->val_location[v] : NULL;
    return l ? l : &p->o.location[LP_LOC_ACTIVATION];
}

bool lp_ipu_off_chip(const LpIpuPlan *p, const LpVariable *v)
{
    const LpLocation *l = lp_ipu_location(p, v);
    return l && !l->on_chip && lp_numel(&v->type) >= l->min_off_chip;
}
