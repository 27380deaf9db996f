/* What a written tensor shares with itself and with what is read. */
#ifndef LP_AUTODIFF_OVERLAP_H
#define LP_AUTODIFF_OVERLAP_H

#include "src/autodiff/op_call.h"

/* RuntimeError if several elements of `t` lie in one place (an expanded
 * tensor). */
LpStatus lp_check_target(const LpTensor *t, LpErr *e);

/* RuntimeError if an operand lies in the memory of `t` but not element on
 * element. Tensors with gaps are not compared, as in PyTorch. */
LpStatus lp_check_overlap(const LpTensor *t, const LpArg *in, int n_in,
                          LpErr *e);

#endif
