/* safetensors: a little-endian 64-bit length, a JSON header of that length
 * ({"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …},
 * texts under "__metadata__"), then the bytes of the tensors, little-endian.
 * Source: huggingface/safetensors, README, section "Format".
 *
 * Method of reading: the header's length is held against the file's and a
 * bound, the JSON is read by jansson with duplicate names refused, then the
 * offsets, sorted, must tile the rest of the file: no gap, no overlap, the end
 * of the last is the file's. Only then is anything allocated, so a hostile
 * file costs no more than its own length is good for. Written tensors are
 * sorted by the size of their elements, so that each lies aligned. */
#include "src/io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "src/base/mem.h"

#define LENGTH 8
#define MOST_HEADER 100000000 /* as the original's reader allows */
#define META "__metadata__"
#define ALIGN 8 /* the header is padded with spaces to a multiple */

static const char *const codes[] = {
#define DTYPE(id, name, bytes, kind, ctype) #id,
#include "src/tensor/dtypes.def"
#undef DTYPE
};

/* An entry of the header. */
typedef struct Entry {
    const char *name; /* borrowed of the JSON */
    LpType type;
    int64_t begin, end;
    LpTensor *t; /* owned until it is in the list */
    size_t at;   /* place in the header */
} Entry;

typedef struct Reader {
    FILE *f;
    const char *name; /* of the file */
    int64_t size;
    json_t *header;
    Entry *entries;
    size_t n;
} Reader;

/* ---- header -------------------------------------------------------------- */
/* What the file is instead, as far as its first bytes tell; of a valid file
 * they are a length and may look like anything. */
static LpStatus other_file(const Reader *r, const unsigned char *h, uint64_t n,
                           LpErr *e)
{
    if (h[0] == 'P' && h[1] == 'K')
        return lp_fail(e, LP_E_VALUE,
                       "%s: a zip archive (PyTorch's pickles are such), no "
                       "safetensors file: in Python, "
                       "safetensors.torch.save_file writes one",
                       r->name);
    if (h[0] == 0x80 && h[1] >= 2 && h[1] <= 5)
        return lp_fail(e, LP_E_VALUE,
                       "%s: a pickle (PyTorch's files of before version 1.6 "
                       "are such), no safetensors file: in Python, "
                       "safetensors.torch.save_file writes one",
                       r->name);
    return lp_fail(e, LP_E_VALUE,
                   "%s: no safetensors file, or truncated: a header of %llu "
                   "bytes in a file of %lld (at most %d are allowed)",
                   r->name, (unsigned long long)n, (long long)r->size,
                   MOST_HEADER);
}

static LpStatus read_header(Reader *r, int64_t *data, LpErr *e)
{
    unsigned char h[LENGTH];
    uint64_t n = 0;
    json_error_t bad;
    LP_TRY(lp_file_read(r->f, r->name, h, LENGTH, "the header's length", e));
    for (int i = LENGTH - 1; i >= 0; i--)
        n = n << 8 | h[i];
    if (n > MOST_HEADER || (int64_t)n > r->size - LENGTH)
        return other_file(r, h, n, e);
    char *text = lp_alloc(n);
    LP_FAIL_IF(!text, e, LP_E_MEMORY, "out of memory");
    LpStatus s = lp_file_read(r->f, r->name, text, n, "the header", e);
    if (s == LP_OK && (n == 0 || text[0] != '{'))
        s = lp_fail(e, LP_E_VALUE, "%s: the header does not start with '{'",
                    r->name);
    if (s == LP_OK) {
        r->header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &bad);
        /* jansson gives no text when memory runs out */
        if (!r->header && !bad.text[0])
            s = lp_no_memory(e);
        else if (!r->header)
            s = lp_fail(e, LP_E_VALUE, "%s: header, byte %d: %s", r->name,
                        bad.position, bad.text);
    }
    lp_free(text);
    *data = LENGTH + (int64_t)n;
    return s;
}

static LpStatus read_meta(Reader *r, json_t *meta, LpNamed *out, LpErr *e)
{
    const char *key;
    json_t *value;
    LP_FAIL_IF(!json_is_object(meta), e, LP_E_VALUE,
               "%s: " META " is not an object", r->name);
    json_object_foreach(meta, key, value)
    {
        LP_FAIL_IF(!json_is_string(value), e, LP_E_VALUE,
                   "%s: " META ": the value of '%.200s' is not a string",
                   r->name, key);
        LP_TRY(lp_named_text(out, key, json_string_value(value), e));
    }
    return LP_OK;
}

static LpStatus bad_entry(const Reader *r, const Entry *x, const char *what,
                          LpErr *e)
{
    return lp_fail(e, LP_E_VALUE, "%s: tensor '%.200s': %s", r->name, x->name,
                   what);
}

static LpStatus read_shape(const Reader *r, json_t *shape, Entry *x,
                           int64_t *bytes, LpErr *e)
{
    if (!json_is_array(shape) || json_array_size(shape) > LP_MAX_DIMS)
        return bad_entry(r, x, "shape is not a list of at most 12 sizes", e);
    x->type.ndim = (int8_t)json_array_size(shape);
    for (int i = 0; i < x->type.ndim; i++) {
        json_t *v = json_array_get(shape, (size_t)i);
        int64_t size = json_is_integer(v) ? json_integer_value(v) : -1;
        if (size < 0)
            return bad_entry(r, x, "a size is not a number from 0 on", e);
        x->type.shape[i] = size;
    }
    return lp_file_array_bytes(&x->type, bytes)
               ? LP_OK
               : bad_entry(r, x, "sizes beyond what any file can hold", e);
}

static LpStatus read_entry(const Reader *r, json_t *v, int64_t room, Entry *x,
                           LpErr *e)
{
    json_t *offsets = json_object_get(v, "data_offsets");
    const char *code = json_string_value(json_object_get(v, "dtype"));
    json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    int64_t bytes = 0;
    if (!json_is_object(v) || json_object_size(v) != 3)
        return bad_entry(r, x, "has not exactly dtype, shape and data_offsets",
                         e);
    x->type.dtype = LP_DT_NONE;
    for (int i = 0; code && i < LP_N_DTYPES; i++)
        if (strcmp(code, codes[i]) == 0)
            x->type.dtype = (LpDtype)i;
    LP_FAIL_IF(x->type.dtype == LP_DT_NONE, e, LP_E_VALUE,
               "%s: tensor '%.200s': dtype is '%.40s'; F64, F32, F16, BF16, "
               "I64, I32, I16, I8, U8 and BOOL are read",
               r->name, x->name, code ? code : "no string");
    LP_TRY(read_shape(r, json_object_get(v, "shape"), x, &bytes, e));
    if (json_array_size(offsets) != 2 || !json_is_integer(a) ||
        !json_is_integer(b))
        return bad_entry(r, x, "data_offsets is not a list of two numbers", e);
    x->begin = json_integer_value(a);
    x->end = json_integer_value(b);
    LP_FAIL_IF(x->begin < 0 || x->end > room || x->begin > x->end, e,
               LP_E_VALUE,
               "%s: tensor '%.200s': offsets %lld to %lld lie outside of the "
               "%lld bytes of data (truncated?)",
               r->name, x->name, (long long)x->begin, (long long)x->end,
               (long long)room);
    LP_FAIL_IF(x->end - x->begin != bytes, e, LP_E_VALUE,
               "%s: tensor '%.200s': dtype and shape take %lld bytes, its "
               "offsets hold %lld",
               r->name, x->name, (long long)bytes,
               (long long)(x->end - x->begin));
    return LP_OK;
}

static int by_offset(const void *p, const void *q)
{
    const Entry *a = p, *b = q;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

static int by_place(const void *p, const void *q)
{
    const Entry *a = p, *b = q;
    return (a->at > b->at) - (a->at < b->at);
}

/* Sorted, the ranges must follow one another to the end of the file. */
static LpStatus check_tiling(Reader *r, int64_t room, LpErr *e)
{
    int64_t at = 0;
    if (r->n)
        qsort(r->entries, r->n, sizeof *r->entries, by_offset);
    for (size_t i = 0; i < r->n; at = r->entries[i++].end)
        LP_FAIL_IF(r->entries[i].begin != at, e, LP_E_VALUE,
                   "%s: tensor '%.200s' starts at %lld, %s the one before it "
                   "ends at %lld",
                   r->name, r->entries[i].name, (long long)r->entries[i].begin,
                   r->entries[i].begin < at ? "but (overlap)" : "but (gap)",
                   (long long)at);
    LP_FAIL_IF(at != room, e, LP_E_VALUE,
               "%s: extra bytes: the tensors end at %lld of %lld bytes",
               r->name, (long long)at, (long long)room);
    return LP_OK;
}

/* ---- reading ------------------------------------------------------------- */
static LpStatus read_data(Reader *r, Entry *x, LpErr *e)
{
    LP_TRY(lp_tensor_new(&x->type, &x->t, e));
    char *p = lp_tensor_data(x->t);
    LP_TRY(lp_file_read(r->f, r->name, p, (size_t)(x->end - x->begin),
                        "a tensor", e));
    lp_file_elements(p, &x->type, false);
    return LP_OK;
}

static LpStatus read_all(Reader *r, LpNamed *out, LpErr *e)
{
    int64_t data = 0;
    size_t at = 0;
    const char *key;
    json_t *value;
    LP_TRY(read_header(r, &data, e));
    r->entries = lp_calloc(json_object_size(r->header), sizeof *r->entries);
    LP_FAIL_IF(!r->entries, e, LP_E_MEMORY, "out of memory");
    json_object_foreach(r->header, key, value)
    {
        Entry *x = &r->entries[r->n];
        if (strcmp(key, META) == 0) {
            LP_TRY(read_meta(r, value, out, e));
            continue;
        }
        *x = (Entry){.name = key, .at = at++};
        LP_TRY(read_entry(r, value, r->size - data, x, e));
        r->n++;
    }
    LP_TRY(check_tiling(r, r->size - data, e));
    for (size_t i = 0; i < r->n; i++)
        LP_TRY(read_data(r, &r->entries[i], e));
    if (r->n)
        qsort(r->entries, r->n, sizeof *r->entries, by_place);
    for (size_t i = 0; i < r->n; i++) {
        LpTensor *t = r->entries[i].t;
        r->entries[i].t = NULL;
        LP_TRY(lp_named_add(out, r->entries[i].name, t, e));
    }
    return LP_OK;
}

LpStatus lp_safetensors_read(const char *path, LpNamed *out, LpErr *e)
{
    Reader r = {.name = path};
    LP_TRY(lp_file_open(path, &r.f, &r.size, e));
    LpStatus s = read_all(&r, out, e);
    for (size_t i = 0; i < r.n; i++)
        lp_tensor_release(r.entries[i].t);
    lp_free(r.entries);
    json_decref(r.header);
    fclose(r.f);
    return s;
}

/* ---- writing ------------------------------------------------------------- */
/* Larger elements first, else as given. */
static int by_element(const void *p, const void *q)
{
    const Entry *a = p, *b = q;
    size_t m = lp_dtype_size(a->type.dtype), n = lp_dtype_size(b->type.dtype);
    return m != n ? (m < n ? 1 : -1) : by_place(p, q);
}

static size_t bytes_of(const LpTensor *t)
{
    return (size_t)lp_tensor_numel(t) * lp_dtype_size(t->dtype);
}

static json_t *entry_json(const Entry *x)
{
    json_t *shape = json_array();
    for (int i = 0; i < x->type.ndim; i++)
        json_array_append_new(shape, json_integer(x->type.shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", codes[x->type.dtype],
                     "shape", shape, "data_offsets", (json_int_t)x->begin,
                     (json_int_t)x->end);
}

static LpStatus add_entry(json_t *header, const char *name, json_t *value,
                          LpErr *e)
{
    bool again = json_object_get(header, name) || strcmp(name, META) == 0;
    LP_FAIL_IF(!value, e, LP_E_MEMORY, "out of memory");
    if (again || json_object_set_new(header, name, value) != 0) {
        if (again)
            json_decref(value);
        return lp_fail(e, LP_E_VALUE,
                       again ? "safetensors: the name '%.200s' stands twice or "
                               "is kept for metadata"
                             : "safetensors: the name '%.200s' is not UTF-8",
                       name);
    }
    return LP_OK;
}

static LpStatus add_meta(json_t *header, const LpNamed *in, LpErr *e)
{
    json_t *meta = json_object();
    if (in->n_text == 0) {
        json_decref(meta);
        return LP_OK;
    }
    json_object_set_new(header, META, meta);
    for (size_t i = 0; i < in->n_text; i++)
        LP_FAIL_IF(json_object_set_new(meta, in->texts[i].name,
                                       json_string(in->texts[i].text)) != 0,
                   e, LP_E_VALUE,
                   "safetensors: the metadata '%.200s' is not UTF-8",
                   in->texts[i].name);
    return LP_OK;
}

/* The padded header, owned by the caller; NULL with e filled on failure. */
static char *make_header(const LpNamed *in, const Entry *entries, size_t *n,
                         LpErr *e)
{
    json_t *header = json_object();
    char *text = NULL;
    LpStatus s = header ? add_meta(header, in, e) : lp_no_memory(e);
    for (size_t i = 0; s == LP_OK && i < in->n; i++)
        s = add_entry(header, entries[i].name, entry_json(&entries[i]), e);
    if (s == LP_OK) {
        size_t size = json_dumpb(header, NULL, 0, JSON_COMPACT);
        *n = (size + ALIGN - 1) / ALIGN * ALIGN;
        text = size ? lp_alloc(*n) : NULL;
        if (!text)
            lp_no_memory(e);
        else
            memset(text + json_dumpb(header, text, size, JSON_COMPACT), ' ',
                   *n - size);
    }
    json_decref(header);
    return text;
}

static LpStatus write_data(LpFileOut *o, const LpTensor *t, LpErr *e)
{
    enum { PIECE = 4096 };
    unsigned char piece[PIECE];
    const int one = 1;
    const char *p = lp_tensor_data(t);
    size_t left = bytes_of(t), size = lp_dtype_size(t->dtype);
    if (*(const char *)&one == 1)
        return lp_file_write(o, p, left, e);
    for (size_t n; left > 0; left -= n, p += n) {
        n = left < PIECE ? left : PIECE;
        memcpy(piece, p, n);
        lp_file_order(piece, (int64_t)(n / size), size, false);
        LP_TRY(lp_file_write(o, piece, n, e));
    }
    return LP_OK;
}

static LpStatus write_all(LpFileOut *o, const char *header, size_t n,
                          const Entry *sorted, size_t n_entries, LpErr *e)
{
    unsigned char h[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        h[i] = (unsigned char)((uint64_t)n >> (8 * i));
    LP_TRY(lp_file_write(o, h, LENGTH, e));
    LP_TRY(lp_file_write(o, header, n, e));
    for (size_t i = 0; i < n_entries; i++)
        LP_TRY(write_data(o, sorted[i].t, e));
    return LP_OK;
}

LpStatus lp_safetensors_write(const char *path, const LpNamed *in, LpErr *e)
{
    LpFileOut o;
    int64_t at = 0;
    size_t n = 0;
    LP_TRY(lp_named_ready(in, "safetensors", e));
    Entry *sorted = lp_calloc(2 * in->n, sizeof *sorted);
    LP_FAIL_IF(!sorted, e, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < in->n; i++)
        sorted[i] = (Entry){.name = in->items[i].name,
                            .type = lp_tensor_type(in->items[i].t),
                            .t = in->items[i].t,
                            .at = i};
    if (in->n)
        qsort(sorted, in->n, sizeof *sorted, by_element);
    Entry *placed = sorted + in->n;
    for (size_t i = 0; i < in->n; i++) {
        sorted[i].begin = at;
        at += (int64_t)bytes_of(sorted[i].t);
        sorted[i].end = at;
        placed[sorted[i].at] = sorted[i];
    }
    char *header = make_header(in, placed, &n, e);
    LpStatus s = header ? lp_file_begin(&o, path, e) : e->code;
    if (s == LP_OK)
        s = lp_file_end(&o, write_all(&o, header, n, sorted, in->n, e), e);
    lp_free(header);
    lp_free(sorted);
    return s;
}
