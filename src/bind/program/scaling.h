/* A loss scale that the program finds, from a table (scaling.c). */
#ifndef LP_BIND_PROGRAM_SCALING_H
#define LP_BIND_PROGRAM_SCALING_H

#include "src/bind/program/program.h"
#include "src/passes/compile.h"

/* A variable's number in the table at t, `least` or more; -1: none. */
int lp_opt_var(lua_State *L, int t, const char *key, int least,
               const LpStep *s);
/* scaling = {factor=var, counter=var, tracking=, names={…}, edge=, threshold=,
 * period=} of the table at index 2, NULL: none; what *out points to stays on
 * the stack. `scales`: there is a loss scale. */
const LpScaling *lp_read_scaling(lua_State *L, const LpStep *s, bool scales,
                                 LpScaling *out);

#endif
