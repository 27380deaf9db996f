/* The exponential of a matrix: scaling and squaring about the Padé
 * approximant of order 13 (Higham, SIAM J. Matrix Anal. 26, 2005), in float64.
 * exp(A^T) = exp(A)^T, so rows may be read as columns. */
#include <math.h>
#include <string.h>

#include "src/kernel/linalg/linalg_kernel.h"

#define THETA 5.371920351148152 /* norm up to which the approximant is exact */

/* Coefficients b0 … b13. */
static const double pade[14] = {64764752532480000,
                                32382376266240000,
                                7771770303897600,
                                1187353796428800,
                                129060195264000,
                                10559470521600,
                                670442572800,
                                33522128640,
                                1323241920,
                                40840800,
                                960960,
                                16380,
                                182,
                                1};

/* The largest sum of absolute values of a row; NaN if there is one. */
static double norm_of(const double *a, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++)
            sum += fabs(a[(int64_t)i * n + j]);
        if (!(sum <= most))
            most = sum;
    }
    return most;
}

/* to = c6 a6 + c4 a4 + c2 a2 + c0 I */
static void combine(int n, const double *const p[3], const double c[4],
                    double *to)
{
    int64_t all = (int64_t)n * n;
    for (int64_t i = 0; i < all; i++)
        to[i] = c[0] * p[2][i] + c[1] * p[1][i] + c[2] * p[0][i];
    for (int64_t i = 0; i < n; i++)
        to[i * n + i] += c[3];
}

static void product(int n, const double *x, const double *y, double *to)
{
    lp_blas_gemm(LP_F64, 'N', n, n, n, x, y, to);
}

/* r = exp(a); m: seven matrices to work on, a is scaled. */
static void expm(int n, double *a, double *m, int *piv, double *r)
{
    int64_t all = (int64_t)n * n;
    double *a2 = m, *a4 = m + all, *a6 = m + 2 * all, *t = m + 3 * all;
    double *u = m + 4 * all, *v = m + 5 * all, *odd = m + 6 * all;
    const double *const powers[3] = {a2, a4, a6};
    double norm = norm_of(a, n);
    int halvings = norm > THETA ? (int)ceil(log2(norm / THETA)) : 0;
    for (int64_t i = 0; i < all; i++)
        a[i] = ldexp(a[i], -halvings);
    product(n, a, a, a2);
    product(n, a2, a2, a4);
    product(n, a2, a4, a6);
    const double *b = pade;
    combine(n, powers, (const double[]){b[13], b[11], b[9], 0}, t);
    product(n, a6, t, odd);
    combine(n, powers, (const double[]){b[7], b[5], b[3], b[1]}, t);
    for (int64_t i = 0; i < all; i++)
        t[i] += odd[i];
    product(n, a, t, u);
    combine(n, powers, (const double[]){b[12], b[10], b[8], 0}, t);
    product(n, a6, t, v);
    combine(n, powers, (const double[]){b[6], b[4], b[2], b[0]}, t);
    for (int64_t i = 0; i < all; i++) {
        v[i] += t[i];
        r[i] = v[i] + u[i];
        v[i] -= u[i];
    }
    lp_getrf(LP_F64, n, n, v, piv);
    lp_getrs(LP_F64, 'N', n, n, v, piv, r);
    for (; halvings > 0; halvings--) {
        product(n, r, r, t);
        memcpy(r, t, (size_t)all * sizeof *r);
    }
}

LP_MATS_CORE(run_exp)
{
    int64_t all = (int64_t)p->n * p->n;
    double *a = lp_mats_at(p, work, 0);
    if (p->n == 0)
        return LP_OK;
    double *r = (double *)out[0] + i * all;
    memcpy(a, (double *)in[0] + i * all, (size_t)all * sizeof *a);
    if (isfinite(norm_of(a, p->n)))
        expm(p->n, a, a + all, lp_mats_at(p, work, 1), r);
    else
        for (int64_t j = 0; j < all; j++)
            r[j] = (double)NAN;
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_matrix_exp_prepare)
{
    LpMats p = lp_mats_of(r);
    p.type = LP_F64;
    lp_mats_part(&p, 8 * (size_t)p.n * (size_t)p.n, sizeof(double));
    lp_mats_part(&p, (size_t)p.n, sizeof(int));
    return lp_mats_ready(r, k, run_exp, &p, e);
}
