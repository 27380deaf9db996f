/* Pointwise operators that a rule emits, computed late: when a value is asked
 * for that is not one of them, what leads to it runs as one chain, block by
 * block (kernel/loops/fused.h), and only that value reaches memory. A rule of
 * seven operators over a million elements passes once over them. The bits are
 * those of the single operators. What several values are made of is computed
 * for each of them: in a cache it costs less than a place in memory. All that a
 * gradient rule gives is made at once, and sums of rows are taken block by
 * block, losses too.
 *
 * Waiting are operators without history, whose operands are large and of the
 * result's shape, or are there. */
#include <string.h>

#include "src/autodiff/meta.h"
#include "src/autodiff/trace.h"
#include "src/kernel/attrs.h"
#include "src/kernel/loops/fused.h"
#include "src/ops/ops.h"

enum {
    LARGE = 4096,   /* elements that may be worth the preparation of a chain */
    SAVED = 1 << 15 /* elements that it keeps from memory, at least */
};

struct LpLater {
    const LpOp *op;
    LpAttr *attr;
    LpLater *before; /* the one emitted before it */
    LpVal in[LP_PW_MAX_IN], self;
    int n_in, node; /* node: its number in the chain */
    bool needed;
};

static LpEagerVal *at(LpEager *g, LpVal v)
{
    return &g->val[v & ~LP_VAL_IMM];
}

static LpArg arg_of(LpEager *g, LpVal v)
{
    const LpEagerVal *x = at(g, v);
    return (LpArg){.t = x->t, .is_num = x->is_imm, .num = x->imm};
}

/* ---- putting off --------------------------------------------------------- */
static bool may_wait(LpEager *g, const LpOp *op, const LpVal *in, int n_in)
{
    LpArg args[LP_PW_MAX_IN];
    int64_t most = 0;
    if (lp_tracing || g->has_site || n_in > LP_PW_MAX_IN ||
        g->n_later == LP_FUSED_MAX_NODE || !lp_fusable(op))
        return false;
    for (int i = 0; i < n_in; i++) {
        if (in[i] == LP_NOVAL)
            return false;
        const LpEagerVal *v = at(g, in[i]);
        args[i] = arg_of(g, in[i]);
        if (v->is_imm)
            continue;
        if (!v->later && (!v->t || v->t->st->flags))
            return false;
        int64_t n = lp_elements(v->type->shape, v->type->ndim);
        most = n > most ? n : most;
    }
    return most >= LARGE && !lp_wants_grad(args, n_in);
}

/* Operands of another shape than the result's are made. */
static bool add_later(LpEager *g, LpLater *d, const LpType *type)
{
    for (int i = 0; i < d->n_in; i++)
        if (at(g, d->in[i])->later &&
            !lp_shape_eq(at(g, d->in[i])->type, type) &&
            lp_eager_make(g, d->in[i]) != LP_OK)
            return false;
    d->self = lp_eager_type(g, type, false);
    if (d->self == LP_NOVAL)
        return false;
    at(g, d->self)->later = d;
    d->before = g->last;
    g->last = d;
    g->n_later++;
    return true;
}

bool lp_eager_put_off(LpEager *g, const LpOp *op, const LpVal *in, int n_in,
                      const LpAttr *attr, LpVal *out)
{
    LpArena *a = g->b.scratch;
    LpType types[LP_PW_MAX_IN], type;
    LpScalar num[LP_PW_MAX_IN];
    if (!may_wait(g, op, in, n_in))
        return false;
    LpLater *d = lp_arena_calloc(a, sizeof *d);
    size_t bytes = op->n_attr * sizeof *attr;
    if (d)
        d->attr = lp_arena_alloc(a, bytes + 1);
    if (!d || !d->attr)
        return false; /* so it is tried at once */
    if (bytes)
        memcpy(d->attr, attr, bytes);
    d->op = op;
    d->n_in = n_in;
    for (int i = 0; i < n_in; i++) {
        d->in[i] = in[i];
        types[i] = *at(g, in[i])->type;
        num[i] = at(g, in[i])->imm;
    }
    LpInfer x = {.op = op,
                 .n_in = n_in,
                 .n_out = 1,
                 .in = types,
                 .num = num,
                 .attr = d->attr,
                 .out = &type,
                 .arena = a,
                 .err = g->b.err};
    if (op->infer(&x) == LP_OK && add_later(g, d, &type))
        *out = d->self;
    return true;
}

/* ---- making -------------------------------------------------------------- */
static LpStatus made(LpEager *g, LpLater *d, LpTensor *t)
{
    at(g, d->self)->t = t;
    at(g, d->self)->later = NULL;
    return LP_OK;
}

static LpStatus single(LpEager *g, LpLater *d)
{
    LpArg args[LP_PW_MAX_IN];
    LpTensor *t;
    int n = 0;
    for (int i = 0; i < d->n_in; i++)
        args[i] = arg_of(g, d->in[i]);
    LP_TRY(lp_op_call(d->op, args, d->n_in, d->attr, &t, &n, g->b.err));
    return made(g, d, t);
}

typedef struct Chain {
    LpFusedNode node[LP_FUSED_MAX_NODE];
    LpDesc ext[LP_FUSED_MAX_EXT];
    const LpTensor *from[LP_FUSED_MAX_EXT];
    void *in[LP_FUSED_MAX_EXT];
    int n_node, n_ext;
} Chain;

/* The number of external t; -1: there are too many. */
static int external(Chain *c, const LpTensor *t)
{
    int i = 0;
    while (i < c->n_ext && c->from[i] != t)
        i++;
    if (i == LP_FUSED_MAX_EXT)
        return -1;
    if (i == c->n_ext) {
        c->from[i] = t;
        c->in[i] = lp_tensor_data(t);
        lp_desc_of_tensor(&c->ext[c->n_ext++], t);
    }
    return i;
}

static bool add_node(LpEager *g, Chain *c, LpLater *d)
{
    const LpType *type = at(g, d->self)->type;
    LpFusedNode *f = &c->node[c->n_node];
    *f = (LpFusedNode){.op = d->op,
                       .attr = d->attr,
                       .n_in = d->n_in,
                       .dtype = type->dtype,
                       .ndim = type->ndim,
                       .out = -1};
    for (int i = 0; i < d->n_in; i++) {
        const LpEagerVal *v = at(g, d->in[i]);
        LpFusedArg *a = &f->in[i];
        if (v->is_imm)
            *a = (LpFusedArg){.from = LP_FUSED_IMM, .imm = v->imm};
        else if (v->later)
            *a = (LpFusedArg){.from = LP_FUSED_NODE, .at = v->later->node};
        else
            *a = (LpFusedArg){.from = LP_FUSED_EXT, .at = external(c, v->t)};
        if (a->at < 0)
            return false;
    }
    d->node = c->n_node++;
    return true;
}

/* What runs of what waits: n operators at todo[0], operands before users. */
typedef struct Todo {
    LpLater *all[LP_FUSED_MAX_NODE], **first;
    int n;
} Todo;

static void find_needed(LpEager *g, const LpVal *end, int n_end, Todo *w)
{
    w->first = w->all + LP_FUSED_MAX_NODE;
    for (int i = 0; i < n_end; i++)
        at(g, end[i])->later->needed = true;
    for (LpLater *d = g->last; d; d = d->before) {
        bool needed = d->needed && at(g, d->self)->later;
        d->needed = false;
        if (!needed)
            continue;
        *--w->first = d;
        for (int i = 0; i < d->n_in; i++)
            if (at(g, d->in[i])->later)
                at(g, d->in[i])->later->needed = true;
    }
    w->n = (int)(w->all + LP_FUSED_MAX_NODE - w->first);
}

static bool pays(LpEager *g, LpVal end, int passes)
{
    const LpType *type = at(g, end)->type;
    return passes * lp_elements(type->shape, type->ndim) >= SAVED;
}

static void desc_of_type(LpDesc *d, const LpType *t)
{
    *d = (LpDesc){.dtype = t->dtype, .ndim = t->ndim};
    memcpy(d->shape, t->shape, sizeof t->shape);
    lp_contiguous_strides(t, d->strides);
}

/* The chain of what is needed; its results are the n_end ends, in tensors t[],
 * or of one end its sum, of type `type`. */
static LpStatus run_chain(LpEager *g, const Todo *w, const LpVal *end,
                          int n_end, LpKernelReq *sum, const LpType *type,
                          LpTensor **t)
{
    LpErr *e = g->b.err;
    Chain *c = lp_arena_calloc(g->b.scratch, sizeof *c);
    LpDesc out[LP_FUSED_MAX_OUT];
    void *to[LP_FUSED_MAX_OUT];
    int made = 0;
    LpStatus s = LP_OK;
    LP_FAIL_IF(!c, e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < w->n; i++)
        if (!add_node(g, c, w->first[i]))
            return LP_E_NOT_IMPLEMENTED;
    for (; made < n_end && s == LP_OK; made++) {
        const LpType *x = at(g, end[made])->type;
        desc_of_type(&out[made], x);
        c->node[at(g, end[made])->later->node].out = made;
        s = lp_tensor_new(sum ? type : x, &t[made], e);
        if (s != LP_OK)
            break;
        to[made] = lp_tensor_data(t[made]);
    }
    LpFusedReq r = {.node = c->node,
                    .n_node = c->n_node,
                    .ext = c->ext,
                    .n_ext = c->n_ext,
                    .out = out,
                    .n_out = n_end};
    if (s == LP_OK)
        s = lp_call_fused(&r, sum, c->in, to, e);
    while (s != LP_OK && made-- > 0)
        lp_tensor_release(t[made]);
    return s;
}

/* Of what no chain can do, or need not. */
static void forget_error(LpErr *e)
{
    e->code = LP_OK;
    e->msg[0] = e->context[0] = '\0';
}

static LpStatus make(LpEager *g, const LpVal *end, int n_end)
{
    LpTensor *t[LP_FUSED_MAX_OUT];
    Todo w;
    find_needed(g, end, n_end, &w);
    LpStatus s = pays(g, end[0], w.n - 1)
                     ? run_chain(g, &w, end, n_end, NULL, NULL, t)
                     : LP_E_NOT_IMPLEMENTED;
    for (int i = 0; i < n_end && s == LP_OK; i++)
        made(g, at(g, end[i])->later, t[i]);
    if (s != LP_E_NOT_IMPLEMENTED)
        return s;
    forget_error(g->b.err);
    for (int i = 0; i < w.n; i++)
        LP_TRY(single(g, w.first[i]));
    return LP_OK;
}

LpStatus lp_eager_make(LpEager *g, LpVal v)
{
    return make(g, &v, 1);
}

/* Is v to be made, of the shape of the first end, and none of them? */
static bool is_end(LpEager *g, LpVal v, const LpVal *end, int n_end)
{
    if (v == LP_NOVAL || !at(g, v)->later)
        return false;
    for (int i = 0; i < n_end; i++)
        if (end[i] == v)
            return false;
    return n_end == 0 || lp_shape_eq(at(g, v)->type, at(g, end[0])->type);
}

LpStatus lp_eager_make_all(LpEager *g, const LpVal *v, int n)
{
    LpVal end[LP_FUSED_MAX_OUT];
    int n_end = 0;
    for (int i = 0; i < n && n_end < LP_FUSED_MAX_OUT; i++)
        if (is_end(g, v[i], end, n_end))
            end[n_end++] = v[i];
    return n_end > 1 ? make(g, end, n_end) : LP_OK;
}

static bool sums(LpEager *g, const LpOp *op, const LpVal *in,
                 const LpAttr *attr)
{
    if (!(op->flags & LP_OPF_SUMS || op == &op_identity_loss) ||
        !at(g, in[0])->later)
        return false;
    LpDtype t = at(g, in[0])->type->dtype;
    return (t == LP_F32 || t == LP_F64) &&
           (op != &op_identity_loss ||
            strcmp(attr[LP_IDENTITY_LOSS_REDUCTION].str, "none") != 0);
}

bool lp_eager_sum(LpEager *g, const LpOp *op, const LpVal *in,
                  const LpAttr *attr, LpVal *out)
{
    LpAttr own[LP_MAX_ATTR];
    LpType type;
    LpDesc x, y;
    LpTensor *t;
    Todo w;
    if (!sums(g, op, in, attr))
        return false;
    memcpy(own, attr, op->n_attr * sizeof *attr);
    LpInfer i = {.op = op,
                 .n_in = 1,
                 .n_out = 1,
                 .in = at(g, in[0])->type,
                 .attr = own,
                 .out = &type,
                 .arena = g->b.scratch,
                 .err = g->b.err};
    if (op->infer(&i) != LP_OK)
        return true; /* failed */
    find_needed(g, in, 1, &w);
    desc_of_type(&x, at(g, in[0])->type);
    desc_of_type(&y, &type);
    LpKernelReq sum = {
        .op = op, .attr = own, .n_in = 1, .n_out = 1, .in = &x, .out = &y};
    LpStatus s = pays(g, in[0], w.n) ? run_chain(g, &w, in, 1, &sum, &type, &t)
                                     : LP_E_NOT_IMPLEMENTED;
    if (s == LP_OK)
        *out = lp_eager_tensor(g, t);
    if (s == LP_E_NOT_IMPLEMENTED)
        forget_error(g->b.err);
    return s != LP_E_NOT_IMPLEMENTED;
}
