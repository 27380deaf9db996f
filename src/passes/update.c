/* The update graph: every rule's operator on the parameter, its reduced
 * gradient, states and hyper-parameters. One scale stands before all gradients;
 * rules that name the same largest norm are clipped together, which takes what
 * is measured of each before the first of them is applied. */
#include "src/passes/update.h"

#include <math.h>
#include <string.h>

#include "src/ir/schema.h"
#include "src/ops/ops.h"
#include "src/passes/scaling.h"

typedef struct Update {
    LpStep *s;
    const LpTraining *t;
    const int *accum;
    LpGraphBuilder gb;
    LpVal scale; /* what gradients are multiplied by */
    LpVal skips; /* LP_NOVAL, or whether all stays as it is */
    LpVal *clip; /* by HYPER variable: sum of squares, then min(1, …) */
    LpErr *err;
} Update;

static LpVal update_input(Update *u, int var)
{
    LpVariable *v = &u->s->var[var];
    if (v->update_in == LP_NOVAL)
        v->update_in = lp_graph_input(u->s->update, &v->type, v->name, u->err);
    return v->update_in;
}

/* ---- operands of a rule -------------------------------------------------- */
/* The argument of the operator's form for operand i. */
static const LpFormArg *operand_arg(const LpOp *op, int i)
{
    const LpForm *f = lp_op_form(op);
    for (int k = 0; k < f->n_args; k++)
        if (f->arg[k].kind <= LP_ARG_VALUE && f->arg[k].slot == i)
            return &f->arg[k];
    return NULL;
}

static LpVal left_out(LpBuilder *b, const LpFormArg *arg)
{
    if (arg->kind != LP_ARG_VALUE || !arg->has_default ||
        arg->def.kind == LP_ATTR_NONE)
        return LP_NOVAL;
    switch (arg->def.kind) {
    case LP_ATTR_SCALAR:
        return lp_imm(b, arg->def.s);
    case LP_ATTR_FLOAT:
        return lp_immf(b, arg->def.f);
    default:
        return lp_immi(b, arg->def.i);
    }
}

/* What a rule has made of states before its operator reads them. */
typedef struct Before {
    LpVal counted, first;
} Before;

static LpVal operand(Update *u, const LpUpdateRule *r, int i, int accum,
                     Before made)
{
    int what = i < r->n_in ? r->in[i] : LP_RULE_HOLE;
    if (what == LP_RULE_HOLE && i > 0 && i == r->op->grad_scale)
        return u->scale;
    if (what == LP_RULE_HOLE)
        return left_out(&u->gb.b, operand_arg(r->op, i));
    if (what == LP_RULE_GRAD)
        return update_input(u, accum);
    if (r->first_op && what == r->first_out)
        return made.first;
    return what == r->count ? made.counted : update_input(u, what);
}

static void operands(Update *u, const LpUpdateRule *r, int accum, Before made,
                     LpVal *in)
{
    for (int i = 0; i < r->op->n_operands && u->err->code == LP_OK; i++)
        in[i] = operand(u, r, i, accum, made);
}

/* The argument of a name, of operands or of attributes; NULL: none. */
static const LpFormArg *named(const LpOp *op, const char *name)
{
    const LpForm *f = lp_op_form(op);
    for (int k = 0; k < f->n_args; k++)
        if (strcmp(f->arg[k].name, name) == 0)
            return &f->arg[k];
    return NULL;
}

/* The operand of that name among `in`; NULL: the operator has none. */
static LpVal *operand_of(const LpUpdateRule *r, const char *name, LpVal *in)
{
    const LpFormArg *arg = named(r->op, name);
    return arg && arg->kind <= LP_ARG_VALUE ? &in[arg->slot] : NULL;
}

static bool flag(const LpUpdateRule *r, const char *name)
{
    const LpFormArg *arg = named(r->op, name);
    return arg && r->attr[arg->slot].i != 0;
}

static LpStatus lacks(Update *u, const LpUpdateRule *r, const char *name)
{
    return lp_fail(u->err, LP_E_VALUE,
                   "what the rule of '%s' clips takes an operand '%s', which "
                   "%s has not",
                   u->s->var[r->param].name, name, r->op->name);
}

/* x times, if *times, or else plus y times that operand. */
static LpVal with(Update *u, const LpUpdateRule *r, LpVal *in, LpVal x,
                  bool times, LpVal y, const char *name)
{
    LpBuilder *b = &u->gb.b;
    const LpVal *o = operand_of(r, name, in);
    if (!o || *o == LP_NOVAL) {
        lacks(u, r, name);
        return x;
    }
    return times ? lp_mul(b, x, *o) : lp_add(b, x, lp_mul(b, y, *o));
}

/* ---- clipping ------------------------------------------------------------ */
/* What the gradient g, in units of 1, makes of the velocity, or with Nesterov
 * the direction: vs (g + wd param) + momentum v. */
static LpVal velocity(Update *u, const LpUpdateRule *r, LpVal *in, LpVal g)
{
    LpBuilder *b = &u->gb.b;
    const LpVal *old = operand_of(r, "velocity", in);
    const LpVal *damp = operand_of(r, "dampening", in);
    if (!old || !damp || *old == LP_NOVAL) {
        lacks(u, r, "velocity");
        return g;
    }
    LpVal param = lp_cast(b, in[0], LP_F32), v = lp_cast(b, *old, LP_F32);
    LpVal x = with(u, r, in, g, false, param, "weight_decay");
    LpVal in_v = r->clip == LP_CLIP_gathered ? g : x;
    in_v = with(u, r, in, in_v, true, x, "velocity_scaling");
    in_v = lp_mul(b, in_v, lp_sub(b, lp_immf(b, 1), *damp));
    if (r->clip == LP_CLIP_gathered)
        v = lp_add(b, v, in_v);
    else
        v = with(u, r, in, in_v, false, v, "momentum");
    if (!flag(r, "nesterov"))
        return v;
    x = with(u, r, in, x, true, x, "velocity_scaling");
    return with(u, r, in, x, false, v, "momentum");
}

static LpVal measured(Update *u, const LpUpdateRule *r, int accum)
{
    LpBuilder *b = &u->gb.b;
    LpVal in[LP_MAX_ATTR];
    LpVal g = lp_cast(b, update_input(u, accum), LP_F32);
    if (r->clip == LP_CLIP_sum) {
        double n = u->t->running ? (double)u->s->replicas : 1;
        return n == 1 ? g : lp_mul(b, g, lp_immf(b, 1 / n));
    }
    operands(u, r, accum, (Before){LP_NOVAL, LP_NOVAL}, in);
    g = lp_mul(b, g, u->scale);
    if (u->err->code != LP_OK)
        return g;
    if (r->clip == LP_CLIP_velocity || r->clip == LP_CLIP_gathered)
        return velocity(u, r, in, g);
    if (r->clip == LP_CLIP_decayed)
        g = with(u, r, in, g, false, lp_cast(b, in[0], LP_F32), "weight_decay");
    const LpVal *units = operand_of(r, "state_scale", in);
    return units && !lp_is_imm(*units) ? lp_mul(b, g, *units) : g;
}

/* x += sum of squares of what the rule's norm is of */
static void add_squares(Update *u, const LpUpdateRule *r, int accum, LpVal *x)
{
    LpBuilder *b = &u->gb.b;
    LpVal g = measured(u, r, accum);
    if (u->err->code != LP_OK)
        return;
    int64_t dims[LP_MAX_DIMS], nd = lp_type(b, g)->ndim;
    for (int k = 0; k < nd; k++)
        dims[k] = k;
    g = lp_sum(b, lp_mul(b, g, g), dims, (int)nd, false);
    *x = *x == LP_NOVAL ? g : lp_add(b, *x, g);
}

/* min(1, maximum / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ */
static LpVal clip_factor(Update *u, LpVal squares, int max_norm)
{
    LpBuilder *b = &u->gb.b;
    LpVal norm = lp_add(b, lp_op1(b, LP_OP_sqrt, squares), lp_immf(b, 1e-6));
    LpVal most = lp_div(b, update_input(u, max_norm), norm);
    return lp_op2(b, LP_OP_minimum, most, lp_immf(b, 1));
}

static LpStatus measure(Update *u)
{
    const LpTraining *t = u->t;
    for (int i = 0; i < t->n_rule && u->err->code == LP_OK; i++) {
        const LpUpdateRule *r = &t->rule[i];
        if (r->max_norm < 0 || u->accum[i] < 0)
            continue;
        LP_FAIL_IF(lp_step_grouped(u->s), u->err, LP_E_NOT_IMPLEMENTED,
                   "the norm of gradients (max_grad_norm, ClipNormSettings) is "
                   "not there for weights in replica groups: a replica has a "
                   "part of them only");
        add_squares(u, r, u->accum[i], &u->clip[r->max_norm]);
    }
    for (size_t v = 0; v < u->s->n_var && u->err->code == LP_OK; v++)
        if (u->clip[v] != LP_NOVAL)
            u->clip[v] = clip_factor(u, u->clip[v], (int)v);
    return u->err->code;
}

/* Multiplies what the rule's norm is of by the factor. */
static void clip(Update *u, const LpUpdateRule *r, LpVal *in)
{
    if (r->max_norm < 0)
        return;
    bool whole = r->clip == LP_CLIP_velocity || r->clip == LP_CLIP_gathered;
    const char *const name[] = {whole ? "lr" : "grad_scale", "weight_decay"};
    for (int i = 0; i < (r->clip == LP_CLIP_decayed ? 2 : 1); i++) {
        LpVal *x = operand_of(r, name[i], in);
        if (!x) {
            lacks(u, r, name[i]);
            return;
        }
        *x = lp_mul(&u->gb.b, u->clip[r->max_norm], *x);
    }
}

/* ---- the graph ----------------------------------------------------------- */
/* Where it is asked for, the scale becomes the one that leaves all as it is
 * (src/ops/nn/optim.c). */
static void skip(Update *u, const LpUpdateRule *r, LpVal *in)
{
    LpBuilder *b = &u->gb.b;
    LpVal *x = operand_of(r, "grad_scale", in);
    if (x)
        *x = lp_where(b, u->skips, lp_immf(b, -INFINITY), *x);
    else
        lacks(u, r, "grad_scale");
}

/* A state becomes `to`, unless the update is left out. */
static LpVal renewed(Update *u, int var, LpVal to)
{
    if (u->skips != LP_NOVAL)
        to = lp_where(&u->gb.b, u->skips, update_input(u, var), to);
    u->s->var[var].update_out = to;
    return to;
}

static void make_first(Update *u, const LpUpdateRule *r, Before *made)
{
    LpVal in[LP_MAX_IN], out[LP_MAX_OUT] = {0};
    for (int i = 0; i < r->n_first; i++)
        in[i] = r->first[i] == r->count ? made->counted
                                        : update_input(u, r->first[i]);
    u->gb.b.emit(&u->gb.b, r->first_op, in, r->n_first, NULL, out);
    made->first = renewed(u, r->first_out, out[0]);
}

static LpStatus apply(Update *u, const LpUpdateRule *r, int accum)
{
    LpBuilder *b = &u->gb.b;
    LpVal in[LP_MAX_ATTR], out[LP_MAX_OUT] = {0};
    Before made = {LP_NOVAL, LP_NOVAL};
    LpOrigin o = {.update = true, .phase = -1};
    o.scope = u->s->var[r->param].name;
    u->gb.origin = lp_graph_origin(u->s->update, &o, u->err);
    u->gb.site = 0;
    if (r->count >= 0)
        made.counted = renewed(
            u, r->count, lp_add(b, update_input(u, r->count), lp_immi(b, 1)));
    if (r->first_op)
        make_first(u, r, &made);
    operands(u, r, accum, made, in);
    if (u->err->code == LP_OK)
        clip(u, r, in);
    if (u->skips != LP_NOVAL && u->err->code == LP_OK)
        skip(u, r, in);
    if (u->err->code != LP_OK)
        return u->err->code;
    int n = b->emit(b, r->op, in, r->op->n_operands, r->attr, out);
    for (int i = 0; i < n && i < r->n_out; i++)
        if (r->out[i] >= 0)
            u->s->var[r->out[i]].update_out = out[i];
    return u->err->code;
}

/* What the summed gradients are multiplied by: the mean's divisors and the loss
 * scale undone. */
static void find_scale(Update *u)
{
    LpBuilder *b = &u->gb.b;
    LpOrigin o = {.update = true, .phase = -1};
    double n = u->t->early ? 1 : (double)u->s->replicas;
    u->gb.origin = lp_graph_origin(u->s->update, &o, u->err);
    if (!u->t->running)
        n *= (double)u->s->gradient_accumulation;
    u->scale = lp_immf(b, u->s->mean_reduction ? 1 / n : 1);
    const int divisor[] = {u->t->gathered, u->t->loss_scale};
    for (int i = 0; i < 2; i++)
        if (divisor[i] >= 0)
            u->scale = lp_div(b, u->scale, update_input(u, divisor[i]));
    if (!u->t->scaling || u->err->code != LP_OK)
        return;
    u->scale = lp_div(b, u->scale, update_input(u, u->t->scaling->factor));
    lp_scaling_update(u->s, u->t, &u->gb, &u->skips);
}

static LpStatus build(Update *u)
{
    u->clip = lp_calloc(u->s->n_var + 1, sizeof *u->clip);
    LP_FAIL_IF(!u->clip, u->err, LP_E_MEMORY, "out of memory");
    for (size_t v = 0; v < u->s->n_var; v++)
        u->clip[v] = LP_NOVAL;
    find_scale(u);
    LP_TRY(measure(u));
    for (int i = 0; i < u->t->n_rule; i++)
        if (u->accum[i] >= 0)
            LP_TRY(apply(u, &u->t->rule[i], u->accum[i]));
    return u->err->code;
}

LpStatus lp_build_update(LpStep *step, const LpTraining *t, const int *accum,
                         LpErr *e)
{
    Update u = {.s = step, .t = t, .accum = accum, .err = e};
    step->update = lp_graph_new();
    LP_FAIL_IF(!step->update, e, LP_E_MEMORY, "out of memory");
    lp_graph_builder_init(&u.gb, step->update, e);
    LpStatus s = build(&u);
    lp_free(u.clip);
    lp_graph_builder_fini(&u.gb);
    return s;
}
