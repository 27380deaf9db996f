/* The loops of tileloops.h for CPUs with AMX (Intel 64 and IA-32 Architectures
 * Software Developer's Manual, volume 1, chapter 18): eight tile registers of
 * 16 rows of 64 bytes. Four hold sums, 32 by 32, two an operand's tiles each.
 *
 * tdpbf16ps takes rows of the left operand as they are; of the right one, pairs
 * of elements along k, [k / 2][column][2]. It sums 16 products in each of two
 * chains, from zero, adds the two, and then adds that to the tile: one rounding
 * of a large sum for 32 products. It takes and leaves no subnormal numbers. */
#include "src/kernel/product/tileloops.h"

#ifdef __x86_64__
#include "src/kernel/product/amx_cut.h"

/* The intrinsics of tiles do not say that they read and write memory. */
#define IN_MEMORY __asm__ volatile("" ::: "memory")

enum { STEP = 64 }; /* bytes of a tile's row */

/* ---- panels -------------------------------------------------------------- */
#define BY_SPLIT(pieces, call)                                                 \
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
    Range r = range_of_none();
    start(&c, s, left, pieces, panel);
    int64_t units = units_of(&c);
#define PACK(n)                                                                \
    for (int64_t i = 0; i < units; i++)                                        \
    cut_unit(&c, n, &r)
    BY_SPLIT(pieces, PACK)
#undef PACK
    return exponent_of(&r);
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
    _Alignas(64) float t[LP_TILE_PANEL * LP_TILE_PANEL], fours[16 * 16];
    float *c;
    int64_t rows, cols, done, parts; /* of a part: a row, if c's are rows */
} Sums;

INLINE __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0);
}

INLINE void put(const LpTileRun *r, __m512 x, float *c, __mmask16 which)
{
    if (r->add)
        x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(which, c));
    _mm512_mask_storeu_ps(c, which, x);
}

/* Part n of 32 of turning the sums into columns of c, eight of each quarter. */
static __attribute__((noinline)) void put_turned(const LpTileRun *r, Sums *s,
                                                 int64_t n)
{
    int64_t i = n / 8 % 2 * LP_TILE, j = n / 16 * LP_TILE, q = n % 4;
    if (i >= s->rows || j >= s->cols)
        return;
    if (n % 8 < 4) {
        turn_fours(s->t + (i + 4 * q) * LP_TILE_PANEL + j, LP_TILE_PANEL,
                   s->fours + q * 16, 4 * 16);
        return;
    }
    __m512 x[4];
    turn_lanes(s->fours + q * 4 * 16, x);
    j += q;
    for (int l = 0; l < 4; l++)
        if (j + 4 * l < s->cols)
            put(r, x[l], s->c + i + (j + 4 * l) * r->c_cs, first(s->rows - i));
}

INLINE void put_parts(const LpTileRun *r, Sums *s, int64_t n)
{
    int64_t end = s->done + n < s->parts ? s->done + n : s->parts;
    for (; s->done < end; s->done++) {
        float *c = s->c + s->done * r->c_rs,
              *t = s->t + s->done * LP_TILE_PANEL;
        if (r->c_cs != 1) {
            put_turned(r, s, s->done);
            continue;
        }
        put(r, _mm512_load_ps(t), c, first(s->cols));
        put(r, _mm512_load_ps(t + 16), c + 16, first(s->cols - 16));
    }
}

/* Asks for lines i … end - 1 of c. */
INLINE void ask_lines(const LpTileRun *r, const Sums *s, int64_t i, int64_t end)
{
    int64_t step = r->c_cs == 1 ? r->c_rs : r->c_cs;
    int64_t lines = r->c_cs == 1 ? s->rows : s->cols;
    for (; i < end && i < lines; i++) {
        __builtin_prefetch(s->c + i * step, 1);
        __builtin_prefetch(s->c + i * step + LP_TILE, 1);
    }
}

/* What a run does beside its products, a little after each group of four of
 * them, so that the CPU does both at once: sums leave, the next panel is cut.
 * `due` of the run's groups have passed since a unit was due. */
typedef struct Pace {
    Cutting *cutting;
    int64_t due, units, groups;
    int64_t parts; /* of sums, after a group: all leave during a product */
} Pace;

INLINE void meanwhile(const LpTileRun *r, Pace *p, Range *g, Sums *last,
                      const int pieces)
{
    put_parts(r, last, p->parts);
    p->due += p->units;
    for (; p->due >= p->groups; p->due -= p->groups)
        cut_unit(p->cutting, pieces, g);
}

/* Products of pieces i and j with i + j < pieces, in an order that loads one
 * operand for each. */
INLINE void step_of(const LpTileRun *r, const uint16_t *left,
                    const uint16_t *right, const int pieces, const bool high,
                    const bool wide, Pace *p, Range *g, Sums *last)
{
#define GROUP                                                                  \
    MULTIPLY;                                                                  \
    meanwhile(r, p, g, last, pieces)
    LOAD_RIGHT(0);
    if (pieces == 3) {
        LOAD_LEFT(2);
        GROUP;
        LOAD_LEFT(1);
        GROUP;
        LOAD_RIGHT(1);
        GROUP;
        LOAD_LEFT(0);
        GROUP;
        LOAD_RIGHT(2);
        GROUP;
        LOAD_RIGHT(0);
        GROUP;
    } else if (pieces == 2) {
        LOAD_LEFT(1);
        GROUP;
        LOAD_LEFT(0);
        GROUP;
        LOAD_RIGHT(1);
        GROUP;
    } else {
        LOAD_LEFT(0);
        GROUP;
    }
#undef GROUP
}

INLINE void sums(const LpTileRun *r, const uint16_t *left,
                 const uint16_t *right, const int pieces, const bool high,
                 const bool wide, Pace *p, Range *g, Sums *last, Sums *s)
{
    int64_t each = (LP_TILE_PANEL + r->depth - 1) / r->depth;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < r->depth; d++) {
        step_of(r, left, right, pieces, high, wide, p, g, last);
        ask_lines(r, s, d * each, (d + 1) * each);
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

INLINE void sized(const LpTileRun *r, int64_t i, const int pieces, Pace *p,
                  Range *g, Sums *last, Sums *s)
{
    const uint16_t *fixed = r->fixed + i * r->apart;
    const uint16_t *left = r->left_moves ? r->moving : fixed;
    const uint16_t *right = r->left_moves ? fixed : r->moving;
    if (s->rows > LP_TILE && s->cols > LP_TILE)
        sums(r, left, right, pieces, true, true, p, g, last, s);
    else if (s->rows > LP_TILE)
        sums(r, left, right, pieces, true, false, p, g, last, s);
    else if (s->cols > LP_TILE)
        sums(r, left, right, pieces, false, true, p, g, last, s);
    else
        sums(r, left, right, pieces, false, false, p, g, last, s);
}

static void start_sums(const LpTileRun *r, int64_t i, Sums *s)
{
    int64_t at = i * LP_TILE_PANEL;
    s->c = r->c + at * (r->left_moves ? r->c_cs : r->c_rs);
    s->rows = r->rows - (r->left_moves ? 0 : at);
    s->cols = r->cols - (r->left_moves ? at : 0);
    s->done = 0;
    if (s->rows > LP_TILE_PANEL)
        s->rows = LP_TILE_PANEL;
    if (s->cols > LP_TILE_PANEL)
        s->cols = LP_TILE_PANEL;
    s->parts = r->c_cs == 1 ? s->rows : LP_TILE_PANEL;
}

/* Products of pieces. */
static int64_t groups_of(int pieces)
{
    return pieces * (pieces + 1) / 2;
}

static int multiply(const LpTileRun *r)
{
    Sums two[2];
    Pace p = {.groups = r->n * r->depth * groups_of(r->pieces)};
    p.parts = (LP_TILE_PANEL * r->n + p.groups - 1) / p.groups;
    Cutting c;
    Range g = range_of_none();
    start(&c, &r->next, r->left_moves, r->pieces, r->panel);
    p.units = units_of(&c);
    p.cutting = &c;
    two[1].done = two[1].parts = 0;
    for (int64_t i = 0; i < r->n; i++) {
        Sums *last = &two[(i + 1) % 2], *s = &two[i % 2];
        start_sums(r, i, s);
#define PRODUCT(n) sized(r, i, n, &p, &g, last, s)
        BY_SPLIT(r->pieces, PRODUCT)
#undef PRODUCT
    }
    put_parts(r, &two[(r->n + 1) % 2], LP_TILE_PANEL);
    return exponent_of(&g);
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
