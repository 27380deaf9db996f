/* Cycles of the vertices that products and reductions are made of, on one tile.
 *
 * All return tile cycles: a worker gets every sixth, so a compute set takes
 * six times its longest worker, plus the supervisor's own work. Formulas are
 * restated from PL poplibs_support/ConvVertexCycles, poplin/
 * ConvReduceCycles, popops/PerformanceEstimation (PL = github
 * graphcore/poplibs); the numbers in them are those of the vertices' assembly
 * and have no meaning apart from it. */
#include "runtime/cost/units.h"

#include <math.h>

enum { W = LP_WORKERS }; /* worker contexts, as the assembly was written for */

LpAmpMode amp_mode(LpCostType t, LpCostType partials)
{
    if (t != LP_COST_HALF)
        return LP_AMP_F32_F32;
    return partials == LP_COST_HALF ? LP_AMP_F16_F16 : LP_AMP_F16_F32;
}

/* Cycles of a worker that walks n rows through the unit. */
static int64_t amp_worker(const LpAmp *a, const int rows[4], int64_t n)
{
    return n < 3 ? rows[n] : rows[3] + a->row_cyc * (n - 3);
}

/* Supervisor cycles to load one weight block. */
static int64_t amp_load(const LpChip *chip, const LpAmp *a, int64_t units)
{
    return units * a->coeff_bytes / chip->coeff_bytes_cyc;
}

/* Half of the units work where the output channels are no more. */
static int64_t amp_units(const LpAmp *a, int64_t out_group)
{
    return lp_min(a->units, out_group);
}

/* One pass of the units over m rows; the first writes its partials. The last
 * worker of equal ones begins later. */
static int64_t amp_pass(const LpChip *chip, const LpAmp *a, int64_t m,
                        int64_t units, bool first)
{
    int64_t r = div_up(m, W), worker = amp_worker(a, a->rows, r);
    if (first)
        worker += a->zero_cyc[0] + a->zero_cyc[1] * r * units / a->units;
    return 6 + first + amp_load(chip, a, units) + W * worker + (m % W ? 0 : 14);
}

int64_t amp_block_cyc(const LpChip *chip, LpAmpMode mode, int64_t m, int64_t n)
{
    const LpAmp *a = &chip->amp[mode];
    int64_t units = amp_units(a, n);
    return div_up(n, units) * (amp_pass(chip, a, m, units, false) - 6 * W);
}

int64_t amp_gemm_cyc(const LpChip *chip, LpAmpMode mode, int64_t m, AmpChans k)
{
    const LpAmp *a = &chip->amp[mode];
    int64_t units = amp_units(a, k.out_group), passes = k.out_group / units;
    int64_t gi = div_up(k.in, a->in_group), go = div_up(k.out, k.out_group);
    bool retained = mode != LP_AMP_F32_F32 && a->rows[0] == 14;
    int64_t first = go * (19 + passes * amp_pass(chip, a, m, units, true));
    int64_t next = go * (19 + passes * amp_pass(chip, a, m, units, false));
    int64_t kept = retained ? W * (10 + 2 * (gi - 1)) : 0;
    return 50 + kept + 23 + first + (gi - 1) * (16 + next);
}

/* One weight position, one in-group, one pass of the units over the field.
 * Outputs are dealt out evenly, so a worker may begin inside a row. */
static int64_t amp_position(const LpChip *chip, const LpAmp *a, int64_t units,
                            int64_t rows, int64_t len, int pack)
{
    int64_t load = amp_load(chip, a, units) + (pack == 1   ? 15
                                               : pack == 2 ? 46
                                                           : 60);
    if (pack > 4)
        load += 20 * pack - 60;
    int64_t share = div_up(rows * len, W), pieces = div_up(share, len);
    int64_t piece = div_up(share, pieces);
    int64_t equal = rows * len % W ? 0 : 9;
    return load + 3 + equal +
           W * (17 + pieces * amp_worker(a, a->kernel_rows, piece));
}

int64_t amp_conv_block_cyc(const LpChip *chip, LpAmpMode mode, AmpConv c,
                           int64_t n)
{
    const LpAmp *a = &chip->amp[mode];
    int64_t units = amp_units(a, n);
    return div_up(n, units) * div_up(c.kernel_rows, c.pack) * c.kernel_cols *
           amp_position(chip, a, units, c.rows, c.len, c.pack);
}

int64_t amp_conv_cyc(const LpChip *chip, LpAmpMode mode, AmpConv c, AmpChans k)
{
    int64_t gi = div_up(k.in * c.pack, chip->amp[mode].in_group);
    int64_t go = div_up(k.out, k.out_group);
    int64_t outer = div_up(c.kernel_rows, c.pack);
    int64_t group = 14 + outer * (14 + 12 * c.kernel_cols) +
                    amp_conv_block_cyc(chip, mode, c, k.out_group);
    /* partials are zeroed first */
    int64_t vecs = div_up(div_up(c.rows * c.len * k.out_group, W), 2);
    return 103 + 15 * W + 23 * go - 5 + 1 + W * (vecs + 5) * go + 16 +
           gi * (14 + go * group);
}

int64_t hmac_cyc(const LpChip *chip, LpCostType t, int64_t m, int64_t in,
                 int64_t k, int64_t n)
{
    int64_t v = vec_elems(chip, t), groups = div_up(in, k);
    int64_t dot = 7 + (k % v ? k * (t == LP_COST_HALF ? 1 : 2) : k / v);
    if (t == LP_COST_FLOAT && k % v == 0)
        dot = 7 + k;
    if (t == LP_COST_INT)
        dot = 7 + 14 * k; /* an int32 add takes 7, taken for the product too */
    /* every output channel by itself; partials are zeroed first */
    int64_t zero = W * (div_up(div_up(m * n, W), 2) + 5);
    int64_t each = n * (10 + W * (16 + 16 + 19 + div_up(m, W) * (7 + dot)));
    return (t == LP_COST_HALF ? 63 : 58) + 9 * W + 23 + zero +
           groups * (15 + each);
}

int64_t outer_cyc(const LpChip *chip, LpCostType t, int64_t m, int64_t n,
                  int64_t group)
{
    int64_t v = vec_elems(chip, t), width = div_up(m, W);
    if (!group)
        group = v;
    /* three vectors and more are in an unrolled loop */
    int64_t row = group < 3 * v ? 10 + group * (t == LP_COST_HALF ? 5 : 4) / 2
                                : 6 + div_up(group - 3 * v, v);
    return W * (25 + div_up(n, group) * (11 + width * row));
}

int64_t vmac_cyc(int64_t results, int64_t taps, int64_t m, int64_t fours,
                 int64_t in)
{
    /* each worker has partials of its own, zeroed before and summed after; an
     * item is a result under a row of the kernel */
    int64_t worker = 6 + div_up(results, W) * (10 + 5 + 5 + 2 * (taps - 2));
    int64_t sum = 10 + (9 + 2 * (W - 1)) * div_up(m, W) / 4;
    return 100 + fours * (4 + m + 32 + in * (24 + W * worker) + sum);
}

int64_t slic_cyc(int64_t rows, int64_t len, int64_t groups, int64_t parts,
                 int stride)
{
    int64_t share = div_up(rows * len, W), pieces = div_up(share, len);
    int64_t n = div_up(share, pieces);
    int64_t row = stride == 1 ? (n < 5 ? 13 + n : 10 + n) - 1
                              : (n < 3 ? 15 : 9 + 2 * n) - 1;
    int64_t worker = 19 + pieces * (10 + 3 + 2 * row); /* two passes */
    int64_t load = 9 + 6 + 12 * W + 6 + 16 + 25;
    return 28 + 21 * groups + parts * load + groups * parts * W * worker;
}

/* Partials in one piece of memory are summed without a list of where they are,
 * unless their elements of memory are a sixteenth of the tile. */
static bool in_one_piece(const LpChip *chip, int64_t n, int64_t acc,
                         int64_t bytes)
{
    int64_t element = chip->memory_element_bytes;
    return n % acc == 0 &&
           div_up(bytes, element) * element < chip->tile_bytes / 16;
}

int64_t reduce_partials_cyc(const LpChip *chip, LpCostType partials,
                            LpCostType out, int64_t n, int64_t depth)
{
    bool wide = partials == LP_COST_FLOAT, wide_out = out == LP_COST_FLOAT;
    int64_t acc = wide ? 4 : 8, loops = div_up(n, acc);
    int64_t bytes = (depth - 1) * n * lp_cost_type_bytes(partials);
    if (in_one_piece(chip, n, acc, bytes)) {
        int64_t store = (wide ? 7 : 9) + wide_out;
        return 33 + W * (20 + div_up(loops, W) * (2 * (depth - 1) + store));
    }
    int64_t each = 3 * depth + (wide ? 6 : 8) + wide_out;
    if (n % acc == 0)
        return W * (32 + div_up(loops, W) * each);
    loops = n / acc;
    for (int64_t part = 1; part < acc; part *= 2)
        loops += (n & part) != 0; /* a turn for every power of two */
    int64_t last = loops % W ? 2 * depth + (wide ? 13 : 11) : 0;
    return W * (32 + last + loops / W * each);
}

int64_t scaled_add_cyc(const LpChip *chip, LpCostType t, int64_t n, bool mixed)
{
    int64_t turns = lp_max(div_up(n, W * vec_elems(chip, t)) - 1, 0);
    return 44 + W * (15 + 9 + (mixed ? 4 : 3) * turns);
}

int64_t copy_cyc(const LpChip *chip, LpCostType t, int64_t n, bool transpose)
{
    int64_t e = lp_cost_type_bytes(t);
    /* an element at a time, four of five cycles useful */
    return transpose ? div_up(n * e * 5, 4 * lp_min(chip->memcpy_bytes_cyc, e))
                     : div_up(n * e, chip->memcpy_bytes_cyc);
}

/* Half: blocks of 4 x 4 in registers; PL popops cycle estimators, Transpose,
 * TransposeSupervisor, Transpose2d. */
static int64_t transpose_worker(LpCostType t, int64_t n, Block b)
{
    int64_t r = b.rows / 4, c = b.cols / 4;
    if (t != LP_COST_HALF)
        return 27 + n * (11 + b.rows / 2 * (6 + 3 * (b.cols / 2 - 1)));
    if (r == 1 && c == 1)
        return n == 1 ? 29 : 37 + (n - 2) * 4;
    if (c == 1)
        return 27 + n * (35 + 4 * (r - 2));
    return 29 + n * (18 + r * (12 + 4 * (c - 2)));
}

int64_t transpose_cyc(LpCostType t, int64_t blocks, Block b)
{
    bool alone = blocks == 1 || (b.rows == 4 && b.cols == 4 && blocks <= 4);
    if (blocks <= 0)
        return 0;
    if (t != LP_COST_HALF)
        return W * transpose_worker(t, div_up(blocks, W), b);
    if (alone)
        return W * transpose_worker(t, blocks, b);
    return 7 + W * (transpose_worker(t, div_up(blocks, W), b) - 7);
}

int64_t regroup_cyc(const LpChip *chip, LpCostType t, int64_t n, int64_t tiles,
                    Block b)
{
    int64_t least = vec_elems(chip, t), blocks = div_up(n, b.rows * b.cols);
    /* while there are more tiles than blocks, these get smaller */
    while (blocks * 2 <= tiles && b.rows * b.cols > least * least) {
        *(b.cols > least ? &b.cols : &b.rows) /= 2;
        blocks = div_up(n, b.rows * b.cols);
    }
    return transpose_cyc(t, div_up(blocks, tiles), b);
}

int64_t slice_cyc(const LpChip *chip, LpCostType t, int64_t elems)
{
    return 25 +
           W * (39 + 24 + 2 * div_up(div_up(elems, W), vec_elems(chip, t)));
}

/* The least messages of a tile in so many stages; `keep`: partials after each
 * but the last. */
static double fewest_messages(int64_t depth, int stages, int64_t *keep)
{
    if (stages == 1)
        return (double)depth;
    int64_t low = (int64_t)pow((double)depth, (stages - 1.0) / stages);
    double best = 0;
    for (int64_t next = lp_max(low, 1); next <= low + 1; next++) {
        int64_t rest[3] = {0};
        double cost = fewest_messages(next, stages - 1, rest) +
                      (double)depth / (double)next;
        if (best > 0 && cost > best)
            continue;
        best = cost;
        keep[0] = next;
        for (int i = 0; i < stages - 2; i++)
            keep[i + 1] = rest[i];
    }
    return best;
}

int reduce_stages(int64_t depth, int64_t ways[3])
{
    int n = depth >= 125 ? 3 : depth >= 16 ? 2 : 1;
    int64_t left = depth, keep[3] = {0};
    fewest_messages(depth, n, keep);
    keep[n - 1] = 1;
    for (int i = 0; i < n; i++) {
        ways[i] = div_up(left, keep[i]);
        left = keep[i];
    }
    return n;
}
