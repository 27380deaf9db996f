/* The gradient of one direction of a recurrent layer. From the last step to
 * the first, one pass gives the gradients of the step's gates and one product
 * carries them to the state before; the gradients of the weights are then one
 * product each over the whole sequence. Gradients nobody wants are skipped. */
#include <string.h>

#include "src/base/mem.h"
#include "src/ops/kernel/nn.h"
#include "src/ops/kernel/recurrent.h"

enum {
    CARRY_STEP,
    PROJECT,
    FOR_X,
    FOR_W_IH,
    FOR_W_HH,
    FOR_W_HR
};     /* products */
enum { /* scratch */
       ZERO,
       CARRY,
       DIRECT,
       D_X,      /* of the input's share, [T, B, rows] */
       D_H,      /* of the state's share */
       BEFORE,   /* the states before each step, [T, B, out] */
       D_OUTPUT, /* projected: the whole gradient of the output */
       D_STATE,  /* projected: of one step's state */
       STATE,    /* projected: states of all steps */
       PACKED,
       PACKED_HR
};

/* Operands by what they are; NULL: holes. */
typedef struct Args {
    void *const *in; /* of the forward */
    const char *dy, *dh, *dc, *output, *gates, *cells, *h0, *c0;
    void *const *out;
    char *work, *inner;
    const void *hh, *hr; /* weights, ready */
} Args;

static bool wants(const LpRnn *r, int role)
{
    return r->need >> role & 1;
}

static char *space(const LpRnn *r, const Args *a, int i)
{
    return a->work + r->space[i];
}

static Args args_of(const LpRnn *r, void *const *in, void *const *out,
                    char *work)
{
    const LpRnnKindInfo *k = r->info;
    bool lstm = r->kind == LP_RNN_LSTM;
    Args a = {.in = in + 1 + k->n_state, .dy = in[0], .dh = in[1]};
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
    a.h0 = a.h0 ? a.h0 : space(r, &a, ZERO);
    a.c0 = a.c0 ? a.c0 : space(r, &a, ZERO);
    return a;
}

static void *result(const LpRnn *r, const Args *a, int role)
{
    return a->out[r->info->at[role]];
}

static LpStatus start(const LpRnn *r, Args *a, LpErr *e)
{
    int64_t wide = r->hidden > r->out ? r->hidden : r->out;
    size_t state = (size_t)(r->batch * r->out) * r->size;
    size_t cell = (size_t)(r->batch * r->hidden) * r->size;
    memset(space(r, a, ZERO), 0, (size_t)(r->batch * wide) * r->size);
    memcpy(space(r, a, CARRY), a->dh ? a->dh : space(r, a, ZERO), state);
    memcpy(space(r, a, DIRECT), a->dc ? a->dc : space(r, a, ZERO), cell);
    LP_TRY(lp_product_weights(&r->product[CARRY_STEP],
                              lp_rnn_operand(r, a->in, LP_RNN_W_HH),
                              space(r, a, PACKED), a->inner, &a->hh, e));
    if (!r->projects)
        return LP_OK;
    return lp_product_weights(&r->product[PROJECT],
                              lp_rnn_operand(r, a->in, LP_RNN_W_HR),
                              space(r, a, PACKED_HR), a->inner, &a->hr, e);
}

static void pass(const LpRnn *r, const LpRnnBackward *g)
{
    int width = lp_rnn_width(r);
    int64_t each = (r->batch + width - 1) / width;
#pragma omp parallel for num_threads(width) schedule(static) if (width > 1)
    for (int i = 0; i < width; i++) {
        int64_t at = i * each;
        int64_t end = at + each < r->batch ? at + each : r->batch;
        if (at >= end)
            continue;
        LpRnnBackward p = *g;
        int64_t state = at * r->hidden;
        p.rows = end - at;
        p.dy = lp_rnn_at(r, g->dy, state);
        p.carry = lp_rnn_at(r, g->carry, state);
        p.gates = lp_rnn_at(r, g->gates, at * r->kept);
        p.direct = lp_rnn_at(r, g->direct, state);
        p.dx = lp_rnn_at(r, g->dx, at * r->rows);
        p.dh = lp_rnn_at(r, g->dh, at * r->rows);
        p.h_prev = lp_rnn_at(r, g->h_prev, at * r->out);
        if (r->kind == LP_RNN_LSTM) {
            p.c = lp_rnn_at(r, g->c, state);
            p.c_prev = lp_rnn_at(r, g->c_prev, state);
        }
        r->loops->backward[r->kind](&p);
    }
}

/* The gradient of step t's state, before the projection: dy and carry. */
static LpStatus unproject(const LpRnn *r, const Args *a, int64_t t,
                          LpRnnBackward *g, LpErr *e)
{
    int64_t n = r->batch * r->out;
    void *whole = lp_rnn_at(r, space(r, a, D_OUTPUT), t * n);
    r->loops->add(n, g->dy, g->carry, whole);
    g->dy = space(r, a, D_STATE);
    g->carry = space(r, a, ZERO);
    return lp_product_run(&r->product[PROJECT], whole, a->hr,
                          space(r, a, D_STATE), a->inner, e);
}

static LpStatus step(const LpRnn *r, const Args *a, int64_t s, LpErr *e)
{
    int64_t t = lp_rnn_place(r, s), last = lp_rnn_place(r, s - 1);
    int64_t h = r->batch * r->hidden, o = r->batch * r->out;
    LpRnnBackward g = {
        .hidden = r->hidden,
        .dy = a->dy ? lp_rnn_at(r, a->dy, t * o) : space(r, a, ZERO),
        .carry = space(r, a, CARRY),
        .gates = lp_rnn_at(r, a->gates, t * r->batch * r->kept),
        .h_prev = s == 0 ? a->h0 : lp_rnn_at(r, a->output, last * o),
        .direct = space(r, a, DIRECT),
        .dx = lp_rnn_at(r, space(r, a, D_X), t * r->batch * r->rows),
        .dh = lp_rnn_at(r, space(r, a, D_H), t * r->batch * r->rows),
    };
    if (r->kind == LP_RNN_LSTM) {
        g.c = lp_rnn_at(r, a->cells, t * h);
        g.c_prev = s == 0 ? a->c0 : lp_rnn_at(r, a->cells, last * h);
    }
    if (wants(r, LP_RNN_W_HH))
        memcpy(lp_rnn_at(r, space(r, a, BEFORE), t * o), g.h_prev,
               (size_t)o * r->size);
    if (r->projects)
        LP_TRY(unproject(r, a, t, &g, e));
    pass(r, &g);
    if (s == 0 && !wants(r, LP_RNN_H0))
        return LP_OK;
    return lp_product_run(&r->product[CARRY_STEP], g.dh, a->hh,
                          space(r, a, CARRY), a->inner, e);
}

static void columns(const LpRnn *r, const Args *a, int from, int role)
{
    enum { WIDE = 128 };
    int64_t rows = r->steps * r->batch, blocks = (r->rows + WIDE - 1) / WIDE;
    int width = rows * r->rows < 32768 ? 1 : r->threads;
    const void *x = space(r, a, from);
    void *sum = result(r, a, role);
#pragma omp parallel for num_threads(width) schedule(static) if (width > 1)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t end = (b + 1) * WIDE < r->rows ? (b + 1) * WIDE : r->rows;
        r->loops->columns(rows, r->rows, b * WIDE, end, x, sum);
    }
}

static void state_gradients(const LpRnn *r, const Args *a)
{
    int64_t o = r->batch * r->out;
    const char *carry = space(r, a, CARRY), *direct = space(r, a, DIRECT);
    if (wants(r, LP_RNN_C0))
        memcpy(result(r, a, LP_RNN_C0), direct,
               (size_t)(r->batch * r->hidden) * r->size);
    if (!wants(r, LP_RNN_H0))
        return;
    bool adds = r->kind == LP_RNN_GRU;
    r->loops->add(o, carry, adds ? direct : space(r, a, ZERO),
                  result(r, a, LP_RNN_H0));
}

/* result = a b for the sequence, when it is wanted. */
static LpStatus whole(const LpRnn *r, const Args *a, int product, int role,
                      const void *left, const void *right, LpErr *e)
{
    if (!wants(r, role))
        return LP_OK;
    return lp_product_run(&r->product[product], left, right, result(r, a, role),
                          a->inner, e);
}

static LpStatus sequence_gradients(const LpRnn *r, const Args *a, LpErr *e)
{
    const char *dx = space(r, a, D_X), *dh = space(r, a, D_H);
    LP_TRY(whole(r, a, FOR_X, LP_RNN_X, dx,
                 lp_rnn_operand(r, a->in, LP_RNN_W_IH), e));
    LP_TRY(whole(r, a, FOR_W_IH, LP_RNN_W_IH, dx,
                 lp_rnn_operand(r, a->in, LP_RNN_X), e));
    LP_TRY(whole(r, a, FOR_W_HH, LP_RNN_W_HH, dh, space(r, a, BEFORE), e));
    if (wants(r, LP_RNN_W_HR)) {
        r->loops->output(r->steps * r->batch, r->hidden, a->gates, a->cells,
                         space(r, a, STATE));
        LP_TRY(whole(r, a, FOR_W_HR, LP_RNN_W_HR, space(r, a, D_OUTPUT),
                     space(r, a, STATE), e));
    }
    if (wants(r, LP_RNN_B_IH))
        columns(r, a, D_X, LP_RNN_B_IH);
    if (wants(r, LP_RNN_B_HH))
        columns(r, a, D_H, LP_RNN_B_HH);
    return LP_OK;
}

static LpStatus backward(const LpPlain *p, void *const *in, void *const *out,
                         void *work, const LpRunCtx *rc, LpErr *e)
{
    (void)rc;
    const LpRnn *r = lp_rnn_of(p);
    Args a = args_of(r, in, out, work);
    LP_TRY(start(r, &a, e));
    for (int64_t s = r->steps - 1; s >= 0; s--)
        LP_TRY(step(r, &a, s, e));
    state_gradients(r, &a);
    return sequence_gradients(r, &a, e);
}

/* ---- preparation ----------------------------------------------------------
 */
static LpStatus products(LpRnn *r, LpErr *e)
{
    int64_t all = r->steps * r->batch;
    LP_TRY(lp_rnn_product(r, CARRY_STEP, r->batch, r->out, r->rows, false,
                          false, true, e));
    if (r->projects)
        LP_TRY(lp_rnn_product(r, PROJECT, r->batch, r->hidden, r->out, false,
                              false, true, e));
    if (wants(r, LP_RNN_X))
        LP_TRY(lp_rnn_product(r, FOR_X, all, r->in, r->rows, false, false,
                              false, e));
    if (wants(r, LP_RNN_W_IH))
        LP_TRY(lp_rnn_product(r, FOR_W_IH, r->rows, r->in, all, true, false,
                              false, e));
    if (wants(r, LP_RNN_W_HH))
        LP_TRY(lp_rnn_product(r, FOR_W_HH, r->rows, r->out, all, true, false,
                              false, e));
    if (wants(r, LP_RNN_W_HR))
        LP_TRY(lp_rnn_product(r, FOR_W_HR, r->out, r->hidden, all, true, false,
                              false, e));
    return LP_OK;
}

static void spaces(LpRnn *r)
{
    int64_t wide = r->hidden > r->out ? r->hidden : r->out;
    int64_t all = r->steps * r->batch;
    lp_rnn_space(r, ZERO, r->batch * wide);
    lp_rnn_space(r, CARRY, r->batch * r->out);
    lp_rnn_space(r, DIRECT, r->batch * r->hidden);
    lp_rnn_space(r, D_X, all * r->rows);
    r->space[D_H] = r->space[D_X];
    if (r->kind == LP_RNN_GRU)
        lp_rnn_space(r, D_H, all * r->rows);
    lp_rnn_space(r, BEFORE, wants(r, LP_RNN_W_HH) ? all * r->out : 0);
    lp_rnn_space(r, D_OUTPUT, r->projects ? all * r->out : 0);
    lp_rnn_space(r, D_STATE, r->projects ? r->batch * r->hidden : 0);
    lp_rnn_space(r, STATE, wants(r, LP_RNN_W_HR) ? all * r->hidden : 0);
    lp_rnn_space(r, PACKED,
                 (int64_t)(r->product[CARRY_STEP].packed_bytes / r->size));
    lp_rnn_space(r, PACKED_HR,
                 (int64_t)(r->product[PROJECT].packed_bytes / r->size));
}

LpStatus lp_rnn_back_prepare(const LpKernelReq *q, LpKernel *k, LpErr *e)
{
    LpRnn *r = lp_calloc(1, sizeof *r);
    LP_FAIL_IF(!r, e, LP_E_MEMORY, "out of memory");
    const LpRnnKindInfo *info = lp_rnn_info(lp_rnn_kind(q->op, q->attr));
    lp_rnn_fill(r, q, q->in + 1 + info->n_state);
    int64_t need = q->attr[q->op->n_attr - 1].i;
    for (int i = 0; i < LP_RNN_ROLES; i++)
        if (info->at[i] >= 0 && need >> info->at[i] & 1)
            r->need |= 1u << i;
    LpStatus s = products(r, e);
    if (s != LP_OK) {
        lp_rnn_free(r);
        return s;
    }
    spaces(r);
    return lp_rnn_finish(r, q, k, backward, e);
}
