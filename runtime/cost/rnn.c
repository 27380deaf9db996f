/* Recurrent layers: a loop over the steps, each of which slices its inputs out
 * of the sequence, multiplies, joins the gates and writes what it made into
 * sequences; in training, what the gradient needs too. Products are brought to
 * where the state lies. Weights of the gradient are transposed once, before
 * the loop; the weights' own gradient is added to in a loop of its own unless
 * the gates' gradients of all steps are more than the weights. Source: PL
 * popnn/Lstm, Gru and Rnn. */
#include "runtime/cost/units.h"

/* What a step works on: elements of the state, of the input. */
typedef struct Step {
    const LpCostCtx *x;
    LpCostType t;
    const LpRnnShape *s;
    int64_t state, input, width;
    LpCost c;
} Step;

static void op(Step *p, LpEwOp op, LpEwForm form, int64_t n)
{
    lp_cost_add(&p->c, lp_cost_elementwise(p->x, op, form, p->t, n));
}

/* Sigmoids of `sigmoids` and tanh of n elements where they lie, in one compute
 * set: vertices of their own, of which a vector takes twice the function's
 * cycles (PL popnn cycle estimators, NonLinearitySupervisor). */
static void gate(Step *p, LpEwOp e, int64_t n)
{
    LpTileMap m = lp_tile_map(p->x, p->t, n, vec_elems(p->x->chip, p->t));
    int64_t vecs = div_up(m.tile_elems, 6 * vec_elems(p->x->chip, p->t));
    int64_t each = p->t != LP_COST_HALF ? 5 : e == LP_EW_tanh ? 1 : 2;
    cost_vertices(&p->c,
                  (Vertices){.id = ew_codelet_id(e, LP_EW_UNARY_INPLACE, p->t),
                             .tiles = m.tiles,
                             .n = 1,
                             .edges = 1,
                             .scalars = 2,
                             .cyc = 9 + 6 * (18 + 3 + 2 * each +
                                             (vecs - 1) * 2 * each + 4)});
    p->c.flops += n;
    cost_ew_codelet(&p->c, e, LP_EW_UNARY_INPLACE, p->t);
}

static void gates_in_place(Step *p, int64_t sigmoids, int64_t n)
{
    if (sigmoids)
        gate(p, LP_EW_sigmoid, sigmoids);
    if (n)
        gate(p, LP_EW_tanh, n);
    cost_step(p->x, &p->c, 0, NO_VERTICES);
    p->c.compute_sets++;
}

/* One expression of so many operations on `inputs` tensors of n elements: a
 * worker takes two vectors at least (PL popops/ExpressionGenerator). */
static void fused(Step *p, int inputs, int ops, int64_t n)
{
    int64_t v = vec_elems(p->x->chip, p->t);
    LpTileMap m = lp_tile_map(p->x, p->t, n, v);
    int64_t vecs = lp_max(div_up(m.tile_elems, 6 * v), 2);
    vecs = lp_min(vecs, div_up(m.tile_elems, v));
    cost_step(p->x, &p->c, 0,
              (Vertices){.id = ew_codelet_id(LP_EW_mul, LP_EW_BINARY, p->t),
                         .tiles = m.tiles,
                         .n = 1,
                         .edges = inputs + 1,
                         .scalars = 2,
                         .cyc = 6 * (13 + vecs * inputs * ops)});
    p->c.flops += n * ops;
    cost_ew_codelet(&p->c, LP_EW_mul, LP_EW_BINARY, p->t);
}

/* n elements of a sequence, read or written. */
static void slice(Step *p, int64_t n)
{
    lp_cost_add(&p->c, lp_cost_dynamic_slice(p->x, p->t, p->s->steps, n, 1));
}

/* A copy between tensors that lie alike. */
static void keep(Step *p, int64_t n)
{
    LpTileMap m = lp_tile_map(p->x, p->t, n, 8);
    cost_step(
        p->x, &p->c, 0,
        (Vertices){.id = codelet_id(LP_CODELET_copy, p->t),
                   .tiles = m.tiles,
                   .n = 1,
                   .edges = 2,
                   .scalars = 2,
                   .cyc = copy_cyc(p->x->chip, p->t, m.tile_elems, false)});
}

/* A product's result, grouped by the batch: transposed where it is, sent to
 * where the state lies. */
static void bring(Step *p, int64_t n)
{
    int64_t tiles = ctx_tiles(p->x), mine = div_up(n, tiles);
    cost_step(p->x, &p->c, 0,
              (Vertices){.id = codelet_id(LP_CODELET_copy, p->t),
                         .tiles = tiles,
                         .n = 1,
                         .edges = 2,
                         .scalars = 2,
                         .cyc = transpose_cyc(p->t, div_up(mine, 256),
                                              (Block){16, 16})});
    cost_step(
        p->x, &p->c,
        div_up(mine * lp_cost_type_bytes(p->t), p->x->chip->exchange_bytes_cyc),
        NO_VERTICES);
}

static void multiply(Step *p, int64_t k, int64_t n, LpConvPass pass)
{
    LpMatmulShape m = {1, p->s->batch, k, n};
    lp_cost_add(&p->c, lp_cost_matmul(p->x, p->t, m, pass));
}

/* The product of one or several gates, with its bias. */
static void gates(Step *p, int gates, LpConvPass pass)
{
    int64_t n = gates * p->s->hidden, all = lp_mul_sat(p->s->batch, n);
    multiply(p, p->s->in + p->s->hidden, n, pass);
    bring(p, all);
    lp_cost_add(&p->c, lp_cost_broadcast(p->x, LP_EW_add, p->t, all, n, 1));
}

static void count_up(Step *p)
{
    int64_t cyc =
        lp_ew_tile_cyc(p->x->chip, LP_EW_add, LP_EW_SCALAR, LP_COST_INT, 1);
    cost_step(
        p->x, &p->c, 0,
        (Vertices){.id = ew_codelet_id(LP_EW_add, LP_EW_SCALAR, LP_COST_INT),
                   .tiles = 1,
                   .n = 1,
                   .edges = 2,
                   .scalars = 2,
                   .cyc = cyc,
                   .idle_cyc = idle_cyc(p->x->chip, cyc, 1)});
}

static void lstm(Step *p, LpConvPass pass, bool trains)
{
    int64_t n = p->state;
    gates(p, 4, pass);
    gates_in_place(p, 3 * n, n);
    op(p, LP_EW_mul, LP_EW_BINARY_INPLACE, 2 * n);
    op(p, LP_EW_add, LP_EW_BINARY_INPLACE, n);
    if (!trains) {
        fused(p, 2, 2, n);
        return;
    }
    op(p, LP_EW_tanh, LP_EW_UNARY, n);
    op(p, LP_EW_mul, LP_EW_BINARY, n);
}

/* The candidate is a product of its own, of the state behind the reset gate. */
static void gru(Step *p, LpConvPass pass)
{
    int64_t n = p->state;
    gates(p, 2, pass);
    gates_in_place(p, 2 * n, 0);
    op(p, LP_EW_mul, LP_EW_BINARY, n);
    gates(p, 1, pass);
    gates_in_place(p, 0, n);
    op(p, LP_EW_sub, LP_EW_BINARY, n);
    op(p, LP_EW_mul, LP_EW_BINARY, n);
    op(p, LP_EW_add, LP_EW_BINARY, n);
}

static Step step_of(const LpCostCtx *x, LpCostType t, const LpRnnShape *s)
{
    return (Step){.x = x,
                  .t = t,
                  .s = s,
                  .state = lp_mul_sat(s->batch, s->hidden),
                  .input = lp_mul_sat(s->batch, s->in),
                  .width = lp_mul_sat(s->gates, s->hidden)};
}

/* Values of the state's size that a step leaves for its gradient. */
static int64_t kept(const LpRnnShape *s)
{
    return s->gates == 4 ? 6 : s->gates == 3 ? 4 : 1;
}

LpCost lp_cost_rnn(const LpCostCtx *x, LpCostType t, const LpRnnShape *s,
                   LpConvPass pass)
{
    Step p = step_of(x, t, s);
    bool trains = pass != LP_PASS_NONE;
    if (!p.state || !s->steps)
        return p.c;
    slice(&p, p.input);
    if (s->gates == 4) {
        lstm(&p, pass, trains);
    } else if (s->gates == 3) {
        gru(&p, pass);
    } else {
        gates(&p, 1, pass);
        gates_in_place(&p, 0, p.state);
    }
    if (trains) {
        keep(&p, kept(s) * p.state);
        keep(&p, (s->gates == 4 ? 2 : 1) * p.state);
        slice(&p, kept(s) * p.state);
    }
    slice(&p, p.state); /* the output */
    count_up(&p);
    p.c = lp_cost_repeat(p.c, s->steps);
    /* the sequence is laid out for the slices */
    lp_cost_add(&p.c,
                lp_cost_exchange(x, t, lp_mul_sat(s->steps, p.input), s->in));
    return p.c;
}

static void gate_grads(Step *p, int64_t n)
{
    op(p, LP_EW_sigmoid_grad, LP_EW_BINARY, n);
}

static void lstm_grad(Step *p)
{
    int64_t n = p->state;
    op(p, LP_EW_mul, LP_EW_BINARY, 2 * n);
    gate_grads(p, 2 * n);
    op(p, LP_EW_add, LP_EW_BINARY_INPLACE, n);
    op(p, LP_EW_mul, LP_EW_BINARY, 4 * n);
    gate_grads(p, 3 * n);
    multiply(p, 4 * p->s->hidden, p->s->in + p->s->hidden, LP_PASS_FWD);
    bring(p, p->input + n);
}

static void gru_grad(Step *p)
{
    int64_t n = p->state, wide = p->s->in + p->s->hidden;
    op(p, LP_EW_mul, LP_EW_BINARY, 2 * n);
    op(p, LP_EW_sub, LP_EW_BINARY, n);
    gate_grads(p, 2 * n);
    multiply(p, p->s->hidden, wide, LP_PASS_FWD);
    bring(p, p->input + n);
    op(p, LP_EW_mul, LP_EW_BINARY, 2 * n);
    gate_grads(p, n);
    multiply(p, 2 * p->s->hidden, wide, LP_PASS_FWD);
    bring(p, p->input + n);
    op(p, LP_EW_add, LP_EW_BINARY_INPLACE, p->input);
    op(p, LP_EW_add, LP_EW_BINARY_INPLACE, n);
}

/* Added to the gradients of the weights in a step: sequences of inputs and of
 * outputs are read for it. */
static LpCost weight_grads(const Step *p)
{
    int64_t wide = p->s->in + p->s->hidden;
    int64_t first = p->s->gates == 3 ? 2 * p->s->hidden : p->width;
    LpMatmulShape m = {1, wide, p->s->batch, first};
    LpCost c = lp_cost_matmul(p->x, p->t, m, LP_PASS_WU);
    lp_cost_add(&c,
                lp_cost_scaled_add(p->x, p->t, lp_mul_sat(wide, first), false));
    if (first == p->width)
        return c;
    m.n = p->s->hidden;
    lp_cost_add(&c, lp_cost_matmul(p->x, p->t, m, LP_PASS_WU));
    lp_cost_add(&c,
                lp_cost_scaled_add(p->x, p->t, lp_mul_sat(wide, m.n), false));
    return c;
}

LpCost lp_cost_rnn_grad(const LpCostCtx *x, LpCostType t, const LpRnnShape *s)
{
    Step p = step_of(x, t, s);
    int64_t weights = lp_mul_sat(s->in + s->hidden, p.width);
    int64_t all = lp_mul_sat(p.state, s->gates);
    if (!p.state || !s->steps)
        return p.c;
    slice(&p, p.state); /* of the output's gradient */
    slice(&p, kept(s) * p.state);
    op(&p, LP_EW_add, LP_EW_BINARY, p.state);
    if (s->gates == 4) {
        lstm_grad(&p);
    } else if (s->gates == 3) {
        gru_grad(&p);
    } else {
        gate_grads(&p, p.state);
        multiply(&p, s->hidden, s->in + s->hidden, LP_PASS_FWD);
        bring(&p, p.input + p.state);
    }
    keep(&p, 2 * p.state);
    slice(&p, p.input);
    /* where the transposed weights are less than the gates' gradients of all
     * steps, these are not kept for a loop of their own */
    bool inside = weights <= lp_mul_sat(all, s->steps);
    Step apart = step_of(x, t, s), *w = inside ? &p : &apart;
    slice(w, p.input);
    slice(w, p.state);
    lp_cost_add(&w->c, weight_grads(w));
    op(w, LP_EW_add, LP_EW_BINARY_INPLACE, all); /* the biases' */
    if (!inside) {
        slice(&p, all);
        slice(&apart, all);
        count_up(&apart);
    }
    count_up(&p);
    /* the transposed weights are there all the while */
    p.c.temp_tile_bytes += lp_tile_map(x, t, weights, 16).tile_bytes;
    lp_cost_add(&p.c, apart.c);
    p.c = lp_cost_repeat(p.c, s->steps);
    int64_t rows[2] = {s->batch, p.width};
    lp_cost_add(&p.c, lp_cost_reduce(x, LP_RED_ADD, t, rows, 2, 1));
    lp_cost_add(&p.c, lp_cost_copy(x, t, weights, 1));
    return p.c;
}
