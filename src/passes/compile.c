#include "src/passes/compile.h"

#include <stdio.h>
#include <string.h>

#include "src/autodiff/sweep.h"
#include "src/ir/schema.h"
#include "src/ops/ops.h"
#include "src/passes/pass.h"

typedef struct Compile {
    LpStep *s;
    const LpTraining *t;
    LpArena mem;
    int *accum; /* per rule: accumulator variable, -1: no gradient */
    LpErr *err;
} Compile;

/* ---- the backward half
 * ------------------------------------------------------------ */
static LpStatus seed(Compile *c, LpVal *out)
{
    LpGraph *g = c->s->micro;
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, g, c->err);
    LpNodeId from = g->value[c->t->loss].node;
    LpOrigin o = from == LP_NO_NODE ? (LpOrigin){.phase = -1}
                                    : g->origin[g->node[from].origin];
    o.backward = true;
    gb.origin = lp_graph_origin(g, &o, c->err);
    *out = lp_full(&gb.b, lp_graph_type(g, c->t->loss), lp_float(1));
    if (c->t->loss_scale >= 0 && c->err->code == LP_OK) {
        LpVariable *v = &c->s->var[c->t->loss_scale];
        if (v->micro_in == LP_NOVAL)
            v->micro_in = lp_graph_input(g, &v->type, v->name, c->err);
        *out = lp_mul(&gb.b, *out, v->micro_in);
    }
    lp_graph_builder_fini(&gb);
    return c->err->code;
}

/* accumulator' = accumulator + gradient, where the gradient is made; with a
 * single micro-batch just the gradient. */
static LpStatus accumulate(Compile *c, const LpVariable *param, LpVal grad,
                           int *index)
{
    LpGraph *g = c->s->micro;
    char name[512];
    snprintf(name, sizeof name, "Gradient___%s", param->name);
    LpVariable v = {.role = LP_VAR_ACCUM,
                    .name = name,
                    .type = param->type,
                    .param = (int)(param - c->s->var)};
    if (c->s->gradient_accumulation == 1) {
        v.micro_out = grad;
        *index = lp_step_add(c->s, &v, c->err);
        return c->err->code;
    }
    v.micro_in = lp_graph_input(g, &v.type, NULL, c->err);
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, g, c->err);
    LpNodeId from = g->value[grad].node;
    if (from != LP_NO_NODE)
        gb.origin = g->node[from].origin;
    if (c->err->code == LP_OK)
        v.micro_out = lp_add(&gb.b, v.micro_in, grad);
    lp_graph_builder_fini(&gb);
    if (c->err->code == LP_OK)
        *index = lp_step_add(c->s, &v, c->err);
    return c->err->code;
}

static LpStatus differentiate(Compile *c)
{
    int n = c->t->n_rule;
    LpVal *wrt = lp_arena_calloc(&c->mem, (size_t)(n + 1) * sizeof *wrt);
    LpVal *grad = lp_arena_calloc(&c->mem, (size_t)(n + 1) * sizeof *grad);
    c->accum = lp_arena_calloc(&c->mem, (size_t)(n + 1) * sizeof *c->accum);
    LP_FAIL_IF(!wrt || !grad || !c->accum, c->err, LP_E_MEMORY,
               "out of memory");
    LpVal one;
    LP_TRY(seed(c, &one));
    int m = 0;
    for (int i = 0; i < n; i++)
        if (c->s->var[c->t->rule[i].param].micro_in != LP_NOVAL)
            wrt[m++] = c->s->var[c->t->rule[i].param].micro_in;
    LP_TRY(lp_sweep(c->s->micro, &c->t->loss, &one, 1, wrt, m, grad, c->err));
    m = 0;
    for (int i = 0; i < n; i++) {
        int param = c->t->rule[i].param;
        c->accum[i] = -1;
        if (c->s->var[param].micro_in == LP_NOVAL)
            continue;
        LpVal d = grad[m++];
        if (d != LP_NOVAL)
            LP_TRY(accumulate(c, &c->s->var[param], d, &c->accum[i]));
    }
    return LP_OK;
}

/* ---- the update graph
 * ---------------------------------------------------------------- */
static LpVal update_input(Compile *c, int var)
{
    LpVariable *v = &c->s->var[var];
    if (v->update_in == LP_NOVAL)
        v->update_in = lp_graph_input(c->s->update, &v->type, v->name, c->err);
    return v->update_in;
}

/* The argument of the operator's form for operand i. */
static const LpFormArg *operand_arg(const LpOp *op, int i)
{
    const LpForm *f = lp_op_form(op);
    for (int k = 0; k < f->n_args; k++)
        if (f->arg[k].kind <= LP_ARG_VALUE && f->arg[k].slot == i)
            return &f->arg[k];
    return NULL;
}

static LpVal left_out(LpGraphBuilder *gb, const LpFormArg *arg)
{
    if (arg->kind != LP_ARG_VALUE || !arg->has_default ||
        arg->def.kind == LP_ATTR_NONE)
        return LP_NOVAL;
    switch (arg->def.kind) {
    case LP_ATTR_SCALAR:
        return lp_imm(&gb->b, arg->def.s);
    case LP_ATTR_FLOAT:
        return lp_immf(&gb->b, arg->def.f);
    default:
        return lp_immi(&gb->b, arg->def.i);
    }
}

static LpVal operand(Compile *c, LpGraphBuilder *gb, const LpUpdateRule *r,
                     int i, int accum, LpVal counted)
{
    const LpFormArg *arg = operand_arg(r->op, i);
    int what = i < r->n_in ? r->in[i] : LP_RULE_HOLE;
    double n = c->s->mean_reduction
                   ? (double)(c->s->gradient_accumulation * c->s->replicas)
                   : 1.0;
    if (what == LP_RULE_HOLE && strcmp(arg->name, "grad_scale") == 0)
        return lp_immf(&gb->b, 1 / n);
    if (what == LP_RULE_HOLE)
        return left_out(gb, arg);
    if (what == LP_RULE_GRAD)
        return update_input(c, accum);
    return what == r->count ? counted : update_input(c, what);
}

static LpStatus apply(Compile *c, LpGraphBuilder *gb, const LpUpdateRule *r,
                      int accum)
{
    LpVal in[LP_MAX_ATTR], out[LP_MAX_OUT] = {0}, counted = LP_NOVAL;
    LpOrigin o = {.update = true, .phase = -1};
    o.scope = c->s->var[r->param].name;
    gb->origin = lp_graph_origin(c->s->update, &o, c->err);
    gb->site = 0;
    if (r->count >= 0) {
        counted = lp_add(&gb->b, update_input(c, r->count), lp_immi(&gb->b, 1));
        c->s->var[r->count].update_out = counted;
    }
    int n_in = r->op->n_operands;
    for (int i = 0; i < n_in && c->err->code == LP_OK; i++)
        in[i] = operand(c, gb, r, i, accum, counted);
    if (c->err->code != LP_OK)
        return c->err->code;
    int n = gb->b.emit(&gb->b, r->op, in, n_in, r->attr, out);
    for (int i = 0; i < n && i < r->n_out; i++)
        if (r->out[i] >= 0)
            c->s->var[r->out[i]].update_out = out[i];
    return c->err->code;
}

static LpStatus build_update(Compile *c)
{
    c->s->update = lp_graph_new();
    LP_FAIL_IF(!c->s->update, c->err, LP_E_MEMORY, "out of memory");
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, c->s->update, c->err);
    LpStatus s = LP_OK;
    for (int i = 0; i < c->t->n_rule && s == LP_OK; i++)
        if (c->accum[i] >= 0)
            s = apply(c, &gb, &c->t->rule[i], c->accum[i]);
    lp_graph_builder_fini(&gb);
    return s;
}

/* ---- passes keep the order of inputs and outputs; values are found again
 * ------------- */
static LpVal *slot(LpVariable *v, bool update, bool out)
{
    if (update)
        return out ? &v->update_out : &v->update_in;
    return out ? &v->micro_out : &v->micro_in;
}

static LpStatus optimise(Compile *c, LpGraph **g, bool update)
{
    if (!*g)
        return LP_OK;
    (*g)->n_output = 0;
    (*g)->differentiated = true;
    for (size_t i = 0; i < c->s->n_var; i++) {
        LpVal v = *slot(&c->s->var[i], update, true);
        if (v != LP_NOVAL && !lp_graph_output(*g, v, c->err))
            return LP_E_MEMORY;
    }
    for (size_t i = 0; i < c->s->n_var; i++) { /* values become numbers */
        LpVal *v = slot(&c->s->var[i], update, false);
        if (*v != LP_NOVAL)
            *v = (*g)->value[*v].nr + 1;
    }
    LP_TRY(lp_run_common_passes(g, c->err));
    size_t n_out = 0;
    for (size_t i = 0; i < c->s->n_var; i++) {
        LpVal *in = slot(&c->s->var[i], update, false);
        LpVal *out = slot(&c->s->var[i], update, true);
        if (*in != LP_NOVAL)
            *in = (*g)->input[*in - 1];
        if (*out != LP_NOVAL)
            *out = (*g)->output[n_out++];
    }
    return LP_OK;
}

LpStatus lp_complete_step(LpStep *step, const LpTraining *t, LpErr *e)
{
    Compile c = {.s = step, .t = t, .err = e};
    LpStatus s = LP_OK;
    if (t)
        s = differentiate(&c);
    if (s == LP_OK && t)
        s = build_update(&c);
    if (s == LP_OK)
        s = optimise(&c, &step->micro, false);
    if (s == LP_OK)
        s = optimise(&c, &step->update, true);
    lp_arena_fini(&c.mem);
    return s;
}

static LpStatus add_gradient(LpStep *step, int wrt, LpVal grad, LpErr *e)
{
    char name[512];
    LpVariable v = {.role = LP_VAR_STREAM_OUT,
                    .type = step->var[wrt].type,
                    .micro_out = grad,
                    .param = -1};
    snprintf(name, sizeof name, "Gradient___%s", step->var[wrt].name);
    v.name = name;
    if (grad == LP_NOVAL) {
        LpGraphBuilder gb;
        lp_graph_builder_init(&gb, step->micro, e);
        LpOrigin o = {.phase = -1, .backward = true};
        gb.origin = lp_graph_origin(step->micro, &o, e);
        v.micro_out = lp_full(&gb.b, &v.type, lp_float(0));
        lp_graph_builder_fini(&gb);
    }
    return e->code == LP_OK && lp_step_add(step, &v, e) >= 0 ? LP_OK : e->code;
}

LpStatus lp_step_gradients(LpStep *step, const int *out, const int *cotangent,
                           int n_out, const int *wrt, int n_wrt, int *first,
                           LpErr *e)
{
    LpArena mem = {0};
    size_t no = (size_t)n_out + 1, nw = (size_t)n_wrt + 1;
    LpVal *root = lp_arena_calloc(&mem, no * sizeof *root);
    LpVal *seeds = lp_arena_calloc(&mem, no * sizeof *seeds);
    LpVal *in = lp_arena_calloc(&mem, nw * sizeof *in);
    LpVal *grad = lp_arena_calloc(&mem, nw * sizeof *grad);
    LpStatus s = LP_OK;
    if (!root || !seeds || !in || !grad)
        s = lp_fail(e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < n_out && s == LP_OK; i++) {
        root[i] = step->var[out[i]].micro_out;
        seeds[i] = step->var[cotangent[i]].micro_in;
    }
    for (int i = 0; i < n_wrt && s == LP_OK; i++)
        in[i] = step->var[wrt[i]].micro_in;
    *first = (int)step->n_var;
    if (s == LP_OK)
        s = lp_sweep(step->micro, root, seeds, n_out, in, n_wrt, grad, e);
    for (int i = 0; i < n_wrt && s == LP_OK; i++)
        s = add_gradient(step, wrt[i], grad[i], e);
    lp_arena_fini(&mem);
    return s;
}

LpStatus lp_compile_host(LpStep *step, const LpCompileOptions *o,
                         LpProgram **out, LpErr *e)
{
    LpProgram *p = lp_calloc(1, sizeof *p);
    if (!p) {
        lp_step_free(step);
        return lp_fail(e, LP_E_MEMORY, "out of memory");
    }
    p->step = step;
    LpStatus s = lp_lower(step, step->micro, false, &o->host, &p->micro, e);
    if (s == LP_OK && step->update)
        s = lp_lower(step, step->update, true, &o->host, &p->update, e);
    if (s != LP_OK) {
        lp_program_free(p);
        return s;
    }
    *out = p;
    return LP_OK;
}
