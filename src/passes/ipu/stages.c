/* Stage of every node. Forward nodes go by the stage id (and phase) of their
 * place; ids stand in ascending order and neighbours on one IPU are one stage.
 * A backward node belongs to the backward run of its forward stage, but never
 * before what it reads: so a sum of gradients lands with the forward producer
 * of the value. Variables live where forward first reads them, accumulators
 * and optimizer state with their parameter.
 *
 * Where a strategy allows it a model may return to a stage of the same phase.
 * Then the stage is run in rounds, each of them a stage: what reads a later
 * stage's value of round n is in round n + 1; where stages of a phase run side
 * by side, what reads any other stage's. */
#include <limits.h>

#include "src/base/map.h"
#include "src/base/random.h"
#include "src/passes/ipu/strategy.h"

/* What the user calls a stage. */
typedef struct Key {
    int phase, id, ipu;
    uint32_t seen; /* order of first node */
    const char *block;
    int lane; /* number, when neighbours on one IPU are one */
} Key;

typedef struct Stages {
    LpIpuPlan *p;
    const LpGraph *g;
    Key *key;
    size_t n_key, cap_key;
    size_t found;   /* the last one that was looked for */
    int *of_origin; /* key + 2; 0: not asked, -1: a backward node's, not asked
                       but right. NULL: places are the nodes' */
    int *key_of;    /* by forward node */
    int *round;     /* likewise */
    int *wanted;    /* likewise: round of the first reader in its lane, -1: it
                    reads values of its own, so that its round is fixed */
    int *at;        /* by lane and round: stage, -1 */
    int *first;     /* by lane: a key */
    int n_lane, n_round;
    LpMap key_at; /* by hash of phase, id and IPU */
} Stages;

/* ---- keys ---------------------------------------------------------------- */
static Key place_of(const Stages *s, LpNodeId n)
{
    const LpOrigin *o = lp_origin_of(s->g, n);
    const LpPlacement *at = &s->p->placement;
    int stage = at->stage ? at->stage[n] : o->stage;
    int phase = at->phase ? at->phase[n] : o->phase;
    return (Key){.phase = s->p->strategy->by_phase && phase > 0 ? phase : 0,
                 .id = stage > 0 ? stage : 0,
                 .ipu = at->ipu ? at->ipu[n] : o->ipu,
                 .seen = n,
                 .block = o->block};
}

static LpBlockLocation location(const Stages *s, LpNodeId n)
{
    Key k = place_of(s, n);
    return (LpBlockLocation){.node = &s->g->node[n],
                             .origin = lp_origin_of(s->g, n),
                             .stage = k.id,
                             .ipu = k.ipu,
                             .phase = k.phase};
}

static bool is_key(const Stages *s, size_t at, const Key *k)
{
    const Key *x = &s->key[at];
    return x->phase == k->phase && x->id == k->id && x->ipu == k->ipu;
}

/* Neighbours mostly have the same. */
static int find_key(Stages *s, LpNodeId n, bool add)
{
    Key k = place_of(s, n);
    if (s->found < s->n_key && is_key(s, s->found, &k))
        return (int)s->found;
    uint64_t h = lp_mix64_pair((uint32_t)k.phase, (uint32_t)k.id);
    h = lp_mix64_pair(h, (uint32_t)k.ipu);
    for (const uint32_t *at = lp_map_first(&s->key_at, h); at;
         at = lp_map_next(&s->key_at, at))
        if (is_key(s, *at, &k))
            return (int)(s->found = *at);
    if (!add)
        return -1;
    if (!LP_GROW(s->key, s->cap_key, s->n_key) ||
        !lp_map_add(&s->key_at, h, (uint32_t)s->n_key)) {
        lp_no_memory(s->p->err);
        return -1;
    }
    s->key[s->n_key] = k;
    s->found = s->n_key++;
    return (int)s->found;
}

static bool key_before(const Key *a, const Key *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase;
    return a->id != b->id ? a->id < b->id : a->seen < b->seen;
}

static LpStatus collect_key(Stages *s, LpNodeId n)
{
    int ipu = place_of(s, n).ipu;
    if (ipu < 0 || ipu >= LP_MAX_IPUS) {
        LpBlockLocation at = location(s, n);
        return lp_fail(s->p->err, LP_E_POPTORCH,
                       "%s is on IPU %d: a replica has IPUs 0..%d",
                       lp_place_name(&at).text, ipu, LP_MAX_IPUS - 1);
    }
    if (!s->p->backward[n])
        s->key_of[n] = find_key(s, n, true);
    return s->p->err->code;
}

static int *known_key(const Stages *s, LpNodeId n)
{
    return s->of_origin ? &s->of_origin[s->g->node[n].origin] : NULL;
}

static LpStatus collect_keys(Stages *s)
{
    for (LpNodeId n = 0; n < s->g->n_node; n++) {
        int *known = known_key(s, n);
        if (known && *known) {
            s->key_of[n] = *known - 2;
            continue;
        }
        LP_TRY(collect_key(s, n));
        if (known)
            *known = s->p->backward[n] ? -1 : s->key_of[n] + 2;
    }
    return LP_OK;
}

/* `last`: the key before it in order, NULL. */
static LpStatus check_key(const Stages *s, const Key *k, const Key *last)
{
    const LpStrategyOps *o = s->p->strategy;
    LpBlockLocation at = location(s, k->seen);
    if (o->check_place)
        LP_TRY(o->check_place(&at, s->p->err));
    if (!o->check_ipus || !last || last->id != k->id || last->phase != k->phase)
        return LP_OK;
    LpBlockLocation before = location(s, last->seen);
    return o->check_ipus(&before, &at, s->p->err);
}

/* Keys in order become lanes; neighbours on one IPU merge. */
static LpStatus make_lanes(Stages *s)
{
    LpIpuPlan *p = s->p;
    int *order = lp_ipu_scratch(p, s->n_key, sizeof *order);
    s->first = lp_ipu_scratch(p, s->n_key, sizeof *s->first);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < s->n_key; i++) {
        size_t at = i;
        for (; at > 0 && key_before(&s->key[i], &s->key[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = (int)i;
    }
    for (size_t i = 0; i < s->n_key; i++) {
        Key *k = &s->key[order[i]];
        const Key *last = i ? &s->key[order[i - 1]] : NULL;
        LP_TRY(check_key(s, k, last));
        if (!last || last->ipu != k->ipu || last->phase != k->phase)
            s->first[s->n_lane++] = order[i];
        k->lane = s->n_lane - 1;
    }
    return LP_OK;
}

static const Key *key_of(const Stages *s, LpNodeId n)
{
    return &s->key[s->key_of[n]];
}

/* ---- rounds -------------------------------------------------------------- */
static int *stage_at(const Stages *s, int lane, int round)
{
    return &s->at[(size_t)lane * (size_t)s->n_round + (size_t)round];
}

static LpStatus check_return(const Stages *s, LpNodeId reader, LpNodeId maker)
{
    LpBlockLocation r = location(s, reader), m = location(s, maker);
    return s->p->strategy->check_return(&r, &m, s->p->err);
}

static LpStatus find_round(Stages *s, LpNodeId n)
{
    const Key *to = key_of(s, n);
    const LpGraphNode *d = &s->g->node[n];
    s->wanted[n] = INT_MAX;
    for (uint32_t i = 0; i < d->n_in; i++) {
        LpNodeId m = lp_maker(s->g, d->in[i]);
        if (m == LP_NO_NODE || s->p->backward[m])
            continue;
        const Key *from = key_of(s, m);
        bool later = from->lane > to->lane;
        if (later && s->p->strategy->check_return)
            LP_TRY(check_return(s, n, m));
        if (s->p->strategy->by_phase)
            later = from->lane != to->lane;
        if (from->phase == to->phase && s->round[m] + later > s->round[n])
            s->round[n] = s->round[m] + later;
        if (s->wanted[m] < 0 || from->lane != to->lane)
            s->wanted[n] = -1;
    }
    for (uint32_t i = 0; i < d->n_in; i++)
        if (lp_is_value(d->in[i]) && lp_maker(s->g, d->in[i]) == LP_NO_NODE &&
            !lp_ipu_is_free(s->p, d->in[i]))
            s->wanted[n] = -1;
    if (s->round[n] >= s->n_round)
        s->n_round = s->round[n] + 1;
    return LP_OK;
}

/* What is made of parameters alone is made in the round that reads it. */
static void sink(Stages *s)
{
    for (size_t n = s->g->n_node; n-- > 0;) {
        const LpGraphNode *d = &s->g->node[n];
        if (s->p->backward[n])
            continue;
        if (s->wanted[n] >= 0 && s->wanted[n] < INT_MAX)
            s->round[n] = s->wanted[n];
        for (uint32_t i = 0; i < d->n_in; i++) {
            LpNodeId m = lp_maker(s->g, d->in[i]);
            if (m == LP_NO_NODE || s->p->backward[m])
                continue;
            bool own = key_of(s, m)->lane == key_of(s, (LpNodeId)n)->lane;
            int round = own ? s->round[n] : 0;
            if (round < s->wanted[m])
                s->wanted[m] = round;
        }
    }
}

static LpStatus find_rounds(Stages *s)
{
    s->n_round = 1;
    for (LpNodeId n = 0; n < s->g->n_node && s->n_lane > 1; n++)
        if (!s->p->backward[n])
            LP_TRY(find_round(s, n));
    size_t all = (size_t)s->n_lane * (size_t)s->n_round;
    if (s->n_round == 1) { /* every lane is a stage */
        s->at = lp_ipu_scratch(s->p, all, sizeof *s->at);
        return s->p->err->code;
    }
    sink(s);
    s->at = lp_ipu_marks(s->p, all);
    LP_TRY(s->p->err->code);
    for (LpNodeId n = 0; n < s->g->n_node; n++)
        if (!s->p->backward[n])
            *stage_at(s, key_of(s, n)->lane, s->round[n]) = 0;
    return LP_OK;
}

/* A later round that goes on with the last stage on its IPU is part of it,
 * unless that stage could work beside the one before it. */
static void add_stage(Stages *s, int lane, int round)
{
    LpIpuPlan *p = s->p;
    const Key *k = &s->key[s->first[lane]];
    const LpStage *last = p->n_stage ? &p->stage[p->n_stage - 1] : NULL;
    bool part =
        round > 0 && !p->strategy->by_phase && last && last->ipu == k->ipu;
    if (!part)
        p->stage[p->n_stage++] = (LpStage){
            .ipu = k->ipu, .phase = k->phase, .id = k->id, .block = k->block};
    *stage_at(s, lane, round) = p->n_stage - 1;
}

/* Phase by phase, round by round, lane by lane. */
static LpStatus make_stages(Stages *s)
{
    LpIpuPlan *p = s->p;
    size_t most = (size_t)s->n_lane * (size_t)s->n_round;
    p->stage = lp_ipu_alloc(p, most, sizeof *p->stage);
    LP_TRY(p->err->code);
    for (int lane = 0, end; lane < s->n_lane; lane = end) {
        int phase = s->key[s->first[lane]].phase;
        for (end = lane; end < s->n_lane; end++)
            if (s->key[s->first[end]].phase != phase)
                break;
        for (int r = 0; r < s->n_round; r++)
            for (int k = lane; k < end; k++)
                if (*stage_at(s, k, r) == 0)
                    add_stage(s, k, r);
    }
    if (p->n_stage == 0) { /* nothing is computed */
        p->stage[0] = (LpStage){.block = ""};
        p->n_stage = 1;
    }
    return LP_OK;
}

/* ---- nodes --------------------------------------------------------------- */
/* The last stage in which a backward node can be: that of the earliest backward
 * value which it reads; and if it reads forward values of its own lane, of the
 * last of them. */
static int latest_stage(const Stages *s, LpNodeId n, int lane)
{
    const LpIpuPlan *p = s->p;
    const LpGraphNode *d = &s->g->node[n];
    int most = p->n_stage - 1, twin = -1;
    for (uint32_t i = 0; i < d->n_in; i++) {
        LpNodeId m = lp_maker(s->g, d->in[i]);
        if (m == LP_NO_NODE)
            continue;
        int at = p->node_stage[m];
        if (s->p->backward[m])
            most = at < most ? at : most;
        else if (key_of(s, m)->lane == lane)
            twin = at > twin ? at : twin;
    }
    return twin >= 0 && twin < most ? twin : most;
}

static int backward_stage(Stages *s, LpNodeId n)
{
    int *known = known_key(s, n);
    int k = known && *known > 0 ? *known - 2 : find_key(s, n, false);
    int lane = k < 0 ? -1 : s->key[k].lane;
    if (known)
        *known = k + 2;
    int most = latest_stage(s, n, lane), stage = -1;
    for (int r = 0; r < s->n_round && lane >= 0; r++) {
        int at = *stage_at(s, lane, r);
        if (at >= 0 && at <= most)
            stage = at;
    }
    return stage < 0 ? most : stage;
}

static void node_stages(Stages *s)
{
    LpIpuPlan *p = s->p;
    for (LpNodeId n = 0; n < s->g->n_node; n++) {
        const LpGraphNode *d = &s->g->node[n];
        if (p->n_stage > 1)
            p->node_stage[n] =
                p->backward[n] ? backward_stage(s, n)
                               : *stage_at(s, key_of(s, n)->lane, s->round[n]);
        for (uint32_t i = 0; i < d->n_out; i++)
            p->val_stage[d->out + i] = p->node_stage[n];
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
        bool of = v->role == LP_VAR_STATE ||
                  (v->role == LP_VAR_ACCUM && v->micro_out == LP_NOVAL);
        if (of && v->param >= 0)
            p->var_ipu[i] = p->var_ipu[v->param];
        else if (v->role == LP_VAR_ACCUM && v->micro_out != LP_NOVAL)
            p->var_ipu[i] = p->stage[p->val_stage[v->micro_out]].ipu;
    }
}

/* A carried buffer is read and written by one stage, or the micro-batches of a
 * pipeline would see each other's values out of order. */
static LpStatus check_carried(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    bool any = false;
    for (size_t i = 0; i < p->step->n_var && p->n_stage > 1 && !any; i++)
        any = lp_var_carried(&p->step->var[i]);
    for (LpNodeId n = 0; any && n < g->n_node; n++) {
        if (p->backward[n])
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
    int *ipu = lp_ipu_marks(p, u->n_value);
    p->update_ipu = lp_ipu_alloc(p, u->n_node, sizeof *p->update_ipu);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (v->update_in != LP_NOVAL && v->role != LP_VAR_HYPER)
            ipu[v->update_in] = p->var_ipu[i];
    }
    spread_forward(p, u, ipu);
    spread_back(p, u, ipu);
    return LP_OK;
}

static LpStatus count_ipus(const Stages *s)
{
    LpIpuPlan *p = s->p;
    for (int i = 0; i < p->n_stage; i++)
        if (p->stage[i].ipu >= p->n_ipus)
            p->n_ipus = p->stage[i].ipu + 1;
    return lp_ipus_reserve(p, s->n_key ? p->n_ipus : 0);
}

static LpStatus build(Stages *s)
{
    LpIpuPlan *p = s->p;
    const LpGraph *g = s->g;
    p->node_stage = lp_ipu_alloc(p, g->n_node, sizeof(int));
    p->val_stage = lp_ipu_alloc(p, g->n_value, sizeof(int));
    p->var_ipu = lp_ipu_alloc(p, p->step->n_var, sizeof(int));
    if (!p->placement.ipu && !p->placement.stage && !p->placement.phase)
        s->of_origin = lp_ipu_scratch(p, g->n_origin, sizeof(int));
    s->key_of = lp_ipu_scratch(p, g->n_node, sizeof(int));
    s->round = lp_ipu_scratch(p, g->n_node, sizeof(int));
    s->wanted = lp_ipu_scratch(p, g->n_node, sizeof(int));
    LP_TRY(p->err->code);
    for (size_t i = 0; i < g->n_value; i++)
        p->val_stage[i] = -1;
    LP_TRY(collect_keys(s));
    LP_TRY(make_lanes(s));
    LP_TRY(find_rounds(s));
    LP_TRY(make_stages(s));
    node_stages(s);
    variable_stages(p);
    LP_TRY(count_ipus(s));
    if (p->strategy->check_batches)
        LP_TRY(p->strategy->check_batches(p, p->err));
    if (p->n_stage == 1 && p->strategy->alone)
        p->strategy = p->strategy->alone;
    LP_TRY(check_carried(p));
    return place_update(p);
}

LpStatus lp_ipu_stages(LpIpuPlan *p)
{
    Stages s = {.p = p, .g = p->step->micro};
    LpStatus st = build(&s);
    lp_map_fini(&s.key_at);
    lp_free(s.key);
    return st;
}
