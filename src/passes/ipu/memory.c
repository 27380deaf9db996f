/* Bytes of every IPU. Always live: variables that lie on the chip,
 * stashes of a pipeline, and for every tile code, vertices, exchange code and
 * stacks. A codelet's code is there once a tile, vertices, exchange code and
 * the steps that call them once for equal work, what moves to or from a tensor
 * off the IPU once for equal sizes (what outlining achieves). The rest is
 * liveness.c. */
#include "src/base/checked.h"
#include "src/passes/ipu/strategy.h"
#include "src/passes/ipu/tiles.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const bool in_code[] = {
#define MEMORY(id, name, in_code) in_code,
#include "src/passes/ipu/memory.def"
#undef MEMORY
};

typedef struct Memory {
    LpIpuPlan *p;
    int ipu;
    LpTiles tiles;           /* what is always there */
    int64_t whole[LP_N_MEM]; /* of every tile, beside what is on some */
    LpIpuMemory *m;
    LpCodeletSet set;
    LpTileGaps gaps;
    LpByIpu by;
    int *seen;      /* by label: the last IPU that has its code */
    int64_t *moves; /* of one IPU */
    const LpVariable **stream;
    size_t n_stream;
} Memory;

void lp_ipu_note_largest(LpIpuMemory *m, LpLargest b)
{
    int at = LP_N_LARGEST;
    while (at > 0 && b.bytes > m->largest[at - 1].bytes)
        at--;
    if (at == LP_N_LARGEST)
        return;
    memmove(&m->largest[at + 1], &m->largest[at],
            (size_t)(LP_N_LARGEST - 1 - at) * sizeof *m->largest);
    m->largest[at] = b;
}

static void keep(Memory *x, LpMemKind kind, int64_t n, const LpType *t,
                 int64_t times, LpStart at, const char *name, const char *scope)
{
    int64_t size = (int64_t)lp_dtype_size(t->dtype);
    LpSpread s = lp_tiles_deal(&x->tiles, x->p->o.chip, n, size, at);
    int64_t bytes = times * s.tile;
    int c, few = lp_tiles_few(&x->tiles, s, &c, &bytes, &x->whole[kind]);
    for (; few > 0; few--, c++)
        x->m->tile_of[kind].b[c % LP_TILE_CLASSES] += bytes;
    x->m->bytes[kind] += times * s.all;
    lp_ipu_note_largest(x->m, (LpLargest){name, scope, times * s.all, kind});
}

static void variables(Memory *x)
{
    static const LpMemKind kind[LP_N_VAR_ROLES] = {
        [LP_VAR_PARAM] = LP_MEM_WEIGHT,      [LP_VAR_STATE] = LP_MEM_OPTIMIZER,
        [LP_VAR_ACCUM] = LP_MEM_ACCUMULATOR, [LP_VAR_BUFFER] = LP_MEM_BUFFER,
        [LP_VAR_CONST] = LP_MEM_BUFFER,      [LP_VAR_HYPER] = LP_MEM_BUFFER};
    const LpIpuPlan *p = x->p;
    const LpNodesOf *own = &x->by.owned;
    for (size_t k = own->first[x->ipu]; k < own->first[x->ipu + 1]; k++) {
        uint32_t i = own->node[k];
        const LpVariable *v = &p->step->var[i];
        if (v->role == LP_VAR_STREAM_IN || v->role == LP_VAR_STREAM_OUT ||
            lp_ipu_in_velocity(p, v))
            continue;
        if (lp_ipu_off_chip(p, v))
            x->m->off_chip += lp_ipu_kept_bytes(p, v);
        else
            keep(x, kind[v->role], lp_ipu_kept(p, v), &v->type, 1,
                 p->var_start[i], v->name, NULL);
        if (v->role == LP_VAR_CONST)
            x->m->constants += lp_type_bytes(&v->type);
    }
}

/* Sums of gradients for accumulators of other IPUs. */
static void parts(Memory *x)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < p->n_partial; i++) {
        const LpVariable *v = &p->step->var[p->partial[i].var];
        if (!lp_ipu_first_partial(p, i) ||
            p->pass[p->partial[i].run].ipu != x->ipu)
            continue;
        if (lp_ipu_off_chip(p, v))
            x->m->off_chip += lp_type_bytes(&v->type);
        else
            keep(x, LP_MEM_ACCUMULATOR, lp_numel(&v->type), &v->type, 1,
                 p->var_start[p->partial[i].var], v->name, NULL);
    }
}

static void stashes(Memory *x)
{
    const LpIpuPlan *p = x->p;
    const LpGraph *g = p->step->micro;
    const LpNodesOf *of = &x->by.stash;
    for (size_t k = of->first[x->ipu]; k < of->first[x->ipu + 1]; k++) {
        const LpStash *s = &p->stash[of->node[k]];
        const LpType *t = lp_graph_type(g, s->v);
        if (s->off_chip) {
            x->m->off_chip += s->depth * lp_type_bytes(t);
            continue;
        }
        if (s->depth == 1)
            continue; /* part of the liveness */
        LpNodeId n = g->value[s->v].node;
        bool made = n != LP_NO_NODE;
        keep(x, LP_MEM_STASH, lp_numel(t), t, s->depth, p->val_start[s->v],
             made ? lp_node_title(&g->node[n])
                  : p->step->var[p->var_of[s->v]].name,
             made ? lp_origin_of(g, n)->scope : NULL);
    }
}

/* ---- code ---------------------------------------------------------------- */
typedef struct Code {
    int64_t vertex, exchange; /* bytes of a tile */
    int64_t steps, calls;     /* of its program */
} Code;

static void node_code(Memory *x, const LpNodeCost *n, Code *c)
{
    if (n->label == LP_NO_LABEL)
        return;
    c->calls += n->cost->steps > 0;
    if (x->seen[n->label] == x->ipu)
        return;
    x->seen[n->label] = x->ipu;
    for (size_t i = 0; i < sizeof x->set.w / sizeof *x->set.w; i++)
        x->set.w[i] |= n->cost->codelets.w[i];
    x->gaps.interleaved =
        lp_max(x->gaps.interleaved, n->cost->interleaved_tile_bytes);
    x->gaps.apart = lp_max(x->gaps.apart, n->cost->apart_tile_bytes);
    c->vertex += n->cost->vertex_bytes;
    c->exchange += n->cost->exchange_code_bytes;
    c->steps += n->cost->steps;
}

/* Sizes of what goes one way, each once. */
typedef struct Moves {
    int64_t *bytes; /* negative: away from the IPU */
    size_t n;
} Moves;

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t packets_code(const Memory *x, Moves *m)
{
    int64_t sum = 0;
    qsort(m->bytes, m->n, sizeof *m->bytes, by_size);
    for (size_t i = 0; i < m->n; i++) {
        int64_t size = m->bytes[i] < 0 ? -m->bytes[i] : m->bytes[i];
        if (i == 0 || m->bytes[i] != m->bytes[i - 1])
            sum += lp_packets_code_bytes(x->p->o.chip, size, x->tiles.n);
    }
    return sum;
}

/* To other IPUs and from them. */
static int64_t global_code(const Memory *x)
{
    const LpIpuPlan *p = x->p;
    Moves m = {x->moves, 0};
    const LpNodesOf *of = &x->by.copy;
    for (size_t i = of->first[x->ipu]; i < of->first[x->ipu + 1]; i++) {
        const LpIpuCopy *c = &p->copy[of->node[i]];
        int64_t size = lp_type_bytes(lp_graph_type(p->step->micro, c->v));
        if (c->from_ipu != c->to_ipu && !c->off_chip)
            m.bytes[m.n++] = c->to_ipu == x->ipu ? size : -size;
    }
    const LpNodesOf *own = &x->by.owned;
    size_t k = own->first[x->ipu], end = own->first[x->ipu + 1];
    for (; k < end && p->replicas > 1; k++) {
        const LpVariable *v = &p->step->var[own->node[k]];
        if (v->role == LP_VAR_ACCUM && p->var_ipu[own->node[k]] == x->ipu)
            m.bytes[m.n++] = lp_type_bytes(&v->type);
    }
    return packets_code(x, &m);
}

/* To the host and streaming memory, and from them. */
static int64_t host_code(const Memory *x)
{
    const LpIpuPlan *p = x->p;
    Moves m = {x->moves, 0};
    const LpNodesOf *of = &x->by.transfer;
    for (size_t i = of->first[x->ipu]; i < of->first[x->ipu + 1]; i++) {
        const LpTransfer *t = &p->transfer[of->node[i]];
        m.bytes[m.n++] = t->load ? t->bytes : -t->bytes;
    }
    for (size_t i = 0; i < x->n_stream && !p->o.synthetic_data; i++) {
        const LpVariable *v = x->stream[i];
        LpVal at[] = {v->role == LP_VAR_STREAM_IN ? v->micro_in : LP_NOVAL,
                      v->role == LP_VAR_STREAM_OUT ? v->micro_out : LP_NOVAL};
        for (int k = 0; k < 2; k++)
            if (at[k] != LP_NOVAL &&
                p->pass[lp_ipu_pass_making(p, at[k])].ipu == x->ipu)
                m.bytes[m.n++] =
                    k ? -lp_type_bytes(&v->type) : lp_type_bytes(&v->type);
    }
    return packets_code(x, &m);
}

static void on_each_tile(Memory *x, LpMemKind kind, int64_t bytes)
{
    x->whole[kind] += bytes;
    x->m->bytes[kind] += bytes * x->tiles.n;
    x->m->tile_code += in_code[kind] ? bytes : 0;
}

static void nodes_code(Memory *x, const LpNodesOf *of, const LpNodeCost *cost,
                       Code *c)
{
    for (size_t i = of->first[x->ipu]; i < of->first[x->ipu + 1]; i++)
        node_code(x, &cost[of->node[i]], c);
}

static void code(Memory *x)
{
    const LpIpuPlan *p = x->p;
    const LpChip *chip = p->o.chip;
    Code c = {0};
    x->set = (LpCodeletSet){{0}};
    nodes_code(x, &x->by.node, p->cost, &c);
    if (p->step->update)
        nodes_code(x, &x->by.update, p->update_cost, &c);
    on_each_tile(x, LP_MEM_CODE, lp_codelet_set_bytes(&x->set));
    on_each_tile(x, LP_MEM_VERTEX, c.vertex);
    on_each_tile(x, LP_MEM_CONTROL,
                 lp_control_code_bytes(chip, c.steps, c.calls));
    on_each_tile(x, LP_MEM_EXCHANGE, c.exchange);
    on_each_tile(x, LP_MEM_GLOBAL, global_code(x));
    on_each_tile(x, LP_MEM_HOST, host_code(x));
    on_each_tile(x, LP_MEM_STACK, lp_stack_bytes(chip));
}

/* Of all categories, tile by tile. */
static void add_up(Memory *x)
{
    for (int k = 0; k < LP_N_MEM; k++) {
        x->tiles.total += x->m->bytes[k];
        for (int c = 0; c < LP_TILE_CLASSES; c++) {
            x->m->tile_of[k].b[c] += x->whole[k];
            x->tiles.b[c] += x->m->tile_of[k].b[c];
        }
    }
}

static bool has_work(const Memory *x)
{
    return x->by.run.first[x->ipu] < x->by.run.first[x->ipu + 1];
}

static LpStatus one_ipu(Memory *x)
{
    LpIpuPlan *p = x->p;
    x->m = &p->memory[x->ipu];
    x->gaps = (LpTileGaps){0};
    memset(x->whole, 0, sizeof x->whole);
    x->tiles = (LpTiles){.n = lp_ipu_tiles(p)};
    variables(x);
    parts(x);
    stashes(x);
    code(x);
    add_up(x);
    x->m->always = x->tiles.total;
    x->m->interleaved = x->gaps.interleaved;
    return lp_ipu_liveness(p, x->ipu, &x->by, &x->tiles, x->gaps, x->m);
}

/* What is on its way on I/O tiles, dealt out over them, beside their stacks. */
static void io_tiles(const LpIpuPlan *p, int ipu, LpIpuMemory *m)
{
    m->io = p->io[ipu];
    if (m->io > 0)
        m->io_tile = (m->io + p->o.io_tiles - 1) / p->o.io_tiles +
                     lp_stack_bytes(p->o.chip);
}

/* ---- does it fit? -------------------------------------------------------- */
/* The fullest tiles, one of each of the fullest classes, and how many of the
 * IPU overflow. */
static void fullest(const LpIpuPlan *p, const LpIpuMemory *m, char *out,
                    size_t n)
{
    bool seen[LP_TILE_CLASSES] = {false};
    int over = 0, n_tiles = lp_ipu_tiles(p);
    size_t k = 0;
    for (int c = 0; c < LP_TILE_CLASSES; c++)
        if (m->tile[c] > p->o.chip->tile_bytes)
            over += lp_tiles_first(c + 1, n_tiles) - lp_tiles_first(c, n_tiles);
    for (int i = 0; i < 3; i++) {
        int most = -1;
        for (int c = 0; c < LP_TILE_CLASSES; c++)
            if (!seen[c] && m->tile[c] > p->o.chip->tile_bytes &&
                lp_tiles_first(c, n_tiles) < lp_tiles_first(c + 1, n_tiles) &&
                (most < 0 || m->tile[c] > m->tile[most]))
                most = c;
        if (most < 0)
            break;
        seen[most] = true;
        k += (size_t)snprintf(out + k, n - k, "%s%d (%" PRId64 " bytes)",
                              k ? ", " : "", lp_tiles_first(most, n_tiles),
                              m->tile[most]);
    }
    snprintf(out + k, n - k, "; %d of %d overflow", over, n_tiles);
}

/* The largest values at the peak, with their layers. */
static void largest(const LpIpuMemory *m, char *out, size_t size)
{
    size_t k = 0;
    for (int i = 0; i < LP_N_LARGEST && m->largest[i].bytes > 0; i++) {
        const LpLargest *b = &m->largest[i];
        bool scoped = b->scope && *b->scope;
        int n = snprintf(out + k, size - k, "%s%.40s%s%.40s %.1f MB",
                         k ? ", " : "", b->name, scoped ? " of " : "",
                         scoped ? b->scope : "", (double)b->bytes / 1e6);
        if (n < 0 || (size_t)n >= size - k) {
            out[k] = '\0';
            break;
        }
        k += (size_t)n;
    }
}

/* The stages of an IPU. */
static void stages_of(const LpIpuPlan *p, int ipu, char *out, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < p->n_stage && at < size - 8; i++)
        if (p->stage[i].ipu == ipu)
            at += (size_t)snprintf(out + at, size - at, "%s%d", at ? ", " : "",
                                   i);
}

/* The error of a tile that overflows. */
static LpStatus out_of_memory(const LpIpuPlan *p, int ipu)
{
    const LpIpuMemory *m = &p->memory[ipu];
    char stages[64] = "", tiles[160] = "", big[360] = "";
    stages_of(p, ipu, stages, sizeof stages);
    fullest(p, m, tiles, sizeof tiles);
    largest(m, big, sizeof big);
    return lp_fail(
        p->err, LP_E_IPU_MEMORY,
        "Memory allocation error : Out of memory on tile %d of IPU %d (stage "
        "%s): %" PRId64 " bytes used but tiles only have %" PRId64 " bytes of "
        "memory. Fullest tiles: %s. Biggest over the IPU: %s",
        m->max_tile_nr, ipu, stages, m->max_tile_gaps, p->o.chip->tile_bytes,
        tiles, big);
}

/* The error of code that overflows the region from which it can run. */
static LpStatus too_much_code(const LpIpuPlan *p, int ipu)
{
    const LpIpuMemory *m = &p->memory[ipu];
    char stages[64] = "", kinds[200] = "";
    size_t at = 0;
    int64_t room = p->o.chip->region0_bytes;
    stages_of(p, ipu, stages, sizeof stages);
    for (int k = 0; k < LP_N_MEM && at < sizeof kinds - 40; k++)
        if (in_code[k])
            at += (size_t)snprintf(
                kinds + at, sizeof kinds - at, "%s%s %" PRId64, at ? ", " : "",
                lp_mem_names[k], m->bytes[k] / lp_ipu_tiles(p));
    return lp_fail(
        p->err, LP_E_IPU_CODE,
        "Linking of IPU %d (stage %s): _poplar_start must be 0 not %" PRId64
        " bytes from the start of memory. Typically this error occurs when "
        "there is too much code: %" PRId64 " bytes a tile (%s), of which only "
        "the first %" PRId64 " bytes of a tile can hold any. More IPUs need "
        "less each; layers of equal shapes and types share theirs",
        ipu, stages, m->tile_code - room, m->tile_code, kinds, room);
}

/* The IPU on which most is needed beyond the room that there is; -1: none. */
static int worst_of(const LpIpuPlan *p, bool code)
{
    int64_t most = code ? p->o.chip->region0_bytes : p->o.chip->tile_bytes;
    int worst = -1;
    for (int i = 0; i < p->n_ipus; i++) {
        const LpIpuMemory *m = &p->memory[i];
        int64_t need = code ? m->tile_code : m->max_tile_gaps;
        if (need > most) {
            most = need;
            worst = i;
        }
    }
    return worst;
}

static LpStatus out_of_io_tiles(const LpIpuPlan *p, int ipu)
{
    const LpIpuMemory *m = &p->memory[ipu];
    return lp_fail_hint(
        p->err, LP_E_IPU_MEMORY, "io_tiles",
        "Memory allocation error : Out of memory on the %d I/O tiles of IPU "
        "%d: transfers of %" PRId64 " bytes at once need %" PRId64 " bytes of "
        "each but tiles only have %" PRId64 " bytes of memory. This may help: "
        "more I/O tiles, smaller phases or micro-batches, or locations that "
        "use no I/O tiles",
        p->o.io_tiles, ipu, m->io, m->io_tile, p->o.chip->tile_bytes);
}

/* How much streaming memory a machine's IPUs, of all replicas, take. */
static int64_t streaming_memory(const LpIpuPlan *p, int machine)
{
    int64_t sum = 0, each = p->o.system->ipus_machine;
    for (int64_t i = 0; i < p->replicas * p->n_ipus; i++)
        if (i / each == machine)
            sum += p->memory[i % p->n_ipus].off_chip;
    return sum;
}

static LpStatus out_of_streaming_memory(const LpIpuPlan *p)
{
    return lp_fail_hint(
        p->err, LP_E_IPU_MEMORY, "streaming_memory",
        "Memory allocation error : Out of streaming memory: the %d IPUs of a "
        "machine need %" PRId64 " bytes of it, a machine has %.0f. This may "
        "help: more IPUs, weights and optimizer state in shares of the "
        "replicas, half states and accumulators, or more of it on the chip",
        p->o.system->ipus_machine, p->streaming, p->o.system->stream_bytes);
}

static LpStatus check_streaming_memory(LpIpuPlan *p)
{
    int64_t ipus = p->replicas * p->n_ipus;
    for (int m = 0; m * p->o.system->ipus_machine < ipus; m++)
        p->streaming = lp_max(p->streaming, streaming_memory(p, m));
    bool over = p->o.system->stream_bytes > 0 &&
                (double)p->streaming > p->o.system->stream_bytes;
    return over && !p->o.allow_out_of_memory ? out_of_streaming_memory(p)
                                             : LP_OK;
}

bool lp_ipu_fits(const LpIpuPlan *p, const LpIpuMemory *m)
{
    return m->max_tile_gaps <= p->o.chip->tile_bytes &&
           m->io_tile <= p->o.chip->tile_bytes &&
           m->tile_code <= p->o.chip->region0_bytes;
}

static LpStatus prepare(Memory *x)
{
    LpIpuPlan *p = x->p;
    size_t moves = p->n_copy + p->n_transfer + 2 * p->step->n_var;
    p->memory = lp_ipu_alloc(p, (size_t)p->n_ipus, sizeof *p->memory);
    x->seen = lp_ipu_marks(p, p->n_label);
    x->moves = lp_ipu_scratch(p, moves, sizeof *x->moves);
    x->stream = lp_ipu_scratch(p, p->step->n_var, sizeof *x->stream);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (v->role == LP_VAR_STREAM_IN || v->role == LP_VAR_STREAM_OUT)
            x->stream[x->n_stream++] = v;
    }
    return lp_ipu_by_ipu(p, &x->by);
}

LpStatus lp_ipu_memory(LpIpuPlan *p)
{
    Memory x = {.p = p};
    LP_TRY(prepare(&x));
    for (x.ipu = 0; x.ipu < p->n_ipus; x.ipu++) {
        if (!has_work(&x))
            continue;
        LP_TRY(one_ipu(&x));
        io_tiles(p, x.ipu, x.m);
        if (x.m->io_tile > p->o.chip->tile_bytes && !p->o.allow_out_of_memory)
            return out_of_io_tiles(p, x.ipu);
    }
    LP_TRY(check_streaming_memory(p));
    int memory = worst_of(p, false), code = worst_of(p, true);
    if (p->o.allow_out_of_memory || (memory < 0 && code < 0))
        return LP_OK;
    return memory >= 0 ? out_of_memory(p, memory) : too_much_code(p, code);
}
