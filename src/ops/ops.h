/* Operator ids and records, and the short hand in which rules are written. */
#ifndef LP_OPS_OPS_H
#define LP_OPS_OPS_H

#include "src/ir/builder.h"
#include "src/kernel/attrs.h"

enum {
#define OP(name) LP_OP_##name,
#include "src/ops/ops.def"
#undef OP
    LP_N_OPS
};

#define OP(name) extern LpOp op_##name;
#include "src/ops/ops.def"
#undef OP

/* The record of an operator that the host runs and the device charges. `...`:
 * further fields. */
#define LP_PRIMITIVE(id, forms_, infer_, prepare_, cost_, ...)                 \
    LpOp op_##id = {.forms = forms_,                                           \
                    .infer = infer_,                                           \
                    .prepare = prepare_,                                       \
                    .cost = cost_,                                             \
                    __VA_ARGS__};

/* Short hand for rules: all return LP_NOVAL after a failure. Operands may be
 * immediates made by lp_imm. */
static inline LpVal lp_op1(LpBuilder *b, int op, LpVal x)
{
    return lp_emit(b, op, &x, 1, NULL);
}
static inline LpVal lp_op2(LpBuilder *b, int op, LpVal x, LpVal y)
{
    return lp_emit(b, op, (LpVal[]){x, y}, 2, NULL);
}
static inline LpVal lp_op3(LpBuilder *b, int op, LpVal x, LpVal y, LpVal z)
{
    return lp_emit(b, op, (LpVal[]){x, y, z}, 3, NULL);
}
static inline LpVal lp_immf(LpBuilder *b, double v)
{
    return lp_imm(b, lp_float(v));
}
static inline LpVal lp_immi(LpBuilder *b, int64_t v)
{
    return lp_imm(b, lp_int(v));
}

/* Defined in the family files; attributes have the plainest form. Arithmetic
 * of lp_add … is without alpha and without rounding. */
LpVal lp_add(LpBuilder *b, LpVal x, LpVal y);
LpVal lp_sub(LpBuilder *b, LpVal x, LpVal y);
LpVal lp_mul(LpBuilder *b, LpVal x, LpVal y);
LpVal lp_div(LpBuilder *b, LpVal x, LpVal y);
LpVal lp_neg(LpBuilder *b, LpVal x);
LpVal lp_where(LpBuilder *b, LpVal cond, LpVal x, LpVal y);
LpVal lp_cast(LpBuilder *b, LpVal x, LpDtype t); /* x itself if equal */
LpVal lp_sum(LpBuilder *b, LpVal x, const int64_t *dims, int n, bool keepdim);
LpVal lp_mean(LpBuilder *b, LpVal x, const int64_t *dims, int n, bool keepdim);
LpVal lp_amax(LpBuilder *b, LpVal x, const int64_t *dims, int n, bool keepdim);
LpVal lp_reshape(LpBuilder *b, LpVal x, const int64_t *shape, int n);
LpVal lp_reshape_as(LpBuilder *b, LpVal x, const LpType *like);
LpVal lp_expand_as(LpBuilder *b, LpVal x, const LpType *like); /* shape only */
LpVal lp_permute(LpBuilder *b, LpVal x, const int64_t *dims, int n);
LpVal lp_transpose(LpBuilder *b, LpVal x, int d0, int d1); /* may be < 0 */
LpVal lp_unsqueeze(LpBuilder *b, LpVal x, int dim);
LpVal lp_slice(LpBuilder *b, LpVal x, int dim, int64_t start, int64_t stop,
               int64_t step);
LpVal lp_full(LpBuilder *b, const LpType *type, LpScalar s);
LpVal lp_matmul(LpBuilder *b, LpVal x, LpVal y); /* any ranks */

/* Sums `x` down to `like`'s shape (undoing a broadcast) and casts it to its
 * dtype; x itself when both already fit. */
LpVal lp_sum_to(LpBuilder *b, LpVal x, const LpType *like);

#endif
