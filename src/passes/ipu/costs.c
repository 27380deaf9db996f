/* Cost of every node and run. Equal work (operator, attributes, types, kind of
 * pass, bound of memory) gets one label and is planned once, for this plan and
 * others; the memory pass counts the code and vertices of a label once an IPU,
 * as outlining does.
 *
 * What a matrix product is a gradient of is read from the graph: with a
 * parameter's view among its operands it is the forward product or the
 * gradient of its input; one whose result reaches an accumulator through views,
 * casts, sums and additions alone is a gradient of weights. */
#include "src/base/checked.h"
#include "src/passes/ipu/ipu.h"

#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/ops.h"

/* What a node costs follows from this. */
typedef struct Work {
    const LpGraph *g;
    LpNodeId node;
    LpShare share;
    LpConvPass pass;
} Work;

/* That the plan has had. */
typedef struct Met {
    Work work;
    LpNodeCost cost;
} Met;

typedef struct Costs {
    LpIpuPlan *p;
    Met *met;
    size_t n_met, cap_met;
    uint32_t *met_at; /* by hash, + 1; at most half full */
    size_t cap_at;    /* a power of two */
    uint64_t *key;    /* of the node that is asked for; see put */
    size_t n_key, cap_key;
    size_t n_same;        /* words that all keys of the plan begin with */
    const LpGraph **body; /* of those met, one of each kind */
    size_t n_body, cap_body;
    bool *weight; /* value: a parameter, seen through views and casts */
    bool *grad;   /* value: becomes part of an accumulator */
} Costs;

/* ---- labels --------------------------------------------------------------
 * Work has a key, its label is the number of the key's entry in the memo. */
static bool room(Costs *c, size_t n)
{
    return c->n_key + n <= c->cap_key ||
           LP_GROW(c->key, c->cap_key, c->n_key + n);
}

/* Where there is room. */
static void put(Costs *c, uint64_t word)
{
    c->key[c->n_key++] = word;
}

static bool put_bytes(Costs *c, const void *p, size_t n)
{
    size_t words = n / sizeof *c->key + 1;
    if (!room(c, words + 1))
        return false;
    put(c, n);
    c->key[c->n_key + words - 1] = 0;
    memcpy(c->key + c->n_key, p, n);
    c->n_key += words;
    return true;
}

#define TYPE_WORDS (1 + LP_MAX_DIMS)

static inline void put_type(Costs *c, const LpType *t)
{
    put(c, (uint64_t)t->dtype << 16 | (uint64_t)t->ndim << 8 | t->wrapped);
    for (int i = 0; i < t->ndim; i++)
        put(c, (uint64_t)t->shape[i]);
}

/* The number of the body that it is like, for this plan: its nodes may have
 * shares of their own. */
static bool put_body(Costs *c, const LpGraph *body)
{
    size_t i = 0;
    while (i < c->n_body && !lp_graph_same(c->body[i], body))
        i++;
    if (i == c->n_body) {
        if (!LP_GROW(c->body, c->cap_body, i))
            return false;
        c->body[c->n_body++] = body;
    }
    put(c, lp_cost_memo_turn(c->p->memo));
    put(c, i);
    return true;
}

static bool put_attr(Costs *c, const LpAttr *a)
{
    if (!room(c, 3))
        return false;
    put(c, a->kind);
    switch (a->kind) {
    case LP_ATTR_NONE:
        return true;
    case LP_ATTR_INTS:
        return put_bytes(c, a->v, (size_t)a->n * sizeof *a->v);
    case LP_ATTR_SCALAR:
        put(c, a->s.kind);
        put(c, (uint64_t)a->s.i);
        return true;
    case LP_ATTR_STR:
        return put_bytes(c, a->str, strlen(a->str));
    case LP_ATTR_GRAPH:
        return put_body(c, a->graph);
    default:
        put(c, (uint64_t)a->i);
        return true;
    }
}

static uint64_t bits_of(double x)
{
    return (uint64_t)lp_attr_float(x).i;
}

/* What costs of the plan's nodes have in common. */
static bool put_plan(Costs *c)
{
    const LpIpuPlan *p = c->p;
    if (!room(c, 8))
        return false;
    put(c, (uint64_t)(uintptr_t)p->o.chip);
    put(c, (uint64_t)(uintptr_t)p->o.system);
    put(c, (uint64_t)lp_ipu_rivals(p));
    put(c, (uint64_t)p->n_ipus);
    put(c, (uint64_t)lp_ipu_tiles(p));
    put(c, (uint64_t)p->o.partials << 1 | p->o.stable_norm);
    put(c, (uint64_t)lp_ipu_ctx(p, 0).host_sync);
    c->n_same = c->n_key;
    return true;
}

/* What a custom operator's library says is asked each time. */
static bool put_work(Costs *c, const Work *w)
{
    const LpGraphNode *d = &w->g->node[w->node];
    const char *outline = w->g->origin[d->origin].outline;
    bool custom = d->op->id == LP_OP_custom || d->op->id == LP_OP_custom_grad;
    c->n_key = c->n_same;
    if (!room(c, 8 + (d->n_in + d->n_out) * TYPE_WORDS))
        return false;
    put(c, (uint64_t)d->op->id << 32 | (uint64_t)w->pass);
    put(c, bits_of(w->share.proportion));
    put(c, (uint64_t)w->share.tiles << 32 | (uint64_t)w->share.partials);
    put(c, (uint64_t)d->n_in << 32 | (uint64_t)d->n_out);
    put(c, custom ? lp_cost_memo_turn(c->p->memo) : 0);
    for (uint32_t i = 0; i < d->n_in; i++) {
        LpVal v = d->in[i];
        put_type(c, lp_is_imm(v) ? lp_number_type(lp_graph_scalar(w->g, v).kind)
                                 : lp_graph_type(w->g, v));
    }
    for (uint32_t i = 0; i < d->n_out; i++)
        put_type(c, lp_graph_type(w->g, d->out + i));
    for (int i = 0; i < d->op->n_attr; i++)
        if (!put_attr(c, &d->attr[i]))
            return false;
    return put_bytes(c, outline, strlen(outline));
}

/* ---- equal work of the plan ---------------------------------------------- */
#define FACTOR UINT64_C(0x9e3779b97f4a7c15)

static uint64_t hash_type(uint64_t h, const LpType *t)
{
    h = (h ^ (uint64_t)t->dtype << 8 ^ (uint64_t)t->ndim) * FACTOR;
    for (int i = 0; i < t->ndim; i++)
        h = (h ^ (uint64_t)t->shape[i]) * FACTOR;
    return h;
}

/* Of work that differs in the types of further operands there is little. */
static uint64_t hash_work(const Work *w)
{
    const LpGraphNode *d = &w->g->node[w->node];
    uint64_t h = (uint64_t)d->op->id << 8 ^ (uint64_t)w->pass;
    if (d->n_in && lp_is_value(d->in[0]))
        h = hash_type(h, lp_graph_type(w->g, d->in[0]));
    return d->n_out ? hash_type(h, lp_graph_type(w->g, d->out)) : h;
}

static inline bool same_type(const LpType *a, const LpType *b)
{
    bool same =
        a->dtype == b->dtype && a->ndim == b->ndim && a->wrapped == b->wrapped;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

static inline bool same_operand(const Work *a, LpVal x, const Work *b, LpVal y)
{
    if (lp_is_imm(x) || lp_is_imm(y))
        return lp_is_imm(x) && lp_is_imm(y) &&
               lp_graph_scalar(a->g, x).kind == lp_graph_scalar(b->g, y).kind;
    return same_type(lp_graph_type(a->g, x), lp_graph_type(b->g, y));
}

static bool same_work(const Work *a, const Work *b)
{
    const LpGraphNode *d = &a->g->node[a->node], *e = &b->g->node[b->node];
    const LpShare *s = &a->share, *t = &b->share;
    const char *x = a->g->origin[d->origin].outline;
    const char *y = b->g->origin[e->origin].outline;
    if (d->op != e->op || a->pass != b->pass || d->n_in != e->n_in ||
        d->n_out != e->n_out || s->tiles != t->tiles ||
        s->partials != t->partials || s->proportion != t->proportion ||
        (x != y && strcmp(x, y) != 0))
        return false;
    for (uint32_t i = 0; i < d->n_in; i++)
        if (!same_operand(a, d->in[i], b, e->in[i]))
            return false;
    for (uint32_t i = 0; i < d->n_out; i++)
        if (!same_operand(a, d->out + i, b, e->out + i))
            return false;
    return lp_same_attrs(d->op, d->attr, e->attr);
}

static LpStatus cost_work(Costs *c, const Work *w, LpNodeCost *out)
{
    LpIpuPlan *p = c->p;
    if (!put_work(c, w))
        return lp_no_memory(p->err);
    if (!lp_cost_memo_find(p->memo, c->key, c->n_key, &out->label)) {
        LpCost cost;
        LP_TRY(lp_ipu_node_cost(p, w->g, w->node, &w->share, w->pass, &cost));
        if (!lp_cost_memo_add(p->memo, c->key, c->n_key, &cost, &out->label))
            return lp_no_memory(p->err);
    }
    out->cost = lp_cost_memo_at(p->memo, out->label);
    return LP_OK;
}

static LpStatus cost_node(Costs *c, const Work *w, LpNodeCost *out)
{
    size_t at = (size_t)(hash_work(w) >> 32) & (c->cap_at - 1);
    while (c->met_at[at] && !same_work(&c->met[c->met_at[at] - 1].work, w))
        at = (at + 1) & (c->cap_at - 1);
    if (c->met_at[at]) {
        *out = c->met[c->met_at[at] - 1].cost;
        return LP_OK;
    }
    LP_TRY(cost_work(c, w, out));
    LP_IPU_ADD(c, met, c->p->err, (Met){*w, *out});
    c->met_at[at] = (uint32_t)c->n_met;
    return LP_OK;
}

/* ---- kinds of products --------------------------------------------------- */
bool lp_ipu_rearranges(const LpOp *op)
{
    return (op->flags & (LP_OPF_VIEW | LP_OPF_MARKER)) != 0 ||
           op->id == LP_OP_cast;
}

static void find_weights(Costs *c)
{
    const LpGraph *g = c->p->step->micro;
    for (size_t i = 0; i < c->p->step->n_var; i++) {
        const LpVariable *v = &c->p->step->var[i];
        if (v->role == LP_VAR_PARAM && v->micro_in != LP_NOVAL)
            c->weight[v->micro_in] = true;
        /* a parameter that changes here becomes itself and its gradient */
        if ((v->role == LP_VAR_ACCUM || v->role == LP_VAR_PARAM) &&
            v->micro_out != LP_NOVAL)
            c->grad[v->micro_out] = true;
    }
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpGraphNode *d = &g->node[n];
        if (lp_ipu_rearranges(d->op) && d->n_in && lp_is_value(d->in[0]))
            c->weight[d->out] = c->weight[d->in[0]];
    }
    for (size_t n = g->n_node; n-- > 0;) {
        const LpGraphNode *d = &g->node[n];
        bool passes = c->grad[d->out] &&
                      (lp_ipu_rearranges(d->op) || d->op->id == LP_OP_add ||
                       d->op->id == LP_OP_sum);
        for (uint32_t i = 0; passes && i < d->n_in; i++)
            if (lp_is_value(d->in[i]))
                c->grad[d->in[i]] = true;
    }
}

static LpConvPass kind_of(const Costs *c, const LpGraph *g, LpNodeId id)
{
    const LpGraphNode *d = &g->node[id];
    bool weight = false, product = d->op->product == LP_PRODUCT_MATRIX;
    if (!c->p->training)
        return LP_PASS_NONE;
    for (uint32_t i = 0; i < (product ? 2 : d->n_in); i++)
        weight |= lp_is_value(d->in[i]) && c->weight[d->in[i]];
    /* look-ups and recurrent layers of parameters leave what gradients need */
    if (!product)
        return weight && !c->p->backward[id] ? LP_PASS_FWD : LP_PASS_NONE;
    if (weight)
        return c->p->backward[id] ? LP_PASS_BWD : LP_PASS_FWD;
    return c->grad[d->out] ? LP_PASS_WU : LP_PASS_NONE;
}

/* ---- totals -------------------------------------------------------------- */
/* Without accumulation the gradient is used as it is made. */
static bool is_idle(const Costs *c, const LpGraphNode *d)
{
    const LpStep *s = c->p->step;
    if (c->p->accumulation > 1 || d->op->id != LP_OP_add || d->n_in < 2)
        return false;
    for (int i = 0; i < 2; i++) {
        LpVal v = d->in[i];
        if (lp_is_value(v) && c->p->var_of[v] >= 0 &&
            s->var[c->p->var_of[v]].role == LP_VAR_ACCUM)
            return true;
    }
    return false;
}

static void charge(LpStagePass *r, const LpCost *c)
{
    r->compute_cyc += c->compute_cyc;
    r->exchange_cyc += c->exchange_cyc;
    r->sync_cyc += c->sync_cyc;
    r->flops = lp_add_sat(r->flops, c->flops);
}

static void total(LpIpuPlan *p, LpStagePass *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const LpCost *c = p->cost[r->entry[i].node].cost;
        charge(r, c);
        if (r->entry[i].recomputed)
            r->recompute_cyc += lp_cost_cyc(c);
    }
}

/* A graph of more cycles (two years) is refused, so that the sums of a row can
 * be counted. */
#define MOST_CYC (INT64_C(1) << 56)

static LpStatus check(const LpIpuPlan *p, const LpGraph *g,
                      const LpNodeCost *cost)
{
    int64_t all = 0;
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpOrigin *o = lp_origin_of(g, n);
        all = lp_add_sat(all, lp_cost_cyc(cost[n].cost));
        LP_FAIL_IF(all > MOST_CYC, p->err, LP_E_OVERFLOW,
                   "operator %s (%s:%d) takes more cycles than can be counted",
                   g->node[n].op->name, o->file, (int)o->line);
    }
    return LP_OK;
}

static LpStatus take_no_time(LpIpuPlan *p, LpNodeCost *n)
{
    LpCost *own = lp_ipu_keep(p, n->cost, 1, sizeof *own);
    LP_TRY(p->err->code);
    lp_cost_takes_no_time(own);
    n->cost = own;
    return LP_OK;
}

/* Of what only names what is there, or is not done. */
static LpNodeCost nothing(void)
{
    static const LpCost none = {0};
    return (LpNodeCost){&none, LP_NO_LABEL};
}

static LpStatus build(Costs *c)
{
    LpIpuPlan *p = c->p;
    const LpGraph *g = p->step->micro, *u = p->step->update;
    p->cost = lp_ipu_space(p, g->n_node, sizeof *p->cost);
    p->update_cost = lp_ipu_space(p, u ? u->n_node : 0, sizeof *p->update_cost);
    c->weight = lp_ipu_scratch(p, g->n_value, sizeof *c->weight);
    c->grad = lp_ipu_scratch(p, g->n_value, sizeof *c->grad);
    for (c->cap_at = 16; c->cap_at < 2 * (g->n_node + (u ? u->n_node : 0));)
        c->cap_at *= 2;
    c->met_at = lp_ipu_scratch(p, c->cap_at, sizeof *c->met_at);
    LP_TRY(p->err->code);
    if (!put_plan(c))
        return lp_no_memory(p->err);
    find_weights(c);
    for (LpNodeId n = 0; n < g->n_node; n++) {
        p->cost[n] = nothing();
        if (lp_ipu_is_view(&g->node[n]) || is_idle(c, &g->node[n]))
            continue;
        Work w = {g, n, p->share[n], kind_of(c, g, n)};
        LP_TRY(cost_node(c, &w, &p->cost[n]));
        if (w.share.beside)
            LP_TRY(take_no_time(p, &p->cost[n]));
    }
    for (LpNodeId n = 0; u && n < u->n_node; n++) {
        p->update_cost[n] = nothing();
        if (lp_ipu_is_view(&u->node[n]))
            continue;
        LpShare all = {.proportion = p->o.proportion[p->update_ipu[n]],
                       .partials = LP_DT_NONE};
        LP_TRY(cost_node(c, &(Work){.g = u, .node = n, .share = all},
                         &p->update_cost[n]));
    }
    LP_TRY(check(p, g, p->cost));
    if (u)
        LP_TRY(check(p, u, p->update_cost));
    for (int r = 0; r < p->n_pass; r++)
        total(p, &p->pass[r]);
    for (LpNodeId n = 0; n < g->n_node; n++)
        if (p->sum[n].var >= 0)
            charge(&p->pass[p->sum[n].run], p->cost[n].cost);
    return LP_OK;
}

LpStatus lp_ipu_costs(LpIpuPlan *p)
{
    Costs c = {.p = p};
    LpStatus s = build(&c);
    p->n_label = lp_cost_memo_n(p->memo);
    lp_free(c.met);
    lp_free(c.key);
    lp_free(c.body);
    return s;
}
