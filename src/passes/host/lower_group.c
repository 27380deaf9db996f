/* Lowering of a fused chain: one instruction that reads the values made
 * outside and writes those that are read outside. */
#include <string.h>

#include "src/kernel/copy/copy.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/kernel/product/mm_chain.h"
#include "src/ops/width.h"
#include "src/passes/host/lower_impl.h"

typedef struct Chain {
    LpLower *l;
    int block;                  /* of the chain's values; 0: plain */
    const LpConvLayout *layout; /* not NULL: they lie in the library's layout */
    const LpFuseGroup *group;
    int product; /* the external that the group's product makes; -1: none */
    LpFusedNode node[LP_FUSED_MAX_NODE];
    LpVal ext[LP_FUSED_MAX_EXT];
    int ext_last[LP_FUSED_MAX_EXT]; /* last member that reads it */
    int n_ext;
    LpVal out[LP_FUSED_MAX_OUT];
    int out_member[LP_FUSED_MAX_OUT];
    uint32_t out_reads[LP_FUSED_MAX_OUT]; /* from memory */
    int n_out;
    LpDesc ext_seen[LP_FUSED_MAX_EXT], out_seen[LP_FUSED_MAX_OUT];
} Chain;

static int member_of(const Chain *c, LpVal v)
{
    for (int i = 0; i < c->group->n; i++)
        if (c->l->g->node[c->group->member[i]].out == v)
            return i;
    return -1;
}

static bool ext_of(Chain *c, LpVal v, int member, int *at)
{
    int i = 0;
    while (i < c->n_ext && c->ext[i] != v)
        i++;
    if (i == LP_FUSED_MAX_EXT)
        return false;
    if (i == c->n_ext)
        c->ext[c->n_ext++] = v;
    c->ext_last[i] = member;
    *at = i;
    return true;
}

static bool read_node(Chain *c, int k, uint32_t *inner)
{
    const LpGraphNode *n = &c->l->g->node[c->group->member[k]];
    const LpType *t = lp_graph_type(c->l->g, n->out);
    LpFusedNode *f = &c->node[k];
    *f = (LpFusedNode){.op = n->op,
                       .attr = n->attr,
                       .n_in = (int)n->n_in,
                       .dtype = t->dtype,
                       .ndim = t->ndim,
                       .out = -1,
                       .site = n->site}; /* none draws: they would round */
    for (uint32_t i = 0; i < n->n_in; i++) {
        LpFusedArg *a = &f->in[i];
        LpVal v = n->in[i];
        if (v == LP_NOVAL)
            return false;
        if (lp_is_imm(v)) {
            a->from = LP_FUSED_IMM;
            a->imm = lp_graph_scalar(c->l->g, v);
        } else if ((a->at = member_of(c, v)) >= 0) {
            a->from = LP_FUSED_NODE;
            inner[a->at]++;
        } else {
            a->from = LP_FUSED_EXT;
            if (!ext_of(c, v, k, &a->at))
                return false;
        }
    }
    return true;
}

static bool read_chain(Chain *c)
{
    uint32_t inner[LP_FUSED_MAX_NODE] = {0};
    for (int k = 0; k < c->group->n; k++)
        if (!read_node(c, k, inner))
            return false;
    for (int k = 0; k < c->group->n; k++) {
        LpVal v = c->l->g->node[c->group->member[k]].out;
        if (c->l->read.uses[v] == inner[k])
            continue;
        if (c->n_out == LP_FUSED_MAX_OUT)
            return false;
        c->node[k].out = c->n_out;
        c->out_member[c->n_out] = k;
        c->out_reads[c->n_out] = c->l->read.uses[v] - inner[k];
        c->out[c->n_out++] = v;
    }
    return c->n_out > 0;
}

/* Reads of buffer `buf` by the chain; `safe` if none comes after member k and
 * all are element on element. */
static uint32_t reads_of(const Chain *c, uint32_t buf, int k, const LpDesc *out,
                         bool *safe)
{
    uint32_t n = 0;
    *safe = true;
    for (int m = 0; m < c->group->n; m++)
        for (int i = 0; i < c->node[m].n_in; i++) {
            const LpFusedArg *a = &c->node[m].in[i];
            if (a->from != LP_FUSED_EXT)
                continue;
            const LpValueLocation *p = &c->l->location[c->ext[a->at]];
            if (p->buf != buf)
                continue;
            n++;
            *safe = *safe && m <= k && p->offset == 0 &&
                    lp_lower_same_layout(&p->desc, out);
        }
    return n;
}

/* Already some result's place? */
static bool taken(const Chain *c, int n_placed, uint32_t buf)
{
    for (int i = 0; i < n_placed; i++)
        if (c->l->location[c->out[i]].buf == buf)
            return true;
    return false;
}

/* Result i may lie over external x, of the arena, which nobody reads later. */
static bool fits(const Chain *c, int i, const LpDesc *d, int x)
{
    const LpLower *l = c->l;
    uint32_t b = l->location[c->ext[x]].buf;
    bool safe = true;
    return l->buf[b].var == UINT32_MAX &&
           l->buf[b].bytes == lp_weight_layout_bytes(d) &&
           l->buf[b].reads_left == reads_of(c, b, c->out_member[i], d, &safe) &&
           safe;
}

static LpDesc result(const Chain *c, int i)
{
    LpDesc d = lp_desc_of(lp_graph_type(c->l->g, c->out[i]));
    d.block = (uint8_t)c->block;
    d.layout = c->layout;
    return d;
}

static LpStatus place_out(Chain *c, int i)
{
    LpLower *l = c->l;
    LpVal v = c->out[i];
    LpDesc d = result(c, i);
    uint32_t var = l->target[v];
    bool safe = true;
    if (var != UINT32_MAX && !c->block &&
        lp_weight_layout_of_var(l, var) == c->layout) {
        LpVal old = l->in[var];
        uint32_t b = old == LP_NOVAL ? LP_NO_BUF : l->location[old].buf;
        if (b == LP_NO_BUF ||
            (l->buf[b].reads_left ==
                 reads_of(c, b, c->out_member[i], &d, &safe) &&
             safe))
            return lp_lower_own_as(l, v, var, &d);
    }
    for (int x = 0; x < c->n_ext; x++) {
        uint32_t b = l->location[c->ext[x]].buf;
        if (!taken(c, i, b) && (c->product < 0 || x == c->product) &&
            fits(c, i, &d, x)) {
            l->location[v] = (LpValueLocation){.buf = b, .desc = d};
            return LP_OK;
        }
    }
    return lp_lower_own_as(l, v, UINT32_MAX, &d);
}

/* What the kernel is told of a place. */
static LpDesc seen(const Chain *c, const LpDesc *d)
{
    if (c->layout)
        return d->layout ? lp_conv_layout_flat(d) : (LpDesc){.dtype = d->dtype};
    const LpType *like = lp_graph_type(c->l->g, c->out[0]);
    return c->block ? lp_layout_split(c->l, d, like) : *d;
}

/* The layout in which the chain reads operand i. */
static const LpConvLayout *ext_layout(const Chain *c, int i)
{
    const LpGraph *g = c->l->g;
    return lp_shape_eq(lp_graph_type(g, c->ext[i]), lp_graph_type(g, c->out[0]))
               ? c->layout
               : NULL;
}

/* The operand in a layout the chain can read: split ones take either. */
static LpStatus ext_place(Chain *c, int i, const LpValueLocation **p)
{
    LpVal v = c->ext[i];
    int block = c->block ? c->l->location[v].desc.block : 0;
    return lp_layout_place(c->l, v, block, ext_layout(c, i), p);
}

/* Operands of the product, after the chain's, and its kernel with the chain. */
static LpStatus prepare_product(Chain *c, const LpFusedReq *chain,
                                const LpValueLocation **in, LpKernel *k)
{
    LpLower *l = c->l;
    const LpGraphNode *n = &l->g->node[c->group->product];
    LpDesc d[2];
    for (int i = 0; i < 2; i++) {
        LP_TRY(lp_layout_place(l, n->in[i], 0, NULL, &in[i]));
        d[i] = in[i]->desc;
    }
    LpKernelReq r = {.op = n->op,
                     .n_in = 2,
                     .n_out = 1,
                     .in = d,
                     .out = &l->location[n->out].desc,
                     .numerics = l->step->numerics,
                     .split = l->o->split};
    r.threads = lp_width_of(&r, l->o->threads);
    return lp_mm_chain_prepare(&r, chain, c->product, k, l->err);
}

static void count_reads(const Chain *c)
{
    const LpLower *l = c->l;
    for (int m = 0; m < c->group->n; m++)
        for (int i = 0; i < c->node[m].n_in; i++)
            if (c->node[m].in[i].from == LP_FUSED_EXT)
                l->buf[l->location[c->ext[c->node[m].in[i].at]].buf]
                    .reads_left--;
    for (int i = 0; i < 2 && c->product >= 0; i++)
        l->buf[l->location[l->g->node[c->group->product].in[i]].buf]
            .reads_left--;
    for (int i = 0; i < c->n_out; i++)
        l->buf[l->location[c->out[i]].buf].reads_left += c->out_reads[i];
}

static LpFusedReq request(const Chain *c, int threads)
{
    return (LpFusedReq){.node = c->node,
                        .n_node = c->group->n,
                        .ext = c->ext_seen,
                        .n_ext = c->n_ext,
                        .out = c->out_seen,
                        .n_out = c->n_out,
                        .threads = threads};
}

static LpStatus emit(Chain *c)
{
    LpLower *l = c->l;
    const LpValueLocation *in[LP_FUSED_MAX_EXT + 2], *out[LP_FUSED_MAX_OUT];
    LpFusedReq r = request(c, l->o->threads);
    LpKernel *k;
    LpStatus s;
    int n_in = c->n_ext;
    for (int i = 0; i < c->n_out; i++)
        LP_TRY(place_out(c, i));
    for (int i = 0; i < c->n_ext; i++)
        LP_TRY(ext_place(c, i, &in[i]));
    for (int i = 0; i < c->n_out; i++)
        out[i] = &l->location[c->out[i]];
    LP_TRY(lp_lower_new_kernel(l, &k));
    LpNodeId last = c->group->member[c->group->n - 1];
    if (c->product >= 0) {
        s = prepare_product(c, &r, in + n_in, k);
        n_in += 2;
    } else {
        s = lp_fused_prepare(&r, k, l->err);
    }
    LP_TRY(lp_lower_finish(l, s, last, k, in, n_in, out, c->n_out));
    for (int i = 0; i < c->group->n; i++)
        l->made_by[c->group->member[i]] = l->made_by[last];
    if (c->product >= 0)
        l->made_by[c->group->product] = l->made_by[last];
    count_reads(c);
    return LP_OK;
}

/* Can the chain be prepared at all? Asked before anything is placed, but with
 * what its kernel will see. */
static bool possible(Chain *c)
{
    LpErr e = {0};
    LpKernel k = {.threads = 1};
    for (int i = 0; i < c->n_ext; i++) {
        LpDesc d = c->l->location[c->ext[i]].desc;
        if ((!c->block && d.block) || ext_layout(c, i) != d.layout) {
            /* will be copied */
            d = lp_desc_of(lp_graph_type(c->l->g, c->ext[i]));
            d.layout = ext_layout(c, i);
        }
        c->ext_seen[i] = seen(c, &d);
    }
    for (int i = 0; i < c->n_out; i++) {
        LpDesc d = result(c, i);
        c->out_seen[i] = seen(c, &d);
    }
    LpFusedReq r = request(c, 1);
    if (lp_fused_prepare(&r, &k, &e) != LP_OK)
        return false;
    k.fini(&k);
    return true;
}

/* All in one dimension: float32, of one shape or one element. */
static bool flat(const LpLower *l, const LpFuseGroup *group)
{
    for (int m = 0; m < group->n; m++) {
        const LpGraphNode *n = &l->g->node[group->member[m]];
        const LpType *out = lp_graph_type(l->g, n->out);
        if (out->dtype != LP_F32)
            return false;
        for (uint32_t i = 0; i < n->n_in; i++)
            if (lp_is_value(n->in[i]) &&
                !lp_type_eq(lp_graph_type(l->g, n->in[i]), out) &&
                lp_numel(lp_graph_type(l->g, n->in[i])) != 1)
                return false;
    }
    return true;
}

/* The external that the group's product makes; -1: that runs by itself. So it
 * does if a result would lie over another external, which it must not if the
 * product may have to be made again: memory comes first. */
static int find_product(const Chain *c)
{
    LpNodeId id = c->group->product;
    const LpLower *l = c->l;
    if (id == LP_NO_NODE || c->block || c->layout)
        return -1;
    uint32_t buf = l->location[l->g->node[id].out].buf;
    int product = -1, over = 0, own = 0;
    for (int x = 0; x < c->n_ext; x++) {
        bool may = false;
        for (int i = 0; i < c->n_out; i++) {
            LpDesc d = result(c, i);
            may = may || fits(c, i, &d, x);
        }
        over += may;
        if (l->location[c->ext[x]].buf == buf) {
            product = x;
            own = may;
        }
    }
    return over > own && c->n_out > own ? -1 : product;
}

LpStatus lp_lower_group(LpLower *l, const LpFuseGroup *group)
{
    Chain c = {.l = l, .group = group};
    for (int i = 0; i < group->n && !c.layout && flat(l, group); i++)
        c.layout = lp_weight_layout_of(l, l->g->node[group->member[i]].out);
    c.block = c.layout ? 0 : l->block[l->g->node[group->member[0]].out];
    bool chained = read_chain(&c) && possible(&c);
    c.product = chained ? find_product(&c) : -1;
    if (group->product != LP_NO_NODE && c.product < 0)
        LP_TRY(lp_lower_node(l, group->product));
    if (chained)
        return emit(&c);
    for (int i = 0; i < group->n; i++) /* one by one after all */
        LP_TRY(lp_lower_node(l, group->member[i]));
    return LP_OK;
}
