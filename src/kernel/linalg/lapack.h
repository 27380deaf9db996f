/* LAPACK and BLAS, as OpenBLAS (openmp flavour) gives them. All calls of that
 * library stand in lapack.c.
 *
 * Matrices are column-major, of type `t` (F32 or F64); the leading dimension
 * is the number of rows. A routine returns LAPACK's info: 0 is success, > 0 a
 * property of the data. `work` has lwork elements, `iwork` liwork ints, as the
 * lp_*_query functions say. */
#ifndef LP_KERNEL_LINALG_LAPACK_H
#define LP_KERNEL_LINALG_LAPACK_H

#include "src/tensor/dtype.h"

typedef struct LpLapackWork {
    void *work;
    int *iwork;
    int lwork, liwork;
} LpLapackWork;

/* The library works with `threads` threads between the two; begin returns
 * what end takes. */
int lp_lapack_begin(int threads);
void lp_lapack_end(int before);

int lp_getrf(LpDtype t, int m, int n, void *a, int *pivots);
/* trans 'T': of the transpose of what was factored */
int lp_getrs(LpDtype t, char trans, int n, int nrhs, const void *lu,
             const int *pivots, void *b);
int lp_potrf(LpDtype t, char uplo, int n, void *a);
/* op(a) x = b (side 'L') or x op(a) = b ('R'), op(a) a or with `trans` 'T' its
 * transpose; b is m x n */
void lp_trsm(LpDtype t, char side, char uplo, char trans, char diag, int m,
             int n, const void *a, void *b);
/* c = a b, with `trans` 'T' a^T b^T; c is m x n, k the inner size */
void lp_blas_gemm(LpDtype t, char trans, int m, int n, int k, const void *a,
                  const void *b, void *c);

/* Sizes of w's work; a query touches no data. */
/* the inverse instead of the factors */
int lp_getri(LpDtype t, int n, void *lu, const int *pivots, LpLapackWork *w);
int lp_geqrf(LpDtype t, int m, int n, void *a, void *tau, LpLapackWork *w);
int lp_orgqr(LpDtype t, int m, int n, int k, void *a, const void *tau,
             LpLapackWork *w);
/* jobz 'A': u m x m, vt n x n; 'S': the first min(m, n); 'N': neither */
int lp_gesdd(LpDtype t, char jobz, int m, int n, void *a, void *s, void *u,
             void *vt, LpLapackWork *w);
int lp_syevd(LpDtype t, char jobz, char uplo, int n, void *a, void *values,
             LpLapackWork *w);
int lp_sytrf(LpDtype t, int n, void *a, int *pivots, LpLapackWork *w);
int lp_sytrs(LpDtype t, int n, int nrhs, const void *ld, const int *pivots,
             void *b);
/* least squares: b has max(m, n) rows. gelsy reads and writes jpvt (n ints),
 * gelsd and gelss write s (min(m, n)); *rank is set by all but gels. */
typedef enum { LP_GELS, LP_GELSY, LP_GELSD, LP_GELSS } LpLstsqDriver;
int lp_lstsq(LpDtype t, LpLstsqDriver d, int m, int n, int nrhs, void *a,
             void *b, void *s, int *jpvt, double rcond, int *rank,
             LpLapackWork *w);

#endif
