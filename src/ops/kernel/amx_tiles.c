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

#define BY_PIECES(pieces, call)                                                \
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

static bool pack(const LpTileSource *s, bool left, int pieces, uint16_t *panel)
{
    Cutting c;
    start(&c, s, left, panel);
#define PACK(n)                                                                \
    while (c.half < c.halves)                                                  \
        if (left)                                                              \
            cut_part(&c, true, n, 0, 1);                                       \
        else                                                                   \
            cut_part(&c, false, n, 0, 1)
    BY_PIECES(pieces, PACK)
#undef PACK
    return is_normal(&c.r);
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
 * each of its steps; their place is asked for during their own. */
typedef struct Sums {
    _Alignas(64) float t[LP_TILE_PANEL * LP_TILE_PANEL];
    float *c;
    int64_t rows, cols, done;
    __m512 zero; /* NaN after infinities and NaN have left */
} Sums;

INLINE __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0);
}

/* Returns `zero`, or NaN after an infinity or NaN: a first piece may be larger
 * than its number, and products of two overflow where float32's does not. */
INLINE __m512 put_row(const LpTileRun *r, const float *t, float *c,
                      __mmask16 low, __mmask16 high, __m512 zero)
{
    __m512 x = _mm512_load_ps(t), y = _mm512_load_ps(t + 16);
    if (r->add) {
        x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(low, c));
        y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(high, c + 16));
    }
    _mm512_mask_storeu_ps(c, low, x);
    _mm512_mask_storeu_ps(c + 16, high, y);
    zero = _mm512_fmadd_ps(x, _mm512_setzero_ps(), zero);
    return _mm512_fmadd_ps(y, _mm512_setzero_ps(), zero);
}

INLINE void put_rows(const LpTileRun *r, Sums *s, int64_t n)
{
    __mmask16 low = first(s->cols), high = first(s->cols - 16);
    int64_t end = s->done + n < s->rows ? s->done + n : s->rows;
    __m512 zero = s->zero;
    for (; s->done < end; s->done++)
        zero = put_row(r, s->t + s->done * LP_TILE_PANEL,
                       s->c + s->done * r->c_rs, low, high, zero);
    s->zero = zero;
}

/* Asks for rows i … end - 1 of c. */
INLINE void ask_rows(const LpTileRun *r, const Sums *s, int64_t i, int64_t end)
{
    for (; i < end && i < s->rows; i++) {
        __builtin_prefetch(s->c + i * r->c_rs, 1);
        __builtin_prefetch(s->c + i * r->c_rs + LP_TILE, 1);
    }
}

/* Products of pieces i and j with i + j < pieces, in an order that loads one
 * operand for each. After each comes a part of a half that is cut. */
INLINE void step_of(const uint16_t *left, const uint16_t *right,
                    const int pieces, const bool high, const bool wide,
                    const bool cuts_left, bool cuts, Cutting *c)
{
    const int parts = pieces * (pieces + 1) / 2;
#define MEANWHILE(i)                                                           \
    MULTIPLY;                                                                  \
    if (cuts)                                                                  \
    cut_part(c, cuts_left, pieces, i, parts)
    LOAD_RIGHT(0);
    if (pieces == 3) {
        LOAD_LEFT(2);
        MEANWHILE(0);
        LOAD_LEFT(1);
        MEANWHILE(1);
        LOAD_RIGHT(1);
        MEANWHILE(2);
        LOAD_LEFT(0);
        MEANWHILE(3);
        LOAD_RIGHT(2);
        MEANWHILE(4);
        LOAD_RIGHT(0);
        MEANWHILE(5);
    } else if (pieces == 2) {
        LOAD_LEFT(1);
        MEANWHILE(0);
        LOAD_LEFT(0);
        MEANWHILE(1);
        LOAD_RIGHT(1);
        MEANWHILE(2);
    } else {
        LOAD_LEFT(0);
        MEANWHILE(0);
    }
#undef MEANWHILE
}

/* The next panel is cut evenly: `due` of a run's steps have passed without. */
typedef struct Pace {
    Cutting cutting;
    int64_t due, steps;
} Pace;

INLINE void sums(const LpTileRun *r, const uint16_t *left,
                 const uint16_t *right, const int pieces, const bool high,
                 const bool wide, const bool left_moves, Pace *p, Sums *last,
                 Sums *s)
{
    int64_t each = (LP_TILE_PANEL + r->depth - 1) / r->depth;
    Cutting *c = &p->cutting;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < r->depth; d++) {
        p->due += c->halves;
        bool cuts = p->due >= p->steps;
        step_of(left, right, pieces, high, wide, left_moves, cuts, c);
        for (p->due -= cuts ? p->steps : 0; p->due >= p->steps;
             p->due -= p->steps)
            cut_part(c, left_moves, pieces, 0, 1);
        put_rows(r, last, each);
        ask_rows(r, s, d * each, (d + 1) * each);

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

INLINE void sized(const LpTileRun *r, int64_t i, const int pieces,
                  const bool left_moves, Pace *p, Sums *last, Sums *s)
{
    const uint16_t *fixed = r->fixed + i * r->apart;
    const uint16_t *left = left_moves ? r->moving : fixed;
    const uint16_t *right = left_moves ? fixed : r->moving;
    if (s->rows > LP_TILE && s->cols > LP_TILE)
        sums(r, left, right, pieces, true, true, left_moves, p, last, s);
    else if (s->rows > LP_TILE)
        sums(r, left, right, pieces, true, false, left_moves, p, last, s);
    else if (s->cols > LP_TILE)
        sums(r, left, right, pieces, false, true, left_moves, p, last, s);
    else
        sums(r, left, right, pieces, false, false, left_moves, p, last, s);
}

static void start_sums(const LpTileRun *r, int64_t i, Sums *s)
{
    int64_t at = i * LP_TILE_PANEL;
    s->c = r->c + at * (r->left_moves ? 1 : r->c_rs);
    s->rows = r->rows - (r->left_moves ? 0 : at);
    s->cols = r->cols - (r->left_moves ? at : 0);
    s->done = 0;
    if (s->rows > LP_TILE_PANEL)
        s->rows = LP_TILE_PANEL;
}

static bool multiply(const LpTileRun *r)
{
    Sums two[2];
    Pace p = {.steps = r->n * r->depth};
    start(&p.cutting, &r->next, r->left_moves, r->panel);
    two[1].rows = two[1].done = two[1].cols = 0;
    two[0].zero = two[1].zero = _mm512_setzero_ps();
    for (int64_t i = 0; i < r->n; i++) {
        Sums *last = &two[(i + 1) % 2], *s = &two[i % 2];
        start_sums(r, i, s);
#define PRODUCT(n)                                                             \
    if (r->left_moves)                                                         \
        sized(r, i, n, true, &p, last, s);                                     \
    else                                                                       \
        sized(r, i, n, false, &p, last, s)
        BY_PIECES(r->pieces, PRODUCT)
#undef PRODUCT
    }
    put_rows(r, &two[(r->n + 1) % 2], LP_TILE_PANEL);
    __m512 zero = _mm512_add_ps(two[0].zero, two[1].zero);
    return _mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q) == 0 &&
           is_normal(&p.cutting.r);
}

/* ---- the registers' shape ------------------------------------------------ */
static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} shape = {.palette = 1,
           .bytes = {STEP, STEP, STEP, STEP, STEP, STEP, STEP, STEP},
           .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void)
{
    _tile_loadconfig(&shape);
}

static void end(void)
{
    _tile_release();
}

const LpTileLoops lp_amx_tiles = {pack, multiply, begin, end};
#endif
