/* What every binding file offers: a function that adds its entries to the
 * core table on top of the stack and leaves the stack as it was. A new file
 * adds its prototype here and its line in module.c. */
#ifndef LP_BIND_MODULE_H
#define LP_BIND_MODULE_H

#include <lua.h>

void lp_bind_host(lua_State *L); /* cpu, threads, log: host.c */

int luaopen_lupine_core(lua_State *L);

#endif
