/* What the files of the host program share. */
#ifndef LP_MAIN_H
#define LP_MAIN_H

#include <stdbool.h>

#include <lua.h>

/* main_call.c. lp_host_call calls the function below its n arguments with
 * Ctrl-C armed and leaves its results, or the error value alone and returns
 * false. The error keeps its type. lp_host_report prints the error value on
 * top of the stack, with its fields and the traceback of the place where it
 * was raised, and pops it. Frames of files below `own` (the folder of
 * lupine's Lua files; borrowed) are left out of tracebacks unless
 * LUPINE_TRACEBACK=full. lp_host_open_traceback gives such tracebacks to Lua as
 * require("lupine.host_traceback"). */
bool lp_host_call(lua_State *L, int n, int results);
void lp_host_report(lua_State *L, const char *program);
void lp_host_own_folder(const char *own);
void lp_host_open_traceback(lua_State *L);

/* (mode "full" or "short" of tracebacks from now on, or nothing: -> the last
 * error's, with lupine's own frames, or nil) */
int lp_host_set_traceback(lua_State *L);

/* main_edit.c: pushes the table that lua/lupine/repl.lua gets. */
void lp_host_push_terminal(lua_State *L);
void lp_host_close_terminal(void);

/* main_heap.c: what L lets go of small blocks is used again. */
void lp_host_keep_blocks(lua_State *L);

#endif
