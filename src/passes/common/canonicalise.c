/* Canonical form: of several ways to write the same bits, one.
 *
 *   %2 = permute(%1, dims=[1, 0])
 *   %3 = permute(%2, dims=[1, 0])      ->    %4 = neg(%1)
 *   %4 = neg(%3)
 *
 * Views: identities go; unsqueeze, squeeze, view and movements of sizes of 1
 * are reshapes; a reshape of a reshape is one, likewise permute, expand and
 * slice. alias and clone are their operand, a value has no memory; so is
 * detach once nothing will be differentiated. Casts: to the same type none; a
 * widening one before another goes. Arithmetic: only where every bit stays,
 * zeros' signs included (the bits inside a NaN are nobody's).
 *
 *   x * 1, x / 1                       x
 *   x + (-0.0), x - 0.0                x; integers: x + 0, x - 0
 *   x + 0.0                            stays: -0.0 + 0.0 is 0.0
 *   -(-x), not not x                   x
 *   where(c, a, b), c known            a or b
 *   fill, zero                         full
 *   dropout outside training, or of 0  its operand
 *   custom_function, differentiated    its first operands
 *
 * Where p, i = max_pool(x), the gradient is masked before it is scattered:
 *
 *   relu_backward(                     max_pool_backward(
 *     max_pool_backward(g, i), x)        relu_backward(g, p), i)
 *
 * What is in one stage alone is not taken from it: nothing looks through a
 * node of another stage (lp_rewrite_def), and the last node of a stage stays
 * although its value is that of another.
 *
 * First: it makes equal what is the same for cse, and constants visible to
 * fold. Linear: a rule looks at a node and the one before it. */
#include "src/passes/common/canonicalise.h"
#include "src/kernel/attrs.h"

#include <math.h>
#include <string.h>

/* ---- arithmetic ---------------------------------------------------------- */
static bool is(LpScalar s, double v)
{
    return lp_scalar_f(s) == v;
}

/* `v` if it has the type of the node's result. */
static LpVal if_fits(LpRewrite *rw, const LpGraphNode *n, LpVal v)
{
    if (v == LP_NOVAL || lp_is_imm(v))
        return LP_NOVAL;
    return lp_type_eq(lp_graph_type(rw->to, v), lp_canon_type(rw, n))
               ? v
               : LP_NOVAL;
}

static LpVal mul(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpScalar s;
    if (lp_rewrite_constant(rw, in[1], &s) && is(s, 1))
        return if_fits(rw, n, in[0]);
    if (lp_rewrite_constant(rw, in[0], &s) && is(s, 1))
        return if_fits(rw, n, in[1]);
    return LP_NOVAL;
}

/* A rounding mode rounds floats even when they are divided by 1. */
static LpVal divide(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpScalar s;
    if (!lp_rewrite_constant(rw, in[1], &s) || !is(s, 1) ||
        (n->attr[LP_DIV_ROUNDING_MODE].kind != LP_ATTR_NONE &&
         lp_is_float(lp_canon_type(rw, n)->dtype)))
        return LP_NOVAL;
    return if_fits(rw, n, in[0]);
}

/* Is x + s, or x - s, always x, bit by bit? */
static bool adds_nothing(LpScalar s, bool minus, LpDtype t)
{
    if (!is(s, 0))
        return false;
    if (!lp_is_float(t))
        return true;
    return (signbit(lp_scalar_f(s)) != 0) != minus;
}

static LpVal add_sub(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpScalar s;
    LpDtype t = lp_canon_type(rw, n)->dtype;
    bool minus = n->op->id == LP_OP_sub;
    if (!is(n->attr[LP_ADD_ALPHA].s, 1))
        return LP_NOVAL;
    if (lp_rewrite_constant(rw, in[1], &s) && adds_nothing(s, minus, t))
        return if_fits(rw, n, in[0]);
    if (!minus && lp_rewrite_constant(rw, in[0], &s) &&
        adds_nothing(s, false, t))
        return if_fits(rw, n, in[1]);
    return LP_NOVAL;
}

/* f(f(x)) = x */
static LpVal involution(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    const LpGraphNode *d = lp_rewrite_def(rw, in[0]);
    return d && d->op == n->op ? if_fits(rw, n, d->in[0]) : LP_NOVAL;
}

/* f(f(x)) = f(x) */
static LpVal idempotent(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    const LpGraphNode *d = lp_rewrite_def(rw, in[0]);
    return d && d->op == n->op ? if_fits(rw, n, in[0]) : LP_NOVAL;
}

static LpVal where(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpScalar c;
    LpBuilder *b = &rw->gb.b;
    const LpType *t = lp_canon_type(rw, n);
    if (in[1] == in[2])
        return if_fits(rw, n, in[1]);
    if (!lp_rewrite_constant(rw, in[0], &c))
        return LP_NOVAL;
    LpVal v = is(c, 0) ? in[2] : in[1];
    if (lp_is_imm(v))
        return lp_full(b, t, lp_graph_scalar(rw->to, v));
    return lp_expand_as(b, lp_cast(b, v, t->dtype), t);
}

/* Every element one number: the operand is not read. */
static LpVal fill(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpScalar s = lp_int(0);
    if (n->op->id == LP_OP_fill && !lp_rewrite_constant(rw, in[1], &s))
        return LP_NOVAL;
    return lp_full(&rw->gb.b, lp_canon_type(rw, n), s);
}

/* Outside training, and where nothing is dropped, dropout is its operand. */
static LpVal dropout(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    bool drops = n->attr[LP_DROPOUT_TRAINING].i && n->attr[LP_DROPOUT_P].f > 0;
    return drops ? LP_NOVAL : if_fits(rw, n, in[0]);
}

/* Where g is scattered to, x has the pooled value; elsewhere both are 0. */
static LpVal relu_backward(LpRewrite *rw, const LpGraphNode *n, const LpVal *in)
{
    LpBuilder *b = &rw->gb.b;
    const LpGraphNode *d = lp_rewrite_def(rw, in[0]);
    if (!d || d->op->id != LP_OP_max_pool_backward ||
        !lp_origin_same_location(&rw->to->origin[d->origin],
                                 &rw->to->origin[rw->gb.origin]))
        return LP_NOVAL;
    LpVal grad = d->in[0], index = d->in[1];
    const LpAttr *size = d->attr;
    const LpGraphNode *pool = lp_rewrite_def(rw, index);
    if (!pool || pool->op->id != LP_OP_max_pool || pool->in[0] != in[1] ||
        index != pool->out + 1 || lp_is_imm(grad) ||
        !lp_type_eq(lp_graph_type(rw->to, grad),
                    lp_graph_type(rw->to, pool->out)))
        return LP_NOVAL;
    LpVal masked = lp_op2(b, n->op->id, grad, pool->out);
    return lp_emit(b, LP_OP_max_pool_backward, (LpVal[]){masked, index}, 2,
                   size);
}

/* ---- the pass ------------------------------------------------------------ */
static const LpCanonRule rules[LP_N_OPS] = {
    [LP_OP_reshape] = lp_canon_reshape,
    [LP_OP_view] = lp_canon_reshape,
    [LP_OP_unsqueeze] = lp_canon_reshape,
    [LP_OP_squeeze] = lp_canon_reshape,
    [LP_OP_permute] = lp_canon_permute,
    [LP_OP_expand] = lp_canon_expand,
    [LP_OP_slice] = lp_canon_slice,
    [LP_OP_select] = lp_canon_select,
    [LP_OP_cast] = lp_canon_cast,
    [LP_OP_alias] = lp_canon_same,
    [LP_OP_clone] = lp_canon_same,
    [LP_OP_detach] = lp_canon_detach,
    [LP_OP_mul] = mul,
    [LP_OP_div] = divide,
    [LP_OP_add] = add_sub,
    [LP_OP_sub] = add_sub,
    [LP_OP_neg] = involution,
    [LP_OP_logical_not] = involution,
    [LP_OP_bitwise_not] = involution,
    [LP_OP_abs] = idempotent,
    [LP_OP_relu] = idempotent,
    [LP_OP_floor] = idempotent,
    [LP_OP_ceil] = idempotent,
    [LP_OP_trunc] = idempotent,
    [LP_OP_where] = where,
    [LP_OP_fill] = fill,
    [LP_OP_zero] = fill,
    [LP_OP_dropout] = dropout,
    [LP_OP_relu_backward] = relu_backward,
    [LP_OP_cat] = lp_canon_cat,
};

/* How many nodes each stage has left, forward and backward apart. */
typedef struct Stages {
    LpOriginId *first; /* by origin: the first one of the same stage */
    uint32_t *left;    /* by that */
    bool several;      /* else there is nothing to keep apart */
} Stages;

static bool same_run(const LpOrigin *a, const LpOrigin *b)
{
    return lp_origin_same_stage(a, b) && a->backward == b->backward &&
           a->update == b->update;
}

/* A program has few stages: each origin is compared with one origin of each. */
static void find_stages(const LpGraph *g, Stages *s, LpOriginId *firsts)
{
    size_t n = 0;
    for (LpOriginId o = 0; o < g->n_origin; o++) {
        size_t k = 0;
        while (k < n && !same_run(&g->origin[firsts[k]], &g->origin[o]))
            k++;
        if (k == n)
            firsts[n++] = o;
        s->first[o] = firsts[k];
    }
    for (size_t i = 0; i < g->n_node; i++) {
        s->left[s->first[g->node[i].origin]]++;
        s->several |= !lp_origin_same_stage(&g->origin[g->node[0].origin],
                                            &g->origin[g->node[i].origin]);
    }
}

/* May the node go, `v` of before it standing for its result? */
static bool may_go(const LpRewrite *rw, const LpGraphNode *n, LpVal v)
{
    const Stages *s = rw->ctx;
    uint32_t *left = &s->left[s->first[n->origin]];
    const LpValue *x = &rw->to->value[v];
    bool here = x->node != LP_NO_NODE &&
                same_run(&rw->to->origin[rw->to->node[x->node].origin],
                         &rw->from->origin[n->origin]);
    if (s->several && *left == 1 && !here)
        return false;
    *left -= 1;
    return true;
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    const LpGraphNode *n = &rw->from->node[id];
    size_t before = rw->to->n_value;
    if (n->op->id == LP_OP_custom_function && rw->from->differentiated) {
        memcpy(out, in, n->n_out * sizeof *out);
        return true;
    }
    LpCanonRule rule = rules[n->op->id];
    if (!rule)
        return false;
    out[0] = rule(rw, n, in);
    return out[0] != LP_NOVAL && (out[0] >= before || may_go(rw, n, out[0]));
}

LpStatus lp_pass_canonicalise(LpGraph **g, LpErr *e)
{
    size_t n = (*g)->n_origin;
    LpArena a = {0};
    Stages s = {.first = lp_arena_calloc(&a, n * sizeof *s.first),
                .left = lp_arena_calloc(&a, n * sizeof *s.left)};
    LpOriginId *firsts = lp_arena_calloc(&a, n * sizeof *firsts);
    bool ok = s.first && s.left && firsts;
    LpStatus st = ok ? LP_OK : lp_fail(e, LP_E_MEMORY, "out of memory");
    if (ok) {
        find_stages(*g, &s, firsts);
        st = lp_rewrite(g, visit, &s, e);
    }
    lp_arena_fini(&a);
    return st;
}
