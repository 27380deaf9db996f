/* Geometry of views, for those who must know where a view's elements lie:
 * kernels that materialise or overwrite a view, and their cost. */
#ifndef LP_OPS_VIEW_H
#define LP_OPS_VIEW_H

#include "src/ops/ops.h"

typedef struct LpViewGeometry {
    LpType type;
    int64_t strides[LP_MAX_DIMS];
    int64_t offset;  /* elements from element 0 of the viewed */
    bool needs_copy; /* a reshape that is no view: strides are unset */
} LpViewGeometry;

/* The view `op` with attributes `attr` (n_attr of them; further ones are
 * None) of a value of type `base`; strides NULL: contiguous. */
LpStatus lp_view_geometry(const LpOp *op, const LpAttr *attr, int n_attr,
                          const LpType *base, const int64_t *strides,
                          LpViewGeometry *g, LpErr *e);

/* The prepare hook of every view operator: copies the view's elements. */
LpStatus lp_view_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

/* For rules: is attribute i None; its list. */
static inline bool lp_attr_none(const LpAttr *a)
{
    return a->kind == LP_ATTR_NONE;
}

/* A list as "[2, 3]" (cut after LP_MAX_DIMS); returns buf. */
const char *lp_ints_str(const int64_t *v, int n, char buf[LP_SHAPE_STR]);

/* Sets sizes and number of dimensions (n <= LP_MAX_DIMS). */
void lp_set_dims(LpType *t, const int64_t *v, int n);

/* A shape rule: the result is the operand, seen as it is. Others start from
 * it. */
LpStatus lp_view_same(LpInfer *x);

/* Replaces attribute i by a list of n in x's arena. */
LpStatus lp_set_ints(LpInfer *x, int i, const int64_t *v, int n);

/* Fails: more dimensions than are supported. */
LpStatus lp_too_many_dims(LpInfer *x, int n);

/* Gradient and put of views that keep all elements in order. */
void lp_reshape_grad(LpGrad *g);
LpVal lp_reshape_put(LpBuilder *b, const LpAttr *attr, LpVal parent, LpVal v);

/* Is some element of the geometry reachable by two indices? (Exact for the
 * strides that views of contiguous memory have; else errs to true.) */
bool lp_view_overlaps(const LpViewGeometry *g);

#endif
