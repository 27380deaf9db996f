/* Rules of linear algebra: checks, batches, and the primitive operators as
 * expansions and gradients write them. Matrices are the last two dimensions,
 * what comes before is the batch. */
#ifndef LP_OPS_LINALG_LINALG_H
#define LP_OPS_LINALG_LINALG_H

#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* One problem a matrix, on a tile by one thread; LpOp.data points to the
 * multiplications in units of rows * columns * the smaller of them. */
LpCostRule lp_rule_linalg;
extern const double lp_linalg_third, lp_linalg_one, lp_linalg_two,
    lp_linalg_ten, lp_linalg_twenty;

/* ---- sizes of a matrix --------------------------------------------------- */
static inline int64_t lp_rows(const LpType *t)
{
    return t->shape[t->ndim - 2];
}
static inline int64_t lp_cols(const LpType *t)
{
    return t->shape[t->ndim - 1];
}
static inline int64_t lp_shorter(const LpType *t)
{
    return lp_rows(t) < lp_cols(t) ? lp_rows(t) : lp_cols(t);
}

/* ---- checks; `who` starts the message ------------------------------------ */
/* At least two dimensions, float32 or float64. */
LpStatus lp_check_matrix(LpErr *e, const char *who, const LpType *a);
LpStatus lp_check_square(LpErr *e, const char *who, const LpType *a);
/* B has A's type, and with A x = B (x A = B) the rows (columns) fit. */
LpStatus lp_check_system(LpErr *e, const char *who, const LpType *a,
                         const LpType *b, bool left);
/* B has as many dimensions as A, called `name`, and all but the last two of
 * the same size. */
LpStatus lp_check_batch(LpErr *e, const char *who, const char *name,
                        const LpType *a, const LpType *b);
/* A vector of each matrix of A: one vector, or A's shape without the last. */
bool lp_is_vector_rhs(const LpType *a, const LpType *b);

/* ---- pieces of rules ----------------------------------------------------- */
static inline LpVal lp_mt(LpBuilder *b, LpVal x)
{
    return lp_transpose(b, x, -2, -1);
}
static inline LpVal lp_triu(LpBuilder *b, LpVal x, int diagonal)
{
    LpAttr a = lp_attr_int(diagonal);
    return lp_emit(b, LP_OP_triu, &x, 1, &a);
}
static inline LpVal lp_tril(LpBuilder *b, LpVal x, int diagonal)
{
    LpAttr a = lp_attr_int(diagonal);
    return lp_emit(b, LP_OP_tril, &x, 1, &a);
}
LpVal lp_eye(LpBuilder *b, int64_t rows, int64_t cols, LpDtype t);
/* The unit matrices of a batch like `like`'s, rows x rows. */
LpVal lp_eye_like(LpBuilder *b, const LpType *like);
/* x[.., i] on the diagonal of a matrix. */
LpVal lp_diagonal_of(LpBuilder *b, LpVal x);
/* The first n of dimension dim (< 0: from the end). */
LpVal lp_first(LpBuilder *b, LpVal x, int dim, int64_t n);
LpVal lp_rest(LpBuilder *b, LpVal x, int dim, int64_t from);
/* Both with the batch that they broadcast to. */
bool lp_same_batch(LpBuilder *b, LpVal *x, LpVal *y);
/* a x = b (left) or x a = b, of one batch. */
LpVal lp_triangular(LpBuilder *b, LpVal a, LpVal rhs, bool upper, bool left,
                    bool unit);
/* a x = b, of one batch; singular matrices give inf or nan. */
LpVal lp_solve(LpBuilder *b, LpVal a, LpVal rhs);
/* The inverse; check: singular matrices raise. */
LpVal lp_inverse(LpBuilder *b, LpVal a, bool check, LpVal *info);
/* The derivative by A of <g, pinv(A)>. */
LpVal lp_pinv_grad(LpBuilder *b, LpVal a, LpVal pinv, LpVal g);

#endif
