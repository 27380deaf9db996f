/* Where tensors are: what holds for their kind, or what is said of one by name
 * (popart: determineTensorLocation). */
#include <string.h>

#include "src/passes/ipu/ipu.h"

/* What is said of single tensors, and whether there are such. */
typedef struct Own {
    LpOwnLocation *of;
    size_t n;
    bool *met;
} Own;

/* What is said of the name of a tensor of a kind, of several the first; NULL:
 * nothing. */
static const LpLocation *own(const Own *o, const char *name,
                             const LpLocation *kind)
{
    for (size_t i = 0; name && i < o->n; i++)
        if (strcmp(o->of[i].name, name) == 0) {
            if (o->of[i].as_kind && !o->met[i])
                o->of[i].at.on_demand = kind->on_demand;
            o->met[i] = true;
            return &o->of[i].at;
        }
    return NULL;
}

static const LpLocation *own_of_value(const Own *o, const LpValue *v,
                                      const LpLocation *kind)
{
    const LpLocation *l = own(o, v->name, kind);
    for (const LpName *n = v->more; n; n = n->next) {
        const LpLocation *other = own(o, n->text, kind);
        l = l ? l : other;
    }
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
static LpStatus of_values(LpIpuPlan *p, const Own *o)
{
    const LpGraph *g = p->step->micro;
    p->val_location = lp_ipu_alloc(p, g->n_value, sizeof *p->val_location);
    LP_TRY(p->err->code);
    for (LpVal v = 1; v < g->n_value; v++)
        p->val_location[v] =
            own_of_value(o, &g->value[v], &p->o.location[LP_LOC_ACTIVATION]);
    for (size_t n = g->n_node; n-- > 0;) {
        const LpGraphNode *d = &g->node[n];
        bool marks = d->op->flags & LP_OPF_MARKER && d->n_in && d->n_out;
        if (marks && lp_is_value(d->in[0]) && !p->val_location[d->in[0]])
            p->val_location[d->in[0]] = p->val_location[d->out];
    }
    return LP_OK;
}

static LpStatus find(LpIpuPlan *p, const Own *o)
{
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        const LpLocation *kind = of_kind(p, v);
        const LpLocation *one = kind ? own(o, v->name, kind) : NULL;
        p->var_location[i] = one ? one : kind;
    }
    if (o->n)
        LP_TRY(of_values(p, o));
    for (size_t i = 0; i < o->n && !p->o.own_unmet; i++)
        LP_FAIL_IF(!o->met[i], p->err, LP_E_VALUE,
                   "own: '%s' is no weight, state, accumulator or activation "
                   "of the step",
                   o->of[i].name);
    return LP_OK;
}

LpStatus lp_ipu_locations(LpIpuPlan *p)
{
    size_t n = p->step->n_var;
    Own o = {.n = p->o.n_own};
    p->var_location = lp_ipu_alloc(p, n, sizeof *p->var_location);
    o.of = lp_ipu_keep(p, p->o.own, o.n, sizeof *o.of);
    o.met = lp_ipu_scratch(p, o.n, sizeof *o.met);
    p->o.own = NULL; /* its names are the caller's */
    p->o.n_own = 0;
    LP_TRY(p->err->code);
    return find(p, &o);
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
