/* The operator of calls of the host's functions; see host_call.h. Its results
 * have the types that its attribute says, as nobody knows the function here. */
#include "src/ops/host_call.h"

#include <string.h>

#include "runtime/cost/cost.h"
#include "src/ir/text_parse.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/ops.h"

/* ---- types of the results ------------------------------------------- */
static LpStatus read_types(LpParser *p, LpInfer *x)
{
    x->n_out = 0;
    do {
        if (x->n_out > 0)
            LP_TRY(lp_parse_sign(p, ','));
        LP_FAIL_IF(x->n_out == LP_MAX_LIST, p->err, LP_E_PARSE,
                   "more than %d results", LP_MAX_LIST);
        LP_TRY(lp_parse_type(p, &x->out[x->n_out++]));
    } while (p->x.t.kind != LP_TOK_END);
    return LP_OK;
}

static LpStatus infer(LpInfer *x)
{
    LpErr why = {0};
    LpParser *p = NULL;
    const char *text = x->attr[LP_HOST_CALL_TYPES].str;
    LpStatus s = lp_parser_new(text, &p, &why);
    if (s == LP_OK)
        s = read_types(p, x);
    lp_parser_free(p);
    LP_FAIL_IF(s != LP_OK, x->err, s == LP_E_PARSE ? LP_E_VALUE : s,
               "host_call '%.80s': types: %.400s", x->attr[LP_HOST_CALL_ID].str,
               why.msg);
    return LP_OK;
}

/* ---- kernel --------------------------------------------------------- */
typedef struct Call {
    LpHostCall c;
    LpDesc *desc; /* operands, results */
    char *id;
} Call;

static void drop(void *state)
{
    Call *s = state;
    lp_free(s->desc);
    lp_free(s->id);
    lp_free(s);
}

LP_KERNEL_RUN(run)
{
    LpHostCall c = ((const Call *)k->state)->c;
    LP_FAIL_IF(!rc->host, e, LP_E_RUNTIME,
               "the program calls the host's function '%.80s', and no function "
               "of that name was given to who runs it",
               c.id);
    c.in_data = in;
    c.out_data = out;
    return rc->host->call(rc->host->ctx, &c, e);
}

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    const char *id = r->attr[LP_HOST_CALL_ID].str;
    size_t n_in = (size_t)r->n_in, n_out = (size_t)r->n_out;
    Call *s = lp_calloc(1, sizeof *s);
    LP_FAIL_IF(!s, e, LP_E_MEMORY, "out of memory");
    s->desc = lp_calloc(n_in + n_out + 1, sizeof *s->desc);
    s->id = lp_strdup(id);
    if (!s->desc || !s->id) {
        drop(s);
        return lp_no_memory(e);
    }
    memcpy(s->desc, r->in, n_in * sizeof *s->desc);
    memcpy(s->desc + n_in, r->out, n_out * sizeof *s->desc);
    s->c = (LpHostCall){.id = s->id,
                        .n_in = r->n_in,
                        .n_out = r->n_out,
                        .in = s->desc,
                        .out = s->desc + n_in};
    lp_kernel_own(s, drop, run, k);
    k->threads = 1;
    return LP_OK;
}

/* ---- cost ----------------------------------------------------------- */
/* Operands go to the host and results come back, over the link that all
 * replicas of a machine share; what the host computes takes no cycles. */
static void cost(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    int64_t bytes = 0;
    for (int i = 0; i < r->n_in; i++)
        bytes += lp_type_bytes(&r->in[i]);
    for (int i = 0; i < r->n_out; i++)
        bytes += lp_type_bytes(&r->out[i]);
    if (r->system)
        lp_cost_add(out, lp_cost_host_io(&x, r->system, bytes, r->rivals));
}

LpOp op_host_call = {
    .flags = LP_OPF_EFFECT,
    .forms = "host_call(Tensor[] tensors, str id, str types) -> Tensor[] @p",
    .infer = infer,
    .no_grad = "what the host's function computes is not known",
    .prepare = prepare,
    .cost = cost,
};
