/* Running a program: device iterations over replicas over micro-batches, then
 * the sum over replicas and the update. Code is called with the variables of
 * the replica and the packed copies as arguments. Replicas that do little run
 * side by side, each lane with an arena of its own. Those of a program with
 * collectives have a lane each and take turns: up to the next collective of a
 * micro-batch, then the next replica. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/exec/exec_impl.h"
#include "runtime/exec/sum.h"
#include "src/autodiff/op_call.h"
#include "src/base/interrupt.h"
#include "src/base/process.h"

/* Replicas are dealt out in order to the processes. */
static LpStatus set_replicas(LpExec *x, const LpComm *comm, LpErr *e)
{
    const LpTopology *t = &x->p->topology;
    LP_FAIL_IF(
        comm->size * t->local != t->replicas ||
            comm->rank * t->local != t->first,
        e, LP_E_VALUE,
        "the program runs replicas %" PRId64 " to %" PRId64 " of %" PRId64
        ", which process %" PRId64 " of %" PRId64 " has not",
        t->first, t->first + t->local - 1, t->replicas, comm->rank, comm->size);
    x->comm = comm;
    x->replicas = t->local;
    x->first = t->first;
    x->grouped = lp_step_grouped(x->p->step);
    return LP_OK;
}

LpStatus lp_exec_new(LpProgram *p, const LpComm *comm, LpExec **out, LpErr *e)
{
    LpExec *x = lp_calloc(1, sizeof *x);
    if (!x) {
        lp_program_free(p);
        return lp_no_memory(e);
    }
    x->p = p;
    x->n_var = p->step->n_var;
    x->n_arg = x->n_var + p->n_packed;
    LpStatus s = set_replicas(x, comm, e);
    if (s == LP_OK)
        s = lp_exec_set_up(x, e);
    if (s != LP_OK) {
        lp_exec_free(x);
        return s;
    }
    *out = x;
    return LP_OK;
}

void lp_exec_free(LpExec *x)
{
    if (!x)
        return;
    lp_exec_tear_down(x);
    lp_profile_release(x->profile);
    lp_program_free(x->p);
    lp_free(x);
}

const LpProgram *lp_exec_program(const LpExec *x)
{
    return x->p;
}

int64_t lp_exec_replicas(const LpExec *x)
{
    return x->replicas;
}

int lp_exec_lanes(const LpExec *x)
{
    return x->lanes;
}

void lp_exec_set_host(LpExec *x, const struct LpHostCalls *host)
{
    x->host = host;
}

bool lp_exec_running(const LpExec *x)
{
    return x->running;
}

void lp_exec_rng_get(const LpExec *x, uint64_t state[2])
{
    state[0] = x->seed;
    state[1] = x->micro_batch;
}

void lp_exec_rng_set(LpExec *x, const uint64_t state[2])
{
    x->seed = state[0];
    x->micro_batch = state[1];
}

/* ---- streams ------------------------------------------------------------ */
int64_t lp_exec_out_slices(const LpExec *x, LpOutMode mode, int64_t period)
{
    const LpStep *s = x->p->step;
    int64_t per_iteration = s->gradient_accumulation * x->replicas;
    switch (mode) {
    case LP_OUT_ALL:
        return s->device_iterations * per_iteration;
    case LP_OUT_EVERY_N:
        return s->device_iterations / period * per_iteration;
    case LP_OUT_FINAL:
    case LP_OUT_SUM:
        break;
    }
    return x->replicas;
}

/* Where micro-batch a of iteration d of replica r goes, or -1: unwanted. */
static inline int64_t out_slot(const LpExec *x, const LpStream *st, int64_t d,
                               int64_t a, int64_t r)
{
    const LpStep *s = x->p->step;
    int64_t acc = s->gradient_accumulation, at = a * x->replicas + r;
    switch (st->mode) {
    case LP_OUT_ALL:
        return d * acc * x->replicas + at;
    case LP_OUT_EVERY_N:
        if ((d + 1) % st->period != 0)
            return -1;
        return ((d + 1) / st->period - 1) * acc * x->replicas + at;
    case LP_OUT_FINAL:
        return d == s->device_iterations - 1 && a == acc - 1 ? r : -1;
    case LP_OUT_SUM:
        return d == 0 && a == 0 ? r : -1; /* later ones are added */
    }
    return -1;
}

static void bind_streams(LpExec *x, const LpStream *stream, int64_t d,
                         int64_t a, int64_t r, const LpLane *lane)
{
    const LpStep *s = x->p->step;
    int64_t slice = (d * s->gradient_accumulation + a) * x->replicas + r;
    for (size_t k = 0; k < x->n_stream; k++) {
        uint32_t i = x->stream[k];
        const LpVariable *v = &s->var[i];
        size_t bytes = lp_var_bytes(v);
        char *p;
        if (v->role == LP_VAR_STREAM_IN) {
            p = (char *)(uintptr_t)stream[i].in + (size_t)slice * bytes;
        } else {
            int64_t slot = out_slot(x, &stream[i], d, a, r);
            p = slot < 0 ? x->spare[i] + (size_t)(lane - x->lane) * bytes
                         : (char *)stream[i].out + (size_t)slot * bytes;
        }
        *lp_exec_at(x, r, i) = p;
    }
}

static void add_to(const LpVariable *v, void *sum, void *more)
{
    void *pair[2] = {sum, more};
    lp_sum_buffers(v->type.dtype, pair, 2, 1, lp_numel(&v->type), NULL);
}

/* Sum mode: what went to the spare place is added to the replica's slice. */
static void add_summed(LpExec *x, const LpStream *stream, int64_t a, int64_t r)
{
    const LpStep *s = x->p->step;
    bool last = a == s->gradient_accumulation - 1;
    for (size_t k = 0; k < x->n_stream; k++) {
        uint32_t i = x->stream[k];
        const LpVariable *v = &s->var[i];
        char *got = *lp_exec_at(x, r, i);
        if (v->role != LP_VAR_STREAM_OUT || stream[i].mode != LP_OUT_SUM ||
            (last && lp_var_shows_update(s, v)))
            continue;
        char *sum = (char *)stream[i].out + (size_t)r * lp_var_bytes(v);
        if (got != sum)
            add_to(v, sum, got);
    }
}

/* ---- running ------------------------------------------------------------ */
static void lap(LpExec *x, uint32_t row, int64_t replica)
{
    if (x->timing)
        lp_profile_lap(x->timing, row, replica);
}

/* Starts the sums of accumulators that are final after `done` instructions of
 * the last micro-batch of the last replica. */
static LpStatus start_sums(LpExec *x, size_t done, LpErr *e)
{
    size_t first = x->n_started;
    for (; x->n_started < x->p->n_reduce; x->n_started++) {
        LpReduction *d = &x->reduction[x->n_started];
        if (x->p->reduce[x->n_started].after > done)
            break;
        d->rounding.rc = (LpRunCtx){.seed = x->seed,
                                    .micro_batch = (uint32_t)x->micro_batch};
        LP_TRY(lp_exec_move_sum(x, d, false, e));
        LP_TRY(x->comm->start(x->comm, d, e));
    }
    if (x->n_started > first)
        lap(x, LP_PROFILE_SUM, -1);
    return LP_OK;
}

/* Instructions from .. to - 1. `last`: no other micro-batch of the iteration
 * runs beside it or after it. */
static LpStatus run_part(LpExec *x, const LpLane *lane, const LpCode *c,
                         size_t from, size_t to, int64_t replica,
                         const LpRunCtx *rc, bool last, LpErr *e)
{
    LpFrame f = {.arg = lp_exec_at(x, replica, 0),
                 .arena = lane->arena,
                 .work = lane->work,
                 .wide = lane->wide};
    LpProfile *t = x->timing;
    bool micro = c == &x->p->micro;
    int64_t trap = lp_trap_before(x, c, replica, rc);
    for (size_t i = from; i < to; i++) {
        if ((int64_t)i == trap)
            return lp_trap_spring(x, e);
        if (micro && lp_interrupt_raised())
            return lp_fail(e, LP_E_INTERRUPT, "interrupted");
        if (micro && x->n_undo > 0)
            lp_exec_keep_before(x, replica, i, &f);
        LP_TRY(lp_instr_run(&c->instr[i], &f, rc, e));
        if (t)
            lp_profile_lap(t, (micro ? t->micro : t->update) + (uint32_t)i,
                           micro ? replica : -1);
        if (last)
            LP_TRY(start_sums(x, i + 1, e));
    }
    return LP_OK;
}

/* With the clock on, replicas run one after the other. */
static bool one_lane(const LpExec *x)
{
    return x->lanes == 1 || x->timing;
}

/* Of the replicas here that are in the group of replica r: the last one before
 * `before`; -1: there is none. */
static int64_t member_before(const LpExec *x, LpGroup g, int64_t r,
                             int64_t before)
{
    int64_t all = x->p->step->replicas, of = lp_group_of(g, all, x->first + r);
    while (before-- > 0)
        if (lp_group_of(g, all, x->first + before) == of)
            return before;
    return -1;
}

/* Weights that micro-batches write go from each replica of a group to the next,
 * and (`last`) from the last one to all. */
static void hand_on(LpExec *x, int64_t r, bool last)
{
    for (size_t k = 0; k < x->n_handed; k++) {
        const LpVariable *v = &x->p->step->var[x->handed[k]];
        int64_t from = member_before(x, v->group, r, last ? x->replicas : r);
        if (from >= 0 && from != r)
            memcpy(*lp_exec_at(x, r, x->handed[k]),
                   *lp_exec_at(x, from, x->handed[k]),
                   (size_t)lp_program_var_bytes(x->p, x->handed[k]));
    }
}

/* A device iteration of replica r begins. */
static void begin_replica(LpExec *x, int64_t r)
{
    for (size_t k = 0; k < x->n_sum; k++)
        memset(*lp_exec_at(x, r, x->sum[k]), 0,
               (size_t)lp_program_var_bytes(x->p, x->sum[k]));
    hand_on(x, r, false);
    lap(x, LP_PROFILE_ZERO, r);
}

static LpRunCtx context(const LpExec *x, int64_t a, int64_t r)
{
    LpRunCtx rc = {
        .seed = x->seed, .replica = (uint32_t)(x->first + r), .host = x->host};
    rc.micro_batch = (uint32_t)(x->micro_batch + (uint64_t)a);
    return rc;
}

static LpStatus run_replica(LpExec *x, const LpLane *lane,
                            const LpStream *stream, int64_t d, int64_t r,
                            LpErr *e)
{
    const LpStep *s = x->p->step;
    const LpCode *c = &x->p->micro;
    bool last = r == x->replicas - 1 && one_lane(x) && !x->plain;
    begin_replica(x, r);
    for (int64_t a = 0; a < s->gradient_accumulation; a++) {
        LpRunCtx rc = context(x, a, r);
        bind_streams(x, stream, d, a, r, lane);
        lap(x, LP_PROFILE_STREAMS, r);
        LP_TRY(run_part(x, lane, c, 0, c->n, r, &rc,
                        last && a == s->gradient_accumulation - 1, e));
        add_summed(x, stream, a, r);
    }
    return LP_OK;
}

/* All replicas up to the instruction `to`. */
static LpStatus run_each(LpExec *x, size_t from, size_t to, int64_t a, LpErr *e)
{
    bool last = a == x->p->step->gradient_accumulation - 1 && !x->plain;
    for (int64_t r = 0; r < x->replicas; r++) {
        LpRunCtx rc = context(x, a, r);
        LP_TRY(run_part(x, &x->lane[r], &x->p->micro, from, to, r, &rc,
                        last && r == x->replicas - 1, e));
    }
    return LP_OK;
}

static LpStatus meet(LpExec *x, size_t i, int64_t a, LpErr *e)
{
    const LpCode *c = &x->p->micro;
    LpRunCtx rc;
    for (int64_t r = 0; r < x->replicas; r++) {
        rc = context(x, a, r);
        if (lp_trap_before(x, c, r, &rc) == (int64_t)i)
            return lp_trap_spring(x, e);
    }
    LP_TRY(lp_exec_meet(x, &c->instr[i], &rc, e));
    if (x->timing)
        lap(x, x->timing->micro + (uint32_t)i, -1);
    return LP_OK;
}

/* A micro-batch of all replicas, which take turns from one collective to the
 * next. */
static LpStatus run_meeting(LpExec *x, int64_t a, LpErr *e)
{
    const LpCode *c = &x->p->micro;
    size_t from = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!lp_exec_is_meeting(&c->instr[i]))
            continue;
        LP_TRY(run_each(x, from, i, a, e));
        LP_TRY(meet(x, i, a, e));
        from = i + 1;
    }
    return run_each(x, from, c->n, a, e);
}

static LpStatus run_together(LpExec *x, const LpStream *stream, int64_t d,
                             LpErr *e)
{
    for (int64_t r = 0; r < x->replicas; r++)
        begin_replica(x, r);
    for (int64_t a = 0; a < x->p->step->gradient_accumulation; a++) {
        for (int64_t r = 0; r < x->replicas; r++)
            bind_streams(x, stream, d, a, r, &x->lane[r]);
        lap(x, LP_PROFILE_STREAMS, -1);
        LP_TRY(run_meeting(x, a, e));
        for (int64_t r = 0; r < x->replicas; r++)
            add_summed(x, stream, a, r);
    }
    return LP_OK;
}

/* Replicas first, first + lanes, … on a lane. */
static LpStatus run_lane(LpExec *x, int64_t first, int lanes,
                         const LpStream *stream, int64_t d, LpErr *e)
{
    LpLane *lane = &x->lane[first];
    for (lane->replica = first; lane->replica < x->replicas;
         lane->replica += lanes)
        LP_TRY(run_replica(x, lane, stream, d, lane->replica, e));
    return LP_OK;
}

/* The error is the first replica's. */
static LpStatus run_replicas(LpExec *x, const LpStream *stream, int64_t d,
                             LpErr *e)
{
    if (x->meets)
        return run_together(x, stream, d, e);
    if (one_lane(x))
        return run_lane(x, 0, 1, stream, d, e);
#pragma omp parallel for num_threads(x->lanes) schedule(static, 1)
    for (int i = 0; i < x->lanes; i++) {
        x->lane[i].err = (LpErr){0};
        run_lane(x, i, x->lanes, stream, d, &x->lane[i].err);
    }
    const LpLane *failed = NULL;
    for (int i = 0; i < x->lanes; i++) {
        const LpLane *l = &x->lane[i];
        if (l->err.code != LP_OK && (!failed || l->replica < failed->replica))
            failed = l;
    }
    if (!failed)
        return LP_OK;
    *e = failed->err;
    return e->code;
}

/* The first replica here of the group that replica r, counted here, is in. */
static int64_t leader(const LpExec *x, LpGroup g, int64_t r)
{
    int64_t all = x->p->step->replicas, of = lp_group_of(g, all, x->first + r);
    int64_t i = 0;
    while (lp_group_of(g, all, x->first + i) != of)
        i++;
    return i;
}

/* Where every replica runs the update, every one has the sum of its group. */
static void share_sum(const LpExec *x, const LpReduction *d)
{
    size_t bytes = (size_t)d->n * lp_dtype_size(d->dtype);
    for (int64_t r = 0; r < x->replicas; r++) {
        int64_t from = leader(x, d->group, r);
        if (from != r)
            memcpy(d->local[r], d->local[from], bytes);
    }
}

static LpStatus wait_for_sum(LpExec *x, const LpReduction *d, LpErr *e)
{
    LP_TRY(x->comm->wait(x->comm, d, e));
    if (x->grouped)
        share_sum(x, d);
    return lp_exec_move_sum(x, d, true, e);
}

/* For all that were started, after a failure too: the buffers are the
 * communication's until then. The error is the first one's. */
static LpStatus wait_for_sums(LpExec *x, LpErr *e)
{
    LpErr first = {0};
    for (size_t i = 0; i < x->n_started; i++) {
        LpErr here = {0};
        if (wait_for_sum(x, &x->reduction[i], &here) != LP_OK && !first.code)
            first = here;
    }
    x->n_started = 0;
    if (first.code)
        *e = first;
    return first.code;
}

static LpStatus sum_replicas(LpExec *x, LpErr *e)
{
    LP_TRY(start_sums(x, SIZE_MAX, e));
    LP_TRY(wait_for_sums(x, e));
    lap(x, LP_PROFILE_SUM, -1);
    return LP_OK;
}

static LpStatus update(LpExec *x, LpErr *e)
{
    for (int64_t r = 0; r < (x->grouped ? x->replicas : 1); r++) {
        /* all round alike: those of a group stay equal */
        LpRunCtx rc = {.seed = x->seed};
        rc.micro_batch = (uint32_t)x->micro_batch;
        const LpCode *c = &x->p->update;
        LP_TRY(run_part(x, x->lane, c, 0, c->n, r, &rc, false, e));
    }
    return LP_OK;
}

/* One replica's slice of an output that shows an updated variable. */
static LpStatus show(LpExec *x, const LpStream *st, size_t i, int64_t d,
                     int64_t r, LpErr *e)
{
    const LpStep *s = x->p->step;
    const LpVariable *v = &s->var[i];
    size_t of = (size_t)v->param;
    int64_t slot = out_slot(x, st, d, s->gradient_accumulation - 1, r);
    if (slot >= 0)
        return lp_exec_read(
            x, of, r, (char *)st->out + (size_t)slot * lp_var_bytes(v), e);
    if (st->mode != LP_OUT_SUM)
        return LP_OK;
    LP_TRY(lp_exec_read(x, of, r, x->spare[i], e));
    add_to(v, (char *)st->out + (size_t)r * lp_var_bytes(v), x->spare[i]);
    return LP_OK;
}

static LpStatus show_updated(LpExec *x, const LpStream *stream, int64_t d,
                             LpErr *e)
{
    const LpStep *s = x->p->step;
    for (size_t i = 0; i < x->n_var && x->shows; i++)
        for (int64_t r = 0; r < x->replicas; r++)
            if (lp_var_shows_update(s, &s->var[i]))
                LP_TRY(show(x, &stream[i], i, d, r, e));
    return LP_OK;
}

/* ---- guards ------------------------------------------------------------- */
/* Whether the slices that an iteration has given an output are finite. */
static bool is_finite(const LpExec *x, const LpStream *st, size_t i, int64_t d)
{
    const LpVariable *v = &x->p->step->var[i];
    int64_t n = lp_numel(&v->type), size = (int64_t)lp_var_bytes(v);
    for (int64_t a = 0; a < x->p->step->gradient_accumulation; a++)
        for (int64_t r = 0; r < x->replicas; r++) {
            int64_t slot = out_slot(x, st, d, a, r);
            const char *p = (const char *)st->out + slot * size;
            for (int64_t k = 0; k < n && slot >= 0; k++, p += size / n)
                if (!isfinite(lp_scalar_f(lp_scalar_load(v->type.dtype, p))))
                    return false;
        }
    return true;
}

static bool is_held(const LpExec *x, const LpStream *stream, int64_t d)
{
    for (size_t k = 0; k < x->n_stream; k++) {
        const LpStream *st = &stream[x->stream[k]];
        if (st->guard && !is_finite(x, st, x->stream[k], d))
            return true;
    }
    return false;
}

static LpStatus update_unless_held(LpExec *x, const LpStream *stream, int64_t d,
                                   LpErr *e)
{
    if (is_held(x, stream, d)) {
        lp_exec_put_back(x);
        x->held++;
    } else if (!x->gathers) {
        LP_TRY(update(x, e));
    }
    return LP_OK;
}

int64_t lp_exec_held(const LpExec *x)
{
    return x->held;
}

static LpStatus iterate(LpExec *x, const LpStream *stream, int64_t d, LpErr *e)
{
    LP_TRY(lp_exec_pack(x, e));
    lp_exec_keep(x);
    lp_trap_begin(x, d);
    lap(x, LP_PROFILE_BUFFERS, -1);
    lp_kernels_may_stop = true;
    LpStatus s = run_replicas(x, stream, d, e);
    lp_kernels_may_stop = false;
    if (s == LP_OK && lp_interrupt_raised()) /* the last kernel may have */
        s = lp_fail(e, LP_E_INTERRUPT, "interrupted");
    if (s == LP_OK && lp_trap_at_end(x))
        s = lp_trap_spring(x, e);
    for (int64_t r = 0; r < x->replicas; r++)
        hand_on(x, r, true);
    if (s == LP_OK)
        s = sum_replicas(x, e);
    if (s != LP_OK) {
        LpErr other;
        (void)wait_for_sums(x, &other);
        lp_exec_put_back(x);
        return s;
    }
    LP_TRY(update_unless_held(x, stream, d, e));
    LP_TRY(show_updated(x, stream, d, e));
    if (x->p->update.n > 0)
        memset(x->fresh, 0, x->p->n_packed * sizeof *x->fresh);
    x->micro_batch += (uint64_t)x->p->step->gradient_accumulation;
    return LP_OK;
}

void lp_exec_set_gathers(LpExec *x, bool on)
{
    x->gathers = on;
}

/* ---- profiles ----------------------------------------------------------- */
void lp_exec_set_profile(LpExec *x, bool on)
{
    x->always = on;
}

const LpProfile *lp_exec_profile(const LpExec *x)
{
    return x->profile;
}

LpStatus lp_exec_run(LpExec *x, const LpStream *stream, int64_t *finished,
                     LpErr *e)
{
    *finished = 0;
    LP_FAIL_IF(x->running, e, LP_E_RUNTIME, "this executor is running already");
    LP_FAIL_IF(lp_in_worker(), e, LP_E_RUNTIME,
               "a compiled model runs in the process that compiled it, not in "
               "a data loader's worker");
    LP_TRY(lp_exec_settle(x, e));
    LP_TRY(lp_bound_enter(x, e));
    x->timing = NULL;
    if (x->always || lp_profile_session()) {
        LP_TRY(lp_profile_enter(&x->profile, x->p, e));
        x->timing = x->profile;
    }
    LpStatus s = lp_arena_enter(x, e);
    x->running = true;
    x->held = 0;
    int64_t n = x->p->step->device_iterations;
    while (*finished < n && s == LP_OK) {
        s = iterate(x, stream, *finished, e);
        if (s == LP_OK)
            ++*finished;
    }
    x->running = false;
    lp_arena_leave(x);
    lp_bound_leave(x);
    lp_exec_set_trap(x, -1, 0);
    x->finished = *finished;
    if (x->timing)
        lp_profile_leave(x->timing);
    if (s != LP_OK)
        lp_err_context(e,
                       "%" PRId64 " of %" PRId64 " device iterations "
                       "finished",
                       *finished, n);
    return s;
}
