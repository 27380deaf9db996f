/* .npz: a zip archive of .npy files (NumPy reference, numpy.savez), read and
 * written by libzip. Entries are stored or deflated, as NumPy writes them. The
 * uncompressed length that the archive tells is held against deflate's
 * greatest ratio before it is believed, and the compressed ones together
 * against the file's: entries that share their bytes cannot multiply them. */
#include <string.h>

#include <zip.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/io/npy.h"

#define PIECE ((size_t)1 << 20) /* between two looks for Ctrl-C */
#define MAX_RATIO 1032          /* of deflate; zlib's technical page */
#define MOST_NAME 4096
#define MOST_ENTRIES 65535 /* of a zip archive without the 64-bit extension */

static LpStatus zip_failed(const char *name, zip_error_t *z, LpErr *e)
{
    LpStatus code =
        zip_error_code_zip(z) == ZIP_ER_MEMORY ? LP_E_MEMORY : LP_E_VALUE;
    LpStatus s = lp_fail(e, code, "%s: %s", name, zip_error_strerror(z));
    zip_error_fini(z);
    return s;
}

/* ---- reading ------------------------------------------------------------- */
typedef struct Entry {
    zip_file_t *f;
    char name[512]; /* archive and entry, for messages */
} Entry;

static LpStatus read_entry(void *ctx, void *p, size_t n, size_t *got, LpErr *e)
{
    Entry *x = ctx;
    *got = 0;
    while (*got < n) {
        size_t want = n - *got < PIECE ? n - *got : PIECE;
        zip_int64_t k = zip_fread(x->f, (char *)p + *got, want);
        LP_FAIL_IF(lp_interrupt_raised(), e, LP_E_INTERRUPT, "interrupted");
        LP_FAIL_IF(k < 0, e, LP_E_VALUE, "%s: %s", x->name,
                   zip_error_strerror(zip_file_get_error(x->f)));
        if (k == 0)
            break;
        *got += (size_t)k;
    }
    return LP_OK;
}

/* Up to the end: libzip checks the sum of an entry there. */
static LpStatus check_end(Entry *x, LpErr *e)
{
    char more;
    size_t got;
    LP_TRY(read_entry(x, &more, 1, &got, e));
    LP_FAIL_IF(got, e, LP_E_VALUE, "%s: extra bytes after the array", x->name);
    return LP_OK;
}

static LpStatus stat_entry(zip_t *z, zip_uint64_t i, const char *archive,
                           zip_stat_t *st, LpErr *e)
{
    enum {
        NEED = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
               ZIP_STAT_COMP_METHOD
    };
    bool known = zip_stat_index(z, i, 0, st) == 0 &&
                 (st->valid & NEED) == NEED && strlen(st->name) < MOST_NAME - 4;
    LP_FAIL_IF(!known, e, LP_E_VALUE, "%s: entry %llu is damaged", archive,
               (unsigned long long)i);
    return LP_OK;
}

/* What the directory tells of an entry, held against what can be; *left is
 * what is left of the file's length. */
static LpStatus check_entry(const zip_stat_t *st, const char *archive,
                            zip_uint64_t *left, LpErr *e)
{
    LP_FAIL_IF(st->comp_method != ZIP_CM_STORE &&
                   st->comp_method != ZIP_CM_DEFLATE,
               e, LP_E_VALUE,
               "%s: entry '%.200s': compression method %d; 0 (stored) and 8 "
               "(deflated) are read",
               archive, st->name, st->comp_method);
    LP_FAIL_IF(st->size / MAX_RATIO > st->comp_size || st->size > INT64_MAX, e,
               LP_E_VALUE,
               "%s: entry '%.200s': %llu bytes cannot come of %llu compressed "
               "ones",
               archive, st->name, (unsigned long long)st->size,
               (unsigned long long)st->comp_size);
    LP_FAIL_IF(st->comp_size > *left, e, LP_E_VALUE,
               "%s: entry '%.200s': the entries up to it have more bytes than "
               "the file (overlap)",
               archive, st->name);
    *left -= st->comp_size;
    return LP_OK;
}

/* The name without ".npy", which no other entry may have. */
static LpStatus name_of(zip_t *z, zip_uint64_t i, const char *archive,
                        const char *entry, char name[MOST_NAME], LpErr *e)
{
    size_t n = strlen(entry);
    n -= n > 4 && strcmp(entry + n - 4, ".npy") == 0 ? 4 : 0;
    memcpy(name, entry, n);
    memcpy(name + n, ".npy", 5);
    zip_int64_t a = zip_name_locate(z, name, ZIP_FL_ENC_RAW);
    name[n] = '\0';
    zip_int64_t b = zip_name_locate(z, name, ZIP_FL_ENC_RAW);
    bool other =
        (a >= 0 && (zip_uint64_t)a != i) || (b >= 0 && (zip_uint64_t)b != i);
    LP_FAIL_IF(other, e, LP_E_VALUE, "%s: two arrays '%.200s'", archive, name);
    return LP_OK;
}

static LpStatus read_array(zip_t *z, const zip_stat_t *st, const char *archive,
                           zip_uint64_t *left, LpTensor **t, LpErr *e)
{
    LP_TRY(check_entry(st, archive, left, e));
    Entry x = {.f = zip_fopen_index(z, st->index, 0)};
    snprintf(x.name, sizeof x.name, "%.250s: %.250s", archive, st->name);
    LP_FAIL_IF(!x.f, e, LP_E_VALUE, "%s: %s", x.name, zip_strerror(z));
    LpSource src = {x.name, (int64_t)st->size, read_entry, &x};
    LpStatus s = lp_npy_read_source(&src, t, e);
    if (s == LP_OK)
        s = check_end(&x, e);
    zip_fclose(x.f);
    if (s != LP_OK) {
        lp_tensor_release(*t);
        *t = NULL;
    }
    return s;
}

/* Adds entry i under its name; with `each`, one whose bytes are bad without a
 * tensor and with a text that says why. */
static LpStatus add_entry(zip_t *z, zip_uint64_t i, const char *archive,
                          bool each, zip_uint64_t *left, LpNamed *out, LpErr *e)
{
    zip_stat_t st;
    char name[MOST_NAME];
    LpTensor *t = NULL;
    LP_TRY(stat_entry(z, i, archive, &st, e));
    LP_TRY(name_of(z, i, archive, st.name, name, e));
    LpStatus s = read_array(z, &st, archive, left, &t, e);
    if (s == LP_E_VALUE && each) {
        LpErr why = *e;
        *e = (LpErr){0};
        s = lp_named_text(out, name, why.msg, e);
    }
    return s == LP_OK ? lp_named_add(out, name, t, e) : s;
}

static LpStatus read_source(zip_source_t *source, const char *name,
                            int64_t size, bool each, LpNamed *out, LpErr *e)
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
    zip_uint64_t left = (zip_uint64_t)size;
    if (n > MOST_ENTRIES)
        s = lp_fail(e, LP_E_VALUE, "%s: %lld entries; at most %d are read",
                    name, (long long)n, MOST_ENTRIES);
    for (zip_int64_t i = 0; s == LP_OK && i < n; i++)
        s = add_entry(z, (zip_uint64_t)i, name, each, &left, out, e);
    zip_discard(z);
    zip_error_fini(&failure);
    return s;
}

LpStatus lp_npz_read(const char *path, bool each, LpNamed *out, LpErr *e)
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
    return read_source(source, path, size, each, out, e);
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
                         : lp_no_memory(e);
    lp_free(headers);
    return lp_file_end(&o, s, e);
}
