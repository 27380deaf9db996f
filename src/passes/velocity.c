/* What micro-batches show of a velocity that gathers gradients: PopART's has
 * those of the update so far in it. Here they stand in an accumulator until the
 * update (popart_sgd_combined_step, whose first line this is):
 *
 *   v + (1 - dampening) velocity_scaling / (loss scale n) (sum of gradients)
 *
 * for means over n micro-batches; a sum counts for all replicas. */
#include <string.h>

#include "src/ir/schema.h"
#include "src/ops/ops.h"
#include "src/passes/update.h"

typedef struct Show {
    LpStep *s;
    const LpTraining *t;
    const LpUpdateRule *rule;
    LpGraphBuilder gb;
    LpErr *err;
} Show;

/* The variable that is the rule's operand of a name, -1: none. */
static int operand_var(const LpUpdateRule *r, const char *name)
{
    const LpForm *f = lp_op_form(r->op);
    for (int k = 0; k < f->n_args; k++)
        if (f->arg[k].kind <= LP_ARG_VALUE && f->arg[k].slot < r->n_in &&
            strcmp(f->arg[k].name, name) == 0)
            return r->in[f->arg[k].slot];
    return -1;
}

static LpVal input(Show *x, int var)
{
    LpVariable *v = &x->s->var[var];
    if (v->micro_in == LP_NOVAL)
        v->micro_in = lp_graph_input(x->s->micro, &v->type, v->name, x->err);
    return v->micro_in;
}

static LpVal number(Show *x, const char *name, double left_out)
{
    int var = operand_var(x->rule, name);
    return var < 0 ? lp_immf(&x->gb.b, left_out) : input(x, var);
}

/* What the sum of gradients is multiplied by. */
static LpVal share(Show *x, LpVal scale)
{
    LpBuilder *b = &x->gb.b;
    const LpStep *s = x->s;
    double n = s->mean_reduction ? 1.0 / (double)s->gradient_accumulation
                                 : (double)s->replicas;
    LpVal k = lp_sub(b, lp_immf(b, 1), number(x, "dampening", 0));
    k = lp_mul(b, k, number(x, "velocity_scaling", 1));
    if (!x->t->running) /* means have been divided */
        k = lp_mul(b, k, lp_immf(b, n));
    return scale == LP_NOVAL ? k : lp_div(b, k, scale);
}

static void show(Show *x, int sum, LpVal scale, LpAnchor *a)
{
    LpGraph *g = x->s->micro;
    LpBuilder *b = &x->gb.b;
    LpVal grad = x->s->var[sum].micro_out;
    const LpVariable *v = &x->s->var[a->var];
    LpNodeId from = g->value[grad].node;
    if (from != LP_NO_NODE)
        x->gb.origin = g->node[from].origin;
    grad = lp_mul(b, lp_cast(b, grad, LP_F32), share(x, scale));
    a->value = lp_add(b, lp_cast(b, input(x, a->var), LP_F32), grad);
    a->value = lp_cast(b, a->value, v->type.dtype);
    a->kind = LP_ANCHOR_VALUE;
}

LpStatus lp_show_velocity(LpStep *s, const LpTraining *t, const int *accum,
                          LpVal scale, LpAnchor *a, LpErr *e)
{
    for (int i = 0; i < t->n_rule && a->kind == LP_ANCHOR_VARIABLE; i++) {
        const LpUpdateRule *r = &t->rule[i];
        if (r->op->id != LP_OP_popart_sgd_combined_step || accum[i] < 0 ||
            operand_var(r, "velocity") != a->var)
            continue;
        Show x = {.s = s, .t = t, .rule = r, .err = e};
        lp_graph_builder_init(&x.gb, s->micro, e);
        show(&x, accum[i], scale, a);
        lp_graph_builder_fini(&x.gb);
    }
    return e->code;
}
