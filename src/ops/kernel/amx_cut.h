/* How amx_tiles.c, which alone includes this, cuts panels into pieces. */
#ifndef LP_OPS_KERNEL_AMX_CUT_H
#define LP_OPS_KERNEL_AMX_CUT_H

#include <string.h>

#include "src/ops/kernel/simd_turn.h"
#include "src/ops/kernel/tileloops.h"

#define INLINE static inline __attribute__((always_inline))

/* Upper halves of the first pieces, doubled to lose the sign: the largest, and
 * the smallest less one, which makes 0 the largest. All bits of third pieces:
 * below the upper half there are some if the first one vanished. NaN, some of
 * which are rounded to 0: third pieces show those as well. */
typedef struct Range {
    __m512i most, least, third;
    __mmask16 nan;
} Range;

/* Exponents of a first piece that leave the others normal: a third one has
 * bits 23 places below the number's first, which rounding may have raised. */
enum { LARGE = 254 << 8, SMALL = 25 << 8 };

INLINE Range range_of_none(void)
{
    return (Range){_mm512_setzero_si512(), _mm512_set1_epi16(-1),
                   _mm512_setzero_si512(), 0};
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
           _mm512_test_epi32_mask(r->third, below) == 0 && r->nan == 0;
}

/* What tileloops.h says of a panel. */
INLINE int exponent_of(const Range *r)
{
    __m512i low = _mm512_and_si512(r->most, _mm512_set1_epi32(0xffff));
    __m512i most = _mm512_max_epu32(low, _mm512_srli_epi32(r->most, 16));
    return is_normal(r) ? (int)(_mm512_reduce_max_epu32(most) >> 8)
                        : LP_TILE_BAD;
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
        if (p == 0 && pieces < 3)
            r->nan |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
        if (p == 2)
            r->third = _mm512_ternarylogic_epi32(r->third, (__m512i)x,
                                                 (__m512i)y, 0xfe); /* or */
        a = _mm512_sub_ps(a, x);
        b = _mm512_sub_ps(b, y);
    }
}

/* A panel that is being cut, half by half: 16 lines of 32 elements along k,
 * which become 16 rows of a tile. */
typedef struct Cutting {
    LpTileSource s;
    bool left;
    uint16_t *to;
    Range r;
    int64_t half, halves;
    /* of this half: elements of its rows' two vectors, the first row to come,
     * blocks of 16 by 16 still to be turned into t */
    const float *x, *y;
    int64_t step, row, blocks;
    bool turned;
    _Alignas(64) float t[16 * 32];
} Cutting;

static void start(Cutting *c, const LpTileSource *s, bool left, uint16_t *to)
{
    c->s = *s;
    c->left = left;
    c->to = to;
    c->r = range_of_none();
    c->half = 0;
    c->halves = to ? (s->k + LP_TILE_DEPTH - 1) / LP_TILE_DEPTH * 2 : 0;
}

/* Where the half starts in its source. */
static const float *corner(const Cutting *c)
{
    return c->s.x + c->half % 2 * LP_TILE * c->s.line +
           c->half / 2 * LP_TILE_DEPTH * c->s.along;
}

/* From an element to that of the same lines further along k, which is asked for
 * meanwhile: the CPU does not follow 32 lines by itself. */
static int64_t next_half(const Cutting *c)
{
    return LP_TILE_DEPTH * c->s.along;
}

/* t: [line][k] of the left, [k][line] of the right operand, zeros beyond. */
static void gather(Cutting *c, int64_t lines, int64_t k)
{
    int64_t line = c->left ? LP_TILE_DEPTH : 1, along = c->left ? 1 : LP_TILE;
    const float *x = corner(c);
    memset(c->t, 0, sizeof c->t);
    for (int64_t i = 0; i < lines && i < LP_TILE; i++)
        for (int64_t j = 0; j < k && j < LP_TILE_DEPTH; j++)
            c->t[i * line + j * along] = x[i * c->s.line + j * c->s.along];
}

static void start_half(Cutting *c)
{
    int64_t lines = c->s.lines - c->half % 2 * LP_TILE;
    int64_t k = c->s.k - c->half / 2 * LP_TILE_DEPTH;
    int64_t width = c->left ? c->s.along : c->s.line;
    int64_t height = c->left ? c->s.line : c->s.along;
    bool whole = lines >= LP_TILE && k >= LP_TILE_DEPTH;
    c->row = 0;
    c->turned = whole && width != 1 && height == 1;
    c->blocks = c->turned ? 2 : 0;
    c->x = c->t;
    int64_t step = c->left ? LP_TILE_DEPTH : LP_TILE;
    if (whole && width == 1) {
        c->x = corner(c);
        step = height;
    } else if (!c->turned) {
        gather(c, lines, k);
    }
    c->y = c->x + (c->left ? LP_TILE : step);
    c->step = c->left ? step : 2 * step;
}

INLINE void turn_block(Cutting *c)
{
    int64_t i = --c->blocks;
    const float *x = corner(c) + i * LP_TILE * c->s.along;
    int64_t apart = c->left ? c->s.along : c->s.line;
    for (int q = 0; q < LP_TILE; q++)
        __builtin_prefetch(x + q * apart + next_half(c));
    if (c->left)
        turn(x, apart, c->t + i * LP_TILE, LP_TILE_DEPTH);
    else
        turn(x, apart, c->t + i * LP_TILE * LP_TILE, LP_TILE);
}

INLINE void cut_rows(Cutting *c, bool left, int pieces, int64_t end)
{
    Range r = c->r;
    const float *x = c->x, *y = c->y;
    const int64_t step = c->step, ahead = c->turned ? 0 : next_half(c);
    uint16_t *to = c->to +
                   (c->half / 2 * pieces * 2 + c->half % 2) * LP_TILE_ELEMENTS +
                   c->row * LP_TILE_DEPTH;
    for (int64_t n = end - c->row; n > 0; n--, to += LP_TILE_DEPTH) {
        __builtin_prefetch(x + ahead);
        __builtin_prefetch(y + ahead);
        cut(_mm512_loadu_ps(x), _mm512_loadu_ps(y), !left, pieces, to, &r);
        x += step;
        y += step;
    }
    c->r = r;
    c->x = x;
    c->y = y;
    c->row = end;
    if (end == LP_TILE)
        c->half++;
}

/* Part i of n of a half. */
INLINE void cut_part_of(Cutting *c, bool left, int pieces, int i, int n)
{
    if (i == 0)
        start_half(c);
    if (c->blocks > 0 && i < n - 1) {
        turn_block(c);
        return;
    }
    while (c->blocks > 0)
        turn_block(c);
    /* turned in the first two of six parts: all rows in the others */
    bool later = c->turned && n > 3;
    cut_rows(c, left, pieces,
             later ? LP_TILE * (i - 1) / (n - 2) : LP_TILE * (i + 1) / n);
}

/* Not inlined: once for each kind, not for each place. */
#define PARTS(left, pieces)                                                    \
    static __attribute__((noinline)) void cut_##left##_##pieces(Cutting *c,    \
                                                                int i, int n)  \
    {                                                                          \
        cut_part_of(c, left, pieces, i, n);                                    \
    }
PARTS(true, 1)
PARTS(true, 2)
PARTS(true, 3)
PARTS(false, 1)
PARTS(false, 2)
PARTS(false, 3)
#undef PARTS

INLINE void cut_part(Cutting *c, const bool left, const int pieces, int i,
                     int n)
{
    if (pieces == 1)
        (left ? cut_true_1 : cut_false_1)(c, i, n);
    else if (pieces == 2)
        (left ? cut_true_2 : cut_false_2)(c, i, n);
    else
        (left ? cut_true_3 : cut_false_3)(c, i, n);
}

#endif
