/* The result type, the memory helpers and the steps that all costs are made of.
 */
#include "runtime/cost/cost.h"

#include "runtime/cost/units.h"

#include <stdio.h>
#include <string.h>

static const int codelet_bytes[] = {
#define CODELET(name, bytes, title) bytes,
#define PRODUCT(name, bytes, title) bytes, bytes,
#include "runtime/cost/codelets.def"
#undef PRODUCT
#undef CODELET
};

/* A plain elementwise loop; see codelets.def for the sizes. */
enum { EW_CODE_BYTES = 384, EW_FORMS = 2, POINTER_BYTES = 4 };

/* Ids: codelet x type, then elementwise operation x form x type. */
enum {
    N_PLAIN = LP_N_CODELETS * LP_COST_N_TYPES,
    N_IDS = N_PLAIN + LP_N_EW * EW_FORMS * LP_COST_N_TYPES
};
_Static_assert(N_IDS <= 64 * (int)(sizeof(LpCodeletSet) / sizeof(uint64_t)),
               "LpCodeletSet is too small");

int lp_cost_type_bytes(LpCostType t)
{
    return t == LP_COST_HALF ? 2 : 4;
}

LpCostCtx lp_cost_ctx(const LpChip *chip)
{
    return (LpCostCtx){.chip = chip,
                       .proportion = 0.6, /* PL poplin, default option */
                       .partials = LP_COST_FLOAT,
                       .host_sync = chip->host_sync_cyc};
}

int64_t lp_codelet_set_bytes(const LpCodeletSet *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < N_IDS; i++)
        if (s->w[i / 64] >> (i % 64) & 1)
            bytes += i < N_PLAIN ? codelet_bytes[i / LP_COST_N_TYPES]
                                 : EW_CODE_BYTES;
    return bytes;
}

int codelet_id(CodeletId id, LpCostType t)
{
    return (int)id * LP_COST_N_TYPES + (int)t;
}

int ew_codelet_id(LpEwOp op, LpEwForm form, LpCostType t)
{
    int scalar = form == LP_EW_SCALAR; /* in place differs by no code */
    return N_PLAIN + ((int)op * EW_FORMS + scalar) * LP_COST_N_TYPES + (int)t;
}

static void add_id(LpCost *c, int id)
{
    c->codelets.w[id / 64] |= UINT64_C(1) << (id % 64);
    c->code_bytes = lp_codelet_set_bytes(&c->codelets);
}

void cost_codelet(LpCost *c, CodeletId id, LpCostType t)
{
    add_id(c, codelet_id(id, t));
}

void cost_ew_codelet(LpCost *c, LpEwOp op, LpEwForm form, LpCostType t)
{
    add_id(c, ew_codelet_id(op, form, t));
}

/* The entry of a codelet; where there are too many, the last, of others. */
static LpVertices *vertices_of(LpCost *c, int id)
{
    for (int i = 0; i < c->n_vertices; i++)
        if (c->vertices[i].id == id)
            return &c->vertices[i];
    if (c->n_vertices == LP_VERTEX_KINDS) {
        c->vertices[LP_VERTEX_KINDS - 1].id = LP_VERTEX_OTHERS;
        return &c->vertices[LP_VERTEX_KINDS - 1];
    }
    c->vertices[c->n_vertices] = (LpVertices){.id = id};
    return &c->vertices[c->n_vertices++];
}

static void add_vertices(LpCost *c, const LpVertices *v)
{
    LpVertices *to = vertices_of(c, v->id);
    to->n += v->n;
    to->edges += v->edges;
    to->tile_bytes += v->tile_bytes;
    to->edge_tile_bytes += v->edge_tile_bytes;
    to->cyc = lp_add_sat(to->cyc, v->cyc);
    to->idle_cyc = lp_add_sat(to->idle_cyc, v->idle_cyc);
}

/* State of the vertices of a tile: of each a run entry, its pointers and 4
 * bytes for two scalars (PL cyclesTables). */
static int64_t state_bytes(const Vertices *v)
{
    return v->n * (4 + POINTER_BYTES * v->edges + 4 * ((v->scalars + 1) / 2)) +
           v->list_bytes;
}

void cost_vertices(LpCost *c, Vertices v)
{
    LpVertices all = {.id = v.id,
                      .n = v.tiles * v.n,
                      .edges = v.tiles * v.n * v.edges,
                      .tile_bytes = state_bytes(&v),
                      .edge_tile_bytes = v.n * v.edges * POINTER_BYTES,
                      .cyc = lp_mul_sat(v.tiles, v.cyc),
                      .idle_cyc = lp_mul_sat(v.tiles, v.idle_cyc)};
    if (v.n <= 0)
        return;
    c->compute_cyc = lp_add_sat(c->compute_cyc, v.cyc);
    c->vertex_bytes += all.tile_bytes;
    add_vertices(c, &all);
}

void cost_step(const LpCostCtx *x, LpCost *c, int64_t exchange_cyc, Vertices v)
{
    c->exchange_cyc += exchange_cyc;
    cost_vertices(c, v);
    c->compute_sets += v.n > 0;
    cost_sync(x, c, 1);
}

void cost_sync(const LpCostCtx *x, LpCost *c, int64_t steps)
{
    c->sync_cyc += steps * x->chip->step_cyc;
    c->steps += steps;
}

void lp_cost_add(LpCost *c, LpCost next)
{
    c->compute_cyc = lp_add_sat(c->compute_cyc, next.compute_cyc);
    c->exchange_cyc = lp_add_sat(c->exchange_cyc, next.exchange_cyc);
    c->sync_cyc = lp_add_sat(c->sync_cyc, next.sync_cyc);
    c->steps += next.steps;
    c->flops = lp_add_sat(c->flops, next.flops);
    /* beside results of both, or before those of one */
    int64_t late = lp_max(c->temp_tile_bytes - c->early_tile_bytes,
                          next.temp_tile_bytes - next.early_tile_bytes);
    c->temp_all_bytes =
        lp_max(lp_cost_temp_bytes(c), lp_cost_temp_bytes(&next));
    c->temp_tile_bytes = lp_max(c->temp_tile_bytes, next.temp_tile_bytes);
    c->early_tile_bytes = c->temp_tile_bytes - late;
    c->interleaved_tile_bytes =
        lp_max(c->interleaved_tile_bytes, next.interleaved_tile_bytes);
    c->apart_tile_bytes = lp_max(c->apart_tile_bytes, next.apart_tile_bytes);
    c->vertex_bytes += next.vertex_bytes;
    c->exchange_code_bytes += next.exchange_code_bytes;
    for (int i = 0; i < (int)(sizeof c->codelets.w / sizeof *c->codelets.w);
         i++)
        c->codelets.w[i] |= next.codelets.w[i];
    c->code_bytes = lp_codelet_set_bytes(&c->codelets);
    if (next.tiles > c->tiles)
        c->tiles = next.tiles;
    c->compute_sets += next.compute_sets;
    for (int i = 0; i < next.n_vertices; i++)
        add_vertices(c, &next.vertices[i]);
}

LpCost lp_cost_repeat(LpCost c, int64_t times)
{
    c.compute_cyc = lp_mul_sat(c.compute_cyc, times);
    c.exchange_cyc = lp_mul_sat(c.exchange_cyc, times);
    c.sync_cyc = lp_mul_sat(c.sync_cyc, times);
    c.flops = lp_mul_sat(c.flops, times);
    for (int i = 0; i < c.n_vertices; i++) {
        c.vertices[i].cyc = lp_mul_sat(c.vertices[i].cyc, times);
        c.vertices[i].idle_cyc = lp_mul_sat(c.vertices[i].idle_cyc, times);
    }
    return c;
}

void lp_cost_not_run(LpCost *c)
{
    *c = lp_cost_repeat(*c, 0);
}

LpCost lp_cost_custom(int64_t cyc, int64_t tile_bytes, int tiles)
{
    LpCost c = {.temp_tile_bytes = tile_bytes, .tiles = tiles};
    cost_vertices(&c,
                  (Vertices){.id = codelet_id(LP_CODELET_custom, LP_COST_FLOAT),
                             .tiles = tiles,
                             .n = cyc > 0,
                             .cyc = cyc});
    c.compute_sets = c.n_vertices;
    return c;
}

/* Elementwise operations by what PopLibs has them as. */
static const char *ew_family(LpEwOp op, bool scalar)
{
    if (op >= LP_EW_relu_grad)
        return "popnn::NonLinearityGrad1D";
    if (op == LP_EW_relu || (op >= LP_EW_tanh && op <= LP_EW_gelu_erf))
        return "popnn::NonLinearity1D";
    if (op >= LP_EW_abs)
        return "popops::UnaryOp1D";
    if (op >= LP_EW_select)
        return "popops";
    return scalar ? "popops::BroadcastScalar1D" : "popops::BinaryOp1D";
}

LpVertexName lp_vertex_name(int id)
{
    /* a product's type is followed by that of its partial sums */
    static const struct {
        const char *title;
        bool sums, wide;
    } plain[] = {
#define CODELET(name, bytes, title) {title, false, false},
#define PRODUCT(name, bytes, title) {title, true, false}, {title, true, true},
#include "runtime/cost/codelets.def"
#undef PRODUCT
#undef CODELET
    };
    static const char *const ew[] = {
#define EW(op, ...) #op,
#include "runtime/cost/elementwise.def"
#undef EW
    };
    static const char *const type[] = {"half", "float", "int"};
    LpVertexName name = {"other vertices"};
    int at = id - N_PLAIN;
    if (at < 0) {
        int of = id / LP_COST_N_TYPES, t = id % LP_COST_N_TYPES;
        int sums = plain[of].wide ? LP_COST_FLOAT : t;
        snprintf(name.text, sizeof name.text, "%s<%s%s%s>", plain[of].title,
                 type[t], plain[of].sums ? "," : "",
                 plain[of].sums ? type[sums] : "");
    } else if (id < N_IDS) {
        LpEwOp op = (LpEwOp)(at / LP_COST_N_TYPES / EW_FORMS);
        bool scalar = at / LP_COST_N_TYPES % EW_FORMS;
        snprintf(name.text, sizeof name.text, "%s<%s, %s>",
                 ew_family(op, scalar), ew[op], type[at % LP_COST_N_TYPES]);
    }
    return name;
}

LpTileMap lp_tile_map(const LpCostCtx *x, LpCostType t, int64_t n,
                      int64_t grain)
{
    int64_t grains = div_up(n, lp_max(grain, 1));
    int64_t tiles = ctx_tiles(x), share = div_up(grains, tiles);
    LpTileMap m = {.tiles = share ? (int)div_up(grains, share) : 0};
    m.tile_elems = lp_min(share * lp_max(grain, 1), n);
    m.tile_bytes = m.tile_elems * lp_cost_type_bytes(t);
    return m;
}

int64_t lp_exchange_code_bytes(const LpChip *chip, int64_t sent,
                               int64_t received)
{
    /* a send is one instruction; a received run sets address and source and
     * ends: three (PL popops/DynamicSlice counts messages the same way) */
    return chip->instruction_bytes * (sent + 3 * received);
}

/* Of a step: a sync, and the call of an exchange, or the address of vertices
 * and the start of the workers. Poplar publishes none; by the review of a
 * training it has 4 to 8 kB for about 120 compute sets and their exchanges. */
enum { STEP_INSTRUCTIONS = 6, CALL_INSTRUCTIONS = 2 };

int64_t lp_control_code_bytes(const LpChip *chip, int64_t steps, int64_t calls)
{
    return chip->instruction_bytes *
           (STEP_INSTRUCTIONS * steps + CALL_INSTRUCTIONS * calls);
}

/* Orders of magnitude, as none are published: packets as long as PCIe's usual
 * payload, with a header of 8 bytes and a send of two instructions each; a
 * transfer is a step. */
enum { PACKET_BYTES = 256, PACKET_HEADER = 8, PACKET_INSTRUCTIONS = 2 };

int64_t lp_packets_code_bytes(const LpChip *chip, int64_t bytes, int tiles)
{
    int64_t n = div_up(div_up(bytes, tiles), PACKET_BYTES);
    if (bytes <= 0)
        return 0;
    return lp_control_code_bytes(chip, 1, 0) +
           n * (PACKET_HEADER + PACKET_INSTRUCTIONS * chip->instruction_bytes);
}

int64_t lp_stack_bytes(const LpChip *chip)
{
    return chip->workers * chip->worker_stack_bytes +
           chip->supervisor_stack_bytes;
}

int64_t lp_tile_with_gaps(const LpChip *chip, int64_t used, int64_t interleaved,
                          int64_t apart)
{
    if (apart > 0)
        used = lp_max(used, chip->memory_element_bytes + apart);
    if (interleaved > 0)
        used = lp_max(used, chip->region0_bytes + interleaved);
    return used;
}
