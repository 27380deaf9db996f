/* torch.Generator: a random state of its own. A call with {generator = g} runs
 * on g's state, which moves on, and leaves the global one as it was. */
#include <string.h>
#include <time.h>

#include "src/bind/call/call.h"
#include "src/bind/module.h"

const char lp_tag_generator = 'g';
static const char key_generator;

static LpGenerator *check(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &lp_tag_generator);
    char what[LP_DESCRIBE];
    if (!b)
        lp_raise(L, LP_E_TYPE, "expected a torch.Generator, not %s",
                 lp_describe(L, 1, what));
    return (LpGenerator *)(void *)b;
}

static int generator_new(lua_State *L)
{
    LpDevice d = LP_DEV_CPU;
    if (!lua_isnoneornil(L, 1) && (!lp_to_device(L, 1, &d) || d != LP_DEV_CPU))
        return lp_raise(L, LP_E_RUNTIME,
                        "torch.Generator(): the device must be 'cpu'");
    LpGenerator *g = lua_newuserdatauv(L, sizeof *g, 0);
    *g = (LpGenerator){.box = {&lp_tag_generator, NULL},
                       .state = {67280421310721u, 0}};
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_generator);
    lua_setmetatable(L, -2);
    return 1;
}

static int manual_seed(lua_State *L)
{
    LpGenerator *g = check(L);
    if (!lua_isinteger(L, 2))
        return lp_raise(L, LP_E_TYPE,
                        "manual_seed(): the seed must be an integer");
    g->state[0] = (uint64_t)lua_tointeger(L, 2);
    g->state[1] = 0;
    lua_settop(L, 1);
    return 1;
}

LP_GETTER(initial_seed, integer, (lua_Integer)check(L)->state[0])

/* A seed from the clock; returns it. */
static uint64_t clock_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int seed(lua_State *L)
{
    LpGenerator *g = check(L);
    g->state[0] = clock_seed();
    g->state[1] = 0;
    lua_pushinteger(L, (lua_Integer)g->state[0]);
    return 1;
}

static int global_seed(lua_State *L)
{
    uint64_t s = clock_seed();
    lp_manual_seed(s);
    lua_pushinteger(L, (lua_Integer)s);
    return 1;
}

static int get_state(lua_State *L)
{
    lp_push_rng_state(L, check(L)->state);
    return 1;
}

static int set_state(lua_State *L)
{
    LpGenerator *g = check(L);
    lp_check_rng_state(L, 2, g->state);
    lua_settop(L, 1);
    return 1;
}

static const luaL_Reg methods[] = {
    {"manual_seed", manual_seed},
    {"initial_seed", initial_seed},
    {"seed", seed},
    {"get_state", get_state},
    {"set_state", set_state},
    {NULL, NULL},
};

/* core.Generator, core.seed */
void lp_bind_generator(lua_State *L)
{
    lua_newtable(L);
    lp_set_string(L, "__name", "torch.Generator");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_generator);
    lp_set_function(L, "Generator", generator_new);
    lp_set_function(L, "seed", global_seed);
}
