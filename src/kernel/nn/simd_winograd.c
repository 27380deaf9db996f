/* See winograd.h. Compiled once per instruction set, of which one uses it.
 * Tiles of 6 x 6 by the points 0, A, -A, D, -D and infinity: with these the
 * error is a quarter of what 1 and 2 give (Vincent and others, "On improving
 * the numerical stability of Winograd convolutions", ICLR workshop 2017). */
#include <string.h>

#include "src/kernel/loops/loops.h"
#include "src/kernel/nn/winograd.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
#include "src/kernel/nn/simd_steps.h"

enum {
    B = LP_WINOGRAD_BLOCK,
    TILE = LP_WINOGRAD_TILE,
    STEP = LP_WINOGRAD_STEP
};
typedef float V __attribute__((vector_size(B * 4)));

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS V load(const float *p)
{
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS void store(float *p, V v)
{
    memcpy(p, &v, sizeof v);
}

#define A 0.625f
#define D 1.5f
#define A2 (A * A)
#define D2 (D * D)

/* Six numbers, `from` apart, to six, `to` apart. */
ALWAYS void spread_line(const V *x, const int from, V *y, const int to)
{
    V x1 = x[from], x2 = x[2 * from], x3 = x[3 * from], x4 = x[4 * from];
    V p = x4 - D2 * x2, q = A * (x3 - D2 * x1);
    V r = x4 - A2 * x2, s = D * (x3 - A2 * x1);
    y[0] = A2 * D2 * x[0] - (A2 + D2) * x2 + x4;
    y[to] = p + q;
    y[2 * to] = p - q;
    y[3 * to] = r + s;
    y[4 * to] = r - s;
    y[5 * to] = A2 * D2 * x1 - (A2 + D2) * x3 + x[5 * from];
}

/* Six to four. */
ALWAYS void gather_line(const V *x, const int from, V *y, const int to)
{
    V p = x[from] + x[2 * from], q = x[from] - x[2 * from];
    V r = x[3 * from] + x[4 * from], s = x[3 * from] - x[4 * from];
    y[0] = x[0] + p + r;
    y[to] = A * q + D * s;
    y[2 * to] = A2 * p + D2 * r;
    y[3 * to] = A2 * A * q + D2 * D * s + x[5 * from];
}

/* The block of channels at `image`, of which a tile's first row and column are
 * y and x. */
ALWAYS void read_tile(const LpWinograd *w, const float *image, int64_t y,
                      int64_t x, V t[TILE * TILE])
{
    bool inside =
        y >= 0 && x >= 0 && y + TILE <= w->src[0] && x + TILE <= w->src[1];
    const float *at = image + (y * w->src[1] + x) * B;
    for (int i = 0; i < TILE; i++)
#pragma GCC unroll 6
        for (int j = 0; j < TILE; j++) {
            bool there = inside || (y + i >= 0 && y + i < w->src[0] &&
                                    x + j >= 0 && x + j < w->src[1]);
            t[i * TILE + j] =
                there ? load(at + (i * w->src[1] + j) * B) : (V){0};
        }
}

/* A tile's place. */
typedef struct Place {
    int64_t n, y, x;
} Place;

static Place place_of(const LpWinograd *w, int64_t tile)
{
    int64_t row = tile / w->across;
    return (Place){row / w->down, row % w->down * STEP,
                   tile % w->across * STEP};
}

static void spread(const LpWinograd *w, const float *image, int64_t at,
                   int64_t n, float *v)
{
    int64_t plane = w->src[0] * w->src[1];
    for (int64_t k = 0; k < n; k++) {
        Place p = place_of(w, at + k);
        for (int64_t c = 0; c < w->in; c += B) {
            V t[TILE * TILE], h[TILE * TILE];
            read_tile(w, image + (p.n * w->in + c) * plane, p.y - w->pad[0],
                      p.x - w->pad[1], t);
#pragma GCC unroll 6
            for (int j = 0; j < TILE; j++)
                spread_line(t + j, TILE, h + j, TILE);
#pragma GCC unroll 6
            for (int i = 0; i < TILE; i++)
                spread_line(h + i * TILE, 1, t + i * TILE, 1);
            float *to = v + k * w->in + c;
            for (int i = 0; i < LP_WINOGRAD_PLACES; i++)
                store(to + i * w->in_plane, t[i]);
        }
    }
}

/* A block of channels of a tile's results, of which some may lie outside. */
ALWAYS void write_tile(const LpWinograd *w, const V r[STEP * STEP], Place p,
                       float *image)
{
    int64_t rows = w->dst[0] - p.y, columns = w->dst[1] - p.x;
    float *at = image + (p.y * w->dst[1] + p.x) * B;
    for (int i = 0; i < STEP && i < rows; i++)
        for (int j = 0; j < STEP && j < columns; j++)
            store(at + (i * w->dst[1] + j) * B, r[i * STEP + j]);
}

/* The same of what is read. */
ALWAYS void read_results(const LpWinograd *w, const float *image, Place p,
                         V r[STEP * STEP])
{
    int64_t rows = w->dst[0] - p.y, columns = w->dst[1] - p.x;
    const float *at = image + (p.y * w->dst[1] + p.x) * B;
    for (int i = 0; i < STEP && i < rows; i++)
        for (int j = 0; j < STEP && j < columns; j++)
            r[i * STEP + j] = load(at + (i * w->dst[1] + j) * B);
}

/* Steps on a tile of channels from c on. An image that is added has nothing for
 * what lies outside. */
ALWAYS void meet_steps(const LpWinograd *w, const LpConvThen *then, Place p,
                       int64_t c, V r[STEP * STEP])
{
    int64_t rows = w->dst[0] - p.y, columns = w->dst[1] - p.x;
    int64_t from = then->first + (p.n * w->out + c) * w->dst[0] * w->dst[1] +
                   (p.y * w->dst[1] + p.x) * B;
    for (int k = 0; k < then->steps.n; k++) {
        LpConvStep t = then->steps.step[k];
        StepPlace at = {c, 0, 0, 0};
        float image[STEP * STEP * B];
        if (t.kind == LP_STEP_IMAGE) {
            for (int i = 0; i < STEP; i++)
                for (int j = 0; j < STEP; j++)
                    store(image + (i * STEP + j) * B,
                          i < rows && j < columns
                              ? load(t.image + from + (i * w->dst[1] + j) * B)
                              : (V){0});
            t.image = image;
            at.next = B;
        }
        take_step(&t, &at, (__m256 *)r, STEP * STEP, 1);
    }
}

static void gather(const LpWinograd *w, const LpConvThen *then, const float *m,
                   int64_t at, int64_t n, float *image)
{
    int64_t plane = w->dst[0] * w->dst[1];
    for (int64_t k = 0; k < n; k++) {
        Place p = place_of(w, at + k);
        for (int64_t c = 0; c < w->out; c += B) {
            V t[TILE * TILE], h[STEP * TILE], r[STEP * STEP];
            const float *from = m + k * w->out + c;
            for (int i = 0; i < LP_WINOGRAD_PLACES; i++)
                t[i] = load(from + i * w->out_plane);
#pragma GCC unroll 6
            for (int j = 0; j < TILE; j++)
                gather_line(t + j, TILE, h + j, TILE);
#pragma GCC unroll 4
            for (int i = 0; i < STEP; i++)
                gather_line(h + i * TILE, 1, r + i * STEP, 1);
            if (then)
                meet_steps(w, then, p, c, r);
            write_tile(w, r, p, image + (p.n * w->out + c) * plane);
        }
    }
}

/* Four numbers to six. */
ALWAYS void raise_line(const V *x, const int from, V *y, const int to)
{
    V x1 = x[from], x3 = x[3 * from];
    V a = x[0] + A2 * x[2 * from], by_a = A * x1 + A2 * A * x3;
    V d = x[0] + D2 * x[2 * from], by_d = D * x1 + D2 * D * x3;
    y[0] = x[0];
    y[to] = a + by_a;
    y[2 * to] = a - by_a;
    y[3 * to] = d + by_d;
    y[4 * to] = d - by_d;
    y[5 * to] = x3;
}

static void raise_tiles(const LpWinograd *w, int64_t width, const float *image,
                        int64_t at, int64_t n, float *m)
{
    int64_t plane = w->dst[0] * w->dst[1];
    for (int64_t k = 0; k < n; k++) {
        Place p = place_of(w, at + k);
        for (int64_t c = 0; c < w->panels * width; c += B) {
            V r[STEP * STEP] = {{0}}, h[STEP * TILE], t[TILE * TILE];
            if (c < w->out)
                read_results(w, image + (p.n * w->out + c) * plane, p, r);
#pragma GCC unroll 4
            for (int i = 0; i < STEP; i++)
                raise_line(r + i * STEP, 1, h + i * TILE, 1);
#pragma GCC unroll 6
            for (int j = 0; j < TILE; j++)
                raise_line(h + j, TILE, t + j, TILE);
            float *to = m + (c / width * w->chunk + k) * width + c % width;
            for (int i = 0; i < LP_WINOGRAD_PLACES; i++)
                store(to + i * w->out_plane, t[i]);
        }
    }
}

/* Three numbers to six. */
ALWAYS void window_line(const V *g, const int from, V *u, const int to)
{
    V a = (g[0] + A2 * g[2 * from]) / (2 * A2 * (A2 - D2));
    V d = (g[0] + D2 * g[2 * from]) / (2 * D2 * (D2 - A2));
    V by_a = g[from] / (2 * A * (A2 - D2)),
      by_d = g[from] / (2 * D * (D2 - A2));
    u[0] = g[0] / (A2 * D2);
    u[to] = a + by_a;
    u[2 * to] = a - by_a;
    u[3 * to] = d + by_d;
    u[4 * to] = d - by_d;
    u[5 * to] = g[2 * from];
}

static void window(const LpWinograd *w, const float g[9 * B], float *u)
{
    V in[9], h[TILE * 3], t[TILE * TILE];
    memcpy(in, g, sizeof in);
#pragma GCC unroll 3
    for (int j = 0; j < 3; j++)
        window_line(in + j, 3, h + j, 3);
#pragma GCC unroll 6
    for (int i = 0; i < TILE; i++)
        window_line(h + i * 3, 1, t + i * TILE, 1);
    for (int i = 0; i < LP_WINOGRAD_PLACES; i++)
        store(u + i * w->window_plane, t[i]);
}

/* Six to three. */
ALWAYS void fold_line(const V *u, const int from, V *g, const int to)
{
    V a = u[from] + u[2 * from], by_a = u[from] - u[2 * from];
    V d = u[3 * from] + u[4 * from], by_d = u[3 * from] - u[4 * from];
    g[0] =
        u[0] / (A2 * D2) + a / (2 * A2 * (A2 - D2)) + d / (2 * D2 * (D2 - A2));
    g[to] = by_a / (2 * A * (A2 - D2)) + by_d / (2 * D * (D2 - A2));
    g[2 * to] = (d - a) / (2 * (D2 - A2)) + u[5 * from];
}

static void fold(const LpWinograd *w, const float *u, float g[9 * B])
{
    V t[TILE * TILE], h[3 * TILE], r[9];
    for (int i = 0; i < LP_WINOGRAD_PLACES; i++)
        t[i] = load(u + i * w->window_plane);
#pragma GCC unroll 6
    for (int j = 0; j < TILE; j++)
        fold_line(t + j, TILE, h + j, TILE);
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        fold_line(h + i * TILE, 1, r + i * 3, 1);
    memcpy(g, r, sizeof r);
}

LpWinogradOf LP_SIMD_NAME(lp_winograd) = {{.spread = spread,
                                           .gather = gather,
                                           .raise = raise_tiles,
                                           .window = window,
                                           .fold = fold}};
#else
LpWinogradOf LP_SIMD_NAME(lp_winograd) = {{NULL, NULL, NULL, NULL, NULL}};
#endif
