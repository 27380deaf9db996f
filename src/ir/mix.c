/* Operands of half and float32 in one operator (LpMix). */
#include "src/ir/builder.h"

static LpDtype float_of(LpBuilder *b, LpVal v)
{
    LpDtype t = lp_is_value(v) ? lp_type(b, v)->dtype : LP_DT_NONE;
    return t == LP_F32 || lp_is_half(t) ? t : LP_DT_NONE;
}

static LpVal cast_to(LpBuilder *b, LpVal v, LpDtype to)
{
    LpAttr type = lp_attr_dtype(to);
    LpVal out = LP_NOVAL;
    LpDtype t = float_of(b, v);
    if (t == LP_DT_NONE || t == to || lp_failed(b))
        return v;
    b->emit(b, lp_op_find("cast"), &v, 1, &type, &out);
    return out;
}

const LpVal *lp_in_one_type(LpBuilder *b, const LpOp *op, const LpVal *in,
                            int n)
{
    LpDtype to = op->mix == LP_MIX_WIDEN ? LP_F32 : LP_DT_NONE;
    bool half = false, wide = false;
    for (int i = 0; op->mix && i < n; i++) {
        LpDtype t = float_of(b, in[i]);
        half |= t != LP_DT_NONE && t != LP_F32;
        wide |= t == LP_F32;
        to = to == LP_DT_NONE ? t : to;
    }
    if (!half || !wide)
        return in;
    LpVal *v = lp_arena_memdup(b->scratch, in, (size_t)n * sizeof *v);
    if (!v)
        lp_no_memory(b->err);
    for (int i = 0; v && i < n; i++)
        v[i] = cast_to(b, v[i], to);
    return lp_failed(b) ? NULL : v;
}
