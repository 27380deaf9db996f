/* What the neural-network families (matmul, conv, pool, norm, softmax, loss)
 * share: checks of arguments, and cost rules. */
#ifndef LP_OPS_NN_NNOP_H
#define LP_OPS_NN_NNOP_H

#include "src/ops/rules.h"

/* `data` of the records that kernel/product/plus.h runs (addmm.c). */
extern const struct LpPlusOps lp_plus_ops;

/* A loss function of torch.nn.functional, as LP_FORMULA. */
#define LP_LOSS(id, args, ...)                                                 \
    LP_FORMULA(id, #id "(" args ") -> Tensor @n",                              \
               .cast = LP_CAST_WIDE __VA_OPT__(, ) __VA_ARGS__)

/* On the host fails unless `w` has the dtype of `x`, or there is none; in
 * graphs weights follow their input (LP_MIX_FOLLOW). `op`, `what`: names for
 * the message. */
bool lp_alike(LpBuilder *b, LpVal w, LpVal x, const char *op, const char *what);

/* Fails unless x has nx dimensions and y ny. */
bool lp_ranks(LpBuilder *b, const char *op, LpVal x, int nx, LpVal y, int ny);

/* RuntimeError unless operand i is a float tensor. */
LpStatus lp_need_float(const LpInfer *x, int i, const char *name);

/* RuntimeError unless operand i is a hole or has `want`'s shape. */
LpStatus lp_need_shape(const LpInfer *x, int i, const char *name,
                       const LpType *want);

/* Makes attribute *a (of x->attr) a list of `n` numbers: one is repeated. None
 * may be below `least`. */
LpStatus lp_spread(LpInfer *x, LpAttr *a, int n, const char *name,
                   int64_t least);

/* The reduction that PyTorch's old arguments size_average and reduce ask for;
 * `s` when both are None. */
const char *lp_old_reduction(const LpAttr *average, const LpAttr *reduce,
                             const char *s);

/* ---- cost rules (nncost.c) ----------------------------------------------- */
LpCostRule lp_rule_product, lp_rule_product_plus, lp_rule_softmax,
    lp_rule_log_softmax, lp_rule_softmax_back, lp_rule_norm, lp_rule_norm_back,
    lp_rule_dropout, lp_rule_identity_loss, lp_rule_nll, lp_rule_nll_back,
    lp_rule_recurrent, lp_rule_recurrent_back, lp_rule_convolution,
    lp_rule_convolution_plus, lp_rule_convolution_input,
    lp_rule_convolution_weight;

/* What a pooling operator is; its record's `data`. */
typedef struct LpPoolFacts {
    bool max, backward;
    bool windowed; /* attribute `window` is the window's size; else the window
                       is what the sizes of both sides make it */
    uint8_t window;
} LpPoolFacts;
LpCostRule lp_rule_pool;

#endif
