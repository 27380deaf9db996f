/* The error bridge: an LpErr becomes an object of the classes in torch.errors,
 * made by errors.new(class, type, message, location), which also finds the
 * script's line. The location is the record's context, if it has one. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/base/interrupt.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"
#include "src/ir/op.h"

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
    lua_pushliteral(L, "lupine.base.errors");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "new");
    lua_pushstring(L, lp_status_class(e->code));
    lua_pushstring(L, lp_status_type(e->code));
    lua_pushstring(L, e->msg);
    lua_pushstring(L, e->context[0] ? e->context : NULL);
    lua_call(L, 4, 1);
    lp_set_string(L, "hint", e->hint);
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

/* Puts "NAME" and `between` in the place of the first n bytes. */
static void rename_start(LpErr *e, size_t n, const char *name,
                         const char *between)
{
    char rest[sizeof e->msg];
    memcpy(rest, e->msg + n, strlen(e->msg + n) + 1);
    snprintf(e->msg, sizeof e->msg, "%.63s%.40s%.*s", name, between,
             (int)(sizeof rest - 104), rest);
}

/* The form's one argument that names dimensions, or NULL. */
static const char *dim_argument(const LpForm *f)
{
    const char *found = NULL;
    for (int i = 0; i < f->n_args; i++)
        if (strncmp(f->arg[i].name, "dim", 3) == 0) {
            if (found)
                return NULL;
            found = f->arg[i].name;
        }
    return found;
}

/* "gather: …" of an operator that the called one was made into -> "NAME: …". */
static void name_called(LpErr *e, const LpForm *f)
{
    char inner[64];
    size_t n = strspn(e->msg, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (e->code == LP_E_LUA || f->name[0] == '_' || n == 0 ||
        n >= sizeof inner || strncmp(e->msg + n, ": ", 2) != 0)
        return;
    memcpy(inner, e->msg, n);
    inner[n] = '\0';
    if (strcmp(inner, f->name) != 0 && lp_op_find(inner))
        rename_start(e, n, f->name, "");
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The word, or with the end `_` of methods in place. */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = text; (s = strstr(s, word)) != NULL; s += n)
        if ((s == text || !in_word(s[-1])) && !in_word(s[n + (s[n] == '_')]))
            return true;
    return false;
}

/* Is it about the arguments, and silent on what was called? */
static bool is_anonymous(const LpErr *e, const LpForm *f)
{
    bool arguments = e->code == LP_E_RUNTIME || e->code == LP_E_TYPE ||
                     e->code == LP_E_VALUE || e->code == LP_E_INDEX ||
                     e->code == LP_E_NOT_IMPLEMENTED;
    return arguments && f->name[0] != '_' && !has_word(e->msg, f->name);
}

int lp_bind_fail_in(lua_State *L, LpErr *e, const LpForm *f)
{
    const char *dim = dim_argument(f);
    if (e->code == LP_E_INDEX && strncmp(e->msg, "dimension ", 10) == 0) {
        char between[40] = "(): ";
        if (dim)
            snprintf(between, sizeof between, "(): argument '%.20s': ", dim);
        rename_start(e, 0, f->name, between);
    } else {
        name_called(e, f);
        if (is_anonymous(e, f))
            rename_start(e, 0, f->name, "(): ");
    }
    return lp_bind_fail(L, e);
}

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

/* Damerau-Levenshtein distance (a swap of neighbours counts one), case
 * ignored, cut at words of 63 letters. */
static int distance(const char *a, const char *b)
{
    int m = (int)strlen(a), n = (int)strlen(b), d[3][64];
    if (n > 63 || m > 63)
        return 64;
    for (int j = 0; j <= n; j++)
        d[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *row = d[i % 3], *last = d[(i + 2) % 3], *before = d[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int ca = lower(a[i - 1]), cb = lower(b[j - 1]);
            int best = last[j - 1] + (ca != cb);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && ca == lower(b[j - 2]) &&
                lower(a[i - 2]) == cb && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return d[m % 3][n];
}

/* A quarter of the letters may differ, one at least; of words of three or
 * fewer only one that is not the first. Of equally near ones the first whose
 * case is the word's. */
const char *lp_nearest(const char *word, const char *const *names, int n)
{
    const char *found = NULL;
    int length = (int)strlen(word), best = length < 4 ? 1 : length / 4;
    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        if (length < 4 && lower(*word) != lower(*names[i]))
            continue;
        bool same_case = *names[i] == *word && found && *found != *word;
        if (d <= best && (!found || d < best || same_case)) {
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
    lp_set_function(L, "nearest", nearest);
}
