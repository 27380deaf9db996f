/* Operations that PopLibs composes of elementwise passes, reductions and
 * products: softmax, normalisations and triangular systems. Source: PL
 * popnn/NonLinearity, popnn/GroupNorm and poplin/TriangularSolve. */
#include "runtime/cost/units.h"

/* Rows of neighbouring elements, each reduced to one. */
static LpCost reduce_rows(const LpCostCtx *x, LpRedOp op, LpCostType t,
                          int64_t rows, int64_t n)
{
    int64_t shape[2] = {rows, n / lp_max(rows, 1)};
    return lp_cost_reduce(x, op, t, shape, 2, 2);
}

LpCost lp_cost_softmax(const LpCostCtx *x, LpCostType t, int64_t rows,
                       int64_t cols)
{
    int64_t n = lp_mul_sat(rows, cols);
    if (n <= 0)
        return (LpCost){0};
    LpCost c = reduce_rows(x, LP_RED_MAX, t, rows, n);
    lp_cost_add(&c, lp_cost_broadcast(x, LP_EW_sub, t, n, rows, n / rows));
    lp_cost_add(&c,
                lp_cost_elementwise(x, LP_EW_exp, LP_EW_UNARY_INPLACE, t, n));
    lp_cost_add(&c, reduce_rows(x, LP_RED_ADD, t, rows, n));
    lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_inverse, LP_EW_UNARY,
                                        LP_COST_FLOAT, rows));
    lp_cost_add(&c, lp_cost_cast(x, LP_COST_FLOAT, t, rows));
    lp_cost_add(&c, lp_cost_broadcast(x, LP_EW_mul, t, n, rows, n / rows));
    return c;
}

LpCost lp_cost_softmax_grad(const LpCostCtx *x, LpCostType t, int64_t rows,
                            int64_t cols)
{
    int64_t n = lp_mul_sat(rows, cols);
    if (n <= 0)
        return (LpCost){0};
    LpCost c = lp_cost_elementwise(x, LP_EW_mul, LP_EW_BINARY, t, n);
    lp_cost_add(&c, reduce_rows(x, LP_RED_ADD, t, rows, n));
    lp_cost_add(&c, lp_cost_broadcast(x, LP_EW_mul, t, n, rows, n / rows));
    lp_cost_add(&c,
                lp_cost_elementwise(x, LP_EW_sub, LP_EW_BINARY_INPLACE, t, n));
    return c;
}

/* Mean and inverse standard deviation from sums: four small operations. */
static LpCost statistics(const LpCostCtx *x, int64_t n_stats)
{
    LpCostType f = LP_COST_FLOAT;
    LpCost c = lp_cost_elementwise(x, LP_EW_mul, LP_EW_SCALAR, f, n_stats);
    lp_cost_add(&c,
                lp_cost_elementwise(x, LP_EW_square, LP_EW_UNARY, f, n_stats));
    lp_cost_add(&c,
                lp_cost_elementwise(x, LP_EW_sub, LP_EW_BINARY, f, n_stats));
    lp_cost_add(&c,
                lp_cost_elementwise(x, LP_EW_rsqrt, LP_EW_UNARY, f, n_stats));
    return c;
}

LpCost lp_cost_norm(const LpCostCtx *x, LpCostType t, int64_t n,
                    int64_t n_stats, int64_t chans, bool inference)
{
    LpCost c = {0};
    if (n <= 0 || n_stats <= 0)
        return c;
    if (!inference) {
        /* one pass takes the sum and the sum of squares: the dearer counts */
        c = reduce_rows(x, LP_RED_SQUARE_ADD, t, n_stats, n);
        c.flops = lp_mul_sat(n, 3);
        lp_cost_add(&c, statistics(x, n_stats));
    }
    if (!inference && x->stable_norm) {
        /* the mean by itself, and the differences that are squared */
        lp_cost_add(&c, reduce_rows(x, LP_RED_ADD, t, n_stats, n));
        lp_cost_add(
            &c, lp_cost_broadcast(x, LP_EW_sub, t, n, n_stats, n / n_stats));
    }
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_sub, t, n, n_stats, n / n_stats));
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_mul, t, n, n_stats, n / n_stats));
    lp_cost_add(&c, lp_cost_broadcast(x, LP_EW_mul, t, n, chans, 1));
    lp_cost_add(&c, lp_cost_broadcast(x, LP_EW_add, t, n, chans, 1));
    return c;
}

LpCost lp_cost_norm_grad(const LpCostCtx *x, LpCostType t, int64_t n,
                         int64_t n_stats, int64_t chans)
{
    LpCost c = {0};
    if (n <= 0 || n_stats <= 0)
        return c;
    if (chans > 0) {
        /* gradients of gamma and beta: g * xhat, then one joint reduction */
        c = lp_cost_elementwise(x, LP_EW_mul, LP_EW_BINARY, t, n);
        int64_t shape[3] = {2, n / chans, chans};
        lp_cost_add(&c, lp_cost_reduce(x, LP_RED_ADD, t, shape, 3, 2));
        lp_cost_add(&c, lp_cost_broadcast(x, LP_EW_mul, t, n, chans, 1));
    }
    lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_mul, LP_EW_BINARY, t, n));
    lp_cost_add(&c,
                reduce_rows(x, LP_RED_ADD, t, 2 * n_stats, lp_mul_sat(n, 2)));
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_mul, t, n, n_stats, n / n_stats));
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_add, t, n, n_stats, n / n_stats));
    lp_cost_add(&c, lp_cost_scaled_add(x, t, n, false));
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_mul, t, n, n_stats, n / n_stats));
    return c;
}

/* A block by substitution: a row's product with what is solved, subtracted from
 * its right-hand side; a vertex of its own for a single one. */
static LpCost substitution(const LpCostCtx *x, LpCostType t,
                           const LpTriangular *s, int64_t n, int64_t k)
{
    LpCost c = {0};
    if (k == 1) {
        bool half = t == LP_COST_HALF;
        int64_t lower =
            half ? 3 * n * n / 4 + 318 * n : 3 * n * n / 2 + 180 * n;
        int64_t upper = half ? 135 * n * n / 16 + 1089 * n / 4
                             : 27 * n * n / 4 + 327 * n / 2;
        cost_step(x, &c,
                  div_up(n * n / 2 * lp_cost_type_bytes(t),
                         x->chip->exchange_bytes_cyc),
                  (Vertices){.id = codelet_id(LP_CODELET_factor, t),
                             .tiles = lp_min(s->count, ctx_tiles(x)),
                             .n = 1,
                             .edges = 3,
                             .scalars = 2,
                             .cyc = 6 * (s->upper ? upper : lower)});
        cost_sync(x, &c, 1);
        c.flops = s->count * n * n;
        c.tiles = (int)lp_min(s->count, ctx_tiles(x));
        cost_codelet(&c, LP_CODELET_factor, t);
        return c;
    }
    int64_t row = lp_mul_sat(s->count, k);
    c = lp_cost_exchange(x, t, row, row);
    for (int64_t i = 1; i < n; i++) {
        LpMatmulShape m = {s->count, 1, i, k};
        lp_cost_add(&c, lp_cost_matmul(x, t, m, LP_PASS_NONE));
        lp_cost_add(&c,
                    lp_cost_elementwise(x, LP_EW_sub, LP_EW_BINARY, t, row));
        lp_cost_add(&c, lp_cost_exchange(x, t, row, row));
    }
    return c;
}

/* Halves of the system and of the right-hand sides: four solutions, of which
 * two wait for a product of the others. */
static LpCost solution(const LpCostCtx *x, LpCostType t, const LpTriangular *s,
                       int64_t n, int64_t k)
{
    enum { BLOCK = 64 }; /* PopLibs' default */
    if (n <= BLOCK)
        return substitution(x, t, s, n, k);
    int64_t half = div_up(n, 2), side = div_up(k, 2), sides = k > 1 ? 2 : 1;
    LpMatmulShape m = {s->count, half, half, side};
    LpCost c = lp_cost_matmul(x, t, m, LP_PASS_NONE);
    lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_sub, LP_EW_BINARY, t,
                                        lp_mul_sat(s->count, half * side)));
    lp_cost_add(&c, lp_cost_repeat(solution(x, t, s, half, side), 2));
    return lp_cost_repeat(c, sides);
}

LpCost lp_cost_triangular(const LpCostCtx *x, LpCostType t,
                          const LpTriangular *s)
{
    LpCost c = {0};
    int64_t a = lp_mul_sat(s->count, lp_mul_sat(s->n, s->n)), padded = 64;
    int64_t b = lp_mul_sat(s->count, lp_mul_sat(s->n, s->k));
    if (a <= 0 || b <= 0)
        return c;
    c = lp_cost_copy(x, t, a, s->n); /* the triangle, zeros beside it */
    if (!s->unit) {
        lp_cost_add(&c, lp_cost_exchange(x, t, s->count * s->n, s->n));
        lp_cost_add(
            &c, lp_cost_broadcast(x, LP_EW_div, t, a, s->count * s->n, s->n));
        lp_cost_add(
            &c, lp_cost_broadcast(x, LP_EW_div, t, b, s->count * s->n, s->k));
    }
    while (padded < s->n)
        padded *= 2;
    lp_cost_add(&c, solution(x, t, s, s->n <= 64 ? s->n : padded, s->k));
    return c;
}
