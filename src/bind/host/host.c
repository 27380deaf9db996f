/* core.host: what the machine offers, what the log does; the terminal's
 * columns. */
#include <cblas.h>
#include <jansson.h>
#include <limits.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "src/base/cpu.h"
#include "src/base/log.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"

static int host_cpu(lua_State *L)
{
    lua_createtable(L, 0, 5);
    lp_set_string(L, "name", lp_cpu_name());
    lp_set_string(L, "simd", lp_simd_name(lp_cpu_simd()));
    lp_set_bool(L, "avx512_bf16", lp_cpu_has_avx512_bf16());
    lp_set_bool(L, "amx", lp_cpu_has_amx());
    lp_set_int(L, "threads", lp_cpu_threads());
    return 1;
}

static LpLogLevel check_level(lua_State *L, int arg)
{
    LpLogLevel level;
    const char *name = luaL_checkstring(L, arg);
    if (!lp_log_level_find(name, &level))
        luaL_error(L,
                   "bad argument #%d (log level '%s'; allowed are trace, "
                   "debug, info, warn, err, off)",
                   arg, name);
    return level;
}

static int host_log(lua_State *L)
{
    LpLogLevel level = check_level(L, 1);
    const char *line = luaL_checkstring(L, 2);
    if (lua_isnoneornil(L, 3))
        lp_log(level, "%s", line);
    else
        lp_log_as(luaL_checkstring(L, 3), level, line);
    return 0;
}

static int host_log_to(lua_State *L)
{
    LpErr e = {0};
    lp_must(L, lp_log_to(lp_check_path(L, 1, "log_to"), &e), &e);
    return 0;
}

static int host_log_copy(lua_State *L)
{
    LpErr e = {0};
    const char *path =
        lua_isnoneornil(L, 1) ? NULL : lp_check_path(L, 1, "log_copy");
    lp_must(L, lp_log_copy(path, &e), &e);
    return 0;
}

static int host_log_level(lua_State *L)
{
    lua_pushstring(L, lp_log_level_name(lp_log_level()));
    if (!lua_isnoneornil(L, 1))
        lp_log_set_level(check_level(L, 1));
    return 1;
}

/* Seconds on a clock that only goes forward. */
static int host_clock(lua_State *L)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    lua_pushnumber(L, (lua_Number)t.tv_sec + (lua_Number)t.tv_nsec * 1e-9);
    return 1;
}

/* Seconds since 1970. */
static int host_time(lua_State *L)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    lua_pushnumber(L, (lua_Number)t.tv_sec + (lua_Number)t.tv_nsec * 1e-9);
    return 1;
}

/* () -> {pid, host, folder}: this process, its machine's name, where it is */
static int host_process(lua_State *L)
{
    char text[PATH_MAX] = "";
    lua_createtable(L, 0, 3);
    lp_set_int(L, "pid", getpid());
    if (gethostname(text, sizeof text - 1) == 0)
        lp_set_string(L, "host", text);
    if (getcwd(text, sizeof text)) /* else it was removed */
        lp_set_string(L, "folder", text);
    return 1;
}

/* () -> versions of the libraries that compute and read, by their names */
static int host_libraries(lua_State *L)
{
    const dnnl_version_t *v = dnnl_version();
    lua_createtable(L, 0, 4);
    lua_pushfstring(L, "%d.%d.%d", v->major, v->minor, v->patch);
    lua_setfield(L, -2, "oneDNN");
    lp_set_string(L, "OpenBLAS", openblas_get_config());
    lp_set_string(L, "jansson", JANSSON_VERSION);
    lp_set_string(L, "zlib", zlibVersion());
    return 1;
}

/* () -> columns of the terminal that stderr is; nil if it is none */
static int terminal_columns(lua_State *L)
{
    struct winsize w = {0};
    if (!isatty(STDERR_FILENO))
        return 0;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    lua_pushinteger(L, known ? w.ws_col : 80);
    return 1;
}

static const luaL_Reg functions[] = {
    {"clock", host_clock},         /* () -> seconds, monotonic */
    {"cpu", host_cpu},             /* () -> {name, simd, …, threads} */
    {"libraries", host_libraries}, /* () -> versions by name */
    {"log", host_log},             /* (level, line, [logger's name]) */
    {"log_copy", host_log_copy},   /* (path or nil) also gets the lines */
    {"log_level", host_log_level}, /* ([new]) -> level before */
    {"log_to", host_log_to},       /* ("stderr", "stdout" or path) */
    {"process", host_process},     /* () -> {pid, host, folder} */
    {"time", host_time},           /* () -> seconds since 1970 */
    {NULL, NULL},
};

void lp_bind_host(lua_State *L)
{
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "host");
    lp_set_function(L, "terminal_columns", terminal_columns);
}
