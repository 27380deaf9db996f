/* What the expressions of unary.def and binary.def may use, and the loops
 * around them. Included by simd_unary.c and simd_binary.c only. */
#ifndef LP_KERNEL_LOOPS_SIMD_LOOP_H
#define LP_KERNEL_LOOPS_SIMD_LOOP_H

#include "src/kernel/loops/loops.h"
#include "src/kernel/loops/simd_both.h"

/* Integers wrap. */
#define NEGI(x) (int64_t)(0 - (uint64_t)(x))
#define ADDI(x, y) (int64_t)((uint64_t)(x) + (uint64_t)(y))
#define SUBI(x, y) (int64_t)((uint64_t)(x) - (uint64_t)(y))
#define MULI(x, y) (int64_t)((uint64_t)(x) * (uint64_t)(y))

#define CLIP(x, lo, hi) ((x) > (hi) ? (hi) : (x) < (lo) ? (lo) : (x))
#define CLIPI(x, lo, hi)                                                       \
    (((x) < (lo) ? (lo) : (x)) > (hi) ? (hi) : (x) < (lo) ? (lo) : (x))
#define GELU_U(x) (C(LP_GELU_SCALE) * ((x) + C(LP_GELU_CUBE) * (x) * (x) * (x)))
#define C(v) ((T)(v))

/* No iteration reads what another writes: y is an operand or apart. */
#define EACH(n) _Pragma("GCC ivdep") for (int64_t i = 0; i < (n); i++)

#define UNUSED3(a, b, c) (void)(a), (void)(b), (void)(c)
/* The parameters as the loop's type. */
#define PARAMS(T, field)                                                       \
    const T P0 = (T)p[0].field, P1 = (T)p[1].field, P2 = (T)p[2].field;        \
    UNUSED3(P0, P1, P2)

#endif
