/* The memory of a prepared kernel (state.h). */
#include "src/kernel/state.h"

#include "src/base/mem.h"

static void fini(LpKernel *k)
{
    lp_free(k->state);
    k->state = NULL;
}

void *lp_kernel_state(const char *op, size_t bytes, LpKernel *k, LpErr *e)
{
    k->state = lp_calloc(1, bytes);
    if (!k->state) {
        lp_fail(e, LP_E_MEMORY, "no memory for a kernel of %s", op);
        return NULL;
    }
    k->fini = fini;
    return k->state;
}
