/* The passes of the host, in the order of passes.def: they rewrite one graph of
 * the step (the micro graph or the update) and lower it to code; a file each.
 * Both graphs make a program. */
#include "src/passes/host/lower_impl.h"

#include <string.h>

#include "src/passes/pass.h"

/* ---- rewriting ---------------------------------------------------------- */
const char *const lp_host_pass_names[] = {
#define REWRITE(name, text) #name,
#include "src/passes/host/passes.def"
    NULL,
};

static LpStatus (*const rewriting[])(LpGraph **, const LpHostOptions *,
                                     LpErr *) = {
#define REWRITE(name, text) lp_host_##name,
#include "src/passes/host/passes.def"
};

typedef struct Rewriting {
    const LpHostOptions *o;
    const char *only; /* NULL: all */
} Rewriting;

/* Of the bodies in a graph, then of itself. */
static LpStatus rewrite(LpGraph **g, void *ctx, LpErr *e)
{
    const Rewriting *r = ctx;
    (*g)->host = true;
    LP_TRY(lp_in_bodies(*g, rewrite, ctx, e));
    for (int i = 0; lp_host_pass_names[i]; i++) {
        const char *name = lp_host_pass_names[i];
        if (r->only && strcmp(r->only, name) != 0)
            continue;
        if ((*g)->n_node > 0)
            LP_TRY(rewriting[i](g, r->o, e));
        LP_TRY(lp_pass_done(name, *g, e));
    }
    return LP_OK;
}

static LpStatus rebuild(LpGraph **g, const void *o, LpErr *e)
{
    return rewrite(g, &(Rewriting){.o = o}, e);
}

LpStatus lp_run_host_pass(const char *name, LpGraph **g, LpErr *e)
{
    LpHostOptions o = lp_host_options();
    for (int i = 0; lp_host_pass_names[i]; i++)
        if (strcmp(lp_host_pass_names[i], name) == 0)
            return rewrite(g, &(Rewriting){&o, name}, e);
    return lp_fail(e, LP_E_VALUE, "there is no pass '%s'", name);
}

/* ---- lowering ----------------------------------------------------------- */
static LpStatus run_passes(LpLower *l)
{
    static LpStatus (*const pass[])(LpLower *) = {
#define PASS(name, text) lp_lower_##name,
#include "src/passes/host/passes.def"
    };
    LpStatus s = LP_OK;
    for (size_t i = 0; i < sizeof pass / sizeof *pass && s == LP_OK; i++)
        s = pass[i](l);
    return s;
}

static void release(LpLower *l)
{
    lp_free(l->buf);
    lp_free(l->pending);
    lp_arena_fini(&l->mem);
}

static LpLower micro_of(LpProgram *p, const LpHostOptions *o, LpCode *code,
                        LpErr *e)
{
    return (LpLower){.program = p,
                     .step = p->step,
                     .g = p->micro_graph.g,
                     .in = p->micro_graph.in,
                     .out = p->micro_graph.out,
                     .o = o,
                     .code = code,
                     .err = e};
}

LpStatus lp_lower_function(LpProgram *p, const LpHostOptions *o, LpCode *code,
                           LpErr *e)
{
    LpLower l = micro_of(p, o, code, e);
    LpStatus s = run_passes(&l);
    if (s == LP_OK)
        s = lp_place_buffers(&l, NULL);
    release(&l);
    return s;
}

/* Rewrites the graphs and lowers them into p->micro and p->update. */
static LpStatus lower(LpProgram *p, const LpHostOptions *o, LpErr *e)
{
    LP_TRY(lp_rebuild(&p->micro_graph, p->step->n_var, rebuild, o, e));
    LP_TRY(lp_rebuild(&p->update_graph, p->step->n_var, rebuild, o, e));
    LpLower micro = micro_of(p, o, &p->micro, e);
    LpLower update = micro;
    update.g = p->update_graph.g;
    update.in = p->update_graph.in;
    update.out = p->update_graph.out;
    update.update = true;
    update.code = &p->update;
    p->threads = o->threads;
    LpStatus s = run_passes(&micro);
    if (s == LP_OK && update.g)
        s = run_passes(&update);
    if (s == LP_OK)
        s = lp_place_buffers(&micro, update.g ? &update : NULL);
    release(&micro);
    release(&update);
    return s;
}

/* ---- a program --------------------------------------------------------- */
/* Its own replicas; with the step's where all of them are. */
static LpStatus local_replicas(const LpStep *s, const LpTopology *t,
                               LpTopology *out, LpErr *e)
{
    bool all = !t || t->local == 0;
    *out = all ? (LpTopology){s->replicas, 0, s->replicas} : *t;
    LP_FAIL_IF(out->replicas != s->replicas || out->local < 1 ||
                   s->replicas % out->local != 0 || out->first < 0 ||
                   out->first % out->local != 0 || out->first >= s->replicas,
               e, LP_E_VALUE,
               "a process runs equal shares of the step's %lld replicas, got "
               "%lld from %lld on of %lld",
               (long long)s->replicas, (long long)out->local,
               (long long)out->first, (long long)out->replicas);
    return LP_OK;
}

/* Without what computes several nodes at once. */
static LpHostOptions one_by_one(const LpHostOptions *o)
{
    LpHostOptions out = *o;
    out.fuse = out.epilogues = out.pack = false;
    out.embedding_hoist = out.weight_layouts = false;
    out.block = 0;
    out.remat = UINT64_MAX;
    return out;
}

LpStatus lp_compile_host(const LpStep *step, const LpTopology *t,
                         const LpHostOptions *o, LpProgram **out, LpErr *e)
{
    LpTopology topology;
    LP_FAIL_IF(!step->complete, e, LP_E_RUNTIME, "the step is not complete");
    LP_TRY(local_replicas(step, t, &topology, e));
    LpProgram *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->step = lp_step_retain(step);
    p->topology = topology;
    LpHostOptions apart = one_by_one(o);
    if (step->numerics.trap) /* each node tells of itself */
        o = &apart;
    LpStatus s = lp_step_graph_copy(step, false, &p->micro_graph, e);
    if (s == LP_OK)
        s = lp_step_graph_copy(step, true, &p->update_graph, e);
    if (s == LP_OK)
        s = lower(p, o, e);
    if (s == LP_OK)
        *out = p;
    else
        lp_program_free(p);
    return s;
}
