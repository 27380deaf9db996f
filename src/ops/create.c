/* Operators that make tensors of numbers known when they are called. Sizes,
 * type and values are attributes: nothing is read. dtype None is the default
 * type of the numbers given; device and requires_grad are the bindings'
 * business. */

#include "src/ops/kernel/copy.h"
#include "src/ops/view.h"

#define NO_OPERAND "it has no operand"

/* Result 0 from a list of sizes (attribute i) and a type. */
static LpStatus sized(LpInfer *x, int i, LpDtype t)
{
    const LpAttr *a = &x->attr[i];
    LP_FAIL_IF(a->n > LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "%s: %d dimensions, at most %d are supported", x->op->name, a->n,
               LP_MAX_DIMS);
    x->out[0] = (LpType){.dtype = t};
    lp_set_dims(&x->out[0], a->v, a->n);
    return lp_shape_check(&x->out[0], x->err);
}

/* The dtype attribute i, or `t` in its place. */
static LpDtype dtype_or(LpInfer *x, int i, LpDtype t)
{
    if (lp_attr_none(&x->attr[i]))
        x->attr[i] = lp_attr_dtype(t);
    return (LpDtype)x->attr[i].i;
}

static LpDtype dtype_of_kind(LpKind k)
{
    return k == LP_KIND_BOOL  ? LP_BOOL
           : k == LP_KIND_INT ? LP_I64
                              : lp_default_dtype();
}

/* ---- full ----------------------------------------------------------------
 */
static LpStatus infer_full(LpInfer *x)
{
    return sized(x, 0, dtype_or(x, 2, dtype_of_kind(x->attr[1].s.kind)));
}

static LpStatus prepare_full(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    return lp_fill_kernel(&r->out[0], r->attr[1].s, r->threads, k);
}

LpOp op_full = {
    .forms = "full(int[] size, Scalar fill_value, *, ScalarType? dtype=None) "
             "-> Tensor @f",
    .infer = infer_full,
    .no_grad = NO_OPERAND,
    .prepare = prepare_full,
};

LpVal lp_full(LpBuilder *b, const LpType *type, LpScalar s)
{
    LpAttr a[] = {lp_attr_ints(type->shape, type->ndim), lp_attr_scalar(s),
                  lp_attr_dtype(type->dtype)};
    return lp_emit(b, LP_OP_full, NULL, 0, a);
}
