/* The loops of roundloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. Numbers are rounded LANES at once; what they draw is
 * made beside them, STEP at once, and stays in registers where a stretch has
 * whole steps. */
#include <string.h>

#include "src/base/half.h"
#include "src/base/random.h"
#include "src/kernel/roundloops.h"
#ifdef __AVX2__
#include "src/kernel/loops/simd_turn.h"
#include "src/kernel/random/philox_lanes.h"
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

/* elements that are drawn for at once, whole 32 of them in each half */
enum { STEP = LANES > 8 ? 128 : 64, VECTORS = STEP / LANES };

typedef uint32_t U __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
typedef float F __attribute__((vector_size(4 * LANES)));
typedef uint16_t H __attribute__((vector_size(2 * LANES)));

#define INLINE static inline __attribute__((always_inline))
#define CHOOSE(c, a, b) (((U)(c) & (a)) | (~(U)(c) & (b)))

/* ---- draws --------------------------------------------------------------- */
#ifdef __AVX2__
/* With both halves of each word in the other's place. */
INLINE U swapped(U x)
{
#ifdef __AVX512F__
    return (U)_mm512_rol_epi32((__m512i)x, 16);
#else
    const __m256i to = _mm256_setr_epi8(
        2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, /* lane 0 */
        2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return (U)_mm256_shuffle_epi8((__m256i)x, to);
#endif
}

INLINE U words(Lanes low, Lanes high)
{
#ifdef __AVX512F__
    return (U)_mm512_mask_blend_epi32(0xaaaa, (__m512i)low,
                                      (__m512i)(high << 32));
#else
    return (U)_mm256_blend_epi32((__m256i)low, (__m256i)(high << 32), 0xaa);
#endif
}

/* What the blocks of a run give its elements, in their order. */
INLINE void in_order(const Lanes x[4], U d[4])
{
    U a = words(x[0], x[1]), b = words(x[2], x[3]);
#ifdef __AVX512F__
    const U all[4] = {a, swapped(a), b, swapped(b)};
#define HALVES(i, j, which)                                                    \
    ((U)_mm512_shuffle_i64x2((__m512i)all[i], (__m512i)all[j], which))
    d[0] = HALVES(0, 1, 0x44);
    d[1] = HALVES(2, 3, 0x44);
    d[2] = HALVES(0, 1, 0xee);
    d[3] = HALVES(2, 3, 0xee);
#undef HALVES
#else
    d[0] = a;
    d[1] = swapped(a);
    d[2] = b;
    d[3] = swapped(b);
#endif
}

typedef PhiloxSame Same;

INLINE Same same_of(const LpRandom *r)
{
    const uint32_t ctr[4] = {0, r->iteration, r->replica, r->micro_batch};
    return philox_same(r->key, ctr);
}

/* Of the elements of `runs` half steps from block on. */
INLINE void draw(const LpRandom *r, Same same, int runs, uint32_t block, U *d)
{
    Lanes x[2][4];
    philox_run(LP_RANDOM_FEW_ROUNDS, runs, r->key, same, block, x);
    in_order(x[0], d);
    if (runs > 1)
        in_order(x[1], d + 4);
}
#else
typedef int Same;

INLINE Same same_of(const LpRandom *r)
{
    (void)r;
    return 0;
}

INLINE void draw(const LpRandom *r, Same same, int runs, uint32_t block, U *d)
{
    uint32_t to[STEP], w[4];
    (void)same;
    for (int b = 0; b < runs * STEP / 16; b++) {
        lp_random_block_of(LP_RANDOM_FEW_ROUNDS, r, block + (uint32_t)b, w);
        uint32_t *at = to + b / 4 * 32 + b % 4 * 2;
        for (int i = 0; i < 4; i++) {
            at[i / 2 * 16 + i % 2] = w[i];
            at[i / 2 * 16 + i % 2 + 8] = w[i] << 16 | w[i] >> 16;
        }
    }
    memcpy(d, to, (size_t)(runs * STEP / 2) * sizeof *to);
}
#endif

/* ---- numbers ------------------------------------------------------------- */
INLINE bool any(U x)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)x, (__m256i)x);
#else
    return ((x[0] | x[1]) | (x[2] | x[3])) != 0;
#endif
}

/* Of numbers below 2^16. */
INLINE H narrow(U x)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    return (H)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x),
                               _mm256_extracti128_si256((__m256i)x, 1));
#else
    return __builtin_convertvector(x, H);
#endif
}

/* The greater of positive numbers. (As floats, whose constants the compiler
 * keeps in memory.) */
INLINE U greater(U a, U b)
{
#if defined(__AVX512F__)
    return (U)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (U)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return CHOOSE((I)a > (I)b, a, b);
#endif
}

INLINE U lesser(U a, U b)
{
#if defined(__AVX512F__)
    return (U)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (U)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return CHOOSE((I)a < (I)b, a, b);
#endif
}

/* The power of 2 that u's magnitude has, at least that of normal halves. */
INLINE U power(U u)
{
    return greater((U)((F){0} + 0x1p-14f), u & 0x7f800000);
}

/* Whether a magnitude is rounded up of whose `power` `cut` is to be cut off: a
 * share of the distance of two halves that is more than the draw's first 23
 * bits. Exact but for what is below the least half. */
INLINE U goes_up(F cut, U power, U draw)
{
    return (U)(cut * 0x1p10f + (F)power > (F)(power | draw >> 9));
}

#define LARGE 0x477fe000 /* of float16 the largest */

#ifdef __F16C__
#ifdef __AVX512F__
#define TO_F16(x)                                                              \
    ((H)_mm512_cvtps_ph((__m512)(x), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC))
#define OF_F16(h) ((U)_mm512_cvtph_ps((__m256i)(h)))
#else
#define TO_F16(x) ((H)_mm256_cvtps_ph((__m256)(x), _MM_FROUND_TO_ZERO))
#define OF_F16(h) ((U)_mm256_cvtph_ps((__m128i)(h)))
#endif

/* -1 where up is, else 0 */
INLINE H ups(U up)
{
#if defined(__AVX512F__)
    return __builtin_convertvector(up, H);
#else
    return (H)_mm_packs_epi32(_mm256_castsi256_si128((__m256i)up),
                              _mm256_extracti128_si256((__m256i)up, 1));
#endif
}

/* Of numbers below the largest, whose powers are known. */
INLINE H f16_of(U u, U power, U draw)
{
    H h = TO_F16(u);
    U cut = (U)((F)u - (F)OF_F16(h)) & 0x7fffffff;
    return h - ups(goes_up((F)cut, power, draw));
}

#else
/* A magnitude below 2^16 that has a half's bits alone, as one. */
INLINE U half_of(U m)
{
    U few = (U) __builtin_convertvector((F)m * 0x1p24f, I);
    return CHOOSE(m < 0x38800000, few, (m >> 13) - (112 << 10));
}

INLINE U half_below(U m)
{
    F few =
        __builtin_convertvector(__builtin_convertvector((F)m * 0x1p24f, I), F);
    return CHOOSE(m < 0x38800000, (U)(few * 0x1p-24f), m & ~0x1fffu);
}

INLINE H f16_of(U u, U power, U draw)
{
    U m = u & 0x7fffffff, low = half_below(m);
    U up = goes_up((F)m - (F)low, power, draw);
    return narrow((half_of(low) - up) | (u >> 16 & 0x8000));
}

INLINE U OF_F16(H h)
{
    U x = __builtin_convertvector(h, U), m = x & 0x7fff;
    U few = (U)(__builtin_convertvector((I)m, F) * 0x1p-24f);
    U wide = CHOOSE(m < 0x400, few, (m << 13) + (112 << 23));
    wide = CHOOSE(m >= 0x7c00, wide + (112 << 23), wide);
    return wide | (x & 0x8000) << 16;
}
#endif

/* Nearest beyond the largest number of float16: it, infinity, a NaN. */
INLINE U large(U m)
{
    U nan = (m >> 13 & 0x3ff) | 0x7e00;
    U r = CHOOSE(m > 0x7f800000, nan, (U){0} + 0x7c00);
    return CHOOSE(m < 0x477ff000, (U){0} + 0x7bff, r);
}

INLINE H to_f16(U u, U draw)
{
    U m = u & 0x7fffffff, is_large = (U)((I)m >= LARGE);
    if (any(is_large)) {
        U v = CHOOSE(is_large, (U){0}, u);
        H r = f16_of(v, power(v), draw);
        U all = __builtin_convertvector(r, U);
        return narrow(CHOOSE(is_large, large(m) | (u >> 16 & 0x8000), all));
    }
    return f16_of(u, power(u), draw);
}

/* f16_of for normal numbers (and 0), of which 13 bits are cut off: these carry
 * where they are more than the draw's first ones. */
INLINE U carried(U u, U draw)
{
    return (u + 0x1fff - (draw >> 19)) & ~0x1fffu;
}

INLINE H f16_normal(U u, U draw)
{
#ifdef __F16C__
    return TO_F16(carried(u, draw));
#else
    U x = carried(u, draw), m = x & 0x7fffffff;
    return narrow(half_of(m) | (x >> 16 & 0x8000));
#endif
}

INLINE U f16_wide_normal(U u, U draw)
{
    return carried(u, draw);
}

INLINE U f16_wide_of(U u, U power, U draw)
{
    return OF_F16(f16_of(u, power, draw));
}

INLINE U to_f16_wide(U u, U draw)
{
    return OF_F16(to_f16(u, draw));
}

INLINE U bf16_bits(U u, U draw)
{
    return (u + (draw >> 16)) >> 16;
}

INLINE U any_bf16_bits(U u, U draw)
{
    U m = u & 0x7fffffff, is_large = (U)((I)m >= 0x7f7f0000);
    U r = bf16_bits(u, draw);
    if (any(is_large)) {
        U top = CHOOSE(m < 0x7f7f8000, (U){0} + 0x7f7f, (U){0} + 0x7f80);
        top = CHOOSE(m > 0x7f800000, m >> 16 | 0x40, top);
        r = CHOOSE(is_large, top | (u >> 16 & 0x8000), r);
    }
    return r;
}

INLINE H bf16_normal(U u, U draw)
{
    return narrow(bf16_bits(u, draw));
}

INLINE U bf16_wide_normal(U u, U draw)
{
    return bf16_bits(u, draw) << 16;
}

INLINE H bf16_of(U u, U power, U draw)
{
    (void)power;
    return narrow(bf16_bits(u, draw));
}

INLINE H to_bf16(U u, U draw)
{
    return narrow(any_bf16_bits(u, draw));
}

INLINE U bf16_wide_of(U u, U power, U draw)
{
    (void)power;
    return bf16_bits(u, draw) << 16;
}

INLINE U to_bf16_wide(U u, U draw)
{
    return any_bf16_bits(u, draw) << 16;
}

/* ---- loops --------------------------------------------------------------- */
/* The first n of a vector, then zeros; and back. */
#if defined(__AVX2__) && !defined(__AVX512F__)
INLINE __m256i first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE U some(const float *x, int64_t n)
{
    return (U)_mm256_maskload_ps(x, first(n));
}

INLINE void put_wide(U y, int64_t n, float *to)
{
    _mm256_maskstore_ps(to, first(n), (__m256)y);
}
#else
INLINE U some(const float *x, int64_t n)
{
    U u = {0};
    memcpy(&u, x, (size_t)n * sizeof *x);
    return u;
}

INLINE void put_wide(U y, int64_t n, float *to)
{
    memcpy(to, &y, (size_t)n * sizeof *to);
}
#endif

INLINE void put_half(H y, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = y[i];
}

/* Numbers from which on `to` sees to what is large. */
enum { LARGE_F16 = 0x47000000, LARGE_BF16 = 0x7f000000 };
enum { NORMAL = 113 << 23 }; /* the least power of normal halves */

/* V, a vector of type T, is what `of` and `to` make of LANES numbers. */
#define LOOP(name, T, V, put, large)                                           \
    INLINE void name##_some(int64_t n, const float *x, const uint32_t *draw,   \
                            T *to)                                             \
    {                                                                          \
        U u, d;                                                                \
        for (; n >= LANES;                                                     \
             n -= LANES, x += LANES, draw += LANES, to += LANES) {             \
            memcpy(&d, draw, sizeof d);                                        \
            memcpy(&u, x, sizeof u);                                           \
            V y = to_##name(u, d);                                             \
            memcpy(to, &y, sizeof y);                                          \
        }                                                                      \
        memcpy(&d, draw, sizeof d);                                            \
        if (n > 0)                                                             \
            put(to_##name(some(x, n), d), n, to);                              \
    }                                                                          \
    /* of `vectors` of them */                                                 \
    INLINE void name##_all(int vectors, const float *x, const U *d, T *to)     \
    {                                                                          \
        U p[VECTORS], most = {0}, least = (U){0} + 0x7f800000;                 \
        U u;                                                                   \
        _Pragma("GCC unroll 8") for (int i = 0; i < vectors; i++)              \
        {                                                                      \
            memcpy(&u, x + i * LANES, sizeof u);                               \
            p[i] = power(u);                                                   \
            most = greater(p[i], most);                                        \
            least = lesser(p[i], least);                                       \
        }                                                                      \
        if (any((U)((I)most >= large))) {                                      \
            U e[VECTORS + 1] = {{0}};                                          \
            memcpy(e, d, (size_t)vectors * sizeof *d);                         \
            name##_some(vectors *LANES, x, (const uint32_t *)(const void *)e,  \
                        to);                                                   \
            return;                                                            \
        }                                                                      \
        if (!any((U)((I)least <= NORMAL))) {                                   \
            _Pragma("GCC unroll 8") for (int i = 0; i < vectors; i++)          \
            {                                                                  \
                memcpy(&u, x + i * LANES, sizeof u);                           \
                V y = name##_normal(u, d[i]);                                  \
                memcpy(to + i * LANES, &y, sizeof y);                          \
            }                                                                  \
            return;                                                            \
        }                                                                      \
        _Pragma("GCC unroll 8") for (int i = 0; i < vectors; i++)              \
        {                                                                      \
            memcpy(&u, x + i * LANES, sizeof u);                               \
            V y = name##_of(u, p[i], d[i]);                                    \
            memcpy(to + i * LANES, &y, sizeof y);                              \
        }                                                                      \
    }                                                                          \
    static void round_##name(const LpRandom *r, uint64_t at, int64_t n,        \
                             const float *x, T *to)                            \
    {                                                                          \
        Same same = same_of(r);                                                \
        int64_t skip = (int64_t)(at % (STEP / 2)), m;                          \
        uint32_t block = (uint32_t)((at - (uint64_t)skip) / 8);                \
        for (; n > 0; n -= m, x += m, to += m, skip = 0) {                     \
            if (skip == 0 && n >= STEP) {                                      \
                U d[VECTORS];                                                  \
                m = STEP;                                                      \
                draw(r, same, 2, block, d);                                    \
                name##_all(VECTORS, x, d, to);                                 \
                block += STEP / 8;                                             \
                continue;                                                      \
            }                                                                  \
            U d[VECTORS / 2];                                                  \
            m = skip + n < STEP / 2 ? n : STEP / 2 - skip;                     \
            draw(r, same, 1, block, d);                                        \
            block += STEP / 16;                                                \
            if (m == STEP / 2) {                                               \
                name##_all(VECTORS / 2, x, d, to);                             \
                continue;                                                      \
            }                                                                  \
            U e[VECTORS / 2 + 1] = {{0}};                                      \
            memcpy(e, d, sizeof d);                                            \
            name##_some(m, x, (const uint32_t *)(const void *)e + skip, to);   \
        }                                                                      \
    }
LOOP(f16, uint16_t, H, put_half, LARGE_F16)
LOOP(bf16, uint16_t, H, put_half, LARGE_BF16)
LOOP(f16_wide, float, U, put_wide, LARGE_F16)
LOOP(bf16_wide, float, U, put_wide, LARGE_BF16)

static void turn_rows(int64_t rows, int64_t cols, const float *x, float *to)
{
    int64_t i = 0;
#ifdef __AVX2__
    for (; i + 8 <= rows; i += 8) {
        int64_t j = 0;
        for (; j + 8 <= cols; j += 8) {
            __m256 v[8];
#pragma GCC unroll 8
            for (int64_t k = 0; k < 8; k++)
                v[k] = _mm256_loadu_ps(x + (i + k) * cols + j);
            turn_eight(v);
#pragma GCC unroll 8
            for (int64_t k = 0; k < 8; k++)
                _mm256_storeu_ps(to + (j + k) * rows + i, v[k]);
        }
        for (; j < cols; j++)
            for (int64_t k = 0; k < 8; k++)
                to[j * rows + i + k] = x[(i + k) * cols + j];
    }
#endif
    for (; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j * rows + i] = x[i * cols + j];
}

LpRoundLoopsOf LP_SIMD_NAME(lp_round_loops) = {{.f16 = round_f16,
                                                .bf16 = round_bf16,
                                                .f16_wide = round_f16_wide,
                                                .bf16_wide = round_bf16_wide,
                                                .turn = turn_rows}};
