/* Parts of lp_complete_step: a loss scale that the program finds by itself. */
#ifndef LP_PASSES_SCALING_H
#define LP_PASSES_SCALING_H

#include "src/passes/compile.h"

/* What the counts of a device iteration are called. */
#define LP_SCALING_COUNTS "Accum___autoLossScaleStats"

/* Before anchors are found: makes and names what the loss gradient starts at,
 * and the input of the counts. */
LpStatus lp_scaling_begin(LpStep *s, const LpScaling *scaling, LpVal scale,
                          LpVal *product, LpVal *counts, LpErr *e);
/* What is tracked of a swept micro graph. */
typedef struct LpTracked {
    LpVal seed;         /* the backward half's */
    const LpVal *named; /* gradients of scaling->name; NOVAL: there is none */
    const LpVal *grad;  /* results of the sweep */
    int n_grad;
    LpVal counts; /* lp_scaling_begin's */
} LpTracked;
/* Counts them, at the end of the graph, as an accumulator. */
LpStatus lp_scaling_track(LpStep *s, const LpScaling *scaling,
                          const LpTracked *of, LpErr *e);
/* Each count moves to where its gradient is made: an LpRebuild. */
LpStatus lp_scaling_hoist(LpGraph **g, const void *ctx, LpErr *e);
/* The update's half: the next scale. *skips: is a tracked gradient not
 * finite? */
void lp_scaling_update(LpStep *s, const LpTraining *t, LpGraphBuilder *gb,
                       LpVal *skips);

#endif
