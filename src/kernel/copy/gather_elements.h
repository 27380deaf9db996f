/* Elements by index along one dimension: gather and the scatters. Attribute 0
 * is the dimension; index and source have as many dimensions as self and may
 * be smaller. */
#ifndef LP_KERNEL_COPY_GATHER_ELEMENTS_H
#define LP_KERNEL_COPY_GATHER_ELEMENTS_H

#include "src/ir/op.h"

typedef enum {
    LP_SCATTER_SET, /* the last one wins */
    LP_SCATTER_SUM,
    LP_SCATTER_PROD,
    LP_SCATTER_MEAN,
    LP_SCATTER_AMAX,
    LP_SCATTER_AMIN,
} LpScatterHow;

/* operands: self, index */
LpStatus lp_gather_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

/* operands: self, index, source (an immediate or a tensor). With
 * `include_self` false what is written to does not take part. */
LpStatus lp_scatter_elements(const LpKernelReq *r, LpScatterHow how,
                             bool include_self, LpKernel *k, LpErr *e);

#endif
