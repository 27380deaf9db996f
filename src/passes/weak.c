/* Weak stand-ins until the common passes are there. */
#include "src/passes/pass.h"

__attribute__((weak)) LpStatus lp_run_common_passes(LpGraph **g, LpErr *e)
{
    (void)g, (void)e;
    return LP_OK;
}

__attribute__((weak)) char *lp_graph_print(const LpGraph *g, LpErr *e)
{
    (void)g;
    lp_fail(e, LP_E_INTERNAL, "no text form");
    return NULL;
}
