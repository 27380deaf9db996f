/* Shape rules that families share, and the notation in which gradients are
 * written. */
#ifndef LP_OPS_INFER_H
#define LP_OPS_INFER_H

#include "src/ops/ops.h"

/* Broadcast of all operands; the dtype by the policy of LpPointwise. */
LpStatus lp_infer_pointwise(LpInfer *x);

/* PyTorch's result type of operands; holes are skipped. */
LpDtype lp_infer_promote(const LpType *in, int n);

/* Refuses the operands' type: "it must be `allowed`". */
LpStatus lp_infer_refuse(const LpInfer *x, LpDtype t, const char *allowed);

/* The attribute i, called `name`, must be None or one of two words. */
LpStatus lp_infer_mode(const LpInfer *x, int i, const char *name,
                       const char *one, const char *two);

/* Refuses the half types, which PyTorch's kernel of `op` does not have. */
LpStatus lp_infer_wide(const char *op, LpDtype t, LpErr *e);

/* Norms: `in` is a floating-point type that the attribute `dtype` (or None)
 * does not narrow. */
LpStatus lp_infer_norm_dtype(const char *op, LpDtype in, const LpAttr *dtype,
                             LpErr *e);

/* Result 0 from a list of sizes (attribute i) and a type. */
LpStatus lp_infer_sized(LpInfer *x, int i, LpDtype t);
/* The dtype attribute i, or `t` in its place. */
LpDtype lp_infer_dtype(LpInfer *x, int i, LpDtype t);

/* Cost rules (elementwise_cost.c): of records with LpPointwise; of folds by
 * LpOp.cost_row; … */
LpCostRule lp_rule_pointwise, lp_rule_reduce, lp_rule_mean, lp_rule_count,
    lp_rule_vector_norm;
/* … of operators along lines, attribute 0: an extreme with its position and a
 * running combination, by LpOp.cost_row; sorted lines; running extremes with
 * their positions; running log-sums; the products of the others; linear
 * recurrences. */
LpCostRule lp_rule_position, lp_rule_running, lp_rule_sorted_line,
    lp_rule_running_extreme, lp_rule_running_logsum, lp_rule_others,
    lp_rule_recurrence;

/* ---- gradient expressions, in a function with `LpGrad *g` ---------------- */
#define DY (g->dout[0])
#define X (g->in[0])
#define Y (g->in[1])
#define Z (g->in[2])
#define R (g->out[0])
#define NOTHING LP_NOVAL
#define K(v) lp_immf(g->b, v)
#define ADD(x, y) lp_add(g->b, x, y)
#define SUB(x, y) lp_sub(g->b, x, y)
#define MUL(x, y) lp_mul(g->b, x, y)
#define DIV(x, y) lp_div(g->b, x, y)
#define NEG(x) lp_neg(g->b, x)
#define OP1(name, x) lp_op1(g->b, LP_OP_##name, x)
#define OP2(name, x, y) lp_op2(g->b, LP_OP_##name, x, y)
/* with this operator's own attributes */
#define OP2A(name, x, y)                                                       \
    lp_emit(g->b, LP_OP_##name, (LpVal[]){x, y}, 2, g->attr)
#define WHERE(m, x, y) lp_where(g->b, m, x, y)
#define EQ(x, y) OP2(eq, x, y)
#define LT(x, y) OP2(lt, x, y)
#define LE(x, y) OP2(le, x, y)
#define GT(x, y) OP2(gt, x, y)
#define GE(x, y) OP2(ge, x, y)
#define AND(x, y) OP2(logical_and, x, y)
#define OR(x, y) OP2(logical_or, x, y)

/* Marks of a row: what its gradient reads; operands may change places; results
 * are never rounded. */
enum {
    READ_NONE = 0,
    READ_X = 1,
    READ_Y = 2,
    READ_Z = 4,
    READ_R = 8,
    COMMUTES = 16,
    EXACT = 32
};
/* Further marks: what only the gradients of these operands (READ_…) read. */
#define FOR(x, y, z, r) (LP_READERS(x, y, z, r) << 6)
#define LP_MARKED(marks)                                                       \
    (((marks)&COMMUTES ? LP_OPF_COMMUTES : 0) |                                \
     ((marks)&EXACT ? LP_OPF_EXACT : 0))

#endif
