/* Kernels of linear algebra: batches of matrices through LAPACK, one matrix
 * after the other.
 *
 * Operands come from the plain frame: row-major, dense, F32 or F64. LAPACK is
 * column-major: it sees the transpose of what is in memory. Where that can be
 * put to use (symmetric matrices, singular values, triangular solves) nothing
 * is transposed; else the load and store helpers do it. */
#ifndef LP_KERNEL_LINALG_LINALG_KERNEL_H
#define LP_KERNEL_LINALG_LINALG_KERNEL_H

#include <string.h>

#include "src/kernel/linalg/lapack.h"
#include "src/kernel/plain.h"

#define LP_MATS_PARTS 8
#define LP_WHO 40

typedef struct LpMats LpMats;
/* Does matrix i. */
typedef LpStatus (*LpMatsCore)(const LpMats *p, int64_t i, void *const *in,
                               void *const *out, void *work, LpErr *e);
#define LP_MATS_CORE(name)                                                     \
    static LpStatus name(const LpMats *p, int64_t i, void *const *in,          \
                         void *const *out, void *work LP_UNUSED,               \
                         LpErr *e LP_UNUSED)

/* The parameters of a core: operand 0 is a batch of m x n. */
struct LpMats {
    LpMatsCore core;
    LpDtype type;
    bool batched; /* an error names the member */
    int64_t batch;
    int m, n, k; /* k: as the operator says */
    int lwork, liwork, threads;
    int flag, flag2;           /* as the operator says */
    bool check;                /* raise what info tells */
    int parts;                 /* of the work */
    size_t off[LP_MATS_PARTS]; /* their byte offsets */
    size_t work;               /* their sum */
    double value;              /* as the operator says */
    char who[LP_WHO];          /* operator's name in errors */
};

/* From operand 0. */
LpMats lp_mats_of(const LpKernelReq *r);
/* Adds `count` elements of `size` bytes to the work; none for no batch. */
void lp_mats_part(LpMats *p, size_t count, size_t size);
/* The next two parts: the scratch that LAPACK asks for. */
void lp_mats_scratch(LpMats *p, const LpLapackWork *w);
void lp_mats_who(LpMats *p, const LpAttr *a);
LpStatus lp_mats_ready(const LpKernelReq *r, LpKernel *k, LpMatsCore core,
                       LpMats *p, LpErr *e);

static inline void *lp_mats_at(const LpMats *p, void *work, int part)
{
    return (char *)work + p->off[part];
}
/* Scratch from part `part` on. */
static inline LpLapackWork lp_mats_lapack(const LpMats *p, void *work, int part)
{
    return (LpLapackWork){lp_mats_at(p, work, part),
                          lp_mats_at(p, work, part + 1), p->lwork, p->liwork};
}
static inline int lp_mats_less(const LpMats *p)
{
    return p->m < p->n ? p->m : p->n;
}
static inline size_t lp_mats_area(const LpMats *p)
{
    return (size_t)p->m * (size_t)p->n;
}
static inline size_t lp_mats_size(const LpMats *p)
{
    return lp_dtype_size(p->type);
}
/* Matrix i of rows x cols ones at `p`. */
static inline void *lp_mats_item(const LpMats *p, void *base, int64_t i,
                                 int64_t rows, int64_t cols)
{
    return (char *)base + (size_t)(i * rows * cols) * lp_mats_size(p);
}

/* Matrix i of those at `all`, to `to`. */
static inline void lp_mats_copy(const LpMats *p, void *all, int64_t i,
                                int64_t rows, int64_t cols, void *to)
{
    memcpy(to, lp_mats_item(p, all, i, rows, cols),
           (size_t)(rows * cols) * lp_mats_size(p));
}

/* rows x cols, row-major at src, to column-major with leading dimension ld;
 * and back. */
void lp_load_columns(LpDtype t, const void *src, int rows, int cols, void *dst,
                     int ld);
void lp_store_rows(LpDtype t, const void *src, int ld, int rows, int cols,
                   void *dst);
/* The same of matrix i of those at `all`. */
static inline void lp_mats_load(const LpMats *p, void *all, int64_t i, int rows,
                                int cols, void *dst, int ld)
{
    lp_load_columns(p->type, lp_mats_item(p, all, i, rows, cols), rows, cols,
                    dst, ld);
}
static inline void lp_mats_store(const LpMats *p, const void *src, int ld,
                                 int rows, int cols, void *all, int64_t i)
{
    lp_store_rows(p->type, src, ld, rows, cols,
                  lp_mats_item(p, all, i, rows, cols));
}
/* "who: (Batch element i): text", the member only if there are several. */
LpStatus lp_mats_fail(const LpMats *p, int64_t i, LpErr *e, const char *fmt,
                      ...) __attribute__((format(printf, 4, 5)));

/* A number past the last for a name that is none. */
LpLstsqDriver lp_lstsq_driver(const char *name);

LpPrepare lp_lu_prepare, lp_lu_matrix_prepare, lp_cholesky_prepare,
    lp_qr_prepare, lp_geqrf_prepare, lp_ldl_prepare, lp_ldl_solve_prepare,
    lp_det_prepare, lp_slogdet_prepare, lp_cofactor_prepare, lp_solve_prepare,
    lp_solve_turned_prepare, lp_inverse_prepare, lp_solve_triangular_prepare,
    lp_cholesky_solve_prepare, lp_lstsq_prepare, lp_svd_prepare,
    lp_svdvals_prepare, lp_eigh_prepare, lp_eigvalsh_prepare, lp_pinv_prepare,
    lp_matrix_exp_prepare;

#endif
