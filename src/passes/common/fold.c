/* Constants: a node that reads known numbers only becomes a `full` node of the
 * number it computes. Known are immediates and `full` values (one number
 * everywhere), so no constant is ever more than a number and a type.
 *
 *   %2 = full(size=[2], fill_value=3.0)      %3 = full(size=[2],
 *   %3 = mul(%2, 2.0)                   ->             fill_value=6.0)
 *
 * Pointwise operators run their own kernel on one element, so the bits are
 * those of the unfolded node; one that fails (a division by zero) stays, to
 * fail when it runs. A view of a constant is that constant. It stays a view
 * if it would become a large array. Random operators are no constants, nor are
 * nodes that round at random.
 *
 * After canonicalise, which has no need of it. Linear. */
#include <string.h>

#include "src/kernel/state.h"
#include "src/ops/ops.h"
#include "src/passes/pass.h"

#define LARGE 1024 /* elements that a view may grow to */

typedef struct Element {
    LpDesc desc;
    uint64_t bits; /* room for one element of any type */
} Element;

/* Sizes of 1: the number of dimensions matters to promotion. */
static void one_element(LpDesc *d, const LpType *t)
{
    *d = (LpDesc){.dtype = t->dtype, .ndim = t->ndim};
    for (int i = 0; i < t->ndim; i++)
        d->shape[i] = d->strides[i] = 1;
}

static bool constant_operands(LpRewrite *rw, const LpGraphNode *n,
                              const LpVal *in, Element *x)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        LpScalar s;
        LpType t = lp_graph_operand_type(rw->to, in[i]);
        one_element(&x[i].desc, &t);
        if (in[i] == LP_NOVAL)
            continue;
        if (!lp_rewrite_constant(rw, in[i], &s))
            return false;
        x[i].desc.is_imm = lp_is_imm(in[i]);
        x[i].desc.imm = s;
        lp_scalar_store(s, t.dtype, &x[i].bits);
    }
    return true;
}

/* Runs the kernel; false if it will not. */
static bool run(const LpGraphNode *n, Element *in, Element *out)
{
    static const LpRunCtx none;
    LpDesc di[LP_MAX_IN], dn[LP_MAX_OUT];
    void *pi[LP_MAX_IN], *po[LP_MAX_OUT];
    LpErr ignored = {0};
    LpKernel k = {.threads = 1};
    for (uint32_t i = 0; i < n->n_in; i++) {
        di[i] = in[i].desc;
        pi[i] = in[i].desc.is_imm ? NULL : (void *)&in[i].bits;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        dn[i] = out[i].desc;
        po[i] = &out[i].bits;
    }
    LpKernelReq req = {.op = n->op,
                       .attr = n->attr,
                       .n_in = (int)n->n_in,
                       .n_out = (int)n->n_out,
                       .in = di,
                       .out = dn,
                       .threads = 1};
    if (n->op->prepare(&req, &k, &ignored) != LP_OK)
        return false;
    void *work = lp_alloc_aligned(k.work_bytes);
    bool ok = work && k.run(&k, pi, po, work, &none, &ignored) == LP_OK;
    lp_free(work);
    lp_kernel_fini(&k);
    return ok;
}

static bool fold_pointwise(LpRewrite *rw, const LpGraphNode *n, const LpVal *in,
                           LpVal *out)
{
    Element x[LP_MAX_IN] = {0}, y[LP_MAX_OUT] = {0};
    if (n->n_in == 0 || n->n_in > LP_MAX_IN || n->n_out > LP_MAX_OUT ||
        !n->op->prepare || !constant_operands(rw, n, in, x))
        return false;
    for (uint32_t i = 0; i < n->n_out; i++)
        one_element(&y[i].desc, lp_graph_type(rw->from, n->out + i));
    if (!run(n, x, y))
        return false;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const LpType *t = lp_graph_type(rw->from, n->out + i);
        out[i] = lp_full(&rw->gb.b, t, lp_scalar_load(t->dtype, &y[i].bits));
    }
    return true;
}

static bool fold_view(LpRewrite *rw, const LpGraphNode *n, const LpVal *in,
                      LpVal *out)
{
    LpScalar s;
    const LpType *t = lp_graph_type(rw->from, n->out);
    if (!lp_rewrite_constant(rw, in[0], &s) || lp_is_imm(in[0]) ||
        n->op == &op_view_dtype || /* of bits, not of the number */
        (lp_numel(t) > LARGE &&
         lp_numel(t) > lp_numel(lp_graph_type(rw->to, in[0]))))
        return false;
    out[0] = lp_full(&rw->gb.b, t, s);
    return true;
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const LpGraphNode *n = &rw->from->node[id];
    if (n->site ||
        n->op->flags & (LP_OPF_RANDOM | LP_OPF_EFFECT | LP_OPF_MARKER))
        return false;
    if (n->op->flags & LP_OPF_POINTWISE)
        return fold_pointwise(rw, n, in, out);
    if ((n->op->flags & LP_OPF_VIEW) && n->n_in == 1)
        return fold_view(rw, n, in, out);
    return false;
}

LpStatus lp_pass_fold(LpGraph **g, LpErr *e)
{
    return lp_rewrite(g, visit, NULL, e);
}
