/* Operations that PopLibs composes of elementwise passes and reductions:
 * softmax and normalisations. Source: PL popnn/NonLinearity and
 * popnn/GroupNorm. */
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
    int64_t n = mul_sat(rows, cols);
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
    int64_t n = mul_sat(rows, cols);
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
        c.flops = mul_sat(n, 3);
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
    lp_cost_add(&c, reduce_rows(x, LP_RED_ADD, t, 2 * n_stats, mul_sat(n, 2)));
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_mul, t, n, n_stats, n / n_stats));
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_add, t, n, n_stats, n / n_stats));
    lp_cost_add(&c, lp_cost_scaled_add(x, t, n, false));
    lp_cost_add(&c,
                lp_cost_broadcast(x, LP_EW_mul, t, n, n_stats, n / n_stats));
    return c;
}
