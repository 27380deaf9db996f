/* Collectives over the replicas of one process. */
#ifndef LP_RUNTIME_EXEC_COMM_H
#define LP_RUNTIME_EXEC_COMM_H

#include "src/tensor/dtype.h"

/* buf[0][i] = buf[0][i] + buf[1][i] + …, in rank order, rounded to the dtype
 * after each rank. */
void lp_comm_sum(LpDtype t, void *const *buf, int64_t n_ranks, int64_t n);

#endif
