/* Shape rules of the normalisations (norm_infer.c), for norm.c. */
#ifndef LP_OPS_NN_NORM_H
#define LP_OPS_NN_NORM_H

#include "src/ir/op.h"

/* The type of statistics. */
static inline LpDtype lp_norm_stat_dtype(LpDtype t)
{
    return t == LP_F64 ? LP_F64 : LP_F32;
}

/* The axes `shape` (attribute 0) must be the last of the input; *param is the
 * type of parameters. */
LpStatus lp_norm_normalized(const LpInfer *x, const LpType *in, LpType *param);

LpStatus lp_norm_infer_layer(LpInfer *x);
LpStatus lp_norm_infer_layer_back(LpInfer *x);
LpStatus lp_norm_infer_group(LpInfer *x);
LpStatus lp_norm_infer_group_back(LpInfer *x);
LpStatus lp_norm_infer_batch(LpInfer *x);
LpStatus lp_norm_infer_batch_back(LpInfer *x);

#endif
