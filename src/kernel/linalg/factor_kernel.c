/* Factorisations: LU, Cholesky, QR, LDL, and the determinants that come of
 * LU. */
#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/linalg/linalg_kernel.h"

/* ---- LU ------------------------------------------------------------------ */
/* A -> LU, pivots, info; attributes: check_errors, who */
LP_MATS_CORE(run_lu)
{
    int k = lp_mats_less(p), *piv = lp_mats_at(p, work, 1);
    int64_t *pivots = out[1], *info = out[2];
    void *a = lp_mats_at(p, work, 0);
    lp_mats_load(p, in[0], i, p->m, p->n, a, p->m);
    info[i] = k > 0 ? lp_getrf(p->type, p->m, p->n, a, piv) : 0;
    for (int j = 0; j < k; j++)
        pivots[i * k + j] = piv[j];
    lp_mats_store(p, a, p->m, p->m, p->n, out[0], i);
    if (info[i] != 0 && p->check)
        return lp_mats_fail(
            p, i, e,
            "U[%d,%d] is zero and using it on lu_solve would result in a "
            "division by zero. If you still want to perform the "
            "factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)",
            (int)info[i], (int)info[i]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_lu_prepare)
{
    LpMats p = lp_mats_of(r);
    p.check = r->attr[LP_LU_CHECK_ERRORS].i != 0;
    lp_mats_who(&p, &r->attr[LP_LU_WHO]);
    lp_mats_part(&p, lp_mats_area(&p), lp_mats_size(&p));
    lp_mats_part(&p, (size_t)lp_mats_less(&p), sizeof(int));
    return lp_mats_ready(r, k, run_lu, &p, e);
}

/* pivots [.., k] -> P [.., m, m] with A = P L U: the rows of the unit matrix,
 * exchanged as the pivots say, are the columns. */
LP_MATS_CORE(run_lu_matrix)
{
    const int64_t *pivots = in[0];
    int *row = lp_mats_at(p, work, 0), m = p->m, k = p->k;
    char *to =
        (char *)out[0] + (size_t)i * (size_t)m * (size_t)m * lp_mats_size(p);
    for (int j = 0; j < m; j++)
        row[j] = j;
    for (int j = 0; j < k; j++) {
        int64_t with = pivots[i * k + j] - 1;
        LP_FAIL_IF(with < 0 || with >= m, e, LP_E_INDEX,
                   "lu_unpack: a pivot is %lld; it must lie between 1 and "
                   "%d",
                   (long long)with + 1, m);
        int was = row[j];
        row[j] = row[with];
        row[with] = was;
    }
    memset(to, 0, (size_t)m * (size_t)m * lp_mats_size(p));
    for (int j = 0; j < m; j++)
        lp_real_set(p->type, to, (int64_t)row[j] * m + j, 1);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_lu_matrix_prepare)
{
    const LpDesc *d = &r->in[0];
    LpMats p = {.type = r->out[0].dtype, .threads = 1};
    p.batch = lp_elements(d->shape, d->ndim - 1);
    p.k = (int)d->shape[d->ndim - 1];
    p.m = (int)r->attr[LP_LU_MATRIX_ROWS].i;
    lp_mats_part(&p, (size_t)p.m, sizeof(int));
    return lp_mats_ready(r, k, run_lu_matrix, &p, e);
}

/* ---- determinants -------------------------------------------------------- */
/* The LU factors of the transpose have the same determinant. Gives the sign
 * and the logarithm; *value is the product. */
static double determinant(const LpMats *p, const void *from, void *a, int *piv,
                          double *sign, double *value)
{
    int n = p->n;
    double log_sum = 0;
    *sign = *value = 1;
    memcpy(a, from, lp_mats_area(p) * lp_mats_size(p));
    if (n > 0)
        lp_getrf(p->type, n, n, a, piv);
    for (int j = 0; j < n; j++) {
        double d = lp_real_at(p->type, a, (int64_t)j * n + j);
        if (piv[j] != j + 1)
            *sign = -*sign;
        *value *= d;
        *sign *= d > 0 ? 1 : d < 0 ? -1 : d;
        log_sum += log(fabs(d));
    }
    return log_sum;
}

/* flag: slogdet's two results, else det's one */
LP_MATS_CORE(run_det)
{
    void *a = lp_mats_at(p, work, 0);
    int *piv = lp_mats_at(p, work, 1);
    double sign, value, exchanges = 1;
    double logs = determinant(p, lp_mats_item(p, in[0], i, p->m, p->n), a, piv,
                              &sign, &value);
    for (int j = 0; j < p->n; j++)
        exchanges = piv[j] != j + 1 ? -exchanges : exchanges;
    if (p->flag) {
        lp_real_set(p->type, out[0], i, sign);
        lp_real_set(p->type, out[1], i, logs);
    } else {
        lp_real_set(p->type, out[0], i, value * exchanges);
    }
    return LP_OK;
}

static LpStatus prepare_det(const LpKernelReq *r, bool logs, LpKernel *k,
                            LpErr *e)
{
    LpMats p = lp_mats_of(r);
    p.flag = logs;
    lp_mats_part(&p, lp_mats_area(&p), lp_mats_size(&p));
    lp_mats_part(&p, (size_t)p.n, sizeof(int));
    return lp_mats_ready(r, k, run_det, &p, e);
}

LP_PREPARE_AS(lp_det_prepare, prepare_det(r, false, k, e))
LP_PREPARE_AS(lp_slogdet_prepare, prepare_det(r, true, k, e))

/* ---- Cholesky ------------------------------------------------------------ */
/* A -> L, info; attributes: upper, check_errors, who. The lower triangle of
 * rows is the upper one of columns, so the factor is made in place. */
LP_MATS_CORE(run_cholesky)
{
    int n = p->n;
    int64_t *info = out[1];
    void *l = lp_mats_item(p, out[0], i, n, n);
    lp_mats_copy(p, in[0], i, n, n, l);
    info[i] = n > 0 ? lp_potrf(p->type, p->flag ? 'L' : 'U', n, l) : 0;
    for (int64_t row = 0; row < n; row++) { /* the other triangle */
        int64_t first = p->flag ? row * n : row * n + row + 1;
        int64_t count = p->flag ? row : n - row - 1;
        memset((char *)l + (size_t)first * lp_mats_size(p), 0,
               (size_t)count * lp_mats_size(p));
    }
    if (info[i] != 0 && p->check)
        return lp_mats_fail(
            p, i, e,
            "The factorization could not be completed because the input "
            "is not positive-definite (the leading minor of order %d is "
            "not positive-definite).",
            (int)info[i]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_cholesky_prepare)
{
    LpMats p = lp_mats_of(r);
    p.flag = r->attr[LP_CHOLESKY_UPPER].i != 0;
    p.check = r->attr[LP_CHOLESKY_CHECK_ERRORS].i != 0;
    lp_mats_who(&p, &r->attr[LP_CHOLESKY_WHO]);
    return lp_mats_ready(r, k, run_cholesky, &p, e);
}

/* ---- QR ------------------------------------------------------------------ */
/* A -> Q, R; k: columns of Q and rows of R; flag: no Q. */
LP_MATS_CORE(run_qr)
{
    void *a = lp_mats_at(p, work, 0), *tau = lp_mats_at(p, work, 1);
    LpLapackWork w = lp_mats_lapack(p, work, 2);
    int m = p->m, n = p->n;
    void *rr = lp_mats_item(p, out[1], i, p->k, n);
    lp_mats_load(p, in[0], i, m, n, a, m);
    if (lp_mats_less(p) > 0)
        lp_geqrf(p->type, m, n, a, tau, &w);
    lp_store_rows(p->type, a, m, p->k, n, rr);
    for (int64_t row = 1; row < p->k; row++)
        memset((char *)rr + (size_t)(row * n) * lp_mats_size(p), 0,
               (size_t)(row < n ? row : n) * lp_mats_size(p));
    if (p->flag || p->k == 0)
        return LP_OK;
    lp_orgqr(p->type, m, p->k, lp_mats_less(p), a, tau, &w);
    lp_mats_store(p, a, m, m, p->k, out[0], i);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_qr_prepare)
{
    LpMats p = lp_mats_of(r);
    LpLapackWork w = {0}, q = {0};
    const LpDesc *rr = &r->out[1];
    p.k = (int)rr->shape[rr->ndim - 2];
    p.flag = r->out[0].ndim == 1; /* mode "r": an empty Q */
    lp_geqrf(p.type, p.m, p.n, NULL, NULL, &w);
    lp_orgqr(p.type, p.m, p.k, lp_mats_less(&p), NULL, NULL, &q);
    w.lwork = w.lwork > q.lwork ? w.lwork : q.lwork;
    lp_mats_part(&p, (size_t)p.m * (size_t)(p.n > p.k ? p.n : p.k),
                 lp_mats_size(&p));
    lp_mats_part(&p, (size_t)lp_mats_less(&p), lp_mats_size(&p));
    lp_mats_scratch(&p, &w);
    return lp_mats_ready(r, k, run_qr, &p, e);
}

/* A -> the reflectors under R, their scales */
LP_MATS_CORE(run_geqrf)
{
    void *a = lp_mats_at(p, work, 0);
    LpLapackWork w = lp_mats_lapack(p, work, 1);
    if (lp_mats_less(p) == 0)
        return LP_OK;
    lp_mats_load(p, in[0], i, p->m, p->n, a, p->m);
    lp_geqrf(p->type, p->m, p->n, a,
             lp_mats_item(p, out[1], i, 1, lp_mats_less(p)), &w);
    lp_mats_store(p, a, p->m, p->m, p->n, out[0], i);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_geqrf_prepare)
{
    LpMats p = lp_mats_of(r);
    LpLapackWork w = {0};
    lp_geqrf(p.type, p.m, p.n, NULL, NULL, &w);
    lp_mats_part(&p, lp_mats_area(&p), lp_mats_size(&p));
    lp_mats_scratch(&p, &w);
    return lp_mats_ready(r, k, run_geqrf, &p, e);
}

/* ---- LDL ----------------------------------------------------------------- */
/* A -> LD, pivots, info; attributes: check_errors, who */
LP_MATS_CORE(run_ldl)
{
    void *a = lp_mats_at(p, work, 0);
    int n = p->n, *piv = lp_mats_at(p, work, 1);
    LpLapackWork w = lp_mats_lapack(p, work, 2);
    int64_t *pivots = out[1], *info = out[2];
    void *to = lp_mats_item(p, out[0], i, n, n);
    lp_mats_load(p, in[0], i, n, n, a, n);
    info[i] = n > 0 ? lp_sytrf(p->type, n, a, piv, &w) : 0;
    for (int j = 0; j < n; j++)
        pivots[i * n + j] = piv[j];
    lp_store_rows(p->type, a, n, n, n, to);
    for (int row = 0; row < n; row++)
        for (int j = row + 1; j < n; j++)
            lp_real_set(p->type, to, (int64_t)row * n + j, 0);
    if (info[i] != 0 && p->check)
        return lp_mats_fail(p, i, e,
                            "The factor D is singular: its diagonal block "
                            "%d is zero.",
                            (int)info[i]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_ldl_prepare)
{
    LpMats p = lp_mats_of(r);
    LpLapackWork w = {0};
    p.check = r->attr[LP_LDL_CHECK_ERRORS].i != 0;
    lp_mats_who(&p, &r->attr[LP_LDL_WHO]);
    lp_sytrf(p.type, p.n, NULL, NULL, &w);
    lp_mats_part(&p, lp_mats_area(&p), lp_mats_size(&p));
    lp_mats_part(&p, (size_t)p.n, sizeof(int));
    lp_mats_scratch(&p, &w);
    return lp_mats_ready(r, k, run_ldl, &p, e);
}
