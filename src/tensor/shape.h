/* Shapes, strides, broadcasting. Dimensions are counted from 0. */
#ifndef LP_TENSOR_SHAPE_H
#define LP_TENSOR_SHAPE_H

#include "src/base/status.h"
#include "src/tensor/dtype.h"

#define LP_MAX_DIMS 12

/* dtype and shape: all that a shape rule sees of a value. A plain number is
 * ndim 0 with `wrapped` set. */
typedef struct LpType {
    LpDtype dtype; /* LP_DT_NONE: an absent operand */
    int8_t ndim;
    bool wrapped;
    int64_t shape[LP_MAX_DIMS];
} LpType;

/* The type of a plain number; lives forever. */
const LpType *lp_number_type(LpKind k);

/* Elements of `n` sizes; 1 of none. */
static inline int64_t lp_elements(const int64_t *size, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= size[i];
    return all;
}
static inline int64_t lp_numel(const LpType *t)
{
    return lp_elements(t->shape, t->ndim);
}

/* The elements lie in order and without gaps. */
static inline bool lp_is_dense(const int64_t *size, const int64_t *stride,
                               int n)
{
    int64_t step = 1;
    while (n-- > 0) {
        if (size[n] == 0)
            return true;
        if (size[n] != 1 && stride[n] != step)
            return false;
        step *= size[n];
    }
    return true;
}

/* Of its elements, one after the other. */
static inline int64_t lp_type_bytes(const LpType *t)
{
    return lp_numel(t) * (int64_t)lp_dtype_size(t->dtype);
}
bool lp_shape_eq(const LpType *a, const LpType *b); /* shape only */
/* Are the first n sizes the same? */
bool lp_sizes_eq(const LpType *a, const LpType *b, int n);
/* Without its first dimension, which it has; with a first one of size n, for
 * which there is room. */
void lp_type_drop_first(LpType *t);
void lp_type_add_first(LpType *t, int64_t n);
bool lp_type_eq(const LpType *a, const LpType *b);
/* "[2, 3]", in memory of the block that asks. */
#define LP_SHAPE_STR 160
#define lp_shape_str(t) lp_shape_str_in(t, (char[LP_SHAPE_STR]){0})
const char *lp_shape_str_in(const LpType *t, char buf[LP_SHAPE_STR]);

/* Fails on a negative size, and on sizes whose product overflows, in bytes and
 * with zeros left out: strides of an empty tensor are products as well. */
LpStatus lp_shape_check(const LpType *t, LpErr *e);

/* out->shape = broadcast of out->shape and t->shape. */
LpStatus lp_broadcast(LpType *out, const LpType *t, LpErr *e);

/* Wraps a negative dimension; error IndexError naming the range. A 0-d tensor
 * has the range [-1, 0]. */
LpStatus lp_wrap_dim(int64_t *dim, int ndim, LpErr *e);

void lp_contiguous_strides(const LpType *t, int64_t strides[LP_MAX_DIMS]);

#endif
