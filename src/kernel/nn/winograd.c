/* See winograd.h. */
#include "src/kernel/nn/winograd.h"

#include <omp.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/kernel/product/gemmloops.h"

LP_SIMD_EXTERN(LpWinogradOf, lp_winograd);

enum {
    ROOM = 1 << 20, /* bytes of transformed tiles: the third cache has them */
    LEAST = 66,     /* tiles that are worth reading all windows for */
    MORE = 128,     /* or writing, too */
    LINE = 16,      /* elements: planes do not lie on top of each other */
    PIECE = 16,     /* tiles that a thread takes */
};

static const LpGemmLoopsF32 *products(void)
{
    return LP_SIMD_PICK(lp_gemm)->f32;
}

bool lp_winograd_runs(void)
{
    return lp_cpu_simd() == LP_SIMD_AVX2;
}

/* Windows of a place lie a panel of the products after the other. */
static int64_t panel_size(const LpWinograd *w)
{
    return w->in * products()->width;
}

bool lp_winograd_takes(const LpConvGeom *g, LpDnnPass pass, LpWinograd *w)
{
    bool turned = pass == LP_DNN_BACKWARD_DATA;
    bool fits = lp_winograd_runs() && g->n_spatial == 2 && g->groups == 1 &&
                g->c_src % LP_WINOGRAD_BLOCK == 0 &&
                g->c_dst % LP_WINOGRAD_BLOCK == 0;
    for (int i = 0; i < 2 && fits; i++)
        fits = g->kernel[i] == 3 && g->stride[i] == 1 && g->dilation[i] == 1 &&
               g->pad_l[i] <= 2;
    if (!fits)
        return false;
    *w = (LpWinograd){.n = g->n,
                      .turned = turned,
                      .gradient = pass == LP_DNN_BACKWARD_WEIGHTS};
    w->in = turned ? g->c_dst : g->c_src;
    w->out = turned ? g->c_src : g->c_dst;
    for (int i = 0; i < 2; i++) {
        w->src[i] = turned ? g->dst[i] : g->src[i];
        w->dst[i] = turned ? g->src[i] : g->dst[i];
        w->pad[i] = turned ? 2 - g->pad_l[i] : g->pad_l[i];
    }
    w->down = (w->dst[0] + LP_WINOGRAD_STEP - 1) / LP_WINOGRAD_STEP;
    w->across = (w->dst[1] + LP_WINOGRAD_STEP - 1) / LP_WINOGRAD_STEP;
    int64_t rows = products()->rows, width = products()->width;
    int64_t bytes = LP_WINOGRAD_PLACES * (w->in + w->out) * 4;
    int64_t most = w->gradient ? lp_max(ROOM / bytes, MORE)
                               : lp_max(ROOM / bytes, LEAST) / rows * rows;
    if (!w->gradient) /* whole rows of tiles: they are told of */
        most = lp_max(most / w->across, 1) * w->across;
    w->chunk = lp_min(most, w->n * w->down * w->across);
    w->panels = (w->out + width - 1) / width;
    w->window_plane = w->panels * panel_size(w) + LINE;
    w->in_plane = w->chunk * w->in + LINE;
    w->out_plane = w->chunk * (w->gradient ? w->panels * width : w->out) + LINE;
    return true;
}

/* ---- windows ------------------------------------------------------------- */
size_t lp_winograd_window_bytes(const LpWinograd *w)
{
    return (size_t)(LP_WINOGRAD_PLACES * w->window_plane) * sizeof(float);
}

static void panel_of_windows(const LpWinograd *w, int64_t panel,
                             const float *rows, float *u)
{
    enum { B = LP_WINOGRAD_BLOCK };
    const LpWinogradLoops *loops = LP_SIMD_PICK(lp_winograd);
    int64_t width = products()->width;
    u += panel * panel_size(w);
    for (int64_t i = 0; i < w->in; i++)
        for (int64_t k = 0; k < width; k += B) {
            float g[9 * B] = {0};
            int64_t first = panel * width + k;
            for (int64_t b = 0; b < B && first < w->out; b++)
                for (int j = 0; j < 9; j++)
                    g[j * B + b] =
                        w->turned ? rows[(i * w->out + first + b) * 9 + 8 - j]
                                  : rows[((first + b) * w->in + i) * 9 + j];
            loops->window(w, g, u + i * width + k);
        }
}

void lp_winograd_windows(const LpWinograd *w, int threads, const float *rows,
                         float *u)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < w->panels; p++)
        panel_of_windows(w, p, rows, u);
}

/* ---- images -------------------------------------------------------------- */
size_t lp_winograd_work_bytes(const LpWinograd *w)
{
    size_t tiles = (size_t)(LP_WINOGRAD_PLACES * (w->in_plane + w->out_plane)) *
                   sizeof(float);
    return w->gradient ? tiles + lp_winograd_window_bytes(w) : tiles;
}

/* Panel `panel` of the product of place `place`, of n tiles. */
static void multiply(const LpWinograd *w, int64_t place, int64_t panel,
                     int64_t n, const float *v, const float *u, float *m)
{
    const LpGemmLoopsF32 *loops = products();
    int64_t from = panel * loops->width;
    LpGemmTile t = {.cols = lp_min(loops->width, w->out - from),
                    .k = w->in,
                    .l_rs = w->in,
                    .l_cs = 1,
                    .c_rs = w->out,
                    .c_cs = 1};
    v += place * w->in_plane;
    u += place * w->window_plane + panel * panel_size(w);
    m += place * w->out_plane + from;
    for (int64_t i = 0; i < n; i += t.rows) {
        t.rows = lp_min(loops->rows, n - i);
        loops->tile(&t, v + i * w->in, u, m + i * w->out);
    }
}

/* Tells of tiles that are rows first … first + n - 1 of them, of one image. */
static void tell(const LpWinograd *w, const LpConvThen *then, int64_t first,
                 int64_t n, const float *dst)
{
    int64_t image = first / w->down, from = first % w->down * LP_WINOGRAD_STEP;
    int64_t to = lp_min(from + n * LP_WINOGRAD_STEP, w->dst[0]);
    int64_t row = w->dst[1] * LP_WINOGRAD_BLOCK;
    for (int64_t c = 0; c < w->out; c += LP_WINOGRAD_BLOCK) {
        int64_t at = (image * w->out + c) * w->dst[0] * w->dst[1];
        then->run(then, dst + at + from * row, at + from * row, at + to * row,
                  omp_get_thread_num());
    }
}

/* n tiles from number `at` on, transformed back. */
static void finish(const LpWinograd *w, const LpConvThen *then, int64_t at,
                   int64_t n, const float *m, float *dst)
{
    LP_SIMD_PICK(lp_winograd)->gather(w, then, m, at, n, dst);
    if (!then || !then->run)
        return;
    int64_t row = at / w->across, end = row + n / w->across, rows;
    for (; row < end; row += rows) {
        rows = lp_min(end - row, w->down - row % w->down);
        tell(w, then, row, rows, dst);
    }
}

/* n tiles from number `at` on. */
static void run_chunk(const LpWinograd *w, int threads, int64_t at, int64_t n,
                      const float *src, const float *u, float *dst,
                      const LpConvThen *then, float *v, float *m)
{
    const LpWinogradLoops *loops = LP_SIMD_PICK(lp_winograd);
    int64_t pieces = (n + PIECE - 1) / PIECE;
    int64_t step =
        then && then->run ? lp_max(PIECE / w->across, 1) * w->across : PIECE;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < pieces; i++)
            loops->spread(w, src, at + i * PIECE, lp_min(PIECE, n - i * PIECE),
                          v + i * PIECE * w->in);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < LP_WINOGRAD_PLACES * w->panels; i++)
            multiply(w, i / w->panels, i % w->panels, n, v, u, m);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i += step)
            finish(w, then, at + i, lp_min(step, n - i), m + i * w->out, dst);
    }
}

void lp_winograd_run(const LpWinograd *w, int threads, const float *src,
                     const float *u, float *dst, const LpConvThen *then,
                     void *work)
{
    int64_t tiles = w->n * w->down * w->across;
    float *v = work, *m = v + LP_WINOGRAD_PLACES * w->in_plane;
    for (int64_t at = 0; at < tiles && !lp_kernel_stops(); at += w->chunk)
        run_chunk(w, threads, at, lp_min(w->chunk, tiles - at), src, u, dst,
                  then, v, m);
}

/* ---- the gradient to the windows ----------------------------------------- */
/* Adds the products of place `place`, panel `panel`, of n tiles to u, or writes
 * them if they are the first. */
static void add_up(const LpWinograd *w, int64_t place, int64_t panel,
                   bool first, int64_t n, const float *v, const float *m,
                   float *u)
{
    const LpGemmLoopsF32 *loops = products();
    LpGemmTile t = {.cols = loops->width,
                    .k = n,
                    .l_rs = 1,
                    .l_cs = w->in,
                    .c_rs = w->panels * loops->width,
                    .c_cs = 1,
                    .add = !first};
    v += place * w->in_plane;
    m += place * w->out_plane + panel * w->chunk * loops->width;
    u += place * w->window_plane + panel * loops->width;
    for (int64_t i = 0; i < w->in; i += t.rows) {
        t.rows = lp_min(loops->rows, w->in - i);
        loops->tile(&t, v + i, m, u + i * t.c_rs);
    }
}

/* Those of one input channel. */
static void fold_windows(const LpWinograd *w, int64_t in, const float *u,
                         float *rows)
{
    enum { B = LP_WINOGRAD_BLOCK };
    const LpWinogradLoops *loops = LP_SIMD_PICK(lp_winograd);
    u += in * w->panels * products()->width;
    for (int64_t o = 0; o < w->out; o += B) {
        float g[9 * B];
        loops->fold(w, u + o, g);
        for (int64_t b = 0; b < B; b++)
            for (int j = 0; j < 9; j++)
                rows[((o + b) * w->in + in) * 9 + j] = g[j * B + b];
    }
}

static void add_chunk(const LpWinograd *w, int threads, int64_t at, int64_t n,
                      const float *src, const float *dst, float *u, float *v,
                      float *m)
{
    const LpWinogradLoops *loops = LP_SIMD_PICK(lp_winograd);
    int64_t pieces = (n + PIECE - 1) / PIECE, width = products()->width;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < pieces; i++) {
            int64_t from = i * PIECE, some = lp_min(PIECE, n - from);
            loops->spread(w, src, at + from, some, v + from * w->in);
            loops->raise(w, width, dst, at + from, some, m + from * width);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < LP_WINOGRAD_PLACES * w->panels; i++)
            add_up(w, i / w->panels, i % w->panels, at == 0, n, v, m, u);
    }
}

void lp_winograd_gradient(const LpWinograd *w, int threads, const float *src,
                          const float *dst, float *rows, void *work)
{
    int64_t tiles = w->n * w->down * w->across;
    float *v = work, *m = v + LP_WINOGRAD_PLACES * w->in_plane;
    float *u = m + LP_WINOGRAD_PLACES * w->out_plane;
    for (int64_t at = 0; at < tiles && !lp_kernel_stops(); at += w->chunk)
        add_chunk(w, threads, at, lp_min(w->chunk, tiles - at), src, dst, u, v,
                  m);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < w->in; i++)
        fold_windows(w, i, u, rows);
}
