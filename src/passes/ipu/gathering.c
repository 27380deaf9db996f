/* Gradients of parameters that several stages read. The micro graph adds what
 * each of them contributes to one sum and that to the accumulator, in every
 * micro-batch. Here a stage on the accumulator's IPU adds its part there at
 * once. Another IPU sums its own part over the micro-batches, and before the
 * weight update the sums go once to the IPU of the parameter, as the new
 * parameter goes once to its readers.
 *
 * The nodes of such a sum (additions, casts and scaling of values that nothing
 * else reads) belong to no run. Each is charged to the run that makes its part.
 * The order in which parts are added is the step's: what an IPU that adds in
 * another one rounds differently is not simulated. */
#include <string.h>

#include "src/ops/ops.h"
#include "src/passes/ipu/ipu.h"

typedef struct Gathering {
    LpIpuPlan *p;
    const LpGraph *g;
    uint32_t *uses; /* by value */
    LpNodeId *node; /* of the sum that is looked at */
    int *run;       /* to which each of them is charged */
    size_t n;
} Gathering;

static bool belongs(const Gathering *x, LpVal v)
{
    return lp_is_backward(x->p, v) && x->uses[v] == 1 &&
           lp_ipu_is_linear(&x->g->node[lp_maker(x->g, v)]);
}

/* Lists the sum that ends in node `root`, the operands of a node after it;
 * false if it has operands that are neither variables nor backward values. */
static bool list_sum(Gathering *x, LpNodeId root)
{
    x->n = 0;
    x->node[x->n++] = root;
    for (size_t i = 0; i < x->n; i++) {
        const LpGraphNode *d = &x->g->node[x->node[i]];
        for (uint32_t k = 0; k < d->n_in; k++) {
            LpNodeId m = lp_maker(x->g, d->in[k]);
            if (belongs(x, d->in[k]))
                x->node[x->n++] = m;
            else if (m != LP_NO_NODE ? !x->p->backward[m]
                                     : lp_is_value(d->in[k]) &&
                                           !lp_ipu_is_free(x->p, d->in[k]))
                return false;
        }
    }
    return true;
}

/* Is the operand a part, made by a run? */
static bool is_part(const Gathering *x, LpVal v)
{
    return lp_maker(x->g, v) != LP_NO_NODE && !belongs(x, v);
}

static LpStatus add_part(Gathering *x, int var, int run)
{
    LpIpuPlan *p = x->p;
    for (size_t i = 0; i < p->n_partial; i++)
        if (p->partial[i].var == var && p->partial[i].run == run)
            return LP_OK;
    LP_IPU_ADD(p, partial, p->err, (LpPartialGrad){var, run});
    return LP_OK;
}

/* The nodes of variable var's sum, if other runs make parts of it. A node is
 * charged to the run of such a part, else to the one where the sum ends. */
static LpStatus gather(Gathering *x, int var)
{
    LpIpuPlan *p = x->p;
    const LpVariable *v = &p->step->var[var];
    LpNodeId root = lp_maker(x->g, v->micro_out);
    if (v->role != LP_VAR_ACCUM || v->micro_in == LP_NOVAL ||
        !belongs(x, v->micro_out) || !list_sum(x, root))
        return LP_OK;
    size_t before = p->n_partial;
    int last = lp_ipu_pass_making(p, v->micro_out);
    for (size_t i = 0; i < x->n; i++) {
        const LpGraphNode *d = &x->g->node[x->node[i]];
        x->run[i] = last;
        for (uint32_t k = 0; k < d->n_in; k++)
            if (is_part(x, d->in[k]) &&
                lp_ipu_pass_making(p, d->in[k]) != last) {
                x->run[i] = lp_ipu_pass_making(p, d->in[k]);
                LP_TRY(add_part(x, var, x->run[i]));
            }
    }
    for (size_t i = 0; i < x->n && p->n_partial > before; i++)
        p->sum[x->node[i]] = (LpPartialGrad){var, x->run[i]};
    return LP_OK;
}

LpStatus lp_ipu_gathering(LpIpuPlan *p)
{
    Gathering x = {.p = p, .g = p->step->micro};
    const LpStep *s = p->step;
    size_t n = x.g->n_node + 1;
    p->sum = lp_ipu_space(p, n, sizeof *p->sum);
    x.uses = lp_ipu_scratch(p, x.g->n_value, sizeof *x.uses);
    x.node = lp_ipu_scratch(p, n, sizeof *x.node);
    x.run = lp_ipu_scratch(p, n, sizeof *x.run);
    LP_TRY(p->err->code);
    memset(p->sum, 0xff, n * sizeof *p->sum);
    if (p->n_stage == 1)
        return LP_OK;
    for (LpNodeId id = 0; id < x.g->n_node; id++)
        for (uint32_t i = 0; i < x.g->node[id].n_in; i++)
            if (lp_is_value(x.g->node[id].in[i]))
                x.uses[x.g->node[id].in[i]]++;
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].micro_out != LP_NOVAL)
            x.uses[s->var[i].micro_out]++;
    for (size_t i = 0; i < s->n_var; i++)
        LP_TRY(gather(&x, (int)i));
    return LP_OK;
}
