/* The operand with fewer lines (rows of the left, columns of the right one) is
 * fixed: a block of it is packed once, by all threads. The other one moves:
 * each thread packs slices of its share, which its second cache holds, and
 * multiplies them with all of the block. Every element is summed along k in
 * blocks that depend on the shape alone. */
#include "src/ops/kernel/tiles.h"

#include <omp.h>

#include "src/base/cpu.h"
#include "src/ops/kernel/tileloops.h"

enum {
    DEPTH = 768,       /* of a block along k, at most */
    BLOCK = 3 << 20,   /* bytes of a block of the fixed operand, at most */
    SLICE = 768 << 10, /* bytes of a slice of the moving one, at most */
    PANEL = LP_TILE_PANEL,
};

static const LpTileLoops *loops(void)
{
#ifdef __x86_64__
    if (lp_cpu_has_amx())
        return &lp_amx_tiles;
#endif
    return NULL;
}

static int64_t panels_of(int64_t lines)
{
    return (lines + PANEL - 1) / PANEL;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How a product is cut. Sizes of the operands are in panels. */
typedef struct Cut {
    LpGemmArgs g;
    int pieces;
    bool turned; /* a and b have changed places */
    bool left_moves;
    int64_t fixed, moving; /* lines of the operands */
    int64_t kc;            /* of a block along k, at most */
    int64_t elements;      /* of a panel of kc */
    int64_t block, slice;  /* panels, at most */
} Cut;

/* n panels in pieces of nearly one size that have at most `most`. */
static int64_t piece(int64_t n, int64_t most)
{
    int64_t pieces = n > most && most > 0 ? (n + most - 1) / most : 1;
    return (n + pieces - 1) / pieces;
}

static Cut cut_of(const LpGemmArgs *g, int pieces)
{
    Cut c = {.g = *g, .pieces = pieces, .turned = g->c_cs != 1};
    if (c.turned)
        c.g = lp_gemm_turn(g);
    c.left_moves = c.g.m >= c.g.n;
    c.moving = c.left_moves ? c.g.m : c.g.n;
    c.fixed = c.left_moves ? c.g.n : c.g.m;
    c.kc = piece((c.g.k + LP_TILE_DEPTH - 1) / LP_TILE_DEPTH,
                 DEPTH / LP_TILE_DEPTH) *
           LP_TILE_DEPTH;
    c.elements = c.kc * PANEL * pieces;
    int64_t bytes = c.elements * (int64_t)sizeof(uint16_t);
    c.block = piece(panels_of(c.fixed), BLOCK / bytes);
    c.slice = least(SLICE / bytes, panels_of(c.moving));
    if (c.slice < 1)
        c.slice = 1;
    return c;
}

int lp_tiles_pieces(const LpGemmArgs *g, int wanted)
{
    bool large =
        g->m >= 32 && g->n >= 32 && g->k >= 32 && g->m * g->n * g->k >= 1 << 21;
    return loops() && large ? wanted : 0;
}

size_t lp_tiles_work(const LpGemmArgs *g, int pieces, int threads)
{
    Cut c = cut_of(g, pieces);
    return (size_t)((2 * c.block + c.slice * threads) * c.elements) *
           sizeof(uint16_t);
}

/* Elements k0 … k0 + k - 1 along k of panels f0 … f1 - 1 of the fixed one. */
typedef struct Block {
    int64_t k0, k, f0, f1;
    uint16_t *packed;
} Block;

typedef struct Operands {
    const float *left, *right;
    float *out;
} Operands;

static bool pack_panel(const Cut *c, const Operands *o, const Block *b,
                       bool left, int64_t panel, uint16_t *to)
{
    const LpGemmArgs *g = &c->g;
    int64_t line = panel * PANEL;
    LpTileSource s = {.line = left ? g->a_rs : g->b_cs,
                      .along = left ? g->a_cs : g->b_rs,
                      .k = b->k};
    s.lines = least(PANEL, (left ? g->m : g->n) - line);
    s.x = (left ? o->left : o->right) + line * s.line + b->k0 * s.along;
    return (left ? loops()->pack_left : loops()->pack_right)(&s, c->pieces, to);
}

/* Panels v0 … v1 - 1 of the moving operand, packed in `slice`, with all of the
 * block. */
static void multiply(const Cut *c, const Operands *o, const Block *b,
                     const uint16_t *slice, int64_t v0, int64_t v1)
{
    for (int64_t f = b->f0; f < b->f1; f++) {
        int64_t i = (c->left_moves ? v0 : f) * PANEL;
        int64_t j = (c->left_moves ? f : v0) * PANEL;
        LpTileRun r = {.fixed = b->packed + (f - b->f0) * c->elements,
                       .moving = slice,
                       .n = v1 - v0,
                       .apart = c->elements,
                       .depth = (b->k + LP_TILE_DEPTH - 1) / LP_TILE_DEPTH,
                       .pieces = c->pieces,
                       .left_moves = c->left_moves,
                       .add = b->k0 > 0,
                       .c = o->out + i * c->g.c_rs + j,
                       .c_rs = c->g.c_rs,
                       .rows = c->g.m - i,
                       .cols = c->g.n - j};
        loops()->multiply(&r);
    }
}

typedef struct Share {
    int me, of;
} Share;

static int64_t first(Share s, int64_t n)
{
    return n * s.me / s.of;
}

static int64_t last(Share s, int64_t n)
{
    return n * (s.me + 1) / s.of;
}

static bool one_block(const Cut *c, const Operands *o, const Block *b, Share s,
                      uint16_t *slice)
{
    bool ok = true;
    int64_t n = b->f1 - b->f0, panels = panels_of(c->moving);
    for (int64_t p = first(s, n); p < last(s, n); p++)
        ok &= pack_panel(c, o, b, !c->left_moves, b->f0 + p,
                         b->packed + p * c->elements);
    if (s.of > 1) {
#pragma omp barrier
    }
    int64_t v0 = first(s, panels), end = last(s, panels), v1;
    for (; v0 < end; v0 = v1) {
        v1 = least(v0 + c->slice, end);
        for (int64_t v = v0; v < v1; v++)
            ok &= pack_panel(c, o, b, c->left_moves, v,
                             slice + (v - v0) * c->elements);
        multiply(c, o, b, slice, v0, v1);
    }
    return ok;
}

static bool share_of(const Cut *c, const Operands *o, Share s, uint16_t *work)
{
    /* two blocks take turns: while some threads pack one, others may still
     * read the other */
    int64_t one = c->block * c->elements, turn_of = 0;
    uint16_t *slice = work + 2 * one + s.me * c->slice * c->elements;
    bool ok = true;
    Block b = {0};
    loops()->begin();
    for (; b.f0 < panels_of(c->fixed); b.f0 = b.f1) {
        b.f1 = least(b.f0 + c->block, panels_of(c->fixed));
        for (b.k0 = 0; b.k0 < c->g.k; b.k0 += b.k) {
            b.k = least(c->kc, c->g.k - b.k0);
            b.packed = work + turn_of++ % 2 * one;
            ok &= one_block(c, o, &b, s, slice);
        }
    }
    loops()->end();
    return ok;
}

bool lp_tiles(const LpGemmArgs *g, int pieces, const float *a, const float *b,
              float *c, void *work, int threads)
{
    Cut cut = cut_of(g, pieces);
    Operands o = {cut.turned ? b : a, cut.turned ? a : b, c};
    if (threads <= 1)
        return share_of(&cut, &o, (Share){0, 1}, work);
    int bad = 0;
#pragma omp parallel num_threads(threads) reduction(+ : bad)
    bad += !share_of(
        &cut, &o, (Share){omp_get_thread_num(), omp_get_num_threads()}, work);
    return bad == 0;
}
