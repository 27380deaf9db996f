/* What the host does if nobody asks for less. */
#include "src/autodiff/op_call.h"
#include "src/base/cpu.h"
#include "src/passes/host/lower.h"

#define REMAT ((uint64_t)128 << 20) /* less is no burden */

LpHostOptions lp_host_options(void)
{
    static const int blocks[LP_N_SIMD] = {
        [LP_SIMD_PLAIN] = 0, [LP_SIMD_AVX2] = 8, [LP_SIMD_AVX512] = 16};
    return (LpHostOptions){.threads = lp_kernel_width(),
                           .fuse = true,
                           .epilogues = true,
                           .pack = true,
                           .weight_layouts = true,
                           .split = lp_product_split(),
                           .fast = true,
                           .embedding_hoist = true,
                           .block = blocks[lp_cpu_simd()],
                           .remat = REMAT};
}
