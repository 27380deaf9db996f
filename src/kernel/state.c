/* The memory of a prepared kernel (state.h). */
#include "src/kernel/state.h"

#include <string.h>

#include "src/base/mem.h"

static void fini(LpKernel *k)
{
    lp_free(k->state);
    k->state = NULL;
}

LpStatus lp_kernel_state(const char *op, size_t bytes, LpKernelRun run,
                         LpKernel *k, LpErr *e)
{
    k->state = lp_calloc(1, bytes);
    LP_FAIL_IF(!k->state, e, LP_E_MEMORY, "no memory for a kernel of %s", op);
    k->run = run;
    k->fini = fini;
    return LP_OK;
}

static void fini_own(LpKernel *k)
{
    void (*drop)(void *);
    memcpy(&drop, k->inl, sizeof drop);
    drop(k->state);
    k->state = NULL;
}

void lp_kernel_own(void *state, void (*drop)(void *state), LpKernelRun run,
                   LpKernel *k)
{
    memcpy(k->inl, &drop, sizeof drop);
    k->state = state;
    k->run = run;
    k->fini = fini_own;
}

void lp_kernel_free(LpKernel *k)
{
    if (k)
        lp_kernel_fini(k);
    lp_free(k);
}
