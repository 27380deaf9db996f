/* Calls of custom operators (include/lupine/custom_op.h), and of their
 * gradients, as two operators of ours: a call is plain data, which names the
 * operator and has its attributes as text (attributes.h). The library's table
 * is asked for types when a call is inferred and when its kernel is prepared.
 * The gradient's operands are the inputs, the outputs and their gradients. */
#include <string.h>

#include "runtime/cost/cost.h"
#include "src/base/checked.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/custom/registry.h"
#include "src/ops/ops.h"
#include "src/ops/rules.h"

/* custom, custom_grad */
enum {
    LP_CUSTOM_DOMAIN,
    LP_CUSTOM_NAME,
    LP_CUSTOM_VERSION,
    LP_CUSTOM_LIBRARY,
    LP_CUSTOM_ATTRIBUTES,
    LP_CUSTOM_WANTED, /* inputs whose gradients are custom_grad's results */
    LP_CUSTOM_N_ATTR
};

#define MAX_OPERANDS (LUPINE_MAX_INPUTS + 2 * LUPINE_MAX_OUTPUTS)
_Static_assert(LUPINE_MAX_RANK == LP_MAX_DIMS,
               "a type of ours is one of theirs");
_Static_assert(LUPINE_MAX_OUTPUTS <= LP_MAX_OUT, "gradients keep all outputs");

typedef lupine_attr Attrs[LUPINE_MAX_ATTRS];

/* ---- types ---------------------------------------------------------- */
static const LpDtype dtypes[] = {[0] = LP_DT_NONE,
                                 [LUPINE_FLOAT64] = LP_F64,
                                 [LUPINE_FLOAT32] = LP_F32,
                                 [LUPINE_FLOAT16] = LP_F16,
                                 [LUPINE_BFLOAT16] = LP_BF16,
                                 [LUPINE_INT64] = LP_I64,
                                 [LUPINE_INT32] = LP_I32,
                                 [LUPINE_INT16] = LP_I16,
                                 [LUPINE_INT8] = LP_I8,
                                 [LUPINE_UINT8] = LP_U8,
                                 [LUPINE_BOOL] = LP_BOOL};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

int32_t lp_custom_dtype(LpDtype dtype)
{
    for (int i = 1; i < N_DTYPES; i++)
        if (dtypes[i] == dtype)
            return i;
    return 0;
}

static lupine_tensor to_theirs(const LpType *t)
{
    lupine_tensor out = {.type.rank = t->ndim, .n = lp_numel(t)};
    out.type.dtype = lp_custom_dtype(t->dtype);
    memcpy(out.type.shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    return out;
}

static LpStatus to_ours(const LpCustomOp *c, int i, const lupine_type *t,
                        LpType *out, LpErr *e)
{
    LP_FAIL_IF(t->dtype < 1 || t->dtype >= N_DTYPES, e, LP_E_POPTORCH,
               "%s: its library gave output %d the dtype %d. Allowed: 1 to %d",
               c->label, i, (int)t->dtype, N_DTYPES - 1);
    LP_FAIL_IF(t->rank < 0 || t->rank > LP_MAX_DIMS, e, LP_E_POPTORCH,
               "%s: its library gave output %d %d dimensions. Allowed: 0 to %d",
               c->label, i, (int)t->rank, LP_MAX_DIMS);
    *out = (LpType){.dtype = dtypes[t->dtype], .ndim = (int8_t)t->rank};
    for (int k = 0; k < t->rank; k++) {
        LP_FAIL_IF(t->shape[k] < 0, e, LP_E_POPTORCH,
                   "%s: its library gave output %d a dimension of %lld",
                   c->label, i, (long long)t->shape[k]);
        out->shape[k] = t->shape[k];
    }
    LpErr large = {0};
    LP_FAIL_IF(lp_shape_check(out, &large) != LP_OK, e, LP_E_POPTORCH,
               "%s: its library gave output %d a shape that cannot be: %s",
               c->label, i, large.msg);
    return LP_OK;
}

/* What a function of the library returned. */
static LpStatus check(const LpCustomOp *c, const char *function, int result,
                      char *error, LpErr *e)
{
    if (result == 0)
        return LP_OK;
    error[LUPINE_ERROR_BYTES - 1] = '\0';
    LP_FAIL_IF(error[0], e, LP_E_POPTORCH, "%s: %s", c->label, error);
    return lp_fail(e, LP_E_POPTORCH, "%s: its function `%s` returned %d",
                   c->label, function, result);
}

static LpStatus output_types(const LpCustomOp *c, const lupine_attr *attr,
                             const LpType *in, LpType *out, LpErr *e)
{
    lupine_tensor t[LUPINE_MAX_INPUTS], r[LUPINE_MAX_OUTPUTS];
    char error[LUPINE_ERROR_BYTES] = "";
    for (int i = 0; i < c->op.n_in; i++)
        t[i] = to_theirs(&in[i]);
    memset(r, 0, sizeof r);
    lupine_call call = {.n_in = c->op.n_in,
                        .n_out = c->op.n_out,
                        .n_attr = c->op.n_attrs,
                        .attr = attr,
                        .in = t,
                        .out = r,
                        .error = error};
    LP_TRY(check(c, "infer", c->op.infer(&call), error, e));
    for (int i = 0; i < c->op.n_out; i++)
        LP_TRY(to_ours(c, i, &r[i].type, &out[i], e));
    return LP_OK;
}

/* ---- the operator that a call names --------------------------------- */
static LpStatus find(const LpAttr *a, const LpCustomOp **out, LpErr *e)
{
    return lp_custom_find(a[LP_CUSTOM_DOMAIN].str, a[LP_CUSTOM_NAME].str,
                          a[LP_CUSTOM_VERSION].i, a[LP_CUSTOM_LIBRARY].str, out,
                          e);
}

static LpStatus check_inputs(const LpCustomOp *c, const LpType *in, int n,
                             int expected, LpErr *e)
{
    LP_FAIL_IF(n != expected, e, LP_E_POPTORCH, "%s takes %d tensors, got %d",
               c->label, expected, n);
    for (int i = 0; i < n; i++)
        LP_FAIL_IF(in[i].dtype == LP_DT_NONE, e, LP_E_POPTORCH,
                   "%s: input %d is no tensor", c->label, i);
    return LP_OK;
}

/* The attributes read and, in x->attr, in the one form of their text. */
static LpStatus read_attrs(const LpCustomOp *c, LpInfer *x, lupine_attr *attr)
{
    LP_TRY(lp_custom_attrs_read(&c->specs, x->attr[LP_CUSTOM_ATTRIBUTES].str,
                                x->arena, attr, x->err));
    char *text = lp_custom_attrs_text(&c->specs, attr, x->arena);
    LP_FAIL_IF(!text, x->err, LP_E_MEMORY, "out of memory");
    x->attr[LP_CUSTOM_ATTRIBUTES] = lp_attr_str(text);
    x->attr[LP_CUSTOM_LIBRARY] = lp_attr_str(c->library);
    return LP_OK;
}

static LpStatus infer(LpInfer *x)
{
    const LpCustomOp *c;
    Attrs attr;
    LP_TRY(find(x->attr, &c, x->err));
    LP_TRY(check_inputs(c, x->in, x->n_in, c->op.n_in, x->err));
    LP_TRY(read_attrs(c, x, attr));
    x->n_out = c->op.n_out;
    return output_types(c, attr, x->in, x->out, x->err);
}

static LpStatus check_wanted(const LpCustomOp *c, const LpAttr *wanted,
                             const LpType *in, LpErr *e)
{
    for (int k = 0; k < wanted->n; k++) {
        int64_t i = wanted->v[k];
        LP_FAIL_IF(i < 0 || i >= c->op.n_in || !lp_is_float(in[i].dtype) ||
                       (k > 0 && i <= wanted->v[k - 1]),
                   e, LP_E_POPTORCH,
                   "%s has no gradient of input %lld: those wanted are its "
                   "floating inputs in order",
                   c->label, (long long)i);
    }
    return LP_OK;
}

static LpStatus infer_grad(LpInfer *x)
{
    const LpCustomOp *c;
    Attrs attr;
    LpType out[LUPINE_MAX_OUTPUTS];
    const LpAttr *wanted = &x->attr[LP_CUSTOM_WANTED];
    LP_TRY(find(x->attr, &c, x->err));
    int n_in = c->op.n_in, n_out = c->op.n_out;
    LP_FAIL_IF(!c->op.grad, x->err, LP_E_POPTORCH, "%s has no gradient",
               c->label);
    LP_TRY(check_inputs(c, x->in, x->n_in, n_in + 2 * n_out, x->err));
    LP_TRY(read_attrs(c, x, attr));
    LP_TRY(output_types(c, attr, x->in, out, x->err));
    for (int i = 0; i < 2 * n_out; i++)
        LP_FAIL_IF(!lp_type_eq(&x->in[n_in + i], &out[i % n_out]), x->err,
                   LP_E_POPTORCH, "%s: operand %d of its gradient is no %s %s",
                   c->label, n_in + i, lp_dtype_name(out[i % n_out].dtype),
                   lp_shape_str(&out[i % n_out]));
    LP_TRY(check_wanted(c, wanted, x->in, x->err));
    x->n_out = wanted->n;
    for (int k = 0; k < wanted->n; k++)
        x->out[k] = x->in[wanted->v[k]];
    return LP_OK;
}

/* ---- gradient ------------------------------------------------------- */
/* Outputs that nobody differentiates have zeros. */
static void grad(LpGrad *g)
{
    const LpCustomOp *c;
    LpAttr attr[LP_CUSTOM_N_ATTR];
    LpVal in[MAX_OPERANDS], out[LUPINE_MAX_INPUTS];
    int64_t wanted[LUPINE_MAX_INPUTS];
    int n = 0, n_wanted = 0;
    if (find(g->attr, &c, g->b->err) != LP_OK)
        return;
    for (int i = 0; i < g->n_in; i++) {
        in[n++] = g->in[i];
        if (g->need[i])
            wanted[n_wanted++] = i;
    }
    for (int i = 0; i < g->n_out; i++)
        in[n++] = g->out[i];
    for (int i = 0; i < g->n_out && !lp_failed(g->b); i++)
        in[n++] = g->dout[i] != LP_NOVAL
                      ? g->dout[i]
                      : lp_full(g->b, lp_type(g->b, g->out[i]), lp_float(0));
    memcpy(attr, g->attr, LP_CUSTOM_WANTED * sizeof *attr);
    attr[LP_CUSTOM_WANTED] = lp_attr_ints(wanted, n_wanted);
    if (lp_failed(g->b) ||
        lp_emit_n(g->b, LP_OP_custom_grad, in, n, attr, out) != n_wanted)
        return;
    for (int k = 0; k < n_wanted; k++)
        g->din[wanted[k]] = out[k];
}

static void grad_of_grad(LpGrad *g)
{
    lp_fail(g->b->err, LP_E_NOT_IMPLEMENTED,
            "%s.%s: a custom operator has one function for its gradient, and "
            "none for the gradient of that",
            g->attr[LP_CUSTOM_DOMAIN].str, g->attr[LP_CUSTOM_NAME].str);
}

/* ---- kernels -------------------------------------------------------- */
/* Of a call, or of a gradient's. Operands with gaps are copied to scratch. */
typedef struct Call {
    const LpCustomOp *c;
    LpArena mem;
    Attrs attr;
    LpDesc *in;
    int n_in, n_out;
    lupine_tensor operand[MAX_OPERANDS], result[LUPINE_MAX_INPUTS];
    size_t copy[MAX_OPERANDS]; /* 1 + where in scratch; 0: it has no gaps */
    int64_t wanted[LUPINE_MAX_INPUTS];
    bool grad;
} Call;

static void drop(void *state)
{
    Call *s = state;
    lp_arena_fini(&s->mem);
    lp_free(s);
}

static void gather(const Call *s, void *const *in, char *work, lupine_tensor *t)
{
    for (int i = 0; i < s->n_in; i++) {
        t[i].data = in[i];
        if (!s->copy[i])
            continue;
        LpDesc plain = lp_desc_plain(&s->in[i], s->in[i].dtype);
        t[i].data = work + s->copy[i] - 1;
        lp_copy_strided(&s->in[i], in[i], &plain, t[i].data);
    }
}

LP_KERNEL_RUN(run)
{
    const Call *s = k->state;
    const LpCustomOp *c = s->c;
    lupine_tensor t[MAX_OPERANDS], r[LUPINE_MAX_INPUTS];
    char error[LUPINE_ERROR_BYTES] = "";
    memcpy(t, s->operand, sizeof t);
    memcpy(r, s->result, sizeof r);
    gather(s, in, work, t);
    for (int i = 0; i < s->n_out; i++)
        r[s->wanted[i]].data = out[i];
    lupine_call call = {.n_in = c->op.n_in,
                        .n_out = c->op.n_out,
                        .n_attr = c->op.n_attrs,
                        .attr = s->attr,
                        .in = t,
                        .out = s->grad ? t + c->op.n_in : r,
                        .error = error};
    if (!s->grad)
        return check(c, "run", c->op.run(&call), error, e);
    call.out_grad = t + c->op.n_in + c->op.n_out;
    call.in_grad = r;
    return check(c, "grad", c->op.grad(&call), error, e);
}

/* The types of a request are the kernel's own: rounding at random asks for
 * float32 where the call has halves. */
static LpStatus check_types(const Call *s, const LpKernelReq *r, LpErr *e)
{
    LpType in[LUPINE_MAX_INPUTS], out[LUPINE_MAX_OUTPUTS];
    for (int i = 0; i < s->c->op.n_in; i++)
        in[i] = lp_type_of_desc(&r->in[i]);
    LP_TRY(output_types(s->c, s->attr, in, out, e));
    const LpDesc *have = s->grad ? r->in + s->c->op.n_in : r->out;
    for (int i = 0; i < s->c->op.n_out; i++) {
        LpType t = lp_type_of_desc(&have[i]);
        LP_FAIL_IF(!lp_type_eq(&t, &out[i]), e, LP_E_POPTORCH,
                   "%s: its library gives output %d the type %s %s, where the "
                   "program has %s %s",
                   s->c->label, i, lp_dtype_name(out[i].dtype),
                   lp_shape_str(&out[i]), lp_dtype_name(t.dtype),
                   lp_shape_str(&t));
    }
    return LP_OK;
}

static LpStatus describe(Call *s, const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    s->n_in = r->n_in;
    s->n_out = r->n_out;
    s->in = lp_arena_memdup(&s->mem, r->in, (size_t)r->n_in * sizeof *s->in);
    LP_FAIL_IF(!s->in && r->n_in, e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < r->n_in; i++) {
        LpType t = lp_type_of_desc(&r->in[i]);
        s->operand[i] = to_theirs(&t);
        if (lp_desc_contiguous(&r->in[i]))
            continue;
        s->copy[i] = 1 + k->work_bytes;
        k->work_bytes += ((size_t)lp_type_bytes(&t) + 63) & ~(size_t)63;
    }
    for (int i = 0; i < s->c->op.n_in && s->grad; i++)
        s->result[i] = s->operand[i]; /* data is set for those wanted */
    for (int i = 0; i < r->n_out; i++) {
        LpType t = lp_type_of_desc(&r->out[i]);
        s->wanted[i] = s->grad ? r->attr[LP_CUSTOM_WANTED].v[i] : i;
        s->result[s->wanted[i]] = to_theirs(&t);
    }
    return LP_OK;
}

static LpStatus fill(Call *s, const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    LP_TRY(find(r->attr, &s->c, e));
    s->grad = r->op->id == LP_OP_custom_grad;
    LP_TRY(lp_custom_attrs_read(&s->c->specs, r->attr[LP_CUSTOM_ATTRIBUTES].str,
                                &s->mem, s->attr, e));
    LP_TRY(check_types(s, r, e));
    return describe(s, r, k, e);
}

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Call *s = lp_calloc(1, sizeof *s);
    LP_FAIL_IF(!s, e, LP_E_MEMORY, "out of memory");
    k->work_bytes = 0;
    LpStatus st = fill(s, r, k, e);
    if (st != LP_OK) {
        drop(s);
        return st;
    }
    lp_kernel_own(s, drop, run, k);
    k->threads = 1;
    return LP_OK;
}

/* ---- cost ----------------------------------------------------------- */
/* Of one binary operation for each result. */
static void elementwise(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    for (int i = 0; i < r->n_out; i++)
        lp_cost_add(out, lp_cost_elementwise(&x, LP_EW_mul, LP_EW_BINARY,
                                             lp_cost_type(r->out[i].dtype),
                                             lp_numel(&r->out[i])));
}

/* Figures of somebody else's, in bounds that sums bear. */
static int64_t bounded(int64_t n)
{
    return lp_max(0, lp_min(n, INT64_C(1) << 50));
}

static void ask_cost(const LpCustomOp *c, const LpCostReq *r,
                     const lupine_attr *attr, LpCost *out)
{
    lupine_type t[MAX_OPERANDS + LUPINE_MAX_OUTPUTS], *in = t;
    bool grad = r->op->id == LP_OP_custom_grad;
    for (int i = 0; i < r->n_in; i++)
        t[i] = to_theirs(&r->in[i]).type;
    lupine_type *results = grad ? t + c->op.n_in : t + r->n_in;
    for (int i = 0; i < r->n_out && !grad; i++)
        results[i] = to_theirs(&r->out[i]).type;
    lupine_cost q = {.n_in = c->op.n_in,
                     .n_out = c->op.n_out,
                     .n_attr = c->op.n_attrs,
                     .attr = attr,
                     .in = in,
                     .out = results,
                     .gradient = grad,
                     .tiles = r->tiles};
    c->op.cost(&q);
    lp_cost_add(out,
                lp_cost_custom(bounded(q.cycles), bounded(q.bytes), r->tiles));
}

static void cost(const LpCostReq *r, LpCost *out)
{
    const LpCustomOp *c;
    LpErr e = {0};
    LpArena mem = {0};
    Attrs attr;
    bool asks =
        find(r->attr, &c, &e) == LP_OK && c->op.cost &&
        lp_custom_attrs_read(&c->specs, r->attr[LP_CUSTOM_ATTRIBUTES].str, &mem,
                             attr, &e) == LP_OK;
    if (asks)
        ask_cost(c, r, attr, out);
    else
        elementwise(r, out);
    lp_arena_fini(&mem);
}

/* ---- records -------------------------------------------------------- */
#define CALL "str domain, str name, int version, str library, str attributes"

LpOp op_custom = {
    .title = 1 + LP_CUSTOM_NAME,
    .forms = "custom(Tensor[] inputs, " CALL ") -> Tensor[] @p",
    .infer = infer,
    .grad = grad,
    .grad_in = 1u << 31,
    .grad_out = 0xff,
    .prepare = prepare,
    .cost = cost,
};

LpOp op_custom_grad = {
    .forms =
        "custom_grad(Tensor[] tensors, " CALL ", int[] wanted) -> Tensor[] @p",
    .infer = infer_grad,
    .grad = grad_of_grad,
    .prepare = prepare,
    .cost = cost,
};
