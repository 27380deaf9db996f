/* The figures of a pipeline's rows, without what each IPU does in them: a slot
 * that fills has the runs of the one before and a few more, one that empties
 * those of the one after, so that all rows cost as much as one. Acts are made
 * when somebody asks for them (lp_ipu_expand), by schedule.c, which must find
 * the same figures.
 *
 * It holds where runs move nothing beside: no streaming memory, no shares that
 * are gathered, no inputs or outputs on I/O tiles. */
#include <stdlib.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/passes/ipu/strategy.h"
#include "src/passes/ipu/traffic.h"

/* What is sent from IPU to IPU. */
typedef struct Link {
    int from, to;
    int64_t bytes; /* of the slot */
} Link;

typedef struct Sent {
    size_t link;
    int64_t bytes;
} Sent;

typedef struct Slots {
    LpIpuPlan *p;
    LpTraffic *traffic; /* by run */
    Link *link;
    size_t n_link;
    Sent *sent; /* in the order of the runs */
    size_t *first_sent;
    int *first, *run; /* runs by offset */
    int depth;
    /* of the slot */
    LpCost *cyc;       /* by IPU */
    int64_t *in, *out; /* likewise, of the host */
    LpRow row;
    int worst; /* IPU, -1 */
    int64_t host_in, host_out, host_sync;
} Slots;

static int by_ipus(const void *a, const void *b)
{
    const Link *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static bool goes(const LpIpuCopy *m)
{
    return m->from_ipu != m->to_ipu && !m->off_chip;
}

static void find_links(Slots *s)
{
    const LpIpuPlan *p = s->p;
    size_t n = 0;
    for (size_t i = 0; i < p->n_copy; i++)
        if (goes(&p->copy[i]))
            s->link[n++] = (Link){p->copy[i].from_ipu, p->copy[i].to_ipu, 0};
    qsort(s->link, n, sizeof *s->link, by_ipus);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || by_ipus(&s->link[i], &s->link[s->n_link - 1]) != 0)
            s->link[s->n_link++] = s->link[i];
}

static void find_sent(Slots *s)
{
    const LpIpuPlan *p = s->p;
    size_t *next = s->first_sent + 1;
    for (size_t i = 0; i < p->n_copy; i++)
        next[p->copy[i].from + 1] += goes(&p->copy[i]);
    for (int r = 0; r < p->n_pass; r++)
        next[r + 1] += next[r];
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        if (!goes(m))
            continue;
        const Link key = {m->from_ipu, m->to_ipu, 0},
                   *x = bsearch(&key, s->link, s->n_link, sizeof key, by_ipus);
        s->sent[next[m->from]++] =
            (Sent){(size_t)(x - s->link),
                   lp_type_bytes(lp_graph_type(p->step->micro, m->v))};
    }
}

static LpStatus find_runs(Slots *s)
{
    const LpIpuPlan *p = s->p;
    for (int r = 0; r < p->n_pass; r++)
        s->depth = (int)lp_max(s->depth, p->pass[r].offset + 1);
    s->first = lp_ipu_scratch(s->p, (size_t)s->depth + 2, sizeof *s->first);
    s->run = lp_ipu_scratch(s->p, (size_t)p->n_pass, sizeof *s->run);
    LP_TRY(p->err->code);
    int *next = s->first + 1;
    for (int r = 0; r < p->n_pass; r++)
        next[p->pass[r].offset + 1]++;
    for (int i = 0; i < s->depth; i++)
        next[i + 1] += next[i];
    for (int r = 0; r < p->n_pass; r++)
        s->run[next[p->pass[r].offset]++] = r;
    return LP_OK;
}

/* ---- a slot -------------------------------------------------------------- */
static void clear(Slots *s)
{
    size_t ipus = (size_t)s->p->n_ipus;
    memset(s->cyc, 0, ipus * sizeof *s->cyc);
    memset(s->in, 0, ipus * sizeof *s->in);
    memset(s->out, 0, ipus * sizeof *s->out);
    for (size_t i = 0; i < s->n_link; i++)
        s->link[i].bytes = 0;
    s->row = (LpRow){.order = LP_ORDER_AT_ONCE, .bare = true};
    s->worst = -1;
    s->host_in = s->host_out = s->host_sync = 0;
}

static void add_work(Slots *s, const LpStagePass *r)
{
    LpCost *c = &s->cyc[r->ipu];
    c->compute_cyc += r->compute_cyc;
    c->exchange_cyc += r->exchange_cyc;
    c->sync_cyc += r->sync_cyc;
    s->row.busy_cyc += lp_pass_cyc(r);
    s->row.useful_cyc += lp_pass_cyc(r) - r->recompute_cyc;
    int64_t most = s->worst < 0 ? -1 : lp_cost_cyc(&s->cyc[s->worst]);
    if (lp_cost_cyc(c) > most || (lp_cost_cyc(c) == most && r->ipu < s->worst))
        s->worst = r->ipu;
}

/* All links work at once; a copy of more takes no less. */
static void add_copies(Slots *s, int run)
{
    const LpIpuPlan *p = s->p;
    for (size_t k = s->first_sent[run]; k < s->first_sent[run + 1]; k++) {
        Link *x = &s->link[s->sent[k].link];
        x->bytes += s->sent[k].bytes;
        if (k + 1 < s->first_sent[run + 1] &&
            s->sent[k + 1].link == s->sent[k].link)
            continue;
        LpCostCtx ctx = lp_ipu_ctx(p, x->from);
        LpCost c =
            lp_cost_ipu_copy(&ctx, p->o.system, x->from, x->to, x->bytes);
        s->row.copy_cyc = lp_max(s->row.copy_cyc, c.exchange_cyc);
        if (c.sync_cyc > 0)
            s->row.sync_cyc = lp_chip_global_sync_cyc(p->o.chip, p->n_ipus);
    }
}

/* IPUs of a machine share its link. */
static void add_host(Slots *s, int64_t *all, LpActKind kind, int ipu,
                     int64_t bytes, int64_t *slowest)
{
    const LpIpuPlan *p = s->p;
    int machine = p->o.system->ipus_machine, first = ipu / machine * machine;
    all[ipu] += bytes;
    for (int i = first; bytes && i < first + machine && i < p->n_ipus; i++)
        if (all[i] > 0) {
            LpCost c = lp_row_transfer_cost(p, kind, all, i);
            *slowest = lp_max(*slowest, c.exchange_cyc);
            s->host_sync = lp_max(s->host_sync, c.sync_cyc);
        }
}

static void add_offset(Slots *s, int offset)
{
    const LpIpuPlan *p = s->p;
    for (int k = s->first[offset]; k < s->first[offset + 1]; k++) {
        int run = s->run[k], ipu = p->pass[run].ipu;
        const LpTraffic *t = &s->traffic[run];
        add_work(s, &p->pass[run]);
        add_copies(s, run);
        add_host(s, s->in, LP_ACT_HOST_IN, ipu, t->host_in[LP_AHEAD_NONE],
                 &s->host_in);
        if (p->o.output_slices <= 0)
            add_host(s, s->out, LP_ACT_HOST_OUT, ipu,
                     t->host_out[LP_AHEAD_NONE], &s->host_out);
    }
}

static LpRow row_of(const Slots *s, LpRowKind kind, int64_t first)
{
    LpRow r = s->row;
    r.kind = kind;
    r.first = first;
    if (s->worst >= 0) {
        const LpCost *c = &s->cyc[s->worst];
        r.compute_cyc = c->compute_cyc;
        r.exchange_cyc = c->exchange_cyc;
        r.work_cyc = lp_cost_cyc(c);
        r.sync_cyc += c->sync_cyc;
    }
    r.host_cyc = s->host_in + s->host_out;
    r.sync_cyc += s->host_sync;
    r.total_cyc =
        r.compute_cyc + r.exchange_cyc + r.sync_cyc + r.copy_cyc + r.host_cyc;
    return r;
}

/* ---- all of them --------------------------------------------------------- */
static bool moves_beside(const Slots *s)
{
    const LpIpuPlan *p = s->p;
    bool any = false;
    for (size_t i = 0; i < p->n_transfer && !any; i++)
        any = p->transfer[i].run >= 0;
    for (size_t i = 0; i < p->step->n_var && !any; i++) {
        const LpVariable *v = &p->step->var[i];
        any = lp_ipu_kept(p, v) < lp_numel(&v->type);
    }
    for (int r = 0; r < p->n_pass && !any; r++)
        for (int k = LP_AHEAD_NONE + 1; k < LP_N_AHEAD; k++)
            any = any || s->traffic[r].host_in[k] || s->traffic[r].host_out[k];
    return any;
}

static LpStatus prepare(Slots *s)
{
    LpIpuPlan *p = s->p;
    size_t runs = (size_t)p->n_pass, ipus = (size_t)p->n_ipus;
    s->traffic = lp_ipu_scratch(p, runs, sizeof *s->traffic);
    s->link = lp_ipu_scratch(p, p->n_copy, sizeof *s->link);
    s->sent = lp_ipu_scratch(p, p->n_copy, sizeof *s->sent);
    s->first_sent = lp_ipu_scratch(p, runs + 2, sizeof *s->first_sent);
    s->cyc = lp_ipu_scratch(p, ipus, sizeof *s->cyc);
    s->in = lp_ipu_scratch(p, ipus, sizeof *s->in);
    s->out = lp_ipu_scratch(p, ipus, sizeof *s->out);
    LP_TRY(p->err->code);
    return lp_ipu_traffic(p, s->traffic);
}

/* One that works is the last that fills; those that empty from the end. */
static LpStatus make_rows(Slots *s)
{
    LpIpuPlan *p = s->p;
    int64_t m = p->micro_batches, fills = s->depth - 1;
    size_t first = p->n_row;
    clear(s);
    for (int64_t t = 0; t <= fills; t++) {
        add_offset(s, (int)t);
        LpRow r = row_of(s, t < fills ? LP_ROW_FILL : LP_ROW_STEADY, t);
        LP_IPU_ADD(p, row, p->err, r);
    }
    for (int64_t t = 0; t < fills; t++)
        LP_IPU_ADD(p, row, p->err, (LpRow){0});
    clear(s);
    for (int64_t t = fills; t > 0; t--) {
        add_offset(s, (int)t);
        p->row[first + (size_t)(fills + t)] =
            row_of(s, LP_ROW_FLUSH, m + t - 1);
    }
    return LP_OK;
}

static LpStatus add_loops(LpIpuPlan *p, size_t first)
{
    int64_t ends = (int64_t)(p->n_row - first) - 1;
    for (size_t i = first; i < p->n_row; i++) {
        bool works = p->row[i].kind == LP_ROW_STEADY;
        LpLoop loop = {.first_row = (uint32_t)i,
                       .n_row = 1,
                       .count = works ? p->micro_batches - ends / 2 : 1,
                       .step = 1};
        LP_IPU_ADD(p, loop, p->err, loop);
    }
    return LP_OK;
}

LpStatus lp_ipu_slots(LpIpuPlan *p, bool *made)
{
    Slots s = {.p = p};
    LP_TRY(prepare(&s));
    LP_TRY(find_runs(&s));
    *made = !p->whole && p->micro_batches >= s.depth && !moves_beside(&s);
    if (!*made)
        return LP_OK;
    find_links(&s);
    find_sent(&s);
    p->bare = true;
    size_t first = p->n_row;
    LP_TRY(make_rows(&s));
    return add_loops(p, first);
}

/* ---- with acts ----------------------------------------------------------- */
static bool same_figures(const LpRow *a, const LpRow *b)
{
    return a->kind == b->kind && a->first == b->first &&
           a->compute_cyc == b->compute_cyc &&
           a->exchange_cyc == b->exchange_cyc && a->sync_cyc == b->sync_cyc &&
           a->copy_cyc == b->copy_cyc && a->host_cyc == b->host_cyc &&
           a->stream_cyc == b->stream_cyc &&
           a->collective_cyc == b->collective_cyc &&
           a->work_cyc == b->work_cyc && a->busy_cyc == b->busy_cyc &&
           a->useful_cyc == b->useful_cyc && a->total_cyc == b->total_cyc;
}

static LpStatus check_rows(const LpIpuPlan *p, const LpIpuPlan *whole, LpErr *e)
{
    for (size_t i = 0; i < whole->n_row; i++)
        LP_FAIL_IF(i >= p->n_row || !same_figures(&p->row[i], &whole->row[i]),
                   e, LP_E_INTERNAL,
                   "row %zu of the schedule, %s, has other figures with its "
                   "acts than without them",
                   i, lp_row_names[whole->row[i].kind]);
    return LP_OK;
}

LpStatus lp_ipu_expand(LpIpuPlan *p, LpErr *e)
{
    LpIpuPlan whole = *p;
    if (!p->bare)
        return LP_OK;
    whole.row = NULL;
    whole.loop = NULL;
    whole.n_row = whole.cap_row = whole.n_loop = whole.cap_loop = 0;
    whole.err = e;
    whole.bare = false;
    whole.whole = true;
    LpStatus st = lp_ipu_schedule(&whole);
    if (st == LP_OK)
        st = check_rows(p, &whole, e);
    lp_arena_fini(&whole.scratch);
    p->mem = whole.mem;
    if (st == LP_OK) {
        LpRow *bare = p->row;
        p->row = whole.row;
        p->cap_row = whole.cap_row;
        whole.row = bare;
        p->bare = false;
    }
    lp_free(whole.row);
    lp_free(whole.loop);
    return st;
}
