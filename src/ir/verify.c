/* The verifier: an independent check of what every pass relies on.
 *
 *   - values and nodes name each other; values are numbered in the order of
 *     nodes; operands are older than their node; outputs exist
 *   - every node is an operation of a graph, with operands and attributes of
 *     the kinds of its form, an origin, and a site only if it is random
 *     or rounds
 *   - its recorded types are those of its shape rule, and the rule leaves its
 *     attributes as they are
 *   - bodies are valid themselves
 *   - regions are of fused operators; what they read is older than their
 *     nodes
 *
 * Linear in nodes and operands. */
#include <stdio.h>
#include <string.h>

#include "src/ir/text.h"

#define AROUND 10 /* nodes shown before and after the faulty one */
#define CUT 44    /* characters of a neighbour that are shown */

/* ---- the message --------------------------------------------------------- */
/* Node `id` cut to `cut` characters. */
static void show(LpBuf *b, const LpGraph *g, LpNodeId id, const char *mark,
                 size_t cut)
{
    LpBuf one = {0};
    lp_text_node(&one, g, id);
    char *s = lp_buf_take(&one);
    size_t n = s ? strcspn(s, "\n") : 0;
    lp_buf_str(b, mark);
    if (s) /* of a node with a body the first line */
        lp_buf_add(b, s, n > cut ? cut : n);
    lp_free(s);
}

/* The finding and the nodes up to the faulty one are the message, the nodes
 * after it the context: both have a fixed size. */
static LpStatus fault(const LpGraph *g, LpNodeId id, LpErr *e,
                      const LpErr *finding)
{
    LpBuf b = {0};
    LpNodeId last =
        id + AROUND < g->n_node ? id + AROUND : (LpNodeId)g->n_node - 1;
    lp_buf_fmt(&b, "graph is not valid: node %u: %.200s", id, finding->msg);
    for (LpNodeId i = id > AROUND ? id - AROUND : 0; i < id; i++)
        show(&b, g, i, "\n  ", CUT);
    show(&b, g, id, "\n> ", 2 * CUT);
    char *s = lp_buf_take(&b);
    LpStatus code = s ? LP_E_INTERNAL : LP_E_MEMORY;
    lp_fail(e, code, "%s", s ? s : "out of memory");
    lp_free(s);
    for (LpNodeId i = id + 1; i <= last; i++) {
        show(&b, g, i, "  ", CUT);
        s = lp_buf_take(&b);
        lp_err_context(e, "%s", s ? s : "");
        lp_free(s);
    }
    return code;
}

/* What is wrong with node `id`. */
#define BAD_NODE(id, ...)                                                      \
    do {                                                                       \
        LpErr own = {0};                                                       \
        lp_fail(&own, LP_E_INTERNAL, __VA_ARGS__);                             \
        return fault(g, id, e, &own);                                          \
    } while (0)

/* ---- values -------------------------------------------------------------- */
#define BAD(...) return lp_fail(e, LP_E_INTERNAL, __VA_ARGS__)

static LpStatus check_type(const LpType *t, LpErr *e)
{
    if (!t || t->dtype >= LP_N_DTYPES || t->ndim < 0 || t->ndim > LP_MAX_DIMS ||
        t->wrapped)
        BAD("a value has no proper type");
    return lp_shape_check(t, e);
}

static LpStatus check_inputs(const LpGraph *g, LpErr *e)
{
    LpVal last = 0;
    for (size_t i = 0; i < g->n_input; i++) {
        LpVal v = g->input[i];
        if (v <= last || v >= g->n_value)
            BAD("graph is not valid: input %zu is value %u of %zu, after "
                "value %u",
                i, v, g->n_value, last);
        const LpValue *x = &g->value[v];
        if (x->node != LP_NO_NODE || x->nr != i)
            BAD("graph is not valid: value %%%u is input %zu and something "
                "else",
                v, i);
        LP_TRY(check_type(x->type, e));
        last = v;
    }
    return LP_OK;
}

/* Every value belongs to an input or to a node, in order. */
static LpStatus check_numbers(const LpGraph *g, LpErr *e)
{
    size_t input = 0;
    LpVal next = 1;
    for (LpNodeId i = 0; i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        for (; input < g->n_input && g->input[input] == next; input++)
            next++;
        if (n->out != next)
            BAD_NODE(i, "its results begin at value %u, the order says %u",
                     n->out, next);
        if (n->n_out > g->n_value - next)
            BAD_NODE(i, "it has %u results, but the graph has no value %zu",
                     n->n_out, g->n_value);
        for (uint32_t k = 0; k < n->n_out; k++, next++)
            if (g->value[next].node != i || g->value[next].nr != k)
                BAD_NODE(i,
                         "its result %u, value %u, says it belongs to another",
                         k, next);
    }
    next += (LpVal)(g->n_input - input);
    if (next != g->n_value)
        BAD("graph is not valid: %zu values, but %u belong to inputs and nodes",
            g->n_value, next);
    return LP_OK;
}

/* ---- nodes --------------------------------------------------------------- */
static LpStatus check_operands(const LpGraph *g, const LpGraphNode *n,
                               LpVal before, LpErr *e)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        LpVal v = n->in[i];
        if (lp_is_imm(v) ? (v & ~LP_VAL_IMM) >= g->n_imm : v >= before)
            BAD("operand %u is %s %u, which does not exist yet", i,
                lp_is_imm(v) ? "number" : "value", v & ~LP_VAL_IMM);
    }
    return lp_check_operands(g, n->op, n->in, n->n_in, e);
}

static LpStatus check_rule(const LpGraph *g, const LpGraphNode *n, LpType *out,
                           LpArena *scratch, LpErr *e)
{
    LpAttr attr[LP_MAX_ATTR];
    int n_out;
    if (n->op->n_attr)
        memcpy(attr, n->attr, n->op->n_attr * sizeof *attr);
    LP_TRY(lp_graph_infer(g, n->op, n->in, n->n_in, attr, out, &n_out, scratch,
                          e));
    if (n_out != (int)n->n_out)
        BAD("it has %u results, its shape rule says %d", n->n_out, n_out);
    for (int i = 0; i < n_out; i++) {
        const LpType *t = g->value[n->out + (LpVal)i].type;
        LP_TRY(check_type(t, e));
        if (!lp_type_eq(t, &out[i]))
            BAD("result %d is recorded as %s%s, its shape rule says %s%s", i,
                lp_dtype_name(t->dtype), lp_shape_str(t),
                lp_dtype_name(out[i].dtype), lp_shape_str(&out[i]));
    }
    for (int i = 0; i < n->op->n_attr; i++)
        if (!lp_attr_eq(&attr[i], &n->attr[i]))
            BAD("its attribute %d is not canonical: the shape rule changes it",
                i);
    return LP_OK;
}

static LpStatus check_node(const LpGraph *g, const LpGraphNode *n, LpType *out,
                           LpArena *scratch, LpErr *e)
{
    LP_TRY(check_operands(g, n, n->out, e));
    LP_TRY(lp_check_attrs(n->op, n->attr, e));
    if (n->origin == 0 || n->origin >= g->n_origin)
        BAD("it has no origin");
    if (n->region >= g->n_region)
        BAD("it belongs to region %u, which does not exist", n->region);
    if (n->site && !(n->op->flags & LP_OPF_RANDOM) && !lp_node_rounds(g, n))
        BAD("%s draws no random numbers and does not round, but has a site",
            n->op->name);
    LP_TRY(check_rule(g, n, out, scratch, e));
    if (n->half_partials && !lp_node_sums_halves(g, n))
        BAD("%s has half partials, but sums no float16 numbers", n->op->name);
    int at = 0;
    for (const LpGraph *body; (body = lp_node_body(n, &at));)
        LP_TRY(lp_graph_verify(body, e));
    return LP_OK;
}

static LpStatus check_nodes(const LpGraph *g, LpErr *e)
{
    LpArena scratch = {0};
    LpStatus st = LP_OK;
    LpType *out = lp_alloc(LP_MAX_LIST * sizeof *out);
    LP_FAIL_IF(!out, e, LP_E_MEMORY, "out of memory");
    for (LpNodeId i = 0; i < g->n_node && st == LP_OK; i++) {
        LpErr own = {0};
        lp_arena_reset(&scratch);
        if (check_node(g, &g->node[i], out, &scratch, &own) != LP_OK)
            st = own.code == LP_E_MEMORY ? lp_fail(e, own.code, "%s", own.msg)
                                         : fault(g, i, e, &own);
    }
    lp_arena_fini(&scratch);
    lp_free(out);
    return st;
}

/* ---- regions ------------------------------------------------------------- */
static bool exists(const LpGraph *g, LpVal v)
{
    return lp_is_imm(v) ? (v & ~LP_VAL_IMM) < g->n_imm : v < g->n_value;
}

static LpStatus check_region(const LpGraph *g, uint32_t id, LpErr *e)
{
    const LpRegion *r = &g->region[id];
    if (r->op->kind != LP_OP_FUSED || (r->op->flags & LP_OPF_DEVICE))
        BAD("graph is not valid: region %u is of %s, which is not inlined", id,
            r->op->name);
    for (uint32_t i = 0; i < r->n_in + r->n_out; i++) {
        bool in = i < r->n_in;
        LpVal v = in ? r->in[i] : r->out[i - r->n_in];
        if (!exists(g, v))
            BAD("graph is not valid: region %u %s value %u, which does not "
                "exist",
                id, in ? "reads" : "gives", v & ~LP_VAL_IMM);
    }
    return LP_OK;
}

/* What a region reads is older than its first node. */
static LpStatus check_region_order(const LpGraph *g, LpErr *e)
{
    for (LpNodeId i = 0; i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        if (n->region == 0 || (i > 0 && g->node[i - 1].region == n->region))
            continue;
        const LpRegion *r = &g->region[n->region];
        for (uint32_t k = 0; k < r->n_in; k++)
            if (!lp_is_imm(r->in[k]) && r->in[k] >= n->out)
                BAD_NODE(i, "region %u reads value %u, which is younger",
                         n->region, r->in[k]);
    }
    return LP_OK;
}

LpStatus lp_graph_verify(const LpGraph *g, LpErr *e)
{
    LP_TRY(check_inputs(g, e));
    LP_TRY(check_numbers(g, e));
    LP_TRY(check_nodes(g, e));
    for (uint32_t i = 1; i < g->n_region; i++)
        LP_TRY(check_region(g, i, e));
    LP_TRY(check_region_order(g, e));
    for (size_t i = 0; i < g->n_output; i++)
        if (g->output[i] == LP_NOVAL || lp_is_imm(g->output[i]) ||
            g->output[i] >= g->n_value)
            BAD("graph is not valid: output %zu is value %u, which does not "
                "exist",
                i, g->output[i] & ~LP_VAL_IMM);
    return LP_OK;
}
