/* The builder over a graph. A call runs the shape rule and becomes a node, or
 * its expansion: composites always, fused operators unless the device has
 * them as one operation. */
#include <stdio.h>
#include <string.h>

#include "src/base/random.h"
#include "src/ir/text.h"

static const LpType *type(LpBuilder *b, LpVal v)
{
    LpGraphBuilder *gb = (LpGraphBuilder *)b;
    if (lp_is_imm(v))
        return lp_number_type(lp_graph_scalar(gb->g, v).kind);
    return lp_graph_type(gb->g, v);
}

static LpScalar imm(LpBuilder *b, LpVal v)
{
    return lp_graph_scalar(((LpGraphBuilder *)b)->g, v);
}

static LpVal add_imm(LpBuilder *b, LpScalar s)
{
    return lp_graph_imm(((LpGraphBuilder *)b)->g, s, b->err);
}

static void set_site(LpBuilder *b, bool on, uint64_t site)
{
    LpGraphBuilder *gb = (LpGraphBuilder *)b;
    gb->forced = on;
    if (on)
        gb->site = site;
}

static uint64_t site_of(LpGraphBuilder *gb, const LpOp *op)
{
    if (!(op->flags & LP_OPF_RANDOM))
        return 0;
    return gb->forced ? gb->site : lp_mix64_pair(gb->site, gb->pos++);
}

static uint32_t open_region(LpGraphBuilder *gb, const LpOp *op,
                            const LpAttr *attr, const LpVal *in, int n_in)
{
    LpRegion r = {.op = op, .attr = attr, .in = in, .n_in = (uint32_t)n_in};
    return lp_graph_region(gb->g, &r, gb->b.err);
}

static void close_region(LpGraphBuilder *gb, uint32_t id, const LpVal *out,
                         int n_out)
{
    LpRegion *r = &gb->g->region[id];
    r->out = lp_arena_memdup(&gb->g->arena, out, (size_t)n_out * sizeof *out);
    r->n_out = (uint32_t)n_out;
}

/* What scripts call it: one_hot_any and unique_all are one_hot and unique. */
static int said(const LpOp *op)
{
    size_t n = strlen(op->name);
    if (n > 4 && (strcmp(op->name + n - 4, "_any") == 0 ||
                  strcmp(op->name + n - 4, "_all") == 0))
        n -= 4;
    return (int)n;
}

/* An operator that no program can have; its shape rule gives the largest
 * result. */
static bool excused(LpBuilder *b, const LpOp *op)
{
    char text[160];
    snprintf(text, sizeof text,
             "%.*s has a result whose shape depends on its data; it works "
             "eagerly but cannot be compiled",
             said(op), op->name);
    if (lp_excused(b, text))
        return true;
    lp_fail(b->err, LP_E_UNTRACED, "%s", text);
    return false;
}

static int emit(LpBuilder *b, const LpOp *op, const LpVal *in, int n_in,
                const LpAttr *attr, LpVal *out)
{
    LpGraphBuilder *gb = (LpGraphBuilder *)b;
    LpAttr canon[LP_MAX_ATTR];
    LpType fixed[LP_MAX_OUT], *types = fixed;
    int n = op->n_results;
    in = lp_in_one_type(b, op, in, n_in);
    if (!in && n_in > 0)
        return 0;
    if (op->flags & LP_OPF_DYNAMIC && !excused(b, op))
        return 0;
    if (op->n_results == 0)
        types = lp_arena_alloc(&gb->scratch, LP_MAX_LIST * sizeof *types);
    if (!types) {
        lp_no_memory(b->err);
        return 0;
    }
    if (op->n_attr)
        memcpy(canon, attr, op->n_attr * sizeof *attr);
    if (op->infer && lp_graph_infer(gb->g, op, in, (size_t)n_in, canon, types,
                                    &n, &gb->scratch, b->err) != LP_OK)
        return 0;
    if (!lp_graph_takes(gb->g, op)) {
        uint32_t outer = gb->region, mine = 0;
        if (op->kind == LP_OP_FUSED && outer == 0)
            gb->region = mine = open_region(gb, op, canon, in, n_in);
        memset(out, 0, (size_t)n * sizeof *out);
        op->expand(b, canon, in, n_in, out, n);
        gb->region = outer;
        if (mine && !lp_failed(b))
            close_region(gb, mine, out, n);
        return lp_failed(b) ? 0 : n;
    }
    LpGraphNode node = {.op = op,
                        .attr = canon,
                        .in = in,
                        .n_in = (uint32_t)n_in,
                        .n_out = (uint32_t)n,
                        .origin = gb->origin,
                        .region = gb->region,
                        .site = site_of(gb, op)};
    LpVal first = lp_graph_add(gb->g, &node, types, b->err);
    if (first != LP_NOVAL && gb->half_partials) {
        LpGraphNode *made = &gb->g->node[gb->g->value[first].node];
        made->half_partials = lp_node_sums_halves(gb->g, made);
    }
    if (first == LP_NOVAL)
        return 0;
    for (int i = 0; i < n; i++)
        out[i] = first + (LpVal)i;
    return n;
}

void lp_graph_builder_init(LpGraphBuilder *gb, LpGraph *g, LpErr *e)
{
    *gb = (LpGraphBuilder){.g = g};
    gb->b = (LpBuilder){.emit = emit,
                        .type = type,
                        .imm = imm,
                        .add_imm = add_imm,
                        .set_site = set_site,
                        .scratch = &gb->scratch,
                        .err = e};
}

void lp_graph_builder_fini(LpGraphBuilder *gb)
{
    lp_arena_fini(&gb->scratch);
}
