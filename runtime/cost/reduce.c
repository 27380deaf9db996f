/* Reductions: on each tile first, then over the tiles that share an output, in
 * stages while many do. Sources: PL popops/reduction: CycleEstimationFunctions
 * (vertices), ReductionPlan (stages), ReductionStages (grains and maps of the
 * outputs), ReductionConnection (shares of the workers). */
#include "runtime/cost/units.h"

#include <math.h>

enum { W = LP_WORKERS };

/* Cycles a vector of partials takes. */
static int64_t vector_cyc(LpRedOp op, LpCostType t)
{
    if (op == LP_RED_LOGADD)
        return t == LP_COST_HALF ? 12 : 23;
    return t == LP_COST_INT ? 7 : 1;
}

/* Columns below which a worker gets no share: sums have accumulators of two
 * vectors. */
static int64_t grain_of(const LpChip *chip, LpRedOp op, LpCostType t)
{
    bool sum = op == LP_RED_ADD || op == LP_RED_SQUARE_ADD;
    return vec_elems(chip, t) * (sum && t != LP_COST_INT ? 2 : 1);
}

/* One worker on `rows` rows of n columns (StridedReduce). */
static int64_t strided_worker(const LpChip *chip, LpRedOp op, LpCostType t,
                              int64_t n, int64_t rows)
{
    int64_t vecs = div_up(n, vec_elems(chip, t));
    return 7 + 17 + 6 * vecs + vecs * rows * vector_cyc(op, t);
}

/* Compute sets of a tile that sums `rows` rows of n columns: rows are shared,
 * and their results summed in a second set, where columns leave workers
 * without work and the rows are many. */
typedef struct Sets {
    int64_t cyc, n;
} Sets;

static Sets strided(const LpChip *chip, LpRedOp op, LpCostType t,
                    LpCostType part, int64_t n, int64_t rows)
{
    int64_t grain = grain_of(chip, op, t), grains = div_up(n, grain);
    int64_t cols = lp_min(div_up(grains, W) * grain, n), ways = 1;
    if (grains <= W)
        ways = lp_min(W / grains, rows / 2);
    int64_t alone = div_up(cols * rows, grain); /* of 30 cycles overhead */
    if (ways > 1 && 60 + alone / ways < 30 + alone)
        return (Sets){
            W * (strided_worker(chip, op, t, cols, div_up(rows, ways)) +
                 strided_worker(chip, op, part, cols, ways)),
            2};
    return (Sets){W * strided_worker(chip, op, t, cols, rows), 1};
}

/* n outputs of a run of neighbours each (ContinuousReduce); a single one is
 * shared by the workers. */
static Sets continuous(const LpChip *chip, LpRedOp op, LpCostType t, int64_t n,
                       int64_t len)
{
    int64_t vecs = div_up(len, vec_elems(chip, t)) * vector_cyc(op, t);
    if (n == 1 && vecs >= 10 * W)
        return (Sets){W * (7 + 19 + div_up(vecs, W)) + W * (7 + 19 + W), 2};
    return (Sets){W * (17 + div_up(n, W) * (12 + vecs)), 1};
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

static void add_sets(const LpCostCtx *x, LpCost *c, int64_t exchange,
                     LpCostType t, int64_t tiles, Sets s)
{
    cost_step(x, c, exchange,
              (Vertices){.id = codelet_id(LP_CODELET_reduce, t),
                         .tiles = lp_min(tiles, ctx_tiles(x)),
                         .n = s.n,
                         .edges = 2,
                         .scalars = 3,
                         .cyc = s.cyc});
    c->compute_sets += s.n - 1;
    cost_sync(x, c, s.n - 1 + (exchange > 0));
}

/* Each output's partials on one tile. Runs among other reduced rows are first
 * taken as columns, then each is summed. */
static void on_each_tile(const LpCostCtx *x, LpRedOp op, LpCostType t,
                         LpCostType part, OnTile on, LpCost *c)
{
    const LpChip *chip = x->chip;
    int64_t rows = on.depth / on.run;
    if (on.depth <= 1)
        return; /* nothing to do before the exchange */
    if (on.run == 1 || (rows > 1 && on.outs > 1))
        add_sets(x, c, 0, t, c->tiles,
                 strided(chip, op, t, part, on.outs * on.run, rows));
    if (on.run > 1)
        add_sets(x, c, 0, t, c->tiles,
                 continuous(chip, op, rows > 1 && on.outs > 1 ? part : t,
                            on.outs, on.outs > 1 ? on.run : on.depth));
}

/* A stage's scratch is on its tiles alone. */
static void note_temp(LpCost *c, int64_t bytes, int64_t tiles)
{
    c->temp_all_bytes =
        lp_max(lp_cost_temp_bytes(c), bytes * lp_min(tiles, c->tiles));
    c->temp_tile_bytes = lp_max(c->temp_tile_bytes, bytes);
}

/* Partials of `depth` tiles for each of n_out outputs; `sources`: tiles that
 * have any. A stage halves the depth in the sense of its root while more than
 * 64 remain and the sources are few or the depth is large. */
static void over_tiles(const LpCostCtx *x, LpRedOp op, LpCostType part,
                       int64_t n_out, int64_t depth, int64_t sources, LpCost *c)
{
    const LpChip *chip = x->chip;
    int64_t tiles = ctx_tiles(x), e = lp_cost_type_bytes(part);
    int64_t grain = grain_of(chip, op, part);
    while (depth > 64 &&
           !(depth < 2 * sqrt((double)tiles) && sources > tiles * 3 / 4)) {
        /* pieces of 64 partials at least, as many as there are tiles */
        int64_t ideal = lp_max(lp_mul_sat(n_out, depth) / tiles, 64);
        int64_t cols = lp_min(grain, n_out);
        int64_t ways = lp_max(depth * cols / ideal, 1);
        int64_t rows = lp_max(div_up(depth, ways), 2);
        int64_t mine =
            div_up(div_up(n_out, cols) * div_up(depth, rows), tiles) * cols;
        int64_t used =
            div_up(div_up(n_out, cols) * div_up(depth, rows) * cols, mine);
        add_sets(x, c, lp_exchange_cyc(chip, mine * rows * e, 0, false), part,
                 used, strided(chip, op, part, part, mine, rows));
        note_temp(c, mine * rows * e, used);
        c->exchange_code_bytes += lp_exchange_code_bytes(chip, rows, rows);
        depth = div_up(depth, rows);
        sources = lp_min(tiles, lp_mul_sat(div_up(n_out, cols), depth));
    }
    int64_t least = 4 * vec_elems(chip, part);
    int64_t mine = lp_min(
        lp_max(lp_tile_map(x, part, n_out, vec_elems(chip, part)).tile_elems,
               least),
        n_out);
    add_sets(x, c, lp_exchange_cyc(chip, mine * depth * e, 0, false), part,
             div_up(n_out, mine), strided(chip, op, part, part, mine, depth));
    note_temp(c, mine * depth * e, div_up(n_out, mine));
    c->exchange_code_bytes += lp_exchange_code_bytes(chip, depth, depth);
    cost_codelet(c, LP_CODELET_reduce, part);
}

LpCost lp_cost_reduce(const LpCostCtx *x, LpRedOp op, LpCostType t,
                      const int64_t *shape, int rank, uint32_t reduced)
{
    LpCost c = {0};
    int64_t n_in = 1, n_out = 1;
    for (int i = 0; i < rank; i++) {
        n_in = lp_mul_sat(n_in, shape[i]);
        n_out = reduced >> i & 1 ? n_out : lp_mul_sat(n_out, shape[i]);
    }
    if (n_in <= 0)
        return c;
    bool sum = op == LP_RED_ADD || op == LP_RED_SQUARE_ADD;
    LpCostType part = sum && t == LP_COST_HALF ? x->partials : t;
    LpTileMap m = lp_tile_map(x, t, n_in, 8);
    OnTile on = on_tile(shape, rank, reduced, m.tile_elems);
    c.tiles = m.tiles;
    c.flops = lp_mul_sat(n_in, op == LP_RED_SQUARE_ADD ? 2 : 1);
    on_each_tile(x, op, t, part, on, &c);
    c.temp_tile_bytes = on.outs * lp_cost_type_bytes(part);
    cost_codelet(&c, LP_CODELET_reduce, t);
    int64_t depth = div_up(n_in / n_out, on.depth);
    if (depth > 1)
        over_tiles(x, sum ? LP_RED_ADD : op, part, n_out, depth, m.tiles, &c);
    return c;
}
