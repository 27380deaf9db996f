/* One direction of a recurrent layer over a whole sequence. The input's share
 * of all gates is one product; a step is the product of the state with packed
 * weights and one pass over the gates (rnnloops.h), which leaves in `gates`
 * and `cells` what the gradient reads. */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/recurrent_plan.h"

enum { STEP, PROJECT, INPUT };                               /* products */
enum { ZERO, BIAS, SHARE, STATE, PACKED, PACKED_HR, TABLE }; /* scratch */
enum { OUTPUT, H_N, C_N, GATES_GRU = 2, GATES = 3, CELLS };  /* results */

static void *gates_of(const LpRnn *r, void *const *out)
{
    return r->kind == LP_RNN_LSTM  ? out[GATES]
           : r->kind == LP_RNN_GRU ? out[GATES_GRU]
                                   : out[OUTPUT];
}

/* Both biases as the loops want them. */
static void join_biases(const LpRnn *r, void *const *in, void *bias)
{
    size_t part = (size_t)r->hidden * r->size;
    const char *x = lp_rnn_operand(r, in, LP_RNN_B_IH);
    const char *h = lp_rnn_operand(r, in, LP_RNN_B_HH);
    memset(bias, 0, (size_t)r->kept * r->size);
    if (x)
        memcpy(bias, x, (size_t)r->rows * r->size);
    if (h && r->kind == LP_RNN_GRU) {
        r->loops->add(2 * r->hidden, bias, h, bias);
        memcpy((char *)bias + 3 * part, h + 2 * part, part);
    } else if (h) {
        r->loops->add(r->rows, bias, h, bias);
    }
}

/* Rows a … b - 1 of a step. */
static LpRnnForward rows_of(const LpRnn *r, const LpRnnForward *f, int64_t a,
                            int64_t b)
{
    LpRnnForward p = *f;
    p.rows = b - a;
    p.share = lp_rnn_at(r, f->share, a * r->rows);
    p.h_prev = lp_rnn_at(r, f->h_prev, a * r->out);
    p.gates = lp_rnn_at(r, f->gates, a * r->kept);
    p.h = lp_rnn_at(r, f->h, a * r->hidden);
    if (f->at)
        p.at = f->at + a;
    else
        p.input = lp_rnn_at(r, f->input, a * f->stride);
    if (r->kind == LP_RNN_LSTM) {
        p.c_prev = lp_rnn_at(r, f->c_prev, a * r->hidden);
        p.c = lp_rnn_at(r, f->c, a * r->hidden);
    }
    return p;
}

static void part(const LpRnn *r, const void *step, int64_t a, int64_t b)
{
    LpRnnForward p = rows_of(r, step, a, b);
    r->loops->forward[r->kind](&p);
}

/* What the steps of all slices read. */
typedef struct Ready {
    const void *hh, *hr, *h0, *c0; /* weights and states */
    const int64_t *at;             /* of lookups */
    void *const *out;
    char *work;
} Ready;

static LpStatus make_ready(const LpRnn *r, void *const *in, char *w, Ready *y,
                           LpErr *e)
{
    int64_t wide = r->hidden > r->out ? r->hidden : r->out;
    memset(w + r->space[ZERO], 0, (size_t)(r->batch * wide) * r->size);
    y->h0 = lp_rnn_operand(r, in, LP_RNN_H0);
    y->c0 = lp_rnn_operand(r, in, LP_RNN_C0);
    if (!y->h0)
        y->h0 = w + r->space[ZERO];
    if (!y->c0)
        y->c0 = w + r->space[ZERO];
    join_biases(r, in, w + r->space[BIAS]);
    LP_TRY(lp_product_weights(&r->product[STEP],
                              lp_rnn_operand(r, in, LP_RNN_W_HH),
                              w + r->space[PACKED], w + r->inner, &y->hh, e));
    if (!r->projects)
        return LP_OK;
    return lp_product_weights(&r->product[PROJECT],
                              lp_rnn_operand(r, in, LP_RNN_W_HR),
                              w + r->space[PACKED_HR], w + r->inner, &y->hr, e);
}

/* All rows of step s. */
static LpRnnForward step_of(const LpRnn *r, const Ready *y, int64_t s)
{
    int64_t t = lp_rnn_place(r, s), last = lp_rnn_place(r, s - 1);
    int64_t h = r->batch * r->hidden, o = r->batch * r->out;
    LpRnnForward f = {
        .rows = r->batch,
        .hidden = r->hidden,
        .share = y->work + r->space[SHARE],
        .bias = y->work + r->space[BIAS],
        .h_prev = s == 0 ? y->h0 : lp_rnn_at(r, y->out[OUTPUT], last * o),
        .gates = lp_rnn_at(r, gates_of(r, y->out), t * r->batch * r->kept),
        .stride = r->kept,
        .h = r->projects ? y->work + r->space[STATE]
                         : lp_rnn_at(r, y->out[OUTPUT], t * o),
    };
    f.input = f.gates;
    if (y->at) {
        f.input = y->work + r->space[TABLE];
        f.at = y->at + t * r->batch;
        f.stride = r->rows;
    }
    if (r->kind == LP_RNN_LSTM) {
        f.c_prev = s == 0 ? y->c0 : lp_rnn_at(r, y->out[CELLS], last * h);
        f.c = lp_rnn_at(r, y->out[CELLS], t * h);
    }
    return f;
}

static LpStatus walk(const LpRnn *r, int slice, const void *ctx, LpErr *e)
{
    const Ready *y = ctx;
    int64_t n = r->batch / r->slices, a = slice * n;
    char *inner = y->work + r->inner + (size_t)slice * r->apart;
    for (int64_t s = 0; s < r->steps && !lp_kernel_stops(); s++) {
        LpRnnForward f = step_of(r, y, s);
        f = rows_of(r, &f, a, a + n);
        LP_TRY(lp_product_run(lp_rnn_of_slice(r, STEP, slice), f.h_prev, y->hh,
                              (void *)(uintptr_t)f.share, inner, e));
        lp_rnn_pass(r, part, &f, f.rows);
        if (!r->projects)
            continue;
        int64_t at = (lp_rnn_place(r, s) * r->batch + a) * r->out;
        LP_TRY(lp_product_run(lp_rnn_of_slice(r, PROJECT, slice), f.h, y->hr,
                              lp_rnn_at(r, y->out[OUTPUT], at), inner, e));
    }
    return LP_OK;
}

LP_PLAIN_CORE(forward)
{
    const LpRnn *r = lp_plain_owned(p);
    char *w = work;
    Ready y = {.out = out, .work = w};
    LP_TRY(lp_rnn_lookups(r, in, &y.at, e));
    LP_TRY(make_ready(r, in, w, &y, e));
    LP_TRY(lp_product_run(&r->product[INPUT], lp_rnn_operand(r, in, LP_RNN_X),
                          lp_rnn_operand(r, in, LP_RNN_W_IH),
                          r->table ? w + r->space[TABLE] : gates_of(r, out),
                          w + r->inner, e));
    LP_TRY(lp_rnn_walk(r, walk, &y, e));
    int64_t last = lp_rnn_place(r, r->steps - 1);
    int64_t h = r->batch * r->hidden, o = r->batch * r->out;
    memcpy(out[H_N], lp_rnn_at(r, out[OUTPUT], last * o), (size_t)o * r->size);
    if (r->kind == LP_RNN_LSTM)
        memcpy(out[C_N], lp_rnn_at(r, out[CELLS], last * h),
               (size_t)h * r->size);
    return LP_OK;
}

/* The input's share goes where the activations will stand, that of a table
 * into scratch. */
static LpStatus input_product(LpRnn *r, LpErr *e)
{
    LpGemmArgs g = {.m = r->table ? r->table : r->steps * r->batch,
                    .n = r->rows,
                    .k = r->in,
                    .a_rs = r->in,
                    .a_cs = 1,
                    .b_rs = 1,
                    .b_cs = r->in,
                    .c_rs = r->table ? r->rows : r->kept,
                    .c_cs = 1};
    return lp_product_init(&r->product[INPUT], r->t, &g, r->threads, 0, e);
}

static LpStatus plan(LpRnn *r, LpErr *e)
{
    int64_t wide = r->hidden > r->out ? r->hidden : r->out;
    LP_TRY(input_product(r, e));
    LP_TRY(lp_rnn_step_product(r, STEP, r->rows, r->out, true, e));
    if (r->projects)
        LP_TRY(lp_rnn_step_product(r, PROJECT, r->out, r->hidden, true, e));
    lp_rnn_space(r, ZERO, r->batch * wide);
    lp_rnn_space(r, BIAS, r->kept);
    lp_rnn_space(r, SHARE, r->batch * r->rows);
    lp_rnn_space(r, STATE, r->projects ? r->batch * r->hidden : 0);
    lp_rnn_space(r, TABLE, r->table * r->rows);
    lp_rnn_space(r, PACKED, (int64_t)(r->product[STEP].packed_bytes / r->size));
    lp_rnn_space(r, PACKED_HR,
                 (int64_t)(r->product[PROJECT].packed_bytes / r->size));
    return LP_OK;
}

LpStatus lp_rnn_prepare(const LpKernelReq *q, LpKernel *k, LpErr *e)
{
    LpRnn *r = lp_calloc(1, sizeof *r);
    LP_FAIL_IF(!r, e, LP_E_MEMORY, "out of memory");
    int n_in = lp_rnn_info(lp_rnn_kind(q->op, q->attr))->n_in;
    LpStatus s = lp_rnn_fill(r, q, q->in, q->n_in > n_in ? n_in : -1, e);
    if (s == LP_OK)
        s = plan(r, e);
    return lp_rnn_finish(r, s, q, k, forward, e);
}
