/* LU, Cholesky, LDL: factorisations of square systems, and what is made of
 * them. A factor's gradient needs triangular solves alone. */
#include "src/kernel/linalg/linalg_kernel.h"
#include "src/ops/layout_cost.h"
#include "src/ops/linalg/linalg.h"

/* ---- LU ------------------------------------------------------------------ */
static LpStatus infer_lu(LpInfer *x)
{
    LpType t = x->in[0];
    LP_TRY(lp_check_matrix(x->err, x->attr[LP_LU_WHO].str, &t));
    LP_FAIL_IF(!x->attr[LP_LU_PIVOT].i, x->err, LP_E_RUNTIME,
               "%s: LU without pivoting is not implemented on the CPU",
               x->attr[LP_LU_WHO].str);
    int64_t k = lp_shorter(&t);
    x->out[0] = t;
    t.dtype = LP_I32;
    t.ndim -= 2;
    x->out[2] = t;
    t.shape[t.ndim++] = k;
    x->out[1] = t;
    return LP_OK;
}

static LpVal lu_matrix(LpBuilder *b, LpVal pivots, int64_t m, LpDtype t)
{
    LpAttr a[] = {lp_attr_int(m), lp_attr_dtype(t)};
    return lp_emit(b, LP_OP_lu_matrix, &pivots, 1, a);
}

/* Unit lower and upper factor of what the factorisation left in one matrix. */
static LpVal lower_of(LpBuilder *b, LpVal lu)
{
    LpType t = lp_type_of(b, lu);
    LpVal l = lp_tril(b, lp_first(b, lu, -1, lp_shorter(&t)), -1);
    return lp_add(b, l, lp_eye(b, lp_rows(&t), lp_shorter(&t), t.dtype));
}
static LpVal upper_of(LpBuilder *b, LpVal lu)
{
    LpType t = lp_type_of(b, lu);
    return lp_triu(b, lp_first(b, lu, -2, lp_shorter(&t)), 0);
}

/* A = P L U, L m x k, U k x n, and g the derivatives of both in one matrix.
 * With U1 and L1 the first k columns and rows, square,
 *   m <= n: P L^-T [ tril(L^T gL - gU U^T, -1) U1^-T + gU1 | gU2 ]
 *   m > n:  P [ gL1 + L1^-T triu(gU U^T - L^T gL) ; gL2 ] U^-T
 * (gL strictly lower, gU upper). */
static void grad_lu(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpType t = lp_type_of(b, g->in[0]);
    int64_t m = lp_rows(&t), n = lp_cols(&t), k = lp_shorter(&t);
    if (!g->dout[0] || lp_failed(b))
        return;
    LpVal lu = g->out[0], p = lu_matrix(b, g->out[1], m, t.dtype);
    LpVal l = lower_of(b, lu), u = upper_of(b, lu);
    LpVal gl = lp_tril(b, lp_first(b, g->dout[0], -1, k), -1);
    LpVal gu = lp_triu(b, lp_first(b, g->dout[0], -2, k), 0);
    LpVal by_l = lp_matmul(b, lp_mt(b, l), gl);
    LpVal by_u = lp_matmul(b, gu, lp_mt(b, u));
    if (m <= n) {
        LpVal u1 = lp_first(b, u, -1, k), r = lp_sub(b, by_l, by_u);
        r = lp_triangular(b, lp_mt(b, u1), lp_tril(b, r, -1), false, false,
                          false);
        r = lp_add(b, r, lp_first(b, gu, -1, k));
        LpVal both[] = {r, lp_rest(b, gu, -1, k)};
        if (n > k && !lp_failed(b))
            r = lp_cat(b, both, 2, t.ndim - 1);
        r = lp_triangular(b, lp_mt(b, l), r, true, true, true);
        g->din[0] = lp_matmul(b, p, r);
        return;
    }
    LpVal l1 = lp_first(b, l, -2, k), r = lp_sub(b, by_u, by_l);
    r = lp_triangular(b, lp_mt(b, l1), lp_triu(b, r, 0), true, true, true);
    r = lp_add(b, r, lp_first(b, gl, -2, k));
    LpVal both[] = {r, lp_rest(b, gl, -2, k)};
    if (!lp_failed(b))
        r = lp_cat(b, both, 2, t.ndim - 2);
    r = lp_triangular(b, lp_mt(b, u), r, false, false, false);
    g->din[0] = lp_matmul(b, p, r);
}

LP_PRIMITIVE(lu_factor_ex,
             "lu_factor_ex.own(Tensor A, bool check_errors=False, str "
             "who='torch.linalg.lu_factor_ex', bool pivot=True) -> (Tensor LU, "
             "Tensor pivots, Tensor info) @p\n"
             "lu_factor_ex(Tensor A, *, bool pivot=True, bool "
             "check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info) "
             "@lo\n"
             "lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor "
             "pivots) @lo ;check_errors=True who='torch.linalg.lu_factor'",
             infer_lu, lp_lu_prepare, lp_rule_linalg, .grad = grad_lu,
             .grad_out = 3, .data = &lp_linalg_one)

static LpStatus infer_lu_matrix(LpInfer *x)
{
    LpType t = x->in[0];
    LP_FAIL_IF(t.ndim < 1 || t.dtype != LP_I32, x->err, LP_E_RUNTIME,
               "lu_unpack: LU_pivots must be an int32 tensor of at least 1 "
               "dimension, got %s of %d",
               lp_dtype_name(t.dtype), t.ndim);
    LP_FAIL_IF(x->attr[LP_LU_MATRIX_ROWS].i < t.shape[t.ndim - 1] ||
                   x->attr[LP_LU_MATRIX_ROWS].i > INT32_MAX / 16,
               x->err, LP_E_RUNTIME,
               "lu_unpack: %lld rows and %lld pivots do not fit",
               (long long)x->attr[LP_LU_MATRIX_ROWS].i,
               (long long)t.shape[t.ndim - 1]);
    LpDtype to = (LpDtype)x->attr[LP_LU_MATRIX_DTYPE].i;
    LP_FAIL_IF(to != LP_F32 && to != LP_F64, x->err, LP_E_NOT_IMPLEMENTED,
               "lu_unpack: dtype %s is not supported, only float32 and float64",
               lp_dtype_name(to));
    t.dtype = to;
    t.shape[t.ndim - 1] = t.shape[t.ndim] = x->attr[LP_LU_MATRIX_ROWS].i;
    t.ndim++;
    x->out[0] = t;
    return LP_OK;
}

LP_PRIMITIVE(lu_matrix,
             "lu_matrix(Tensor pivots, int rows, ScalarType dtype) -> Tensor "
             "@p",
             infer_lu_matrix, lp_lu_matrix_prepare, lp_rule_fill,
             .no_grad = "pivots are whole numbers")

static bool lu_fits(LpBuilder *b, LpVal lu, LpVal pivots, const char *who)
{
    LpType t = lp_type_of(b, lu), p = lp_type_of(b, pivots);
    if (lp_failed(b) || lp_check_matrix(b->err, who, &t) != LP_OK)
        return false;
    bool same = p.ndim == t.ndim - 1 && p.shape[p.ndim - 1] == lp_shorter(&t) &&
                lp_sizes_eq(&p, &t, p.ndim - 1);
    if (!same)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: LU_pivots must have the batch of LU_data and as many "
                "elements in a row as the matrices have rows and columns, got "
                "the shapes %s and %s",
                who, lp_shape_str(&p), lp_shape_str(&t));
    return same;
}

/* An empty tensor in place of what is not asked for. */
static LpVal nothing(LpBuilder *b, LpDtype t)
{
    LpType none = {.dtype = t, .ndim = 1};
    return lp_full(b, &none, lp_int(0));
}

LP_COMPOSITE(lu_unpack,
             "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool "
             "unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor "
             "L, Tensor U) @fo")
{
    if (!lu_fits(b, in[0], in[1], "lu_unpack"))
        return;
    LpType t = lp_type_of(b, in[0]);
    bool data = attr[0].i != 0, pivots = attr[1].i != 0;
    out[0] = pivots ? lu_matrix(b, in[1], lp_rows(&t), t.dtype)
                    : nothing(b, t.dtype);
    out[1] = data ? lower_of(b, in[0]) : nothing(b, t.dtype);
    out[2] = data ? upper_of(b, in[0]) : nothing(b, t.dtype);
}

LP_COMPOSITE(lu_parts,
             "lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor "
             "U) @lo")
{
    LpAttr a[] = {lp_attr_bool(false), lp_attr_str("linalg.lu"), attr[0]};
    LpVal f[3];
    if (!lp_emit_n(b, LP_OP_lu_factor_ex, &in[0], 1, a, f))
        return;
    LpType t = lp_type_of(b, in[0]);
    out[0] = lu_matrix(b, f[1], lp_rows(&t), t.dtype);
    out[1] = lower_of(b, f[0]);
    out[2] = upper_of(b, f[0]);
}

/* A X = B by A = P L U; adjoint: A^T X = B. X A = B is A^T X^T = B^T. */
static LpVal lu_solve(LpBuilder *b, LpVal lu, LpVal p, LpVal rhs, bool adjoint)
{
    if (adjoint) {
        LpVal y = lp_triangular(b, lp_mt(b, lu), rhs, false, true, false);
        y = lp_triangular(b, lp_mt(b, lu), y, true, true, true);
        return lp_matmul(b, p, y);
    }
    LpVal y = lp_matmul(b, lp_mt(b, p), rhs);
    y = lp_triangular(b, lu, y, false, true, true);
    return lp_triangular(b, lu, y, true, true, false);
}

LP_FORMULA(lu_solve,
           "lu_solve.own(Tensor LU, Tensor pivots, Tensor B, bool left=True, "
           "bool adjoint=False) -> Tensor @p\n"
           "lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, "
           "bool adjoint=False) -> Tensor @lo\n"
           "lu_solve.old(Tensor B, Tensor LU, Tensor pivots) -> Tensor @fmo",
           .cast = LP_CAST_WIDE)
{
    bool left = attr[0].i != 0, adjoint = attr[1].i != 0;
    const char *who = "linalg.lu_solve";
    if (!lu_fits(b, in[0], in[1], who))
        return LP_NOVAL;
    LpType t = lp_type_of(b, in[0]), r = lp_type_of(b, in[2]);
    if (lp_check_system(b->err, who, &t, &r, left) != LP_OK)
        return LP_NOVAL;
    LpVal rhs = left ? in[2] : lp_mt(b, in[2]), lu = in[0];
    LpVal p = lu_matrix(b, in[1], lp_rows(&t), t.dtype);
    if (!lp_same_batch(b, &lu, &rhs))
        return LP_NOVAL;
    LpVal x = lu_solve(b, lu, p, rhs, left == adjoint);
    return left ? x : lp_mt(b, x);
}

/* ---- Cholesky ------------------------------------------------------------ */
static LpStatus infer_cholesky(LpInfer *x)
{
    LpType t = x->in[0];
    LP_TRY(lp_check_square(x->err, x->attr[LP_CHOLESKY_WHO].str, &t));
    x->out[0] = t;
    t.ndim -= 2;
    t.dtype = LP_I32;
    x->out[1] = t;
    return LP_OK;
}

/* L^-T sym(L^T gL) L^-1, sym: half of the lower triangle with its mirror. */
static void grad_cholesky(LpGrad *g)
{
    LpBuilder *b = g->b;
    bool upper = g->attr[LP_CHOLESKY_UPPER].i != 0;
    if (!g->dout[0])
        return;
    LpVal l = upper ? lp_mt(b, g->out[0]) : g->out[0];
    LpVal gl = upper ? lp_mt(b, g->dout[0]) : g->dout[0];
    LpVal p = lp_matmul(b, lp_mt(b, l), gl);
    p = lp_add(b, lp_tril(b, p, 0), lp_mt(b, lp_tril(b, p, -1)));
    p = lp_mul(b, p, lp_immf(b, 0.5));
    p = lp_triangular(b, lp_mt(b, l), p, true, true, false);
    g->din[0] = lp_triangular(b, l, p, false, false, false);
}

LP_PRIMITIVE(cholesky_ex,
             "cholesky_ex.own(Tensor A, bool upper=False, bool "
             "check_errors=False, str who='linalg.cholesky_ex') -> (Tensor L, "
             "Tensor info) @p\n"
             "cholesky_ex(Tensor A, *, bool upper=False, bool "
             "check_errors=False) -> (Tensor L, Tensor info) @lo\n"
             "cholesky(Tensor A, *, bool upper=False) -> Tensor @lo "
             ";check_errors=True who='linalg.cholesky'",
             infer_cholesky, lp_cholesky_prepare, lp_rule_linalg,
             .cast = LP_CAST_WIDE, .grad = grad_cholesky, .grad_out = 1,
             .data = &lp_linalg_third)

static LpStatus infer_cholesky_solve(LpInfer *x)
{
    const LpType *a = &x->in[0], *r = &x->in[1];
    LP_TRY(lp_check_system(x->err, "cholesky_solve", a, r, true));
    LP_TRY(lp_check_batch(x->err, "cholesky_solve", "L", a, r));
    x->out[0] = *r;
    return LP_OK;
}

/* As if all of L were read, like PyTorch's: with X = (L L^T)^-1 B,
 * gB = (L L^T)^-1 gX and gL = -(gB X^T + X gB^T) L. */
static void grad_cholesky_solve(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal l = g->in[0];
    LpVal gb = lp_emit(b, LP_OP_cholesky_solve_matrix, (LpVal[]){l, g->dout[0]},
                       2, g->attr);
    g->din[1] = gb;
    if (!g->need[0])
        return;
    LpVal c = lp_matmul(b, gb, lp_mt(b, g->out[0]));
    c = lp_neg(b, lp_add(b, c, lp_mt(b, c)));
    g->din[0] =
        g->attr[LP_CHOLESKY_UPPER].i ? lp_matmul(b, l, c) : lp_matmul(b, c, l);
}

LP_PRIMITIVE(cholesky_solve_matrix,
             "cholesky_solve_matrix(Tensor L, Tensor B, bool upper=False) -> "
             "Tensor @p",
             infer_cholesky_solve, lp_cholesky_solve_prepare, lp_rule_linalg,
             .grad = grad_cholesky_solve, .grad_in = 1, .grad_out = 1,
             .data = &lp_linalg_one)

LP_FORMULA(cholesky_inverse,
           "cholesky_inverse(Tensor L, bool upper=False) -> Tensor @fmc",
           .cast = LP_CAST_WIDE)
{
    LpType t = lp_type_of(b, in[0]);
    if (lp_check_square(b->err, "cholesky_inverse", &t) != LP_OK)
        return LP_NOVAL;
    return lp_emit(b, LP_OP_cholesky_solve_matrix,
                   (LpVal[]){in[0], lp_eye_like(b, &t)}, 2, attr);
}

LP_FORMULA(cholesky_solve,
           "cholesky_solve(Tensor B, Tensor L, bool upper=False) -> Tensor "
           "@fmc",
           .cast = LP_CAST_WIDE)
{
    LpType r = lp_type_of(b, in[0]), t = lp_type_of(b, in[1]);
    LpVal l = in[1], x = in[0];
    if (lp_check_system(b->err, "cholesky_solve", &t, &r, true) != LP_OK ||
        !lp_same_batch(b, &l, &x))
        return LP_NOVAL;
    return lp_emit(b, LP_OP_cholesky_solve_matrix, (LpVal[]){l, x}, 2, attr);
}

/* ---- LDL ----------------------------------------------------------------- */
static LpStatus infer_ldl(LpInfer *x)
{
    LpType t = x->in[0];
    LP_TRY(lp_check_square(x->err, x->attr[LP_LDL_WHO].str, &t));
    x->out[0] = t;
    t.dtype = LP_I32;
    t.ndim--;
    x->out[1] = t;
    t.ndim--;
    x->out[2] = t;
    return LP_OK;
}

LP_PRIMITIVE(ldl_factor_ex,
             "ldl_factor_ex.own(Tensor A, bool check_errors=False, str "
             "who='torch.linalg.ldl_factor_ex', bool hermitian=False) -> "
             "(Tensor LD, Tensor pivots, Tensor info) @p\n"
             "ldl_factor_ex(Tensor A, *, bool hermitian=False, bool "
             "check_errors=False) -> (Tensor LD, Tensor pivots, Tensor info) "
             "@lo\n"
             "ldl_factor(Tensor A, *, bool hermitian=False) -> (Tensor LD, "
             "Tensor pivots) @lo ;check_errors=True "
             "who='torch.linalg.ldl_factor'",
             infer_ldl, lp_ldl_prepare, lp_rule_linalg,
             .no_grad = "PyTorch has none either", .data = &lp_linalg_third)

static LpStatus infer_ldl_solve(LpInfer *x)
{
    const char *who = "torch.linalg.ldl_solve";
    const LpType *t = &x->in[0], *p = &x->in[1], *r = &x->in[2];
    LP_TRY(lp_check_system(x->err, who, t, r, true));
    bool fits = p->ndim == t->ndim - 1 && lp_sizes_eq(p, t, p->ndim);
    LP_FAIL_IF(!fits || lp_is_float(p->dtype), x->err, LP_E_RUNTIME,
               "%s: pivots must be whole numbers of LD's shape without its "
               "last dimension, got %s of shape %s with LD of shape %s",
               who, lp_dtype_name(p->dtype), lp_shape_str(p), lp_shape_str(t));
    LP_TRY(lp_check_batch(x->err, who, "LD", t, r));
    x->out[0] = *r;
    return LP_OK;
}

/* Batches of LD and B are broadcast; pivots have the batch of LD. */
LP_FORMULA(ldl_solve,
           "ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool "
           "hermitian=False) -> Tensor @lo",
           .no_grad = "PyTorch has none either")
{
    LpType t = lp_type_of(b, in[0]), p = lp_type_of(b, in[1]);
    LpType r = lp_type_of(b, in[2]);
    LpVal x[] = {in[0], in[1], in[2]};
    const char *who = "torch.linalg.ldl_solve";
    if (lp_check_system(b->err, who, &t, &r, true) != LP_OK)
        return LP_NOVAL;
    if (p.ndim == t.ndim - 1 && lp_same_batch(b, &x[0], &x[2])) {
        t = lp_type_of(b, x[0]);
        LpType to = t;
        to.ndim--;
        to.shape[to.ndim] = 0;
        to.shape[to.ndim - 1] = p.shape[p.ndim - 1];
        x[1] = lp_expand_as(b, x[1], &to);
    }
    return lp_emit(b, LP_OP_ldl_solve_matrix, x, 3, attr);
}

LP_PRIMITIVE(ldl_solve_matrix,
             "ldl_solve_matrix(Tensor LD, Tensor pivots, Tensor B, *, bool "
             "hermitian=False) -> Tensor @p",
             infer_ldl_solve, lp_ldl_solve_prepare, lp_rule_linalg,
             .no_grad = "PyTorch has none either", .data = &lp_linalg_one)
