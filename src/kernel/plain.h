/* Plain kernels: the frame of those that want every operand contiguous and in
 * one type to compute in. The frame converts what differs: float16 and
 * bfloat16 are computed in float32 and rounded once when stored, float64
 * stays, integers become int64, strided operands are copied to scratch.
 * Operands that fit are passed as they are. */
#ifndef LP_KERNEL_PLAIN_H
#define LP_KERNEL_PLAIN_H

#include "src/kernel/copy/copy.h"

/* The type a result of type `t` is computed in: F64, F32 or I64. */
static inline LpDtype lp_plain_type(LpDtype t)
{
    return t == LP_F64 ? LP_F64 : lp_is_float(t) ? LP_F32 : LP_I64;
}

/* Element i of memory of F64 or F32, as a double. */
static inline double lp_real_at(LpDtype t, const void *p, int64_t i)
{
    return t == LP_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static inline void lp_real_set(LpDtype t, void *p, int64_t i, double v)
{
    if (t == LP_F64)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}

#define LP_PLAIN_MAX_OUT 8
#define LP_PLAIN_PARAM 376

typedef struct LpPlain LpPlain;
/* in[i] is NULL for a hole. `work` has the bytes asked for at preparation. */
typedef LpStatus (*LpPlainCore)(const LpPlain *p, void *const *in,
                                void *const *out, void *work,
                                const LpRunCtx *rc, LpErr *e);
/* The head of one, which need not use every argument. */
#define LP_PLAIN_CORE(name)                                                    \
    static LpStatus name(const LpPlain *p LP_UNUSED,                           \
                         void *const *in LP_UNUSED,                            \
                         void *const *out LP_UNUSED, void *work LP_UNUSED,     \
                         const LpRunCtx *rc LP_UNUSED, LpErr *e LP_UNUSED)
struct LpPlain {
    _Alignas(16) char param[LP_PLAIN_PARAM]; /* of the core */
    LpPlainCore core;
    LpCopyPlan *plan; /* operands' first, then results'; NULL: none */
    uint32_t off_in[LP_MAX_IN], off_out[LP_PLAIN_MAX_OUT]; /* 64 bytes each */
    uint16_t convert_in, convert_out;                      /* bit masks */
    uint8_t n_in, n_out;
    uint8_t compute; /* LpDtype of float operands */
    uint32_t core_off;
    int threads;
};

/* Fills `k`. `compute` is the type of the float operands (F32 or F64). */
LpStatus lp_plain_prepare(const LpKernelReq *r, LpKernel *k, LpPlainCore core,
                          LpDtype compute, const void *param, size_t n_param,
                          size_t core_work, LpErr *e);

/* The same, but operands and results named by a bit are passed as they are. */
LpStatus lp_plain_prepare_but(const LpKernelReq *r, LpKernel *k,
                              LpPlainCore core, LpDtype compute,
                              const void *param, size_t n_param,
                              size_t core_work, uint32_t as_is_in,
                              uint32_t as_is_out, LpErr *e);

/* The parameter is what `drop` frees: with the kernel, or here on failure. */
typedef struct LpPlainOwned {
    void *state;
    void (*drop)(void *state);
} LpPlainOwned;
LpStatus lp_plain_prepare_owned(const LpKernelReq *r, LpKernel *k,
                                LpPlainCore core, LpDtype compute,
                                LpPlainOwned own, size_t core_work, LpErr *e);
static inline void *lp_plain_owned(const LpPlain *p)
{
    return ((const LpPlainOwned *)(const void *)p->param)->state;
}

/* Threads worth waking for `n` element operations; at most p->threads. */
static inline int lp_plain_width(const LpPlain *p, int64_t n)
{
    return n < 16384 ? 1 : p->threads;
}

#endif
