/* Where a reverse pass leaves gradients: in .grad of leaves, and of tensors
 * that asked to keep theirs. */
#ifndef LP_AUTODIFF_ACCUMULATE_H
#define LP_AUTODIFF_ACCUMULATE_H

#include "src/autodiff/meta.h"

typedef struct LpGrads {
    LpTensor **unowned; /* retained: tensors whose .grad is no memory of its
                         * own as yet: lp_grads_settle */
    size_t n, cap;
    bool create; /* sums are recorded */
} LpGrads;

/* *sum += g, which no sum shares; `*sum` is owned by its holder. */
LpStatus lp_grad_sum(LpTensor **sum, LpTensor *g, LpErr *e);
/* t.grad += g. A first gradient is not copied here. */
LpStatus lp_grads_add(LpGrads *a, LpTensor *t, LpTensor *g, LpErr *e);
/* Makes the gradients that were added first their tensors' own, when all that
 * has computed them is gone: as they are if nobody else holds them, else
 * copied. Returns `s`, what the pass has come to, or a failure. */
LpStatus lp_grads_settle(LpGrads *a, LpStatus s, LpErr *e);
/* After it `a` can be used again. */
void lp_grads_fini(LpGrads *a);

#endif
