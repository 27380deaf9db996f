/* What moving, looking up, drawing and updating cost, in the words of
 * runtime/cost. Sorting has no published figure: it is charged as a bitonic
 * network (Batcher, 1968), each stage an exchange and a minimum and maximum. */
#include "src/ops/layout_cost.h"

#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/cost_ctx.h"

void lp_rule_view(const LpCostReq *r, LpCost *out)
{
    (void)r, (void)out;
}

/* Results that surely come from neighbours: rows, of short ones the planes. */
static int64_t run_of(const LpType *t)
{
    int64_t run = 1;
    for (int i = t->ndim - 1; i >= 0 && run < 16; i--)
        run *= t->shape[i];
    return run;
}

/* Rules of n results of type t. */
#define RULE(name, cost)                                                       \
    void lp_rule_##name(const LpCostReq *r, LpCost *out)                       \
    {                                                                          \
        LpCostCtx x = lp_cost_ctx_of(r);                                       \
        LpCostType t = lp_cost_type(r->out[0].dtype);                          \
        int64_t n = lp_numel(&r->out[0]);                                      \
        lp_cost_add(out, cost);                                                \
    }
RULE(copy, lp_cost_copy(&x, t, n, run_of(&r->out[0])))
RULE(reverse, lp_cost_copy(&x, t, n, 1))
RULE(fill, lp_cost_fill(&x, t, n))
RULE(select, lp_cost_elementwise(&x, LP_EW_select, LP_EW_UNARY, t, n))

void lp_rule_embed(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const LpType *part = &r->in[r->n_in - 1];
    lp_rule_fill(r, out);
    lp_cost_add(out, lp_cost_copy(&x, lp_cost_type(part->dtype), lp_numel(part),
                                  run_of(part)));
}

/* A table of t's first dimensions by its last one; `rows` of it wanted. */
static LpLookup table(const LpType *t, int64_t count)
{
    int64_t cols = t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
    int64_t n = lp_numel(t);
    return (LpLookup){.rows = cols > 0 ? n / cols : 0,
                      .cols = cols,
                      .count = cols > 0 ? (count + cols - 1) / cols : 0};
}

void lp_rule_lookup(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    LpLookup l = table(&r->in[0], lp_numel(&r->out[0]));
    l.trained = r->pass != LP_PASS_NONE;
    lp_cost_add(out, lp_cost_lookup(&x, lp_cost_type(r->out[0].dtype), &l));
}

/* The source is the largest operand that is not the result's own. */
void lp_rule_lookup_add(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    int64_t count = 0;
    for (int i = 0; i < r->n_in; i++) {
        bool self = i == 0 && lp_type_eq(&r->in[0], &r->out[0]);
        if (r->in[i].dtype != LP_DT_NONE && !self &&
            lp_numel(&r->in[i]) > count)
            count = lp_numel(&r->in[i]);
    }
    LpLookup l = table(&r->out[0], count);
    l.trained = true;
    lp_cost_add(out, lp_cost_lookup_add(&x, lp_cost_type(r->out[0].dtype), &l));
}

void lp_rule_sort(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    int dim = (int)r
                  ->attr[r->attr[LP_TOPK_DIM].kind == LP_ATTR_INT ? LP_TOPK_DIM
                                                                  : LP_SORT_DIM]
                  .i;
    const LpType *t = &r->in[0];
    int64_t n = t->ndim > 0 ? t->shape[dim] : 1, stages = 0;
    for (int64_t w = 1, k = 1; w < n; w *= 2, k++)
        stages += k;
    LpCost c =
        lp_cost_exchange(&x, lp_cost_type(t->dtype), lp_numel(t), lp_numel(t));
    lp_cost_add(&c, lp_cost_elementwise(&x, LP_EW_min, LP_EW_BINARY,
                                        lp_cost_type(t->dtype), lp_numel(t)));
    /* the positions move with the values */
    lp_cost_add(&c,
                lp_cost_exchange(&x, LP_COST_INT, lp_numel(t), lp_numel(t)));
    lp_cost_add(&c, lp_cost_elementwise(&x, LP_EW_select, LP_EW_BINARY,
                                        LP_COST_INT, lp_numel(t)));
    lp_cost_add(out, lp_cost_repeat(c, stages));
}

void lp_rule_random(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    const char *name = r->op->name;
    LpRndOp op = LP_RND_UNIFORM;
    if (strstr(name, "trunc"))
        op = LP_RND_TRUNCATED_NORMAL;
    else if (strstr(name, "norm") || strcmp(name, "randn") == 0)
        op = LP_RND_NORMAL;
    else if (strncmp(name, "bernoulli", 9) == 0)
        op = LP_RND_BERNOULLI;
    lp_cost_add(out, lp_cost_random(&x, op, lp_cost_type(r->out[0].dtype),
                                    lp_numel(&r->out[0])));
}

/* One scaled addition for the parameter, two for every state with a
 * multiplication; second moments add a root and a division. */
void lp_rule_update(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    LpCostType t = lp_cost_type(r->in[0].dtype);
    int64_t n = lp_numel(&r->in[0]);
    bool root = strncmp(r->op->name, "ada", 3) == 0 ||
                strncmp(r->op->name, "rms", 3) == 0 ||
                strncmp(r->op->name, "lamb", 4) == 0;
    lp_cost_add(out, lp_cost_scaled_add(&x, t, n, false));
    for (int i = 1; i < r->n_out; i++) {
        if (lp_numel(&r->out[i]) != n)
            continue;
        LpCostType s = lp_cost_type(r->out[i].dtype);
        lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_mul,
                                             LP_EW_BINARY_INPLACE, s, n));
        lp_cost_add(out, lp_cost_scaled_add(&x, s, n, s != t));
    }
    if (!root)
        return;
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_sqrt, LP_EW_UNARY, t, n));
    lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_div, LP_EW_BINARY, t, n));
    if (strncmp(r->op->name, "lamb", 4) == 0)
        for (int i = 0; i < 2; i++)
            lp_cost_add(out,
                        lp_cost_reduce(&x, LP_RED_SQUARE_ADD, t, &n, 1, 1));
}

bool lp_moves_data(const LpOp *op)
{
    return op->cost == lp_rule_copy || op->cost == lp_rule_reverse ||
           op->cost == lp_rule_embed || op->cost == lp_rule_fill ||
           op->cost == lp_rule_select || op->cost == lp_rule_lookup ||
           op->cost == lp_rule_sort;
}
