/* Executable files and what a cache of them needs: hashes, folders, locks. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/mem.h"
#include "src/base/xxh3.h"
#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"
#include "src/io/executable.h"
#include "src/io/lock.h"

/* (bytes) -> their XXH3 as 16 hexadecimal digits */
static int xxh3(lua_State *L)
{
    size_t n;
    char text[17];
    const char *p = luaL_checklstring(L, 1, &n);
    snprintf(text, sizeof text, "%016" PRIx64, lp_xxh3(p, n));
    lua_pushstring(L, text);
    return 1;
}

/* ---- executable files ---------------------------------------------------- */
static LpStatus read(const char *path, LpNamed *out, LpErr *e)
{
    return lp_executable_read(path, LP_VERSION, out, e);
}

/* (path) -> names, tensors, texts: lp_executable_read */
LP_FUNCTION_AS(read_executable, lp_read_named(L, "load", read))

/* (path, names, tensors, texts) */
static int write_executable(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "save");
    lua_settop(L, 4);
    LpNamed *l = lp_take_named(L, "save");
    lp_must(L, lp_named_text(l, "version", LP_VERSION, &e), &e);
    lp_must(L, lp_executable_write(path, l, &e), &e);
    return 0;
}

/* ---- folders ------------------------------------------------------------- */
/* (path) -> whether a folder is there */
static int is_folder(lua_State *L)
{
    struct stat st;
    const char *path = lp_check_path(L, 1, "is_folder");
    lua_pushboolean(L, stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    return 1;
}

/* ---- locks --------------------------------------------------------------- */
static void lock_free(void *held)
{
    lp_lock_release(held);
    lp_free(held);
}

static const LpBoxClass lock_class = {"lupine.lock", "lock", lock_free};

/* (path) -> a lock, held until it is closed: lp_lock_take */
static int lock_file(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "lock_file");
    LpBox *b = lp_new_box(L, &lock_class);
    b->p = lp_calloc(1, sizeof(LpLock));
    if (!b->p)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    lp_must(L, lp_lock_take(b->p, path, &e), &e);
    return 1;
}

static const luaL_Reg functions[] = {{"xxh3", xxh3},
                                     {"read_executable", read_executable},
                                     {"write_executable", write_executable},
                                     {"is_folder", is_folder},
                                     {"lock_file", lock_file},
                                     {NULL, NULL}};

void lp_bind_cache(lua_State *L)
{
    static const luaL_Reg none[] = {{NULL, NULL}};
    lp_add_class(L, &lock_class, none);
    luaL_setfuncs(L, functions, 0);
    lua_pushliteral(L, LP_EXECUTABLE_FORMAT);
    lua_setfield(L, -2, "executable_format");
}
