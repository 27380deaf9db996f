/* What an IPU holds for some of the time, and its peak. One period of the loop
 * is enough: in the steady state an IPU passes through all its runs, while fill
 * and flush leave some out. Ranges become spans on the line of the IPU's
 * entries; a stash of one micro-batch lives from the forward run through the
 * backward run. What comes from another IPU is there when its sender has done:
 * from the next run here on, or, where rows are of several micro-batches, from
 * the end of the period before; there it is sent as well. Then the update. */
#include "src/passes/ipu/strategy.h"
#include "src/passes/ipu/tiles.h"

#include "src/base/checked.h"

typedef struct Span {
    LpVal v; /* LP_NOVAL: a parameter from elsewhere, see var */
    int var;
    uint32_t from, to;
    LpSpread s;
    size_t next_from, next_to; /* +1, spans that start, end there */
    size_t block;              /* the first span of its memory */
    bool ahead;                /* comes between two periods */
} Span;

typedef struct Live {
    LpIpuPlan *p;
    const LpGraph *g;
    int ipu;
    LpTiles tiles;
    Span *span;
    size_t n_span, cap_span;
    size_t *last;   /* by value: its last span + 1 */
    bool *off;      /* by value: its stash is off chip */
    uint32_t *base; /* by run: its first entry */
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
    size_t block = l->n_span;
    LP_IPU_ADD(l, span, l->p->err,
               (Span){.v = v,
                      .var = var,
                      .from = from,
                      .to = to,
                      .s = s,
                      .block = block});
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

/* The first run of this IPU after another. */
static int next_here(const Live *l, int run)
{
    do
        run++;
    while (l->p->pass[run].ipu != l->ipu);
    return run;
}

/* When is the value there that comes from another run? */
static uint32_t arrival(const Live *l, int run, LpVal v)
{
    const LpIpuPlan *p = l->p;
    if (p->strategy->at_once)
        return 0;
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        if (m->v == v && m->to == run && !m->off_chip)
            return l->base[next_here(l, m->from)] - (m->from_ipu == l->ipu);
    }
    return l->base[run];
}

/* Does the forward run leave it for its backward run, on the chip? */
static bool is_left(const Live *l, const LpStagePass *r, LpVal v)
{
    const LpIpuPlan *p = l->p;
    for (size_t i = 0; i < p->n_stash && !r->backward; i++)
        if (p->stash[i].v == v && p->stash[i].stage == r->stage)
            return p->stash[i].depth == 1 && !p->stash[i].off_chip;
    return false;
}

static LpStatus spans_of(Live *l, int run)
{
    const LpStagePass *r = &l->p->pass[run];
    uint32_t base = l->base[run], end = base + r->n;
    for (uint32_t i = 0; i < r->n_range; i++) {
        LpLiveRange *h = &r->range[i];
        uint32_t to = base + h->to, from = base + h->from;
        if (h->alias && !is_left(l, r, h->v))
            continue;
        if (h->early && h->to > h->from)
            to--;
        if (h->alias) {
            LP_TRY(add_span(l, h->v, -1, end, end));
        } else if (continues(l, r, h)) {
            Span *s = &l->span[l->last[h->v] - 1];
            s->to = to > s->to ? to : s->to;
        } else {
            bool comes = h->kind == LP_RANGE_COPY;
            LP_TRY(add_span(l, h->v, -1, comes ? arrival(l, run, h->v) : from,
                            to));
            l->span[l->n_span - 1].ahead = comes && l->p->strategy->at_once;
        }
        h->block = (uint32_t)l->last[h->v];
    }
    return LP_OK;
}

/* A parameter that its forward run has brought stays in the turning row. */
static LpStatus visit(Live *l, int run, int var)
{
    const LpIpuPlan *p = l->p;
    uint32_t from = l->base[run], to = from + p->pass[run].n;
    uint32_t forward = l->base[lp_pass_of(p, p->pass[run].stage, false)];
    bool held = lp_ipu_holds(p, (size_t)var, run) && lp_ipu_turns(p, run);
    for (size_t i = 0; i < l->n_span && held; i++) {
        Span *s = &l->span[i];
        if (!s->v && s->var == var && s->from == forward) {
            s->to = to;
            return LP_OK;
        }
    }
    return add_span(l, LP_NOVAL, var, from, to);
}

/* Parameters that are loaded or gathered for this run, and sums in streaming
 * memory to which it adds. */
static LpStatus visitors(Live *l, int run)
{
    const LpIpuPlan *p = l->p;
    const LpStagePass *r = &p->pass[run];
    for (uint32_t i = 0; i < r->n_read; i++) {
        int var = p->var_of[r->read[i]];
        if (var < 0)
            continue;
        const LpVariable *x = &p->step->var[var];
        if (lp_ipu_off_chip(p, x) || lp_ipu_kept(p, x) < lp_numel(&x->type))
            LP_TRY(visit(l, run, var));
    }
    for (size_t i = 0; i < p->n_partial; i++) {
        const LpVariable *x = &p->step->var[p->partial[i].var];
        bool first = i == 0 || p->partial[i - 1].var != p->partial[i].var;
        bool own = first && lp_ipu_pass_making(p, x->micro_out) == run;
        if (lp_ipu_off_chip(p, x) && (p->partial[i].run == run || own))
            LP_TRY(visit(l, run, p->partial[i].var));
    }
    return LP_OK;
}

static LpLiveRange *range_of(const LpStagePass *r, LpVal v)
{
    for (uint32_t i = 0; i < r->n_range; i++)
        if (r->range[i].v == v)
            return &r->range[i];
    return NULL;
}

/* The span of what a run sends: of the value, or of what it is a view of; NULL:
 * that is always there. */
static Span *span_of_sent(Live *l, int run, LpVal v)
{
    const LpStagePass *r = &l->p->pass[run];
    const LpLiveRange *h = range_of(r, v);
    while (h && h->alias) {
        const LpGraphNode *d = lp_graph_maker(l->g, v);
        if (h->kind != LP_RANGE_MADE || !lp_ipu_is_view(d))
            return NULL;
        v = d->in[0];
        h = range_of(r, v);
    }
    if (h)
        return &l->span[h->block - 1];
    for (size_t i = 0; i < l->n_span; i++) /* a parameter that has come */
        if (!l->span[i].v && l->span[i].var == l->p->var_of[v] &&
            l->span[i].from == l->base[run])
            return &l->span[i];
    return NULL;
}

/* What is sent and what comes are there at the end of a period. */
static LpStatus between_periods(Live *l)
{
    const LpIpuPlan *p = l->p;
    for (size_t i = 0; i < p->n_copy; i++)
        if (p->copy[i].from_ipu == l->ipu) {
            Span *s = span_of_sent(l, p->copy[i].from, p->copy[i].v);
            if (s)
                s->to = l->end - 1;
        }
    for (size_t i = 0, n = l->n_span; i < n; i++) {
        Span s = l->span[i];
        if (!s.ahead || s.to == l->end - 1)
            continue;
        s.from = s.to = l->end - 1;
        LP_IPU_ADD(l, span, p->err, s);
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
        l->base[r] = l->end;
        if (p->pass[r].ipu == l->ipu)
            l->end += p->pass[r].n + 1;
    }
    for (int r = 0; r < p->n_pass; r++) {
        if (p->pass[r].ipu != l->ipu)
            continue;
        LP_TRY(spans_of(l, r));
        LP_TRY(visitors(l, r));
    }
    return p->strategy->at_once ? between_periods(l) : LP_OK;
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
    LpLiveSpan b = {.v = s->v,
                    .var = s->var,
                    .from = s->from,
                    .to = s->to,
                    .block = (uint32_t)s->block,
                    .bytes = s->s.all};
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
    l->base = lp_ipu_scratch(p, (size_t)p->n_pass, sizeof *l->base);
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
