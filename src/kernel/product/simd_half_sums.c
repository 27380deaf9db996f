/* The loops of halfloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. A product of two halves is exact in float32, so that
 * it makes no difference whether it is added in one operation or two. */
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "src/base/half.h"
#include "src/kernel/product/halfloops.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define LANES 16
#define MR 14
typedef __m512 V;
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SET(x) _mm512_set1_ps(x)
#define ADD_PRODUCT(s, a, b) _mm512_fmadd_ps(a, b, s)
#define ROUND(v) _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
#define GATHER(p, at)                                                          \
    _mm512_i32gather_ps(_mm512_loadu_si512((const void *)(at)), p, 4)
#elif defined(__AVX2__)
#define LANES 8
#define MR 6
typedef __m256 V;
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SET(x) _mm256_set1_ps(x)
#define ADD_PRODUCT(s, a, b) _mm256_fmadd_ps(a, b, s)
#define ROUND(v) _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
#define GATHER(p, at)                                                          \
    _mm256_i32gather_ps(p, _mm256_loadu_si256((const void *)(at)), 4)
#else
#define LANES 4
#define MR 6
typedef float V __attribute__((vector_size(16), aligned(4)));
#define LOAD(p) (*(const V *)(const void *)(p))
#define STORE(p, v) (*(V *)(void *)(p) = (v))
#define SET(x) ((x) - (V){0})
#define ADD_PRODUCT(s, a, b) ((s) + (a) * (b))
#define ROUND(v) rounded(v)
INLINE V rounded(V v)
{
    for (int i = 0; i < LANES; i++)
        v[i] = lp_half_to_float(lp_float_to_half(v[i]));
    return v;
}
#endif
#define WIDTH (2 * LANES)

INLINE void tile_of(const int rows, int64_t k, int64_t rounds, const float *a,
                    const float *b, float *t)
{
    V s[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < 2; v++)
            s[i][v] = LOAD(t + i * WIDTH + v * LANES);
    while (k > 0) {
        int64_t n = k < LP_HALF_RUN ? k : LP_HALF_RUN;
        k -= n;
#pragma GCC unroll 1
        for (; n > 0; n--, a += rows, b += WIDTH) {
            V b0 = LOAD(b), b1 = LOAD(b + LANES);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                V x = SET(a[i]);
                s[i][0] = ADD_PRODUCT(s[i][0], x, b0);
                s[i][1] = ADD_PRODUCT(s[i][1], x, b1);
            }
        }
        if (rounds-- > 0)
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++)
                for (int v = 0; v < 2; v++)
                    s[i][v] = ROUND(s[i][v]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < 2; v++)
            STORE(t + i * WIDTH + v * LANES, s[i][v]);
}

static void tile(int64_t rows, int64_t k, int64_t rounds, const float *a,
                 const float *b, float *t)
{
#define OF(n)                                                                  \
    case n:                                                                    \
        tile_of(n, k, rounds, a, b, t);                                        \
        break;
    switch (rows) {
        OF(1)
        OF(2)
        OF(3)
        OF(4)
        OF(5)
        OF(6)
#if MR > 6
        OF(7)
        OF(8)
        OF(9)
        OF(10)
        OF(11)
        OF(12)
        OF(13)
        OF(14)
#endif
    }
#undef OF
}

/* Offsets from that of the first, if they fit. */
static bool near(const int64_t *at, int32_t *to)
{
    for (int j = 0; j < WIDTH; j++) {
        int64_t d = at[j] - at[0];
        if (d != (int32_t)d)
            return false;
        to[j] = (int32_t)d;
    }
    return true;
}

static void pack(int64_t k, const float *x, const int64_t *at_k,
                 const int64_t *at_j, bool dense, float *to)
{
    int32_t at[WIDTH];
    bool close = near(at_j, at);
    (void)close;
    for (int64_t q = 0; q < k; q++, to += WIDTH) {
        const float *p = x + at_k[q] + at_j[0];
        if (dense) {
            memcpy(to, p, WIDTH * sizeof *to);
            continue;
        }
#ifdef GATHER
        if (close) {
            STORE(to, GATHER(p, at));
            STORE(to + LANES, GATHER(p, at + LANES));
            continue;
        }
#endif
        for (int j = 0; j < WIDTH; j++)
            to[j] = x[at_k[q] + at_j[j]];
    }
}

static float line(int64_t k, int64_t rounds, const float *a,
                  const int64_t *at_a, const float *b, const int64_t *at_b)
{
    float s = 0;
    for (int64_t q = 0; q < k;) {
        int64_t end = k - q < LP_HALF_RUN ? k : q + LP_HALF_RUN;
        for (; q < end; q++)
            s += a[at_a[q]] * b[at_b[q]];
        if (rounds-- > 0) {
            V v = ROUND(SET(s));
            memcpy(&s, &v, sizeof s);
        }
    }
    return s;
}

LpHalfLoopsOf LP_SIMD_NAME(lp_half_loops) = {
    {.rows = MR, .width = WIDTH, .tile = tile, .pack = pack, .line = line}};
