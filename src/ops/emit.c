/* Emitting at a given site, for gradients that draw again what was drawn. */
#include "src/ops/ops.h"

LpVal lp_emit_at(LpBuilder *b, uint64_t site, int op, const LpVal *in, int n_in,
                 const LpAttr *attr)
{
    b->set_site(b, true, site);
    LpVal v = lp_emit(b, op, in, n_in, attr);
    b->set_site(b, false, 0);
    return v;
}
