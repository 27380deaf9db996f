/* Calls into Lua from the host: Ctrl-C, tracebacks, and how an error that
 * nobody caught is printed.
 *
 * Ctrl-C: the signal handler raises lp_interrupt_flag, which kernels poll,
 * and sets a hook, which stops Lua code at its next instruction. Whichever
 * comes first reports; it clears the flag, and the hook finds nothing left to
 * do. A second Ctrl-C before that kills the process. */
#include "src/main.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>

#include "src/base/interrupt.h"
#include "src/base/log.h"
#include "src/bind/bind.h"

/* Frames shown at the top and at the bottom of a deep stack. */
#define HEAD 12
#define TAIL 10

static lua_State *running; /* for the signal handler */
static int host_levels;    /* of the stack below the running call */
static const char *own_folder = "";
static char traceback_key; /* registry: traceback of the last error */
static char full_key;      /* the same with lupine's own frames */

static const char *const modes[] = {"short", "full", NULL};
enum { SHORT, FULL };
static int mode = -1; /* of tracebacks; not asked yet */

void lp_host_own_folder(const char *own)
{
    own_folder = own;
}

/* --- interruption -------------------------------------------------------- */

/* Raises torch's KeyboardInterrupt if the script can know it, else a string
 * as the lua command does: a hook is no place to load modules. */
static void stop(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    if (!lp_interrupt_raised())
        return;
    lp_interrupt_clear();
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, "lupine.base.errors") == LUA_TTABLE)
        lp_raise(L, LP_E_INTERRUPT, "interrupted");
    luaL_error(L, "interrupted");
}

static void on_sigint(int sig)
{
    if (lp_interrupt_flag) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    lp_interrupt_flag = 1;
    lua_sethook(running, stop,
                LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

/* --- traceback ----------------------------------------------------------- */

/* By bisection: lua_getstack takes time linear in the level. */
static int count_levels(lua_State *L)
{
    lua_Debug ar;
    int low = 0, high = 1;
    while (lua_getstack(L, high, &ar)) {
        low = high;
        high *= 2;
    }
    while (low < high) {
        int middle = (low + high) / 2;
        if (lua_getstack(L, middle, &ar))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of lupine's Lua files, or a C function that one of them called. */
static bool is_own(lua_State *L, int level)
{
    lua_Debug ar;
    size_t n = strlen(own_folder);
    if (!n || !lua_getstack(L, level, &ar))
        return false;
    lua_getinfo(L, "S", &ar);
    if (*ar.what == 'C' && lua_getstack(L, level + 1, &ar))
        lua_getinfo(L, "S", &ar);
    return ar.source[0] == '@' && strncmp(ar.source + 1, own_folder, n) == 0;
}

static void add_frame(luaL_Buffer *b, lua_State *L, const lua_Debug *ar)
{
    if (ar->currentline > 0)
        lua_pushfstring(L, "\n\t%s:%d: in ", ar->short_src, ar->currentline);
    else
        lua_pushfstring(L, "\n\t%s: in ", ar->short_src);
    luaL_addvalue(b);
    if (*ar->namewhat && ar->name)
        lua_pushfstring(L, "%s '%s'", ar->namewhat, ar->name);
    else if (*ar->what == 'm')
        lua_pushliteral(L, "main chunk");
    else if (*ar->what == 'C')
        lua_pushliteral(L, "?");
    else
        lua_pushfstring(L, "function <%s:%d>", ar->short_src, ar->linedefined);
    luaL_addvalue(b);
}

/* Levels from `level` up to `end`, where the host's own calls begin; of a
 * deep stack only both ends. */
static void push_traceback(lua_State *L, int level, int end, bool full)
{
    int skip_from = level + HEAD, skip = end - level - HEAD - TAIL;
    int hidden = 0;
    lua_Debug ar;
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    luaL_addstring(&b, "stack traceback:");
    for (; level < end && lua_getstack(L, level, &ar); level++) {
        if (skip > 0 && level == skip_from) {
            lua_pushfstring(L, "\n\t... (%d levels)", skip);
            luaL_addvalue(&b);
            level += skip - 1;
        } else if (!full && is_own(L, level)) {
            hidden++;
        } else {
            lua_getinfo(L, "Snl", &ar);
            add_frame(&b, L, &ar);
        }
    }
    if (hidden) {
        lua_pushfstring(L,
                        "\n\t(%d inside lupine; LUPINE_TRACEBACK=full shows "
                        "them)",
                        hidden);
        luaL_addvalue(&b);
    }
    luaL_pushresult(&b);
}

/* A message on top about a value of a wrong type gets a hint, which
 * lupine.base.suggest finds while the stack still stands. */
static void suggest(lua_State *L)
{
    const char *text =
        lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
    if (!text || (!strstr(text, " value") && !strstr(text, "got torch.")))
        return;
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "lupine.base.suggest");
    lua_remove(L, -2);
    if (lua_isnil(L, -1) && strstr(text, "nil value (global '")) {
        lua_getglobal(L, "require"); /* the script may have loaded nothing */
        lua_pushliteral(L, "lupine.base.suggest");
        if (lua_pcall(L, 1, 1, 0) != LUA_OK)
            lua_pushnil(L);
    }
    lua_pushvalue(L, 1);
    if (lua_isfunction(L, -2) && lua_pcall(L, 1, 1, 0) == LUA_OK)
        lua_copy(L, -1, 1);
    lua_settop(L, 1);
}

static bool shows_all(void)
{
    if (mode < 0)
        mode = lp_env_choice("LUPINE_TRACEBACK", modes);
    return mode == FULL;
}

/* Keeps an error object as it is; the tracebacks go to the registry. */
static int handler(lua_State *L)
{
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_settop(L, 1);
    suggest(L);
    int end = count_levels(L) - host_levels;
    push_traceback(L, 1, end, true);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &full_key);
    push_traceback(L, 1, end, shows_all());
    lua_rawsetp(L, LUA_REGISTRYINDEX, &traceback_key);
    return 1;
}

/* (level, full) -> the traceback of the caller's stack from that level on, as
 * the host prints it, or with lupine's own frames; lupine/base/errors.lua keeps
 * both in the errors it makes. */
static int host_traceback(lua_State *L)
{
    int level = (int)luaL_optinteger(L, 1, 1);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    int below = L == running ? host_levels : 0; /* a coroutine has none */
    bool full = lua_toboolean(L, 2) || shows_all();
    push_traceback(L, level, count_levels(L) - below, full);
    return 1;
}

int lp_host_set_traceback(lua_State *L)
{
    if (!lua_isnoneornil(L, 1)) {
        mode = luaL_checkoption(L, 1, NULL, modes);
        return 0;
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &full_key);
    return 1;
}

void lp_host_open_traceback(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_pushcfunction(L, host_traceback);
    lua_setfield(L, -2, "lupine.host_traceback");
    lua_pop(L, 1);
}

bool lp_host_call(lua_State *L, int n, int results)
{
    struct sigaction act = {.sa_handler = on_sigint}, old;
    lua_State *outer = running;
    int base = lua_gettop(L) - n, outer_levels = host_levels;
    host_levels = count_levels(L);
    lua_pushcfunction(L, handler);
    lua_insert(L, base);
    running = L;
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &old); /* no SA_RESTART: reads return */
    int status = lua_pcall(L, n, results, base);
    sigaction(SIGINT, &old, NULL);
    running = outer;
    host_levels = outer_levels;
    lua_sethook(L, NULL, 0, 0);
    lp_interrupt_clear();
    lua_remove(L, base);
    return status == LUA_OK;
}

/* --- report -------------------------------------------------------------- */

/* (object, name) -> its string field, read as the script would; may raise. */
static const char *string_field(lua_State *L, int object, const char *name)
{
    if (!lua_istable(L, object) && !lua_isuserdata(L, object))
        return NULL;
    lua_getfield(L, object, name);
    return lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
}

/* (error) -> the text to print. Runs protected: fields and __tostring may
 * raise. */
static int describe(lua_State *L)
{
    static const char *const fields[] = {"type", "location", "recovery_action"};
    const char *text;
    lua_settop(L, 1);
    if (lua_isstring(L, 1) || luaL_getmetafield(L, 1, "__tostring")) {
        lua_settop(L, 1);
        luaL_tolstring(L, 1, NULL);
    } else if ((text = string_field(L, 1, "message")) == NULL) {
        lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    }
    lua_copy(L, -1, 2);
    lua_settop(L, 2);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        text = string_field(L, 1, fields[i]);
        bool repeated = /* the text names its origin and its context */
            i == 1 && text && strstr(lua_tostring(L, 2), text);
        if (text && *text && !repeated)
            lua_pushfstring(L, "%s\n  %s: %s", lua_tostring(L, 2), fields[i],
                            text);
        else
            lua_pushvalue(L, 2);
        lua_copy(L, -1, 2);
        lua_settop(L, 2);
    }
    text = string_field(L, 1, "frames");
    if (!text)
        text = string_field(L, 1, "traceback");
    if (!text &&
        lua_rawgetp(L, LUA_REGISTRYINDEX, &traceback_key) == LUA_TSTRING)
        text = lua_tostring(L, -1);
    if (text && *text)
        lua_pushfstring(L, "%s\n%s", lua_tostring(L, 2), text);
    else
        lua_pushvalue(L, 2);
    return 1;
}

void lp_host_report(lua_State *L, const char *program)
{
    lua_pushcfunction(L, describe);
    lua_insert(L, -2);
    const char *text = "(error object cannot be printed)";
    if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_isstring(L, -1))
        text = lua_tostring(L, -1);
    fflush(stdout);
    if (program)
        fprintf(stderr, "%s: ", program);
    fprintf(stderr, "%s\n", text);
    fflush(stderr);
    lua_pop(L, 1);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &traceback_key);
}
