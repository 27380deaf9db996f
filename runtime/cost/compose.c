/* Operations that PopLibs composes of elementwise passes and reductions:
 * softmax, normalisations, recurrent layers, pooling. Source: PL
 * popnn/NonLinearity, popnn/GroupNorm, popnn/Lstm, popnn/Pooling. */
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

/* Passes over [batch, hidden] that join the gates into the new state. */
static LpCost join_gates(const LpCostCtx *x, LpCostType t, const LpRnnShape *s)
{
    static const LpEwOp lstm[] = {LP_EW_mul, LP_EW_mul, LP_EW_add, LP_EW_tanh,
                                  LP_EW_mul};
    static const LpEwOp gru[] = {LP_EW_mul, LP_EW_sub, LP_EW_mul, LP_EW_add};
    const LpEwOp *op = s->gates == 4 ? lstm : gru;
    int n = s->gates == 4 ? 5 : s->gates == 3 ? 4 : 0;
    LpCost c = {0};
    for (int i = 0; i < n; i++)
        lp_cost_add(&c, lp_cost_elementwise(x, op[i],
                                            op[i] == LP_EW_tanh ? LP_EW_UNARY
                                                                : LP_EW_BINARY,
                                            t, mul_sat(s->batch, s->hidden)));
    return c;
}

LpCost lp_cost_rnn(const LpCostCtx *x, LpCostType t, const LpRnnShape *s,
                   LpConvPass pass)
{
    int64_t width = mul_sat(s->gates, s->hidden);
    int64_t state = mul_sat(s->batch, s->hidden);
    LpMatmulShape m = {1, s->batch, s->in + s->hidden, width};
    LpCost c = lp_cost_matmul(x, t, m, pass);
    lp_cost_add(&c, lp_cost_broadcast(x, LP_EW_add, t, mul_sat(s->batch, width),
                                      width, 1));
    lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_sigmoid, LP_EW_UNARY_INPLACE,
                                        t, mul_sat(state, s->gates - 1)));
    lp_cost_add(
        &c, lp_cost_elementwise(x, LP_EW_tanh, LP_EW_UNARY_INPLACE, t, state));
    lp_cost_add(&c, join_gates(x, t, s));
    return lp_cost_repeat(c, s->steps);
}

LpCost lp_cost_rnn_grad(const LpCostCtx *x, LpCostType t, const LpRnnShape *s)
{
    int64_t width = mul_sat(s->gates, s->hidden), wide = s->in + s->hidden;
    int64_t weights = mul_sat(wide, width);
    LpMatmulShape bwd = {1, s->batch, width, wide};
    LpMatmulShape wu = {1, wide, s->batch, width};
    /* the loop holds transposed weights: they are re-laid once, before it */
    LpCost c = lp_cost_matmul(x, t, bwd, LP_PASS_FWD);
    lp_cost_add(&c, join_gates(x, t, s));
    lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_sigmoid_grad, LP_EW_BINARY, t,
                                        mul_sat(s->batch, width)));
    /* every step adds its product to the gradient of the weights */
    lp_cost_add(&c, lp_cost_copy(x, t, mul_sat(s->batch, wide), true));
    lp_cost_add(&c, lp_cost_copy(x, t, mul_sat(s->batch, width), true));
    lp_cost_add(&c, lp_cost_matmul(x, t, wu, LP_PASS_FWD));
    lp_cost_add(&c, lp_cost_scaled_add(x, t, weights, false));
    c = lp_cost_repeat(c, s->steps);
    lp_cost_add(&c, lp_cost_copy(x, t, weights, true));
    return c;
}

/* Outputs are dealt to the tiles; each fetches the inputs of its windows and
 * walks them row by row of the window, channels in vectors. */
static LpCost windows(const LpCostCtx *x, LpRedOp op, LpCostType t,
                      int64_t n_fetched, int64_t n_made, int64_t taps)
{
    LpCost c = {0};
    if (n_made <= 0 || taps <= 0)
        return c;
    LpTileMap m = lp_tile_map(x, t, n_made, 8);
    LpTileMap f = lp_tile_map(x, t, n_fetched, 8);
    int64_t vecs = div_up(m.tile_elems, vec_elems(x->chip, t));
    /* as a strided reduction of `taps` rows */
    int64_t each = 3 + 3 + (t == LP_COST_HALF ? 8 : 5) + taps - 1;
    int64_t scale = op == LP_RED_ADD ? vecs : 0;
    cost_step(x, &c,
              lp_exchange_cyc(x->chip, f.tile_bytes, f.tile_bytes, false),
              6 * (16 + div_up(vecs, 6) * each) + scale);
    c.sync_cyc += x->chip->step_cyc;
    c.tiles = m.tiles;
    c.flops = mul_sat(n_made, taps);
    c.temp_tile_bytes = f.tile_bytes;
    c.vertex_bytes = lp_vertex_bytes(1, 4, 6);
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 2, taps);
    cost_codelet(&c, LP_CODELET_pool, t);
    return c;
}

LpCost lp_cost_pool(const LpCostCtx *x, LpRedOp op, LpCostType t, int64_t n_in,
                    int64_t n_out, int64_t window)
{
    return windows(x, op, t, n_in, n_out, window);
}

LpCost lp_cost_pool_grad(const LpCostCtx *x, LpRedOp op, LpCostType t,
                         int64_t n_in, int64_t n_out, int64_t window)
{
    if (n_in <= 0)
        return (LpCost){0};
    /* an input lies in so many windows; the maximum needs inputs and outputs
     * beside the gradient */
    int64_t taps = lp_max(div_up(mul_sat(n_out, window), n_in), 1);
    int64_t fetched = op == LP_RED_MAX ? n_in + 2 * n_out : n_out;
    return windows(x, op, t, fetched, n_in, taps);
}
