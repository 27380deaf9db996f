/* See conv_steps.h. A chain is followed from the convolution's value on, from a
 * node to the only one that reads it, as long as there are steps for them. */
#include "src/kernel/nn/conv_steps.h"

#include "src/kernel/copy/copy.h"

typedef struct Find {
    const LpFusedReq *r;
    LpConvSteps *s;
    LpConvStepArgs *arg;
    bool *taken;
} Find;

/* The loop of a node of float32 values; NULL: it has others. */
static LpLoop loop_of(const LpFusedReq *r, const LpFusedNode *f,
                      LpNum p[LP_PW_MAX_PARAM])
{
    LpDesc in[LP_PW_MAX_IN] = {{0}}, out = {.dtype = f->dtype};
    LpPwNode node;
    bool plain = f->dtype == LP_F32 && !f->site;
    for (int i = 0; i < f->n_in && plain; i++) {
        const LpFusedArg *a = &f->in[i];
        in[i].is_imm = a->from == LP_FUSED_IMM;
        in[i].imm = a->imm;
        in[i].ndim = (int8_t)f->ndim;
        in[i].dtype = a->from == LP_FUSED_EXT    ? r->ext[a->at].dtype
                      : a->from == LP_FUSED_NODE ? r->node[a->at].dtype
                                                 : LP_F32;
        plain = in[i].dtype == LP_F32;
    }
    if (!plain)
        return NULL;
    lp_pointwise_resolve(&(LpKernelReq){.op = f->op,
                                        .attr = f->attr,
                                        .n_in = f->n_in,
                                        .n_out = 1,
                                        .in = in,
                                        .out = &out},
                         &node);
    for (int i = 0; i < LP_PW_MAX_PARAM; i++)
        p[i] = node.p[i];
    return node.loop;
}

static bool is(LpLoop loop, int row)
{
    return loop && loop == lp_loop_row(row)->f32;
}

static bool same(const LpFusedArg *a, LpFusedFrom from, int at)
{
    return a->from == from && a->at == at;
}

/* The only node that reads a value, once; -1: there is not one. */
static int reader(const LpFusedReq *r, LpFusedFrom from, int at)
{
    int found = -1, uses = 0;
    for (int k = 0; k < r->n_node; k++)
        for (int i = 0; i < r->node[k].n_in; i++)
            if (same(&r->node[k].in[i], from, at)) {
                found = k;
                uses++;
            }
    return uses == 1 ? found : -1;
}

/* External of a number a channel, or of an image like the result. */
static bool is_channels(const LpFusedReq *r, const LpFusedArg *a)
{
    const LpDesc *o = r->out, *x = &r->ext[a->at];
    int last = o->ndim - 1;
    return a->from == LP_FUSED_EXT && x->ndim == o->ndim &&
           x->shape[1] == o->shape[1] && x->shape[last] == o->shape[last] &&
           lp_desc_numel(x) == o->shape[1] * o->shape[last] &&
           x->strides[last] == 1 && x->strides[1] == x->shape[last];
}

static bool is_image(const LpFusedReq *r, const LpFusedArg *a)
{
    return a->from == LP_FUSED_EXT &&
           lp_desc_numel(&r->ext[a->at]) == lp_desc_numel(r->out) &&
           lp_desc_contiguous(&r->ext[a->at]);
}

/* Takes node k, of two operands of which one is an external of numbers a
 * channel; *other is the other one. */
static bool by_channels(const Find *x, int k, int row, int *channels,
                        LpFusedArg *other)
{
    const LpFusedNode *f = &x->r->node[k];
    LpNum p[LP_PW_MAX_PARAM];
    if (f->n_in != 2 || !is(loop_of(x->r, f, p), row))
        return false;
    int i = is_channels(x->r, &f->in[1]);
    if (!is_channels(x->r, &f->in[i]))
        return false;
    *channels = f->in[i].at;
    *other = f->in[1 - i];
    return true;
}

/* Operand a of an addition is an image, or one times and plus numbers a
 * channel, which nobody else reads. */
static bool take_image(const Find *x, LpFusedArg a, LpConvStepArgs *arg)
{
    int node[2], n = 0;
    static const int row[2] = {LP_LOOP_add, LP_LOOP_mul};
    for (int i = 0; i < 2; i++) {
        LpFusedArg next;
        int *channels = i == 0 ? &arg->shift : &arg->scale;
        if (a.from != LP_FUSED_NODE || x->taken[a.at] ||
            x->r->node[a.at].out >= 0 ||
            reader(x->r, LP_FUSED_NODE, a.at) < 0 ||
            !by_channels(x, a.at, row[i], channels, &next))
            continue;
        node[n++] = a.at;
        a = next;
    }
    if (!is_image(x->r, &a))
        return false;
    arg->image = a.at;
    while (n > 0)
        x->taken[node[--n]] = true;
    return true;
}

/* Node k, which reads `v`, as a step. */
static bool take(const Find *x, int k, LpFusedFrom from, int at)
{
    const LpFusedNode *f = &x->r->node[k];
    LpConvStep *s = &x->s->step[x->s->n];
    LpConvStepArgs *arg = &x->arg[x->s->n];
    LpNum p[LP_PW_MAX_PARAM];
    LpLoop loop = loop_of(x->r, f, p);
    LpFusedArg other;
    *s = (LpConvStep){.kind = LP_STEP_RELU};
    *arg = (LpConvStepArgs){-1, -1, -1};
    if (f->n_in == 1 && is(loop, LP_LOOP_relu))
        return true;
    if (f->n_in == 1 && is(loop, LP_LOOP_hardtanh)) {
        *s = (LpConvStep){
            .kind = LP_STEP_CLIP, .lo = (float)p[0].f, .hi = (float)p[1].f};
        return true;
    }
    if (by_channels(x, k, LP_LOOP_mul, &arg->scale, &other)) {
        s->kind = LP_STEP_SCALE;
        return same(&other, from, at);
    }
    if (by_channels(x, k, LP_LOOP_add, &arg->shift, &other)) {
        s->kind = LP_STEP_SHIFT;
        return same(&other, from, at);
    }
    s->kind = LP_STEP_IMAGE;
    return f->n_in == 2 && is(loop, LP_LOOP_add) &&
           take_image(x, f->in[same(&f->in[0], from, at)], arg);
}

void lp_conv_find_steps(const LpFusedReq *chain, int at, LpConvSteps *s,
                        LpConvStepArgs arg[LP_CONV_STEPS],
                        bool taken[LP_FUSED_MAX_NODE], int *value)
{
    const Find x = {chain, s, arg, taken};
    LpFusedFrom from = LP_FUSED_EXT;
    s->n = 0;
    *value = -1;
    while (s->n < LP_CONV_STEPS) {
        int k = reader(chain, from, at);
        if (k < 0 || (*value >= 0 && chain->node[*value].out >= 0) ||
            !take(&x, k, from, at))
            break;
        taken[k] = true;
        s->n++;
        *value = k;
        from = LP_FUSED_NODE;
        at = k;
    }
}
