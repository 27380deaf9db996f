/* Where tensors are: what holds for their kind, or what is said of one by name
 * (popart: determineTensorLocation). */
#include <string.h>

#include "src/ops/ops.h"
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

/* Which states combined SGD gathers gradients in, and of which accumulators
 * that is. */
static LpStatus find_velocities(LpIpuPlan *p)
{
    const LpStep *s = p->step;
    const LpGraph *u = s->update;
    int *var = lp_ipu_marks(p, u ? u->n_value : 0);
    int *state = lp_ipu_marks(p, s->n_var);
    p->velocity = lp_ipu_alloc(p, s->n_var, sizeof *p->velocity);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < s->n_var; i++)
        if (lp_is_value(s->var[i].update_out) &&
            s->var[i].role == LP_VAR_STATE && s->var[i].param >= 0)
            var[s->var[i].update_out] = (int)i;
    for (LpNodeId n = 0; u && n < u->n_node; n++) {
        const LpGraphNode *d = &u->node[n];
        for (uint32_t i = 0; i < d->n_out; i++)
            if (d->op->id == LP_OP_popart_sgd_combined_step &&
                var[d->out + i] >= 0)
                state[s->var[var[d->out + i]].param] = var[d->out + i];
    }
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        int of = v->param >= 0 ? state[v->param] : -1;
        bool both = v->role == LP_VAR_ACCUM || (int)i == of;
        p->velocity[i] = both ? of : -1;
    }
    return LP_OK;
}

bool lp_ipu_in_velocity(const LpIpuPlan *p, const LpVariable *v)
{
    return v->role == LP_VAR_ACCUM && p->velocity[v - p->step->var] >= 0;
}

/* Is it part of one that gradients of several micro-batches are gathered in,
 * which is where accumulators are, and whole? */
static bool gathers(const LpIpuPlan *p, const LpVariable *v)
{
    return p->accumulation > 1 && p->velocity[v - p->step->var] >= 0;
}

static const LpLocation *of_kind(const LpIpuPlan *p, const LpVariable *v)
{
    switch (v->role) {
    case LP_VAR_PARAM:
        return &p->o.location[LP_LOC_WEIGHT];
    case LP_VAR_STATE:
        return &p->o.location[gathers(p, v) ? LP_LOC_ACCUMULATOR
                                            : LP_LOC_OPTIMIZER];
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
    for (size_t i = 0; i < p->step->n_var; i++)
        if (lp_ipu_in_velocity(p, &p->step->var[i]))
            p->var_location[i] =
                p->accumulation > 1 ? p->var_location[p->velocity[i]] : NULL;
    if (o->n)
        LP_TRY(of_values(p, o));
    for (size_t i = 0; i < o->n && !p->o.own_unmet; i++)
        LP_FAIL_IF(!o->met[i], p->err, LP_E_VALUE,
                   "own: '%s' is no weight, state, accumulator or activation "
                   "of the step",
                   o->of[i].name);
    return LP_OK;
}

const LpLocation *lp_ipu_val_location(const LpIpuPlan *p, LpVal v)
{
    const LpLocation *l = p->val_location ? p->val_location[v] : NULL;
    return l ? l : &p->o.location[LP_LOC_ACTIVATION];
}

static bool is_off_chip(const LpLocation *l, int64_t n)
{
    return l && !l->on_chip && n >= l->min_off_chip;
}

static int64_t kept(const LpIpuPlan *p, const LpVariable *v, int64_t n)
{
    const LpLocation *l = lp_ipu_location(p, v);
    if (!l || v->role == LP_VAR_ACCUM || !l->sharded || n <= l->min_sharded ||
        gathers(p, v))
        return n;
    int64_t r = lp_group_size(lp_var_group(p->step, v), p->replicas);
    return (n + r - 1) / r;
}

LpStatus lp_ipu_locations(LpIpuPlan *p)
{
    size_t n = p->step->n_var;
    Own o = {.n = p->o.n_own};
    p->var_location = lp_ipu_alloc(p, n, sizeof *p->var_location);
    p->off_chip = lp_ipu_space(p, n, sizeof *p->off_chip);
    p->kept = lp_ipu_space(p, n, sizeof *p->kept);
    o.of = lp_ipu_keep(p, p->o.own, o.n, sizeof *o.of);
    o.met = lp_ipu_scratch(p, o.n, sizeof *o.met);
    p->o.own = NULL; /* its names are the caller's */
    p->o.n_own = 0;
    LP_TRY(p->err->code);
    LP_TRY(find_velocities(p));
    LP_TRY(find(p, &o));
    for (size_t i = 0; i < n; i++) {
        const LpVariable *v = &p->step->var[i];
        int64_t all = lp_numel(&v->type);
        p->off_chip[i] = is_off_chip(p->var_location[i], all);
        p->kept[i] = kept(p, v, all);
    }
    return LP_OK;
}
