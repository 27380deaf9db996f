/* float32 as sums of bfloat16. Compiled once per instruction set. */
#include "src/ops/kernel/bf16_mm.h"
#include "src/ops/kernel/simd_bits.h"

/* To nearest, ties to even; a NaN stays one. */
static inline uint32_t rounded(uint32_t x)
{
    uint32_t r = (x + 0x7fffu + ((x >> 16) & 1)) & 0xffff0000u;
    return (x & 0x7fffffffu) > 0x7f800000u ? x | 0x00400000u : r;
}

static bool split(int64_t n, const float *restrict x, uint16_t *restrict hi,
                  uint16_t *restrict lo)
{
    uint32_t bad = 0;
    if (!lo) {
        for (int64_t i = 0; i < n; i++)
            hi[i] = (uint16_t)(rounded(bits_of_f(x[i])) >> 16);
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = rounded(bits_of_f(x[i]));
        bad |= (h & 0x7f800000u) == 0x7f800000u;
        hi[i] = (uint16_t)(h >> 16);
        lo[i] = (uint16_t)(rounded(bits_of_f(x[i] - f_of_bits(h))) >> 16);
    }
    return !bad;
}

LpBf16Splits LP_SIMD_NAME(lp_bf16_split) = {split};
