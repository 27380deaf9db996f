/* A part of lp_complete_step: the update graph of a training step. */
#ifndef LP_PASSES_UPDATE_H
#define LP_PASSES_UPDATE_H

#include "src/passes/anchors.h"
#include "src/passes/compile.h"

/* Makes step->update of the rules. accum: of each rule the variable with its
 * parameter's gradient, -1 for one that has none and is not updated. */
LpStatus lp_build_update(LpStep *step, const LpTraining *t, const int *accum,
                         LpErr *e);

/* An anchor of a velocity that gathers gradients becomes one of the value that
 * it has after each micro-batch; others stay. scale: what the loss gradient
 * starts at, LP_NOVAL: 1. */
LpStatus lp_show_velocity(LpStep *s, const LpTraining *t, const int *accum,
                          LpVal scale, LpAnchor *a, LpErr *e);

#endif
