/* Embeds the host for fuzz targets of readers written in Lua. Every line of
 * lua/ that runs counts as coverage: libFuzzer takes the counters of the
 * section named below beside its own. Run from the project's root. */
#include "spec/fuzz/harness/lua.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

int luaopen_lupine_core(lua_State *L);

#define COUNTERS 65536 /* lines by hash of file and number */

__attribute__((section("__libfuzzer_extra_counters"),
               used)) static uint8_t counters[COUNTERS];

static lua_State *state;

/* What targets use: refused(f, …) runs f, which may raise what scripts can
 * catch by class and nothing else; loads libraries only once. */
static const char prelude[] =
    "package.path = 'lua/?.lua;lua/?/init.lua'\n"
    "local errors = require('lupine.base.errors')\n"
    "harness = {}\n"
    "function harness.refused(f, ...)\n"
    "  local ok, e = pcall(f, ...)\n"
    "  if not ok and (not errors.Exception:is(e) or #e.message == 0\n"
    "      or e.type == 'internal_error') then\n"
    "    error('no error of a reader: ' .. tostring(e), 0)\n"
    "  end\n"
    "end\n"
    "function harness.file(bytes)\n"
    "  io.open = function()\n"
    "    return { read = function() return bytes end,\n"
    "      close = function() end }\n"
    "  end\n"
    "end\n";

static void on_line(lua_State *L, lua_Debug *ar)
{
    lua_getinfo(L, "Sl", ar);
    uint32_t h = 2166136261u;
    for (const char *p = ar->short_src; *p; p++)
        h = (h ^ (uint8_t)*p) * 16777619u;
    h = (h ^ (uint32_t)ar->currentline) * 16777619u;
    counters[(h ^ h >> 16) % COUNTERS]++;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, lua_tostring(state, -1));
    abort();
}

static void start(const char *chunk)
{
    state = luaL_newstate();
    if (!state)
        abort();
    luaL_openlibs(state);
    luaL_getsubtable(state, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(state, luaopen_lupine_core);
    lua_setfield(state, -2, "lupine.core");
    lua_settop(state, 0);
    if (luaL_dostring(state, prelude) != LUA_OK ||
        luaL_dostring(state, chunk) != LUA_OK)
        fail("the target does not start");
    lua_settop(state, 1); /* the target's function */
    lua_sethook(state, on_line, LUA_MASKLINE, 0);
}

int lp_fuzz_lua(const char *chunk, const uint8_t *data, size_t size)
{
    if (!state)
        start(chunk);
    lua_pushvalue(state, 1);
    lua_pushlstring(state, (const char *)data, size);
    if (lua_pcall(state, 1, 0, 0) != LUA_OK)
        fail("the target failed");
    return 0;
}

void lp_fuzz_collect(void)
{
    if (!state)
        return;
    lua_gc(state, LUA_GCCOLLECT);
    lua_gc(state, LUA_GCCOLLECT);
}
