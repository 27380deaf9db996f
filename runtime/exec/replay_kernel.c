/* The plain kernel of each node, prepared when the node first runs, on
 * operands that are contiguous; a view is copied. */
#include <string.h>

#include "runtime/exec/replay.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"
#include "src/ops/control.h"
#include "src/ops/request.h"
#include "src/ops/width.h"
#include "src/passes/host/lower.h"

typedef struct LpNodeKernel {
    bool ready, copies;
    LpKernel k;
    LpDesc view; /* copies: the operand seen through the view */
    int64_t offset;
} LpNodeKernel;

LpStatus lp_node_kernels_init(LpNodeKernels *k, const LpGraph *g,
                              LpNumerics numerics, int threads, LpErr *e)
{
    *k = (LpNodeKernels){.g = g, .numerics = numerics, .threads = threads};
    k->node = lp_calloc(g->n_node + 1, sizeof *k->node);
    LP_FAIL_IF(!k->node, e, LP_E_MEMORY, "out of memory");
    return LP_OK;
}

void lp_node_kernels_fini(LpNodeKernels *k)
{
    for (LpNodeId n = 0; k->node && n < k->g->n_node; n++)
        if (k->node[n].ready)
            lp_kernel_fini(&k->node[n].k);
    lp_free(k->node);
    lp_free(k->work);
    *k = (LpNodeKernels){0};
}

static LpStatus prepare_view(LpNodeKernels *k, const LpGraphNode *d,
                             LpNodeKernel *x, LpErr *e)
{
    LpArena scratch = {0};
    LpAttr attr[LP_MAX_ATTR];
    const LpType *in = lp_graph_type(k->g, d->in[0]);
    LpType out = {0};
    bool needs_copy = false;
    x->copies = true;
    x->view = lp_desc_of(in);
    LpDesc src = x->view;
    if (d->op->n_attr)
        memcpy(attr, d->attr, d->op->n_attr * sizeof *attr);
    LpInfer q = {.op = d->op,
                 .n_in = 1,
                 .n_out = 1,
                 .in = in,
                 .attr = attr,
                 .out = &out,
                 .arena = &scratch,
                 .err = e,
                 .in_strides = src.strides,
                 .strides = x->view.strides,
                 .offset = &x->offset,
                 .needs_copy = &needs_copy};
    LpStatus s = lp_op_infer(&q);
    lp_arena_fini(&scratch);
    x->view.ndim = out.ndim;
    memcpy(x->view.shape, out.shape, sizeof out.shape);
    if (s == LP_OK && needs_copy) /* cannot be: the operand is contiguous */
        s = lp_fail(e, LP_E_INTERNAL, "view %s of contiguous memory",
                    d->op->name);
    return s;
}

static LpStatus prepare_kernel(LpNodeKernels *k, const LpGraphNode *d,
                               LpNodeKernel *x, LpErr *e)
{
    LP_FAIL_IF(!d->op->prepare && !lp_has_bodies(d->op), e, LP_E_INTERNAL,
               "operator %s has no kernel", d->op->name);
    LpDesc *desc = lp_calloc(d->n_in + d->n_out + 1, sizeof *desc);
    LP_FAIL_IF(!desc, e, LP_E_MEMORY, "out of memory");
    LpKernelReq r = lp_req_of_node(k->g, d, desc);
    r.numerics = lp_node_numerics(k->numerics, d);
    r.threads = x->k.threads = lp_width_of(&r, k->threads);
    const LpHostOptions plain = {.threads = k->threads};
    LpStatus s = lp_has_bodies(d->op) ? lp_prepare_bodies(&r, &plain, &x->k, e)
                                      : lp_prepare(&r, &x->k, e);
    lp_free(desc);
    return s;
}

static LpStatus prepare(LpNodeKernels *k, LpNodeId id, LpErr *e)
{
    const LpGraphNode *d = &k->g->node[id];
    LpNodeKernel *x = &k->node[id];
    bool view = (d->op->flags & LP_OPF_VIEW) != 0;
    LP_TRY(view ? prepare_view(k, d, x, e) : prepare_kernel(k, d, x, e));
    x->ready = true;
    if (!view && x->k.work_bytes > k->work_bytes) {
        lp_free(k->work);
        k->work = lp_alloc_aligned(x->k.work_bytes);
        k->work_bytes = k->work ? x->k.work_bytes : 0;
        LP_FAIL_IF(!k->work, e, LP_E_MEMORY, "out of memory");
    }
    return LP_OK;
}

LpStatus lp_node_kernels_run(LpNodeKernels *k, LpNodeId id, void *const *in,
                             void *const *out, const LpRunCtx *rc, LpErr *e)
{
    LpNodeKernel *x = &k->node[id];
    if (!x->ready)
        LP_TRY(prepare(k, id, e));
    if (!x->copies)
        return x->k.run(&x->k, in, out, k->work, rc, e);
    LpDesc dst = lp_desc_of(lp_graph_type(k->g, k->g->node[id].out));
    const char *src = in[0];
    src += x->offset * (int64_t)lp_dtype_size(x->view.dtype);
    lp_copy_strided(&x->view, src, &dst, out[0]);
    return LP_OK;
}
