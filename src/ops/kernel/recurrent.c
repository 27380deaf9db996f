/* One direction of a recurrent layer over a whole sequence. The input's share
 * of all gates is one product; a step is the product of the state with packed
 * weights and one pass over the gates (rnnloops.h), which leaves in `gates`
 * and `cells` what the gradient reads. */
#include <string.h>

#include "src/base/cpu.h"
#include "src/base/mem.h"
#include "src/ops/kernel/nn.h"
#include "src/ops/kernel/recurrent.h"

static const LpRnnLoops *loops_of(LpDtype t)
{
    const LpRnnLoops *l = lp_rnn_plain;
#ifdef __x86_64__
    if (lp_cpu_simd() == LP_SIMD_AVX512)
        l = lp_rnn_avx512;
    else if (lp_cpu_simd() == LP_SIMD_AVX2)
        l = lp_rnn_avx2;
#endif
    return &l[t == LP_F64];
}

/* ---- what both kernels share ----------------------------------------------
 */
void lp_rnn_fill(LpRnn *r, const LpKernelReq *q, const LpDesc *in)
{
    LpRnnKind kind = lp_rnn_kind(q->op, q->attr);
    const LpRnnKindInfo *info = lp_rnn_info(kind);
    const LpDesc *x = &in[info->at[LP_RNN_X]];
    const LpDesc *w = &in[info->at[LP_RNN_W_HH]];
    int hr = info->at[LP_RNN_W_HR];
    LpDtype t = lp_plain_type(x->dtype);
    *r = (LpRnn){
        .kind = kind,
        .info = info,
        .loops = loops_of(t),
        .steps = x->shape[0],
        .batch = x->shape[1],
        .in = x->shape[2],
        .hidden = w->shape[0] / info->gates,
        .out = w->shape[1],
        .rows = w->shape[0],
        .kept = w->shape[0] / info->gates * info->kept,
        .size = lp_dtype_size(t),
        .t = t,
        .reverse = q->attr[LP_RNN_REVERSE].i != 0,
        .projects = hr >= 0 && in[hr].dtype != LP_DT_NONE,
        .threads = q->threads < 1 ? 1 : q->threads,
    };
}

LpStatus lp_rnn_product(LpRnn *r, int i, int64_t m, int64_t n, int64_t k,
                        bool ta, bool tb, bool repeat, LpErr *e)
{
    LpGemmArgs g = {.m = m,
                    .n = n,
                    .k = k,
                    .a_rs = ta ? 1 : k,
                    .a_cs = ta ? m : 1,
                    .b_rs = tb ? 1 : n,
                    .b_cs = tb ? k : 1,
                    .c_rs = n,
                    .c_cs = 1};
    return lp_product_init(&r->product[i], r->t, &g, r->threads, repeat, e);
}

void lp_rnn_space(LpRnn *r, int i, int64_t n)
{
    r->space[i] = r->work;
    r->work += ((size_t)n * r->size + 63) / 64 * 64;
}

void lp_rnn_free(LpRnn *r)
{
    for (int i = 0; r && i < LP_RNN_MAX_PRODUCT; i++)
        lp_product_fini(&r->product[i]);
    lp_free(r);
}

static void fini(LpKernel *k)
{
    lp_plain_fini(k);
    lp_rnn_free(k->state);
    k->state = NULL;
}

LpStatus lp_rnn_finish(LpRnn *r, const LpKernelReq *q, LpKernel *k,
                       LpPlainCore core, LpErr *e)
{
    size_t inner = 0;
    for (int i = 0; i < LP_RNN_MAX_PRODUCT; i++)
        if (r->product[i].work_bytes > inner)
            inner = r->product[i].work_bytes;
    r->inner = r->work;
    LpStatus s =
        lp_plain_prepare(q, k, core, r->t, &r, sizeof r, r->work + inner, e);
    if (s != LP_OK) {
        lp_rnn_free(r);
        return s;
    }
    k->state = r;
    k->fini = fini;
    return LP_OK;
}

/* ---- forward --------------------------------------------------------------
 */
enum { INPUT, STEP, PROJECT };                              /* products */
enum { ZERO, BIAS, SHARE, STATE, PACKED, PACKED_HR };       /* scratch */
enum { OUTPUT, H_N, C_N, GATES_GRU = 2, GATES = 3, CELLS }; /* results */

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

static void pass(const LpRnn *r, const LpRnnForward *f)
{
    int width = lp_rnn_width(r);
    int64_t each = (r->batch + width - 1) / width;
#pragma omp parallel for num_threads(width) schedule(static) if (width > 1)
    for (int i = 0; i < width; i++) {
        int64_t a = i * each, b = a + each < r->batch ? a + each : r->batch;
        if (a >= b)
            continue;
        LpRnnForward p = *f;
        p.rows = b - a;
        p.share = lp_rnn_at(r, f->share, a * r->rows);
        p.h_prev = lp_rnn_at(r, f->h_prev, a * r->out);
        p.gates = lp_rnn_at(r, f->gates, a * r->kept);
        p.h = lp_rnn_at(r, f->h, a * r->hidden);
        if (r->kind == LP_RNN_LSTM) {
            p.c_prev = lp_rnn_at(r, f->c_prev, a * r->hidden);
            p.c = lp_rnn_at(r, f->c, a * r->hidden);
        }
        r->loops->forward[r->kind](&p);
    }
}

/* Weights ready for the steps. */
typedef struct Ready {
    const void *hh, *hr, *h0, *c0;
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

static LpStatus step(const LpRnn *r, const Ready *y, int64_t s,
                     void *const *out, char *w, LpErr *e)
{
    int64_t t = lp_rnn_place(r, s), last = lp_rnn_place(r, s - 1);
    int64_t h = r->batch * r->hidden, o = r->batch * r->out;
    void *output = lp_rnn_at(r, out[OUTPUT], t * o);
    bool lstm = r->kind == LP_RNN_LSTM;
    LpRnnForward f = {
        .hidden = r->hidden,
        .share = w + r->space[SHARE],
        .bias = w + r->space[BIAS],
        .h_prev = s == 0 ? y->h0 : lp_rnn_at(r, out[OUTPUT], last * o),
        .gates = lp_rnn_at(r, gates_of(r, out), t * r->batch * r->kept),
        .h = r->projects ? w + r->space[STATE] : output,
    };
    if (lstm) {
        f.c_prev = s == 0 ? y->c0 : lp_rnn_at(r, out[CELLS], last * h);
        f.c = lp_rnn_at(r, out[CELLS], t * h);
    }
    LP_TRY(lp_product_run(&r->product[STEP], f.h_prev, y->hh,
                          w + r->space[SHARE], w + r->inner, e));
    pass(r, &f);
    if (!r->projects)
        return LP_OK;
    return lp_product_run(&r->product[PROJECT], f.h, y->hr, output,
                          w + r->inner, e);
}

static LpStatus forward(const LpPlain *p, void *const *in, void *const *out,
                        void *work, const LpRunCtx *rc, LpErr *e)
{
    (void)rc;
    const LpRnn *r = lp_rnn_of(p);
    char *w = work;
    Ready y = {0};
    LP_TRY(make_ready(r, in, w, &y, e));
    LP_TRY(lp_product_run(&r->product[INPUT], lp_rnn_operand(r, in, LP_RNN_X),
                          lp_rnn_operand(r, in, LP_RNN_W_IH), gates_of(r, out),
                          w + r->inner, e));
    for (int64_t s = 0; s < r->steps; s++)
        LP_TRY(step(r, &y, s, out, w, e));
    int64_t last = lp_rnn_place(r, r->steps - 1);
    int64_t h = r->batch * r->hidden, o = r->batch * r->out;
    memcpy(out[H_N], lp_rnn_at(r, out[OUTPUT], last * o), (size_t)o * r->size);
    if (r->kind == LP_RNN_LSTM)
        memcpy(out[C_N], lp_rnn_at(r, out[CELLS], last * h),
               (size_t)h * r->size);
    return LP_OK;
}

/* The input's share goes where the activations will stand. */
static LpStatus input_product(LpRnn *r, LpErr *e)
{
    LpGemmArgs g = {.m = r->steps * r->batch,
                    .n = r->rows,
                    .k = r->in,
                    .a_rs = r->in,
                    .a_cs = 1,
                    .b_rs = 1,
                    .b_cs = r->in,
                    .c_rs = r->kept,
                    .c_cs = 1};
    return lp_product_init(&r->product[INPUT], r->t, &g, r->threads, false, e);
}

static LpStatus plan(LpRnn *r, LpErr *e)
{
    int64_t wide = r->hidden > r->out ? r->hidden : r->out;
    LP_TRY(input_product(r, e));
    LP_TRY(lp_rnn_product(r, STEP, r->batch, r->rows, r->out, false, true, true,
                          e));
    if (r->projects)
        LP_TRY(lp_rnn_product(r, PROJECT, r->batch, r->out, r->hidden, false,
                              true, true, e));
    lp_rnn_space(r, ZERO, r->batch * wide);
    lp_rnn_space(r, BIAS, r->kept);
    lp_rnn_space(r, SHARE, r->batch * r->rows);
    lp_rnn_space(r, STATE, r->projects ? r->batch * r->hidden : 0);
    lp_rnn_space(r, PACKED, (int64_t)(r->product[STEP].packed_bytes / r->size));
    lp_rnn_space(r, PACKED_HR,
                 (int64_t)(r->product[PROJECT].packed_bytes / r->size));
    return LP_OK;
}

LpStatus lp_rnn_prepare(const LpKernelReq *q, LpKernel *k, LpErr *e)
{
    LpRnn *r = lp_calloc(1, sizeof *r);
    LP_FAIL_IF(!r, e, LP_E_MEMORY, "out of memory");
    lp_rnn_fill(r, q, q->in);
    LpStatus s = plan(r, e);
    if (s != LP_OK) {
        lp_rnn_free(r);
        return s;
    }
    return lp_rnn_finish(r, q, k, forward, e);
}
