/* Emitting by an operator's number. */
#include "src/ir/builder.h"

const LpType lp_unmade = {.dtype = LP_F32,
                          .ndim = LP_MAX_DIMS / 2,
                          .shape = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
_Static_assert(LP_MAX_DIMS == 12, "sizes of lp_unmade");

LpVal lp_emit(LpBuilder *b, int op, const LpVal *in, int n_in,
              const LpAttr *attr)
{
    LpVal out[LP_MAX_OUT];
    return lp_emit_n(b, op, in, n_in, attr, out) > 0 ? out[0] : LP_NOVAL;
}

int lp_emit_n(LpBuilder *b, int op, const LpVal *in, int n_in,
              const LpAttr *attr, LpVal *out)
{
    return lp_failed(b) ? 0 : b->emit(b, lp_ops[op], in, n_in, attr, out);
}
