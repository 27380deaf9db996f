/* Texts are tensors of bytes called "text/NAME", since a header may have no
 * more than 100 MB; format, version and hash are metadata. */
#include "src/io/executable.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/base/mem.h"
#include "src/base/xxh3.h"
#include "src/io/safetensors.h"

#define PREFIX "text/"
#define FORMAT "lupine.executable"
#define HASH "xxh3"

static size_t bytes_of(const LpTensor *t)
{
    return (size_t)lp_tensor_numel(t) * lp_dtype_size(t->dtype);
}

static const char *text_of(const LpNamed *l, const char *name)
{
    for (size_t i = 0; i < l->n_text; i++)
        if (strcmp(l->texts[i].name, name) == 0)
            return l->texts[i].text;
    return NULL;
}

/* ---- the hash ------------------------------------------------------------ */
/* Of the version and, in the file's order, names, types and bytes. */
static LpStatus hash_of(const LpNamed *l, const char *version, char hash[17],
                        LpErr *e)
{
    LpBuf b = {0};
    lp_buf_fmt(&b, "%s\n", version);
    for (size_t i = 0; i < l->n; i++) {
        const LpTensor *t = l->items[i].t;
        LpType type = lp_tensor_type(t);
        lp_buf_fmt(&b, "%s %s%s %016" PRIx64 "\n", l->items[i].name,
                   lp_dtype_name(t->dtype), lp_shape_str(&type),
                   lp_xxh3(lp_tensor_data(t), bytes_of(t)));
    }
    char *s = lp_buf_take(&b);
    if (!s)
        return lp_no_memory(e);
    snprintf(hash, 17, "%016" PRIx64, lp_xxh3(s, strlen(s)));
    lp_free(s);
    return LP_OK;
}

/* ---- writing ------------------------------------------------------------- */
static LpStatus add_text(LpNamed *out, const char *name, const char *text,
                         LpErr *e)
{
    LpTensor *t = NULL;
    LpBuf b = {0};
    LpType type = {.dtype = LP_U8, .ndim = 1, .shape = {(int64_t)strlen(text)}};
    lp_buf_fmt(&b, PREFIX "%s", name);
    char *full = lp_buf_take(&b);
    LpStatus s = full ? lp_tensor_new(&type, &t, e) : lp_no_memory(e);
    if (s == LP_OK) {
        memcpy(lp_tensor_data(t), text, strlen(text));
        s = lp_named_add(out, full, t, e);
    }
    lp_free(full);
    return s;
}

static LpStatus gather(const LpNamed *in, const char *version, LpNamed *out,
                       LpErr *e)
{
    char hash[17];
    LP_TRY(lp_named_ready(in, "executable", e));
    for (size_t i = 0; i < in->n_text; i++)
        if (in->texts[i].text != version)
            LP_TRY(add_text(out, in->texts[i].name, in->texts[i].text, e));
    for (size_t i = 0; i < in->n; i++)
        LP_TRY(lp_named_add(out, in->items[i].name,
                            lp_tensor_retain(in->items[i].t), e));
    LP_TRY(hash_of(out, version, hash, e));
    LP_TRY(lp_named_text(out, FORMAT, LP_EXECUTABLE_FORMAT, e));
    LP_TRY(lp_named_text(out, "version", version, e));
    return lp_named_text(out, HASH, hash, e);
}

LpStatus lp_executable_write(const char *path, const LpNamed *in, LpErr *e)
{
    LpNamed all = {0};
    const char *version = text_of(in, "version");
    LP_FAIL_IF(!version, e, LP_E_VALUE, "executable: no text 'version'");
    LpStatus s = gather(in, version, &all, e);
    if (s == LP_OK)
        s = lp_safetensors_write(path, &all, e);
    lp_named_fini(&all);
    return s;
}

/* ---- reading ------------------------------------------------------------- */
static LpStatus take_text(const char *path, const char *name, const LpTensor *t,
                          LpNamed *out, LpErr *e)
{
    size_t n = bytes_of(t);
    const char *p = lp_tensor_data(t);
    LP_FAIL_IF(t->dtype != LP_U8 || t->ndim != 1 || (n && memchr(p, 0, n)), e,
               LP_E_VALUE, "%s: damaged: '%.200s' is no text", path, name);
    char *s = lp_alloc(n + 1);
    LP_FAIL_IF(!s, e, LP_E_MEMORY, "out of memory");
    memcpy(s, p, n);
    s[n] = '\0';
    LpStatus st = lp_named_text(out, name + strlen(PREFIX), s, e);
    lp_free(s);
    return st;
}

static LpStatus unpack(const char *path, const LpNamed *all, LpNamed *out,
                       LpErr *e)
{
    for (size_t i = 0; i < all->n; i++) {
        const char *name = all->items[i].name;
        LpTensor *t = all->items[i].t;
        if (strncmp(name, PREFIX, strlen(PREFIX)) == 0)
            LP_TRY(take_text(path, name, t, out, e));
        else
            LP_TRY(lp_named_add(out, name, lp_tensor_retain(t), e));
    }
    return LP_OK;
}

static LpStatus check(const char *path, const char *version, const LpNamed *all,
                      LpNamed *out, LpErr *e)
{
    char hash[17];
    const char *format = text_of(all, FORMAT), *is = text_of(all, "version");
    const char *has = text_of(all, HASH);
    LP_FAIL_IF(!format || !is || !has, e, LP_E_VALUE,
               "%s: no executable: it was not written by lupine's save", path);
    LP_TRY(lp_named_text(out, "format", format, e));
    LP_TRY(lp_named_text(out, "version", is, e));
    if (strcmp(format, LP_EXECUTABLE_FORMAT) != 0 || strcmp(is, version) != 0)
        return LP_OK;
    LP_TRY(hash_of(all, is, hash, e));
    LP_FAIL_IF(strcmp(hash, has) != 0, e, LP_E_VALUE,
               "%s: damaged: its contents have the hash %s, it names %.40s",
               path, hash, has);
    return unpack(path, all, out, e);
}

LpStatus lp_executable_read(const char *path, const char *version, LpNamed *out,
                            LpErr *e)
{
    LpNamed all = {0};
    LpStatus s = lp_safetensors_read(path, &all, e);
    if (s == LP_OK)
        s = check(path, version, &all, out, e);
    lp_named_fini(&all);
    return s;
}
