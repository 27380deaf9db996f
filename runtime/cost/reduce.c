/* Reductions: on each tile first, then over the tiles that share an output, in
 * stages when they are many. Source: PL popops/reduction cycle estimators and
 * the choice of PL popops/Reduce between the output's own tiles and all
 * tiles: results are spread over all tiles in grains of 8 here. */
#include "runtime/cost/units.h"

enum { W = 6 };

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

/* n outputs, each of `runs` runs of `len` neighbouring elements. */
static int64_t runs_cyc(const LpChip *chip, LpRedOp op, LpCostType t, int64_t n,
                        int64_t runs, int64_t len)
{
    int64_t vecs = div_up(len, vec_elems(chip, t)) * vector_cyc(op, t);
    if (runs > 1)
        return W * (33 + div_up(n, W) * (26 + runs * (7 + 3 + vecs)));
    if (n == 1 && vecs >= 2 * W)
        /* the workers share it, one joins their results */
        return W * (7 + 17 + div_up(vecs, W)) + W * (7 + 17 + W);
    return W * (17 + div_up(n, W) * (12 + vecs));
}

/* What a tile holds of a tensor laid out in order: outputs it touches, inputs
 * of each, and the run of neighbours among them. */
typedef struct OnTile {
    int64_t outs, depth, run;
} OnTile;

static OnTile on_tile(const int64_t *shape, int rank, uint32_t reduced,
                      int64_t n_tile)
{
    OnTile t = {1, 1, 1};
    bool inner = true;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t take = lp_min(shape[i], n_tile);
        bool red = reduced >> i & 1;
        *(red ? &t.depth : &t.outs) *= take;
        inner = inner && (red || shape[i] == 1);
        if (inner)
            t.run = t.depth;
        n_tile = div_up(n_tile, take);
    }
    return t;
}

/* Sums partials of `depth` tiles: each stage is an exchange and a compute set.
 */
static void over_tiles(const LpCostCtx *x, LpRedOp op, LpCostType part,
                       int64_t n_out, int64_t depth, LpCost *c)
{
    int64_t ways[3];
    int stages = reduce_stages(depth, ways);
    for (int i = 0; i < stages; i++) {
        depth = div_up(depth, ways[i]);
        int64_t n = lp_tile_map(x, part, mul_sat(n_out, depth), 8).tile_elems;
        int64_t bytes = n * ways[i] * lp_cost_type_bytes(part);
        cost_step(x, c, lp_exchange_cyc(x->chip, bytes, 0, false),
                  strided_cyc(x->chip, op, part, n, ways[i]));
        c->sync_cyc += x->chip->step_cyc; /* exchange and compute set */
        c->temp_tile_bytes = lp_max(c->temp_tile_bytes, bytes);
        c->exchange_code_bytes +=
            lp_exchange_code_bytes(x->chip, ways[i], ways[i]);
        c->vertex_bytes += lp_vertex_bytes(1, 2, 3);
    }
    cost_codelet(c, LP_CODELET_reduce, part);
}

LpCost lp_cost_reduce(const LpCostCtx *x, LpRedOp op, LpCostType t,
                      const int64_t *shape, int rank, uint32_t reduced)
{
    LpCost c = {0};
    int64_t n_in = 1, n_out = 1;
    for (int i = 0; i < rank; i++) {
        n_in = mul_sat(n_in, shape[i]);
        n_out = reduced >> i & 1 ? n_out : mul_sat(n_out, shape[i]);
    }
    if (n_in <= 0)
        return c;
    bool sum = op == LP_RED_ADD || op == LP_RED_SQUARE_ADD;
    LpCostType part = sum && t == LP_COST_HALF ? x->partials : t;
    LpTileMap m = lp_tile_map(x, t, n_in, 8);
    OnTile on = on_tile(shape, rank, reduced, m.tile_elems);
    c.tiles = m.tiles;
    c.flops = mul_sat(n_in, op == LP_RED_SQUARE_ADD ? 2 : 1);
    cost_step(x, &c, 0,
              on.run > 1
                  ? runs_cyc(x->chip, op, t, on.outs, on.depth / on.run, on.run)
                  : strided_cyc(x->chip, op, t, on.outs, on.depth));
    c.vertex_bytes = lp_vertex_bytes(1, 2, 3);
    c.temp_tile_bytes = on.outs * lp_cost_type_bytes(part);
    cost_codelet(&c, LP_CODELET_reduce, t);
    int64_t depth = div_up(n_in / n_out, on.depth);
    if (depth <= 1)
        return c;
    over_tiles(x, sum ? LP_RED_ADD : op, part, n_out, depth, &c);
    lp_cost_add(&c, lp_cost_cast(x, part, t, n_out));
    return c;
}
