/* One call of a replay: runs (replay_run.c) in the order of the schedule's
 * rows, or all nodes in micro-batch order; then the update. */
#include "runtime/exec/replay_state.h"

#include <string.h>

#include "runtime/exec/sum.h"
#include "src/passes/ipu/strategy.h"

/* ---- nodes --------------------------------------------------------------- */
/* A variable that is read where it lives. */
static void *variable_of(const LpReplay *x, LpVal v)
{
    return lp_ipu_is_free(x->p, v) ? lp_replay_here(x, (size_t)x->p->var_of[v])
                                   : NULL;
}

/* Of a micro-batch in order, of the sums or of the update, which have all their
 * values. */
static LpStatus run_node(LpReplay *x, LpNodeKernels *k, LpNodeId id, LpErr *e)
{
    const LpGraphNode *d = &k->g->node[id];
    LpCell **cell = k == &x->micro ? x->here : x->now;
    void *few[LP_MAX_IN + LP_MAX_OUT] = {NULL}, **in = few;
    if (d->n_in > LP_MAX_IN || d->n_out > LP_MAX_OUT)
        in = lp_calloc(d->n_in + d->n_out, sizeof *in);
    void **out = in + d->n_in;
    LpStatus s = in ? LP_OK : lp_no_memory(e);
    for (uint32_t i = 0; i < d->n_in && s == LP_OK; i++) {
        if (!lp_is_value(d->in[i]))
            continue;
        const LpCell *c = cell[d->in[i]];
        in[i] = c ? c->data : variable_of(x, d->in[i]);
        if (!in[i])
            s = lp_replay_dead_read(x, d->in[i], -1, e);
    }
    for (uint32_t i = 0; i < d->n_out && s == LP_OK; i++) {
        LpCell **c = &cell[d->out + i];
        lp_cell_drop(x, c);
        *c = lp_cell_new(x, lp_type_bytes(lp_graph_type(k->g, d->out + i)), e);
        if (*c)
            out[i] = (*c)->data;
        else
            s = LP_E_MEMORY;
    }
    if (s == LP_OK)
        s = lp_node_kernels_run(k, id, in, out, &x->rc, e);
    if (in != few)
        lp_free(in);
    return s;
}

/* ---- micro-batch order --------------------------------------------------- */
static LpStatus read_input(LpReplay *x, LpVal v, LpErr *e)
{
    size_t i = (size_t)x->p->var_of[v];
    const LpVariable *var = &x->step->var[i];
    size_t bytes = (size_t)lp_type_bytes(&var->type);
    lp_cell_drop(x, &x->here[v]);
    x->here[v] = lp_cell_new(x, (int64_t)bytes, e);
    if (!x->here[v])
        return LP_E_MEMORY;
    const char *from = lp_replay_here(x, i);
    if (var->role == LP_VAR_STREAM_IN) {
        from = x->stream[i].in;
        from += (size_t)x->slice * bytes;
    }
    memcpy(x->here[v]->data, from, bytes);
    return LP_OK;
}

static LpStatus write_vars(LpReplay *x, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        LpVal v = x->step->var[i].micro_out;
        if (!lp_is_value(v))
            continue;
        /* a variable that is returned as it is comes from where it lives */
        const void *from = x->here[v] ? x->here[v]->data : variable_of(x, v);
        if (!from)
            return lp_replay_dead_read(x, v, -1, e);
        lp_replay_output(x, i, from);
    }
    return LP_OK;
}

/* ---- the loop ------------------------------------------------------------ */
static void set_micro_batch(LpReplay *x, int64_t loop, int64_t mb)
{
    int64_t at = loop * x->p->micro_batches + mb;
    x->slice = at * x->step->replicas + x->replica;
    x->rc.micro_batch = (uint32_t)(x->start + at);
    x->rc.replica = (uint32_t)x->replica;
}

/* Copies between rows go from the last run to the first: what passes an IPU has
 * left it when the next one comes. */
static LpStatus end_period(LpReplay *x, LpErr *e)
{
    for (int i = 0; i < x->p->n_ipus; i++)
        x->ipu[i].now = (x->turn + 1) * x->ipu[i].line - 1;
    for (int run = x->p->n_pass - 1; run >= 0; run--)
        LP_TRY(lp_replay_deliver(x, run, e));
    for (int i = 0; i < x->p->n_ipus; i++)
        if (x->ipu[i].line > 0)
            LP_TRY(lp_replay_account(x, i, NULL, 0, e));
    return LP_OK;
}

/* A row when it runs. */
typedef struct RowAt {
    const LpLoop *l;
    const LpRow *row; /* NULL: none */
    int64_t turn;
} RowAt;

static LpStatus run_row(LpReplay *x, const RowAt *at, const RowAt *next,
                        int64_t loop, LpErr *e)
{
    bool at_once = x->p->strategy->at_once;
    const LpLoop *l = at->l;
    const LpRow *row = x->row = at->row;
    int64_t turn = at->turn;
    x->turn = turn / lp_ipu_serial(x->p);
    x->n_row++;
    lp_replay_store_late(x);
    lp_replay_host(x, row, l, turn, false);
    for (uint32_t i = 0; i < row->n; i++) {
        const LpAct *a = &row->act[i];
        if (a->kind != LP_ACT_COMPUTE)
            continue;
        set_micro_batch(x, loop, turn - a->offset);
        LP_TRY(lp_replay_run_stage(x, a->run, turn - a->offset, e));
        if (!at_once)
            LP_TRY(lp_replay_deliver(x, a->run, e));
    }
    if (at_once)
        LP_TRY(end_period(x, e));
    lp_replay_host(x, row, l, turn, true);
    if (next->row)
        LP_TRY(lp_replay_load_ahead(x, next->row, next->turn, e));
    LP_TRY(lp_replay_load_states(x, row, turn, e));
    return lp_replay_end_row(x, row, turn, e);
}

/* May the sum of accumulator `var` have what the run contributes? The run where
 * it ends adds its own, others theirs, on that IPU or for the weight update. */
static bool can_gather(const LpReplay *x, int var, int run)
{
    const LpIpuPlan *p = x->p;
    bool adds = run == lp_ipu_pass_making(p, x->step->var[var].micro_out);
    for (size_t i = 0; i < p->n_partial && !adds; i++)
        adds = p->partial[i].var == var && p->partial[i].run == run;
    return adds && lp_replay_has(x, (size_t)var, run, true) &&
           lp_replay_has(x, (size_t)var, run, false);
}

static LpStatus run_sum(LpReplay *x, LpNodeId n, LpErr *e)
{
    const LpGraphNode *d = &x->g->node[n];
    for (uint32_t i = 0; i < d->n_in; i++) {
        LpVal v = d->in[i];
        if (!lp_is_value(v) || !x->part[v])
            continue;
        int run = lp_ipu_pass_making(x->p, v);
        if (!can_gather(x, x->p->sum[n].var, run))
            return lp_replay_dead_read(x, v, run, e);
        if (x->here[v])
            continue; /* another sum has read it */
        LpCell **part =
            &x->kept[(x->part[v] - 1) * x->p->micro_batches + x->mb];
        x->here[v] = *part;
        *part = NULL;
    }
    return run_node(x, &x->micro, n, e);
}

/* The sums over the micro-batches, in the order of the step. */
static LpStatus run_sums(LpReplay *x, int64_t loop, LpErr *e)
{
    for (int64_t mb = 0; mb < x->p->micro_batches && x->n_part > 0; mb++) {
        set_micro_batch(x, loop, mb);
        x->mb = mb;
        for (LpNodeId n = 0; n < x->g->n_node; n++)
            if (x->p->sum[n].var >= 0)
                LP_TRY(run_sum(x, n, e));
        for (size_t i = 0; i < x->step->n_var; i++) {
            LpVal v = x->step->var[i].micro_out;
            if (lp_is_value(v) && lp_ipu_is_sum(x->p, v))
                memcpy(lp_replay_here(x, i), x->here[v]->data,
                       (size_t)x->here[v]->bytes);
        }
        lp_replay_clear_run(x);
    }
    return LP_OK;
}

/* The first row, or the one after *at, of a loop's turns. */
static RowAt row_after(const LpReplay *x, const LpLoop *l, const RowAt *at)
{
    uint32_t r = at->row ? (uint32_t)(at->row - x->p->row) - l->first_row : 0;
    const LpRow *first = &x->p->row[l->first_row];
    int64_t k = at->row && l->step ? (at->turn - at->row->first) / l->step : 0;
    if (at->row && ++r == l->n_row) {
        r = 0;
        k++;
    }
    if (k >= l->count || (at->row && !l->step && r == 0))
        return (RowAt){l, NULL, 0};
    return (RowAt){l, first + r, first[r].first + k * l->step};
}

static LpStatus run_scheduled(LpReplay *x, int64_t loop, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    bool runs = false; /* has begun */
    lp_replay_begin_kept(x);
    for (size_t i = 0; i < p->n_loop; i++) {
        const LpLoop *l = &p->loop[i];
        runs = runs || !l->once;
        if (l->once && loop != (runs ? p->loops - 1 : 0))
            continue;
        RowAt at = row_after(x, l, &(RowAt){0}), next;
        for (; at.row; at = next) {
            RowAt then = next = row_after(x, l, &at);
            if (!next.row && i + 1 < p->n_loop) /* its loads come ahead */
                then = row_after(x, l + 1, &(RowAt){0});
            if (at.row->kind != LP_ROW_UPDATE)
                LP_TRY(run_row(x, &at, &then, loop, e));
        }
    }
    for (size_t i = 0; i < p->n_transfer; i++)
        LP_FAIL_IF(x->late[i], e, LP_E_INTERNAL,
                   "no row stores what the last one left to the next");
    return run_sums(x, loop, e);
}

static LpStatus run_in_order(LpReplay *x, int64_t loop, LpErr *e)
{
    for (int64_t mb = 0; mb < x->p->micro_batches; mb++) {
        set_micro_batch(x, loop, mb);
        for (size_t i = 0; i < x->g->n_input; i++)
            if (x->p->var_of[x->g->input[i]] >= 0 &&
                !lp_ipu_is_free(x->p, x->g->input[i]))
                LP_TRY(read_input(x, x->g->input[i], e));
        for (LpNodeId n = 0; n < x->g->n_node; n++)
            LP_TRY(run_node(x, &x->micro, n, e));
        LP_TRY(write_vars(x, e));
        lp_replay_clear_run(x);
    }
    return LP_OK;
}

/* ---- the update ---------------------------------------------------------- */
/* All that the update reads and writes must come and go. */
static LpStatus check_update(const LpReplay *x, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        const LpVariable *v = &x->step->var[i];
        LP_FAIL_IF(
            (v->update_in != LP_NOVAL && !lp_ipu_in_velocity(x->p, v) &&
             !lp_replay_has(x, i, -1, true)) ||
                (v->update_out != LP_NOVAL && !lp_replay_has(x, i, -1, false)),
            e, LP_E_INTERNAL,
            "the weight update uses variable '%s', which stays in "
            "streaming memory",
            v->name);
    }
    return LP_OK;
}

/* Every member of a group gets the sum over it. */
static void sum_accumulator(LpReplay *x, size_t i)
{
    const LpStep *st = x->step;
    const LpVariable *v = &st->var[i];
    LpGroup g = lp_var_group(st, v);
    int64_t n = st->replicas, step = lp_group_stride(g, n);
    for (int64_t r = 0; r < n; r++)
        x->wide[r] = lp_replay_var(x, i, r);
    for (int64_t k = 0; k < lp_group_count(g, n); k++) {
        void **first = x->wide + lp_group_first(g, n, k);
        lp_sum_buffers(
            v->type.dtype, first, lp_group_size(g, n), step, lp_numel(&v->type),
            &(LpSumRounding){.rc = x->rc, .site = lp_sum_site(st, i)});
        for (int64_t m = 1; m < lp_group_size(g, n); m++)
            memcpy(first[m * step], first[0], (size_t)lp_type_bytes(&v->type));
    }
}

/* The update with the variables of replica r; `to` is where its results go,
 * that replica or, if r is 0, all of them. */
static LpStatus update_replica(LpReplay *x, int64_t r, int64_t to, LpErr *e)
{
    const LpStep *st = x->step;
    const LpGraph *u = st->update;
    for (size_t i = 0; i < st->n_var; i++) {
        const LpVariable *v = &st->var[i];
        if (v->update_in == LP_NOVAL)
            continue;
        LpCell *c = lp_cell_new(x, lp_type_bytes(&v->type), e);
        if (!c)
            return LP_E_MEMORY;
        x->now[v->update_in] = c;
        memcpy(c->data, lp_replay_var(x, i, r), (size_t)c->bytes);
    }
    for (LpNodeId n = 0; n < u->n_node; n++)
        LP_TRY(run_node(x, &x->update, n, e));
    for (size_t i = 0; i < st->n_var; i++) {
        LpVal v = st->var[i].update_out;
        for (int64_t k = r; lp_is_value(v) && k <= to; k++)
            memcpy(lp_replay_var(x, i, k), x->now[v]->data,
                   (size_t)x->now[v]->bytes);
    }
    for (LpVal v = 0; v < u->n_value; v++)
        lp_cell_drop(x, &x->now[v]);
    return LP_OK;
}

/* Outputs that show what the update has made. */
static void show_updated(LpReplay *x, int64_t loop)
{
    const LpStep *st = x->step;
    int64_t last = (loop + 1) * x->p->micro_batches - 1;
    for (size_t i = 0; i < st->n_var; i++) {
        const LpVariable *v = &st->var[i];
        size_t bytes = (size_t)lp_type_bytes(&v->type);
        for (int64_t r = 0; r < st->replicas && lp_var_shows_update(st, v); r++)
            memcpy((char *)x->stream[i].out +
                       (size_t)(last * st->replicas + r) * bytes,
                   lp_replay_var(x, (size_t)v->param, r), bytes);
    }
}

static LpStatus run_update(LpReplay *x, LpReplayOrder order, int64_t loop,
                           LpErr *e)
{
    const LpStep *st = x->step;
    bool grouped = lp_step_grouped(st);
    if (order == LP_REPLAY_SCHEDULE)
        LP_TRY(check_update(x, e));
    x->replica = 0;
    set_micro_batch(x, loop, 0);
    for (size_t i = 0; i < st->n_var; i++)
        if (st->var[i].role == LP_VAR_ACCUM && st->replicas > 1)
            sum_accumulator(x, i);
    for (int64_t r = 0; r < (grouped ? st->replicas : 1); r++) {
        int64_t to = grouped ? r : st->replicas - 1;
        LP_TRY(order == LP_REPLAY_SCHEDULE ? lp_replay_update(x, r, to, e)
                                           : update_replica(x, r, to, e));
    }
    x->replica = 0;
    lp_replay_renew_replicated(x);
    show_updated(x, loop);
    return order == LP_REPLAY_SCHEDULE ? lp_replay_end_update(x, e) : LP_OK;
}

static LpStatus run_loop(LpReplay *x, LpReplayOrder order, int64_t loop,
                         LpErr *e)
{
    const LpStep *s = x->step;
    for (x->replica = 0; x->replica < s->replicas; x->replica++) {
        lp_replay_clear(x); /* nothing of another replica or loop */
        for (size_t i = 0; i < s->n_var; i++)
            if (s->var[i].role == LP_VAR_ACCUM)
                memset(lp_replay_here(x, i), 0,
                       (size_t)lp_type_bytes(&s->var[i].type));
        LP_TRY(order == LP_REPLAY_SCHEDULE ? run_scheduled(x, loop, e)
                                           : run_in_order(x, loop, e));
    }
    return s->update ? run_update(x, order, loop, e) : LP_OK;
}

void lp_replay_set_host(LpReplay *x, const struct LpHostCalls *host)
{
    x->host = host;
}

LpStatus lp_replay_run(LpReplay *x, LpReplayOrder order,
                       const LpReplayStream *stream, uint64_t seed,
                       uint64_t micro_batch, LpErr *e)
{
    LpStatus s = LP_OK;
    x->stream = stream;
    x->rc = (LpRunCtx){.seed = seed, .host = x->host};
    x->start = (int64_t)micro_batch;
    for (int64_t l = 0; l < x->p->loops && s == LP_OK; l++)
        s = run_loop(x, order, l, e);
    if (s == LP_OK && order == LP_REPLAY_SCHEDULE)
        s = lp_replay_check_held(x, e);
    if (s == LP_OK && order == LP_REPLAY_SCHEDULE)
        s = lp_replay_check_peaks(x, e);
    lp_replay_clear(x);
    return s;
}
