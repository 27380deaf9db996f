/* Cost of every node and run. Equal work (operator, attributes, types, kind of
 * pass, bound of memory) gets one label and is planned once; the memory pass
 * counts the code and vertices of a label once an IPU, as outlining does.
 *
 * What a matrix product is a gradient of is read from the graph: with a
 * parameter's view among its operands it is the forward product or the
 * gradient of its input; one whose result reaches an accumulator through views,
 * casts, sums and additions alone is a gradient of weights. */
#include "src/base/checked.h"
#include "src/base/hash.h"
#include "src/base/map.h"
#include "src/base/random.h"
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

typedef struct Label {
    Work work;
    LpCost *cost;
} Label;

typedef struct Costs {
    LpIpuPlan *p;
    LpMap label; /* by hash of the work */
    uint32_t n_label;
    Label *of_label;
    size_t cap_label;
    bool *weight; /* value: a parameter, seen through views and casts */
    bool *grad;   /* value: becomes part of an accumulator */
} Costs;

/* ---- labels -------------------------------------------------------------- */
static uint64_t hash_type(uint64_t h, const LpType *t)
{
    h = lp_mix64_pair(h, (uint64_t)t->dtype * 2 + t->wrapped);
    for (int i = 0; i < t->ndim; i++)
        h = lp_mix64_pair(h, (uint64_t)t->shape[i]);
    return lp_mix64_pair(h, (uint64_t)t->ndim);
}

static const char *outline_of(const Work *w)
{
    return w->g->origin[w->g->node[w->node].origin].outline;
}

static uint64_t hash_of(const Work *w)
{
    const LpGraphNode *d = &w->g->node[w->node];
    LpAttr proportion = lp_attr_float(w->share.proportion);
    uint64_t h = lp_mix64_pair(d->op->id, (uint64_t)w->pass);
    h = lp_mix64_pair(h, lp_attr_hash(&proportion));
    h = lp_hash_str(h, outline_of(w));
    h = lp_mix64_pair(h, (uint64_t)w->share.tiles);
    h = lp_mix64_pair(h, (uint64_t)w->share.partials);
    h = lp_hash_attrs(d->op, d->attr, h);
    for (uint32_t i = 0; i < d->n_in; i++) {
        LpType t = lp_graph_operand_type(w->g, d->in[i]);
        h = hash_type(h, &t);
    }
    for (uint32_t i = 0; i < d->n_out; i++)
        h = hash_type(h, lp_graph_type(w->g, d->out + i));
    return h;
}

/* Values may be of two graphs: of the micro-batch and of the update. */
static bool same_types(const Work *a, const Work *b)
{
    const LpGraphNode *x = &a->g->node[a->node], *y = &b->g->node[b->node];
    bool same = x->n_in == y->n_in && x->n_out == y->n_out;
    for (uint32_t i = 0; same && i < x->n_in; i++) {
        LpType s = lp_graph_operand_type(a->g, x->in[i]);
        LpType t = lp_graph_operand_type(b->g, y->in[i]);
        same = s.wrapped == t.wrapped && lp_type_eq(&s, &t);
    }
    for (uint32_t i = 0; same && i < x->n_out; i++)
        same = lp_type_eq(lp_graph_type(a->g, x->out + i),
                          lp_graph_type(b->g, y->out + i));
    return same;
}

static bool same_work(const Work *a, const Work *b)
{
    const LpGraphNode *x = &a->g->node[a->node], *y = &b->g->node[b->node];
    return x->op == y->op && a->pass == b->pass &&
           a->share.proportion == b->share.proportion &&
           a->share.tiles == b->share.tiles &&
           strcmp(outline_of(a), outline_of(b)) == 0 &&
           a->share.partials == b->share.partials && same_types(a, b) &&
           lp_same_attrs(x->op, x->attr, y->attr);
}

static LpStatus cost_node(Costs *c, const Work *w, LpNodeCost *out)
{
    uint64_t h = hash_of(w);
    const uint32_t *at = lp_map_first(&c->label, h);
    while (at && !same_work(&c->of_label[*at].work, w))
        at = lp_map_next(&c->label, at);
    uint32_t label = at ? *at : c->n_label;
    if (!at) {
        LP_FAIL_IF(!LP_GROW(c->of_label, c->cap_label, label) ||
                       !lp_map_add(&c->label, h, label),
                   c->p->err, LP_E_MEMORY, "out of memory");
        c->of_label[label] = (Label){*w, lp_ipu_alloc(c->p, 1, sizeof(LpCost))};
        LP_TRY(c->p->err->code);
        LP_TRY(lp_ipu_node_cost(c->p, w->g, w->node, &w->share, w->pass,
                                c->of_label[label].cost));
        c->n_label++;
    }
    *out = (LpNodeCost){c->of_label[label].cost, label};
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
        bool passes = lp_ipu_rearranges(d->op) || d->op->id == LP_OP_add ||
                      d->op->id == LP_OP_sum;
        for (uint32_t i = 0; passes && c->grad[d->out] && i < d->n_in; i++)
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
        return weight && !lp_origin_of(g, id)->backward ? LP_PASS_FWD
                                                        : LP_PASS_NONE;
    if (weight)
        return lp_origin_of(g, id)->backward ? LP_PASS_BWD : LP_PASS_FWD;
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

static LpStatus build(Costs *c)
{
    static const LpCost none = {0};
    LpIpuPlan *p = c->p;
    const LpGraph *g = p->step->micro, *u = p->step->update;
    p->cost = lp_ipu_alloc(p, g->n_node, sizeof *p->cost);
    p->update_cost = lp_ipu_alloc(p, u ? u->n_node : 0, sizeof *p->update_cost);
    c->weight = lp_ipu_scratch(p, g->n_value, sizeof *c->weight);
    c->grad = lp_ipu_scratch(p, g->n_value, sizeof *c->grad);
    LP_TRY(p->err->code);
    find_weights(c);
    for (LpNodeId n = 0; n < g->n_node; n++) {
        Work w = {g, n, p->share[n], kind_of(c, g, n)};
        LP_TRY(cost_node(c, &w, &p->cost[n]));
        if (w.share.beside)
            LP_TRY(take_no_time(p, &p->cost[n]));
        if (is_idle(c, &g->node[n]))
            p->cost[n].cost = &none;
    }
    for (LpNodeId n = 0; u && n < u->n_node; n++) {
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
    lp_map_fini(&c.label);
    lp_free(c.of_label);
    return s;
}
