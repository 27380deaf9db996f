/* What a replay moves between IPUs, host and streaming memory, held against the
 * acts of the row that it is in: both move the same bytes. Whoever moves
 * something counts it; inputs that come ahead of the run that reads them and
 * outputs that follow later are counted here, by row. */
#include "runtime/exec/replay_state.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/base/checked.h"

static int64_t *moved(const LpReplay *x, LpActKind kind, int ipu, int to)
{
    size_t n = (size_t)x->p->n_ipus;
    return &x->moved[((size_t)kind * n + (size_t)ipu) * n + (size_t)to];
}

void lp_replay_move(LpReplay *x, LpActKind kind, int ipu, int to, int64_t bytes)
{
    bool host = kind == LP_ACT_HOST_IN || kind == LP_ACT_HOST_OUT;
    if (!host || !x->p->o.synthetic_data)
        *moved(x, kind, ipu, to) += bytes;
}

static bool in_row(const LpRow *row, int run)
{
    for (uint32_t i = 0; i < row->n; i++)
        if (row->act[i].kind == LP_ACT_COMPUTE && row->act[i].run == run)
            return true;
    return false;
}

/* ---- the host ------------------------------------------------------------ */
int *lp_replay_ahead(const LpReplay *x, size_t var)
{
    return &x->ahead[(size_t)x->replica * x->step->n_var + var];
}

/* Does the row move what is `ahead`? One that runs nothing brings the first or
 * takes the last, of a call or of an update; where turns differ the last has no
 * next one, the first none before it. */
static bool moves(const LpReplay *x, const LpRow *row, const LpLoop *loop,
                  int64_t turn, LpAhead ahead, int run, bool out)
{
    if (row->kind == LP_ROW_FILL || row->kind == LP_ROW_FLUSH)
        if (row->n == 0 || row->act[0].kind != LP_ACT_COMPUTE)
            return out == (row->kind == LP_ROW_FLUSH) &&
                   loop->once == (ahead == LP_AHEAD_UPDATE);
    if (!in_row(row, run))
        return false;
    if (ahead == LP_AHEAD_UPDATE || row->order == LP_ORDER_AT_ONCE)
        return true;
    return turn != (out ? 0 : x->p->micro_batches - 1);
}

void lp_replay_host(LpReplay *x, const LpRow *row, const LpLoop *loop,
                    int64_t turn, bool beside)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < x->step->n_var; i++) {
        const LpVariable *v = &x->step->var[i];
        bool out = v->role == LP_VAR_STREAM_OUT;
        LpVal at = out ? v->micro_out : v->micro_in;
        if ((!out && v->role != LP_VAR_STREAM_IN) || at == LP_NOVAL ||
            beside != (p->ahead[i] != LP_AHEAD_NONE))
            continue;
        int run = lp_ipu_pass_making(p, at);
        bool late = out && p->o.output_slices > 0;
        bool now = late ? row->kind == LP_ROW_OUTPUT
                   : p->ahead[i] == LP_AHEAD_NONE
                       ? in_row(row, run)
                       : moves(x, row, loop, turn, p->ahead[i], run, out);
        if (!now)
            continue;
        lp_replay_move(x, out ? LP_ACT_HOST_OUT : LP_ACT_HOST_IN,
                       p->pass[run].ipu, 0, lp_type_bytes(&v->type));
        *lp_replay_ahead(x, i) += !out;
        if (!late && p->ahead[i] != LP_AHEAD_NONE && !p->o.synthetic_data)
            x->ipu[p->pass[run].ipu].io += lp_type_bytes(&v->type);
    }
}

/* ---- a row --------------------------------------------------------------- */
/* The part of a row's cycles in which acts of a kind are. */
static int64_t term(const LpRow *r, const LpAct *a)
{
    switch (a->kind) {
    case LP_ACT_COPY:
        return r->copy_cyc;
    case LP_ACT_COLLECTIVE:
        return r->collective_cyc;
    case LP_ACT_HOST_IN:
    case LP_ACT_HOST_OUT:
        return r->host_cyc;
    default:
        return r->stream_cyc;
    }
}

/* All is done before the row ends, and what an IPU sends after it has computed
 * (but for a sync, which transfers of a row have together). */
static LpStatus check_time(const LpRow *row, const LpAct *a, int64_t turn,
                           LpErr *e)
{
    int64_t from = a->start, to = a->start + a->cycles;
    int64_t terms = row->compute_cyc + row->exchange_cyc + row->sync_cyc +
                    row->copy_cyc + row->host_cyc + row->stream_cyc +
                    row->collective_cyc;
    for (uint32_t i = 0; i < row->n && a->kind == LP_ACT_COPY; i++) {
        const LpAct *c = &row->act[i];
        if (c->kind == LP_ACT_COMPUTE && c->ipu == a->ipu)
            from = lp_max(from, c->start + c->cycles);
    }
    LP_FAIL_IF(to <= from || to > row->total_cyc || row->total_cyc != terms ||
                   (!a->beside && term(row, a) <= 0),
               e, LP_E_INTERNAL,
               "the schedule's %s row, turn %" PRId64 ", has no time for a %s "
               "act of IPU %d: it ends in cycle %" PRId64 " of %" PRId64
               ", the IPU is ready in %" PRId64,
               lp_row_names[row->kind], turn, lp_act_names[a->kind], a->ipu, to,
               row->total_cyc, from);
    return LP_OK;
}

static LpStatus check_bytes(LpReplay *x, const LpRow *row, int64_t turn,
                            const LpAct *of, LpErr *e)
{
    int64_t planned = 0, *here = moved(x, of->kind, of->ipu, of->to);
    if (*here == 0)
        return LP_OK;
    for (uint32_t i = 0; i < row->n; i++) {
        const LpAct *a = &row->act[i];
        if (a->kind == of->kind && a->ipu == of->ipu && a->to == of->to)
            planned += a->bytes;
    }
    char to[24] = "";
    if (of->kind == LP_ACT_COPY)
        snprintf(to, sizeof to, " to IPU %d", of->to);
    return lp_fail(e, LP_E_INTERNAL,
                   "the schedule's %s row, turn %" PRId64 ", has %s acts of "
                   "%" PRId64 " bytes on IPU %d%s, the replay moves %" PRId64,
                   lp_row_names[row->kind], turn, lp_act_names[of->kind],
                   planned, of->ipu, to, planned + *here);
}

LpStatus lp_replay_end_row(LpReplay *x, const LpRow *row, int64_t turn,
                           LpErr *e)
{
    for (int i = 0; i < x->p->n_ipus; i++) {
        LpIpuBytes *u = &x->ipu[i];
        u->io_peak = lp_max(u->io_peak, u->io);
        u->io = 0;
    }
    for (uint32_t i = 0; i < row->n; i++) {
        const LpAct *a = &row->act[i];
        if (a->kind == LP_ACT_COMPUTE || a->kind == LP_ACT_UPDATE)
            continue;
        LP_TRY(check_time(row, a, turn, e));
        *moved(x, a->kind, a->ipu, a->to) -= a->bytes;
    }
    for (int k = 0; k < LP_N_ACTS; k++)
        for (int i = 0; i < x->p->n_ipus; i++)
            for (int to = 0; to < x->p->n_ipus; to++)
                LP_TRY(check_bytes(
                    x, row, turn,
                    &(LpAct){.kind = (LpActKind)k, .ipu = i, .to = to}, e));
    return LP_OK;
}

/* ---- the weight update --------------------------------------------------- */
/* Is the variable, or state of it, kept in shares by the replicas? */
static bool in_shares(const LpReplay *x, size_t var)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        const LpVariable *v = &x->step->var[i];
        bool of = i == var || (v->role == LP_VAR_STATE && v->param == (int)var);
        if (of && lp_ipu_kept(x->p, v) < lp_numel(&v->type))
            return true;
    }
    return false;
}

/* With the replicas of its group: sums of gradients; parameters that each has
 * made a share of and all keep. */
static void exchange(LpReplay *x, size_t i)
{
    const LpStep *s = x->step;
    const LpVariable *v = &s->var[i];
    bool gathers = v->role == LP_VAR_PARAM && in_shares(x, i) &&
                   lp_ipu_kept(x->p, v) == lp_numel(&v->type);
    if (lp_group_size(lp_var_group(s, v), s->replicas) > 1 &&
        (gathers || v->role == LP_VAR_ACCUM))
        lp_replay_move(x, LP_ACT_COLLECTIVE, x->p->var_ipu[i], 0,
                       lp_type_bytes(&v->type));
}

static void count_vars(LpReplay *x)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < x->step->n_var; i++) {
        const LpVariable *v = &x->step->var[i];
        int64_t bytes = lp_ipu_kept_bytes(p, v);
        exchange(x, i);
        if (!lp_ipu_off_chip(p, v))
            continue;
        int t = lp_ipu_transfer(p, LP_TRANSFER_VAR, i, -1, true);
        if (t >= 0 && p->transfer[t].edge == LP_STREAM_ALONE)
            lp_replay_move(x, LP_ACT_LOAD, p->var_ipu[i], 0, bytes);
        if (v->update_out != LP_NOVAL)
            lp_replay_move(x, LP_ACT_STORE, p->var_ipu[i], 0, bytes);
    }
}

/* Sums that other IPUs have of their parts; new values of variables that other
 * IPUs have copies of. */
static void count_renewed(LpReplay *x)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < p->n_partial; i++) {
        int var = p->partial[i].var, from = p->pass[p->partial[i].run].ipu;
        const LpVariable *v = &x->step->var[var];
        if (!lp_ipu_first_partial(p, i))
            continue;
        if (lp_ipu_off_chip(p, v))
            lp_replay_move(x, LP_ACT_LOAD, from, 0, lp_type_bytes(&v->type));
        lp_replay_move(x, LP_ACT_COPY, from, p->var_ipu[var],
                       lp_type_bytes(&v->type));
    }
    for (size_t i = 0; i < p->n_replicated; i++) {
        int var = p->replicated[i].var;
        const LpVariable *v = &x->step->var[var];
        if (v->update_out != LP_NOVAL)
            lp_replay_move(x, LP_ACT_COPY, p->var_ipu[var],
                           p->replicated[i].ipu, lp_ipu_kept_bytes(p, v));
    }
}

typedef struct Home {
    int ipu;
    uint64_t there; /* a bit for each IPU that has it; 0: all do */
} Home;

static Home at_home(int ipu)
{
    return (Home){ipu, UINT64_C(1) << ipu};
}

/* IPU `to` gets a value of the update, unless it has it. */
static void cross(LpReplay *x, Home *h, LpVal v, int to)
{
    if (!lp_is_value(v) || h[v].there == 0 || h[v].there >> to & 1)
        return;
    lp_replay_move(x, LP_ACT_COPY, h[v].ipu, to,
                   lp_type_bytes(lp_graph_type(x->step->update, v)));
    h[v].there |= UINT64_C(1) << to;
}

/* h: by value of the update. */
static void count_values(LpReplay *x, Home *h)
{
    const LpIpuPlan *p = x->p;
    const LpGraph *u = x->step->update;
    for (size_t i = 0; i < x->step->n_var; i++) {
        const LpVariable *v = &x->step->var[i];
        if (v->update_in != LP_NOVAL && v->role != LP_VAR_HYPER)
            h[v->update_in] = at_home(p->var_ipu[i]);
    }
    for (LpNodeId n = 0; n < u->n_node; n++) {
        const LpGraphNode *d = &u->node[n];
        for (uint32_t i = 0; i < d->n_in; i++)
            cross(x, h, d->in[i], p->update_ipu[n]);
        for (uint32_t i = 0; i < d->n_out; i++)
            h[d->out + i] = at_home(p->update_ipu[n]);
    }
    for (size_t i = 0; i < x->step->n_var; i++)
        cross(x, h, x->step->var[i].update_out, p->var_ipu[i]);
}

LpStatus lp_replay_end_update(LpReplay *x, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    Home *h = lp_calloc(x->step->update->n_value + 1, sizeof *h);
    LP_FAIL_IF(!h, e, LP_E_MEMORY, "out of memory");
    count_vars(x);
    count_renewed(x);
    count_values(x, h);
    lp_free(h);
    for (size_t i = 0; i < p->n_row; i++)
        if (p->row[i].kind == LP_ROW_UPDATE)
            return lp_replay_end_row(x, &p->row[i], 0, e);
    return lp_fail(e, LP_E_INTERNAL,
                   "the schedule has no row for the weight update");
}
