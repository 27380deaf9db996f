/* Layouts: one blocked layout (channels in vectors, LpDesc.block) through a
 * chain of convolutions and what stands between them.
 *
 *   convolutions make blocked results; pointwise operators, pooling, batch
 *   normalisation, channels put side by side and reductions over the image
 *   keep the layout of their operands, seen as five dimensions [N, C / block,
 *   H, W, block]; whoever needs plain rows gets a copy, made once.
 *
 * Decided node by node in the order in which they run, before any is lowered.
 * Source of the gain: direct convolution in plain NCHW reaches a third to two
 * thirds of the blocked one, and a change of layout costs as much as the
 * arithmetic of a thin layer. */
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/pointwise.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/kernel/product/dnn.h"
#include "src/ops/control.h"
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
    return lp_is_value(v) && l->block[v] != 0;
}

/* Halves, too, where those are converted: they lie in blocks as they are. */
static bool is_f32(const LpLower *l, LpVal v)
{
    LpDtype t = lp_graph_type(l->g, v)->dtype;
    return t == LP_F32 || (lp_is_half(t) && !lp_dnn_native(t));
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
        !is_f32(l, n->in[1]) || n->half_partials)
        return false;
    LpDesc d[4]; /* the third operand is a bias */
    LpKernelReq r = lp_req_of_node(l->g, n, d);
    for (uint32_t i = 0; i <= n->n_in; i++)
        d[i].dtype = LP_F32;
    for (int i = 0; i < 2; i++)
        d[i].block = l->block[n->in[i]];
    d[n->n_in].block = (uint8_t)l->o->block;
    r.fast = l->o->fast;
    r.keeps = lp_keeps(l, n);
    r.threads = lp_width_of(&r, l->o->threads);
    return lp_conv_makes(&r, n->op->product == LP_PRODUCT_CONV_INPUT);
}

/* Which of an image's dimensions n, a reduction, sums over. */
static void reduced(const LpGraphNode *n, bool gone[4])
{
    const LpAttr *dims = &n->attr[LP_REDUCE_DIM];
    bool all = dims->kind != LP_ATTR_INTS || dims->n == 0;
    for (int d = 0; d < 4; d++)
        gone[d] = all;
    for (int i = 0; !all && i < dims->n; i++)
        gone[dims->v[i]] = true;
}

bool lp_layout_reduces(const LpLower *l, const LpGraphNode *n)
{
    bool gone[4];
    if (!(n->op->flags & LP_OPF_SUMS) || !blocked(l, n->in[0]))
        return false;
    reduced(n, gone);
    return gone[2] && gone[3];
}

/* Images in blocks whose channels n puts side by side. */
static bool joins_blocks(const LpLower *l, const LpGraphNode *n)
{
    bool joins = n->op == &op_cat && n->attr[LP_CAT_DIM].i == 1;
    for (uint32_t i = 0; i < n->n_in && joins; i++)
        joins = blocked(l, n->in[i]);
    return joins;
}

/* n, or a member of it, has a site, which counts elements in order. */
static bool draws(const LpGraphNode *n)
{
    int at = 0;
    const LpGraph *b = lp_node_body(n, &at);
    bool any = n->site != 0;
    for (size_t i = 0; b && i < b->n_node; i++)
        any |= b->node[i].site != 0;
    return any;
}

/* Does n make its results in blocks? */
static bool in_blocks(const LpLower *l, const LpGraphNode *n)
{
    if (!n->n_out || !image(l, n->out))
        return false;
    bool pointwise = lp_can_fuse(n) || n->op == &op_chain;
    LpProductKind conv = lp_conv_of(n->op);
    bool counts = pointwise || (n->op->flags & LP_OPF_BLOCKED && !conv);
    if (draws(n) && !counts) /* in order */
        return false;
    if (conv)
        return conv != LP_PRODUCT_CONV_WEIGHT && makes_blocks(l, n);
    if (n->op->flags & LP_OPF_BLOCKED) /* as its image, not as a gradient */
        return is_f32(l, n->out) &&
               blocked(l, n->in[n->n_in > 1 && image(l, n->in[1])]) &&
               (n->op != &op_max_pool ||
                n->attr[LP_MAX_POOL_KERNEL_SIZE].n == 2);
    if (joins_blocks(l, n))
        return !wanted_plain(l, n->out);
    for (uint32_t i = 0;
         (lp_pointwise_of(n->op) || n->op == &op_chain) && i < n->n_in; i++)
        if (blocked(l, n->in[i]) && lp_shape_eq(lp_graph_type(l->g, n->in[i]),
                                                lp_graph_type(l->g, n->out)))
            return true;
    return false;
}

LpStatus lp_lower_layouts(LpLower *l)
{
    l->block = lp_arena_calloc(&l->mem, l->g->n_value + 1);
    LP_FAIL_IF(!l->block, l->err, LP_E_MEMORY, "out of memory");
    for (LpNodeId id = 0; l->o->block && id < l->g->n_node; id++) {
        const LpGraphNode *n = &l->g->node[id];
        bool blocks = in_blocks(l, n);
        for (uint32_t k = 0; k < n->n_out && blocks; k++)
            if (image(l, n->out + k))
                l->block[n->out + k] = (uint8_t)l->o->block;
    }
    return LP_OK;
}

/* ---- copies -------------------------------------------------------------- */
/* v's other place, copied to unless that is done. */
static LpStatus copied(LpLower *l, LpVal v, int block,
                       const LpConvLayout *layout, const LpValueLocation **out)
{
    LpValueLocation *alt = &l->alt[v];
    const LpValueLocation *from = &l->location[v];
    *out = alt;
    if (alt->buf != LP_NO_BUF && alt->desc.block == block &&
        alt->desc.layout == layout)
        return LP_OK;
    if (layout && from->desc.block) /* by way of plain rows */
        LP_TRY(lp_layout_place(l, v, 0, NULL, &from));
    LpValueLocation q = {.desc = lp_desc_of(lp_graph_type(l->g, v))},
                    src = *from;
    q.desc.block = (uint8_t)block;
    q.desc.layout = layout;
    LP_TRY(lp_lower_buffer(l, lp_weight_layout_bytes(&q.desc), UINT32_MAX,
                           &q.buf));
    l->buf[q.buf].reads_left = UINT32_MAX / 2; /* never taken over */
    LP_TRY(lp_lower_copy(l, LP_NO_NODE, &src, &q));
    *alt = q;
    return LP_OK;
}

LpStatus lp_layout_place(LpLower *l, LpVal v, int block,
                         const LpConvLayout *layout,
                         const LpValueLocation **out)
{
    *out = &l->location[v];
    if ((*out)->desc.block == block && (*out)->desc.layout == layout)
        return LP_OK;
    return copied(l, v, block, layout, out);
}

LpStatus lp_layout_dense(LpLower *l, LpVal v, const LpValueLocation **out)
{
    const LpDesc *d = &l->location[v].desc;
    bool dense = true;
    for (int i = 0; i < d->ndim && !d->block && !d->layout; i++)
        dense = dense && (d->strides[i] > 0 || d->shape[i] == 1);
    *out = &l->location[v];
    return dense ? LP_OK : copied(l, v, 0, NULL, out);
}

LpStatus lp_layout_rows(LpLower *l, LpVal v, const LpValueLocation **out)
{
    LP_TRY(lp_layout_place(l, v, 0, NULL, out));
    return lp_desc_contiguous(&(*out)->desc) ? LP_OK
                                             : copied(l, v, 0, NULL, out);
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
    reduced(n, gone);
    for (int d = 0; d < 4; d++)
        if (gone[d])
            dims[n_dims++] = d;
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
