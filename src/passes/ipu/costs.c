/* Cost of every node and run. Equal work (operator, attributes, types, kind of
 * pass, bound of memory) gets one label and is planned once; the memory pass
 * counts the code and vertices of a label once an IPU, as outlining does.
 *
 * What a matrix product is a gradient of is read from the graph: with a
 * parameter's view among its operands it is the forward product or the
 * gradient of its input; one whose result reaches an accumulator through views,
 * casts, sums and additions alone is a gradient of weights. */
#include "src/base/hash.h"
#include "src/base/map.h"
#include "src/passes/ipu/ipu.h"

#include <string.h>

#include "src/ops/attrs.h"
#include "src/ops/ops.h"

typedef struct Costs {
    LpIpuPlan *p;
    LpMap label; /* by hash of the work */
    uint32_t n_label;
    LpCost *of_label;
    size_t cap_label;
    bool *weight;  /* value: a parameter, seen through views and casts */
    bool *grad;    /* value: becomes part of an accumulator */
    double *share; /* node: proportion that a marker gives it, else -1 */
} Costs;

/* ---- labels -------------------------------------------------------------- */
static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    h = lp_hash_bytes(h, p, n);
    return h ^ (h >> 29);
}

static uint64_t mix_int(uint64_t h, int64_t v)
{
    return mix(h, &v, sizeof v);
}

static uint64_t mix_type(uint64_t h, const LpType *t)
{
    h = mix_int(h, t->dtype * 2 + t->wrapped);
    h = mix_int(h, t->ndim);
    return mix(h, t->shape, (size_t)t->ndim * sizeof *t->shape);
}

static uint64_t mix_attr(uint64_t h, const LpAttr *a)
{
    h = mix_int(h, a->kind);
    switch (a->kind) {
    case LP_ATTR_NONE:
        return h;
    case LP_ATTR_INTS:
        return mix(mix_int(h, a->n), a->v, (size_t)a->n * sizeof *a->v);
    case LP_ATTR_STR:
        return mix(h, a->str, strlen(a->str));
    case LP_ATTR_SCALAR:
        return mix_int(mix_int(h, a->s.kind), a->s.i);
    case LP_ATTR_INT:
    case LP_ATTR_FLOAT:
    case LP_ATTR_BOOL:
    case LP_ATTR_DTYPE:
        return mix_int(h, a->i);
    case LP_ATTR_GRAPH:
        return mix_int(h, (int64_t)lp_attr_hash(a));
    }
    return h;
}

static uint64_t signature(const LpGraph *g, LpNodeId id, double proportion,
                          LpConvPass pass)
{
    const LpGraphNode *d = &g->node[id];
    uint64_t h = mix_int(LP_HASH_START, d->op->id);
    h = mix_int(h, pass);
    h = mix(h, &proportion, sizeof proportion);
    for (int i = 0; i < d->op->n_attr; i++)
        h = mix_attr(h, &d->attr[i]);
    for (uint32_t i = 0; i < d->n_in; i++) {
        LpType t = lp_graph_operand_type(g, d->in[i]);
        h = mix_type(h, &t);
    }
    for (uint32_t i = 0; i < d->n_out; i++)
        h = mix_type(h, lp_graph_type(g, d->out + i));
    return h;
}

static LpStatus cost_node(Costs *c, const LpGraph *g, LpNodeId id,
                          double proportion, LpConvPass pass, LpNodeCost *out)
{
    uint64_t h = signature(g, id, proportion, pass);
    const uint32_t *known = lp_map_first(&c->label, h);
    uint32_t label = known ? *known : c->n_label;
    if (!known) {
        LP_FAIL_IF(!LP_GROW(c->of_label, c->cap_label, label) ||
                       !lp_map_add(&c->label, h, label),
                   c->p->err, LP_E_MEMORY, "out of memory");
        LP_TRY(lp_ipu_node_cost(c->p, g, id, proportion, pass,
                                &c->of_label[label]));
        c->n_label++;
    }
    *out = (LpNodeCost){c->of_label[label], label};
    return LP_OK;
}

/* ---- kinds of products --------------------------------------------------- */
static bool rearranges(const LpOp *op)
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
        if (v->role == LP_VAR_ACCUM && v->micro_out != LP_NOVAL)
            c->grad[v->micro_out] = true;
    }
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpGraphNode *d = &g->node[n];
        if (rearranges(d->op) && d->n_in && lp_is_value(d->in[0]))
            c->weight[d->out] = c->weight[d->in[0]];
    }
    for (size_t n = g->n_node; n-- > 0;) {
        const LpGraphNode *d = &g->node[n];
        bool passes = rearranges(d->op) || d->op->id == LP_OP_add ||
                      d->op->id == LP_OP_sum;
        for (uint32_t i = 0; passes && c->grad[d->out] && i < d->n_in; i++)
            if (lp_is_value(d->in[i]))
                c->grad[d->in[i]] = true;
    }
}

static LpConvPass kind_of(const Costs *c, const LpGraph *g, LpNodeId id)
{
    const LpGraphNode *d = &g->node[id];
    if (!c->p->training || d->op->product != LP_PRODUCT_MATRIX)
        return LP_PASS_NONE;
    bool weight = false;
    for (uint32_t i = 0; i < 2; i++)
        weight |= lp_is_value(d->in[i]) && c->weight[d->in[i]];
    if (weight)
        return lp_origin_of(g, id)->backward ? LP_PASS_BWD : LP_PASS_FWD;
    return c->grad[d->out] ? LP_PASS_WU : LP_PASS_NONE;
}

/* ---- available memory ---------------------------------------------------- */
/* A marker means the product, convolution or look-up that made its operand, or
 * the nearest within two nodes (PopTorch, set_available_memory). */
static void find_shares(Costs *c)
{
    const LpGraph *g = c->p->step->micro;
    for (LpNodeId n = 0; n < g->n_node; n++)
        c->share[n] = -1;
    for (LpNodeId n = 0; n < g->n_node; n++) {
        if (g->node[n].op->id != LP_OP_set_available_memory)
            continue;
        LpVal v = g->node[n].in[0];
        for (int up = 0; up <= 2 && lp_is_value(v); up++) {
            LpNodeId m = g->value[v].node;
            if (m == LP_NO_NODE)
                break;
            if (g->node[m].op->flags & LP_OPF_PLANNED) {
                c->share[m] =
                    g->node[n].attr[LP_SET_AVAILABLE_MEMORY_PROPORTION].f;
                break;
            }
            v = g->node[m].n_in ? g->node[m].in[0] : LP_NOVAL;
        }
    }
}

/* ---- totals -------------------------------------------------------------- */
/* Without accumulation the gradient is used as it is made. */
static bool is_idle(const Costs *c, const LpGraphNode *d)
{
    const LpStep *s = c->p->step;
    if (s->gradient_accumulation > 1 || d->op->id != LP_OP_add || d->n_in < 2)
        return false;
    for (int i = 0; i < 2; i++) {
        LpVal v = d->in[i];
        if (lp_is_value(v) && c->p->var_of[v] >= 0 &&
            s->var[c->p->var_of[v]].role == LP_VAR_ACCUM)
            return true;
    }
    return false;
}

static void charge(LpRun *r, const LpCost *c)
{
    r->compute_cyc += c->compute_cyc;
    r->exchange_cyc += c->exchange_cyc;
    r->sync_cyc += c->sync_cyc;
    r->flops += c->flops;
}

static void total(LpIpuPlan *p, LpRun *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const LpCost *c = &p->cost[r->entry[i].node].cost;
        charge(r, c);
        if (r->entry[i].again)
            r->again_cyc += lp_cost_cyc(c);
    }
}

static LpStatus build(Costs *c)
{
    LpIpuPlan *p = c->p;
    const LpGraph *g = p->step->micro, *u = p->step->update;
    find_weights(c);
    find_shares(c);
    for (LpNodeId n = 0; n < g->n_node; n++) {
        double share = c->share[n];
        if (share < 0)
            share = p->o.proportion[p->stage[p->node_stage[n]].ipu];
        LP_TRY(cost_node(c, g, n, share, kind_of(c, g, n), &p->cost[n]));
        if (is_idle(c, &g->node[n]))
            p->cost[n].cost = (LpCost){0};
    }
    for (LpNodeId n = 0; u && n < u->n_node; n++)
        LP_TRY(cost_node(c, u, n, p->o.proportion[p->update_ipu[n]],
                         LP_PASS_NONE, &p->update_cost[n]));
    for (int r = 0; r < p->n_run; r++)
        total(p, &p->run[r]);
    for (LpNodeId n = 0; n < g->n_node; n++)
        if (p->sum[n].var >= 0)
            charge(&p->run[p->sum[n].run], &p->cost[n].cost);
    return LP_OK;
}

LpStatus lp_ipu_costs(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro, *u = p->step->update;
    size_t n = g->n_node + (u ? u->n_node : 0);
    Costs c = {.p = p};
    p->cost = lp_arena_calloc(&p->mem, (n + 1) * sizeof *p->cost);
    p->update_cost = p->cost ? p->cost + g->n_node : NULL;
    c.weight = lp_calloc(g->n_value, sizeof *c.weight);
    c.grad = lp_calloc(g->n_value, sizeof *c.grad);
    c.share = lp_calloc(g->n_node + 1, sizeof *c.share);
    LpStatus s = LP_OK;
    if (!p->cost || !c.weight || !c.grad || !c.share)
        s = lp_fail(p->err, LP_E_MEMORY, "out of memory");
    if (s == LP_OK)
        s = build(&c);
    lp_map_fini(&c.label);
    lp_free(c.weight);
    lp_free(c.grad);
    lp_free(c.share);
    lp_free(c.of_label);
    return s;
}
