/* Bytes of every IPU. Always live: variables that lie on the chip,
 * stashes of a pipeline, and for every tile code, vertices, exchange code and
 * stacks. A codelet's code is there once a tile, vertices and exchange code
 * once for equal work (what outlining achieves). The rest is liveness.c. */
#include "src/passes/ipu/strategy.h"
#include "src/passes/ipu/tiles.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct Memory {
    LpIpuPlan *p;
    int ipu;
    LpTiles tiles;
    LpIpuMemory *m;
    LpCodeletSet set;
    int64_t interleaved;
    bool *seen; /* by label */
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
    int64_t before = x->tiles.total;
    lp_tiles_add(&x->tiles, s, times);
    x->m->bytes[kind] += x->tiles.total - before;
    lp_ipu_note_largest(
        x->m, (LpLargest){name, scope, x->tiles.total - before, kind});
}

static void variables(Memory *x)
{
    static const LpMemKind kind[LP_N_VAR_ROLES] = {
        [LP_VAR_PARAM] = LP_MEM_WEIGHT,      [LP_VAR_STATE] = LP_MEM_OPTIMIZER,
        [LP_VAR_ACCUM] = LP_MEM_ACCUMULATOR, [LP_VAR_BUFFER] = LP_MEM_BUFFER,
        [LP_VAR_CONST] = LP_MEM_BUFFER,      [LP_VAR_HYPER] = LP_MEM_BUFFER};
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (v->role == LP_VAR_STREAM_IN || v->role == LP_VAR_STREAM_OUT ||
            !lp_ipu_has(p, (int)i, x->ipu))
            continue;
        if (lp_ipu_off_chip(p, v))
            x->m->off_chip += lp_ipu_kept_bytes(p, v);
        else
            keep(x, kind[v->role], lp_ipu_kept(p, v), &v->type, 1,
                 p->var_start[i], v->name, NULL);
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
    for (size_t i = 0; i < p->n_stash; i++) {
        const LpStash *s = &p->stash[i];
        const LpType *t = lp_graph_type(g, s->v);
        if (p->stage[s->stage].ipu != x->ipu)
            continue;
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

static void node_code(Memory *x, const LpNodeCost *n, int64_t *vertex,
                      int64_t *exchange)
{
    for (size_t i = 0; i < sizeof x->set.w / sizeof *x->set.w; i++)
        x->set.w[i] |= n->cost.codelets.w[i];
    if (n->cost.interleaved_tile_bytes > x->interleaved)
        x->interleaved = n->cost.interleaved_tile_bytes;
    if (x->seen[n->label])
        return;
    x->seen[n->label] = true;
    *vertex += n->cost.vertex_bytes;
    *exchange += n->cost.exchange_code_bytes;
}

static LpStatus code(Memory *x)
{
    const LpIpuPlan *p = x->p;
    const LpGraph *g = p->step->micro, *u = p->step->update;
    int64_t vertex = 0, exchange = 0;
    x->seen =
        lp_ipu_scratch(x->p, g->n_node + (u ? u->n_node : 0), sizeof *x->seen);
    LP_TRY(p->err->code);
    x->set = (LpCodeletSet){{0}};
    for (LpNodeId n = 0; n < g->n_node; n++)
        if (p->stage[p->node_stage[n]].ipu == x->ipu)
            node_code(x, &p->cost[n], &vertex, &exchange);
    for (LpNodeId n = 0; u && n < u->n_node; n++)
        if (p->update_ipu[n] == x->ipu)
            node_code(x, &p->update_cost[n], &vertex, &exchange);
    int64_t tile[] = {lp_codelet_set_bytes(&x->set), vertex, exchange,
                      lp_stack_bytes(p->o.chip)};
    for (int i = 0; i < 4; i++) {
        lp_tiles_add_all(&x->tiles, tile[i]);
        x->m->bytes[LP_MEM_CODE + i] += tile[i] * x->tiles.n;
    }
    return LP_OK;
}

static bool has_work(const LpIpuPlan *p, int ipu)
{
    for (int i = 0; i < p->n_stage; i++)
        if (p->stage[i].ipu == ipu)
            return true;
    return false;
}

static LpStatus one_ipu(Memory *x)
{
    LpIpuPlan *p = x->p;
    x->m = &p->memory[x->ipu];
    x->interleaved = 0;
    x->tiles = (LpTiles){.n = lp_ipu_tiles(p)};
    variables(x);
    parts(x);
    stashes(x);
    LP_TRY(code(x));
    x->m->always = x->tiles.total;
    return lp_ipu_liveness(p, x->ipu, &x->tiles, x->interleaved, x->m);
}

/* ---- does it fit? -------------------------------------------------------- */
static int first_tile(const LpIpuPlan *p, int c)
{
    return (c * lp_ipu_tiles(p) + LP_TILE_CLASSES - 1) / LP_TILE_CLASSES;
}

/* The fullest tiles, one of each of the fullest classes, and how many of the
 * IPU overflow. */
static void fullest(const LpIpuPlan *p, const LpIpuMemory *m, char *out,
                    size_t n)
{
    bool seen[LP_TILE_CLASSES] = {false};
    int over = 0;
    size_t k = 0;
    for (int c = 0; c < LP_TILE_CLASSES; c++)
        if (m->tile[c] > p->o.chip->tile_bytes)
            over += first_tile(p, c + 1) - first_tile(p, c);
    for (int i = 0; i < 3; i++) {
        int most = -1;
        for (int c = 0; c < LP_TILE_CLASSES; c++)
            if (!seen[c] && m->tile[c] > p->o.chip->tile_bytes &&
                first_tile(p, c) < first_tile(p, c + 1) &&
                (most < 0 || m->tile[c] > m->tile[most]))
                most = c;
        if (most < 0)
            break;
        seen[most] = true;
        k +=
            (size_t)snprintf(out + k, n - k, "%s%d (%" PRId64 " bytes)",
                             k ? ", " : "", first_tile(p, most), m->tile[most]);
    }
    snprintf(out + k, n - k, "; %d of %d overflow", over, lp_ipu_tiles(p));
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

/* The error of a tile that overflows. */
static LpStatus out_of_memory(const LpIpuPlan *p, int ipu)
{
    const LpIpuMemory *m = &p->memory[ipu];
    char stages[64] = "", tiles[160] = "", big[360] = "";
    size_t at = 0;
    for (int i = 0; i < p->n_stage && at < sizeof stages - 8; i++)
        if (p->stage[i].ipu == ipu)
            at += (size_t)snprintf(stages + at, sizeof stages - at, "%s%d",
                                   at ? ", " : "", i);
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

LpStatus lp_ipu_memory(LpIpuPlan *p)
{
    Memory x = {.p = p};
    p->memory = lp_ipu_alloc(p, (size_t)p->n_ipus, sizeof *p->memory);
    LP_TRY(p->err->code);
    int worst = -1;
    for (x.ipu = 0; x.ipu < p->n_ipus; x.ipu++) {
        if (!has_work(p, x.ipu))
            continue;
        lp_arena_reset(&p->scratch);
        LP_TRY(one_ipu(&x));
        int64_t need = p->memory[x.ipu].max_tile_gaps;
        if (need > p->o.chip->tile_bytes &&
            (worst < 0 || need > p->memory[worst].max_tile_gaps))
            worst = x.ipu;
    }
    return worst >= 0 && !p->o.allow_out_of_memory ? out_of_memory(p, worst)
                                                   : LP_OK;
}
