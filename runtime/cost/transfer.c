/* Data between tiles, IPUs, streaming memory and the host. Transfers beyond
 * the chip are counted in exchange cycles of the tile clock. Internal exchange
 * as in PL popops/ExchangeEstimator; collectives are ring algorithms of our
 * own, since Graphcore's library is closed. */
#include "runtime/cost/units.h"

#include <math.h>

int64_t lp_exchange_cyc(const LpChip *chip, int64_t in_bytes, int64_t out_bytes,
                        bool pair)
{
    int64_t bus = chip->exchange_bytes_cyc;
    int64_t in = div_up(in_bytes, pair ? bus * chip->tiles_per_bus : bus);
    return lp_max(in, div_up(out_bytes, bus));
}

LpCost lp_cost_exchange(const LpCostCtx *x, LpCostType t, int64_t n,
                        int64_t run)
{
    LpCost c = {0};
    if (n <= 0)
        return c;
    LpTileMap m = lp_tile_map(x, t, n, vec_elems(x->chip, t));
    cost_step(x, &c,
              lp_exchange_cyc(x->chip, m.tile_bytes, m.tile_bytes, false),
              NO_VERTICES);
    c.tiles = m.tiles;
    int64_t runs = div_up(m.tile_elems, lp_max(run, 1));
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, runs, runs);
    return c;
}

/* Cycles of `bytes` at so many bytes a second. */
static int64_t at_rate(const LpChip *chip, double bytes, double bps)
{
    return bps <= 0 ? 0 : (int64_t)ceil(bytes / bps * chip->clock_hz - 1e-6);
}

LpCost lp_cost_ipu_copy(const LpCostCtx *x, const LpSystem *sys, int from,
                        int to, int64_t bytes)
{
    LpCost c = {0};
    if (bytes <= 0 || from == to)
        return c;
    c.exchange_cyc =
        at_rate(x->chip, (double)bytes, lp_system_path_bps(sys, from, to));
    c.sync_cyc = lp_chip_global_sync_cyc(x->chip, 1 + (from > to ? from : to));
    c.tiles = (int)ctx_tiles(x);
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 1, 1);
    return c;
}

/* The replicas of a collective: those of a rack are a ring; as many of each
 * rack as there are shares meet their peers in other racks, a ring of racks for
 * each share. */
typedef struct Rings {
    int inner, outer; /* replicas of a rack, racks */
    double inner_bps, outer_bps;
} Rings;

static Rings rings(const LpSystem *sys, int replicas, int ipus_per_replica)
{
    int ipus = replicas * ipus_per_replica;
    bool machine = ipus <= sys->ipus_machine;
    Rings r = {replicas, 1, machine ? sys->link_bps : sys->ring_bps, 0};
    if (ipus <= sys->ipus_rack || sys->gateway_bps <= 0)
        return r;
    int room = sys->ipus_rack / ipus_per_replica;
    r.inner = room > 1 ? room : 1;
    r.outer = (replicas + r.inner - 1) / r.inner;
    /* a machine's gateway is shared by its IPUs */
    r.outer_bps = sys->gateway_bps / sys->ipus_machine;
    return r;
}

LpCost lp_cost_collective(const LpCostCtx *x, const LpSystem *sys,
                          LpCollective kind, LpCostType t, int64_t bytes,
                          int replicas, int ipus_per_replica)
{
    LpCost c = {0};
    if (bytes <= 0 || replicas <= 1)
        return c;
    Rings r = rings(sys, replicas, ipus_per_replica);
    bool adds = kind == LP_COLL_ALL_REDUCE || kind == LP_COLL_REDUCE_SCATTER;
    int rounds = kind == LP_COLL_ALL_REDUCE ? 2 : 1;
    int hops = r.inner - 1 + r.outer - 1;
    double inner = (double)bytes * (r.inner - 1) / r.inner * rounds;
    double outer = (double)bytes / r.inner * (r.outer - 1) / r.outer * rounds;
    if (kind == LP_COLL_BROADCAST) { /* pipelined along the rings */
        inner = r.inner > 1 ? (double)bytes : 0;
        outer = r.outer > 1 ? (double)bytes : 0;
    }
    c.exchange_cyc = at_rate(x->chip, inner, r.inner_bps) +
                     at_rate(x->chip, outer, r.outer_bps);
    int64_t sync =
        lp_chip_global_sync_cyc(x->chip, replicas * ipus_per_replica);
    c.sync_cyc = rounds * hops * sync;
    LpTileMap m = lp_tile_map(x, t, div_up(bytes, lp_cost_type_bytes(t)), 8);
    c.tiles = m.tiles;
    if (adds) {
        /* one vector of 8 bytes a cycle, all chunks but the own */
        cost_vertices(&c,
                      (Vertices){.id = codelet_id(LP_CODELET_scaled_add, t),
                                 .tiles = m.tiles,
                                 .n = hops,
                                 .edges = 3,
                                 .scalars = 2,
                                 .cyc = div_up(m.tile_bytes * (replicas - 1),
                                               (int64_t)replicas * 8)});
        c.compute_sets = hops;
        c.flops = div_up(bytes, lp_cost_type_bytes(t));
        cost_codelet(&c, LP_CODELET_scaled_add, t);
    }
    c.temp_tile_bytes = div_up(m.tile_bytes, replicas);
    c.exchange_code_bytes =
        lp_exchange_code_bytes(x->chip, rounds * hops, rounds * hops);
    return c;
}

/* A transfer beyond the machine's IPUs that takes so long. */
static LpCost outside(const LpCostCtx *x, int64_t cycles)
{
    LpCost c = {0};
    c.exchange_cyc = cycles;
    c.sync_cyc = x->host_sync;
    c.tiles = (int)ctx_tiles(x);
    c.exchange_code_bytes = lp_exchange_code_bytes(x->chip, 1, 1);
    return c;
}

LpCost lp_cost_host_io(const LpCostCtx *x, const LpSystem *sys, int64_t bytes,
                       int n_ipus)
{
    double bps = sys->host_bps / (n_ipus > 0 ? n_ipus : 1);
    return bytes > 0 ? outside(x, at_rate(x->chip, (double)bytes, bps))
                     : (LpCost){0};
}

LpCost lp_cost_streaming(const LpCostCtx *x, const LpSystem *sys, int64_t bytes,
                         int64_t other, int n_ipus)
{
    /* a system without streaming memory keeps it with the host */
    double one = sys->stream_bps > 0 ? sys->stream_bps : sys->host_bps;
    double both = sys->stream_both_bps > 0 ? sys->stream_both_bps / 2 : one;
    double at_once = (double)(bytes < other ? bytes : other);
    if (bytes <= 0)
        return (LpCost){0};
    double seconds =
        at_once / (both < one ? both : one) + ((double)bytes - at_once) / one;
    return outside(x, at_rate(x->chip, seconds * (n_ipus > 0 ? n_ipus : 1), 1));
}
