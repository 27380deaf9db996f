/* .npz: a zip archive of .npy files (NumPy reference, numpy.savez), read and
 * written by libzip. The uncompressed length that the archive tells is held
 * against deflate's greatest ratio before it is believed. */
#include <string.h>

#include <zip.h>

#include "src/base/mem.h"
#include "src/io/npy.h"

#define MAX_RATIO 1032 /* of deflate; zlib's technical page */
#define MOST_NAME 4096

static LpStatus zip_failed(const char *name, zip_error_t *z, LpErr *e)
{
    LpStatus code =
        zip_error_code_zip(z) == ZIP_ER_MEMORY ? LP_E_MEMORY : LP_E_VALUE;
    LpStatus s = lp_fail(e, code, "%s: %s", name, zip_error_strerror(z));
    zip_error_fini(z);
    return s;
}

/* ---- reading ------------------------------------------------------------- */
static LpStatus read_entry(void *ctx, void *p, size_t n, size_t *got, LpErr *e)
{
    zip_file_t *f = ctx;
    *got = 0;
    while (*got < n) {
        zip_int64_t k = zip_fread(f, (char *)p + *got, n - *got);
        LP_FAIL_IF(k < 0, e, LP_E_VALUE, "npz: %s",
                   zip_error_strerror(zip_file_get_error(f)));
        if (k == 0)
            break;
        *got += (size_t)k;
    }
    return LP_OK;
}

/* Up to the end: libzip checks the sum of an entry there. */
static LpStatus check_end(zip_file_t *f, const char *name, LpErr *e)
{
    char more;
    size_t got;
    LP_TRY(read_entry(f, &more, 1, &got, e));
    LP_FAIL_IF(got, e, LP_E_VALUE, "%s: extra bytes after the array", name);
    return LP_OK;
}

static LpStatus read_array(zip_t *z, zip_uint64_t i, const char *archive,
                           LpNamed *out, LpErr *e)
{
    enum { NEED = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE };
    zip_stat_t st;
    char name[MOST_NAME];
    bool known = zip_stat_index(z, i, 0, &st) == 0 &&
                 (st.valid & NEED) == NEED && strlen(st.name) < MOST_NAME - 4;
    LP_FAIL_IF(!known, e, LP_E_VALUE, "%s: entry %llu is damaged", archive,
               (unsigned long long)i);
    LP_FAIL_IF(st.size / MAX_RATIO > st.comp_size || st.size > INT64_MAX, e,
               LP_E_VALUE,
               "%s: entry '%.200s': %llu bytes cannot come of %llu compressed "
               "ones",
               archive, st.name, (unsigned long long)st.size,
               (unsigned long long)st.comp_size);
    zip_file_t *f = zip_fopen_index(z, i, 0);
    if (!f)
        return lp_fail(e, LP_E_VALUE, "%s: entry '%.200s': %s", archive,
                       st.name, zip_strerror(z));
    LpTensor *t = NULL;
    LpSource src = {st.name, (int64_t)st.size, read_entry, f};
    LpStatus s = lp_npy_read_source(&src, &t, e);
    if (s == LP_OK)
        s = check_end(f, st.name, e);
    zip_fclose(f);
    if (s != LP_OK) {
        lp_tensor_release(t);
        return s;
    }
    size_t n = strlen(st.name);
    n -= n > 4 && strcmp(st.name + n - 4, ".npy") == 0 ? 4 : 0;
    memcpy(name, st.name, n);
    name[n] = '\0';
    for (size_t k = 0; k < out->n; k++)
        if (strcmp(out->items[k].name, name) == 0) {
            lp_tensor_release(t);
            return lp_fail(e, LP_E_VALUE, "%s: two arrays '%.200s'", archive,
                           name);
        }
    return lp_named_add(out, name, t, e);
}

static LpStatus read_source(zip_source_t *source, const char *name,
                            LpNamed *out, LpErr *e)
{
    zip_error_t failure;
    LpStatus s = LP_OK;
    zip_error_init(&failure);
    zip_t *z =
        zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &failure);
    if (!z) {
        zip_source_free(source);
        return zip_failed(name, &failure, e);
    }
    zip_int64_t n = zip_get_num_entries(z, 0);
    for (zip_int64_t i = 0; s == LP_OK && i < n; i++)
        s = read_array(z, (zip_uint64_t)i, name, out, e);
    zip_discard(z);
    zip_error_fini(&failure);
    return s;
}

LpStatus lp_npz_read(const char *path, LpNamed *out, LpErr *e)
{
    FILE *f;
    int64_t size;
    zip_error_t failure;
    LP_TRY(lp_file_open(path, &f, &size, e));
    zip_error_init(&failure);
    zip_source_t *source = zip_source_filep_create(f, 0, -1, &failure);
    if (!source) {
        fclose(f);
        return zip_failed(path, &failure, e);
    }
    return read_source(source, path, out, e);
}

/* ---- writing ------------------------------------------------------------- */
/* The header and elements of one array as an entry; `header` must live until
 * the archive is closed. */
static LpStatus add_array(zip_t *z, const struct LpNamedTensor *x, char *header,
                          bool compressed, LpErr *e)
{
    char name[MOST_NAME];
    size_t n;
    LP_TRY(lp_npy_header(x->t, header, &n, e));
    LP_FAIL_IF(strlen(x->name) >= MOST_NAME - 4, e, LP_E_VALUE,
               "npz: a name of %zu bytes", strlen(x->name));
    snprintf(name, sizeof name, "%s.npy", x->name);
    zip_buffer_fragment_t parts[2] = {
        {(zip_uint8_t *)header, n},
        {lp_tensor_data(x->t),
         (zip_uint64_t)lp_tensor_numel(x->t) * lp_dtype_size(x->t->dtype)}};
    zip_source_t *source = zip_source_buffer_fragment(z, parts, 2, 0);
    LP_FAIL_IF(!source, e, LP_E_MEMORY, "out of memory");
    zip_int64_t i = zip_file_add(z, name, source, ZIP_FL_ENC_UTF_8);
    if (i < 0) {
        zip_source_free(source);
        return lp_fail(e, LP_E_VALUE, "npz: '%.200s': %s", x->name,
                       zip_strerror(z));
    }
    /* The first day of the format, so that equal arrays make equal files. */
    zip_file_set_dostime(z, (zip_uint64_t)i, 0, 0x21, 0);
    int done = zip_set_file_compression(
        z, (zip_uint64_t)i, compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    LP_FAIL_IF(done != 0, e, LP_E_VALUE, "npz: %s", zip_strerror(z));
    return LP_OK;
}

static LpStatus write_zip(const char *path, const LpNamed *in, char *headers,
                          bool compressed, LpErr *e)
{
    int code;
    LpStatus s = LP_OK;
    zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!z) {
        zip_error_t failure;
        zip_error_init_with_code(&failure, code);
        return zip_failed(path, &failure, e);
    }
    for (size_t i = 0; s == LP_OK && i < in->n; i++)
        s = add_array(z, &in->items[i], headers + i * LP_NPY_HEADER, compressed,
                      e);
    if (s == LP_OK && zip_close(z) == 0)
        return LP_OK;
    if (s == LP_OK)
        s = lp_fail(e, LP_E_OS, "%s: %s", path, zip_strerror(z));
    zip_discard(z);
    return s;
}

LpStatus lp_npz_write(const char *path, const LpNamed *in, bool compressed,
                      LpErr *e)
{
    LpFileOut o;
    LP_FAIL_IF(in->n == 0, e, LP_E_VALUE,
               "npz: no arrays: an archive has one at least");
    LP_TRY(lp_named_ready(in, "npz", e));
    LP_TRY(lp_file_begin(&o, path, e));
    char *headers = lp_calloc(in->n, LP_NPY_HEADER);
    LpStatus s = headers ? write_zip(o.temp, in, headers, compressed, e)
                         : lp_fail(e, LP_E_MEMORY, "out of memory");
    lp_free(headers);
    if (s == LP_OK)
        return lp_file_commit(&o, e);
    lp_file_abandon(&o);
    return s;
}
