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
       PACKED_HR,
       SUMS /* of lookups: D_X summed by rows of the table */
};

/* Operands by what they are; NULL: holes. */
typedef struct Args {
    void *const *in;   /* of the forward */
    const int64_t *at; /* of lookups */
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

static void pass(const LpRnn *r, const LpRnnBackward *g)
{
    int width = lp_rnn_width(r);
    int64_t each = (g->rows + width - 1) / width;
#pragma omp parallel for num_threads(width) schedule(static) if (width > 1)
    for (int i = 0; i < width; i++) {
        int64_t a = i * each, b = a + each < g->rows ? a + each : g->rows;
        if (a >= b)
            continue;
        LpRnnBackward p = rows_of(r, g, a, b);
        r->loops->backward[r->kind](&p);
    }
}

/* Rows a … b - 1 of each step. */
typedef struct Slice {
    int number;
    int64_t a, b;
    char *inner;
} Slice;

/* The gradient of the state before the projection: dy and carry. */
static LpStatus unproject(const LpRnn *r, const Args *a, int64_t t,
                          const Slice *c, LpRnnBackward *g, LpErr *e)
{
    int64_t at = c->a * r->out;
    void *whole =
        lp_rnn_at(r, space(r, a, D_OUTPUT), t * r->batch * r->out + at);
    void *state = lp_rnn_at(r, space(r, a, D_STATE), c->a * r->hidden);
    r->loops->add((c->b - c->a) * r->out, lp_rnn_at(r, g->dy, at),
                  lp_rnn_at(r, g->carry, at), whole);
    g->dy = space(r, a, D_STATE);
    g->carry = space(r, a, ZERO);
    return lp_product_run(lp_rnn_of_slice(r, PROJECT, c->number), whole, a->hr,
                          state, c->inner, e);
}

/* All rows of step s. */
static LpRnnBackward step_of(const LpRnn *r, const Args *a, int64_t s)
{
    int64_t t = lp_rnn_place(r, s), last = lp_rnn_place(r, s - 1);
    int64_t h = r->batch * r->hidden, o = r->batch * r->out;
    LpRnnBackward g = {
        .rows = r->batch,
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
    return g;
}

static LpStatus step(const LpRnn *r, const Args *a, int64_t s, const Slice *c,
                     LpErr *e)
{
    int64_t t = lp_rnn_place(r, s), n = (c->b - c->a) * r->out;
    LpRnnBackward g = step_of(r, a, s);
    if (r->projects)
        LP_TRY(unproject(r, a, t, c, &g, e));
    g = rows_of(r, &g, c->a, c->b);
    if (wants(r, LP_RNN_W_HH))
        memcpy(
            lp_rnn_at(r, space(r, a, BEFORE), (t * r->batch + c->a) * r->out),
            g.h_prev, (size_t)n * r->size);
    pass(r, &g);
    if (s == 0 && !wants(r, LP_RNN_H0))
        return LP_OK;
    return lp_product_run(
        lp_rnn_of_slice(r, CARRY_STEP, c->number), g.dh, a->hh,
        lp_rnn_at(r, space(r, a, CARRY), c->a * r->out), c->inner, e);
}

static LpStatus walk(const LpRnn *r, int slice, const void *ctx, LpErr *e)
{
    const Args *a = ctx;
    int64_t n = r->batch / r->slices;
    Slice c = {.number = slice,
               .a = slice * n,
               .b = (slice + 1) * n,
               .inner = a->inner + (size_t)slice * r->apart};
    for (int64_t s = r->steps - 1; s >= 0; s--)
        LP_TRY(step(r, a, s, &c, e));
    return LP_OK;
}

/* Columns are split over threads: `sum` [m, rows of weights] gets those of
 * x [n, …], by indices where `at` is not NULL, else in one row. */
static void columns(const LpRnn *r, int64_t n, const void *x, const int64_t *at,
                    int64_t m, void *sum)
{
    enum { WIDE = 128 };
    int64_t blocks = (r->rows + WIDE - 1) / WIDE;
    int width = n * r->rows < 32768 ? 1 : r->threads;
    int64_t each = (blocks + width - 1) / width * WIDE;
#pragma omp parallel for num_threads(width) schedule(static) if (width > 1)
    for (int i = 0; i < width; i++) {
        int64_t a = i * each, b = a + each < r->rows ? a + each : r->rows;
        if (a < b && at)
            r->loops->scatter(n, m, r->rows, a, b, x, at, sum);
        else if (a < b)
            r->loops->columns(n, r->rows, a, b, x, sum);
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

/* Both biases of LSTM and RNN are added: their gradients are the same. */
static void bias_gradients(const LpRnn *r, const Args *a, const void *dx,
                           int64_t n)
{
    bool same = r->kind != LP_RNN_GRU;
    void *ih = wants(r, LP_RNN_B_IH) ? result(r, a, LP_RNN_B_IH) : NULL;
    void *hh = wants(r, LP_RNN_B_HH) ? result(r, a, LP_RNN_B_HH) : NULL;
    if (ih)
        columns(r, n, dx, NULL, 1, ih);
    if (ih && hh && same)
        memcpy(hh, ih, (size_t)r->rows * r->size);
    else if (hh)
        columns(r, r->steps * r->batch, space(r, a, D_H), NULL, 1, hh);
}

static LpStatus sequence_gradients(const LpRnn *r, const Args *a, LpErr *e)
{
    const char *dx = space(r, a, D_X), *dh = space(r, a, D_H);
    int64_t n = r->steps * r->batch;
    if (r->table) {
        columns(r, n, dx, a->at, r->table, space(r, a, SUMS));
        dx = space(r, a, SUMS);
    }
    LP_TRY(whole(r, a, FOR_X, LP_RNN_X, dx,
                 lp_rnn_operand(r, a->in, LP_RNN_W_IH), e));
    LP_TRY(whole(r, a, FOR_W_IH, LP_RNN_W_IH, dx,
                 lp_rnn_operand(r, a->in, LP_RNN_X), e));
    LP_TRY(whole(r, a, FOR_W_HH, LP_RNN_W_HH, dh, space(r, a, BEFORE), e));
    if (wants(r, LP_RNN_W_HR)) {
        r->loops->output(n, r->hidden, a->gates, a->cells, space(r, a, STATE));
        LP_TRY(whole(r, a, FOR_W_HR, LP_RNN_W_HR, space(r, a, D_OUTPUT),
                     space(r, a, STATE), e));
    }
    bias_gradients(r, a, dx, r->table ? r->table : n);
    return LP_OK;
}

static LpStatus backward(const LpPlain *p, void *const *in, void *const *out,
                         void *work, const LpRunCtx *rc, LpErr *e)
{
    (void)rc;
    const LpRnn *r = lp_rnn_of(p);
    Args a = args_of(r, in, out, work);
    LP_TRY(lp_rnn_lookups(r, in, &a.at, e));
    LP_TRY(start(r, &a, e));
    LP_TRY(lp_rnn_walk(r, walk, &a, e));
    state_gradients(r, &a);
    return sequence_gradients(r, &a, e);
}

/* ---- preparation ----------------------------------------------------------
 */
static LpStatus products(LpRnn *r, LpErr *e)
{
    int64_t all = r->steps * r->batch, inputs = r->table ? r->table : all;
    LP_TRY(lp_rnn_step_product(r, CARRY_STEP, r->out, r->rows, false, e));
    if (r->projects)
        LP_TRY(lp_rnn_step_product(r, PROJECT, r->hidden, r->out, false, e));
    if (wants(r, LP_RNN_X))
        LP_TRY(lp_rnn_product(r, FOR_X, inputs, r->in, r->rows, false, false,
                              false, e));
    if (wants(r, LP_RNN_W_IH))
        LP_TRY(lp_rnn_product(r, FOR_W_IH, r->rows, r->in, inputs, true, false,
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
    lp_rnn_space(r, SUMS, r->table * r->rows);
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
    int first = 1 + info->n_state, n_in = first + info->n_in + 1 + info->n_kept;
    LpStatus s =
        lp_rnn_fill(r, q, q->in + first, q->n_in > n_in ? n_in : -1, e);
    int64_t need = q->attr[q->op->n_attr - 1].i;
    for (int i = 0; i < LP_RNN_ROLES; i++)
        if (info->at[i] >= 0 && need >> info->at[i] & 1)
            r->need |= 1u << i;
    if (s == LP_OK)
        s = products(r, e);
    if (s != LP_OK) {
        lp_rnn_free(r);
        return s;
    }
    spaces(r);
    return lp_rnn_finish(r, q, k, backward, e);
}
