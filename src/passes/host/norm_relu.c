/* Batch normalisations run with the ReLU next to them:
 *
 *   %y, … = batch_norm_train(%x, …)
 *   %s = add(%y, %z)                  ->   %r, … = batch_norm_relu(%x, …, %z)
 *   %r = relu(%s)                                        (add is optional)
 *
 *   %d = relu_backward(%g, %r)        ->   %dx, … = batch_norm_relu_backward(
 *   %dx, … = batch_norm_backward(                         %g, %x, …, %r)
 *              %d, %x, …)
 *
 * if nobody else reads what is left out. Forward it stands where the
 * normalisation does, so %z must be there. A gradient that is added up just
 * before runs with the ReLU's instead. The same operations in the same order:
 * no bit changes (in float32; halves would be rounded less often). */
#include "src/kernel/attrs.h"
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"
#include "src/passes/pass.h"

typedef struct NormRelus {
    const LpGraph *g;
    LpReaders read;
    bool *gone; /* per node: runs inside another */
    LpArena mem;
} NormRelus;

static bool alike(const NormRelus *x, LpVal a, LpVal b)
{
    return lp_is_value(a) && lp_graph_type(x->g, b)->dtype == LP_F32 &&
           lp_type_eq(lp_graph_type(x->g, a), lp_graph_type(x->g, b));
}

/* The node that alone reads v, if it is of `op`. */
static const LpGraphNode *next(const NormRelus *x, LpVal v, const LpOp *op)
{
    LpNodeId id = lp_only_reader(&x->read, v);
    return id != LP_NO_NODE && x->g->node[id].op == op ? &x->g->node[id] : NULL;
}

static bool forward(LpRewrite *rw, const LpGraphNode *n, const LpVal *in,
                    LpVal *out)
{
    const NormRelus *x = rw->ctx;
    LpVal y = n->out, arg[4] = {in[0], in[1], in[2]};
    const LpGraphNode *add = next(x, y, &op_add), *relu;
    if (add) {
        LpVal z = add->in[add->in[0] == y];
        if (lp_scalar_f(add->attr[LP_ADD_ALPHA].s) != 1 || z >= y ||
            !alike(x, z, y))
            return false;
        arg[3] = lp_rewrite_value(rw, z);
    }
    relu = next(x, add ? add->out : y, &op_relu);
    if (!relu || !alike(x, y, relu->out))
        return false;
    lp_emit_n(&rw->gb.b, LP_OP_batch_norm_relu, arg, 4, n->attr, out);
    lp_rewrite_becomes(rw, relu->out, out[0]);
    out[0] = LP_NOVAL;
    x->gone[relu - x->g->node] = true;
    if (add)
        x->gone[add - x->g->node] = true;
    return true;
}

/* Does n, a ReLU's gradient, run inside the normalisation's? */
static bool inside(const NormRelus *x, const LpGraphNode *n)
{
    const LpGraphNode *back = next(x, n->out, &op_batch_norm_backward);
    if (!back || back->in[0] != n->out || !alike(x, n->in[0], n->out) ||
        !alike(x, n->in[1], n->out))
        return false;
    const LpGraphNode *from = lp_graph_maker(x->g, n->in[0]);
    return !from || x->read.uses[n->in[0]] > 1 || !lp_can_fuse(from);
}

static bool backward(LpRewrite *rw, const LpGraphNode *n, const LpVal *in,
                     LpVal *out)
{
    const NormRelus *x = rw->ctx;
    const LpGraphNode *relu = lp_graph_maker(x->g, n->in[0]);
    if (!relu || !x->gone[relu - x->g->node])
        return false;
    LpVal arg[] = {
        lp_rewrite_value(rw, relu->in[0]), in[1], in[2], in[3], in[4],
        lp_rewrite_value(rw, relu->in[1])};
    lp_emit_n(&rw->gb.b, LP_OP_batch_norm_relu_backward, arg, 6, n->attr, out);
    return true;
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const NormRelus *x = rw->ctx;
    const LpGraphNode *n = &x->g->node[id];
    if (n->op == &op_relu_backward)
        x->gone[id] = inside(x, n);
    return x->gone[id] ||
           (n->op == &op_batch_norm_train && forward(rw, n, in, out)) ||
           (n->op == &op_batch_norm_backward && backward(rw, n, in, out));
}

LpStatus lp_host_norm_relu(LpGraph **g, const LpHostOptions *o, LpErr *e)
{
    NormRelus x = {.g = *g};
    if (!o->fuse)
        return LP_OK;
    LpStatus s =
        lp_find_readers(x.g, x.g->output, x.g->n_output, &x.mem, &x.read, e);
    x.gone = lp_arena_calloc(&x.mem, x.g->n_node * sizeof *x.gone);
    if (s == LP_OK && !x.gone)
        s = lp_fail(e, LP_E_MEMORY, "out of memory");
    if (s == LP_OK)
        s = lp_rewrite(g, visit, &x, e);
    lp_arena_fini(&x.mem);
    return s;
}
