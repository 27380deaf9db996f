/* Loading of libraries with custom operators; see library.h. */
#include "src/io/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/xxh3.h"
#include "src/io/file.h"
#include "src/ops/custom/registry.h"

typedef const lupine_library *Table(void);

static LpStatus hash_file(const char *path, uint64_t *hash, LpErr *e)
{
    FILE *f;
    int64_t size;
    LP_TRY(lp_file_open(path, &f, &size, e));
    void *bytes = lp_alloc((size_t)size);
    LpStatus s =
        bytes ? lp_file_read(f, path, bytes, (size_t)size, "the library", e)
              : lp_no_memory(e);
    if (s == LP_OK)
        *hash = lp_xxh3(bytes, (size_t)size);
    lp_free(bytes);
    fclose(f);
    return s;
}

static LpStatus take(void *handle, const char *path, LpErr *e)
{
    Table *table = NULL;
    LpErr why = {0};
    void *symbol = dlsym(handle, "lupine_custom_ops");
    LP_FAIL_IF(!symbol, e, LP_E_RUNTIME,
               "load_library: %.400s exports no lupine_custom_ops: its "
               "operators have to be written for lupine/custom_op.h",
               path);
    memcpy(&table, &symbol, sizeof table);
    uint64_t hash;
    LpStatus s = hash_file(path, &hash, &why);
    if (s == LP_OK)
        s = lp_custom_register(table(), path, hash, &why);
    LP_FAIL_IF(s != LP_OK, e, s, "load_library: %.250s: %.440s", path, why.msg);
    return LP_OK;
}

LpStatus lp_library_load(const char *path, LpErr *e)
{
    char real[PATH_MAX];
    LP_FAIL_IF(!realpath(path, real), e,
               errno == ENOENT ? LP_E_NO_FILE : LP_E_OS,
               "load_library: %.500s: %s", path, strerror(errno));
    void *handle = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        return lp_fail(e, LP_E_OS, "load_library: %s",
                       why ? why : "it cannot be loaded");
    }
    LpStatus s = take(handle, path, e);
    if (s != LP_OK)
        dlclose(handle);
    return s;
}
