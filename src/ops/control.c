/* Loops, branches and calls (see control.h): shape rules, gradients, costs. The
 * kernels are code that the host makes of the bodies (passes/host/body.c).
 *
 * Gradients. The body is swept in a graph of its own, behind a second copy of
 * itself: it computes again what its gradient reads. A loop's gradient is a
 * loop that goes the other way; it carries the gradients of what the loop
 * carried and sums those of what it captured, and scans a stack of the carried
 * inputs, which the loop emits: traces ask it to, dead code elimination takes
 * away what nobody reads. A branch's gradient is a branch. */
#include "src/ops/control.h"

#include <string.h>

#include "src/ir/cost.h"
#include "src/ir/text.h"
#include "src/ops/layout_cost.h"
#include "src/ops/ops.h"
#include "src/ops/rules.h"

/* ---- shape rules -------------------------------------------------------- */
static const LpType *input_type(const LpGraph *g, size_t i)
{
    return lp_graph_type(g, g->input[i]);
}

static const LpType *output_type(const LpGraph *g, size_t i)
{
    return lp_graph_type(g, g->output[i]);
}

static LpStatus same(LpInfer *x, const LpType *have, const LpType *want,
                     const char *what, size_t i)
{
    LP_FAIL_IF(!lp_type_eq(have, want), x->err, LP_E_VALUE,
               "%s: %s %zu of the body is %s%s, expected %s%s", x->op->name,
               what, i, lp_dtype_name(have->dtype), lp_shape_str(have),
               lp_dtype_name(want->dtype), lp_shape_str(want));
    return LP_OK;
}

static LpStatus inputs(LpInfer *x, const LpGraph *body, int first, int64_t n)
{
    LP_FAIL_IF(n < 0 || n > x->n_in - first || body->n_input != (size_t)n,
               x->err, LP_E_VALUE,
               "%s: the body has %zu inputs, there are %lld operands for it",
               x->op->name, body->n_input, (long long)n);
    for (size_t i = 0; i < body->n_input; i++)
        LP_TRY(same(x, input_type(body, i), &x->in[(size_t)first + i], "input",
                    i));
    return LP_OK;
}

static LpStatus outputs(LpInfer *x, const LpGraph *body)
{
    LP_FAIL_IF(body->n_output > LP_MAX_LIST, x->err, LP_E_VALUE,
               "%s: the body has %zu outputs, at most %d are allowed",
               x->op->name, body->n_output, LP_MAX_LIST);
    x->n_out = (int)body->n_output;
    for (int i = 0; i < x->n_out; i++)
        x->out[i] = *output_type(body, (size_t)i);
    return LP_OK;
}

/* A slice of t; false if it is no stack of `count`. */
static bool slice(const LpType *t, int64_t count, LpType *out)
{
    if (t->ndim == 0 || t->shape[0] != count)
        return false;
    *out = (LpType){.dtype = t->dtype, .ndim = (int8_t)(t->ndim - 1)};
    memcpy(out->shape, t->shape + 1, (size_t)out->ndim * sizeof *t->shape);
    return true;
}

static LpStatus stack(LpInfer *x, LpType *t, int64_t count)
{
    LP_FAIL_IF(t->ndim == LP_MAX_DIMS, x->err, LP_E_VALUE,
               "%s: a stack of values with %d dimensions has too many",
               x->op->name, t->ndim);
    memmove(t->shape + 1, t->shape, (size_t)t->ndim * sizeof *t->shape);
    t->shape[0] = count;
    t->ndim++;
    return lp_shape_check(t, x->err);
}

static LpStatus infer_loop(LpInfer *x)
{
    const LpGraph *body = x->attr[LP_LOOP_BODY].graph;
    int64_t count = x->attr[LP_LOOP_COUNT].i, c = x->attr[LP_LOOP_CARRIED].i;
    int64_t s = x->attr[LP_LOOP_SCANNED].i;
    LP_FAIL_IF(count < 0, x->err, LP_E_VALUE,
               "loop: count must not be negative, got %lld", (long long)count);
    LP_FAIL_IF(c < 0 || s < 0 || c > x->n_in || s > x->n_in - c ||
                   (size_t)c > body->n_output,
               x->err, LP_E_VALUE,
               "loop: %lld carried and %lld scanned of %d operands, the body "
               "has %zu outputs",
               (long long)c, (long long)s, x->n_in, body->n_output);
    LpType *in = lp_arena_memdup(x->arena, x->in, (size_t)x->n_in * sizeof *in);
    LP_FAIL_IF(!in, x->err, LP_E_MEMORY, "out of memory");
    for (int64_t i = c; i < c + s; i++)
        LP_FAIL_IF(!slice(&x->in[i], count, &in[i]), x->err, LP_E_VALUE,
                   "loop: scanned operand %lld has no first dimension of %lld",
                   (long long)i, (long long)count);
    LpInfer y = *x;
    y.in = in;
    LP_TRY(inputs(&y, body, 0, x->n_in));
    LP_TRY(outputs(x, body));
    for (int64_t i = 0; i < c; i++)
        LP_TRY(same(x, &x->out[i], &in[i], "output", (size_t)i));
    for (int64_t i = c; i < x->n_out; i++)
        LP_TRY(stack(x, &x->out[i], count));
    return LP_OK;
}

static LpStatus infer_branch(LpInfer *x)
{
    const LpGraph *then = x->attr[LP_BRANCH_THEN].graph;
    const LpGraph *otherwise = x->attr[LP_BRANCH_OTHERWISE].graph;
    int64_t split = x->attr[LP_BRANCH_SPLIT].i;
    LP_FAIL_IF(lp_numel(&x->in[0]) != 1, x->err, LP_E_VALUE,
               "branch: the condition must have one element, not %lld",
               (long long)lp_numel(&x->in[0]));
    LP_FAIL_IF(split < 0 || split >= x->n_in, x->err, LP_E_VALUE,
               "branch: split %lld of %d operands", (long long)split,
               x->n_in - 1);
    LP_TRY(inputs(x, then, 1, split));
    LP_TRY(inputs(x, otherwise, 1 + (int)split, x->n_in - 1 - split));
    LP_FAIL_IF(then->n_output != otherwise->n_output, x->err, LP_E_VALUE,
               "branch: one body has %zu outputs, the other %zu",
               then->n_output, otherwise->n_output);
    LP_TRY(outputs(x, then));
    for (size_t i = 0; i < otherwise->n_output; i++)
        LP_TRY(same(x, output_type(otherwise, i), &x->out[i], "output", i));
    return LP_OK;
}

static LpStatus infer_call(LpInfer *x)
{
    LP_TRY(inputs(x, x->attr[LP_CALL_BODY].graph, 0, x->n_in));
    return outputs(x, x->attr[LP_CALL_BODY].graph);
}

/* ---- bodies of gradients ------------------------------------------------ */
/* A body that is being made. */
typedef struct Making {
    LpGraph *g;
    LpGraphBuilder gb;
    LpArena *mem;
    LpGrad *of;
    LpErr *err;
} Making;

static bool making(Making *x, LpGrad *of)
{
    LpGraphBuilder *outer = (LpGraphBuilder *)of->b;
    *x = (Making){.g = lp_graph_new(), .mem = of->b->scratch, .of = of};
    x->err = of->b->err;
    if (!x->g) {
        lp_fail(x->err, LP_E_MEMORY, "out of memory");
        return false;
    }
    lp_graph_builder_init(&x->gb, x->g, x->err);
    x->gb.origin =
        lp_graph_origin(x->g, &outer->g->origin[outer->origin], x->err);
    return x->err->code == LP_OK;
}

/* The body's memory is the caller's reference; NULL after a failure. */
static LpGraph *made(Making *x)
{
    if (x->g)
        lp_graph_builder_fini(&x->gb);
    for (size_t i = 0; x->g && i < x->g->n_node; i++)
        if (x->g->node[i].origin == 0) /* a sum of gradients of an input */
            x->g->node[i].origin = x->gb.origin;
    if (x->err->code == LP_OK)
        return x->g;
    lp_graph_free(x->g);
    return NULL;
}

static LpVal *values(Making *x, size_t n)
{
    LpVal *v = lp_arena_calloc(x->mem, (n + 1) * sizeof *v);
    if (!v)
        lp_fail(x->err, LP_E_MEMORY, "out of memory");
    return v;
}

static LpVal input_like(Making *x, const LpType *t)
{
    return x->err->code == LP_OK ? lp_graph_input(x->g, t, NULL, x->err)
                                 : LP_NOVAL;
}

static void output_or_zero(Making *x, LpVal v, const LpType *t)
{
    if (x->err->code == LP_OK && v == LP_NOVAL)
        v = lp_full(&x->gb.b, t, lp_float(0));
    if (x->err->code == LP_OK)
        lp_graph_output(x->g, v, x->err);
}

/* grad[i]: of input i, which is the value in[i], if it is wanted; seed[k]: of
 * output k, if there is one. */
static void sweep(Making *x, const LpGraph *body, const LpVal *in,
                  const LpVal *seed, const bool *wanted, LpVal *grad)
{
    LpVal *out = values(x, body->n_output), *root = values(x, body->n_output);
    LpVal *weight = values(x, body->n_output);
    LpVal *wrt = values(x, body->n_input), *d = values(x, body->n_input);
    int n = 0, m = 0;
    if (x->err->code != LP_OK || !lp_graph_inline(x->g, body, in, out, x->err))
        return;
    for (size_t i = 0; i < body->n_output; i++)
        if (seed[i] != LP_NOVAL) {
            root[n] = out[i];
            weight[n++] = seed[i];
        }
    for (size_t i = 0; i < body->n_input; i++)
        if (wanted[i])
            wrt[m++] = in[i];
    if (x->of->sweep(x->g, root, weight, n, wrt, m, d, x->err) != LP_OK)
        return;
    for (size_t i = body->n_input; i-- > 0;)
        grad[i] = wanted[i] ? d[--m] : LP_NOVAL;
}

static bool is_float(const LpType *t)
{
    return lp_is_float(t->dtype);
}

static LpVal zero(LpGrad *g, const LpType *t)
{
    return lp_failed(g->b) ? LP_NOVAL : lp_full(g->b, t, lp_float(0));
}

/* ---- gradient of a loop ------------------------------------------------- */
typedef struct LoopGrad {
    LpGrad *g;
    const LpGraph *body;
    int nc, ns, nk, ne; /* carried, scanned, captured, emitted */
    LpVal *in;          /* operands of the gradient */
    int n_in, n_carried, n_scanned;
} LoopGrad;

/* Has result i of the body a gradient of its own in each round? */
static bool emits_grad(const LoopGrad *l, int e)
{
    return l->g->dout[l->nc + e] != LP_NOVAL;
}

/* Result of a loop that stacks carried input i, or -1. */
static int stack_of(const LpGraph *body, int nc, int i)
{
    for (size_t k = (size_t)nc; k < body->n_output; k++)
        if (body->output[k] == body->input[i])
            return (int)k;
    return -1;
}

/* The loop once more, with the stacks that it lacks. */
static void stack_again(LoopGrad *l, LpVal *stacks)
{
    LpGrad *g = l->g;
    LpGraph *body = lp_graph_clone(l->body, g->b->err);
    LpAttr attr[LP_LOOP_N_ATTR];
    LpVal *out = lp_arena_calloc(g->b->scratch,
                                 (size_t)(g->n_out + l->nc + 1) * sizeof *out);
    for (int i = 0; body && i < l->nc; i++)
        lp_graph_output(body, body->input[i], g->b->err);
    memcpy(attr, g->attr, sizeof attr);
    attr[LP_LOOP_BODY] = lp_attr_graph(body);
    if (body && out && !lp_failed(g->b))
        lp_emit_n(g->b, LP_OP_loop, g->in, g->n_in, attr, out);
    else
        lp_fail(g->b->err, LP_E_MEMORY, "out of memory");
    for (int i = 0; out && i < l->nc; i++)
        stacks[i] = out[g->n_out + i];
    lp_graph_free(body);
}

static void find_stacks(LoopGrad *l, LpVal *stacks)
{
    for (int i = 0; i < l->nc; i++) {
        int k = stack_of(l->body, l->nc, i);
        if (k < 0) {
            stack_again(l, stacks);
            return;
        }
        stacks[i] = l->g->out[k];
    }
}

/* Operands: gradients of what is carried, zeros for sums over what is
 * captured; stacks, what was scanned, gradients of what was emitted; what is
 * captured. */
static void loop_operands(LoopGrad *l)
{
    LpGrad *g = l->g;
    int n = 0;
    for (int i = 0; i < l->nc; i++)
        if (is_float(input_type(l->body, (size_t)i)))
            l->in[n++] = g->dout[i] != LP_NOVAL
                             ? g->dout[i]
                             : zero(g, input_type(l->body, (size_t)i));
    for (int i = l->nc + l->ns; i < g->n_in; i++)
        if (g->need[i])
            l->in[n++] = zero(g, input_type(l->body, (size_t)i));
    l->n_carried = n;
    find_stacks(l, l->in + n);
    n += l->nc;
    for (int i = l->nc; i < l->nc + l->ns; i++)
        l->in[n++] = g->in[i];
    for (int e = 0; e < l->ne; e++)
        if (emits_grad(l, e))
            l->in[n++] = g->dout[l->nc + e];
    l->n_scanned = n - l->n_carried;
    for (int i = l->nc + l->ns; i < g->n_in; i++)
        l->in[n++] = g->in[i];
    l->n_in = n;
}

/* The body of the gradient, while it is made; by input of the loop's body: the
 * value that stands for it, the sum that is carried, its gradient, whether that
 * is wanted; and by output the gradient that comes in. */
typedef struct LoopBody {
    Making x;
    LpVal *in, *sum, *grad, *seed;
    bool *wanted;
} LoopBody;

static bool open_loop_body(LoopBody *m, const LoopGrad *l)
{
    size_t n = l->body->n_input;
    if (!making(&m->x, l->g))
        return false;
    m->in = values(&m->x, n);
    m->sum = values(&m->x, n);
    m->grad = values(&m->x, n);
    m->seed = values(&m->x, l->body->n_output);
    m->wanted = lp_arena_calloc(m->x.mem, n + 1);
    if (!m->wanted)
        lp_fail(m->x.err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < n && m->wanted; i++)
        m->wanted[i] = i < (size_t)l->nc ? is_float(input_type(l->body, i))
                                         : l->g->need[i];
    return m->x.err->code == LP_OK;
}

/* A value for each of the inputs from `first` on, if it is wanted. */
static void add_inputs(LoopBody *m, const LoopGrad *l, LpVal *v,
                       const bool *wanted, int first, int end)
{
    for (int i = first; i < end; i++)
        if (!wanted || wanted[i])
            v[i] = input_like(&m->x, input_type(l->body, (size_t)i));
}

static void add_gradients(LoopBody *m, const LoopGrad *l, int first, int end)
{
    for (int i = first; i < end; i++)
        if (m->wanted[i])
            output_or_zero(&m->x, m->grad[i], input_type(l->body, (size_t)i));
}

/* Its inputs in the order of the operands, its outputs: gradients of what is
 * carried, sums, gradients of slices of what was scanned. */
static LpGraph *loop_body(const LoopGrad *l)
{
    int captured = l->nc + l->ns, n = captured + l->nk;
    LoopBody m = {0};
    if (!open_loop_body(&m, l))
        return made(&m.x);
    add_inputs(&m, l, m.seed, m.wanted, 0, l->nc);
    add_inputs(&m, l, m.sum, m.wanted, captured, n);
    add_inputs(&m, l, m.in, NULL, 0, captured);
    for (int i = l->nc; i < l->nc + l->ne; i++)
        if (emits_grad(l, i - l->nc))
            m.seed[i] = input_like(&m.x, output_type(l->body, (size_t)i));
    add_inputs(&m, l, m.in, NULL, captured, n);
    sweep(&m.x, l->body, m.in, m.seed, m.wanted, m.grad);
    for (int i = captured; i < n && m.x.err->code == LP_OK; i++)
        if (m.wanted[i])
            m.grad[i] = m.grad[i] == LP_NOVAL
                            ? m.sum[i]
                            : lp_add(&m.x.gb.b, m.sum[i], m.grad[i]);
    add_gradients(&m, l, 0, l->nc);
    add_gradients(&m, l, captured, n);
    add_gradients(&m, l, l->nc, captured);
    return made(&m.x);
}

static void take_loop_grads(const LoopGrad *l, const LpVal *out)
{
    LpGrad *g = l->g;
    int n = 0;
    for (int i = 0; i < l->nc; i++)
        if (is_float(input_type(l->body, (size_t)i)))
            g->din[i] = out[n++];
    for (int i = l->nc + l->ns; i < g->n_in; i++)
        if (g->need[i])
            g->din[i] = out[n++];
    for (int i = l->nc; i < l->nc + l->ns; i++)
        if (g->need[i])
            g->din[i] = out[n++];
}

static void grad_loop(LpGrad *g)
{
    LoopGrad l = {.g = g, .body = g->attr[LP_LOOP_BODY].graph};
    l.nc = (int)g->attr[LP_LOOP_CARRIED].i;
    l.ns = (int)g->attr[LP_LOOP_SCANNED].i;
    l.nk = g->n_in - l.nc - l.ns;
    l.ne = g->n_out - l.nc;
    size_t most = 2 * (size_t)g->n_in + (size_t)l.nc + (size_t)g->n_out + 1;
    l.in = lp_arena_calloc(g->b->scratch, most * sizeof *l.in);
    LpVal *out = lp_arena_calloc(g->b->scratch, most * sizeof *out);
    if (!l.in || !out) {
        lp_fail(g->b->err, LP_E_MEMORY, "out of memory");
        return;
    }
    loop_operands(&l);
    LpGraph *body = lp_failed(g->b) ? NULL : loop_body(&l);
    if (!body)
        return;
    LpAttr attr[LP_LOOP_N_ATTR] = {
        [LP_LOOP_BODY] = lp_attr_graph(body),
        [LP_LOOP_COUNT] = g->attr[LP_LOOP_COUNT],
        [LP_LOOP_CARRIED] = lp_attr_int(l.n_carried),
        [LP_LOOP_SCANNED] = lp_attr_int(l.n_scanned),
        [LP_LOOP_REVERSE] = lp_attr_bool(!g->attr[LP_LOOP_REVERSE].i)};
    lp_emit_n(g->b, LP_OP_loop, l.in, l.n_in, attr, out);
    lp_graph_free(body);
    if (!lp_failed(g->b))
        take_loop_grads(&l, out);
}

/* ---- gradients of branches and calls ------------------------------------ */
/* The gradient of a body that runs once: inputs are its operands (of the node
 * those from `first` on) and the gradients that there are of its results;
 * outputs the gradients of all of the node's operands that need one. */
static LpGraph *once_body(LpGrad *g, const LpGraph *body, int first)
{
    Making x;
    size_t n = body->n_input;
    if (!making(&x, g))
        return made(&x);
    LpVal *in = values(&x, n), *grad = values(&x, n);
    LpVal *seed = values(&x, body->n_output);
    for (size_t i = 0; i < n && in; i++)
        in[i] = input_like(&x, input_type(body, i));
    for (int i = 0; i < g->n_out && seed; i++)
        if (g->dout[i] != LP_NOVAL)
            seed[i] = input_like(&x, output_type(body, (size_t)i));
    if (x.err->code == LP_OK)
        sweep(&x, body, in, seed, g->need + first, grad);
    for (int i = 0; i < g->n_in; i++) {
        bool here = i >= first && i < first + (int)n;
        if (g->need[i])
            output_or_zero(&x, here && grad ? grad[i - first] : LP_NOVAL,
                           lp_type(g->b, g->in[i]));
    }
    return made(&x);
}

static int add_operands(LpGrad *g, LpVal *in, int n, int first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        in[n++] = g->in[(size_t)first + i];
    for (int i = 0; i < g->n_out; i++)
        if (g->dout[i] != LP_NOVAL)
            in[n++] = g->dout[i];
    return n;
}

static void take_grads(LpGrad *g, const LpVal *out)
{
    int n = 0;
    for (int i = 0; i < g->n_in && !lp_failed(g->b); i++)
        if (g->need[i])
            g->din[i] = out[n++];
}

static LpVal *room(LpGrad *g)
{
    size_t n = 2 * (size_t)g->n_in + 2 * (size_t)g->n_out + 2;
    LpVal *v = lp_arena_calloc(g->b->scratch, n * sizeof *v);
    if (!v)
        lp_fail(g->b->err, LP_E_MEMORY, "out of memory");
    return v;
}

static void grad_branch(LpGrad *g)
{
    const LpGraph *then = g->attr[LP_BRANCH_THEN].graph;
    const LpGraph *otherwise = g->attr[LP_BRANCH_OTHERWISE].graph;
    int split = (int)g->attr[LP_BRANCH_SPLIT].i;
    LpVal *in = room(g), *out = room(g);
    if (!in || !out)
        return;
    in[0] = g->in[0];
    int first = add_operands(g, in, 1, 1, then->n_input);
    int n = add_operands(g, in, first, 1 + split, otherwise->n_input);
    LpGraph *a = once_body(g, then, 1), *b = NULL;
    if (a)
        b = once_body(g, otherwise, 1 + split);
    LpAttr attr[LP_BRANCH_N_ATTR] = {[LP_BRANCH_THEN] = lp_attr_graph(a),
                                     [LP_BRANCH_OTHERWISE] = lp_attr_graph(b),
                                     [LP_BRANCH_SPLIT] =
                                         lp_attr_int(first - 1)};
    if (a && b)
        lp_emit_n(g->b, LP_OP_branch, in, n, attr, out);
    lp_graph_free(a);
    lp_graph_free(b);
    take_grads(g, out);
}

static void grad_call(LpGrad *g)
{
    const LpGraph *body = g->attr[LP_CALL_BODY].graph;
    LpVal *in = room(g), *out = room(g);
    LpGraph *a = in && out ? once_body(g, body, 0) : NULL;
    if (!a)
        return;
    LpAttr attr[LP_CALL_N_ATTR] = {lp_attr_graph(a)};
    lp_emit_n(g->b, LP_OP_call, in, add_operands(g, in, 0, 0, body->n_input),
              attr, out);
    lp_graph_free(a);
    take_grads(g, out);
}

/* ---- costs -------------------------------------------------------------- */
/* Bytes of the body's own values when most of them live, on a tile. */
static int64_t body_tile_bytes(const LpCostReq *r, const LpGraph *g)
{
    LpArena mem = {0};
    int64_t now = 0, most = 0;
    LpNodeId *last = lp_arena_calloc(&mem, g->n_value * sizeof *last);
    for (LpNodeId i = 0; last && i < g->n_node; i++)
        for (uint32_t k = 0; k < g->node[i].n_in; k++)
            if (lp_is_value(g->node[i].in[k]))
                last[g->node[i].in[k]] = i;
    for (LpNodeId i = 0; last && i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        for (uint32_t k = 0; k < n->n_out && !(n->op->flags & LP_OPF_VIEW); k++)
            now += lp_type_bytes(lp_graph_type(g, n->out + k));
        most = now > most ? now : most;
        for (uint32_t k = 0; k < n->n_in; k++) {
            LpVal v = n->in[k];
            if (!lp_is_value(v) || last[v] != i)
                continue;
            last[v] = LP_NO_NODE;
            LpNodeId by = g->value[v].node;
            if (by != LP_NO_NODE && !(g->node[by].op->flags & LP_OPF_VIEW))
                now -= lp_type_bytes(lp_graph_type(g, v));
        }
    }
    lp_arena_fini(&mem);
    return (most + r->tiles - 1) / r->tiles;
}

static LpCost body_cost(const LpCostReq *r, const LpGraph *body)
{
    LpCost c = {0};
    if (r->body_cost)
        r->body_cost(r, body, &c);
    c.temp_tile_bytes += body_tile_bytes(r, body);
    return c;
}

/* Slices that go into or out of stacks are copied. */
static void cost_slice(const LpCostReq *r, const LpType *stack, LpCost *c)
{
    LpType t;
    LpCost copy = {0};
    if (!slice(stack, stack->ndim ? stack->shape[0] : 0, &t))
        return;
    LpCostReq q = *r;
    q.n_in = q.n_out = 1;
    q.in = q.out = &t;
    lp_rule_copy(&q, &copy);
    lp_cost_add(c, copy);
}

static void cost_loop(const LpCostReq *r, LpCost *out)
{
    int nc = (int)r->attr[LP_LOOP_CARRIED].i;
    int ns = (int)r->attr[LP_LOOP_SCANNED].i;
    LpCost c = body_cost(r, r->attr[LP_LOOP_BODY].graph);
    for (int i = nc; i < nc + ns; i++)
        cost_slice(r, &r->in[i], &c);
    for (int i = nc; i < r->n_out; i++)
        cost_slice(r, &r->out[i], &c);
    lp_cost_add(out, lp_cost_repeat(c, r->attr[LP_LOOP_COUNT].i));
}

/* Memory and code of both sides, the cycles of the dearer one. */
static void cost_branch(const LpCostReq *r, LpCost *out)
{
    LpCost a = body_cost(r, r->attr[LP_BRANCH_THEN].graph);
    LpCost b = body_cost(r, r->attr[LP_BRANCH_OTHERWISE].graph);
    lp_cost_not_run(lp_cost_cyc(&a) > lp_cost_cyc(&b) ? &b : &a);
    lp_cost_add(&a, b);
    lp_cost_add(out, a);
}

static void cost_call(const LpCostReq *r, LpCost *out)
{
    lp_cost_add(out, body_cost(r, r->attr[LP_CALL_BODY].graph));
}

LpOp op_loop = {
    .forms = "loop(Tensor[] operands, *, Graph body, int count, int carried, "
             "int scanned=0, bool reverse=False) -> Tensor[] @p",
    .infer = infer_loop,
    .grad = grad_loop,
    .grad_in = UINT32_MAX,
    .grad_out = UINT32_MAX,
    .cost = cost_loop,
};

LpOp op_branch = {
    .forms = "branch(Tensor condition, Tensor[] operands, *, Graph then, "
             "Graph otherwise, int split) -> Tensor[] @p",
    .infer = infer_branch,
    .grad = grad_branch,
    .grad_in = UINT32_MAX,
    .cost = cost_branch,
};

LpOp op_call = {
    .forms = "call(Tensor[] operands, *, Graph body) -> Tensor[] @p",
    .infer = infer_call,
    .grad = grad_call,
    .grad_in = UINT32_MAX,
    .cost = cost_call,
};

LP_EXPAND(expand_chain)
{
    (void)n_in, (void)n_out;
    lp_graph_inline(((LpGraphBuilder *)b)->g, attr[LP_CALL_BODY].graph, in, out,
                    b->err);
}

LpOp op_chain = {
    .forms = "chain(Tensor[] operands, *, Graph body) -> Tensor[] @p",
    .kind = LP_OP_FUSED,
    .flags = LP_OPF_ELEMENTWISE,
    .infer = infer_call,
    .expand = expand_chain,
};
