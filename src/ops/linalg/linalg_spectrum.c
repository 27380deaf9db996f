/* Singular and eigenvalues, and what is made of them. */
#include <math.h>
#include <string.h>

#include "src/kernel/linalg/linalg_kernel.h"
#include "src/ops/linalg/linalg.h"

/* x times a diagonal matrix, from the right and from the left. */
static LpVal columns_by(LpBuilder *b, LpVal x, LpVal d)
{
    return lp_mul(b, x, lp_unsqueeze(b, d, -2));
}
static LpVal rows_by(LpBuilder *b, LpVal x, LpVal d)
{
    return lp_mul(b, x, lp_unsqueeze(b, d, -1));
}
/* d[j] - d[i], with 1 on the diagonal. */
static LpVal differences(LpBuilder *b, LpVal d)
{
    LpVal e = lp_sub(b, lp_unsqueeze(b, d, -2), lp_unsqueeze(b, d, -1));
    LpType t = lp_type_of(b, e);
    return lp_add(b, e, lp_eye(b, lp_rows(&t), lp_rows(&t), t.dtype));
}

/* ---- singular values ----------------------------------------------------- */
static LpStatus infer_svd(LpInfer *x)
{
    LpType t = x->in[0];
    bool full = x->attr[LP_SVD_FULL_MATRICES].i != 0;
    LP_TRY(lp_check_matrix(x->err, "linalg.svd", &t));
    int64_t k = lp_shorter(&t);
    x->out[0] = x->out[1] = x->out[2] = t;
    x->out[0].shape[t.ndim - 1] = full ? lp_rows(&t) : k;
    x->out[1].ndim--;
    x->out[1].shape[t.ndim - 2] = k;
    x->out[2].shape[t.ndim - 2] = full ? lp_cols(&t) : k;
    return LP_OK;
}

/* (x - x^T) / (s[j]^2 - s[i]^2) */
static LpVal turned(LpBuilder *b, LpVal x, LpVal e)
{
    return lp_div(b, lp_sub(b, x, lp_mt(b, x)), e);
}

/* With U, V of min(m, n) columns and X = V^T:
 * U [ (skew(U^T gU) / E) S + S (skew(V^T gV) / E) + gS ] V^T
 *   + (1 - U U^T) gU S^-1 V^T + U S^-1 gV^T (1 - V V^T) */
static void grad_svd(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpType t = lp_type_of(b, g->in[0]);
    int64_t m = lp_rows(&t), n = lp_cols(&t), k = lp_shorter(&t);
    LpVal u = lp_first(b, g->out[0], -1, k), s = g->out[1];
    LpVal vh = lp_first(b, g->out[2], -2, k);
    if (lp_failed(b))
        return;
    LpVal gu = g->dout[0] ? lp_first(b, g->dout[0], -1, k) : LP_NOVAL;
    LpVal gvh = g->dout[2] ? lp_first(b, g->dout[2], -2, k) : LP_NOVAL;
    LpVal inner = g->dout[1] ? lp_diagonal_of(b, g->dout[1]) : LP_NOVAL;
    LpVal e = gu || gvh ? differences(b, lp_mul(b, s, s)) : LP_NOVAL;
    LpVal ugu = gu ? lp_matmul(b, lp_mt(b, u), gu) : LP_NOVAL;
    LpVal gvv = gvh ? lp_matmul(b, gvh, lp_mt(b, vh)) : LP_NOVAL;
    if (gu) {
        LpVal x = columns_by(b, turned(b, ugu, e), s);
        inner = inner ? lp_add(b, inner, x) : x;
    }
    if (gvh) { /* V^T gV is the transpose of gV^T V */
        LpVal x = rows_by(b, turned(b, lp_mt(b, gvv), e), s);
        inner = inner ? lp_add(b, inner, x) : x;
    }
    if (!inner)
        return;
    LpVal left = lp_matmul(b, u, inner);
    if (gu && m > k) {
        LpVal x = lp_sub(b, gu, lp_matmul(b, u, ugu));
        left = lp_add(b, left, lp_div(b, x, lp_unsqueeze(b, s, -2)));
    }
    LpVal r = lp_matmul(b, left, vh);
    if (gvh && n > k) {
        LpVal x = lp_sub(b, gvh, lp_matmul(b, gvv, vh));
        x = lp_div(b, x, lp_unsqueeze(b, s, -1));
        r = lp_add(b, r, lp_matmul(b, u, x));
    }
    g->din[0] = r;
}

LP_PRIMITIVE(svd,
             "svd(Tensor A, bool full_matrices=True) -> (Tensor U, Tensor S, "
             "Tensor Vh) @lo",
             infer_svd, lp_svd_prepare, lp_rule_linalg, .cast = LP_CAST_WIDE,
             .grad = grad_svd, .grad_out = 7, .data = &lp_linalg_twenty)

/* torch.svd: V, not its transpose; some, compute_uv */
LP_COMPOSITE(svd_old,
             "svd.old(Tensor self, bool some=True, bool compute_uv=True) -> "
             "(Tensor U, Tensor S, Tensor V) @fmo",
             .cast = LP_CAST_WIDE)
{
    LpAttr a = lp_attr_bool(!attr[0].i);
    LpVal r[3];
    if (!lp_emit_n(b, LP_OP_svd, &in[0], 1, &a, r))
        return;
    LpType u = lp_type_of(b, r[0]), v = lp_type_of(b, r[2]);
    out[0] = attr[1].i ? r[0] : lp_full(b, &u, lp_int(0));
    out[1] = r[1];
    out[2] = attr[1].i ? lp_mt(b, r[2]) : lp_full(b, &v, lp_int(0));
}

static LpStatus infer_svdvals(LpInfer *x)
{
    LpType t = x->in[0];
    LP_TRY(lp_check_matrix(x->err, "linalg.svdvals", &t));
    t.shape[t.ndim - 2] = lp_shorter(&t);
    t.ndim--;
    x->out[0] = t;
    return LP_OK;
}

static void grad_svdvals(LpGrad *g)
{
    LpAttr a = lp_attr_bool(false);
    LpVal r[3];
    if (!lp_emit_n(g->b, LP_OP_svd, &g->in[0], 1, &a, r))
        return;
    g->din[0] = lp_matmul(g->b, columns_by(g->b, r[0], g->dout[0]), r[2]);
}

LP_PRIMITIVE(svdvals, "svdvals(Tensor A) -> Tensor @lo", infer_svdvals,
             lp_svdvals_prepare, lp_rule_linalg, .cast = LP_CAST_WIDE,
             .grad = grad_svdvals, .grad_in = 1, .data = &lp_linalg_two)

/* ---- eigenvalues of symmetric matrices ----------------------------------- */
static LpStatus infer_eigh(LpInfer *x)
{
    LpType t = x->in[0];
    const char *uplo = x->attr[LP_EIGH_UPLO].str;
    LP_TRY(lp_check_square(x->err, "linalg.eigh", &t));
    LP_FAIL_IF(strchr("LUlu", uplo[0]) == NULL || strlen(uplo) != 1, x->err,
               LP_E_RUNTIME,
               "Expected UPLO argument to be 'L' or 'U', but got %s", uplo);
    x->attr[LP_EIGH_UPLO] =
        lp_attr_str(uplo[0] == 'u' || uplo[0] == 'U' ? "U" : "L");
    if (x->n_out > 1)
        x->out[1] = t;
    t.ndim--;
    x->out[0] = t;
    return LP_OK;
}

/* V [ (V^T gV) / (L[j] - L[i]) + gL ] V^T */
static void grad_eigh(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal l = g->out[0], v = g->out[1], r = LP_NOVAL;
    LpType t = lp_type_of(b, v);
    if (g->dout[1]) {
        LpVal eye = lp_eye(b, lp_cols(&t), lp_cols(&t), t.dtype);
        LpVal off = lp_sub(b, lp_immf(b, 1), eye);
        r = lp_matmul(b, lp_mt(b, v), g->dout[1]);
        r = lp_mul(b, lp_div(b, r, differences(b, l)), off);
    }
    if (g->dout[0]) {
        LpVal d = lp_diagonal_of(b, g->dout[0]);
        r = r ? lp_add(b, r, d) : d;
    }
    if (r)
        g->din[0] = lp_matmul(b, v, lp_matmul(b, r, lp_mt(b, v)));
}

LP_PRIMITIVE(eigh,
             "eigh(Tensor A, str UPLO='L') -> (Tensor eigenvalues, Tensor "
             "eigenvectors) @lo",
             infer_eigh, lp_eigh_prepare, lp_rule_linalg, .cast = LP_CAST_WIDE,
             .grad = grad_eigh, .grad_out = 3, .data = &lp_linalg_ten)

static void grad_eigvalsh(LpGrad *g)
{
    LpVal r[2];
    if (!lp_emit_n(g->b, LP_OP_eigh, &g->in[0], 1, g->attr, r))
        return;
    LpVal v = columns_by(g->b, r[1], g->dout[0]);
    g->din[0] = lp_matmul(g->b, v, lp_mt(g->b, r[1]));
}

LP_PRIMITIVE(eigvalsh, "eigvalsh(Tensor A, str UPLO='L') -> Tensor @lo",
             infer_eigh, lp_eigvalsh_prepare, lp_rule_linalg,
             .cast = LP_CAST_WIDE, .grad = grad_eigvalsh, .grad_in = 1,
             .data = &lp_linalg_two)

/* ---- pseudo-inverse, rank ------------------------------------------------ */
/* operands: A, atol and rtol of the batch's shape or holes; attribute:
 * hermitian */
static LpStatus infer_pinv(LpInfer *x)
{
    LpType t = x->in[0], batch = t;
    const char *who = "linalg.pinv";
    LP_TRY(x->attr[LP_PINV_HERMITIAN].i ? lp_check_square(x->err, who, &t)
                                        : lp_check_matrix(x->err, who, &t));
    batch.ndim -= 2;
    for (int i = 1; i < x->n_in; i++)
        LP_FAIL_IF(
            x->in[i].dtype != LP_DT_NONE &&
                (x->in[i].dtype != t.dtype || !lp_shape_eq(&x->in[i], &batch)),
            x->err, LP_E_RUNTIME,
            "linalg.pinv: %s must have the dtype and the batch of A",
            i == 1 ? "atol" : "rtol");
    x->out[0] = t;
    x->out[0].shape[t.ndim - 2] = lp_cols(&t);
    x->out[0].shape[t.ndim - 1] = lp_rows(&t);
    return LP_OK;
}

/* Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973, multiplied so that the
 * small side is the inner one. P = pinv(A), h = g^T. */
LpVal lp_pinv_grad(LpBuilder *b, LpVal a, LpVal p, LpVal g)
{
    LpVal h = lp_mt(b, g), pt = lp_mt(b, p);
    LpType t = lp_type_of(b, a);
    if (lp_failed(b))
        return LP_NOVAL;
    if (lp_rows(&t) <= lp_cols(&t)) {
        LpVal k = lp_matmul(b, h, p), kp = lp_matmul(b, k, pt);
        LpVal r = lp_sub(b, kp, lp_mt(b, lp_matmul(b, p, k)));
        r = lp_sub(b, r, lp_matmul(b, lp_matmul(b, a, p), kp));
        LpVal rest = lp_sub(b, h, lp_matmul(b, k, a));
        return lp_add(b, r, lp_matmul(b, lp_matmul(b, pt, p), rest));
    }
    LpVal k = lp_matmul(b, p, h), pk = lp_matmul(b, pt, k);
    LpVal r = lp_sub(b, pk, lp_mt(b, lp_matmul(b, k, p)));
    r = lp_sub(b, r, lp_matmul(b, lp_matmul(b, pk, p), a));
    LpVal rest = lp_sub(b, h, lp_matmul(b, a, k));
    return lp_add(b, r, lp_matmul(b, lp_matmul(b, rest, p), pt));
}

static void grad_pinv(LpGrad *g)
{
    g->din[0] = lp_pinv_grad(g->b, g->in[0], g->out[0], g->dout[0]);
}

LP_PRIMITIVE(pinv_matrix,
             "pinv_matrix(Tensor A, Tensor? atol, Tensor? rtol, bool "
             "hermitian=False) -> Tensor @p",
             infer_pinv, lp_pinv_prepare, lp_rule_linalg, .grad = grad_pinv,
             .grad_in = 1, .grad_out = 1, .data = &lp_linalg_twenty)

/* A tolerance, number or tensor, spread over the batch of t. */
static LpVal tolerance(LpBuilder *b, LpVal v, const LpType *t)
{
    LpType batch = *t;
    batch.ndim -= 2;
    if (v == LP_NOVAL || lp_failed(b))
        return LP_NOVAL;
    if (lp_is_imm(v))
        return lp_full(b, &batch, b->imm(b, v));
    LpVal x = lp_cast(b, lp_op1(b, LP_OP_detach, v), t->dtype);
    return lp_expand_as(b, x, &batch);
}

LP_FORMULA(pinv, "pinv.own(Tensor A, Value? atol=None, Value? rtol=None, bool "
                 "hermitian=False) -> Tensor @p\n"
                 "pinv(Tensor A, *, Value? atol=None, Value? rtol=None, bool "
                 "hermitian=False) -> Tensor @lc\n"
                 "pinv.rcond(Tensor A, Value rtol, bool hermitian=False) -> "
                 "Tensor @lc\n"
                 "pinverse(Tensor A, Value rtol=1e-15) -> Tensor @fm")
{
    LpType t = lp_type_of(b, in[0]);
    if (lp_failed(b) || lp_check_matrix(b->err, "linalg.pinv", &t) != LP_OK)
        return LP_NOVAL;
    LpVal v[] = {in[0], tolerance(b, in[1], &t), tolerance(b, in[2], &t)};
    return lp_emit(b, LP_OP_pinv_matrix, v, 3, attr);
}

/* Singular values above max(atol, rtol * the largest). */
static LpVal rank_of(LpBuilder *b, LpVal s, const LpVal *in, const LpType *t)
{
    int64_t last = -1;
    LpVal most = lp_amax(b, s, &last, 1, false), least;
    double eps = t->dtype == LP_F64 ? 0x1p-52 : 0x1p-23;
    int64_t larger = lp_rows(t) > lp_cols(t) ? lp_rows(t) : lp_cols(t);
    LpVal own = lp_immf(b, eps * (double)larger), rtol = in[2];
    if (rtol == LP_NOVAL && in[1] != LP_NOVAL) {
        LpVal positive = lp_op2(b, LP_OP_gt, in[1], lp_immi(b, 0));
        rtol = lp_where(b, positive, lp_immf(b, 0), own);
    }
    least = lp_mul(b, most, rtol == LP_NOVAL ? own : rtol);
    if (in[1] != LP_NOVAL)
        least = lp_op2(b, LP_OP_maximum, least, in[1]);
    LpVal above = lp_op2(b, LP_OP_gt, s, lp_unsqueeze(b, least, -1));
    return lp_sum(b, above, &last, 1, false);
}

LP_FORMULA(matrix_rank,
           "matrix_rank.own(Tensor A, Value? atol=None, Value? rtol=None, "
           "bool hermitian=False) -> Tensor @p\n"
           "matrix_rank(Tensor A, *, Value? atol=None, Value? rtol=None, "
           "bool hermitian=False) -> Tensor @lc\n"
           "matrix_rank.tol(Tensor A, Value atol, bool hermitian=False) -> "
           "Tensor @lc ;rtol=0.0",
           .cast = LP_CAST_WIDE)
{
    LpType t = lp_type_of(b, in[0]);
    bool symmetric = attr[0].i != 0;
    const char *who = "linalg.matrix_rank";
    if (lp_failed(b) || lp_check_matrix(b->err, who, &t) != LP_OK)
        return LP_NOVAL;
    bool empty = lp_shorter(&t) == 0;
    if (symmetric && !empty && lp_check_square(b->err, who, &t) != LP_OK)
        return LP_NOVAL;
    LpVal x = lp_op1(b, LP_OP_detach, in[0]);
    if (empty) {
        t.ndim -= 2;
        t.dtype = LP_I64;
        return lp_full(b, &t, lp_int(0));
    }
    LpVal s = LP_NOVAL;
    LpAttr a = lp_attr_str("L");
    if (symmetric)
        s = lp_op1(b, LP_OP_abs, lp_emit(b, LP_OP_eigvalsh, &x, 1, &a));
    else
        s = lp_op1(b, LP_OP_svdvals, x);
    LpVal v[3] = {x, in[1], in[2]};
    for (int i = 1; i < 3; i++)
        if (v[i] != LP_NOVAL && !lp_is_imm(v[i]))
            v[i] = lp_op1(b, LP_OP_detach, v[i]);
    return rank_of(b, s, v, &t);
}

/* ---- exponential --------------------------------------------------------- */
static LpStatus infer_exp(LpInfer *x)
{
    LpType t = x->in[0];
    if (t.dtype == LP_F16 || t.dtype == LP_BF16) /* computed in float64 */
        t.dtype = LP_F32;
    LP_TRY(lp_check_square(x->err, "linalg.matrix_exp", &t));
    x->out[0] = x->in[0];
    return LP_OK;
}

/* The upper right block of exp([[A^T, g], [0, A^T]]). */
static void grad_exp(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal at = lp_mt(b, g->in[0]);
    LpType t = lp_type_of(b, at);
    int n = t.ndim;
    if (lp_failed(b))
        return;
    LpVal top[] = {at, g->dout[0]}, low[] = {lp_full(b, &t, lp_int(0)), at};
    LpVal rows[] = {lp_cat(b, top, 2, n - 1), lp_cat(b, low, 2, n - 1)};
    if (lp_failed(b))
        return;
    LpVal e = lp_op1(b, LP_OP_matrix_exp, lp_cat(b, rows, 2, n - 2));
    e = lp_first(b, e, -2, lp_rows(&t));
    g->din[0] = lp_rest(b, e, -1, lp_rows(&t));
}

LP_PRIMITIVE(matrix_exp, "matrix_exp(Tensor A) -> Tensor @fml", infer_exp,
             lp_matrix_exp_prepare, lp_rule_linalg, .grad = grad_exp,
             .grad_in = 1, .data = &lp_linalg_ten)
