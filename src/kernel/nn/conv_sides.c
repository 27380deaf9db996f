/* See conv_sides.h. */
#include "src/kernel/nn/conv_sides.h"

#include <string.h>

#include "src/kernel/attrs.h"

LpDnnPass lp_conv_pass(int op_kind, bool transposed,
                       uint8_t role[LP_CONV_SIDES])
{
    enum { SRC = LP_CONV_SRC, W = LP_CONV_W, DST = LP_CONV_DST };
    static const uint8_t roles[4][LP_CONV_SIDES] = {
        {SRC, W, DST}, /* forward */
        {DST, W, SRC}, /* backward data */
        {DST, SRC, W}, /* backward weights: (grad, input) */
        {SRC, DST, W}, /* … of a transposed one */
    };
    int kind = op_kind == 2 ? 2 + transposed : op_kind ^ transposed;
    memcpy(role, roles[kind], LP_CONV_SIDES);
    return kind == 0   ? LP_DNN_FORWARD
           : kind == 1 ? LP_DNN_BACKWARD_DATA
                       : LP_DNN_BACKWARD_WEIGHTS;
}

const LpAttr *lp_conv_attrs(const LpKernelReq *r, int op_kind)
{
    return op_kind > 0 ? r->attr + LP_CONV_BACK_STRIDE : r->attr;
}

void lp_conv_geometry(const LpAttr *a, const LpDesc *const side[LP_CONV_SIDES],
                      LpConvGeom *g)
{
    const LpDesc *src = side[LP_CONV_SRC], *w = side[LP_CONV_W];
    const LpDesc *dst = side[LP_CONV_DST];
    int n = src->ndim - 2;
    *g = (LpConvGeom){.n_spatial = n,
                      .n = src->shape[0],
                      .groups = a[LP_CONV_GROUPS].i,
                      .c_src = src->shape[1],
                      .c_dst = dst->shape[1]};
    for (int i = 0; i < n; i++) {
        g->src[i] = src->shape[2 + i];
        g->dst[i] = dst->shape[2 + i];
        g->kernel[i] = w->shape[2 + i];
        g->stride[i] = a[LP_CONV_STRIDE].v[i];
        g->pad_l[i] = a[LP_CONV_PADDING].v[i];
        g->dilation[i] = a[LP_CONV_DILATION].v[i];
        g->pad_r[i] = (g->dst[i] - 1) * g->stride[i] +
                      (g->kernel[i] - 1) * g->dilation[i] + 1 - g->src[i] -
                      g->pad_l[i];
    }
}
