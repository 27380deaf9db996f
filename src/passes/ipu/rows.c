/* One row of the schedule while it is made: its acts, and what those that pass
 * a link together cost. */
#include <string.h>

#include "src/passes/ipu/traffic.h"

#include "src/base/checked.h"

LpStatus lp_row_add(LpRowBuilder *b, LpAct act)
{
    LP_IPU_ADD(b, act, b->p->err, act);
    return LP_OK;
}

/* ---- when acts start ------------------------------------------------------
 * A row has parts, one after another: what it needs is brought, it computes, it
 * sends. A row that computes no run has its acts in the order of time, and each
 * change of kind begins a part. Computing is placed by its levels already. */
enum { BRING, COMPUTE, SEND, AWAY };

static int part_of(const LpAct *a)
{
    switch (a->kind) {
    case LP_ACT_COMPUTE:
        return COMPUTE;
    case LP_ACT_COPY:
        return SEND;
    case LP_ACT_HOST_OUT:
    case LP_ACT_STORE:
        return a->beside ? COMPUTE : AWAY;
    default:
        return a->beside ? COMPUTE : a->ahead ? AWAY : BRING;
    }
}

/* An act that starts no earlier than `from`, after those of its part on the
 * same IPU; copies that do not have links of their own follow all, what a row
 * loads beside or ahead, and then gathers, goes at once with what it stores. */
static int64_t place(const LpRow *r, LpAct *a, int64_t from, int64_t *at,
                     int ipus)
{
    bool alone = a->kind == LP_ACT_COPY && r->order != LP_ORDER_AT_ONCE;
    bool comes = a->kind == LP_ACT_LOAD || a->kind == LP_ACT_COLLECTIVE;
    bool both = comes && (a->beside || a->ahead);
    int line = alone ? 0 : a->ipu + (both ? ipus : 0);
    if (a->kind == LP_ACT_COMPUTE)
        a->start += from;
    else if (a->kind == LP_ACT_COPY && !alone)
        a->start = from;
    else
        a->start = from + at[line];
    at[line] += a->kind == LP_ACT_COMPUTE ? 0 : a->cycles;
    return a->start + a->cycles;
}

/* Acts first..end-1 of a part (-1: all of them) begin when those before have
 * ended, at `from`; returns when they have. */
static int64_t place_part(const LpRowBuilder *b, LpRow *r, int part,
                          uint32_t first, uint32_t end, int64_t from)
{
    int64_t *at = memset(b->at, 0, 2 * (size_t)b->p->n_ipus * sizeof *b->at);
    int64_t last = from;
    for (uint32_t i = first; i < end; i++)
        if (part < 0 || part_of(&r->act[i]) == part)
            last = lp_max(last, place(r, &r->act[i], from, at, b->p->n_ipus));
    return last;
}

static void set_starts(const LpRowBuilder *b, LpRow *r)
{
    uint32_t first[AWAY + 1] = {0}, end[AWAY + 1] = {0}, i, k;
    bool runs = false;
    int64_t from = 0;
    for (i = 0; i < r->n; i++) {
        int part = part_of(&r->act[i]);
        first[part] = end[part] ? first[part] : i;
        end[part] = i + 1;
        runs = runs || r->act[i].kind == LP_ACT_COMPUTE;
    }
    for (int part = 0; runs && part <= AWAY; part++)
        from = place_part(b, r, part, first[part], end[part], from);
    for (i = 0; !runs && i < r->n; i = k) {
        for (k = i; k < r->n && r->act[k].kind == r->act[i].kind;)
            k++;
        from = place_part(b, r, -1, i, k, from);
    }
}

LpStatus lp_row_finish(LpRowBuilder *b, LpStatus s)
{
    LpRow *r = b->row;
    r->n = (uint32_t)b->n_act;
    r->act = lp_ipu_keep(b->p, b->act, b->n_act, sizeof *b->act);
    b->n_act = 0;
    r->total_cyc = r->compute_cyc + r->exchange_cyc + r->sync_cyc +
                   r->copy_cyc + r->host_cyc + r->stream_cyc +
                   r->collective_cyc;
    if (!b->at)
        b->at = lp_ipu_scratch(b->p, 2 * (size_t)b->p->n_ipus, sizeof *b->at);
    if (r->act && b->at)
        set_starts(b, r);
    return s == LP_OK ? b->p->err->code : s;
}

void lp_row_fini(LpRowBuilder *b)
{
    lp_free(b->act);
}

LpStatus lp_row_copy(LpRowBuilder *b, int from, int to, int64_t bytes,
                     LpCost *c)
{
    LpCostCtx x = lp_ipu_ctx(b->p, from);
    *c = lp_cost_ipu_copy(&x, b->p->o.system, from, to, bytes);
    return lp_row_add(b, (LpAct){.kind = LP_ACT_COPY,
                                 .run = -1,
                                 .ipu = from,
                                 .to = to,
                                 .bytes = bytes,
                                 .cycles = lp_cost_cyc(c)});
}

bool lp_ipu_grouped_with(const LpIpuPlan *p, size_t i, size_t first)
{
    const LpStep *s = p->step;
    LpGroup a = lp_var_group(s, &s->var[i]),
            b = lp_var_group(s, &s->var[first]);
    int64_t n = p->replicas;
    return lp_group_size(a, n) == lp_group_size(b, n) &&
           lp_group_stride(a, n) == lp_group_stride(b, n);
}

bool lp_ipu_leads_group(const LpIpuPlan *p, size_t i)
{
    size_t first = 0;
    while (!lp_ipu_grouped_with(p, i, first))
        first++;
    return first == i;
}

/* The members of an orthogonal group are `stride` replicas apart: they are as
 * replicas of so many more IPUs. */
LpStatus lp_row_collective(LpRowBuilder *b, LpCollective kind, size_t first,
                           int64_t bytes[][LP_COST_N_TYPES], int64_t *cyc)
{
    LpIpuPlan *p = b->p;
    LpGroup g = lp_var_group(p->step, &p->step->var[first]);
    int members = (int)lp_group_size(g, p->replicas);
    int apart = (int)lp_group_stride(g, p->replicas) * p->n_ipus;
    int64_t worst = 0;
    for (int i = 0; i < p->n_ipus; i++) {
        LpCostCtx x = lp_ipu_ctx(p, i);
        LpAct act = {.kind = LP_ACT_COLLECTIVE, .run = -1, .ipu = i};
        for (int t = 0; t < LP_COST_N_TYPES; t++) {
            if (bytes[i][t] == 0)
                continue;
            LpCost c = lp_cost_collective(&x, p->o.system, kind, (LpCostType)t,
                                          bytes[i][t], members, apart);
            act.cycles += lp_cost_cyc(&c);
            act.bytes += bytes[i][t];
        }
        if (act.cycles > 0)
            LP_TRY(lp_row_add(b, act));
        worst = act.cycles > worst ? act.cycles : worst;
    }
    *cyc += worst;
    return LP_OK;
}

/* Bytes that a machine's link has carried when those of one of its IPUs are
 * through: transfers share it evenly while they last, so others count as far
 * as they are not longer. All replicas of a machine share its link, but for
 * what `copies` of them read once. */
static int64_t carried(const LpIpuPlan *p, int64_t copies, const int64_t *bytes,
                       int ipu)
{
    int64_t machine = p->o.system->ipus_machine, sum = 0;
    int64_t room = machine / p->n_ipus > 1 ? machine / p->n_ipus : 1;
    int64_t first = ipu / machine * machine, end = first + machine;
    for (int64_t i = first; i < end && i < p->n_ipus; i++)
        sum += bytes[i] < bytes[ipu] ? bytes[i] : bytes[ipu];
    return sum * (copies < room ? copies : room);
}

/* A row's transfers wait once for the host: those that are added at first. */
static LpStatus add_transfer(LpRowBuilder *b, LpActKind kind, int ipu,
                             int64_t bytes, const LpCost *c, bool waits,
                             int64_t *slowest, int64_t *sync)
{
    *slowest = lp_max(*slowest, c->exchange_cyc);
    *sync = lp_max(*sync, c->sync_cyc);
    return lp_row_add(
        b, (LpAct){.kind = kind,
                   .run = -1,
                   .ipu = ipu,
                   .bytes = bytes,
                   .cycles = c->exchange_cyc + (waits ? c->sync_cyc : 0)});
}

/* Rows that a group of replicas reads come once. */
LpCost lp_row_transfer_cost(const LpIpuPlan *p, LpActKind kind,
                            const int64_t *bytes, int ipu)
{
    bool shared = kind == LP_ACT_HOST_IN && p->o.input_groups > 0;
    int64_t copies = shared ? p->o.input_groups : p->replicas;
    LpCostCtx x = lp_ipu_ctx(p, ipu);
    return lp_cost_host_io(&x, p->o.system, carried(p, copies, bytes, ipu), 1);
}

LpStatus lp_row_transfer(LpRowBuilder *b, LpActKind kind, const int64_t *bytes,
                         int64_t *cyc, int64_t *sync)
{
    LpIpuPlan *p = b->p;
    int64_t slowest = 0;
    bool waits = *sync == 0;
    for (int i = 0; i < p->n_ipus; i++) {
        if (bytes[i] <= 0)
            continue;
        LpCost c = lp_row_transfer_cost(p, kind, bytes, i);
        LP_TRY(add_transfer(b, kind, i, bytes[i], &c, waits, &slowest, sync));
    }
    *cyc += slowest;
    return LP_OK;
}

/* The way with less is at most half of what passes while both last. */
LpStatus lp_row_stream(LpRowBuilder *b, const int64_t *load,
                       const int64_t *store, int64_t *cyc, int64_t *sync)
{
    LpIpuPlan *p = b->p;
    int64_t slowest = 0;
    bool waits = *sync == 0;
    for (int i = 0; i < p->n_ipus; i++) {
        if ((!load || load[i] <= 0) && (!store || store[i] <= 0))
            continue;
        LpCostCtx x = lp_ipu_ctx(p, i);
        int64_t in = load ? carried(p, p->replicas, load, i) : 0;
        int64_t out = store ? carried(p, p->replicas, store, i) : 0;
        LpCost l = lp_cost_streaming(&x, p->o.system, in, out, 1);
        LpCost st = lp_cost_streaming(&x, p->o.system, out, in, 1);
        if (in > 0)
            LP_TRY(add_transfer(b, LP_ACT_LOAD, i, load[i], &l, waits, &slowest,
                                sync));
        if (out > 0)
            LP_TRY(add_transfer(b, LP_ACT_STORE, i, store[i], &st, waits,
                                &slowest, sync));
    }
    *cyc += slowest;
    return LP_OK;
}
