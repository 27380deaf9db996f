/* What front ends ask execution strategies for before there is a plan; a
 * strategy is named as in core.plan.
 *
 *   core.strategy.default_ipu(kind, stage, phase) -> ipu
 *   core.strategy.most_ipus    of one process */
#include "src/passes/ipu/strategy.h"
#include "src/bind/box.h"
#include "src/bind/module.h"

static const LpStrategyOps *check_strategy(lua_State *L)
{
    return lp_strategy_find(
        lp_strategy_names[luaL_checkoption(L, 1, NULL, lp_strategy_names)]);
}

static int rule_default_ipu(lua_State *L)
{
    const LpStrategyOps *o = check_strategy(L);
    int stage = (int)luaL_checkinteger(L, 2);
    int phase = (int)luaL_checkinteger(L, 3);
    lua_pushinteger(L, o->default_ipu ? o->default_ipu(stage, phase) : stage);
    return 1;
}

void lp_bind_strategy(lua_State *L)
{
    lua_newtable(L);
    lp_set_function(L, "default_ipu", rule_default_ipu);
    lp_set_int(L, "most_ipus", LP_MAX_IPUS);
    lua_setfield(L, -2, "strategy");
}
