/* One direction of a recurrent layer over a whole sequence, which PopLibs has
 * as one operation: LSTM, GRU and RNN, with x_t the input and h the state,
 *
 *   LSTM  i, f, o = sigmoid, g = tanh of W_ih x_t + b_ih + W_hh h + b_hh
 *         c = f c + i g,  h = o tanh(c), projected by W_hr if there is one
 *   GRU   r, z = sigmoid of both shares, n = tanh(x's + r h's)
 *         h = (1 - z) n + z h
 *   RNN   h = tanh or relu of both shares
 *
 * source: the equations of the PyTorch documentation of each class.
 * Over rows of a table (lstm_rows, …) a layer is one with the embedding that
 * looks them up: the table stands in the place of the input, its gradient in
 * that of the input's, and the indices [steps, batch] come last. The host runs
 * that instead of the two (passes/host/embedding_hoist.c).
 *
 * Results beyond the output and the last state are for the gradient: what the
 * gates gave and the cells of all steps. Gradients of gradients run the
 * expansion (recurrent_expand.c), whose gates depend on the input. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/ops/index/index.h"
#include "src/ops/nn/nnop.h"
#include "src/ops/nn/recurrent_expand.h"

/* ---- shape rules --------------------------------------------------------- */
static const char *const names[LP_RNN_ROLES] = {
    "input",     "h_0",     "c_0",     "weight_ih",
    "weight_hh", "bias_ih", "bias_hh", "weight_hr"};

typedef struct Sizes {
    int64_t steps, batch, hidden, out;
    LpDtype t;
} Sizes;

static LpType type_of(LpDtype t, int n, int64_t a, int64_t b, int64_t c)
{
    LpType type = {.dtype = t, .ndim = (int8_t)n};
    int64_t s[3] = {a, b, c};
    memcpy(type.shape, s, (size_t)n * sizeof *s);
    return type;
}

/* Operand i is absent (where it may be) or of type `want`. */
static LpStatus check(const LpInfer *x, int i, const char *name,
                      const LpType *want)
{
    const LpType *t = &x->in[i];
    if (t->dtype == LP_DT_NONE)
        return LP_OK;
    LP_FAIL_IF(!lp_shape_eq(t, want) || t->dtype != want->dtype, x->err,
               LP_E_RUNTIME,
               "%s: expected `%s` to be %s of shape %s, got %s of shape %s",
               x->op->name, name, lp_dtype_name(want->dtype),
               lp_shape_str(want), lp_dtype_name(t->dtype), lp_shape_str(t));
    return LP_OK;
}

/* The three operands that give the sizes. */
static LpStatus measure(const LpInfer *x, int first, const LpRnnKindInfo *k,
                        Sizes *s)
{
    const LpType *in = x->in + first, *t = &in[0];
    const LpType *w = &in[k->at[LP_RNN_W_IH]], *hh = &in[k->at[LP_RNN_W_HH]];
    LP_TRY(lp_need_float(x, first, "input"));
    LP_FAIL_IF(t->ndim != 3 || t->shape[0] == 0, x->err, LP_E_RUNTIME,
               "%s: expected `input` of shape (steps, batch, size) with at "
               "least one step, got %s",
               x->op->name, lp_shape_str(t));
    LP_FAIL_IF(w->ndim != 2 || hh->ndim != 2 || w->shape[0] % k->gates != 0 ||
                   hh->shape[0] != w->shape[0],
               x->err, LP_E_RUNTIME,
               "%s: expected `weight_ih` and `weight_hh` with as many rows, a "
               "multiple of %d, got %s and %s",
               x->op->name, k->gates, lp_shape_str(w), lp_shape_str(hh));
    *s = (Sizes){.steps = t->shape[0],
                 .batch = t->shape[1],
                 .hidden = w->shape[0] / k->gates,
                 .out = hh->shape[1],
                 .t = t->dtype};
    return LP_OK;
}

static LpStatus check_operands(const LpInfer *x, int first,
                               const LpRnnKindInfo *k, Sizes *s)
{
    LP_TRY(measure(x, first, k, s));
    int64_t rows = s->hidden * k->gates;
    LpDtype t = s->t;
    LpType want[LP_RNN_ROLES] = {
        [LP_RNN_X] = x->in[first],
        [LP_RNN_H0] = type_of(t, 2, s->batch, s->out, 0),
        [LP_RNN_C0] = type_of(t, 2, s->batch, s->hidden, 0),
        [LP_RNN_W_IH] = type_of(t, 2, rows, x->in[first].shape[2], 0),
        [LP_RNN_W_HH] = type_of(t, 2, rows, s->out, 0),
        [LP_RNN_B_IH] = type_of(t, 1, rows, 0, 0),
        [LP_RNN_B_HH] = type_of(t, 1, rows, 0, 0),
        [LP_RNN_W_HR] = type_of(t, 2, s->out, s->hidden, 0),
    };
    int hr = k->at[LP_RNN_W_HR];
    bool projects = hr >= 0 && x->in[first + hr].dtype != LP_DT_NONE;
    if (!projects)
        want[LP_RNN_W_HH].shape[1] = s->hidden;
    for (int i = 0; i < LP_RNN_ROLES; i++)
        if (k->at[i] >= 0)
            LP_TRY(check(x, first + k->at[i], names[i], &want[i]));
    return LP_OK;
}

static void result_types(const Sizes *s, const LpRnnKindInfo *k, LpType *out)
{
    *out++ = type_of(s->t, 3, s->steps, s->batch, s->out);
    *out++ = type_of(s->t, 2, s->batch, s->out, 0);
    if (k->n_state > 1)
        *out++ = type_of(s->t, 2, s->batch, s->hidden, 0);
    if (k->n_kept > 0)
        *out++ = type_of(s->t, 3, s->steps, s->batch, k->kept * s->hidden);
    if (k->n_kept > 1)
        *out = type_of(s->t, 3, s->steps, s->batch, s->hidden);
}

static LpStatus infer(LpInfer *x)
{
    const LpRnnKindInfo *k = lp_rnn_info(lp_rnn_kind(x->op, x->attr));
    Sizes s;
    LP_TRY(check_operands(x, 0, k, &s));
    result_types(&s, k, x->out);
    return LP_OK;
}

static LpStatus infer_back(LpInfer *x)
{
    static const char *const grad[] = {"output_grad", "h_n_grad", "c_n_grad"};
    static const char *const kept[] = {"output", "gates", "cells"};
    const LpRnnKindInfo *k = lp_rnn_info(lp_rnn_kind(x->op, x->attr));
    int first = 1 + k->n_state;
    Sizes s;
    LpType want[5];
    LP_TRY(check_operands(x, first, k, &s));
    result_types(&s, k, want);
    for (int i = 0; i < first; i++)
        LP_TRY(check(x, i, grad[i], &want[i]));
    for (int i = 0; i <= k->n_kept; i++)
        LP_TRY(check(x, first + k->n_in + i, kept[i],
                     &want[i == 0 ? 0 : k->n_state + i]));
    int64_t need = lp_rnn_need(x->op, x->attr);
    for (int i = 0; i < k->n_in; i++) {
        LP_FAIL_IF(need >> i & 1 && x->in[first + i].dtype == LP_DT_NONE,
                   x->err, LP_E_RUNTIME,
                   "%s: `need` asks for the gradient of operand %d, which is "
                   "absent",
                   x->op->name, i);
        x->out[i] = need >> i & 1 ? x->in[first + i] : type_of(s.t, 1, 0, 0, 0);
    }
    return LP_OK;
}

/* ---- gradient ------------------------------------------------------------ */
static void grad(LpGrad *g)
{
    const LpRnnKindInfo *k = lp_rnn_info(lp_rnn_kind(g->op, g->attr));
    LpVal in[LP_MAX_IN], d[LP_MAX_OUT] = {0};
    LpAttr attr[3];
    int n = 0, states = 1 + k->n_state;
    int64_t need = 0;
    for (int i = states; i < g->n_out; i++)
        if (g->dout[i] != LP_NOVAL) {
            lp_fail(g->b->err, LP_E_NOT_IMPLEMENTED,
                    "%s: the gradient with respect to the gates and cells "
                    "(results from %d on) is not defined",
                    g->op->name, states);
            return;
        }
    for (int i = 0; i < states; i++)
        in[n++] = g->dout[i];
    for (int i = 0; i < k->n_in; i++) {
        in[n++] = g->in[i];
        need |= (int64_t)g->need[i] << i;
    }
    in[n++] = g->out[0];
    for (int i = 0; i < k->n_kept; i++)
        in[n++] = g->out[states + i];
    for (int i = 0; i < g->op->n_attr; i++)
        attr[i] = g->attr[i];
    attr[g->op->n_attr] = lp_attr_int(need);
    int back = ((const LpRnnFacts *)g->op->data)->back;
    if (lp_emit_n(g->b, back, in, n, attr, d) != k->n_in)
        return;
    for (int i = 0; i < k->n_in; i++)
        if (g->need[i])
            g->din[i] = d[i];
}

/* ---- records ------------------------------------------------------------- */
#define EXPANSIONS(name)                                                       \
    LP_EXPAND(expand_##name)                                                   \
    {                                                                          \
        lp_rnn_expand(b, &op_##name, attr, in, out);                           \
    }                                                                          \
    LP_EXPAND(expand_##name##_back)                                            \
    {                                                                          \
        lp_rnn_expand_back(b, &op_##name##_backward, attr, in, out);           \
    }
EXPANSIONS(lstm)
EXPANSIONS(gru)
EXPANSIONS(rnn)

#define RECURRENT(id, KIND, form, reads, keeps)                                \
    LP_PRIMITIVE(                                                              \
        id, form, infer, lp_rnn_prepare, lp_rule_recurrent,                    \
        .kind = LP_OP_FUSED, .flags = LP_OPF_DEVICE | LP_OPF_CACHED,           \
        .expand = expand_##id, .grad = grad, .grad_in = reads,                 \
        .grad_out = keeps,                                                     \
        .data = &(const LpRnnFacts){LP_RNN_##KIND, LP_OP_##id##_backward})
#define BACKWARD(id, KIND, form)                                               \
    LP_PRIMITIVE(id##_backward, form, infer_back, lp_rnn_back_prepare,         \
                 lp_rule_recurrent_back, .kind = LP_OP_FUSED,                  \
                 .flags = LP_OPF_DEVICE | LP_OPF_CACHED,                       \
                 .expand = expand_##id##_back,                                 \
                 .data = &(const LpRnnFacts){.kind = LP_RNN_##KIND})

#define WEIGHTS                                                                \
    "Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh"
#define LSTM_IN                                                                \
    "Tensor input, Tensor? h_0, Tensor? c_0, " WEIGHTS ", Tensor? weight_hr"
#define PLAIN_IN "Tensor input, Tensor? h_0, " WEIGHTS
#define GRADS                                                                  \
    "Tensor weight_ih_grad, Tensor weight_hh_grad, Tensor bias_ih_grad, "      \
    "Tensor bias_hh_grad"
#define PLAIN_OUT "(Tensor input_grad, Tensor h_0_grad, " GRADS ") @p"

RECURRENT(lstm, LSTM,
          "lstm(" LSTM_IN ", bool reverse) -> (Tensor output, Tensor h_n, "
          "Tensor c_n, Tensor gates, Tensor cells) @p",
          0xff, 0x19)
BACKWARD(lstm, LSTM,
         "lstm_backward(Tensor? output_grad, Tensor? h_n_grad, Tensor? "
         "c_n_grad, " LSTM_IN ", Tensor output, Tensor gates, Tensor cells, "
         "bool reverse, int need) -> (Tensor input_grad, Tensor h_0_grad, "
         "Tensor c_0_grad, " GRADS ", Tensor weight_hr_grad) @p")
RECURRENT(gru, GRU,
          "gru(" PLAIN_IN ", bool reverse) -> (Tensor output, Tensor h_n, "
          "Tensor gates) @p",
          0x3f, 0x5)
BACKWARD(gru, GRU,
         "gru_backward(Tensor? output_grad, Tensor? h_n_grad, " PLAIN_IN
         ", Tensor output, Tensor gates, bool reverse, int need) "
         "-> " PLAIN_OUT)
RECURRENT(rnn, TANH,
          "rnn(" PLAIN_IN ", bool reverse, bool relu) -> (Tensor output, "
          "Tensor h_n) @p",
          0x3f, 0x1)
BACKWARD(rnn, TANH,
         "rnn_backward(Tensor? output_grad, Tensor? h_n_grad, " PLAIN_IN
         ", Tensor output, bool reverse, bool relu, int need) -> " PLAIN_OUT)

/* ---- over rows of a table ------------------------------------------------ */
/* The operands of the layer over the rows that are looked up. */
static LpStatus look_up(LpInfer *x, int first, LpType *in)
{
    const LpType *table = &x->in[first], *ids = &x->in[x->n_in - 1];
    LP_TRY(lp_check_index(x, x->n_in - 1, "ids"));
    LP_FAIL_IF(table->ndim != 2 || ids->ndim != 2, x->err, LP_E_RUNTIME,
               "%s: expected `table` of shape (rows, size) and `ids` of shape "
               "(steps, batch), got %s and %s",
               x->op->name, lp_shape_str(table), lp_shape_str(ids));
    memcpy(in, x->in, (size_t)x->n_in * sizeof *in);
    in[first] =
        type_of(table->dtype, 3, ids->shape[0], ids->shape[1], table->shape[1]);
    return LP_OK;
}

static LpStatus infer_rows(LpInfer *x)
{
    LpType in[LP_MAX_IN];
    LpInfer rows = *x;
    LP_TRY(look_up(x, 0, in));
    rows.in = in;
    return infer(&rows);
}

static int states_of(const LpOp *op, const LpAttr *attr)
{
    return 1 + lp_rnn_info(lp_rnn_kind(op, attr))->n_state;
}

static LpStatus infer_rows_back(LpInfer *x)
{
    LpType in[LP_MAX_IN];
    LpInfer rows = *x;
    int first = states_of(x->op, x->attr);
    LP_TRY(look_up(x, first, in));
    rows.in = in;
    LP_TRY(infer_back(&rows));
    if (lp_rnn_need(x->op, x->attr) & 1)
        x->out[0] = x->in[first];
    return LP_OK;
}

/* Layer `op` over the rows; `first`: the table's operand. */
static void expand_over(LpBuilder *b, int op, int first, const LpAttr *attr,
                        const LpVal *in, int n_in, LpVal *out)
{
    LpVal arg[LP_MAX_IN];
    memcpy(arg, in, (size_t)n_in * sizeof *in);
    arg[first] = lp_emit(b, LP_OP_embedding, (LpVal[]){in[first], in[n_in - 1]},
                         2, &LP_NONE_ATTR);
    if (!lp_failed(b))
        lp_emit_n(b, op, arg, n_in - 1, attr, out);
}

static void expand_rows(LpBuilder *b, int op, const LpAttr *attr,
                        const LpVal *in, int n_in, LpVal *out)
{
    expand_over(b, op, 0, attr, in, n_in, out);
}

static void expand_rows_back(LpBuilder *b, int op, const LpAttr *attr,
                             const LpVal *in, int n_in, LpVal *out)
{
    int first = states_of(lp_ops[op], attr);
    expand_over(b, op, first, attr, in, n_in, out);
    if (lp_failed(b) || !(lp_rnn_need(lp_ops[op], attr) & 1))
        return;
    LpAttr rows[] = {lp_attr_int(lp_type(b, in[first])->shape[0]),
                     LP_NONE_ATTR};
    out[0] = lp_emit(b, LP_OP_embedding_backward,
                     (LpVal[]){out[0], in[n_in - 1]}, 2, rows);
}

#define ROWS(id, layer, KIND, way, kernel, form)                               \
    LP_EXPAND(expand_##id)                                                     \
    {                                                                          \
        expand_##way(b, LP_OP_##layer, attr, in, n_in, out);                   \
    }                                                                          \
    LP_PRIMITIVE(id, form, infer_##way, kernel, NULL, .kind = LP_OP_FUSED,     \
                 .flags = LP_OPF_CACHED, .expand = expand_##id,                \
                 .data = &(const LpRnnFacts){.kind = LP_RNN_##KIND})

#define LSTM_ROWS                                                              \
    "Tensor table, Tensor? h_0, Tensor? c_0, " WEIGHTS ", Tensor? weight_hr"
#define PLAIN_ROWS "Tensor table, Tensor? h_0, " WEIGHTS
#define ROWS_OUT "(Tensor table_grad, Tensor h_0_grad, " GRADS ") @p"

ROWS(lstm_rows, lstm, LSTM, rows, lp_rnn_prepare,
     "lstm_rows(" LSTM_ROWS ", Tensor ids, bool reverse) -> (Tensor output, "
     "Tensor h_n, Tensor c_n, Tensor gates, Tensor cells) @p")
ROWS(lstm_rows_backward, lstm_backward, LSTM, rows_back, lp_rnn_back_prepare,
     "lstm_rows_backward(Tensor? output_grad, Tensor? h_n_grad, Tensor? "
     "c_n_grad, " LSTM_ROWS ", Tensor output, Tensor gates, Tensor cells, "
     "Tensor ids, bool reverse, int need) -> (Tensor table_grad, Tensor "
     "h_0_grad, Tensor c_0_grad, " GRADS ", Tensor weight_hr_grad) @p")
ROWS(gru_rows, gru, GRU, rows, lp_rnn_prepare,
     "gru_rows(" PLAIN_ROWS ", Tensor ids, bool reverse) -> (Tensor output, "
     "Tensor h_n, Tensor gates) @p")
ROWS(gru_rows_backward, gru_backward, GRU, rows_back, lp_rnn_back_prepare,
     "gru_rows_backward(Tensor? output_grad, Tensor? h_n_grad, " PLAIN_ROWS
     ", Tensor output, Tensor gates, Tensor ids, bool reverse, int need) "
     "-> " ROWS_OUT)
ROWS(rnn_rows, rnn, TANH, rows, lp_rnn_prepare,
     "rnn_rows(" PLAIN_ROWS ", Tensor ids, bool reverse, bool relu) -> (Tensor "
     "output, Tensor h_n) @p")
ROWS(rnn_rows_backward, rnn_backward, TANH, rows_back, lp_rnn_back_prepare,
     "rnn_rows_backward(Tensor? output_grad, Tensor? h_n_grad, " PLAIN_ROWS
     ", Tensor output, Tensor ids, bool reverse, bool relu, int need) "
     "-> " ROWS_OUT)

int lp_rnn_rows(const LpOp *op)
{
    static const int rows[][2] = {
        {LP_OP_lstm, LP_OP_lstm_rows},
        {LP_OP_lstm_backward, LP_OP_lstm_rows_backward},
        {LP_OP_gru, LP_OP_gru_rows},
        {LP_OP_gru_backward, LP_OP_gru_rows_backward},
        {LP_OP_rnn, LP_OP_rnn_rows},
        {LP_OP_rnn_backward, LP_OP_rnn_rows_backward},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (op->id == rows[i][0])
            return rows[i][1];
    return -1;
}
