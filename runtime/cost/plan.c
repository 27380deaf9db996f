/* The planner's entry: brings products and convolutions of all three training
 * passes into normal form, tries the transforms, adds the re-layouts of a
 * pass, remembers the result.
 *
 * Transforms (PL poplin/ConvPlan): operands swapped; kernel columns, or all of
 * the kernel, folded into input channels; groups combined until their
 * channels fill the matrix unit; a product without kernel flattened to one
 * matrix product. The gradient of the weights is a convolution whose
 * contraction runs over the batch and whose kernel is the output field.
 *
 * Re-layouts (PL poplin/ConvPlan, fullyConnectedPass): the gradient of the
 * input wants transposed weights; the gradient of the weights wants
 * transposed inputs and gradients, and its result goes back to the layout of
 * the weights. */
#include "runtime/cost/plan.h"

#include "runtime/cost/plan_cache.h"

#include <string.h>

/* The candidates of one product. */
typedef struct Try {
    const LpCostCtx *x;
    LpPlan *best;
    bool *found;
} Try;

/* A vertex walks 8 or 16 output channels, whole passes of the units. */
static int least_group(const LpCostCtx *x, const Conv *c)
{
    return x->chip->amp[amp_mode(c->type, c->partials)].units > 8 ? 16 : 8;
}

static void try_methods(const Try *q, Conv c)
{
    bool plain = c.krows == 1 && c.kcols == 1;
    if (c.type != LP_COST_INT) {
        c.method = LP_CONV_AMP;
        for (c.out_group = 16; c.out_group >= least_group(q->x, &c);
             c.out_group /= 2)
            plan_search(q->x, &c, q->best, q->found);
    }
    if (c.in == 1 && c.out == 1 && c.groups > 1 && c.type != LP_COST_INT) {
        c.method = LP_CONV_VMAC;
        plan_search(q->x, &c, q->best, q->found);
    }
    if (plain && c.in == 1) {
        c.method = LP_CONV_OUTER;
        plan_search(q->x, &c, q->best, q->found);
    }
    if (plain) {
        c.method = LP_CONV_HMAC;
        plan_search(q->x, &c, q->best, q->found);
    }
}

/* A product without kernel: one row of m columns, both ways round. */
static void try_flat(const Try *q, Conv c)
{
    int64_t m = c.batch * c.rows * c.cols;
    c.batch = c.rows = 1;
    c.cols = c.in_cols = m;
    c.in_rows = 1;
    try_methods(q, c);
    if (c.expand > 1)
        return;
    c.cols = c.in_cols = c.out;
    c.out = m;
    c.swapped = !c.swapped;
    try_methods(q, c);
}

static void try_transforms(const Try *q, Conv c)
{
    if (c.krows == 1 && c.kcols == 1) {
        try_flat(q, c);
        return;
    }
    try_methods(q, c);
    /* every input is used by kcols columns of outputs unless strides skip */
    Conv w = c;
    w.in = c.in * c.kcols;
    w.expand = (int)lp_max(1, lp_min(c.kcols, c.cols) / c.scol);
    w.kcols = 1;
    w.in_cols = c.cols;
    w.scol = w.dcol = 1;
    if (w.krows > 1 && c.kcols > 1)
        try_methods(q, w);
    w.in *= w.krows;
    w.expand *= (int)lp_max(1, lp_min(c.krows, c.rows) / c.srow);
    w.krows = 1;
    try_flat(q, w);
}

/* A product of more flops (two hours of one IPU) or elements than this is not
 * planned: its figures would leave 64 bits on the way. */
#define MOST_FLOPS INT64_C(1000000000000000000)
#define MOST_ELEMS INT64_C(10000000000000)

static bool is_beyond(const Conv *c)
{
    int64_t field = mul_sat(c->batch, mul_sat(c->rows, c->cols));
    int64_t taps = mul_sat(c->krows, c->kcols), most = mul_sat(c->in, c->out);
    most = lp_max(mul_sat(most, taps), mul_sat(field, lp_max(c->in, c->out)));
    return c->flops > MOST_FLOPS || mul_sat(most, c->groups) > MOST_ELEMS;
}

/* Peak cycles, and more memory than there is. */
static LpPlan plan_beyond(const LpCostCtx *x, const Conv *c)
{
    LpAmpMode mode = amp_mode(c->type, c->partials);
    int64_t tiles = ctx_tiles(x);
    LpPlan p = {.split = {1, 1, 1, tiles, 1, 1, 1, 1, 1},
                .tiles = tiles,
                .flops = c->flops};
    p.tile_cyc = c->flops / (2 * tiles * lp_chip_amp_macs(x->chip, mode));
    p.total_cyc = p.tile_cyc;
    p.bound_bytes = (int64_t)(x->proportion * (double)x->chip->tile_bytes);
    p.temp_bytes = x->chip->tile_bytes * tiles;
    return p;
}

static LpPlan plan_conv(const LpCostCtx *x, LpCostType t, LpConvPass pass,
                        Conv c)
{
    LpPlan best;
    bool found = false;
    Try q = {x, &best, &found};
    memset(&best, 0, sizeof best);
    c.pass = pass;
    c.type = c.out_type = t;
    c.partials = t == LP_COST_HALF ? x->partials : t;
    if (!c.flops)
        return best;
    if (is_beyond(&c))
        return plan_beyond(x, &c);
    try_transforms(&q, c);
    for (int64_t f = 2; c.in * f <= 16 && f <= c.groups; f *= 2) {
        Conv w = c; /* zeros between the groups fill the unit */
        if (c.groups % f)
            break;
        w.groups /= f;
        w.combined = true;
        w.in *= f;
        w.out *= f;
        try_transforms(&q, w);
    }
    return best;
}

/* Cycles and bytes that a re-layout adds to the plan. */
static void charge(const LpCostCtx *x, LpPlan *p, int64_t exchange,
                   int64_t compute, int steps)
{
    int64_t sync = (int64_t)steps * x->chip->step_cyc;
    p->transform_exchange_cyc += exchange;
    p->transform_cyc += compute;
    p->sync_cyc += sync;
    p->total_cyc += exchange + compute + sync;
}

static int64_t sent_cyc(const LpCostCtx *x, LpCostType t, int64_t n)
{
    int64_t part = div_up(n, ctx_tiles(x)) * lp_cost_type_bytes(t);
    return div_up(part, x->chip->exchange_bytes_cyc);
}

/* n elements in another grouping: sent as blocks to all tiles, transposed
 * there. */
static void add_regroup(const LpCostCtx *x, LpCostType t, int64_t n, LpPlan *p)
{
    charge(x, p, sent_cyc(x, t, n), regroup_cyc(x->chip, t, n, ctx_tiles(x)),
           1);
}

/* The weights as the gradient of the input wants them: transposed where they
 * lie, then sent. */
static void add_transposed(const LpCostCtx *x, LpCostType t, int64_t n,
                           LpPlan *p)
{
    int64_t blocks = div_up(div_up(n, 256), ctx_tiles(x));
    charge(x, p, sent_cyc(x, t, n), transpose_cyc(t, blocks, (Block){16, 16}),
           2);
}

static void add_relays(const LpCostCtx *x, LpCostType t, LpConvPass pass,
                       int64_t inputs, int64_t outputs, int64_t weights,
                       LpPlan *p)
{
    if (!p->flops)
        return;
    if (pass == LP_PASS_BWD)
        add_transposed(x, t, weights, p);
    if (pass != LP_PASS_WU)
        return;
    /* both operands are transposed in one compute set, then sent on to where
     * the product wants them */
    add_regroup(x, t, inputs, p);
    add_regroup(x, t, outputs, p);
    charge(x, p, sent_cyc(x, t, inputs) + sent_cyc(x, t, outputs), 0, 3);
    /* the result, before it is added to the weights */
    add_regroup(x, t, weights, p);
    charge(x, p, sent_cyc(x, t, weights), 0, 1);
}

LpCost lp_plan_cost(const LpCostCtx *x, LpCostType t, const LpPlan *p)
{
    static const CodeletId codelet[] = {
        [LP_CONV_AMP] = LP_CODELET_amp_gemm,
        [LP_CONV_HMAC] = LP_CODELET_hmac,
        [LP_CONV_OUTER] = LP_CODELET_outer,
        [LP_CONV_VMAC] = LP_CODELET_vmac,
    };
    LpCost c = {.exchange_cyc = p->in_cyc + p->weight_cyc + p->partial_cyc +
                                p->transform_exchange_cyc,
                .sync_cyc = p->sync_cyc,
                .flops = p->flops,
                .temp_tile_bytes = p->temp_bytes,
                .interleaved_tile_bytes = p->interleaved_bytes,
                .vertex_bytes = p->vertex_bytes,
                .exchange_code_bytes = p->exchange_code_bytes,
                .tiles = (int)p->tiles};
    c.compute_cyc = p->total_cyc - c.exchange_cyc - c.sync_cyc;
    if (!p->tiles)
        return c;
    bool kernel = p->method == LP_CONV_AMP && p->has_kernel;
    cost_codelet(&c, kernel ? LP_CODELET_amp_conv : codelet[p->method], t);
    if (p->split.in * p->split.kernel > 1)
        cost_codelet(&c, LP_CODELET_partials_reduce, t);
    else if (t == LP_COST_HALF && x->partials == LP_COST_FLOAT)
        cost_codelet(&c, LP_CODELET_cast, t);
    if (p->transform_cyc)
        cost_codelet(&c, LP_CODELET_copy, t);
    if (p->split.serial_in * p->split.serial_out > 1)
        cost_codelet(&c, LP_CODELET_slice, t);
    return c;
}

LpCost lp_cost_matmul(const LpCostCtx *x, LpCostType t, LpMatmulShape s,
                      LpConvPass pass)
{
    LpPlan p = lp_plan_matmul(x, t, s, pass);
    return lp_plan_cost(x, t, &p);
}

LpCost lp_cost_conv(const LpCostCtx *x, LpCostType t, const LpConvShape *s,
                    LpConvPass pass)
{
    LpPlan p = lp_plan_conv(x, t, s, pass);
    return lp_plan_cost(x, t, &p);
}

int64_t lp_conv_out_dim(const LpConvShape *s, int dim)
{
    int64_t in = s->field[dim] + s->pad_lower[dim] + s->pad_upper[dim];
    int64_t span = (s->kernel[dim] - 1) * s->dilation[dim] + 1;
    return in < span ? 0 : (in - span) / s->stride[dim] + 1;
}

/* Depth is taken as more images and more kernel rows. */
static Conv forward(const LpConvShape *s)
{
    Conv c = {.expand = 1,
              .groups = s->groups,
              .batch = s->batch * lp_conv_out_dim(s, 0),
              .rows = lp_conv_out_dim(s, 1),
              .cols = lp_conv_out_dim(s, 2),
              .in = s->in,
              .out = s->out,
              .krows = s->kernel[0] * s->kernel[1],
              .kcols = s->kernel[2],
              .srow = s->stride[1],
              .scol = s->stride[2],
              .drow = s->dilation[1],
              .dcol = s->dilation[2],
              .in_rows = s->field[1],
              .in_cols = s->field[2]};
    int64_t field = c.batch * c.rows * c.cols;
    c.flops = mul_sat(mul_sat(mul_sat(2, field), mul_sat(s->groups, s->in)),
                      mul_sat(s->out, c.krows * c.kcols));
    return c;
}

LpPlan lp_plan_matmul(const LpCostCtx *x, LpCostType t, LpMatmulShape s,
                      LpConvPass pass)
{
    PlanKey key = plan_key(x, t, pass);
    int64_t dims[] = {s.groups, s.m, s.k, s.n};
    LpPlan p;
    memcpy(key.dims, dims, sizeof dims);
    if (plan_cache_find(x->cache, &key, &p))
        return p;
    Conv c = forward(&(LpConvShape){.groups = s.groups,
                                    .batch = 1,
                                    .in = s.k,
                                    .out = s.m,
                                    .field = {1, 1, s.n},
                                    .kernel = {1, 1, 1},
                                    .stride = {1, 1, 1},
                                    .dilation = {1, 1, 1}});
    c.product = true;
    p = plan_conv(x, t, pass, c);
    int64_t a = s.groups * s.m * s.k, b = s.groups * s.k * s.n;
    int64_t d = s.groups * s.m * s.n;
    if (pass == LP_PASS_WU) /* [m, k] is the input, [k, n] the gradient */
        add_relays(x, t, pass, a, b, d, &p);
    else
        add_relays(x, t, pass, a, d, b, &p);
    plan_cache_add(x->cache, &key, &p);
    return p;
}

/* A strided kernel's input gradient: stride x stride interleaved fields, each
 * under its part of the kernel. */
static Conv backward(const LpConvShape *s, Conv c)
{
    int64_t kr = div_up(c.krows, c.srow), kc = div_up(c.kcols, c.scol);
    int64_t phases = lp_min(c.srow, c.krows) * lp_min(c.scol, c.kcols);
    int64_t in = c.in;
    c.in = c.out;
    c.out = in * phases;
    if (phases > 1) {
        c.rows = div_up(s->field[1], c.srow);
        c.cols = div_up(s->field[2], c.scol);
    } else if (c.krows * c.kcols > 1) {
        c.rows = s->field[1];
        c.cols = s->field[2];
    }
    c.krows = kr;
    c.kcols = kc;
    c.srow = c.scol = 1;
    c.in_rows = c.rows;
    c.in_cols = c.cols;
    return c;
}

static Conv update(Conv c)
{
    Conv w = c;
    w.batch = c.in;
    w.in = c.batch;
    w.rows = c.krows;
    w.cols = c.kcols;
    w.krows = c.rows;
    w.kcols = c.cols;
    w.srow = c.drow;
    w.scol = c.dcol;
    w.drow = c.srow;
    w.dcol = c.scol;
    if (c.krows * c.kcols > 1)
        return w;
    /* without kernel the field is one long contraction */
    w.in = c.batch * c.rows * c.cols;
    w.krows = w.kcols = w.srow = w.scol = w.drow = w.dcol = 1;
    return w;
}

LpPlan lp_plan_conv(const LpCostCtx *x, LpCostType t, const LpConvShape *s,
                    LpConvPass pass)
{
    PlanKey key = plan_key(x, t, pass);
    LpPlan p;
    key.is_conv = true;
    memcpy(key.dims, s, sizeof *s);
    if (plan_cache_find(x->cache, &key, &p))
        return p;
    Conv c = forward(s);
    int64_t weights = s->groups * s->in * s->out * c.krows * c.kcols;
    int64_t inputs =
        s->batch * s->groups * s->in * s->field[0] * s->field[1] * s->field[2];
    int64_t outputs = c.batch * c.rows * c.cols * s->groups * s->out;
    if (pass == LP_PASS_BWD)
        c = backward(s, c);
    else if (pass == LP_PASS_WU)
        c = update(c);
    p = plan_conv(x, t, pass, c);
    add_relays(x, t, pass, inputs, outputs, weights, &p);
    bool sparse = s->kernel[1] < s->stride[1] || s->kernel[2] < s->stride[2];
    if (pass == LP_PASS_BWD && sparse && p.flops)
        charge(x, &p, sent_cyc(x, t, inputs), 0, 1); /* among zeros */
    plan_cache_add(x->cache, &key, &p);
    return p;
}
