/* Singular and eigenvalues, and what is made of them: the pseudo-inverse, the
 * matrix of cofactors.
 *
 * LAPACK sees the transpose, A^T = V S U^T, and writes its left vectors V by
 * columns: read by rows they are V^T, just what is asked for; likewise U. */
#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/linalg/linalg_kernel.h"

static bool finite_all(LpDtype t, const void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(lp_real_at(t, p, i)))
            return false;
    return true;
}

/* ---- singular values ----------------------------------------------------- */
typedef struct Svd {
    void *a; /* destroyed */
    void *u, *s, *vh;
    char job;
    LpLapackWork w;
} Svd;

/* Matrix i of `from`. */
static LpStatus svd(const LpMats *p, const void *from, int64_t i, Svd *q,
                    LpErr *e)
{
    int64_t count = (int64_t)p->m * p->n;
    if (count == 0)
        return LP_OK;
    memcpy(q->a, from, (size_t)count * lp_mats_size(p));
    LpMats named = *p;
    strcpy(named.who, "linalg.svd");
    if (!finite_all(p->type, q->a, count))
        return lp_mats_fail(&named, i, e,
                            "The algorithm failed to converge because the "
                            "input matrix contained non-finite values.");
    int info =
        lp_gesdd(p->type, q->job, p->n, p->m, q->a, q->s, q->vh, q->u, &q->w);
    if (info != 0)
        return lp_mats_fail(&named, i, e,
                            "The algorithm failed to converge because the "
                            "input matrix is ill-conditioned or has too many "
                            "repeated singular values (error code: %d).",
                            info);
    return LP_OK;
}

static void identity(LpDtype t, void *p, int n)
{
    memset(p, 0, (size_t)n * (size_t)n * lp_dtype_size(t));
    for (int i = 0; i < n; i++)
        lp_real_set(t, p, (int64_t)i * n + i, 1);
}

/* A -> U, S, Vh; flag: full matrices */
LP_MATS_CORE(run_svd)
{
    int k = lp_mats_less(p), nu = p->flag ? p->m : k, nv = p->flag ? p->n : k;
    Svd q = {.a = lp_mats_at(p, work, 0), .job = p->flag ? 'A' : 'S'};
    q.w = lp_mats_lapack(p, work, 1);
    q.u = lp_mats_item(p, out[0], i, p->m, nu);
    q.s = lp_mats_item(p, out[1], i, 1, k);
    q.vh = lp_mats_item(p, out[2], i, nv, p->n);
    if (k == 0 && p->flag) {
        identity(p->type, q.u, p->m);
        identity(p->type, q.vh, p->n);
    }
    return svd(p, lp_mats_item(p, in[0], i, p->m, p->n), i, &q, e);
}

static void svd_parts(LpMats *p, char job)
{
    LpLapackWork w = {0};
    lp_gesdd(p->type, job, p->n, p->m, NULL, NULL, NULL, NULL, &w);
    lp_mats_part(p, lp_mats_area(p), lp_mats_size(p));
    lp_mats_scratch(p, &w);
}

LP_KERNEL_PREPARE(lp_svd_prepare)
{
    LpMats p = lp_mats_of(r);
    p.flag = r->attr[LP_SVD_FULL_MATRICES].i != 0;
    svd_parts(&p, p.flag ? 'A' : 'S');
    return lp_mats_ready(r, k, run_svd, &p, e);
}

LP_MATS_CORE(run_svdvals)
{
    Svd q = {.a = lp_mats_at(p, work, 0), .job = 'N'};
    q.w = lp_mats_lapack(p, work, 1);
    q.s = lp_mats_item(p, out[0], i, 1, lp_mats_less(p));
    return svd(p, lp_mats_item(p, in[0], i, p->m, p->n), i, &q, e);
}

LP_KERNEL_PREPARE(lp_svdvals_prepare)
{
    LpMats p = lp_mats_of(r);
    svd_parts(&p, 'N');
    return lp_mats_ready(r, k, run_svdvals, &p, e);
}

/* ---- eigenvalues --------------------------------------------------------- */
/* A -> L, V (flag2); flag: the upper triangle is read */
LP_MATS_CORE(run_eigh)
{
    void *a = lp_mats_at(p, work, 0);
    LpLapackWork w = lp_mats_lapack(p, work, 1);
    int n = p->n;
    if (n == 0)
        return LP_OK;
    lp_mats_copy(p, in[0], i, n, n, a);
    int info = lp_syevd(p->type, p->flag2 ? 'V' : 'N', p->flag ? 'L' : 'U', n,
                        a, lp_mats_item(p, out[0], i, 1, n), &w);
    if (p->flag2)
        lp_mats_store(p, a, n, n, n, out[1], i);
    if (info > 0)
        return lp_mats_fail(p, i, e,
                            "The algorithm failed to converge because the "
                            "input matrix is ill-conditioned or has too "
                            "many repeated eigenvalues (error code: %d).",
                            info);
    return LP_OK;
}

static LpStatus prepare_eigh(const LpKernelReq *r, bool vectors, LpKernel *k,
                             LpErr *e)
{
    LpMats p = lp_mats_of(r);
    LpLapackWork w = {0};
    p.flag = r->attr[LP_EIGH_UPLO].str[0] == 'U';
    p.flag2 = vectors;
    strcpy(p.who, "linalg.eigh");
    lp_syevd(p.type, vectors ? 'V' : 'N', 'L', p.n, NULL, NULL, &w);
    lp_mats_part(&p, lp_mats_area(&p), lp_mats_size(&p));
    lp_mats_scratch(&p, &w);
    return lp_mats_ready(r, k, run_eigh, &p, e);
}

LP_PREPARE_AS(lp_eigh_prepare, prepare_eigh(r, true, k, e))
LP_PREPARE_AS(lp_eigvalsh_prepare, prepare_eigh(r, false, k, e))

/* ---- made of singular values --------------------------------------------- */
enum { A, WORK, IWORK, U, S, V, P };

/* Parts from U on: the vectors, the values, one matrix to work on. */
static void vector_parts(LpMats *p)
{
    int k = lp_mats_less(p);
    svd_parts(p, 'S');
    lp_mats_part(p, (size_t)p->m * (size_t)k, lp_mats_size(p));
    lp_mats_part(p, (size_t)k, lp_mats_size(p));
    lp_mats_part(p, (size_t)p->n * (size_t)k, lp_mats_size(p));
    lp_mats_part(p, lp_mats_area(p), lp_mats_size(p));
}

static Svd parts_of(const LpMats *p, void *work)
{
    Svd q = {.a = lp_mats_at(p, work, A), .job = 'S'};
    q.w = lp_mats_lapack(p, work, WORK);
    q.u = lp_mats_at(p, work, U);
    q.s = lp_mats_at(p, work, S);
    q.vh = lp_mats_at(p, work, V);
    return q;
}

/* Row j of u's k columns by rows (a column of LAPACK's) times d. */
static void scale_columns(const LpMats *p, void *u, int rows, int k, int j,
                          double d)
{
    for (int i = 0; i < rows; i++) {
        int64_t at = (int64_t)i * k + j;
        lp_real_set(p->type, u, at, lp_real_at(p->type, u, at) * d);
    }
}

/* A, atol, rtol (of the batch's shape; rtol may be a hole) -> V S^-1 U^T of
 * the singular values above max(atol, rtol * the largest). flag: symmetric,
 * of the lower triangle; value: rtol where there is none given */
LP_MATS_CORE(run_pinv)
{
    Svd q = parts_of(p, work);
    int m = p->m, n = p->n, k = lp_mats_less(p);
    void *from = lp_mats_at(p, work, P);
    if (k == 0)
        return LP_OK;
    lp_mats_copy(p, in[0], i, m, n, from);
    for (int row = 0; p->flag && row < n; row++)
        for (int j = row + 1; j < n; j++)
            lp_real_set(p->type, from, (int64_t)row * n + j,
                        lp_real_at(p->type, from, (int64_t)j * n + row));
    LP_TRY(svd(p, from, i, &q, e));
    double atol = in[1] ? lp_real_at(p->type, in[1], i) : 0;
    double rtol = in[2]      ? lp_real_at(p->type, in[2], i)
                  : atol > 0 ? 0
                             : p->value;
    double least = fmax(atol, rtol * lp_real_at(p->type, q.s, 0));
    for (int j = 0; j < k; j++) {
        double s = lp_real_at(p->type, q.s, j);
        scale_columns(p, q.u, m, k, j, s > least ? 1 / s : 0);
    }
    lp_blas_gemm(p->type, 'T', m, n, k, q.u, q.vh,
                 lp_mats_item(p, out[0], i, n, m));
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_pinv_prepare)
{
    LpMats p = lp_mats_of(r);
    p.flag = r->attr[LP_PINV_HERMITIAN].i != 0;
    p.value = (p.m > p.n ? p.m : p.n) * (p.type == LP_F64 ? 0x1p-52 : 0x1p-23);
    vector_parts(&p);
    return lp_mats_ready(r, k, run_pinv, &p, e);
}

/* The sign of the determinant of an orthogonal matrix, which is destroyed. */
static double orientation(const LpMats *p, void *a, int *piv)
{
    int n = p->n;
    double sign = 1;
    lp_getrf(p->type, n, n, a, piv);
    for (int j = 0; j < n; j++) {
        if (piv[j] != j + 1)
            sign = -sign;
        if (lp_real_at(p->type, a, (int64_t)j * n + j) < 0)
            sign = -sign;
    }
    return sign;
}

/* A -> the derivative of its determinant. With A = U S V^T it is
 * det(U) det(V) U C V^T, where C has on its diagonal the products of all the
 * other singular values: right for singular matrices too. */
LP_MATS_CORE(run_cofactor)
{
    Svd q = parts_of(p, work);
    int n = p->n;
    void *copy = lp_mats_at(p, work, P);
    int *piv = q.w.iwork;
    size_t bytes = lp_mats_area(p) * lp_mats_size(p);
    if (n == 0)
        return LP_OK;
    double *c = (double *)out[0] + i * n * n;
    if (!finite_all(p->type, lp_mats_item(p, in[0], i, n, n), (int64_t)n * n)) {
        for (int j = 0; j < n * n; j++)
            c[j] = (double)NAN;
        return LP_OK;
    }
    LP_TRY(svd(p, lp_mats_item(p, in[0], i, n, n), i, &q, e));
    memcpy(copy, q.u, bytes);
    double sign = orientation(p, copy, piv);
    memcpy(copy, q.vh, bytes);
    sign *= orientation(p, copy, piv);
    for (int j = 0; j < n; j++) {
        double others = sign;
        for (int o = 0; o < n; o++)
            others *= o != j ? lp_real_at(p->type, q.s, o) : 1;
        scale_columns(p, q.u, n, n, j, others);
    }
    lp_blas_gemm(p->type, 'N', n, n, n, q.vh, q.u, c);
    return LP_OK;
}

/* In float64 whatever the type: small singular values are differences. */
LP_KERNEL_PREPARE(lp_cofactor_prepare)
{
    LpMats p = lp_mats_of(r);
    p.type = LP_F64;
    vector_parts(&p);
    return lp_mats_ready(r, k, run_cofactor, &p, e);
}
