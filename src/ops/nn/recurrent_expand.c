/* The sequence step by step, forward; backward by the chain rule over the
 * gates that the steps kept. */
#include "src/ops/nn/recurrent_expand.h"
#include "src/ops/rules.h"

/* One step, all [B, hidden] but `out`, which is [B, out]. gate: the columns
 * kept for the gradient. */
typedef struct Step {
    LpVal gate[4], c, h, out;
} Step;

typedef struct Sequence {
    LpBuilder *b;
    LpRnnKind kind;
    const LpRnnKindInfo *info;
    int64_t steps, batch, in, hidden, out;
    bool reverse;
    LpDtype t;
    LpVal arg[LP_RNN_ROLES]; /* states: zeros for holes */
    Step *step;              /* by place in the sequence */
} Sequence;

static int64_t place(const Sequence *s, int64_t i)
{
    return s->reverse ? s->steps - 1 - i : i;
}

/* ---- forward ------------------------------------------------------------- */
/* Columns k n … k n + n - 1 of v [B, …]. */
static LpVal part(const Sequence *s, LpVal v, int k)
{
    int64_t n = s->hidden;
    return lp_slice(s->b, v, 1, k * n, (k + 1) * n, 1);
}

static LpVal linear(LpBuilder *b, LpVal x, LpVal w, LpVal bias)
{
    LpVal y = lp_matmul(b, x, lp_transpose(b, w, 0, 1));
    return bias == LP_NOVAL ? y : lp_add(b, y, bias);
}

static LpVal sigmoid(LpBuilder *b, LpVal x)
{
    return lp_op1(b, LP_OP_sigmoid, x);
}

static LpVal htan(LpBuilder *b, LpVal x)
{
    return lp_op1(b, LP_OP_tanh, x);
}

static LpVal one_less(LpBuilder *b, LpVal x)
{
    return lp_sub(b, lp_immf(b, 1), x);
}

static void lstm_step(Sequence *s, LpVal x, LpVal h, LpVal c_prev, Step *v)
{
    LpBuilder *b = s->b;
    LpVal sum = lp_add(b, x, h);
    for (int k = 0; k < 4; k++) {
        LpVal g = part(s, sum, k);
        v->gate[k] = k == 2 ? htan(b, g) : sigmoid(b, g);
    }
    v->c = lp_add(b, lp_mul(b, v->gate[1], c_prev),
                  lp_mul(b, v->gate[0], v->gate[2]));
    v->h = lp_mul(b, v->gate[3], htan(b, v->c));
}

static void gru_step(Sequence *s, LpVal x, LpVal h, LpVal prev, Step *v)
{
    LpBuilder *b = s->b;
    for (int k = 0; k < 2; k++)
        v->gate[k] = sigmoid(b, lp_add(b, part(s, x, k), part(s, h, k)));
    v->gate[3] = part(s, h, 2);
    LpVal n = lp_add(b, part(s, x, 2), lp_mul(b, v->gate[0], v->gate[3]));
    v->gate[2] = htan(b, n);
    v->h = lp_add(b, lp_mul(b, one_less(b, v->gate[1]), v->gate[2]),
                  lp_mul(b, v->gate[1], prev));
}

/* The state before step i. */
static LpVal state_before(const Sequence *s, int64_t i)
{
    return i == 0 ? s->arg[LP_RNN_H0] : s->step[place(s, i - 1)].out;
}

static LpVal cell_before(const Sequence *s, int64_t i)
{
    return i == 0 ? s->arg[LP_RNN_C0] : s->step[place(s, i - 1)].c;
}

static void one_step(Sequence *s, int64_t i, LpVal shares)
{
    LpBuilder *b = s->b;
    int64_t t = place(s, i), rows = s->info->gates * s->hidden;
    Step *v = &s->step[t];
    LpVal x = lp_slice(b, shares, 0, t, t + 1, 1);
    x = lp_reshape(b, x, (int64_t[]){s->batch, rows}, 2);
    LpVal prev = state_before(s, i);
    LpVal h = linear(b, prev, s->arg[LP_RNN_W_HH], s->arg[LP_RNN_B_HH]);
    if (s->kind == LP_RNN_LSTM)
        lstm_step(s, x, h, cell_before(s, i), v);
    else if (s->kind == LP_RNN_GRU)
        gru_step(s, x, h, prev, v);
    else
        v->h = lp_op1(b, s->kind == LP_RNN_TANH ? LP_OP_tanh : LP_OP_relu,
                      lp_add(b, x, h));
    v->out = s->arg[LP_RNN_W_HR] == LP_NOVAL
                 ? v->h
                 : linear(b, v->h, s->arg[LP_RNN_W_HR], LP_NOVAL);
}

static void read_operands(Sequence *s, const LpVal *in)
{
    LpBuilder *b = s->b;
    for (int k = 0; k < LP_RNN_ROLES; k++)
        s->arg[k] = s->info->at[k] < 0 ? LP_NOVAL : in[s->info->at[k]];
    LpType x = lp_type_of(b, s->arg[LP_RNN_X]);
    LpType w = lp_type_of(b, s->arg[LP_RNN_W_HH]);
    s->t = x.dtype;
    s->steps = x.shape[0];
    s->batch = x.shape[1];
    s->in = x.shape[2];
    s->hidden = w.shape[0] / s->info->gates;
    s->out = w.shape[1];
    LpType state = {.dtype = x.dtype, .ndim = 2};
    state.shape[0] = s->batch;
    state.shape[1] = s->out;
    if (s->arg[LP_RNN_H0] == LP_NOVAL)
        s->arg[LP_RNN_H0] = lp_full(b, &state, lp_float(0));
    state.shape[1] = s->hidden;
    if (s->arg[LP_RNN_C0] == LP_NOVAL && s->kind == LP_RNN_LSTM)
        s->arg[LP_RNN_C0] = lp_full(b, &state, lp_float(0));
}

/* Emits all steps of the layer; `in` are the operands of the forward. False
 * after a failure. */
static bool unroll(Sequence *s, LpBuilder *b, const LpOp *op,
                   const LpAttr *attr, const LpVal *in)
{
    LpRnnKind kind = lp_rnn_kind(op, attr);
    *s = (Sequence){.b = b,
                    .kind = kind,
                    .info = lp_rnn_info(kind),
                    .reverse = attr[LP_RNN_REVERSE].i != 0};
    read_operands(s, in);
    s->step =
        lp_arena_calloc(b->scratch, (size_t)s->steps * sizeof *s->step + 1);
    if (!s->step)
        lp_fail(b->err, LP_E_MEMORY, "%s: out of memory", op->name);
    if (lp_failed(b))
        return false;
    LpVal shares =
        linear(b, s->arg[LP_RNN_X], s->arg[LP_RNN_W_IH], s->arg[LP_RNN_B_IH]);
    for (int64_t i = 0; i < s->steps && !lp_failed(b); i++)
        one_step(s, i, shares);
    return !lp_failed(b);
}

/* values [B, n] of all places as [T, B, n] */
static LpVal stack(Sequence *s, const LpVal *v, int64_t n)
{
    LpVal *row = lp_value_list(s->b, (int)s->steps);
    if (!row)
        return LP_NOVAL;
    for (int64_t t = 0; t < s->steps; t++)
        row[t] = lp_reshape(s->b, v[t], (int64_t[]){1, s->batch, n}, 3);
    return lp_failed(s->b) ? LP_NOVAL : lp_cat(s->b, row, (int)s->steps, 0);
}

void lp_rnn_expand(LpBuilder *b, const LpOp *op, const LpAttr *attr,
                   const LpVal *in, LpVal *out)
{
    Sequence s;
    if (!unroll(&s, b, op, attr, in))
        return;
    LpVal *v = lp_value_list(b, (int)s.steps);
    if (!v)
        return;
    for (int64_t t = 0; t < s.steps; t++)
        v[t] = s.step[t].out;
    out[0] = stack(&s, v, s.out);
    int64_t last = place(&s, s.steps - 1);
    out[1] = s.step[last].out;
    if (s.info->n_kept == 0)
        return;
    for (int64_t t = 0; t < s.steps && !lp_failed(b); t++)
        v[t] = lp_cat(b, s.step[t].gate, 4, 1);
    out[1 + s.info->n_state] = stack(&s, v, 4 * s.hidden);
    if (s.kind != LP_RNN_LSTM)
        return;
    out[2] = s.step[last].c;
    for (int64_t t = 0; t < s.steps; t++)
        v[t] = s.step[t].c;
    out[4] = stack(&s, v, s.hidden);
}

/* ---- backward ------------------------------------------------------------ */
/* d y (1 - y) and d (1 - y^2): through a sigmoid and a tanh of value y. */
static LpVal through_sigmoid(LpBuilder *b, LpVal d, LpVal y)
{
    return lp_mul(b, d, lp_mul(b, y, one_less(b, y)));
}

static LpVal through_tanh(LpBuilder *b, LpVal d, LpVal y)
{
    return lp_mul(b, d, one_less(b, lp_mul(b, y, y)));
}

static LpVal sum2(LpBuilder *b, LpVal x, LpVal y)
{
    return x == LP_NOVAL ? y : y == LP_NOVAL ? x : lp_add(b, x, y);
}

/* Gradients on their way back; LP_NOVAL is zero. */
typedef struct Back {
    Sequence s;
    LpVal carry, cell;            /* of the state and the cell */
    LpVal *dx, *dh, *before, *dy; /* by place */
} Back;

/* d: of the state h of step i. */
static void lstm_back(Back *k, int64_t i, int64_t t, LpVal d)
{
    LpBuilder *b = k->s.b;
    const Step *v = &k->s.step[t];
    LpVal tc = htan(b, v->c);
    LpVal dc = through_tanh(b, lp_mul(b, d, v->gate[3]), tc);
    dc = sum2(b, k->cell, dc);
    LpVal g[4];
    g[0] = through_sigmoid(b, lp_mul(b, dc, v->gate[2]), v->gate[0]);
    g[1] = through_sigmoid(b, lp_mul(b, dc, cell_before(&k->s, i)), v->gate[1]);
    g[2] = through_tanh(b, lp_mul(b, dc, v->gate[0]), v->gate[2]);
    g[3] = through_sigmoid(b, lp_mul(b, d, tc), v->gate[3]);
    k->cell = lp_mul(b, dc, v->gate[1]);
    if (!lp_failed(b))
        k->dx[t] = k->dh[t] = lp_cat(b, g, 4, 1);
}

/* Returns what goes past the product to the state before. */
static LpVal gru_back(Back *k, int64_t i, int64_t t, LpVal d)
{
    LpBuilder *b = k->s.b;
    const Step *v = &k->s.step[t];
    LpVal z = v->gate[1], n = v->gate[2], prev = state_before(&k->s, i);
    LpVal g[3];
    g[2] = through_tanh(b, lp_mul(b, d, one_less(b, z)), n);
    g[0] = through_sigmoid(b, lp_mul(b, g[2], v->gate[3]), v->gate[0]);
    g[1] = through_sigmoid(b, lp_mul(b, d, lp_sub(b, prev, n)), z);
    if (lp_failed(b))
        return LP_NOVAL;
    k->dx[t] = lp_cat(b, g, 3, 1);
    g[2] = lp_mul(b, g[2], v->gate[0]);
    if (!lp_failed(b))
        k->dh[t] = lp_cat(b, g, 3, 1);
    return lp_mul(b, d, z);
}

static void plain_back(Back *k, int64_t t, LpVal d)
{
    LpBuilder *b = k->s.b;
    LpVal h = k->s.step[t].h;
    if (k->s.kind == LP_RNN_TANH)
        d = through_tanh(b, d, h);
    else
        d = lp_mul(b, d,
                   lp_cast(b, lp_op2(b, LP_OP_gt, h, lp_immf(b, 0)), k->s.t));
    k->dx[t] = k->dh[t] = d;
}

static void step_back(Back *k, int64_t i, LpVal dy)
{
    LpBuilder *b = k->s.b;
    int64_t t = place(&k->s, i);
    LpVal d = k->carry;
    if (dy != LP_NOVAL) {
        dy = lp_slice(b, dy, 0, t, t + 1, 1);
        dy = lp_reshape(b, dy, (int64_t[]){k->s.batch, k->s.out}, 2);
        d = sum2(b, d, dy);
    }
    if (d == LP_NOVAL) { /* only the cell has a gradient yet */
        LpType zero = lp_type_of(b, k->s.step[t].out);
        d = lp_full(b, &zero, lp_float(0));
    }
    k->dy[t] = d;
    k->before[t] = state_before(&k->s, i);
    if (k->s.arg[LP_RNN_W_HR] != LP_NOVAL)
        d = lp_matmul(b, d, k->s.arg[LP_RNN_W_HR]);
    LpVal past = LP_NOVAL;
    if (k->s.kind == LP_RNN_LSTM)
        lstm_back(k, i, t, d);
    else if (k->s.kind == LP_RNN_GRU)
        past = gru_back(k, i, t, d);
    else
        plain_back(k, t, d);
    if (!lp_failed(b))
        k->carry = sum2(b, lp_matmul(b, k->dh[t], k->s.arg[LP_RNN_W_HH]), past);
}

/* x^T y over all places: x [T, B, m], y [T, B, n] */
static LpVal over_sequence(Sequence *s, LpVal x, int64_t m, LpVal y, int64_t n)
{
    int64_t all = s->steps * s->batch;
    LpVal a = lp_reshape(s->b, x, (int64_t[]){all, m}, 2);
    LpVal c = lp_reshape(s->b, y, (int64_t[]){all, n}, 2);
    return lp_matmul(s->b, lp_transpose(s->b, a, 0, 1), c);
}

static LpVal states(Back *k)
{
    LpVal *v = lp_value_list(k->s.b, (int)k->s.steps);
    for (int64_t t = 0; v && t < k->s.steps; t++)
        v[t] = k->s.step[t].h;
    return v ? stack(&k->s, v, k->s.hidden) : LP_NOVAL;
}

static LpVal gradient_of(Back *k, int role, LpVal dx, LpVal dh)
{
    Sequence *s = &k->s;
    LpBuilder *b = s->b;
    int64_t rows = s->info->gates * s->hidden;
    static const int64_t outer[2] = {0, 1};
    switch (role) {
    case LP_RNN_X:
        return lp_matmul(b, dx, s->arg[LP_RNN_W_IH]);
    case LP_RNN_H0:
        return k->carry;
    case LP_RNN_C0:
        return k->cell;
    case LP_RNN_W_IH:
        return over_sequence(s, dx, rows, s->arg[LP_RNN_X], s->in);
    case LP_RNN_W_HH:
        return over_sequence(s, dh, rows, stack(s, k->before, s->out), s->out);
    case LP_RNN_B_IH:
        return lp_sum(b, dx, outer, 2, false);
    case LP_RNN_B_HH:
        return lp_sum(b, dh, outer, 2, false);
    default:
        return over_sequence(s, stack(s, k->dy, s->out), s->out, states(k),
                             s->hidden);
    }
}

void lp_rnn_expand_back(LpBuilder *b, const LpOp *op, const LpAttr *attr,
                        const LpVal *in, LpVal *out)
{
    Back k = {0};
    const LpRnnKindInfo *info = lp_rnn_info(lp_rnn_kind(op, attr));
    if (!unroll(&k.s, b, op, attr, in + 1 + info->n_state))
        return;
    LpVal **list[] = {&k.dx, &k.dh, &k.before, &k.dy};
    for (int i = 0; i < 4; i++)
        if (!(*list[i] = lp_value_list(b, (int)k.s.steps)))
            return;
    k.carry = in[1];
    k.cell = info->n_state > 1 ? in[2] : LP_NOVAL;
    for (int64_t i = k.s.steps - 1; i >= 0 && !lp_failed(b); i--)
        step_back(&k, i, in[0]);
    if (lp_failed(b))
        return;
    int64_t rows = info->gates * k.s.hidden, need = lp_rnn_need(op, attr);
    LpVal dx = stack(&k.s, k.dx, rows);
    LpVal dh = k.dx[0] == k.dh[0] ? dx : stack(&k.s, k.dh, rows);
    LpType none = {.dtype = k.s.t, .ndim = 1};
    for (int i = 0; i < LP_RNN_ROLES; i++) {
        int at = info->at[i];
        if (at >= 0)
            out[at] = need >> at & 1 ? gradient_of(&k, i, dx, dh)
                                     : lp_full(b, &none, lp_float(0));
    }
}
