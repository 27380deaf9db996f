/* Weak stand-ins until the families that define them are there. */
#include "src/ops/ops.h"
#include "src/ir/graph.h"

__attribute__((weak)) LpVal lp_sum_to(LpBuilder *b, LpVal x, const LpType *like)
{
    if (!lp_type_eq(lp_type(b, x), like))
        lp_fail(b->err, LP_E_INTERNAL, "sum_to is not there");
    return x;
}
