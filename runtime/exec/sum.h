/* Sums of equally long buffers. */
#ifndef LP_RUNTIME_EXEC_SUM_H
#define LP_RUNTIME_EXEC_SUM_H

#include "src/tensor/dtype.h"

/* buf[0][i] = buf[0][i] + buf[step][i] + buf[2 step][i] + …, `count` buffers,
 * in this order, rounded to the dtype after each. */
void lp_sum_buffers(LpDtype t, void *const *buf, int64_t count, int64_t step,
                    int64_t n);

#endif
