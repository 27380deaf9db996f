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
    int var, for_run;
    uint32_t from, to;
    LpSpread s;
    size_t next_from, next_to; /* +1, spans that start, end there */
    size_t block;              /* the first span of its memory */
    bool ahead;                /* comes between two periods */
    bool update;               /* v is a value of the update */
} Span;

typedef struct Live {
    LpIpuPlan *p;
    const LpGraph *g;
    int ipu;
    LpTiles tiles;
    Span *span;
    size_t n_span, cap_span;
    const LpByIpu *by;
    uint32_t end, all; /* steps of a period; with those of the update */
    LpPeaks *peaks;    /* of what is not always live */
    int64_t peak_total, activation, temporary;
    uint32_t peak_at;
    LpIpuMemory *m;
} Live;

static LpStatus add_span(Live *l, LpVal v, int var, uint32_t from, uint32_t to)
{
    bool update = to >= l->end; /* with shares of variables */
    const LpGraph *g = update ? l->p->step->update : l->g;
    const LpVariable *x = v ? NULL : &l->p->step->var[var];
    const LpType *t = v ? lp_graph_type(g, v) : &x->type;
    int64_t n = x && update ? lp_ipu_kept(l->p, x) : lp_numel(t);
    LpStart at = {LP_START_ANY, 0};
    if (x)
        at = l->p->var_start[var];
    else if (!update)
        at = l->p->val_start[v];
    LpSpread s = lp_tiles_deal(&l->tiles, l->p->o.chip, n,
                               (int64_t)lp_dtype_size(t->dtype), at);
    size_t block = l->n_span;
    LP_IPU_ADD(l, span, l->p->err,
               (Span){.v = v,
                      .var = var,
                      .from = from,
                      .to = to,
                      .s = s,
                      .block = block,
                      .update = update});
    if (v)
        (update ? l->by->update_span : l->by->span)[v] = l->n_span;
    return LP_OK;
}

/* What the stage keeps of v for its backward run; NULL: nothing. */
static const LpStash *stash_of(const Live *l, LpVal v, int stage)
{
    const LpStash *s = l->p->stash;
    size_t i = l->by->stash_of[v];
    while (i && s[i - 1].stage != stage)
        i = l->by->next_stash[i - 1];
    return i ? &s[i - 1] : NULL;
}

/* What brings v to the run; NULL: nothing. */
static const LpIpuCopy *copy_to(const Live *l, LpVal v, int run)
{
    const LpIpuCopy *m = l->p->copy;
    size_t i = l->by->copy_of[v];
    while (i && m[i - 1].to != run)
        i = l->by->next_copy[i - 1];
    return i ? &m[i - 1] : NULL;
}

/* The first step of this IPU's runs from another one on. */
static uint32_t step_from(const Live *l, int run)
{
    const LpNodesOf *runs = &l->by->run;
    size_t first = runs->first[l->ipu], all = runs->first[l->ipu + 1];
    for (size_t end = all; first < end;) {
        size_t half = first + (end - first) / 2;
        if ((int)runs->node[half] < run)
            first = half + 1;
        else
            end = half;
    }
    return first < all ? l->by->base[runs->node[first]] : l->end;
}

/* Has the value left the IPU? A stash is its stage's. What is sent to a run has
 * not if a run had it since the one that sends it. */
static bool has_left(const Live *l, const LpStagePass *r, const LpLiveRange *h)
{
    const LpIpuPlan *p = l->p;
    const LpStash *stash = NULL;
    const LpIpuCopy *m = NULL;
    if (h->kind == LP_RANGE_STASH)
        stash = stash_of(l, h->v, r->stage);
    if (h->kind == LP_RANGE_COPY)
        m = copy_to(l, h->v, (int)(r - p->pass));
    if (m) {
        const Span *s = &l->span[l->by->span[h->v] - 1];
        return m->off_chip || s->to < step_from(l, m->from);
    }
    return stash ? stash->off_chip : l->by->off[h->v];
}

/* Is the value still there from an earlier run of this IPU? */
static bool continues(const Live *l, const LpStagePass *r, const LpLiveRange *h)
{
    const LpIpuPlan *p = l->p;
    return l->by->span[h->v] && h->kind != LP_RANGE_MADE &&
           (!p->strategy->stays || p->strategy->stays(p, r, h)) &&
           !has_left(l, r, h);
}

/* The step in which a transfer brings something for the run: its first, or the
 * last one here before its row. */
static uint32_t first_step(const Live *l, LpTransferOf of, size_t at, int run)
{
    const LpIpuPlan *p = l->p;
    int i = lp_ipu_transfer(p, of, at, run, true), first = run;
    if (i < 0 || !lp_ipu_comes_early(&p->transfer[i]))
        return l->by->base[run];
    for (int r = 0; r < run && first == run; r++)
        if (p->pass[r].row == p->pass[run].row && p->pass[r].ipu == l->ipu)
            first = r;
    return l->by->base[first] - (l->by->base[first] > 0);
}

/* When is the value there that comes from another run? */
static uint32_t arrival(const Live *l, int run, LpVal v)
{
    const LpIpuPlan *p = l->p;
    if (p->strategy->at_once)
        return 0;
    const LpIpuCopy *m = copy_to(l, v, run);
    if (!m)
        return l->by->base[run];
    if (m->off_chip)
        return first_step(l, LP_TRANSFER_COPY, (size_t)(m - p->copy), run);
    return step_from(l, m->from + 1) - (m->from_ipu == l->ipu);
}

/* Does the forward run leave it for its backward run, on the chip? */
static bool is_left(const Live *l, const LpStagePass *r, LpVal v)
{
    const LpStash *s = r->backward ? NULL : stash_of(l, v, r->stage);
    return s && s->depth == 1 && !s->off_chip;
}

/* When is a stash there that comes from streaming memory? */
static uint32_t loaded(const Live *l, int run, LpVal v)
{
    const LpStash *s =
        l->by->off[v] ? stash_of(l, v, l->p->pass[run].stage) : NULL;
    return s ? first_step(l, LP_TRANSFER_STASH, (size_t)(s - l->p->stash), run)
             : l->by->base[run];
}

static LpStatus spans_of(Live *l, int run)
{
    const LpStagePass *r = &l->p->pass[run];
    uint32_t base = l->by->base[run], end = base + r->n;
    bool several = lp_ipu_serial(l->p) > 1;
    for (uint32_t i = 0; i < r->n_range; i++) {
        LpLiveRange *h = &r->range[i];
        uint32_t to = base + h->to, from = base + h->from;
        if (h->alias && (h->kind != LP_RANGE_MADE || !is_left(l, r, h->v)))
            continue; /* a variable's value lies in the variable */
        bool comes = h->kind == LP_RANGE_COPY;
        if (h->kind != LP_RANGE_MADE)
            from = comes ? arrival(l, run, h->v) : loaded(l, run, h->v);
        /* not early, of micro-batches that pass a phase together */
        uint32_t late = several && from < base ? base : from;
        if (h->early && to > late)
            to--;
        if (h->alias) {
            LP_TRY(add_span(l, h->v, -1, end, end));
        } else if (continues(l, r, h)) {
            Span *s = &l->span[l->by->span[h->v] - 1];
            s->to = to > s->to ? to : s->to;
        } else {
            LP_TRY(add_span(l, h->v, -1, from, to));
            l->span[l->n_span - 1].ahead = comes && l->p->strategy->at_once;
        }
        h->block = (uint32_t)l->by->span[h->v];
    }
    return LP_OK;
}

/* A parameter that its forward run has brought stays in the turning row. */
static LpStatus visit(Live *l, int run, int var)
{
    const LpIpuPlan *p = l->p;
    uint32_t from = first_step(l, LP_TRANSFER_VAR, (size_t)var, run);
    uint32_t to = l->by->base[run] + p->pass[run].n;
    int forward = lp_pass_of(p, p->pass[run].stage, false);
    bool keeps = p->strategy->keeps && lp_ipu_off_chip(p, &p->step->var[var]);
    for (size_t i = 0; i < l->n_span && keeps; i++)
        if (l->span[i].for_run && l->span[i].var == var)
            return LP_OK;
    bool held = lp_ipu_holds(p, (size_t)var, run) && lp_ipu_turns(p, run);
    for (size_t i = 0; i < l->n_span && held && !keeps; i++) {
        Span *s = &l->span[i];
        if (s->for_run == forward + 1 && s->var == var) {
            s->to = to;
            return LP_OK;
        }
    }
    LP_TRY(
        add_span(l, LP_NOVAL, var, keeps ? 0 : from, keeps ? l->end - 1 : to));
    l->span[l->n_span - 1].for_run = run + 1;
    return LP_OK;
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
        if (l->span[i].for_run == run + 1 && l->span[i].var == l->p->var_of[v])
            return &l->span[i];
    return NULL;
}

/* What is sent and what comes are there at the end of a period. */
static LpStatus between_periods(Live *l)
{
    const LpIpuPlan *p = l->p;
    const LpNodesOf *of = &l->by->copy;
    for (size_t k = of->first[l->ipu]; k < of->first[l->ipu + 1]; k++) {
        const LpIpuCopy *m = &p->copy[of->node[k]];
        Span *s = m->from_ipu == l->ipu ? span_of_sent(l, m->from, m->v) : NULL;
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

/* The IPU's nodes of the update: by->update.node[*first] .. [end - 1]. */
static size_t updates(const Live *l, size_t *first)
{
    *first = l->p->step->update ? l->by->update.first[l->ipu] : 0;
    return l->p->step->update ? l->by->update.first[l->ipu + 1] : 0;
}

static void find_line(Live *l)
{
    const LpNodesOf *runs = &l->by->run;
    for (size_t k = runs->first[l->ipu]; k < runs->first[l->ipu + 1]; k++) {
        l->by->base[runs->node[k]] = l->end;
        l->end += l->p->pass[runs->node[k]].n + 1;
    }
    size_t first, end = updates(l, &first);
    l->all = l->end + (uint32_t)(end - first);
}

static LpStatus collect(Live *l)
{
    const LpIpuPlan *p = l->p;
    const LpNodesOf *of = &l->by->stash, *runs = &l->by->run;
    for (size_t k = of->first[l->ipu]; k < of->first[l->ipu + 1]; k++) {
        const LpStash *s = &p->stash[of->node[k]];
        l->by->off[s->v] |= s->off_chip;
    }
    for (size_t k = runs->first[l->ipu]; k < runs->first[l->ipu + 1]; k++) {
        LP_TRY(spans_of(l, (int)runs->node[k]));
        LP_TRY(visitors(l, (int)runs->node[k]));
    }
    return p->strategy->at_once ? between_periods(l) : LP_OK;
}

/* ---- the update ---------------------------------------------------------- */
/* New values of variables are written in place as soon as nothing reads the old
 * one any more. */
typedef struct LiveUpdate {
    Live *l;
    const LpGraph *u;
    const LpByIpu *by;
    uint32_t at; /* now */
} LiveUpdate;

/* The last of the IPU's steps until node n. */
static uint32_t step_of(const Live *l, LpNodeId n)
{
    size_t first, end = updates(l, &first), from = first;
    while (from < end) {
        size_t half = from + (end - from) / 2;
        if (l->by->update.node[half] <= n)
            from = half + 1;
        else
            end = half;
    }
    return l->end + (uint32_t)(from > first ? from - first - 1 : 0);
}

/* With its first use or, where all come at once, with the first step; or with
 * the last one before. */
static LpStatus come(LiveUpdate *x, int var)
{
    Live *l = x->l;
    const LpIpuPlan *p = l->p;
    bool phase = lp_ipu_update_is_phase(p);
    bool all = phase && p->o.update_order == LP_UPDATE_BATCH;
    int t =
        phase ? lp_ipu_transfer(p, LP_TRANSFER_VAR, (size_t)var, -1, true) : -1;
    bool early = t >= 0 && lp_ipu_comes_early(&p->transfer[t]) && l->end > 0;
    uint32_t from = early ? l->end - 1 : all ? l->end : x->at;
    if (x->by->came[var]) {
        if (!all)
            l->span[x->by->came[var] - 1].to = x->at;
        return LP_OK;
    }
    LP_TRY(add_span(l, LP_NOVAL, var, from, all ? l->all - 1 : x->at));
    x->by->came[var] = l->n_span;
    return LP_OK;
}

/* The node on `ipu` reads v: it is there from when it was made, or came. */
static LpStatus use(LiveUpdate *x, LpVal v, int ipu)
{
    Live *l = x->l;
    v = x->by->root[v];
    int home = x->by->home[v], var = x->by->var[v];
    if (home < 0 || (home != l->ipu && ipu != l->ipu))
        return LP_OK;
    const LpVariable *of = var < 0 ? NULL : &l->p->step->var[var];
    if (home == l->ipu && of)
        return lp_ipu_off_chip(l->p, of) && !lp_ipu_in_velocity(l->p, of)
                   ? come(x, var)
                   : LP_OK;
    Span *made =
        l->by->update_span[v] ? &l->span[l->by->update_span[v] - 1] : NULL;
    if (made)
        made->to = made->to > x->at ? made->to : x->at;
    else if (home != l->ipu)
        LP_TRY(add_span(l, v, -1, x->at, x->at));
    else if (x->by->out[v] >= 0 && /* it lies in its variable */
             lp_ipu_off_chip(l->p, &l->p->step->var[x->by->out[v]]))
        LP_TRY(come(x, x->by->out[v]));
    return LP_OK;
}

/* A new value that is not written in place waits until that is free. */
static LpStatus make(LiveUpdate *x, LpNodeId n, LpVal v)
{
    Live *l = x->l;
    int var = x->by->out[v];
    bool waits = var >= 0 && x->by->last[var] > n + 1;
    if (var < 0 || waits || l->p->var_ipu[var] != l->ipu)
        return add_span(l, v, -1, x->at,
                        waits ? step_of(l, x->by->last[var] - 1) : x->at);
    return lp_ipu_off_chip(l->p, &l->p->step->var[var]) ? come(x, var) : LP_OK;
}

static LpStatus collect_update(Live *l)
{
    const LpIpuPlan *p = l->p;
    const LpNodesOf *of = &l->by->touched;
    LiveUpdate x = {.l = l, .u = p->step->update, .by = l->by};
    if (l->all == l->end)
        return LP_OK; /* it updates nothing */
    for (size_t k = of->first[l->ipu]; k < of->first[l->ipu + 1]; k++) {
        LpNodeId n = of->node[k];
        const LpGraphNode *d = &x.u->node[n];
        bool mine = p->update_ipu[n] == l->ipu;
        x.at = step_of(l, n);
        for (uint32_t i = 0; i < d->n_in; i++)
            if (lp_is_value(d->in[i]))
                LP_TRY(use(&x, d->in[i], p->update_ipu[n]));
        for (uint32_t i = 0; mine && i < d->n_out && !lp_ipu_is_view(d); i++)
            LP_TRY(make(&x, n, d->out + i));
    }
    return LP_OK;
}

/* Operands that a node has copies of are gone when it writes its results. */
static void consider(Live *l, const LpCost *c, const LpMade *made,
                     LpLiveStep step)
{
    int64_t early = made ? c->early_tile_bytes : 0;
    int64_t total = l->tiles.total + (c ? lp_cost_temp_bytes(c) : 0);
    if (made)
        total -= lp_min(made->total, lp_cost_early_bytes(c));
    step.live = l->tiles.total;
    step.temporary = total - step.live;
    l->m->step[l->m->n_step++] = step;
    if (total > l->peak_total) {
        l->peak_total = total;
        l->activation = l->tiles.total;
        l->temporary = total - l->tiles.total;
    }
    lp_peaks_step(l->peaks, c ? c->temp_tile_bytes : 0, early, made);
}

static void change(Live *l, LpSpread s, int64_t times)
{
    l->tiles.total += times * s.all;
    lp_peaks_add(l->peaks, s, times);
}

/* Memory of what starts at this entry; what its node makes, in *made. */
static void begin(Live *l, size_t first, LpNodeId node, LpMade *made)
{
    if (made) {
        made->n_some = 0;
        made->last.tile = 0;
        made->some.n = l->tiles.n;
        made->whole = made->total = 0;
    }
    for (size_t k = first; k; k = l->span[k - 1].next_from) {
        const Span *s = &l->span[k - 1];
        change(l, s->s, 1);
        if (made && s->v && !s->update && lp_maker(l->g, s->v) == node)
            lp_made_add(made, s->s);
    }
}

static void end(Live *l, size_t first)
{
    for (size_t k = first; k; k = l->span[k - 1].next_to)
        change(l, l->span[k - 1].s, -1);
}

/* Walks the line of entries, then the update's nodes. */
static LpStatus sweep(Live *l, const LpTiles *always)
{
    LpIpuPlan *p = l->p;
    l->peaks = lp_peaks_new(p, always, l->all);
    size_t *from = lp_ipu_scratch(p, l->all, sizeof *from);
    size_t *to = lp_ipu_scratch(p, l->all, sizeof *to);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < l->n_span; i++) {
        l->span[i].next_from = from[l->span[i].from];
        from[l->span[i].from] = i + 1;
        l->span[i].next_to = to[l->span[i].to];
        to[l->span[i].to] = i + 1;
    }
    uint32_t at = 0;
    const LpNodesOf *runs = &l->by->run;
    for (size_t k = runs->first[l->ipu]; k < runs->first[l->ipu + 1]; k++) {
        int r = (int)runs->node[k];
        const LpStagePass *run = &p->pass[r];
        for (uint32_t i = 0; i <= run->n; i++, at++) {
            LpNodeId n = i < run->n ? run->entry[i].node : LP_NO_NODE;
            const LpCost *c = n == LP_NO_NODE ? NULL : p->cost[n].cost;
            LpMade tiles, *made = c && c->early_tile_bytes ? &tiles : NULL;
            begin(l, from[at], n, made);
            consider(l, c, made, (LpLiveStep){.node = n, .run = r});
            end(l, to[at]);
        }
    }
    int64_t before = lp_peaks_fullest(l->peaks, &l->peak_at);
    size_t i, end_update = updates(l, &i);
    for (; i < end_update; i++) {
        LpNodeId n = l->by->update.node[i];
        begin(l, from[at], LP_NO_NODE, NULL);
        consider(l, p->update_cost[n].cost, NULL,
                 (LpLiveStep){.node = n, .run = -1});
        end(l, to[at++]);
    }
    l->m->in_update = lp_peaks_fullest(l->peaks, &l->peak_at) > before;
    return LP_OK;
}

static LpLiveSpan named_span(const Live *l, const Span *s)
{
    LpLiveSpan b = {.v = s->v,
                    .var = s->var,
                    .for_run = s->for_run,
                    .from = s->from,
                    .to = s->to,
                    .block = (uint32_t)s->block,
                    .update = s->update,
                    .bytes = s->s.all};
    const LpGraph *g = s->update ? l->p->step->update : l->g;
    LpNodeId n = lp_maker(g, s->v);
    if (n != LP_NO_NODE) {
        b.name = lp_node_title(&g->node[n]);
        b.scope = lp_origin_of(g, n)->scope;
    } else {
        b.name = s->v ? g->value[s->v].name : l->p->step->var[s->var].name;
    }
    return b;
}

static LpStatus note_spans(const Live *l, LpIpuMemory *m)
{
    m->span = lp_ipu_space(l->p, l->n_span, sizeof *m->span);
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

static void finish(const Live *l, const LpTiles *always, LpTileGaps gaps,
                   LpIpuMemory *m)
{
    const LpChip *chip = l->p->o.chip;
    m->not_always = l->peak_total;
    m->bytes[LP_MEM_ACTIVATION] = l->activation;
    m->bytes[LP_MEM_TEMPORARY] = l->temporary;
    for (int k = 0; k < LP_TILE_CLASSES; k++) {
        LpPeak peak = lp_peaks_of(l->peaks, k);
        int64_t used = always->b[k] + peak.held + peak.temporary;
        m->tile_of[LP_MEM_ACTIVATION].b[k] = peak.held;
        m->tile_of[LP_MEM_TEMPORARY].b[k] = peak.temporary;
        m->tile[k] =
            lp_tile_with_gaps(chip, used, gaps.interleaved, gaps.apart);
        if (always->b[k] > m->tile_always)
            m->tile_always = always->b[k];
        if (used > m->max_tile) {
            m->max_tile = used;
            m->max_tile_gaps = m->tile[k];
            m->max_tile_nr = lp_tiles_first(k, always->n);
        }
    }
}

static LpStatus find_peak(Live *l, const LpTiles *always, LpIpuMemory *m)
{
    LpIpuPlan *p = l->p;
    find_line(l);
    LP_TRY(collect(l));
    LP_TRY(collect_update(l));
    m->step = lp_ipu_space(p, l->all, sizeof *m->step);
    LP_TRY(p->err->code);
    return sweep(l, always);
}

/* For the next IPU. */
static void clear(const Live *l)
{
    for (size_t i = 0; i < l->n_span; i++) {
        const Span *s = &l->span[i];
        if (!s->v)
            l->by->came[s->var] = 0;
        else
            (s->update ? l->by->update_span : l->by->span)[s->v] = 0;
    }
    const LpNodesOf *of = &l->by->stash;
    for (size_t k = of->first[l->ipu]; k < of->first[l->ipu + 1]; k++)
        l->by->off[l->p->stash[of->node[k]].v] = false;
}

LpStatus lp_ipu_liveness(LpIpuPlan *p, int ipu, const LpByIpu *by,
                         const LpTiles *always, LpTileGaps gaps, LpIpuMemory *m)
{
    Live l = {.p = p, .g = p->step->micro, .ipu = ipu, .by = by, .m = m};
    l.tiles = (LpTiles){.n = always->n, .next = always->next};
    LpStatus s = find_peak(&l, always, m);
    if (s == LP_OK) {
        finish(&l, always, gaps, m);
        s = note_spans(&l, m);
    }
    clear(&l);
    lp_free(l.span);
    return s;
}
