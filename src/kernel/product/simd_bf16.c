/* float32 to bfloat16. Compiled once per instruction set. */
#include "src/kernel/loops/simd_bits.h"
#include "src/kernel/product/bf16_mm.h"

/* To nearest, ties to even; a NaN stays one. */
static inline uint32_t rounded(uint32_t x)
{
    uint32_t r = (x + 0x7fffu + ((x >> 16) & 1)) & 0xffff0000u;
    return (x & 0x7fffffffu) > 0x7f800000u ? x | 0x00400000u : r;
}

static void to_bf16(int64_t n, const float *restrict x, uint16_t *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint16_t)(rounded(bits_of_f(x[i])) >> 16);
}

LpBf16Rounds LP_SIMD_NAME(lp_bf16_round) = {to_bf16};
