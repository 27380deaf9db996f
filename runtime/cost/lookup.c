/* Rows by index: multiSlice, multiUpdateAdd, dynamicSlice, and the planner of
 * the first two: splits of the dictionary's rows, of its columns and of the
 * look-ups, least cycles within the memory bound. Indices are taken as spread
 * evenly over the rows. Source: PL popops/DynamicSlice and
 * popops/PerformanceEstimation. */
#include "runtime/cost/units.h"

enum { W = 6 };

typedef struct Lookup {
    int64_t rows, cols, count; /* of the problem */
    int64_t p_rows, p_cols, p_count;
    bool update;
} Lookup;

/* A tile's share: rows of the dictionary, columns, look-ups. */
typedef struct Part {
    int64_t rows, cols, count, bytes; /* bytes of one row's columns */
} Part;

static Part part_of(LpCostType t, const Lookup *l)
{
    int64_t grain = 4 / lp_cost_type_bytes(t); /* stores are of 4 bytes */
    Part p = {div_up(l->rows, l->p_rows),
              div_up(div_up(l->cols, grain), l->p_cols) * grain,
              div_up(l->count, l->p_count), 0};
    p.bytes = p.cols * lp_cost_type_bytes(t);
    return p;
}

/* A vertex sees `count` indices, of which 1 in `ways` is its own. */
static int64_t slice_vertex(int64_t count, int64_t ways, int64_t bytes)
{
    int64_t share = div_up(count, W), in = div_up(share, ways);
    return W * (30 + in * (19 + 2 * div_up(bytes, 4)) + (share - in) * 8);
}

static int64_t update_vertex(int64_t count, int64_t ways, int64_t bytes)
{
    int64_t in = div_up(count, ways), each = 11 + 3 * (div_up(bytes, 4) - 1);
    return W * (33 + 6 + div_up(in, W) * each + (count - in) * 5);
}

static LpCost slice_part(const LpCostCtx *x, const Lookup *l, const Part *p)
{
    const LpChip *chip = x->chip;
    int64_t bus = chip->exchange_bytes_cyc;
    int64_t dict = l->p_count > 1 ? p->rows * p->bytes : 0;
    LpCost c = {.temp_tile_bytes = dict + p->count * p->bytes};
    cost_step(x, &c, div_up(dict + 4 * p->count, bus),
              slice_vertex(p->count, l->p_rows, p->bytes));
    c.sync_cyc += chip->step_cyc;
    c.exchange_code_bytes = lp_exchange_code_bytes(chip, 1, l->p_rows);
    if (l->p_rows == 1)
        return c;
    /* each tile collects its share of the rows from all parts */
    int64_t rows = div_up(p->count, l->p_rows);
    cost_step(x, &c, div_up(l->p_rows * rows * p->bytes, bus),
              slice_vertex(rows, 1, p->bytes));
    c.sync_cyc += chip->step_cyc;
    c.temp_tile_bytes += l->p_rows * rows * p->bytes;
    c.exchange_code_bytes += lp_exchange_code_bytes(chip, l->p_rows, l->p_rows);
    return c;
}

static LpCost update_part(const LpCostCtx *x, LpCostType t, const Lookup *l,
                          const Part *p)
{
    const LpChip *chip = x->chip;
    int64_t bus = chip->exchange_bytes_cyc, cells = p->rows * p->cols;
    LpCost c = {.temp_tile_bytes = p->count * (p->bytes + 4)};
    cost_step(x, &c, div_up(p->count * (p->bytes + 4), bus),
              update_vertex(p->count, l->p_rows, p->bytes));
    c.sync_cyc += chip->step_cyc;
    c.exchange_code_bytes = lp_exchange_code_bytes(chip, 1, l->p_rows);
    if (l->p_count == 1)
        return c;
    /* partial dictionaries: zeroed before, summed after, added in place */
    int64_t mine = div_up(cells, l->p_count);
    int64_t e = lp_cost_type_bytes(x->partials);
    cost_step(
        x, &c, 0,
        W * (26 + div_up(div_up(cells, W), vec_elems(chip, x->partials))));
    cost_step(x, &c, div_up(mine * l->p_count * e, bus),
              reduce_partials_cyc(x->partials, t, mine, l->p_count));
    cost_step(x, &c, 0, scaled_add_cyc(chip, t, mine, false));
    c.sync_cyc += chip->step_cyc;
    c.temp_tile_bytes += (cells + mine * l->p_count) * e;
    c.exchange_code_bytes +=
        lp_exchange_code_bytes(chip, l->p_count, l->p_count);
    return c;
}

static LpCost eval(const LpCostCtx *x, LpCostType t, const Lookup *l)
{
    Part p = part_of(t, l);
    LpCost c = l->update ? update_part(x, t, l, &p) : slice_part(x, l, &p);
    c.tiles = (int)(l->p_rows * l->p_cols * l->p_count);
    return c;
}

static bool better(const LpCostCtx *x, const LpCost *a, const LpCost *b)
{
    double bound = x->proportion * (double)x->chip->tile_bytes;
    bool fa = (double)a->temp_tile_bytes <= bound;
    bool fb = (double)b->temp_tile_bytes <= bound;
    if (fa != fb)
        return fa;
    return fa ? lp_cost_cyc(a) < lp_cost_cyc(b)
              : a->temp_tile_bytes < b->temp_tile_bytes;
}

static int64_t next_split(int64_t u, int64_t p)
{
    int64_t size = div_up(u, p);
    return size <= 1 ? u + 1 : div_up(u, size - 1);
}

static LpCost plan(const LpCostCtx *x, LpCostType t, Lookup l)
{
    LpCost best = {0};
    int64_t tiles = ctx_tiles(x);
    int64_t cols = div_up(l.cols, 4 / lp_cost_type_bytes(t));
    if (l.rows <= 0 || l.cols <= 0 || l.count <= 0)
        return best;
    for (l.p_cols = 1; l.p_cols <= min_i64(cols, tiles);
         l.p_cols = next_split(cols, l.p_cols)) {
        int64_t left = tiles / l.p_cols;
        /* look-ups in doublings: their split trades smoothly with rows */
        for (l.p_count = 1; l.p_count <= min_i64(l.count, left);
             l.p_count *= 2) {
            l.p_rows = min_i64(l.rows, left / l.p_count);
            for (; l.p_rows; l.p_rows /= 2) {
                LpCost c = eval(x, t, &l);
                if (!best.tiles || better(x, &c, &best))
                    best = c;
            }
        }
    }
    best.vertex_bytes = lp_vertex_bytes(1, 3, 6);
    return best;
}

LpCost lp_cost_lookup(const LpCostCtx *x, LpCostType t, int64_t rows,
                      int64_t cols, int64_t n_lookups)
{
    LpCost c = plan(x, t, (Lookup){rows, cols, n_lookups, 1, 1, 1, false});
    if (c.tiles)
        cost_codelet(&c, LP_CODELET_multi_slice, t);
    return c;
}

LpCost lp_cost_lookup_add(const LpCostCtx *x, LpCostType t, int64_t rows,
                          int64_t cols, int64_t n_lookups)
{
    LpCost c = plan(x, t, (Lookup){rows, cols, n_lookups, 1, 1, 1, true});
    c.flops = mul_sat(n_lookups, cols);
    if (c.tiles)
        cost_codelet(&c, LP_CODELET_multi_update, t);
    return c;
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
    cost_step(x, &c, offset, 25 + W * (39 + (24 + 2 * vecs) * count));
    c.tiles = m.tiles;
    c.vertex_bytes = lp_vertex_bytes(1, 3, 4);
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 1, 1);
    cost_codelet(&c, LP_CODELET_slice, t);
    return c;
}
