/* Elementwise operations, casts, fills, copies, random numbers.
 *
 * A supervisor vertex deals a tile's elements to its six workers; time is the
 * supervisor's part + 6 * (call + loop of the longest worker). Source: PL
 * popops elementwise cycle estimators, popops/PerformanceEstimation, poprand
 * cycle estimators; the loops stand in elementwise.def. */
#include "runtime/cost/units.h"

enum { W = LP_WORKERS }; /* worker contexts, as the assembly was written for */
enum { SUPER = 11 };     /* supervisor's call of a vertex */

typedef struct Loop {
    int cycles, group, in_place, overhead;
} Loop;

static const struct {
    Loop fp32, fp16, integer;
} ops[] = {
#define EW(op, ...) {__VA_ARGS__},
#include "runtime/cost/elementwise.def"
#undef EW
};

static bool is_arithmetic(LpEwOp op, LpCostType t)
{
    return t != LP_COST_INT &&
           (op == LP_EW_add || op == LP_EW_sub || op == LP_EW_mul);
}

/* Cycles of one worker's loop over q elements. */
static int64_t loop_cyc(LpEwOp op, LpEwForm form, LpCostType t, int64_t q)
{
    const Loop *l = t == LP_COST_HALF    ? &ops[op].fp16
                    : t == LP_COST_FLOAT ? &ops[op].fp32
                                         : &ops[op].integer;
    bool in_place = form == LP_EW_UNARY_INPLACE || form == LP_EW_BINARY_INPLACE;
    int64_t c = in_place && l->in_place ? l->in_place : l->cycles;
    if (l->overhead) {
        if (form == LP_EW_BINARY || form == LP_EW_BINARY_INPLACE)
            c += is_arithmetic(op, t) ? 2 : 5;
        else if (form == LP_EW_SCALAR)
            c += is_arithmetic(op, t) ? 1 : 4;
        else
            c += 4;
    }
    return div_up(q, l->group) * c;
}

int64_t lp_ew_tile_cyc(const LpChip *chip, LpEwOp op, LpEwForm form,
                       LpCostType t, int64_t n_tile)
{
    int64_t q = div_up(n_tile, chip->workers);
    int64_t loop = loop_cyc(op, form, t, q);
    if (n_tile <= 0)
        return 0;
    switch (form) {
    case LP_EW_UNARY:
        return SUPER + 9 + W * ((op == LP_EW_exp ? 33 : 17) + loop);
    case LP_EW_UNARY_INPLACE:
        return SUPER + 9 + W * (55 + loop);
    case LP_EW_BINARY:
        return SUPER + W * ((t == LP_COST_HALF ? 26 : 29) + loop);
    case LP_EW_BINARY_INPLACE:
        return SUPER + W * (58 + loop);
    case LP_EW_SCALAR:
        break;
    }
    return SUPER + W * (20 + loop);
}

/* Elements in vectors over the tiles. */
static LpTileMap spread(const LpCostCtx *x, LpCostType t, int64_t n)
{
    return lp_tile_map(x, t, n, vec_elems(x->chip, t));
}

/* One compute set of one vertex a tile, without exchange; its workers get a
 * tile's elements in vectors. */
static LpCost one_step(const LpCostCtx *x, int id, LpTileMap m, int64_t cyc,
                       int pointers)
{
    LpCost c = {.tiles = m.tiles};
    int64_t bytes = x->chip->data_path_bytes;
    cost_step(x, &c, 0,
              (Vertices){.id = id,
                         .tiles = m.tiles,
                         .n = 1,
                         .edges = pointers,
                         .scalars = 2,
                         .cyc = cyc,
                         .idle_cyc = idle_cyc(x->chip, cyc,
                                              div_up(m.tile_bytes, bytes))});
    return c;
}

LpCost lp_cost_elementwise(const LpCostCtx *x, LpEwOp op, LpEwForm form,
                           LpCostType t, int64_t n)
{
    if (n <= 0)
        return (LpCost){0};
    LpTileMap m = spread(x, t, n);
    LpCost c = one_step(x, ew_codelet_id(op, form, t), m,
                        lp_ew_tile_cyc(x->chip, op, form, t, m.tile_elems),
                        form == LP_EW_BINARY ? 3 : 2);
    c.flops = n;
    cost_ew_codelet(&c, op, form, t);
    return c;
}

LpCost lp_cost_broadcast(const LpCostCtx *x, LpEwOp op, LpCostType t, int64_t n,
                         int64_t row, int64_t inner)
{
    if (n <= 0 || row <= 0 || inner <= 0)
        return (LpCost){0};
    LpTileMap m = spread(x, t, n);
    int64_t part = lp_min(inner > 1 ? inner : row, m.tile_elems);
    int64_t rows = div_up(m.tile_elems, part);
    int64_t operand = inner > 1 ? rows : part;
    int64_t vecs = div_up(part, vec_elems(x->chip, t));
    /* 3 cycles a vector and 12 a row, rows dealt to the workers */
    int64_t share = rows >= W ? div_up(rows, W) * (12 + 3 * vecs)
                              : rows * (12 + 3 * div_up(vecs, W));
    if (!is_arithmetic(op, t))
        share += loop_cyc(op, LP_EW_BINARY, t, div_up(m.tile_elems, W));
    LpCost c = one_step(x, codelet_id(LP_CODELET_broadcast, t), m,
                        SUPER + W * (26 + share), 3);
    c.exchange_cyc =
        lp_exchange_cyc(x->chip, operand * lp_cost_type_bytes(t), 0, true);
    c.temp_tile_bytes = operand * lp_cost_type_bytes(t);
    c.apart_tile_bytes = m.tile_bytes; /* the result, of the data */
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 1, 1);
    c.flops = n;
    cost_ew_codelet(&c, op, LP_EW_BINARY, t);
    cost_codelet(&c, LP_CODELET_broadcast, t);
    return c;
}

LpCost lp_cost_scaled_add(const LpCostCtx *x, LpCostType t, int64_t n,
                          bool mixed)
{
    if (n <= 0)
        return (LpCost){0};
    LpTileMap m = spread(x, t, n);
    LpCost c = one_step(x, codelet_id(LP_CODELET_scaled_add, t), m,
                        scaled_add_cyc(x->chip, t, m.tile_elems, mixed), 3);
    c.flops = lp_mul_sat(n, 2);
    c.apart_tile_bytes = m.tile_bytes;
    cost_codelet(&c, LP_CODELET_scaled_add, t);
    return c;
}

LpCost lp_cost_cast(const LpCostCtx *x, LpCostType from, LpCostType to,
                    int64_t n)
{
    if (n <= 0 || from == to)
        return (LpCost){0};
    LpTileMap m = spread(x, to, n);
    int64_t q = div_up(m.tile_elems, W), loop;
    if (from == LP_COST_INT || to == LP_COST_INT)
        loop = 9 * div_up(q, 4);
    else
        loop = to == LP_COST_HALF ? 2 * div_up(q, 4) : div_up(q, 2);
    LpCost c = one_step(x, codelet_id(LP_CODELET_cast, to), m,
                        12 + W * (18 + 19 + loop + 3), 2);
    c.apart_tile_bytes =
        m.tile_elems * lp_min(lp_cost_type_bytes(from), lp_cost_type_bytes(to));
    cost_codelet(&c, LP_CODELET_cast, to);
    return c;
}

LpCost lp_cost_fill(const LpCostCtx *x, LpCostType t, int64_t n)
{
    if (n <= 0)
        return (LpCost){0};
    LpTileMap m = spread(x, t, n);
    int64_t vecs = div_up(div_up(m.tile_elems, W), vec_elems(x->chip, t));
    LpCost c = one_step(x, codelet_id(LP_CODELET_fill, t), m,
                        W * ((t == LP_COST_HALF ? 26 : 23) + vecs), 1);
    cost_codelet(&c, LP_CODELET_fill, t);
    return c;
}

/* Channels that lie together, of half. */
#define GROUP 16

LpCost lp_cost_copy(const LpCostCtx *x, LpCostType t, int64_t n, int64_t run)
{
    bool transpose = run < vec_elems(x->chip, t) && run < n;
    LpCost c = lp_cost_exchange(x, t, n, lp_max(run, GROUP));
    if (n <= 0)
        return c;
    LpTileMap m = spread(x, t, n);
    cost_step(x, &c, 0,
              (Vertices){.id = codelet_id(LP_CODELET_copy, t),
                         .tiles = m.tiles,
                         .n = 1,
                         .edges = 2,
                         .scalars = 2,
                         .cyc = copy_cyc(x->chip, t, m.tile_elems, transpose)});
    c.temp_tile_bytes = m.tile_bytes;
    cost_codelet(&c, LP_CODELET_copy, t);
    return c;
}

/* A multiplication with its operands' loads and its result's store: four
 * instructions, each in the thread's turn of six. */
#define SERIAL_MAC_CYC (4 * 6)

LpCost lp_cost_serial(const LpCostCtx *x, LpCostType t, int64_t count,
                      int64_t elems, int64_t macs)
{
    LpCost c = lp_cost_exchange(x, t, lp_mul_sat(count, elems), elems);
    if (count <= 0 || elems <= 0)
        return c;
    int64_t tiles = lp_min(count, ctx_tiles(x));
    int64_t each = div_up(count, tiles);
    int64_t bytes = lp_mul_sat(elems, lp_cost_type_bytes(t));
    int64_t cyc = lp_mul_sat(each, lp_mul_sat(macs, SERIAL_MAC_CYC));
    cost_step(x, &c, 0,
              (Vertices){.id = codelet_id(LP_CODELET_factor, t),
                         .tiles = tiles,
                         .n = each,
                         .edges = 3,
                         .scalars = 4,
                         .cyc = cyc,
                         .idle_cyc = idle_cyc(x->chip, cyc, 1)});
    c.flops = lp_mul_sat(2, lp_mul_sat(count, macs));
    c.temp_tile_bytes = lp_mul_sat(each + 1, bytes);
    c.tiles = (int)tiles;
    cost_codelet(&c, LP_CODELET_factor, t);
    return c;
}

LpCost lp_cost_random(const LpCostCtx *x, LpRndOp op, LpCostType t, int64_t n)
{
    /* cycles a vector; truncated normal at its default of 4 iterations */
    static const int per_vec[LP_N_RND] = {4, 4, 11 * 4 + 5, 1, 2};
    if (n <= 0)
        return (LpCost){0};
    LpTileMap m = spread(x, t, n);
    int64_t vecs = div_up(m.tile_elems, vec_elems(x->chip, t));
    int id = codelet_id(LP_CODELET_random, t);
    LpCost c = one_step(x, id, m, 6 + 24 * W + per_vec[op] * vecs, 2);
    /* the seed of this site */
    cost_step(x, &c, 0,
              (Vertices){.id = id,
                         .tiles = m.tiles,
                         .n = 1,
                         .edges = 1,
                         .scalars = 2,
                         .cyc = 14 + 27 * W});
    c.flops = op == LP_RND_DROPOUT ? n : 0;
    cost_codelet(&c, LP_CODELET_random, t);
    return c;
}
