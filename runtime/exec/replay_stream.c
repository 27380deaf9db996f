/* What a replay moves through streaming memory: for a run, ahead of it and
 * behind it, and what stays on the IPU in between. */
#include <string.h>

#include "runtime/exec/replay_state.h"
#include "src/passes/ipu/strategy.h"

bool lp_replay_held(const LpReplay *x, size_t i, int run)
{
    return run >= 0 && lp_ipu_turns(x->p, run) && lp_ipu_holds(x->p, i, run);
}

bool lp_replay_keeps(const LpReplay *x, size_t var)
{
    return x->p->strategy->keeps &&
           lp_ipu_off_chip(x->p, &x->p->step->var[var]);
}

uint32_t lp_replay_visitor_block(const LpReplay *x, size_t var, int run)
{
    const LpStagePass *r = &x->p->pass[run];
    const LpIpuMemory *m = &x->p->memory[r->ipu];
    int of =
        lp_replay_held(x, var, run) ? lp_pass_of(x->p, r->stage, false) : run;
    for (uint32_t i = 0; i < m->n_span; i++) {
        int for_run = m->span[i].for_run;
        if ((lp_replay_keeps(x, var) ? for_run > 0 : for_run == of + 1) &&
            m->span[i].var == (int)var)
            return i + 1;
    }
    return 0;
}

int64_t lp_replay_part_of(const LpReplay *x, int64_t mb)
{
    return mb % lp_ipu_serial(x->p);
}

/* I/O tiles hold what they move while a row computes. */
static void count_io(LpReplay *x, const LpTransfer *t, LpStreamWhen when)
{
    if (t->io && when != LP_STREAM_ALONE)
        x->ipu[t->ipu].io += t->bytes;
}

/* A variable is there from the first micro-batch that passes the phase. */
bool lp_replay_has_come(LpReplay *x, const LpWhen *w, int i)
{
    LpStreamWhen when;
    if (i < 0)
        return false;
    const LpTransfer *t = &x->p->transfer[i];
    int64_t together = lp_ipu_together(x->p);
    bool moves = lp_ipu_moves(x->p, t, w->mb, &when);
    if (moves && (when == LP_STREAM_ALONE || when == LP_STREAM_WITH)) {
        count_io(x, t, when);
        lp_replay_move(x, LP_ACT_LOAD, x->p->pass[w->run].ipu, 0, t->bytes);
        x->brought[i] = w->mb + 1;
    }
    return moves ? x->brought[i] == w->mb + 1
                 : x->brought[i] > 0 &&
                       (x->brought[i] - 1) / together == w->mb / together;
}

bool lp_replay_came_early(const LpReplay *x, const LpWhen *w, int i)
{
    LpStreamWhen when;
    return lp_ipu_moves(x->p, &x->p->transfer[i], w->mb, &when) &&
           (when == LP_STREAM_BETWEEN || when == LP_STREAM_BESIDE) &&
           lp_ipu_comes_early(&x->p->transfer[i]);
}

/* The row with which transfer i has stored; variables have one for all. */
static int64_t *stored(const LpReplay *x, int i, int64_t mb)
{
    bool var = x->p->transfer[i].of == LP_TRANSFER_VAR;
    return &x->stored[i * lp_ipu_serial(x->p) +
                      (var ? 0 : lp_replay_part_of(x, mb))];
}

void lp_replay_store(LpReplay *x, const LpWhen *w, int i)
{
    const LpTransfer *t = &x->p->transfer[i];
    LpStreamWhen when;
    if (!lp_ipu_moves(x->p, t, w->mb, &when))
        return;
    *stored(x, i, w->mb) = x->n_row + (when == LP_STREAM_BESIDE);
    if (when == LP_STREAM_BESIDE) {
        x->late[i] = true;
        return;
    }
    count_io(x, t, when);
    lp_replay_move(x, LP_ACT_STORE, x->p->pass[w->run].ipu, 0, t->bytes);
}

/* ---- ahead of a row ------------------------------------------------------ */
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
                           : &x->link[t->at][lp_replay_part_of(x, mb)];
    return at->tag == mb + 1 && at->cell ? at : NULL;
}

/* Into the memory of an IPU, after its last run. */
static LpStatus place_early(LpReplay *x, const LpTransfer *t, const LpWhen *w,
                            int64_t turn, const void *from, LpErr *e)
{
    LpVal v = value_of(x, t);
    int ipu = x->p->pass[w->run].ipu;
    const LpLiveRange *h = v ? lp_replay_range(x, w->run, v) : NULL;
    uint32_t block =
        v ? h ? h->block : 0 : lp_replay_visitor_block(x, t->at, w->run);
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
           (size_t)(v ? lp_type_bytes(lp_graph_type(x->g, v))
                      : lp_type_bytes(&x->step->var[t->at].type)));
    return lp_replay_account(x, ipu, NULL, 0, e);
}

static LpStatus load_ahead(LpReplay *x, int i, const LpWhen *w, int64_t turn,
                           LpErr *e)
{
    const LpTransfer *t = &x->p->transfer[i];
    LpStreamWhen when;
    if (t->run != w->run || !t->load || !lp_ipu_moves(x->p, t, w->mb, &when) ||
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
        LpWhen w = {.run = a->run, .mb = turn - a->offset};
        if (a->kind != LP_ACT_COMPUTE)
            continue;
        for (size_t i = 0; i < x->p->n_transfer; i++)
            LP_TRY(load_ahead(x, (int)i, &w, turn, e));
        lp_replay_gather_ahead(x, &w);
    }
    return LP_OK;
}

/* In the last row of an update that is a phase: states that it has, for all
 * replicas alike. */
static LpStatus load_state(LpReplay *x, const LpTransfer *t, LpErr *e)
{
    LpIpuBytes *u = &x->ipu[t->ipu];
    count_io(x, t, t->edge);
    lp_replay_move(x, LP_ACT_LOAD, t->ipu, 0, t->bytes);
    for (uint32_t k = 0; k < x->p->memory[t->ipu].n_span; k++) {
        const LpLiveSpan *s = &x->p->memory[t->ipu].span[k];
        if (!s->update || s->v || s->var != (int)t->at ||
            (int64_t)s->from >= u->line)
            continue;
        u->now = s->from;
        lp_block_put(x, t->ipu, k + 1,
                     (LpHolds){LP_NOVAL, (int)t->at, x->replica}, u->now,
                     s->to);
        return lp_replay_account(x, t->ipu, NULL, 0, e);
    }
    return LP_OK;
}

LpStatus lp_replay_load_states(LpReplay *x, const LpRow *row, int64_t turn,
                               LpErr *e)
{
    const LpIpuPlan *p = x->p;
    bool last = lp_replay_part_of(x, turn) == lp_ipu_serial(p) - 1,
         runs = false;
    for (uint32_t i = 0; i < row->n; i++)
        runs = runs || row->act[i].run == p->n_pass - 1;
    for (size_t i = 0; i < p->n_transfer && runs && last; i++)
        if (p->transfer[i].run < 0 && p->transfer[i].edge != LP_STREAM_ALONE)
            LP_TRY(load_state(x, &p->transfer[i], e));
    return LP_OK;
}

void lp_replay_begin_kept(LpReplay *x)
{
    for (size_t i = 0; i < x->p->n_transfer; i++) {
        const LpTransfer *t = &x->p->transfer[i];
        if (t->run < 0 || !t->load || t->of != LP_TRANSFER_VAR ||
            !lp_replay_keeps(x, t->at))
            continue;
        int ipu = t->ipu;
        LpIpuBytes *u = &x->ipu[ipu];
        uint32_t block = lp_replay_visitor_block(x, t->at, t->run);
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
        lp_replay_move(x, LP_ACT_STORE, t->ipu, 0, t->bytes);
        x->late[i] = false;
    }
}
