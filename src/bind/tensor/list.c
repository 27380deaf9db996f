/* Lists that a script gets (parts of a tensor, parameters, groups, samples):
 * Lua tables with a metatable that only answers what the table does not hold,
 * so that #, ipairs, pairs and table.* are those of any table. Position 0, a
 * habit from Python, is an error instead of nil, and negative ones count from
 * the end as in torch.Size. getmetatable says false: to Lua code that asks, the
 * table is a plain one. What tolist gives is no such list: of numbers
 * `row[i - 1] or 0` is an idiom. */
#include "src/bind/bind.h"
#include "src/bind/module.h"

static const char key_list;

/* (list, key): what the table does not hold. Of an empty one nothing is an
 * error: table.remove reads position 0 there. */
static int list_index(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1), i = lua_tointeger(L, 2);
    if (!lua_isinteger(L, 2) || n == 0 || i > n)
        return 0;
    if (i == 0 || i < -n)
        return lp_raise(L, LP_E_INDEX,
                        "position %lld of a list of %lld: lists count from 1, "
                        "or from the end, -1 (tensors and dimensions count "
                        "from 0)",
                        (long long)i, (long long)n);
    lua_rawgeti(L, 1, i < 0 ? n + 1 + i : i);
    return 1;
}

void lp_mark_list(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_list);
    lua_setmetatable(L, -2);
}

/* (table) -> the same table, a list from now on */
static int list_new(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lp_mark_list(L);
    return 1;
}

bool lp_is_list(lua_State *L, int i)
{
    if (lua_type(L, i) != LUA_TTABLE || !lua_getmetatable(L, i))
        return false;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_list);
    bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same;
}

/* core.list */
void lp_bind_list(lua_State *L)
{
    lua_createtable(L, 0, 2);
    lp_set_bool(L, "__metatable", 0);
    lp_set_function(L, "__index", list_index);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_list);
    lp_set_function(L, "list", list_new);
}
