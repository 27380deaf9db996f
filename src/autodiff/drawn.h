/* What has been drawn, so that a second try of a call draws the same numbers.
 */
#ifndef LP_AUTODIFF_DRAWN_H
#define LP_AUTODIFF_DRAWN_H

#include "src/autodiff/trace.h"

typedef struct LpDrawn {
    uint64_t rng[2];
    size_t sites; /* of the trace */
} LpDrawn;

static inline LpDrawn lp_drawn(void)
{
    LpDrawn d = {.sites = lp_trace_drawn()};
    lp_rng_get(d.rng);
    return d;
}

static inline void lp_undraw(const LpDrawn *d)
{
    lp_rng_set(d->rng);
    lp_trace_undraw(d->sites);
}

#endif
