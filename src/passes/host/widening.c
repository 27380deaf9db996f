/* Convolutions of halves, and what pools beside them, as the float32 ones that
 * their kernels are:
 *
 *                                              %a = cast(%x), %c = cast(%w)
 *   %y = convolution_plus(%x, %w, %b)          %d = convolution(%a, %c)
 *   %r = relu(%y)                        ->    %e = add(%b, %d)
 *   %z = convolution(%r, %w)                   %y = cast(%e)
 *                                              %r = relu(%y)
 *                                              %f = cast(%r) …
 *
 * so that conversions run within the chains beside them, which round at each
 * node as memory would, and that who reads the same halves in one half of the
 * graph shares their image. The backward half makes its own: what is kept for
 * it is kept as halves. Sums are in float32 either way and rounded once, at
 * random at the node's site. Nodes that have half partials stay. Linear in
 * operands. */
#include "src/kernel/attrs.h"
#include "src/kernel/product/dnn.h"
#include "src/ops/ops.h"
#include "src/passes/host/lower_impl.h"
#include "src/passes/pass.h"

typedef struct Widening {
    const LpGraph *g;
    LpVal *wide[2]; /* per value, in each half: its image in the new graph */
    LpArena mem;
} Widening;

static bool is_half(const LpGraph *g, const LpGraphNode *n)
{
    LpDtype t = n->n_in && lp_is_value(n->in[0])
                    ? lp_graph_type(g, n->in[0])->dtype
                    : LP_F32;
    return lp_is_half(t) && lp_graph_type(g, n->out)->dtype == t &&
           !lp_dnn_native(t) && !n->half_partials;
}

static bool is_convolution(const LpGraph *g, const LpGraphNode *n)
{
    return lp_conv_of(n->op) && is_half(g, n) &&
           lp_graph_type(g, n->in[1])->dtype ==
               lp_graph_type(g, n->in[0])->dtype;
}

/* Pooling of what a pass makes that can convert it, and its gradient. */
static bool is_pooling(const LpGraph *g, const LpGraphNode *n)
{
    if (n->op == &op_max_pool_backward)
        return lp_graph_type(g, n->out)->ndim == 4 && is_half(g, n);
    if (n->op != &op_max_pool || n->attr[LP_MAX_POOL_KERNEL_SIZE].n != 2)
        return false;
    const LpGraphNode *from = lp_graph_maker(g, n->in[0]);
    return from && (lp_can_fuse(from) || is_convolution(g, from)) &&
           is_half(g, n);
}

/* Are all windows of `pool` apart? Their gradients then meet nowhere. */
static bool is_apart(const LpGraphNode *pool)
{
    bool apart = pool && pool->op == &op_max_pool;
    for (int i = 0; apart && i < pool->attr[LP_MAX_POOL_STRIDE].n; i++)
        apart = pool->attr[LP_MAX_POOL_STRIDE].v[i] >
                (pool->attr[LP_MAX_POOL_KERNEL_SIZE].v[i] - 1) *
                    pool->attr[LP_MAX_POOL_DILATION].v[i];
    return apart;
}

/* Is what n makes a half as it is made? */
static bool is_exact(const LpGraph *g, const LpGraphNode *n)
{
    return n->op == &op_max_pool || (n->op == &op_max_pool_backward &&
                                     is_apart(lp_graph_maker(g, n->in[1])));
}

/* v, a value of the old graph, in float32. */
static LpVal image(LpRewrite *rw, LpVal v, bool back)
{
    const Widening *x = rw->ctx;
    LpVal *to = &x->wide[back][v];
    if (*to == LP_NOVAL)
        *to = lp_cast(&rw->gb.b, lp_rewrite_value(rw, v), LP_F32);
    return *to;
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const Widening *x = rw->ctx;
    const LpGraphNode *n = &x->g->node[id];
    bool back = x->g->origin[n->origin].backward;
    bool conv = is_convolution(x->g, n), pool = is_pooling(x->g, n);
    bool sum = n->op->flags & LP_OPF_SUMS && is_half(x->g, n) &&
               x->wide[back][n->in[0]];
    if (!conv && !pool && !sum)
        return false;
    LpDtype half = lp_graph_type(x->g, n->out)->dtype;
    LpBuilder *b = &rw->gb.b;
    bool plus = n->op == &op_convolution_plus;
    LpVal arg[2] = {image(rw, n->in[0], back), n->n_in > 1 ? in[1] : LP_NOVAL};
    if (conv)
        arg[1] = image(rw, n->in[1], back);
    lp_emit_n(b, plus ? LP_OP_convolution : n->op->id, arg, (int)n->n_in - plus,
              n->attr, out);
    if (plus)
        out[0] = lp_add(b, in[2], out[0]);
    bool exact = is_exact(x->g, n);
    if (exact)
        x->wide[back][n->out] = out[0];
    out[0] = lp_cast(b, out[0], half);
    if (!exact)
        lp_rewrite_rounds(rw, out[0], n->site);
    return true;
}

LpStatus lp_host_widening(LpGraph **g, const LpHostOptions *o, LpErr *e)
{
    Widening x = {.g = *g};
    bool any = false;
    for (size_t i = 0; o->fuse && i < x.g->n_node && !any; i++)
        any = is_convolution(x.g, &x.g->node[i]);
    LpStatus s = LP_OK;
    for (int i = 0; i < 2 && any; i++) {
        x.wide[i] = lp_arena_calloc(&x.mem, x.g->n_value * sizeof(LpVal));
        if (!x.wide[i])
            s = lp_fail(e, LP_E_MEMORY, "out of memory");
    }
    if (s == LP_OK && any)
        s = lp_rewrite(g, visit, &x, e);
    lp_arena_fini(&x.mem);
    return s == LP_OK && any ? lp_pass_dce(g, e) : s;
}
