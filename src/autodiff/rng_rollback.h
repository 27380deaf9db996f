/* What has been drawn, so that a second try of a call draws the same numbers.
 */
#ifndef LP_AUTODIFF_RNG_ROLLBACK_H
#define LP_AUTODIFF_RNG_ROLLBACK_H

#include "src/autodiff/trace.h"

typedef struct LpRngMark {
    uint64_t rng[2];
    size_t sites; /* of the trace */
} LpRngMark;

static inline LpRngMark lp_rng_mark(void)
{
    LpRngMark d = {.sites = lp_trace_rng_mark()};
    lp_rng_get(d.rng);
    return d;
}

static inline void lp_rng_rollback(const LpRngMark *d)
{
    lp_rng_set(d->rng);
    lp_trace_rng_rollback(d->sites);
}

#endif
