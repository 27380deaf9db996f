/* Layouts: one blocked layout (channels in vectors, LpDesc.block) through a
 * chain of convolutions and what stands between them.
 *
 *   convolutions make blocked results; pointwise operators, pooling, batch
 *   normalisation and reductions over the image keep the layout of their
 *   operands, seen as five dimensions [N, C / block, H, W, block]; whoever
 *   needs plain rows gets a copy, made once.
 *
 * Decided node by node in order, so a value's layout is known when its readers
 * are lowered. Source of the gain: direct convolution in plain NCHW reaches a
 * third to two thirds of the blocked one, and a change of layout costs as much
 * as the arithmetic of a thin layer. */
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/pointwise.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/ops/ops.h"
#include "src/ops/request.h"
#include "src/ops/width.h"
#include "src/passes/host/lower_impl.h"

static bool image(const LpLower *l, LpVal v)
{
    if (!lp_is_value(v))
        return false;
    const LpType *t = lp_graph_type(l->g, v);
    return t->ndim == 4 && lp_numel(t) > 0 && t->shape[1] % l->o->block == 0;
}

static bool blocked(const LpLower *l, LpVal v)
{
    return lp_is_value(v) && l->location[v].desc.block != 0;
}

static bool is_f32(const LpLower *l, LpVal v)
{
    return lp_graph_type(l->g, v)->dtype == LP_F32;
}

/* Nobody reads v, or a view of it alone: plain rows are what is wanted. */
static bool wanted_plain(const LpLower *l, LpVal v)
{
    LpNodeId id = l->read.reader[v];
    return id == LP_NO_NODE ||
           (l->read.uses[v] == 1 && l->g->node[id].op->flags & LP_OPF_VIEW);
}

/* A convolution, or its gradient to the input, makes blocks where the library
 * has code of its own for that. */
static bool makes_blocks(const LpLower *l, const LpGraphNode *n)
{
    if (wanted_plain(l, n->out) || !is_f32(l, n->out) || !is_f32(l, n->in[0]) ||
        !is_f32(l, n->in[1]))
        return false;
    LpDesc d[3];
    LpKernelReq r = lp_req_of_node(l->g, n, d);
    for (int i = 0; i < 2; i++)
        d[i].block = l->location[n->in[i]].desc.block;
    d[2].block = (uint8_t)l->o->block;
    r.fast = l->o->fast;
    r.threads = lp_width_of(&r, l->o->threads);
    return lp_conv_makes(&r, n->op->product == LP_PRODUCT_CONV_INPUT);
}

bool lp_layout_reduces(const LpLower *l, const LpGraphNode *n)
{
    if (n->op != &op_sum && n->op != &op_mean)
        return false;
    if (!blocked(l, n->in[0]))
        return false;
    const LpAttr *dims = &n->attr[LP_REDUCE_DIM];
    bool h = false, w = false;
    if (dims->kind != LP_ATTR_INTS || dims->n == 0)
        return true; /* everything */
    for (int i = 0; i < dims->n; i++) {
        h |= dims->v[i] == 2;
        w |= dims->v[i] == 3;
    }
    return h && w;
}

int lp_layout_block(const LpLower *l, const LpGraphNode *n)
{
    if (!l->o->block || !image(l, n->out))
        return 0;
    LpProductKind conv = lp_conv_of(n->op);
    if (conv)
        return conv != LP_PRODUCT_CONV_WEIGHT && makes_blocks(l, n)
                   ? l->o->block
                   : 0;
    if (n->op == &op_max_pool && is_f32(l, n->out) &&
        n->attr[LP_MAX_POOL_KERNEL_SIZE].n == 2)
        return blocked(l, n->in[0]) ? l->o->block : 0;
    if (n->op == &op_max_pool_backward && is_f32(l, n->out) &&
        image(l, n->in[1]))
        return blocked(l, n->in[1]) ? l->o->block : 0;
    if (n->op == &op_batch_norm_train && is_f32(l, n->out))
        return blocked(l, n->in[0]) ? l->o->block : 0;
    if (n->op == &op_batch_norm_backward && is_f32(l, n->out))
        return blocked(l, n->in[1]) ? l->o->block : 0;
    if (!lp_pointwise_of(n->op))
        return 0;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (blocked(l, n->in[i]) && lp_shape_eq(lp_graph_type(l->g, n->in[i]),
                                                lp_graph_type(l->g, n->out)))
            return l->o->block;
    return 0;
}

static LpStatus copy_as(LpLower *l, const LpValueLocation *from,
                        const LpDesc *as, LpValueLocation *alt)
{
    LpValueLocation q = {.desc = *as}, src = *from;
    LP_TRY(lp_lower_memory(l, as, &q.buf));
    l->buf[q.buf].reads_left = UINT32_MAX / 2; /* never taken over */
    LP_TRY(lp_lower_copy(l, LP_NO_NODE, &src, &q));
    *alt = q;
    return LP_OK;
}

LpStatus lp_layout_place(LpLower *l, LpVal v, int block,
                         const LpConvLayout *layout,
                         const LpValueLocation **out)
{
    LpValueLocation *p = &l->location[v], *alt = &l->alt[v];
    *out = p;
    if (p->desc.block == block && p->desc.layout == layout)
        return LP_OK;
    *out = alt;
    if (alt->buf != LP_NO_BUF && alt->desc.block == block &&
        alt->desc.layout == layout)
        return LP_OK;
    const LpValueLocation *from = p;
    if (layout && p->desc.block) /* by way of plain rows */
        LP_TRY(lp_layout_place(l, v, 0, NULL, &from));
    LpDesc as = lp_desc_of(lp_graph_type(l->g, v));
    as.block = (uint8_t)block;
    as.layout = layout;
    return copy_as(l, from, &as, alt);
}

LpStatus lp_layout_dense(LpLower *l, LpVal v, const LpValueLocation **out)
{
    LpValueLocation *p = &l->location[v], *alt = &l->alt[v];
    bool dense = true;
    for (int i = 0; i < p->desc.ndim && !p->desc.block && !p->desc.layout; i++)
        dense = dense && (p->desc.strides[i] > 0 || p->desc.shape[i] == 1);
    *out = dense ? p : alt;
    if (dense ||
        (alt->buf != LP_NO_BUF && !alt->desc.block && !alt->desc.layout))
        return LP_OK;
    LpDesc as = lp_desc_of(lp_graph_type(l->g, v));
    return copy_as(l, p, &as, alt);
}

LpStatus lp_layout_rows(LpLower *l, LpVal v, const LpValueLocation **out)
{
    LP_TRY(lp_layout_place(l, v, 0, NULL, out));
    if (lp_desc_contiguous(&(*out)->desc))
        return LP_OK;
    LpValueLocation from = **out, *alt = &l->alt[v];
    *out = alt;
    if (alt->buf != LP_NO_BUF && !alt->desc.block && !alt->desc.layout)
        return LP_OK;
    LpDesc as = lp_desc_of(lp_graph_type(l->g, v));
    return copy_as(l, &from, &as, alt);
}

/* Descriptions for a kernel that knows no blocks: the same elements in five
 * dimensions. `like` is an image of the chain. */
LpDesc lp_layout_split(const LpLower *l, const LpDesc *d, const LpType *like)
{
    return lp_desc_split(d, 4, like->shape[1], l->o->block);
}

/* A reduction over blocked memory: dimension 1 becomes 1 and 4. The result's
 * memory is that of the plain one. */
void lp_layout_reduction(const LpGraphNode *n, LpAttr *attr, int64_t dims[5],
                         LpDesc *in, LpDesc *out)
{
    int n_dims = 0;
    bool gone[5] = {false};
    memcpy(attr, n->attr, n->op->n_attr * sizeof *attr);
    bool all =
        attr[LP_REDUCE_DIM].kind != LP_ATTR_INTS || attr[LP_REDUCE_DIM].n == 0;
    for (int d = 0; d < 4; d++) {
        bool here = all;
        for (int i = 0; !all && i < attr[LP_REDUCE_DIM].n; i++)
            here |= attr[LP_REDUCE_DIM].v[i] == d;
        if (!here)
            continue;
        gone[d] = true;
        dims[n_dims++] = d;
    }
    if (gone[1]) {
        gone[4] = true;
        dims[n_dims++] = 4;
    }
    attr[LP_REDUCE_DIM] = lp_attr_ints(dims, n_dims);
    LpType t = {.dtype = out->dtype};
    for (int d = 0; d < 5; d++) {
        if (gone[d] && !attr[LP_REDUCE_KEEPDIM].i)
            continue;
        t.shape[t.ndim++] = gone[d] ? 1 : in->shape[d];
    }
    *out = lp_desc_of(&t);
}
