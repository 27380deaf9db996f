/* Dead code: nodes that no output needs go. Nodes with an effect stay, and
 * what they read; inputs stay, they are the signature. Markers stay as long
 * as their result is read.
 *
 *   %2 = neg(%1)                 %2 = exp(%1)
 *   %3 = exp(%1)          ->     output %2
 *   output %3
 *
 * A region that loses results gets holes in their place; one that loses all of
 * them is gone. Its operands are kept while a node of it lives.
 *
 * A loop, branch or call of which some results are not read loses these, and
 * the operands that its body then does not read: so the stacks that a gradient
 * might have wanted cost nothing where there is none. What a loop carries goes
 * if neither it nor what it becomes in a later round is read.
 *
 * Runs last: every other pass leaves dead nodes to it. Linear; in a loop with n
 * carried values n times at most. */
#include <string.h>

#include "src/ops/control.h"
#include "src/passes/pass.h"

typedef struct Live {
    bool *node;
    bool *region; /* one of its nodes lives */
    bool *value;
} Live;

/* What stays of a node with bodies. */
typedef struct Kept {
    bool *in, *out;
    bool all;
} Kept;

static void mark(const LpGraph *g, Live *live, LpVal v)
{
    if (v == LP_NOVAL || lp_is_imm(v))
        return;
    live->value[v] = true;
    if (g->value[v].node != LP_NO_NODE)
        live->node[g->value[v].node] = true;
}

static LpStatus keep(const LpGraphNode *n, const bool *read, Kept *k,
                     LpArena *mem, LpErr *e);

static LpStatus mark_operands(const LpGraph *g, Live *live, LpNodeId id,
                              LpArena *mem, LpErr *e)
{
    const LpGraphNode *n = &g->node[id];
    Kept kept = {0};
    if (lp_has_bodies(n->op))
        LP_TRY(keep(n, live->value + n->out, &kept, mem, e));
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!kept.in || kept.in[k])
            mark(g, live, n->in[k]);
    if (n->region == 0 || live->region[n->region])
        return LP_OK;
    const LpRegion *r = &g->region[n->region];
    live->region[n->region] = true;
    for (uint32_t k = 0; k < r->n_in; k++)
        mark(g, live, r->in[k]);
    return LP_OK;
}

/* Users come after what they read: one sweep from the end. A region's
 * operands are older than its nodes, so they are marked in time. `read`: of the
 * outputs; NULL: all. */
static LpStatus mark_all(const LpGraph *g, const bool *read, Live *live,
                         LpArena *mem, LpErr *e)
{
    live->node = lp_arena_calloc(mem, g->n_node + 1);
    live->region = lp_arena_calloc(mem, g->n_region);
    live->value = lp_arena_calloc(mem, g->n_value);
    LP_FAIL_IF(!live->node || !live->region || !live->value, e, LP_E_MEMORY,
               "out of memory");
    for (size_t i = 0; i < g->n_output; i++)
        if (!read || read[i])
            mark(g, live, g->output[i]);
    for (size_t i = g->n_node; i-- > 0;) {
        live->node[i] |= (lp_node_flags(&g->node[i]) & LP_OPF_EFFECT) != 0;
        if (live->node[i])
            LP_TRY(mark_operands(g, live, (LpNodeId)i, mem, e));
    }
    return LP_OK;
}

/* ---- nodes with bodies -------------------------------------------------- */
/* in[i]: the body needs its input i for those outputs. */
static LpStatus keep_inputs(const LpGraph *body, const bool *out, bool *in,
                            LpArena *mem, LpErr *e)
{
    Live live;
    LP_TRY(mark_all(body, out, &live, mem, e));
    for (size_t i = 0; i < body->n_input; i++)
        in[i] = live.value[body->input[i]];
    return LP_OK;
}

static LpStatus keep_loop(const LpGraphNode *n, Kept *k, LpArena *mem, LpErr *e)
{
    const LpGraph *body = n->attr[LP_LOOP_BODY].graph;
    for (bool more = true; more;) {
        more = false;
        LP_TRY(keep_inputs(body, k->out, k->in, mem, e));
        for (int64_t i = 0; i < n->attr[LP_LOOP_CARRIED].i; i++) {
            more |= k->in[i] && !k->out[i];
            k->in[i] = k->out[i] = k->in[i] || k->out[i];
        }
    }
    return LP_OK;
}

static LpStatus keep(const LpGraphNode *n, const bool *read, Kept *k,
                     LpArena *mem, LpErr *e)
{
    k->in = lp_arena_calloc(mem, n->n_in + 1);
    k->out = lp_arena_memdup(mem, read, n->n_out);
    LP_FAIL_IF(!k->in || !k->out, e, LP_E_MEMORY, "out of memory");
    if (n->op == &op_loop) {
        LP_TRY(keep_loop(n, k, mem, e));
    } else if (n->op == &op_branch) {
        int64_t split = n->attr[LP_BRANCH_SPLIT].i;
        k->in[0] = true;
        LP_TRY(keep_inputs(n->attr[LP_BRANCH_THEN].graph, k->out, k->in + 1,
                           mem, e));
        LP_TRY(keep_inputs(n->attr[LP_BRANCH_OTHERWISE].graph, k->out,
                           k->in + 1 + split, mem, e));
    } else {
        LP_TRY(keep_inputs(n->attr[LP_CALL_BODY].graph, k->out, k->in, mem, e));
    }
    k->all = !memchr(k->in, false, n->n_in) && !memchr(k->out, false, n->n_out);
    return LP_OK;
}

/* The body with those inputs and outputs alone; owned. */
static LpGraph *cut(const LpGraph *body, const bool *in, const bool *out,
                    LpArena *mem, LpErr *e)
{
    LpGraph *to = lp_graph_new();
    LpVal *from = lp_arena_calloc(mem, (body->n_input + 1) * sizeof *from);
    LpVal *got = lp_arena_calloc(mem, (body->n_output + 1) * sizeof *got);
    bool ok = to && from && got;
    for (size_t i = 0; ok && i < body->n_input; i++)
        if (in[i]) {
            const LpType *t = lp_graph_type(body, body->input[i]);
            from[i] = lp_graph_input(to, t, NULL, e);
            ok = from[i] != LP_NOVAL;
        }
    ok = ok && lp_graph_inline(to, body, from, got, e);
    for (size_t i = 0; ok && i < body->n_output; i++)
        ok = !out[i] || lp_graph_output(to, got[i], e);
    /* what read the others is dead */
    if (ok && lp_pass_dce(&to, e) == LP_OK)
        return to;
    lp_graph_free(to);
    lp_fail(e, LP_E_MEMORY, "out of memory");
    return NULL;
}

static int64_t count(const bool *b, int64_t n)
{
    int64_t c = 0;
    for (int64_t i = 0; i < n; i++)
        c += b[i];
    return c;
}

/* Attributes of the node without what is not kept; bodies are owned. */
static LpStatus cut_attrs(const LpGraphNode *n, const Kept *k, LpAttr *attr,
                          LpArena *mem, LpErr *e)
{
    int at = 0, first = n->op == &op_branch ? 1 : 0;
    memcpy(attr, n->attr, n->op->n_attr * sizeof *attr);
    for (const LpGraph *b; (b = lp_node_body(n, &at));) {
        attr[at - 1].graph = cut(b, k->in + first, k->out, mem, e);
        first += (int)b->n_input;
    }
    if (n->op == &op_loop) {
        int64_t carried = n->attr[LP_LOOP_CARRIED].i;
        int64_t scanned = n->attr[LP_LOOP_SCANNED].i;
        attr[LP_LOOP_CARRIED].i = count(k->in, carried);
        attr[LP_LOOP_SCANNED].i = count(k->in + carried, scanned);
    } else if (n->op == &op_branch) {
        attr[LP_BRANCH_SPLIT].i = count(k->in + 1, n->attr[LP_BRANCH_SPLIT].i);
    }
    return e->code;
}

static LpStatus trim(LpRewrite *rw, const LpGraphNode *n, const Kept *k,
                     const LpVal *in, LpVal *out, LpArena *mem)
{
    LpAttr attr[LP_MAX_ATTR];
    LpVal *few = lp_arena_calloc(mem, (n->n_in + 1) * sizeof *few);
    LpVal *got = lp_arena_calloc(mem, (n->n_out + 1) * sizeof *got);
    int n_in = 0, n_out = 0;
    LP_FAIL_IF(!few || !got, rw->err, LP_E_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n->n_in; i++)
        if (k->in[i])
            few[n_in++] = in[i];
    LpStatus st = cut_attrs(n, k, attr, mem, rw->err);
    if (st == LP_OK)
        rw->gb.b.emit(&rw->gb.b, n->op, few, n_in, attr, got);
    for (int i = 0; i < n->op->n_attr; i++)
        if (attr[i].kind == LP_ATTR_GRAPH)
            lp_graph_free(attr[i].graph);
    for (uint32_t i = 0; i < n->n_out; i++)
        if (k->out[i])
            out[i] = got[n_out++];
    return rw->err->code;
}

/* ---- the pass ------------------------------------------------------------ */
/* Results of a dead node stay LP_NOVAL. */
static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const Live *live = rw->ctx;
    const LpGraphNode *n = &rw->from->node[id];
    if (!live->node[id] || !lp_has_bodies(n->op))
        return !live->node[id];
    LpArena mem = {0};
    Kept k = {0};
    if (keep(n, live->value + n->out, &k, &mem, rw->err) == LP_OK && !k.all)
        trim(rw, n, &k, in, out, &mem);
    lp_arena_fini(&mem);
    return !k.all;
}

LpStatus lp_pass_dce(LpGraph **g, LpErr *e)
{
    LpArena mem = {0};
    Live live;
    LpStatus st = mark_all(*g, NULL, &live, &mem, e);
    if (st == LP_OK)
        st = lp_rewrite(g, visit, &live, e);
    lp_arena_fini(&mem);
    return st;
}
