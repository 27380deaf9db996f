/* Products with kept panels (panels.h). Threads take panels by turns; each has
 * a copy of the left block whose rows lie apart, where no two meet in a cache's
 * set. */
#include "src/kernel/product/panels.h"

#include <string.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/kernel/product/gemmloops.h"

enum {
    DEPTH = 256,     /* along k: a panel's part and a tile's rows in the first
                        cache */
    KEPT = 96 << 10, /* elements of a left block, in the second */
    MOST_ROWS = 192, /* the library is as quick for more */
    GAP = 16,        /* between those of a block */
    UNIT = 16
};

/* Elements along k of a left block, and of its parts. */
typedef struct Cut {
    int64_t deep, part;
} Cut;

static Cut cut_of(const LpGemmArgs *g)
{
    int64_t deep = lp_gemm_piece(g->k, KEPT / g->m, UNIT);
    return (Cut){deep, lp_gemm_piece(deep, DEPTH, UNIT)};
}

static size_t block_bytes(const LpGemmArgs *g, const Cut *c)
{
    return (size_t)(g->m * (c->deep + GAP)) * sizeof(float);
}

static const LpGemmLoopsF32 *loops(void)
{
    return LP_SIMD_PICK(lp_gemm)->f32;
}

bool lp_panels_pay(const LpGemmArgs *g)
{
    return lp_cpu_simd() == LP_SIMD_AVX2 && g->a_cs == 1 && g->m > 1 &&
           g->m <= MOST_ROWS && g->k > 0;
}

size_t lp_panels_work(const LpGemmArgs *g, int threads)
{
    Cut c = cut_of(g);
    return block_bytes(g, &c) * (size_t)threads;
}

/* The left block, from `left` on k deep, times a panel's part; meanwhile the
 * next part, `ahead`, is asked for: as many rows of k elements as it has
 * columns. */
static void part(const LpGemmArgs *g, const Cut *cut, int64_t k, bool add,
                 int64_t cols, const float *left, const float *panel,
                 const float *ahead, float *c)
{
    const LpGemmLoopsF32 *l = loops();
    int64_t tiles = (g->m + l->rows - 1) / l->rows;
    LpGemmTile x = {.cols = cols,
                    .k = k,
                    .l_rs = cut->deep + GAP,
                    .l_cs = 1,
                    .c_rs = g->c_rs,
                    .c_cs = 1,
                    .add = add};
    for (int64_t t = 0; t < tiles; t++) {
        int64_t i = g->m * t / tiles;
        x.rows = g->m * (t + 1) / tiles - i;
        x.n_ahead = t < l->width;
        x.ahead = ahead + x.n_ahead * t * k;
        l->tile(&x, left + i * x.l_rs, panel, c + i * g->c_rs);
    }
}

/* Panels that no other thread has taken, from row k0 of them on; `left` is a
 * thread's own. */
static void share(const LpGemmArgs *g, const Cut *cut, int64_t k0,
                  int64_t *taken, const float *a, const float *panels, float *c,
                  float *left)
{
    int64_t width = loops()->width, n = (g->n + width - 1) / width, p;
    int64_t deep = lp_min(cut->deep, g->k - k0);
    for (int64_t i = 0; i < g->m; i++)
        memcpy(left + i * (cut->deep + GAP), a + i * g->a_rs + k0,
               (size_t)deep * sizeof *left);
    while ((p = __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED)) < n &&
           !lp_kernel_stops()) {
        const float *panel = panels + (p * g->k + k0) * width;
        const float *next = p + 1 < n ? panel + g->k * width : panel;
        int64_t cols = lp_min(width, g->n - p * width);
        for (int64_t k = 0, some; k < deep; k += some) {
            some = lp_min(cut->part, deep - k);
            part(g, cut, some, k0 + k > 0, cols, left + k, panel + k * width,
                 k + some < deep ? panel + (k + some) * width : next,
                 c + p * width);
        }
    }
}

void lp_panels_product(const LpGemmArgs *g, const float *a, const float *panels,
                       float *c, void *work, int threads)
{
    Cut cut = cut_of(g);
    size_t block = block_bytes(g, &cut);
    for (int64_t k0 = 0; k0 < g->k; k0 += cut.deep) {
        int64_t taken = 0;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int t = 0; t < threads; t++)
            share(g, &cut, k0, &taken, a, panels, c,
                  (void *)((char *)work + block * (size_t)t));
    }
}

void lp_panels_unpack(const LpGemmArgs *g, const float *panels, float *b)
{
    int64_t width = loops()->width;
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t k = 0; k < g->k; k++)
            b[k * g->b_rs + j * g->b_cs] =
                panels[(j / width * g->k + k) * width + j % width];
}
