/* Pooling: MaxPooling, SumPooling and MaxPoolingGrad, vertices with work
 * lists: a worker has pieces of rows, each with an item for every position of
 * the window, each of which walks the channels of a group, a vector at a time.
 * The planner splits channels, batch and field so that such a vertex and the
 * bytes it needs take least. Source: PL popnn/PoolPlan, PoolVertices,
 * Pooling and popnn/PerformanceEstimation (getPoolingCycles). No indices are
 * made: the gradient compares inputs with outputs. */
#include "runtime/cost/units.h"

enum { W = LP_WORKERS, GROUP = 16 }; /* channels that lie together */

/* One direction: `rows` x `cols` results of `batch` images, each of `taps`
 * positions of a window. */
typedef struct Windows {
    LpCostType type;
    bool max, grad;
    int64_t batch, chans, rows, cols, taps;
    int64_t row_step, col_step; /* results between two of one tap */
    int64_t row_stride, col_stride, row_taps, col_taps;
    int64_t in_rows, in_cols;
} Windows;

/* A tile's share. */
typedef struct Share {
    int64_t vecs, groups, batch, rows, cols;
} Share;

typedef struct Plan {
    Share s;
    int64_t tiles, compute, bytes, weighed;
} Plan;

static int64_t vertex_cyc(const Windows *w, const Share *s)
{
    int64_t rows = s->batch * s->rows, n = rows * s->cols;
    int64_t share = div_up(n, W), pieces = div_up(share, s->cols);
    int64_t run = div_up(div_up(share, pieces), w->col_step);
    int64_t loop =
        w->grad && w->max ? 7 + 5 * (run - 1) : 5 - w->max + 3 * (run - 1);
    int64_t group = 1 + s->vecs * (2 + loop + 1) + 1;
    int64_t item = 20 + s->groups * group +
                   (s->groups - 1) * (w->grad && w->max ? 6 : 4) + 3;
    /* a strided gradient finds results of a tap in every other row only */
    int64_t items = div_up(pieces * w->taps, w->row_step);
    int64_t worker = 21 + (4 + div_up(n * s->vecs, W)) * s->groups + 8 + 13 +
                     (w->grad && w->max ? 10 : 0) + pieces * 15 + items * item +
                     1;
    return 7 + W * worker + 6;
}

/* Bytes that a share of vectors of `vec` reads: windows of neighbours
 * overlap. */
static int64_t share_bytes(const Windows *w, const Share *s, int64_t vec)
{
    int64_t r = s->rows, c = s->cols, e = lp_cost_type_bytes(w->type);
    int64_t each = s->batch * s->groups * s->vecs * vec * e;
    r = lp_min((r - 1) / w->row_step * w->row_stride + w->row_taps, w->in_rows);
    c = lp_min((c - 1) / w->col_step * w->col_stride + w->col_taps, w->in_cols);
    int64_t in = r * c * each;
    /* gradients want the pooled values and the inputs beside the deltas */
    return w->grad && w->max ? 2 * in + s->rows * s->cols * each : in;
}

static void consider(const LpCostCtx *x, const Windows *w, Share s,
                     int64_t tiles, Plan *best)
{
    int64_t vec = vec_elems(x->chip, w->type);
    Plan p = {.s = s, .tiles = tiles};
    p.compute = vertex_cyc(w, &s);
    p.bytes = share_bytes(w, &s, vec);
    p.weighed = p.compute + p.bytes / 4;
    if (s.vecs * vec != GROUP)
        p.weighed += p.bytes / 4;
    if (!best->tiles || p.weighed < best->weighed)
        *best = p;
}

static void split_field(const LpCostCtx *x, const Windows *w, Share s,
                        int64_t used, Plan *best)
{
    int64_t left = ctx_tiles(x) / used;
    for (int64_t r = 1; r <= lp_min(w->rows, left);
         r = next_split(w->rows, r)) {
        /* the widest split of columns is never worse */
        int64_t c = lp_min(w->cols, left / r);
        s.rows = div_up(w->rows, r);
        s.cols = div_up(w->cols, c);
        consider(x, w, s, used * r * div_up(w->cols, s.cols), best);
    }
}

static Plan plan(const LpCostCtx *x, const Windows *w)
{
    int64_t v = vec_elems(x->chip, w->type), tiles = ctx_tiles(x);
    int64_t grains = div_up(w->chans, v);
    Plan best = {.tiles = 0};
    for (int64_t vecs = 1; vecs <= lp_min(GROUP / v, grains); vecs++) {
        int64_t groups = div_up(grains, vecs);
        for (int64_t g = 1; g <= lp_min(groups, tiles);
             g = next_split(groups, g))
            for (int64_t b = 1; b <= lp_min(w->batch, tiles / g);
                 b = next_split(w->batch, b))
                split_field(x, w,
                            (Share){.vecs = vecs,
                                    .groups = div_up(groups, g),
                                    .batch = div_up(w->batch, b)},
                            g * b, &best);
    }
    return best;
}

static LpCost windows(const LpCostCtx *x, const Windows *w)
{
    LpCost c = {0};
    int64_t n = lp_mul_sat(lp_mul_sat(w->batch, w->chans),
                           lp_mul_sat(w->rows, w->cols));
    if (n <= 0 || w->taps <= 0)
        return c;
    Plan p = plan(x, w);
    cost_step(
        x, &c, div_up(p.bytes, x->chip->exchange_bytes_cyc),
        (Vertices){.id = codelet_id(LP_CODELET_pool, w->type),
                   .tiles = p.tiles,
                   .n = 1,
                   .edges = 4,
                   .scalars = 6,
                   .list_bytes = 6 * w->taps * lp_min(p.s.batch * p.s.rows, W),
                   .cyc = p.compute,
                   .idle_cyc = idle_cyc(x->chip, p.compute,
                                        p.s.batch * p.s.rows * p.s.cols)});
    cost_sync(x, &c, 1);
    c.tiles = (int)p.tiles;
    c.flops = lp_mul_sat(n, div_up(w->taps, w->row_step * w->col_step));
    c.temp_tile_bytes = p.bytes;
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 2, w->taps);
    cost_codelet(&c, LP_CODELET_pool, w->type);
    return c;
}

LpCost lp_cost_pool(const LpCostCtx *x, LpRedOp op, LpCostType t,
                    const LpPoolShape *s)
{
    Windows w = {.type = t,
                 .max = op == LP_RED_MAX,
                 .batch = s->batch * s->out[0],
                 .chans = s->chans,
                 .rows = s->out[1],
                 .cols = s->out[2],
                 .taps = s->kernel[0] * s->kernel[1] * s->kernel[2],
                 .row_step = 1,
                 .col_step = 1,
                 .row_stride = s->stride[1],
                 .col_stride = s->stride[2],
                 .row_taps = s->kernel[1],
                 .col_taps = s->kernel[2],
                 .in_rows = s->field[1],
                 .in_cols = s->field[2]};
    return windows(x, &w);
}

LpCost lp_cost_pool_grad(const LpCostCtx *x, LpRedOp op, LpCostType t,
                         const LpPoolShape *s)
{
    Windows w = {.type = t,
                 .max = op == LP_RED_MAX,
                 .grad = true,
                 .batch = s->batch * s->field[0],
                 .chans = s->chans,
                 .rows = s->field[1],
                 .cols = s->field[2],
                 .taps = s->kernel[0] * s->kernel[1] * s->kernel[2],
                 .row_step = s->stride[1],
                 .col_step = s->stride[2],
                 .row_stride = 1,
                 .col_stride = 1,
                 .row_taps = div_up(s->kernel[1], s->stride[1]),
                 .col_taps = div_up(s->kernel[2], s->stride[2]),
                 .in_rows = s->out[1],
                 .in_cols = s->out[2]};
    LpCost c = windows(x, &w);
    if (!c.tiles)
        return c;
    /* the deltas are first brought to where the pooled values lie; those of a
     * mean are scaled there */
    int64_t n = s->batch * s->chans * s->out[0] * s->out[1] * s->out[2];
    LpTileMap m = lp_tile_map(x, t, n, GROUP);
    if (w.max)
        cost_step(x, &c,
                  lp_exchange_cyc(x->chip, m.tile_bytes, m.tile_bytes, false),
                  NO_VERTICES);
    else
        lp_cost_add(&c, lp_cost_elementwise(x, LP_EW_mul, LP_EW_SCALAR, t, n));
    return c;
}
