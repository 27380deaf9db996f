/* Kernels of the optimizers' updates (src/ops/nn/optim.c): one pass over memory
 * that reads gradient, parameter and state and writes parameter and state. A
 * result may be the operand of the same name. */
#ifndef LP_KERNEL_LOOPS_OPTIM_H
#define LP_KERNEL_LOOPS_OPTIM_H

#include "src/ir/op.h"
#include "src/kernel/loops/loops.h"
#include "src/kernel/loops/optim.def"

/* What a loop is told besides memory: the numbers and flags of optim.def, 0
 * those that the operator has not. */
typedef struct LpOptimNumbers {
    double lr, momentum, dampening, weight_decay, step, grad_scale;
    double velocity_scaling, state_scale;
    double beta1, beta2, eps, alpha, max_weight_norm;
    double lr_decay, momentum_decay, mu_product;
    bool nesterov, maximize, decoupled, bias_correction, tf_variant;
    /* worked out: lr, 1 for lamb, over the correction of the first moment; one
     * over the root of that of the second; 1 - lr weight_decay; of nadam what
     * the gradient and the first moment are multiplied by */
    double rate, root, keep, of_grad, of_moment;
} LpOptimNumbers;

/* n contiguous elements of one type, float or double. in: parameter, gradient,
 * states; out: parameter, states; a missing one is NULL. */
typedef void (*LpOptimLoop)(int64_t n, const void *const *in, void *const *out,
                            const LpOptimNumbers *c);
#define LP_LOOP(name) LpOptimLoop name;
typedef struct LpOptimLoops {
    LP_OPTIMIZERS(LP_LOOP)
} LpOptimLoops;
#undef LP_LOOP
/* by type: float, double */
typedef const LpOptimLoops LpOptimLoopsOf[2];
LP_SIMD_EXTERN(LpOptimLoopsOf, lp_optim);

#define LP_PREPARE(name) LpPrepare lp_##name##_step_prepare;
LP_OPTIMIZERS(LP_PREPARE)
#undef LP_PREPARE

#endif
