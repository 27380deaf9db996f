/* The three operands of a convolution, its gradients and their transposed
 * forms (conv_kernel.c), as sides of a plain one. */
#ifndef LP_KERNEL_NN_CONV_SIDES_H
#define LP_KERNEL_NN_CONV_SIDES_H

#include "src/kernel/nn/nn.h"
#include "src/kernel/product/dnn.h"

enum { LP_CONV_SRC, LP_CONV_W, LP_CONV_DST, LP_CONV_SIDES };

/* The pass of an operator (0: convolution, 1: its gradient to the input, 2: to
 * the weights), and the sides of operand 0, operand 1 and the result. */
LpDnnPass lp_conv_pass(int op_kind, bool transposed,
                       uint8_t role[LP_CONV_SIDES]);

/* The attributes of the convolution, which those of its gradients end with. */
const LpAttr *lp_conv_attrs(const LpKernelReq *r, int op_kind);

/* The window after which exactly dst positions exist: what a floor drops is
 * taken off the trailing padding. */
void lp_conv_geometry(const LpAttr *a, const LpDesc *const side[LP_CONV_SIDES],
                      LpConvGeom *g);

/* With half partials (half_sums.h), of any operands. */
LpStatus lp_half_conv_prepare(const LpKernelReq *r, int op_kind, LpKernel *k,
                              LpErr *e);

/* Of windows of one element over plain rows (conv_one.c). */
bool lp_conv_one_takes(const LpKernelReq *r, int op_kind);
LpStatus lp_conv_one_prepare(const LpKernelReq *r, int op_kind, LpKernel *k,
                             LpErr *e);

#endif
