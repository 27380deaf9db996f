/* QR and what is made of Householder reflectors. */
#include <string.h>

#include "src/kernel/linalg/linalg_kernel.h"
#include "src/ops/linalg/linalg.h"

/* ---- QR ------------------------------------------------------------------ */
static LpStatus infer_qr(LpInfer *x)
{
    LpType t = x->in[0];
    const char *mode = x->attr[0].str;
    LP_TRY(lp_check_matrix(x->err, "linalg.qr", &t));
    bool full = strcmp(mode, "complete") == 0, r = strcmp(mode, "r") == 0;
    LP_FAIL_IF(!full && !r && strcmp(mode, "reduced") != 0, x->err,
               LP_E_RUNTIME,
               "qr received unrecognized mode '%s' but expected one of "
               "'reduced' (default), 'r', or 'complete'",
               mode);
    int64_t k = full ? lp_rows(&t) : lp_shorter(&t);
    x->out[0] = x->out[1] = t;
    x->out[0].shape[t.ndim - 1] = x->out[1].shape[t.ndim - 2] = k;
    if (r)
        x->out[0] = (LpType){.dtype = t.dtype, .ndim = 1};
    return LP_OK;
}

/* Of a square R (rows >= columns of A):
 * [gQ + Q sym(triu(gR R^T - Q^T gQ))] R^-T, sym: the upper triangle with its
 * mirror. */
static LpVal grad_tall(LpBuilder *b, LpVal q, LpVal r, LpVal gq, LpVal gr)
{
    LpVal m = gr ? lp_matmul(b, gr, lp_mt(b, r)) : LP_NOVAL;
    if (gq) {
        LpVal by_q = lp_matmul(b, lp_mt(b, q), gq);
        m = m ? lp_sub(b, m, by_q) : lp_neg(b, by_q);
    }
    m = lp_add(b, lp_triu(b, m, 0), lp_mt(b, lp_triu(b, m, 1)));
    LpVal x = lp_matmul(b, q, m);
    x = gq ? lp_add(b, x, gq) : x;
    return lp_triangular(b, lp_mt(b, r), x, false, false, false);
}

/* A wide A = [A1 A2] has A1 = Q R1 and R2 = Q^T A2. */
static void grad_qr(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpType t = lp_type_of(b, g->in[0]);
    const char *mode = g->attr[0].str;
    int64_t m = lp_rows(&t), n = lp_cols(&t);
    LpVal q = g->out[0], r = g->out[1], gq = g->dout[0], gr = g->dout[1];
    if (lp_failed(b) || (!gq && !gr))
        return;
    if (mode[0] == 'r' && mode[1] == 0) {
        lp_fail(b->err, LP_E_RUNTIME,
                "The derivative of linalg.qr depends on Q, which is not "
                "computed when mode='r'. Please use linalg.qr(A, "
                "mode='reduced') if you are going to require gradients "
                "through linalg.qr.");
        return;
    }
    if (mode[0] == 'c' && m > n) {
        lp_fail(b->err, LP_E_RUNTIME,
                "The QR decomposition is not differentiable when "
                "mode='complete' and nrows > ncols.");
        return;
    }
    if (m >= n) {
        g->din[0] = grad_tall(b, q, r, gq, gr);
        return;
    }
    LpVal parts[2] = {LP_NOVAL, LP_NOVAL};
    if (gr) {
        LpVal gr2 = lp_rest(b, gr, -1, m);
        LpVal by_r = lp_matmul(b, lp_rest(b, g->in[0], -1, m), lp_mt(b, gr2));
        gq = gq ? lp_add(b, gq, by_r) : by_r;
        gr = lp_first(b, gr, -1, m);
        parts[1] = lp_matmul(b, q, gr2);
    } else {
        LpType rest = t;
        rest.shape[t.ndim - 1] = n - m;
        parts[1] = lp_full(b, &rest, lp_int(0));
    }
    parts[0] = grad_tall(b, q, lp_first(b, r, -1, m), gq, gr);
    if (!lp_failed(b))
        g->din[0] = lp_cat(b, parts, 2, t.ndim - 1);
}

LP_PRIMITIVE(qr, "qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R) @lo",
             infer_qr, lp_qr_prepare, lp_rule_linalg, .cast = LP_CAST_WIDE,
             .grad = grad_qr, .grad_in = 1, .grad_out = 3,
             .data = &lp_linalg_two)

static LpStatus infer_geqrf(LpInfer *x)
{
    LpType t = x->in[0];
    LP_TRY(lp_check_matrix(x->err, "geqrf", &t));
    x->out[0] = x->out[1] = t;
    x->out[1].ndim--;
    x->out[1].shape[t.ndim - 2] = lp_shorter(&t);
    return LP_OK;
}

LP_PRIMITIVE(geqrf, "geqrf(Tensor self) -> (Tensor a, Tensor tau) @fmo",
             infer_geqrf, lp_geqrf_prepare, lp_rule_linalg,
             .cast = LP_CAST_WIDE, .no_grad = "PyTorch has none either",
             .data = &lp_linalg_one)

/* ---- reflectors ---------------------------------------------------------- */
/* Column i of A is a reflector I - tau[i] v v^T: v is 0 above row i, 1 there
 * and A's elements below. */
typedef struct Reflectors {
    LpVal v, tau; /* [.., m, k] and [.., k, 1] */
    int k;
} Reflectors;

/* `tall`: the matrix must have at least as many rows as columns. */
static bool reflectors(LpBuilder *b, const char *who, LpVal a, LpVal tau,
                       bool tall, Reflectors *r)
{
    LpType t = lp_type_of(b, a), s = lp_type_of(b, tau);
    if (lp_failed(b) || lp_check_matrix(b->err, who, &t) != LP_OK)
        return false;
    bool fits = s.ndim == t.ndim - 1 && s.dtype == t.dtype &&
                s.shape[s.ndim - 1] <= lp_cols(&t);
    bool wide = tall && lp_rows(&t) < lp_cols(&t);
    fits = fits && s.shape[s.ndim - 1] <= lp_rows(&t) &&
           lp_sizes_eq(&s, &t, s.ndim - 1);
    if (wide || !fits) {
        lp_fail(b->err, LP_E_RUNTIME,
                wide
                    ? "%s: input.shape[-2] must be greater than or equal to "
                      "input.shape[-1], got %s %s"
                    : "%s: tau must have the dtype and the batch of input and "
                      "at most as many elements in a row as input has rows and "
                      "columns, got input %s %s and tau %s %s",
                who, lp_dtype_name(t.dtype), lp_shape_str(&t),
                lp_dtype_name(s.dtype), lp_shape_str(&s));
        return false;
    }
    r->k = (int)s.shape[s.ndim - 1];
    r->v = lp_tril(b, lp_first(b, a, -1, r->k), -1);
    r->v = lp_add(b, r->v, lp_eye(b, lp_rows(&t), r->k, t.dtype));
    r->tau = lp_unsqueeze(b, tau, -1);
    return !lp_failed(b);
}

/* H_i x */
static LpVal reflect(LpBuilder *b, const Reflectors *r, int i, LpVal x)
{
    int n = lp_type(b, r->v)->ndim;
    LpVal v = lp_slice(b, r->v, n - 1, i, i + 1, 1);
    LpVal tau = lp_slice(b, r->tau, n - 2, i, i + 1, 1);
    LpVal along = lp_matmul(b, lp_mt(b, v), x);
    return lp_sub(b, x, lp_matmul(b, lp_mul(b, v, tau), along));
}

LP_FORMULA(householder_product,
           "householder_product(Tensor input, Tensor tau) -> Tensor @lc\n"
           "orgqr(Tensor input, Tensor tau) -> Tensor @fmc",
           .cast = LP_CAST_WIDE)
{
    Reflectors r;
    if (!reflectors(b, "torch.linalg.householder_product", in[0], in[1], true,
                    &r))
        return LP_NOVAL;
    LpType t = lp_type_of(b, in[0]);
    LpVal q = lp_expand_as(b, lp_eye(b, lp_rows(&t), lp_cols(&t), t.dtype), &t);
    for (int i = r.k; i-- > 0 && !lp_failed(b);)
        q = reflect(b, &r, i, q);
    return r.k == 0 ? lp_regardless(b, q, in[0]) : q;
}

/* Q x, Q^T x, and x Q = (Q^T x^T)^T with the whole Q of rows x rows. */
LP_FORMULA(ormqr,
           "ormqr(Tensor input, Tensor tau, Tensor other, bool left=True, "
           "bool transpose=False) -> Tensor @fmo",
           .cast = LP_CAST_WIDE)
{
    Reflectors r;
    bool left = attr[0].i != 0, transpose = (attr[1].i != 0) == left;
    if (!reflectors(b, "ormqr", in[0], in[1], false, &r))
        return LP_NOVAL;
    LpType t = lp_type_of(b, in[0]), c = lp_type_of(b, in[2]);
    bool fits = c.ndim == t.ndim && c.dtype == t.dtype &&
                (left ? lp_rows(&c) : lp_cols(&c)) == lp_rows(&t) &&
                lp_sizes_eq(&c, &t, t.ndim - 2);
    if (!fits) {
        lp_fail(b->err, LP_E_RUNTIME,
                "torch.ormqr: other must have the dtype and the batch of "
                "input, and its %s must be input's rows, got input %s %s and "
                "other %s %s",
                left ? "rows" : "columns", lp_dtype_name(t.dtype),
                lp_shape_str(&t), lp_dtype_name(c.dtype), lp_shape_str(&c));
        return LP_NOVAL;
    }
    LpVal x = left ? in[2] : lp_mt(b, in[2]);
    for (int i = 0; i < r.k && !lp_failed(b); i++)
        x = reflect(b, &r, transpose ? i : r.k - 1 - i, x);
    x = left ? x : lp_mt(b, x);
    return r.k == 0 ? lp_clone(b, x) : x;
}
