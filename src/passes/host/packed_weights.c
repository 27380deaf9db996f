/* Packed copies of parameters. A Linear's weight lies in plain rows [out, in],
 * which gradient, optimizer and sync share; its forward product
 * reads a packed copy, which the update makes anew.
 *
 *   %2 = permute(%w, dims=[1, 0])   ->   %3 = packed product of %1 and the
 *   %3 = mm(%1, %2)                      packed copy of w
 *
 * Worth it from a size on where the library's own layout differs from rows,
 * and if the copy is read often enough: for 784-512-512 and 64 rows the forward
 * gains a fifth, making the copies costs as much as three such gains. So
 * inference packs, and training from MICRO micro-batches an update on. A single
 * row reads the weight where it lies (kernel/product/vector.h).
 *
 * A convolution that reads a parameter in another layout than the parameter's
 * (weight_layout.c) reorders it in each call; read twice an update or more, the
 * reordered form is a copy too. */
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/nn/conv_chain.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/kernel/product/packed.h"
#include "src/kernel/product/tiles.h"
#include "src/kernel/state.h"
#include "src/ops/ops.h"
#include "src/ops/width.h"
#include "src/passes/host/lower_impl.h"

enum {
    LEAST = 64, /* rows and columns of the weight */
    MICRO = 4,  /* reads of a copy */
    READS = 2,  /* the same for weights of convolutions: a reorder saved */
};

/* Is a copy read that often? Replicas in groups share the copies. */
static bool may_pack(const LpLower *l, int64_t reads)
{
    const LpStep *s = l->step;
    return l->o->pack && !l->update && !lp_step_grouped(s) &&
           (!s->update ||
            s->gradient_accumulation * l->program->topology.local >= reads);
}

/* The parameter in whose memory v lies, or -1. */
static int param_of(const LpLower *l, LpVal v)
{
    uint32_t buf = l->location[v].buf;
    uint32_t var = buf == LP_NO_BUF ? UINT32_MAX : l->buf[buf].var;
    return var != UINT32_MAX && l->step->var[var].role == LP_VAR_PARAM &&
                   l->step->var[var].micro_out == LP_NOVAL
               ? (int)var
               : -1;
}

/* The parameter whose rows the transposed operand v reads, or -1. */
static int packed_param(const LpLower *l, LpVal v)
{
    const LpGraphNode *n = lp_graph_maker(l->g, v);
    return n && n->op == &op_permute && n->attr[LP_PERMUTE_DIMS].n == 2 &&
                   n->attr[LP_PERMUTE_DIMS].v[0] == 1 &&
                   !lp_graph_maker(l->g, n->in[0])
               ? param_of(l, n->in[0])
               : -1;
}

/* The parameter that is the windows of n, a convolution or its gradient to the
 * input; or -1. */
static int windows_param(const LpLower *l, const LpGraphNode *n)
{
    LpProductKind conv = lp_conv_of(n->op);
    return (conv == LP_PRODUCT_CONV || conv == LP_PRODUCT_CONV_INPUT) &&
                   lp_is_value(n->in[1]) && l->location[n->in[1]].offset == 0
               ? param_of(l, n->in[1])
               : -1;
}

bool lp_keeps(const LpLower *l, const LpGraphNode *n)
{
    return may_pack(l, INT64_MAX) && windows_param(l, n) >= 0;
}

bool lp_packs(const LpLower *l, const LpGraphNode *n)
{
    if (n->op != &op_mm || !may_pack(l, MICRO))
        return false;
    const LpType *w = lp_graph_type(l->g, n->in[1]);
    const LpType *x = lp_graph_type(l->g, n->in[0]);
    const LpGemmArgs g = {.m = x->shape[0], .n = w->shape[1], .k = w->shape[0]};
    if (lp_tiles_split(&g, l->o->split) > 0)
        return false; /* the kernel packs what it converts */
    return w->dtype == LP_F32 && x->dtype == LP_F32 && x->shape[0] > 0 &&
           w->shape[0] >= LEAST && w->shape[1] >= LEAST &&
           packed_param(l, n->in[1]) >= 0;
}

static LpStatus add_packed(LpLower *l, int var, size_t bytes, LpKernel *pack,
                           LpKernel *unpack, uint32_t *index)
{
    LpProgram *p = l->program;
    LP_FAIL_IF(!LP_GROW(p->packed, p->cap_packed, p->n_packed), l->err,
               LP_E_MEMORY, "out of memory");
    *index = (uint32_t)p->n_packed;
    p->packed[p->n_packed++] =
        (LpPackedWeights){(uint32_t)var, bytes, pack, unpack};
    return LP_OK;
}

void lp_packed_operand(LpLower *l, uint32_t index, uint32_t at)
{
    LpInstr *last = &l->code->instr[l->code->n - 1];
    LpRef *ref = (LpRef *)(uintptr_t)&last->in[at];
    if (ref->space == LP_SPACE_NONE)
        last->bytes += l->program->packed[index].bytes;
    *ref =
        (LpRef){.space = LP_SPACE_ARG, .arg = (uint32_t)l->step->n_var + index};
}

LpStatus lp_pack_weights(LpLower *l, const LpGraphNode *n, LpKernel *k,
                         uint32_t *index)
{
    int var = windows_param(l, n);
    *index = UINT32_MAX;
    if (var < 0 || !may_pack(l, READS))
        return LP_OK;
    LpKernel *pack = NULL, *unpack = NULL;
    size_t bytes;
    LpStatus s = lp_lower_new_kernel(l, &pack);
    if (s == LP_OK)
        s = lp_lower_new_kernel(l, &unpack);
    bool takes =
        s == LP_OK && (lp_conv_take_packing(k, pack, unpack, &bytes) ||
                       lp_conv_chain_take_packing(k, pack, unpack, &bytes));
    if (s == LP_OK && (!takes || !unpack->run)) {
        lp_kernel_free(unpack);
        unpack = NULL;
    }
    if (takes)
        s = add_packed(l, var, bytes, pack, unpack, index);
    if (s != LP_OK || !takes) {
        lp_kernel_free(pack);
        lp_kernel_free(unpack);
    }
    return s;
}

/* *done: the node was lowered here. */
LpStatus lp_lower_packed(LpLower *l, LpNodeId id, bool *done)
{
    const LpGraphNode *n = &l->g->node[id];
    const LpValueLocation *x;
    LpKernel *k[3] = {NULL}; /* the product, to pack, to unpack */
    size_t bytes = 0;
    bool same = false;
    uint32_t index = 0;
    int var = packed_param(l, n->in[1]);
    LP_TRY(lp_layout_place(l, n->in[0], 0, NULL, &x));
    LpDesc xd = x->desc, wd = l->location[n->in[1]].desc;
    LpDesc yd = {.dtype = LP_F32, .ndim = 2};
    memcpy(yd.shape, lp_graph_type(l->g, n->out)->shape, sizeof yd.shape);
    LpStatus s = LP_OK;
    for (int i = 0; i < 3 && s == LP_OK; i++)
        s = lp_lower_new_kernel(l, &k[i]);
    if (s == LP_OK) {
        LpKernelReq r = {.op = n->op,
                         .n_in = 2,
                         .n_out = 1,
                         .in = (LpDesc[]){xd, wd},
                         .out = &yd,
                         .numerics = l->step->numerics};
        k[0]->threads = lp_width_of(&r, l->o->threads);
        k[1]->threads =
            lp_width_of_copy((double)lp_desc_numel(&wd), l->o->threads);
    }
    LpErr probe = {0}; /* strides the library does not take: the plain way */
    if (s == LP_OK && lp_packed_mm_prepare(&xd, &wd, &yd, k[0], k[1], k[2],
                                           &bytes, &same, &probe) != LP_OK)
        same = true;
    *done = s == LP_OK && !same;
    if (*done)
        s = add_packed(l, var, bytes, k[1], k[2], &index);
    if (s != LP_OK || !*done) {
        for (int i = 0; i < 3; i++)
            lp_kernel_free(k[i]);
        return s;
    }
    const LpValueLocation *in[2] = {NULL, NULL}, *out[1];
    s = lp_lower_own(l, n->out, UINT32_MAX);
    if (s == LP_OK)
        s = lp_layout_place(l, n->in[0], 0, NULL, &in[0]);
    out[0] = &l->location[n->out];
    LP_TRY(lp_lower_finish(l, s, id, k[0], in, 2, out, 1));
    l->buf[out[0]->buf].reads_left += l->read.uses[n->out];
    lp_packed_operand(l, index, 1);
    for (int i = 0; i < 2; i++)
        l->buf[l->location[n->in[i]].buf].reads_left--;
    return LP_OK;
}
