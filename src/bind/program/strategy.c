/* The rules of execution strategies, as front ends ask for them; a strategy is
 * named as in core.plan. Places are {name=, stage=, ipu=, phase=}.
 *
 *   core.strategy.default_ipu(kind, stage, phase) -> ipu
 *   core.strategy.check_place(kind, place)
 *   core.strategy.check_pair(kind, place, later)
 *   core.strategy.check_read(kind, reader, maker)
 *   core.strategy.check_batches(kind, stages, training, have)
 *   core.strategy.num_ipus(highest, replicas, hardware, round)
 *     -> reserved, needed */
#include "src/passes/ipu/strategy.h"
#include "src/bind/box.h"
#include "src/bind/module.h"

static const LpStrategyOps *check_strategy(lua_State *L)
{
    return lp_strategy_find(
        lp_strategy_names[luaL_checkoption(L, 1, NULL, lp_strategy_names)]);
}

static LpBlockLocation check_place(lua_State *L, int t)
{
    luaL_checktype(L, t, LUA_TTABLE);
    return (LpBlockLocation){.name = lp_opt_str(L, t, "name"),
                             .stage = (int)lp_opt_int(L, t, "stage", 0),
                             .ipu = (int)lp_opt_int(L, t, "ipu", 0),
                             .phase = (int)lp_opt_int(L, t, "phase", 0)};
}

typedef LpStatus (*LpPairRule)(const LpBlockLocation *a,
                               const LpBlockLocation *b, LpErr *e);

static int result(lua_State *L, LpStatus s, LpErr *e)
{
    return s == LP_OK ? 0 : lp_bind_fail(L, e);
}

static int rule_default_ipu(lua_State *L)
{
    const LpStrategyOps *o = check_strategy(L);
    int stage = (int)luaL_checkinteger(L, 2);
    int phase = (int)luaL_checkinteger(L, 3);
    lua_pushinteger(L, o->default_ipu ? o->default_ipu(stage, phase) : stage);
    return 1;
}

static int rule_place(lua_State *L)
{
    LpErr e = {0};
    const LpStrategyOps *o = check_strategy(L);
    LpBlockLocation p = check_place(L, 2);
    return result(L, o->check_place ? o->check_place(&p, &e) : LP_OK, &e);
}

/* Of two places. */
static int check_two(lua_State *L, LpPairRule rule)
{
    LpErr e = {0};
    LpBlockLocation a = check_place(L, 2), b = check_place(L, 3);
    return result(L, rule ? rule(&a, &b, &e) : LP_OK, &e);
}

static int rule_pair(lua_State *L)
{
    return check_two(L, check_strategy(L)->check_pair);
}

static int rule_read(lua_State *L)
{
    return check_two(L, check_strategy(L)->check_read);
}

static int rule_batches(lua_State *L)
{
    LpErr e = {0};
    const LpStrategyOps *o = check_strategy(L);
    int stages = (int)luaL_checkinteger(L, 2);
    int64_t have = luaL_checkinteger(L, 4);
    if (!o->check_batches)
        return 0;
    return result(L, o->check_batches(stages, lua_toboolean(L, 3), have, &e),
                  &e);
}

static int rule_ipus(lua_State *L)
{
    LpErr e = {0};
    int64_t reserved = 0, need = 0;
    int highest = (int)luaL_checkinteger(L, 1);
    LpStatus s =
        lp_ipus_reserved(highest, luaL_checkinteger(L, 2), lua_toboolean(L, 3),
                         lua_toboolean(L, 4), &reserved, &need, &e);
    lp_must(L, s, &e);
    lua_pushinteger(L, reserved);
    lua_pushinteger(L, need);
    return 2;
}

void lp_bind_strategy(lua_State *L)
{
    static const luaL_Reg rules[] = {{"default_ipu", rule_default_ipu},
                                     {"check_place", rule_place},
                                     {"check_pair", rule_pair},
                                     {"check_read", rule_read},
                                     {"check_batches", rule_batches},
                                     {"num_ipus", rule_ipus},
                                     {NULL, NULL}};
    luaL_newlib(L, rules);
    lp_set_int(L, "most_ipus", LP_MAX_IPUS);
    lua_setfield(L, -2, "strategy");
}
