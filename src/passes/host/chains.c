/* Pointwise nodes that run as one pass become a node:
 *
 *   %3 = add(%1, %2)            %6, %5 = chain([%1, %2, %4], body={…}), which
 *   %5 = relu(%3)         ->    gives %5 only if somebody else reads it; %3
 *   %6 = mul(%5, %4)            never reaches memory
 *
 * Nodes are taken in order. A node joins the groups that make its operands if
 * all have its shape, and nobody outside the merged group reads a member's
 * value before this node, where the chain will stand. So it does the group of
 * the node before it, if both read a large value, which is then read once. A
 * node that nothing joins stays single. A reader outside stays outside: where
 * it stood the groups could not merge, and they only grow. Time: linear in
 * operands, as groups are bounded. */
#include <string.h>

#include "src/kernel/loops/fused.h"
#include "src/ops/control.h"
#include "src/ops/request.h"
#include "src/passes/host/lower_impl.h"
#include "src/passes/pass.h"

enum { LARGE = 1 << 20 }; /* bytes; less stays in the cache */

typedef struct Group {
    LpNodeId *member; /* ascending */
    int n;
    bool read;                  /* by a node outside */
    LpGraph *body;              /* NULL: it stays as it is */
    LpVal in[LP_FUSED_MAX_EXT]; /* what that reads */
} Group;

typedef struct Fuse {
    const LpGraph *g;
    LpReaders read;
    int32_t *of; /* per node: its group, or -1 */
    Group *group;
    size_t n_group;
    LpArena mem;
    LpErr *err;
} Fuse;

bool lp_can_fuse(const LpGraphNode *n)
{
    bool whole = lp_fusable(n->op) && n->n_in <= LP_PW_MAX_IN && n->n_out == 1;
    for (uint32_t i = 0; i < n->n_in; i++)
        whole &= n->in[i] != LP_NOVAL;
    return whole;
}

static int externals(const Fuse *x, const Group *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += (int)x->g->node[p->member[i]].n_in;
    return n;
}

static LpStatus alone(Fuse *x, LpNodeId id)
{
    Group *p = &x->group[x->n_group];
    p->member = lp_arena_alloc(&x->mem, LP_FUSED_MAX_NODE * sizeof *p->member);
    LP_FAIL_IF(!p->member, x->err, LP_E_MEMORY, "out of memory");
    p->member[0] = id;
    p->n = 1;
    x->of[id] = (int32_t)x->n_group++;
    return LP_OK;
}

/* Moves group b into a, members ascending. */
static void merge(Fuse *x, int32_t a, int32_t b)
{
    Group *p = &x->group[a], *q = &x->group[b];
    LpNodeId all[LP_FUSED_MAX_NODE];
    int i = 0, j = 0, n = 0;
    while (i < p->n || j < q->n)
        all[n++] = j == q->n || (i < p->n && p->member[i] < q->member[j])
                       ? p->member[i++]
                       : q->member[j++];
    for (j = 0; j < q->n; j++)
        x->of[q->member[j]] = a;
    memcpy(p->member, all, (size_t)n * sizeof *all);
    p->n = n;
    q->n = 0;
}

/* Merges the group of `other`, an earlier node, into that of id, if id can run
 * with it. */
static void try_merge(Fuse *x, LpNodeId id, LpNodeId other)
{
    int32_t at = x->of[id], b = x->of[other];
    if (b < 0 || b == at)
        return;
    const Group *p = &x->group[at], *q = &x->group[b];
    if (p->n + q->n <= LP_FUSED_MAX_NODE &&
        externals(x, p) + externals(x, q) <= LP_FUSED_MAX_EXT && !q->read)
        merge(x, at, b);
}

/* A large operand of node id that the node before it reads, too. */
static bool shares_large(const Fuse *x, LpNodeId id, const LpType *mine)
{
    const LpGraphNode *n = &x->g->node[id], *p = n - 1;
    if (x->of[id - 1] < 0 || !lp_shape_eq(lp_graph_type(x->g, p->out), mine))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        for (uint32_t k = 0; k < p->n_in && lp_is_value(n->in[i]); k++) {
            const LpType *t = lp_graph_type(x->g, n->in[i]);
            if (n->in[i] == p->in[k] && lp_shape_eq(t, mine) &&
                lp_type_bytes(t) >= LARGE)
                return true;
        }
    return false;
}

static LpStatus join(Fuse *x, LpNodeId id)
{
    const LpGraphNode *n = &x->g->node[id];
    const LpType *mine = lp_graph_type(x->g, n->out);
    LP_TRY(alone(x, id));
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!lp_is_value(n->in[i]))
            continue;
        LpNodeId from = x->g->value[n->in[i]].node;
        if (from != LP_NO_NODE &&
            lp_shape_eq(lp_graph_type(x->g, n->in[i]), mine))
            try_merge(x, id, from);
    }
    if (id > 0 && shares_large(x, id, mine))
        try_merge(x, id, id - 1);
    return LP_OK;
}

/* Other groups whose values node id reads stay apart from all later nodes. */
static void note_reads(Fuse *x, LpNodeId id)
{
    const LpGraphNode *n = &x->g->node[id];
    for (uint32_t i = 0; i < n->n_in; i++) {
        const LpGraphNode *from = lp_graph_maker(x->g, n->in[i]);
        int32_t b = from ? x->of[from - x->g->node] : -1;
        if (b >= 0 && b != x->of[id])
            x->group[b].read = true;
    }
}

static LpStatus find_groups(Fuse *x)
{
    const LpGraph *g = x->g;
    x->of = lp_arena_alloc(&x->mem, g->n_node * sizeof *x->of);
    x->group = lp_arena_calloc(&x->mem, g->n_node * sizeof *x->group);
    LP_FAIL_IF(!x->of || !x->group, x->err, LP_E_MEMORY, "out of memory");
    LP_TRY(
        lp_find_readers(g, g->output, g->n_output, &x->mem, &x->read, x->err));
    for (LpNodeId i = 0; i < g->n_node; i++) {
        x->of[i] = -1;
        if (lp_can_fuse(&g->node[i]))
            LP_TRY(join(x, i));
        note_reads(x, i);
    }
    return LP_OK;
}

/* ---- bodies -------------------------------------------------------------- */
/* What v, which a member reads, is in the body. */
static LpVal inside(const Fuse *x, Group *p, LpVal v, LpErr *e)
{
    LpGraph *b = p->body;
    if (lp_is_imm(v))
        return lp_graph_imm(b, lp_graph_scalar(x->g, v), e);
    for (size_t k = 0; k < b->n_node; k++)
        if (x->g->node[p->member[k]].out == v)
            return b->node[k].out;
    for (size_t i = 0; i < b->n_input; i++)
        if (p->in[i] == v)
            return b->input[i];
    p->in[b->n_input] = v;
    return lp_graph_input(b, lp_graph_type(x->g, v), NULL, e);
}

static void add_member(const Fuse *x, Group *p, LpNodeId id, LpErr *e)
{
    LpGraphNode n = x->g->node[id];
    LpVal in[LP_PW_MAX_IN];
    for (uint32_t i = 0; i < n.n_in; i++)
        in[i] = inside(x, p, n.in[i], e);
    n.in = in;
    n.origin = lp_graph_origin(p->body, &x->g->origin[n.origin], e);
    lp_graph_add(p->body, &n, lp_graph_type(x->g, n.out), e);
}

/* Values of members are results if somebody else reads them. */
static void add_results(const Fuse *x, Group *p, LpErr *e)
{
    LpGraph *b = p->body;
    for (int k = 0; k < p->n; k++) {
        uint32_t uses = x->read.uses[x->g->node[p->member[k]].out];
        for (int i = k + 1; i < p->n; i++)
            for (uint32_t j = 0; j < b->node[i].n_in; j++)
                uses -= b->node[i].in[j] == b->node[k].out;
        if (uses > 0)
            lp_graph_output(b, b->node[k].out, e);
    }
}

/* Is there a kernel? A matter of types alone. */
static bool possible(const LpGraph *b)
{
    LpDesc in[LP_FUSED_MAX_EXT], out[LP_FUSED_MAX_OUT];
    LpAttr attr = lp_attr_graph(b);
    LpKernelReq r = {.op = &op_chain, .attr = &attr, .in = in, .out = out};
    LpKernel k = {.threads = 1};
    LpErr e = {0};
    if (b->n_output == 0 || b->n_output > LP_FUSED_MAX_OUT)
        return false;
    for (size_t i = 0; i < b->n_input; i++)
        in[r.n_in++] = lp_desc_of_operand(b, b->input[i]);
    for (size_t i = 0; i < b->n_output; i++)
        out[r.n_out++] = lp_desc_of_operand(b, b->output[i]);
    if (lp_prepare_chain(&r, false, &k, &e) != LP_OK)
        return false;
    k.fini(&k);
    return true;
}

static LpStatus make_body(const Fuse *x, Group *p)
{
    LpErr e = {0};
    p->body = lp_graph_new();
    LP_FAIL_IF(!p->body, x->err, LP_E_MEMORY, "out of memory");
    for (int k = 0; k < p->n && e.code == LP_OK; k++)
        add_member(x, p, p->member[k], &e);
    if (e.code == LP_OK)
        add_results(x, p, &e);
    if (e.code != LP_OK)
        return lp_fail(x->err, e.code, "%s", e.msg);
    if (!possible(p->body)) {
        lp_graph_free(p->body);
        p->body = NULL;
    }
    return LP_OK;
}

/* ---- the new graph ------------------------------------------------------- */
static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const Fuse *x = rw->ctx;
    const Group *p = x->of[id] < 0 ? NULL : &x->group[x->of[id]];
    const LpGraph *b = p ? p->body : NULL;
    LpVal from[LP_FUSED_MAX_EXT], to[LP_FUSED_MAX_OUT];
    (void)in, (void)out;
    if (!b || p->member[p->n - 1] != id)
        return b != NULL;
    lp_rewrite_values(rw, p->in, (uint32_t)b->n_input, from);
    LpAttr body = lp_attr_graph(b);
    lp_emit_n(&rw->gb.b, LP_OP_chain, from, (int)b->n_input, &body, to);
    for (size_t i = 0; i < b->n_output && !lp_failed(&rw->gb.b); i++) {
        LpNodeId k = b->value[b->output[i]].node;
        lp_rewrite_becomes(rw, x->g->node[p->member[k]].out, to[i]);
    }
    return true;
}

LpStatus lp_host_chains(LpGraph **g, const LpHostOptions *o, LpErr *e)
{
    Fuse x = {.g = *g, .err = e};
    LpStatus s = o->fuse ? find_groups(&x) : LP_OK;
    for (size_t i = 0; i < x.n_group && s == LP_OK; i++)
        if (x.group[i].n > 1)
            s = make_body(&x, &x.group[i]);
    if (x.n_group > 0 && s == LP_OK)
        s = lp_rewrite(g, visit, &x, e);
    for (size_t i = 0; i < x.n_group; i++)
        lp_graph_free(x.group[i].body);
    lp_arena_fini(&x.mem);
    return s;
}
