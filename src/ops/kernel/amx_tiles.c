/* The loops of tileloops.h for CPUs with AMX (Intel 64 and IA-32 Architectures
 * Software Developer's Manual, volume 1, chapter 18): eight tile registers of
 * 16 rows of 64 bytes. Four hold sums, 32 by 32, two an operand's tiles each.
 *
 * tdpbf16ps takes rows of the left operand as they are; of the right one, pairs
 * of elements along k, [k / 2][column][2]. It sums 16 products in each of two
 * chains, from zero, adds the two, and then adds that to the tile: one rounding
 * of a large sum for 32 products. It takes and leaves no subnormal numbers. */
#include "src/ops/kernel/tileloops.h"

#ifdef __x86_64__
#include <string.h>

#include "src/ops/kernel/simd_turn.h"

/* The intrinsics of tiles do not say that they read and write memory. */
#define IN_MEMORY __asm__ volatile("" ::: "memory")
#define INLINE static inline __attribute__((always_inline))

enum { STEP = 64 }; /* bytes of a tile's row */

/* ---- cutting ------------------------------------------------------------- */
/* Upper halves of the first pieces, doubled to lose the sign: the largest, and
 * the smallest less one, which makes 0 the largest. All bits of third pieces:
 * below the upper half there are some if the first one vanished. */
typedef struct Range {
    __m512i most, least, third;
} Range;

/* Exponents of a first piece that leave the others normal: a third one has
 * bits 23 places below the number's first. */
enum { LARGE = 254 << 8, SMALL = 24 << 8 };

INLINE Range range_of_none(void)
{
    return (Range){_mm512_setzero_si512(), _mm512_set1_epi16(-1),
                   _mm512_setzero_si512()};
}

INLINE void note(Range *r, __m512i first)
{
    __m512i u = _mm512_add_epi16(first, first);
    r->most = _mm512_max_epu16(r->most, u);
    r->least =
        _mm512_min_epu16(r->least, _mm512_sub_epi16(u, _mm512_set1_epi16(1)));
}

INLINE bool is_normal(const Range *r)
{
    __m512i large = _mm512_set1_epi16((short)LARGE);
    __m512i small = _mm512_set1_epi16((short)(SMALL - 1));
    __m512i below = _mm512_set1_epi32(0xffff);
    return (_mm512_cmpge_epu16_mask(r->most, large) |
            _mm512_cmplt_epu16_mask(r->least, small)) == 0 &&
           _mm512_test_epi32_mask(r->third, below) == 0;
}

/* To nearest of bfloat16, in the upper half. */
INLINE __m512 rounded(__m512 x)
{
    __m512i up = _mm512_add_epi32((__m512i)x, _mm512_set1_epi32(0x8000));
    return (__m512)_mm512_and_si512(up, _mm512_set1_epi32(-0x10000));
}

/* Upper halves of all of a, then of b. */
INLINE __m512i one_after_other(__m512i a, __m512i b)
{
    const __m512i odd = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29,
        27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, odd, b);
}

/* Of a and b in turn; those of b stand alone in it. */
INLINE __m512i by_turns(__m512i a, __m512i b)
{
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
}

/* A row of a tile: the pieces of a and b. What two pieces leave of a number has
 * 8 bits and is the third as it is. */
INLINE void cut(__m512 a, __m512 b, bool turns, int pieces, uint16_t *to,
                Range *r)
{
    for (int p = 0; p < pieces; p++) {
        __m512 x = p == 2 ? a : rounded(a), y = p == 2 ? b : rounded(b);
        __m512i both = turns ? by_turns((__m512i)x, (__m512i)y)
                             : one_after_other((__m512i)x, (__m512i)y);
        _mm512_store_si512(to + p * 2 * LP_TILE_ELEMENTS, both);
        if (p == 0)
            note(r, both);
        if (p == 2)
            r->third = _mm512_ternarylogic_epi32(r->third, (__m512i)x,
                                                 (__m512i)y, 0xfe); /* or */
        a = _mm512_sub_ps(a, x);
        b = _mm512_sub_ps(b, y);
    }
}

INLINE __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0);
}

INLINE __m512 row(const float *x, int64_t step, int64_t i, int64_t n,
                  __mmask16 m)
{
    return i < n ? _mm512_maskz_loadu_ps(m, x + i * step) : _mm512_setzero_ps();
}

/* Rows of x whose elements are neighbours along k, `step` apart. */
INLINE void cut_left(const float *x, int64_t step, int64_t rows, int64_t k,
                     int pieces, uint16_t *to, Range *r)
{
    for (int64_t i = 0; i < LP_TILE; i++, to += LP_TILE_DEPTH)
        cut(row(x, step, i, rows, first(k)),
            row(x + 16, step, i, rows, first(k - 16)), false, pieces, to, r);
}

/* Columns of x that are neighbours; elements along k are `step` apart. */
INLINE void cut_right(const float *x, int64_t step, int64_t cols, int64_t k,
                      int pieces, uint16_t *to, Range *r)
{
    __mmask16 m = first(cols);
    for (int64_t i = 0; i < LP_TILE_DEPTH; i += 2, to += LP_TILE_DEPTH)
        cut(row(x, step, i, k, m), row(x, step, i + 1, k, m), true, pieces, to,
            r);
}

/* t[i][j] = x[i, j] for `rows` by `cols`, at most 16 or 32 each, zeros beyond;
 * neighbours in x are the rows. `width` is t's. */
INLINE void gather(const float *x, int64_t rs, int64_t cs, int64_t rows,
                   int64_t cols, int64_t width, float *t)
{
    const int64_t height = 16 * 32 / width;
    if (rs == 1 && rows >= height && cols >= width) {
        for (int64_t i = 0; i < height; i += 16)
            for (int64_t j = 0; j < width; j += 16)
                turn(x + i + j * cs, cs, t + i * width + j, width);
        return;
    }
    memset(t, 0, 16 * 32 * sizeof *t);
    for (int64_t j = 0; j < cols && j < width; j++)
        for (int64_t i = 0; i < rows && i < height; i++)
            t[i * width + j] = x[i * rs + j * cs];
}

INLINE bool pack(const LpTileSource *s, int pieces, uint16_t *to, bool left)
{
    _Alignas(64) float t[16 * 32];
    Range r = range_of_none();
    for (int64_t k = 0; k < s->k; k += LP_TILE_DEPTH)
        for (int h = 0; h < 2; h++) {
            uint16_t *at = to +
                           k / LP_TILE_DEPTH * pieces * 2 * LP_TILE_ELEMENTS +
                           h * LP_TILE_ELEMENTS;
            int64_t lines = s->lines - h * LP_TILE, deep = s->k - k;
            const float *x = s->x + h * LP_TILE * s->line + k * s->along;
            if (left && s->along == 1) {
                cut_left(x, s->line, lines, deep, pieces, at, &r);
            } else if (left) {
                gather(x, s->line, s->along, lines, deep, 32, t);
                cut_left(t, 32, 16, 32, pieces, at, &r);
            } else if (s->line == 1) {
                cut_right(x, s->along, lines, deep, pieces, at, &r);
            } else {
                gather(x, s->along, s->line, deep, lines, 16, t);
                cut_right(t, 16, 16, 32, pieces, at, &r);
            }
        }
    return is_normal(&r);
}

#define BY_PIECES(call)                                                        \
    switch (pieces) {                                                          \
    case 1:                                                                    \
        call(1);                                                               \
        break;                                                                 \
    case 2:                                                                    \
        call(2);                                                               \
        break;                                                                 \
    default:                                                                   \
        call(3);                                                               \
    }

static bool pack_left(const LpTileSource *s, int pieces, uint16_t *panel)
{
    bool ok;
#define PACK(n) ok = pack(s, n, panel, true)
    BY_PIECES(PACK)
#undef PACK
    return ok;
}

static bool pack_right(const LpTileSource *s, int pieces, uint16_t *panel)
{
    bool ok;
#define PACK(n) ok = pack(s, n, panel, false)
    BY_PIECES(PACK)
#undef PACK
    return ok;
}

/* ---- products ------------------------------------------------------------ */
/* The intrinsics paste the names of registers: numbers they are. Piece p of an
 * operand's two tiles; the second one is padding if not `both`. */
#define LOAD(one, two, x, p, both)                                             \
    _tile_loadd(one, (x) + (p)*2 * LP_TILE_ELEMENTS, STEP);                    \
    if (both)                                                                  \
    _tile_loadd(two, (x) + ((p)*2 + 1) * LP_TILE_ELEMENTS, STEP)
#define LOAD_LEFT(p) LOAD(4, 5, left, p, high)
#define LOAD_RIGHT(p) LOAD(6, 7, right, p, wide)
#define MULTIPLY                                                               \
    _tile_dpbf16ps(0, 4, 6);                                                   \
    if (wide)                                                                  \
        _tile_dpbf16ps(1, 4, 7);                                               \
    if (high)                                                                  \
        _tile_dpbf16ps(2, 5, 6);                                               \
    if (high && wide)                                                          \
    _tile_dpbf16ps(3, 5, 7)

/* Sums on their way to c: they leave during the next product, some rows for
 * each of its steps, and memory is asked for during their own. */
typedef struct Sums {
    _Alignas(64) float t[LP_TILE_PANEL * LP_TILE_PANEL];
    float *c;
    int64_t rows, cols, done, asked;
} Sums;

INLINE void put_row(const LpTileRun *r, const float *t, float *c, __mmask16 low,
                    __mmask16 high)
{
    __m512 x = _mm512_load_ps(t), y = _mm512_load_ps(t + 16);
    if (r->add) {
        x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(low, c));
        y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(high, c + 16));
    }
    _mm512_mask_storeu_ps(c, low, x);
    _mm512_mask_storeu_ps(c + 16, high, y);
}

INLINE void put_rows(const LpTileRun *r, Sums *s, int64_t n)
{
    __mmask16 low = first(s->cols), high = first(s->cols - 16);
    int64_t end = s->done + n < s->rows ? s->done + n : s->rows;
    for (; s->done < end; s->done++)
        put_row(r, s->t + s->done * LP_TILE_PANEL, s->c + s->done * r->c_rs,
                low, high);
}

INLINE void ask_rows(const LpTileRun *r, Sums *s, int64_t n)
{
    int64_t end = s->asked + n < s->rows ? s->asked + n : s->rows;
    for (; s->asked < end; s->asked++) {
        const float *c = s->c + s->asked * r->c_rs;
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + 16, 1);
    }
}

/* Products of pieces i and j with i + j < pieces, in an order that loads one
 * operand for each. */
INLINE void step_of(const uint16_t *left, const uint16_t *right,
                    const int pieces, const bool high, const bool wide)
{
    LOAD_RIGHT(0);
    if (pieces == 3) {
        LOAD_LEFT(2);
        MULTIPLY;
    }
    if (pieces > 1) {
        LOAD_LEFT(1);
        MULTIPLY;
    }
    if (pieces == 3) {
        LOAD_RIGHT(1);
        MULTIPLY;
        LOAD_LEFT(0);
        MULTIPLY;
        LOAD_RIGHT(2);
        MULTIPLY;
        LOAD_RIGHT(0);
        MULTIPLY;
    } else {
        LOAD_LEFT(0);
        MULTIPLY;
    }
    if (pieces == 2) {
        LOAD_RIGHT(1);
        MULTIPLY;
    }
}

INLINE void sums(const LpTileRun *r, const uint16_t *left,
                 const uint16_t *right, const int pieces, const bool high,
                 const bool wide, Sums *last, Sums *s)
{
    int64_t each = (LP_TILE_PANEL + r->depth - 1) / r->depth;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < r->depth; d++) {
        step_of(left, right, pieces, high, wide);
        put_rows(r, last, each);
        ask_rows(r, s, each);
        left += pieces * 2 * LP_TILE_ELEMENTS;
        right += pieces * 2 * LP_TILE_ELEMENTS;
    }
    enum { ROW = LP_TILE_PANEL * sizeof(float) };
    float *t = s->t;
    _tile_stored(0, t, ROW);
    _tile_stored(1, t + LP_TILE, ROW);
    _tile_stored(2, t + LP_TILE * LP_TILE_PANEL, ROW);
    _tile_stored(3, t + LP_TILE * LP_TILE_PANEL + LP_TILE, ROW);
    IN_MEMORY;
}

INLINE void one_product(const LpTileRun *r, int64_t i, const int pieces,
                        Sums *last, Sums *s)
{
    const uint16_t *moving = r->moving + i * r->apart;
    const uint16_t *left = r->left_moves ? moving : r->fixed;
    const uint16_t *right = r->left_moves ? r->fixed : moving;
    int64_t at = i * LP_TILE_PANEL;
    s->c = r->c + at * (r->left_moves ? r->c_rs : 1);
    s->rows = r->rows - (r->left_moves ? at : 0);
    s->cols = r->cols - (r->left_moves ? 0 : at);
    s->done = s->asked = 0;
    if (s->rows > LP_TILE_PANEL)
        s->rows = LP_TILE_PANEL;
    if (s->rows > LP_TILE && s->cols > LP_TILE)
        sums(r, left, right, pieces, true, true, last, s);
    else if (s->rows > LP_TILE)
        sums(r, left, right, pieces, true, false, last, s);
    else if (s->cols > LP_TILE)
        sums(r, left, right, pieces, false, true, last, s);
    else
        sums(r, left, right, pieces, false, false, last, s);
}

static void multiply(const LpTileRun *r)
{
    Sums two[2];
    two[1].rows = two[1].done = two[1].cols = 0;
    for (int64_t i = 0; i < r->n; i++) {
        Sums *last = &two[(i + 1) % 2], *s = &two[i % 2];
        switch (r->pieces) {
        case 1:
            one_product(r, i, 1, last, s);
            break;
        case 2:
            one_product(r, i, 2, last, s);
            break;
        default:
            one_product(r, i, 3, last, s);
        }
    }
    if (r->n > 0)
        put_rows(r, &two[(r->n + 1) % 2], LP_TILE_PANEL);
}

/* ---- the registers' shape ------------------------------------------------- */
static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} shape = {1,
           0,
           {0},
           {STEP, STEP, STEP, STEP, STEP, STEP, STEP, STEP},
           {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void)
{
    _tile_loadconfig(&shape);
}

static void end(void)
{
    _tile_release();
}

const LpTileLoops lp_amx_tiles = {pack_left, pack_right, multiply, begin, end};
#endif
