/* Userdata that hold one pointer, and fields of option tables; see box.h. */
#include "src/bind/box.h"

#include <string.h>

#include "src/base/mem.h"

/* Upvalue: the class. */
static int box_free(lua_State *L)
{
    const LpBoxClass *c = lua_touserdata(L, lua_upvalueindex(1));
    LpBox *b = lp_to_box(L, 1, c);
    if (b && b->p) {
        c->free(b->p);
        b->p = NULL;
    }
    return 0;
}

static void push_class(lua_State *L, const LpBoxClass *c)
{
    static const luaL_Reg ends[] = {{"__gc", box_free},
                                    {"__close", box_free},
                                    {"close", box_free},
                                    {NULL, NULL}};
    if (luaL_newmetatable(L, c->name)) {
        lua_pushlightuserdata(L, (void *)(uintptr_t)c);
        luaL_setfuncs(L, ends, 1);
    }
}

LpBox *lp_new_box(lua_State *L, const LpBoxClass *c)
{
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 1);
    *b = (LpBox){.tag = c};
    push_class(L, c);
    lua_setmetatable(L, -2);
    return b;
}

void *lp_check_box(lua_State *L, int i, const LpBoxClass *c)
{
    LpBox *b = lp_to_box(L, i, c);
    if (!b || !b->p)
        lp_raise(L, LP_E_TYPE, "expected a %s that is still open", c->what);
    return b->p;
}

/* The value on top is not what the field has. */
static void wrong_field(lua_State *L, const char *key, const char *expected)
{
    lp_raise(L, LP_E_TYPE, "%s: expected %s, got %s", key, expected,
             luaL_tolstring(L, -1, NULL));
}

int64_t lp_opt_int(lua_State *L, int t, const char *key, int64_t def)
{
    int fine = 1;
    lua_getfield(L, t, key);
    int64_t v = lua_isnil(L, -1) ? def : lua_tointegerx(L, -1, &fine);
    if (!fine)
        wrong_field(L, key, "a whole number");
    lua_pop(L, 1);
    return v;
}

double lp_opt_number(lua_State *L, int t, const char *key, double def)
{
    lua_getfield(L, t, key);
    int fine = 1;
    double v = lua_isnil(L, -1) ? def : lua_tonumberx(L, -1, &fine);
    if (!fine)
        wrong_field(L, key, "a number");
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

void lp_check_keys(lua_State *L, int t, const char *whose,
                   const char *const *keys)
{
    luaL_checktype(L, t, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
        int n = 0;
        bool known = false;
        const char *key = luaL_tolstring(L, -2, NULL);
        for (; keys[n] && !known; n++)
            known = strcmp(key, keys[n]) == 0;
        if (known && lua_type(L, -3) == LUA_TSTRING) {
            lua_pop(L, 1);
            continue;
        }
        while (keys[n])
            n++;
        const char *near = lp_nearest(key, keys, n);
        lp_raise(L, LP_E_VALUE, "%s: no option '%s'%s%s%s", whose, key,
                 near ? ", did you mean '" : "", near ? near : "",
                 near ? "'?" : "");
    }
}

int lp_opt_choice(lua_State *L, int t, const char *key,
                  const char *const *names, int def)
{
    int v = 0, kind = lua_getfield(L, t, key);
    const char *name = kind == LUA_TSTRING ? lua_tostring(L, -1) : "";
    while (kind != LUA_TNIL && names[v] && strcmp(names[v], name) != 0)
        v++;
    if (!names[v]) {
        luaL_Buffer b;
        const char *got = luaL_tolstring(L, -1, NULL);
        luaL_buffinit(L, &b);
        for (int i = 0; names[i]; i++) {
            luaL_addstring(&b, i == 0 ? "" : names[i + 1] ? ", " : " or ");
            luaL_addstring(&b, names[i]);
        }
        luaL_pushresult(&b);
        lp_raise(L, LP_E_VALUE, "%s: expected %s, got '%s'", key,
                 lua_tostring(L, -1), got);
    }
    lua_pop(L, 1);
    return kind == LUA_TNIL ? def : v;
}

bool lp_opt_bool(lua_State *L, int t, const char *key, bool def)
{
    lua_getfield(L, t, key);
    bool b = lua_isnil(L, -1) ? def : lua_toboolean(L, -1);
    if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
        wrong_field(L, key, "true or false");
    lua_pop(L, 1);
    return b;
}

void lp_add_class(lua_State *L, const LpBoxClass *c, const luaL_Reg *m)
{
    push_class(L, c);
    luaL_setfuncs(L, m, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

void *lp_new_owned(lua_State *L, size_t size, const char *name,
                   lua_CFunction gc)
{
    void *p = memset(lua_newuserdatauv(L, size, 0), 0, size);
    if (luaL_newmetatable(L, name))
        lp_set_function(L, "__gc", gc);
    lua_setmetatable(L, -2);
    return p;
}

/* ---- strings ------------------------------------------------------------ */
const char *lp_check_text(lua_State *L, const char *whose)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    if (strlen(text) != n)
        lp_raise(L, LP_E_PARSE, "%s text has no byte 0", whose);
    return text;
}

LpBox *lp_new_text(lua_State *L)
{
    static const LpBoxClass class = {"lupine.text", "text", lp_free};
    return lp_new_box(L, &class);
}

void lp_push_text(lua_State *L, LpBox *text)
{
    lua_pushstring(L, text->p ? text->p : "");
    lp_free(text->p);
    text->p = NULL;
}

void lp_push_names(lua_State *L, const char *const *name)
{
    lua_newtable(L);
    for (int i = 0; name[i]; i++) {
        lua_pushstring(L, name[i]);
        lua_rawseti(L, -2, i + 1);
    }
}
