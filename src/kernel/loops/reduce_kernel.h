/* Reductions: an optional map, a fold over some dimensions, an ending.
 *
 * float16, bfloat16 and float32 are folded as float32 in lanes, joined in
 * double; float64 in double; integers and bool in wrapping int64. The result
 * is rounded once. Long reductions are cut into pieces of fixed length which
 * are joined in order: bits do not depend on the thread width, nor, unless a
 * map takes an exponential or a power, on the instruction set. */
#ifndef LP_KERNEL_LOOPS_REDUCE_KERNEL_H
#define LP_KERNEL_LOOPS_REDUCE_KERNEL_H

#include <math.h>

#include "src/ir/op.h"
#include "src/kernel/loops/fused.h"

typedef enum {
    LP_FOLD_SUM,
    LP_FOLD_PROD,
    LP_FOLD_MAX, /* a NaN wins */
    LP_FOLD_MIN,
    LP_N_FOLDS
} LpFold;

/* Folds n contiguous elements of a loop type into *state: double for float32
 * and float64, int64_t for int64. */
typedef void (*LpFoldLoop)(int64_t n, const void *x, void *state);
typedef const LpFoldLoop LpFoldLoops[LP_N_FOLDS][3]; /* f64, f32, i64 */
LP_SIMD_EXTERN(LpFoldLoops, lp_loops_fold);

typedef enum {
    LP_END_NONE,
    LP_END_MEAN,   /* over the number of elements */
    LP_END_ROOT,   /* the p-th root */
    LP_END_LOGSUM, /* the fold is of exp(x - max); log, and add max */
} LpReduceEnd;

/* Folds `rows` rows, `step` bytes apart, into m results of the loop type, one
 * row after the other. */
typedef void (*LpRowsLoop)(int64_t rows, int64_t step, int64_t m, const void *x,
                           void *acc);
typedef const LpRowsLoop LpRowsLoops[LP_N_FOLDS][3]; /* as above */
LP_SIMD_EXTERN(LpRowsLoops, lp_loops_rows);

/* Where the first extreme lies, a NaN before all: of a line of n elements; and
 * of m lines across `rows` rows, `step` floats apart, the extreme, too. */
typedef struct LpExtremeLoops {
    int64_t (*along)(int64_t n, const float *x);
    void (*across)(int64_t rows, int64_t step, int64_t m, const float *x,
                   float *best, int32_t *where);
} LpExtremeLoops;
typedef const LpExtremeLoops LpExtremePair[2]; /* greatest, least */
LP_SIMD_EXTERN(LpExtremePair, lp_loops_extreme);

typedef struct LpReduceSpec {
    LpFold fold;
    int map[2]; /* LP_LOOP_… of one operand (or pow), or LP_LOOP_NONE */
    bool truth; /* elements count as 0 or 1 */
    LpReduceEnd end;
    double p;
} LpReduceSpec;

/* Over the dimensions that the attribute `dims` lists (canonical: wrapped, in
 * order, complete). The result's dtype decides the type of the fold. */
LpStatus lp_reduce_prepare(const LpKernelReq *r, const LpReduceSpec *spec,
                           const LpAttr *dims, LpKernel *k, LpErr *e);

/* The same of a chain's only result, which reaches no memory: `reduce` is what
 * was prepared for it as if it lay in order. LP_E_NOT_IMPLEMENTED: not for this
 * reduction, or this chain. */
LpStatus lp_reduce_of_chain(const LpKernel *reduce, const LpFusedReq *r,
                            LpKernel *k, LpErr *e);

/* ---- geometry, shared with line.c ---------------------------------------- */
typedef struct LpAxis {
    int64_t size, in, out; /* strides in bytes; out is 0 where reduced away */
} LpAxis;

/* Kept dimensions, then reduced ones; each group at least one long, in the
 * order of the operand's dimensions. */
typedef struct LpReduceGeo {
    int8_t n_kept, n_red;
    int64_t kept_elems, red_elems;
    LpAxis axis[LP_MAX_DIMS + 2];
} LpReduceGeo;

/* Is dimension d among `dims`? */
bool lp_reduce_lists(const LpAttr *dims, int d);

void lp_reduce_geometry(const LpDesc *x, const LpDesc *y, const LpAttr *dims,
                        LpReduceGeo *g);

/* Offsets of element i of the kept dimensions; returns that in the operand. */
static inline int64_t lp_reduce_offset(const LpAxis *axis, int n, int64_t i,
                                       int64_t *out)
{
    int64_t in = 0;
    *out = 0;
    for (int d = n - 1; d >= 0; d--) {
        int64_t at = d > 0 ? i % axis[d].size : i;
        if (d > 0)
            i /= axis[d].size;
        in += at * axis[d].in;
        *out += at * axis[d].out;
    }
    return in;
}

/* ---- operators along one dimension (line.c) ------------------------------ */
typedef enum {
    LP_LINE_ARGMAX, /* index of the first in row-major order; a NaN wins */
    LP_LINE_ARGMIN,
    LP_LINE_MAX, /* results: value, index */
    LP_LINE_MIN,
    LP_LINE_MEDIAN, /* the lower one; results: value, index */
    LP_LINE_MODE,   /* the least of the most frequent, and its last index */
    LP_LINE_CUMMAX, /* results: values, indices of the latest extreme */
    LP_LINE_CUMMIN,
    LP_LINE_CUMSUM, /* from here on computed in the result's type */
    LP_LINE_CUMSUM_REVERSE,
    LP_LINE_CUMPROD,
    LP_LINE_CUMLOGSUM,
    LP_LINE_CUMLOGSUM_REVERSE,
    LP_LINE_OTHERS, /* products of all others */
} LpLineKind;

LpStatus lp_line_prepare(const LpKernelReq *r, LpLineKind kind, LpKernel *k,
                         LpErr *e);

/* Greatest and least of float32 along one dimension (extreme.c); false: not
 * this request. */
bool lp_extreme_prepare(const LpKernelReq *r, LpLineKind kind,
                        const LpReduceGeo *g, LpKernel *k);

/* y_j = d_j + a_j y_(j-1) along a dimension, from the end in reverse, of
 * operands a, d of one shape; attributes: dimensions (one or none), reverse
 * (recurrence.c). */
LpPrepare lp_recurrence_prepare;

/* Counts within and beyond an edge (beyond.c). */
LpPrepare lp_count_beyond_prepare;

#endif
