/* Files of named tensors from Lua: what files.c and cache.c share. */
#ifndef LP_BIND_HOST_HOST_H
#define LP_BIND_HOST_HOST_H

#include "src/bind/bind.h"
#include "src/io/file.h"

typedef LpStatus (*LpReadNamed)(const char *path, LpNamed *out, LpErr *e);

/* The path at i; raises for what is none. `fn` is for messages. */
const char *lp_check_path(lua_State *L, int i, const char *fn);
/* (path) -> names, tensors (false for none), texts */
int lp_read_named(lua_State *L, const char *fn, LpReadNamed read);
/* Names and tensors at 2 and 3, lists of equal length; texts at 4 or nil. The
 * stack keeps the list. */
LpNamed *lp_take_named(lua_State *L, const char *fn);

#endif
