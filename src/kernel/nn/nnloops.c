/* Picks the loops of this CPU. */
#include "src/kernel/nn/nnloops.h"
#include "src/base/cpu.h"

const LpNnLoops *lp_nn(void)
{
#ifdef __x86_64__
    switch (lp_cpu_simd()) {
    case LP_SIMD_AVX512:
        return &lp_nn_avx512;
    case LP_SIMD_AVX2:
        return &lp_nn_avx2;
    default:
        break;
    }
#endif
    return &lp_nn_plain;
}
