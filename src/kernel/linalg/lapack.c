/* The calls of OpenBLAS: Fortran's routines of both precisions behind one
 * function each (lapack.h). Debian's openmp flavour brings no LAPACKE, so
 * the prototypes stand here; lengths of the character arguments follow the
 * arguments, as gfortran passes them. A work size of -1 is LAPACK's query. */
#include "src/kernel/linalg/lapack.h"

#include <omp.h>
#include <stddef.h>

int lp_lapack_begin(int threads)
{
    int before = omp_get_max_threads();
    if (threads != before)
        omp_set_num_threads(threads);
    return before;
}

void lp_lapack_end(int before)
{
    if (before != omp_get_max_threads())
        omp_set_num_threads(before);
}

typedef const int *In;
typedef const char *Ch;

#define PROTOTYPES(P, T)                                                       \
    void P##getrf_(In m, In n, T *a, In lda, int *piv, int *info);             \
    void P##getrs_(Ch trans, In n, In nrhs, const T *a, In lda, In piv, T *b,  \
                   In ldb, int *info, size_t);                                 \
    void P##getri_(In n, T *a, In lda, In piv, T *work, In lwork, int *info);  \
    void P##potrf_(Ch uplo, In n, T *a, In lda, int *info, size_t);            \
    void P##trsm_(Ch side, Ch uplo, Ch trans, Ch diag, In m, In n,             \
                  const T *alpha, const T *a, In lda, T *b, In ldb, size_t,    \
                  size_t, size_t, size_t);                                     \
    void P##gemm_(Ch ta, Ch tb, In m, In n, In k, const T *alpha, const T *a,  \
                  In lda, const T *b, In ldb, const T *beta, T *c, In ldc,     \
                  size_t, size_t);                                             \
    void P##geqrf_(In m, In n, T *a, In lda, T *tau, T *work, In lwork,        \
                   int *info);                                                 \
    void P##orgqr_(In m, In n, In k, T *a, In lda, const T *tau, T *work,      \
                   In lwork, int *info);                                       \
    void P##gesdd_(Ch jobz, In m, In n, T *a, In lda, T *s, T *u, In ldu,      \
                   T *vt, In ldvt, T *work, In lwork, int *iwork, int *info,   \
                   size_t);                                                    \
    void P##syevd_(Ch jobz, Ch uplo, In n, T *a, In lda, T *w, T *work,        \
                   In lwork, int *iwork, In liwork, int *info, size_t,         \
                   size_t);                                                    \
    void P##sytrf_(Ch uplo, In n, T *a, In lda, int *piv, T *work, In lwork,   \
                   int *info, size_t);                                         \
    void P##sytrs_(Ch uplo, In n, In nrhs, const T *a, In lda, In piv, T *b,   \
                   In ldb, int *info, size_t);                                 \
    void P##gels_(Ch trans, In m, In n, In nrhs, T *a, In lda, T *b, In ldb,   \
                  T *work, In lwork, int *info, size_t);                       \
    void P##gelsy_(In m, In n, In nrhs, T *a, In lda, T *b, In ldb, int *jpvt, \
                   const T *rcond, int *rank, T *work, In lwork, int *info);   \
    void P##gelsd_(In m, In n, In nrhs, T *a, In lda, T *b, In ldb, T *s,      \
                   const T *rcond, int *rank, T *work, In lwork, int *iwork,   \
                   int *info);                                                 \
    void P##gelss_(In m, In n, In nrhs, T *a, In lda, T *b, In ldb, T *s,      \
                   const T *rcond, int *rank, T *work, In lwork, int *info);
PROTOTYPES(s, float)
PROTOTYPES(d, double)

/* A statement for the type `t`, in which P(name) is the routine and T the
 * element type. */
#define BOTH(t, STATEMENT)                                                     \
    do {                                                                       \
        if ((t) == LP_F64)                                                     \
            STATEMENT(d, double);                                              \
        else                                                                   \
            STATEMENT(s, float);                                               \
    } while (0)

/* The same for routines with work: STATEMENT has it as `work`, of lwork
 * elements. Without any it is a query, whose answer w keeps. */
#define WITH_WORK(P, T, ints, STATEMENT)                                       \
    {                                                                          \
        T size = 0, *work = w->work ? (T *)w->work : &size;                    \
        STATEMENT(P, T);                                                       \
        if (!w->work)                                                          \
            answer(w, (double)size, ints);                                     \
    }
#define BOTH_WORK(t, ints, STATEMENT)                                          \
    do {                                                                       \
        const int lwork = w->work ? w->lwork : -1;                             \
        if ((t) == LP_F64)                                                     \
            WITH_WORK(d, double, ints, STATEMENT)                              \
        else                                                                   \
            WITH_WORK(s, float, ints, STATEMENT)                               \
    } while (0)

static int at_least_1(int n)
{
    return n > 1 ? n : 1;
}

/* A query's answer, kept as the size of the work to give. Floats round large
 * sizes, hence the spare element in 2^20. */
static void answer(LpLapackWork *w, double lwork, int liwork)
{
    w->lwork = at_least_1((int)lwork + (int)(lwork / (1 << 20)));
    w->liwork = at_least_1(liwork);
}

int lp_getrf(LpDtype t, int m, int n, void *a, int *pivots)
{
    int lda = at_least_1(m), info = 0;
#define CALL(P, T) P##getrf_(&m, &n, (T *)a, &lda, pivots, &info)
    BOTH(t, CALL);
#undef CALL
    return info;
}

int lp_getrs(LpDtype t, char trans, int n, int nrhs, const void *lu,
             const int *pivots, void *b)
{
    int ld = at_least_1(n), info = 0;
#define CALL(P, T)                                                             \
    P##getrs_(&trans, &n, &nrhs, (const T *)lu, &ld, pivots, (T *)b, &ld,      \
              &info, 1)
    BOTH(t, CALL);
#undef CALL
    return info;
}

int lp_getri(LpDtype t, int n, void *lu, const int *pivots, LpLapackWork *w)
{
    int ld = at_least_1(n), info = 0;
#define CALL(P, T) P##getri_(&n, (T *)lu, &ld, pivots, work, &lwork, &info)
    BOTH_WORK(t, 1, CALL);
#undef CALL
    return info;
}

int lp_potrf(LpDtype t, char uplo, int n, void *a)
{
    int ld = at_least_1(n), info = 0;
#define CALL(P, T) P##potrf_(&uplo, &n, (T *)a, &ld, &info, 1)
    BOTH(t, CALL);
#undef CALL
    return info;
}

void lp_trsm(LpDtype t, char side, char uplo, char trans, char diag, int m,
             int n, const void *a, void *b)
{
    int lda = at_least_1(side == 'L' ? m : n), ldb = at_least_1(m);
#define CALL(P, T)                                                             \
    P##trsm_(&side, &uplo, &trans, &diag, &m, &n, &(const T){1}, (const T *)a, \
             &lda, (T *)b, &ldb, 1, 1, 1, 1)
    BOTH(t, CALL);
#undef CALL
}

void lp_blas_gemm(LpDtype t, char trans, int m, int n, int k, const void *a,
                  const void *b, void *c)
{
    int lda = at_least_1(trans == 'N' ? m : k);
    int ldb = at_least_1(trans == 'N' ? k : n);
    int ldc = at_least_1(m);
#define CALL(P, T)                                                             \
    P##gemm_(&trans, &trans, &m, &n, &k, &(const T){1}, (const T *)a, &lda,    \
             (const T *)b, &ldb, &(const T){0}, (T *)c, &ldc, 1, 1)
    BOTH(t, CALL);
#undef CALL
}

int lp_geqrf(LpDtype t, int m, int n, void *a, void *tau, LpLapackWork *w)
{
    int ld = at_least_1(m), info = 0;
#define CALL(P, T) P##geqrf_(&m, &n, (T *)a, &ld, (T *)tau, work, &lwork, &info)
    BOTH_WORK(t, 1, CALL);
#undef CALL
    return info;
}

int lp_orgqr(LpDtype t, int m, int n, int k, void *a, const void *tau,
             LpLapackWork *w)
{
    int ld = at_least_1(m), info = 0;
#define CALL(P, T)                                                             \
    P##orgqr_(&m, &n, &k, (T *)a, &ld, (const T *)tau, work, &lwork, &info)
    BOTH_WORK(t, 1, CALL);
#undef CALL
    return info;
}

int lp_gesdd(LpDtype t, char jobz, int m, int n, void *a, void *s, void *u,
             void *vt, LpLapackWork *w)
{
    int k = m < n ? m : n, lda = at_least_1(m), info = 0;
    int ldu = at_least_1(m), ldvt = at_least_1(jobz == 'A' ? n : k);
#define CALL(P, T)                                                             \
    P##gesdd_(&jobz, &m, &n, (T *)a, &lda, (T *)s, (T *)u, &ldu, (T *)vt,      \
              &ldvt, work, &lwork, w->iwork, &info, 1)
    BOTH_WORK(t, 8 * k, CALL);
#undef CALL
    return info;
}

int lp_syevd(LpDtype t, char jobz, char uplo, int n, void *a, void *values,
             LpLapackWork *w)
{
    int ld = at_least_1(n), info = 0;
    int ints = 0, liwork = w->work ? w->liwork : -1;
#define CALL(P, T)                                                             \
    P##syevd_(&jobz, &uplo, &n, (T *)a, &ld, (T *)values, work, &lwork,        \
              w->work ? w->iwork : &ints, &liwork, &info, 1, 1)
    BOTH_WORK(t, ints, CALL);
#undef CALL
    return info;
}

int lp_sytrf(LpDtype t, int n, void *a, int *pivots, LpLapackWork *w)
{
    int ld = at_least_1(n), info = 0;
#define CALL(P, T)                                                             \
    P##sytrf_("L", &n, (T *)a, &ld, pivots, work, &lwork, &info, 1)
    BOTH_WORK(t, 1, CALL);
#undef CALL
    return info;
}

int lp_sytrs(LpDtype t, int n, int nrhs, const void *ld, const int *pivots,
             void *b)
{
    int lda = at_least_1(n), info = 0;
#define CALL(P, T)                                                             \
    P##sytrs_("L", &n, &nrhs, (const T *)ld, &lda, pivots, (T *)b, &lda,       \
              &info, 1)
    BOTH(t, CALL);
#undef CALL
    return info;
}

int lp_lstsq(LpDtype t, LpLstsqDriver d, int m, int n, int nrhs, void *a,
             void *b, void *s, int *jpvt, double rcond, int *rank,
             LpLapackWork *w)
{
    int lda = at_least_1(m), ldb = at_least_1(m > n ? m : n), info = 0;
    int ints = 1;
    int *iwork = w->work ? w->iwork : &ints;
#define CALL(P, T)                                                             \
    do {                                                                       \
        const T rc = (T)rcond;                                                 \
        if (d == LP_GELS)                                                      \
            P##gels_("N", &m, &n, &nrhs, (T *)a, &lda, (T *)b, &ldb, work,     \
                     &lwork, &info, 1);                                        \
        else if (d == LP_GELSY)                                                \
            P##gelsy_(&m, &n, &nrhs, (T *)a, &lda, (T *)b, &ldb, jpvt, &rc,    \
                      rank, work, &lwork, &info);                              \
        else if (d == LP_GELSD)                                                \
            P##gelsd_(&m, &n, &nrhs, (T *)a, &lda, (T *)b, &ldb, (T *)s, &rc,  \
                      rank, work, &lwork, iwork, &info);                       \
        else                                                                   \
            P##gelss_(&m, &n, &nrhs, (T *)a, &lda, (T *)b, &ldb, (T *)s, &rc,  \
                      rank, work, &lwork, &info);                              \
    } while (0)
    BOTH_WORK(t, ints, CALL);
#undef CALL
    return info;
}
