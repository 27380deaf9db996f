/* Folders that appear as a whole: core.new_folder; checksums of files. */
#include <inttypes.h>

#include "src/base/mem.h"
#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"
#include "src/io/folder_out.h"

/* (path) -> the XXH3 of a file as 16 hexadecimal digits, its bytes */
static int hash_file(lua_State *L)
{
    LpErr e = {0};
    uint64_t hash;
    int64_t size;
    char text[17];
    const char *path = lp_check_path(L, 1, "hash_file");
    lp_must(L, lp_file_hash(path, &hash, &size, &e), &e);
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    lua_pushstring(L, text);
    lua_pushinteger(L, size);
    return 2;
}

/* (path) */
static int remove_folder(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "remove_folder");
    lp_must(L, lp_folder_remove(path, &e), &e);
    return 0;
}

/* ---- folders that are filled --------------------------------------------- */
static void folder_free(void *held)
{
    lp_folder_drop(held);
    lp_free(held);
}

static const LpBoxClass folder_class = {"lupine.new_folder", "new folder",
                                        folder_free};

/* (parent) -> a new folder within it, which goes when this is closed unless
 * it was renamed */
static int new_folder(lua_State *L)
{
    LpErr e = {0};
    const char *parent = lp_check_path(L, 1, "new_folder");
    LpBox *b = lp_new_box(L, &folder_class);
    b->p = lp_calloc(1, sizeof(LpFolderOut));
    if (!b->p)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    lp_must(L, lp_folder_begin(b->p, parent, &e), &e);
    return 1;
}

/* folder:path() */
static int folder_path(lua_State *L)
{
    LpFolderOut *o = lp_check_box(L, 1, &folder_class);
    lua_pushstring(L, o->path);
    return 1;
}

/* folder:rename(path, replace) -> whether it has that place now */
static int folder_rename(lua_State *L)
{
    LpErr e = {0};
    bool done = false;
    LpFolderOut *o = lp_check_box(L, 1, &folder_class);
    const char *path = lp_check_path(L, 2, "rename");
    lp_must(L, lp_folder_end(o, path, lua_toboolean(L, 3), &done, &e), &e);
    lua_pushboolean(L, done);
    return 1;
}

static const luaL_Reg folder_methods[] = {
    {"path", folder_path}, {"rename", folder_rename}, {NULL, NULL}};

static const luaL_Reg functions[] = {{"hash_file", hash_file},
                                     {"new_folder", new_folder},
                                     {"remove_folder", remove_folder},
                                     {NULL, NULL}};

void lp_bind_folders(lua_State *L)
{
    lp_add_class(L, &folder_class, folder_methods);
    luaL_setfuncs(L, functions, 0);
}
