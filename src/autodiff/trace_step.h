/* From a trace to a step (src/ir/step.h). */
#ifndef LP_AUTODIFF_TRACE_STEP_H
#define LP_AUTODIFF_TRACE_STEP_H

#include "src/autodiff/trace.h"
#include "src/ir/step.h"

/* A new step with the trace's graph and variables, and an output for each of
 * out[]; the trace must not record any more. Owned. On failure the trace has
 * its graph still. */
LpStatus lp_step_of_trace(LpTrace *tr, LpTensor *const *out, int n,
                          LpStep **step, LpErr *e);
/* The trace's variables from number `from` on become the step's. */
LpStatus lp_step_take_vars(LpTrace *tr, size_t from, LpStep *s, LpErr *e);
/* The losses that feed no other loss, in order, each once: loss[] has room for
 * lp_trace_n_losses. If out[] or the variables need some losses, those that
 * they do not need are dead and do not count. Before lp_step_of_trace. */
LpStatus lp_trace_final_losses(LpTrace *tr, LpTensor *const *out, int n_out,
                               LpVal *loss, size_t *n, LpErr *e);

#endif
