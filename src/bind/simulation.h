/* The simulated system's part of the bindings. */
#ifndef LP_BIND_SIMULATION_H
#define LP_BIND_SIMULATION_H

#include "src/bind/program.h"
#include "src/passes/ipu/ipu.h"

/* Analyses `s` under the options table at `options` and the placement at
 * `placement` (nil: the step's); pushes a box that frees the plan. Raises on
 * failure. */
LpIpuPlan *lp_bind_plan(lua_State *L, const LpStep *s, int options,
                        int placement);

/* replay(step, options, inputs, how): replay.c */
int lp_bind_replay(lua_State *L);

#endif
