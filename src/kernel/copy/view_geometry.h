/* Geometry of views, for those who must know where a view's elements lie:
 * kernels that materialise or overwrite a view, its rules and its cost. */
#ifndef LP_KERNEL_COPY_VIEW_GEOMETRY_H
#define LP_KERNEL_COPY_VIEW_GEOMETRY_H

#include "src/ir/op.h"

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

/* Is some element of the geometry reachable by two indices? (Exact for the
 * strides that views of contiguous memory have; else errs to true.) */
bool lp_view_overlaps(const LpViewGeometry *g);

#endif
