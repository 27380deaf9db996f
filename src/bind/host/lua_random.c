/* The state of Lua's own random numbers, which math.random has no function
 * for: four words in a userdata that is its first upvalue (the mathlib of Lua
 * 5.4, setseed and RanState). */
#include <string.h>

#include "src/bind/bind.h"
#include "src/bind/module.h"

#define STATE (4 * sizeof(uint64_t))

/* Pushes math.random's state. */
static void *state_of(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "math");
    bool found = lua_istable(L, -1) &&
                 lua_getfield(L, -1, "random") == LUA_TFUNCTION &&
                 lua_getupvalue(L, -1, 1) != NULL &&
                 lua_type(L, -1) == LUA_TUSERDATA && lua_rawlen(L, -1) == STATE;
    if (!found)
        lp_raise(L, LP_E_RUNTIME,
                 "lua_random(): math.random is not that of "
                 "Lua 5.4: its state cannot be had");
    return lua_touserdata(L, -1);
}

/* () -> the state, a tensor of bytes; (state) goes on from there */
static int lua_random(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) {
        void *state = state_of(L);
        LpType type = {.dtype = LP_U8, .ndim = 1, .shape = {STATE}};
        memcpy(lp_tensor_data(lp_new_tensor(L, &type)), state, STATE);
        return 1;
    }
    LpTensor *t = lp_check_tensor(L, 1, "lua_random", "state");
    if (t->dtype != LP_U8 || lp_tensor_numel(t) != (int64_t)STATE ||
        !lp_tensor_contiguous(t))
        lp_raise(L, LP_E_TYPE,
                 "lua_random(): the state must be a tensor that lua_random() "
                 "gave");
    const void *from = lp_read_tensor(L, t);
    memcpy(state_of(L), from, STATE);
    return 0;
}

static const luaL_Reg functions[] = {{"lua_random", lua_random}, {NULL, NULL}};

void lp_bind_lua_random(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
}
