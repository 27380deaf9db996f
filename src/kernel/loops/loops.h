/* The loops of pointwise operators. A loop reads n elements of each operand,
 * contiguous and already in the loop's own type (float, double or int64_t),
 * and writes n elements of that type, or of uint8_t for a boolean result. It
 * knows nothing of strides, conversion, threads: that is pointwise.c.
 *
 * unary.def and binary.def are the list. simd_unary.c and simd_binary.c make
 * the functions of it, once for each instruction set. */
#ifndef LP_KERNEL_LOOPS_LOOPS_H
#define LP_KERNEL_LOOPS_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/cpu.h"
#include "src/tensor/dtype.h"

enum { LP_PW_MAX_IN = 4, LP_PW_MAX_PARAM = 3 };

/* gelu by tanh: (1 + tanh(SCALE (x + CUBE x^3))) x / 2, with SCALE^2 = 2 / pi
 * (Hendrycks and Gimpel, 2016). */
#define LP_GELU_SCALE 0.79788456080286536
#define LP_GELU_CUBE 0.044715

/* A parameter (attribute) as both kinds of loop want it. */
typedef struct LpNum {
    double f;
    int64_t i;
} LpNum;

/* y may be the same memory as an operand, never shifted against one. Bit i of
 * `splat`: operand i is one element for all n (loops of two operands only). `p`
 * has LP_PW_MAX_PARAM entries, also for loops without parameters. */
typedef void (*LpLoop)(int64_t n, void *y, const void *const *x, unsigned splat,
                       const LpNum *p);

typedef struct LpLoopRow {
    LpLoop f32, f64, i64; /* NULL: not in this type */
    uint8_t n_in;
    bool to_bool; /* the result is uint8_t, 0 or 1 */
} LpLoopRow;

enum {
#define UNARY(name, ...) LP_LOOP_##name,
#define UNARYI(name, ...) LP_LOOP_##name,
#define UNARYH(name, ...) LP_LOOP_##name,
#define TEST(name, ...) LP_LOOP_##name,
#define LOOP1(name, ...) LP_LOOP_##name,
#include "src/kernel/loops/unary.def"
    LP_N_UNARY_LOOPS,
    LP_LOOP_last_unary = LP_N_UNARY_LOOPS - 1,
#define BINARY(name, ...) LP_LOOP_##name,
#define BINARYI(name, ...) LP_LOOP_##name,
#define COMPARE(name, ...) LP_LOOP_##name,
#define LOOP2(name, ...) LP_LOOP_##name,
#define TERNARY(name, ...) LP_LOOP_##name,
#include "src/kernel/loops/binary.def"
    LP_N_LOOPS,
    LP_LOOP_NONE = LP_N_LOOPS
};

/* Of this machine's instruction set. */
const LpLoopRow *lp_loop_row(int loop);

/* n elements from one stored type to another, with strides in bytes. Reading
 * a float16 into float32 is exact; everything else rounds once, to nearest
 * even. A float beyond an integer type's range gives an unspecified integer,
 * as in PyTorch; to bool, nonzero is true. Stores to half types are these and
 * lp_scalar_store: nothing else narrows a float (lint). What rounds at random
 * has done so before (rounding.h). */
typedef void (*LpConvert)(int64_t n, void *dst, int64_t dst_step,
                          const void *src, int64_t src_step);

/* NULL unless one of the two is float32, float64 or int64, or both are equal
 * (a copy). */
LpConvert lp_convert_loop(LpDtype from, LpDtype to);

/* How the three compilations of a file name what they export. */
#define LP_SIMD_PASTE_(a, b) a##_##b
#define LP_SIMD_PASTE(a, b) LP_SIMD_PASTE_(a, b)
#define LP_SIMD_NAME(a) LP_SIMD_PASTE(a, LP_SIMD)

/* Picks this machine's of the three. */
#if defined(__x86_64__)
#define LP_SIMD_PICK(a)                                                        \
    (lp_cpu_simd() == LP_SIMD_AVX512 ? a##_avx512                              \
     : lp_cpu_simd() == LP_SIMD_AVX2 ? a##_avx2                                \
                                     : a##_plain)
#define LP_SIMD_EXTERN(type, a) extern type a##_plain, a##_avx2, a##_avx512
#else
#define LP_SIMD_PICK(a) a##_plain
#define LP_SIMD_EXTERN(type, a) extern type a##_plain
#endif

typedef const LpLoopRow LpUnaryLoops[LP_N_UNARY_LOOPS];
typedef const LpLoopRow LpBinaryLoops[LP_N_LOOPS - LP_N_UNARY_LOOPS];
typedef const LpConvert LpConvertLoops[LP_N_DTYPES][LP_N_DTYPES];
/* By stored type; a row may be NULL, as may be what stands in one. */
typedef const LpLoop *const LpStoredLoops[LP_N_DTYPES];
LP_SIMD_EXTERN(LpUnaryLoops, lp_loops_unary);
LP_SIMD_EXTERN(LpBinaryLoops, lp_loops_binary);
LP_SIMD_EXTERN(LpStoredLoops, lp_loops_stored);
LP_SIMD_EXTERN(LpConvertLoops, lp_loops_convert);

#endif
