/* The Lua module lupine.core: one table of C functions. Each binding file
 * offers one function that adds its entries to the table on top of the stack;
 * they are listed here and nowhere else. */
#include "src/bind/module.h"

#include <stddef.h>

#include <lauxlib.h>

#include "src/base/log.h"

#ifndef LP_VERSION
#error "LP_VERSION comes from the Makefile"
#endif

typedef void (*Binder)(lua_State *L);

/* One line a binding file; order matters only where one needs another's
 * metatable. */
static const Binder binders[] = {
    lp_bind_host,     lp_bind_error,      lp_bind_value,      lp_bind_list,
    lp_bind_forms,    lp_bind_keep,       lp_bind_tensor,     lp_bind_create,
    lp_bind_convert,  lp_bind_state,      lp_bind_generator,  lp_bind_form_list,
    lp_bind_trace,    lp_bind_step,       lp_bind_exec,       lp_bind_graph,
    lp_bind_files,    lp_bind_simulation, lp_bind_hook,       lp_bind_ops,
    lp_bind_json,     lp_bind_function,   lp_bind_worker,     lp_bind_profile,
    lp_bind_strategy, lp_bind_body,       lp_bind_compile,    lp_bind_host_call,
    lp_bind_devices,  lp_bind_cache,      lp_bind_library,    lp_bind_onnx,
    lp_bind_step_io,  lp_bind_folders,    lp_bind_lua_random, lp_bind_text,
    lp_bind_signals,  lp_bind_children,
};

int luaopen_lupine_core(lua_State *L)
{
    luaL_checkversion(L);
    lp_log_level(); /* which tells what is wrong in the environment */
    lua_newtable(L);
    lua_pushliteral(L, LP_VERSION);
    lua_setfield(L, -2, "version");
    for (size_t i = 0; i < sizeof binders / sizeof *binders; i++)
        binders[i](L);
    return 1;
}
