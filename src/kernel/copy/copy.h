/* Strided copies with conversion of the element type: what a clone, a
 * contiguous result, an in-place write and a view that must be materialised
 * all come down to.
 *
 * A plan is made once of two descriptions: dimensions of size 1 go, the
 * others are ordered by the destination's strides and neighbours that lie
 * one after the other on both sides are merged. Source and destination must
 * not overlap, except that they may be the same elements in the same places.
 * The bits never depend on the number of threads. */
#ifndef LP_KERNEL_COPY_COPY_H
#define LP_KERNEL_COPY_COPY_H

#include "src/ir/op.h"

typedef struct LpCopyPlan {
    LpDtype from, to;
    int n;       /* dimensions left; the last has the smallest step of dst */
    bool empty;  /* nothing to copy */
    bool stops;  /* at Ctrl-C: a kernel, and no part of another */
    int threads; /* 1 if there is little to copy */
    int64_t shape[LP_MAX_DIMS];
    int64_t src[LP_MAX_DIMS]; /* strides in elements */
    int64_t dst[LP_MAX_DIMS];
} LpCopyPlan;

/* `src` is broadcast to `dst`: its dimensions are aligned with dst's last
 * ones and sizes of 1 repeat. Shapes must fit (the caller has checked). An
 * immediate source fills. `threads` < 1 asks for the machine's width. */
void lp_copy_plan(const LpDesc *src, const LpDesc *dst, int threads,
                  LpCopyPlan *p);
/* The pointers are those of the elements at index 0. */
void lp_copy_run(const LpCopyPlan *p, const void *src, void *dst);

/* Plan and run at once. */
void lp_copy_strided(const LpDesc *src, const void *sp, const LpDesc *dst,
                     void *dp);

/* n elements, both sides with a step in elements. */
void lp_convert(LpDtype from, const void *src, int64_t src_step, LpDtype to,
                void *dst, int64_t dst_step, int64_t n);

/* Writes the number everywhere. */
void lp_fill_strided(const LpDesc *dst, void *dp, LpScalar s);

/* Writes it outside the box of `shape` from index `from`, and perhaps within:
 * the caller overwrites the box. */
void lp_fill_around(const LpDesc *dst, void *dp, const int64_t *from,
                    const int64_t *shape, LpScalar s);

/* A kernel that copies `src` (an operand's memory seen as wanted, starting
 * `offset` elements from its element 0) to result 0. */
LpStatus lp_copy_kernel(const LpDesc *src, int64_t offset, const LpDesc *dst,
                        int threads, LpKernel *k);

/* A kernel that fills result 0. */
LpStatus lp_fill_kernel(const LpDesc *dst, LpScalar v, int threads,
                        LpKernel *k);

/* Description of contiguous memory of a type. */
LpDesc lp_desc_of(const LpType *t);
/* Contiguous memory of d's shape and of type t. */
LpDesc lp_desc_plain(const LpDesc *d, LpDtype t);
LpType lp_type_of_desc(const LpDesc *d);
/* The same elements with dimension 1 split in two: [d0, d1 / block, d2, …,
 * block]. A blocked one becomes dense and plain, a plain one strided. `rank`
 * and `channels` are those of the blocked values it is used with: `d` may be
 * broadcast against them (fewer dimensions, or size 1). */
LpDesc lp_desc_split(const LpDesc *d, int rank, int64_t channels, int block);
bool lp_desc_contiguous(const LpDesc *d);
int64_t lp_desc_numel(const LpDesc *d);

#endif
