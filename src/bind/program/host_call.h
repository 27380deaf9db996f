/* The functions of a script that answer a program's host calls. */
#ifndef LP_BIND_PROGRAM_HOST_CALL_H
#define LP_BIND_PROGRAM_HOST_CALL_H

#include "src/bind/program/program.h"
#include "src/ops/host_call.h"

/* While a run lasts: `calls` asks the functions of a table on L's stack. */
typedef struct LpHostFunctions {
    lua_State *L;
    int at;
    LpHostCalls calls;
} LpHostFunctions;

/* *f stays where it is; the table is at `at`. */
void lp_host_functions(lua_State *L, int at, LpHostFunctions *f);

/* Raises if the table at `at`, the top, lacks a function that g or a body in it
 * calls, and names it. Does g call any? */
bool lp_check_host_functions(lua_State *L, const LpGraph *g, int at);

#endif
