/* See direct.h. Compiled once per instruction set, of which one uses it. */
#include <string.h>

#include "src/kernel/loops/loops.h"
#include "src/kernel/nn/direct.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
#include "src/kernel/nn/simd_steps.h"

enum { B = LP_DIRECT_BLOCK };

#define ALWAYS static inline __attribute__((always_inline))

/* N places of BLOCKS blocks: their sums stay in registers. Three places to a
 * pointer: they are reached by scaled indices. The next tile's places are asked
 * for meanwhile, and memory that is soon written or read. */
ALWAYS void tile(const LpDirectTile *t, int64_t at, const float *x,
                 const float *u, float *y, const int N, const int BLOCKS,
                 const int64_t step)
{
    __m256 s[LP_DIRECT_SUMS];
#pragma GCC unroll 8
    for (int i = 0; i < N; i++)
#pragma GCC unroll 3
        for (int b = 0; b < BLOCKS; b++)
            s[i * BLOCKS + b] = t->add
                                    ? _mm256_loadu_ps(y + b * t->plane + i * B)
                                    : _mm256_setzero_ps();
    for (int64_t k = 0; k < t->taps; k++) {
        const float *p[3];
#pragma GCC unroll 3
        for (int i = 0; i < (N + 2) / 3; i++)
            p[i] = x + t->offset[k] + 3 * i * step;
#pragma GCC unroll 4
        for (int i = 0; i < N; i += 2)
            __builtin_prefetch(p[0] + (N + i) * step);
#pragma GCC unroll 2
        for (int c = 0; c < B; c++) {
            __m256 w[3];
#pragma GCC unroll 3
            for (int b = 0; b < BLOCKS; b++)
                w[b] = _mm256_loadu_ps(u + b * B);
            u += BLOCKS * B;
#pragma GCC unroll 8
            for (int i = 0; i < N; i++) {
                __m256 a = _mm256_broadcast_ss(p[i / 3] + i % 3 * step);
#pragma GCC unroll 3
                for (int b = 0; b < BLOCKS; b++)
                    s[i * BLOCKS + b] =
                        _mm256_fmadd_ps(a, w[b], s[i * BLOCKS + b]);
            }
#pragma GCC unroll 3
            for (int i = 0; i < (N + 2) / 3; i++)
                p[i]++;
        }
    }
    if (t->steps)
        take_steps(
            t->steps,
            &(StepPlace){t->channel, t->element + at * B, t->image_plane, B}, s,
            N, BLOCKS);
#pragma GCC unroll 8
    for (int i = 0; i < N; i++)
#pragma GCC unroll 3
        for (int b = 0; b < BLOCKS; b++)
            _mm256_storeu_ps(y + b * t->plane + i * B, s[i * BLOCKS + b]);
}

/* Places from `at` on of each block of what is soon needed. */
ALWAYS void ask(const LpDirectTile *t, int64_t at, const int N,
                const int BLOCKS)
{
    for (int k = 0; k < t->n_ahead; k++)
#pragma GCC unroll 3
        for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 4
            for (int i = 0; i < N; i += 2)
                __builtin_prefetch(
                    t->ahead[k] + b * t->image_plane + (at + i) * B, 0, 2);
}

/* Tiles of N places, then of one fewer. */
#define TILES(N, BLOCKS, STEP)                                                 \
    {                                                                          \
        for (; whole > 0; whole--, at += N) {                                  \
            ask(t, at, N, BLOCKS);                                             \
            tile(t, at, x + at * t->step, u, y + at * B, N, BLOCKS, STEP);     \
        }                                                                      \
        for (; fewer > 0; fewer--, at += (N)-1) {                              \
            ask(t, at, (N)-1, BLOCKS);                                         \
            tile(t, at, x + at * t->step, u, y + at * B, (N)-1, BLOCKS, STEP); \
        }                                                                      \
    }                                                                          \
    break;

#define LINES(name, STEP)                                                      \
    static void name(const LpDirectTile *t, int64_t n, const float *x,         \
                     const float *u, float *y)                                 \
    {                                                                          \
        int64_t most = t->blocks == 1 ? 8 : 12 / t->blocks;                    \
        int64_t tiles = (n + most - 1) / most, of = (n + tiles - 1) / tiles;   \
        int64_t fewer = tiles * of - n, whole = tiles - fewer, at = 0;         \
        switch (t->blocks * 10 + of) {                                         \
        case 11:                                                               \
            TILES(1, 1, STEP)                                                  \
        case 12:                                                               \
            TILES(2, 1, STEP)                                                  \
        case 13:                                                               \
            TILES(3, 1, STEP)                                                  \
        case 14:                                                               \
            TILES(4, 1, STEP)                                                  \
        case 15:                                                               \
            TILES(5, 1, STEP)                                                  \
        case 16:                                                               \
            TILES(6, 1, STEP)                                                  \
        case 17:                                                               \
            TILES(7, 1, STEP)                                                  \
        case 18:                                                               \
            TILES(8, 1, STEP)                                                  \
        case 21:                                                               \
            TILES(1, 2, STEP)                                                  \
        case 22:                                                               \
            TILES(2, 2, STEP)                                                  \
        case 23:                                                               \
            TILES(3, 2, STEP)                                                  \
        case 24:                                                               \
            TILES(4, 2, STEP)                                                  \
        case 25:                                                               \
            TILES(5, 2, STEP)                                                  \
        case 26:                                                               \
            TILES(6, 2, STEP)                                                  \
        case 31:                                                               \
            TILES(1, 3, STEP)                                                  \
        case 32:                                                               \
            TILES(2, 3, STEP)                                                  \
        case 33:                                                               \
            TILES(3, 3, STEP)                                                  \
        case 34:                                                               \
            TILES(4, 3, STEP)                                                  \
        }                                                                      \
    }
LINES(near, B)
LINES(second, 2 * B)
LINES(apart, t->step)

/* N places of two windows of four channels, a half of the vectors each. */
ALWAYS void quad(const LpDirectTile *t, int64_t at, const float *x,
                 const float *u, float *y, const int N)
{
    __m256 s[8];
#pragma GCC unroll 8
    for (int i = 0; i < N; i++)
        s[i] = _mm256_setzero_ps();
    for (int64_t k = 0; k < t->taps; k++, u += 4 * B) {
        const float *p = x + t->offset[k];
        __m256 w[4];
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++)
            w[c] = _mm256_loadu_ps(u + c * B);
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            __m256 v = _mm256_loadu_ps(p + i * t->step);
            s[i] = _mm256_fmadd_ps(_mm256_permute_ps(v, 0x00), w[0], s[i]);
            s[i] = _mm256_fmadd_ps(_mm256_permute_ps(v, 0x55), w[1], s[i]);
            s[i] = _mm256_fmadd_ps(_mm256_permute_ps(v, 0xaa), w[2], s[i]);
            s[i] = _mm256_fmadd_ps(_mm256_permute_ps(v, 0xff), w[3], s[i]);
        }
    }
    if (t->steps)
        take_steps(t->steps,
                   &(StepPlace){t->channel, t->element + at * B, 0, B}, s, N,
                   1);
#pragma GCC unroll 8
    for (int i = 0; i < N; i++)
        _mm256_storeu_ps(y + i * B, s[i]);
}

static void quads(const LpDirectTile *t, int64_t n, const float *x,
                  const float *u, float *y)
{
    int64_t at = 0;
    for (; at + 8 <= n; at += 8)
        quad(t, at, x + at * t->step, u, y + at * B, 8);
    if (at + 4 <= n) {
        quad(t, at, x + at * t->step, u, y + at * B, 4);
        at += 4;
    }
    for (; at < n; at++)
        quad(t, at, x + at * t->step, u, y + at * B, 1);
}

static void line(const LpDirectTile *t, int64_t n, const float *x,
                 const float *u, float *y)
{
    if (t->quads)
        quads(t, n, x, u, y);
    else if (t->step == B)
        near(t, n, x, u, y);
    else if (t->step == 2 * B)
        second(t, n, x, u, y);
    else
        apart(t, n, x, u, y);
}

/* ---- a window a channel -------------------------------------------------- */
/* Places of a line or column of results whose windows meet `rows` by `columns`
 * blocks of the image and of the windows, which lie so many elements apart. */
typedef struct Places {
    int64_t rows, columns;
    int64_t row, column, u_row;
    int64_t step, next; /* to the next place's window, and result */
} Places;

ALWAYS void across(const LpDirectTile *t, const Places *p, int64_t element,
                   const float *x, const float *u, float *y, const int N,
                   const int64_t step)
{
    __m256 s[LP_DIRECT_SUMS];
#pragma GCC unroll 12
    for (int i = 0; i < N; i++)
        s[i] = _mm256_setzero_ps();
    for (int64_t k = 0; k < p->rows; k++, x += p->row, u += p->u_row) {
        const float *w = u, *v = x;
        for (int64_t j = 0; j < p->columns; j++, v += p->column, w += B) {
            __m256 a = _mm256_loadu_ps(w);
#pragma GCC unroll 12
            for (int i = 0; i < N; i++)
                s[i] = _mm256_fmadd_ps(a, _mm256_loadu_ps(v + i * step), s[i]);
        }
    }
    if (t->steps)
        take_steps(t->steps, &(StepPlace){t->channel, element, 0, p->next}, s,
                   N, 1);
#pragma GCC unroll 12
    for (int i = 0; i < N; i++)
        _mm256_storeu_ps(y + i * p->next, s[i]);
}

#define ACROSS(N)                                                              \
    case N:                                                                    \
        if (p->step == B)                                                      \
            across(t, p, element, x, u, y, N, B);                              \
        else                                                                   \
            across(t, p, element, x, u, y, N, p->step);                        \
        break;

static void some(const LpDirectTile *t, const Places *p, int64_t n,
                 int64_t element, const float *x, const float *u, float *y)
{
    switch (n) {
        ACROSS(1)
        ACROSS(2)
        ACROSS(3)
        ACROSS(4)
        ACROSS(5)
        ACROSS(6)
        ACROSS(7)
        ACROSS(8)
        ACROSS(9)
        ACROSS(10)
        ACROSS(11)
        ACROSS(12)
    }
}

/* n places, in tiles of nearly one size. */
static void places(const LpDirectTile *t, const Places *p, int64_t n,
                   int64_t element, const float *x, const float *u, float *y)
{
    int64_t tiles = (n + LP_DIRECT_SUMS - 1) / LP_DIRECT_SUMS;
    for (int64_t i = 0, at = 0; i < tiles; i++) {
        int64_t size = n * (i + 1) / tiles - at;
        some(t, p, size, element + at * p->next, x + at * p->step, u,
             y + at * p->next);
        at += size;
    }
}

/* Numbers i in 0 … n - 1 for which first + i * step lies in 0 … size - 1. */
static void within(int64_t first, int64_t step, int64_t size, int64_t n,
                   int64_t *lo, int64_t *hi)
{
    *lo = first >= 0 ? 0 : step == 1 ? -first : (step - 1 - first) / step;
    *hi = first >= size ? 0
          : step == 1   ? size - first
                        : (size - 1 - first) / step + 1;
    *hi = *hi < n ? *hi : n;
    *lo = *lo < *hi ? *lo : *hi;
}

/* The part of the window at line `y` and column `x` that lies in the image. */
static Places meet(const LpDirect *d, int64_t y, int64_t x, int64_t from[2])
{
    const int64_t at[2] = {y, x};
    int64_t to[2];
    for (int i = 0; i < 2; i++)
        within(at[i] * d->stride[i] - d->pad[i], d->dilation[i], d->src[i],
               d->kernel[i], &from[i], &to[i]);
    return (Places){.rows = to[0] - from[0],
                    .columns = to[1] - from[1],
                    .row = d->dilation[0] * d->src[1] * B,
                    .column = d->dilation[1] * B,
                    .u_row = d->kernel[1] * B};
}

/* n places from line y, column x on, down or to the right, whose windows meet
 * the image alike. */
static void alike(const LpDirect *d, const LpDirectTile *t, bool down,
                  int64_t n, int64_t y, int64_t x, const float *image,
                  const float *u, float *made)
{
    int64_t from[2], line = d->dst[1] * B;
    Places p = meet(d, y, x, from);
    int64_t row = y * d->stride[0] - d->pad[0] + from[0] * d->dilation[0];
    int64_t column = x * d->stride[1] - d->pad[1] + from[1] * d->dilation[1];
    p.step = down ? d->stride[0] * d->src[1] * B : d->stride[1] * B;
    p.next = down ? line : B;
    places(t, &p, n, t->element + y * line + x * B,
           image + (row * d->src[1] + column) * B,
           u + from[0] * p.u_row + from[1] * B, made + y * line + x * B);
}

/* Lines first … last - 1. Columns at the edges go down where they can. */
static void lines(const LpDirect *d, const LpDirectTile *t, int64_t first,
                  int64_t last, const float *image, const float *u, float *made)
{
    int64_t lo[2], hi[2];
    for (int i = 0; i < 2; i++)
        within(-d->pad[i], d->stride[i],
               d->src[i] - (d->kernel[i] - 1) * d->dilation[i], d->dst[i],
               &lo[i], &hi[i]);
    int64_t from = lo[0] > first ? lo[0] : first;
    int64_t to = hi[0] < last ? hi[0] : last;
    for (int64_t y = first; y < last; y++) {
        bool in = y >= from && y < to;
        alike(d, t, false, hi[1] - lo[1], y, lo[1], image, u, made);
        for (int64_t x = 0; x < d->dst[1]; x++) {
            if (x == lo[1])
                x = hi[1];
            if (x < d->dst[1] && (!in || y == from))
                alike(d, t, true, in ? to - from : 1, y, x, image, u, made);
        }
    }
}

LpDirectOf LP_SIMD_NAME(lp_direct) = {{line, lines}};
#else
LpDirectOf LP_SIMD_NAME(lp_direct) = {{NULL, NULL}};
#endif
