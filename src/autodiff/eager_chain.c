/* Pointwise operators that a rule emits, computed late: when a value is asked
 * for that is not one of them, what leads to it runs as one chain, block by
 * block (kernel/loops/fused.h), and only that value reaches memory. A rule of
 * seven operators over a million elements passes once over them. The bits are
 * those of the single operators. What several values are made of is computed
 * for each of them: in a cache it costs less than a place in memory.
 *
 * Waiting are operators without history, whose operands are large and of the
 * result's shape, or are there. */
#include <string.h>

#include "src/autodiff/meta.h"
#include "src/autodiff/trace.h"
#include "src/kernel/loops/fused.h"

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

/* `todo`: n operators, operands before users; the last one's value is made. */
static LpStatus together(LpEager *g, LpLater **todo, int n)
{
    LpErr *e = g->b.err;
    LpLater *last = todo[n - 1];
    Chain *c = lp_arena_calloc(g->b.scratch, sizeof *c);
    LP_FAIL_IF(!c, e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < n; i++)
        if (!add_node(g, c, todo[i]))
            return LP_E_NOT_IMPLEMENTED;
    LpTensor *t = NULL;
    LpDesc out;
    LP_TRY(lp_tensor_new(at(g, last->self)->type, &t, e));
    lp_desc_of_tensor(&out, t);
    c->node[n - 1].out = 0;
    LpFusedReq r = {.node = c->node,
                    .n_node = n,
                    .ext = c->ext,
                    .n_ext = c->n_ext,
                    .out = &out,
                    .n_out = 1};
    LpStatus s = lp_call_fused(&r, c->in, (void *[]){lp_tensor_data(t)}, e);
    if (s == LP_OK)
        return made(g, last, t);
    lp_tensor_release(t);
    return s;
}

LpStatus lp_eager_make(LpEager *g, LpVal v)
{
    LpLater *todo[LP_FUSED_MAX_NODE], *end = at(g, v)->later;
    int n = LP_FUSED_MAX_NODE;
    end->needed = true;
    for (LpLater *d = g->last; d; d = d->before) {
        bool needed = d->needed && at(g, d->self)->later;
        d->needed = false;
        if (!needed)
            continue;
        todo[--n] = d;
        for (int i = 0; i < d->n_in; i++)
            if (at(g, d->in[i])->later)
                at(g, d->in[i])->later->needed = true;
    }
    LpLater **first = todo + n;
    n = LP_FUSED_MAX_NODE - n;
    const LpType *type = at(g, v)->type;
    bool pays = (n - 1) * lp_elements(type->shape, type->ndim) >= SAVED;
    LpStatus s = pays ? together(g, first, n) : LP_E_NOT_IMPLEMENTED;
    if (s != LP_E_NOT_IMPLEMENTED)
        return s;
    g->b.err->code = LP_OK; /* what no chain can do, or need not */
    g->b.err->msg[0] = g->b.err->context[0] = '\0';
    for (int i = 0; i < n; i++)
        LP_TRY(single(g, first[i]));
    return LP_OK;
}
