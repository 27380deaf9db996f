/* .npy: "\x93NUMPY", the version, the header's length (16 bits, little-endian;
 * 32 bits from version 2 on), a Python dictionary with 'descr' (the element
 * type), 'fortran_order' and 'shape', then the elements. Source: NumPy
 * reference, numpy.lib.format.
 *
 * Method: the header is read by a reader of its own small grammar (never
 * evaluated); the length that it promises must be that of the file before
 * anything of that size is allocated. */
#include "src/io/npy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/checked.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define MOST_HEADER 10000 /* NumPy's own bound (max_header_size) */
#define ALIGN 64          /* of the elements; numpy.lib.format */

/* ---- element types ------------------------------------------------------- */
/* NumPy's letter of the kind; 0: NumPy has no such type. */
static char kind_letter(LpDtype t)
{
    if (t == LP_BF16)
        return 0;
    if (t == LP_U8)
        return 'u';
    switch (lp_dtype_kind(t)) {
    case LP_KIND_FLOAT:
        return 'f';
    case LP_KIND_INT:
        return 'i';
    default:
        return 'b';
    }
}

/* "<f4" to float32; *big tells the order of bytes. */
static LpDtype dtype_of(const char *s, bool *big)
{
    const int one = 1;
    char *end;
    bool marked = s[0] && strchr("<>|=", s[0]);
    *big = s[0] == '>' || (s[0] != '<' && *(const char *)&one != 1);
    s += marked;
    if (!s[0] || s[1] < '1' || s[1] > '9')
        return LP_DT_NONE;
    unsigned long size = strtoul(s + 1, &end, 10);
    for (int t = 0; *end == '\0' && t < LP_N_DTYPES; t++)
        if (kind_letter((LpDtype)t) == s[0] &&
            lp_dtype_size((LpDtype)t) == size)
            return (LpDtype)t;
    return LP_DT_NONE;
}

/* ---- header -------------------------------------------------------------- */
typedef struct Header {
    const char *name; /* of the file */
    const char *p, *start;
    LpType type;
    bool fortran, big;
} Header;

static LpStatus bad(const Header *h, const char *expected, LpErr *e)
{
    return lp_fail(e, LP_E_VALUE, "%s: npy header, byte %d: expected %s",
                   h->name, (int)(h->p - h->start), expected);
}

static void skip(Header *h)
{
    h->p += strspn(h->p, " \t\n");
}

static bool take(Header *h, const char *word)
{
    skip(h);
    size_t n = strlen(word);
    if (strncmp(h->p, word, n) != 0)
        return false;
    h->p += n;
    return true;
}

static LpStatus read_string(Header *h, char buf[64], LpErr *e)
{
    skip(h);
    char quote = *h->p;
    const char *end =
        quote == '\'' || quote == '"' ? strchr(h->p + 1, quote) : NULL;
    if (!end || end - h->p > 63 || memchr(h->p, '\\', (size_t)(end - h->p)))
        return bad(h, "a short string", e);
    size_t n = (size_t)(end - h->p - 1);
    memcpy(buf, h->p + 1, n);
    buf[n] = '\0';
    h->p = end + 1;
    return LP_OK;
}

static LpStatus read_shape(Header *h, LpErr *e)
{
    bool comma = true;
    if (!take(h, "("))
        return bad(h, "'('", e);
    while (!take(h, ")")) {
        if (!comma)
            return bad(h, "',' or ')'", e);
        if (*h->p < '0' || *h->p > '9')
            return bad(h, "a size", e);
        if (h->type.ndim == LP_MAX_DIMS)
            return bad(h, "at most 12 sizes", e);
        int64_t n = 0;
        for (; *h->p >= '0' && *h->p <= '9'; h->p++)
            if (!lp_mul_i64(n, 10, &n) || !lp_add_i64(n, *h->p - '0', &n))
                return bad(h, "a size below 2^63", e);
        h->type.shape[h->type.ndim++] = n;
        comma = take(h, ",");
    }
    return LP_OK;
}

static LpStatus read_descr(Header *h, LpErr *e)
{
    char descr[64];
    skip(h);
    LP_FAIL_IF(*h->p == '[', e, LP_E_VALUE,
               "%s: records (structured arrays) have no tensor", h->name);
    LP_TRY(read_string(h, descr, e));
    h->type.dtype = dtype_of(descr, &h->big);
    LP_FAIL_IF(h->type.dtype == LP_DT_NONE, e, LP_E_VALUE,
               "%s: the array's type is '%s'; f2, f4, f8, i1, i2, i4, i8, u1 "
               "and b1 are read",
               h->name, descr);
    return LP_OK;
}

static LpStatus read_dictionary(Header *h, LpErr *e)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    unsigned seen = 0;
    char key[64];
    bool comma = true;
    if (!take(h, "{"))
        return bad(h, "'{'", e);
    while (!take(h, "}")) {
        unsigned k = 0;
        if (!comma)
            return bad(h, "',' or '}'", e);
        LP_TRY(read_string(h, key, e));
        while (k < 3 && strcmp(key, keys[k]) != 0)
            k++;
        if (k == 3 || (seen & 1u << k))
            return bad(h, "each of descr, fortran_order and shape once", e);
        seen |= 1u << k;
        if (!take(h, ":"))
            return bad(h, "':'", e);
        if (k == 0)
            LP_TRY(read_descr(h, e));
        else if (k == 2)
            LP_TRY(read_shape(h, e));
        else if (take(h, "True"))
            h->fortran = true;
        else if (!take(h, "False"))
            return bad(h, "True or False", e);
        comma = take(h, ",");
    }
    if (seen != 7)
        return bad(h, "descr, fortran_order and shape", e);
    skip(h);
    return *h->p ? bad(h, "its end", e) : LP_OK;
}

/* ---- reading ------------------------------------------------------------- */
/* *data becomes the place of the first element. */
static LpStatus read_header(const LpSource *src, Header *h, int64_t *data,
                            LpErr *e)
{
    unsigned char b[MAGIC_SIZE + 2], size[4] = {0};
    char text[MOST_HEADER + 1];
    LP_TRY(lp_source_read(src, b, sizeof b, "the magic number", e));
    LP_FAIL_IF(memcmp(b, MAGIC, MAGIC_SIZE) != 0, e, LP_E_VALUE,
               "%s: no npy file: it does not start with \\x93NUMPY", src->name);
    int version = b[MAGIC_SIZE];
    LP_FAIL_IF(version < 1 || version > 3, e, LP_E_VALUE,
               "%s: npy version %d; 1, 2 and 3 are read", src->name, version);
    size_t width = version == 1 ? 2 : 4;
    LP_TRY(lp_source_read(src, size, width, "the header's length", e));
    uint32_t n = (uint32_t)size[3] << 24 | (uint32_t)size[2] << 16 |
                 (uint32_t)size[1] << 8 | size[0];
    LP_FAIL_IF(n > MOST_HEADER, e, LP_E_VALUE,
               "%s: an npy header of %lu bytes; at most %d are read", src->name,
               (unsigned long)n, MOST_HEADER);
    LP_TRY(lp_source_read(src, text, n, "the header", e));
    text[n] = '\0';
    LP_FAIL_IF(memchr(text, '\0', n), e, LP_E_VALUE,
               "%s: a zero byte in the npy header", src->name);
    *data = (int64_t)(sizeof b + width + n);
    h->p = h->start = text;
    LpStatus s = read_dictionary(h, e);
    h->p = h->start = NULL;
    return s;
}

/* The length that the header promises must be the file's. */
static LpStatus check_length(const LpSource *src, const Header *h, int64_t data,
                             int64_t *bytes, LpErr *e)
{
    int64_t total = 0;
    bool ok = lp_file_array_bytes(&h->type, bytes) &&
              lp_add_i64(*bytes, data, &total);
    LP_FAIL_IF(!ok, e, LP_E_VALUE,
               "%s: the sizes %s are beyond what any file can hold", src->name,
               lp_shape_str(&h->type));
    LP_FAIL_IF(
        total != src->size, e, LP_E_VALUE,
        "%s: %s: %s of sizes %s take %" PRId64 " bytes, the file has %" PRId64,
        src->name, src->size < total ? "truncated" : "extra bytes",
        lp_dtype_name(h->type.dtype), lp_shape_str(&h->type), total, src->size);
    return LP_OK;
}

/* The view with the sizes of the header, of elements whose first dimension is
 * the fastest. Takes over `t`. */
static LpStatus fortran_view(LpTensor *t, const LpType *type, LpTensor **out,
                             LpErr *e)
{
    int64_t strides[LP_MAX_DIMS], step = 1;
    for (int i = 0; i < type->ndim; i++) {
        strides[i] = step;
        step *= type->shape[i] ? type->shape[i] : 1;
    }
    LpStatus s = lp_tensor_over(t->st, type, strides, 0, out, e);
    lp_tensor_release(t);
    return s;
}

LpStatus lp_npy_read_source(const LpSource *src, LpTensor **out, LpErr *e)
{
    Header h = {.name = src->name};
    LpTensor *t = NULL;
    int64_t data = 0, bytes = 0;
    LP_TRY(read_header(src, &h, &data, e));
    LP_TRY(check_length(src, &h, data, &bytes, e));
    LP_TRY(lp_tensor_new(&h.type, &t, e));
    unsigned char *p = lp_tensor_data(t);
    LpStatus s = lp_source_read(src, p, (size_t)bytes, "the array", e);
    if (s != LP_OK) {
        lp_tensor_release(t);
        return s;
    }
    lp_file_elements(p, &h.type, h.big);
    if (h.fortran && h.type.ndim > 1)
        return fortran_view(t, &h.type, out, e);
    *out = t;
    return LP_OK;
}

typedef struct NamedFile {
    FILE *f;
    const char *name;
} NamedFile;

static LpStatus read_file(void *ctx, void *p, size_t n, size_t *got, LpErr *e)
{
    const NamedFile *x = ctx;
    *got = 0;
    return lp_file_some(x->f, x->name, p, n, got, e);
}

LpStatus lp_npy_read(const char *path, LpTensor **out, LpErr *e)
{
    NamedFile x = {.name = path};
    LpSource src = {.name = path, .read = read_file, .ctx = &x};
    LP_TRY(lp_file_open(path, &x.f, &src.size, e));
    LpStatus s = lp_npy_read_source(&src, out, e);
    fclose(x.f);
    return s;
}

/* ---- writing ------------------------------------------------------------- */
/* Version 1: twelve sizes of at most 19 digits stay below 64 KiB, and below
 * LP_NPY_HEADER. */
LpStatus lp_npy_header(const LpTensor *t, char buf[LP_NPY_HEADER], size_t *n,
                       LpErr *e)
{
    const int one = 1;
    const size_t head = MAGIC_SIZE + 4;
    size_t size = lp_dtype_size(t->dtype);
    char letter = kind_letter(t->dtype);
    LP_FAIL_IF(!letter, e, LP_E_TYPE,
               "npy: NumPy has no %s; convert to float32 first",
               lp_dtype_name(t->dtype));
    char order = size == 1 ? '|' : *(const char *)&one == 1 ? '<' : '>';
    size_t k = head + (size_t)snprintf(buf + head, LP_NPY_HEADER - head,
                                       "{'descr': '%c%c%zu', 'fortran_order': "
                                       "False, 'shape': (",
                                       order, letter, size);
    for (int i = 0; i < t->ndim; i++)
        k += (size_t)snprintf(buf + k, LP_NPY_HEADER - k, "%s%" PRId64 "%s",
                              i ? " " : "", t->shape[i],
                              i + 1 < t->ndim || t->ndim == 1 ? "," : "");
    k += (size_t)snprintf(buf + k, LP_NPY_HEADER - k, "), }");
    *n = (k + 1 + ALIGN - 1) / ALIGN * ALIGN;
    memset(buf + k, ' ', *n - k);
    buf[*n - 1] = '\n';
    memcpy(buf, MAGIC "\1\0", MAGIC_SIZE + 2);
    buf[MAGIC_SIZE + 2] = (char)((*n - head) & 0xff);
    buf[MAGIC_SIZE + 3] = (char)((*n - head) >> 8);
    return LP_OK;
}

LpStatus lp_npy_write(const char *path, const LpTensor *t, LpErr *e)
{
    LpFileOut o;
    char header[LP_NPY_HEADER];
    size_t n;
    LP_TRY(lp_npy_header(t, header, &n, e));
    LP_TRY(lp_tensor_touch(t, false, e));
    LP_FAIL_IF(!lp_tensor_contiguous(t), e, LP_E_VALUE,
               "npy: the tensor is not contiguous");
    LP_TRY(lp_file_begin(&o, path, e));
    size_t bytes = (size_t)lp_tensor_numel(t) * lp_dtype_size(t->dtype);
    LpStatus s = lp_file_write(&o, header, n, e);
    if (s == LP_OK)
        s = lp_file_write(&o, lp_tensor_data(t), bytes, e);
    return lp_file_end(&o, s, e);
}
