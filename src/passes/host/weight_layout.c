/* Layouts of convolution weights: a parameter lies, while the program runs, in
 * the one in which its gradient is made (without training: the
 * one in which it is read).
 *
 *   micro    %g = convolution_backward_weight(…)    made in its layout
 *            %a = add(%accumulator, %g)             one dense dimension
 *   update   %p, %m = adam_step(%w, %a, %m, …)      one dense dimension
 *
 * A parameter has one if all that happens to it, its gradient and its
 * optimizer's state is element on element (decided from operator records): the
 * micro graph reads it as weights of convolutions only, its gradient comes
 * from convolutions by pointwise operators, the update consists of elementwise
 * ones. Every other reader gets plain rows (lp_layout_place), so the choice
 * never changes a value. */
#include <string.h>

#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/pointwise.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/ops/ops.h"
#include "src/ops/width.h"
#include "src/passes/host/lower_impl.h"

typedef struct Find {
    const LpStep *step;
    const LpStepGraph *graph;
    const LpGraph *g; /* its nodes */
    uint32_t *layout_group;
    bool *bad; /* per variable: a parameter that stays plain */
} Find;

const LpConvLayout *lp_weight_layout_of_var(const LpLower *l, size_t var)
{
    const LpWeightLayout *h = lp_program_weight_layout(l->program, var);
    return h ? h->layout : NULL;
}

const LpConvLayout *lp_weight_layout_of(const LpLower *l, LpVal v)
{
    return l->layout_group[v]
               ? lp_weight_layout_of_var(l, l->layout_group[v] - 1)
               : NULL;
}

uint64_t lp_weight_layout_bytes(const LpDesc *d)
{
    return d->layout ? d->layout->layout.bytes
                     : (uint64_t)lp_desc_numel(d) * lp_dtype_size(d->dtype);
}

static bool elementwise(const LpOp *op)
{
    return lp_pointwise_of(op) || op->flags & LP_OPF_ELEMENTWISE;
}

const LpConvLayout *lp_weight_layout_results(const LpLower *l,
                                             const LpGraphNode *n)
{
    return lp_conv_of(n->op) == LP_PRODUCT_CONV_WEIGHT || elementwise(n->op)
               ? lp_weight_layout_of(l, n->out)
               : NULL;
}

/* ---- who shares a layout ------------------------------------------------- */
static const LpType *type_of(const Find *f, LpVal v)
{
    return lp_graph_type(f->g, v);
}

/* v may lie as parameter p does. */
static void join(Find *f, LpVal v, uint32_t p)
{
    const LpType *t = type_of(f, v);
    if (f->layout_group[v] && f->layout_group[v] != p + 1) {
        f->bad[f->layout_group[v] - 1] = true;
        f->bad[p] = true;
    } else if (!lp_type_eq(t, &f->step->var[p].type)) {
        f->bad[p] = true;
    } else {
        f->layout_group[v] = p + 1;
    }
}

/* Whose layout a variable shares, or -1. State of another shape shares none. */
static int belongs(const LpStep *s, size_t i)
{
    const LpVariable *v = &s->var[i];
    if (v->role == LP_VAR_PARAM)
        return (int)i;
    if ((v->role != LP_VAR_ACCUM && v->role != LP_VAR_STATE) || v->param < 0 ||
        !lp_shape_eq(&v->type, &s->var[v->param].type))
        return -1;
    return v->param;
}

static void update_node(Find *f, const LpGraphNode *n)
{
    uint32_t p = 0;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (lp_is_value(n->in[i]) && f->layout_group[n->in[i]])
            p = f->layout_group[n->in[i]];
    if (!p--)
        return;
    bool ok = elementwise(n->op);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!lp_is_value(n->in[i]))
            continue;
        if (f->layout_group[n->in[i]])
            join(f, n->in[i], p);
        else
            ok = ok && lp_numel(type_of(f, n->in[i])) == 1;
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        if (i == 0 || lp_numel(type_of(f, n->out + i)) > 0)
            join(f, n->out + i, p);
    f->bad[p] |= !ok;
}

static void find_update(Find *f)
{
    for (size_t i = 0; i < f->step->n_var; i++) {
        int p = belongs(f->step, i);
        if (p >= 0 && !f->bad[p] && f->graph->in[i] != LP_NOVAL)
            join(f, f->graph->in[i], (uint32_t)p);
    }
    for (size_t i = 0; i < f->g->n_node; i++)
        update_node(f, &f->g->node[i]);
}

/* A node on a gradient's way from a convolution to the accumulator. */
static void gradient_node(Find *f, const LpGraphNode *n)
{
    for (uint32_t r = 0; r < n->n_out; r++) {
        uint32_t p = f->layout_group[n->out + r];
        if (!p-- || lp_conv_of(n->op) == LP_PRODUCT_CONV_WEIGHT)
            continue;
        f->bad[p] |= !elementwise(n->op);
        for (uint32_t i = 0; i < n->n_in && !f->bad[p]; i++)
            if (lp_is_value(n->in[i]) && lp_numel(type_of(f, n->in[i])) != 1)
                join(f, n->in[i], p);
        for (uint32_t i = 0; i < n->n_out && !f->bad[p]; i++)
            join(f, n->out + i, p);
    }
}

/* Everybody else who reads a parameter must be a convolution. */
static void check_reads(Find *f, const LpGraphNode *n)
{
    LpProductKind conv_of = lp_conv_of(n->op);
    bool conv = conv_of == LP_PRODUCT_CONV || conv_of == LP_PRODUCT_CONV_INPUT;
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t p = lp_is_value(n->in[i]) ? f->layout_group[n->in[i]] : 0;
        if (!p-- || n->in[i] != f->graph->in[p] || (conv && i == 1))
            continue;
        f->bad[p] |= !n->n_out || f->layout_group[n->out] != p + 1;
    }
}

static void find_micro(Find *f)
{
    const LpStep *s = f->step;
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_ACCUM && s->var[i].param >= 0 &&
            f->graph->out[i] != LP_NOVAL && !f->bad[s->var[i].param])
            join(f, f->graph->out[i], (uint32_t)s->var[i].param);
    for (size_t i = f->g->n_node; i-- > 0;)
        gradient_node(f, &f->g->node[i]);
    for (size_t i = 0; i < s->n_var; i++) {
        LpVal in = f->graph->in[i];
        int p = belongs(s, i);
        if (in != LP_NOVAL && p >= 0 && !f->bad[p])
            join(f, in, (uint32_t)p);
        else if (in != LP_NOVAL && f->layout_group[in])
            f->bad[f->layout_group[in] - 1] = true;
    }
    for (size_t i = 0; i < f->g->n_node; i++)
        check_reads(f, &f->g->node[i]);
}

static bool candidate(const LpVariable *v)
{
    return v->role == LP_VAR_PARAM && v->type.dtype == LP_F32 &&
           v->type.ndim >= 3 && v->type.ndim <= 5 && lp_numel(&v->type) > 1 &&
           v->micro_in != LP_NOVAL && v->micro_out == LP_NOVAL;
}

LpStatus lp_lower_weight_layouts(LpLower *l)
{
    const LpStep *s = l->step;
    const LpProgram *o = l->program;
    Find f = {.step = s, .g = l->g, .layout_group = l->layout_group};
    f.graph = l->update ? &o->update_graph : &o->micro_graph;
    f.bad = lp_arena_calloc(&l->mem, s->n_var + 1);
    LP_FAIL_IF(!f.bad, l->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < s->n_var; i++)
        f.bad[i] = !l->o->weight_layouts || !candidate(&s->var[i]);
    if (l->update) {
        find_update(&f);
    } else if (o->update_graph.g) {
        Find u = {.step = s, .graph = &o->update_graph, .bad = f.bad};
        u.g = u.graph->g;
        u.layout_group =
            lp_arena_calloc(&l->mem, u.g->n_value * sizeof *u.layout_group);
        LP_FAIL_IF(!u.layout_group, l->err, LP_E_MEMORY, "out of memory");
        find_update(&u);
    }
    if (!l->update)
        find_micro(&f);
    for (size_t v = 0; v < l->g->n_value; v++)
        if (l->layout_group[v] && f.bad[l->layout_group[v] - 1])
            l->layout_group[v] = 0;
    return LP_OK;
}

/* ---- the choice --------------------------------------------------------- */
static bool trained(const LpStep *s, uint32_t p)
{
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_ACCUM && s->var[i].param == (int)p)
            return true;
    return false;
}

/* Variables of parameter p move in. */
static void settle(LpLower *l, uint32_t p)
{
    const LpStep *s = l->step;
    uint32_t at = (uint32_t)l->program->n_weight_layout;
    for (size_t i = 0; i < s->n_var; i++) {
        LpVal in = l->in[i];
        if (belongs(s, i) != (int)p ||
            s->var[i].type.dtype != s->var[p].type.dtype)
            continue;
        l->program->weight_layout_of[i] = at;
        if (in != LP_NOVAL)
            l->location[in].desc.layout =
                l->program->weight_layout[at - 1].layout;
    }
}

static LpStatus add_weight_layout(LpLower *l, uint32_t p, const LpConvLayout *h)
{
    LpProgram *o = l->program;
    LpDesc plain = lp_desc_of(&l->step->var[p].type), lies = plain;
    if (!o->weight_layout_of)
        o->weight_layout_of =
            lp_calloc(l->step->n_var, sizeof *o->weight_layout_of);
    LP_FAIL_IF(!o->weight_layout_of ||
                   !LP_GROW(o->weight_layout, o->cap_weight_layout,
                            o->n_weight_layout),
               l->err, LP_E_MEMORY, "out of memory");
    LpWeightLayout *layout = &o->weight_layout[o->n_weight_layout++];
    *layout = (LpWeightLayout){.bytes = h->layout.bytes,
                               .layout = lp_alloc(sizeof *layout->layout)};
    LP_FAIL_IF(!layout->layout, l->err, LP_E_MEMORY, "out of memory");
    *layout->layout = *h;
    lies.layout = layout->layout;
    LP_TRY(lp_lower_new_kernel(l, &layout->load));
    LP_TRY(lp_lower_new_kernel(l, &layout->save));
    /* width 1: a forked worker may read weights, but enter no pool */
    LP_TRY(lp_conv_layout_copy(&plain, &lies, 1, layout->load, l->err));
    LP_TRY(lp_conv_layout_copy(&lies, &plain, 1, layout->save, l->err));
    settle(l, p);
    return LP_OK;
}

LpStatus lp_weight_layout_choose(LpLower *l, const LpGraphNode *n)
{
    if (l->update || lp_conv_of(n->op) != LP_PRODUCT_CONV ||
        !lp_is_value(n->in[1]) || !l->layout_group[n->in[1]] ||
        lp_weight_layout_of(l, n->in[1]))
        return LP_OK;
    uint32_t p = l->layout_group[n->in[1]] - 1;
    const LpValueLocation *x;
    if (n->in[1] != l->in[p] || lp_graph_type(l->g, n->in[0])->dtype != LP_F32)
        return LP_OK;
    LP_TRY(lp_layout_dense(l, n->in[0], &x));
    LpDesc in[2] = {x->desc, l->location[n->in[1]].desc};
    LpDesc out = lp_desc_of(lp_graph_type(l->g, n->out));
    out.block = l->block[n->out];
    LpKernelReq r = {.op = n->op,
                     .attr = n->attr,
                     .n_in = 2,
                     .n_out = 1,
                     .in = in,
                     .out = &out,
                     .fast = l->o->fast,
                     .keeps = lp_keeps(l, n)};
    r.threads = lp_width_of(&r, l->o->threads);
    LpConvLayout h;
    LpErr probe = {0}; /* a window the library does not take: plain rows */
    bool plain = true;
    LpStatus s = lp_conv_layout(&r, trained(l->step, p), &h, &plain, &probe);
    if (s == LP_E_MEMORY)
        return lp_fail(l->err, s, "%s", probe.msg);
    return s != LP_OK || plain ? LP_OK : add_weight_layout(l, p, &h);
}

LpStatus lp_lower_padding(LpLower *l)
{
    for (size_t i = 0; i < l->step->n_var; i++) {
        LpValueLocation at = {.desc = lp_desc_of(&l->step->var[i].type)};
        const LpValueLocation *out = &at;
        LpKernel *k;
        bool padded = false;
        at.desc.layout = lp_weight_layout_of_var(l, i);
        if (!l->update || !at.desc.layout ||
            l->step->var[i].role != LP_VAR_PARAM ||
            l->step->var[i].update_out == LP_NOVAL)
            continue;
        LP_TRY(lp_lower_new_kernel(l, &k));
        LpStatus s = lp_conv_layout_clear(&at.desc, k, &padded, l->err);
        if (s == LP_OK && !padded) {
            lp_free(k);
            continue;
        }
        if (s == LP_OK)
            s = lp_lower_buffer(l, 0, (uint32_t)i, &at.buf);
        LP_TRY(lp_lower_finish(l, s, LP_NO_NODE, k, NULL, 0, &out, 1));
    }
    return LP_OK;
}
