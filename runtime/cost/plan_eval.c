/* One split of one convolution: its cycles by term, its memory.
 *
 * Terms as in the planner of PL poplin (ConvPlan, ConvPlanTypes,
 * ExchangeEstimator): a tile fetches what it lacks of its inputs and of its
 * weights, computes partials, the partials of a split contraction are
 * exchanged and summed in stages, a single partial is cast. Inputs that an
 * even number of neighbours share arrive at twice the rate over the pair's
 * bus. A serial split runs all that in a loop over slices. */
#include "runtime/cost/plan.h"

/* Shape of one tile's share in one turn of the loop. */
typedef struct Share {
    int64_t groups, batch, rows, cols, in, out, krows;
    int64_t n_in, n_weight, n_out; /* elements */
} Share;

int plan_pack(const LpCostCtx *x, const Conv *c)
{
    return x->chip->amp[amp_mode(c->type, c->partials)].in_group / c->in_group;
}

int64_t plan_in_grain(const LpCostCtx *x, const Conv *c)
{
    if (c->method == LP_CONV_AMP || (c->method == LP_CONV_HMAC && c->in_group))
        return c->in_group;
    return c->method == LP_CONV_HMAC ? vec_elems(x->chip, c->type) : 1;
}

int64_t plan_group_grain(const Conv *c)
{
    if (c->method == LP_CONV_SLIC) {
        int64_t most = lp_max(c->in, c->out);
        return most == 1 ? 4 : most == 2 ? 2 : 1;
    }
    return c->method == LP_CONV_VMAC ? 4 : 1;
}

int64_t plan_out_grain(const Conv *c)
{
    return c->method == LP_CONV_AMP || c->joint ? c->out_group : 1;
}

/* Input positions under `out` outputs and `taps` weights. */
static int64_t extent(int64_t out, int64_t stride, int64_t taps,
                      int64_t dilation, int64_t apart, int64_t most)
{
    if (taps == 1)
        return out; /* a stride over single taps skips inputs */
    int64_t span = (out - 1) * stride + (taps - 1) * dilation;
    return lp_min(span / apart + 1, most);
}

/* Results of a tile's `share` of n that a tap meets inputs for: of all, the
 * mean over the taps; inner shares know no padding. */
static int64_t met(int64_t share, int64_t n, int64_t taps, int64_t uses,
                   int64_t apart)
{
    if (share < n)
        return div_up(share, apart);
    return lp_max(div_up(uses, lp_max(taps, 1)), 1);
}

static int64_t channels(int64_t n, int64_t splits, int64_t grain)
{
    return div_up(div_up(n, grain), splits) * grain;
}

static Share share_of(const LpCostCtx *x, const Conv *c, const LpSplit *s)
{
    Share t = {
        .groups = channels(c->groups, s->groups, plan_group_grain(c)),
        .batch = div_up(c->batch, s->batch),
        .rows = div_up(c->rows, s->rows),
        .cols = channels(c->cols, s->cols, c->col_grain),
        .in = channels(c->in, s->in * s->serial_in, plan_in_grain(x, c)),
        .out = channels(c->out, s->out * s->serial_out, plan_out_grain(c)),
        .krows = div_up(c->krows, s->kernel),
    };
    if (c->method == LP_CONV_AMP) /* zeros fill the last rows of weights */
        t.krows = div_up(t.krows, plan_pack(x, c)) * plan_pack(x, c);
    t.cols = lp_min(t.cols, lp_max(c->cols, 1));
    int64_t ir = extent(t.rows, c->srow, t.krows, c->drow, c->zrow, c->in_rows);
    int64_t ic =
        extent(t.cols, c->scol, c->kcols, c->dcol, c->zcol, c->in_cols);
    t.n_in = t.groups * t.batch * ir * ic * t.in;
    t.n_weight = t.groups * t.krows * c->kcols * t.in * t.out;
    t.n_out = t.groups * t.batch * t.rows * t.cols * t.out;
    return t;
}

static int64_t kernel_cyc(const LpCostCtx *x, const Conv *c, const Share *t)
{
    LpAmpMode mode = amp_mode(c->type, c->partials);
    int64_t rows = t->batch * t->rows, m = rows * t->cols;
    int64_t met_rows =
        t->batch * met(t->rows, c->rows, c->krows, c->row_uses, c->zrow);
    int64_t met_cols = met(t->cols, c->cols, c->kcols, c->col_uses, c->zcol);
    switch (c->method) {
    case LP_CONV_HMAC:
        return t->groups * hmac_cyc(x->chip, c->type, m, t->in,
                                    c->in_group ? c->in_group : t->in, t->out);
    case LP_CONV_OUTER:
        return outer_cyc(x->chip, c->type, m, t->groups * t->out,
                         c->joint ? c->out_group : 0);
    case LP_CONV_VMAC:
        return vmac_cyc(met_rows * t->krows * t->cols,
                        div_up(met_cols * c->kcols, lp_max(t->cols, 1)), m,
                        t->groups / 4, t->in);
    case LP_CONV_SLIC:
        return slic_cyc(rows, t->cols, t->groups / plan_group_grain(c),
                        t->krows * div_up(c->kcols, 4), (int)c->scol);
    case LP_CONV_AMP:
        break;
    }
    AmpChans k = {t->in, t->out, c->out_group};
    if (t->krows == 1 && c->kcols == 1)
        return t->groups * amp_gemm_cyc(x->chip, mode, m, k);
    AmpConv a = {met_rows, met_cols, t->krows, c->kcols, plan_pack(x, c)};
    return t->groups * amp_conv_cyc(x->chip, mode, a, k);
}

/* Exchange and sum of the partials, or their cast. Returns the steps. */
static int add_reduction(const LpCostCtx *x, const Conv *c, const LpSplit *s,
                         int64_t n_out, LpPlan *p)
{
    int64_t depth = s->in * s->kernel, ways[3], left = n_out;
    int64_t e = lp_cost_type_bytes(c->partials), steps = 0;
    p->partial_bytes = n_out * e;
    if (depth == 1) {
        if (c->partials == c->out_type)
            return 0;
        /* partials lie interleaved: a vector of results in one cycle */
        int64_t turns = div_up(div_up(n_out, 6), 4);
        p->reduce_cyc = 12 + 6 * (18 + 19 + 3 + turns);
        return 1;
    }
    int n = reduce_stages(depth, ways);
    for (int i = 0; i < n; i++) {
        p->partial_cyc += div_up(left * e, x->chip->exchange_bytes_cyc);
        left = div_up(left, ways[i]);
        LpCostType to = i == n - 1 ? c->out_type : c->partials;
        p->reduce_cyc +=
            reduce_partials_cyc(x->chip, c->partials, to, left, ways[i]);
        p->exchange_code_bytes +=
            lp_exchange_code_bytes(x->chip, ways[i], ways[i]);
        p->temp_bytes =
            lp_max(p->temp_bytes, p->partial_bytes + left * e * (ways[i] + 1));
        steps += 2;
    }
    return (int)steps;
}

/* What a serial split adds a turn, and once (rearranging the sliced operand).
 */
static void add_serial(const LpCostCtx *x, const Conv *c, const LpSplit *s,
                       const Share *t, int64_t tiles, LpPlan *p)
{
    int64_t e = lp_cost_type_bytes(c->type);
    int64_t turns = s->serial_in * s->serial_out;
    if (turns == 1)
        return;
    int64_t turn = slice_cyc(x->chip, c->type, t->n_weight);
    if (s->serial_in > 1) {
        turn += slice_cyc(x->chip, c->type, t->n_in);
        turn += scaled_add_cyc(x->chip, c->out_type, t->n_out, false);
        p->temp_bytes += t->n_out * lp_cost_type_bytes(c->out_type);
    }
    if (s->serial_out > 1)
        turn += slice_cyc(x->chip, c->out_type, t->n_out);
    p->serial_cyc = turns * turn;
    if (s->serial_in == 1)
        return;
    /* weights lie as slices of outputs want them, not as slices of inputs */
    int64_t sliced =
        lp_mul_sat(c->groups * c->krows * c->kcols, lp_mul_sat(c->in, c->out));
    int64_t part = div_up(sliced, tiles);
    p->serial_cyc += part + div_up(part * e, x->chip->exchange_bytes_cyc);
    p->temp_bytes += part * e;
}

/* Growing the input by folded kernel columns: for the whole IPU before the
 * exchange, or by each tile after it, whichever is less. */
static int add_expansion(const LpCostCtx *x, const Conv *c, const Share *t,
                         int64_t tiles, LpPlan *p)
{
    if (c->expand <= 1)
        return 0;
    int64_t e = lp_cost_type_bytes(c->type);
    int64_t bus = x->chip->exchange_bytes_cyc;
    int64_t whole = c->groups * c->batch * c->rows * c->cols *
                    lp_mul_sat(c->in, c->krows * c->kcols);
    int64_t part = div_up(whole, tiles), saved = p->in_cyc / c->expand;
    int64_t early =
        div_up(part * e, bus) + copy_cyc(x->chip, c->type, part, true);
    int64_t late = saved + copy_cyc(x->chip, c->type, t->n_in, true);
    if (early + p->in_cyc + x->chip->step_cyc < late) {
        p->transform_exchange_cyc = div_up(part * e, bus);
        p->transform_cyc = early - p->transform_exchange_cyc;
        p->temp_bytes = lp_max(p->temp_bytes, 2 * part * e);
        return 2;
    }
    p->in_cyc = saved;
    p->transform_cyc = late - saved;
    p->temp_bytes += t->n_in / c->expand * e;
    return 1;
}

/* One operand of n elements brought into another layout by `tiles` tiles. */
static int64_t relay_cyc(const LpCostCtx *x, LpCostType t, int64_t n,
                         int64_t tiles, int64_t inner)
{
    int64_t part = div_up(n, tiles);
    bool vectors = inner % vec_elems(x->chip, t) == 0;
    return copy_cyc(x->chip, t, part, true) * 4 / (vectors ? 4 : 3) +
           div_up(part * lp_cost_type_bytes(t), x->chip->exchange_bytes_cyc);
}

/* What the planner fears its choice will cost its neighbours: operands and
 * results that do not come, or are not wanted, as the plan has them. Weighed,
 * not paid: the operands are allocated as planned. */
static int64_t layout_cyc(const LpCostCtx *x, const Conv *c, const Share *t,
                          int64_t tiles)
{
    bool wu = c->pass == LP_PASS_WU && !c->product;
    /* a group of HMAC is what a tile has */
    bool own = c->method == LP_CONV_HMAC && !c->in_group;
    bool pad_in = c->in % (own ? t->in : plan_in_grain(x, c)) != 0;
    bool pad_out = c->out % plan_out_grain(c) != 0;
    bool moved = c->swapped || c->combined || c->expand > 1 || wu;
    int64_t rows = lp_mul_sat(c->groups * c->batch, c->rows * c->cols);
    int64_t input = lp_mul_sat(rows, c->in);
    int64_t output = lp_mul_sat(rows, c->out);
    int64_t weights =
        lp_mul_sat(c->groups * c->krows * c->kcols, lp_mul_sat(c->in, c->out));
    int64_t cyc = 0;
    bool fc = c->product && c->pass != LP_PASS_NONE;
    if (moved || pad_in ||
        (fc &&
         (c->pass == LP_PASS_WU || (c->pass == LP_PASS_BWD && !c->joint))))
        cyc += relay_cyc(x, c->type, input, tiles, c->in * c->out);
    if (moved || pad_in || pad_out)
        cyc += relay_cyc(x, c->type, weights, tiles, c->in * c->out);
    if ((c->swapped && !wu) || (wu && !c->swapped) || c->combined || pad_out ||
        (fc && c->pass == LP_PASS_WU && !c->joint))
        cyc += relay_cyc(x, c->out_type, output, tiles, c->out);
    else if (!fc && c->out_group != 16 && c->method == LP_CONV_AMP)
        cyc += div_up(
            5 * copy_cyc(x->chip, c->out_type, div_up(output, tiles), false),
            4);
    return cyc;
}

/* Its planner knows no syncs. */
int64_t plan_weighed(const LpPlan *p)
{
    return p->total_cyc - p->sync_cyc + p->layout_cyc;
}

bool plan_better(const LpPlan *a, const LpPlan *b)
{
    if (a->fits != b->fits)
        return a->fits;
    if (a->fits && plan_weighed(a) != plan_weighed(b))
        return plan_weighed(a) < plan_weighed(b);
    if (a->temp_bytes != b->temp_bytes)
        return a->temp_bytes < b->temp_bytes;
    return plan_weighed(a) < plan_weighed(b);
}

static void set_splits(const Conv *c, const LpSplit *s, LpPlan *p)
{
    *p = (LpPlan){.method = c->method,
                  .swapped = c->swapped,
                  .expanded = c->expand > 1,
                  .has_kernel = c->krows * c->kcols > 1,
                  .split = *s,
                  .flops = c->flops};
    p->tiles =
        s->groups * s->batch * s->rows * s->cols * s->in * s->out * s->kernel;
}

/* Operands lie on the tiles that use them, at least so many bytes together: PL
 * poplin/Convolution mapActivationsOrWeights. */
enum { LEAST_INPUT_BYTES = 128, LEAST_WEIGHT_BYTES = 256 };

/* Tiles over which `bytes` that `users` tiles want are spread. */
static int64_t pieces(int64_t bytes, int64_t users, int64_t least)
{
    return lp_min(users, div_up(bytes, least));
}

bool plan_eval(const LpCostCtx *x, const Conv *c, const LpSplit *s,
               const LpPlan *best, LpPlan *p)
{
    const LpChip *chip = x->chip;
    int64_t e = lp_cost_type_bytes(c->type), turns;
    int64_t bus = chip->exchange_bytes_cyc;
    int64_t field = s->batch * s->rows * s->cols;
    Share t = share_of(x, c, s);
    set_splits(c, s, p);
    turns = s->serial_in * s->serial_out;
    p->tile_cyc = turns * kernel_cyc(x, c, &t);
    int64_t most = best && best->fits ? plan_weighed(best) : INT64_MAX;
    if (p->tile_cyc >= most)
        return false;
    /* in a shared split, neighbours have other inputs in the last pass */
    bool pair = s->out % chip->tiles_per_bus == 0 && !c->joint;
    p->in_cyc = div_up((t.n_in - t.n_in / s->out) * e,
                       pair ? bus * chip->tiles_per_bus : bus);
    p->weight_cyc = div_up((t.n_weight - t.n_weight / field) * e, bus);
    if (c->expand == 1 &&
        p->tile_cyc + turns * (p->in_cyc + p->weight_cyc) >= most)
        return false;
    p->input_bytes = t.n_in * e;
    p->weight_bytes = t.n_weight * e;
    p->temp_bytes =
        (t.n_in + t.n_weight) * e + t.n_out * lp_cost_type_bytes(c->partials);
    int steps = 2 + add_reduction(x, c, s, t.n_out, p);
    steps += add_expansion(x, c, &t, p->tiles, p);
    add_serial(x, c, s, &t, p->tiles, p);
    p->in_cyc *= turns;
    p->weight_cyc *= turns;
    p->partial_cyc *= turns;
    p->reduce_cyc *= turns;
    p->transform_cyc *= turns;
    p->transform_exchange_cyc *= turns;
    p->steps = steps;
    p->sync_cyc = turns * steps * chip->step_cyc;
    p->total_cyc = p->in_cyc + p->weight_cyc + p->partial_cyc + p->tile_cyc +
                   p->reduce_cyc + p->transform_cyc +
                   p->transform_exchange_cyc + p->serial_cyc + p->sync_cyc;
    p->in_group =
        c->method == LP_CONV_HMAC && !c->in_group ? t.in : plan_in_grain(x, c);
    p->out_group = plan_out_grain(c);
    p->resident = c->pass < LP_PASS_BWD && c->product && !c->swapped &&
                  s->out * s->kernel * turns == 1 && c->in % p->in_group == 0;
    p->direct = s->in * s->kernel * turns == 1 && c->partials == c->out_type;
    p->interleaved_bytes = c->method == LP_CONV_AMP ? p->partial_bytes : 0;
    p->layout_cyc = layout_cyc(x, c, &t, p->tiles);
    if (s->in * s->kernel == 1) /* it counts partials that do not move */
        p->layout_cyc += turns * div_up(p->partial_bytes, bus);
    int64_t got = pieces(p->input_bytes, s->out, LEAST_INPUT_BYTES) +
                  pieces(p->weight_bytes, field, LEAST_WEIGHT_BYTES);
    p->exchange_code_bytes += lp_exchange_code_bytes(chip, 2, got - 1);
    p->vertices = t.groups;
    p->edges = lp_min(t.in / 16 + t.out / 16 + 2, 4096);
    p->bound_bytes = (int64_t)(x->proportion * (double)chip->tile_bytes);
    p->fits = p->temp_bytes <= p->bound_bytes;
    return true;
}
