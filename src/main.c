/* lupine: the host program. Options, `arg` and exit codes are those of the
 * lua command; the core is built in, and the folder of lupine's Lua files
 * comes first in package.path, found from the place of the executable. */
#include "src/main.h"

#include <limits.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lualib.h>

#include "src/bind/module.h"

static const char *program = "lupine";
static char own_folder[PATH_MAX]; /* of lupine's Lua files, no final slash */

static const char usage_text[] =
    "usage: %s [options] [script [arguments]]\n"
    "       %s [options] command [arguments]\n"
    "  -e CODE        run CODE\n"
    "  -l MOD         require MOD into the global MOD\n"
    "  -l NAME=MOD    require MOD into the global NAME\n"
    "  -i             read commands after the script\n"
    "  -v, --version  print the version\n"
    "  -E             ignore LUA_INIT, LUA_PATH, LUA_CPATH and their variants\n"
    "  -W             turn warnings on\n"
    "  -h, --help     print this\n"
    "  --             end of options\n"
    "  -              run standard input as a script\n"
    "Without a script: reads commands from the terminal, or runs standard\n"
    "input as a script if it is none.\n";

enum {
    WANT_I = 1,
    WANT_V = 2,
    WANT_E = 4, /* code of -e */
    WANT_HELP = 8,
    BAD_USAGE = 16,
    NO_ENVIRONMENT = 32
};

/* Sets *first to the index of the script (argc if none); returns WANT_*. */
static int read_options(char **argv, int argc, int *first)
{
    int wants = 0, i;
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        const char *o = argv[i];
        *first = i;
        if (o[1] == '\0') /* "-" is a script */
            break;
        if (strcmp(o, "--") == 0) {
            i++;
            break;
        }
        if (strcmp(o, "--version") == 0 || strcmp(o, "-v") == 0) {
            wants |= WANT_V;
        } else if (strcmp(o, "--help") == 0 || strcmp(o, "-h") == 0) {
            wants |= WANT_HELP;
        } else if (strcmp(o, "-i") == 0) {
            wants |= WANT_I;
        } else if (strcmp(o, "-E") == 0) {
            wants |= NO_ENVIRONMENT;
        } else if (strcmp(o, "-W") == 0) {
            continue; /* run_options */
        } else if (o[1] == 'e' || o[1] == 'l') {
            if (o[1] == 'e')
                wants |= WANT_E;
            if (o[2] == '\0' && (++i >= argc || argv[i][0] == '-'))
                return BAD_USAGE;
        } else {
            return BAD_USAGE;
        }
    }
    *first = i;
    return wants;
}

static int bad_usage(const char *option)
{
    if (option[1] == 'e' || option[1] == 'l')
        fprintf(stderr, "%s: '%s' needs argument\n", program, option);
    else
        fprintf(stderr, "%s: unrecognized option '%s'\n", program, option);
    fprintf(stderr, usage_text, program, program);
    return EXIT_FAILURE;
}

/* --- where our Lua files are ---------------------------------------------- */

static bool is_own_folder(const char *dir, const char *below)
{
    char path[PATH_MAX], probe[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, below) >=
            sizeof path ||
        !realpath(path, own_folder) ||
        (size_t)snprintf(probe, sizeof probe, "%s/lupine/init.lua",
                         own_folder) >= sizeof probe)
        return false;
    return access(probe, R_OK) == 0;
}

/* Built in place: ../lua or, for a variant of the build, ../../lua. Installed:
 * PREFIX/share/lupine beside PREFIX/bin. */
static bool find_own_folder(void)
{
    static const char *const below[] = {"../lua", "../../lua",
                                        "../share/lupine"};
    char exe[PATH_MAX];
    if (realpath("/proc/self/exe", exe)) {
        *strrchr(exe, '/') = '\0';
        for (size_t i = 0; i < sizeof below / sizeof *below; i++)
            if (is_own_folder(exe, below[i]))
                return true;
    }
    own_folder[0] = '\0';
    return false;
}

static void set_path(lua_State *L)
{
    if (find_own_folder()) {
        lp_host_own_folder(own_folder);
        lp_host_open_traceback(L);
        lua_getglobal(L, "package");
        lua_getfield(L, -1, "path");
        lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", own_folder, own_folder,
                        lua_tostring(L, -1));
        lua_setfield(L, -3, "path");
        lua_pop(L, 2);
    } else {
        fprintf(stderr,
                "%s: warning: no lua folder near the program: only "
                "package.path is searched\n",
                program);
    }
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, luaopen_lupine_core);
    lua_setfield(L, -2, "lupine.core");
    lua_pop(L, 1);
}

/* --- what the options ask for --------------------------------------------- */

static void set_arg(lua_State *L, char **argv, int argc, int script)
{
    if (script == argc)
        script = 0;
    lua_createtable(L, argc - script, script + 1);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

/* A chunk is on the stack, or a message if it did not load. */
static bool run(lua_State *L, int load_status, int n)
{
    bool ok = load_status == LUA_OK;
    if (ok)
        ok = lp_host_call(L, n, 0);
    if (!ok)
        lp_host_report(L, program);
    return ok;
}

/* Pushes what require gives; false, with the error told: it fails. */
static bool push_module(lua_State *L, const char *module)
{
    lua_getglobal(L, "require");
    lua_pushstring(L, module);
    bool ok = lp_host_call(L, 1, 1);
    if (!ok)
        lp_host_report(L, program);
    return ok;
}

static bool run_library(lua_State *L, const char *spec)
{
    const char *equals = strchr(spec, '=');
    const char *module = equals ? equals + 1 : spec;
    if (equals)
        lua_pushlstring(L, spec, (size_t)(equals - spec));
    else
        lua_pushstring(L, spec);
    if (!push_module(L, module))
        return false;
    lua_pushglobaltable(L);
    lua_insert(L, -3);
    lua_rawset(L, -3);
    lua_pop(L, 1);
    return true;
}

/* LUA_INIT_5_4, or else LUA_INIT: code, or with an @ the name of a file. */
static bool run_init(lua_State *L)
{
    const char *name = "=LUA_INIT_5_4", *init = getenv(name + 1);
    if (!init)
        init = getenv((name = "=LUA_INIT") + 1);
    if (!init)
        return true;
    if (init[0] == '@')
        return run(L, luaL_loadfilex(L, init + 1, "t"), 0);
    return run(L, luaL_loadbufferx(L, init, strlen(init), name, "t"), 0);
}

static bool run_options(lua_State *L, char **argv, int n)
{
    for (int i = 1; i < n; i++) {
        char option = argv[i][1];
        if (strcmp(argv[i], "-W") == 0)
            lua_warning(L, "@on", 0);
        if ((option != 'e' && option != 'l') || argv[i][0] != '-')
            continue;
        const char *text = argv[i][2] ? argv[i] + 2 : argv[++i];
        bool ok = option == 'l' ? run_library(L, text)
                                : run(L,
                                      luaL_loadbufferx(L, text, strlen(text),
                                                       "=(command line)", "t"),
                                      0);
        if (!ok)
            return false;
    }
    return true;
}

static bool run_script(lua_State *L, char **argv, int argc, int first)
{
    const char *name = argv[first];
    /* after "--", "-" is a file */
    if (strcmp(name, "-") == 0 && strcmp(argv[first - 1], "--") != 0)
        name = NULL;
    int status = luaL_loadfilex(L, name, "t");
    int n = 0;
    if (status == LUA_OK) {
        luaL_checkstack(L, argc, "too many arguments to script");
        for (int i = first + 1; i < argc; i++, n++)
            lua_pushstring(L, argv[i]);
    }
    return run(L, status, n);
}

/* Pushes the function of lupine.commands. */
static bool push_commands(lua_State *L, const char *function)
{
    if (!push_module(L, "lupine.commands"))
        return false;
    lua_getfield(L, -1, function);
    lua_remove(L, -2);
    return true;
}

static bool is_word(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz");
    return n > 0 && s[n] == '\0';
}

/* Leaves the run function of the command that stands in the place of a
 * script, or nil if none does; false, with the error told: it fails. */
static bool push_command(lua_State *L, char **argv, int argc, int first)
{
    if (first >= argc || !is_word(argv[first]) ||
        strcmp(argv[first - 1], "--") == 0) {
        lua_pushnil(L);
        return true;
    }
    if (!push_commands(L, "find"))
        return false;
    lua_pushstring(L, argv[first]);
    bool ok = lp_host_call(L, 1, 1);
    if (!ok)
        lp_host_report(L, program);
    return ok;
}

/* The function on the stack with the words that follow; it gives the exit
 * code, or nothing. */
static int run_command(lua_State *L, char **argv, int argc, int first)
{
    luaL_checkstack(L, argc, "too many arguments to script");
    for (int i = first + 1; i < argc; i++)
        lua_pushstring(L, argv[i]);
    if (!lp_host_call(L, argc - first - 1, 1)) {
        lp_host_report(L, program);
        return EXIT_FAILURE;
    }
    return (int)luaL_optinteger(L, -1, EXIT_SUCCESS);
}

static int help(lua_State *L)
{
    printf(usage_text, program, program);
    bool ok = push_commands(L, "help");
    return ok && run(L, LUA_OK, 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool run_repl(lua_State *L)
{
    if (!push_module(L, "lupine.repl"))
        return false;
    lua_getfield(L, -1, "run");
    lp_host_push_terminal(L);
    /* The loop arms Ctrl-C itself, around each chunk. */
    bool ok = lua_pcall(L, 1, 0, 0) == LUA_OK;
    if (!ok)
        lp_host_report(L, program);
    lp_host_close_terminal();
    return ok;
}

struct Command {
    char **argv;
    int argc, code;
};

static int exit_code(bool ok)
{
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_all(lua_State *L)
{
    struct Command *c = lua_touserdata(L, 1);
    int first;
    int wants = read_options(c->argv, c->argc, &first);
    luaL_checkversion(L);
    if (wants & NO_ENVIRONMENT) { /* read by the package library */
        lua_pushboolean(L, true);
        lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    }
    luaL_openlibs(L);
    set_path(L);
    set_arg(L, c->argv, c->argc, first);
    if (wants & WANT_HELP) {
        c->code = help(L);
        return 0;
    }
    if ((wants & (WANT_V | WANT_I)) == WANT_V)
        printf("lupine %s (%s)\n", LP_VERSION, LUA_RELEASE);
    if (!(wants & NO_ENVIRONMENT) && !run_init(L))
        return 0;
    if (!run_options(L, c->argv, first))
        return 0;
    if (!push_command(L, c->argv, c->argc, first))
        return 0;
    if (!lua_isnil(L, -1)) {
        c->code = run_command(L, c->argv, c->argc, first);
        return 0;
    }
    lua_pop(L, 1);
    if (first < c->argc && !run_script(L, c->argv, c->argc, first))
        return 0;
    if (wants & WANT_I)
        c->code = exit_code(run_repl(L));
    else if (first < c->argc || wants & (WANT_E | WANT_V))
        c->code = EXIT_SUCCESS;
    else if (isatty(STDIN_FILENO))
        c->code = exit_code(run_repl(L));
    else
        c->code = exit_code(run(L, luaL_loadfilex(L, NULL, "t"), 0));
    return 0;
}

/* Tensors of many megabytes come and go each step: keep freed pages in the
 * heap instead of returning them to the system, which costs more than the
 * arithmetic. Lua reads numbers with LC_NUMERIC "C". */
static void set_process(void)
{
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error of write */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
}

int main(int argc, char **argv)
{
    struct Command c = {argv, argc, EXIT_FAILURE};
    int first = 0;
    if (argc > 0 && argv[0][0])
        program = argv[0];
    int wants = read_options(argv, argc, &first);
    if (wants & BAD_USAGE)
        return bad_usage(argv[first]);
    set_process();
    lua_State *L = luaL_newstate();
    if (!L) {
        fprintf(stderr, "%s: cannot create state: not enough memory\n",
                program);
        return EXIT_FAILURE;
    }
    lp_host_keep_blocks(L);
    lua_pushcfunction(L, run_all);
    lua_pushlightuserdata(L, &c);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
        lp_host_report(L, program);
        c.code = EXIT_FAILURE;
    }
    lua_close(L);
    return c.code;
}
