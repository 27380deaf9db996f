/* What a node costs: by the cost rule of its record, or, where it has none, by
 * its expansion. Views and markers only name what is there already. */
#include "src/passes/ipu/ipu.h"

#include "src/base/checked.h"
#include "src/ir/cost.h"

/* Rules run at most so deep in each other's expansions. */
#define DEEPEST 8

static LpStatus cost_call(LpIpuPlan *p, const LpCostReq *r, LpCost *out,
                          int depth);

/* A node, with the context of `like`. */
static LpStatus cost_node(LpIpuPlan *p, const LpCostReq *like, const LpGraph *g,
                          LpNodeId id, LpCost *out, int depth)
{
    const LpGraphNode *d = &g->node[id];
    LpType *t = lp_calloc(d->n_in + d->n_out + 1, sizeof *t);
    LP_FAIL_IF(!t, p->err, LP_E_MEMORY, "out of memory");
    for (uint32_t i = 0; i < d->n_in; i++)
        t[i] = lp_graph_operand_type(g, d->in[i]);
    for (uint32_t i = 0; i < d->n_out; i++)
        t[d->n_in + i] = *lp_graph_type(g, d->out + i);
    LpCostReq r = *like;
    r.op = d->op;
    r.attr = d->attr;
    r.n_in = (int)d->n_in;
    r.n_out = (int)d->n_out;
    r.in = t;
    r.out = t + d->n_in;
    LpStatus s = cost_call(p, &r, out, depth);
    lp_free(t);
    return s;
}

/* The nodes of g, one after another. */
static LpStatus cost_graph(LpIpuPlan *p, const LpCostReq *like,
                           const LpGraph *g, LpCost *out, int depth)
{
    for (LpNodeId n = 0; n < g->n_node; n++)
        LP_TRY(cost_node(p, like, g, n, out, depth));
    return LP_OK;
}

/* The operator's expansion on operands of these types. */
static LpStatus expand(LpIpuPlan *p, const LpCostReq *r, LpGraph *g)
{
    LpErr *e = p->err;
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, g, e);
    LpOrigin o = {.block = "", .scope = "", .file = ""};
    gb.origin = lp_graph_origin(g, &o, e);
    LpVal *in =
        lp_arena_calloc(&gb.scratch, (size_t)(r->n_in + 1) * sizeof *in);
    LpVal *out =
        lp_arena_calloc(&gb.scratch, (size_t)(r->n_out + 1) * sizeof *out);
    if (!in || !out)
        lp_no_memory(e);
    for (int i = 0; i < r->n_in && e->code == LP_OK; i++) {
        if (r->in[i].dtype == LP_DT_NONE)
            continue;
        /* which number it is does not matter to the cost */
        in[i] = r->in[i].wrapped ? lp_imm(&gb.b, lp_float(1))
                                 : lp_graph_input(g, &r->in[i], NULL, e);
    }
    if (e->code == LP_OK)
        r->op->expand(&gb.b, r->attr, in, r->n_in, out, r->n_out);
    lp_graph_builder_fini(&gb);
    return e->code;
}

static void with_share(const LpIpuPlan *p, const LpShare *s, LpCostReq *r)
{
    r->tiles = s->tiles ? s->tiles : lp_ipu_tiles(p);
    r->memory_proportion = s->proportion;
    r->stable_norm = p->o.stable_norm;
    r->host_sync = lp_ipu_ctx(p, 0).host_sync;
    r->partials = s->partials != LP_DT_NONE ? s->partials : p->o.partials;
}

/* What a rule asks of its bodies, whose nodes may have shares of their own; a
 * failure stays in the plan's error. */
static void body_cost(const LpCostReq *r, const LpGraph *body, LpCost *out)
{
    LpIpuPlan *p = r->ctx;
    const LpShare *share =
        p->err->code == LP_OK
            ? lp_ipu_body_shares(p, body, r->memory_proportion)
            : NULL;
    for (LpNodeId n = 0; share && n < body->n_node; n++) {
        LpCostReq like = *r;
        LpCost c = {0};
        with_share(p, &share[n], &like);
        if (cost_node(p, &like, body, n, &c, 0) != LP_OK)
            return;
        if (share[n].beside)
            lp_cost_takes_no_time(&c);
        lp_cost_add(out, c);
    }
}

static LpStatus cost_call(LpIpuPlan *p, const LpCostReq *r, LpCost *out,
                          int depth)
{
    if (r->op->flags & (LP_OPF_VIEW | LP_OPF_MARKER))
        return LP_OK;
    if (r->op->cost) {
        r->op->cost(r, out);
        return p->err->code;
    }
    LP_FAIL_IF(!r->op->expand || depth == DEEPEST, p->err, LP_E_INTERNAL,
               "operator %s has neither a cost nor an expansion", r->op->name);
    LpGraph *g = lp_graph_new();
    LP_FAIL_IF(!g, p->err, LP_E_MEMORY, "out of memory");
    LpStatus s = expand(p, r, g);
    if (s == LP_OK)
        s = cost_graph(p, r, g, out, depth + 1);
    lp_graph_free(g);
    return s;
}

int lp_ipu_rivals(const LpIpuPlan *p)
{
    return (int)lp_min(p->replicas, p->o.system->ipus_machine);
}

LpStatus lp_ipu_node_cost(LpIpuPlan *p, const LpGraph *g, LpNodeId id,
                          const LpShare *s, LpConvPass pass, LpCost *out)
{
    LpCostReq r = {.chip = p->o.chip,
                   .system = p->o.system,
                   .rivals = lp_ipu_rivals(p),
                   .ipus = p->n_ipus,
                   .pass = (int)pass,
                   .cache = p->cache,
                   .body_cost = body_cost,
                   .ctx = p};
    with_share(p, s, &r);
    *out = (LpCost){0};
    return cost_node(p, &r, g, id, out, 0);
}
