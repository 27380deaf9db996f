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

/* A vertex walks 8 or 16 output channels, whole passes of the units, or of
 * half of them. */
int plan_least_group(const LpCostCtx *x, const Conv *c)
{
    LpAmpMode mode = amp_mode(c->type, c->partials);
    return mode == LP_AMP_F16_F16 && x->chip->amp[mode].units > 8 ? 16 : 8;
}

int plan_most_group(const LpCostCtx *x, const Conv *c)
{
    const LpAmp *a = &x->chip->amp[amp_mode(c->type, c->partials)];
    return (int)lp_max(a->units, a->in_group);
}

/* Groups of fewer inputs leave room for as many kernel rows more; they are of
 * use where they need less padding. */
static void try_amp(const Try *q, Conv c, bool whole)
{
    int full = q->x->chip->amp[amp_mode(c.type, c.partials)].in_group;
    int64_t least = INT64_MAX;
    c.method = LP_CONV_AMP;
    for (c.in_group = full; c.in_group >= vec_elems(q->x->chip, c.type);
         c.in_group /= 2) {
        int64_t padded = div_up(c.in, c.in_group) * c.in_group;
        if (padded >= least || (whole && padded != full))
            continue;
        least = padded;
        for (c.out_group = plan_most_group(q->x, &c);
             c.out_group >= plan_least_group(q->x, &c); c.out_group /= 2)
            plan_search(q->x, &c, q->best, q->found);
    }
}

static void try_methods(const Try *q, Conv c)
{
    bool plain = c.krows == 1 && c.kcols == 1;
    if (c.type != LP_COST_INT) {
        Conv direct = c; /* one group of inputs is a whole sum: its type */
        direct.partials = c.out_type;
        if (plain && c.partials != c.out_type && c.in <= 16)
            try_amp(q, direct, true);
        try_amp(q, c, false);
    }
    bool half = c.type == LP_COST_HALF && c.partials == LP_COST_FLOAT;
    if (half && c.out == 1 && c.groups > 1) {
        c.method = LP_CONV_VMAC;
        plan_search(q->x, &c, q->best, q->found);
    }
    /* the vertex pads, but knows neither zeros between inputs nor dilation */
    if (half && !plain && c.groups > 1 && c.in <= 4 && c.out <= 4 &&
        c.zrow * c.zcol * c.drow * c.dcol == 1 && c.scol <= 2) {
        c.method = LP_CONV_SLIC;
        plan_search(q->x, &c, q->best, q->found);
    }
    if (plain && c.in == 1) {
        Conv direct = c;
        direct.method = LP_CONV_OUTER;
        direct.partials = c.out_type;
        plan_search(q->x, &direct, q->best, q->found);
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
    c.cols = c.in_cols = c.col_uses = m;
    c.in_rows = c.row_uses = c.zrow = c.zcol = 1;
    try_methods(q, c);
    if (c.expand > 1)
        return;
    c.cols = c.in_cols = c.col_uses = c.out;
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
    w.in_cols = w.col_uses = c.cols;
    w.scol = w.dcol = w.zcol = 1;
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
    int64_t field = lp_mul_sat(c->batch, lp_mul_sat(c->rows, c->cols));
    int64_t taps = lp_mul_sat(c->krows, c->kcols),
            most = lp_mul_sat(c->in, c->out);
    most = lp_max(lp_mul_sat(most, taps),
                  lp_mul_sat(field, lp_max(c->in, c->out)));
    return c->flops > MOST_FLOPS || lp_mul_sat(most, c->groups) > MOST_ELEMS;
}

/* Peak cycles, and more memory than there is. */
static LpPlan plan_beyond(const LpCostCtx *x, const Conv *c)
{
    LpAmpMode mode = amp_mode(c->type, c->partials);
    int64_t tiles = ctx_tiles(x);
    LpPlan p = {.split = {1, 1, 1, tiles, 1, 1, 1, 1, 1},
                .tiles = tiles,
                .in_group = x->chip->amp[mode].in_group,
                .out_group = x->chip->amp[mode].in_group,
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
    int64_t most = t == LP_COST_HALF ? 2 : 1; /* channels of such groups */
    for (int64_t f = 2; c.in <= most && c.in * f <= 16 && f <= c.groups;
         f *= 2) {
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
    p->steps += steps;
    p->total_cyc += exchange + compute + sync;
}

/* Exchange of n elements over the tiles, in blocks of neighbours. */
static int64_t send(const LpCostCtx *x, LpCostType t, int64_t n, int64_t block,
                    LpPlan *p)
{
    int64_t part = div_up(n, ctx_tiles(x)), runs = div_up(part, block);
    p->exchange_code_bytes += lp_exchange_code_bytes(x->chip, runs, runs);
    return div_up(part * lp_cost_type_bytes(t), x->chip->exchange_bytes_cyc);
}

/* Groups whose channels change places: of the source, of the destination. */
typedef struct Regroup {
    int64_t n, dim, from, to;
} Regroup;

static int64_t common(int64_t a, int64_t b)
{
    return b ? common(b, a % b) : a;
}

/* A vertex transposes blocks of both groups; where the source has no group of
 * a vector, elements are sent one by one and each tile copies its own. */
static int64_t regroup(const LpCostCtx *x, LpCostType t, Regroup r)
{
    int64_t tiles = ctx_tiles(x), v = vec_elems(x->chip, t);
    int64_t from = common(r.from, r.dim);
    if (from % v || r.to % v)
        return copy_cyc(x->chip, t, div_up(r.n, tiles), true);
    return regroup_cyc(x->chip, t, r.n, tiles, (Block){from, r.to});
}

/* Sent as blocks to all tiles, transposed there. */
static void add_regroup(const LpCostCtx *x, LpCostType t, Regroup r, LpPlan *p)
{
    int64_t block = common(r.from, r.dim) * r.to;
    charge(x, p, send(x, t, r.n, block, p), regroup(x, t, r), 1);
}

/* Re-laid copies may be more than the planner bargained for. */
static void note_fit(LpPlan *p)
{
    p->fits = p->fits && p->temp_bytes <= p->bound_bytes;
}

/* What a layer's passes read and make: elements and channels. `fwd`: groups of
 * its inputs in the forward plan, as which all tensors lie. */
typedef struct Layer {
    int64_t inputs, outputs, weights, in, out;
    int64_t in_group, out_group, tiles;
    bool product, swapped;
} Layer;

/* A product's weights are transposed where they lie, in blocks of both passes'
 * groups, smaller ones of the first while tiles have none; a plan of its own
 * fetches all of them. */
static void add_transposed(const LpCostCtx *x, LpCostType t, const Layer *l,
                           LpPlan *p)
{
    int64_t v = vec_elems(x->chip, t);
    Block b = {common(l->in_group, l->in), common(p->in_group, l->out)};
    if (b.rows == 1 || b.cols == 1 || l->swapped || p->swapped) {
        add_regroup(x, t, (Regroup){l->weights, l->in, b.rows, p->in_group}, p);
        return;
    }
    while (!p->joint && b.rows % (2 * v) == 0 &&
           l->weights < l->tiles * b.rows * b.cols)
        b.rows /= 2;
    int64_t blocks = div_up(l->weights, b.rows * b.cols);
    charge(x, p, p->joint ? 0 : send(x, t, l->weights, b.rows * b.cols, p),
           transpose_cyc(t, div_up(blocks, l->tiles), b), 1);
}

/* What more than seven tiles read is first laid out as they want it. */
enum { VIEW_DESTS = 7 };

static void add_backward_relays(const LpCostCtx *x, LpCostType t,
                                const Layer *l, LpPlan *p)
{
    int64_t block = l->in_group * p->in_group;
    if (l->product) {
        add_transposed(x, t, l, p);
        if (p->split.out * p->split.kernel > VIEW_DESTS)
            charge(x, p, send(x, t, l->weights, block, p), 0, 1);
        return;
    }
    /* the weights: sent as blocks, transposed, sent on */
    add_regroup(x, t, (Regroup){l->weights, l->in, l->in_group, p->in_group},
                p);
    charge(x, p, send(x, t, l->weights, block, p), 0, 1);
    p->temp_bytes += div_up(l->weights, ctx_tiles(x)) * lp_cost_type_bytes(t);
    note_fit(p);
}

static void add_update_relays(const LpCostCtx *x, LpCostType t, const Layer *l,
                              LpPlan *p)
{
    int64_t e = lp_cost_type_bytes(t), tiles = ctx_tiles(x);
    /* a convolution's copies in the new layout stay until it is done */
    int64_t copies = (div_up(l->inputs, tiles) + div_up(l->outputs, tiles)) * e;
    p->temp_bytes =
        lp_max(p->temp_bytes + (l->product ? 0 : copies), 2 * copies);
    note_fit(p);
    /* both operands are transposed in one compute set, then sent on to where
     * the product wants them */
    add_regroup(x, t, (Regroup){l->inputs, l->in, l->in_group, p->in_group}, p);
    add_regroup(x, t, (Regroup){l->outputs, l->out, l->out_group, p->in_group},
                p);
    charge(x, p,
           send(x, t, l->inputs, l->in_group * p->in_group, p) +
               send(x, t, l->outputs, l->out_group * p->in_group, p),
           0, 3);
    if (p->joint)
        return; /* the result lies as the weights do */
    /* the result, before it is added to the weights */
    if (!l->product || p->swapped != l->swapped)
        add_regroup(
            x, t, (Regroup){l->weights, l->out, p->out_group, l->in_group}, p);
    charge(x, p, send(x, t, l->weights, p->out_group * l->in_group, p), 0, 1);
}

static void add_relays(const LpCostCtx *x, LpCostType t, LpConvPass pass,
                       const Layer *l, LpPlan *p)
{
    if (p->flops && pass == LP_PASS_BWD)
        add_backward_relays(x, t, l, p);
    if (p->flops && pass == LP_PASS_WU)
        add_update_relays(x, t, l, p);
}

/* The vertices of a part of the plan that takes so many cycles. */
static void part_vertices(LpCost *c, const LpPlan *p, Vertices v)
{
    if (v.cyc <= 0)
        return;
    v.tiles = p->tiles;
    cost_vertices(c, v);
    c->compute_sets++;
}

/* Inputs and weights of dot products, weights and results of outer products;
 * those of the matrix unit lie in the interleaved region. */
static int64_t apart(const LpPlan *p)
{
    if (p->method == LP_CONV_HMAC || p->method == LP_CONV_VMAC)
        return lp_min(p->input_bytes, p->weight_bytes);
    return p->method == LP_CONV_OUTER
               ? lp_min(p->weight_bytes, p->partial_bytes)
               : 0;
}

LpCost lp_plan_cost(const LpCostCtx *x, LpCostType t, const LpPlan *p)
{
    static const CodeletId codelet[] = {
        [LP_CONV_AMP] = LP_CODELET_amp_gemm, [LP_CONV_HMAC] = LP_CODELET_hmac,
        [LP_CONV_OUTER] = LP_CODELET_outer,  [LP_CONV_VMAC] = LP_CODELET_vmac,
        [LP_CONV_SLIC] = LP_CODELET_slic,
    };
    LpCost c = {.exchange_cyc = p->in_cyc + p->weight_cyc + p->partial_cyc +
                                p->transform_exchange_cyc,
                .sync_cyc = p->sync_cyc,
                .steps = p->steps,
                .flops = p->flops,
                .temp_tile_bytes = p->temp_bytes,
                .early_tile_bytes = lp_max(0, p->temp_bytes - p->partial_bytes),
                .interleaved_tile_bytes = p->interleaved_bytes,
                .apart_tile_bytes = apart(p),
                .exchange_code_bytes = p->exchange_code_bytes,
                .tiles = (int)p->tiles};
    if (p->resident) { /* read where it lies */
        c.temp_tile_bytes -= p->input_bytes;
        c.early_tile_bytes = lp_max(0, c.early_tile_bytes - p->input_bytes);
    }
    if (p->direct) { /* the partials are the result */
        c.temp_tile_bytes -= p->partial_bytes;
        c.early_tile_bytes = 0;
    }
    if (!p->tiles)
        return c;
    bool kernel = p->method == LP_CONV_AMP && p->has_kernel;
    CodeletId main = kernel ? LP_CODELET_amp_conv : codelet[p->method];
    CodeletId last = LP_CODELET_cast;
    if (t == LP_COST_HALF && x->partials == LP_COST_FLOAT)
        main++; /* its _wide form */
    cost_codelet(&c, main, t);
    if (p->split.in * p->split.kernel > 1)
        cost_codelet(&c, last = LP_CODELET_partials_reduce, t);
    else if (t == LP_COST_HALF && x->partials == LP_COST_FLOAT)
        cost_codelet(&c, LP_CODELET_cast, t);
    if (p->transform_cyc)
        cost_codelet(&c, LP_CODELET_copy, t);
    if (p->split.serial_in * p->split.serial_out > 1)
        cost_codelet(&c, LP_CODELET_slice, t);
    part_vertices(&c, p,
                  (Vertices){.id = codelet_id(main, t),
                             .n = p->vertices,
                             .edges = p->edges,
                             .scalars = 24,
                             .cyc = p->tile_cyc});
    Vertices others = {.n = 1, .edges = 2, .scalars = 2};
    others.id = codelet_id(last, t);
    others.cyc = p->reduce_cyc;
    part_vertices(&c, p, others);
    others.id = codelet_id(LP_CODELET_copy, t);
    others.cyc = p->transform_cyc;
    part_vertices(&c, p, others);
    others.id = codelet_id(LP_CODELET_slice, t);
    others.cyc = p->serial_cyc;
    part_vertices(&c, p, others);
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

/* Pairs of n results and taps for which there is an input: inputs lie `apart`
 * places from each other, `pad` zeros before them. */
static int64_t uses(int64_t n, int64_t taps, int64_t stride, int64_t dilation,
                    int64_t apart, int64_t pad, int64_t inputs)
{
    int64_t count = 0;
    if (lp_mul_sat(n, taps) > 1000000)
        return lp_mul_sat(n, taps) / apart;
    for (int64_t k = 0; k < taps; k++)
        for (int64_t o = 0; o < n; o++) {
            int64_t at = o * stride + k * dilation - pad;
            count += at >= 0 && at % apart == 0 && at / apart < inputs;
        }
    return count;
}

/* Depth is taken as more images and more kernel rows. */
static Conv forward(const LpConvShape *s)
{
    Conv c = {.expand = 1,
              .col_grain = 1,
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
              .zrow = 1,
              .zcol = 1,
              .in_rows = s->field[1],
              .in_cols = s->field[2]};
    c.row_uses = s->kernel[0] * uses(c.rows, s->kernel[1], c.srow, c.drow, 1,
                                     s->pad_lower[1], c.in_rows);
    c.col_uses =
        uses(c.cols, c.kcols, c.scol, c.dcol, 1, s->pad_lower[2], c.in_cols);
    int64_t field = c.batch * c.rows * c.cols;
    c.flops = lp_mul_sat(
        lp_mul_sat(lp_mul_sat(2, field), lp_mul_sat(s->groups, s->in)),
        lp_mul_sat(s->out, c.krows * c.kcols));
    return c;
}

static Conv product(LpMatmulShape s)
{
    Conv c = forward(&(LpConvShape){.groups = s.groups,
                                    .batch = 1,
                                    .in = s.k,
                                    .out = s.m,
                                    .field = {1, 1, s.n},
                                    .kernel = {1, 1, 1},
                                    .stride = {1, 1, 1},
                                    .dilation = {1, 1, 1}});
    c.product = true;
    return c;
}

/* The forward product of a layer one of whose passes s is. */
static LpMatmulShape layer_of(LpMatmulShape s, LpConvPass pass)
{
    if (pass == LP_PASS_BWD)
        return (LpMatmulShape){s.groups, s.m, s.n, s.k};
    if (pass == LP_PASS_WU)
        return (LpMatmulShape){s.groups, s.k, s.m, s.n};
    return s;
}

static LpMatmulShape pass_of(LpMatmulShape layer, LpConvPass pass)
{
    return layer_of(layer, pass); /* they are their own inverses */
}

/* The plans of a layer's three passes. */
static void plan_layer(const LpCostCtx *x, LpCostType t, LpMatmulShape layer,
                       LpPlan plan[3])
{
    LpPlan joint[3];
    int64_t apart = 0, together;
    bool fit = true;
    for (int i = 0; i < 3; i++) {
        LpConvPass pass = (LpConvPass)(LP_PASS_FWD + i);
        plan[i] = plan_conv(x, t, pass, product(pass_of(layer, pass)));
        apart += plan_weighed(&plan[i]);
        fit = fit && plan[i].fits;
    }
    Conv c = product(layer);
    if (!c.flops || is_beyond(&c) || t == LP_COST_INT)
        return;
    c.type = c.out_type = t;
    c.partials = t == LP_COST_HALF ? x->partials : t;
    if (!plan_joint(x, c, joint, &together) || (fit && apart < together))
        return;
    for (int i = 0; i < 3; i++) {
        plan[i] = joint[i];
        plan[i].joint = true;
    }
}

static PlanKey product_key(const LpCostCtx *x, LpCostType t, LpMatmulShape s,
                           LpConvPass pass)
{
    PlanKey key = plan_key(x, t, pass);
    int64_t dims[] = {s.groups, s.m, s.k, s.n};
    memcpy(key.dims, dims, sizeof dims);
    return key;
}

LpPlan lp_plan_matmul(const LpCostCtx *x, LpCostType t, LpMatmulShape s,
                      LpConvPass pass)
{
    PlanKey key = product_key(x, t, s, pass);
    LpPlan p, plan[3];
    if (plan_cache_find(x->cache, &key, &p))
        return p;
    if (pass == LP_PASS_NONE) {
        p = plan_conv(x, t, pass, product(s));
        plan_cache_add(x->cache, &key, &p);
        return p;
    }
    LpMatmulShape layer = layer_of(s, pass);
    plan_layer(x, t, layer, plan);
    Layer l = {.inputs = layer.groups * layer.m * layer.k,
               .outputs = layer.groups * layer.m * layer.n,
               .weights = layer.groups * layer.k * layer.n,
               .in = layer.k,
               .out = layer.n,
               .in_group = plan[0].in_group,
               .out_group = plan[1].in_group,
               .tiles = plan[0].tiles,
               .product = true,
               .swapped = plan[0].swapped};
    for (int i = 0; i < 3; i++) {
        LpConvPass each = (LpConvPass)(LP_PASS_FWD + i);
        LpMatmulShape own = pass_of(layer, each);
        add_relays(x, t, each, &l, &plan[i]);
        key = product_key(x, t, own, each);
        plan_cache_add(x->cache, &key, &plan[i]);
    }
    return plan[pass - LP_PASS_FWD];
}

/* The gradients lie among zeros where the kernel strides; without a kernel
 * they are spread out afterwards. */
static Conv backward(const LpConvShape *s, Conv c)
{
    int64_t in = c.in;
    c.in = c.out;
    c.out = in;
    if (c.krows * c.kcols == 1) {
        c.srow = c.scol = 1;
        c.in_rows = c.rows;
        c.in_cols = c.cols;
        return c;
    }
    c.in_rows = c.rows;
    c.in_cols = c.cols;
    c.rows = s->field[1];
    c.cols = s->field[2];
    c.zrow = c.srow;
    c.zcol = c.scol;
    c.srow = c.scol = 1;
    c.row_uses = s->kernel[0] *
                 uses(c.rows, s->kernel[1], 1, c.drow, c.zrow,
                      (s->kernel[1] - 1) * c.drow - s->pad_lower[1], c.in_rows);
    c.col_uses = uses(c.cols, c.kcols, 1, c.dcol, c.zcol,
                      (c.kcols - 1) * c.dcol - s->pad_lower[2], c.in_cols);
    return c;
}

static Conv update(const LpConvShape *s, Conv c)
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
    w.row_uses =
        uses(w.rows, w.krows, w.srow, w.drow, 1, s->pad_lower[1], w.in_rows);
    w.col_uses =
        uses(w.cols, w.kcols, w.scol, w.dcol, 1, s->pad_lower[2], w.in_cols);
    if (c.krows * c.kcols > 1)
        return w;
    /* without kernel the field is one long contraction */
    w.in = c.batch * c.rows * c.cols;
    w.krows = w.kcols = w.srow = w.scol = w.drow = w.dcol = 1;
    w.row_uses = w.col_uses = 1;
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
    Layer l = {.inputs = s->batch * s->groups * s->in * s->field[0] *
                         s->field[1] * s->field[2],
               .outputs = c.batch * c.rows * c.cols * s->groups * s->out,
               .weights = s->groups * s->in * s->out * c.krows * c.kcols,
               .in = s->in,
               .out = s->out,
               .out_group = 16};
    if (pass == LP_PASS_BWD || pass == LP_PASS_WU)
        l.in_group = lp_plan_conv(x, t, s, LP_PASS_FWD).in_group;
    if (pass == LP_PASS_BWD)
        c = backward(s, c);
    else if (pass == LP_PASS_WU)
        c = update(s, c);
    p = plan_conv(x, t, pass, c);
    add_relays(x, t, pass, &l, &p);
    bool sparse = s->kernel[1] < s->stride[1] || s->kernel[2] < s->stride[2];
    /* what is made lies among zeros */
    int64_t apart = l.in_group * s->stride[1] * s->stride[2];
    if (pass == LP_PASS_BWD && sparse && p.flops)
        charge(x, &p, send(x, t, l.inputs, apart, &p), 0, 1);
    plan_cache_add(x->cache, &key, &p);
    return p;
}
