/* One head of attention and its gradient, on one thread, as blocks of queries
 * against all the keys that they see. Compiled once per instruction set
 * (simd_attention.c) and chosen once by the CPU. */
#ifndef LP_KERNEL_NN_ATTNLOOPS_H
#define LP_KERNEL_NN_ATTNLOOPS_H

#include <stdbool.h>
#include <stddef.h>

#include "src/kernel/loops/loops.h"

/* A matrix whose rows lie `step` elements apart, each without gaps. */
typedef struct LpAttnRows {
    void *at;
    int64_t step;
} LpAttnRows;

typedef struct LpAttnHead {
    int64_t n_q, n_k, e, v; /* queries, keys, their size, the values' size */
    double scale;
    bool causal;            /* query i sees keys 0 … i */
    const void *mask;       /* NULL: none; added to the scaled scores */
    int64_t mask_q, mask_k; /* its steps */
    LpAttnRows q, k, val;
    LpAttnRows out;          /* forward's result; backward's gradient of it */
    LpAttnRows dq, dk, dval; /* backward's results */
} LpAttnHead;

typedef struct LpAttnLoops {
    /* scratch of one head, bytes; it must be aligned to 64 */
    size_t (*work)(const LpAttnHead *h, bool back);
    void (*forward)(const LpAttnHead *h, void *work);
    void (*backward)(const LpAttnHead *h, void *work);
} LpAttnLoops;

/* [0] of float, [1] of double */
typedef const LpAttnLoops LpAttnLoopsPair[2];
LP_SIMD_EXTERN(LpAttnLoopsPair, lp_attn_loops);

#endif
