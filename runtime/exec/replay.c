/* One call of a replay: runs in the order of the schedule's rows, or all nodes
 * in micro-batch order; then the update. Each run takes what came over its
 * links and out of its rings, and drops a value where its live range ends. */
#include "runtime/exec/replay_state.h"

#include <string.h>

#include "runtime/exec/sum.h"

/* ---- what the plan lets a run have --------------------------------------- */
/* Variables of its own IPU, copies that the plan keeps there, and of what lives
 * in streaming memory that which a transfer brings. Run -1 is the weight
 * update. */
static bool copies(const LpReplay *x, LpTransferOf of, size_t at, int run,
                   bool load)
{
    for (size_t i = 0; i < x->p->n_transfer; i++) {
        const LpTransfer *t = &x->p->transfer[i];
        if (t->of == of && t->at == at && t->run == run && t->load == load)
            return true;
    }
    return false;
}

/* The turning row still has what its forward run brought. */
static bool held(const LpReplay *x, size_t i, int run)
{
    return run >= 0 && x->row->order != LP_ORDER_AT_ONCE &&
           lp_ipu_holds(x->p, i, run) &&
           lp_replay_in_row(x->row,
                            lp_pass_of(x->p, x->p->pass[run].stage, false));
}

/* Does the run have variable i (to write it, unless `load`)? */
static bool has(const LpReplay *x, size_t i, int run, bool load)
{
    return !lp_ipu_off_chip(x->p, &x->p->step->var[i]) ||
           copies(x, LP_TRANSFER_VAR, i, run, load) ||
           (load && held(x, i, run));
}

/* Where the run finds a variable that it may only read; NULL: nowhere. */
static void *find(const LpReplay *x, size_t i, int run)
{
    const LpIpuPlan *p = x->p;
    const LpVariable *v = &p->step->var[i];
    int ipu = p->pass[run].ipu;
    if (lp_ipu_off_chip(p, v))
        return has(x, i, run, true) ? lp_replay_here(x, i) : NULL;
    if (p->var_ipu[i] == ipu || v->role == LP_VAR_HYPER)
        return lp_replay_here(x, i);
    for (size_t k = 0; k < p->n_replicated; k++)
        if (p->replicated[k].var == (int)i && p->replicated[k].ipu == ipu)
            return x->replicated[(size_t)x->replica * p->n_replicated + k];
    return NULL;
}

/* ---- nodes --------------------------------------------------------------- */
static LpStatus dead_read(const LpReplay *x, LpVal v, int run, LpErr *e)
{
    LpNodeId n = x->g->value[v].node;
    const LpStagePass *r = &x->p->pass[run < 0 ? 0 : run];
    bool made = n != LP_NO_NODE;
    const char *what = made ? x->g->node[n].op->name : x->g->value[v].name;
    return lp_fail(e, LP_E_INTERNAL,
                   "the schedule reads value %%%u (%s of '%s') in the %s pass "
                   "of stage %d, micro-batch %lld, where it is gone",
                   (unsigned)v, what ? what : "an input",
                   made ? lp_origin_of(x->g, n)->scope : "",
                   r->backward ? "backward" : "forward", r->stage,
                   (long long)(x->rc.micro_batch - x->start));
}

/* A variable that is read where it lives. Run -1: no plan. */
static void *variable_of(const LpReplay *x, LpVal v, int run)
{
    if (!lp_ipu_is_free(x->p, v))
        return NULL;
    size_t var = (size_t)x->p->var_of[v];
    return run < 0 ? lp_replay_here(x, var) : find(x, var, run);
}

/* Of a micro-batch, or of the update, whose values are all there. */
static LpStatus run_node(LpReplay *x, LpNodeKernels *k, LpNodeId id, int run,
                         LpErr *e)
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
        in[i] = c ? c->data : variable_of(x, d->in[i], run);
        if (!in[i])
            s = dead_read(x, d->in[i], run, e);
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

/* ---- what comes in and goes out ------------------------------------------ */
static LpStatus read_input(LpReplay *x, LpVal v, int run, LpErr *e)
{
    size_t i = (size_t)x->p->var_of[v];
    if (run >= 0 && !has(x, i, run, true))
        return dead_read(x, v, run, e);
    const LpVariable *var = &x->step->var[i];
    size_t bytes = (size_t)lp_type_bytes(&var->type);
    lp_cell_drop(x, &x->here[v]);
    x->here[v] = lp_cell_new(x, (int64_t)bytes, e);
    if (!x->here[v])
        return LP_E_MEMORY;
    const char *from = lp_replay_here(x, i);
    if (var->role == LP_VAR_STREAM_IN) {
        if (run >= 0 && (*lp_replay_ahead(x, i))-- <= 0)
            return dead_read(x, v, run, e);
        from = x->stream[i].in;
        from += (size_t)x->slice * bytes;
    }
    memcpy(x->here[v]->data, from, bytes);
    return LP_OK;
}

/* run -1: all variables. */
static LpStatus write_vars(LpReplay *x, int run, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        const LpVariable *var = &x->step->var[i];
        LpVal v = var->micro_out;
        if (!lp_is_value(v) ||
            (run >= 0 &&
             (lp_ipu_is_sum(x->p, v) || lp_ipu_pass_making(x->p, v) != run)))
            continue;
        size_t bytes = (size_t)lp_type_bytes(&var->type);
        /* a variable that is returned as it is comes from where it lives */
        const void *from =
            x->here[v] ? x->here[v]->data : variable_of(x, v, -1);
        if (!from || (run >= 0 && !has(x, i, run, false)))
            return dead_read(x, v, run, e);
        if (run >= 0 && lp_ipu_off_chip(x->p, var))
            lp_replay_move(x, LP_ACT_STORE, x->p->pass[run].ipu, 0,
                           (int64_t)bytes);
        char *to = lp_replay_here(x, i);
        if (var->role == LP_VAR_STREAM_OUT)
            to = (char *)x->stream[i].out + (size_t)x->slice * bytes;
        memcpy(to, from, bytes);
    }
    return LP_OK;
}

/* ---- one run ------------------------------------------------------------- */
static int64_t value_bytes(const LpReplay *x, LpVal v)
{
    return lp_type_bytes(lp_graph_type(x->g, v));
}

/* Variables that come from streaming memory, or from other replicas. */
static void bring_vars(LpReplay *x, int run)
{
    const LpIpuPlan *p = x->p;
    const LpStagePass *r = &p->pass[run];
    for (uint32_t i = 0; i < r->n_read; i++) {
        int at = p->var_of[r->read[i]];
        if (at < 0)
            continue;
        const LpVariable *v = &x->step->var[at];
        size_t var = (size_t)at;
        if (lp_ipu_off_chip(p, v) && !held(x, var, run) &&
            copies(x, LP_TRANSFER_VAR, var, run, true))
            lp_replay_move(x, LP_ACT_LOAD, r->ipu, 0, lp_ipu_kept_bytes(p, v));
        if (v->role == LP_VAR_PARAM && lp_ipu_kept(p, v) < lp_numel(&v->type))
            lp_replay_move(x, LP_ACT_COLLECTIVE, r->ipu, 0,
                           lp_type_bytes(&v->type));
    }
}

/* Sums in streaming memory to which the run adds its parts: they come and
 * go. */
static void add_parts(LpReplay *x, int run)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < p->n_partial; i++) {
        int var = p->partial[i].var;
        if (var < 0)
            continue;
        const LpVariable *v = &x->step->var[var];
        bool first = i == 0 || p->partial[i - 1].var != var;
        bool own = first && lp_ipu_pass_making(p, v->micro_out) == run;
        int n = (p->partial[i].run == run) + own;
        if (!lp_ipu_off_chip(p, v))
            continue;
        lp_replay_move(x, LP_ACT_LOAD, p->pass[run].ipu, 0,
                       n * lp_type_bytes(&v->type));
        lp_replay_move(x, LP_ACT_STORE, p->pass[run].ipu, 0,
                       n * lp_type_bytes(&v->type));
    }
}

static LpSlot *stashed(LpReplay *x, LpVal v, int run, int64_t mb)
{
    const LpStagePass *r = &x->p->pass[run];
    for (size_t i = 0; i < x->p->n_stash; i++) {
        const LpStash *s = &x->p->stash[i];
        if (s->v != v || s->stage != r->stage ||
            (s->off_chip && !copies(x, LP_TRANSFER_STASH, i, run, true)))
            continue;
        if (s->off_chip)
            lp_replay_move(x, LP_ACT_LOAD, r->ipu, 0, value_bytes(x, v));
        return &x->ring[i][mb % s->depth];
    }
    return NULL;
}

static LpStatus receive(LpReplay *x, int run, int64_t mb, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    const LpStagePass *r = &p->pass[run];
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        if (m->to != run)
            continue;
        LpSlot *at = &x->link[i];
        if (!at->cell || at->tag != mb ||
            (m->off_chip && !copies(x, LP_TRANSFER_COPY, i, run, true)))
            return dead_read(x, m->v, run, e);
        if (m->off_chip)
            lp_replay_move(x, LP_ACT_LOAD, r->ipu, 0, value_bytes(x, m->v));
        lp_cell_drop(x, &x->here[m->v]);
        x->here[m->v] = at->cell;
        at->cell = NULL;
    }
    for (uint32_t i = 0; i < r->n_range; i++) {
        const LpLiveRange *h = &r->range[i];
        if (h->kind == LP_RANGE_INPUT)
            LP_TRY(read_input(x, h->v, run, e));
        if (h->kind != LP_RANGE_STASH)
            continue;
        LpSlot *at = stashed(x, h->v, run, mb);
        if (!at || !at->cell || at->tag != mb)
            return dead_read(x, h->v, run, e);
        at->cell->refs++;
        lp_cell_drop(x, &x->here[h->v]);
        x->here[h->v] = at->cell;
    }
    return LP_OK;
}

static LpStatus send(LpReplay *x, int run, int64_t mb, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    const LpStagePass *r = &p->pass[run];
    for (size_t i = 0; !r->backward && i < p->n_stash; i++) {
        const LpStash *s = &p->stash[i];
        if (s->stage != r->stage)
            continue;
        if (!x->here[s->v])
            return dead_read(x, s->v, run, e);
        if (s->off_chip && !copies(x, LP_TRANSFER_STASH, i, run, false))
            continue;
        if (s->off_chip)
            lp_replay_move(x, LP_ACT_STORE, r->ipu, 0, value_bytes(x, s->v));
        lp_slot_put(x, &x->ring[i][mb % s->depth], x->here[s->v], mb);
    }
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        if (m->from != run)
            continue;
        if (!x->here[m->v])
            return dead_read(x, m->v, run, e);
        if (m->off_chip && !copies(x, LP_TRANSFER_COPY, i, run, false))
            continue;
        if (m->off_chip)
            lp_replay_move(x, LP_ACT_STORE, r->ipu, 0, value_bytes(x, m->v));
        lp_slot_put(x, &x->sent[i], x->here[m->v], mb);
    }
    return write_vars(x, run, e);
}

/* Where the value is kept that micro-batch x->mb contributes to a sum. */
static LpCell **part_at(const LpReplay *x, LpVal v)
{
    return &x->kept[(x->part[v] - 1) * x->p->micro_batches + x->mb];
}

static void keep_parts(LpReplay *x, const LpGraphNode *d)
{
    for (LpVal v = d->out; v < d->out + d->n_out; v++) {
        if (!x->part[v] || x->mb >= x->p->micro_batches)
            continue;
        lp_cell_drop(x, part_at(x, v));
        *part_at(x, v) = x->here[v];
        x->here[v]->refs++;
    }
}

/* Ranges sorted by where they end. */
static void plan_drops(LpReplay *x, const LpStagePass *r)
{
    memset(x->drop_first, 0, (r->n + 3) * sizeof *x->drop_first);
    for (uint32_t i = 0; i < r->n_range; i++)
        x->drop_first[r->range[i].to + 2]++;
    for (uint32_t i = 2; i < r->n + 3; i++)
        x->drop_first[i] += x->drop_first[i - 1];
    for (uint32_t i = 0; i < r->n_range; i++)
        x->drop[x->drop_first[r->range[i].to + 1]++] = i;
}

static LpStatus run_stage(LpReplay *x, int run, int64_t mb, LpErr *e)
{
    const LpStagePass *r = &x->p->pass[run];
    plan_drops(x, r);
    bring_vars(x, run);
    add_parts(x, run);
    LP_TRY(receive(x, run, mb, e));
    x->mb = mb;
    for (uint32_t i = 0; i < r->n; i++) {
        LP_TRY(run_node(x, &x->micro, r->entry[i].node, run, e));
        keep_parts(x, &x->g->node[r->entry[i].node]);
        for (uint32_t k = x->drop_first[i]; k < x->drop_first[i + 1]; k++)
            lp_cell_drop(x, &x->here[r->range[x->drop[k]].v]);
    }
    LP_TRY(send(x, run, mb, e));
    for (uint32_t i = 0; i < r->n_range; i++)
        lp_cell_drop(x, &x->here[r->range[i].v]);
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

static void deliver(LpReplay *x)
{
    for (size_t i = 0; i < x->p->n_copy; i++) {
        const LpIpuCopy *m = &x->p->copy[i];
        if (!x->sent[i].cell)
            continue;
        if (!m->off_chip && m->from_ipu != m->to_ipu)
            lp_replay_move(x, LP_ACT_COPY, m->from_ipu, m->to_ipu,
                           value_bytes(x, m->v));
        lp_cell_drop(x, &x->link[i].cell);
        x->link[i] = x->sent[i];
        x->sent[i].cell = NULL;
    }
}

static LpStatus run_row(LpReplay *x, const LpLoop *l, const LpRow *row,
                        int64_t loop, int64_t turn, LpErr *e)
{
    x->row = row;
    lp_replay_host(x, row, l, turn, false);
    for (uint32_t i = 0; i < row->n; i++) {
        const LpAct *a = &row->act[i];
        if (a->kind != LP_ACT_COMPUTE)
            continue;
        set_micro_batch(x, loop, turn - a->offset);
        LP_TRY(run_stage(x, a->run, turn - a->offset, e));
        if (row->order != LP_ORDER_AT_ONCE)
            deliver(x);
    }
    deliver(x);
    lp_replay_host(x, row, l, turn, true);
    return lp_replay_end_row(x, row, turn, e);
}

/* May the sum of accumulator `var` have what the run contributes? Parts of its
 * own IPU are added in the run where the sum ends. */
static bool can_gather(const LpReplay *x, int var, int run)
{
    const LpIpuPlan *p = x->p;
    bool fetched = p->pass[run].ipu == p->var_ipu[var];
    if (fetched)
        run = lp_ipu_pass_making(p, x->step->var[var].micro_out);
    for (size_t i = 0; i < p->n_partial && !fetched; i++)
        fetched = p->partial[i].var == var && p->partial[i].run == run;
    return fetched && has(x, (size_t)var, run, true) &&
           has(x, (size_t)var, run, false);
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
            return dead_read(x, v, run, e);
        if (x->here[v])
            continue; /* another sum has read it */
        x->here[v] = *part_at(x, v);
        *part_at(x, v) = NULL;
    }
    return run_node(x, &x->micro, n, -1, e);
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

static LpStatus run_scheduled(LpReplay *x, int64_t loop, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    bool runs = false; /* has begun */
    for (size_t i = 0; i < p->n_loop; i++) {
        const LpLoop *l = &p->loop[i];
        runs = runs || !l->once;
        if (l->once && loop != (runs ? p->loops - 1 : 0))
            continue;
        for (int64_t k = 0; k < l->count; k++)
            for (uint32_t r = 0; r < l->n_row; r++) {
                const LpRow *row = &p->row[l->first_row + r];
                int64_t turn = row->first + k * l->step;
                if (row->kind != LP_ROW_UPDATE)
                    LP_TRY(run_row(x, l, row, loop, turn, e));
            }
    }
    return run_sums(x, loop, e);
}

static LpStatus run_in_order(LpReplay *x, int64_t loop, LpErr *e)
{
    for (int64_t mb = 0; mb < x->p->micro_batches; mb++) {
        set_micro_batch(x, loop, mb);
        for (size_t i = 0; i < x->g->n_input; i++)
            if (x->p->var_of[x->g->input[i]] >= 0 &&
                !lp_ipu_is_free(x->p, x->g->input[i]))
                LP_TRY(read_input(x, x->g->input[i], -1, e));
        for (LpNodeId n = 0; n < x->g->n_node; n++)
            LP_TRY(run_node(x, &x->micro, n, -1, e));
        LP_TRY(write_vars(x, -1, e));
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
        LP_FAIL_IF((v->update_in != LP_NOVAL && !has(x, i, -1, true)) ||
                       (v->update_out != LP_NOVAL && !has(x, i, -1, false)),
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
        LP_TRY(run_node(x, &x->update, n, -1, e));
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
    for (int64_t r = 0; r < (grouped ? st->replicas : 1); r++)
        LP_TRY(update_replica(x, r, grouped ? r : st->replicas - 1, e));
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
    lp_replay_clear(x);
    return s;
}
