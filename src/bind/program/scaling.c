/* A loss scale that the program finds: core.compile's table `scaling`. */
#include "src/bind/program/scaling.h"

#include <string.h>

#include "src/bind/module.h"

/* tracking = "all", "products" or "named" */
static LpTrack read_tracking(lua_State *L, int t)
{
#define LP_TRACK_NAME(name) #name,
    static const char *const names[] = {LP_TRACKS(LP_TRACK_NAME)};
#undef LP_TRACK_NAME
    const char *given = lp_opt_str(L, t, "tracking");
    int at = 0;
    while (at < LP_N_TRACK && strcmp(names[at], given) != 0)
        at++;
    if (at == LP_N_TRACK)
        lp_raise(L, LP_E_VALUE,
                 "tracking: got '%s'. Allowed: all, products, named", given);
    return (LpTrack)at;
}

/* names = {…}; the list stays on the stack */
static const char *const *read_names(lua_State *L, int t, int *n)
{
    if (lua_getfield(L, t, "names") == LUA_TNIL)
        return NULL;
    luaL_checktype(L, -1, LUA_TTABLE);
    int names = lua_gettop(L);
    *n = (int)luaL_len(L, names);
    const char **list =
        lua_newuserdatauv(L, ((size_t)*n + 1) * sizeof *list, 0);
    for (int i = 0; i < *n; i++) {
        if (lua_geti(L, names, i + 1) != LUA_TSTRING)
            lp_raise(L, LP_E_TYPE, "names: expected names, got a %s",
                     luaL_typename(L, -1));
        list[i] = lua_tostring(L, -1); /* stays in the table */
        lua_pop(L, 1);
    }
    return list;
}

const LpScaling *lp_read_scaling(lua_State *L, const LpStep *s, bool scales,
                                 LpScaling *out)
{
    if (lua_getfield(L, 2, "scaling") == LUA_TNIL)
        return NULL;
    luaL_checktype(L, -1, LUA_TTABLE);
    int at = lua_gettop(L);
    if (!scales)
        lp_raise(L, LP_E_VALUE, "scaling: there is no loss_scale");
    *out = (LpScaling){.factor = lp_opt_var(L, at, "factor", 0, s),
                       .counter = lp_opt_var(L, at, "counter", -1, s),
                       .tracking = read_tracking(L, at),
                       .edge = lp_opt_number(L, at, "edge", 0.125),
                       .threshold = lp_opt_number(L, at, "threshold", 1e-7),
                       .period = lp_opt_int(L, at, "period", 1)};
    out->name = read_names(L, at, &out->n_name);
    return out;
}
