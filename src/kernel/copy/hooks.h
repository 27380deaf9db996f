/* Hooks of the operators that are strided copies (src/ops/view/create.c and
 * shape.c, print_tensor) or copies by index (src/ops/index). */
#ifndef LP_KERNEL_COPY_HOOKS_H
#define LP_KERNEL_COPY_HOOKS_H

#include "src/ir/op.h"

/* linspace's serves logspace too, which has the attribute base before dtype. */
LpPrepare lp_empty_prepare, lp_fill_prepare, lp_arange_prepare,
    lp_linspace_prepare, lp_eye_prepare, lp_tri_indices_prepare;

/* How many of `cols` columns row r of a triangle has; they are the first ones
 * of a lower triangle, the last ones of an upper. */
static inline int64_t lp_tri_columns(bool lower, int64_t r, int64_t cols,
                                     int64_t offset)
{
    const int64_t far = INT64_C(1) << 60; /* longer than any side */
    offset = offset > far ? far : offset < -far ? -far : offset;
    int64_t n = lower ? r + offset + 1 : cols - r - offset;
    return n < 0 ? 0 : n > cols ? cols : n;
}

LpPrepare lp_cat_prepare, lp_flip_prepare, lp_tri_prepare, lp_pad_prepare;
LpPrepare lp_roll_prepare;
LpPrepare lp_edges_prepare; /* self; pad, mode */
LpPrepare lp_edges_back_prepare;

/* Copies its operand and writes it to stderr. */
LpPrepare lp_print_prepare;

/* Copies its operand and fails if an element of it is not 0. */
LpPrepare lp_abort_prepare;

/* ---- rows by index (gather_rows.c, by the driver of gather.h) ------------ */
LpPrepare lp_index_select_prepare;       /* self, index; dim */
LpPrepare lp_index_add_prepare;          /* self, index, source; dim */
LpPrepare lp_embedding_prepare;          /* weight, indices */
LpPrepare lp_embedding_backward_prepare; /* grad, indices; rows, padding_idx */
LpPrepare lp_index_get_prepare;          /* self, indices with holes */
LpPrepare lp_index_set_prepare; /* self, values, such indices; accumulate */

/* ---- bags of rows (gather_bags.c) ---------------------------------------- */
LpPrepare lp_bag_sum_prepare;      /* weight, indices, offsets, factors */
LpPrepare lp_bag_max_prepare;      /* weight, indices, offsets */
LpPrepare lp_bag_backward_prepare; /* grad, indices, offsets, factors */

/* Where the indices' broadcast shape goes: adjacent indexed dimensions are
 * replaced by it, else it leads. Holes have dtype LP_DT_NONE. Sets the shape
 * and its place; fails when the indices do not broadcast. */
LpStatus lp_index_place(const LpType *index, int n, LpType *place, int *at,
                        LpErr *e);

/* ---- elements by index along attribute 0, the dimension ------------------ */
/* Index and source have as many dimensions as self and may be smaller. */
typedef enum {
    LP_SCATTER_SET, /* the last one wins */
    LP_SCATTER_SUM,
    LP_SCATTER_PROD,
    LP_SCATTER_MEAN,
    LP_SCATTER_AMAX,
    LP_SCATTER_AMIN,
} LpScatterHow;

LpPrepare lp_gather_prepare; /* self, index */

/* operands: self, index, source (an immediate or a tensor). With
 * `include_self` false what is written to does not take part. */
LpStatus lp_scatter_elements(const LpKernelReq *r, LpScatterHow how,
                             bool include_self, LpKernel *k, LpErr *e);

/* ---- masks, windows, results of the data's size -------------------------- */
LpPrepare lp_masked_unpack_prepare;  /* self, mask, source */
LpPrepare lp_masked_pack_prepare;    /* self, mask */
LpPrepare lp_dynamic_slice_prepare;  /* self, start; dim, size, step */
LpPrepare lp_dynamic_update_prepare; /* self, src, start; dim, size */

LpPrepare lp_one_hot_prepare, lp_nonzero_prepare, lp_unique_prepare,
    lp_bincount_prepare, lp_repeat_prepare;
LpMeasure lp_one_hot_measure, lp_nonzero_measure, lp_unique_measure,
    lp_bincount_measure, lp_repeat_measure;

#endif
