/* Rebuilding a graph (contract: pass.h). One sweep over the nodes; inputs are
 * copied between them where they stood, so that numbers stay near. Linear in
 * nodes, operands, values and regions. */
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/ops.h"
#include "src/passes/pass.h"

LpVal lp_rewrite_value(LpRewrite *rw, LpVal v)
{
    if (lp_is_imm(v))
        return lp_graph_imm(rw->to, lp_graph_scalar(rw->from, v), rw->err);
    return rw->map[v];
}

bool lp_rewrite_values(LpRewrite *rw, const LpVal *v, uint32_t n, LpVal *to)
{
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = lp_rewrite_value(rw, v[i]);
        ok &= to[i] != LP_NOVAL || v[i] == LP_NOVAL;
    }
    return ok;
}

static bool move_names(LpRewrite *rw, LpVal v)
{
    const LpValue *x = &rw->from->value[v];
    LpVal to = rw->map[v];
    if (to == LP_NOVAL || !x->name)
        return true;
    if (!lp_graph_add_name(rw->to, to, x->name, rw->err))
        return false;
    for (const LpName *n = x->more; n; n = n->next)
        if (!lp_graph_add_name(rw->to, to, n->text, rw->err))
            return false;
    return true;
}

static void copy_inputs(LpRewrite *rw, LpVal before)
{
    const LpGraph *g = rw->from;
    while (rw->to->n_input < g->n_input && g->input[rw->to->n_input] < before) {
        LpVal v = g->input[rw->to->n_input];
        rw->map[v] = lp_graph_input(rw->to, g->value[v].type, NULL, rw->err);
        if (rw->map[v] == LP_NOVAL || !move_names(rw, v))
            return;
    }
}

/* ---- nodes --------------------------------------------------------------- */
static LpStatus copy_node(LpRewrite *rw, const LpGraphNode *n, const LpVal *in,
                          LpVal *out, LpArena *scratch)
{
    LpGraphNode c = *n;
    LpType *type = lp_arena_alloc(scratch, n->n_out * sizeof *type);
    LP_FAIL_IF(!type, rw->err, LP_E_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n->n_out; i++)
        type[i] = *rw->from->value[n->out + i].type;
    c.in = in;
    c.origin = rw->gb.origin;
    c.region = rw->gb.region;
    LpVal first = lp_graph_add(rw->to, &c, type, rw->err);
    for (uint32_t i = 0; i < n->n_out; i++)
        out[i] = first + i;
    return rw->err->code;
}

void lp_rewrite_becomes(LpRewrite *rw, LpVal v, LpVal to)
{
    const LpValue *x = &rw->from->value[v];
    LpType t = lp_graph_operand_type(rw->to, to);
    if (lp_is_imm(to) || !lp_type_eq(&t, x->type)) {
        lp_fail(rw->err, LP_E_INTERNAL,
                "a pass gave result %u of %s another type", x->nr,
                rw->from->node[x->node].op->name);
        return;
    }
    rw->map[v] = to;
    move_names(rw, v);
}

void lp_rewrite_rounds(LpRewrite *rw, LpVal v, uint64_t site)
{
    if (rw->err->code == LP_OK && site)
        rw->to->node[rw->to->value[v].node].site = site;
}

static LpStatus take_results(LpRewrite *rw, const LpGraphNode *n,
                             const LpVal *out)
{
    for (uint32_t i = 0; i < n->n_out && rw->err->code == LP_OK; i++)
        if (out[i] != LP_NOVAL)
            lp_rewrite_becomes(rw, n->out + i, out[i]);
    return rw->err->code;
}

static LpStatus visit_node(LpRewrite *rw, LpNodeId id, LpVisit visit,
                           LpArena *scratch)
{
    const LpGraphNode *n = &rw->from->node[id];
    LpVal *in = lp_arena_alloc(scratch, n->n_in * sizeof *in);
    LpVal *out = lp_arena_calloc(scratch, n->n_out * sizeof *out);
    LP_FAIL_IF(!in || !out, rw->err, LP_E_MEMORY, "out of memory");
    bool whole = lp_rewrite_values(rw, n->in, n->n_in, in);
    rw->gb.origin = 0;
    if (n->origin)
        rw->gb.origin =
            lp_graph_origin(rw->to, &rw->from->origin[n->origin], rw->err);
    rw->gb.region = n->region;
    rw->gb.site = n->site;
    rw->gb.half_partials = n->half_partials;
    rw->gb.forced = true;
    LP_TRY(rw->err->code);
    bool done = visit(rw, id, in, out);
    LP_TRY(rw->err->code);
    LP_FAIL_IF(!done && !whole, rw->err, LP_E_INTERNAL,
               "a pass dropped a value that a %s node reads", n->op->name);
    if (!done)
        LP_TRY(copy_node(rw, n, in, out, scratch));
    return take_results(rw, n, out);
}

const LpGraphNode *lp_rewrite_def(const LpRewrite *rw, LpVal v)
{
    const LpGraphNode *n = lp_graph_maker(rw->to, v);
    const LpOrigin *o = rw->to->origin;
    return n && n->region == rw->gb.region &&
                   lp_origin_same_stage(&o[n->origin], &o[rw->gb.origin])
               ? n
               : NULL;
}

bool lp_rewrite_constant(const LpRewrite *rw, LpVal v, LpScalar *s)
{
    uint64_t element;
    if (v == LP_NOVAL)
        return false;
    if (lp_is_imm(v)) {
        *s = lp_graph_scalar(rw->to, v);
        return true;
    }
    const LpValue *x = &rw->to->value[v];
    if (x->node == LP_NO_NODE || rw->to->node[x->node].op->id != LP_OP_full)
        return false;
    lp_scalar_store(rw->to->node[x->node].attr[LP_FULL_FILL_VALUE].s,
                    x->type->dtype, &element);
    *s = lp_scalar_load(x->type->dtype, &element);
    return true;
}

/* ---- regions ------------------------------------------------------------- */
/* Adds region `id` to the new graph if it still stands there; 0 if not. */
static uint32_t keep_region(LpRewrite *rw, uint32_t id, LpArena *scratch)
{
    LpRegion r = rw->from->region[id];
    LpVal *in = lp_arena_alloc(scratch, r.n_in * sizeof *in);
    LpVal *out = lp_arena_alloc(scratch, r.n_out * sizeof *out);
    if (!in || !out) {
        lp_fail(rw->err, LP_E_MEMORY, "out of memory");
        return 0;
    }
    if (!lp_rewrite_values(rw, r.in, r.n_in, in))
        return 0;
    bool alive = false;
    for (uint32_t i = 0; i < r.n_out; i++) {
        out[i] = lp_rewrite_value(rw, r.out[i]);
        alive |= out[i] != LP_NOVAL;
    }
    r.in = in;
    r.out = out;
    return alive ? lp_graph_region(rw->to, &r, rw->err) : 0;
}

static LpStatus settle_regions(LpRewrite *rw, LpArena *scratch)
{
    size_t n = rw->from->n_region;
    uint32_t *id = lp_arena_calloc(scratch, n * sizeof *id);
    bool *used = lp_arena_calloc(scratch, n * sizeof *used);
    LP_FAIL_IF(!id || !used, rw->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < rw->to->n_node; i++)
        used[rw->to->node[i].region] = true;
    for (uint32_t i = 1; i < n && rw->err->code == LP_OK; i++)
        if (used[i] && !rw->broken[i])
            id[i] = keep_region(rw, i, scratch);
    for (size_t i = 0; i < rw->to->n_node; i++)
        rw->to->node[i].region = id[rw->to->node[i].region];
    return rw->err->code;
}

/* ---- the sweep ----------------------------------------------------------- */
static LpStatus rewrite(LpRewrite *rw, LpVisit visit)
{
    const LpGraph *g = rw->from;
    LpArena scratch = {0};
    rw->to->differentiated = g->differentiated;
    rw->to->host = g->host;
    for (LpNodeId i = 0; i < g->n_node && rw->err->code == LP_OK; i++) {
        lp_arena_reset(&scratch);
        copy_inputs(rw, g->node[i].out);
        if (rw->err->code == LP_OK)
            visit_node(rw, i, visit, &scratch);
    }
    if (rw->err->code == LP_OK)
        copy_inputs(rw, (LpVal)g->n_value);
    if (rw->err->code == LP_OK)
        settle_regions(rw, &scratch);
    lp_arena_fini(&scratch);
    for (size_t i = 0; i < g->n_output && rw->err->code == LP_OK; i++) {
        LpVal v = rw->map[g->output[i]];
        LP_FAIL_IF(v == LP_NOVAL, rw->err, LP_E_INTERNAL,
                   "a pass dropped output %zu", i);
        lp_graph_output(rw->to, v, rw->err);
    }
    return rw->err->code;
}

LpStatus lp_rewrite(LpGraph **g, LpVisit visit, void *ctx, LpErr *e)
{
    LpErr own = {0};
    LpRewrite rw = {.from = *g, .ctx = ctx, .err = &own};
    rw.to = lp_graph_new();
    rw.map = lp_calloc((*g)->n_value, sizeof *rw.map);
    rw.broken = lp_calloc((*g)->n_region, sizeof *rw.broken);
    if (rw.to && rw.map && rw.broken) {
        lp_graph_builder_init(&rw.gb, rw.to, &own);
        rewrite(&rw, visit);
        lp_graph_builder_fini(&rw.gb);
    } else {
        lp_fail(&own, LP_E_MEMORY, "out of memory");
    }
    lp_free(rw.map);
    lp_free(rw.broken);
    if (own.code != LP_OK) {
        lp_graph_free(rw.to);
        return lp_fail(e, own.code, "%s", own.msg);
    }
    lp_graph_free(*g);
    *g = rw.to;
    return LP_OK;
}
