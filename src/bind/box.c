/* Userdata that hold one pointer, and fields of option tables; see box.h. */
#include "src/bind/box.h"

#include "src/base/mem.h"

LpBox *lp_new_box(lua_State *L, const void *tag, const char *name)
{
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 1);
    b->tag = tag;
    b->p = NULL;
    luaL_setmetatable(L, name);
    return b;
}

void *lp_check_box(lua_State *L, int i, const void *tag, const char *what)
{
    LpBox *b = lp_to_box(L, i, tag);
    if (!b || !b->p)
        lp_raise(L, LP_E_TYPE, "expected a %s that is still open", what);
    return b->p;
}

int64_t lp_opt_int(lua_State *L, int t, const char *key, int64_t def)
{
    lua_getfield(L, t, key);
    int64_t v = lua_isnil(L, -1) ? def : luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    return v;
}

const char *lp_opt_str(lua_State *L, int t, const char *key)
{
    lua_getfield(L, t, key);
    const char *s = luaL_optstring(L, -1, "");
    lua_pop(L, 1); /* the table keeps it alive */
    return s;
}

bool lp_opt_bool(lua_State *L, int t, const char *key, bool def)
{
    lua_getfield(L, t, key);
    bool b = lua_isnil(L, -1) ? def : lua_toboolean(L, -1);
    lua_pop(L, 1);
    return b;
}

void lp_add_class(lua_State *L, const char *name, const luaL_Reg *m)
{
    luaL_newmetatable(L, name);
    luaL_setfuncs(L, m, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

/* ---- strings ------------------------------------------------------------ */
static const char tag_text = 't';

static int text_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_text);
    if (b) {
        lp_free(b->p);
        b->p = NULL;
    }
    return 0;
}

LpBox *lp_new_text(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__gc", text_gc}, {NULL, NULL}};
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 0);
    *b = (LpBox){.tag = &tag_text};
    if (luaL_newmetatable(L, "lupine.text"))
        luaL_setfuncs(L, meta, 0);
    lua_setmetatable(L, -2);
    return b;
}

void lp_push_text(lua_State *L, LpBox *text)
{
    lua_pushstring(L, text->p ? text->p : "");
    lp_free(text->p);
    text->p = NULL;
}
