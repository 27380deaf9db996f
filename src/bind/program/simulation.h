/* The simulated system's part of the bindings. */
#ifndef LP_BIND_PROGRAM_SIMULATION_H
#define LP_BIND_PROGRAM_SIMULATION_H

#include "src/bind/program/program.h"
#include "src/passes/ipu/ipu.h"

/* The plan at 1, borrowed. */
const LpIpuPlan *lp_check_plan(lua_State *L);

/* plan:replay(inputs, how): replay.c */
int lp_plan_replay(lua_State *L);

#endif
