/* The error bridge: an LpErr becomes an object of the classes in torch.errors,
 * made by errors.new(class, type, message, location), which also finds the
 * script's line. The location is the record's context, if it has one. */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"

static const char key_kept; /* registry: the value of a failed callback */

LpStatus lp_bind_keep_error(lua_State *L, LpErr *err)
{
    const char *text = luaL_tolstring(L, -1, NULL);
    LpStatus st = lp_fail(err, LP_E_LUA, "%s", text);
    lua_pop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_kept);
    return st;
}

int lp_bind_fail(lua_State *L, const LpErr *e)
{
    luaL_checkstack(L, 8, NULL);
    if (e->code == LP_E_LUA &&
        lua_rawgetp(L, LUA_REGISTRYINDEX, &key_kept) != LUA_TNIL) {
        lua_pushnil(L);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &key_kept);
        return lua_error(L);
    }
    if (e->code == LP_E_INTERRUPT)
        lp_interrupt_clear(); /* it is being reported */
    lua_getglobal(L, "require");
    lua_pushliteral(L, "torch.errors");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "new");
    lua_pushstring(L, lp_status_class(e->code));
    lua_pushstring(L, lp_status_type(e->code));
    lua_pushstring(L, e->msg);
    lua_pushstring(L, e->context[0] ? e->context : NULL);
    lua_call(L, 4, 1);
    return lua_error(L);
}

int lp_bind_rethrow(lua_State *L)
{
    return lua_error(L);
}

int lp_raise(lua_State *L, LpStatus code, const char *fmt, ...)
{
    LpErr e = {0};
    va_list ap;
    va_start(ap, fmt);
    lp_vfail(&e, code, fmt, ap);
    va_end(ap);
    return lp_bind_fail(L, &e);
}

/* Levenshtein distance, cut at words of 63 letters. */
static int distance(const char *a, const char *b)
{
    int n = (int)strlen(b), row[64];
    if (n > 63 || strlen(a) > 63)
        return 64;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

const char *lp_nearest(const char *word, const char *const *names, int n)
{
    const char *found = NULL;
    int best = 1 + (int)strlen(word) / 3;
    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        if (d <= best && (!found || d < best)) {
            best = d;
            found = names[i];
        }
    }
    return found;
}

/* nearest(word, list of names) -> name or nil */
static int nearest(lua_State *L)
{
    const char *word = luaL_checkstring(L, 1), *names[2048];
    luaL_checktype(L, 2, LUA_TTABLE);
    int n = (int)lua_rawlen(L, 2), k = 0;
    for (int i = 1; i <= n && k < 2048; i++) {
        if (lua_rawgeti(L, 2, i) == LUA_TSTRING)
            names[k++] = lua_tostring(L, -1); /* the list keeps it */
        lua_pop(L, 1);
    }
    lua_pushstring(L, lp_nearest(word, names, k));
    return 1;
}

void lp_bind_error(lua_State *L)
{
    lua_pushcfunction(L, nearest);
    lua_setfield(L, -2, "nearest");
}
