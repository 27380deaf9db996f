/* The terminal: core.terminal_columns. */
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/bind/bind.h"
#include "src/bind/module.h"

/* () -> columns of the terminal that stderr is; nil if it is none */
static int terminal_columns(lua_State *L)
{
    struct winsize w = {0};
    if (!isatty(STDERR_FILENO)) {
        lua_pushnil(L);
        return 1;
    }
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    lua_pushinteger(L, known ? w.ws_col : 80);
    return 1;
}

static const luaL_Reg functions[] = {
    {"terminal_columns", terminal_columns},
    {NULL, NULL},
};

void lp_bind_terminal(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
}
