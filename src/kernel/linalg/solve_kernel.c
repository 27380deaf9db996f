/* Systems of equations: general, triangular, by LDL, least squares. */
#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/linalg/linalg_kernel.h"

static int columns_of(const LpDesc *d)
{
    return (int)d->shape[d->ndim - 1];
}

static int rows_of(const LpDesc *d)
{
    return (int)d->shape[d->ndim - 2];
}

/* ---- A X = B ------------------------------------------------------------- */
/* In columns memory has the transposes, and A^T = P L U of them. A X = B is X^T
 * P L U = B^T, and A^T X = B is X^T U^T L^T P^T = B^T: solved on the right, and
 * columns of the transposes, which P exchanges, are rows of X. Nothing has to
 * be turned. A single column is its transpose: LAPACK's own way is quicker. */
static void exchange_rows(void *x, int row, int with, size_t bytes)
{
    char *a = (char *)x + (size_t)row * bytes;
    char *b = (char *)x + (size_t)with * bytes, t[256];
    for (size_t at = 0, n; row != with && at < bytes; at += n) {
        n = bytes - at < sizeof t ? bytes - at : sizeof t;
        memcpy(t, a + at, n);
        memcpy(a + at, b + at, n);
        memcpy(b + at, t, n);
    }
}

/* x: B, then X of A X = B, or with `turned` of A^T X = B; k columns. */
static void by_factors(const LpMats *p, const void *lu, const int *piv,
                       bool turned, void *x)
{
    int n = p->n, k = p->k;
    size_t bytes = (size_t)k * lp_mats_size(p);
    if (k == 1) {
        lp_getrs(p->type, turned ? 'N' : 'T', n, 1, lu, piv, x);
        return;
    }
    for (int j = 0; turned && j < n; j++)
        exchange_rows(x, j, piv[j] - 1, bytes);
    if (turned) {
        lp_trsm(p->type, 'R', 'L', 'T', 'U', k, n, lu, x);
        lp_trsm(p->type, 'R', 'U', 'T', 'N', k, n, lu, x);
        return;
    }
    lp_trsm(p->type, 'R', 'U', 'N', 'N', k, n, lu, x);
    lp_trsm(p->type, 'R', 'L', 'N', 'U', k, n, lu, x);
    for (int j = n - 1; j >= 0; j--)
        exchange_rows(x, j, piv[j] - 1, bytes);
}

static LpStatus singular(const LpMats *p, int64_t i, int info, LpErr *e)
{
    if (strncmp(p->who, "linalg.inv", 10) == 0)
        return lp_mats_fail(p, i, e,
                            "The diagonal element %d is zero, the inversion "
                            "could not be completed because the input matrix "
                            "is singular.",
                            info);
    return lp_mats_fail(p, i, e,
                        "The solver failed because the input matrix is "
                        "singular.");
}

/* The factors of A itself say which pivot is 0, and give what LAPACK gives
 * then. The work: a matrix, B's columns, pivots. */
static int of_singular(const LpMats *p, int64_t i, void *all, void *b,
                       void *work)
{
    void *a = lp_mats_at(p, work, 0);
    int n = p->n, *piv = lp_mats_at(p, work, 2);
    lp_mats_load(p, all, i, n, n, a, n);
    int info = lp_getrf(p->type, n, n, a, piv);
    if (p->k > 0)
        lp_getrs(p->type, 'N', n, p->k, a, piv, b);
    return info;
}

/* A, B -> X, info, factors of A^T, pivots; k: columns of B; attributes:
 * check_errors, who */
LP_MATS_CORE(run_solve)
{
    int n = p->n, *piv = lp_mats_at(p, work, 2);
    int64_t *info = out[1], *pivots = out[3];
    void *lu = lp_mats_item(p, out[2], i, n, n), *b = lp_mats_at(p, work, 1);
    void *x = lp_mats_item(p, out[0], i, n, p->k);
    info[i] = 0;
    if (n == 0)
        return LP_OK;
    lp_mats_copy(p, in[0], i, n, n, lu);
    int bad = lp_getrf(p->type, n, n, lu, piv);
    for (int j = 0; j < n; j++)
        pivots[i * n + j] = piv[j];
    if (bad != 0) {
        lp_mats_load(p, in[1], i, n, p->k, b, n);
        info[i] = of_singular(p, i, in[0], b, work);
        lp_mats_store(p, b, n, n, p->k, out[0], i);
    } else if (p->k > 0) {
        lp_mats_copy(p, in[1], i, n, p->k, x);
        by_factors(p, lu, piv, false, x);
    }
    if (info[i] != 0 && p->check)
        return singular(p, i, (int)info[i], e);
    return LP_OK;
}

static void solve_parts(LpMats *p)
{
    lp_mats_part(p, lp_mats_area(p), lp_mats_size(p));
    lp_mats_part(p, (size_t)p->n * (size_t)p->k, lp_mats_size(p));
    lp_mats_part(p, (size_t)p->n, sizeof(int));
}

LP_KERNEL_PREPARE(lp_solve_prepare)
{
    LpMats p = lp_mats_of(r);
    p.k = columns_of(&r->in[1]);
    p.check = r->attr[LP_LU_CHECK_ERRORS].i != 0;
    lp_mats_who(&p, &r->attr[LP_LU_WHO]);
    solve_parts(&p);
    return lp_mats_ready(r, k, run_solve, &p, e);
}

/* A, its factors and pivots as above, B -> X of A^T X = B */
LP_MATS_CORE(run_solve_turned)
{
    int n = p->n, *piv = lp_mats_at(p, work, 0);
    const int64_t *pivots = in[2];
    void *x = lp_mats_item(p, out[0], i, n, p->k);
    for (int j = 0; j < n; j++) {
        int64_t with = pivots[i * n + j];
        LP_FAIL_IF(with < 1 || with > n, e, LP_E_INDEX,
                   "solve_turned: a pivot is %lld; it must lie between 1 and "
                   "%d",
                   (long long)with, n);
        piv[j] = (int)with;
    }
    lp_mats_copy(p, in[3], i, n, p->k, x);
    if (n > 0 && p->k > 0)
        by_factors(p, lp_mats_item(p, in[1], i, n, n), piv, true, x);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_solve_turned_prepare)
{
    LpMats p = lp_mats_of(r);
    p.k = columns_of(&r->in[3]);
    lp_mats_part(&p, (size_t)p.n, sizeof(int));
    return lp_mats_ready(r, k, run_solve_turned, &p, e);
}

/* A -> its inverse, info; attributes: check_errors, who. The inverse of the
 * transpose is the inverse's transpose: nothing is turned here either. */
LP_MATS_CORE(run_inverse)
{
    int n = p->n, *piv = lp_mats_at(p, work, 2);
    LpLapackWork w = lp_mats_lapack(p, work, 3);
    int64_t *info = out[1];
    void *x = lp_mats_item(p, out[0], i, n, n), *b = lp_mats_at(p, work, 1);
    info[i] = 0;
    if (n == 0)
        return LP_OK;
    lp_mats_copy(p, in[0], i, n, n, x);
    if (lp_getrf(p->type, n, n, x, piv) == 0) {
        lp_getri(p->type, n, x, piv, &w);
        return LP_OK;
    }
    memset(b, 0, lp_mats_area(p) * lp_mats_size(p));
    for (int64_t j = 0; j < n; j++)
        lp_real_set(p->type, b, j * n + j, 1);
    info[i] = of_singular(p, i, in[0], b, work);
    lp_mats_store(p, b, n, n, n, out[0], i);
    return info[i] != 0 && p->check ? singular(p, i, (int)info[i], e) : LP_OK;
}

LP_KERNEL_PREPARE(lp_inverse_prepare)
{
    LpMats p = lp_mats_of(r);
    LpLapackWork w = {0};
    p.k = p.n;
    p.check = r->attr[LP_LU_CHECK_ERRORS].i != 0;
    lp_mats_who(&p, &r->attr[LP_LU_WHO]);
    solve_parts(&p);
    lp_getri(p.type, p.n, NULL, NULL, &w);
    lp_mats_scratch(&p, &w);
    return lp_mats_ready(r, k, run_inverse, &p, e);
}

/* ---- triangular ---------------------------------------------------------- */
/* A, B -> X. m, n: of A; parts: k = rows, flag2 = columns of B. In columns
 * both are their transposes, and A X = B is X^T A^T = B^T: the other side, the
 * other triangle, and nothing to move. Attributes: upper, left,
 * unitriangular */
LP_MATS_CORE(run_solve_triangular)
{
    int rows = p->k, cols = p->flag2;
    bool upper = p->flag & 1, left = p->flag & 2, unit = p->flag & 4;
    if (rows == 0 || cols == 0)
        return LP_OK;
    void *x = lp_mats_item(p, out[0], i, rows, cols);
    lp_mats_copy(p, in[1], i, rows, cols, x);
    lp_trsm(p->type, left ? 'R' : 'L', upper ? 'L' : 'U', 'N', unit ? 'U' : 'N',
            cols, rows, lp_mats_item(p, in[0], i, p->n, p->n), x);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_solve_triangular_prepare)
{
    LpMats p = lp_mats_of(r);
    p.k = rows_of(&r->in[1]);
    p.flag2 = columns_of(&r->in[1]);
    p.flag = (r->attr[LP_TRIANGULAR_UPPER].i ? 1 : 0) |
             (r->attr[LP_TRIANGULAR_LEFT].i ? 2 : 0) |
             (r->attr[LP_TRIANGULAR_UNITRIANGULAR].i ? 4 : 0);
    return lp_mats_ready(r, k, run_solve_triangular, &p, e);
}

/* L, B -> X of L L^T X = B (flag: L^T L X = B, of an upper L); flag2: columns
 * of B. Sides and triangles as above. */
LP_MATS_CORE(run_cholesky_solve)
{
    int n = p->n, cols = p->flag2;
    char uplo = p->flag ? 'L' : 'U', first = p->flag ? 'T' : 'N';
    if (n == 0 || cols == 0)
        return LP_OK;
    const void *l = lp_mats_item(p, in[0], i, n, n);
    void *x = lp_mats_item(p, out[0], i, n, cols);
    lp_mats_copy(p, in[1], i, n, cols, x);
    lp_trsm(p->type, 'R', uplo, first, 'N', cols, n, l, x);
    lp_trsm(p->type, 'R', uplo, p->flag ? 'N' : 'T', 'N', cols, n, l, x);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_cholesky_solve_prepare)
{
    LpMats p = lp_mats_of(r);
    p.flag = r->attr[LP_CHOLESKY_UPPER].i != 0;
    p.flag2 = columns_of(&r->in[1]);
    return lp_mats_ready(r, k, run_cholesky_solve, &p, e);
}

/* LD, pivots, B -> X */
LP_MATS_CORE(run_ldl_solve)
{
    void *a = lp_mats_at(p, work, 0), *b = lp_mats_at(p, work, 1);
    int n = p->n, *piv = lp_mats_at(p, work, 2);
    const int64_t *pivots = in[1];
    if (n == 0)
        return LP_OK;
    lp_mats_load(p, in[0], i, n, n, a, n);
    lp_mats_load(p, in[2], i, n, p->k, b, n);
    for (int j = 0; j < n; j++) {
        int64_t v = pivots[i * n + j], to = v < 0 ? -v : v;
        LP_FAIL_IF(to < 1 || to > n, e, LP_E_INDEX,
                   "linalg.ldl_solve: a pivot is %lld; its size must lie "
                   "between 1 and %d",
                   (long long)v, n);
        piv[j] = (int)v;
    }
    if (p->k > 0)
        lp_sytrs(p->type, n, p->k, a, piv, b);
    lp_mats_store(p, b, n, n, p->k, out[0], i);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_ldl_solve_prepare)
{
    LpMats p = lp_mats_of(r);
    p.k = columns_of(&r->in[2]);
    lp_mats_part(&p, lp_mats_area(&p), lp_mats_size(&p));
    lp_mats_part(&p, (size_t)p.n * (size_t)p.k, lp_mats_size(&p));
    lp_mats_part(&p, (size_t)p.n, sizeof(int));
    return lp_mats_ready(r, k, run_ldl_solve, &p, e);
}

/* ---- least squares ------------------------------------------------------- */
static LpStatus unsolved(const LpMats *p, int64_t i, int info, LpErr *e)
{
    if (p->flag == LP_GELS)
        return lp_mats_fail(p, i, e,
                            "The least squares solution could not be computed "
                            "because the input matrix does not have full rank "
                            "(error code: %d).",
                            info);
    return lp_mats_fail(p, i, e,
                        "The SVD algorithm failed to converge (error code: "
                        "%d).",
                        info);
}

/* A [m, n], B [m, k] -> X [n, k], ranks, singular values. flag: the driver;
 * value: rcond; attributes: driver, rcond */
LP_MATS_CORE(run_lstsq)
{
    void *a = lp_mats_at(p, work, 0), *b = lp_mats_at(p, work, 1);
    void *s = lp_mats_at(p, work, 2);
    int *jpvt = lp_mats_at(p, work, 3), info = 0, rank = 0;
    LpLapackWork w = lp_mats_lapack(p, work, 4);
    int ld = p->m > p->n ? p->m : p->n, less = lp_mats_less(p);
    lp_mats_load(p, in[0], i, p->m, p->n, a, p->m);
    memset(b, 0, (size_t)ld * (size_t)p->k * lp_mats_size(p));
    memset(jpvt, 0, (size_t)p->n * sizeof(int));
    if (less > 0) {
        lp_mats_load(p, in[1], i, p->m, p->k, b, ld);
        info = lp_lstsq(p->type, (LpLstsqDriver)p->flag, p->m, p->n, p->k, a, b,
                        s, jpvt, p->value, &rank, &w);
    }
    if (info > 0)
        return unsolved(p, i, info, e);
    lp_mats_store(p, b, ld, p->n, p->k, out[0], i);
    if (p->flag != LP_GELS)
        ((int64_t *)out[1])[i] = rank;
    if (p->flag == LP_GELSD || p->flag == LP_GELSS)
        memcpy(lp_mats_item(p, out[2], i, 1, less), s,
               (size_t)less * lp_mats_size(p));
    return LP_OK;
}

LpLstsqDriver lp_lstsq_driver(const char *name)
{
    static const char *const names[] = {"gels", "gelsy", "gelsd", "gelss"};
    int d = 0;
    while (d < 4 && strcmp(name, names[d]) != 0)
        d++;
    return (LpLstsqDriver)d;
}

LP_KERNEL_PREPARE(lp_lstsq_prepare)
{
    LpMats p = lp_mats_of(r);
    LpLapackWork w = {0};
    int larger = p.m > p.n ? p.m : p.n, less = lp_mats_less(&p), rank;
    size_t size = lp_mats_size(&p);
    p.k = columns_of(&r->in[1]);
    p.flag = (int)lp_lstsq_driver(r->attr[LP_LSTSQ_DRIVER].str);
    p.value = r->attr[LP_LSTSQ_RCOND].kind == LP_ATTR_FLOAT
                  ? r->attr[LP_LSTSQ_RCOND].f
                  : larger * (p.type == LP_F64 ? 0x1p-52 : 0x1p-23);
    strcpy(p.who, "torch.linalg.lstsq");
    if (less > 0)
        lp_lstsq(p.type, (LpLstsqDriver)p.flag, p.m, p.n, p.k, NULL, NULL, NULL,
                 NULL, p.value, &rank, &w);
    lp_mats_part(&p, lp_mats_area(&p), size);
    lp_mats_part(&p, (size_t)larger * (size_t)p.k, size);
    lp_mats_part(&p, (size_t)less, size);
    lp_mats_part(&p, (size_t)p.n, sizeof(int));
    lp_mats_scratch(&p, &w);
    return lp_mats_ready(r, k, run_lstsq, &p, e);
}
