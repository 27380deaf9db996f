/* Sums of equally long buffers. */
#ifndef LP_RUNTIME_EXEC_SUM_H
#define LP_RUNTIME_EXEC_SUM_H

#include "src/ir/step.h"

/* How sums of a half type round; site 0, or none given: to nearest. Else at
 * random (rounding.h), each buffer's addition by a stream of its own. */
typedef struct LpSumRounding {
    LpRunCtx rc; /* replica: of the buffers' group */
    uint64_t site;
    int64_t first; /* number of buf[0] in its group */
} LpSumRounding;

/* The site of an accumulator's sum over replicas; 0: to nearest. */
uint64_t lp_sum_site(const LpStep *s, size_t var);

/* buf[0][i] = buf[0][i] + buf[step][i] + buf[2 step][i] + …, `count` buffers,
 * in this order, rounded to the dtype after each. `how` may be NULL. */
void lp_sum_buffers(LpDtype t, void *const *buf, int64_t count, int64_t step,
                    int64_t n, const LpSumRounding *how);

#endif
