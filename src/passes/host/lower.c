/* Lowering: every value of the graph gets a place (memory of a variable, or a
 * buffer of the arena) and a stride description; views are places within their
 * operand's place and cost nothing. Every other node becomes an instruction
 * with a prepared kernel.
 *
 * In place: an operator that may write over an operand does so when that
 * operand's buffer is read for the last time here. A value that a variable is
 * to receive is computed straight into the variable's memory when nobody reads
 * the variable's old value afterwards; else it is copied at the end. */
#include "src/passes/host/lower_impl.h"

#include <string.h>

#include "src/autodiff/op_call.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/view_geometry.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"
#include "src/ops/control.h"
#include "src/ops/ops.h"
#include "src/ops/request.h"
#include "src/ops/width.h"

/* ---- buffers ------------------------------------------------------------ */
LpStatus lp_lower_buffer(LpLower *l, uint64_t bytes, uint32_t var,
                         uint32_t *buf)
{
    uint32_t now = (uint32_t)l->code->n;
    LP_FAIL_IF(!LP_GROW(l->buf, l->cap_buf, l->n_buf), l->err, LP_E_MEMORY,
               "out of memory");
    *buf = (uint32_t)l->n_buf++;
    l->buf[*buf] =
        (LpAlloc){.bytes = bytes, .var = var, .first = now, .last = now};
    return LP_OK;
}

/* lp_lower_own for a value that lies in blocks or in the library's layout. */
static LpStatus own_as(LpLower *l, LpVal v, uint32_t var, const LpDesc *d)
{
    uint32_t b;
    LP_TRY(lp_lower_buffer(l, lp_weight_layout_bytes(d), var, &b));
    l->location[v] = (LpValueLocation){.buf = b, .desc = *d};
    return LP_OK;
}

LpStatus lp_lower_own(LpLower *l, LpVal v, uint32_t var)
{
    LpDesc d = lp_desc_of(lp_graph_type(l->g, v));
    return own_as(l, v, var, &d);
}

/* ---- instructions ------------------------------------------------------- */
static LpStatus set_ref(LpLower *l, LpRef *r, const LpValueLocation *p,
                        uint32_t at)
{
    LpAlloc *b = &l->buf[p->buf];
    size_t size = lp_dtype_size(p->desc.dtype);
    b->last = at;
    *r = (LpRef){.offset = (uint64_t)p->offset * size};
    if (b->var != UINT32_MAX) {
        r->space = LP_SPACE_ARG;
        r->arg = b->var;
        return LP_OK;
    }
    r->space = LP_SPACE_ARENA;
    LP_FAIL_IF(!LP_GROW(l->pending, l->cap_pending, l->n_pending), l->err,
               LP_E_MEMORY, "out of memory");
    l->pending[l->n_pending++] = (LpPending){r, p->buf};
    return LP_OK;
}

/* Of the elements that lie there: a broadcast dimension counts once. */
static uint64_t place_bytes(const LpValueLocation *p)
{
    uint64_t n = lp_dtype_size(p->desc.dtype);
    if (p->desc.block || p->desc.layout)
        return lp_weight_layout_bytes(&p->desc);
    for (int i = 0; i < p->desc.ndim; i++)
        n *= p->desc.strides[i] ? (uint64_t)p->desc.shape[i] : 1;
    return n;
}

/* in[i] / out[i] are places (NULL: hole or immediate, described by imm). */
static LpStatus add_instr(LpLower *l, LpNodeId node, LpKernel *k,
                          const LpValueLocation *const *in, int n_in,
                          const LpValueLocation *const *out, int n_out)
{
    LpCode *c = l->code;
    uint32_t at = (uint32_t)c->n;
    bool apart = k->work_bytes > LP_SHARED_SCRATCH;
    size_t n = (size_t)n_in + (size_t)n_out + apart;
    LpRef *ref = lp_arena_calloc(&c->mem, n * sizeof *ref);
    LP_FAIL_IF(!ref || !LP_GROW(c->instr, c->cap, c->n), l->err, LP_E_MEMORY,
               "out of memory");
    uint64_t bytes = 0;
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            continue;
        bytes += place_bytes(in[i]);
        LP_TRY(set_ref(l, &ref[i], in[i], at));
    }
    for (int i = 0; i < n_out; i++) {
        bytes += place_bytes(out[i]);
        LP_TRY(set_ref(l, &ref[n_in + i], out[i], at));
    }
    if (apart) {
        LpValueLocation scratch = {0};
        LP_TRY(lp_lower_buffer(l, k->work_bytes, UINT32_MAX, &scratch.buf));
        LP_TRY(set_ref(l, &ref[n - 1], &scratch, at));
    }
    c->instr[c->n++] = (LpInstr){.kernel = k,
                                 .in = ref,
                                 .out = ref + n_in,
                                 .scratch = apart ? &ref[n - 1] : NULL,
                                 .n_in = (uint32_t)n_in,
                                 .n_out = (uint32_t)n_out,
                                 .node = node,
                                 .bytes = bytes};
    return LP_OK;
}

LpStatus lp_lower_new_kernel(LpLower *l, LpKernel **k)
{
    *k = lp_calloc(1, sizeof **k);
    LP_FAIL_IF(!*k, l->err, LP_E_MEMORY, "out of memory");
    (*k)->threads = l->o->threads;
    return LP_OK;
}

LpStatus lp_lower_finish(LpLower *l, LpStatus s, LpNodeId node, LpKernel *k,
                         const LpValueLocation *const *in, int n_in,
                         const LpValueLocation *const *out, int n_out)
{
    if (s == LP_OK)
        s = add_instr(l, node, k, in, n_in, out, n_out);
    if (s != LP_OK)
        lp_kernel_free(k);
    return s;
}

LpStatus lp_lower_copy(LpLower *l, LpNodeId node, const LpValueLocation *src,
                       const LpValueLocation *dst)
{
    LpKernel *k;
    LpDesc from = src->desc, to = dst->desc;
    int block = from.block ? from.block : to.block;
    LP_TRY(lp_lower_new_kernel(l, &k));
    if (from.layout != to.layout) {
        double elements = (double)lp_desc_numel(&to);
        int width = lp_width_of_copy(elements, l->o->threads);
        LpStatus s = lp_conv_layout_copy(&from, &to, width, k, l->err);
        return lp_lower_finish(l, s, node, k, &src, 1, &dst, 1);
    }
    if (from.layout) {
        from = lp_conv_layout_flat(&from);
        to = lp_conv_layout_flat(&to);
    } else if (block) {
        int64_t channels = to.shape[1];
        from = lp_desc_split(&src->desc, to.ndim, channels, block);
        to = lp_desc_split(&dst->desc, to.ndim, channels, block);
    }
    LpStatus s = lp_copy_kernel(&from, 0, &to, l->o->threads, k);
    return lp_lower_finish(l, s, node, k, &src, 1, &dst, 1);
}

/* ---- nodes -------------------------------------------------------------- */
/* v in rows of its own: an operand's elements, gathered for a view of them. */
static LpStatus gather(LpLower *l, LpNodeId id, const LpType *t,
                       LpValueLocation *v)
{
    LpValueLocation whole = {.desc = lp_desc_of(t)};
    LP_TRY(
        lp_lower_buffer(l, (uint64_t)lp_type_bytes(t), UINT32_MAX, &whole.buf));
    LP_TRY(lp_lower_copy(l, id, v, &whole));
    *v = whole;
    return LP_OK;
}

/* Views by strides of their own, and of another type, are views of rows. */
static LpStatus lower_view(LpLower *l, LpNodeId id, const LpGraphNode *n)
{
    const LpType *tin = lp_graph_type(l->g, n->in[0]);
    LpViewGeometry g;
    const LpValueLocation *plain;
    LP_TRY(lp_layout_place(l, n->in[0], 0, NULL, &plain));
    LpValueLocation src = *plain;
    bool rows = n->op->flags & LP_OPF_OWN_STRIDES ||
                lp_graph_type(l->g, n->out)->dtype != tin->dtype;
    if (rows && (src.offset || !lp_desc_contiguous(&src.desc)))
        LP_TRY(gather(l, id, tin, &src));
    for (;;) {
        LP_TRY(lp_view_geometry(n->op, n->attr, n->op->n_attr, tin,
                                src.desc.strides, &g, l->err));
        if (!g.needs_copy)
            break;
        LP_TRY(gather(l, id, tin, &src));
    }
    LpValueLocation dst = {.buf = src.buf, .offset = src.offset + g.offset};
    dst.desc = lp_desc_of(&g.type);
    memcpy(dst.desc.strides, g.strides, sizeof g.strides);
    l->buf[l->location[n->in[0]].buf].reads_left--;
    l->buf[src.buf].reads_left += l->read.uses[n->out];
    l->location[n->out] = dst;
    return LP_OK;
}

static bool same_layout(const LpDesc *a, const LpDesc *b)
{
    size_t n = (size_t)a->ndim * sizeof *a->shape;
    return a->dtype == b->dtype && a->ndim == b->ndim && a->block == b->block &&
           a->layout == b->layout && !memcmp(a->shape, b->shape, n) &&
           lp_desc_contiguous(a) && lp_desc_contiguous(b);
}

/* Does no member of a chain that comes after result r read operand i? */
static bool read_until(const LpGraph *body, uint32_t r, uint32_t i)
{
    size_t k = body->value[body->output[r]].node;
    bool later = false;
    while (++k < body->n_node)
        for (uint32_t x = 0; x < body->node[k].n_in; x++)
            later |= body->node[k].in[x] == body->input[i];
    return !later;
}

/* May n write result r over operand i while it reads its operands? */
static bool may_overwrite(const LpGraphNode *n, uint32_t r, uint32_t i)
{
    if (n->op == &op_chain)
        return read_until(n->attr[LP_CALL_BODY].graph, r, i);
    return r == 0 && lp_node_may_overwrite(n, i);
}

/* May result r of n be written straight into variable `var`'s memory? Nobody
 * may read the old value later, and this very operator only element on
 * element. */
static bool may_write_var(LpLower *l, const LpGraphNode *n, uint32_t r,
                          uint32_t var)
{
    LpVal old = l->in[var];
    if (old == LP_NOVAL || l->location[old].buf == LP_NO_BUF)
        return true;
    uint32_t b = l->location[old].buf, here = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        LpVal v = n->in[i];
        if (v == LP_NOVAL || lp_is_imm(v) || l->location[v].buf != b)
            continue;
        if (v != old ||
            (!(n->op->flags & LP_OPF_INPLACE_EACH) && !may_overwrite(n, r, i)))
            return false;
        here++;
    }
    return l->buf[b].reads_left == here &&
           (here < 2 || n->op->flags & LP_OPF_INPLACE_OK);
}

bool lp_lower_fits(const LpLower *l, const LpGraphNode *n, uint32_t r,
                   uint32_t i, const LpDesc *d)
{
    LpVal v = n->in[i];
    if (!lp_is_value(v) || !may_overwrite(n, r, i))
        return false;
    const LpValueLocation *p = &l->location[v];
    const LpAlloc *b = &l->buf[p->buf];
    uint32_t here = 0;
    for (uint32_t k = 0; k < n->n_in; k++)
        here += n->in[k] == v;
    return b->var == UINT32_MAX && b->reads_left == here &&
           same_layout(&p->desc, d) && b->bytes == lp_weight_layout_bytes(d);
}

/* An operand whose arena buffer dies here and fits result r; behind a product
 * only what that makes. */
static uint32_t reusable(const LpLower *l, const LpGraphNode *n, uint32_t r,
                         LpNodeId product, const LpDesc *d)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (lp_lower_fits(l, n, r, i, d) &&
            (product == LP_NO_NODE ||
             lp_in_place_of(l, n->in[i], l->g->node[product].out)))
            return l->location[n->in[i]].buf;
    return LP_NO_BUF;
}

/* v as its reader wants it: what is read permuted alone is gathered by whoever
 * makes it, if it can, instead of by a copy afterwards. Rows stay rows.
 * (Gradients of attention, which are added to as they are made, are quicker
 * dense.) */
static LpDesc desc_for(const LpLower *l, const LpGraphNode *n, LpVal v)
{
    LpDesc d = lp_desc_of(lp_graph_type(l->g, v));
    LpNodeId id = lp_only_reader(&l->read, v);
    if (!(n->op->flags & LP_OPF_STRIDED_OUT) || n->n_out > 1 ||
        id == LP_NO_NODE || l->g->node[id].op != &op_permute)
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

static LpStatus place_results(LpLower *l, const LpGraphNode *n,
                              LpNodeId product, const LpConvLayout *layout)
{
    for (uint32_t i = 0; i < n->n_out; i++) {
        LpVal v = n->out + i;
        LpDesc d = desc_for(l, n, v);
        uint32_t var = l->target[v], b;
        LP_TRY(lp_join_place(l, n, v));
        if (l->location[v].buf != LP_NO_BUF)
            continue; /* it lies in what a concatenation joins it to */
        d.block = layout ? 0 : l->block[v];
        d.layout =
            layout && lp_weight_layout_of(l, v) == layout ? layout : NULL;
        if (var != UINT32_MAX && !d.block &&
            lp_weight_layout_of_var(l, var) == d.layout &&
            may_write_var(l, n, i, var)) {
            LP_TRY(own_as(l, v, var, &d));
        } else if ((b = reusable(l, n, i, product, &d)) != LP_NO_BUF) {
            l->location[v] = (LpValueLocation){.buf = b, .desc = d};
        } else {
            LP_TRY(own_as(l, v, UINT32_MAX, &d));
        }
        l->buf[l->location[v].buf].reads_left += l->read.uses[v];
    }
    return LP_OK;
}

LpStatus lp_lower_result(LpLower *l, const LpGraphNode *n, LpVal v)
{
    LpDesc d = lp_desc_of(lp_graph_type(l->g, v));
    uint32_t var = l->target[v];
    d.block = l->block[v];
    bool straight = var != UINT32_MAX && !d.block &&
                    !lp_weight_layout_of_var(l, var) &&
                    may_write_var(l, n, 0, var);
    LP_TRY(own_as(l, v, straight ? var : UINT32_MAX, &d));
    l->buf[l->location[v].buf].reads_left += l->read.uses[v];
    return LP_OK;
}

/* How a node meets blocked operands. */
typedef enum {
    AS_PLAIN,   /* wants plain ones */
    AS_IS,      /* its kernel takes either */
    AS_BLOCKED, /* all blocked */
    AS_SPLIT,   /* in five dimensions */
    AS_FLAT,    /* in the library's layout, in one dimension */
    AS_ROWS     /* plain, without gaps */
} Meets;

static Meets meets(const LpLower *l, const LpGraphNode *n,
                   const LpConvLayout *layout)
{
    if (lp_layout_reduces(l, n))
        return AS_SPLIT;
    if (lp_has_bodies(n->op) && n->op != &op_chain)
        return AS_ROWS;
    if (lp_conv_of(n->op))
        return (l->o->block || l->o->weight_layouts) && !n->half_partials
                   ? AS_IS
                   : AS_PLAIN;
    if (layout)
        return AS_FLAT;
    if (!n->n_out || !l->block[n->out])
        return AS_PLAIN;
    return n->op->flags & LP_OPF_BLOCKED ? AS_BLOCKED : AS_SPLIT;
}

/* Everything a kernel of one node is prepared with. */
typedef struct Req {
    LpArena mem;
    LpDesc *in, *out;
    const LpValueLocation **pin, **pout;
    LpAttr attr[LP_MAX_ATTR];
    int64_t dims[5];
} Req;

/* An operand that is a value; `like`: what it is broadcast to, or NULL. */
static LpStatus read_value(LpLower *l, LpVal v, Meets how,
                           const LpConvLayout *layout, const LpType *like,
                           const LpValueLocation **at, LpDesc *seen)
{
    bool alike = like && lp_shape_eq(lp_graph_type(l->g, v), like);
    bool is_image = lp_graph_type(l->g, v)->ndim == 4;
    int block = how == AS_BLOCKED ? (is_image ? l->o->block : 0)
                : how == AS_SPLIT ? l->location[v].desc.block
                                  : 0;
    if (how == AS_IS)
        LP_TRY(lp_layout_dense(l, v, at));
    else if (how == AS_ROWS)
        LP_TRY(lp_layout_rows(l, v, at));
    else
        LP_TRY(lp_layout_place(l, v, block,
                               how == AS_FLAT && alike ? layout : NULL, at));
    *seen = (*at)->desc;
    if (how == AS_SPLIT)
        *seen = lp_layout_split(l, seen, like ? like : lp_graph_type(l->g, v));
    else if (how == AS_FLAT)
        *seen =
            alike ? lp_conv_layout_flat(seen) : (LpDesc){.dtype = seen->dtype};
    return LP_OK;
}

static LpStatus read_operands(LpLower *l, const LpGraphNode *n, Req *q,
                              Meets how, const LpConvLayout *layout)
{
    const LpType *like = lp_graph_type(l->g, n->out);
    if (lp_layout_reduces(l, n))
        like = lp_graph_type(l->g, n->in[0]);
    if (n->op == &op_cat)
        like = NULL;
    for (uint32_t i = 0; i < n->n_in; i++) {
        LpVal v = n->in[i];
        if (lp_is_value(v))
            LP_TRY(read_value(l, v, how, layout, like, &q->pin[i], &q->in[i]));
        else
            q->in[i] = lp_desc_of_operand(l->g, v);
    }
    return LP_OK;
}

static void read_results(LpLower *l, const LpGraphNode *n, Req *q, Meets how)
{
    memcpy(q->attr, n->attr, n->op->n_attr * sizeof *q->attr);
    for (uint32_t i = 0; i < n->n_out; i++) {
        q->pout[i] = &l->location[n->out + i];
        q->out[i] = q->pout[i]->desc;
        if (how == AS_FLAT && q->out[i].layout)
            q->out[i] = lp_conv_layout_flat(&q->out[i]);
        if (how != AS_SPLIT)
            continue;
        if (lp_layout_reduces(l, n))
            lp_layout_reduction(n, q->attr, q->dims, &q->in[0], &q->out[i]);
        else
            q->out[i] =
                lp_layout_split(l, &q->out[i], lp_graph_type(l->g, n->out));
    }
}

static void count_reads(LpLower *l, const LpGraphNode *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (lp_is_value(n->in[i]))
            l->buf[l->location[n->in[i]].buf].reads_left--;
}

/* A single pointwise node spreads numbers of channels over images in blocks:
 * the driver of chains has them as rows, that of single ones each by itself. */
static bool spreads(const LpGraphNode *n, const LpKernelReq *r)
{
    bool small = false, plain = lp_can_fuse(n) && r->out->dtype == LP_F32;
    for (int i = 0; i < r->n_in && plain; i++) {
        plain = r->in[i].dtype == LP_F32 && !r->in[i].is_imm;
        small |= lp_desc_numel(&r->in[i]) < lp_desc_numel(r->out);
    }
    return plain && small;
}

static LpStatus lower_kernel(LpLower *l, LpNodeId id, const LpGraphNode *n,
                             Req *q)
{
    LpKernel *k;
    LpNodeId product = l->partner[id] < id ? l->partner[id] : LP_NO_NODE;
    int n_in = (int)n->n_in;
    LP_TRY(lp_weight_layout_choose(
        l, product != LP_NO_NODE ? &l->g->node[product] : n));
    const LpConvLayout *layout = lp_weight_layout_results(l, n);
    Meets how = meets(l, n, layout);
    LP_TRY(place_results(l, n, product, layout));
    LP_TRY(read_operands(l, n, q, how, layout));
    read_results(l, n, q, how);
    LP_TRY(lp_lower_new_kernel(l, &k));
    LpKernelReq r = {.op = n->op,
                     .attr = q->attr,
                     .n_in = (int)n->n_in,
                     .n_out = (int)n->n_out,
                     .in = q->in,
                     .out = q->out,
                     .site = n->site,
                     .numerics = lp_node_numerics(l->step->numerics, n),
                     .fast = l->o->fast,
                     .keeps = lp_keeps(l, n),
                     .split = l->o->split};
    r.threads = k->threads = lp_width_of(&r, l->o->threads);
    char where[LP_WHERE];
    if (l->step->numerics.trap)
        r.where = lp_place_text(l->g, n, where);
    LpStatus s;
    if (product != LP_NO_NODE) {
        s = lp_prepare_epilogue(l, product, n, &r, q->pin + n_in, k);
        n_in += 2;
    } else {
        bool blocks = how == AS_SPLIT && !lp_layout_reduces(l, n);
        s = n->op == &op_chain || (blocks && (n->site || spreads(n, &r)))
                ? lp_prepare_chain(&r, blocks, k, l->err)
            : lp_has_bodies(n->op) ? lp_prepare_bodies(&r, l->o, k, l->err)
                                   : lp_prepare(&r, k, l->err);
    }
    uint32_t copy = UINT32_MAX;
    if (s == LP_OK && !lp_call_rounds(&r))
        s = lp_pack_weights(l, product != LP_NO_NODE ? &l->g->node[product] : n,
                            k, &copy);
    LP_TRY(lp_lower_finish(l, s, id, k, q->pin, n_in, q->pout, (int)n->n_out));
    if (product != LP_NO_NODE)
        count_reads(l, &l->g->node[product]);
    if (copy != UINT32_MAX)
        lp_packed_operand(l, copy, product != LP_NO_NODE ? n->n_in + 1 : 1);
    return LP_OK;
}

LpStatus lp_lower_node(LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &l->g->node[id];
    if (n->op->flags & LP_OPF_VIEW)
        return lower_view(l, id, n);
    bool done = false;
    if (lp_packs(l, n))
        LP_TRY(lp_lower_packed(l, id, &done));
    if (done)
        return LP_OK;
    LP_FAIL_IF(!n->op->prepare && !lp_has_bodies(n->op), l->err, LP_E_INTERNAL,
               "operator %s has no kernel", n->op->name);
    Req q = {0};
    q.in = lp_arena_calloc(&q.mem, n->n_in * sizeof *q.in);
    q.pin = lp_arena_calloc(&q.mem, (n->n_in + 2) * sizeof *q.pin);
    q.out = lp_arena_calloc(&q.mem, (n->n_out + 1) * sizeof *q.out);
    q.pout = lp_arena_calloc(&q.mem, (n->n_out + 1) * sizeof *q.pout);
    LpStatus s = LP_OK;
    if (!q.in || !q.pin || !q.out || !q.pout)
        s = lp_fail(l->err, LP_E_MEMORY, "out of memory");
    else if (!lp_joined(l, n))
        s = lower_kernel(l, id, n, &q);
    lp_arena_fini(&q.mem);
    if (s == LP_OK)
        count_reads(l, n);
    return s;
}
