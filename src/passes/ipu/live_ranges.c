/* Within each run, from which entry to which each value is there. A value
 * appears when it is made or, if it comes from elsewhere, at the start; it goes
 * after its last reader, or with the end of the run if it is sent, stashed or
 * written to a variable; a gradient that leaves for streaming memory does so
 * when it is made.
 *
 * Memory follows live ranges with three refinements: a view shares the memory
 * of what it looks at and prolongs it; values of a variable share the
 * variable's; a pointwise result takes over the memory of an operand that
 * dies. */
#include "src/passes/ipu/ipu.h"

/* Things by run: those of run r are at[first[r]] .. at[first[r + 1] - 1]. */
typedef struct ByRun {
    size_t *first, *at;
} ByRun;

/* The last range of a value. */
typedef struct Last {
    int run; /* + 1; 0: there is none */
    uint32_t at;
} Last;

typedef struct Ranges {
    LpIpuPlan *p;
    const LpGraph *g;
    LpLiveRange *range; /* of the current run: a value once */
    size_t n_range;
    Last *last;                  /* by value */
    ByRun from, to, stash, made; /* copies; stashes by their forward run;
                                    variables whose new value a run makes */
} Ranges;

static LpLiveRange *find(const Ranges *h, LpVal v, int run)
{
    bool any = lp_is_value(v) && h->last[v].run == run + 1;
    return any ? &h->range[h->last[v].at] : NULL;
}

/* One that is not there. */
static void add(Ranges *h, LpVal v, int run, LpLiveRangeKind k, uint32_t from,
                uint32_t to)
{
    h->last[v] = (Last){run + 1, (uint32_t)h->n_range};
    h->range[h->n_range++] =
        (LpLiveRange){.v = v, .from = from, .to = to, .kind = k};
}

/* What is the same everywhere is always live on this IPU. */
static void read(Ranges *h, LpVal v, int run, uint32_t pos)
{
    LpLiveRange *x = find(h, v, run);
    if (x)
        x->to = pos;
    if (x || !lp_is_value(v) || lp_ipu_is_free(h->p, v))
        return;
    bool stash = h->p->pass[run].backward && !lp_is_backward(h->p, v);
    add(h, v, run, stash ? LP_RANGE_STASH : LP_RANGE_INPUT, 0, pos);
}

/* Backwards, so that a chain of views prolongs its root. */
static void views(Ranges *h, int run)
{
    const LpStagePass *r = &h->p->pass[run];
    for (uint32_t i = r->n; i-- > 0;) {
        const LpGraphNode *d = &h->g->node[r->entry[i].node];
        LpLiveRange *to = lp_ipu_is_view(d) ? find(h, d->out, run) : NULL;
        if (!to)
            continue;
        LpLiveRange *from = d->n_in ? find(h, d->in[0], run) : NULL;
        to->alias = true;
        if (from && from->to < to->to)
            from->to = to->to;
    }
}

/* Does v share the memory of `of`? */
static bool looks_at(const LpGraph *g, LpVal v, LpVal of)
{
    const LpGraphNode *d = lp_graph_maker(g, v);
    while (v != of && d && d->n_in && lp_ipu_is_view(d)) {
        v = d->in[0];
        d = lp_graph_maker(g, v);
    }
    return v == of;
}

/* May d write its result over v, its operand? A view of v has its elements
 * elsewhere. */
static bool overwrites(const LpGraph *g, const LpGraphNode *d, LpVal v)
{
    for (uint32_t k = 0; k < d->n_in; k++)
        if (looks_at(g, d->in[k], v) &&
            (d->in[k] != v || !lp_node_may_overwrite(d, k)))
            return false;
    return true;
}

/* Is the variable's old value gone when `now` is written in its place? */
static bool gone(const Ranges *h, const LpLiveRange *old,
                 const LpLiveRange *now)
{
    if (now->kind != LP_RANGE_MADE || old->to < now->from)
        return true;
    return old->to == now->from &&
           overwrites(h->g, lp_graph_maker(h->g, now->v), old->v);
}

/* Are several values of it there at once? */
static bool stashed(const LpIpuPlan *p, LpVal v)
{
    for (size_t i = 0; i < p->n_stash; i++)
        if (p->stash[i].v == v && p->stash[i].depth > 1)
            return true;
    return false;
}

/* The new value of a variable is written in place; the old one of a carried
 * variable lies there until then, and is a copy if it is read later. */
static void write_in_place(Ranges *h, int run, size_t var)
{
    const LpVariable *v = &h->p->step->var[var];
    if (!lp_is_value(v->micro_out) || v->role == LP_VAR_STREAM_OUT)
        return;
    int making = lp_ipu_pass_making(h->p, v->micro_out);
    LpLiveRange *now = find(h, v->micro_out, run);
    LpLiveRange *old = lp_var_carried(v) ? find(h, v->micro_in, run) : NULL;
    bool one = old && (old->kind == LP_RANGE_INPUT ||
                       (old->kind == LP_RANGE_STASH && !stashed(h->p, old->v)));
    if (run != making) { /* or it makes the value again, for itself */
        if (one && run < making)
            old->alias = true;
        return;
    }
    if (now && now->kind == LP_RANGE_MADE && !lp_ipu_leaves(h->p, v))
        now->alias = true;
    if (one)
        old->alias = !now || gone(h, old, now);
}

/* Of those that the run reads and those that it makes. */
static void in_place(Ranges *h, int run)
{
    for (size_t i = 0; i < h->n_range; i++)
        if (h->p->var_of[h->range[i].v] >= 0)
            write_in_place(h, run, (size_t)h->p->var_of[h->range[i].v]);
    for (size_t i = h->made.first[run]; i < h->made.first[run + 1]; i++)
        write_in_place(h, run, h->made.at[i]);
}

static void take_over(Ranges *h, int run)
{
    const LpStagePass *r = &h->p->pass[run];
    for (uint32_t i = 0; i < r->n; i++) {
        const LpGraphNode *d = &h->g->node[r->entry[i].node];
        const LpLiveRange *out = find(h, d->out, run);
        if (!out || out->alias)
            continue;
        for (uint32_t k = 0; k < d->n_in; k++) {
            LpLiveRange *in = find(h, d->in[k], run);
            if (in && in->to == i && !in->alias &&
                overwrites(h->g, d, d->in[k]) &&
                lp_type_bytes(lp_graph_type(h->g, d->in[k])) ==
                    lp_type_bytes(lp_graph_type(h->g, d->out))) {
                in->early = true;
                break;
            }
        }
    }
}

static void fill(Ranges *h, int run)
{
    const LpStagePass *r = &h->p->pass[run];
    for (size_t i = h->to.first[run + 1]; i-- > h->to.first[run];) {
        LpVal v = h->p->copy[h->to.at[i]].v;
        if (!find(h, v, run))
            add(h, v, run, LP_RANGE_COPY, 0, 0);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        const LpGraphNode *d = &h->g->node[r->entry[i].node];
        for (uint32_t k = 0; k < d->n_in; k++)
            read(h, d->in[k], run, i);
        for (LpVal v = d->out; v < d->out + d->n_out; v++) {
            /* one that has come, and is made again beside others */
            LpLiveRange *x = find(h, v, run);
            if (x)
                x->to = i;
            else
                add(h, v, run, LP_RANGE_MADE, i, i);
        }
    }
}

/* What outlives the run. */
static void leave(Ranges *h, int run)
{
    const LpIpuPlan *p = h->p;
    const LpStagePass *r = &p->pass[run];
    for (size_t i = h->from.first[run + 1]; i-- > h->from.first[run];)
        read(h, p->copy[h->from.at[i]].v, run, r->n);
    for (size_t i = h->stash.first[run]; i < h->stash.first[run + 1]; i++)
        read(h, p->stash[h->stash.at[i]].v, run, r->n);
    for (size_t i = h->made.first[run]; i < h->made.first[run + 1]; i++) {
        const LpVariable *var = &p->step->var[h->made.at[i]];
        LpVal v = var->micro_out;
        if (!lp_ipu_is_free(p, v) && !lp_ipu_is_sum(p, v) &&
            !lp_ipu_leaves(p, var))
            read(h, v, run, r->n);
    }
}

static LpStatus build_run(Ranges *h, int run)
{
    LpStagePass *r = &h->p->pass[run];
    h->n_range = 0;
    fill(h, run);
    leave(h, run);
    views(h, run);
    in_place(h, run);
    take_over(h, run);
    r->range = lp_ipu_keep(h->p, h->range, h->n_range, sizeof *h->range);
    r->n_range = (uint32_t)h->n_range;
    return h->p->err->code;
}

/* ---- by run -------------------------------------------------------------- */
static int copy_from(const LpIpuPlan *p, size_t i)
{
    return p->copy[i].from;
}

static int copy_to(const LpIpuPlan *p, size_t i)
{
    return p->copy[i].to;
}

static int stashing(const LpIpuPlan *p, size_t i)
{
    return lp_pass_of(p, p->stash[i].stage, false);
}

static int making(const LpIpuPlan *p, size_t i)
{
    LpVal v = p->step->var[i].micro_out;
    return lp_is_value(v) ? lp_ipu_pass_making(p, v) : -1;
}

/* Of n things, of which each is of one run, or -1: of none. */
static LpStatus sort_by_run(LpIpuPlan *p, size_t n,
                            int (*run_of)(const LpIpuPlan *, size_t),
                            ByRun *out)
{
    size_t runs = (size_t)p->n_pass;
    size_t *next = lp_ipu_scratch(p, runs + 2, sizeof *next);
    out->at = lp_ipu_scratch(p, n, sizeof *out->at);
    LP_TRY(p->err->code);
    out->first = next++;
    for (size_t i = 0; i < n; i++)
        if (run_of(p, i) >= 0)
            next[run_of(p, i) + 1]++;
    for (size_t r = 0; r < runs; r++)
        next[r + 1] += next[r];
    for (size_t i = 0; i < n; i++)
        if (run_of(p, i) >= 0)
            out->at[next[run_of(p, i)]++] = i;
    return LP_OK;
}

static LpStatus set_up(Ranges *h)
{
    LpIpuPlan *p = h->p;
    size_t nv = h->g->n_value;
    h->range = lp_ipu_scratch(p, nv, sizeof *h->range);
    h->last = lp_ipu_scratch(p, nv, sizeof *h->last);
    LP_TRY(p->err->code);
    LP_TRY(sort_by_run(p, p->n_copy, copy_from, &h->from));
    LP_TRY(sort_by_run(p, p->n_copy, copy_to, &h->to));
    LP_TRY(sort_by_run(p, p->n_stash, stashing, &h->stash));
    return sort_by_run(p, p->step->n_var, making, &h->made);
}

LpStatus lp_ipu_live_ranges(LpIpuPlan *p)
{
    Ranges h = {.p = p, .g = p->step->micro};
    LpStatus s = set_up(&h);
    for (int r = 0; r < p->n_pass && s == LP_OK; r++)
        s = build_run(&h, r);
    return s;
}
