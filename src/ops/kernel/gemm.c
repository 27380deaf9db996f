/* b is packed into panels of `gemm_width` columns, [k][width], padded with
 * zeros; a tile of c is then held in registers over the whole of k. */
#include "src/ops/kernel/gemm.h"

static int64_t width_of(LpDtype t)
{
    return t == LP_F64 ? lp_nn()->f64->gemm_width : lp_nn()->f32->gemm_width;
}

size_t lp_gemm_work(const LpGemmArgs *g, LpDtype t)
{
    if (t == LP_I64)
        return 0;
    int64_t w = width_of(t);
    return (size_t)((g->n + w - 1) / w * w * g->k) * lp_dtype_size(t);
}

#define PACK(T, name)                                                          \
    static void name(const LpGemmArgs *g, int64_t w, int64_t p, const T *b,    \
                     T *panel)                                                 \
    {                                                                          \
        int64_t n = g->n - p * w < w ? g->n - p * w : w;                       \
        const T *s = b + p * w * g->b_cs;                                      \
        for (int64_t k = 0; k < g->k; k++, s += g->b_rs, panel += w) {         \
            for (int64_t j = 0; j < n; j++)                                    \
                panel[j] = s[j * g->b_cs];                                     \
            for (int64_t j = n; j < w; j++)                                    \
                panel[j] = 0;                                                  \
        }                                                                      \
    }
PACK(float, pack_f32)
PACK(double, pack_f64)

static void panel_task(const LpGemmArgs *g, LpDtype t, int64_t p, int64_t w,
                       int64_t i0, int64_t i1, const void *a, void *c,
                       const void *packed)
{
    size_t off = (size_t)(p * w * g->k);
    if (t == LP_F64)
        lp_nn()->f64->gemm_panel(g, a, (const double *)packed + off, p * w, i0,
                                 i1, c);
    else
        lp_nn()->f32->gemm_panel(g, a, (const float *)packed + off, p * w, i0,
                                 i1, c);
}

static void pack_task(const LpGemmArgs *g, LpDtype t, int64_t p, int64_t w,
                      const void *b, void *work)
{
    size_t off = (size_t)(p * w * g->k);
    if (t == LP_F64)
        pack_f64(g, w, p, b, (double *)work + off);
    else
        pack_f32(g, w, p, b, (float *)work + off);
}

static void gemm_int(const LpGemmArgs *g, const int64_t *a, const int64_t *b,
                     int64_t *c)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            uint64_t s = 0; /* wraps, as integers do in PyTorch */
            for (int64_t k = 0; k < g->k; k++)
                s += (uint64_t)a[i * g->a_rs + k * g->a_cs] *
                     (uint64_t)b[k * g->b_rs + j * g->b_cs];
            c[i * g->c_rs + j * g->c_cs] = (int64_t)s;
        }
}

#define ROWS 48 /* of c a task computes */

void lp_gemm(const LpGemmArgs *g, LpDtype t, const void *a, const void *b,
             void *c, void *work, int threads)
{
    if (t == LP_I64) {
        gemm_int(g, a, b, c);
        return;
    }
    int64_t w = width_of(t), panels = (g->n + w - 1) / w;
    int64_t blocks = (g->m + ROWS - 1) / ROWS;
    if (threads <= 1) {
        for (int64_t p = 0; p < panels; p++) {
            pack_task(g, t, p, w, b, work);
            panel_task(g, t, p, w, 0, g->m, a, c, work);
        }
        return;
    }
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t p = 0; p < panels; p++)
            pack_task(g, t, p, w, b, work);
#pragma omp for schedule(static)
        for (int64_t q = 0; q < panels * blocks; q++) {
            int64_t p = q / blocks, i0 = q % blocks * ROWS;
            int64_t i1 = i0 + ROWS < g->m ? i0 + ROWS : g->m;
            panel_task(g, t, p, w, i0, i1, a, c, work);
        }
    }
}

void lp_gemm_pack(const LpGemmArgs *g, LpDtype t, const void *b, void *packed)
{
    int64_t w = width_of(t);
    for (int64_t p = 0; p * w < g->n; p++)
        pack_task(g, t, p, w, b, packed);
}

void lp_gemm_packed(const LpGemmArgs *g, LpDtype t, const void *a,
                    const void *packed, void *c, int threads)
{
    int64_t w = width_of(t), panels = (g->n + w - 1) / w;
    int64_t blocks = (g->m + ROWS - 1) / ROWS, n = panels * blocks;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t q = 0; q < n; q++) {
        int64_t p = q / blocks, i0 = q % blocks * ROWS;
        int64_t i1 = i0 + ROWS < g->m ? i0 + ROWS : g->m;
        panel_task(g, t, p, w, i0, i1, a, c, packed);
    }
}
