/* Batch normalisations of blocked images that run with the ReLU next to them:
 *
 *   %y = batch_norm_train(%x, …)           one instruction that reads %x and
 *   %s = add(%y, %z)                  ->   %z twice and writes %r; %y and %s
 *   %r = relu(%s)                          never reach memory (add optional)
 *
 *   %d = relu_backward(%g, %r)        ->   one instruction that reads %g, %r,
 *   %dx = batch_norm_backward(%d, %x, …)   %x and writes %dx
 *
 * if nobody else reads what is left out. Forward it stands where the
 * normalisation does, so %z must be there; backward where its gradient does.
 * The same operations in the same order: no bit changes. */
#include "src/kernel/attrs.h"
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"

LpStatus lp_lower_norm_relus(LpLower *l)
{
    const LpGraph *g = l->g;
    LpNormRelus *t = &l->norm_relus;
    t->host = lp_arena_alloc(&l->mem, (g->n_node + 1) * sizeof *t->host);
    LP_FAIL_IF(!t->host, l->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < g->n_node; i++)
        t->host[i] = LP_NO_NODE;
    return LP_OK;
}

/* id is in no chain, or by itself in that of a product, which would run alone
 * all the same where images lie in blocks. */
static bool alone(const LpLower *l, LpNodeId id)
{
    int32_t at = lp_fuse_group_of(l, id);
    return at < 0 || l->fusion.group[at].n == 1;
}

/* a and b are a chain of their own, or in none. */
static bool pair(const LpLower *l, LpNodeId a, LpNodeId b)
{
    int32_t at = lp_fuse_group_of(l, a);
    return at == lp_fuse_group_of(l, b) &&
           (at < 0 || l->fusion.group[at].n == 2);
}

bool lp_norm_relu_inside(LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &l->g->node[id], *back;
    LpNodeId *host = l->norm_relus.host, by;
    if (host[id] != LP_NO_NODE)
        return true;
    if (!l->o->fuse || n->op != &op_relu_backward || !alone(l, id) ||
        !lp_is_value(n->in[0]) || !lp_is_value(n->in[1]) ||
        !l->location[n->in[1]].desc.block)
        return false;
    by = lp_only_reader(&l->read, n->out);
    if (by == LP_NO_NODE)
        return false;
    back = &l->g->node[by];
    if (back->op != &op_batch_norm_backward || back->in[0] != n->out ||
        !lp_type_eq(lp_graph_type(l->g, n->in[0]),
                    lp_graph_type(l->g, n->out)) ||
        !lp_type_eq(lp_graph_type(l->g, n->in[1]),
                    lp_graph_type(l->g, n->out)) ||
        !l->block[back->out])
        return false;
    host[id] = by;
    return true;
}

/* The operand of an addition to y that a normalisation can add itself. */
static LpVal addend(const LpLower *l, const LpGraphNode *add, LpVal y)
{
    LpVal v = add->in[add->in[0] == y];
    bool fits = lp_scalar_f(add->attr[LP_ADD_ALPHA].s) == 1 && lp_is_value(v) &&
                v != y && l->location[v].buf != LP_NO_BUF &&
                l->location[v].desc.block &&
                lp_type_eq(lp_graph_type(l->g, v), lp_graph_type(l->g, y));
    return fits ? v : LP_NOVAL;
}

static bool forward(LpLower *l, LpNodeId id, LpNormRelu *t)
{
    const LpGraphNode *n = &l->g->node[id];
    LpNodeId *host = l->norm_relus.host,
             first = lp_only_reader(&l->read, n->out), last;
    LpVal add = LP_NOVAL;
    if (first == LP_NO_NODE || !l->block[n->out])
        return false;
    last = first;
    const LpGraphNode *r = &l->g->node[first];
    if (r->op == &op_add) {
        add = addend(l, r, n->out);
        last = lp_only_reader(&l->read, r->out);
        if (add == LP_NOVAL || last == LP_NO_NODE || !pair(l, first, last))
            return false;
    } else if (lp_fuse_group_of(l, first) >= 0) {
        return false;
    }
    if (l->g->node[last].op != &op_relu)
        return false;
    host[first] = host[last] = id;
    for (int i = 0; i < 3; i++)
        t->in[i] = n->in[i];
    t->in[3] = add;
    t->node.n_in = add == LP_NOVAL ? 3 : 4;
    t->result = l->g->node[last].out;
    return true;
}

static bool backward(const LpLower *l, LpNodeId id, LpNormRelu *t)
{
    const LpGraphNode *n = &l->g->node[id];
    const LpGraph *g = l->g;
    LpNodeId by = lp_is_value(n->in[0]) ? g->value[n->in[0]].node : LP_NO_NODE;
    if (by == LP_NO_NODE || l->norm_relus.host[by] != id)
        return false;
    for (int i = 1; i < 5; i++)
        t->in[i] = n->in[i];
    t->in[0] = g->node[by].in[0];
    t->in[5] = g->node[by].in[1];
    t->node.n_in = 6;
    return true;
}

bool lp_norm_relu_of(LpLower *l, LpNodeId id, LpNormRelu *t)
{
    const LpGraphNode *n = &l->g->node[id];
    *t = (LpNormRelu){.node = *n, .result = LP_NOVAL};
    t->node.in = t->in;
    if (n->op == &op_batch_norm_backward)
        return backward(l, id, t);
    return n->op == &op_batch_norm_train && l->o->fuse && forward(l, id, t);
}

void lp_norm_relu_done(LpLower *l, const LpNormRelu *t)
{
    if (t->result == LP_NOVAL)
        return;
    LpValueLocation *at = &l->location[t->node.out];
    l->location[t->result] = *at;
    l->buf[at->buf].reads_left +=
        l->read.uses[t->result] - l->read.uses[t->node.out];
}
