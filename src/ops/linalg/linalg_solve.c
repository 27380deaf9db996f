/* Systems of equations, inverses, determinants. */
#include <math.h>

#include "src/kernel/linalg/linalg_kernel.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/linalg/linalg.h"

#define MT(x) lp_mt(g->b, x)

/* ---- the primitive systems ---------------------------------------------- */
static LpStatus infer_solve(LpInfer *x)
{
    LP_TRY(lp_check_system(x->err, x->attr[LP_LU_WHO].str, &x->in[0], &x->in[1],
                           true));
    LP_TRY(lp_check_batch(x->err, x->attr[LP_LU_WHO].str, "A", &x->in[0],
                          &x->in[1]));
    x->out[0] = x->out[1] = x->in[1];
    x->out[1].ndim -= 2;
    x->out[2] = x->out[3] = x->in[0];
    x->out[3].ndim--;
    x->out[1].dtype = x->out[3].dtype = LP_I32;
    return LP_OK;
}

/* The factors serve the transpose too; what depends on them depends on A, and
 * that is where its gradient goes. */
static void grad_solve(LpGrad *g)
{
    if (!g->dout[0])
        return;
    LpVal in[] = {g->in[0], g->out[2], g->out[3], g->dout[0]};
    LpVal gb = lp_emit(g->b, LP_OP_solve_turned, in, 4, NULL);
    g->din[1] = gb;
    if (g->need[0])
        g->din[0] = lp_neg(g->b, lp_matmul(g->b, gb, MT(g->out[0])));
}

LP_PRIMITIVE(solve_matrix,
             "solve_matrix(Tensor A, Tensor B, bool check_errors=False, str "
             "who='linalg.solve') -> (Tensor result, Tensor info, Tensor "
             "factors, Tensor pivots) @p",
             infer_solve, lp_solve_prepare, lp_rule_linalg, .grad = grad_solve,
             .grad_in = 1, .grad_out = 13, .data = &lp_linalg_third)

/* A^T X = B, by the factors that solve_matrix gave. */
static LpStatus infer_turned(LpInfer *x)
{
    const char *who = "linalg.solve";
    LpType pivots = x->in[0];
    pivots.ndim--;
    LP_TRY(lp_check_system(x->err, who, &x->in[0], &x->in[3], true));
    LP_TRY(lp_check_batch(x->err, who, "A", &x->in[0], &x->in[3]));
    LP_FAIL_IF(!lp_shape_eq(&x->in[1], &x->in[0]) ||
                   x->in[1].dtype != x->in[0].dtype ||
                   !lp_shape_eq(&x->in[2], &pivots) || x->in[2].dtype != LP_I32,
               x->err, LP_E_RUNTIME,
               "solve_turned: the factors must be like A, and pivots int32, "
               "one a row; got shapes %s and %s",
               lp_shape_str(&x->in[1]), lp_shape_str(&x->in[2]));
    x->out[0] = x->in[3];
    return LP_OK;
}

static void grad_turned(LpGrad *g)
{
    LpVal gb = lp_solve(g->b, g->in[0], g->dout[0]);
    g->din[3] = gb;
    if (g->need[0])
        g->din[0] = lp_neg(g->b, lp_matmul(g->b, g->out[0], MT(gb)));
}

LP_PRIMITIVE(solve_turned,
             "solve_turned(Tensor A, Tensor factors, Tensor pivots, Tensor B) "
             "-> Tensor @p",
             infer_turned, lp_solve_turned_prepare, lp_rule_linalg,
             .grad = grad_turned, .grad_in = 1, .grad_out = 1,
             .data = &(const double){0})

static LpStatus infer_inverse(LpInfer *x)
{
    LP_TRY(lp_check_square(x->err, x->attr[LP_LU_WHO].str, &x->in[0]));
    x->out[0] = x->out[1] = x->in[0];
    x->out[1].ndim -= 2;
    x->out[1].dtype = LP_I32;
    return LP_OK;
}

static void grad_inverse(LpGrad *g)
{
    if (!g->dout[0])
        return;
    LpVal x = MT(g->out[0]);
    LpVal gx = lp_matmul(g->b, lp_matmul(g->b, x, g->dout[0]), x);
    g->din[0] = lp_neg(g->b, gx);
}

LP_PRIMITIVE(inverse_matrix,
             "inverse_matrix(Tensor A, bool check_errors=False, str "
             "who='linalg.inv') -> (Tensor result, Tensor info) @p",
             infer_inverse, lp_inverse_prepare, lp_rule_linalg,
             .grad = grad_inverse, .grad_out = 1, .data = &lp_linalg_one)

static LpStatus infer_triangular(LpInfer *x)
{
    const char *who = "linalg.solve_triangular";
    LP_TRY(lp_check_system(x->err, who, &x->in[0], &x->in[1],
                           x->attr[LP_TRIANGULAR_LEFT].i != 0));
    LP_TRY(lp_check_batch(x->err, who, "A", &x->in[0], &x->in[1]));
    x->out[0] = x->in[1];
    return LP_OK;
}

static void grad_triangular(LpGrad *g)
{
    bool upper = g->attr[LP_TRIANGULAR_UPPER].i,
         left = g->attr[LP_TRIANGULAR_LEFT].i,
         unit = g->attr[LP_TRIANGULAR_UNITRIANGULAR].i;
    LpVal gb =
        lp_triangular(g->b, MT(g->in[0]), g->dout[0], !upper, left, unit);
    g->din[1] = gb;
    if (!g->need[0])
        return;
    LpVal ga = left ? lp_matmul(g->b, gb, MT(g->out[0]))
                    : lp_matmul(g->b, MT(g->out[0]), gb);
    ga = upper ? lp_triu(g->b, ga, unit) : lp_tril(g->b, ga, -(int)unit);
    g->din[0] = lp_neg(g->b, ga);
}

static void cost_triangular(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *a = &r->in[0], *b = &r->in[1];
    bool left = r->attr[LP_TRIANGULAR_LEFT].i;
    int64_t n = a->shape[a->ndim - 1], all = lp_numel(b);
    LpTriangular s = {.count = lp_elements(a->shape, a->ndim - 2),
                      .n = n,
                      .k = b->shape[b->ndim - (left ? 1 : 2)],
                      .upper = r->attr[LP_TRIANGULAR_UPPER].i == left,
                      .unit = r->attr[LP_TRIANGULAR_UNITRIANGULAR].i};
    if (n > 0 && all > 0)
        lp_cost_add(out, lp_cost_triangular(&x, lp_cost_type(a->dtype), &s));
}

LP_PRIMITIVE(triangular,
             "triangular(Tensor A, Tensor B, bool upper, bool left=True, bool "
             "unitriangular=False) -> Tensor @p",
             infer_triangular, lp_solve_triangular_prepare, cost_triangular,
             .grad = grad_triangular, .grad_in = 1, .grad_out = 1)

/* ---- as asked ------------------------------------------------------------ */
LP_FORMULA(solve_triangular,
           "solve_triangular.own(Tensor A, Tensor B, bool upper, bool "
           "left=True, bool unitriangular=False) -> Tensor @p\n"
           "solve_triangular(Tensor A, Tensor B, *, bool upper, bool "
           "left=True, bool unitriangular=False) -> Tensor @lo")
{
    LpVal a = in[0], rhs = in[1];
    LpType t = lp_type_of(b, a), r = lp_type_of(b, rhs);
    if (lp_check_system(b->err, "linalg.solve_triangular", &t, &r,
                        attr[1].i != 0) != LP_OK ||
        !lp_same_batch(b, &a, &rhs))
        return LP_NOVAL;
    return lp_emit(b, LP_OP_triangular, (LpVal[]){a, rhs}, 2, attr);
}

/* The older name: operands exchanged, the matrix given back. */
LP_COMPOSITE(triangular_solve,
             "triangular_solve(Tensor self, Tensor A, bool upper=True, bool "
             "transpose=False, bool unitriangular=False) -> (Tensor solution, "
             "Tensor cloned_coefficient) @fmo",
             .cast = LP_CAST_WIDE)
{
    LpVal a = attr[1].i ? lp_mt(b, in[1]) : in[1], rhs = in[0];
    LpType t = lp_type_of(b, a), r = lp_type_of(b, rhs);
    if (lp_check_system(b->err, "triangular_solve", &t, &r, true) != LP_OK ||
        !lp_same_batch(b, &a, &rhs))
        return;
    out[0] = lp_triangular(b, a, rhs, (attr[0].i != 0) != (attr[1].i != 0),
                           true, attr[2].i != 0);
    out[1] = lp_clone(b, in[1]);
}

LP_COMPOSITE(solve_ex,
             "solve_ex.own(Tensor A, Tensor B, bool left=True, bool "
             "check_errors=False, str who='torch.linalg.solve_ex') -> (Tensor "
             "result, Tensor info) @p\n"
             "solve_ex(Tensor A, Tensor B, *, bool left=True, bool "
             "check_errors=False) -> (Tensor result, Tensor info) @lo\n"
             "solve(Tensor A, Tensor B, *, bool left=True) -> Tensor @lo "
             ";check_errors=True who='torch.linalg.solve'",
             .cast = LP_CAST_WIDE)
{
    LpAttr a[] = {attr[1], attr[2]};
    LpVal m = in[0], rhs = in[1], r[4] = {0};
    bool left = attr[0].i != 0;
    LpType t = lp_type_of(b, m), tb = lp_type_of(b, rhs);
    const char *name = "linalg.solve";
    if (lp_check_square(b->err, name, &t) != LP_OK)
        return;
    bool vector = lp_is_vector_rhs(&t, &tb);
    if (vector && !left) {
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: Vector broadcasting of the left hand side is not "
                "supported for left=False. In this case linalg.solve is "
                "equivalent to B / A.squeeze(-1)",
                name);
        return;
    }
    rhs = vector ? lp_unsqueeze(b, rhs, -1) : rhs;
    tb = lp_type_of(b, rhs);
    if (lp_check_system(b->err, name, &t, &tb, left) != LP_OK)
        return;
    m = left ? m : lp_mt(b, m);
    rhs = left ? rhs : lp_mt(b, rhs);
    if (!lp_same_batch(b, &m, &rhs) ||
        !lp_emit_n(b, LP_OP_solve_matrix, (LpVal[]){m, rhs}, 2, a, r))
        return;
    LpType to = lp_type_of(b, r[0]);
    out[1] = r[1];
    out[0] = left ? r[0] : lp_mt(b, r[0]);
    if (vector)
        out[0] = lp_reshape(b, r[0], to.shape, to.ndim - 1);
}

LP_COMPOSITE(inv_ex,
             "inv_ex.own(Tensor A, bool check_errors=False, str "
             "who='linalg.inv_ex') -> (Tensor inverse, Tensor info) @p\n"
             "inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, "
             "Tensor info) @lo\n"
             "inv(Tensor A) -> Tensor @lo ;check_errors=True who='linalg.inv'\n"
             "inverse(Tensor A) -> Tensor @fmo ;check_errors=True "
             "who='linalg.inv'",
             .cast = LP_CAST_WIDE)
{
    LpType t = lp_type_of(b, in[0]);
    LpVal r[2] = {0};
    if (lp_failed(b) || lp_check_square(b->err, "linalg.inv", &t) != LP_OK)
        return;
    lp_emit_n(b, LP_OP_inverse_matrix, in, 1, attr, r);
    out[0] = r[0];
    out[1] = r[1];
}

/* ---- determinants -------------------------------------------------------- */
static LpStatus infer_det(LpInfer *x)
{
    LpType t = x->in[0];
    const char *who = x->op == &op_slogdet ? "linalg.slogdet" : "linalg.det";
    LP_TRY(lp_check_square(x->err, who, &t));
    t.ndim -= 2;
    for (int i = 0; i < x->n_out; i++)
        x->out[i] = t;
    return LP_OK;
}

/* A number a matrix, to be multiplied with matrices. */
static LpVal as_matrix(LpBuilder *b, LpVal x)
{
    return lp_unsqueeze(b, lp_unsqueeze(b, x, -1), -1);
}

static void grad_det(LpGrad *g)
{
    LpVal c = lp_op1(g->b, LP_OP_cofactor, g->in[0]);
    g->din[0] = lp_mul(g->b, as_matrix(g->b, g->dout[0]), c);
}

LP_PRIMITIVE(det,
             "det(Tensor A) -> Tensor @fm\n"
             "det(Tensor A) -> Tensor @lo",
             infer_det, lp_det_prepare, lp_rule_linalg, .grad = grad_det,
             .grad_in = 1, .data = &lp_linalg_third)

static LpStatus infer_cofactor(LpInfer *x)
{
    LP_TRY(lp_check_square(x->err, "linalg.det", &x->in[0]));
    x->out[0] = x->in[0];
    return LP_OK;
}

/* C = det(A) A^-T, so the derivative along g is
 * (<g, C> C - C g^T C) / det(A): not defined for singular matrices. */
static void grad_cofactor(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal c = g->out[0], dy = g->dout[0];
    LpVal d = as_matrix(b, lp_op1(b, LP_OP_det, g->in[0]));
    LpVal along = lp_sum(b, lp_mul(b, dy, c), (int64_t[]){-2, -1}, 2, true);
    LpVal turned = lp_matmul(b, lp_matmul(b, c, lp_mt(b, dy)), c);
    g->din[0] = lp_div(b, lp_sub(b, lp_mul(b, along, c), turned), d);
}

/* The matrix of cofactors: the determinant's derivative. */
LP_PRIMITIVE(cofactor, "cofactor(Tensor A) -> Tensor @p", infer_cofactor,
             lp_cofactor_prepare, lp_rule_linalg, .grad = grad_cofactor,
             .grad_in = 1, .grad_out = 1, .data = &lp_linalg_twenty)

static void grad_slogdet(LpGrad *g)
{
    if (!g->dout[1])
        return;
    LpVal x = lp_inverse(g->b, g->in[0], false, NULL);
    g->din[0] = lp_mul(g->b, as_matrix(g->b, g->dout[1]), MT(x));
}

LP_PRIMITIVE(slogdet,
             "slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet) @fmlo",
             infer_det, lp_slogdet_prepare, lp_rule_linalg,
             .grad = grad_slogdet, .grad_in = 1, .data = &lp_linalg_third)

/* NaN where the determinant is negative. */
LP_FORMULA(logdet, "logdet(Tensor self) -> Tensor @fm")
{
    LpVal r[2];
    LpType t = lp_type_of(b, in[0]);
    if (lp_check_square(b->err, "logdet", &t) != LP_OK ||
        !lp_emit_n(b, LP_OP_slogdet, &in[0], 1, NULL, r))
        return LP_NOVAL;
    LpVal below = lp_op2(b, LP_OP_lt, r[0], lp_immi(b, 0));
    return lp_where(b, below, lp_immf(b, (double)NAN), r[1]);
}

/* ---- powers, tensors as matrices ----------------------------------------- */
/* Binary: squares of A, those of the bits of n multiplied. */
static LpVal power(LpBuilder *b, LpVal x, int64_t n)
{
    LpVal r = LP_NOVAL;
    for (; n > 0 && !lp_failed(b); n >>= 1) {
        if (n & 1)
            r = r ? lp_matmul(b, r, x) : x;
        if (n > 1)
            x = lp_matmul(b, x, x);
    }
    return r;
}

LP_FORMULA(matrix_power, "matrix_power(Tensor A, int n) -> Tensor @fmlc",
           .cast = LP_CAST_NARROW)
{
    LpType t = lp_type_of(b, in[0]);
    int64_t n = attr[0].i;
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.ndim < 2 || lp_rows(&t) != lp_cols(&t) || n == INT64_MIN) {
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "linalg.matrix_power: A must be batches of square "
                         "matrices and n above -2^63, got A of shape %s and n "
                         "%lld",
                         lp_shape_str(&t), (long long)n);
    }
    if (n < 0 && lp_check_square(b->err, "linalg.inv", &t) != LP_OK)
        return LP_NOVAL;
    return n < 0    ? power(b, lp_inverse(b, in[0], true, NULL), -n)
           : n == 0 ? lp_regardless(b, lp_eye_like(b, &t), in[0])
           : n == 1 ? lp_clone(b, in[0])
                    : power(b, in[0], n);
}

LP_FORMULA(tensorinv, "tensorinv(Tensor A, int ind=2) -> Tensor @lc",
           .cast = LP_CAST_WIDE)
{
    LpType t = lp_type_of(b, in[0]);
    int64_t ind = attr[0].i, shape[LP_MAX_DIMS];
    if (ind <= 0)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "Expected a strictly positive integer for 'ind', but got %lld",
            (long long)ind);
    int k = ind < t.ndim ? (int)ind : t.ndim;
    int64_t rows = lp_elements(t.shape, k),
            cols = lp_elements(t.shape + k, t.ndim - k);
    if (rows != cols)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "Expected self to satisfy the requirement prod(self.shape[ind:"
            "]) == prod(self.shape[:ind]), but got %lld != %lld",
            (long long)cols, (long long)rows);
    LpVal x = lp_reshape(b, in[0], (int64_t[]){rows, cols}, 2);
    LpType flat = lp_type_of(b, x);
    if (lp_check_square(b->err, "linalg.tensorinv", &flat) != LP_OK)
        return LP_NOVAL;
    x = lp_inverse(b, x, true, NULL);
    for (int i = 0; i < t.ndim; i++)
        shape[i] = t.shape[(i + k) % t.ndim];
    return lp_reshape(b, x, shape, t.ndim);
}

/* A with the listed dimensions last, in their order. */
static LpVal listed_last(LpBuilder *b, LpVal a, const LpAttr *dims)
{
    int n = lp_type(b, a)->ndim, rest = 0;
    int64_t order[2 * LP_MAX_DIMS];
    bool last[LP_MAX_DIMS] = {false};
    if (dims->n > n)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "tensorsolve: dims lists %d dimensions of a tensor of %d", dims->n,
            n);
    for (int i = 0; i < dims->n; i++) {
        int d = lp_wrapped(b, dims->v[i], n);
        last[d] = true;
        order[n - dims->n + i] = d;
    }
    for (int i = 0; i < n; i++)
        if (!last[i])
            order[rest++] = i;
    if (rest != n - dims->n)
        lp_fail(b->err, LP_E_RUNTIME,
                "tensorsolve: dims names a dimension more than once");
    return lp_permute(b, a, order, n);
}

LP_FORMULA(tensorsolve,
           "tensorsolve(Tensor A, Tensor B, int[]? dims=None) -> Tensor @lc",
           .cast = LP_CAST_WIDE)
{
    LpVal a = in[0];
    if (!lp_attr_none(&attr[0]))
        a = listed_last(b, a, &attr[0]);
    LpType t = lp_type_of(b, a), r = lp_type_of(b, in[1]);
    if (lp_failed(b))
        return LP_NOVAL;
    int k = r.ndim < t.ndim ? r.ndim : t.ndim;
    int64_t rows = lp_elements(t.shape, k),
            cols = lp_elements(t.shape + k, t.ndim - k);
    if (rows != cols || lp_numel(&r) != rows)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "Expected self to satisfy the requirement prod(self.shape["
            "other.ndim:]) == prod(self.shape[:other.ndim]), but got %lld "
            "!= %lld",
            (long long)cols, (long long)rows);
    LpVal m = lp_reshape(b, a, (int64_t[]){rows, cols}, 2);
    LpVal x = lp_reshape(b, in[1], (int64_t[]){rows}, 1);
    LpAttr at[] = {lp_attr_bool(true), lp_attr_bool(true),
                   lp_attr_str("torch.linalg.solve")};
    LpVal v = lp_emit(b, LP_OP_solve_ex, (LpVal[]){m, x}, 2, at);
    return lp_reshape(b, v, t.shape + k, t.ndim - k);
}
