/* What pointwise operators and reductions cost on the device, in the words of
 * runtime/cost.
 *
 * An operand of another element type is cast first. A small operand is
 * broadcast. popops has maps of three operands as generated code; they are
 * charged as their steps. A running sum has no operation of its own there: it
 * is charged as doubling steps of a copy and an addition; a median or a mode as
 * the compare steps of a bitonic sort (Batcher, 1968), what popops uses. */
#include "src/kernel/loops/pointwise.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/infer.h"

/* ---- pointwise ----------------------------------------------------------- */
static bool is_number(const LpType *t)
{
    return t->dtype != LP_DT_NONE && (t->wrapped || lp_numel(t) == 1);
}

/* Casts of operands that are not of type t. */
static void add_casts(const LpCostReq *r, const LpCostCtx *x, int first,
                      LpCostType t, LpCost *out)
{
    for (int i = first; i < r->n_in; i++) {
        const LpType *in = &r->in[i];
        if (in->dtype == LP_DT_NONE || is_number(in))
            continue;
        LpCostType own = lp_cost_type(in->dtype);
        if (own != t)
            lp_cost_add(out, lp_cost_cast(x, own, t, lp_numel(in)));
    }
}

/* Neighbouring results that share an element of `small`. */
static int64_t shared_run(const LpType *small, const LpType *out)
{
    int64_t run = 1;
    for (int d = out->ndim - 1; d >= 0; d--) {
        int at = d - (out->ndim - small->ndim);
        if (at >= 0 && small->shape[at] != 1)
            break;
        run *= out->shape[d];
    }
    return run;
}

/* One step over n results of which some operand may be smaller. */
static LpCost step(const LpCostReq *r, const LpCostCtx *x, LpEwOp op,
                   LpCostType t, int64_t n)
{
    int tensors = 0;
    const LpType *small = NULL;
    int64_t row = n;
    for (int i = 0; i < r->n_in; i++) {
        if (r->in[i].dtype == LP_DT_NONE || is_number(&r->in[i]))
            continue;
        int64_t m = lp_numel(&r->in[i]);
        if (m < row) {
            row = m;
            small = &r->in[i];
        }
        tensors++;
    }
    if (r->n_in == 1)
        return lp_cost_elementwise(x, op, LP_EW_UNARY, t, n);
    if (tensors < 2)
        return lp_cost_elementwise(x, op, LP_EW_SCALAR, t, n);
    if (small)
        return lp_cost_broadcast(x, op, t, n, row,
                                 shared_run(small, &r->out[0]));
    return lp_cost_elementwise(x, op, LP_EW_BINARY, t, n);
}

void lp_rule_pointwise(const LpCostReq *r, LpCost *out)
{
    const LpPointwise *pw = lp_pointwise_of(r->op);
    LpCostCtx x = lp_cost_ctx_of(r);
    int64_t n = lp_numel(&r->out[0]);
    LpCostType t = lp_cost_type(r->out[0].dtype);
    if (pw->policy == LP_PW_CAST) {
        LpCostType from = lp_cost_type(r->in[0].dtype);
        lp_cost_add(out, from == t ? lp_cost_copy(&x, t, n, n)
                                   : lp_cost_cast(&x, from, t, n));
        return;
    }
    int first = pw->policy == LP_PW_MASK;
    if (pw->policy == LP_PW_BOOL)
        t = lp_cost_type(lp_infer_promote(r->in, r->n_in));
    add_casts(r, &x, first, t, out);
    bool scaled_only = pw->scaled == LP_PW_SCALED_BY_ALPHA &&
                       lp_scalar_f(r->attr[LP_ADD_ALPHA].s) != 1;
    LpEwOp row = (LpEwOp)(pw->cost_by ? pw->cost_by(r->attr) : pw->cost);
    if (!scaled_only)
        lp_cost_add(out, step(r, &x, row, t, n));
    if (scaled_only || pw->scaled == LP_PW_SCALED)
        lp_cost_add(out, lp_cost_scaled_add(&x, t, n, false));
}

/* ---- reductions ---------------------------------------------------------- */
static LpCost fold(const LpCostReq *r, const LpCostCtx *x, LpRedOp op,
                   LpCostType t)
{
    uint32_t reduced = 0;
    for (int i = 0; i < r->attr[LP_REDUCE_DIM].n; i++)
        reduced |= (uint32_t)1 << r->attr[LP_REDUCE_DIM].v[i];
    return lp_cost_reduce(x, op, t, r->in[0].shape, r->in[0].ndim, reduced);
}

static void add_norm(const LpCostReq *r, const LpCostCtx *x, LpCostType t,
                     int64_t n, int64_t results, LpCost *out)
{
    double p = r->attr[LP_NORM_ORD].kind == LP_ATTR_SCALAR
                   ? lp_scalar_f(r->attr[LP_NORM_ORD].s)
                   : 2;
    LpEwOp root = p == 2 ? LP_EW_sqrt : LP_EW_pow;
    LpRedOp by = p > 1e300    ? LP_RED_MAX
                 : p < -1e300 ? LP_RED_MIN
                 : p == 2     ? LP_RED_SQUARE_ADD
                              : LP_RED_ADD;
    if (p != 2)
        lp_cost_add(out, lp_cost_elementwise(x, LP_EW_abs, LP_EW_UNARY, t, n));
    if (by == LP_RED_ADD && p != 1 && p != 0)
        lp_cost_add(out, lp_cost_elementwise(x, LP_EW_pow, LP_EW_SCALAR, t, n));
    lp_cost_add(out, fold(r, x, by, t));
    if (p != 1 && p != 0 && by != LP_RED_MAX && by != LP_RED_MIN)
        lp_cost_add(out, lp_cost_elementwise(x, root, LP_EW_UNARY, t, results));
}

void lp_rule_vector_norm(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    add_norm(r, &x, lp_cost_type(r->in[0].dtype), lp_numel(&r->in[0]),
             lp_numel(&r->out[0]), out);
}

void lp_rule_reduce(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    LpCostType t = lp_cost_type(r->in[0].dtype);
    lp_cost_add(out, fold(r, &x, (LpRedOp)r->op->cost_row, t));
}

void lp_rule_mean(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    lp_rule_reduce(r, out);
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_mul, LP_EW_SCALAR,
                                         lp_cost_type(r->in[0].dtype),
                                         lp_numel(&r->out[0])));
}

void lp_rule_count(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_compare, LP_EW_SCALAR,
                                         lp_cost_type(r->in[0].dtype),
                                         lp_numel(&r->in[0])));
    lp_rule_reduce(r, out);
}

/* ---- along a dimension --------------------------------------------------- */
typedef struct Line {
    LpCostCtx x;
    LpCostType t;
    int64_t n; /* elements of all lines */
    int64_t k; /* doubling steps over one */
} Line;

static Line line_of(const LpCostReq *r)
{
    const LpType *in = &r->in[0];
    Line l = {.x = lp_cost_ctx_of(r),
              .t = lp_cost_type(in->dtype),
              .n = lp_numel(in)};
    int64_t line = 1;
    for (int i = 0; i < r->attr[LP_REDUCE_DIM].n; i++)
        line *= in->shape[r->attr[LP_REDUCE_DIM].v[i]];
    while (((int64_t)1 << l.k) < line)
        l.k++;
    return l;
}

/* The position is carried along with the extreme. */
void lp_rule_position(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    LpCostType t = lp_cost_type(r->in[0].dtype);
    LpCost c = fold(r, &x, (LpRedOp)r->op->cost_row, t);
    lp_cost_add(out, lp_cost_repeat(c, 2));
}

void lp_rule_sorted_line(const LpCostReq *r, LpCost *out)
{
    Line l = line_of(r);
    LpCost c = lp_cost_elementwise(&l.x, LP_EW_max, LP_EW_BINARY, l.t, l.n);
    lp_cost_add(&c, lp_cost_copy(&l.x, l.t, l.n, l.n));
    lp_cost_add(out, lp_cost_repeat(c, l.k * (l.k + 1) / 2));
}

/* A choice of the value and of its position. */
void lp_rule_running_extreme(const LpCostReq *r, LpCost *out)
{
    Line l = line_of(r);
    LpCost c = lp_cost_elementwise(&l.x, LP_EW_compare, LP_EW_BINARY, l.t, l.n);
    lp_cost_add(&c, lp_cost_elementwise(&l.x, LP_EW_select, LP_EW_BINARY, l.t,
                                        2 * l.n));
    lp_cost_add(&c, lp_cost_copy(&l.x, l.t, 2 * l.n, l.n));
    lp_cost_add(out, lp_cost_repeat(c, l.k > 0 ? l.k : 1));
}

void lp_rule_running_logsum(const LpCostReq *r, LpCost *out)
{
    Line l = line_of(r);
    LpCost c = lp_cost_elementwise(&l.x, LP_EW_exp, LP_EW_UNARY, l.t, l.n);
    lp_cost_add(&c,
                lp_cost_elementwise(&l.x, LP_EW_log, LP_EW_UNARY, l.t, l.n));
    lp_cost_add(
        &c, lp_cost_elementwise(&l.x, LP_EW_add, LP_EW_BINARY, l.t, 2 * l.n));
    lp_cost_add(&c, lp_cost_copy(&l.x, l.t, l.n, l.n));
    lp_cost_add(out, lp_cost_repeat(c, l.k > 0 ? l.k : 1));
}

static LpCost running_step(const LpCostReq *r, const Line *l)
{
    LpCost c = lp_cost_elementwise(&l->x, (LpEwOp)r->op->cost_row, LP_EW_BINARY,
                                   l->t, l->n);
    lp_cost_add(&c, lp_cost_copy(&l->x, l->t, l->n, l->n));
    return c;
}

void lp_rule_running(const LpCostReq *r, LpCost *out)
{
    Line l = line_of(r);
    lp_cost_add(out, lp_cost_repeat(running_step(r, &l), l.k));
}

/* Running products from both ends. */
void lp_rule_others(const LpCostReq *r, LpCost *out)
{
    Line l = line_of(r);
    lp_cost_add(out, lp_cost_repeat(running_step(r, &l), 2 * l.k));
}

/* Steps join pairs (a, d) and (a', d') to (a a', d' + a' d). */
void lp_rule_recurrence(const LpCostReq *r, LpCost *out)
{
    Line l = line_of(r);
    LpCost c = lp_cost_elementwise(&l.x, LP_EW_mul, LP_EW_BINARY, l.t, 2 * l.n);
    lp_cost_add(&c,
                lp_cost_elementwise(&l.x, LP_EW_add, LP_EW_BINARY, l.t, l.n));
    lp_cost_add(&c, lp_cost_copy(&l.x, l.t, 2 * l.n, l.n));
    lp_cost_add(out, lp_cost_repeat(c, l.k));
}
