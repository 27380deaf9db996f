/* The memory of IPUs in a replay. Every span of the plan has an address, the
 * lowest where nothing lies that is there at the same time, so that a span
 * which is too short gives its bytes to another value. What the plan says one
 * value takes over from another lies where that was. */
#include "runtime/exec/replay_state.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/checked.h"

/* ---- addresses ----------------------------------------------------------- */
typedef struct Layout {
    const LpIpuMemory *m;
    LpPlaced *block;
    uint32_t *root;  /* by span: the first whose address it has */
    uint32_t *order; /* placed spans by address */
    uint32_t n;
} Layout;

static bool meet(const LpLiveSpan *a, const LpLiveSpan *b)
{
    return a->from <= b->to && b->from <= a->to;
}

/* Does a span of root `r` meet span i? */
static bool conflicts(const Layout *l, uint32_t r, uint32_t i)
{
    for (uint32_t k = r; k < l->m->n_span; k++)
        if (l->root[k] == r && meet(&l->m->span[k], &l->m->span[i]))
            return true;
    return false;
}

static void place(Layout *l, uint32_t r)
{
    int64_t at = 0, bytes = (l->m->span[r].bytes + 63) / 64 * 64;
    for (uint32_t k = 0; k < l->n; k++) {
        const LpPlaced *b = &l->block[l->order[k]];
        int64_t end = b->at + (b->bytes + 63) / 64 * 64;
        if (at < end && b->at < at + bytes && conflicts(l, r, l->order[k]))
            at = end;
    }
    for (uint32_t i = r; i < l->m->n_span; i++) {
        if (l->root[i] != r)
            continue;
        uint32_t k = l->n++;
        l->block[i] = (LpPlaced){.at = at,
                                 .bytes = l->m->span[i].bytes,
                                 .start = INT64_MAX,
                                 .end = -1};
        for (; k > 0 && l->block[l->order[k - 1]].at > at; k--)
            l->order[k] = l->order[k - 1];
        l->order[k] = i;
    }
}

/* The result of the entry with which an operand goes takes over its memory,
 * unless other runs need that. */
static void take_over(Layout *l, const LpReplay *x, int run)
{
    const LpStagePass *r = &x->p->pass[run];
    for (uint32_t i = 0; i < r->n_range; i++) {
        const LpLiveRange *h = &r->range[i];
        if (!h->early || h->to >= r->n || h->block == 0)
            continue;
        LpVal v = x->g->node[r->entry[h->to].node].out;
        const LpLiveRange *out = lp_replay_range(x, run, v);
        if (!out || out->block == 0 || out->block == h->block)
            continue;
        const LpLiveSpan *a = &l->m->span[h->block - 1];
        const LpLiveSpan *b = &l->m->span[out->block - 1];
        if (a->to < b->from && a->bytes == b->bytes)
            l->root[out->block - 1] = l->root[h->block - 1];
    }
}

static LpStatus lay_out(LpReplay *x, int ipu, Layout *l, LpErr *e)
{
    LpIpuBytes *u = &x->ipu[ipu];
    int64_t size = 0;
    for (uint32_t i = 0; i < l->m->n_span; i++)
        l->root[i] = l->m->span[i].block;
    for (int run = 0; run < x->p->n_pass; run++)
        if (x->p->pass[run].ipu == ipu)
            take_over(l, x, run);
    for (uint32_t i = 0; i < l->m->n_span; i++)
        while (l->root[i] != l->root[l->root[i]])
            l->root[i] = l->root[l->root[i]];
    for (uint32_t i = 0; i < l->m->n_span; i++)
        if (l->root[i] == i)
            place(l, i);
    for (uint32_t i = 0; i < l->m->n_span; i++)
        size = lp_max(size, l->block[i].at + l->block[i].bytes);
    u->data = lp_alloc_aligned((size_t)size);
    LP_FAIL_IF(!u->data, e, LP_E_MEMORY, "out of memory");
    memset(u->data, 0xff, (size_t)size); /* not a number */
    return LP_OK;
}

LpStatus lp_replay_lay_out(LpReplay *x, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    for (int run = 0; run < p->n_pass; run++) {
        LpIpuBytes *u = &x->ipu[p->pass[run].ipu];
        x->base[run] = u->line;
        u->line += p->pass[run].n + 1;
    }
    for (int i = 0; i < p->n_ipus; i++) {
        uint32_t n = p->memory[i].n_span;
        LpIpuBytes *u = &x->ipu[i];
        u->block = lp_arena_calloc(&x->mem, (n + 1) * sizeof *u->block);
        Layout l = {.m = &p->memory[i], .block = u->block};
        l.root = lp_calloc(2 * n + 1, sizeof *l.root);
        LP_FAIL_IF(!u->block || !l.root, e, LP_E_MEMORY, "out of memory");
        l.order = l.root + n;
        LpStatus s = lay_out(x, i, &l, e);
        lp_free(l.root);
        LP_TRY(s);
    }
    return LP_OK;
}

void lp_replay_forget(LpReplay *x)
{
    for (int i = 0; x->ipu && i < x->p->n_ipus; i++)
        for (uint32_t k = 0; x->ipu[i].block && k < x->p->memory[i].n_span; k++)
            x->ipu[i].block[k].start = INT64_MAX;
}

/* ---- blocks -------------------------------------------------------------- */
static bool is_there(const LpPlaced *b, int64_t now)
{
    return b->start <= now && now <= b->end;
}

char *lp_block_put(LpReplay *x, int ipu, uint32_t block, LpHolds what,
                   int64_t start, int64_t end)
{
    LpIpuBytes *u = &x->ipu[ipu];
    LpPlaced *b = &u->block[block - 1];
    for (uint32_t i = 0; i < x->p->memory[ipu].n_span; i++) {
        LpPlaced *c = &u->block[i];
        if (c != b && c->start < INT64_MAX && u->now <= c->end &&
            c->at < b->at + b->bytes && b->at < c->at + c->bytes)
            c->over = what.v ? what.v : x->step->var[what.var].micro_in;
    }
    b->what = what;
    b->start = start;
    b->end = end;
    b->over = LP_NOVAL;
    return u->data + b->at;
}

char *lp_block_put_now(LpReplay *x, int ipu, uint32_t block, LpHolds what)
{
    const LpIpuBytes *u = &x->ipu[ipu];
    return lp_block_put(x, ipu, block, what, u->now,
                        x->turn * u->line +
                            x->p->memory[ipu].span[block - 1].to);
}

char *lp_block_get(LpReplay *x, int ipu, uint32_t block, LpHolds what,
                   bool taken)
{
    const LpIpuBytes *u = &x->ipu[ipu];
    if (block == 0)
        return NULL;
    const LpPlaced *b = &u->block[block - 1];
    if (b->start <= u->now && b->what.v != what.v)
        x->lost.over = b->what.v;
    if (b->start > u->now || b->what.v != what.v || b->what.var != what.var ||
        b->what.mb != what.mb)
        return NULL;
    x->lost.freed = u->now > b->end + taken;
    x->lost.over = b->over;
    return x->lost.freed || b->over ? NULL : u->data + b->at;
}

/* ---- how much ------------------------------------------------------------ */
LpStatus lp_replay_account(LpReplay *x, int ipu, const LpCost *c, int64_t made,
                           LpErr *e)
{
    LpIpuBytes *u = &x->ipu[ipu];
    const LpIpuMemory *m = &x->p->memory[ipu];
    int64_t step = x->updating ? u->now : u->now % u->line;
    const LpLiveStep *planned = &m->step[step];
    int64_t live = 0, temporary = 0;
    for (uint32_t i = 0; i < m->n_span; i++)
        if (is_there(&u->block[i], u->now))
            live += u->block[i].bytes;
    if (c)
        temporary =
            lp_cost_temp_bytes(c) - lp_min(made, lp_cost_early_bytes(c));
    u->live = lp_max(u->live, live);
    u->peak = lp_max(u->peak, live + temporary);
    LP_FAIL_IF(live > planned->live, e, LP_E_INTERNAL,
               "IPU %d holds %" PRId64 " bytes of values in step %" PRId64
               ", in the report they are %" PRId64,
               ipu, live, step, planned->live);
    return LP_OK;
}

static LpStatus differ(int ipu, const char *what, int64_t got, int64_t want,
                       LpErr *e)
{
    LP_FAIL_IF(got != want, e, LP_E_INTERNAL,
               "IPU %d holds %" PRId64 " bytes of %s, in the report they are "
               "%" PRId64,
               ipu, got, what, want);
    return LP_OK;
}

LpStatus lp_replay_check_peaks(const LpReplay *x, LpErr *e)
{
    for (int i = 0; i < x->p->n_ipus; i++) {
        const LpIpuMemory *m = &x->p->memory[i];
        int64_t most = 0;
        for (uint32_t k = 0; k < m->n_step; k++)
            most = lp_max(most, m->step[k].live + m->step[k].temporary);
        LP_TRY(differ(i, "values at once", x->ipu[i].peak, most, e));
        LP_TRY(differ(i, "values at its peak", most, m->not_always, e));
        LP_TRY(
            differ(i, "transfers on I/O tiles", x->ipu[i].io_peak, m->io, e));
    }
    return LP_OK;
}

/* ---- what is always there ------------------------------------------------ */
static const LpMemKind kind_of[LP_N_VAR_ROLES] = {
    [LP_VAR_PARAM] = LP_MEM_WEIGHT,      [LP_VAR_STATE] = LP_MEM_OPTIMIZER,
    [LP_VAR_ACCUM] = LP_MEM_ACCUMULATOR, [LP_VAR_BUFFER] = LP_MEM_BUFFER,
    [LP_VAR_CONST] = LP_MEM_BUFFER,      [LP_VAR_HYPER] = LP_MEM_BUFFER};

typedef struct Held {
    int64_t bytes[LP_N_MEM], off_chip;
} Held;

static void hold(Held *h, bool off_chip, LpMemKind kind, int64_t bytes)
{
    *(off_chip ? &h->off_chip : &h->bytes[kind]) += bytes;
}

static void hold_vars(const LpReplay *x, Held *h)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < x->step->n_var; i++) {
        const LpVariable *v = &x->step->var[i];
        if (v->role != LP_VAR_STREAM_IN && v->role != LP_VAR_STREAM_OUT &&
            !lp_ipu_in_velocity(p, v))
            hold(&h[p->var_ipu[i]], lp_ipu_off_chip(p, v), kind_of[v->role],
                 lp_ipu_kept_bytes(p, v));
    }
    for (size_t i = 0; i < p->n_replicated; i++) {
        const LpVariable *v = &x->step->var[p->replicated[i].var];
        hold(&h[p->replicated[i].ipu], false, kind_of[v->role],
             lp_ipu_kept_bytes(p, v));
    }
    for (size_t i = 0; i < p->n_partial; i++) {
        const LpVariable *v = &x->step->var[p->partial[i].var];
        if (lp_ipu_first_partial(p, i))
            hold(&h[p->pass[p->partial[i].run].ipu], lp_ipu_off_chip(p, v),
                 LP_MEM_ACCUMULATOR, lp_type_bytes(&v->type));
    }
    for (size_t i = 0; i < p->n_stash; i++) {
        const LpStash *s = &p->stash[i];
        if (s->off_chip || s->depth > 1)
            hold(&h[p->stage[s->stage].ipu], s->off_chip, LP_MEM_STASH,
                 s->depth * lp_type_bytes(lp_graph_type(x->g, s->v)));
    }
}

LpStatus lp_replay_check_held(const LpReplay *x, LpErr *e)
{
    Held *h = lp_calloc((size_t)x->p->n_ipus, sizeof *h);
    LP_FAIL_IF(!h, e, LP_E_MEMORY, "out of memory");
    hold_vars(x, h);
    LpStatus s = LP_OK;
    for (int i = 0; i < x->p->n_ipus && s == LP_OK; i++) {
        const LpIpuMemory *m = &x->p->memory[i];
        if (m->n_step == 0)
            continue; /* it has no work */
        for (int k = 0; k <= LP_MEM_STASH && s == LP_OK; k++)
            s = differ(i, lp_mem_names[k], h[i].bytes[k], m->bytes[k], e);
        if (s == LP_OK)
            s = differ(i, "streaming memory", h[i].off_chip, m->off_chip, e);
    }
    lp_free(h);
    return s;
}
