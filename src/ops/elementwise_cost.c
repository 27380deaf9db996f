/* What pointwise operators and reductions cost on the device, in the words of
 * runtime/cost.
 *
 * An operand of another element type is cast first. A small operand is
 * broadcast. popops has maps of three operands as generated code; they are
 * charged as their steps. A running sum has no operation of its own there: it
 * is charged as doubling steps of a copy and an addition; a median or a mode as
 * the compare steps of a bitonic sort (Batcher, 1968), what popops uses. */
#include "src/ops/cost_ctx.h"
#include "src/ops/infer.h"
#include "src/ops/kernel/pointwise.h"

/* ---- pointwise ------------------------------------------------------------
 */
/* The table's row: the record's, unless the attributes or a number choose a
 * cheaper one. */
static LpEwOp row_of(const LpCostReq *r)
{
    const LpOp *op = r->op;
    if (op->id == LP_OP_gelu && r->attr[0].str[0] == 't')
        return LP_EW_gelu;
    if (op->id == LP_OP_div && r->attr[0].kind != LP_ATTR_NONE)
        return LP_EW_remainder;
    return (LpEwOp)lp_pointwise_of(op)->cost;
}

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
        lp_cost_add(out, from == t ? lp_cost_copy(&x, t, n, false)
                                   : lp_cost_cast(&x, from, t, n));
        return;
    }
    int first = pw->policy == LP_PW_MASK;
    if (pw->policy == LP_PW_BOOL)
        t = lp_cost_type(lp_infer_promote(r->in, r->n_in));
    add_casts(r, &x, first, t, out);
    bool scaled = (r->op->id == LP_OP_add || r->op->id == LP_OP_sub) &&
                  lp_scalar_f(r->attr[0].s) != 1;
    if (scaled) {
        lp_cost_add(out, lp_cost_scaled_add(&x, t, n, false));
        return;
    }
    lp_cost_add(out, step(r, &x, row_of(r), t, n));
    if (r->op->id == LP_OP_lerp || r->op->id == LP_OP_addcmul ||
        r->op->id == LP_OP_addcdiv)
        lp_cost_add(out, lp_cost_scaled_add(&x, t, n, false));
}

/* ---- reductions -----------------------------------------------------------
 */
static LpRedOp fold_of(const LpOp *op)
{
    switch (op->id) {
    case LP_OP_prod:
        return LP_RED_MUL;
    case LP_OP_amax:
    case LP_OP_argmax:
    case LP_OP_max_dim:
        return LP_RED_MAX;
    case LP_OP_amin:
    case LP_OP_argmin:
    case LP_OP_min_dim:
        return LP_RED_MIN;
    case LP_OP_any:
        return LP_RED_OR;
    case LP_OP_all:
        return LP_RED_AND;
    case LP_OP_logsumexp:
        return LP_RED_LOGADD;
    default:
        return LP_RED_ADD;
    }
}

static LpCost fold(const LpCostReq *r, const LpCostCtx *x, LpRedOp op,
                   LpCostType t)
{
    uint32_t reduced = 0;
    for (int i = 0; i < r->attr[0].n; i++)
        reduced |= (uint32_t)1 << r->attr[0].v[i];
    return lp_cost_reduce(x, op, t, r->in[0].shape, r->in[0].ndim, reduced);
}

static void add_norm(const LpCostReq *r, const LpCostCtx *x, LpCostType t,
                     int64_t n, int64_t results, LpCost *out)
{
    double p =
        r->attr[2].kind == LP_ATTR_SCALAR ? lp_scalar_f(r->attr[2].s) : 2;
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

void lp_rule_reduce(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *in = &r->in[0];
    int64_t n = lp_numel(in), results = lp_numel(&r->out[0]);
    LpCostType t = lp_cost_type(in->dtype);
    if (r->op->id == LP_OP_vector_norm) {
        add_norm(r, &x, t, n, results, out);
        return;
    }
    if (r->op->id == LP_OP_count_nonzero)
        lp_cost_add(out,
                    lp_cost_elementwise(&x, LP_EW_compare, LP_EW_SCALAR, t, n));
    lp_cost_add(out, fold(r, &x, fold_of(r->op), t));
    if (r->op->id == LP_OP_mean)
        lp_cost_add(
            out, lp_cost_elementwise(&x, LP_EW_mul, LP_EW_SCALAR, t, results));
}

/* ---- along a dimension ----------------------------------------------------
 */
static int64_t steps_of(int64_t n)
{
    int64_t k = 0;
    while (((int64_t)1 << k) < n)
        k++;
    return k;
}

void lp_rule_line(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *in = &r->in[0];
    int64_t n = lp_numel(in), line = 1;
    LpCostType t = lp_cost_type(in->dtype);
    for (int i = 0; i < r->attr[0].n; i++)
        line *= in->shape[r->attr[0].v[i]];
    int64_t k = steps_of(line);
    if (r->op->id == LP_OP_median_dim || r->op->id == LP_OP_mode) {
        LpCost c = lp_cost_elementwise(&x, LP_EW_max, LP_EW_BINARY, t, n);
        lp_cost_add(&c, lp_cost_copy(&x, t, n, false));
        lp_cost_add(out, lp_cost_repeat(c, k * (k + 1) / 2));
    } else if (r->op->id == LP_OP_cummax || r->op->id == LP_OP_cummin) {
        /* a choice of the value and of its position */
        LpCost c = lp_cost_elementwise(&x, LP_EW_compare, LP_EW_BINARY, t, n);
        lp_cost_add(
            &c, lp_cost_elementwise(&x, LP_EW_select, LP_EW_BINARY, t, 2 * n));
        lp_cost_add(&c, lp_cost_copy(&x, t, 2 * n, false));
        lp_cost_add(out, lp_cost_repeat(c, k > 0 ? k : 1));
    } else if (r->op->id == LP_OP_logcumsumexp) {
        LpCost c = lp_cost_elementwise(&x, LP_EW_exp, LP_EW_UNARY, t, n);
        lp_cost_add(&c, lp_cost_elementwise(&x, LP_EW_log, LP_EW_UNARY, t, n));
        lp_cost_add(&c,
                    lp_cost_elementwise(&x, LP_EW_add, LP_EW_BINARY, t, 2 * n));
        lp_cost_add(&c, lp_cost_copy(&x, t, n, false));
        lp_cost_add(out, lp_cost_repeat(c, k > 0 ? k : 1));
    } else if (r->op->id == LP_OP_cumsum || r->op->id == LP_OP_cumprod ||
               r->op->id == LP_OP_prod_others) {
        LpEwOp op = r->op->id == LP_OP_cumsum ? LP_EW_add : LP_EW_mul;
        LpCost c = lp_cost_elementwise(&x, op, LP_EW_BINARY, t, n);
        lp_cost_add(&c, lp_cost_copy(&x, t, n, false));
        bool twice = r->op->id == LP_OP_prod_others;
        lp_cost_add(out, lp_cost_repeat(c, twice ? 2 * k : k));
    } else { /* the position is carried along with the extreme */
        LpCost c = fold(r, &x, fold_of(r->op), t);
        lp_cost_add(out, lp_cost_repeat(c, 2));
    }
}
