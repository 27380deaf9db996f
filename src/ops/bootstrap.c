/* Weak stand-ins until the families that define them are there. */
#include "src/ops/ops.h"
#include "src/ir/graph.h"

__attribute__((weak)) LpVal lp_sum_to(LpBuilder *b, LpVal x, const LpType *like)
{
    if (!lp_type_eq(lp_type(b, x), like))
        lp_fail(b->err, LP_E_INTERNAL, "sum_to is not there");
    return x;
}

__attribute__((weak)) LpVal lp_sum(LpBuilder *b, LpVal x, const int64_t *dims,
                                   int n, bool keepdim)
{
    (void)x, (void)dims, (void)n, (void)keepdim;
    lp_fail(b->err, LP_E_NOT_IMPLEMENTED, "sum is not there yet");
    return LP_NOVAL;
}

__attribute__((weak)) LpVal lp_mean(LpBuilder *b, LpVal x, const int64_t *dims,
                                    int n, bool keepdim)
{
    (void)x, (void)dims, (void)n, (void)keepdim;
    lp_fail(b->err, LP_E_NOT_IMPLEMENTED, "mean is not there yet");
    return LP_NOVAL;
}

__attribute__((weak)) LpVal lp_amax(LpBuilder *b, LpVal x, const int64_t *dims,
                                    int n, bool keepdim)
{
    (void)x, (void)dims, (void)n, (void)keepdim;
    lp_fail(b->err, LP_E_NOT_IMPLEMENTED, "amax is not there yet");
    return LP_NOVAL;
}
