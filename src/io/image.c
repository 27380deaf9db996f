/* PNG by libpng, JPEG by libjpeg-turbo. Values are the file's own (no gamma, no
 * colour profile); palettes and depths below 8 bits are expanded, 16 bits
 * scaled to 8. Gray of RGB is ITU-R 601-2 luma in 16-bit fixed point, as
 * Pillow computes it.
 *
 * The size that a header promises is believed only as far as the format's
 * greatest compression allows for the file's length: deflate packs 1032 bytes
 * into one (zlib's technical page), a byte of PNG holds up to 8 pixels; a JPEG
 * of one colour stays below 4096 bytes per byte. Each scan of a progressive
 * JPEG goes over the whole image, even if it takes only a few bytes of the
 * file: what exceeds the 16 scans that no encoder needs counts against the
 * size. */
#include "src/io/image.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>
#include <turbojpeg.h>

#include "src/base/checked.h"
#include "src/base/mem.h"

#define PNG_RATIO (1032 * 8)
#define JPEG_RATIO 4096
#define JPEG_SCANS 16
#define SLACK 65536 /* bytes that any file may become */
#define MOST_SIDE 65535
#define MOST_FILE ((int64_t)1 << 31)

/* Pixels one after another, channels of a pixel together. */
typedef struct Pixels {
    unsigned char *p; /* owned */
    int64_t width, height, channels;
} Pixels;

static LpStatus make_pixels(Pixels *x, size_t file, int64_t ratio,
                            const char *name, LpErr *e)
{
    int64_t bytes, most = (int64_t)file * ratio + SLACK;
    bool ok = x->width >= 1 && x->height >= 1 && x->width <= MOST_SIDE &&
              x->height <= MOST_SIDE &&
              lp_mul_i64(x->width * x->height, x->channels, &bytes) &&
              bytes <= most;
    LP_FAIL_IF(!ok, e, LP_E_VALUE,
               "%s: %lld x %lld pixels cannot come of a file of %zu bytes",
               name, (long long)x->width, (long long)x->height, file);
    x->p = lp_alloc((size_t)bytes);
    LP_FAIL_IF(!x->p, e, LP_E_MEMORY, "out of memory");
    return LP_OK;
}

/* ---- PNG ----------------------------------------------------------------- */
typedef struct PngRead {
    const unsigned char *p;
    size_t n, at;
    LpErr *e;
    const char *name;
    png_bytep *rows; /* owned */
} PngRead;

static void png_failed(png_structp png, const char *message)
{
    PngRead *r = png_get_error_ptr(png);
    lp_fail(r->e, LP_E_VALUE, "%s: PNG: %s", r->name, message);
    longjmp(png_jmpbuf(png), 1);
}

static void png_warned(png_structp png LP_UNUSED, const char *message LP_UNUSED)
{
}

static void png_take(png_structp png, png_bytep to, size_t n)
{
    PngRead *r = png_get_io_ptr(png);
    if (n > r->n - r->at)
        png_error(png, "truncated");
    memcpy(to, r->p + r->at, n);
    r->at += n;
}

/* Runs under setjmp: png_error leaves it. False: out of memory, or e filled. */
static bool png_body(png_structp png, png_infop info, PngRead *r, Pixels *x)
{
    png_set_read_fn(png, r, png_take);
    png_set_user_limits(png, MOST_SIDE, MOST_SIDE);
    /* Texts, profiles and the like are passed over, not taken in: what they
     * promise or unpack to has no bound that libpng keeps. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(png, info);
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    x->width = png_get_image_width(png, info);
    x->height = png_get_image_height(png, info);
    x->channels = png_get_channels(png, info);
    if (make_pixels(x, r->n, PNG_RATIO, r->name, r->e) != LP_OK)
        return false;
    r->rows = lp_alloc((size_t)x->height * sizeof *r->rows);
    if (!r->rows)
        return false;
    for (int64_t i = 0; i < x->height; i++)
        r->rows[i] = x->p + i * x->width * x->channels;
    png_read_image(png, r->rows);
    png_read_end(png, NULL);
    return true;
}

/* A function of its own: no local of the caller changes between setjmp and
 * longjmp. */
static bool png_guarded(png_structp png, png_infop info, PngRead *r, Pixels *x)
{
    return setjmp(png_jmpbuf(png)) == 0 && png_body(png, info, r, x);
}

static LpStatus read_png(const unsigned char *p, size_t n, const char *name,
                         Pixels *x, LpErr *e)
{
    LpErr inner = {0};
    PngRead r = {.p = p, .n = n, .e = &inner, .name = name};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r,
                                             png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    bool ok = info && png_guarded(png, info, &r, x);
    png_destroy_read_struct(&png, &info, NULL);
    lp_free(r.rows);
    if (ok)
        return LP_OK;
    if (inner.code == LP_OK)
        return lp_no_memory(e);
    return lp_fail(e, inner.code, "%s", inner.msg);
}

/* ---- JPEG ---------------------------------------------------------------- */
static LpStatus jpeg_failed(tjhandle h, const char *name, LpErr *e)
{
    const char *message = tjGetErrorStr2(h);
    bool memory = strstr(message, "nsufficient memory");
    return lp_fail(e, memory ? LP_E_MEMORY : LP_E_VALUE, "%s: JPEG: %s", name,
                   message);
}

/* Starts of scans (FF DA stands nowhere else in coded data), no fewer than
 * the scans there are. */
static int64_t count_scans(const unsigned char *p, size_t n)
{
    const unsigned char *end = p + n;
    int64_t scans = 0;
    while (p < end && (p = memchr(p, 0xff, (size_t)(end - p))) && ++p < end)
        scans += *p == 0xda;
    return scans;
}

static LpStatus read_jpeg(const unsigned char *p, size_t n, const char *name,
                          Pixels *x, LpErr *e)
{
    int width = 0, height = 0, sampling, space = -1;
    tjhandle h = tjInitDecompress();
    LP_FAIL_IF(!h, e, LP_E_MEMORY, "out of memory");
    LpStatus s = LP_OK;
    if (tjDecompressHeader3(h, p, n, &width, &height, &sampling, &space) != 0)
        s = jpeg_failed(h, name, e);
    else if (space < 0) /* a header that ends early is only a warning */
        s = lp_fail(e, LP_E_VALUE, "%s: JPEG: no image", name);
    else if (space == TJCS_CMYK || space == TJCS_YCCK)
        s = lp_fail(e, LP_E_VALUE, "%s: JPEG: CMYK images are not read", name);
    if (s == LP_OK) {
        x->width = width;
        x->height = height;
        x->channels = space == TJCS_GRAY ? 1 : 3;
        int64_t scans = count_scans(p, n);
        int64_t ratio =
            JPEG_RATIO * JPEG_SCANS / (scans < JPEG_SCANS ? JPEG_SCANS : scans);
        s = make_pixels(x, n, ratio, name, e);
    }
    /* A warning (data that ends early, damaged entropy codes) is an error
     * here. */
    if (s == LP_OK &&
        tjDecompress2(h, p, n, x->p, width, 0, height,
                      space == TJCS_GRAY ? TJPF_GRAY : TJPF_RGB,
                      TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0)
        s = jpeg_failed(h, name, e);
    tjDestroy(h);
    return s;
}

/* ---- channels ------------------------------------------------------------ */
static unsigned char luma(const unsigned char *p)
{
    return (unsigned char)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u +
                            0x8000u) >>
                           16);
}

/* Channel c of the result, of a pixel with `have` channels. */
static unsigned char channel(const unsigned char *p, int64_t have,
                             LpImageMode mode, int64_t c)
{
    if (mode == LP_IMAGE_GRAY)
        return have >= 3 ? luma(p) : p[0];
    if (mode == LP_IMAGE_RGB)
        return have >= 3 ? p[c] : p[0];
    return p[c];
}

static LpStatus to_tensor(const Pixels *x, LpImageMode mode, LpTensor **out,
                          LpErr *e)
{
    int64_t channels = mode == LP_IMAGE_GRAY  ? 1
                       : mode == LP_IMAGE_RGB ? 3
                                              : x->channels;
    LpType type = {
        .dtype = LP_U8, .ndim = 3, .shape = {channels, x->height, x->width}};
    LP_TRY(lp_tensor_new(&type, out, e));
    unsigned char *to = lp_tensor_data(*out);
    int64_t n = x->height * x->width;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < n; i++)
            to[c * n + i] =
                channel(x->p + i * x->channels, x->channels, mode, c);
    return LP_OK;
}

/* ---- the whole ----------------------------------------------------------- */
static LpStatus read_bytes(const void *p, size_t n, const char *name,
                           LpImageMode mode, LpTensor **out, LpErr *e)
{
    static const unsigned char png[] = {0x89, 'P',  'N',  'G',
                                        '\r', '\n', 0x1a, '\n'};
    static const unsigned char jpeg[] = {0xff, 0xd8, 0xff};
    Pixels x = {0};
    LpStatus s;
    if (n >= sizeof png && memcmp(p, png, sizeof png) == 0)
        s = read_png(p, n, name, &x, e);
    else if (n >= sizeof jpeg && memcmp(p, jpeg, sizeof jpeg) == 0)
        s = read_jpeg(p, n, name, &x, e);
    else
        return lp_fail(e, LP_E_VALUE,
                       "%s: neither a PNG nor a JPEG image, by its first bytes",
                       name);
    if (s == LP_OK)
        s = to_tensor(&x, mode, out, e);
    lp_free(x.p);
    return s;
}

LpStatus lp_image_read(const char *path, LpImageMode mode, LpTensor **out,
                       LpErr *e)
{
    FILE *f;
    int64_t size;
    LP_TRY(lp_file_open(path, &f, &size, e));
    unsigned char *p = size <= MOST_FILE ? lp_alloc((size_t)size) : NULL;
    LpStatus s = p ? lp_file_read(f, path, p, (size_t)size, "the file", e)
                 : size > MOST_FILE
                     ? lp_fail(e, LP_E_VALUE,
                               "%s: an image of %lld bytes; at most %lld are "
                               "read",
                               path, (long long)size, (long long)MOST_FILE)
                     : lp_no_memory(e);
    fclose(f);
    if (s == LP_OK)
        s = read_bytes(p, (size_t)size, path, mode, out, e);
    lp_free(p);
    return s;
}

/* ---- writing ------------------------------------------------------------- */
typedef struct PngWrite {
    LpFileOut *o;
    LpErr *e;
    unsigned char *row; /* owned */
} PngWrite;

static void write_failed(png_structp png, const char *message)
{
    PngWrite *w = png_get_error_ptr(png);
    lp_fail(w->e, LP_E_VALUE, "%s: PNG: %s", w->o->path, message);
    longjmp(png_jmpbuf(png), 1);
}

static void png_give(png_structp png, png_bytep p, size_t n)
{
    PngWrite *w = png_get_io_ptr(png);
    if (lp_file_write(w->o, p, n, w->e) != LP_OK)
        longjmp(png_jmpbuf(png), 1);
}

static void png_flush_nothing(png_structp png LP_UNUSED) {}

static void write_body(png_structp png, png_infop info, PngWrite *w,
                       const LpTensor *t)
{
    static const int kinds[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    int64_t channels = t->shape[0], height = t->shape[1], width = t->shape[2];
    const unsigned char *p = lp_tensor_data(t);
    png_set_write_fn(png, w, png_give, png_flush_nothing);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8,
                 kinds[channels - 1], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int64_t y = 0; y < height; y++) {
        for (int64_t i = 0; i < width; i++)
            for (int64_t c = 0; c < channels; c++)
                w->row[i * channels + c] = p[(c * height + y) * width + i];
        png_write_row(png, w->row);
    }
    png_write_end(png, info);
}

static LpStatus write_stream(LpFileOut *o, const LpTensor *t, LpErr *e)
{
    PngWrite w = {.o = o, .e = e};
    png_infop info = NULL;
    volatile bool ok = false;
    w.row = lp_alloc((size_t)(t->shape[0] * t->shape[2]));
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &w,
                                              write_failed, png_warned);
    if (png)
        info = png_create_info_struct(png);
    if (w.row && info && setjmp(png_jmpbuf(png)) == 0) {
        write_body(png, info, &w, t);
        ok = true;
    }
    png_destroy_write_struct(&png, &info);
    lp_free(w.row);
    return ok ? LP_OK : lp_no_memory(e);
}

LpStatus lp_png_write(const char *path, const LpTensor *t, LpErr *e)
{
    LpFileOut o;
    bool ok = t->dtype == LP_U8 && t->ndim == 3 && t->shape[0] >= 1 &&
              t->shape[0] <= 4;
    for (int i = 1; ok && i < 3; i++)
        ok = t->shape[i] >= 1 && t->shape[i] <= MOST_SIDE;
    LpType type = lp_tensor_type(t);
    LP_FAIL_IF(!ok, e, LP_E_VALUE,
               "write_png: expected a uint8 tensor of 1 to 4 channels, height "
               "and width up to %d, got %s %s",
               MOST_SIDE, lp_dtype_name(t->dtype), lp_shape_str(&type));
    LP_TRY(lp_tensor_touch(t, false, e));
    LP_FAIL_IF(!lp_tensor_contiguous(t), e, LP_E_VALUE,
               "write_png: the tensor is not contiguous");
    LP_TRY(lp_file_begin(&o, path, e));
    LpStatus s = write_stream(&o, t, e);
    return lp_file_end(&o, s == LP_OK ? s : e->code, e);
}
