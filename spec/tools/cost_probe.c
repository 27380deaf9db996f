/* Prints figures of runtime/cost for spec/runtime: the function
 * named by the first argument on the arguments after it, as `name=value` lines.
 * Exits 2 on a name or a chip that does not exist. */
#include "runtime/cost/units.h"

#include "src/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 40 };

/* Arguments as numbers; a word is 0. */
static int64_t arg[MAX_ARGS];
static const char *word[MAX_ARGS];

static int fail(const char *what, const char *name)
{
    fprintf(stderr, "cost_probe: unknown %s '%s'\n", what, name);
    exit(2);
}

static LpCostType type(int i)
{
    static const char *const name[] = {"half", "float", "int"};
    for (int t = 0; t < LP_COST_N_TYPES; t++)
        if (!strcmp(word[i], name[t]))
            return (LpCostType)t;
    return (LpCostType)fail("type", word[i]);
}

static void show(const char *name, int64_t v)
{
    printf("%s=%lld\n", name, (long long)v);
}

#define SHOW(s, field) show(#field, (int64_t)(s).field)

static void show_cost(LpCost c)
{
    SHOW(c, compute_cyc);
    SHOW(c, exchange_cyc);
    SHOW(c, sync_cyc);
    SHOW(c, flops);
    SHOW(c, temp_tile_bytes);
    SHOW(c, vertex_bytes);
    SHOW(c, exchange_code_bytes);
    SHOW(c, code_bytes);
    SHOW(c, tiles);
    show("cycles", lp_cost_cyc(&c));
}

static void show_plan(const LpPlan *p)
{
    show("method", p->method);
    show("fits", p->fits);
    const LpSplit *s = &p->split;
    show("product",
         s->groups * s->batch * s->rows * s->cols * s->in * s->out * s->kernel);
    SHOW(*p, tiles);
    SHOW(*p, total_cyc);
    SHOW(*p, tile_cyc);
    show("terms", p->in_cyc + p->weight_cyc + p->partial_cyc +
                      p->transform_exchange_cyc + p->transform_cyc +
                      p->tile_cyc + p->reduce_cyc + p->serial_cyc +
                      p->sync_cyc);
    SHOW(*p, flops);
    SHOW(*p, temp_bytes);
    SHOW(*p, bound_bytes);
    SHOW(*p, partial_bytes);
    show("serial", s->serial_in * s->serial_out);
}

/* Plans twice through one cache; the second must be the first. */
static void plan(LpCostCtx x, bool conv, int i)
{
    LpPlan p[3];
    LpConvShape s;
    LpConvPass pass = (LpConvPass)arg[i + 1];
    LpCostType t = type(i);
    const int64_t *d = arg + i + 2;
    LpPlanCache *cache = lp_plan_cache_new();
    memset(&s, 0, sizeof s);
    memcpy(&s, d, sizeof s);
    for (int n = 0; n < 3; n++) {
        LpMatmulShape m = {d[0], d[1], d[2], d[3]};
        x.cache = n < 2 ? cache : NULL;
        memset(&p[n], 0, sizeof p[n]);
        p[n] = conv ? lp_plan_conv(&x, t, &s, pass)
                    : lp_plan_matmul(&x, t, m, pass);
    }
    show("hits", lp_plan_cache_hits(cache));
    show("same", p[0].total_cyc == p[1].total_cyc &&
                     p[0].temp_bytes == p[1].temp_bytes &&
                     p[0].tiles == p[1].tiles &&
                     p[0].total_cyc == p[2].total_cyc);
    lp_plan_cache_free(cache);
    show("live", lp_mem_live());
    show_plan(&p[0]);
    LpCost c = lp_plan_cost(&x, t, &p[0]);
    show("cycles", lp_cost_cyc(&c));
    SHOW(c, code_bytes);
}

static void chip(const LpChip *c)
{
    SHOW(*c, tiles);
    SHOW(*c, workers);
    SHOW(*c, tile_bytes);
    SHOW(*c, region0_bytes);
    SHOW(*c, region1_bytes);
    show("f16_f16", lp_chip_amp_macs(c, LP_AMP_F16_F16));
    show("f16_f32", lp_chip_amp_macs(c, LP_AMP_F16_F32));
    show("f32_f32", lp_chip_amp_macs(c, LP_AMP_F32_F32));
    show("gflops_f16", (int64_t)(2e-9 * c->clock_hz * c->tiles *
                                 lp_chip_amp_macs(c, LP_AMP_F16_F16)));
    show("sync1", lp_chip_global_sync_cyc(c, 1));
    show("sync16", lp_chip_global_sync_cyc(c, 16));
    const LpSystem *s = lp_system_find(c->version);
    show("near_mbps", (int64_t)(lp_system_path_bps(s, 0, 1) / 1e6));
    show("far_mbps", (int64_t)(lp_system_path_bps(s, 0, 7) / 1e6));
}

static const char *const ew_names[] = {
#define EW(op, ...) #op,
#include "runtime/cost/elementwise.def"
#undef EW
};

/* Vertices: cycles of one on one tile. */
static bool vertex(const LpChip *c, const char *f)
{
    LpCostType t = LP_COST_HALF;
    AmpConv a = {arg[4], arg[5], arg[8], arg[9], (int)arg[10]};
    if (!strcmp(f, "elementwise")) {
        for (int op = 0; op < LP_N_EW; op++)
            if (!strcmp(ew_names[op], word[3]))
                show("cyc", lp_ew_tile_cyc(c, (LpEwOp)op, (LpEwForm)arg[4],
                                           type(5), arg[6]));
    } else if (!strcmp(f, "amp"))
        show("cyc", amp_gemm_cyc(c, (LpAmpMode)arg[3], arg[4],
                                 (AmpChans){arg[5], arg[6], 16}));
    else if (!strcmp(f, "amp_conv"))
        show("cyc", amp_conv_cyc(c, (LpAmpMode)arg[3], a,
                                 (AmpChans){arg[6], arg[7], 16}));
    else if (!strcmp(f, "hmac"))
        show("cyc", hmac_cyc(c, t, arg[3], arg[4], arg[4], arg[5]));
    else if (!strcmp(f, "outer"))
        show("cyc", outer_cyc(c, t, arg[3], arg[4], arg[5]));
    else if (!strcmp(f, "vmac"))
        show("cyc", vmac_cyc(arg[4], arg[5], arg[7], arg[6] / 4, 1));
    else if (!strcmp(f, "partials"))
        show("cyc", reduce_partials_cyc(c, type(3), type(4), arg[5], arg[6]));
    else if (!strcmp(f, "scaled_add"))
        show("cyc", scaled_add_cyc(c, type(3), arg[4], false));
    else if (!strcmp(f, "exchange"))
        show("cyc", lp_exchange_cyc(c, arg[3], arg[4], arg[5] != 0));
    else if (!strcmp(f, "gaps"))
        show("bytes", lp_tile_with_gaps(c, arg[3], arg[4], arg[5]));
    else if (!strcmp(f, "stages")) {
        int64_t ways[3] = {1, 1, 1};
        show("n", reduce_stages(arg[3], ways));
        show("product", ways[0] * ways[1] * ways[2]);
    } else
        return false;
    return true;
}

/* batch, channels, height and width of the field, of the results, window,
 * stride */
static LpPoolShape pool_shape(void)
{
    return (LpPoolShape){.batch = arg[4],
                         .chans = arg[5],
                         .field = {1, arg[6], arg[7]},
                         .out = {1, arg[8], arg[9]},
                         .kernel = {1, arg[10], arg[10]},
                         .stride = {1, arg[11], arg[11]}};
}

static bool operation(const LpCostCtx *x, const LpSystem *sys, const char *f)
{
    LpRnnShape r = {arg[4], arg[5], arg[6], arg[7], (int)arg[8]};
    LpLookup l = {arg[4], arg[5], arg[6], true};
    LpPoolShape p = pool_shape();
    if (!strcmp(f, "map")) {
        LpTileMap m = lp_tile_map(x, type(3), arg[4], arg[5]);
        SHOW(m, tiles);
        SHOW(m, tile_elems);
        SHOW(m, tile_bytes);
    } else if (!strcmp(f, "cast"))
        show_cost(lp_cost_cast(x, type(3), type(4), arg[5]));
    else if (!strcmp(f, "add"))
        show_cost(
            lp_cost_elementwise(x, LP_EW_add, LP_EW_BINARY, type(3), arg[4]));
    else if (!strcmp(f, "add_twice")) {
        LpCost c =
            lp_cost_elementwise(x, LP_EW_add, LP_EW_BINARY, type(3), arg[4]);
        lp_cost_add(&c, c);
        show_cost(c);
    } else if (!strcmp(f, "add_repeated"))
        show_cost(lp_cost_repeat(
            lp_cost_elementwise(x, LP_EW_add, LP_EW_BINARY, type(3), arg[4]),
            arg[5]));
    else if (!strcmp(f, "copy"))
        show_cost(lp_cost_copy(x, type(3), arg[4], arg[5]));
    else if (!strcmp(f, "fill"))
        show_cost(lp_cost_fill(x, type(3), arg[4]));
    else if (!strcmp(f, "broadcast"))
        show_cost(
            lp_cost_broadcast(x, LP_EW_add, type(3), arg[4], arg[5], arg[6]));
    else if (!strcmp(f, "serial"))
        show_cost(lp_cost_serial(x, type(3), arg[4], arg[5], arg[6]));
    else if (!strcmp(f, "random"))
        show_cost(lp_cost_random(x, (LpRndOp)arg[4], type(3), arg[5]));
    else if (!strcmp(f, "reduce"))
        show_cost(lp_cost_reduce(x, LP_RED_ADD, type(3), arg + 5, 3,
                                 (uint32_t)arg[4]));
    else if (!strcmp(f, "reduce_max"))
        show_cost(lp_cost_reduce(x, LP_RED_MAX, type(3), arg + 5, 3,
                                 (uint32_t)arg[4]));
    else if (!strcmp(f, "softmax"))
        show_cost(lp_cost_softmax(x, type(3), arg[4], arg[5]));
    else if (!strcmp(f, "softmax_grad"))
        show_cost(lp_cost_softmax_grad(x, type(3), arg[4], arg[5]));
    else if (!strcmp(f, "norm"))
        show_cost(lp_cost_norm(x, type(3), arg[4], arg[5], arg[6], arg[7]));
    else if (!strcmp(f, "norm_grad"))
        show_cost(lp_cost_norm_grad(x, type(3), arg[4], arg[5], arg[6]));
    else if (!strcmp(f, "rnn"))
        show_cost(lp_cost_rnn(x, type(3), &r, LP_PASS_NONE));
    else if (!strcmp(f, "rnn_grad"))
        show_cost(lp_cost_rnn_grad(x, type(3), &r));
    else if (!strcmp(f, "scaled_add_op"))
        show_cost(lp_cost_scaled_add(x, type(3), arg[4], false));
    else if (!strcmp(f, "pool"))
        show_cost(lp_cost_pool(x, LP_RED_MAX, type(3), &p));
    else if (!strcmp(f, "pool_mean"))
        show_cost(lp_cost_pool(x, LP_RED_ADD, type(3), &p));
    else if (!strcmp(f, "pool_grad"))
        show_cost(lp_cost_pool_grad(x, LP_RED_MAX, type(3), &p));
    else if (!strcmp(f, "lookup"))
        show_cost(lp_cost_lookup(x, type(3), &l));
    else if (!strcmp(f, "lookup_add"))
        show_cost(lp_cost_lookup_add(x, type(3), &l));
    else if (!strcmp(f, "slice"))
        show_cost(lp_cost_dynamic_slice(x, type(3), arg[4], arg[5], arg[6]));
    else if (!strcmp(f, "collective"))
        show_cost(lp_cost_collective(x, sys, (LpCollective)arg[4], type(3),
                                     arg[5], (int)arg[6], (int)arg[7]));
    else if (!strcmp(f, "ipu_copy"))
        show_cost(lp_cost_ipu_copy(x, sys, (int)arg[3], (int)arg[4], arg[5]));
    else if (!strcmp(f, "host"))
        show_cost(lp_cost_host_io(x, sys, arg[3], (int)arg[4]));
    else if (!strcmp(f, "stream"))
        show_cost(lp_cost_streaming(x, sys, arg[3], 0, (int)arg[4]));
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        word[i] = i < argc ? argv[i] : "";
        arg[i] = strtoll(word[i], NULL, 10);
    }
    const char *f = word[1];
    const LpChip *c = lp_chip_find(word[2]);
    if (!c)
        return fail("chip", word[2]);
    LpCostCtx x = lp_cost_ctx(c);
    if (!strcmp(f, "chip"))
        chip(c);
    else if (!strcmp(f, "matmul") || !strcmp(f, "conv")) {
        /* CHIP TILES PROPORTION|default PARTIALS TYPE PASS SHAPE... */
        x.tiles = (int)arg[3];
        if (strcmp(word[4], "default"))
            x.proportion = strtod(word[4], NULL);
        x.partials = type(5);
        plan(x, *f == 'c', 6);
    } else if (!vertex(c, f) && !operation(&x, lp_system_find(word[2]), f))
        return fail("function", f);
    return 0;
}
