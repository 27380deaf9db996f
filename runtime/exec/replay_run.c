/* One run of a stage in a replay, on the memory of its IPU: what the plan
 * brings is written to its block, entries read what is there, a view sees what
 * it looks at as it is now, and what the run sends leaves from where it is. */
#include <stdio.h>
#include <string.h>

#include "runtime/exec/replay_state.h"
#include "src/passes/ipu/strategy.h"

/* ---- what the plan lets a run have --------------------------------------- */
bool lp_replay_has(const LpReplay *x, size_t i, int run, bool load)
{
    return !lp_ipu_off_chip(x->p, &x->p->step->var[i]) ||
           lp_ipu_transfer(x->p, LP_TRANSFER_VAR, i, run, load) >= 0 ||
           (load && lp_replay_held(x, i, run));
}

LpStatus lp_replay_dead_read(const LpReplay *x, LpVal v, int run, LpErr *e)
{
    LpNodeId n = x->g->value[v].node;
    const LpStagePass *r = &x->p->pass[run < 0 ? 0 : run];
    bool made = n != LP_NO_NODE;
    const char *what = made ? x->g->node[n].op->name : x->g->value[v].name;
    char why[64] = "where it is gone";
    if (x->lost.over)
        snprintf(why, sizeof why, "where value %%%u is written over it",
                 (unsigned)x->lost.over);
    else if (x->lost.freed)
        snprintf(why, sizeof why, "where its memory is free again");
    return lp_fail(e, LP_E_INTERNAL,
                   "the schedule reads value %%%u (%s of '%s') in the %s pass "
                   "of stage %d, micro-batch %lld, %s",
                   (unsigned)v, what ? what : "an input",
                   made ? lp_origin_of(x->g, n)->scope : "",
                   r->backward ? "backward" : "forward", r->stage,
                   (long long)(x->rc.micro_batch - x->start), why);
}

/* ---- variables ----------------------------------------------------------- */
static int64_t value_bytes(const LpReplay *x, LpVal v)
{
    return lp_type_bytes(lp_graph_type(x->g, v));
}

static bool in_shares(const LpReplay *x, const LpVariable *v)
{
    return v->role == LP_VAR_PARAM && lp_ipu_kept(x->p, v) < lp_numel(&v->type);
}

/* Does it come for each run? */
static bool visits(const LpReplay *x, const LpVariable *v)
{
    return lp_ipu_off_chip(x->p, v) || in_shares(x, v);
}

static void *visitor(LpReplay *x, size_t var, int run, int64_t mb)
{
    return lp_block_get(
        x, x->p->pass[run].ipu, lp_replay_visitor_block(x, var, run),
        (LpHolds){LP_NOVAL, (int)var, lp_replay_keeps(x, var) ? 0 : mb}, false);
}

static LpStatus visit(LpReplay *x, size_t var, int run, int64_t mb, LpErr *e)
{
    uint32_t block = lp_replay_visitor_block(x, var, run);
    int ipu = x->p->pass[run].ipu;
    LP_FAIL_IF(block == 0, e, LP_E_INTERNAL,
               "IPU %d has no memory for variable '%s', which comes for the %s "
               "pass of stage %d",
               ipu, x->step->var[var].name,
               x->p->pass[run].backward ? "backward" : "forward",
               x->p->pass[run].stage);
    char *to =
        lp_block_put_now(x, ipu, block, (LpHolds){LP_NOVAL, (int)var, mb});
    memcpy(to, lp_replay_here(x, var),
           (size_t)lp_type_bytes(&x->step->var[var].type));
    return LP_OK;
}

/* Where the run finds a variable as it was at its start; NULL: nowhere. */
static void *find(LpReplay *x, size_t i, const LpWhen *w)
{
    const LpIpuPlan *p = x->p;
    const LpVariable *v = &p->step->var[i];
    int ipu = p->pass[w->run].ipu;
    if (visits(x, v))
        return visitor(x, i, w->run, w->mb);
    if (p->var_ipu[i] == ipu || v->role == LP_VAR_HYPER)
        return lp_replay_here(x, i);
    for (size_t k = 0; k < p->n_replicated; k++)
        if (p->replicated[k].var == (int)i && p->replicated[k].ipu == ipu)
            return x->replicated[(size_t)x->replica * p->n_replicated + k];
    return NULL;
}

/* Is variable i written in place when v is made? */
static bool writes(const LpReplay *x, size_t i, LpVal v)
{
    const LpVariable *var = &x->step->var[i];
    return var->micro_out == v && var->role != LP_VAR_STREAM_OUT;
}

/* What lies in its variable: the old value until the new one is there. */
static void *in_place(LpReplay *x, LpVal v, bool made, const LpWhen *w)
{
    size_t i = made ? 0 : (size_t)x->p->var_of[v];
    while (made && i < x->step->n_var && !writes(x, i, v))
        i++;
    if (i == x->step->n_var || (made && x->wrote[i] != w->mb + 1))
        return NULL;
    if (!made && x->wrote[i] == w->mb + 1) {
        x->lost.over = x->step->var[i].micro_out;
        return NULL;
    }
    return x->p->var_ipu[i] == x->p->pass[w->run].ipu ? find(x, i, w) : NULL;
}

/* ---- values -------------------------------------------------------------- */
static LpStatus look(LpReplay *x, const LpWhen *w, LpVal v, void **at,
                     void **made, LpErr *e);

static LpStatus look_through(LpReplay *x, const LpWhen *w, const LpGraphNode *d,
                             void **at, void **made, LpErr *e)
{
    void *from, *of;
    LP_TRY(look(x, w, d->in[0], &from, &of, e));
    *at = *made = lp_alloc_aligned((size_t)value_bytes(x, d->out));
    LpStatus s = *at ? lp_node_kernels_run(&x->micro, x->g->value[d->out].node,
                                           &from, at, &x->rc, e)
                     : lp_no_memory(e);
    lp_free(of);
    return s;
}

/* Where an entry finds a value; what a view shows is made for it, in *made,
 * which is the caller's. */
static LpStatus look(LpReplay *x, const LpWhen *w, LpVal v, void **at,
                     void **made, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    const LpLiveRange *h = lp_replay_range(x, w->run, v);
    const LpGraphNode *d = lp_graph_maker(x->g, v);
    bool mine = h && h->kind == LP_RANGE_MADE;
    *at = *made = NULL;
    x->lost.freed = false;
    x->lost.over = LP_NOVAL;
    if (!h && lp_ipu_is_free(p, v))
        *at = find(x, (size_t)p->var_of[v], w);
    else if (h && h->alias && w->entry <= h->to)
        if (mine && lp_ipu_is_view(d))
            return look_through(x, w, d, at, made, e);
        else
            *at = in_place(x, v, mine, w);
    else if (h && w->entry <= h->to)
        *at = lp_block_get(x, p->pass[w->run].ipu, h->block,
                           (LpHolds){v, -1, w->mb},
                           h->early && h->to == w->entry);
    return *at ? LP_OK : lp_replay_dead_read(x, v, w->run, e);
}

/* Puts a value that has come, or was made, where the plan has it. */
static LpStatus put(LpReplay *x, const LpWhen *w, LpVal v, const void *from,
                    LpErr *e)
{
    const LpLiveRange *h = lp_replay_range(x, w->run, v);
    int ipu = x->p->pass[w->run].ipu;
    const LpLiveSpan *m =
        h && h->block ? &x->p->memory[ipu].span[h->block - 1] : NULL;
    int64_t step = x->ipu[ipu].now % x->ipu[ipu].line;
    LP_FAIL_IF(!m || step < m->from || step > m->to, e, LP_E_INTERNAL,
               "IPU %d has no memory for value %%%u in step %lld", ipu,
               (unsigned)v, (long long)step);
    char *to = lp_block_put_now(x, ipu, h->block, (LpHolds){v, -1, w->mb});
    memcpy(to, from, (size_t)value_bytes(x, v));
    return LP_OK;
}

static LpStatus write_in_place(LpReplay *x, const LpWhen *w, LpVal v,
                               const void *from, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        if (!writes(x, i, v))
            continue;
        void *to =
            x->p->var_ipu[i] == x->p->pass[w->run].ipu ? find(x, i, w) : NULL;
        LP_FAIL_IF(!to, e, LP_E_INTERNAL,
                   "variable '%s' is written on IPU %d, where it is not",
                   x->step->var[i].name, x->p->pass[w->run].ipu);
        memcpy(to, from, (size_t)value_bytes(x, v));
        x->wrote[i] = w->mb + 1;
    }
    return LP_OK;
}

/* Where the value is kept that a micro-batch contributes to a sum. */
static LpStatus keep_part(LpReplay *x, LpVal v, const void *from, int64_t mb,
                          LpErr *e)
{
    if (!x->part[v] || mb >= x->p->micro_batches)
        return LP_OK;
    LpCell **at = &x->kept[(x->part[v] - 1) * x->p->micro_batches + mb];
    lp_cell_drop(x, at);
    *at = lp_cell_new(x, value_bytes(x, v), e);
    if (*at)
        memcpy((*at)->data, from, (size_t)value_bytes(x, v));
    return *at ? LP_OK : LP_E_MEMORY;
}

/* ---- entries ------------------------------------------------------------- */
/* The new value of a variable, or an output. */
static LpStatus write_var(LpReplay *x, const LpWhen *w, size_t i, LpErr *e)
{
    const LpVariable *var = &x->step->var[i];
    LpVal v = var->micro_out;
    void *from, *made = NULL;
    if (lp_ipu_is_free(x->p, v)) /* returned as it is where it lives */
        from = lp_replay_here(x, (size_t)x->p->var_of[v]);
    else
        LP_TRY(look(x, w, v, &from, &made, e));
    LpStatus s = LP_OK;
    if (!lp_replay_has(x, i, w->run, false))
        s = lp_replay_dead_read(x, v, w->run, e);
    else if (lp_ipu_off_chip(x->p, var))
        lp_replay_store(
            x, w, lp_ipu_transfer(x->p, LP_TRANSFER_VAR, i, w->run, false));
    if (s == LP_OK)
        lp_replay_output(x, i, from);
    lp_free(made);
    return s;
}

/* Gradients that leave the chip when they are made. */
static LpStatus send_off(LpReplay *x, const LpWhen *w, LpVal v, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++)
        if (x->step->var[i].micro_out == v &&
            lp_ipu_leaves(x->p, &x->step->var[i]) &&
            lp_ipu_pass_making(x->p, v) == w->run)
            LP_TRY(write_var(x, w, i, e));
    return LP_OK;
}

static LpStatus results(LpReplay *x, const LpWhen *w, const LpGraphNode *d,
                        void **out, LpErr *e)
{
    for (uint32_t i = 0; i < d->n_out; i++) {
        const LpLiveRange *h = lp_replay_range(x, w->run, d->out + i);
        LP_TRY(h && h->alias ? write_in_place(x, w, d->out + i, out[i], e)
                             : put(x, w, d->out + i, out[i], e));
        LP_TRY(keep_part(x, d->out + i, out[i], w->mb, e));
    }
    return LP_OK;
}

/* An operand whose memory the result takes over may be read element by element
 * only, as it is and not through a view. */
static LpStatus check_taken(const LpReplay *x, const LpWhen *w,
                            const LpGraphNode *d, LpErr *e)
{
    const LpLiveRange *out = lp_replay_range(x, w->run, d->out);
    for (uint32_t i = 0; i < d->n_in; i++) {
        LpVal v = lp_is_value(d->in[i]) ? d->in[i] : LP_NOVAL;
        const LpLiveRange *h = v ? lp_replay_range(x, w->run, v) : NULL;
        while (h && h->alias && h->kind == LP_RANGE_MADE &&
               lp_ipu_is_view(lp_graph_maker(x->g, v))) {
            v = lp_graph_maker(x->g, v)->in[0];
            h = lp_replay_range(x, w->run, v);
        }
        if (!h || !h->early || h->to != w->entry)
            continue;
        LP_FAIL_IF(v != d->in[i] || !lp_node_may_overwrite(d, i) || !out ||
                       out->alias ||
                       value_bytes(x, v) != value_bytes(x, d->out),
                   e, LP_E_INTERNAL,
                   "the plan writes value %%%u (%s) over value %%%u, which it "
                   "reads",
                   (unsigned)d->out, d->op->name, (unsigned)v);
    }
    return LP_OK;
}

/* at: of operands, then of results, which are made aside. */
static LpStatus compute(LpReplay *x, const LpWhen *w, LpNodeId id, void **at,
                        void **made, LpErr *e)
{
    const LpGraphNode *d = &x->g->node[id];
    LP_TRY(check_taken(x, w, d, e));
    for (uint32_t i = 0; i < d->n_in; i++)
        if (lp_is_value(d->in[i]))
            LP_TRY(look(x, w, d->in[i], &at[i], &made[i], e));
    for (uint32_t i = d->n_in; i < d->n_in + d->n_out; i++) {
        LpVal v = d->out + i - d->n_in;
        at[i] = made[i] = lp_alloc_aligned((size_t)value_bytes(x, v));
        LP_FAIL_IF(!at[i], e, LP_E_MEMORY, "out of memory");
    }
    LP_TRY(lp_node_kernels_run(&x->micro, id, at, at + d->n_in, &x->rc, e));
    return results(x, w, d, at + d->n_in, e);
}

/* Bytes of blocks that begin with the results of a node. */
static int64_t made_bytes(const LpReplay *x, const LpWhen *w,
                          const LpGraphNode *d)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < d->n_out; i++) {
        const LpLiveRange *h = lp_replay_range(x, w->run, d->out + i);
        n += h && !h->alias ? value_bytes(x, d->out + i) : 0;
    }
    return n;
}

static LpStatus run_entry(LpReplay *x, const LpWhen *w, LpNodeId id, LpErr *e)
{
    const LpGraphNode *d = &x->g->node[id];
    const LpLiveRange *h = lp_replay_range(x, w->run, d->out);
    uint32_t n = d->n_in + d->n_out;
    LpStatus s;
    if (h && h->alias && lp_ipu_is_view(d)) {
        void *at, *made;
        s = look(x, w, d->out, &at, &made, e);
        if (s == LP_OK)
            s = keep_part(x, d->out, at, w->mb, e);
        lp_free(made);
    } else {
        void **at = lp_calloc(2 * n, sizeof *at);
        LP_FAIL_IF(!at, e, LP_E_MEMORY, "out of memory");
        s = compute(x, w, id, at, at + n, e);
        for (uint32_t i = 0; i < n; i++)
            lp_free(at[n + i]);
        lp_free(at);
    }
    for (uint32_t i = 0; i < d->n_out && s == LP_OK; i++)
        s = send_off(x, w, d->out + i, e);
    if (s == LP_OK)
        s = lp_replay_account(x, x->p->pass[w->run].ipu, x->p->cost[id].cost,
                              made_bytes(x, w, d), e);
    return s;
}

/* ---- what a run brings --------------------------------------------------- */
/* The shares of a variable that the run reads, in its row or (`ahead`) in the
 * one before. */
static void gather(LpReplay *x, const LpWhen *w, const LpVariable *v,
                   bool ahead)
{
    const LpIpuPlan *p = x->p;
    bool beside = lp_ipu_gathers_beside(p, v);
    bool before = beside && lp_ipu_gathers_ahead(p, w->run, w->mb);
    int ipu = p->pass[w->run].ipu;
    if (!in_shares(x, v) || lp_replay_part_of(x, w->mb) > 0 || before != ahead)
        return;
    lp_replay_move(x, LP_ACT_COLLECTIVE, ipu, 0, lp_type_bytes(&v->type));
    if (ahead || (beside && !p->strategy->streaming))
        x->ipu[ipu].io += lp_type_bytes(&v->type);
}

void lp_replay_gather_ahead(LpReplay *x, const LpWhen *w)
{
    const LpStagePass *r = &x->p->pass[w->run];
    for (uint32_t i = 0; i < r->n_read; i++) {
        int var = x->p->var_of[r->read[i]];
        if (var < 0)
            continue;
        const LpVariable *v = &x->step->var[var];
        int t =
            lp_ipu_transfer(x->p, LP_TRANSFER_VAR, (size_t)var, w->run, true);
        if (t < 0 || x->brought[t] == w->mb + 1) /* its share is here */
            gather(x, w, v, true);
    }
}

/* Variables that come from streaming memory, or from other replicas. */
static LpStatus bring_vars(LpReplay *x, const LpWhen *w, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    const LpStagePass *r = &p->pass[w->run];
    for (uint32_t i = 0; i < r->n_read; i++) {
        int at = p->var_of[r->read[i]];
        if (at < 0 || !visits(x, &x->step->var[at]))
            continue;
        const LpVariable *v = &x->step->var[at];
        size_t var = (size_t)at;
        int t = lp_ipu_transfer(p, LP_TRANSFER_VAR, var, w->run, true);
        bool loads = lp_ipu_off_chip(p, v) && !lp_replay_held(x, var, w->run);
        if (loads && !lp_replay_has_come(x, w, t))
            continue; /* whoever reads it does not find it */
        gather(x, w, v, false);
        if (!lp_replay_keeps(x, var) &&
            (in_shares(x, v) || (loads && !lp_replay_came_early(x, w, t))))
            LP_TRY(visit(x, var, w->run, w->mb, e));
    }
    return LP_OK;
}

/* How often the run adds to the sum of accumulator `var`. */
static int n_parts(const LpReplay *x, int var, int run)
{
    const LpIpuPlan *p = x->p;
    bool any = false;
    int n = 0;
    for (size_t i = 0; i < p->n_partial; i++)
        if (p->partial[i].var == var) {
            any = true;
            n += p->partial[i].run == run;
        }
    return n +
           (any && lp_ipu_pass_making(p, x->step->var[var].micro_out) == run);
}

/* Sums in streaming memory to which the run adds its parts: they come and
 * go. */
static LpStatus add_parts(LpReplay *x, const LpWhen *w, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < p->n_transfer; i++) {
        const LpTransfer *t = &p->transfer[i];
        if (t->run != w->run || t->of != LP_TRANSFER_VAR ||
            n_parts(x, (int)t->at, w->run) == 0)
            continue;
        if (!t->load)
            lp_replay_store(x, w, (int)i);
        else if (lp_replay_has_come(x, w, (int)i) &&
                 !lp_replay_came_early(x, w, (int)i) &&
                 !lp_replay_keeps(x, t->at))
            LP_TRY(visit(x, t->at, w->run, w->mb, e));
    }
    return LP_OK;
}

/* From the host, or the old value of a variable that is not in its place. */
static LpStatus read_input(LpReplay *x, const LpWhen *w, const LpLiveRange *h,
                           LpErr *e)
{
    size_t i = (size_t)x->p->var_of[h->v];
    const LpVariable *var = &x->step->var[i];
    const char *from;
    if (var->role == LP_VAR_STREAM_IN) {
        if ((*lp_replay_ahead(x, i))-- <= 0)
            return lp_replay_dead_read(x, h->v, w->run, e);
        from = x->stream[i].in;
        from += (size_t)(x->slice * lp_type_bytes(&var->type));
    } else {
        from =
            x->p->var_ipu[i] == x->p->pass[w->run].ipu ? find(x, i, w) : NULL;
        if (!from)
            return lp_replay_dead_read(x, h->v, w->run, e);
    }
    return h->alias ? LP_OK : put(x, w, h->v, from, e);
}

/* From the ring, unless it has stayed since the forward run. */
static LpStatus read_stash(LpReplay *x, const LpWhen *w, LpVal v, LpErr *e)
{
    const LpStagePass *r = &x->p->pass[w->run];
    for (size_t i = 0; i < x->p->n_stash; i++) {
        const LpStash *s = &x->p->stash[i];
        const LpSlot *at = &x->ring[i][w->mb % s->depth];
        if (s->v != v || s->stage != r->stage)
            continue;
        if (s->depth == 1 && !s->off_chip)
            return LP_OK;
        int t = lp_ipu_transfer(x->p, LP_TRANSFER_STASH, i, w->run, true);
        if (at->tag != w->mb + 1 || !at->cell ||
            (s->off_chip && !lp_replay_has_come(x, w, t)))
            break;
        return s->off_chip && lp_replay_came_early(x, w, t)
                   ? LP_OK
                   : put(x, w, v, at->cell->data, e);
    }
    return lp_replay_dead_read(x, v, w->run, e);
}

static LpStatus receive(LpReplay *x, const LpWhen *w, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    const LpStagePass *r = &p->pass[w->run];
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        LpSlot *at = &x->link[i][lp_replay_part_of(x, w->mb)];
        if (m->to != w->run)
            continue;
        int t = lp_ipu_transfer(p, LP_TRANSFER_COPY, i, w->run, true);
        if (at->tag != w->mb + 1 || (m->off_chip && !at->cell) ||
            (m->off_chip && !lp_replay_has_come(x, w, t)))
            return lp_replay_dead_read(x, m->v, w->run, e);
        if (!m->off_chip)
            continue;
        if (!lp_replay_came_early(x, w, t))
            LP_TRY(put(x, w, m->v, at->cell->data, e));
        lp_cell_drop(x, &at->cell);
    }
    for (uint32_t i = 0; i < r->n_range; i++) {
        const LpLiveRange *h = &r->range[i];
        if (h->kind == LP_RANGE_INPUT)
            LP_TRY(read_input(x, w, h, e));
        if (h->kind == LP_RANGE_STASH)
            LP_TRY(read_stash(x, w, h->v, e));
    }
    return LP_OK;
}

/* ---- what a run leaves --------------------------------------------------- */
static LpStatus leave_off(LpReplay *x, const LpWhen *w, LpVal v, LpSlot *at,
                          LpErr *e)
{
    void *from, *made;
    LP_TRY(look(x, w, v, &from, &made, e));
    LpCell *c = lp_cell_new(x, value_bytes(x, v), e);
    if (c) {
        memcpy(c->data, from, (size_t)c->bytes);
        lp_slot_put(x, at, c, w->mb + 1);
        lp_cell_drop(x, &c);
    }
    lp_free(made);
    return e->code;
}

/* What stays for the backward run; an alias as a copy. */
static LpStatus leave_here(LpReplay *x, const LpWhen *w, LpVal v, LpErr *e)
{
    const LpLiveRange *h = lp_replay_range(x, w->run, v);
    void *from, *made;
    LP_TRY(look(x, w, v, &from, &made, e));
    LpStatus s = h && h->alias ? put(x, w, v, from, e) : LP_OK;
    lp_free(made);
    return s;
}

static LpStatus leave_stash(LpReplay *x, const LpWhen *w, LpErr *e)
{
    const LpStagePass *r = &x->p->pass[w->run];
    for (size_t i = 0; !r->backward && i < x->p->n_stash; i++) {
        const LpStash *s = &x->p->stash[i];
        if (s->stage != r->stage)
            continue;
        if (s->depth == 1 && !s->off_chip) {
            LP_TRY(leave_here(x, w, s->v, e));
            continue;
        }
        int t = lp_ipu_transfer(x->p, LP_TRANSFER_STASH, i, w->run, false);
        if (s->off_chip && t < 0)
            continue;
        if (s->off_chip)
            lp_replay_store(x, w, t);
        LP_TRY(leave_off(x, w, s->v, &x->ring[i][w->mb % s->depth], e));
    }
    return LP_OK;
}

static LpStatus send(LpReplay *x, const LpWhen *w, LpErr *e)
{
    for (size_t i = 0; i < x->p->n_copy; i++) {
        const LpIpuCopy *m = &x->p->copy[i];
        if (m->from != w->run)
            continue;
        if (!m->off_chip) {
            x->sent[i] = w->mb + 1;
            continue;
        }
        int t = lp_ipu_transfer(x->p, LP_TRANSFER_COPY, i, w->run, false);
        if (t < 0)
            continue;
        lp_replay_store(x, w, t);
        LP_TRY(
            leave_off(x, w, m->v, &x->link[i][lp_replay_part_of(x, w->mb)], e));
    }
    return LP_OK;
}

void lp_replay_output(LpReplay *x, size_t var, const void *from)
{
    const LpVariable *v = &x->step->var[var];
    size_t bytes = (size_t)lp_type_bytes(&v->type);
    char *to = v->role == LP_VAR_STREAM_OUT ? x->stream[var].out
                                            : lp_replay_here(x, var);
    if (v->role == LP_VAR_STREAM_OUT)
        to += (size_t)x->slice * bytes;
    if (to != from)
        memcpy(to, from, bytes);
}

/* Variables and outputs that the run writes. */
static LpStatus write_vars(LpReplay *x, const LpWhen *w, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        LpVal v = x->step->var[i].micro_out;
        if (lp_is_value(v) && !lp_ipu_is_sum(x->p, v) &&
            !lp_ipu_leaves(x->p, &x->step->var[i]) &&
            lp_ipu_pass_making(x->p, v) == w->run)
            LP_TRY(write_var(x, w, i, e));
    }
    return LP_OK;
}

/* ---- the run ------------------------------------------------------------- */
LpStatus lp_replay_run_stage(LpReplay *x, int run, int64_t mb, LpErr *e)
{
    const LpStagePass *r = &x->p->pass[run];
    LpIpuBytes *u = &x->ipu[r->ipu];
    LpWhen w = {.run = run, .mb = mb};
    x->mb = mb;
    u->now = x->turn * u->line + x->base[run];
    LP_TRY(bring_vars(x, &w, e));
    LP_TRY(add_parts(x, &w, e));
    LP_TRY(receive(x, &w, e));
    for (; w.entry < r->n; w.entry++, u->now++)
        LP_TRY(run_entry(x, &w, r->entry[w.entry].node, e));
    LP_TRY(leave_stash(x, &w, e));
    LP_TRY(send(x, &w, e));
    LP_TRY(write_vars(x, &w, e));
    return lp_replay_account(x, r->ipu, NULL, 0, e);
}

/* Where rows are of several micro-batches it is there for the next period. */
static LpStatus arrive(LpReplay *x, const LpIpuCopy *m, const LpWhen *w,
                       LpErr *e)
{
    const LpIpuPlan *p = x->p;
    LpIpuBytes *u = &x->ipu[m->to_ipu];
    const LpLiveRange *from = lp_replay_range(x, m->from, m->v);
    const LpLiveRange *to = lp_replay_range(x, m->to, m->v);
    bool stays = m->from_ipu == m->to_ipu && from && to && !from->alias &&
                 from->block == to->block;
    void *at, *made;
    LP_TRY(look(x, w, m->v, &at, &made, e));
    if (!stays && to && to->block) {
        const LpLiveSpan *s = &p->memory[m->to_ipu].span[to->block - 1];
        bool ahead = x->row->order == LP_ORDER_AT_ONCE;
        int64_t start = x->turn * u->line + (ahead ? u->line - 1 : s->from);
        char *dst =
            lp_block_put(x, m->to_ipu, to->block, (LpHolds){m->v, -1, w->mb},
                         start, (x->turn + ahead) * u->line + s->to);
        memmove(dst, at, (size_t)value_bytes(x, m->v));
    }
    lp_free(made);
    if (m->from_ipu != m->to_ipu)
        lp_replay_move(x, LP_ACT_COPY, m->from_ipu, m->to_ipu,
                       value_bytes(x, m->v));
    return LP_OK;
}

LpStatus lp_replay_deliver(LpReplay *x, int from, LpErr *e)
{
    for (size_t i = 0; i < x->p->n_copy; i++) {
        const LpIpuCopy *m = &x->p->copy[i];
        if (m->from != from || x->sent[i] == 0)
            continue;
        LpWhen w = {from, x->p->pass[from].n, x->sent[i] - 1};
        LP_TRY(arrive(x, m, &w, e));
        x->link[i][lp_replay_part_of(x, w.mb)].tag = w.mb + 1;
        x->sent[i] = 0;
    }
    return LP_OK;
}
