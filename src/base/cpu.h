/* What this machine's CPU can do, asked once. Nothing else in the project
 * asks. LUPINE_CPU in the environment (plain, avx2, avx512, avx512_bf16, amx)
 * lowers the answer (tests compare them); a value above the CPU's or unknown is
 * ignored with a warning. */
#ifndef LP_BASE_CPU_H
#define LP_BASE_CPU_H

#include <stdbool.h>

typedef enum {
    LP_SIMD_PLAIN,
    LP_SIMD_AVX2,   /* avx2, fma, f16c */
    LP_SIMD_AVX512, /* and avx512 f, bw, vl, dq */
    LP_N_SIMD
} LpSimd;

LpSimd lp_cpu_simd(void);
const char *lp_simd_name(LpSimd simd); /* "plain", "avx2", "avx512" */

bool lp_cpu_has_avx512_bf16(void);
bool lp_cpu_has_amx(void); /* tiles of bf16 and int8, granted by the system */

/* Model name, else "CPU implementer N, part N", or "unknown CPU". */
const char *lp_cpu_name(void);

/* Threads for kernels: OMP_NUM_THREADS, else the CPUs this process may use;
 * never above OMP_THREAD_LIMIT. At least 1; 1 in a worker process, whose
 * parent's threads it does not have. */
int lp_cpu_threads(void);

#endif
