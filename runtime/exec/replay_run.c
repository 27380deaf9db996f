/* One run of a stage in a replay, on the memory of its IPU: what the plan
 * brings is written to its block, entries read what is there, a view sees what
 * it looks at as it is now, and what the run sends leaves from where it is. */
#include <stdio.h>
#include <string.h>

#include "runtime/exec/replay_state.h"
#include "src/passes/ipu/strategy.h"

/* An entry of a run. */
typedef struct When {
    int run;
    uint32_t entry; /* n of the run: its end */
    int64_t mb;
} When;

/* ---- what the plan lets a run have --------------------------------------- */
/* The turning row still has what its forward run brought. */
static bool held(const LpReplay *x, size_t i, int run)
{
    return run >= 0 && lp_ipu_turns(x->p, run) && lp_ipu_holds(x->p, i, run);
}

bool lp_replay_has(const LpReplay *x, size_t i, int run, bool load)
{
    return !lp_ipu_off_chip(x->p, &x->p->step->var[i]) ||
           lp_ipu_transfer(x->p, LP_TRANSFER_VAR, i, run, load) >= 0 ||
           (load && held(x, i, run));
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

/* Does it stay when it has come? */
static bool is_kept(const LpReplay *x, size_t var)
{
    return x->p->strategy->keeps &&
           lp_ipu_off_chip(x->p, &x->p->step->var[var]);
}

/* The block of a variable that comes for the run, or has come for its forward
 * run; 0: none. */
static uint32_t block_of_visitor(const LpReplay *x, size_t var, int run)
{
    const LpStagePass *r = &x->p->pass[run];
    const LpIpuMemory *m = &x->p->memory[r->ipu];
    int of = held(x, var, run) ? lp_pass_of(x->p, r->stage, false) : run;
    for (uint32_t i = 0; i < m->n_span; i++) {
        int for_run = m->span[i].for_run;
        if ((is_kept(x, var) ? for_run > 0 : for_run == of + 1) &&
            m->span[i].var == (int)var)
            return i + 1;
    }
    return 0;
}

static void *visitor(LpReplay *x, size_t var, int run, int64_t mb)
{
    return lp_block_get(x, x->p->pass[run].ipu, block_of_visitor(x, var, run),
                        (LpHolds){LP_NOVAL, (int)var, is_kept(x, var) ? 0 : mb},
                        false);
}

static LpStatus visit(LpReplay *x, size_t var, int run, int64_t mb, LpErr *e)
{
    uint32_t block = block_of_visitor(x, var, run);
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
static void *find(LpReplay *x, size_t i, const When *w)
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
static void *in_place(LpReplay *x, LpVal v, bool made, const When *w)
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
static LpStatus look(LpReplay *x, const When *w, LpVal v, void **at,
                     void **made, LpErr *e);

static LpStatus look_through(LpReplay *x, const When *w, const LpGraphNode *d,
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
static LpStatus look(LpReplay *x, const When *w, LpVal v, void **at,
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
static LpStatus put(LpReplay *x, const When *w, LpVal v, const void *from,
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

static LpStatus write_in_place(LpReplay *x, const When *w, LpVal v,
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
static LpStatus results(LpReplay *x, const When *w, const LpGraphNode *d,
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
static LpStatus check_taken(const LpReplay *x, const When *w,
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
static LpStatus compute(LpReplay *x, const When *w, LpNodeId id, void **at,
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
static int64_t made_bytes(const LpReplay *x, const When *w,
                          const LpGraphNode *d)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < d->n_out; i++) {
        const LpLiveRange *h = lp_replay_range(x, w->run, d->out + i);
        n += h && !h->alias ? value_bytes(x, d->out + i) : 0;
    }
    return n;
}

static LpStatus run_entry(LpReplay *x, const When *w, LpNodeId id, LpErr *e)
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
    if (s == LP_OK)
        s = lp_replay_account(x, x->p->pass[w->run].ipu, x->p->cost[id].cost,
                              made_bytes(x, w, d), e);
    return s;
}

/* ---- what a run brings --------------------------------------------------- */
/* Of the micro-batches that pass a phase together. */
static int64_t part_of(const LpReplay *x, int64_t mb)
{
    return mb % lp_ipu_serial(x->p);
}

/* I/O tiles hold what they move while a row computes. */
static void count_io(LpReplay *x, const LpTransfer *t, LpStreamWhen when)
{
    if (t->io && when != LP_STREAM_ALONE)
        x->ipu[x->p->pass[t->run].ipu].io += t->bytes;
}

/* Has transfer i come for the run, with a row before it? Or it comes now. A
 * variable is there from the first micro-batch that passes the phase. */
static bool has_come(LpReplay *x, const When *w, int i)
{
    LpStreamWhen when;
    if (i < 0)
        return false;
    const LpTransfer *t = &x->p->transfer[i];
    int64_t together = lp_ipu_together(x->p);
    bool moves = lp_ipu_moves(x->p, t, w->mb % together, &when);
    if (moves && (when == LP_STREAM_ALONE || when == LP_STREAM_WITH)) {
        count_io(x, t, when);
        lp_replay_move(x, LP_ACT_LOAD, x->p->pass[w->run].ipu, 0, t->bytes);
        x->brought[i] = w->mb + 1;
    }
    return moves ? x->brought[i] == w->mb + 1
                 : x->brought[i] > 0 &&
                       (x->brought[i] - 1) / together == w->mb / together;
}

/* Has it been in the memory of the IPU since then? */
static bool came_early(const LpReplay *x, const When *w, int i)
{
    LpStreamWhen when;
    return lp_ipu_moves(x->p, &x->p->transfer[i], w->mb % lp_ipu_together(x->p),
                        &when) &&
           (when == LP_STREAM_BETWEEN || when == LP_STREAM_BESIDE) &&
           lp_ipu_comes_early(&x->p->transfer[i]);
}

/* The row with which transfer i has stored; variables have one for all. */
static int64_t *stored(const LpReplay *x, int i, int64_t mb)
{
    bool var = x->p->transfer[i].of == LP_TRANSFER_VAR;
    return &x->stored[i * lp_ipu_serial(x->p) + (var ? 0 : part_of(x, mb))];
}

/* Stores transfer i, or the next row will. */
static void store(LpReplay *x, const When *w, int i)
{
    const LpTransfer *t = &x->p->transfer[i];
    LpStreamWhen when;
    if (!lp_ipu_moves(x->p, t, w->mb % lp_ipu_together(x->p), &when))
        return;
    *stored(x, i, w->mb) = x->n_row + (when == LP_STREAM_BESIDE);
    if (when == LP_STREAM_BESIDE) {
        x->late[i] = true;
        return;
    }
    count_io(x, t, when);
    lp_replay_move(x, LP_ACT_STORE, x->p->pass[w->run].ipu, 0, t->bytes);
}

/* Variables that come from streaming memory, or from other replicas. */
static LpStatus bring_vars(LpReplay *x, const When *w, LpErr *e)
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
        bool loads = lp_ipu_off_chip(p, v) && !held(x, var, w->run);
        if (loads && !has_come(x, w, t))
            continue; /* whoever reads it does not find it */
        if (in_shares(x, v) && part_of(x, w->mb) == 0)
            lp_replay_move(x, LP_ACT_COLLECTIVE, r->ipu, 0,
                           lp_type_bytes(&v->type));
        if (in_shares(x, v) && lp_ipu_gathers_beside(p, v))
            x->ipu[r->ipu].io += lp_type_bytes(&v->type);
        if (!is_kept(x, var) &&
            (in_shares(x, v) || (loads && !came_early(x, w, t))))
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
static LpStatus add_parts(LpReplay *x, const When *w, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    for (size_t i = 0; i < p->n_transfer; i++) {
        const LpTransfer *t = &p->transfer[i];
        if (t->run != w->run || t->of != LP_TRANSFER_VAR ||
            n_parts(x, (int)t->at, w->run) == 0)
            continue;
        if (!t->load)
            store(x, w, (int)i);
        else if (has_come(x, w, (int)i) && !came_early(x, w, (int)i) &&
                 !is_kept(x, t->at))
            LP_TRY(visit(x, t->at, w->run, w->mb, e));
    }
    return LP_OK;
}

/* From the host, or the old value of a variable that is not in its place. */
static LpStatus read_input(LpReplay *x, const When *w, const LpLiveRange *h,
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
static LpStatus read_stash(LpReplay *x, const When *w, LpVal v, LpErr *e)
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
            (s->off_chip && !has_come(x, w, t)))
            break;
        return s->off_chip && came_early(x, w, t)
                   ? LP_OK
                   : put(x, w, v, at->cell->data, e);
    }
    return lp_replay_dead_read(x, v, w->run, e);
}

static LpStatus receive(LpReplay *x, const When *w, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    const LpStagePass *r = &p->pass[w->run];
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        LpSlot *at = &x->link[i][part_of(x, w->mb)];
        if (m->to != w->run)
            continue;
        int t = lp_ipu_transfer(p, LP_TRANSFER_COPY, i, w->run, true);
        if (at->tag != w->mb + 1 || (m->off_chip && !at->cell) ||
            (m->off_chip && !has_come(x, w, t)))
            return lp_replay_dead_read(x, m->v, w->run, e);
        if (!m->off_chip)
            continue;
        if (!came_early(x, w, t))
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
static LpStatus leave_off(LpReplay *x, const When *w, LpVal v, LpSlot *at,
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
static LpStatus leave_here(LpReplay *x, const When *w, LpVal v, LpErr *e)
{
    const LpLiveRange *h = lp_replay_range(x, w->run, v);
    void *from, *made;
    LP_TRY(look(x, w, v, &from, &made, e));
    LpStatus s = h && h->alias ? put(x, w, v, from, e) : LP_OK;
    lp_free(made);
    return s;
}

static LpStatus leave_stash(LpReplay *x, const When *w, LpErr *e)
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
            store(x, w, t);
        LP_TRY(leave_off(x, w, s->v, &x->ring[i][w->mb % s->depth], e));
    }
    return LP_OK;
}

static LpStatus send(LpReplay *x, const When *w, LpErr *e)
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
        store(x, w, t);
        LP_TRY(leave_off(x, w, m->v, &x->link[i][part_of(x, w->mb)], e));
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
static LpStatus write_var(LpReplay *x, const When *w, size_t i, LpErr *e)
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
        store(x, w, lp_ipu_transfer(x->p, LP_TRANSFER_VAR, i, w->run, false));
    if (s == LP_OK)
        lp_replay_output(x, i, from);
    lp_free(made);
    return s;
}

static LpStatus write_vars(LpReplay *x, const When *w, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        LpVal v = x->step->var[i].micro_out;
        if (lp_is_value(v) && !lp_ipu_is_sum(x->p, v) &&
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
    When w = {.run = run, .mb = mb};
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

/* ---- what a row loads for the next one ----------------------------------- */
/* Is a store of what transfer t loads still under way in this row? */
static bool on_its_way(const LpReplay *x, const LpTransfer *t, int64_t mb)
{
    for (size_t i = 0; i < x->p->n_transfer; i++) {
        const LpTransfer *u = &x->p->transfer[i];
        if (u->run >= 0 && !u->load && u->of == t->of && u->at == t->at &&
            *stored(x, (int)i, mb) >= x->n_row)
            return true;
    }
    return false;
}

/* The value that transfer t loads; LP_NOVAL: a variable. */
static LpVal value_of(const LpReplay *x, const LpTransfer *t)
{
    return t->of == LP_TRANSFER_STASH  ? x->p->stash[t->at].v
           : t->of == LP_TRANSFER_COPY ? x->p->copy[t->at].v
                                       : LP_NOVAL;
}

/* Where it lies in streaming memory; NULL: it is not there. */
static const LpSlot *slot_of(const LpReplay *x, const LpTransfer *t, int64_t mb)
{
    const LpSlot *at = t->of == LP_TRANSFER_STASH
                           ? &x->ring[t->at][mb % x->p->stash[t->at].depth]
                           : &x->link[t->at][part_of(x, mb)];
    return at->tag == mb + 1 && at->cell ? at : NULL;
}

/* Into the memory of an IPU, after its last run. */
static LpStatus place_early(LpReplay *x, const LpTransfer *t, const When *w,
                            int64_t turn, const void *from, LpErr *e)
{
    LpVal v = value_of(x, t);
    int ipu = x->p->pass[w->run].ipu;
    const LpLiveRange *h = v ? lp_replay_range(x, w->run, v) : NULL;
    uint32_t block = v ? h ? h->block : 0 : block_of_visitor(x, t->at, w->run);
    if (block == 0)
        return lp_replay_dead_read(x, v, w->run, e);
    LpIpuBytes *u = &x->ipu[ipu];
    const LpLiveSpan *s = &x->p->memory[ipu].span[block - 1];
    int64_t period = turn / lp_ipu_serial(x->p) * u->line;
    u->now = period + s->from;
    char *to =
        lp_block_put(x, ipu, block, (LpHolds){v, v ? -1 : (int)t->at, w->mb},
                     u->now, period + s->to);
    memcpy(to, from,
           (size_t)(v ? value_bytes(x, v)
                      : lp_type_bytes(&x->step->var[t->at].type)));
    return lp_replay_account(x, ipu, NULL, 0, e);
}

static LpStatus load_ahead(LpReplay *x, int i, const When *w, int64_t turn,
                           LpErr *e)
{
    const LpTransfer *t = &x->p->transfer[i];
    LpStreamWhen when;
    if (t->run != w->run || !t->load ||
        !lp_ipu_moves(x->p, t, part_of(x, w->mb), &when) ||
        when == LP_STREAM_ALONE || when == LP_STREAM_WITH)
        return LP_OK;
    LpVal v = value_of(x, t);
    const LpSlot *at = v ? slot_of(x, t, w->mb) : NULL;
    x->lost.freed = false;
    x->lost.over = LP_NOVAL;
    if ((v && !at) || on_its_way(x, t, w->mb))
        return lp_replay_dead_read(x, v ? v : x->step->var[t->at].micro_in,
                                   w->run, e);
    count_io(x, t, when);
    lp_replay_move(x, LP_ACT_LOAD, x->p->pass[w->run].ipu, 0, t->bytes);
    x->brought[i] = w->mb + 1;
    if (!lp_ipu_comes_early(t))
        return LP_OK;
    return place_early(x, t, w, turn,
                       v ? at->cell->data : lp_replay_here(x, t->at), e);
}

LpStatus lp_replay_load_ahead(LpReplay *x, const LpRow *next, int64_t turn,
                              LpErr *e)
{
    for (uint32_t k = 0; k < next->n; k++) {
        const LpAct *a = &next->act[k];
        When w = {.run = a->run, .mb = turn - a->offset};
        for (size_t i = 0; a->kind == LP_ACT_COMPUTE && i < x->p->n_transfer;
             i++)
            LP_TRY(load_ahead(x, (int)i, &w, turn, e));
    }
    return LP_OK;
}

/* What stays for all micro-batches of a weight update has memory from the
 * beginning. */
void lp_replay_begin_kept(LpReplay *x)
{
    for (size_t i = 0; i < x->p->n_transfer; i++) {
        const LpTransfer *t = &x->p->transfer[i];
        if (t->run < 0 || !t->load || t->of != LP_TRANSFER_VAR ||
            !is_kept(x, t->at))
            continue;
        int ipu = x->p->pass[t->run].ipu;
        LpIpuBytes *u = &x->ipu[ipu];
        uint32_t block = block_of_visitor(x, t->at, t->run);
        if (block == 0)
            continue; /* whoever reads it does not find it */
        u->now = 0;
        char *to =
            lp_block_put(x, ipu, block, (LpHolds){LP_NOVAL, (int)t->at, 0}, 0,
                         x->p->micro_batches * u->line - 1);
        memcpy(to, lp_replay_here(x, t->at),
               (size_t)lp_type_bytes(&x->step->var[t->at].type));
    }
}

void lp_replay_store_late(LpReplay *x)
{
    for (size_t i = 0; i < x->p->n_transfer; i++) {
        const LpTransfer *t = &x->p->transfer[i];
        if (!x->late[i])
            continue;
        count_io(x, t, LP_STREAM_BESIDE);
        lp_replay_move(x, LP_ACT_STORE, x->p->pass[t->run].ipu, 0, t->bytes);
        x->late[i] = false;
    }
}

/* Where rows are of several micro-batches it is there for the next period. */
static LpStatus arrive(LpReplay *x, const LpIpuCopy *m, const When *w, LpErr *e)
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
        When w = {from, x->p->pass[from].n, x->sent[i] - 1};
        LP_TRY(arrive(x, m, &w, e));
        x->link[i][part_of(x, w.mb)].tag = w.mb + 1;
        x->sent[i] = 0;
    }
    return LP_OK;
}
