/* One operand, the right one, is packed into panels of `width` columns,
 * [k][width], padded with zeros; of the other, the left one, tiles of a few
 * rows meet panel after panel. Left rows are read where they lie if their
 * elements are neighbours, else those of a block are packed too. Which operand
 * is the right one is free, as (a b)' = b' a': the one that costs less to pack.
 *
 * The packed block is bounded to fit the second cache, a tile's rows the first.
 * Threads share the rows, and then the block, or its panels. Every element is
 * summed along k in blocks that depend on the shape alone. */
#include "src/kernel/product/gemm.h"

#include <omp.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/kernel/product/gemmloops.h"

enum {
    BLOCK = 192 * 1024, /* elements of a packed block; half without AVX-512 */
    DEPTH = 512,        /* of a block along k, at most */
    STRIP = 16,         /* of the left block: that deep it is packed at once */
    MOST_ROWS = 14,     /* of a tile */
    ALIGN = 64
};

static const LpGemmLoops *loops(void)
{
    return LP_SIMD_PICK(lp_gemm);
}

/* How a product is cut; `g` is of the transposes if `turned`. */
typedef struct Cut {
    LpGemmArgs g;
    LpDtype t;
    size_t size, stored; /* of an element; of one of a and b */
    int64_t tile, width; /* rows and columns held in registers */
    int64_t kc, nc;      /* of the packed block, at most */
    bool turned, packs_left, by_rows;
    const LpGemmThen *then;
} Cut;

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

LpGemmArgs lp_gemm_turn(const LpGemmArgs *g)
{
    return (LpGemmArgs){.m = g->n,
                        .n = g->m,
                        .k = g->k,
                        .a_rs = g->b_cs,
                        .a_cs = g->b_rs,
                        .b_rs = g->a_cs,
                        .b_cs = g->a_rs,
                        .c_rs = g->c_cs,
                        .c_cs = g->c_rs,
                        .half = g->half};
}

/* Elements that are moved beside the products, turned ones counted twice. */
static int64_t moved(const LpGemmArgs *g)
{
    int64_t right = g->k * g->n * (g->b_cs == 1 ? 1 : 2);
    int64_t left = g->a_cs == 1 ? 0 : g->k * g->m;
    return right + left + (g->c_cs == 1 ? 0 : g->m * g->n);
}

int64_t lp_gemm_piece(int64_t n, int64_t most, int64_t unit)
{
    int64_t pieces = n > most ? (n + most - 1) / most : 1;
    return n > 0 ? up((n + pieces - 1) / pieces, unit) : unit;
}

static const LpGemmPack *of_half(const Cut *c)
{
    return c->g.half == LP_F16 ? loops()->f16 : loops()->bf16;
}

static Cut cut_of(const LpGemmArgs *g, LpDtype t)
{
    Cut c = {.g = *g, .t = t, .size = lp_dtype_size(t)};
    c.stored = g->half ? lp_dtype_size(g->half) : c.size;
    c.tile = t == LP_F64 ? loops()->f64->rows : loops()->f32->rows;
    c.width = t == LP_F64 ? loops()->f64->width : loops()->f32->width;
    LpGemmArgs other = lp_gemm_turn(g);
    c.turned = moved(&other) < moved(g);
    if (c.turned)
        c.g = other;
    c.packs_left = c.g.a_cs != 1;
    c.by_rows = c.packs_left || c.g.m >= c.g.n;
    c.kc = lp_gemm_piece(c.g.k, c.packs_left ? DEPTH / 2 : DEPTH, 16);
    int64_t block = lp_cpu_simd() == LP_SIMD_AVX512 ? BLOCK : BLOCK / 2;
    c.nc = lp_gemm_piece(c.g.n, block / c.kc / c.width * c.width, c.width);
    return c;
}

static size_t block_bytes(const Cut *c)
{
    return (size_t)up(c->nc * c->kc * (int64_t)c->size, ALIGN);
}

/* Packed left rows before row i. */
static size_t left_bytes(const Cut *c, int64_t i)
{
    return c->packs_left ? (size_t)(i * c->kc) * c->size : 0;
}

bool lp_gemm_tells(const LpGemmArgs *g, LpDtype t)
{
    return t != LP_I64 && !cut_of(g, t).turned;
}

size_t lp_gemm_strip(const LpGemmArgs *g, LpDtype t)
{
    if (!lp_gemm_tells(g, t))
        return 0;
    Cut c = cut_of(g, t);
    return c.kc < g->k ? 0 : (size_t)up(c.tile * g->n * (int64_t)c.size, ALIGN);
}

size_t lp_gemm_work(const LpGemmArgs *g, LpDtype t)
{
    if (t == LP_I64)
        return 0;
    Cut c = cut_of(g, t);
    return 2 * block_bytes(&c) + left_bytes(&c, c.g.m);
}

/* ---- blocks ------------------------------------------------------------- */
/* Elements k0 … k0 + k - 1 of columns j0 … j1 - 1, packed as panels, kc rows
 * apart for every k: threads may be a block apart. */
typedef struct Block {
    int64_t k0, k, j0, j1;
    const char *packed;
    int me; /* the thread */
} Block;

static void pack_panel(const Cut *c, const Block *b, int64_t panel,
                       const char *right)
{
    int64_t j = b->j0 + panel * c->width, cols = lp_min(c->width, b->j1 - j);
    const LpGemmArgs *g = &c->g;
    const char *from =
        right + (size_t)(b->k0 * g->b_rs + j * g->b_cs) * c->stored;
    char *to = (char *)(uintptr_t)b->packed +
               (size_t)(panel * c->width * c->kc) * c->size;
    if (g->half)
        of_half(c)->panel((const uint16_t *)(const void *)from, g->b_rs,
                          g->b_cs, b->k, cols, (float *)(void *)to);
    else if (c->t == LP_F64)
        loops()->f64->pack_panel((const double *)(const void *)from, g->b_rs,
                                 g->b_cs, b->k, cols, (double *)(void *)to);
    else
        loops()->f32->pack_panel((const float *)(const void *)from, g->b_rs,
                                 g->b_cs, b->k, cols, (float *)(void *)to);
}

/* n rows from i0 on as tiles of [k][rows], in the order in which they lie in
 * memory. */
static void pack_left(const Cut *c, const Block *b, int64_t i0, int64_t n,
                      const char *left, char *space)
{
    int64_t tiles = (n + c->tile - 1) / c->tile;
    for (int64_t k = 0; k < b->k; k += STRIP)
        for (int64_t t = 0; t < tiles; t++) {
            int64_t i = n * t / tiles, rows = n * (t + 1) / tiles - i;
            int64_t deep = lp_min(STRIP, b->k - k);
            const char *from = left + (size_t)((i0 + i) * c->g.a_rs +
                                               (b->k0 + k) * c->g.a_cs) *
                                          c->stored;
            char *to = space + (size_t)(i * b->k + k * rows) * c->size;
            if (c->g.half)
                of_half(c)->rows((const uint16_t *)(const void *)from,
                                 c->g.a_rs, c->g.a_cs, deep, rows,
                                 (float *)(void *)to);
            else if (c->t == LP_F64)
                loops()->f64->pack_rows((const double *)(const void *)from,
                                        c->g.a_rs, c->g.a_cs, deep, rows,
                                        (double *)(void *)to);
            else
                loops()->f32->pack_rows((const float *)(const void *)from,
                                        c->g.a_rs, c->g.a_cs, deep, rows,
                                        (float *)(void *)to);
        }
}

/* Asks for n rows of halves without gaps. */
static void ask(const Cut *c, const char *at, int64_t n, int64_t k)
{
    int64_t bytes = k * (int64_t)c->stored;
    for (int64_t i = 0; i < n; i++, at += (size_t)c->g.a_rs * c->stored)
        for (int64_t byte = 0; byte < bytes; byte += 64)
            __builtin_prefetch(at + byte, 0, 2);
}

/* Rows i … i + x.rows - 1, whose left elements are at `at`, times panels p0 …
 * p1 - 1; meanwhile the `next` rows after them are asked for, which are at
 * `halves` or behind them. */
static void one_tile(const Cut *c, const Block *b, LpGemmTile x, int64_t i,
                     int64_t next, int64_t p0, int64_t p1, const char *at,
                     const char *halves, char *out)
{
    int64_t asked = 0;
    size_t row = (size_t)c->g.a_rs * c->stored;
    if (c->then && c->then->strip) {
        out += (size_t)b->me * c->then->strip;
        i = 0;
    }
    for (int64_t p = p0; p < p1; p++) {
        int64_t j = b->j0 + p * c->width;
        const char *panel =
            b->packed + (size_t)(p * c->width * c->kc) * c->size;
        char *to = out + (size_t)(i * c->g.c_rs + j * c->g.c_cs) * c->size;
        x.cols = lp_min(c->width, b->j1 - j);
        int64_t more = next * (p - p0 + 1) / (p1 - p0) - asked;
        if (halves)
            ask(c, halves + (size_t)asked * row, more, b->k);
        x.ahead = at + (size_t)((x.rows + asked) * x.l_rs) * c->size;
        x.n_ahead = halves ? 0 : more;
        asked += more;
        if (c->t == LP_F64)
            loops()->f64->tile(&x, (const double *)(const void *)at,
                               (const double *)(const void *)panel,
                               (double *)(void *)to);
        else
            loops()->f32->tile(&x, (const float *)(const void *)at,
                               (const float *)(const void *)panel,
                               (float *)(void *)to);
    }
}

/* Rows i0 … i1 - 1 of panels p0 … p1 - 1 have had this block's sums added. */
static void tell(const Cut *c, const Block *b, int64_t i0, int64_t i1,
                 int64_t p0, int64_t p1)
{
    if (c->then && b->k0 + b->k == c->g.k)
        c->then->run(c->then, i0, i1, b->j0 + p0 * c->width,
                     lp_min(b->j0 + p1 * c->width, b->j1), b->me);
}

/* Rows of halves without gaps, widened where the tile reads them. */
static void widen(const Cut *c, const char *at, int64_t rows, int64_t k,
                  float *to)
{
    LpConvert loop = lp_convert_loop(c->g.half, LP_F32);
    for (int64_t i = 0; i < rows; i++)
        loop(k, to + i * k, 4, at + (size_t)(i * c->g.a_rs) * c->stored, 2);
}

/* Rows i0 … i1 - 1 times panels p0 … p1 - 1, in tiles of nearly one size. */
static void block_rows(const Cut *c, const Block *b, int64_t i0, int64_t i1,
                       int64_t p0, int64_t p1, const char *left, char *out,
                       char *space)
{
    const LpGemmArgs *g = &c->g;
    _Alignas(ALIGN) float wide[MOST_ROWS * DEPTH];
    int64_t n = i1 - i0, tiles = (n + c->tile - 1) / c->tile;
    if (c->packs_left)
        pack_left(c, b, i0, n, left, space);
    for (int64_t t = 0; t < tiles && p0 < p1 && !lp_kernel_stops(); t++) {
        int64_t i = n * t / tiles, e = n * (t + 1) / tiles, next = 0;
        const char *at, *halves = NULL;
        LpGemmTile x = {.rows = e - i,
                        .k = b->k,
                        .l_rs = g->a_rs,
                        .l_cs = g->a_cs,
                        .c_rs = g->c_rs,
                        .c_cs = g->c_cs,
                        .add = b->k0 > 0};
        if (c->packs_left) {
            at = space + (size_t)(i * b->k) * c->size;
            x.l_rs = 1;
            x.l_cs = x.rows;
        } else {
            at = left +
                 (size_t)((i0 + i) * g->a_rs + b->k0 * g->a_cs) * c->stored;
            next = g->a_cs == 1 && t + 1 < tiles ? n * (t + 2) / tiles - e : 0;
        }
        if (g->half && !c->packs_left) {
            halves = at + (size_t)(x.rows * g->a_rs) * c->stored;
            widen(c, at, x.rows, b->k, wide);
            at = (const char *)wide;
            x.l_rs = b->k;
        }
        one_tile(c, b, x, i0 + i, next, p0, p1, at, halves, out);
        tell(c, b, i0 + i, i0 + e, p0, p1);
    }
}

/* ---- products ----------------------------------------------------------- */
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

static void one_block(const Cut *c, const Block *b, Share s, const char *left,
                      const char *right, char *out, char *space)
{
    int64_t panels = (b->j1 - b->j0 + c->width - 1) / c->width;
    /* the same panels of every block, however narrow: nobody else's */
    int64_t p0 = lp_min(first(s, c->nc / c->width), panels);
    int64_t p1 = lp_min(last(s, c->nc / c->width), panels);
    for (int64_t p = p0; p < p1; p++)
        pack_panel(c, b, p, right);
    if (!c->by_rows) {
        block_rows(c, b, 0, c->g.m, p0, p1, left, out, space);
        return;
    }
    if (s.of > 1) {
#pragma omp barrier
    }
    block_rows(c, b, first(s, c->g.m), last(s, c->g.m), 0, panels, left, out,
               space);
}

static void share_of(const Cut *c, Share s, const char *left, const char *right,
                     char *out, char *work)
{
    /* two blocks take turns: while some threads pack one, others may still
     * read the other */
    char *space = work + 2 * block_bytes(c) + left_bytes(c, first(s, c->g.m));
    Block b = {.me = s.me};
    int turn_of = 0;
    for (b.j0 = 0; b.j0 < c->g.n; b.j0 = b.j1) {
        b.j1 = lp_min(b.j0 + c->nc, c->g.n);
        for (b.k0 = 0; b.k0 < c->g.k; b.k0 += b.k) {
            b.k = lp_min(c->kc, c->g.k - b.k0);
            b.packed = work + (size_t)(turn_of++ % 2) * block_bytes(c);
            one_block(c, &b, s, left, right, out, space);
        }
    }
}

static void gemm_int(const LpGemmArgs *g, const int64_t *a, const int64_t *b,
                     int64_t *c)
{
    for (int64_t i = 0; i < g->m && !lp_kernel_stops(); i++)
        for (int64_t j = 0; j < g->n; j++) {
            uint64_t s = 0; /* wraps, as integers do in PyTorch */
            for (int64_t k = 0; k < g->k; k++)
                s += (uint64_t)a[i * g->a_rs + k * g->a_cs] *
                     (uint64_t)b[k * g->b_rs + j * g->b_cs];
            c[i * g->c_rs + j * g->c_cs] = (int64_t)s;
        }
}

void lp_gemm_zero(const LpGemmArgs *g, LpDtype t, void *c)
{
    size_t size = lp_dtype_size(t);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            memset((char *)c + (size_t)(i * g->c_rs + j * g->c_cs) * size, 0,
                   size);
}

void lp_gemm(const LpGemmArgs *g, LpDtype t, const void *a, const void *b,
             void *c, const LpGemmThen *then, void *work, int threads)
{
    if (t == LP_I64) {
        gemm_int(g, a, b, c);
        return;
    }
    Cut cut = cut_of(g, t);
    cut.then = then;
    const char *left = cut.turned ? b : a, *right = cut.turned ? a : b;
    if (threads <= 1) {
        share_of(&cut, (Share){0, 1}, left, right, c, work);
        return;
    }
#pragma omp parallel num_threads(threads)
    share_of(&cut, (Share){omp_get_thread_num(), omp_get_num_threads()}, left,
             right, c, work);
}

/* ---- one b for many a ---------------------------------------------------- */
/* All of b as one block. */
static Cut whole(const LpGemmArgs *g, LpDtype t)
{
    Cut c = cut_of(g, t);
    c.g = *g;
    c.turned = c.packs_left = false;
    c.kc = g->k;
    c.nc = up(g->n, c.width);
    return c;
}

static Block block_of(const Cut *c, const void *packed)
{
    return (Block){.k = c->g.k, .j1 = c->g.n, .packed = packed};
}

size_t lp_gemm_packed_bytes(const LpGemmArgs *g, LpDtype t)
{
    Cut c = whole(g, t);
    return block_bytes(&c);
}

void lp_gemm_pack(const LpGemmArgs *g, LpDtype t, const void *b, void *packed,
                  int threads)
{
    Cut c = whole(g, t);
    Block all = block_of(&c, packed);
    int64_t panels = (g->n + c.width - 1) / c.width;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t p = 0; p < panels; p++)
        pack_panel(&c, &all, p, b);
}

void lp_gemm_packed(const LpGemmArgs *g, LpDtype t, const void *a,
                    const void *packed, void *c, int threads)
{
    Cut cut = whole(g, t);
    Block all = block_of(&cut, packed);
    int64_t panels = (g->n + cut.width - 1) / cut.width;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < threads; i++) {
        Share s = {i, threads};
        block_rows(&cut, &all, first(s, g->m), last(s, g->m), 0, panels, a, c,
                   NULL);
    }
}

/* Measured with operands that no cache holds: while k is short the library
 * waits for memory, and the tiles here, which ask for it in time, are a tenth
 * quicker. */
bool lp_gemm_is_fast(const LpGemmArgs *g, LpDtype t)
{
    return t == LP_F32 && lp_cpu_simd() == LP_SIMD_AVX512 && g->a_cs == 1 &&
           g->m >= 256 && g->n >= 32 && g->k >= 32 && g->k <= 192;
}

bool lp_gemm_is_fast_of(LpDtype half)
{
    return lp_is_half(half) && lp_cpu_simd() == LP_SIMD_AVX2;
}
