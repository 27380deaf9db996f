/* The operand with fewer lines (rows of the left, columns of the right one) is
 * fixed: a block of it, which the second cache holds, is packed first. The
 * other one moves: panel after panel meets all of the block, while the next one
 * is packed. Threads share the lines of the moving operand, of both if there
 * are many threads, and nothing they have packed: measured, another core's
 * cache takes longer to read than the operand to pack. The moving operand is
 * the left one, in the product or its transpose, if k is its contiguous
 * dimension, else the right one: so its pieces lie as it does.
 *
 * Of a product that is long along k, such as a weight's gradient, threads share
 * that: each multiplies the rows that it has made, one half into the result and
 * one beside it; an odd number of them share one half after the other. Every
 * element is summed along k in blocks and halves that depend on the shape
 * alone. */
#include "src/kernel/product/tiles.h"

#include <omp.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/kernel/product/tileloops.h"

/* Measured on a CPU with 2 MB of second cache for each core. */
enum {
    PANEL = LP_TILE_PANEL,
    DEPTH = 512,     /* of a block along k, at most */
    FEW = 4 * PANEL, /* fixed lines that leave room for */
    DEEP = 768,      /* a longer one: c is passed over less often */
    BLOCK = 3 << 19, /* bytes of a block of the fixed operand, at most */
    PART = 1 << 17,  /* of c, about, that is told of at a time */
    LONG = 1024,     /* k of a product in halves, at least, */
    THIN = 2,        /* and how much more than rows and columns it is */
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

/* Tiles along k elements. */
static int64_t tiles_of(int64_t k)
{
    return (k + LP_TILE_DEPTH - 1) / LP_TILE_DEPTH;
}

/* How a product is cut. */
typedef struct Cut {
    LpGemmArgs g;
    int pieces;
    bool turned; /* a and b have changed places */
    bool left_moves;
    int64_t fixed, moving; /* lines of the operands */
    int64_t kc;            /* of a block along k, at most */
    int64_t elements;      /* of a panel of kc */
    int64_t block;         /* panels, at most */
} Cut;

/* n panels or tiles in pieces of nearly one size that have at most `most`. */
static int64_t piece(int64_t n, int64_t most)
{
    int64_t pieces = n > most && most > 0 ? (n + most - 1) / most : 1;
    return (n + pieces - 1) / pieces;
}

static Cut cut_of(const LpGemmArgs *g, int pieces)
{
    bool a_moves = g->m >= g->n;
    Cut c = {.g = *g, .pieces = pieces};
    c.turned = a_moves ? g->a_cs != 1 : g->b_cs != 1;
    if (c.turned)
        c.g = lp_gemm_turn(g);
    c.left_moves = a_moves != c.turned;
    c.moving = c.left_moves ? c.g.m : c.g.n;
    c.fixed = c.left_moves ? c.g.n : c.g.m;
    c.kc = piece(tiles_of(c.g.k),
                 (c.fixed <= FEW ? DEEP : DEPTH) / LP_TILE_DEPTH) *
           LP_TILE_DEPTH;
    c.elements = c.kc * PANEL * pieces;
    int64_t bytes = c.elements * (int64_t)sizeof(uint16_t);
    c.block = piece(panels_of(c.fixed), BLOCK / bytes);
    return c;
}

int lp_tiles_split(const LpGemmArgs *g, int wanted)
{
    bool large =
        g->m >= 32 && g->n >= 32 && g->k >= 32 && g->m * g->n * g->k >= 1 << 21;
    return loops() && large ? wanted : 0;
}

/* Elements of a thread's scratch: a block and two panels that move. */
static int64_t own_elements(const Cut *c)
{
    return (c->block + 2) * c->elements;
}

/* The parts along k that are summed by themselves: all of it, or halves, of
 * which the second makes contiguous sums beside the result. */
typedef struct Parts {
    int n;
    Cut cut[2];
    int64_t elements; /* of a thread's scratch */
} Parts;

static Parts parts_of(const LpGemmArgs *g, int pieces)
{
    bool halves = g->k >= LONG && g->k >= THIN * g->m && g->k >= THIN * g->n;
    Parts p = {.n = halves ? 2 : 1};
    int64_t first = halves ? tiles_of(g->k) / 2 * LP_TILE_DEPTH : g->k;
    for (int i = 0; i < p.n; i++) {
        LpGemmArgs x = *g;
        x.k = i == 0 ? first : g->k - first;
        x.c_rs = i == 0 ? g->c_rs : g->n;
        p.cut[i] = cut_of(&x, pieces);
        int64_t own = own_elements(&p.cut[i]);
        p.elements = own > p.elements ? own : p.elements;
    }
    return p;
}

/* Scratch of all threads before the second half's sums. */
static size_t shared_bytes(const Parts *p, int threads)
{
    return (size_t)(p->elements * threads) * sizeof(uint16_t);
}

size_t lp_tiles_work(const LpGemmArgs *g, int pieces, int threads)
{
    Parts p = parts_of(g, pieces);
    return shared_bytes(&p, threads) +
           (p.n > 1 ? (size_t)(g->m * g->n) * sizeof(float) : 0);
}

/* Elements k0 … k0 + k - 1 along k of panels f0 … f1 - 1 of the fixed one. */
typedef struct Block {
    int64_t k0, k, f0, f1;
    const uint16_t *packed;
} Block;

typedef struct Operands {
    const float *left, *right;
    float *out;
    const LpGemmThen *then;
} Operands;

static LpTileSource source(const Cut *c, const Operands *o, const Block *b,
                           bool left, int64_t panel)
{
    const LpGemmArgs *g = &c->g;
    int64_t line = panel * PANEL;
    LpTileSource s = {.line = left ? g->a_rs : g->b_cs,
                      .along = left ? g->a_cs : g->b_rs,
                      .k = b->k};
    s.lines = lp_min(PANEL, (left ? g->m : g->n) - line);
    s.x = (left ? o->left : o->right) + line * s.line + b->k0 * s.along;
    return s;
}

/* Exponents of the largest numbers of an operand's panels. */
typedef struct Reach {
    int least, most;
    bool bad;
} Reach;

enum { NONE = 255, BIAS = 127, LEAST = -90, MOST = 126 };

static void join(Reach *r, int exponent)
{
    r->bad |= exponent == LP_TILE_BAD;
    if (exponent <= 0)
        return;
    r->least = exponent < r->least ? exponent : r->least;
    r->most = exponent > r->most ? exponent : r->most;
}

/* Products below 2^-126 vanish: in sums of products of the largest numbers of
 * two panels, which are 2^LEAST and more, that does not show. And no sum may
 * overflow: a first piece may be larger than its number. */
static bool reaches(const Reach *a, const Reach *b, int64_t k)
{
    int depth = 0;
    while (k >> depth != 0)
        depth++;
    return !a->bad && !b->bad && a->least + b->least - 2 * BIAS >= LEAST &&
           a->most + b->most - 2 * BIAS + 2 + depth <= MOST;
}

static int pack(const Cut *c, const LpTileSource *s, bool left, uint16_t *to)
{
    return loops()->pack(s, left, c->pieces, to);
}

/* Panels v0 … v1 - 1 of the moving operand have met all of the block. */
static void tell(const Cut *c, const LpGemmThen *t, const Block *b, int64_t v0,
                 int64_t v1)
{
    int64_t i0 = c->left_moves ? v0 : b->f0, i1 = c->left_moves ? v1 : b->f1;
    int64_t j0 = c->left_moves ? b->f0 : v0, j1 = c->left_moves ? b->f1 : v1;
    i0 *= PANEL;
    j0 *= PANEL;
    i1 = lp_min(i1 * PANEL, c->g.m);
    j1 = lp_min(j1 * PANEL, c->g.n);
    int me = omp_get_thread_num();
    if (c->turned)
        t->run(t, j0, j1, i0, i1, me);
    else
        t->run(t, i0, i1, j0, j1, me);
}

/* Panels v0 … v1 - 1 of the moving operand with all of the block; `two` has
 * room for two. */
static void multiply(const Cut *c, const Operands *o, const Block *b,
                     int64_t v0, int64_t v1, uint16_t *two, Reach *reach)
{
    LpTileSource s = source(c, o, b, c->left_moves, v0);
    int64_t most = PART / (int64_t)sizeof(float) /
                   ((b->f1 - b->f0) * PANEL * PANEL),
            told = v0;
    bool tells = o->then && b->k0 + b->k == c->g.k;
    join(reach, pack(c, &s, c->left_moves, two));
    for (int64_t v = v0; v < v1 && !lp_kernel_stops(); v++) {
        int64_t i = (c->left_moves ? v : b->f0) * PANEL;
        int64_t j = (c->left_moves ? b->f0 : v) * PANEL;
        LpTileRun r = {.moving = two + (v - v0) % 2 * c->elements,
                       .fixed = b->packed,
                       .n = b->f1 - b->f0,
                       .apart = c->elements,
                       .depth = tiles_of(b->k),
                       .pieces = c->pieces,
                       .left_moves = c->left_moves,
                       .add = b->k0 > 0,
                       .c = o->out + i * c->g.c_rs + j * c->g.c_cs,
                       .c_rs = c->g.c_rs,
                       .c_cs = c->g.c_cs,
                       .rows = c->g.m - i,
                       .cols = c->g.n - j};
        if (v + 1 < v1) {
            r.next = source(c, o, b, c->left_moves, v + 1);
            r.panel = two + (v - v0 + 1) % 2 * c->elements;
        }
        join(reach, loops()->multiply(&r));
        if (tells && (v + 1 - told >= most || v + 1 == v1)) {
            tell(c, o->then, b, told, v + 1);
            told = v + 1;
        }
    }
}

/* A thread's panels. */
typedef struct Share {
    int64_t f0, f1, v0, v1;
} Share;

/* Shares of the fixed operand: a thread packs its share of both, of the moving
 * one during products. */
static int fixed_shares(const Cut *c, int threads)
{
    int best = 1;
    double least_work = 0;
    for (int n = 1; n <= threads; n++) {
        double work =
            (double)c->fixed / n + 0.5 * (double)c->moving * n / threads;
        if (threads % n == 0 && (n == 1 || work < least_work)) {
            best = n;
            least_work = work;
        }
    }
    return best;
}

static Share share_of(const Cut *c, int me, int threads)
{
    int nf = fixed_shares(c, threads), nv = threads / nf;
    int64_t f = panels_of(c->fixed), v = panels_of(c->moving);
    int i = me % nf, j = me / nf;
    return (Share){f * i / nf, f * (i + 1) / nf, v * j / nv, v * (j + 1) / nv};
}

static bool own_share(const Cut *c, const Operands *o, Share s, uint16_t *work)
{
    Reach fixed = {.least = NONE}, moving = {.least = NONE};
    Block b = {.packed = work};
    if (s.v0 >= s.v1)
        return true;
    loops()->begin();
    for (b.f0 = s.f0; b.f0 < s.f1; b.f0 = b.f1) {
        b.f1 = lp_min(b.f0 + c->block, s.f1);
        for (b.k0 = 0; b.k0 < c->g.k && !lp_kernel_stops(); b.k0 += b.k) {
            b.k = lp_min(c->kc, c->g.k - b.k0);
            for (int64_t f = b.f0; f < b.f1; f++) {
                LpTileSource from = source(c, o, &b, !c->left_moves, f);
                join(&fixed, pack(c, &from, !c->left_moves,
                                  work + (f - b.f0) * c->elements));
            }
            multiply(c, o, &b, s.v0, s.v1, work + c->block * c->elements,
                     &moving);
        }
    }
    loops()->end();
    return lp_kernel_stops() || reaches(&fixed, &moving, c->g.k);
}

/* A product that threads share. */
typedef struct Job {
    const LpGemmArgs *g;
    Parts parts;
    const float *a, *b;
    float *c, *beside; /* the second half's sums, contiguous */
    const LpGemmThen *then;
    uint16_t *work;
} Job;

/* Part i, this thread's share. */
static bool part(const Job *j, int i, int me, int threads, uint16_t *work)
{
    const Cut *c = &j->parts.cut[i];
    int64_t k = i == 0 ? 0 : j->parts.cut[0].g.k;
    const float *a = j->a + k * j->g->a_cs, *b = j->b + k * j->g->b_rs;
    Operands o = {c->turned ? b : a, c->turned ? a : b,
                  i == 0 ? j->c : j->beside, j->parts.n > 1 ? NULL : j->then};
    return own_share(c, &o, share_of(c, me, threads), work);
}

/* c += the second half's sums, this thread's rows of c. */
static void add_halves(const Job *j, int me, int threads)
{
    int64_t n = j->g->n, most = 1 + PART / (n * (int64_t)sizeof(float));
    int64_t end = j->g->m * (me + 1) / threads, next;
    for (int64_t i = j->g->m * me / threads; i < end; i = next) {
        next = lp_min(i + most, end);
        for (int64_t r = i; r < next; r++)
            for (int64_t x = 0; x < n; x++)
                j->c[r * j->g->c_rs + x] += j->beside[r * n + x];
        if (j->then)
            j->then->run(j->then, i, next, 0, n, me);
    }
}

static bool share(const Job *j, int me, int threads)
{
    const Parts *p = &j->parts;
    uint16_t *work = j->work + me * p->elements;
    int groups = threads % p->n == 0 ? p->n : 1, each = threads / groups;
    bool ok = true;
    for (int i = 0; i < p->n; i++)
        if (groups == 1 || i == me / each)
            ok &= part(j, i, me % each, each, work);
    if (p->n == 1)
        return ok;
    if (threads > 1) {
#pragma omp barrier
    }
    add_halves(j, me, threads);
    return ok;
}

bool lp_tiles(const LpGemmArgs *g, int pieces, const float *a, const float *b,
              float *c, const LpGemmThen *then, void *work, int threads)
{
    Job j = {.g = g,
             .parts = parts_of(g, pieces),
             .a = a,
             .b = b,
             .c = c,
             .then = then,
             .work = work};
    j.beside = (void *)((char *)work + shared_bytes(&j.parts, threads));
    if (threads <= 1)
        return share(&j, 0, 1);
    int bad = 0;
#pragma omp parallel num_threads(threads) reduction(+ : bad)
    bad += !share(&j, omp_get_thread_num(), omp_get_num_threads());
    return bad == 0;
}
