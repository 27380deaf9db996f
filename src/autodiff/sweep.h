/* The reverse sweep over a graph: the same gradient rules as eager backward,
 * emitting nodes. */
#ifndef LP_AUTODIFF_SWEEP_H
#define LP_AUTODIFF_SWEEP_H

#include "src/ir/graph.h"

/* Appends to `g` the nodes that compute the gradients of roots (weighted by
 * their seeds, values of the roots' types) with respect to wrt[0..n_wrt-1]
 * (values of g), and writes them to `grad`; LP_NOVAL where nothing flows.
 * Nodes of the backward half carry the origin of their forward node, marked
 * `backward`; a sum of gradients that of the value's producer. */
LpStatus lp_sweep(LpGraph *g, const LpVal *root, const LpVal *seed, int n_root,
                  const LpVal *wrt, int n_wrt, LpVal *grad, LpErr *e);

#endif
