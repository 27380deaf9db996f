/* Files and the terminal: core.read_idx, core.terminal_columns. */
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/bind/bind.h"
#include "src/bind/module.h"
#include "src/io/idx.h"

/* (path) -> tensor */
static int read_idx(lua_State *L)
{
    char what[LP_DESCRIBE];
    LpErr e = {0};
    LpTensor *t = NULL;
    if (lua_type(L, 1) != LUA_TSTRING)
        return lp_raise(L, LP_E_TYPE, "read_idx(): path: expected str, got %s",
                        lp_describe(L, 1, what));
    const char *path = lua_tostring(L, 1);
    LpBox *box = lp_push_box(L);
    int tries = 0;
    while (lp_idx_read(path, &t, &e) != LP_OK)
        if (!lp_gc_retry(L, &e, &tries))
            return lp_bind_fail(L, &e);
    box->p = t;
    lp_gc_account(L);
    return 1;
}

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
    {"read_idx", read_idx},
    {"terminal_columns", terminal_columns},
    {NULL, NULL},
};

void lp_bind_io(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
}
