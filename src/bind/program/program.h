/* Traces, steps and executors as Lua userdata: what trace.c, step.c and exec.c
 * share. Thin on purpose: what a wrapper such as poptorch.trainingModel does
 * with them is Lua.
 *
 *   trace = core.trace()
 *   x     = trace:declare(role, name, tensor | nil, shape, dtype)
 *   trace:start()  ...operators...  trace:stop()
 *   step  = trace:step({tensors that are outputs})
 *   plan, program = core.compile(step, {...}); exec = program:executor()
 *   exec:run(inputs, modes)
 *
 * Variables are numbered from 1 here, as lists in Lua are. */
#ifndef LP_BIND_PROGRAM_PROGRAM_H
#define LP_BIND_PROGRAM_PROGRAM_H

#include "runtime/exec/exec.h"
#include "runtime/exec/sync.h"
#include "src/autodiff/trace_step.h"
#include "src/bind/box.h"

extern const LpBoxClass lp_step_class, lp_exec_class, lp_graph_class;

/* An executor and the host tensors that mirror its variables: parameters and
 * buffers, states of the optimizer. */
typedef struct LpExecBox {
    LpExec *x;
    LpSync *sync;
    LpSync *state;
} LpExecBox;

static inline LpStep *lp_check_step(lua_State *L)
{
    return lp_check_box(L, 1, &lp_step_class);
}
/* One that may still be changed. */
LpStep *lp_check_open_step(lua_State *L);
int lp_step_complete(lua_State *L); /* methods of steps; compile.c */
int lp_step_compile(lua_State *L);
void lp_push_origin(lua_State *L, const LpOrigin *o); /* a table; graph.c */
/* Variable number at i, from 0. */
size_t lp_check_var(lua_State *L, int i, const LpStep *s);
/* Around a reverse sweep over the step: rules of scripts run in L. Returns what
 * leave() takes. */
lua_State *lp_functions_enter(lua_State *L, LpStep *s);
void lp_functions_leave(lua_State *was);

int lp_exec_profile_method(lua_State *L); /* exec:profile; profile.c */

#endif
