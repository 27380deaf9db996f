/* The simulated system's part of the bindings. */
#ifndef LP_BIND_PROGRAM_SIMULATION_H
#define LP_BIND_PROGRAM_SIMULATION_H

#include "src/bind/program/program.h"
#include "src/passes/ipu/ipu.h"

LpIpuOptions lp_read_ipu_options(lua_State *L, int t); /* the table at t */
/* A closed box for a plan, pushed. */
LpBox *lp_new_plan(lua_State *L);
/* The plan at 1, borrowed, with its whole schedule. */
const LpIpuPlan *lp_check_whole_plan(lua_State *L);

/* plan:replay(inputs, how): replay.c */
int lp_plan_replay(lua_State *L);

#endif
