/* The memory of a prepared kernel that does not fit into LpKernel.inl. */
#ifndef LP_KERNEL_STATE_H
#define LP_KERNEL_STATE_H

#include "src/ir/op.h"

/* Makes k a kernel of operator `op` that runs `run`: k->state is `bytes` of
 * zeros that it owns. A prepare that fails later has to call k->fini itself. */
LpStatus lp_kernel_state(const char *op, size_t bytes, LpKernelRun run,
                         LpKernel *k, LpErr *e);

/* The same of a state that is there, which `drop` frees. */
void lp_kernel_own(void *state, void (*drop)(void *state), LpKernelRun run,
                   LpKernel *k);

static inline void lp_kernel_fini(LpKernel *k)
{
    if (k->fini)
        k->fini(k);
}

/* Of a kernel in memory of its own; NULL: there is none. */
void lp_kernel_free(LpKernel *k);

#endif
