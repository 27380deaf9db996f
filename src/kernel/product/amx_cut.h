/* How amx_tiles.c, which alone includes this, cuts panels into pieces. */
#ifndef LP_KERNEL_PRODUCT_AMX_CUT_H
#define LP_KERNEL_PRODUCT_AMX_CUT_H

#include <string.h>

#include "src/kernel/loops/simd_turn.h"
#include "src/kernel/product/tileloops.h"

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

/* Of a and b in turn; those of b stand alone in it. */
INLINE __m512i by_turns(__m512i a, __m512i b)
{
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
}

/* A row of a tile: the pieces of a and b by turns. What two pieces leave of a
 * number has 8 bits and is the third as it is. */
INLINE void cut(__m512 a, __m512 b, const int pieces, uint16_t *to, Range *r)
{
#pragma GCC unroll 3
    for (int p = 0; p < pieces; p++) {
        __m512 x = p == 2 ? a : rounded(a), y = p == 2 ? b : rounded(b);
        __m512i both = by_turns((__m512i)x, (__m512i)y);
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
 * which become 16 rows of a tile. A unit is a row, or, before the rows of a
 * half that lies the other way round, a part of turning it: little work, so
 * that the CPU can do it beside products. */
typedef struct Cutting {
    LpTileSource s;
    bool left;
    uint16_t *to; /* row 0 of this half's first piece */
    int64_t half, halves, pieces;
    /* of this half: where the row to come lies, and its other half along k;
     * from row to row, and to what is asked for; units still to be turned */
    const float *x;
    int64_t gap, step, ahead, row, turning;
    _Alignas(64) float t[16 * 32], fours[16 * 16];
} Cutting;

enum { ROWS = LP_TILE, TURNS = 16 }; /* units */

/* The source lies the other way round than the panel. */
static bool turns(const LpTileSource *s, bool left)
{
    return (left ? s->line : s->along) == 1 && (left ? s->along : s->line) != 1;
}

static void start(Cutting *c, const LpTileSource *s, bool left, int pieces,
                  uint16_t *to)
{
    c->s = *s;
    c->left = left;
    c->to = to;
    c->pieces = pieces;
    c->half = -1;
    c->halves = to ? (s->k + LP_TILE_DEPTH - 1) / LP_TILE_DEPTH * 2 : 0;
    c->row = ROWS;
    c->turning = 0;
}

static int64_t units_of(const Cutting *c)
{
    return c->halves * (ROWS + (turns(&c->s, c->left) ? TURNS : 0));
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

static __attribute__((noinline)) void start_half(Cutting *c)
{
    int64_t at = ++c->half, elements = LP_TILE_ELEMENTS;
    int64_t lines = c->s.lines - at % 2 * LP_TILE;
    int64_t k = c->s.k - at / 2 * LP_TILE_DEPTH;
    bool whole = lines >= LP_TILE && k >= LP_TILE_DEPTH;
    bool other = turns(&c->s, c->left);
    bool lies = whole && !other && (c->left ? c->s.along : c->s.line) == 1;
    if (at > 0)
        c->to += at % 2 ? elements : (2 * c->pieces - 1) * elements;
    c->row = 0;
    c->turning = other ? TURNS : 0;
    c->x = lies ? corner(c) : c->t;
    c->step = !lies     ? (c->left ? LP_TILE_DEPTH : LP_TILE)
              : c->left ? c->s.line
                        : c->s.along;
    c->gap = LP_TILE * (c->left ? 1 : c->step);
    c->ahead = lies ? next_half(c) : 0;
    if (!lies && !(whole && other)) {
        gather(c, lines, k);
        c->turning = -c->turning;
    }
}

/* A block of 16 by 16 is turned in eight parts: within fours of four rows each,
 * then the fours of four of those. */
static __attribute__((noinline)) void turn_part(Cutting *c)
{
    if (c->turning < 0) {
        c->turning++;
        return;
    }
    int64_t part = TURNS - c->turning--, block = part / 8, q = part % 4;
    if (part % 8 < 4) {
        const float *x = corner(c) + block * LP_TILE * c->s.along;
        int64_t apart = c->left ? c->s.along : c->s.line;
        for (int64_t i = 4 * q; i < 4 * q + 4; i++)
            __builtin_prefetch(x + i * apart + next_half(c));
        turn_fours(x + 4 * q * apart, apart, c->fours + q * 16, 4 * 16);
        return;
    }
    __m512 x[4];
    int64_t ld = c->left ? LP_TILE_DEPTH : LP_TILE;
    float *t = c->t + q * ld + block * LP_TILE * (c->left ? 1 : ld);
    turn_lanes(c->fours + q * 4 * 16, x);
    for (int l = 0; l < 4; l++)
        _mm512_store_ps(t + 4 * l * ld, x[l]);
}

INLINE void cut_row(Cutting *c, const int pieces, Range *r)
{
    const float *x = c->x, *y = x + c->gap;
    __builtin_prefetch(x + c->ahead);
    __builtin_prefetch(y + c->ahead);
    cut(_mm512_loadu_ps(x), _mm512_loadu_ps(y), pieces,
        c->to + c->row * LP_TILE_DEPTH, r);
    c->x = x + c->step;
    c->row++;
}

/* Numbers k and k + 16 of a half lie side by side, which does not matter to a
 * sum along k, as it is so in both operands. */
INLINE void cut_unit(Cutting *c, const int pieces, Range *r)
{
    if (c->row == ROWS)
        start_half(c);
    if (c->turning)
        turn_part(c);
    else
        cut_row(c, pieces, r);
}

#endif
