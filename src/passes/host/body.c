/* Operators with bodies: each body becomes code of its own, a function of its
 * inputs and outputs, and the operator a kernel that calls it. The memory of a
 * call (arena, scratch, the list of arguments) is the kernel's scratch, so that
 * bodies in bodies and replicas side by side need nothing more.
 *
 * A loop carries in place: what is carried is one argument, read and written,
 * in the memory of the result. What its body computes straight into that memory
 * and what is copied there at the end is the same question as for a variable of
 * a step, and has the same answer (lower.c, nodes.c). */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/kernel/copy/copy.h"
#include "src/ops/control.h"
#include "src/passes/host/lower_impl.h"

/* The carried input that output i of a loop's body is, or -1: the kernel copies
 * it to its stack before the round, so that the round may write over it. */
static int carried_of(const LpGraph *g, size_t carried, size_t i)
{
    for (size_t k = 0; k < carried && i >= carried; k++)
        if (g->output[i] == g->input[k])
            return (int)k;
    return -1;
}

/* ---- code of a body ----------------------------------------------------- */
/* Arguments: its inputs, of which the first `carried` receive outputs as well,
 * then its other outputs. */
static LpStatus lower(const LpGraph *g, size_t carried, LpNumerics numerics,
                      const LpHostOptions *o, LpCode *code, LpErr *e)
{
    size_t n = g->n_input + g->n_output - carried;
    LpVal *in = lp_calloc(n, 2 * sizeof *in), *out = in + n;
    LpVariable *var = lp_calloc(n, sizeof *var);
    LpStep step = {.var = var, .n_var = n, .replicas = 1, .numerics = numerics};
    LpProgram program = {.step = &step,
                         .micro_graph = {(LpGraph *)(uintptr_t)g, in, out}};
    LpStatus s = in && var ? LP_OK : lp_fail(e, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < g->n_input && s == LP_OK; i++) {
        in[i] = g->input[i];
        out[i] = i < carried ? g->output[i] : LP_NOVAL;
        var[i].role = i < carried ? LP_VAR_BUFFER : LP_VAR_STREAM_IN;
    }
    for (size_t i = carried; i < g->n_output && s == LP_OK; i++) {
        size_t at = g->n_input + i - carried;
        bool copied = carried_of(g, carried, i) >= 0;
        out[at] = copied ? LP_NOVAL : g->output[i];
        var[at].role = LP_VAR_STREAM_OUT;
    }
    for (size_t i = 0; i < n && s == LP_OK; i++) {
        var[i].type = *lp_graph_type(g, in[i] ? in[i] : out[i]);
        var[i].micro_in = in[i];
        var[i].micro_out = out[i];
        var[i].param = -1;
    }
    if (s == LP_OK)
        s = lp_lower_function(&program, o, code, e);
    lp_free(in);
    lp_free(var);
    return s;
}

/* ---- kernels ------------------------------------------------------------ */
typedef struct Bodies {
    LpCode code[2];
    size_t n_arg, width; /* of the greater one */
    size_t work, arena;
    int64_t count, split;
    bool reverse;
    int carried, scanned, n_in, n_out;
    LpDtype condition;
    size_t *bytes; /* of operands and results, as the body has them */
    int *stacks;   /* per result: the carried value that is stacked, or -1 */
} Bodies;

enum { ALIGN = 64 };

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static size_t work_bytes(const Bodies *b)
{
    return aligned((b->n_arg + b->width) * sizeof(void *)) + aligned(b->work) +
           b->arena;
}

static LpFrame frame_in(const Bodies *b, void *work)
{
    char *p = work;
    size_t pointers = aligned((b->n_arg + b->width) * sizeof(void *));
    return (LpFrame){.arg = work,
                     .wide = (void **)work + b->n_arg,
                     .work = p + pointers,
                     .arena = p + pointers + aligned(b->work)};
}

static LpStatus call(const LpCode *c, const LpFrame *f, const LpRunCtx *rc,
                     LpErr *e)
{
    for (size_t i = 0; i < c->n; i++)
        LP_TRY(lp_instr_run(&c->instr[i], f, rc, e));
    return LP_OK;
}

/* Round i of `count` in round r of a loop around it draws as i + r count. */
static LpStatus run_loop(const LpKernel *k, void *const *in, void *const *out,
                         void *work, const LpRunCtx *rc, LpErr *e)
{
    const Bodies *b = k->state;
    LpFrame f = frame_in(b, work);
    void **arg = work;
    LpRunCtx round = *rc;
    for (int i = 0; i < b->carried; i++) {
        arg[i] = out[i];
        memcpy(out[i], in[i], b->bytes[i]);
    }
    for (int i = b->carried + b->scanned; i < b->n_in; i++)
        arg[i] = in[i];
    for (int64_t t = 0; t < b->count; t++) {
        int64_t at = b->reverse ? b->count - 1 - t : t;
        for (int i = b->carried; i < b->carried + b->scanned; i++)
            arg[i] = (char *)in[i] + (size_t)at * b->bytes[i];
        for (int i = b->carried; i < b->n_out; i++) {
            char *to = (char *)out[i] + (size_t)at * b->bytes[b->n_in + i];
            if (b->stacks[i] < 0)
                arg[b->n_in + i - b->carried] = to;
            else
                memcpy(to, out[b->stacks[i]], b->bytes[b->n_in + i]);
        }
        round.iteration = rc->iteration * (uint32_t)b->count + (uint32_t)at;
        if (lp_interrupt_raised())
            return lp_fail(e, LP_E_INTERRUPT, "interrupted");
        LP_TRY(call(&b->code[0], &f, &round, e));
    }
    return LP_OK;
}

static LpStatus run_branch(const LpKernel *k, void *const *in, void *const *out,
                           void *work, const LpRunCtx *rc, LpErr *e)
{
    const Bodies *b = k->state;
    LpFrame f = frame_in(b, work);
    LpScalar c = lp_scalar_load(b->condition, in[0]);
    bool yes = c.kind == LP_KIND_FLOAT ? c.f != 0 : c.i != 0;
    size_t first = yes ? 1 : 1 + (size_t)b->split;
    size_t n = yes ? (size_t)b->split : (size_t)b->n_in - first;
    void **arg = work;
    memcpy(arg, in + first, n * sizeof *arg);
    memcpy(arg + n, out, (size_t)b->n_out * sizeof *arg);
    return call(&b->code[yes ? 0 : 1], &f, rc, e);
}

static LpStatus run_call(const LpKernel *k, void *const *in, void *const *out,
                         void *work, const LpRunCtx *rc, LpErr *e)
{
    const Bodies *b = k->state;
    LpFrame f = frame_in(b, work);
    void **arg = work;
    memcpy(arg, in, (size_t)b->n_in * sizeof *arg);
    memcpy(arg + b->n_in, out, (size_t)b->n_out * sizeof *arg);
    return call(&b->code[0], &f, rc, e);
}

static void fini(LpKernel *k)
{
    Bodies *b = k->state;
    lp_code_fini(&b->code[0]);
    lp_code_fini(&b->code[1]);
    lp_free(b->bytes);
    lp_free(b->stacks);
    lp_free(b);
}

/* ---- preparing ---------------------------------------------------------- */
static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static LpStatus add_code(Bodies *b, int which, const LpGraph *g, size_t carried,
                         LpNumerics numerics, const LpHostOptions *o,
                         LpKernel *k, LpErr *e)
{
    LpCode *c = &b->code[which];
    LP_TRY(lower(g, carried, numerics, o, c, e));
    b->n_arg = max(b->n_arg, g->n_input + g->n_output - carried);
    b->width = max(b->width, lp_code_width(c));
    b->arena = max(b->arena, c->arena_bytes);
    for (size_t i = 0; i < c->n; i++) {
        const LpKernel *inner = c->instr[i].kernel;
        if (!c->instr[i].scratch)
            b->work = max(b->work, inner->work_bytes);
        if (inner->threads > k->threads)
            k->threads = inner->threads;
    }
    return LP_OK;
}

static size_t bytes_of(const LpDesc *d)
{
    return (size_t)lp_desc_numel(d) * lp_dtype_size(d->dtype);
}

static LpStatus prepare_loop(Bodies *b, const LpKernelReq *r,
                             const LpHostOptions *o, LpKernel *k, LpErr *e)
{
    b->count = r->attr[LP_LOOP_COUNT].i;
    b->carried = (int)r->attr[LP_LOOP_CARRIED].i;
    b->scanned = (int)r->attr[LP_LOOP_SCANNED].i;
    b->reverse = r->attr[LP_LOOP_REVERSE].i != 0;
    b->bytes = lp_calloc((size_t)(r->n_in + r->n_out) + 1, sizeof *b->bytes);
    b->stacks = lp_calloc((size_t)r->n_out + 1, sizeof *b->stacks);
    LP_FAIL_IF(!b->bytes || !b->stacks, e, LP_E_MEMORY, "out of memory");
    size_t share = b->count > 0 ? (size_t)b->count : 1;
    for (int i = 0; i < r->n_in; i++) {
        bool stack = i >= b->carried && i < b->carried + b->scanned;
        b->bytes[i] = bytes_of(&r->in[i]) / (stack ? share : 1);
    }
    for (int i = 0; i < r->n_out; i++) {
        b->bytes[r->n_in + i] =
            bytes_of(&r->out[i]) / (i >= b->carried ? share : 1);
        b->stacks[i] = carried_of(r->attr[LP_LOOP_BODY].graph,
                                  (size_t)b->carried, (size_t)i);
    }
    k->run = run_loop;
    return add_code(b, 0, r->attr[LP_LOOP_BODY].graph, (size_t)b->carried,
                    r->numerics, o, k, e);
}

static LpStatus prepare_branch(Bodies *b, const LpKernelReq *r,
                               const LpHostOptions *o, LpKernel *k, LpErr *e)
{
    b->split = r->attr[LP_BRANCH_SPLIT].i;
    b->condition = r->in[0].dtype;
    k->run = run_branch;
    LP_TRY(
        add_code(b, 0, r->attr[LP_BRANCH_THEN].graph, 0, r->numerics, o, k, e));
    return add_code(b, 1, r->attr[LP_BRANCH_OTHERWISE].graph, 0, r->numerics, o,
                    k, e);
}

LpStatus lp_prepare_bodies(const LpKernelReq *r, const LpHostOptions *o,
                           LpKernel *k, LpErr *e)
{
    Bodies *b = lp_calloc(1, sizeof *b);
    LpStatus s;
    LP_FAIL_IF(!b, e, LP_E_MEMORY, "out of memory");
    b->n_in = r->n_in;
    b->n_out = r->n_out;
    k->threads = 1;
    if (r->op == &op_loop)
        s = prepare_loop(b, r, o, k, e);
    else if (r->op == &op_branch)
        s = prepare_branch(b, r, o, k, e);
    else
        s = add_code(b, 0, r->attr[LP_CALL_BODY].graph, 0, r->numerics, o, k,
                     e);
    if (r->op == &op_call)
        k->run = run_call;
    k->state = b;
    k->fini = fini;
    k->work_bytes = work_bytes(b);
    if (s == LP_OK)
        return s;
    fini(k);
    *k = (LpKernel){0};
    return s;
}
