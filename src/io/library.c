/* Loading of shared libraries; see library.h. */
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

static LpStatus take(void *symbol, const char *path, LpErr *e)
{
    Table *table = NULL;
    LpErr why = {0};
    memcpy(&table, &symbol, sizeof table);
    uint64_t hash;
    LpStatus s = hash_file(path, &hash, &why);
    if (s == LP_OK)
        s = lp_custom_register(table(), path, hash, &why);
    LP_FAIL_IF(s != LP_OK, e, s, "load_library: %.250s: %.440s", path, why.msg);
    return LP_OK;
}

LpStatus lp_library_open(const char *who, const char *path, const char *symbol,
                         const char *header, void **handle, void **found,
                         LpErr *e)
{
    char real[PATH_MAX];
    *handle = NULL;
    LP_FAIL_IF(!realpath(path, real), e,
               errno == ENOENT ? LP_E_NO_FILE : LP_E_OS, "%s: %.500s: %s", who,
               path, strerror(errno));
    void *h = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        const char *why = dlerror();
        return lp_fail(e, LP_E_OS, "%s: %s", who,
                       why ? why : "it cannot be loaded");
    }
    *found = dlsym(h, symbol);
    if (!*found) {
        dlclose(h);
        return lp_fail(e, LP_E_RUNTIME,
                       "%s: %.400s exports no %s: it has to be written for "
                       "lupine/%s",
                       who, path, symbol, header);
    }
    *handle = h;
    return LP_OK;
}

LpStatus lp_library_load(const char *path, LpErr *e)
{
    void *handle, *symbol;
    LP_TRY(lp_library_open("load_library", path, "lupine_custom_ops",
                           "custom_op.h", &handle, &symbol, e));
    LpStatus s = take(symbol, path, e);
    if (s != LP_OK)
        dlclose(handle);
    return s;
}
