/* Steps (conv_steps.h) on vectors of 8 channels that lie in registers: of N
 * places, constant where this is inlined, and BLOCKS blocks, s[place * BLOCKS +
 * block]. Included by files that are compiled for AVX2. */
#ifndef LP_KERNEL_NN_SIMD_STEPS_H
#define LP_KERNEL_NN_SIMD_STEPS_H

#include <immintrin.h>

#include "src/kernel/nn/conv_steps.h"

/* The first channel; the element of the first place of the first block, from
 * there to the next block's and to the next place's. */
typedef struct StepPlace {
    int64_t channel, element, plane, next;
} StepPlace;

#define EACH                                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < N; i++)                       \
        _Pragma("GCC unroll 3") for (int b = 0; b < BLOCKS; b++)

static inline __attribute__((always_inline)) void
take_step(const LpConvStep *t, const StepPlace *at, __m256 *s, const int N,
          const int BLOCKS)
{
    const __m256 none = _mm256_setzero_ps();
    switch (t->kind) {
    case LP_STEP_SCALE:
        EACH s[i * BLOCKS + b] = _mm256_mul_ps(
            s[i * BLOCKS + b], _mm256_loadu_ps(t->scale + at->channel + b * 8));
        break;
    case LP_STEP_SHIFT:
        EACH s[i * BLOCKS + b] = _mm256_add_ps(
            s[i * BLOCKS + b], _mm256_loadu_ps(t->shift + at->channel + b * 8));
        break;
    case LP_STEP_IMAGE:
        EACH
        {
            __m256 v = _mm256_loadu_ps(t->image + at->element + b * at->plane +
                                       i * at->next);
            if (t->scale)
                v = _mm256_mul_ps(
                    v, _mm256_loadu_ps(t->scale + at->channel + b * 8));
            if (t->shift)
                v = _mm256_add_ps(
                    v, _mm256_loadu_ps(t->shift + at->channel + b * 8));
            s[i * BLOCKS + b] = _mm256_add_ps(s[i * BLOCKS + b], v);
        }
        break;
    case LP_STEP_RELU: /* of NaN the second operand is taken */
        EACH s[i * BLOCKS + b] = _mm256_max_ps(none, s[i * BLOCKS + b]);
        break;
    case LP_STEP_CLIP:
        EACH s[i * BLOCKS + b] = _mm256_min_ps(
            _mm256_set1_ps(t->hi),
            _mm256_max_ps(_mm256_set1_ps(t->lo), s[i * BLOCKS + b]));
        break;
    }
}

static inline __attribute__((always_inline)) void
take_steps(const LpConvSteps *t, const StepPlace *at, __m256 *s, const int N,
           const int BLOCKS)
{
#pragma GCC unroll 1
    for (int k = 0; k < t->n; k++)
        take_step(&t->step[k], at, s, N, BLOCKS);
}
#undef EACH

#endif
