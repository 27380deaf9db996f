/* The row of the weight update: what lives off chip comes, gradients are summed
 * over the replicas of a group, then every IPU updates its parameters, and what
 * lives off chip goes. With sharded state the sum is scattered, each replica
 * updates its share, and the new parameters are gathered. At the end IPUs that
 * read a parameter of another one get the new one. */
#include "src/base/checked.h"
#include "src/ops/cost_ctx.h"
#include "src/passes/ipu/traffic.h"

#include <string.h>

typedef struct Update {
    LpIpuPlan *p;
    LpRowBuilder b;
    int64_t *share; /* variable: of a parameter that so many replicas update in
                       shares; 0: each has all of it */
    /* by IPU */
    int64_t *load, *store;
    LpCost *total;
    /* by IPU and type: bytes that the replicas of a group exchange: all-reduced
     * ones, sharded gradients, sharded parameters */
    int64_t (*sum)[LP_COST_N_TYPES], (*scatter)[LP_COST_N_TYPES],
        (*gather)[LP_COST_N_TYPES];
    uint64_t *there; /* by value: a bit for each IPU to which it has gone */
    size_t words;    /* of a value's bits */
} Update;

static void find_shared(const Update *u)
{
    const LpIpuPlan *p = u->p;
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        bool state = v->role == LP_VAR_STATE && v->param >= 0;
        if (lp_ipu_kept(p, v) < lp_numel(&v->type))
            u->share[state ? v->param : (int)i] =
                lp_group_size(lp_var_group(p->step, v), p->replicas);
    }
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (v->param >= 0 &&
            (v->role == LP_VAR_STATE || v->role == LP_VAR_ACCUM))
            u->share[i] = u->share[v->param];
    }
}

/* Of the variables in the groups of variable `first`. */
static void exchange(const Update *u, size_t first)
{
    const LpIpuPlan *p = u->p;
    size_t size = (size_t)p->n_ipus * sizeof *u->sum;
    memset(u->sum, 0, size);
    memset(u->scatter, 0, size);
    memset(u->gather, 0, size);
    for (size_t i = first; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        int ipu = p->var_ipu[i];
        LpCostType t = lp_cost_type(v->type.dtype);
        if (!lp_ipu_grouped_with(p, i, first))
            continue;
        if (v->role == LP_VAR_ACCUM)
            (u->share[i] ? u->scatter : u->sum)[ipu][t] +=
                lp_type_bytes(&v->type);
        /* a parameter that stays sharded is gathered where it is used */
        if (v->role == LP_VAR_PARAM && u->share[i] &&
            lp_ipu_kept(p, v) == lp_numel(&v->type))
            u->gather[ipu][t] += lp_type_bytes(&v->type);
    }
}

static LpStatus collectives(Update *u, bool gather)
{
    int64_t *cyc = &u->b.row->collective_cyc;
    if (u->p->replicas == 1)
        return LP_OK;
    for (size_t i = 0; i < u->p->step->n_var; i++) {
        if (!lp_ipu_leads_group(u->p, i))
            continue;
        exchange(u, i);
        if (gather) {
            LP_TRY(lp_row_collective(&u->b, LP_COLL_ALL_GATHER, i, u->gather,
                                     cyc));
            continue;
        }
        LP_TRY(lp_row_collective(&u->b, LP_COLL_ALL_REDUCE, i, u->sum, cyc));
        LP_TRY(lp_row_collective(&u->b, LP_COLL_REDUCE_SCATTER, i, u->scatter,
                                 cyc));
    }
    return LP_OK;
}

static void off_chip_traffic(Update *u)
{
    const LpIpuPlan *p = u->p;
    for (size_t i = 0; i < p->n_transfer; i++) {
        const LpTransfer *s = &p->transfer[i];
        if (s->run < 0 && s->edge == LP_STREAM_ALONE)
            (s->load ? u->load : u->store)[p->var_ipu[s->at]] += s->bytes;
    }
    for (size_t i = 0; i < p->n_partial; i++) {
        const LpVariable *v = &p->step->var[p->partial[i].var];
        if (lp_ipu_first_partial(p, i) && lp_ipu_off_chip(p, v))
            u->load[p->pass[p->partial[i].run].ipu] += lp_type_bytes(&v->type);
    }
}

/* The weight that a variable is of, or it itself. */
static int owner(const LpStep *s, size_t var)
{
    const LpVariable *v = &s->var[var];
    bool of = v->role == LP_VAR_STATE || v->role == LP_VAR_ACCUM;
    return of && v->param >= 0 ? v->param : (int)var;
}

/* One weight after another: each waits for the host by itself. */
static LpStatus wait_for_each(Update *u, int64_t *sync)
{
    LpIpuPlan *p = u->p;
    int64_t most = 1, one = *sync;
    int64_t *n = lp_ipu_scratch(p, (size_t)p->n_ipus, sizeof *n);
    bool *seen = lp_ipu_scratch(p, p->step->n_var, sizeof *seen);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < p->n_transfer; i++) {
        const LpTransfer *t = &p->transfer[i];
        if (t->run >= 0 || t->edge != LP_STREAM_ALONE ||
            seen[owner(p->step, t->at)])
            continue;
        seen[owner(p->step, t->at)] = true;
        most = lp_max(most, ++n[t->ipu]);
    }
    LpActKind first = LP_ACT_STORE;
    for (size_t i = 0; i < u->b.n_act; i++)
        first = u->b.act[i].kind == LP_ACT_LOAD ? LP_ACT_LOAD : first;
    for (size_t i = 0; i < u->b.n_act; i++)
        if (u->b.act[i].kind == first && n[u->b.act[i].ipu] > 1)
            u->b.act[i].cycles += (n[u->b.act[i].ipu] - 1) * one;
    *sync = most * one;
    return LP_OK;
}

/* Shares of each value of the update, through the values it is made of. */
static void find_shares(const Update *u, int64_t *value)
{
    const LpStep *s = u->p->step;
    const LpGraph *g = s->update;
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].update_in != LP_NOVAL)
            value[s->var[i].update_in] = u->share[i];
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpGraphNode *d = &g->node[n];
        int64_t most = 0;
        for (uint32_t i = 0; i < d->n_in; i++)
            if (lp_is_value(d->in[i]) && value[d->in[i]] > most)
                most = value[d->in[i]];
        for (uint32_t i = 0; i < d->n_out; i++)
            value[d->out + i] = most;
    }
}

static LpStatus compute(Update *u, const int64_t *value)
{
    LpIpuPlan *p = u->p;
    const LpGraph *g = p->step->update;
    LpCost *total = u->total;
    int worst = 0;
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpCost *c = p->update_cost[n].cost;
        LpCost *t = &total[p->update_ipu[n]];
        int64_t r = value[g->node[n].out];
        t->compute_cyc += r ? (c->compute_cyc + r - 1) / r : c->compute_cyc;
        t->exchange_cyc += r ? (c->exchange_cyc + r - 1) / r : c->exchange_cyc;
        t->sync_cyc += c->sync_cyc;
    }
    for (int i = 0; i < p->n_ipus; i++) {
        int64_t cyc = lp_cost_cyc(&total[i]);
        if (cyc > lp_cost_cyc(&total[worst]))
            worst = i;
        if (cyc > 0)
            LP_TRY(lp_row_add(&u->b, (LpAct){.kind = LP_ACT_UPDATE,
                                             .run = -1,
                                             .ipu = i,
                                             .cycles = cyc}));
        u->b.row->busy_cyc += cyc;
        u->b.row->useful_cyc += cyc;
    }
    u->b.row->compute_cyc += total[worst].compute_cyc;
    u->b.row->exchange_cyc += total[worst].exchange_cyc;
    u->b.row->sync_cyc += total[worst].sync_cyc;
    u->b.row->work_cyc = lp_cost_cyc(&total[worst]);
    return LP_OK;
}

static LpStatus copy(Update *u, int from, int to, int64_t bytes)
{
    LpCost c;
    LP_TRY(lp_row_copy(&u->b, from, to, bytes, &c));
    u->b.row->copy_cyc += c.exchange_cyc;
    u->b.row->sync_cyc += c.sync_cyc;
    return LP_OK;
}

/* Sums that other IPUs have of their parts, each one addition. */
static LpStatus fetch_parts(Update *u)
{
    const LpIpuPlan *p = u->p;
    for (size_t i = 0; i < p->n_partial; i++) {
        int var = p->partial[i].var;
        const LpVariable *v = &p->step->var[var];
        if (!lp_ipu_first_partial(p, i))
            continue;
        LpNodeId add = p->step->micro->value[v->micro_out].node;
        lp_cost_add(&u->total[p->var_ipu[var]], *p->cost[add].cost);
        LP_TRY(copy(u, p->pass[p->partial[i].run].ipu, p->var_ipu[var],
                    lp_type_bytes(&v->type)));
    }
    return LP_OK;
}

static LpStatus renew_shares(Update *u)
{
    const LpIpuPlan *p = u->p;
    for (size_t i = 0; i < p->n_replicated; i++) {
        int var = p->replicated[i].var;
        const LpVariable *v = &p->step->var[var];
        if (v->update_out != LP_NOVAL)
            LP_TRY(copy(u, p->var_ipu[var], p->replicated[i].ipu,
                        lp_ipu_kept_bytes(p, v)));
    }
    return LP_OK;
}

/* A value goes once to each IPU that reads it and has not made it. */
static LpStatus bring(Update *u, LpVal v, int from, int to)
{
    uint64_t bit = UINT64_C(1) << to % 64;
    uint64_t *there = &u->there[v * u->words + (size_t)to / 64];
    if (from == to || *there & bit)
        return LP_OK;
    *there |= bit;
    return copy(u, from, to,
                lp_type_bytes(lp_graph_type(u->p->step->update, v)));
}

/* Values of the update that another IPU reads: a norm over all gradients, or a
 * gradient that is made on another IPU than the parameter is on. */
static LpStatus copies(Update *u)
{
    LpIpuPlan *p = u->p;
    const LpGraph *g = p->step->update;
    if (p->n_ipus == 1)
        return LP_OK;
    int *home = lp_ipu_marks(p, g->n_value);
    u->words = (size_t)p->n_ipus / 64 + 1;
    u->there = lp_ipu_scratch(p, g->n_value * u->words, sizeof *u->there);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (v->update_in != LP_NOVAL && v->role != LP_VAR_HYPER)
            home[v->update_in] = p->var_ipu[i];
    }
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpGraphNode *d = &g->node[n];
        for (uint32_t i = 0; i < d->n_in; i++)
            if (lp_is_value(d->in[i]) && home[d->in[i]] >= 0)
                LP_TRY(bring(u, d->in[i], home[d->in[i]], p->update_ipu[n]));
        for (uint32_t i = 0; i < d->n_out; i++)
            home[d->out + i] = p->update_ipu[n];
    }
    for (size_t i = 0; i < p->step->n_var; i++) {
        LpVal v = p->step->var[i].update_out;
        if (lp_is_value(v) && home[v] >= 0)
            LP_TRY(bring(u, v, home[v], p->var_ipu[i]));
    }
    return LP_OK;
}

static LpStatus build(Update *u)
{
    LpIpuPlan *p = u->p;
    int64_t cyc = 0, sync = 0;
    int64_t *value = lp_ipu_scratch(p, p->step->update->n_value, sizeof *value);
    size_t ipus = (size_t)p->n_ipus;
    u->share = lp_ipu_scratch(p, p->step->n_var, sizeof *u->share);
    u->load = lp_ipu_scratch(p, ipus, sizeof *u->load);
    u->store = lp_ipu_scratch(p, ipus, sizeof *u->store);
    u->total = lp_ipu_scratch(p, ipus, sizeof *u->total);
    u->sum = lp_ipu_scratch(p, ipus, sizeof *u->sum);
    u->scatter = lp_ipu_scratch(p, ipus, sizeof *u->scatter);
    u->gather = lp_ipu_scratch(p, ipus, sizeof *u->gather);
    LP_TRY(p->err->code);
    find_shared(u);
    off_chip_traffic(u);
    LP_TRY(lp_row_stream(&u->b, u->load, NULL, &cyc, &sync));
    LP_TRY(fetch_parts(u));
    LP_TRY(collectives(u, false));
    find_shares(u, value);
    LP_TRY(compute(u, value));
    LP_TRY(copies(u));
    LP_TRY(lp_row_stream(&u->b, NULL, u->store, &cyc, &sync));
    LP_TRY(collectives(u, true));
    LP_TRY(renew_shares(u));
    if (lp_ipu_update_is_phase(p) &&
        p->o.update_order == LP_UPDATE_INTERLEAVING)
        LP_TRY(wait_for_each(u, &sync));
    u->b.row->stream_cyc += cyc;
    u->b.row->sync_cyc += sync;
    return LP_OK;
}

LpStatus lp_ipu_update_row(LpIpuPlan *p, LpRow *row)
{
    Update *u = lp_ipu_scratch(p, 1, sizeof *u);
    LP_TRY(p->err->code);
    u->p = p;
    u->b = (LpRowBuilder){.p = p, .row = row};
    LpStatus s = lp_row_finish(&u->b, build(u));
    lp_row_fini(&u->b);
    return s;
}

LpStatus lp_ipu_output_row(LpIpuPlan *p, const LpTraffic *t, LpRow *row)
{
    LpRowBuilder b = {.p = p, .row = row};
    int64_t *bytes = lp_ipu_scratch(p, (size_t)p->n_ipus, sizeof *bytes);
    LP_TRY(p->err->code);
    for (int r = 0; r < p->n_pass; r++)
        for (int k = 0; k < LP_N_AHEAD; k++)
            bytes[p->pass[r].ipu] += t[r].host_out[k];
    LpStatus s = lp_row_transfer(&b, LP_ACT_HOST_OUT, bytes, &row->host_cyc,
                                 &row->sync_cyc);
    s = lp_row_finish(&b, s);
    lp_row_fini(&b);
    return s;
}
