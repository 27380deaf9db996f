/* lupine: the host program. Runs a Lua script with the core built in. */
#include <stdio.h>
#include <stdlib.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "src/bind/module.h"

static void set_path(lua_State *L)
{
    char exe[4096];
    if (!realpath("/proc/self/exe", exe))
        return;
    char *slash = NULL, *last = NULL;
    for (char *p = exe; *p; p++)
        if (*p == '/') {
            slash = last;
            last = p;
        }
    if (slash)
        *slash = '\0';
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "path");
    lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;%s", exe, exe,
                    lua_tostring(L, -1));
    lua_setfield(L, -3, "path");
    lua_settop(L, 0);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, luaopen_lupine_core);
    lua_setfield(L, -2, "lupine.core");
    lua_settop(L, 0);
}

int main(int argc, char **argv)
{
    lua_State *L = luaL_newstate();
    if (!L || argc < 2)
        return 1;
    luaL_openlibs(L);
    set_path(L);
    lua_createtable(L, argc, 1);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - 1);
    }
    lua_setglobal(L, "arg");
    int n = 0;
    int failed = luaL_loadfile(L, argv[1]);
    for (int i = 2; !failed && i < argc; i++, n++)
        lua_pushstring(L, argv[i]);
    if (failed || lua_pcall(L, n, 0, 0)) {
        fprintf(stderr, "lupine: %s\n", luaL_tolstring(L, -1, NULL));
        failed = 1;
    }
    lua_close(L);
    return failed;
}
