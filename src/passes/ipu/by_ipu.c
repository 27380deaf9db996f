/* What the memory of every IPU is found from, by IPUs: each then looks at its
 * own part of the step alone, and leaves the tables clear for the next. */
#include "src/passes/ipu/tiles.h"

#include "src/base/checked.h"

typedef struct Place {
    int ipu;
    LpNodeId node;
} Place;

typedef struct Places {
    LpIpuPlan *p;
    Place *place;
    size_t n_place, cap_place;
} Places;

static LpStatus add(Places *x, int ipu, LpNodeId node)
{
    LP_IPU_ADD(x, place, x->p->err, (Place){ipu, node});
    return LP_OK;
}

/* Of n things that each belong to one IPU. */
static LpStatus sort_all(LpIpuPlan *p, size_t n,
                         int (*ipu_of)(const LpIpuPlan *, size_t),
                         LpNodesOf *out)
{
    size_t ipus = (size_t)p->n_ipus;
    size_t *next = lp_ipu_scratch(p, ipus + 2, sizeof *next);
    out->node = lp_ipu_scratch(p, n, sizeof *out->node);
    LP_TRY(p->err->code);
    out->first = next++;
    for (size_t i = 0; i < n && ipus > 1; i++)
        next[ipu_of(p, i) + 1]++;
    for (size_t i = 0; i < ipus; i++)
        next[i + 1] += next[i];
    for (size_t i = 0; i < n; i++)
        out->node[ipus > 1 ? next[ipu_of(p, i)]++ : i] = (LpNodeId)i;
    if (ipus == 1)
        next[0] = n;
    return LP_OK;
}

/* Takes the places, which are in the order of nodes. */
static LpStatus sort(Places *x, LpNodesOf *out)
{
    size_t ipus = (size_t)x->p->n_ipus;
    size_t *next = lp_ipu_scratch(x->p, ipus + 2, sizeof *next);
    out->node = lp_ipu_scratch(x->p, x->n_place, sizeof *out->node);
    LP_TRY(x->p->err->code);
    out->first = next++;
    for (size_t i = 0; i < x->n_place; i++)
        next[x->place[i].ipu + 1]++;
    for (size_t i = 0; i < ipus; i++)
        next[i + 1] += next[i];
    for (size_t i = 0; i < x->n_place; i++)
        out->node[next[x->place[i].ipu]++] = x->place[i].node;
    x->n_place = 0;
    return LP_OK;
}

/* ---- the update ---------------------------------------------------------- */
static void find_variables(const LpIpuPlan *p, LpByIpu *by)
{
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (v->update_in != LP_NOVAL) {
            by->var[v->update_in] = (int)i;
            by->root[v->update_in] = v->update_in;
            if (v->role != LP_VAR_HYPER)
                by->home[v->update_in] = p->var_ipu[i];
        }
        if (lp_is_value(v->update_out))
            by->out[v->update_out] = (int)i;
    }
}

static void find_roots(const LpIpuPlan *p, LpByIpu *by)
{
    const LpGraph *u = p->step->update;
    for (LpNodeId n = 0; n < u->n_node; n++) {
        const LpGraphNode *d = &u->node[n];
        for (uint32_t i = 0; i < d->n_in; i++) {
            LpVal v = lp_is_value(d->in[i]) ? by->root[d->in[i]] : LP_NOVAL;
            if (v && by->var[v] >= 0)
                by->last[by->var[v]] = n + 1;
        }
        bool view = lp_ipu_is_view(d);
        for (uint32_t i = 0; i < d->n_out; i++) {
            LpVal root = view ? by->root[d->in[0]] : d->out + i;
            by->root[d->out + i] = root;
            by->home[d->out + i] = view ? by->home[root] : p->update_ipu[n];
        }
    }
}

/* A node is of its own IPU and of those from which it reads. */
static LpStatus find_touched(Places *x, LpByIpu *by)
{
    LpIpuPlan *p = x->p;
    const LpGraph *u = p->step->update;
    LpNodeId *last =
        lp_ipu_scratch(p, (size_t)p->n_ipus, sizeof *last); /* + 1 */
    LP_TRY(p->err->code);
    for (LpNodeId n = 0; n < u->n_node; n++) {
        const LpGraphNode *d = &u->node[n];
        LP_TRY(add(x, p->update_ipu[n], n));
        last[p->update_ipu[n]] = n + 1;
        for (uint32_t i = 0; i < d->n_in; i++) {
            int home = lp_is_value(d->in[i]) ? by->home[d->in[i]] : -1;
            if (home < 0 || last[home] == n + 1)
                continue;
            LP_TRY(add(x, home, n));
            last[home] = n + 1;
        }
    }
    return sort(x, &by->touched);
}

static int ipu_of_update(const LpIpuPlan *p, size_t n)
{
    return p->update_ipu[n];
}

static LpStatus of_update(Places *x, LpByIpu *by)
{
    LpIpuPlan *p = x->p;
    const LpGraph *u = p->step->update;
    by->var = lp_ipu_marks(p, u->n_value);
    by->out = lp_ipu_marks(p, u->n_value);
    by->home = lp_ipu_marks(p, u->n_value);
    by->root = lp_ipu_scratch(p, u->n_value, sizeof *by->root);
    by->last = lp_ipu_scratch(p, p->step->n_var, sizeof *by->last);
    LP_TRY(p->err->code);
    find_variables(p, by);
    find_roots(p, by);
    LP_TRY(sort_all(p, u->n_node, ipu_of_update, &by->update));
    by->touched = by->update;
    return p->n_ipus > 1 ? find_touched(x, by) : LP_OK;
}

/* ---- what there is ------------------------------------------------------- */
static int ipu_of_variable(const LpIpuPlan *p, size_t i)
{
    return p->var_ipu[i];
}

/* Its own ones and copies of others', in order. */
static LpStatus find_owned(Places *x, LpByIpu *by)
{
    const LpIpuPlan *p = x->p;
    size_t n = p->step->n_var;
    if (p->n_replicated == 0)
        return sort_all(x->p, n, ipu_of_variable, &by->owned);
    size_t *first = lp_ipu_scratch(x->p, n, sizeof *first); /* copy + 1 */
    size_t *next = lp_ipu_scratch(x->p, p->n_replicated, sizeof *next);
    LP_TRY(p->err->code);
    for (size_t k = p->n_replicated; k-- > 0;) {
        next[k] = first[p->replicated[k].var];
        first[p->replicated[k].var] = k + 1;
    }
    for (size_t i = 0; i < n; i++) {
        LP_TRY(add(x, p->var_ipu[i], (uint32_t)i));
        for (size_t k = first[i]; k; k = next[k - 1])
            LP_TRY(add(x, p->replicated[k - 1].ipu, (uint32_t)i));
    }
    return sort(x, &by->owned);
}

static int ipu_of_stash(const LpIpuPlan *p, size_t i)
{
    return p->stage[p->stash[i].stage].ipu;
}

static LpStatus find_stashes(LpIpuPlan *p, LpByIpu *by)
{
    by->stash_of = lp_ipu_scratch(p, p->step->micro->n_value, sizeof(size_t));
    by->next_stash = lp_ipu_scratch(p, p->n_stash, sizeof(size_t));
    LP_TRY(p->err->code);
    for (size_t i = p->n_stash; i-- > 0;) {
        by->next_stash[i] = by->stash_of[p->stash[i].v];
        by->stash_of[p->stash[i].v] = i + 1;
    }
    return sort_all(p, p->n_stash, ipu_of_stash, &by->stash);
}

static LpStatus find_copies(Places *x, LpByIpu *by)
{
    LpIpuPlan *p = x->p;
    by->copy_of = lp_ipu_scratch(p, p->step->micro->n_value, sizeof(size_t));
    by->next_copy = lp_ipu_scratch(p, p->n_copy, sizeof(size_t));
    LP_TRY(p->err->code);
    for (size_t i = 0; i < p->n_copy; i++) {
        LP_TRY(add(x, p->copy[i].from_ipu, (uint32_t)i));
        if (p->copy[i].to_ipu != p->copy[i].from_ipu)
            LP_TRY(add(x, p->copy[i].to_ipu, (uint32_t)i));
    }
    for (size_t i = p->n_copy; i-- > 0;) {
        by->next_copy[i] = by->copy_of[p->copy[i].v];
        by->copy_of[p->copy[i].v] = i + 1;
    }
    return sort(x, &by->copy);
}

static int ipu_of_node(const LpIpuPlan *p, size_t n)
{
    return p->stage[p->node_stage[n]].ipu;
}

static int ipu_of_run(const LpIpuPlan *p, size_t r)
{
    return p->pass[r].ipu;
}

static int ipu_of_transfer(const LpIpuPlan *p, size_t i)
{
    return p->transfer[i].ipu;
}

static LpStatus build(Places *x, LpByIpu *by)
{
    LpIpuPlan *p = x->p;
    const LpGraph *g = p->step->micro, *u = p->step->update;
    size_t n_update = u ? u->n_value : 0, n_var = p->step->n_var;
    by->span = lp_ipu_scratch(p, g->n_value, sizeof *by->span);
    by->off = lp_ipu_scratch(p, g->n_value, sizeof *by->off);
    by->update_span = lp_ipu_scratch(p, n_update, sizeof *by->update_span);
    by->came = lp_ipu_scratch(p, n_var, sizeof *by->came);
    by->base = lp_ipu_scratch(p, (size_t)p->n_pass, sizeof *by->base);
    LP_TRY(p->err->code);
    LP_TRY(sort_all(p, g->n_node, ipu_of_node, &by->node));
    LP_TRY(find_owned(x, by));
    LP_TRY(sort_all(p, (size_t)p->n_pass, ipu_of_run, &by->run));
    LP_TRY(find_stashes(p, by));
    LP_TRY(find_copies(x, by));
    LP_TRY(sort_all(p, p->n_transfer, ipu_of_transfer, &by->transfer));
    return u ? of_update(x, by) : LP_OK;
}

LpStatus lp_ipu_by_ipu(LpIpuPlan *p, LpByIpu *by)
{
    Places x = {.p = p};
    LpStatus s = build(&x, by);
    lp_free(x.place);
    return s;
}
