/* The gradient of one direction of a recurrent layer. From the last step to
 * the first, one pass gives the gradients of the step's gates and one product
 * carries them to the state before; the gradients of the weights are then one
 * product each over the whole sequence. Gradients nobody wants are skipped. */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/recurrent_back.h"

static LpRnnBack args_of(const LpRnn *r, void *const *in, void *const *out,
                         char *work)
{
    const LpRnnKindInfo *k = r->info;
    bool lstm = r->kind == LP_RNN_LSTM;
    LpRnnBack a = {.in = in + 1 + k->n_state, .dy = in[0], .dh = in[1]};
    void *const *kept = a.in + k->n_in;
    a.dc = lstm ? in[2] : NULL;
    a.output = kept[0];
    a.gates = k->n_kept > 0 ? kept[1] : kept[0];
    a.cells = lstm ? kept[2] : NULL;
    a.out = out;
    a.work = work;
    a.inner = work + r->inner;
    a.h0 = lp_rnn_operand(r, a.in, LP_RNN_H0);
    a.c0 = lp_rnn_operand(r, a.in, LP_RNN_C0);
    a.h0 = a.h0 ? a.h0 : lp_rnn_scratch(r, &a, LP_RNN_ZERO);
    a.c0 = a.c0 ? a.c0 : lp_rnn_scratch(r, &a, LP_RNN_ZERO);
    return a;
}

static LpStatus start(const LpRnn *r, LpRnnBack *a, LpErr *e)
{
    int64_t wide = r->hidden > r->out ? r->hidden : r->out;
    size_t state = (size_t)(r->batch * r->out) * r->size;
    size_t cell = (size_t)(r->batch * r->hidden) * r->size;
    memset(lp_rnn_scratch(r, a, LP_RNN_ZERO), 0,
           (size_t)(r->batch * wide) * r->size);
    memcpy(lp_rnn_scratch(r, a, LP_RNN_CARRY),
           a->dh ? a->dh : lp_rnn_scratch(r, a, LP_RNN_ZERO), state);
    memcpy(lp_rnn_scratch(r, a, LP_RNN_DIRECT),
           a->dc ? a->dc : lp_rnn_scratch(r, a, LP_RNN_ZERO), cell);
    LP_TRY(lp_product_weights(
        &r->product[LP_RNN_CARRY_STEP], lp_rnn_operand(r, a->in, LP_RNN_W_HH),
        lp_rnn_scratch(r, a, LP_RNN_PACKED), a->inner, &a->hh, e));
    if (!r->projects)
        return LP_OK;
    return lp_product_weights(
        &r->product[LP_RNN_PROJECT], lp_rnn_operand(r, a->in, LP_RNN_W_HR),
        lp_rnn_scratch(r, a, LP_RNN_PACKED_HR), a->inner, &a->hr, e);
}

/* Rows a … b - 1 of a step; dy and carry are of the unprojected state. */
static LpRnnBackward rows_of(const LpRnn *r, const LpRnnBackward *g, int64_t a,
                             int64_t b)
{
    LpRnnBackward p = *g;
    int64_t state = a * r->hidden;
    p.rows = b - a;
    p.dy = lp_rnn_at(r, g->dy, state);
    p.carry = lp_rnn_at(r, g->carry, state);
    p.gates = lp_rnn_at(r, g->gates, a * r->kept);
    p.direct = lp_rnn_at(r, g->direct, state);
    p.dx = lp_rnn_at(r, g->dx, a * r->rows);
    p.dh = lp_rnn_at(r, g->dh, a * r->rows);
    p.h_prev = lp_rnn_at(r, g->h_prev, a * r->out);
    if (r->kind == LP_RNN_LSTM) {
        p.c = lp_rnn_at(r, g->c, state);
        p.c_prev = lp_rnn_at(r, g->c_prev, state);
    }
    return p;
}

static void part(const LpRnn *r, const void *step, int64_t a, int64_t b)
{
    LpRnnBackward p = rows_of(r, step, a, b);
    r->loops->backward[r->kind](&p);
}

/* Rows a … b - 1 of each step. */
typedef struct Slice {
    int number;
    int64_t a, b;
    char *inner;
} Slice;

/* The gradient of the state before the projection: dy and carry. */
static LpStatus unproject(const LpRnn *r, const LpRnnBack *a, int64_t t,
                          const Slice *c, LpRnnBackward *g, LpErr *e)
{
    int64_t at = c->a * r->out;
    void *whole = lp_rnn_at(r, lp_rnn_scratch(r, a, LP_RNN_D_OUTPUT),
                            t * r->batch * r->out + at);
    void *state =
        lp_rnn_at(r, lp_rnn_scratch(r, a, LP_RNN_D_STATE), c->a * r->hidden);
    r->loops->add((c->b - c->a) * r->out, lp_rnn_at(r, g->dy, at),
                  lp_rnn_at(r, g->carry, at), whole);
    g->dy = lp_rnn_scratch(r, a, LP_RNN_D_STATE);
    g->carry = lp_rnn_scratch(r, a, LP_RNN_ZERO);
    return lp_product_run(lp_rnn_of_slice(r, LP_RNN_PROJECT, c->number), whole,
                          a->hr, state, c->inner, e);
}

/* All rows of step s. */
static LpRnnBackward step_of(const LpRnn *r, const LpRnnBack *a, int64_t s)
{
    int64_t t = lp_rnn_place(r, s), last = lp_rnn_place(r, s - 1);
    int64_t h = r->batch * r->hidden, o = r->batch * r->out;
    int64_t row = (t - a->place) * r->batch; /* of the chunk */
    LpRnnBackward g = {
        .rows = r->batch,
        .hidden = r->hidden,
        .dy = a->dy ? lp_rnn_at(r, a->dy, t * o)
                    : lp_rnn_scratch(r, a, LP_RNN_ZERO),
        .carry = lp_rnn_scratch(r, a, LP_RNN_CARRY),
        .gates = lp_rnn_at(r, a->gates, t * r->batch * r->kept),
        .h_prev = s == 0 ? a->h0 : lp_rnn_at(r, a->output, last * o),
        .direct = lp_rnn_scratch(r, a, LP_RNN_DIRECT),
        .dx = lp_rnn_at(r, lp_rnn_scratch(r, a, LP_RNN_D_X), row * r->rows),
        .dh = lp_rnn_at(r, lp_rnn_scratch(r, a, LP_RNN_D_H), row * r->rows),
    };
    if (r->kind == LP_RNN_LSTM) {
        g.c = lp_rnn_at(r, a->cells, t * h);
        g.c_prev = s == 0 ? a->c0 : lp_rnn_at(r, a->cells, last * h);
    }
    return g;
}

static LpStatus step(const LpRnn *r, const LpRnnBack *a, int64_t s,
                     const Slice *c, LpErr *e)
{
    int64_t t = lp_rnn_place(r, s), n = (c->b - c->a) * r->out;
    LpRnnBackward g = step_of(r, a, s);
    if (r->projects)
        LP_TRY(unproject(r, a, t, c, &g, e));
    g = rows_of(r, &g, c->a, c->b);
    if (lp_rnn_wants(r, LP_RNN_W_HH))
        memcpy(lp_rnn_at(r, lp_rnn_scratch(r, a, LP_RNN_BEFORE),
                         ((t - a->place) * r->batch + c->a) * r->out),
               g.h_prev, (size_t)n * r->size);
    lp_rnn_pass(r, part, &g, g.rows);
    if (s == 0 && !lp_rnn_wants(r, LP_RNN_H0))
        return LP_OK;
    return lp_product_run(
        lp_rnn_of_slice(r, LP_RNN_CARRY_STEP, c->number), g.dh, a->hh,
        lp_rnn_at(r, lp_rnn_scratch(r, a, LP_RNN_CARRY), c->a * r->out),
        c->inner, e);
}

static LpStatus walk(const LpRnn *r, int slice, const void *ctx, LpErr *e)
{
    const LpRnnBack *a = ctx;
    int64_t n = r->batch / r->slices;
    Slice c = {.number = slice,
               .a = slice * n,
               .b = (slice + 1) * n,
               .inner = a->inner + (size_t)slice * r->apart};
    for (int64_t s = a->step + r->chunk - 1; s >= a->step && !lp_kernel_stops();
         s--)
        LP_TRY(step(r, a, s, &c, e));
    return LP_OK;
}

static void state_gradients(const LpRnn *r, const LpRnnBack *a)
{
    int64_t o = r->batch * r->out;
    const char *carry = lp_rnn_scratch(r, a, LP_RNN_CARRY),
               *direct = lp_rnn_scratch(r, a, LP_RNN_DIRECT);
    if (lp_rnn_wants(r, LP_RNN_C0))
        memcpy(lp_rnn_result(r, a, LP_RNN_C0), direct,
               (size_t)(r->batch * r->hidden) * r->size);
    if (!lp_rnn_wants(r, LP_RNN_H0))
        return;
    bool adds = r->kind == LP_RNN_GRU;
    r->loops->add(o, carry, adds ? direct : lp_rnn_scratch(r, a, LP_RNN_ZERO),
                  lp_rnn_result(r, a, LP_RNN_H0));
}

LP_PLAIN_CORE(backward)
{
    const LpRnn *r = lp_plain_owned(p);
    LpRnnBack a = args_of(r, in, out, work);
    LP_TRY(lp_rnn_lookups(r, in, &a.at, e));
    LP_TRY(start(r, &a, e));
    LP_TRY(lp_rnn_start_sums(r, &a, e));
    for (a.step = r->steps - r->chunk; a.step >= 0 && !lp_kernel_stops();
         a.step -= r->chunk) {
        int64_t last = a.step + r->chunk - 1;
        a.place = lp_rnn_place(r, r->reverse ? last : a.step);
        LP_TRY(lp_rnn_walk(r, walk, &a, e));
        LP_TRY(lp_rnn_add_chunk(r, &a, e));
    }
    state_gradients(r, &a);
    return lp_rnn_finish_sums(r, &a, e);
}

/* ---- preparation --------------------------------------------------------- */
static LpStatus plan(LpRnn *r, LpErr *e)
{
    int64_t wide = r->hidden > r->out ? r->hidden : r->out;
    const LpProduct *carry = &r->product[LP_RNN_CARRY_STEP];
    const LpProduct *project = &r->product[LP_RNN_PROJECT];
    LP_TRY(
        lp_rnn_step_product(r, LP_RNN_CARRY_STEP, r->out, r->rows, false, e));
    if (r->projects)
        LP_TRY(lp_rnn_step_product(r, LP_RNN_PROJECT, r->hidden, r->out, false,
                                   e));
    lp_rnn_space(r, LP_RNN_ZERO, r->batch * wide);
    lp_rnn_space(r, LP_RNN_CARRY, r->batch * r->out);
    lp_rnn_space(r, LP_RNN_DIRECT, r->batch * r->hidden);
    lp_rnn_space(r, LP_RNN_D_STATE, r->projects ? r->batch * r->hidden : 0);
    lp_rnn_space(r, LP_RNN_PACKED, (int64_t)(carry->packed_bytes / r->size));
    lp_rnn_space(r, LP_RNN_PACKED_HR,
                 (int64_t)(project->packed_bytes / r->size));
    return lp_rnn_plan_sums(r, e);
}

LpStatus lp_rnn_back_prepare(const LpKernelReq *q, LpKernel *k, LpErr *e)
{
    LpRnn *r = lp_calloc(1, sizeof *r);
    LP_FAIL_IF(!r, e, LP_E_MEMORY, "out of memory");
    const LpRnnKindInfo *info = lp_rnn_info(lp_rnn_kind(q->op, q->attr));
    int first = 1 + info->n_state, n_in = first + info->n_in + 1 + info->n_kept;
    LpStatus s =
        lp_rnn_fill(r, q, q->in + first, q->n_in > n_in ? n_in : -1, e);
    int64_t need = lp_rnn_need(q->op, q->attr);
    for (int i = 0; i < LP_RNN_ROLES; i++)
        if (info->at[i] >= 0 && need >> info->at[i] & 1)
            r->need |= 1u << i;
    if (s == LP_OK)
        s = plan(r, e);
    return lp_rnn_finish(r, s, q, k, backward, e);
}
