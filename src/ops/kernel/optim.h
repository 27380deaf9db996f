/* Kernels of the optimizers' updates (src/ops/optim.c): one pass over memory
 * that reads gradient, parameter and state and writes parameter and state. A
 * result may be the operand of the same name. */
#ifndef LP_OPS_KERNEL_OPTIM_H
#define LP_OPS_KERNEL_OPTIM_H

#include "src/base/cpu.h"
#include "src/ir/op.h"

enum { LP_OPTIM_TENSORS = 5, LP_OPTIM_NUMBERS = 9 };

/* What a loop is told besides memory; numbers by operator, see optim.c. */
enum {
    LP_OPTIM_FIRST = 1, /* sgd: the buffer starts */
    LP_OPTIM_NESTEROV = 2,
    LP_OPTIM_DECOUPLED = 4, /* adam: weight decay beside the gradient */
    LP_OPTIM_STATE = 8,     /* sgd: has a buffer; adam: has the maximum */
    LP_OPTIM_CENTERED = 16,
    LP_OPTIM_MOMENTUM = 32,
    LP_OPTIM_TF = 64,
};

/* n contiguous elements of one type, float or double. in: parameter, gradient,
 * states; out: parameter, states; a missing one is NULL. */
typedef void (*LpOptimLoop)(int64_t n, const void *const *in, void *const *out,
                            const double *c, unsigned flags);
typedef struct LpOptimLoops {
    LpOptimLoop sgd, popart_sgd, popart_combined, adam, rmsprop, lamb;
} LpOptimLoops;
/* by type: float, double */
extern const LpOptimLoops lp_optim_plain[2];
#if defined(__x86_64__)
extern const LpOptimLoops lp_optim_avx2[2], lp_optim_avx512[2];
#endif

LpStatus lp_sgd_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_popart_sgd_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_popart_combined_prepare(const LpKernelReq *r, LpKernel *k,
                                    LpErr *e);
LpStatus lp_adam_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_rmsprop_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
LpStatus lp_lamb_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

#endif
