/* Rules of canonicalise for views and casts. What a rule looks through is
 * already canonical, so one step is enough for chains of any length. */
#include "src/kernel/attrs.h"
#include "src/passes/common/canonicalise.h"

static const LpGraphNode *made_by(const LpRewrite *rw, LpVal v, int op)
{
    const LpGraphNode *d = lp_rewrite_def(rw, v);
    return d && d->op->id == op ? d : NULL;
}

/* `v` in the shape of `t`, from what a reshape before it read. `own`: the node
 * is this very reshape, unless something was looked through. */
static LpVal reshaped(LpRewrite *rw, LpVal v, const LpType *t, bool own)
{
    const LpGraphNode *d = made_by(rw, v, LP_OP_reshape);
    LpVal from = d ? d->in[0] : v;
    if (lp_shape_eq(lp_graph_type(rw->to, from), t))
        return from;
    if (own && !d)
        return LP_NOVAL;
    return lp_reshape(&rw->gb.b, from, t->shape, t->ndim);
}

LpVal lp_canon_reshape(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    return reshaped(rw, in[0], lp_canon_type(rw, n),
                    n->op->id == LP_OP_reshape);
}

/* Do the dims of sizes other than 1 stay in order? Then nothing moves. */
static bool keeps_order(const LpType *t, const int64_t *dims)
{
    int64_t last = -1;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[dims[i]] == 1)
            continue;
        if (dims[i] < last)
            return false;
        last = dims[i];
    }
    return true;
}

static LpVal transposed(LpRewrite *rw, LpVal v)
{
    static const int64_t swap[2] = {1, 0};
    const LpGraphNode *d = made_by(rw, v, LP_OP_permute);
    if (d && d->attr[LP_PERMUTE_DIMS].v[0] == 1)
        return d->in[0];
    return lp_permute(&rw->gb.b, v, swap, 2);
}

/* (a b)^T = b^T a^T: the gradient of a weight that is used transposed comes out
 * in the weight's own rows. Backward only, where nothing else reads a b. */
static LpVal transposed_product(LpRewrite *rw, const LpGraphNode *n, LpVal x)
{
    const LpGraphNode *d = made_by(rw, x, LP_OP_mm);
    if (!d || n->attr[LP_PERMUTE_DIMS].n != 2 ||
        n->attr[LP_PERMUTE_DIMS].v[0] != 1 ||
        !rw->to->origin[d->origin].backward)
        return LP_NOVAL;
    LpVal a = d->in[0], b = d->in[1]; /* emitting moves the node */
    bool half = d->half_partials;
    LpVal left = transposed(rw, b), right = transposed(rw, a);
    rw->gb.half_partials = half;
    return lp_op2(&rw->gb.b, LP_OP_mm, left, right);
}

LpVal lp_canon_permute(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpVal product = transposed_product(rw, n, in[0]);
    if (product != LP_NOVAL)
        return product;
    const LpGraphNode *d = made_by(rw, in[0], LP_OP_permute);
    LpVal from = d ? d->in[0] : in[0];
    int64_t dims[LP_MAX_DIMS];
    int ndim = n->attr[LP_PERMUTE_DIMS].n;
    for (int i = 0; i < ndim; i++) {
        int64_t k = n->attr[LP_PERMUTE_DIMS].v[i];
        dims[i] = d ? d->attr[LP_PERMUTE_DIMS].v[k] : k;
    }
    if (keeps_order(lp_graph_type(rw->to, from), dims))
        return reshaped(rw, from, lp_canon_type(rw, n), false);
    return d ? lp_permute(&rw->gb.b, from, dims, ndim) : LP_NOVAL;
}

LpVal lp_canon_expand(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    const LpType *t = lp_canon_type(rw, n);
    if (lp_numel(t) == lp_numel(lp_graph_type(rw->to, in[0])))
        return reshaped(rw, in[0], t, false);
    const LpGraphNode *d = made_by(rw, in[0], LP_OP_expand);
    return d ? lp_expand_as(&rw->gb.b, d->in[0], t) : LP_NOVAL;
}

/* The end is made that of the last element, so that equal slices are equal
 * nodes. A slice of a slice reads the whole, which must not be dragged into
 * another place. */
LpVal lp_canon_slice(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    const LpType *t = lp_canon_type(rw, n);
    const LpGraphNode *d = made_by(rw, in[0], LP_OP_slice);
    int dim = (int)n->attr[LP_SLICE_DIM].i;
    int64_t start = n->attr[LP_SLICE_START].i, step = n->attr[LP_SLICE_STEP].i,
            size = t->shape[dim];
    LpVal from = in[0];
    if (lp_shape_eq(lp_graph_type(rw->to, from), t))
        return from;
    if (size == 0)
        return LP_NOVAL;
    if (d && d->attr[LP_SLICE_DIM].i == dim &&
        lp_origin_same_location(&rw->to->origin[d->origin],
                                &rw->to->origin[rw->gb.origin])) {
        from = d->in[0];
        start = d->attr[LP_SLICE_START].i + start * d->attr[LP_SLICE_STEP].i;
        step = size == 1 ? 1 : step * d->attr[LP_SLICE_STEP].i;
    } else if (size == 1) {
        step = 1;
    }
    int64_t end = start + (size - 1) * step + 1;
    if (from == in[0] && end == n->attr[LP_SLICE_END].i &&
        step == n->attr[LP_SLICE_STEP].i)
        return LP_NOVAL;
    return lp_slice(&rw->gb.b, from, dim, start, end, step);
}

/* The only element of a dimension. */
LpVal lp_canon_select(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    const LpType *t = lp_graph_type(rw->to, in[0]);
    if (t->shape[n->attr[LP_SELECT_DIM].i] != 1)
        return LP_NOVAL;
    return reshaped(rw, in[0], lp_canon_type(rw, n), false);
}

/* What a reshape joined to dimension `dim` of v, if its elements had to be
 * gathered: the operand whose dimension dim + 1 is `rest` long (0: any). */
static LpVal unjoined(const LpRewrite *rw, LpVal v, int dim, int64_t rest)
{
    const LpGraphNode *d = made_by(rw, v, LP_OP_reshape);
    if (!d || !made_by(rw, d->in[0], LP_OP_permute) ||
        !lp_origin_same_location(&rw->to->origin[d->origin],
                                 &rw->to->origin[rw->gb.origin]))
        return LP_NOVAL;
    const LpType *t = lp_graph_type(rw->to, v);
    const LpType *from = lp_graph_type(rw->to, d->in[0]);
    if (from->ndim != t->ndim + 1 || lp_numel(t) == 0 ||
        from->shape[dim] * from->shape[dim + 1] != t->shape[dim] ||
        (rest && from->shape[dim + 1] != rest))
        return LP_NOVAL;
    for (int i = 0; i < t->ndim; i++)
        if (i != dim && from->shape[i < dim ? i : i + 1] != t->shape[i])
            return LP_NOVAL;
    return d->in[0];
}

/* Joined heads side by side are heads side by side, joined: cat reads the
 * scattered elements, which nobody gathers first. */
LpVal lp_canon_cat(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    enum { MOST = 8 };
    LpVal part[MOST];
    int dim = (int)n->attr[LP_CAT_DIM].i;
    int64_t rest = 0;
    if (n->n_in > MOST)
        return LP_NOVAL;
    for (uint32_t i = 0; i < n->n_in; i++) {
        part[i] = unjoined(rw, in[i], dim, rest);
        if (part[i] == LP_NOVAL)
            return LP_NOVAL;
        rest = lp_graph_type(rw->to, part[i])->shape[dim + 1];
    }
    LpBuilder *b = &rw->gb.b;
    LpVal all = lp_emit(b, LP_OP_cat, part, (int)n->n_in, n->attr);
    const LpType *t = lp_canon_type(rw, n);
    return lp_reshape(b, all, t->shape, t->ndim);
}

LpVal lp_canon_same(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    (void)rw, (void)n;
    return in[0];
}

/* Until the reverse sweep has run, detach is what stops it. */
LpVal lp_canon_detach(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    (void)n;
    return rw->from->differentiated ? in[0] : LP_NOVAL;
}

/* ---- casts --------------------------------------------------------------- */
/* Has `wide` every value of `narrow`, so that going on from it to a third
 * type gives what `narrow` itself gives? An integer through a float does not:
 * out of range they convert differently. */
static bool widens(LpDtype narrow, LpDtype wide)
{
    LpKind kind = lp_dtype_kind(narrow);
    size_t n = lp_dtype_size(narrow), w = lp_dtype_size(wide);
    if (kind == LP_KIND_BOOL)
        return true;
    if (kind != lp_dtype_kind(wide))
        return false;
    return w > n;
}

LpVal lp_canon_cast(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpDtype to = lp_canon_type(rw, n)->dtype;
    if (lp_is_imm(in[0]))
        return LP_NOVAL; /* for fold */
    if (lp_graph_type(rw->to, in[0])->dtype == to)
        return in[0];
    const LpGraphNode *d = made_by(rw, in[0], LP_OP_cast);
    if (!d || lp_is_imm(d->in[0]))
        return LP_NOVAL;
    LpDtype first = lp_graph_type(rw->to, d->in[0])->dtype;
    if (!widens(first, lp_graph_type(rw->to, in[0])->dtype))
        return LP_NOVAL;
    return lp_cast(&rw->gb.b, d->in[0], to);
}
