/* Index types, for the operators that take an index. */
#ifndef LP_OPS_INDEX_INDEX_H
#define LP_OPS_INDEX_INDEX_H

#include "src/ops/ops.h"

/* Any integer type; RuntimeError naming the operator and operand otherwise. */
LpStatus lp_check_index(LpInfer *x, int i, const char *what);

#endif
