/* Gradients of one value that wait to become one.
 *
 * Slices. A value that is read in slices or selections gets as many gradients,
 * each the value's size and zero outside its slice: n of them would fill and
 * add n times the whole. Those that do not overlap are laid side by side
 * instead, which only differs in the sign of a zero.
 *
 * Products. A weight that is used again and again (a recurrent layer) gets a
 * product each time: sum of a_t' d_t. Where adding them moves more memory than
 * the operands have, these are joined: one product of all a by all d, the same
 * terms in another order. */
#ifndef LP_AUTODIFF_PENDING_GRADS_H
#define LP_AUTODIFF_PENDING_GRADS_H

#include "src/ir/graph.h"

typedef enum {
    LP_PENDING_NONE,
    LP_PENDING_SLICES,
    LP_PENDING_PRODUCTS
} LpPendingKind;

typedef struct LpPendingGrads {
    LpPendingKind kind; /* of all */
    LpVal *v;           /* the gradients as their rules gave them, in order */
    size_t n, cap;
} LpPendingGrads;

/* May `d`, a gradient and a value of `g`, wait with those that already do? None
 * that a region makes, whose operands nobody outside may read. */
bool lp_pending_fit(const LpPendingGrads *p, const LpGraph *g, LpVal d);
LpStatus lp_pending_add(LpPendingGrads *p, const LpGraph *g, LpVal d, LpErr *e);
/* `sum` (or LP_NOVAL: zero) and all of them, emitted by `b`, whose graph `g`
 * is; `p` is empty then. */
LpVal lp_pending_sum(LpPendingGrads *p, LpVal sum, const LpGraph *g,
                     LpBuilder *b);
void lp_pending_fini(LpPendingGrads *p);

#endif
