/* Rows by index: the driver of index_select, index_add, embedding, advanced
 * indexing and their adjoints.
 *
 * One side is addressed (a): some of its dimensions are indexed, by index
 * tensors that broadcast to one shape. The other side is dense (b): it has
 * that shape in the place of the indexed dimensions. For every outer index o
 * (dimensions of b before the place), every j of the indices and every inner
 * index i,
 *
 *   gather   b[o, j, i] = a[o, index_j, i]
 *   put      a[o, index_j, i] = b[o, j, i]      the last j wins
 *   add      a[o, index_j, i] += b[o, j, i]     in the order of j
 *
 * Additions are split over threads by columns, so each element is summed in
 * the order of j whatever the width; half types are summed in float. */
#ifndef LP_KERNEL_COPY_GATHER_H
#define LP_KERNEL_COPY_GATHER_H

#include "src/ir/op.h"

typedef enum { LP_ROWS_GATHER, LP_ROWS_PUT, LP_ROWS_ADD } LpRowsMode;

typedef struct LpRowsReq {
    LpRowsMode mode;
    LpDesc a, b;
    int n_indexed;         /* dimensions of a, ascending, and their indices */
    int dim[LP_MAX_DIMS];  /* which dimension */
    int slot[LP_MAX_DIMS]; /* which operand of the kernel holds the index */
    LpDesc index[LP_MAX_DIMS];
    LpType place;  /* broadcast shape of the indices */
    int place_dim; /* where it starts in b */
    bool wrap;     /* indices may be negative */
    bool skips;    /* rows at index `skip` are left out of an addition */
    int64_t skip;
    /* operands: the addressed side before the write (-1: zeros), the dense
     * side (-1: the result) */
    int a_slot, b_slot;
    LpDesc before; /* of operand a_slot, when it is written */
    int threads;
    const char *name; /* for messages */
} LpRowsReq;

/* Result 0 is b for a gather, else a. */
LpStatus lp_rows_prepare(const LpRowsReq *q, LpKernel *k, LpErr *e);

/* A 0-d side is walked as one of shape [1]. */
LpDesc lp_at_least_1d(const LpDesc *d);

/* Copies an index of any integer type to int64, in order; `to` has numel
 * elements of the broadcast shape `place`. */
void lp_index_load(const LpDesc *d, const void *p, const LpType *place,
                   int64_t *to);

#endif
