/* Rows by index: multiSlice, multiUpdateAdd, dynamicSlice, and the planner of
 * the first two: splits of the dictionary's rows, of its columns and of the
 * look-ups, least cycles within the memory bound. Indices are taken as spread
 * evenly over the rows. Source: PL popops/DynamicSlice and
 * popops/PerformanceEstimation. */
#include "runtime/cost/units.h"

enum { W = 6 };

/* Parallel splits of rows, of columns, of look-ups. */
typedef struct Ways {
    int64_t rows, cols, count;
} Ways;

/* A tile's share: rows of the dictionary, columns, look-ups. */
typedef struct Part {
    int64_t rows, cols, count;
    int64_t bytes;  /* of one row's columns */
    int64_t inside; /* look-ups of the part's rows, in the busiest part */
    int64_t hot;    /* of these, those of the busiest row */
} Part;

static Part part_of(LpCostType t, const LpLookup *l, Ways w)
{
    int64_t grain = 4 / lp_cost_type_bytes(t); /* stores are of 4 bytes */
    Part p = {.rows = div_up(l->rows, w.rows),
              .cols = div_up(div_up(l->cols, grain), w.cols) * grain,
              .count = div_up(l->count, w.count)};
    p.bytes = p.cols * lp_cost_type_bytes(t);
    p.hot = lp_min(l->hot, p.count);
    p.inside = lp_max(div_up(p.count, w.rows), p.hot);
    return p;
}

/* A vertex sees `count` indices, `in` of them in its own rows. Workers share
 * the indices. */
static int64_t slice_vertex(int64_t count, int64_t in, int64_t bytes)
{
    return W * (30 + div_up(in, W) * (19 + 2 * div_up(bytes, 4)) +
                div_up(count - in, W) * 8);
}

/* Workers share the rows, so that all look-ups of a hot one fall to one. */
static int64_t update_vertex(const Part *p)
{
    int64_t each = 11 + 3 * (div_up(p->bytes, 4) - 1);
    int64_t in = lp_max(div_up(p->inside, W), p->hot);
    return W * (33 + 6 + in * each + (p->count - p->inside) * 5);
}

static LpCost slice_part(const LpCostCtx *x, Ways w, const Part *p)
{
    const LpChip *chip = x->chip;
    int64_t bus = chip->exchange_bytes_cyc;
    int64_t dict = w.count > 1 ? p->rows * p->bytes : 0;
    LpCost c = {.temp_tile_bytes = dict + p->count * p->bytes};
    cost_step(x, &c, div_up(dict + 4 * p->count, bus),
              slice_vertex(p->count, p->inside, p->bytes));
    c.sync_cyc += chip->step_cyc;
    c.exchange_code_bytes = lp_exchange_code_bytes(chip, 1, w.rows);
    if (w.rows == 1)
        return c;
    /* each tile collects its share of the rows from all parts */
    int64_t rows = div_up(p->count, w.rows);
    cost_step(x, &c, div_up(w.rows * rows * p->bytes, bus),
              slice_vertex(rows, rows, p->bytes));
    c.sync_cyc += chip->step_cyc;
    c.temp_tile_bytes += w.rows * rows * p->bytes;
    c.exchange_code_bytes += lp_exchange_code_bytes(chip, w.rows, w.rows);
    return c;
}

static LpCost update_part(const LpCostCtx *x, LpCostType t, Ways w,
                          const Part *p)
{
    const LpChip *chip = x->chip;
    int64_t bus = chip->exchange_bytes_cyc, cells = p->rows * p->cols;
    LpCost c = {.temp_tile_bytes = p->count * (p->bytes + 4)};
    cost_step(x, &c, div_up(p->count * (p->bytes + 4), bus), update_vertex(p));
    c.sync_cyc += chip->step_cyc;
    c.exchange_code_bytes = lp_exchange_code_bytes(chip, 1, w.rows);
    if (w.count == 1)
        return c;
    /* partial dictionaries: zeroed before, summed after, added in place */
    int64_t mine = div_up(cells, w.count);
    int64_t e = lp_cost_type_bytes(x->partials);
    cost_step(
        x, &c, 0,
        W * (26 + div_up(div_up(cells, W), vec_elems(chip, x->partials))));
    cost_step(x, &c, div_up(mine * w.count * e, bus),
              reduce_partials_cyc(x->partials, t, mine, w.count));
    cost_step(x, &c, 0, scaled_add_cyc(chip, t, mine, false));
    c.sync_cyc += chip->step_cyc;
    c.temp_tile_bytes += (cells + mine * w.count) * e;
    c.exchange_code_bytes += lp_exchange_code_bytes(chip, w.count, w.count);
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

/* The splits that serve the look-up, and its update when there is one, best:
 * the dictionary stays where it is. Chosen without knowing of a hot row. */
static Ways plan(const LpCostCtx *x, LpCostType t, LpLookup l)
{
    LpCost best = {0};
    Ways w, kept = {1, 1, 1};
    int64_t tiles = ctx_tiles(x);
    int64_t cols = div_up(l.cols, 4 / lp_cost_type_bytes(t));
    l.hot = 0;
    for (w.cols = 1; w.cols <= lp_min(cols, tiles);
         w.cols = next_split(cols, w.cols)) {
        int64_t left = tiles / w.cols;
        /* look-ups in doublings: their split trades smoothly with rows */
        for (w.count = 1; w.count <= lp_min(l.count, left); w.count *= 2)
            for (w.rows = lp_min(l.rows, left / w.count); w.rows; w.rows /= 2) {
                Part p = part_of(t, &l, w);
                LpCost c = slice_part(x, w, &p);
                if (l.trained)
                    lp_cost_add(&c, update_part(x, t, w, &p));
                c.tiles = 1;
                if (best.tiles && !better(x, &c, &best))
                    continue;
                best = c;
                kept = w;
            }
    }
    return kept;
}

static LpCost planned(const LpCostCtx *x, LpCostType t, const LpLookup *l,
                      bool adds)
{
    if (l->rows <= 0 || l->cols <= 0 || l->count <= 0)
        return (LpCost){0};
    Ways w = plan(x, t, *l);
    Part p = part_of(t, l, w);
    LpCost c = adds ? update_part(x, t, w, &p) : slice_part(x, w, &p);
    c.flops = adds ? mul_sat(l->count, l->cols) : 0;
    c.tiles = (int)(w.rows * w.cols * w.count);
    c.vertex_bytes = lp_vertex_bytes(1, 3, 6);
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
    cost_step(x, &c, offset, 25 + W * (39 + (24 + 2 * vecs) * count));
    c.tiles = m.tiles;
    c.vertex_bytes = lp_vertex_bytes(1, 3, 4);
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 1, 1);
    cost_codelet(&c, LP_CODELET_slice, t);
    return c;
}
