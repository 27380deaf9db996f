/* Completing a step: the reverse sweep from the loss, accumulators where
 * gradients are made, the update graph (update.c), then the common passes over
 * both graphs. Passes keep inputs and outputs in
 * order, so that the table of variables finds its values again. */
#include "src/passes/compile.h"

#include "src/autodiff/sweep.h"
#include "src/ops/ops.h"
#include "src/passes/anchors.h"
#include "src/passes/multi_conv.h"
#include "src/passes/pass.h"
#include "src/passes/scaling.h"
#include "src/passes/update.h"

typedef struct Compile {
    LpStep *s;
    const LpCompileSpec *spec;
    const LpTraining *t; /* the spec's */
    LpArena mem;
    LpAnchor *anchor; /* the spec's, found */
    LpAnchor *named;  /* tensors whose gradients are tracked, found */
    LpVal scale;      /* what the loss gradient starts at; LP_NOVAL: 1 */
    LpVal counts;     /* with scaling: the input of its counts */
    int *accum;       /* per rule: accumulator variable, -1: no gradient */
    LpErr *err;
} Compile;

/* ---- the backward half -------------------------------------------------- */
static LpStatus find_scale(Compile *c)
{
    const LpScaling *scaling = c->t->scaling;
    c->scale = LP_NOVAL;
    if (c->t->loss_scale < 0)
        return LP_OK;
    LpVariable *v = &c->s->var[c->t->loss_scale];
    if (v->micro_in == LP_NOVAL)
        v->micro_in = lp_graph_input(c->s->micro, &v->type, v->name, c->err);
    c->scale = v->micro_in;
    if (scaling && c->err->code == LP_OK)
        lp_scaling_begin(c->s, scaling, v->micro_in, &c->scale, &c->counts,
                         c->err);
    return c->err->code;
}

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
    LpVal scale = c->scale;
    if (c->t->early && c->s->replicas > 1) {
        LpVal share = lp_immf(&gb.b, 1.0 / (double)c->s->replicas);
        scale = scale == LP_NOVAL ? share : lp_mul(&gb.b, scale, share);
    }
    if (scale != LP_NOVAL && c->err->code == LP_OK) {
        *out = lp_mul(&gb.b, *out, scale);
        *out = lp_cast(&gb.b, *out, lp_graph_type(g, c->t->loss)->dtype);
    }
    lp_graph_builder_fini(&gb);
    return c->err->code;
}

/* accumulator' = accumulator + gradient, where the gradient is made; with a
 * single micro-batch, of this run alone, just the gradient. A running mean adds
 * the gradient's share, so that the accumulator never exceeds the largest
 * gradient. */
static LpStatus accumulate(Compile *c, const LpUpdateRule *r, LpVal grad,
                           int *index)
{
    LpGraph *g = c->s->micro;
    const LpVariable *param = &c->s->var[r->param];
    int64_t n = c->s->gradient_accumulation;
    bool adds = n > 1 || c->t->gathered >= 0;
    const char *name = lp_gradient_name(&c->mem, param->name, c->err);
    if (!name)
        return LP_E_MEMORY;
    LpVariable v = {.role = LP_VAR_ACCUM,
                    .name = name,
                    .type = param->type,
                    .param = r->param};
    if (r->accum != LP_DT_NONE)
        v.type.dtype = r->accum;
    if (adds)
        v.micro_in = lp_graph_input(g, &v.type, NULL, c->err);
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, g, c->err);
    LpNodeId from = g->value[grad].node;
    if (from != LP_NO_NODE)
        gb.origin = g->node[from].origin;
    if (c->err->code == LP_OK)
        grad = lp_cast(&gb.b, grad, v.type.dtype);
    if (n > 1 && c->t->running)
        grad = lp_mul(&gb.b, grad, lp_immf(&gb.b, 1.0 / (double)n));
    v.micro_out = adds ? lp_add(&gb.b, v.micro_in, grad) : grad;
    lp_graph_builder_fini(&gb);
    if (c->err->code == LP_OK)
        *index = lp_step_add(c->s, &v, c->err);
    return c->err->code;
}

/* What the sweep is asked for: parameters that rules update and forward reads,
 * then what gradients are anchored of, then what they are tracked of. grad[]
 * has the results in this order. */
typedef struct Wanted {
    LpVal *wrt, *grad;
    int n;
} Wanted;

static LpStatus want(Compile *c, Wanted *w)
{
    int n_named = c->t->scaling ? c->t->scaling->n_name : 0;
    size_t most = (size_t)(c->t->n_rule + c->spec->n_anchor + n_named) + 1;
    w->n = 0;
    w->wrt = lp_arena_calloc(&c->mem, most * sizeof *w->wrt);
    w->grad = lp_arena_calloc(&c->mem, most * sizeof *w->grad);
    LP_FAIL_IF(!w->wrt || !w->grad, c->err, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < c->t->n_rule; i++)
        if (c->s->var[c->t->rule[i].param].micro_in != LP_NOVAL)
            w->wrt[w->n++] = c->s->var[c->t->rule[i].param].micro_in;
    for (int i = 0; i < c->spec->n_anchor; i++)
        if (c->anchor[i].kind == LP_ANCHOR_GRADIENT)
            w->wrt[w->n++] = c->anchor[i].value;
    for (int i = 0; i < n_named; i++)
        w->wrt[w->n++] = c->named[i].value;
    return LP_OK;
}

static LpStatus track(Compile *c, LpVal one, const Wanted *w)
{
    const LpScaling *scaling = c->t->scaling;
    if (!scaling)
        return LP_OK;
    LpTracked of = {.seed = one,
                    .named = w->grad + (w->n - scaling->n_name),
                    .grad = w->grad,
                    .n_grad = w->n,
                    .counts = c->counts};
    return lp_scaling_track(c->s, scaling, &of, c->err);
}

static LpStatus differentiate(Compile *c)
{
    LpVal one;
    Wanted w;
    int n = c->t->n_rule, m = 0;
    c->accum = lp_arena_calloc(&c->mem, (size_t)(n + 1) * sizeof *c->accum);
    LP_FAIL_IF(!c->accum, c->err, LP_E_MEMORY, "out of memory");
    LP_TRY(want(c, &w));
    LP_TRY(seed(c, &one));
    LP_TRY(lp_sweep(c->s->micro, &c->t->loss, &one, 1, w.wrt, w.n, w.grad,
                    c->err));
    LP_TRY(track(c, one, &w));
    for (int i = 0; i < n; i++) {
        c->accum[i] = -1;
        if (c->s->var[c->t->rule[i].param].micro_in == LP_NOVAL)
            continue;
        LpVal d = w.grad[m++];
        if (d != LP_NOVAL)
            LP_TRY(accumulate(c, &c->t->rule[i], d, &c->accum[i]));
    }
    for (int i = 0; i < c->spec->n_anchor; i++)
        if (c->anchor[i].kind == LP_ANCHOR_GRADIENT)
            c->anchor[i].value = w.grad[m++];
    return LP_OK;
}

/* ---- common passes ------------------------------------------------------ */
static LpStatus optimise(LpGraph **g, const void *ctx, LpErr *e)
{
    (void)ctx;
    (*g)->differentiated = true;
    return lp_run_common_passes(g, e);
}

static LpStatus rebuild_step(LpStep *s, bool update, LpRebuild how, LpErr *e)
{
    LpStepGraph x;
    LP_TRY(lp_step_graph_take(s, update, &x, e));
    LpStatus st = lp_rebuild(&x, s->n_var, how, NULL, e);
    lp_step_graph_put(s, update, &x);
    return st;
}

static LpStatus give_sites(LpStep *s, int time, LpErr *e)
{
    if (!s->numerics.stochastic)
        return LP_OK;
    LP_TRY(lp_give_sites(s->micro, time, e));
    return lp_give_sites(s->update, time, e);
}

/* ---- anchors ------------------------------------------------------------- */
static LpStatus find_anchors(Compile *c)
{
    int n = c->spec->n_anchor;
    if (c->spec->name_values)
        LP_TRY(
            lp_name_values(c->s->micro, c->t ? c->t->loss : LP_NOVAL, c->err));
    c->anchor = lp_arena_calloc(&c->mem, (size_t)(n + 1) * sizeof *c->anchor);
    LP_FAIL_IF(!c->anchor, c->err, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        c->anchor[i].name = c->spec->anchor[i].name;
        c->anchor[i].final = c->spec->anchor[i].final;
        LP_TRY(lp_anchor_find(c->s, c->t != NULL, &c->anchor[i], c->err));
    }
    return LP_OK;
}

/* Tensors whose gradients are tracked, by the names that anchors have. */
static LpStatus find_named(Compile *c)
{
    const LpScaling *scaling = c->t ? c->t->scaling : NULL;
    int n = scaling ? scaling->n_name : 0;
    c->named = lp_arena_calloc(&c->mem, (size_t)(n + 1) * sizeof *c->named);
    LP_FAIL_IF(!c->named, c->err, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        c->named[i].name = scaling->name[i];
        LP_TRY(lp_tensor_find(c->s, &c->named[i], c->err));
    }
    return LP_OK;
}

static LpStatus add_anchors(Compile *c)
{
    for (int i = 0; i < c->spec->n_anchor; i++) {
        if (c->t)
            LP_TRY(lp_show_velocity(c->s, c->t, c->accum, c->scale,
                                    &c->anchor[i], c->err));
        LP_TRY(lp_anchor_add(c->s, &c->anchor[i], c->err));
    }
    return LP_OK;
}

/* ---- all of it ----------------------------------------------------------- */
static LpStatus set_loops(LpStep *s, const LpCompileSpec *spec, LpErr *e)
{
    s->device_iterations = spec->device_iterations;
    s->gradient_accumulation = spec->gradient_accumulation;
    s->replicas = spec->topology.replicas;
    s->mean_reduction = spec->mean;
    s->numerics = spec->numerics;
    return lp_step_check_loops(s, e);
}

static LpStatus complete(Compile *c)
{
    LpStep *s = c->s;
    LP_TRY(set_loops(s, c->spec, c->err));
    s->failed = true; /* from here on, unless all goes well */
    if (c->t)
        LP_TRY(find_scale(c));
    LP_TRY(find_anchors(c));
    LP_TRY(find_named(c));
    LP_TRY(lp_pass_done("trace", s->micro, c->err));
    if (c->spec->cotangents)
        LP_TRY(lp_step_gradients(s, c->spec->cotangents, c->err));
    if (c->t) {
        LP_TRY(differentiate(c));
        LP_TRY(lp_build_update(s, c->t, c->accum, c->err));
    }
    LP_TRY(add_anchors(c));
    if (c->t) {
        LP_TRY(lp_pass_done("sweep", s->micro, c->err));
        LP_TRY(lp_pass_done("sweep", s->update, c->err));
    }
    if (c->t && c->t->scaling)
        LP_TRY(rebuild_step(s, false, lp_scaling_hoist, c->err));
    LP_TRY(lp_set_partials(s->micro, s->numerics.half_partials, c->err));
    LP_TRY(lp_set_partials(s->update, s->numerics.half_partials, c->err));
    LP_TRY(give_sites(s, 0, c->err));
    LP_TRY(rebuild_step(s, false, optimise, c->err));
    LP_TRY(rebuild_step(s, true, optimise, c->err));
    LP_TRY(give_sites(s, 1, c->err));
    return lp_step_verify(s, c->err);
}

LpStatus lp_complete_step(LpStep *step, const LpCompileSpec *spec, LpErr *e)
{
    Compile c = {.s = step, .spec = spec, .t = spec->training, .err = e};
    LP_FAIL_IF(step->complete || step->failed, e, LP_E_RUNTIME,
               step->complete ? "the step is complete"
                              : "completing this step failed: trace it again");
    LpStatus s = complete(&c);
    lp_arena_fini(&c.mem);
    step->complete = s == LP_OK;
    step->failed &= !step->complete;
    return s;
}

/* ---- both ---------------------------------------------------------------- */
static void tell(const LpCompileSpec *spec, const char *part)
{
    if (spec->progress)
        spec->progress(spec->progress_ctx, part);
}

LpStatus lp_compile(LpStep *step, const LpCompileSpec *spec, LpCompiled *out,
                    LpErr *e)
{
    *out = (LpCompiled){NULL, NULL};
    LP_TRY(lp_complete_step(step, spec, e));
    tell(spec, "completed");
    if (spec->ipu) {
        LP_TRY(lp_ipu_analyse(step, spec->ipu, NULL, &out->plan, e));
        tell(spec, "planned");
    }
    if (spec->host) {
        LP_TRY(lp_compile_host(step, &spec->topology, spec->host, &out->program,
                               e));
        tell(spec, "lowered");
    }
    return LP_OK;
}
