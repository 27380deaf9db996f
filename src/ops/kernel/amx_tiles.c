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
#include "src/ops/kernel/amx_cut.h"

/* The intrinsics of tiles do not say that they read and write memory. */
#define IN_MEMORY __asm__ volatile("" ::: "memory")

enum { STEP = 64 }; /* bytes of a tile's row */

/* ---- panels -------------------------------------------------------------- */
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

static int pack(const LpTileSource *s, bool left, int pieces, uint16_t *panel)
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
    return exponent_of(&c.r);
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
} Sums;

INLINE __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0);
}

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

static int multiply(const LpTileRun *r)
{
    Sums two[2];
    Pace p = {.steps = r->n * r->depth};
    start(&p.cutting, &r->next, r->left_moves, r->panel);
    two[1].rows = two[1].done = two[1].cols = 0;
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
    return exponent_of(&p.cutting.r);
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
