/* A convolution and the chain of pointwise steps that alone reads it, as one
 * kernel: the chain runs on what a thread has just made. The bits are those of
 * both one after the other. */
#ifndef LP_KERNEL_NN_CONV_CHAIN_H
#define LP_KERNEL_NN_CONV_CHAIN_H

#include "src/kernel/nn/nn.h"

/* Does it pay for a convolution of attributes `a` to wait for its chain? It is
 * of a parameter that stays the same. */
bool lp_conv_chain_pays(const LpType *x, const LpAttr *a);

/* `conv`: the request of the convolution, whose result is the chain's external
 * `at`. Operands are those of the chain, then the convolution's two. */
LpStatus lp_conv_chain_prepare(const LpKernelReq *conv, const LpFusedReq *chain,
                               int at, LpKernel *k, LpErr *e);

/* lp_conv_take_packing of the convolution in k, if k is such a kernel. */
bool lp_conv_chain_take_packing(LpKernel *k, LpKernel *pack, LpKernel *unpack,
                                size_t *bytes);

#endif
