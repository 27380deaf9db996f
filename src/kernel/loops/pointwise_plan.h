/* What the pointwise driver prepares (pointwise.c) and runs
 * (pointwise_run.c). It lives in LpKernel.inl, or in LpKernel.state where there
 * are many dimensions. */
#ifndef LP_KERNEL_LOOPS_POINTWISE_PLAN_H
#define LP_KERNEL_LOOPS_POINTWISE_PLAN_H

#include "src/kernel/loops/pointwise.h"
#include "src/kernel/plain.h"

typedef struct LpPwPlan {
    LpLoop loop;
    int64_t n;
    LpNum p[LP_PW_MAX_PARAM];
    LpConvert load[LP_PW_MAX_IN]; /* stored operand -> loop */
    LpConvert store;              /* loop -> stored result */
    LpPwOne imm[LP_PW_MAX_IN];
    uint8_t in_size[LP_PW_MAX_IN], loop_size[LP_PW_MAX_IN];
    uint8_t out_size, loop_out_size;
    int8_t operand[LP_PW_MAX_IN];
    uint8_t n_in, ndim;
    uint8_t is_imm, constant, linear, converts, narrows; /* bits by operand */
    uint8_t narrow;                                      /* LpDtype */
    int8_t crossed; /* by tiles: the dimension beside the last one */
    bool out_linear, out_converts, splat_ok, divides;
    /* A dimension, outermost first: size, then strides in bytes of the
     * result and of each operand. */
    int64_t geo[];
} LpPwPlan;

static inline int lp_pw_row(const LpPwPlan *p)
{
    return 2 + p->n_in;
}

static inline bool lp_pw_has(unsigned bits, int i)
{
    return bits >> i & 1;
}

/* Dimensions without those of size 1, the result's longest strides first;
 * returns how many. */
int lp_pw_sort_dims(const LpDesc *o, int order[LP_MAX_DIMS]);

/* Stride in bytes, of elements of `size`, of operand x along dimension d of the
 * result o, to which it is broadcast. */
static inline int64_t lp_pw_stride(const LpDesc *x, const LpDesc *o, int d,
                                   int size)
{
    int at = d - (o->ndim - x->ndim);
    if (x->is_imm || at < 0 || x->shape[at] == 1)
        return 0;
    return x->strides[at] * size;
}

/* Where the part of thread t of n begins: whole cache lines. */
static inline int64_t lp_pw_part(int64_t n, int t, int threads)
{
    int64_t each = (n / threads + 63) / 64 * 64, at = each * t;
    return t == threads || at > n ? n : at;
}

/* Everything is dense and of the loop's types. */
LpStatus lp_pointwise_run_direct(const LpKernel *k, void *const *in,
                                 void *const *out, void *work,
                                 const LpRunCtx *rc, LpErr *e);
/* The same of every row. */
LpStatus lp_pointwise_run_rows(const LpKernel *k, void *const *in,
                               void *const *out, void *work, const LpRunCtx *rc,
                               LpErr *e);
/* By squares of the last and another dimension, as where an operand is
 * transposed (pointwise_tiles.c). */
LpStatus lp_pointwise_run_tiles(const LpKernel *k, void *const *in,
                                void *const *out, void *work,
                                const LpRunCtx *rc, LpErr *e);
LpStatus lp_pointwise_run_general(const LpKernel *k, void *const *in,
                                  void *const *out, void *work,
                                  const LpRunCtx *rc, LpErr *e);

#endif
