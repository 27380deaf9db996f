/* What an IPU holds for some of the time, and its peak. One period of the loop
 * is enough: in the steady state an IPU passes through all its runs, while fill
 * and flush leave some out. Ranges become spans on the line of the IPU's
 * entries; a stash of one micro-batch lives from the forward run through the
 * backward run. Then the update. */
#include "src/passes/ipu/strategy.h"
#include "src/passes/ipu/tiles.h"

#include "src/base/checked.h"

typedef struct Span {
    LpVal v; /* LP_NOVAL: a parameter from elsewhere, see var */
    int var;
    uint32_t from, to;
    LpSpread s;
    size_t next_from, next_to; /* +1, spans that start, end there */
} Span;

typedef struct Live {
    LpIpuPlan *p;
    const LpGraph *g;
    int ipu;
    LpTiles tiles;
    Span *span;
    size_t n_span, cap_span;
    size_t *last; /* by value: its last span + 1 */
    bool *off;    /* by value: its stash is off chip */
    uint32_t end;
    int64_t peak[LP_TILE_CLASSES]; /* of what is not always live */
    int64_t peak_total, activation, temporary;
    int64_t fullest;
    uint32_t peak_at;
    LpIpuMemory *m;
} Live;

static LpStatus add_span(Live *l, LpVal v, int var, uint32_t from, uint32_t to)
{
    const LpType *t = v ? lp_graph_type(l->g, v) : &l->p->step->var[var].type;
    LpSpread s = lp_tiles_deal_type(&l->tiles, l->p->o.chip, t);
    LP_IPU_ADD(l, span, l->p->err,
               (Span){.v = v, .var = var, .from = from, .to = to, .s = s});
    if (v)
        l->last[v] = l->n_span;
    return LP_OK;
}

/* Is the value still there from an earlier run of this IPU? */
static bool continues(const Live *l, const LpStagePass *r, const LpLiveRange *h)
{
    const LpIpuPlan *p = l->p;
    return l->last[h->v] && h->kind != LP_RANGE_MADE && !l->off[h->v] &&
           (!p->strategy->stays || p->strategy->stays(p, r, h));
}

static LpStatus spans_of(Live *l, const LpStagePass *r, uint32_t base)
{
    for (uint32_t i = 0; i < r->n_range; i++) {
        const LpLiveRange *h = &r->range[i];
        uint32_t to = base + h->to;
        if (h->alias)
            continue;
        if (h->early && h->to > h->from)
            to--;
        if (continues(l, r, h)) {
            Span *s = &l->span[l->last[h->v] - 1];
            s->to = to > s->to ? to : s->to;
        } else {
            LP_TRY(add_span(l, h->v, -1, base + h->from, to));
        }
    }
    return LP_OK;
}

/* Parameters that are loaded or gathered for this run. */
static LpStatus visitors(Live *l, const LpStagePass *r, uint32_t base)
{
    const LpIpuPlan *p = l->p;
    for (uint32_t i = 0; i < r->n_read; i++) {
        int var = p->var_of[r->read[i]];
        if (var < 0)
            continue;
        const LpVariable *x = &p->step->var[var];
        if (lp_ipu_off_chip(p, x) || lp_ipu_kept(p, x) < lp_numel(&x->type))
            LP_TRY(add_span(l, LP_NOVAL, var, base, base + r->n));
    }
    return LP_OK;
}

static LpStatus collect(Live *l)
{
    const LpIpuPlan *p = l->p;
    for (size_t i = 0; i < p->n_stash; i++)
        if (p->stage[p->stash[i].stage].ipu == l->ipu)
            l->off[p->stash[i].v] = p->stash[i].off_chip;
    for (int r = 0; r < p->n_pass; r++) {
        const LpStagePass *run = &p->pass[r];
        if (run->ipu != l->ipu)
            continue;
        LP_TRY(spans_of(l, run, l->end));
        LP_TRY(visitors(l, run, l->end));
        l->end += run->n + 1;
    }
    return LP_OK;
}

/* Operands that a node has copies of are gone when it writes its results. */
static void consider(Live *l, const LpTiles *always, const LpCost *c,
                     const LpTiles *made, uint32_t at, LpLiveStep step)
{
    int64_t temp = c ? c->temp_tile_bytes : 0;
    int64_t early = c ? c->early_tile_bytes : 0;
    int64_t total = l->tiles.total + (c ? lp_cost_temp_bytes(c) : 0);
    if (made && c)
        total -= lp_min(made->total, early * c->tiles);
    step.live = l->tiles.total;
    step.temporary = total - step.live;
    l->m->step[l->m->n_step++] = step;
    if (total > l->peak_total) {
        l->peak_total = total;
        l->activation = l->tiles.total;
        l->temporary = total - l->tiles.total;
    }
    for (int k = 0; k < LP_TILE_CLASSES; k++) {
        int64_t now = l->tiles.b[k] + temp;
        if (made)
            now -= lp_min(made->b[k], early);
        if (now > l->peak[k])
            l->peak[k] = now;
        if (now + always->b[k] > l->fullest) {
            l->fullest = now + always->b[k];
            l->peak_at = at;
        }
    }
}

/* Memory of what starts at this entry; what its node makes, in *made. */
static void begin(Live *l, size_t first, LpNodeId node, LpTiles *made)
{
    *made = (LpTiles){.n = l->tiles.n};
    for (size_t k = first; k; k = l->span[k - 1].next_from) {
        const Span *s = &l->span[k - 1];
        lp_tiles_add(&l->tiles, s->s, 1);
        if (s->v && lp_maker(l->g, s->v) == node)
            lp_tiles_add(made, s->s, 1);
    }
}

/* Walks the line of entries. */
static LpStatus sweep(Live *l, const LpTiles *always)
{
    LpIpuPlan *p = l->p;
    size_t *from = lp_ipu_scratch(p, l->end, sizeof *from);
    size_t *to = lp_ipu_scratch(p, l->end, sizeof *to);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < l->n_span; i++) {
        l->span[i].next_from = from[l->span[i].from];
        from[l->span[i].from] = i + 1;
        l->span[i].next_to = to[l->span[i].to];
        to[l->span[i].to] = i + 1;
    }
    uint32_t at = 0;
    for (int r = 0; r < p->n_pass; r++) {
        const LpStagePass *run = &p->pass[r];
        if (run->ipu != l->ipu)
            continue;
        for (uint32_t i = 0; i <= run->n; i++, at++) {
            LpNodeId n = i < run->n ? run->entry[i].node : LP_NO_NODE;
            LpTiles made;
            begin(l, from[at], n, &made);
            consider(l, always, n == LP_NO_NODE ? NULL : &p->cost[n].cost,
                     &made, at, (LpLiveStep){.node = n, .run = r});
            for (size_t k = to[at]; k; k = l->span[k - 1].next_to)
                lp_tiles_add(&l->tiles, l->span[k - 1].s, -1);
        }
    }
    return LP_OK;
}

static LpLiveSpan named_span(const Live *l, const Span *s)
{
    LpLiveSpan b = {.from = s->from, .to = s->to, .bytes = s->s.all};
    LpNodeId n = s->v ? l->g->value[s->v].node : LP_NO_NODE;
    if (n != LP_NO_NODE) {
        b.name = lp_node_title(&l->g->node[n]);
        b.scope = lp_origin_of(l->g, n)->scope;
    } else {
        b.name = l->p->step->var[s->v ? l->p->var_of[s->v] : s->var].name;
    }
    return b;
}

static LpStatus note_spans(const Live *l, LpIpuMemory *m)
{
    m->span = lp_ipu_alloc(l->p, l->n_span, sizeof *m->span);
    LP_TRY(l->p->err->code);
    m->n_span = (uint32_t)l->n_span;
    for (size_t i = 0; i < l->n_span; i++) {
        LpLiveSpan b = m->span[i] = named_span(l, &l->span[i]);
        if (b.from <= l->peak_at && l->peak_at <= b.to)
            lp_ipu_note_largest(
                m, (LpLargest){b.name, b.scope, b.bytes, LP_MEM_ACTIVATION});
    }
    return LP_OK;
}

/* ---- the update ---------------------------------------------------------- */
/* Off-chip state of the parameter that needs most of it: parameters are
 * updated one by one. */
static LpStatus update_visitors(Live *l)
{
    LpIpuPlan *p = l->p;
    int64_t most = 0, *need = lp_ipu_scratch(p, p->step->n_var, sizeof *need);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        size_t param = v->role == LP_VAR_PARAM ? i : (size_t)v->param;
        if (v->update_in == LP_NOVAL || p->var_ipu[i] != l->ipu ||
            !lp_ipu_off_chip(p, v) || param >= p->step->n_var)
            continue;
        need[param] += lp_ipu_kept_bytes(p, v);
        most = need[param] > most ? need[param] : most;
    }
    lp_tiles_add(&l->tiles, lp_tiles_deal(&l->tiles, p->o.chip, most, 1), 1);
    return LP_OK;
}

static LpStatus sweep_update(Live *l, const LpTiles *always, bool *worse)
{
    LpIpuPlan *p = l->p;
    const LpGraph *u = p->step->update;
    int64_t before = l->fullest;
    LpSpread *s = lp_ipu_scratch(p, u->n_value, sizeof *s);
    uint32_t *last = lp_ipu_scratch(p, u->n_value, sizeof *last);
    LP_TRY(p->err->code);
    for (LpNodeId n = 0; n < u->n_node; n++)
        for (uint32_t i = 0; i < u->node[n].n_in; i++)
            if (lp_is_value(u->node[n].in[i]))
                last[u->node[n].in[i]] = n;
    for (size_t i = 0; i < p->step->n_var; i++)
        if (p->step->var[i].update_out != LP_NOVAL)
            last[p->step->var[i].update_out] = 0; /* in place */
    for (LpNodeId n = 0; n < u->n_node; n++) {
        const LpGraphNode *d = &u->node[n];
        if (p->update_ipu[n] != l->ipu)
            continue;
        bool view = (d->op->flags & LP_OPF_VIEW) != 0;
        for (uint32_t i = 0; i < d->n_out && !view; i++) {
            const LpType *t = lp_graph_type(u, d->out + i);
            if (last[d->out + i] <= n)
                continue;
            s[d->out + i] = lp_tiles_deal_type(&l->tiles, p->o.chip, t);
            lp_tiles_add(&l->tiles, s[d->out + i], 1);
        }
        consider(l, always, &p->update_cost[n].cost, NULL, l->end,
                 (LpLiveStep){.node = n, .run = -1});
        for (uint32_t i = 0; i < d->n_in; i++)
            if (lp_is_value(d->in[i]) && last[d->in[i]] == n) {
                lp_tiles_add(&l->tiles, s[d->in[i]], -1);
                s[d->in[i]] = (LpSpread){0};
            }
    }
    *worse = l->fullest > before;
    return LP_OK;
}

static void finish(const Live *l, const LpTiles *always, int64_t interleaved,
                   LpIpuMemory *m)
{
    const LpChip *chip = l->p->o.chip;
    m->not_always = l->peak_total;
    m->bytes[LP_MEM_ACTIVATION] = l->activation;
    m->bytes[LP_MEM_TEMPORARY] = l->temporary;
    for (int k = 0; k < LP_TILE_CLASSES; k++) {
        int64_t used = always->b[k] + l->peak[k];
        m->tile[k] = lp_tile_with_gaps(chip, used, interleaved);
        if (always->b[k] > m->tile_always)
            m->tile_always = always->b[k];
        if (used > m->max_tile) {
            m->max_tile = used;
            m->max_tile_gaps = m->tile[k];
            m->max_tile_nr =
                (k * always->n + LP_TILE_CLASSES - 1) / LP_TILE_CLASSES;
        }
    }
}

static LpStatus find_peak(Live *l, const LpTiles *always, LpIpuMemory *m)
{
    LpIpuPlan *p = l->p;
    l->last = lp_ipu_scratch(p, l->g->n_value, sizeof *l->last);
    l->off = lp_ipu_scratch(p, l->g->n_value, sizeof *l->off);
    LP_TRY(p->err->code);
    LP_TRY(collect(l));
    size_t n_step = l->end + (p->step->update ? p->step->update->n_node : 0);
    m->step = lp_ipu_alloc(p, n_step, sizeof *m->step);
    LP_TRY(p->err->code);
    LP_TRY(sweep(l, always));
    if (!p->step->update)
        return LP_OK;
    LP_TRY(update_visitors(l));
    return sweep_update(l, always, &m->in_update);
}

LpStatus lp_ipu_liveness(LpIpuPlan *p, int ipu, const LpTiles *always,
                         int64_t interleaved, LpIpuMemory *m)
{
    Live l = {.p = p, .g = p->step->micro, .ipu = ipu, .m = m};
    l.tiles = (LpTiles){.n = always->n, .next = always->next};
    LpStatus s = find_peak(&l, always, m);
    if (s == LP_OK) {
        finish(&l, always, interleaved, m);
        s = note_spans(&l, m);
    }
    lp_free(l.span);
    return s;
}
