/* What the records of views share. */
#ifndef LP_OPS_VIEW_VIEW_H
#define LP_OPS_VIEW_VIEW_H

#include "src/kernel/copy/view_geometry.h"
#include "src/ops/ops.h"

/* For rules: is attribute i None; its list. */
static inline bool lp_attr_none(const LpAttr *a)
{
    return a->kind == LP_ATTR_NONE;
}

/* A list as "[2, 3]" (cut after LP_MAX_DIMS), as lp_shape_str. */
#define lp_ints_str(v, n) lp_ints_str_in(v, n, (char[LP_SHAPE_STR]){0})
const char *lp_ints_str_in(const int64_t *v, int n, char buf[LP_SHAPE_STR]);

/* Sets sizes and number of dimensions (n <= LP_MAX_DIMS). */
void lp_set_dims(LpType *t, const int64_t *v, int n);

/* A shape rule: the result is the operand, seen as it is. Others start from
 * it. */
LpStatus lp_view_same(LpInfer *x);

/* A gradient: the result's own. */
void lp_grad_same(LpGrad *g);

/* The record of a view; `...`: its gradient and more fields. */
#define LP_VIEW(id, forms_, infer_, put_, ...)                                 \
    LP_PRIMITIVE(id, forms_, infer_, lp_view_prepare, lp_rule_view,            \
                 .flags = LP_OPF_VIEW, .put = put_, __VA_ARGS__)

/* Replaces attribute i by a list of n in x's arena. */
LpStatus lp_set_ints(LpInfer *x, int i, const int64_t *v, int n);

/* `x` with `before` and `after` elements of its own (0 or more) at the sides of
 * dimension d (shape_pad.c). */
LpVal lp_pad_sides(LpBuilder *b, LpVal x, int d, int64_t before, int64_t after,
                   const char *mode);

/* Fails: more dimensions than are supported. */
LpStatus lp_too_many_dims(LpInfer *x, int n);

/* Gradient and put of views that keep all elements in order. */
void lp_reshape_grad(LpGrad *g);
LpVal lp_reshape_put(LpBuilder *b, const LpAttr *attr, LpVal parent, LpVal v);

#endif
