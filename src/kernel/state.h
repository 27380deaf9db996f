/* The memory of a prepared kernel that does not fit into LpKernel.inl. */
#ifndef LP_KERNEL_STATE_H
#define LP_KERNEL_STATE_H

#include "src/ir/op.h"

/* `bytes` of zeros, owned by the kernel, whose `state` and `fini` it sets; NULL
 * after a failure. A prepare that fails later has to call k->fini itself. */
void *lp_kernel_state(const char *op, size_t bytes, LpKernel *k, LpErr *e);

#endif
