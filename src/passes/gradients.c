/* Gradients as results of a step: what lupine.compile returns for functions
 * whose results require a gradient. See compile.h. */
#include <string.h>

#include "src/autodiff/sweep.h"
#include "src/ops/ops.h"
#include "src/passes/anchors.h"
#include "src/passes/compile.h"

const char *lp_gradient_name(LpArena *mem, const char *variable, LpErr *e)
{
    size_t prefix = strlen(LP_GRADIENT);
    size_t n = strlen(variable) + 1;
    char *name = lp_arena_alloc(mem, prefix + n);
    if (!name) {
        lp_fail(e, LP_E_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(name, LP_GRADIENT, prefix);
    memcpy(name + prefix, variable, n);
    return name;
}

static LpStatus add_gradient(LpStep *step, int wrt, LpVal grad, LpArena *mem,
                             LpErr *e)
{
    LpVariable v = {.role = LP_VAR_STREAM_OUT,
                    .type = step->var[wrt].type,
                    .micro_out = grad,
                    .param = -1};
    v.name = lp_gradient_name(mem, step->var[wrt].name, e);
    if (!v.name)
        return LP_E_MEMORY;
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

LpStatus lp_step_gradients(LpStep *step, const LpCotangents *c, LpErr *e)
{
    LpArena mem = {0};
    size_t no = (size_t)c->n_out + 1, nw = (size_t)c->n_wrt + 1;
    LpVal *root = lp_arena_calloc(&mem, no * sizeof *root);
    LpVal *seeds = lp_arena_calloc(&mem, no * sizeof *seeds);
    LpVal *in = lp_arena_calloc(&mem, nw * sizeof *in);
    LpVal *grad = lp_arena_calloc(&mem, nw * sizeof *grad);
    LpStatus s = LP_OK;
    if (!root || !seeds || !in || !grad)
        s = lp_fail(e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < c->n_out && s == LP_OK; i++) {
        root[i] = step->var[c->out[i]].micro_out;
        seeds[i] = step->var[c->cotangent[i]].micro_in;
    }
    for (int i = 0; i < c->n_wrt && s == LP_OK; i++)
        in[i] = step->var[c->wrt[i]].micro_in;
    if (s == LP_OK)
        s = lp_sweep(step->micro, root, seeds, c->n_out, in, c->n_wrt, grad, e);
    for (int i = 0; i < c->n_wrt && s == LP_OK; i++)
        s = add_gradient(step, c->wrt[i], grad[i], &mem, e);
    lp_arena_fini(&mem);
    return s;
}
