/* Rows of the loop and what each costs.
 *
 * A pipeline runs in slots. Run r works in slot t on micro-batch t - offset(r),
 * if there is one; with M micro-batches and offsets 0..S-1 there are M + S - 1
 * slots: S - 1 fill, M - S + 1 in the steady state, S - 1 flush. The last
 * forward and the first backward stage share a slot, so S = 2N - 1 in training
 * (PopART, transforms/pipeline; TensorFlow's grouped schedule is the same with
 * these two apart). A slot lasts as long as its slowest IPU, then all copies
 * go at once. Training fills and flushes for every weight update, inference
 * once a call.
 *
 * Otherwise runs follow one another: sharded in one row a micro-batch, phased
 * in a row a phase. Stages of a phase that do not wait for each other run at
 * the same time. */
#include "src/passes/ipu/traffic.h"

typedef struct Schedule {
    LpIpuPlan *p;
    LpTraffic *traffic; /* by run */
    LpRowBuilder b;
    int *level;    /* of a run within its row */
    int64_t *pair; /* bytes from IPU to IPU */
} Schedule;

/* ---- computing ----------------------------------------------------------- */
/* The slowest IPU decides; `runs` are those of one level. */
static void slowest_ipu(const LpIpuPlan *p, LpRow *row, const int *runs, int n,
                        const int *level, int want)
{
    int64_t cyc[LP_MAX_IPUS] = {0};
    int worst = -1;
    for (int i = 0; i < n; i++) {
        const LpRun *r = &p->run[runs[i]];
        if (level && level[runs[i]] != want)
            continue;
        cyc[r->ipu] += lp_run_cyc(r);
        row->busy_cyc += lp_run_cyc(r);
        if (worst < 0 || cyc[r->ipu] > cyc[worst])
            worst = r->ipu;
    }
    for (int i = 0; i < n && worst >= 0; i++) {
        const LpRun *r = &p->run[runs[i]];
        if (r->ipu != worst || (level && level[runs[i]] != want))
            continue;
        row->compute_cyc += r->compute_cyc;
        row->exchange_cyc += r->exchange_cyc;
        row->sync_cyc += r->sync_cyc;
    }
}

/* Levels within a row: after everything it waits for. Without parallel phases
 * each run has its own. */
static int find_levels(Schedule *s, const int *runs, int n)
{
    const LpIpuPlan *p = s->p;
    int most = 0;
    for (int r = 0; r < p->n_run; r++)
        s->level[r] = -1;
    for (int i = 0; i < n; i++)
        s->level[runs[i]] = p->phased ? 0 : i;
    if (!p->phased)
        return n;
    for (int i = 0; i < n; i++) {
        int r = runs[i];
        /* its own forward run in the same row (the turning phase) */
        int fwd = lp_run_of(p, p->run[r].stage, false);
        if (p->run[r].backward && s->level[fwd] >= s->level[r])
            s->level[r] = s->level[fwd] + 1;
        for (size_t m = 0; m < p->n_move; m++) {
            const LpMove *mv = &p->move[m];
            if (mv->to == r && mv->from >= 0 &&
                s->level[mv->from] >= s->level[r])
                s->level[r] = s->level[mv->from] + 1;
        }
        if (s->level[r] + 1 > most)
            most = s->level[r] + 1;
    }
    return most;
}

static LpStatus compute(Schedule *s, const int *runs, int n)
{
    LpIpuPlan *p = s->p;
    for (int i = 0; i < n; i++) {
        const LpRun *r = &p->run[runs[i]];
        LP_TRY(lp_row_add(&s->b, (LpAct){.kind = LP_ACT_COMPUTE,
                                         .run = runs[i],
                                         .ipu = r->ipu,
                                         .offset = r->offset,
                                         .cycles = lp_run_cyc(r)}));
    }
    LpRow *row = s->b.row;
    int levels = p->pipelined ? 0 : find_levels(s, runs, n);
    if (p->pipelined)
        slowest_ipu(p, row, runs, n, NULL, 0);
    for (int l = 0; l < levels; l++)
        slowest_ipu(p, row, runs, n, s->level, l);
    row->work_cyc = row->compute_cyc + row->exchange_cyc + row->sync_cyc;
    return LP_OK;
}

/* ---- between IPUs -------------------------------------------------------- */
static bool listed(const int *runs, int n, int run)
{
    for (int i = 0; i < n; i++)
        if (runs[i] == run)
            return true;
    return false;
}

static bool goes_off_chip(const LpIpuPlan *p, const LpMove *m)
{
    return p->phased && p->o.liveness == LP_OFF_CHIP_AFTER_EACH_PHASE &&
           m->from >= 0 && p->run[m->from].phase != p->run[m->to].phase;
}

/* In a pipeline all links work at once, else one copy follows another. */
static LpStatus copies(Schedule *s, const int *runs, int n)
{
    LpIpuPlan *p = s->p;
    LpRow *row = s->b.row;
    int64_t *pair = s->pair, cyc = 0, sync = 0;
    for (int i = 0; i < LP_MAX_IPUS * LP_MAX_IPUS; i++)
        pair[i] = 0;
    for (size_t i = 0; i < p->n_move; i++) {
        const LpMove *m = &p->move[i];
        if (m->from_ipu != m->to_ipu && !goes_off_chip(p, m) &&
            listed(runs, n, m->from < 0 ? m->to : m->from))
            pair[m->from_ipu * LP_MAX_IPUS + m->to_ipu] +=
                lp_type_bytes(lp_graph_type(p->step->micro, m->v));
    }
    for (int i = 0; i < LP_MAX_IPUS * LP_MAX_IPUS; i++) {
        if (!pair[i])
            continue;
        int from = i / LP_MAX_IPUS, to = i % LP_MAX_IPUS;
        LpCostCtx x = lp_ipu_ctx(p, from);
        LpCost c = lp_cost_ipu_copy(&x, p->o.system, from, to, pair[i]);
        if (!p->pipelined) {
            cyc += c.exchange_cyc;
            sync += c.sync_cyc;
        } else if (c.exchange_cyc > cyc) {
            cyc = c.exchange_cyc;
        }
        LP_TRY(lp_row_add(&s->b, (LpAct){.kind = LP_ACT_COPY,
                                         .run = -1,
                                         .ipu = from,
                                         .to = to,
                                         .bytes = pair[i],
                                         .cycles = lp_cost_cyc(&c)}));
    }
    row->copy_cyc += cyc;
    row->sync_cyc +=
        p->pipelined ? lp_chip_global_sync_cyc(p->o.chip, p->n_ipus) : sync;
    return LP_OK;
}

static LpStatus gathers(Schedule *s, const int *runs, int n)
{
    LpIpuPlan *p = s->p;
    int64_t worst = 0;
    for (int i = 0; i < p->n_ipus; i++) {
        LpCostCtx x = lp_ipu_ctx(p, i);
        int64_t bytes = 0, cyc = 0;
        for (int t = 0; t < LP_COST_N_TYPES; t++) {
            int64_t part = 0;
            for (int k = 0; k < n; k++)
                if (p->run[runs[k]].ipu == i)
                    part += s->traffic[runs[k]].gather[t];
            LpCost c = lp_cost_collective(&x, p->o.system, LP_COLL_ALL_GATHER,
                                          (LpCostType)t, part,
                                          (int)p->step->replicas, p->n_ipus);
            bytes += part;
            cyc += lp_cost_cyc(&c);
        }
        if (bytes > 0)
            LP_TRY(lp_row_add(&s->b, (LpAct){.kind = LP_ACT_COLLECTIVE,
                                             .run = -1,
                                             .ipu = i,
                                             .bytes = bytes,
                                             .cycles = cyc}));
        worst = cyc > worst ? cyc : worst;
    }
    s->b.row->collective_cyc += worst;
    return LP_OK;
}

/* ---- host and streaming memory ------------------------------------------- */
enum { HOST_IN, HOST_OUT, HIDDEN_IN, HIDDEN_OUT, LOAD, STORE, N_WAYS };

static LpStatus transfers(Schedule *s, const int *runs, int n)
{
    LpIpuPlan *p = s->p;
    LpRow *row = s->b.row;
    int64_t bytes[N_WAYS][LP_MAX_IPUS] = {{0}}, cyc[N_WAYS] = {0}, sync = 0;
    static const LpActKind kind[] = {LP_ACT_HOST_IN, LP_ACT_HOST_OUT,
                                     LP_ACT_HOST_IN, LP_ACT_HOST_OUT,
                                     LP_ACT_LOAD,    LP_ACT_STORE};
    for (int i = 0; i < n; i++) {
        const LpRun *r = &p->run[runs[i]];
        const LpTraffic *t = &s->traffic[runs[i]];
        bytes[HOST_IN][r->ipu] += t->host_in;
        bytes[HIDDEN_IN][r->ipu] += t->hidden_in;
        if (p->o.output_slices == 0) {
            bytes[HOST_OUT][r->ipu] += t->host_out;
            bytes[HIDDEN_OUT][r->ipu] += t->hidden_out;
        }
        /* the turning phase still holds the weights of its forward run */
        bool held = r->backward && !p->pipelined &&
                    listed(runs, n, lp_run_of(p, r->stage, false));
        bytes[LOAD][r->ipu] += t->load - (held ? t->weights : 0);
        bytes[STORE][r->ipu] += t->store;
    }
    for (int w = 0; w < N_WAYS; w++)
        LP_TRY(lp_row_transfer(&s->b, kind[w], bytes[w], &cyc[w], &sync));
    int64_t work = row->work_cyc;
    int64_t hidden = cyc[HIDDEN_IN] + cyc[HIDDEN_OUT];
    row->host_cyc += cyc[HOST_IN] + cyc[HOST_OUT];
    row->host_cyc += hidden > work ? hidden - work : 0;
    int64_t stream = cyc[LOAD] + cyc[STORE];
    if (lp_ipu_overlaps(p))
        stream = stream > work ? stream - work : 0;
    row->stream_cyc += stream;
    row->sync_cyc += sync;
    return LP_OK;
}

static LpStatus add_row(Schedule *s, LpRowKind kind, int64_t first,
                        int64_t count, const int *runs, int n)
{
    LpIpuPlan *p = s->p;
    LP_FAIL_IF(!LP_GROW(p->row, p->cap_row, p->n_row), p->err, LP_E_MEMORY,
               "out of memory");
    s->b.row = &p->row[p->n_row++];
    *s->b.row = (LpRow){.kind = kind, .first = first, .count = count};
    LpStatus st = compute(s, runs, n);
    if (st == LP_OK)
        st = gathers(s, runs, n);
    if (st == LP_OK)
        st = copies(s, runs, n);
    if (st == LP_OK)
        st = transfers(s, runs, n);
    return lp_row_finish(&s->b, st);
}

/* ---- orders -------------------------------------------------------------- */
static LpStatus pipeline_rows(Schedule *s, int *runs)
{
    const LpIpuPlan *p = s->p;
    int64_t m = p->micro_batches;
    int depth = p->training ? 2 * p->n_stage - 1 : p->n_stage;
    for (int64_t t = 0; t < m + depth - 1;) {
        int n = 0;
        for (int r = 0; r < p->n_run; r++)
            if (t >= p->run[r].offset && t - p->run[r].offset < m)
                runs[n++] = r;
        bool steady = t >= depth - 1 && t < m;
        int64_t count = steady ? m - depth + 1 : 1;
        LpRowKind kind = steady          ? LP_ROW_STEADY
                         : t < depth - 1 ? LP_ROW_FILL
                                         : LP_ROW_FLUSH;
        LP_TRY(add_row(s, kind, t, count, runs, n));
        t += count;
    }
    return LP_OK;
}

static LpStatus sequential_rows(Schedule *s, int *runs)
{
    const LpIpuPlan *p = s->p;
    bool turn = p->training && !p->o.separate_backward &&
                p->o.liveness == LP_ALWAYS_LIVE;
    for (int r = 0; r < p->n_run;) {
        int n = 0, first = r;
        do
            runs[n++] = r++;
        while (r < p->n_run &&
               (!p->phased ||
                (p->run[r].phase == p->run[first].phase &&
                 (turn || p->run[r].backward == p->run[first].backward))));
        LP_TRY(add_row(s, LP_ROW_PHASE, 0, p->micro_batches, runs, n));
    }
    return LP_OK;
}

/* Inputs need not be batched alike: the rows of a micro-batch are the leading
 * dimension that most inputs have, of several the greatest, so that their
 * order does not matter. */
static int64_t batch_rows(const LpStep *s)
{
    int64_t rows = 1;
    int most = 0;
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        if (v->role != LP_VAR_STREAM_IN || v->type.ndim == 0)
            continue;
        int n = 0;
        for (size_t k = 0; k < s->n_var; k++)
            n += s->var[k].role == LP_VAR_STREAM_IN &&
                 s->var[k].type.ndim > 0 &&
                 s->var[k].type.shape[0] == v->type.shape[0];
        if (n > most || (n == most && v->type.shape[0] > rows)) {
            most = n;
            rows = v->type.shape[0];
        }
    }
    return rows;
}

static void totals(LpIpuPlan *p)
{
    const LpStep *s = p->step;
    int64_t loop = 0, once = 0;
    double busy = 0, wall = 0;
    bool used[LP_MAX_IPUS] = {false};
    int n_used = 0;
    for (size_t i = 0; i < p->n_row; i++) {
        const LpRow *r = &p->row[i];
        *(r->kind == LP_ROW_OUTPUT ? &once : &loop) += r->total_cyc * r->count;
        if (r->kind == LP_ROW_UPDATE || r->kind == LP_ROW_OUTPUT)
            continue;
        busy += (double)(r->busy_cyc * r->count);
        wall += (double)(r->work_cyc * r->count);
    }
    for (int i = 0; i < p->n_stage; i++)
        if (!used[p->stage[i].ipu]) {
            used[p->stage[i].ipu] = true;
            n_used++;
        }
    p->cycles = p->loops * loop + once;
    p->efficiency = wall > 0 ? busy / (wall * n_used) : 0;
    p->samples = batch_rows(s) * p->micro_batches * p->loops *
                 (p->o.input_groups ? p->o.input_groups : s->replicas);
    p->seconds = (double)p->cycles / p->o.chip->clock_hz;
    if (p->cycles > 0)
        p->samples_per_second = (double)p->samples / p->seconds;
}

static LpStatus build(Schedule *s, int *runs)
{
    LpIpuPlan *p = s->p;
    LP_TRY(lp_ipu_traffic(p, s->traffic));
    LP_TRY(p->pipelined ? pipeline_rows(s, runs) : sequential_rows(s, runs));
    bool update = p->step->update != NULL;
    if (update || p->o.output_slices > 0)
        LP_FAIL_IF(!LP_GROW(p->row, p->cap_row, p->n_row + 1), p->err,
                   LP_E_MEMORY, "out of memory");
    if (update)
        LP_TRY(lp_ipu_update_row(p, &p->row[p->n_row++]));
    if (p->o.output_slices > 0)
        LP_TRY(lp_ipu_output_row(p, s->traffic, &p->row[p->n_row++]));
    totals(p);
    return LP_OK;
}

LpStatus lp_ipu_schedule(LpIpuPlan *p)
{
    Schedule s = {.p = p, .b = {.p = p}};
    size_t n = (size_t)p->n_run;
    const LpStep *st = p->step;
    p->loops = st->update ? st->device_iterations : 1;
    p->micro_batches =
        st->gradient_accumulation * (st->update ? 1 : st->device_iterations);
    s.traffic = lp_calloc(n, sizeof *s.traffic);
    s.level = lp_calloc(n, sizeof *s.level);
    s.pair = lp_calloc((size_t)LP_MAX_IPUS * LP_MAX_IPUS, sizeof *s.pair);
    int *runs = lp_calloc(n, sizeof *runs);
    LpStatus status = LP_OK;
    if (!s.traffic || !s.level || !s.pair || !runs)
        status = lp_fail(p->err, LP_E_MEMORY, "out of memory");
    if (status == LP_OK)
        status = build(&s, runs);
    lp_free(s.traffic);
    lp_free(s.level);
    lp_free(s.pair);
    lp_free(runs);
    return status;
}
