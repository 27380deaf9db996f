/* The order of the common passes, and running them. The order is that of
 * passes.def: identities first, since they make nodes equal and constants
 * visible, and again after folding, since what was folded is such a constant;
 * folding before merging, since folded constants merge; dead code last, since
 * the others leave what nobody reads any more. A pass sees one graph; the
 * bodies in it come after it. */
#include <string.h>

#include "src/passes/pass.h"

const char *const lp_pass_names[] = {
#define PASS(name, text) #name,
#include "src/passes/passes.def"
#undef PASS
    NULL,
};

static const LpPass passes[] = {
#define PASS(name, text) lp_pass_##name,
#include "src/passes/passes.def"
#undef PASS
};

static LpStatus run(int i, LpGraph **g, LpErr *e)
{
    LpStatus st = passes[i](g, e);
    if (st != LP_OK)
        lp_err_context(e, "in pass %s", lp_pass_names[i]);
    return st;
}

LpStatus lp_in_bodies(LpGraph *g,
                      LpStatus (*fn)(LpGraph **g, void *ctx, LpErr *e),
                      void *ctx, LpErr *e)
{
    for (LpNodeId id = 0; id < g->n_node; id++) {
        int at = 0;
        for (const LpGraph *b; (b = lp_node_body(&g->node[id], &at));) {
            LpGraph *own = lp_graph_clone(b, e);
            if (!own)
                return LP_E_MEMORY;
            own->differentiated = g->differentiated;
            own->host = g->host;
            LpStatus st = fn(&own, ctx, e);
            if (st == LP_OK)
                lp_graph_set_body(g, id, at - 1, own);
            else
                lp_graph_free(own);
            LP_TRY(st);
        }
    }
    return LP_OK;
}

static LpStatus run_all(LpGraph **g, void *ctx, LpErr *e)
{
    int last = 0;
    for (int i = 0; lp_pass_names[i]; last = i++) {
        LP_TRY(run(i, g, e));
        LP_TRY(lp_pass_done(lp_pass_names[i], *g, e));
    }
    LP_TRY(lp_in_bodies(*g, run_all, ctx, e));
    return lp_pass_verify(lp_pass_names[last], *g, e);
}

LpStatus lp_run_common_passes(LpGraph **g, LpErr *e)
{
    return run_all(g, NULL, e);
}

static LpStatus run_one(LpGraph **g, void *number, LpErr *e)
{
    int i = *(int *)number;
    LP_TRY(run(i, g, e));
    return lp_in_bodies(*g, run_one, number, e);
}

LpStatus lp_run_pass(const char *name, LpGraph **g, LpErr *e)
{
    int i = 0;
    while (lp_pass_names[i] && strcmp(lp_pass_names[i], name) != 0)
        i++;
    LP_TRY(lp_pass_names[i] ? run_one(g, &i, e) : lp_run_host_pass(name, g, e));
    return lp_pass_verify(name, *g, e);
}

LpStatus lp_rebuild(LpStepGraph *x, size_t n_var, LpRebuild pass,
                    const void *ctx, LpErr *e)
{
    if (!x->g)
        return LP_OK;
    x->g->n_output = 0;
    for (size_t i = 0; i < n_var; i++) {
        if (x->out[i] != LP_NOVAL && !lp_graph_output(x->g, x->out[i], e))
            return LP_E_MEMORY;
        if (x->in[i] != LP_NOVAL) /* becomes a number */
            x->in[i] = x->g->value[x->in[i]].nr + 1;
    }
    LP_TRY(pass(&x->g, ctx, e));
    size_t n_out = 0;
    for (size_t i = 0; i < n_var; i++) {
        if (x->in[i] != LP_NOVAL)
            x->in[i] = x->g->input[x->in[i] - 1];
        if (x->out[i] != LP_NOVAL)
            x->out[i] = x->g->output[n_out++];
    }
    return LP_OK;
}
