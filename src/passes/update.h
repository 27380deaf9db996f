/* A part of lp_complete_step: the update graph of a training step. */
#ifndef LP_PASSES_UPDATE_H
#define LP_PASSES_UPDATE_H

#include "src/passes/compile.h"

/* Makes step->update of the rules. accum: of each rule the variable with its
 * parameter's gradient, -1 for one that has none and is not updated. */
LpStatus lp_build_update(LpStep *step, const LpTraining *t, const int *accum,
                         LpErr *e);

#endif
