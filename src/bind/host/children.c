/* Programs that a script starts: core.start_child{program, arguments,
 * environment, output}; core.wait_for_children.
 *   child:pid()
 *   child:ended()       -> exit code; nil: it runs. -1, signal: killed by that
 *   child:signal(name)  "SIGINT", "SIGTERM", "SIGKILL"
 *   child:close()       ends it; SIGKILL after ten seconds */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"
#include "src/io/child.h"

enum { MOST_WORDS = 10000 };
#define GRACE 10.0

static void child_free(void *held)
{
    lp_child_end(held, GRACE);
    lp_free(held);
}

static const LpBoxClass child_class = {"lupine.child", "child process",
                                       child_free};

/* Pushes memory with the strings of the list at t.field behind `room` free
 * places; NULL ends it. The table keeps the strings. */
static char **words(lua_State *L, int t, const char *field, size_t room)
{
    size_t n = 0;
    if (lua_getfield(L, t, field) == LUA_TTABLE)
        n = lua_rawlen(L, -1);
    if (n > MOST_WORDS)
        lp_raise(L, LP_E_VALUE, "start_child: %s: too many texts", field);
    char **out = lua_newuserdatauv(L, (room + n + 1) * sizeof *out, 0);
    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, -2, (lua_Integer)i + 1) != LUA_TSTRING)
            lp_raise(L, LP_E_TYPE, "start_child: %s: expected texts", field);
        out[room + i] = (char *)(uintptr_t)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    out[room + n] = NULL;
    return out;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* The environment of this process with other values of some names. */
static char **environment(lua_State *L, int t)
{
    size_t count = 0, at = 0;
    while (environ[count])
        count++;
    char **out = words(L, t, "environment", count);
    for (size_t i = 0; i < count; i++) {
        bool other = false;
        for (char **w = out + count; *w; w++)
            other = other || same_name(*w, environ[i]);
        if (!other)
            out[at++] = environ[i];
    }
    for (char **w = out + count; *w; w++)
        out[at++] = *w;
    out[at] = NULL;
    return out;
}

/* ({program, arguments, environment, output}) -> child */
static int start_child(lua_State *L)
{
    LpErr e = {0};
    static const char *const keys[] = {"program", "arguments", "environment",
                                       "output", NULL};
    luaL_checktype(L, 1, LUA_TTABLE);
    lp_check_keys(L, 1, "start_child", keys);
    const char *program = lp_opt_str(L, 1, "program");
    const char *output = lp_opt_str(L, 1, "output");
    if (!program || !output)
        return lp_raise(L, LP_E_TYPE,
                        "start_child: program and output are needed");
    char **argv = words(L, 1, "arguments", 0);
    char **env = environment(L, 1);
    LpBox *b = lp_new_box(L, &child_class);
    LpChild *c = lp_calloc(1, sizeof *c);
    if (!c)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    b->p = c;
    lp_must(L, lp_child_start(c, program, argv, env, output, &e), &e);
    return 1;
}

static int child_pid(lua_State *L)
{
    LpChild *c = lp_check_box(L, 1, &child_class);
    lua_pushinteger(L, c->pid);
    return 1;
}

static int child_ended(lua_State *L)
{
    LpChild *c = lp_check_box(L, 1, &child_class);
    if (!lp_child_ended(c))
        return 0;
    lua_pushinteger(L, c->code);
    lua_pushinteger(L, c->signal);
    return 2;
}

static int child_signal(lua_State *L)
{
    static const char *const names[] = {"SIGINT", "SIGTERM", "SIGKILL", NULL};
    static const int kinds[] = {SIGINT, SIGTERM, SIGKILL};
    LpChild *c = lp_check_box(L, 1, &child_class);
    lp_child_signal(c, kinds[luaL_checkoption(L, 2, NULL, names)]);
    return 0;
}

/* (list of children, seconds): until one ends or a signal comes */
static int wait_for_children(lua_State *L)
{
    LpErr e = {0};
    luaL_checktype(L, 1, LUA_TTABLE);
    double seconds = luaL_checknumber(L, 2);
    size_t n = lua_rawlen(L, 1);
    if (n > MOST_WORDS)
        return lp_raise(L, LP_E_VALUE, "wait_for_children: too many");
    lua_settop(L, 1);
    LpChild **c = lua_newuserdatauv(L, (n + 1) * sizeof *c, 0);
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, 1, (lua_Integer)i + 1);
        c[i] = lp_check_box(L, 3, &child_class);
        lua_settop(L, 2);
    }
    lp_must(L, lp_child_wait_any(c, n, seconds, &e), &e);
    return 0;
}

void lp_bind_children(lua_State *L)
{
    static const luaL_Reg methods[] = {{"pid", child_pid},
                                       {"ended", child_ended},
                                       {"signal", child_signal},
                                       {NULL, NULL}};
    lp_add_class(L, &child_class, methods);
    lp_set_function(L, "start_child", start_child);
    lp_set_function(L, "wait_for_children", wait_for_children);
}
