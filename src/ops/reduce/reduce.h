/* What the files of reductions share: reduce.c (folds), reduce_line.c
 * (positions, running sums), reduce_product.c (running products),
 * reduce_forms.c (composites). */
#ifndef LP_OPS_REDUCE_REDUCE_H
#define LP_OPS_REDUCE_REDUCE_H

#include "src/ops/infer.h"

/* Shape rule of dimensions: the attribute dim (None, an int or a list) becomes
 * the sorted list of wrapped dimensions; none or an empty list is all. */
LpStatus lp_reduce_dims(LpInfer *x);

/* out = in without `dims`, or with ones there; the dtype stays in's. */
void lp_reduce_shape(const LpType *in, const LpAttr *dims, bool keep,
                     LpType *out);

/* Error `code` of amax and such: a dimension without elements has no extreme.
 */
LpStatus lp_reduce_nonempty(const LpInfer *x, LpStatus code);

/* Running sums and products: in's shape, integers as int64, or the dtype
 * attribute 1. */
LpStatus lp_infer_running(LpInfer *x);

/* v, of the reduced shape with or without ones, as broadcastable against
 * `like`; `dims` canonical. */
LpVal lp_reduce_restore(LpBuilder *b, LpVal v, const LpType *like,
                        const LpAttr *dims);

/* m, which is an element of x, with its gradient shared by all elements that
 * equal it (both NaN count as equal). */
LpVal lp_reduce_shared(LpBuilder *b, LpVal x, LpVal m);

#endif
