/* Reductions: on each tile first, then over the tiles that share an output, in
 * stages when they are many. Source: PL popops/reduction cycle estimators and
 * the choice of PL popops/Reduce between the output's own tiles and all
 * tiles: results are spread over all tiles in grains of 8 here. */
#include "runtime/cost/units.h"

enum { W = 6 };

/* Additions accumulate in wide vectors, the others in the type's own. */
static int64_t acc_elems(const LpChip *chip, LpRedOp op, LpCostType t)
{
    if (op == LP_RED_ADD || op == LP_RED_SQUARE_ADD)
        return t == LP_COST_HALF ? 8 : 4;
    return vec_elems(chip, t);
}

/* Cycles a vector of partials takes. */
static int64_t vector_cyc(LpRedOp op, LpCostType t)
{
    if (op == LP_RED_LOGADD)
        return t == LP_COST_HALF ? 13 : 23;
    return t == LP_COST_INT ? 7 : 1;
}

/* A worker reduces `rows` rows of n columns into n. */
static int64_t strided_cyc(const LpChip *chip, LpRedOp op, LpCostType t,
                           int64_t n, int64_t rows)
{
    int64_t groups = div_up(n, vec_elems(chip, t));
    int64_t post = t == LP_COST_HALF ? 8 : 5;
    return W * (16 + div_up(groups, W) *
                         (3 + 3 + post + vector_cyc(op, t) * (rows - 1)));
}

/* n outputs of `depth` neighbouring elements each. */
static int64_t contiguous_cyc(const LpChip *chip, LpRedOp op, LpCostType t,
                              int64_t n, int64_t depth)
{
    int64_t vecs = div_up(depth, vec_elems(chip, t)) * vector_cyc(op, t);
    if (n == 1 && depth >= 2 * W * acc_elems(chip, op, t))
        /* the workers share it, one joins their results */
        return W * (7 + 17 + div_up(vecs, W)) + W * (7 + 17 + W);
    return W * (17 + div_up(n, W) * (12 + vecs));
}

LpCost lp_cost_reduce(const LpCostCtx *x, LpRedOp op, LpCostType t,
                      int64_t n_in, int64_t n_out, int64_t inner)
{
    LpCost c = {0};
    if (n_in <= 0 || n_out <= 0)
        return c;
    const LpChip *chip = x->chip;
    int64_t ratio = max_i64(n_in / n_out, 1), rows, outs, cyc, ways[3];
    LpTileMap m = lp_tile_map(x, t, n_in, max_i64(min_i64(inner, 8), 1));
    bool sum = op == LP_RED_ADD || op == LP_RED_SQUARE_ADD;
    LpCostType part = sum && t == LP_COST_HALF ? LP_COST_FLOAT : t;
    if (inner > 1) {
        outs = min_i64(inner, m.tile_elems);
        rows = min_i64(div_up(m.tile_elems, outs), ratio);
        outs = div_up(m.tile_elems, rows);
        cyc = strided_cyc(chip, op, t, outs, rows);
    } else {
        rows = min_i64(ratio, m.tile_elems);
        outs = div_up(m.tile_elems, rows);
        cyc = contiguous_cyc(chip, op, t, outs, rows);
    }
    c.tiles = m.tiles;
    c.flops = mul_sat(n_in, op == LP_RED_SQUARE_ADD ? 2 : 1);
    cost_step(x, &c, 0, cyc);
    c.vertex_bytes = lp_vertex_bytes(1, 2, 3);
    c.temp_tile_bytes = outs * lp_cost_type_bytes(part);
    cost_codelet(&c, LP_CODELET_reduce, t);
    int64_t depth = div_up(ratio, rows);
    if (depth <= 1)
        return c;
    int stages = reduce_stages(depth, ways);
    for (int i = 0; i < stages; i++) {
        depth = div_up(depth, ways[i]);
        int64_t n = lp_tile_map(x, part, mul_sat(n_out, depth), 8).tile_elems;
        int64_t bytes = n * ways[i] * lp_cost_type_bytes(part);
        cost_step(x, &c, lp_exchange_cyc(chip, bytes, 0, false),
                  strided_cyc(chip, sum ? LP_RED_ADD : op, part, n, ways[i]));
        c.sync_cyc += chip->step_cyc; /* exchange and compute set */
        c.temp_tile_bytes = max_i64(c.temp_tile_bytes, bytes);
        c.exchange_code_bytes +=
            lp_exchange_code_bytes(chip, div_up(outs, 8), ways[i]);
        c.vertex_bytes += lp_vertex_bytes(1, 2, 3);
    }
    cost_codelet(&c, LP_CODELET_reduce, part);
    return c;
}
