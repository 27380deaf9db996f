/* Stage of every node. Forward nodes go by the stage id (and phase) of their
 * origin; ids stand in ascending order and neighbours on one IPU are one
 * stage. A backward node belongs to the backward run of its forward stage, but
 * never before what it reads: so a sum of gradients lands with the forward
 * producer of the value. Variables live where forward first reads them,
 * accumulators and optimizer state with their parameter.
 *
 * A model that returns to an earlier stage cannot be pipelined; sharded, its
 * stages are the stretches of the program between changes of the IPU. */
#include "src/base/map.h"
#include "src/base/random.h"
#include "src/passes/ipu/strategy.h"

typedef struct Key {
    int phase, id, ipu;
    uint32_t seen; /* order of first node */
    const char *block;
    int stage;
} Key;

typedef struct Stages {
    LpIpuPlan *p;
    const LpGraph *g;
    Key *key;
    int n_key;
    int *of_origin; /* key, -1 */
    LpMap key_at;   /* by hash of phase, id and IPU */
} Stages;

static LpStatus no_memory(LpIpuPlan *p)
{
    return lp_fail(p->err, LP_E_MEMORY, "out of memory");
}

/* ---- keys ---------------------------------------------------------------- */
static int find_key(Stages *s, const LpOrigin *o, bool add, uint32_t node)
{
    Key k = {.phase = s->p->how->by_phase && o->phase > 0 ? o->phase : 0,
             .id = o->stage > 0 ? o->stage : 0,
             .ipu = o->ipu,
             .seen = node,
             .block = o->block};
    uint64_t h = lp_mix64_pair((uint32_t)k.phase, (uint32_t)k.id);
    h = lp_mix64_pair(h, (uint32_t)k.ipu);
    for (const uint32_t *at = lp_map_first(&s->key_at, h); at;
         at = lp_map_next(&s->key_at, at)) {
        const Key *x = &s->key[*at];
        if (x->phase == k.phase && x->id == k.id && x->ipu == k.ipu)
            return (int)*at;
    }
    if (!add)
        return -1;
    if (!lp_map_add(&s->key_at, h, (uint32_t)s->n_key)) {
        no_memory(s->p);
        return -1;
    }
    s->key[s->n_key] = k;
    return s->n_key++;
}

static bool key_before(const Key *a, const Key *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase;
    return a->id != b->id ? a->id < b->id : a->seen < b->seen;
}

static LpStatus collect_keys(Stages *s)
{
    const LpGraph *g = s->g;
    s->key = lp_arena_calloc(&s->p->mem, (g->n_origin + 1) * sizeof *s->key);
    s->of_origin = lp_arena_calloc(&s->p->mem, g->n_origin * sizeof(int));
    if (!s->key || !s->of_origin)
        return no_memory(s->p);
    for (size_t i = 0; i < g->n_origin; i++)
        s->of_origin[i] = -1;
    for (LpNodeId n = 0; n < g->n_node; n++) {
        LpOriginId id = g->node[n].origin;
        const LpOrigin *o = &g->origin[id];
        LP_FAIL_IF(o->ipu < 0 || o->ipu >= LP_MAX_IPUS, s->p->err,
                   LP_E_POPTORCH,
                   "operator %s (%s:%d) is on IPU %d: a replica has IPUs 0..%d",
                   g->node[n].op->name, o->file, (int)o->line, (int)o->ipu,
                   LP_MAX_IPUS - 1);
        if (!o->backward && s->of_origin[id] < 0)
            s->of_origin[id] = find_key(s, o, true, n);
    }
    return s->p->err->code;
}

/* Keys in order become stages; neighbours on one IPU merge. */
static LpStatus make_stages(Stages *s)
{
    LpIpuPlan *p = s->p;
    int *order = lp_arena_calloc(&p->mem, (size_t)(s->n_key + 1) * sizeof(int));
    p->stage =
        lp_arena_calloc(&p->mem, (size_t)(s->n_key + 1) * sizeof *p->stage);
    if (!order || !p->stage)
        return no_memory(p);
    for (int i = 0; i < s->n_key; i++) {
        int at = i;
        for (; at > 0 && key_before(&s->key[i], &s->key[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    p->n_stage = 0;
    for (int i = 0; i < s->n_key; i++) {
        Key *k = &s->key[order[i]];
        LpStage *last = p->n_stage ? &p->stage[p->n_stage - 1] : NULL;
        if (!last || last->ipu != k->ipu || last->phase != k->phase)
            p->stage[p->n_stage++] = (LpStage){.ipu = k->ipu,
                                               .phase = k->phase,
                                               .id = k->id,
                                               .block = k->block};
        k->stage = p->n_stage - 1;
    }
    if (p->n_stage == 0) { /* nothing is computed */
        p->stage[0] = (LpStage){.block = ""};
        p->n_stage = 1;
    }
    return LP_OK;
}

/* ---- nodes --------------------------------------------------------------- */
static void set_stage(LpIpuPlan *p, LpNodeId n, int stage)
{
    const LpGraphNode *d = &p->step->micro->node[n];
    p->node_stage[n] = stage;
    for (uint32_t i = 0; i < d->n_out; i++)
        p->val_stage[d->out + i] = stage;
}

/* Lowest backward stage (if `backward`), else highest forward stage, among
 * the operands; `none` when there is no such operand. */
static int operand_stage(const LpIpuPlan *p, LpNodeId n, bool backward,
                         int none, LpNodeId *from)
{
    const LpGraph *g = p->step->micro;
    const LpGraphNode *d = &g->node[n];
    int best = none;
    for (uint32_t i = 0; i < d->n_in; i++) {
        if (!lp_is_value(d->in[i]))
            continue;
        LpNodeId m = g->value[d->in[i]].node;
        if (m == LP_NO_NODE || lp_origin_of(g, m)->backward != backward)
            continue;
        int s = p->node_stage[m];
        if (best == none || (backward ? s < best : s > best)) {
            best = s;
            *from = m;
        }
    }
    return best;
}

static LpStatus returns_early(LpIpuPlan *p, LpNodeId reader, LpNodeId maker)
{
    const LpGraph *g = p->step->micro;
    const LpOrigin *a = lp_origin_of(g, reader), *b = lp_origin_of(g, maker);
    return lp_fail(p->err, LP_E_POPTORCH,
                   "block '%s' (stage %d, IPU %d) reads what block '%s' (stage "
                   "%d, IPU %d) makes: stage ids must ascend in the order of "
                   "execution; AutoStage.AutoIncrement does that",
                   a->block, (int)a->stage, (int)a->ipu, b->block,
                   (int)b->stage, (int)b->ipu);
}

/* False when forward goes back to an earlier stage. */
static LpStatus forward_stages(Stages *s, bool *ascends)
{
    LpIpuPlan *p = s->p;
    LpNodeId from = 0;
    *ascends = true;
    for (LpNodeId n = 0; n < s->g->n_node; n++) {
        if (lp_origin_of(s->g, n)->backward)
            continue;
        int stage = s->key[s->of_origin[s->g->node[n].origin]].stage;
        if (operand_stage(p, n, false, -1, &from) > stage) {
            *ascends = false;
            if (!p->how->may_return)
                return returns_early(p, n, from);
        }
        set_stage(p, n, stage);
    }
    return LP_OK;
}

static LpStatus forward_stretches(Stages *s)
{
    LpIpuPlan *p = s->p;
    size_t n_change = 1;
    int ipu = -1;
    for (LpNodeId n = 0; n < s->g->n_node; n++) {
        const LpOrigin *o = lp_origin_of(s->g, n);
        n_change += !o->backward && o->ipu != ipu;
        ipu = o->backward ? ipu : o->ipu;
    }
    p->stage = lp_arena_calloc(&p->mem, n_change * sizeof *p->stage);
    if (!p->stage)
        return no_memory(p);
    p->n_stage = 0;
    for (LpNodeId n = 0; n < s->g->n_node; n++) {
        const LpOrigin *o = lp_origin_of(s->g, n);
        if (o->backward)
            continue;
        if (p->n_stage == 0 || p->stage[p->n_stage - 1].ipu != o->ipu)
            p->stage[p->n_stage++] =
                (LpStage){.ipu = o->ipu, .id = p->n_stage, .block = o->block};
        set_stage(p, n, p->n_stage - 1);
    }
    return LP_OK;
}

static void backward_stages(Stages *s, bool by_key)
{
    LpIpuPlan *p = s->p;
    LpNodeId from = 0;
    for (LpNodeId n = 0; n < s->g->n_node; n++) {
        const LpOrigin *o = lp_origin_of(s->g, n);
        if (!o->backward)
            continue;
        int k = by_key ? find_key(s, o, false, n) : -1;
        int most = operand_stage(p, n, true, p->n_stage - 1, &from);
        int stage = k >= 0 ? s->key[k].stage : most;
        if (stage > most)
            stage = most;
        /* the last stretch on that IPU that is not too late */
        for (int i = most; k < 0 && i >= 0; i--)
            if (p->stage[i].ipu == o->ipu) {
                stage = i;
                break;
            }
        set_stage(p, n, stage);
    }
}

/* ---- variables ----------------------------------------------------------- */
static void variable_stages(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    for (LpNodeId n = 0; n < g->n_node; n++)
        for (uint32_t i = 0; i < g->node[n].n_in; i++) {
            LpVal v = g->node[n].in[i];
            if (lp_is_value(v) && g->value[v].node == LP_NO_NODE &&
                (p->val_stage[v] < 0 || p->node_stage[n] < p->val_stage[v]))
                p->val_stage[v] = p->node_stage[n];
        }
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        int stage = 0;
        if (v->micro_in != LP_NOVAL && p->val_stage[v->micro_in] >= 0)
            stage = p->val_stage[v->micro_in];
        else if (v->micro_out != LP_NOVAL && p->val_stage[v->micro_out] >= 0)
            stage = p->val_stage[v->micro_out];
        p->var_ipu[i] = p->stage[stage].ipu;
        if (v->micro_in != LP_NOVAL)
            p->val_stage[v->micro_in] = stage;
    }
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if ((v->role == LP_VAR_STATE || v->role == LP_VAR_ACCUM) &&
            v->param >= 0)
            p->var_ipu[i] = p->var_ipu[v->param];
    }
}

/* A carried buffer is read and written by one stage, or the micro-batches of a
 * pipeline would see each other's values out of order. */
static LpStatus check_carried(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    for (LpNodeId n = 0; n < g->n_node; n++) {
        if (lp_origin_of(g, n)->backward)
            continue;
        for (uint32_t i = 0; i < g->node[n].n_in; i++) {
            LpVal v = g->node[n].in[i];
            if (!lp_is_value(v) || g->value[v].node != LP_NO_NODE ||
                p->var_of[v] < 0)
                continue;
            const LpVariable *var = &p->step->var[p->var_of[v]];
            if (!lp_var_carried(var))
                continue;
            const char *role = lp_var_role_name(var->role);
            int w = p->val_stage[var->micro_out], r = p->node_stage[n];
            LP_FAIL_IF(w != r, p->err, LP_E_POPTORCH,
                       "%s '%s' is read by stage %d (block '%s', IPU %d) "
                       "and written by stage %d (block '%s', IPU %d): a %s "
                       "that forward writes must stay in one stage",
                       role, var->name, r, p->stage[r].block, p->stage[r].ipu,
                       w, p->stage[w].block, p->stage[w].ipu, role);
        }
    }
    return LP_OK;
}

/* ---- the update ---------------------------------------------------------- */
static void spread_forward(const LpIpuPlan *p, const LpGraph *u, int *ipu)
{
    for (LpNodeId n = 0; n < u->n_node; n++) {
        const LpGraphNode *d = &u->node[n];
        int at = -1;
        for (uint32_t i = 0; i < d->n_in && at < 0; i++)
            if (lp_is_value(d->in[i]))
                at = ipu[d->in[i]];
        p->update_ipu[n] = at;
        for (uint32_t i = 0; i < d->n_out; i++)
            ipu[d->out + i] = at;
    }
}

/* What is made of hyper-parameters alone goes to its first reader. */
static void spread_back(const LpIpuPlan *p, const LpGraph *u, int *ipu)
{
    for (size_t k = u->n_node; k-- > 0;) {
        const LpGraphNode *d = &u->node[k];
        for (uint32_t i = 0; i < d->n_out && p->update_ipu[k] < 0; i++)
            p->update_ipu[k] = ipu[d->out + i];
        if (p->update_ipu[k] < 0)
            p->update_ipu[k] = 0;
        for (uint32_t i = 0; i < d->n_in; i++)
            if (lp_is_value(d->in[i]) && ipu[d->in[i]] < 0)
                ipu[d->in[i]] = p->update_ipu[k];
    }
}

static LpStatus place_update(LpIpuPlan *p)
{
    const LpGraph *u = p->step->update;
    if (!u)
        return LP_OK;
    int *ipu = lp_arena_alloc(&p->mem, u->n_value * sizeof *ipu);
    p->update_ipu = lp_arena_calloc(&p->mem, (u->n_node + 1) * sizeof(int));
    if (!ipu || !p->update_ipu)
        return no_memory(p);
    for (size_t i = 0; i < u->n_value; i++)
        ipu[i] = -1;
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (v->update_in != LP_NOVAL && v->role != LP_VAR_HYPER)
            ipu[v->update_in] = p->var_ipu[i];
    }
    spread_forward(p, u, ipu);
    spread_back(p, u, ipu);
    return LP_OK;
}

static LpStatus build(Stages *s)
{
    LpIpuPlan *p = s->p;
    const LpGraph *g = s->g;
    bool ascends = true;
    p->node_stage = lp_arena_calloc(&p->mem, (g->n_node + 1) * sizeof(int));
    p->val_stage = lp_arena_alloc(&p->mem, g->n_value * sizeof(int));
    p->var_of = lp_arena_alloc(&p->mem, g->n_value * sizeof(int));
    p->var_ipu = lp_arena_calloc(&p->mem, (p->step->n_var + 1) * sizeof(int));
    if (!p->node_stage || !p->val_stage || !p->var_of || !p->var_ipu)
        return no_memory(p);
    for (size_t i = 0; i < g->n_value; i++)
        p->val_stage[i] = p->var_of[i] = -1;
    for (size_t i = 0; i < p->step->n_var; i++)
        if (p->step->var[i].micro_in != LP_NOVAL)
            p->var_of[p->step->var[i].micro_in] = (int)i;
    LP_TRY(collect_keys(s));
    LP_TRY(make_stages(s));
    LP_TRY(forward_stages(s, &ascends));
    if (!ascends)
        LP_TRY(forward_stretches(s));
    backward_stages(s, ascends);
    variable_stages(p);
    for (int i = 0; i < p->n_stage; i++)
        if (p->stage[i].ipu >= p->n_ipus)
            p->n_ipus = p->stage[i].ipu + 1;
    if (p->n_stage == 1 && p->how->alone)
        p->how = p->how->alone;
    LP_TRY(check_carried(p));
    return place_update(p);
}

LpStatus lp_ipu_stages(LpIpuPlan *p)
{
    Stages s = {.p = p, .g = p->step->micro};
    LpStatus st = build(&s);
    lp_map_fini(&s.key_at);
    return st;
}
