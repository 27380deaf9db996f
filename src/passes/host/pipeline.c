/* The passes of the host, in the order of passes.def: they rewrite one graph of
 * the step (the micro graph or the update) and lower it to code. The small ones
 * stand here, the others in a file each. */
#include "src/passes/host/lower_impl.h"

#include <string.h>

#include "src/kernel/copy/copy.h"
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

/* Of a graph, then of the bodies in it. */
static LpStatus rewrite(LpGraph **g, void *ctx, LpErr *e)
{
    const Rewriting *r = ctx;
    (*g)->host = true;
    for (int i = 0; lp_host_pass_names[i]; i++) {
        const char *name = lp_host_pass_names[i];
        if (r->only && strcmp(r->only, name) != 0)
            continue;
        if ((*g)->n_node > 0)
            LP_TRY(rewriting[i](g, r->o, e));
        LP_TRY(lp_pass_done(name, *g, e));
    }
    return lp_in_bodies(*g, rewrite, ctx, e);
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
LpStatus lp_find_readers(const LpGraph *g, const LpVal *out, size_t n_out,
                         LpArena *mem, LpReaders *r, LpErr *e)
{
    r->uses = lp_arena_calloc(mem, g->n_value * sizeof *r->uses);
    r->reader = lp_arena_alloc(mem, g->n_value * sizeof *r->reader);
    LP_FAIL_IF(!r->uses || !r->reader, e, LP_E_MEMORY, "out of memory");
    for (size_t v = 0; v < g->n_value; v++)
        r->reader[v] = LP_NO_NODE;
    for (LpNodeId i = 0; i < g->n_node; i++)
        for (uint32_t k = 0; k < g->node[i].n_in; k++)
            if (lp_is_value(g->node[i].in[k])) {
                r->uses[g->node[i].in[k]]++;
                r->reader[g->node[i].in[k]] = i;
            }
    for (size_t i = 0; i < n_out; i++)
        r->uses[out[i]]++; /* nobody asks for those of holes */
    return LP_OK;
}

static LpStatus run_tables(LpLower *l)
{
    size_t n = l->g->n_value;
    l->location = lp_arena_calloc(&l->mem, n * sizeof *l->location);
    l->alt = lp_arena_calloc(&l->mem, n * sizeof *l->alt);
    l->target = lp_arena_alloc(&l->mem, n * sizeof *l->target);
    l->layout_group = lp_arena_calloc(&l->mem, n * sizeof *l->layout_group);
    LP_FAIL_IF(!l->location || !l->alt || !l->target || !l->layout_group,
               l->err, LP_E_MEMORY, "out of memory");
    LP_TRY(lp_find_readers(l->g, l->out, l->step->n_var, &l->mem, &l->read,
                           l->err));
    for (size_t i = 0; i < n; i++) {
        l->location[i].buf = l->alt[i].buf = LP_NO_BUF;
        l->target[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < l->step->n_var; i++) {
        LpVal in = l->in[i], out = l->out[i];
        /* the first variable that wants a value gets it in place */
        if (out != LP_NOVAL && l->target[out] == UINT32_MAX)
            l->target[out] = i;
        if (in != LP_NOVAL) {
            LP_TRY(lp_lower_own(l, in, i));
            l->location[in].desc.layout = lp_weight_layout_of_var(l, i);
        }
    }
    for (size_t i = 0; i < l->g->n_input; i++) {
        LpVal in = l->g->input[i];
        if (l->location[in].buf != LP_NO_BUF)
            l->buf[l->location[in].buf].reads_left = l->read.uses[in];
    }
    return LP_OK;
}

static LpStatus run_weight_layouts(LpLower *l)
{
    return lp_weight_layout_find(l);
}

static LpStatus run_fusion(LpLower *l)
{
    return l->o->fuse ? lp_fuse(l) : LP_OK;
}

static LpStatus run_epilogues(LpLower *l)
{
    return l->o->fuse && l->o->epilogues ? lp_epilogues_find(l) : LP_OK;
}

static LpStatus run_norm_relus(LpLower *l)
{
    return lp_norm_relu_find(l);
}

/* The product that would have run with node id, which runs inside another: a
 * ReLU's gradient. (What joins a normalisation forward lies in blocks.) */
static LpStatus lower_left(LpLower *l, LpNodeId id)
{
    int32_t at = lp_fuse_group_of(l, id);
    LpNodeId product = at < 0 ? LP_NO_NODE : l->fusion.group[at].product;
    return product == LP_NO_NODE ? LP_OK : lp_lower_node(l, product);
}

/* A member of a group waits for the last one, and so does the product whose
 * epilogue it is. */
static LpStatus lower_at(LpLower *l, LpNodeId id)
{
    if (lp_norm_relu_inside(l, id))
        return lower_left(l, id);
    int32_t at = lp_fuse_group_of(l, id);
    if (at < 0)
        return lp_lower_node(l, id);
    const LpFuseGroup *group = &l->fusion.group[at];
    if (group->product == id)
        return lp_lower_result(l, &l->g->node[id], l->g->node[id].out);
    return group->member[group->n - 1] == id ? lp_lower_group(l, group) : LP_OK;
}

static LpStatus run_nodes(LpLower *l)
{
    for (int late = 0; late <= 1; late++)
        for (size_t i = 0; i < l->g->n_node; i++) {
            if (lp_sinks(l, (LpNodeId)i) != late)
                continue;
            LpStatus s = lower_at(l, (LpNodeId)i);
            if (s != LP_OK) {
                lp_err_context(l->err, "lowering %s", l->g->node[i].op->name);
                return s;
            }
        }
    return LP_OK;
}

static LpStatus run_work(LpLower *l)
{
    return lp_lower_note_work(l);
}

/* Values that did not land in their variable are copied now. A copy must not
 * overwrite a variable that a later copy still reads: such values were given
 * a buffer of their own first. */
static LpStatus run_outputs(LpLower *l)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < l->step->n_var; i++) {
            LpVal out = l->out[i];
            if (out == LP_NOVAL)
                continue;
            LpValueLocation *p = &l->location[out];
            uint32_t from = l->buf[p->buf].var;
            if (from == i && p->offset == 0)
                continue;
            if (pass == 0) {
                if (from == UINT32_MAX)
                    continue; /* safe already */
                LpValueLocation apart = *p;
                apart.offset = 0;
                apart.desc = lp_desc_of(lp_graph_type(l->g, out));
                apart.desc.layout = p->desc.layout;
                LP_TRY(lp_lower_memory(l, &apart.desc, &apart.buf));
                LP_TRY(lp_lower_copy(l, LP_NO_NODE, p, &apart));
                *p = apart;
            } else {
                LpValueLocation dst = {
                    .desc = lp_desc_of(lp_graph_type(l->g, out))};
                dst.desc.layout = lp_weight_layout_of_var(l, i);
                LP_TRY(lp_lower_var_memory(l, i, &dst.buf));
                LP_TRY(lp_lower_copy(l, LP_NO_NODE, p, &dst));
            }
        }
    }
    return LP_OK;
}

static LpStatus run_padding(LpLower *l)
{
    return l->update ? lp_weight_layout_clear(l) : LP_OK;
}

static LpStatus run_passes(LpLower *l)
{
    static LpStatus (*const pass[])(LpLower *) = {
#define PASS(name, text) run_##name,
#include "src/passes/host/passes.def"
    };
    LpStatus s = LP_OK;
    for (size_t i = 0; i < sizeof pass / sizeof *pass && s == LP_OK; i++)
        s = pass[i](l);
    return s;
}

static void release(LpLower *l)
{
    lp_free(l->fusion.group);
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

LpStatus lp_lower(LpProgram *p, const LpHostOptions *o, LpErr *e)
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
