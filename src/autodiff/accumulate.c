/* The first gradient that reaches a tensor is kept without a copy and marked
 * as not owned; the second one then makes a new sum, and those that are still
 * marked when the backward pass is over become the tensor's own. */
#include "src/autodiff/accumulate.h"

#include "src/autodiff/op_call.h"
#include "src/base/mem.h"
#include "src/ops/ops.h"

LpStatus lp_grad_sum(LpTensor **sum, LpTensor *g, LpErr *e)
{
    if (!*sum) {
        *sum = lp_tensor_retain(g);
        return LP_OK;
    }
    LpArg in[2] = {{.t = *sum}, {.t = g}};
    LpAttr alpha = lp_attr_scalar(lp_int(1));
    LpTensor *r = NULL;
    int n;
    LP_TRY(lp_op_call(&op_add, in, 2, &alpha, &r, &n, e));
    lp_tensor_release(*sum);
    *sum = r;
    return LP_OK;
}

static bool is_unowned(const LpGrads *a, const LpTensor *t)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->unowned[i] == t)
            return true;
    return false;
}

LpStatus lp_grads_add(LpGrads *a, LpTensor *t, LpTensor *g, LpErr *e)
{
    LpTensorMeta *m = lp_meta(t, e);
    int n;
    if (!m)
        return LP_E_MEMORY;
    if (!m->grad && (a->create || g->st->flags & LP_ST_TRACED))
        return lp_op_call(&op_clone, &(LpArg){.t = g}, 1, NULL, &m->grad, &n,
                          e);
    if (!m->grad) {
        LP_FAIL_IF(!LP_GROW(a->unowned, a->cap, a->n), e, LP_E_MEMORY,
                   "out of memory");
        a->unowned[a->n++] = lp_tensor_retain(t);
        m->grad = lp_tensor_retain(g);
        return LP_OK;
    }
    if (a->create || is_unowned(a, t))
        return lp_grad_sum(&m->grad, g, e);
    LpArg in[2] = {{.t = m->grad}, {.t = g}};
    LpAttr alpha = lp_attr_scalar(lp_int(1));
    return lp_op_call_inplace(&op_add, in, 2, &alpha, e);
}

/* Nobody else holds the memory of g, which has no part beside. */
static bool exclusive(const LpTensor *g)
{
    const LpTensor *base = g->base;
    size_t bytes = (size_t)lp_tensor_numel(g) * lp_dtype_size(g->dtype);
    return g->refs == 1 && g->st->refs == (base ? 2 : 1) &&
           (!base || base->refs == 1) && g->st->bytes == bytes &&
           lp_tensor_contiguous(g);
}

static LpStatus own(LpTensor **grad, LpErr *e)
{
    LpTensor *g = *grad;
    LpType type = lp_tensor_type(g);
    bool mine = exclusive(g);
    int n;
    if (mine && !g->base)
        return LP_OK;
    *grad = NULL;
    LpStatus s =
        mine ? lp_tensor_over(g->st, &type, g->strides, g->offset, grad, e)
             : lp_op_call(&op_clone, &(LpArg){.t = g}, 1, NULL, grad, &n, e);
    lp_tensor_release(g);
    return s;
}

LpStatus lp_grads_settle(LpGrads *a, LpStatus s, LpErr *err)
{
    while (a->n) {
        LpErr e = {0};
        LpTensor *t = a->unowned[--a->n];
        if (t->meta->grad && own(&t->meta->grad, &e) != LP_OK && s == LP_OK) {
            *err = e;
            s = e.code;
        }
        lp_tensor_release(t);
    }
    return s;
}

void lp_grads_fini(LpGrads *a)
{
    lp_free(a->unowned);
    a->unowned = NULL;
    a->cap = 0;
}
