/* Files of tensors: core.read_idx, safetensors, NumPy's .npy and .npz, images,
 * CSV; texts; folders. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"
#include "src/io/csv.h"
#include "src/io/folder.h"
#include "src/io/idx.h"
#include "src/io/image.h"
#include "src/io/npy.h"
#include "src/io/safetensors.h"

static int named_gc(lua_State *L)
{
    lp_named_fini(lua_touserdata(L, 1));
    return 0;
}

/* A list that is emptied when collected. */
static LpNamed *push_named(lua_State *L)
{
    return lp_new_owned(L, sizeof(LpNamed), "lupine.named", named_gc);
}

const char *lp_check_path(lua_State *L, int i, const char *fn)
{
    char what[LP_DESCRIBE];
    size_t n;
    if (lua_type(L, i) != LUA_TSTRING)
        lp_raise(L, LP_E_TYPE, "%s(): path: expected str, got %s", fn,
                 lp_describe(L, i, what));
    const char *path = lua_tolstring(L, i, &n);
    if (strlen(path) != n)
        lp_raise(L, LP_E_VALUE, "%s(): path: has a zero byte", fn);
    return path;
}

/* ---- one tensor ---------------------------------------------------------- */
typedef LpStatus (*ReadOne)(const char *path, LpTensor **out, LpErr *e);

static int read_one(lua_State *L, const char *fn, ReadOne read)
{
    LpErr e = {0};
    LpTensor *t = NULL;
    int tries = 0;
    const char *path = lp_check_path(L, 1, fn);
    LpBox *box = lp_push_box(L);
    while (read(path, &t, &e) != LP_OK)
        lp_gc_retry(L, &e, &tries, NULL);
    box->p = t;
    lp_gc_account(L);
    return 1;
}

/* (path) -> tensor */
LP_FUNCTION_AS(read_idx, read_one(L, "read_idx", lp_idx_read))
LP_FUNCTION_AS(read_npy, read_one(L, "load", lp_npy_read))

/* (path, tensor) */
static int write_npy(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "save");
    LpTensor *t = lp_check_tensor(L, 2, "save", "arr");
    lp_must(L, lp_npy_write(path, t, &e), &e);
    return 0;
}

/* (path, mode) -> tensor */
static int read_image(lua_State *L)
{
    static const char *const modes[] = {"unchanged", "gray", "rgb", NULL};
    LpErr e = {0};
    LpTensor *t = NULL;
    int tries = 0;
    const char *path = lp_check_path(L, 1, "read_image");
    LpImageMode mode = (LpImageMode)luaL_checkoption(L, 2, "unchanged", modes);
    LpBox *box = lp_push_box(L);
    while (lp_image_read(path, mode, &t, &e) != LP_OK)
        lp_gc_retry(L, &e, &tries, NULL);
    box->p = t;
    lp_gc_account(L);
    return 1;
}

/* (path, tensor) */
static int write_png(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "write_png");
    LpTensor *t = lp_check_tensor(L, 2, "write_png", "input");
    lp_must(L, lp_png_write(path, t, &e), &e);
    return 0;
}

/* ---- several ------------------------------------------------------------- */
int lp_read_named(lua_State *L, const char *fn, LpReadNamed read)
{
    LpErr e = {0};
    int tries = 0;
    const char *path = lp_check_path(L, 1, fn);
    LpNamed *l = push_named(L);
    while (read(path, l, &e) != LP_OK) {
        lp_named_fini(l);
        lp_gc_retry(L, &e, &tries, NULL);
    }
    lua_createtable(L, (int)l->n, 0);
    lua_createtable(L, (int)l->n, 0);
    for (size_t i = 0; i < l->n; i++) {
        lua_pushstring(L, l->items[i].name);
        lua_rawseti(L, -3, (lua_Integer)i + 1);
        if (l->items[i].t)
            lp_push_tensor(L, l->items[i].t);
        else
            lua_pushboolean(L, false);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_createtable(L, 0, (int)l->n_text);
    for (size_t i = 0; i < l->n_text; i++) {
        lp_set_string(L, l->texts[i].name, l->texts[i].text);
    }
    lp_named_fini(l);
    lp_gc_account(L);
    return 3;
}

/* (path) -> names, tensors, metadata */
LP_FUNCTION_AS(read_safetensors, lp_read_named(L, "load", lp_safetensors_read))

static LpStatus npz_whole(const char *path, LpNamed *out, LpErr *e)
{
    return lp_npz_read(path, false, out, e);
}

static LpStatus npz_each(const char *path, LpNamed *out, LpErr *e)
{
    return lp_npz_read(path, true, out, e);
}

/* (path, each) -> names, tensors, texts: with `each` a bad array is false, and
 * the text of its name says why */
LP_FUNCTION_AS(read_npz,
               lp_read_named(L, "load",
                             lua_toboolean(L, 2) ? npz_each : npz_whole))

static void add_text(lua_State *L, LpNamed *l, int key, int value)
{
    LpErr e = {0};
    if (lua_type(L, key) != LUA_TSTRING || lua_type(L, value) != LUA_TSTRING)
        lp_raise(L, LP_E_TYPE, "save(): metadata: names and texts are strings");
    lp_must(L,
            lp_named_text(l, lua_tostring(L, key), lua_tostring(L, value), &e),
            &e);
}

LpNamed *lp_take_named(lua_State *L, const char *fn)
{
    LpErr e = {0};
    LpNamed *l = push_named(L);
    lua_Integer n = luaL_len(L, 2);
    for (lua_Integer i = 1; i <= n; i++) {
        size_t size;
        lua_rawgeti(L, 2, i);
        lua_rawgeti(L, 3, i);
        const char *name = luaL_checklstring(L, -2, &size);
        LpTensor *t = lp_check_tensor(L, -1, fn, name);
        if (strlen(name) != size)
            lp_raise(L, LP_E_VALUE, "%s(): the name '%s' has a zero byte", fn,
                     name);
        lp_must(L, lp_named_add(l, name, lp_tensor_retain(t), &e), &e);
        lua_pop(L, 2);
    }
    if (lua_istable(L, 4))
        for (lua_pushnil(L); lua_next(L, 4); lua_pop(L, 1))
            add_text(L, l, -2, -1);
    return l;
}

/* (path, names, tensors, metadata) */
static int write_safetensors(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "save");
    lua_settop(L, 4);
    lp_must(L, lp_safetensors_write(path, lp_take_named(L, "save"), &e), &e);
    return 0;
}

/* (path, names, tensors, nil, compressed) */
static int write_npz(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "savez");
    lua_settop(L, 5);
    bool compressed = lua_toboolean(L, 5);
    lp_must(L, lp_npz_write(path, lp_take_named(L, "savez"), compressed, &e),
            &e);
    return 0;
}

/* ---- tables of text ------------------------------------------------------ */
static int csv_gc(lua_State *L)
{
    lp_csv_fini(lua_touserdata(L, 1));
    return 0;
}

/* A tensor, or a list of strings. */
static void push_column(lua_State *L, const LpCsv *c, int64_t first,
                        int64_t column)
{
    LpErr e = {0};
    LpTensor *t = NULL;
    LpBox *box = lp_push_box(L);
    lp_must(L, lp_csv_numbers(c, first, column, &t, &e), &e);
    if (t) {
        box->p = t;
        return;
    }
    lua_pop(L, 1);
    lua_createtable(L, (int)(c->rows - first), 0);
    for (int64_t r = first; r < c->rows; r++) {
        const LpCsvCell *x = &c->cells[r * c->columns + column];
        lua_pushlstring(L, x->p, x->n);
        lua_rawseti(L, -2, r - first + 1);
    }
}

/* (path, delimiter, header) -> names (a list, without a header empty), columns
 * (a list) */
static int read_csv(lua_State *L)
{
    LpErr e = {0};
    size_t n;
    const char *path = lp_check_path(L, 1, "read");
    const char *delimiter = luaL_checklstring(L, 2, &n);
    bool header = lua_toboolean(L, 3);
    if (n != 1 || strpbrk(delimiter, "\"\r\n"))
        return lp_raise(L, LP_E_VALUE,
                        "read(): delimiter: expected one character, not a "
                        "quote or the end of a line");
    LpCsv *c = lp_new_owned(L, sizeof *c, "lupine.csv", csv_gc);
    lp_must(L, lp_csv_read(path, delimiter[0], c, &e), &e);
    lua_newtable(L);
    for (int64_t k = 0; header && k < c->columns; k++) {
        lua_pushlstring(L, c->cells[k].p, c->cells[k].n);
        lua_rawseti(L, -2, k + 1);
    }
    LP_PUSH_LIST(L, k, c->columns, push_column(L, c, header, k));
    lp_csv_fini(c);
    lp_gc_account(L);
    return 2;
}

/* ---- folders ------------------------------------------------------------- */
static int folder_gc(lua_State *L)
{
    DIR **d = lua_touserdata(L, 1);
    if (*d)
        closedir(*d);
    *d = NULL;
    return 0;
}

/* NULL at the end, where errno is 0, and for an error. */
static struct dirent *next_entry(DIR *d)
{
    errno = 0;
    return readdir(d);
}

/* (path) -> names of folders, names of other files, in no order; hidden ones
 * left out, links followed */
static int list_folder(lua_State *L)
{
    LpErr e = {0};
    struct stat st;
    struct dirent *x;
    const char *path = lp_check_path(L, 1, "list_folder");
    DIR **d = lp_new_owned(L, sizeof *d, "lupine.folder", folder_gc);
    *d = opendir(path);
    if (!*d)
        lp_must(L, lp_file_error(path, &e), &e);
    lua_newtable(L);
    lua_newtable(L);
    while ((x = next_entry(*d))) {
        if (x->d_name[0] == '.')
            continue;
        if (fstatat(dirfd(*d), x->d_name, &st, 0) != 0) {
            /* a link that leads nowhere, or what has gone meanwhile */
            if (errno == ENOENT || errno == ELOOP || errno == EACCES)
                continue;
            lp_must(L, lp_file_error(path, &e), &e);
        }
        int list = lua_gettop(L) - (S_ISDIR(st.st_mode) ? 1 : 0);
        lua_pushstring(L, x->d_name);
        lua_rawseti(L, list, luaL_len(L, list) + 1);
    }
    if (errno != 0)
        lp_must(L, lp_file_error(path, &e), &e);
    closedir(*d);
    *d = NULL;
    return 2;
}

/* (path): with those around it, if it is not there */
static int make_folder(lua_State *L)
{
    LpErr e = {0};
    lp_must(L, lp_folder_make(lp_check_path(L, 1, "make_folder"), &e), &e);
    return 0;
}

static int file_gc(lua_State *L)
{
    FILE **f = lua_touserdata(L, 1);
    if (*f)
        fclose(*f);
    *f = NULL;
    return 0;
}

/* (folder, path, offset, length) -> bytes of a file within the folder, a tensor
 * of uint8 */
static int read_within(lua_State *L)
{
    LpErr e = {0};
    int64_t size;
    const char *folder = lp_check_path(L, 1, "read_within");
    const char *path = lp_check_path(L, 2, "read_within");
    int64_t offset = luaL_checkinteger(L, 3), n = luaL_checkinteger(L, 4);
    FILE **f = lp_new_owned(L, sizeof *f, "lupine.file", file_gc);
    lp_must(L, lp_folder_file(folder, path, f, &size, &e), &e);
    if (offset < 0 || n < 0 || offset > size || n > size - offset)
        lp_raise(L, LP_E_VALUE,
                 "'%s' has %lld bytes, %lld from byte %lld on are not there",
                 path, (long long)size, (long long)n, (long long)offset);
    LpType type = {.dtype = LP_U8, .ndim = 1, .shape = {n}};
    char *to = lp_tensor_data(lp_new_tensor(L, &type));
    if (fseeko(*f, offset, SEEK_SET) != 0)
        lp_must(L, lp_file_error(path, &e), &e);
    lp_must(L, lp_file_read(*f, path, to, (size_t)n, "the part", &e), &e);
    fclose(*f);
    *f = NULL;
    return 1;
}

/* (path, text): the whole file */
static int write_text(lua_State *L)
{
    LpErr e = {0};
    LpFileOut o = {0};
    size_t n;
    const char *path = lp_check_path(L, 1, "write_text");
    const char *text = luaL_checklstring(L, 2, &n);
    LpStatus st = lp_file_begin(&o, path, &e);
    if (st == LP_OK)
        st = lp_file_end(&o, lp_file_write(&o, text, n, &e), &e);
    lp_must(L, st, &e);
    return 0;
}

/* (path): what was written to it is on the disk then */
static int sync_file(lua_State *L)
{
    LpErr e = {0};
    lp_must(L, lp_file_sync(lp_check_path(L, 1, "sync_file"), &e), &e);
    return 0;
}

/* The bytes of a string or a tensor, on top. */
static LpStatus write_part(lua_State *L, LpFileOut *o, LpErr *e)
{
    size_t n;
    LpTensor *t = lp_to_tensor(L, -1);
    if (!t) {
        const char *text = lua_tolstring(L, -1, &n);
        return lp_file_write(o, text, n, e);
    }
    LP_TRY(lp_tensor_touch(t, false, e));
    n = (size_t)lp_tensor_numel(t) * lp_dtype_size(t->dtype);
    return lp_file_write(o, lp_tensor_data(t), n, e);
}

/* (path, parts): a whole file of strings and tensors that lie row by row */
static int write_parts(lua_State *L)
{
    LpErr e = {0};
    LpFileOut o = {0};
    const char *path = lp_check_path(L, 1, "write_parts");
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
    for (lua_Integer i = 1; i <= n; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, 2, i);
        LpTensor *t = lp_to_tensor(L, -1);
        luaL_argcheck(L, t ? lp_tensor_contiguous(t) : lua_isstring(L, -1), 2,
                      "expected strings and tensors that lie row by row");
    }
    LpStatus s = lp_file_begin(&o, path, &e);
    for (lua_Integer i = 1; s == LP_OK && i <= n; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, 2, i);
        s = write_part(L, &o, &e);
    }
    lp_must(L, o.f ? lp_file_end(&o, s, &e) : s, &e);
    return 0;
}

static const luaL_Reg functions[] = {
    {"write_parts", write_parts},
    {"list_folder", list_folder},
    {"make_folder", make_folder},
    {"read_within", read_within},
    {"write_text", write_text},
    {"sync_file", sync_file},
    {"read_idx", read_idx},
    {"read_image", read_image},
    {"write_png", write_png},
    {"read_csv", read_csv},
    {"read_npy", read_npy},
    {"write_npy", write_npy},
    {"read_npz", read_npz},
    {"write_npz", write_npz},
    {"read_safetensors", read_safetensors},
    {"write_safetensors", write_safetensors},
    {NULL, NULL},
};

void lp_bind_files(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
}
