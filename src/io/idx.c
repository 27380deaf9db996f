/* IDX: two zero bytes, a type byte, the number of dimensions, one big-endian
 * 32-bit size for each, then the elements, big-endian, in order of the last
 * dimension fastest. Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST
 * database of handwritten digits", section "File formats".
 *
 * Method: the header is read first; what it promises is held against the size
 * of the file (plain: must be equal; gzip: against the length that the gzip
 * trailer records, and against deflate's greatest ratio) before anything of
 * that size is allocated, so that a hostile file costs no more than its own
 * length is good for. Then the elements go straight into the tensor, no byte
 * more than the header promises.
 * Sources of the gzip facts: RFC 1952 2.3; zlib's technical page gives 1032:1
 * as the limit of deflate. */
#include "src/io/idx.h"

#include <zlib.h>

#include "src/base/checked.h"
#include "src/base/interrupt.h"
#include "src/io/file.h"

#define CHUNK 65536
#define HEADER 4
#define GZIP_LEAST 18 /* header and trailer of an empty stream */
#define MAX_RATIO 1032

typedef struct Reader {
    FILE *f;
    const char *name;
    int64_t size; /* of the file */
    bool gzip;
    bool ended; /* gzip: end of the stream, its check sum was right */
    z_stream z;
    unsigned char buf[CHUNK]; /* gzip: bytes on their way to zlib */
} Reader;

/* ---- bytes --------------------------------------------------------------- */
static uint32_t big_endian32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static LpStatus bad_gzip(const Reader *r, LpErr *e)
{
    return lp_fail(e, LP_E_VALUE, "%s: the gzip data is damaged%s%s", r->name,
                   r->z.msg ? ": " : "", r->z.msg ? r->z.msg : "");
}

/* Up to `n` bytes of the content; *got < n at its end only. */
static LpStatus content(void *ctx, void *p, size_t n, size_t *got, LpErr *e)
{
    Reader *r = ctx;
    *got = 0;
    if (!r->gzip)
        return lp_file_some(r->f, r->name, p, n, got, e);
    while (*got < n && !r->ended) {
        if (r->z.avail_in == 0) {
            LP_FAIL_IF(lp_interrupt_raised(), e, LP_E_INTERRUPT, "interrupted");
            r->z.next_in = r->buf;
            r->z.avail_in = (uInt)fread(r->buf, 1, CHUNK, r->f);
            if (ferror(r->f))
                return lp_file_error(r->name, e);
            LP_FAIL_IF(r->z.avail_in == 0, e, LP_E_VALUE,
                       "%s: truncated: the gzip data ends early", r->name);
        }
        size_t room = n - *got;
        uInt most = (uInt)(room < 1u << 30 ? room : 1u << 30);
        r->z.next_out = (unsigned char *)p + *got;
        r->z.avail_out = most;
        int code = inflate(&r->z, Z_NO_FLUSH);
        *got += most - r->z.avail_out;
        if (code == Z_STREAM_END)
            r->ended = true;
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return bad_gzip(r, e);
    }
    return LP_OK;
}

static LpStatus exactly(Reader *r, void *p, size_t n, const char *what,
                        LpErr *e)
{
    LpSource src = {r->name, r->size, content, r};
    return lp_source_read(&src, p, n, what, e);
}

/* After the elements: nothing more, neither in the content nor behind it. */
static LpStatus at_end(Reader *r, LpErr *e)
{
    unsigned char more;
    size_t got;
    LP_TRY(content(r, &more, 1, &got, e));
    bool behind = r->gzip && (r->z.avail_in > 0 || fgetc(r->f) != EOF);
    LP_FAIL_IF(got > 0 || behind, e, LP_E_VALUE, "%s: extra bytes after the %s",
               r->name, got > 0 ? "elements" : "gzip data");
    return LP_OK;
}

/* ---- header -------------------------------------------------------------- */
static LpDtype dtype_of(unsigned char code)
{
    static const LpDtype from_8[] = {LP_U8,  LP_I8,  LP_DT_NONE, LP_I16,
                                     LP_I32, LP_F32, LP_F64};
    return code < 8 || code > 14 ? LP_DT_NONE : from_8[code - 8];
}

static LpStatus read_magic(Reader *r, LpType *type, LpErr *e)
{
    unsigned char h[HEADER];
    LP_TRY(exactly(r, h, sizeof h, "the magic number", e));
    type->dtype = dtype_of(h[2]);
    LP_FAIL_IF(h[0] || h[1] || type->dtype == LP_DT_NONE, e, LP_E_VALUE,
               "%s: wrong magic number %02x %02x %02x %02x: an IDX file "
               "starts with 00 00, a type (08, 09, 0b, 0c, 0d or 0e) and the "
               "number of dimensions",
               r->name, h[0], h[1], h[2], h[3]);
    LP_FAIL_IF(h[3] == 0 || h[3] > LP_MAX_DIMS, e, LP_E_VALUE,
               "%s: %d dimensions in the magic number; 1 to %d are allowed",
               r->name, h[3], LP_MAX_DIMS);
    type->ndim = (int8_t)h[3];
    return LP_OK;
}

/* Bytes of header and elements. */
static LpStatus read_sizes(Reader *r, LpType *type, int64_t *total, LpErr *e)
{
    unsigned char h[4 * LP_MAX_DIMS];
    int64_t n;
    LP_TRY(exactly(r, h, 4 * (size_t)type->ndim, "the list of sizes", e));
    for (int i = 0; i < type->ndim; i++)
        type->shape[i] = big_endian32(h + 4 * i);
    bool ok = lp_file_array_bytes(type, &n) &&
              lp_add_i64(n, HEADER + 4 * type->ndim, total);
    LP_FAIL_IF(!ok, e, LP_E_VALUE,
               "%s: the sizes %s are beyond what any file can hold", r->name,
               lp_shape_str(type));
    return LP_OK;
}

/* Ranges the promised length against the file's. */
static LpStatus check_length(Reader *r, const LpType *type, int64_t total,
                             LpErr *e)
{
    const char *name = lp_dtype_name(type->dtype), *shape = lp_shape_str(type);
    if (!r->gzip) {
        LP_FAIL_IF(r->size != total, e, LP_E_VALUE,
                   "%s: %s: %s of sizes %s take %lld bytes, the file has %lld",
                   r->name, r->size < total ? "truncated" : "extra bytes", name,
                   shape, (long long)total, (long long)r->size);
        return LP_OK;
    }
    unsigned char tail[4];
    off_t at = ftello(r->f);
    bool ok = at >= 0 && fseeko(r->f, (off_t)r->size - 4, SEEK_SET) == 0 &&
              fread(tail, 1, 4, r->f) == 4 && fseeko(r->f, at, SEEK_SET) == 0;
    if (!ok)
        return lp_file_error(r->name, e);
    /* The trailer is little-endian and counts modulo 2^32. */
    uint32_t length = (uint32_t)tail[3] << 24 | (uint32_t)tail[2] << 16 |
                      (uint32_t)tail[1] << 8 | tail[0];
    LP_FAIL_IF(length != (uint32_t)total || total / MAX_RATIO > r->size, e,
               LP_E_VALUE,
               "%s: truncated, damaged or with extra bytes: %s of sizes %s "
               "take %lld bytes, the gzip data (%lld bytes) ends with the "
               "length %lld",
               r->name, name, shape, (long long)total, (long long)r->size,
               (long long)length);
    return LP_OK;
}

/* ---- the whole ----------------------------------------------------------- */
static LpStatus read_array(Reader *r, LpTensor **out, LpErr *e)
{
    LpType type = {0};
    LpTensor *t = NULL;
    int64_t total = 0;
    LP_TRY(read_magic(r, &type, e));
    LP_TRY(read_sizes(r, &type, &total, e));
    LP_TRY(check_length(r, &type, total, e));
    LP_TRY(lp_tensor_new(&type, &t, e));
    size_t bytes = (size_t)(total - HEADER - 4 * type.ndim);
    LpStatus s = exactly(r, lp_tensor_data(t), bytes, "the array", e);
    if (s == LP_OK)
        s = at_end(r, e);
    if (s != LP_OK) {
        lp_tensor_release(t);
        return s;
    }
    lp_file_order(lp_tensor_data(t), lp_tensor_numel(t),
                  lp_dtype_size(type.dtype), true);
    *out = t;
    return LP_OK;
}

LpStatus lp_idx_read_stream(FILE *f, const char *name, LpTensor **out, LpErr *e)
{
    Reader r = {.f = f, .name = name};
    unsigned char h[2];
    LP_TRY(lp_file_size(f, name, &r.size, e));
    size_t got = fread(h, 1, 2, f);
    if (ferror(f) || fseeko(f, 0, SEEK_SET) != 0)
        return lp_file_error(name, e);
    r.gzip = got == 2 && h[0] == 0x1f && h[1] == 0x8b;
    if (!r.gzip)
        return read_array(&r, out, e);
    LP_FAIL_IF(r.size < GZIP_LEAST, e, LP_E_VALUE,
               "%s: truncated: gzip data has %d bytes at least, the file %lld",
               name, GZIP_LEAST, (long long)r.size);
    LP_FAIL_IF(inflateInit2(&r.z, 15 + 16) != Z_OK, e, LP_E_MEMORY,
               "out of memory");
    LpStatus s = read_array(&r, out, e);
    inflateEnd(&r.z);
    return s;
}

LpStatus lp_idx_read(const char *path, LpTensor **out, LpErr *e)
{
    FILE *f;
    int64_t size;
    LP_TRY(lp_file_open(path, &f, &size, e));
    LpStatus s = lp_idx_read_stream(f, path, out, e);
    fclose(f);
    return s;
}
