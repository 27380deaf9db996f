/* Rows by index: multiSlice, multiUpdateAdd, dynamicSlice, and the planner of
 * the first two. It splits the dictionary's rows, its columns and the look-ups
 * so that little memory is needed, persistent bytes ten times as dear as
 * temporary ones, whatever the cycles. Vertices are charged for every index
 * that they see, as if all were of their own rows. Source: PL
 * popops/DynamicSlice (embedding::plan, multiSlicePlanned,
 * generatePlannedMultiUpdateAdd) and popops' cycle estimators. */
#include "runtime/cost/units.h"

enum { W = LP_WORKERS, WORD = 4, LEAST_INDICES = 32 };

/* Parallel splits of rows, of columns, of look-ups. */
typedef struct Ways {
    int64_t rows, cols, count;
} Ways;

/* A tile's share: rows of the dictionary, words of a row, look-ups, those
 * that it selects in the second stage, indices that it stores. */
typedef struct Part {
    int64_t rows, words, count, chosen, indices;
    int64_t elems; /* of `words`, of the dictionary's type */
} Part;

static Part part_of(const LpCostCtx *x, LpCostType t, const LpLookup *l, Ways w)
{
    int64_t grain = WORD / lp_cost_type_bytes(t); /* stores are of words */
    Part p = {.rows = div_up(l->rows, w.rows),
              .words = div_up(div_up(l->cols, grain), w.cols),
              .count = div_up(l->count, w.count),
              .indices = lp_max(lp_min(l->count, LEAST_INDICES),
                                div_up(l->count, ctx_tiles(x)))};
    p.chosen = div_up(p.count, w.rows);
    p.elems = p.words * grain;
    return p;
}

/* Bytes of a tile beside the dictionary, its indices and its result. */
static int64_t slice_temp(Ways w, const Part *p)
{
    int64_t copy = w.count > 1 ? p->rows * p->words * WORD : 0;
    int64_t found = w.rows > 1 ? p->count * p->words * WORD : 0;
    int64_t met = w.rows > 1 ? w.rows * p->chosen * p->words * WORD : 0;
    return lp_max(copy + found + WORD * p->count,
                  found + met + WORD * p->chosen);
}

static int64_t update_temp(LpCostType t, Ways w, const Part *p)
{
    int64_t cast = t == LP_COST_HALF ? p->chosen * p->words * WORD : 0;
    int64_t sent = w.rows > 1 ? p->count * p->elems * WORD : 0;
    int64_t sums = w.count > 1 ? p->rows * p->elems * WORD : 0;
    return lp_max(lp_max(cast + sent, sent + sums + WORD * p->count), 2 * sums);
}

static int64_t goal(LpCostType t, const LpLookup *l, Ways w, const Part *p)
{
    int64_t base = div_up(p->rows * p->words, w.count);
    int64_t sources = div_up(p->count, p->indices);
    int64_t code =
        2 * sources + (w.count > 1 ? w.count : 0) + (w.rows > 1 ? w.rows : 0);
    int64_t temp = slice_temp(w, p);
    if (l->trained) {
        code += sources + (w.count > 1 ? w.count : 0);
        temp = lp_max(temp, update_temp(t, w, p));
    }
    return 10 * WORD * (base + p->chosen * p->words + p->indices + code) + temp;
}

/* The splits that serve the look-up, and its update when there is one: the
 * dictionary stays where it is. */
static Ways plan(const LpCostCtx *x, LpCostType t, const LpLookup *l)
{
    int64_t best = INT64_MAX, tiles = ctx_tiles(x);
    int64_t words = div_up(l->cols, WORD / lp_cost_type_bytes(t));
    int64_t most = div_up(l->rows, 2); /* no tile has fewer than two rows */
    Ways w, kept = {1, 1, 1};
    for (w.cols = 1; w.cols <= lp_min(words, tiles);
         w.cols = next_split(words, w.cols))
        for (w.rows = 1; w.rows <= lp_min(most, tiles / w.cols);
             w.rows = next_split(l->rows, w.rows))
            for (w.count = 1;
                 w.count <= lp_min(l->count, tiles / w.cols / w.rows);
                 w.count = next_split(l->count, w.count)) {
                Part p = part_of(x, t, l, w);
                int64_t g = goal(t, l, w, &p);
                if (g >= best)
                    continue;
                best = g;
                kept = w;
            }
    return kept;
}

/* Workers share the indices. */
static int64_t slice_vertex(const LpChip *chip, LpCostType t, int64_t count,
                            int64_t elems)
{
    return W * (16 + div_up(count, W) *
                         (19 + 3 * div_up(elems, vec_elems(chip, t))));
}

/* One worker has all: it adds rows in turn. */
static int64_t update_vertex(LpCostType t, int64_t count, const Part *p)
{
    int64_t each =
        t == LP_COST_HALF ? 12 + 3 * (p->words - 1) : 11 + 3 * (p->elems - 1);
    return W * (18 + count * each);
}

static LpCost slice_part(const LpCostCtx *x, LpCostType t, Ways w,
                         const Part *p)
{
    const LpChip *chip = x->chip;
    int64_t bus = chip->exchange_bytes_cyc;
    int64_t copy = w.count > 1 ? p->rows * p->words * WORD : 0;
    LpCost c = {.temp_tile_bytes = slice_temp(w, p)};
    Vertices slices = {.id = codelet_id(LP_CODELET_multi_slice, t),
                       .tiles = w.rows * w.cols * w.count,
                       .n = W,
                       .edges = 3,
                       .scalars = 6,
                       .cyc = slice_vertex(chip, t, p->count, p->elems)};
    slices.idle_cyc = idle_cyc(chip, slices.cyc, p->count);
    cost_step(x, &c, div_up(copy - copy / w.count + WORD * p->count, bus),
              slices);
    cost_sync(x, &c, 1);
    c.exchange_code_bytes = lp_exchange_code_bytes(chip, 1, w.rows);
    if (w.rows == 1)
        return c;
    /* which part has the row that is wanted: numbers, then three operations */
    Vertices numbers = {.id =
                            ew_codelet_id(LP_EW_add, LP_EW_BINARY, LP_COST_INT),
                        .tiles = slices.tiles,
                        .n = 1,
                        .edges = 3,
                        .scalars = 2,
                        .cyc = lp_ew_tile_cyc(chip, LP_EW_add, LP_EW_UNARY,
                                              LP_COST_INT, p->chosen)};
    cost_step(x, &c, 0, numbers);
    numbers.n = 3;
    numbers.cyc = 3 * lp_ew_tile_cyc(chip, LP_EW_add, LP_EW_BINARY, LP_COST_INT,
                                     p->indices);
    cost_step(x, &c, p->indices, numbers);
    /* each tile collects its share of the rows from all parts */
    int64_t met = w.rows * p->chosen * p->words * WORD;
    slices.cyc = slice_vertex(chip, t, p->chosen, p->elems);
    slices.idle_cyc = idle_cyc(chip, slices.cyc, p->chosen);
    cost_step(x, &c, div_up(met + WORD * p->chosen, bus), slices);
    cost_sync(x, &c, 2);
    c.exchange_code_bytes += lp_exchange_code_bytes(chip, w.rows, w.rows);
    return c;
}

/* Partial dictionaries in float: zeroed before, summed after, added to a
 * float copy of the dictionary, which is cast back. */
static void add_dense(const LpCostCtx *x, LpCostType t, const LpLookup *l,
                      Ways w, const Part *p, LpCost *c)
{
    const LpChip *chip = x->chip;
    int64_t n = l->rows * l->cols, mine = div_up(p->rows * p->elems, w.count);
    int64_t vecs = div_up(div_up(mine, W), 2);
    lp_cost_add(c, lp_cost_fill(x, LP_COST_FLOAT, n * w.count));
    cost_step(x, c, div_up(mine * w.count * WORD, chip->exchange_bytes_cyc),
              (Vertices){.id = codelet_id(LP_CODELET_reduce, LP_COST_FLOAT),
                         .tiles = w.rows * w.cols * w.count,
                         .n = 1,
                         .edges = 2,
                         .scalars = 3,
                         .cyc = W * (24 + vecs * (6 + w.count))});
    cost_sync(x, c, 1);
    lp_cost_add(c, lp_cost_cast(x, t, LP_COST_FLOAT, n));
    lp_cost_add(c, lp_cost_scaled_add(x, LP_COST_FLOAT, n, false));
    lp_cost_add(c, lp_cost_cast(x, LP_COST_FLOAT, t, n));
    c->exchange_code_bytes += lp_exchange_code_bytes(chip, w.count, w.count);
}

static LpCost update_part(const LpCostCtx *x, LpCostType t, const LpLookup *l,
                          Ways w, const Part *p)
{
    const LpChip *chip = x->chip;
    int64_t bus = chip->exchange_bytes_cyc;
    bool dense = w.count > 1;
    LpCostType sums = dense ? LP_COST_FLOAT : t;
    int64_t row = p->elems * lp_cost_type_bytes(sums);
    LpCost c = {0};
    if (dense) {
        lp_cost_add(&c, lp_cost_cast(x, t, sums, 1));
        lp_cost_add(&c, lp_cost_cast(x, t, sums, l->count * l->cols));
    }
    if (w.rows >= 4 || (dense && t != sums)) {
        /* rows are brought in order before many tiles read them */
        cost_step(x, &c, div_up(p->chosen * p->words * WORD, bus), NO_VERTICES);
    }
    int64_t sent = w.rows > 1 || dense ? p->count * row : 0;
    int64_t cyc = update_vertex(sums, p->count, p);
    cost_step(x, &c, div_up(sent + WORD * p->count, bus),
              (Vertices){.id = codelet_id(LP_CODELET_multi_update, sums),
                         .tiles = w.rows * w.cols * w.count,
                         .n = 1,
                         .edges = 3,
                         .scalars = 6,
                         .cyc = cyc,
                         .idle_cyc = idle_cyc(chip, cyc, 1)});
    cost_sync(x, &c, 1);
    c.exchange_code_bytes += lp_exchange_code_bytes(chip, 1, w.rows);
    if (dense)
        add_dense(x, t, l, w, p, &c);
    c.temp_tile_bytes = dense ? update_temp(t, w, p) : sent + WORD * p->count;
    return c;
}

static LpCost planned(const LpCostCtx *x, LpCostType t, const LpLookup *l,
                      bool adds)
{
    if (l->rows <= 0 || l->cols <= 0 || l->count <= 0)
        return (LpCost){0};
    Ways w = plan(x, t, l);
    Part p = part_of(x, t, l, w);
    LpCost c = adds ? update_part(x, t, l, w, &p) : slice_part(x, t, w, &p);
    c.flops = adds ? lp_mul_sat(l->count, l->cols) : 0;
    c.tiles = (int)(w.rows * w.cols * w.count);
    cost_codelet(&c, adds ? LP_CODELET_multi_update : LP_CODELET_multi_slice,
                 t);
    return c;
}

LpCost lp_cost_lookup(const LpCostCtx *x, LpCostType t, const LpLookup *l)
{
    return planned(x, t, l, false);
}

LpCost lp_cost_lookup_add(const LpCostCtx *x, LpCostType t, const LpLookup *l)
{
    return planned(x, t, l, true);
}

LpCost lp_cost_dynamic_slice(const LpCostCtx *x, LpCostType t, int64_t rows,
                             int64_t cols, int64_t count)
{
    LpCost c = {0};
    if (rows <= 0 || cols <= 0 || count <= 0)
        return c;
    /* columns are spread; every tile holds all rows of its columns */
    LpTileMap m = lp_tile_map(x, t, cols, 4 / lp_cost_type_bytes(t));
    int64_t vecs = div_up(div_up(m.tile_elems, W), vec_elems(x->chip, t));
    int64_t offset = lp_exchange_cyc(x->chip, 4, 0, true);
    cost_step(x, &c, offset,
              (Vertices){.id = codelet_id(LP_CODELET_slice, t),
                         .tiles = m.tiles,
                         .n = 1,
                         .edges = 3,
                         .scalars = 4,
                         .cyc = 25 + W * (39 + (24 + 2 * vecs) * count)});
    c.tiles = m.tiles;
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 1, 1);
    cost_codelet(&c, LP_CODELET_slice, t);
    return c;
}
