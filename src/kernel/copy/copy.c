/* Strided copies.
 *
 * Same type: elements are moved as 1, 2, 4 or 8 bytes. After the dimensions
 * have been ordered and merged, the innermost one is a block move, a fill,
 * one side of a transpose (squares of 16 x 16 elements go through a buffer, so
 * that both sides are read and written by whole lines) or a plain strided loop.
 * Another type: loops of one conversion each, over the innermost dimension.
 *
 * Conversions. To bool: anything but zero is true, NaN too. Float to integer:
 * truncation to 64 bits, out of range or NaN gives the smallest value (what
 * x86's instruction gives), then the low bits. Into and out of half types by
 * the loops of loops.h, which alone round to them; integers of less than 64
 * bits and the other half type become float32 first, as in PyTorch. */
#include <string.h>
#include <wchar.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/loops.h"

/* Below this a thread costs more than it brings: about 20 us of copying. */
#define PARALLEL_BYTES (1 << 18)
#define LOOK 256   /* rows between two looks for Ctrl-C */
#define SHORT 1024 /* bytes of a row before whose end no prefetcher wakes */
#define AHEAD 8    /* rows to fetch it before */
#define LINE 64
#define NARROW 8  /* elements of a row */
#define SQUARE 16 /* a line of 4-byte elements */
#define BAND 256  /* rows whose pages fit the TLB together */
#define FILL 2048 /* bytes filled at first, then copied by the C library */

/* ---- conversion ---------------------------------------------------------- */
static inline int64_t int_of(double f)
{
    return f >= -0x1p63 && f < 0x1p63 ? (int64_t)f : INT64_MIN;
}

static inline int32_t int32_of(double f)
{
    return f >= -0x1p31 && f < 0x1p31 ? (int32_t)f : INT32_MIN;
}

#define LOAD_F64(p) (p)
#define LOAD_F32(p) (p)
#define LOAD_I64(p) (p)
#define LOAD_I32(p) (p)
#define LOAD_I16(p) (p)
#define LOAD_I8(p) (p)
#define LOAD_U8(p) (p)
#define LOAD_BOOL(p) ((p) != 0)

/* n elements of FT to TT; v is the loaded one */
#define LOOP(name, FT, TT, expr)                                               \
    static void name(const void *sp, int64_t ss, void *dp, int64_t ds,         \
                     int64_t n)                                                \
    {                                                                          \
        const FT *s = sp;                                                      \
        TT *d = dp;                                                            \
        if (ss == 1 && ds == 1)                                                \
            for (int64_t i = 0; i < n; i++) {                                  \
                FT v = s[i];                                                   \
                d[i] = expr;                                                   \
            }                                                                  \
        else                                                                   \
            for (int64_t i = 0; i < n; i++) {                                  \
                FT v = s[i * ss];                                              \
                d[i * ds] = expr;                                              \
            }                                                                  \
    }

#define TO_FLOATS(F, FT)                                                       \
    LOOP(conv_##F##_F64, FT, double, (double)LOAD_##F(v))                      \
    LOOP(conv_##F##_F32, FT, float, (float)LOAD_##F(v))                        \
    LOOP(conv_##F##_BOOL, FT, uint8_t, LOAD_##F(v) != 0)
#define TO_INTS(F, FT, cast, cast32)                                           \
    LOOP(conv_##F##_I64, FT, int64_t, (int64_t)cast(LOAD_##F(v)))              \
    LOOP(conv_##F##_I32, FT, int32_t, (int32_t)cast32(LOAD_##F(v)))            \
    LOOP(conv_##F##_I16, FT, int16_t, (int16_t)cast(LOAD_##F(v)))              \
    LOOP(conv_##F##_I8, FT, int8_t, (int8_t)cast(LOAD_##F(v)))                 \
    LOOP(conv_##F##_U8, FT, uint8_t, (uint8_t)cast(LOAD_##F(v)))

#define FROM_FLOAT(F, FT) TO_FLOATS(F, FT) TO_INTS(F, FT, int_of, int32_of)
#define FROM_INT(F, FT) TO_FLOATS(F, FT) TO_INTS(F, FT, , )

FROM_FLOAT(F64, double)
FROM_FLOAT(F32, float)
FROM_INT(I64, int64_t)
FROM_INT(I32, int32_t)
FROM_INT(I16, int16_t)
FROM_INT(I8, int8_t)
FROM_INT(U8, uint8_t)
FROM_INT(BOOL, uint8_t)

typedef void (*Convert)(const void *s, int64_t ss, void *d, int64_t ds,
                        int64_t n);
#define ROW(F)                                                                 \
    {                                                                          \
        conv_##F##_F64, conv_##F##_F32, NULL, NULL, conv_##F##_I64,            \
            conv_##F##_I32, conv_##F##_I16, conv_##F##_I8, conv_##F##_U8,      \
            conv_##F##_BOOL                                                    \
    }
/* rows and columns in the order of dtypes.def; none of the half types */
static const Convert converts[LP_N_DTYPES][LP_N_DTYPES] = {
    ROW(F64), ROW(F32), {NULL},  {NULL},  ROW(I64),
    ROW(I32), ROW(I16), ROW(I8), ROW(U8), ROW(BOOL),
};

static void through_float(LpDtype from, const char *s, int64_t s_bytes,
                          LpDtype to, char *d, int64_t d_bytes, int64_t n)
{
    enum { BLOCK = 512 };
    float buf[BLOCK];
    LpConvert load = lp_convert_loop(from, LP_F32);
    LpConvert store = lp_convert_loop(LP_F32, to);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        load(m, buf, sizeof *buf, s + i * s_bytes, s_bytes);
        store(m, d + i * d_bytes, d_bytes, buf, sizeof *buf);
    }
}

void lp_convert(LpDtype from, const void *src, int64_t src_step, LpDtype to,
                void *dst, int64_t dst_step, int64_t n)
{
    bool half = lp_is_half(from) || lp_is_half(to);
    LpConvert loop = half ? lp_convert_loop(from, to) : NULL;
    int64_t s = src_step * (int64_t)lp_dtype_size(from);
    int64_t d = dst_step * (int64_t)lp_dtype_size(to);
    if (loop)
        loop(n, dst, d, src, s);
    else if (half)
        through_float(from, src, s, to, dst, d, n);
    else
        converts[from][to](src, src_step, dst, dst_step, n);
}

/* ---- moving elements of 1, 2, 4, 8 bytes --------------------------------- */
/* n elements of so many bytes, by the C library's widest stores. */
static void fill_together(void *to, const void *v, size_t size, int64_t n)
{
    char *d = to, *end = d + (size_t)n * size, word[sizeof(wchar_t)];
    size_t words = (size_t)n * size / sizeof word;
    for (size_t i = 0; i < sizeof word && size <= sizeof word; i += size)
        memcpy(word + i, v, size);
    if (size <= sizeof word && words > 0) {
        wchar_t w;
        memcpy(&w, word, sizeof w);
        wmemset(to, w, words);
        d += words * sizeof w;
    }
    for (char *first = d; d < end; d += size) {
        if (d - first == FILL)
            break;
        memcpy(d, v, size);
    }
    for (size_t some; d < end; d += some) {
        some = end - d < FILL ? (size_t)(end - d) : FILL;
        memcpy(d, d - FILL, some);
    }
}

#define MOVERS(T)                                                              \
    LOOP(move_##T, T, T, v)                                                    \
    /* d[i] = s[-i] */                                                         \
    static void back_##T(const void *sp, void *dp, int64_t n)                  \
    {                                                                          \
        const T *s = (const T *)sp - (n - 1);                                  \
        T *d = dp;                                                             \
        for (int64_t i = 0; i < n; i++)                                        \
            d[i] = s[n - 1 - i];                                               \
    }                                                                          \
    static void fill_##T(const void *sp, void *dp, int64_t ds, int64_t n)      \
    {                                                                          \
        T v = *(const T *)sp, *d = dp;                                         \
        if (ds == 1)                                                           \
            fill_together(d, &v, sizeof v, n);                                 \
        else                                                                   \
            for (int64_t i = 0; i < n; i++)                                    \
                d[i * ds] = v;                                                 \
    }                                                                          \
    /* d[r][c] = s[c][r], d's rows contiguous, s's columns contiguous */       \
    static void turn_##T(const void *sp, int64_t ss, void *dp, int64_t ds,     \
                         int64_t rows, int64_t cols)                           \
    {                                                                          \
        const T *s = sp;                                                       \
        T *d = dp, tile[SQUARE][SQUARE];                                       \
        int64_t full = rows - rows % SQUARE, wide = cols - cols % SQUARE;      \
        for (int64_t b = 0; b < full; b += BAND)                               \
            for (int64_t c = 0; c < wide; c += SQUARE)                         \
                for (int64_t r = b; r < b + BAND && r < full; r += SQUARE) {   \
                    for (int64_t j = 0; j < SQUARE; j++)                       \
                        memcpy(tile[j], s + (c + j) * ss + r, sizeof tile[j]); \
                    square_##T(tile, d + r * ds + c, ds);                      \
                }                                                              \
        for (int64_t i = 0; i < full; i++) /* the last columns */              \
            for (int64_t j = wide; j < cols; j++)                              \
                d[i * ds + j] = s[j * ss + i];                                 \
        for (int64_t i = full; i < rows; i++) /* the last rows */              \
            for (int64_t j = 0; j < cols; j++)                                 \
                d[i * ds + j] = s[j * ss + i];                                 \
    }
#define NARROWS(T)                                                             \
    static inline void narrow_##T(const T *s, int64_t sr, int64_t ss, T *d,    \
                                  int64_t dr, int64_t ds, int64_t rows,        \
                                  int64_t cols)                                \
    {                                                                          \
        for (int64_t r = 0; r < rows; r++, s += sr, d += dr)                   \
            for (int64_t c = 0; c < cols; c++)                                 \
                d[c * ds] = s[c * ss];                                         \
    }                                                                          \
    /* rows of so few columns that a call for each would take longer */        \
    static void rows_##T(const void *s, int64_t sr, int64_t ss, void *d,       \
                         int64_t dr, int64_t ds, int64_t rows, int64_t cols)   \
    {                                                                          \
        switch (cols) { /* loops that are unrolled */                          \
        case 2:                                                                \
            narrow_##T(s, sr, ss, d, dr, ds, rows, 2);                         \
            break;                                                             \
        case 3:                                                                \
            narrow_##T(s, sr, ss, d, dr, ds, rows, 3);                         \
            break;                                                             \
        case 4:                                                                \
            narrow_##T(s, sr, ss, d, dr, ds, rows, 4);                         \
            break;                                                             \
        default:                                                               \
            narrow_##T(s, sr, ss, d, dr, ds, rows, cols);                      \
        }                                                                      \
    }
#define SQUARES(T)                                                             \
    static void square_##T(T tile[SQUARE][SQUARE], T *d, int64_t ds)           \
    {                                                                          \
        for (int64_t i = 0; i < SQUARE; i++)                                   \
            for (int64_t j = 0; j < SQUARE; j++)                               \
                d[i * ds + j] = tile[j][i];                                    \
    }
SQUARES(uint8_t)
SQUARES(uint16_t)
SQUARES(uint64_t)

/* Four by four in registers. */
static void square_uint32_t(uint32_t tile[SQUARE][SQUARE], uint32_t *d,
                            int64_t ds)
{
    typedef uint32_t Four __attribute__((vector_size(16)));
    const Four low = {0, 4, 1, 5}, high = {2, 6, 3, 7};
    for (int64_t j = 0; j < SQUARE; j += 4)
        for (int64_t i = 0; i < SQUARE; i += 4) {
            Four v[4], t[4];
            for (int k = 0; k < 4; k++)
                memcpy(&v[k], &tile[j + k][i], sizeof v[k]);
            for (int k = 0; k < 2; k++) {
                t[2 * k] = __builtin_shuffle(v[k], v[k + 2], low);
                t[2 * k + 1] = __builtin_shuffle(v[k], v[k + 2], high);
            }
            for (int k = 0; k < 2; k++) {
                v[2 * k] = __builtin_shuffle(t[k], t[k + 2], low);
                v[2 * k + 1] = __builtin_shuffle(t[k], t[k + 2], high);
            }
            for (int k = 0; k < 4; k++)
                memcpy(d + (i + k) * ds + j, &v[k], sizeof v[k]);
        }
}
MOVERS(uint8_t)
MOVERS(uint16_t)
MOVERS(uint32_t)
MOVERS(uint64_t)
NARROWS(uint8_t)
NARROWS(uint16_t)
NARROWS(uint32_t)
NARROWS(uint64_t)

typedef struct Mover {
    Convert move;
    void (*back)(const void *s, void *d, int64_t n);
    void (*fill)(const void *s, void *d, int64_t ds, int64_t n);
    void (*turn)(const void *s, int64_t ss, void *d, int64_t ds, int64_t rows,
                 int64_t cols);
    void (*rows)(const void *s, int64_t sr, int64_t ss, void *d, int64_t dr,
                 int64_t ds, int64_t rows, int64_t cols);
} Mover;

static const Mover *mover(size_t bytes)
{
    static const Mover by_size[] = {
        {move_uint8_t, back_uint8_t, fill_uint8_t, turn_uint8_t, rows_uint8_t},
        {move_uint16_t, back_uint16_t, fill_uint16_t, turn_uint16_t,
         rows_uint16_t},
        {move_uint32_t, back_uint32_t, fill_uint32_t, turn_uint32_t,
         rows_uint32_t},
        {move_uint64_t, back_uint64_t, fill_uint64_t, turn_uint64_t,
         rows_uint64_t},
    };
    return &by_size[bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];
}

/* ---- planning ------------------------------------------------------------ */
LpDesc lp_desc_of(const LpType *t)
{
    LpDesc d = {.dtype = t->dtype, .ndim = t->ndim};
    memcpy(d.shape, t->shape, sizeof d.shape);
    lp_contiguous_strides(t, d.strides);
    return d;
}

LpType lp_type_of_desc(const LpDesc *d)
{
    LpType t = {.dtype = d->dtype, .ndim = d->ndim};
    memcpy(t.shape, d->shape, sizeof t.shape);
    return t;
}

LpDesc lp_desc_plain(const LpDesc *d, LpDtype t)
{
    LpType type = lp_type_of_desc(d);
    type.dtype = t;
    return lp_desc_of(&type);
}

LpDesc lp_desc_split(const LpDesc *d, int rank, int64_t channels, int block)
{
    LpDesc s = {.dtype = d->dtype,
                .ndim = (int8_t)(rank + 1),
                .is_imm = d->is_imm,
                .imm = d->imm};
    for (int i = 0; i < rank; i++) {
        int at = i - (rank - d->ndim);
        bool have = !d->is_imm && at >= 0;
        s.shape[i] = have ? d->shape[at] : 1;
        s.strides[i] = have ? d->strides[at] : 0;
    }
    bool splits = s.shape[1] == channels;
    s.shape[rank] = splits ? block : 1;
    s.strides[rank] = s.strides[1];
    if (splits) {
        s.shape[1] = channels / block;
        s.strides[1] *= block;
    }
    if (d->block) {
        int64_t step = 1;
        for (int i = rank; i >= 0; i--) {
            s.strides[i] = step;
            step *= s.shape[i];
        }
    }
    return s;
}

int64_t lp_desc_numel(const LpDesc *d)
{
    return lp_elements(d->shape, d->ndim);
}

bool lp_desc_contiguous(const LpDesc *d)
{
    return lp_is_dense(d->shape, d->strides, d->ndim);
}

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

/* By the destination's step, then by the source's, largest first; stable. */
static void order_dims(LpCopyPlan *p)
{
    for (int i = 1; i < p->n; i++) {
        int64_t sh = p->shape[i], s = p->src[i], d = p->dst[i];
        int j = i;
        while (j > 0 && (magnitude(p->dst[j - 1]) < magnitude(d) ||
                         (magnitude(p->dst[j - 1]) == magnitude(d) &&
                          magnitude(p->src[j - 1]) < magnitude(s)))) {
            p->shape[j] = p->shape[j - 1];
            p->src[j] = p->src[j - 1];
            p->dst[j] = p->dst[j - 1];
            j--;
        }
        p->shape[j] = sh;
        p->src[j] = s;
        p->dst[j] = d;
    }
}

static void merge_dims(LpCopyPlan *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        if (n > 0 && p->src[n - 1] == p->src[i] * p->shape[i] &&
            p->dst[n - 1] == p->dst[i] * p->shape[i]) {
            p->shape[n - 1] *= p->shape[i];
        } else {
            p->shape[n] = p->shape[i];
            n++;
        }
        p->src[n - 1] = p->src[i];
        p->dst[n - 1] = p->dst[i];
    }
    p->n = n;
}

void lp_copy_plan(const LpDesc *src, const LpDesc *dst, int threads,
                  LpCopyPlan *p)
{
    *p = (LpCopyPlan){.from = src->dtype, .to = dst->dtype};
    int shift = dst->ndim - src->ndim;
    int64_t bytes = (int64_t)lp_dtype_size(dst->dtype);
    for (int i = 0; i < dst->ndim; i++) {
        if (dst->shape[i] == 0)
            p->empty = true;
        if (dst->shape[i] == 1)
            continue;
        bool repeated = i < shift || src->shape[i - shift] == 1;
        p->shape[p->n] = dst->shape[i];
        p->src[p->n] = repeated ? 0 : src->strides[i - shift];
        p->dst[p->n] = dst->strides[i];
        p->n++;
    }
    order_dims(p);
    merge_dims(p);
    if (p->n == 0) {
        p->n = 1;
        p->shape[0] = p->src[0] = p->dst[0] = 1;
    }
    for (int i = 0; i < p->n && !p->empty; i++)
        bytes *= p->shape[i];
    p->threads = bytes < PARALLEL_BYTES ? 1
                 : threads < 1          ? lp_cpu_threads()
                                        : threads;
}

/* ---- running ------------------------------------------------------------- */
/* The dimension that makes a transpose with the last one, or -1. */
static int turned_dim(const LpCopyPlan *p)
{
    int last = p->n - 1;
    if (p->from != p->to || p->n < 2 || p->dst[last] != 1 ||
        magnitude(p->src[last]) < 2)
        return -1;
    for (int i = 0; i < last; i++)
        if (p->src[i] == 1)
            return i;
    return -1;
}

/* One run of the last dimension, part [from, from + n). */
static void copy_row(const LpCopyPlan *p, const char *s, char *d, int64_t n)
{
    int last = p->n - 1;
    int64_t ss = p->src[last], ds = p->dst[last];
    size_t bytes = lp_dtype_size(p->to);
    if (p->from != p->to)
        lp_convert(p->from, s, ss, p->to, d, ds, n);
    else if (ss == 1 && ds == 1)
        memmove(d, s, (size_t)n * bytes);
    else if (ss == -1 && ds == 1)
        mover(bytes)->back(s, d, n);
    else if (ss == 0)
        mover(bytes)->fill(s, d, ds, n);
    else
        mover(bytes)->move(s, ss, d, ds, n);
}

/* `rows` runs of the last dimension (of squares of `skip` and the last one, of
 * the last two if that one is narrow), in the order of the dimensions before.
 */
static void copy_rows(const LpCopyPlan *p, int skip, const char *s, char *d,
                      int64_t rows)
{
    int last = p->n - 1;
    int64_t fb = (int64_t)lp_dtype_size(p->from);
    int64_t tb = (int64_t)lp_dtype_size(p->to);
    int64_t at[LP_MAX_DIMS] = {0}, n = p->shape[last];
    const Mover *m = mover((size_t)tb);
    bool narrow = skip < 0 && last > 0 && p->from == p->to && n <= NARROW;
    int with = narrow ? last - 1 : skip;
    rows = narrow ? rows / p->shape[with] : rows;
    int64_t from = last > 0 ? AHEAD * p->src[last - 1] * fb : 0;
    int64_t to = last > 0 ? AHEAD * p->dst[last - 1] * tb : 0;
    int64_t apart = last > 0 && n * fb <= SHORT ? n * fb : 0;
    for (int64_t r = 0; r < rows; r++) {
        if (p->stops && r % LOOK == 0 && lp_kernel_stops())
            return;
        if (narrow) {
            m->rows(s, p->src[with], p->src[last], d, p->dst[with],
                    p->dst[last], p->shape[with], n);
        } else if (skip < 0) {
            for (int64_t line = 0; line < apart; line += LINE) {
                __builtin_prefetch(s + from + line);
                __builtin_prefetch(d + to + line, 1);
            }
            copy_row(p, s, d, n);
        } else {
            m->turn(s, p->src[last], d, p->dst[skip], p->shape[skip], n);
        }
        for (int i = last - 1; i >= 0; i--) {
            if (i == with)
                continue;
            s += p->src[i] * fb;
            d += p->dst[i] * tb;
            if (++at[i] < p->shape[i])
                break;
            s -= p->src[i] * p->shape[i] * fb;
            d -= p->dst[i] * p->shape[i] * tb;
            at[i] = 0;
        }
    }
}

/* Few outer rows: the work is cut along `dim` instead. */
static void copy_cut(const LpCopyPlan *p, int skip, int dim, const char *s,
                     char *d, int threads)
{
    int64_t n = p->shape[dim], part = (n + threads - 1) / threads;
    part = (part + 15) / 16 * 16;
    int64_t parts = (n + part - 1) / part, rows = 1;
    for (int i = 0; i < p->n - 1; i++)
        if (i != skip && i != dim)
            rows *= p->shape[i];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < parts; c++) {
        LpCopyPlan q = *p;
        q.shape[dim] = lp_min(part, n - c * part);
        int64_t all = rows;
        if (dim != p->n - 1 && dim != skip)
            all *= q.shape[dim];
        copy_rows(&q, skip,
                  s + c * part * p->src[dim] * (int64_t)lp_dtype_size(p->from),
                  d + c * part * p->dst[dim] * (int64_t)lp_dtype_size(p->to),
                  all);
    }
}

void lp_copy_run(const LpCopyPlan *p, const void *src, void *dst)
{
    if (p->empty)
        return;
    int skip = turned_dim(p), widest = 0;
    int64_t rows = 1;
    for (int i = 0; i < p->n; i++) {
        if (i != skip && i < p->n - 1)
            rows *= p->shape[i];
        if (p->shape[i] > p->shape[widest])
            widest = i;
    }
    if (p->threads < 2)
        copy_rows(p, skip, src, dst, rows);
    else
        copy_cut(p, skip, widest, src, dst, p->threads);
}

void lp_copy_strided(const LpDesc *src, const void *sp, const LpDesc *dst,
                     void *dp)
{
    LpCopyPlan p;
    if (src->is_imm) {
        lp_fill_strided(dst, dp, src->imm);
        return;
    }
    lp_copy_plan(src, dst, 0, &p);
    lp_copy_run(&p, sp, dp);
}

void lp_fill_strided(const LpDesc *dst, void *dp, LpScalar v)
{
    LpCopyPlan p;
    _Alignas(8) char one[8];
    LpDesc src = {.dtype = dst->dtype};
    lp_scalar_store(v, dst->dtype, one);
    lp_copy_plan(&src, dst, 0, &p);
    lp_copy_run(&p, one, dp);
}

/* Dimension by dimension what lies before and after the box, within the box of
 * the dimensions before it. A small tensor is filled at once: planning the
 * sides takes longer. */
void lp_fill_around(const LpDesc *dst, void *dp, const int64_t *from,
                    const int64_t *shape, LpScalar v)
{
    int64_t bytes = (int64_t)lp_dtype_size(dst->dtype);
    LpDesc side = *dst;
    char *at = dp;
    if (lp_desc_numel(dst) * bytes < PARALLEL_BYTES) {
        lp_fill_strided(dst, dp, v);
        return;
    }
    for (int i = 0; i < dst->ndim; i++) {
        int64_t step = dst->strides[i] * bytes, end = from[i] + shape[i];
        side.shape[i] = from[i];
        lp_fill_strided(&side, at, v);
        side.shape[i] = dst->shape[i] - end;
        lp_fill_strided(&side, at + end * step, v);
        side.shape[i] = shape[i];
        at += from[i] * step;
    }
}

/* ---- as a kernel --------------------------------------------------------- */
typedef struct CopyState {
    LpCopyPlan plan;
    int64_t offset_bytes;
} CopyState;
_Static_assert(sizeof(CopyState) <= sizeof((LpKernel *)0)->inl, "inline state");

LP_KERNEL_RUN(run_copy)
{
    const CopyState *s = (const CopyState *)(const void *)k->inl;
    lp_copy_run(&s->plan, (const char *)in[0] + s->offset_bytes, out[0]);
    return LP_OK;
}

LpStatus lp_copy_kernel(const LpDesc *src, int64_t offset, const LpDesc *dst,
                        int threads, LpKernel *k)
{
    CopyState *s = (CopyState *)(void *)k->inl;
    lp_copy_plan(src, dst, threads, &s->plan);
    s->plan.stops = true;
    s->offset_bytes = offset * (int64_t)lp_dtype_size(src->dtype);
    k->run = run_copy;
    k->threads = s->plan.threads;
    return LP_OK;
}

typedef struct FillState {
    LpCopyPlan plan;
    _Alignas(8) char one[8];
} FillState;
_Static_assert(sizeof(FillState) <= sizeof((LpKernel *)0)->inl, "inline state");

LP_KERNEL_RUN(run_fill)
{
    const FillState *s = (const FillState *)(const void *)k->inl;
    lp_copy_run(&s->plan, s->one, out[0]);
    return LP_OK;
}

LpStatus lp_fill_kernel(const LpDesc *dst, LpScalar v, int threads, LpKernel *k)
{
    FillState *s = (FillState *)(void *)k->inl;
    LpDesc src = {.dtype = dst->dtype};
    lp_copy_plan(&src, dst, threads, &s->plan);
    s->plan.stops = true;
    lp_scalar_store(v, dst->dtype, s->one);
    k->run = run_fill;
    k->threads = s->plan.threads;
    return LP_OK;
}
