/* What a node costs: by the cost rule of its record; else by its family (its
 * row in unary.def or binary.def, a reduction, a look-up, a copy); else by its
 * expansion; else as one pass over its largest tensor. All in the words of
 * runtime/cost. */
#include "src/passes/ipu/ipu.h"

#include <string.h>

#include "src/ir/cost.h"
#include "src/ops/ops.h"

/* The cost column of the pointwise operators: LP_EW_… + 1. */
#define UNARY(name, tail, policy, cost, ...) [LP_OP_##name] = LP_EW_##cost + 1,
#define TEST(name, ...) [LP_OP_##name] = LP_EW_compare + 1,
#define BINARY(name, tail, policy, cost, ...) [LP_OP_##name] = LP_EW_##cost + 1,
#define TERNARY(name, tail, policy, cost, ...)                                 \
    [LP_OP_##name] = LP_EW_##cost + 1,
#define SELECT(name, ...) [LP_OP_##name] = LP_EW_select + 1,
#define COMPARE(name, tail, cost, ...) [LP_OP_##name] = LP_EW_##cost + 1,
static const uint8_t ew_of[LP_N_OPS] = {
#include "src/ops/binary.def"
#include "src/ops/unary.def"
};

typedef struct Call {
    LpIpuPlan *p;
    const LpCostCtx *x;
    LpCostReq r;
    LpCost *out;
    int depth;
} Call;

static LpStatus cost_call(Call *c);

/* ---- families ------------------------------------------------------------ */
static int64_t numel(const LpType *t)
{
    return t->dtype == LP_DT_NONE ? 0 : lp_numel(t);
}

/* Neighbours that share an element of the operand when it is spread over the
 * result: the product of the result's last dimensions that it has not. */
static int64_t inner_of(const LpType *row, const LpType *full)
{
    int64_t inner = 1;
    for (int i = 1; i <= full->ndim; i++) {
        bool has = i <= row->ndim && row->shape[row->ndim - i] != 1;
        if (has)
            break;
        inner *= full->shape[full->ndim - i];
    }
    return inner;
}

static void pointwise(Call *c, LpEwOp op)
{
    const LpCostReq *r = &c->r;
    int64_t n = numel(&r->out[0]);
    LpCostType t = lp_ipu_cost_type(r->out[0].dtype);
    int full = 0;
    const LpType *row = NULL;
    for (int i = 0; i < r->n_in; i++) {
        if (r->in[i].dtype == LP_DT_NONE || r->in[i].wrapped)
            continue;
        if (op == LP_EW_compare || op == LP_EW_logical)
            t = lp_ipu_cost_type(r->in[i].dtype);
        if (numel(&r->in[i]) == n)
            full++;
        else if (numel(&r->in[i]) > 1)
            row = &r->in[i];
    }
    if (row)
        lp_cost_add(c->out, lp_cost_broadcast(c->x, op, t, n, numel(row),
                                              inner_of(row, &r->out[0])));
    else
        lp_cost_add(c->out,
                    lp_cost_elementwise(c->x, op,
                                        full > 1      ? LP_EW_BINARY
                                        : r->n_in > 1 ? LP_EW_SCALAR
                                                      : LP_EW_UNARY,
                                        t, n));
    if (full > 2) /* a third tensor: one more pass */
        lp_cost_add(c->out, lp_cost_elementwise(c->x, LP_EW_mul,
                                                LP_EW_BINARY_INPLACE, t, n));
}

/* Dimensions of `in` that `out` has not, matched from the left. */
static uint32_t reduced_dims(const LpType *in, const LpType *out)
{
    uint32_t mask = 0;
    int k = 0;
    for (int d = 0; d < in->ndim; d++) {
        bool same = k < out->ndim && out->shape[k] == in->shape[d];
        if (same && out->ndim - k - 1 <= in->ndim - d - 1) {
            k++;
            continue;
        }
        if (in->ndim == out->ndim)
            k++;
        mask |= 1u << d;
    }
    return mask;
}

static bool dims_of(const LpCostReq *r, uint32_t *mask)
{
    if (r->op->n_attr == 0 || r->attr[0].kind != LP_ATTR_INTS)
        return false;
    *mask = 0;
    for (int i = 0; i < r->attr[0].n; i++)
        *mask |= 1u << r->attr[0].v[i];
    return true;
}

static void reduction(Call *c, LpRedOp op)
{
    const LpCostReq *r = &c->r;
    const LpType *in = &r->in[0];
    uint32_t mask = 0;
    if (r->op->n_attr > 0 && r->attr[0].kind == LP_ATTR_INT)
        mask = 1u << r->attr[0].i;
    else if (!dims_of(r, &mask))
        mask = reduced_dims(in, &r->out[0]);
    lp_cost_add(c->out, lp_cost_reduce(c->x, op, lp_ipu_cost_type(in->dtype),
                                       in->shape, in->ndim, mask));
}

static void scale_result(Call *c, LpEwOp op)
{
    const LpType *o = &c->r.out[0];
    lp_cost_add(c->out, lp_cost_elementwise(c->x, op, LP_EW_UNARY_INPLACE,
                                            lp_ipu_cost_type(o->dtype),
                                            numel(o)));
}

/* Running results along a line: log2(n) rounds of shift and combine. */
static void scan(Call *c, LpEwOp op)
{
    const LpType *o = &c->r.out[0];
    LpCostType t = lp_ipu_cost_type(o->dtype);
    int dim = c->r.op->n_attr && c->r.attr[0].kind == LP_ATTR_INT
                  ? (int)c->r.attr[0].i
                  : o->ndim - 1;
    int64_t line = o->ndim ? o->shape[dim] : 1;
    for (int64_t step = 1; step < line; step *= 2) {
        lp_cost_add(c->out, lp_cost_exchange(c->x, t, numel(o)));
        lp_cost_add(c->out, lp_cost_elementwise(c->x, op, LP_EW_BINARY_INPLACE,
                                                t, numel(o)));
    }
}

/* A bitonic network: k(k+1)/2 rounds for lines of 2^k. */
static void sorting(Call *c)
{
    const LpType *in = &c->r.in[0];
    LpCostType t = lp_ipu_cost_type(in->dtype);
    int64_t line = 1, k = 0;
    int dim = in->ndim - 1;
    for (int i = 0; i < c->r.op->n_attr; i++)
        if (c->r.attr[i].kind == LP_ATTR_INT && c->r.attr[i].i < in->ndim)
            dim = (int)c->r.attr[i].i;
    line = in->ndim ? in->shape[dim] : 1;
    while ((INT64_C(1) << k) < line)
        k++;
    LpCost round = lp_cost_exchange(c->x, t, numel(in));
    lp_cost_add(&round, lp_cost_elementwise(c->x, LP_EW_max, LP_EW_BINARY, t,
                                            numel(in)));
    lp_cost_add(c->out, lp_cost_repeat(round, k * (k + 1) / 2));
}

/* The dictionary is the first operand (or the result of a gradient), the
 * indices the first integer operand after it. */
static void lookup(Call *c, bool adds)
{
    const LpCostReq *r = &c->r;
    const LpType *idx = NULL, *dict = adds ? &r->out[0] : &r->in[0];
    const LpType *rows = adds ? &r->in[0] : &r->out[0];
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i].dtype != LP_DT_NONE && !lp_is_float(r->in[i].dtype) &&
            &r->in[i] != dict)
            idx = &r->in[i];
    int64_t count = idx ? numel(idx) : 1;
    int64_t cols = count > 0 ? numel(rows) / count : 0;
    if (cols < 1)
        cols = 1;
    LpLookup l = {.rows = numel(dict) / cols,
                  .cols = cols,
                  .count = count,
                  .trained = c->p->training};
    LpCostType t = lp_ipu_cost_type(dict->dtype);
    lp_cost_add(c->out, adds ? lp_cost_lookup_add(c->x, t, &l)
                             : lp_cost_lookup(c->x, t, &l));
}

static void moved(Call *c, bool element_by_element)
{
    for (int i = 0; i < c->r.n_out; i++)
        lp_cost_add(c->out,
                    lp_cost_copy(c->x, lp_ipu_cost_type(c->r.out[i].dtype),
                                 numel(&c->r.out[i]), element_by_element));
}

static void filled(Call *c)
{
    lp_cost_add(c->out, lp_cost_fill(c->x, lp_ipu_cost_type(c->r.out[0].dtype),
                                     numel(&c->r.out[0])));
}

static void drawn(Call *c, LpRndOp op)
{
    lp_cost_add(c->out,
                lp_cost_random(c->x, op, lp_ipu_cost_type(c->r.out[0].dtype),
                               numel(&c->r.out[0])));
}

static void converted(Call *c)
{
    lp_cost_add(c->out, lp_cost_cast(c->x, lp_ipu_cost_type(c->r.in[0].dtype),
                                     lp_ipu_cost_type(c->r.out[0].dtype),
                                     numel(&c->r.out[0])));
}

/* False when the operator belongs to no family here. */
static bool by_family(Call *c)
{
    switch (c->r.op->id) {
    case LP_OP_cast:
        return converted(c), true;
    case LP_OP_sum:
    case LP_OP_count_nonzero:
        return reduction(c, LP_RED_ADD), true;
    case LP_OP_mean:
        return reduction(c, LP_RED_ADD), scale_result(c, LP_EW_mul), true;
    case LP_OP_prod:
        return reduction(c, LP_RED_MUL), true;
    case LP_OP_vector_norm:
        return reduction(c, LP_RED_SQUARE_ADD), scale_result(c, LP_EW_sqrt),
               true;
    case LP_OP_logsumexp:
        return reduction(c, LP_RED_LOGADD), true;
    case LP_OP_amax:
    case LP_OP_argmax:
    case LP_OP_max_dim:
        return reduction(c, LP_RED_MAX), true;
    case LP_OP_amin:
    case LP_OP_argmin:
    case LP_OP_min_dim:
        return reduction(c, LP_RED_MIN), true;
    case LP_OP_any:
        return reduction(c, LP_RED_OR), true;
    case LP_OP_all:
        return reduction(c, LP_RED_AND), true;
    case LP_OP_cumsum:
        return scan(c, LP_EW_add), true;
    case LP_OP_cumprod:
        return scan(c, LP_EW_mul), true;
    case LP_OP_sort:
    case LP_OP_topk:
    case LP_OP_median_dim:
        return sorting(c), true;
    case LP_OP_embedding:
    case LP_OP_index_select:
    case LP_OP_index_get:
    case LP_OP_gather:
        return lookup(c, false), true;
    case LP_OP_embedding_backward:
    case LP_OP_index_add_rows:
    case LP_OP_index_set:
    case LP_OP_scatter:
    case LP_OP_scatter_add:
    case LP_OP_scatter_reduce:
        return lookup(c, true), true;
    case LP_OP_flip:
        return moved(c, true), true;
    case LP_OP_cat:
    case LP_OP_clone:
    case LP_OP_constant_pad_nd:
    case LP_OP_slice_scatter:
    case LP_OP_select_scatter:
    case LP_OP_slice_backward:
    case LP_OP_select_backward:
        return moved(c, false), true;
    default:
        return false;
    }
}

/* ---- expansions ---------------------------------------------------------- */
static LpStatus expanded(Call *c)
{
    const LpCostReq *r = &c->r;
    LpErr *e = c->p->err;
    LpGraph *g = lp_graph_new();
    LP_FAIL_IF(!g, e, LP_E_MEMORY, "out of memory");
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, g, e);
    LpOrigin o = {.block = "", .scope = "", .file = ""};
    gb.origin = lp_graph_origin(g, &o, e);
    LpVal *in = lp_arena_calloc(&gb.scratch,
                                (size_t)(r->n_in + 1) * sizeof *in);
    LpVal out[LP_MAX_OUT] = {0};
    LpStatus s = in ? LP_OK : lp_fail(e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < r->n_in && s == LP_OK; i++) {
        if (r->in[i].dtype == LP_DT_NONE)
            continue;
        /* the value of a number does not matter to its cost */
        in[i] = r->in[i].wrapped ? lp_imm(&gb.b, lp_float(1))
                                 : lp_graph_input(g, &r->in[i], NULL, e);
        s = e->code;
    }
    if (s == LP_OK) {
        r->op->expand(&gb.b, r->attr, in, r->n_in, out, r->n_out);
        s = e->code;
    }
    for (LpNodeId n = 0; n < g->n_node && s == LP_OK; n++) {
        Call inner = *c;
        LpType tin[LP_MAX_IN], tout[LP_MAX_OUT];
        const LpGraphNode *d = &g->node[n];
        if (d->n_in > LP_MAX_IN || d->n_out > LP_MAX_OUT)
            continue; /* a long list: only moves data */
        for (uint32_t i = 0; i < d->n_in; i++)
            tin[i] = lp_graph_operand_type(g, d->in[i]);
        for (uint32_t i = 0; i < d->n_out; i++)
            tout[i] = *lp_graph_type(g, d->out + i);
        inner.r.op = d->op;
        inner.r.attr = d->attr;
        inner.r.n_in = (int)d->n_in;
        inner.r.n_out = (int)d->n_out;
        inner.r.in = tin;
        inner.r.out = tout;
        inner.depth++;
        s = cost_call(&inner);
    }
    lp_graph_builder_fini(&gb);
    lp_graph_free(g);
    return s;
}

static bool costs_nothing(const LpOp *op)
{
    return (op->flags & (LP_OPF_VIEW | LP_OPF_MARKER)) != 0 ||
           op->id == LP_OP_empty || op->id == LP_OP_empty_like;
}

static LpStatus cost_call(Call *c)
{
    const LpOp *op = c->r.op;
    if (c->r.n_out == 0 || costs_nothing(op))
        return LP_OK;
    if (op->cost) {
        op->cost(&c->r, c->out);
        return LP_OK;
    }
    if (by_family(c))
        return LP_OK;
    if (ew_of[op->id]) {
        pointwise(c, (LpEwOp)(ew_of[op->id] - 1));
        return LP_OK;
    }
    if (op->expand && c->depth < 8)
        return expanded(c);
    bool reads = false;
    for (int i = 0; i < c->r.n_in; i++)
        reads |= c->r.in[i].dtype != LP_DT_NONE && !c->r.in[i].wrapped;
    if (op->flags & LP_OPF_RANDOM)
        drawn(c, strstr(op->name, "normal") || strstr(op->name, "randn")
                     ? LP_RND_NORMAL
                     : LP_RND_UNIFORM);
    else if (reads)
        moved(c, false);
    else
        filled(c);
    return LP_OK;
}

LpStatus lp_ipu_node_cost(LpIpuPlan *p, const LpGraph *g, LpNodeId id, int ipu,
                          LpConvPass pass, LpCost *out)
{
    const LpGraphNode *d = &g->node[id];
    LpCostCtx x = lp_ipu_ctx(p, ipu);
    LpArena scratch = {0};
    LpType *t = lp_arena_calloc(&scratch,
                                (d->n_in + d->n_out + 1) * sizeof *t);
    LP_FAIL_IF(!t, p->err, LP_E_MEMORY, "out of memory");
    for (uint32_t i = 0; i < d->n_in; i++)
        t[i] = lp_graph_operand_type(g, d->in[i]);
    for (uint32_t i = 0; i < d->n_out; i++)
        t[d->n_in + i] = *lp_graph_type(g, d->out + i);
    *out = (LpCost){0};
    Call c = {.p = p,
              .x = &x,
              .r = {.op = d->op,
                    .attr = d->attr,
                    .n_in = (int)d->n_in,
                    .n_out = (int)d->n_out,
                    .in = t,
                    .out = t + d->n_in,
                    .chip = p->o.chip,
                    .tiles = x.tiles,
                    .memory_proportion = x.proportion,
                    .partials = p->o.partials,
                    .pass = (int)pass,
                    .cache = p->cache},
              .out = out};
    LpStatus s = cost_call(&c);
    lp_arena_fini(&scratch);
    return s;
}
