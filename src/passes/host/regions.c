/* Which inlined fused operators run by their own kernel, and their lowering.
 *
 *   region 1 = attention(%q, %k, %v, _)       one instruction: the scores
 *     %s = bmm(…)  %p = softmax(%s)     ->    between never get memory
 *     %o = bmm(%p, %v)
 *
 * A region can be run whole if it is intact (passes drop the label of one that
 * they changed) and what it computes between is read by nobody but itself and
 * regions that are run whole too (its own backward half, which computes it
 * again). Its results must not be read before its last node, and none of its
 * nodes rounds at random: the step says where that happens. */
#include <string.h>

#include "src/ops/attrs.h"
#include "src/ops/kernel/copy.h"
#include "src/ops/ops.h"
#include "src/ops/width.h"
#include "src/passes/host/lower_impl.h"

static bool is_result(const LpRegion *r, LpVal v)
{
    for (uint32_t i = 0; i < r->n_out; i++)
        if (r->out[i] == v)
            return true;
    return false;
}

static void drop(LpRegions *x, bool *whole, uint32_t region, bool *changed)
{
    (void)x;
    *changed = *changed || whole[region];
    whole[region] = false;
}

/* One look at all reads; false if nothing was dropped. */
static bool check_reads(const LpLower *l, LpRegions *x, bool *whole)
{
    const LpGraph *g = l->g;
    bool changed = false;
    for (size_t i = 0; i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        for (uint32_t k = 0; k < n->n_in; k++) {
            LpVal v = n->in[k];
            if (!lp_is_value(v) || g->value[v].node == LP_NO_NODE)
                continue;
            uint32_t from = g->node[g->value[v].node].region;
            if (!from || from == n->region || !whole[from])
                continue;
            bool result = is_result(&g->region[from], v);
            bool early = i < x->last[from];
            /* a reader inside a whole region does not read by itself */
            bool hidden = n->region && whole[n->region];
            if (result ? early : !hidden)
                drop(x, whole, from, &changed);
        }
    }
    return changed;
}

/* A value between must not be what a variable is to receive. */
static void check_outputs(const LpLower *l, LpRegions *x, bool *whole)
{
    bool changed = false;
    for (size_t v = 1; v < l->g->n_value; v++) {
        LpNodeId id = l->g->value[v].node;
        uint32_t r = id == LP_NO_NODE ? 0 : l->g->node[id].region;
        if (r && l->target[v] != UINT32_MAX &&
            !is_result(&l->g->region[r], (LpVal)v))
            drop(x, whole, r, &changed);
    }
}

static void hold(const LpLower *l, LpVal v)
{
    l->uses[v]++;
    if (l->place[v].buf != LP_NO_BUF)
        l->buf[l->place[v].buf].reads_left++;
}

LpStatus lp_choose_regions(LpLower *l)
{
    const LpGraph *g = l->g;
    LpArena *mem = &l->mem;
    LpRegions *x = &l->regions;
    bool *whole = lp_arena_calloc(mem, g->n_region);
    x->of = lp_arena_calloc(mem, (g->n_node + 1) * sizeof *x->of);
    x->last = lp_arena_calloc(mem, g->n_region * sizeof *x->last);
    x->first = lp_arena_calloc(mem, g->n_region * sizeof *x->first);
    LP_FAIL_IF(!whole || !x->of || !x->first || !x->last, l->err, LP_E_MEMORY,
               "out of memory");
    for (size_t i = 0; i < g->n_node; i++)
        x->last[g->node[i].region] = (LpNodeId)i;
    for (size_t i = g->n_node; i-- > 0;)
        x->first[g->node[i].region] = (LpNodeId)i;
    for (size_t r = 1; r < g->n_region; r++)
        whole[r] = l->o->fuse && g->region[r].op->prepare;
    for (size_t i = 0; i < g->n_node; i++)
        if (l->step->numerics.stochastic && lp_node_rounds(g, &g->node[i]))
            whole[g->node[i].region] = false;
    check_outputs(l, x, whole);
    while (check_reads(l, x, whole))
        ;
    for (size_t i = 0; i < g->n_node; i++)
        if (whole[g->node[i].region])
            x->of[i] = g->node[i].region;
    for (size_t r = 1; r < g->n_region; r++)
        for (uint32_t k = 0; whole[r] && k < g->region[r].n_in; k++)
            if (lp_is_value(g->region[r].in[k]))
                hold(l, g->region[r].in[k]);
    return LP_OK;
}

/* ---- lowering ----------------------------------------------------------- */
typedef struct Whole {
    LpDesc in[LP_MAX_IN], out[LP_MAX_OUT];
    const LpPlace *pin[LP_MAX_IN], *pout[LP_MAX_OUT];
    LpPlace spare[LP_MAX_OUT]; /* of results nobody reads */
    int n_in, n_out;
} Whole;

static LpStatus read_operands(LpLower *l, const LpRegion *r, Whole *w,
                              LpType *type)
{
    w->n_in = (int)r->n_in;
    for (uint32_t i = 0; i < r->n_in; i++) {
        LpVal v = r->in[i];
        type[i] = lp_graph_operand_type(l->g, v);
        w->in[i] = (LpDesc){.dtype = type[i].dtype};
        w->pin[i] = NULL;
        if (lp_is_value(v)) {
            LP_TRY(lp_layout_place(l, v, 0, NULL, &w->pin[i]));
            w->in[i] = w->pin[i]->desc;
        } else if (v != LP_NOVAL) {
            w->in[i].is_imm = true;
            w->in[i].imm = lp_graph_scalar(l->g, v);
        }
    }
    return LP_OK;
}

static uint32_t reads_inside(const LpLower *l, uint32_t region, LpVal v)
{
    uint32_t n = 0;
    for (LpNodeId i = l->regions.first[region]; i <= l->regions.last[region];
         i++) {
        const LpGraphNode *d = &l->g->node[i];
        for (uint32_t k = 0; d->region == region && k < d->n_in; k++)
            n += d->in[k] == v;
    }
    return n;
}

/* v as its reader wants it: what is read permuted alone is gathered by whoever
 * makes it, instead of by a copy afterwards. Rows stay rows. (Gradients of
 * attention, which are added to as they are made, are quicker dense.) */
static LpDesc desc_for(const LpLower *l, LpVal v)
{
    LpDesc d = lp_desc_of(lp_graph_type(l->g, v));
    LpNodeId id = lp_only_reader(l, v);
    if (id == LP_NO_NODE || l->g->node[id].op != &op_permute)
        return d;
    const LpAttr *dims = &l->g->node[id].attr[LP_PERMUTE_DIMS];
    if (dims->v[d.ndim - 1] != d.ndim - 1)
        return d;
    int64_t step = 1;
    for (int i = d.ndim - 1; i >= 0; i--) {
        d.strides[dims->v[i]] = step;
        step *= d.shape[dims->v[i]];
    }
    return d;
}

/* Results have the types of the operator's own shape rule; one that nobody
 * asked for gets memory all the same. */
static LpStatus place_results(LpLower *l, const LpRegion *r, uint32_t region,
                              Whole *w, const LpType *in)
{
    LpAttr attr[LP_MAX_ATTR];
    LpType out[LP_MAX_OUT];
    LpScalar num[LP_MAX_IN];
    LpArena scratch = {0};
    memcpy(attr, r->attr, r->op->n_attr * sizeof *attr);
    for (int i = 0; i < w->n_in; i++)
        num[i] = w->in[i].imm;
    LpInfer x = {.op = r->op,
                 .n_in = w->n_in,
                 .n_out = r->op->n_results,
                 .in = in,
                 .num = num,
                 .attr = attr,
                 .out = out,
                 .arena = &scratch,
                 .err = l->err};
    LpStatus s = lp_op_infer(&x);
    lp_arena_fini(&scratch);
    LP_TRY(s);
    w->n_out = x.n_out;
    for (int i = 0; i < w->n_out; i++) {
        LpVal v = i < (int)r->n_out ? r->out[i] : LP_NOVAL;
        if (v != LP_NOVAL) {
            bool placed;
            LP_TRY(lp_join_place(l, r, v, &placed));
            LpDesc d = w->n_out == 1 ? desc_for(l, v)
                                     : lp_desc_of(lp_graph_type(l->g, v));
            if (!placed)
                LP_TRY(lp_lower_own_as(l, v, UINT32_MAX, &d));
            l->buf[l->place[v].buf].reads_left +=
                l->uses[v] - reads_inside(l, region, v);
            w->pout[i] = &l->place[v];
        } else {
            w->spare[i] = (LpPlace){.desc = lp_desc_of(&out[i])};
            LP_TRY(lp_lower_scratch(l, &out[i], &w->spare[i].buf));
            w->pout[i] = &w->spare[i];
        }
        w->out[i] = w->pout[i]->desc;
    }
    return LP_OK;
}

/* Reads of outside values by the nodes that are not run. */
static void count_reads(LpLower *l, uint32_t region)
{
    for (LpNodeId i = l->regions.first[region]; i <= l->regions.last[region];
         i++) {
        const LpGraphNode *d = &l->g->node[i];
        for (uint32_t k = 0; d->region == region && k < d->n_in; k++)
            if (lp_is_value(d->in[k]) && l->place[d->in[k]].buf != LP_NO_BUF &&
                !is_result(&l->g->region[region], d->in[k]))
                l->buf[l->place[d->in[k]].buf].reads_left--;
    }
}

LpStatus lp_lower_region(LpLower *l, uint32_t region)
{
    const LpRegion *r = &l->g->region[region];
    Whole w;
    LpType type[LP_MAX_IN];
    LpKernel *k;
    LP_TRY(read_operands(l, r, &w, type));
    LP_TRY(place_results(l, r, region, &w, type));
    LP_TRY(lp_lower_new_kernel(l, &k));
    LpKernelReq q = {.op = r->op,
                     .attr = r->attr,
                     .n_in = w.n_in,
                     .n_out = w.n_out,
                     .in = w.in,
                     .out = w.out,
                     .numerics = l->step->numerics};
    q.threads = k->threads = lp_width_of(&q, l->o->threads);
    LP_TRY(lp_lower_finish(l, r->op->prepare(&q, k, l->err),
                           l->regions.last[region], k, w.pin, w.n_in, w.pout,
                           w.n_out));
    count_reads(l, region);
    for (uint32_t i = 0; i < r->n_in; i++)
        if (lp_is_value(r->in[i]))
            l->buf[l->place[r->in[i]].buf].reads_left--;
    return LP_OK;
}
