/* Weights of a convolution kept in the library's own layout. A description with
 * `layout` says that a value lies so: LpDesc.shape is the plain one, memory is
 * layout.bytes long and holds the elements in an order (with zeros between,
 * where channels do not fill a block) that only the kernels of convolutions
 * know. What works element by element takes it as one dense dimension. */
#ifndef LP_KERNEL_NN_CONV_LAYOUT_H
#define LP_KERNEL_NN_CONV_LAYOUT_H

#include "src/kernel/product/dnn.h"

struct LpConvLayout {
    LpDnnLayout layout;
    int64_t groups;
};

/* Shape and strides of an operand as the library counts axes: weights get
 * their group axis. Returns the number of axes. */
int lp_conv_axes(const LpDesc *d, bool weights, int64_t groups,
                 int64_t shape[6], int64_t strides[6]);

/* Whether the convolution of the request (`gradient`: that to its input) makes
 * its result in the layout named there, not only by a copy. */
bool lp_conv_makes(const LpKernelReq *r, bool gradient);

/* The layout of the weights that the request (of a convolution, weights
 * plain) works on: forward, or with `gradient` when it makes their gradient.
 * *plain: that is how they lie already. */
LpStatus lp_conv_layout(const LpKernelReq *r, bool gradient, LpConvLayout *h,
                        bool *plain, LpErr *e);

/* The elements in one dense dimension, padding included. */
LpDesc lp_conv_layout_flat(const LpDesc *d);

/* A kernel that copies between a layout and plain memory, or two layouts. Width
 * 1 enters no pool of threads. */
LpStatus lp_conv_layout_copy(const LpDesc *from, const LpDesc *to, int threads,
                             LpKernel *k, LpErr *e);

/* A kernel that puts the zeros between the elements of result 0 back; *padded
 * is false, and nothing prepared, if the layout has none. `d` has a layout. */
LpStatus lp_conv_layout_clear(const LpDesc *d, LpKernel *k, bool *padded,
                              LpErr *e);

/* If the prepared kernel of a convolution or of its gradient to the input
 * reorders its weights in each call: makes `pack` a kernel that does it, from
 * then on the other one's operand 1 is the result of `pack`, *bytes large.
 * `unpack` becomes the reverse, if there is one. */
bool lp_conv_take_packing(LpKernel *conv, LpKernel *pack, LpKernel *unpack,
                          size_t *bytes);

#endif
