/* Operators that make tensors of numbers known when they are called. Sizes,
 * type and values are attributes: nothing is read. dtype None is the default
 * type of the numbers given; device and requires_grad are the bindings'
 * business. */

#include <math.h>

#include "src/base/checked.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/hooks.h"
#include "src/ops/infer.h"
#include "src/ops/layout_cost.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define MAKER(...) LP_PRIMITIVE(__VA_ARGS__, .no_grad = "it has no operand")

static LpDtype dtype_of_kind(LpKind k)
{
    return k == LP_KIND_BOOL  ? LP_BOOL
           : k == LP_KIND_INT ? LP_I64
                              : lp_default_dtype();
}

static LpStatus held(LpScalar v, LpDtype t, LpErr *e)
{
    LP_FAIL_IF(!lp_scalar_fits(v, t), e, LP_E_RUNTIME,
               "value %g cannot be converted to type %s without overflow",
               lp_scalar_f(v), lp_dtype_name(t));
    return LP_OK;
}

/* ---- full ---------------------------------------------------------------- */
static LpStatus infer_full(LpInfer *x)
{
    LpScalar v = x->attr[LP_FULL_FILL_VALUE].s;
    LpDtype t = lp_infer_dtype(x, LP_FULL_DTYPE, dtype_of_kind(v.kind));
    LP_TRY(held(v, t, x->err));
    return lp_infer_sized(x, LP_FULL_SIZE, t);
}

static LpStatus prepare_full(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    return lp_fill_kernel(&r->out[0], r->attr[LP_FULL_FILL_VALUE].s, r->threads,
                          k);
}

MAKER(full,
      "full(int[] size, Scalar fill_value, *, ScalarType? dtype=None) "
      "-> Tensor @for\n"
      "zeros(int[] size, *, ScalarType? dtype=None) -> Tensor @for "
      ";fill_value=0.0\n"
      "ones(int[] size, *, ScalarType? dtype=None) -> Tensor @for "
      ";fill_value=1.0",
      infer_full, prepare_full, lp_rule_fill)

LpVal lp_full(LpBuilder *b, const LpType *type, LpScalar s)
{
    LpAttr a[] = {lp_attr_ints(type->shape, type->ndim), lp_attr_scalar(s),
                  lp_attr_dtype(type->dtype)};
    return lp_emit(b, LP_OP_full, NULL, 0, a);
}

/* ---- empty --------------------------------------------------------------- */
static LpStatus infer_empty(LpInfer *x)
{
    return lp_infer_sized(x, 0, lp_infer_dtype(x, 1, lp_default_dtype()));
}

MAKER(empty, "empty(int[] size, *, ScalarType? dtype=None) -> Tensor @for",
      infer_empty, lp_empty_prepare, lp_rule_view)

/* ---- like another tensor: sizes, or the type alone ----------------------- */
static LpVal full_of(LpBuilder *b, LpType t, const LpAttr *dtype, LpScalar s)
{
    if (!lp_attr_none(dtype))
        t.dtype = (LpDtype)dtype->i;
    return lp_full(b, &t, s);
}

static LpVal empty_of(LpBuilder *b, LpType t, const LpAttr *dtype)
{
    LpAttr a[] = {lp_attr_ints(t.shape, t.ndim),
                  lp_attr_none(dtype) ? lp_attr_dtype(t.dtype) : *dtype};
    return lp_emit(b, LP_OP_empty, NULL, 0, a);
}

static LpType new_type(LpBuilder *b, LpVal self, const LpAttr *size)
{
    LpType t = lp_type_of(b, self);
    if (size->n > LP_MAX_DIMS)
        lp_fail(b->err, LP_E_RUNTIME,
                "%d dimensions are given, at most %d are supported", size->n,
                LP_MAX_DIMS);
    else
        lp_set_dims(&t, size->v, size->n);
    return t;
}

LP_FORMULA(full_like,
           "full_like(Tensor self, Scalar fill_value, *, ScalarType? "
           "dtype=None) -> Tensor @fr\n"
           "zeros_like(Tensor self, *, ScalarType? dtype=None) -> Tensor @fr "
           ";fill_value=0\n"
           "ones_like(Tensor self, *, ScalarType? dtype=None) -> Tensor @fr "
           ";fill_value=1")
{
    return full_of(b, *lp_type(b, in[0]), &attr[1], attr[0].s);
}

LP_FORMULA(empty_like,
           "empty_like(Tensor self, *, ScalarType? dtype=None) -> Tensor @fr")
{
    return empty_of(b, lp_type_of(b, in[0]), &attr[0]);
}

LP_FORMULA(new_full,
           "new_full(Tensor self, int[] size, Scalar fill_value, *, "
           "ScalarType? dtype=None) -> Tensor @mr\n"
           "new_zeros(Tensor self, int[] size, *, ScalarType? dtype=None) -> "
           "Tensor @mr ;fill_value=0\n"
           "new_ones(Tensor self, int[] size, *, ScalarType? dtype=None) -> "
           "Tensor @mr ;fill_value=1")
{
    return full_of(b, new_type(b, in[0], &attr[0]), &attr[2], attr[1].s);
}

LP_FORMULA(new_empty,
           "new_empty(Tensor self, int[] size, *, ScalarType? dtype=None) -> "
           "Tensor @mr")
{
    return empty_of(b, new_type(b, in[0], &attr[0]), &attr[1]);
}

/* Without a dtype the default float type, whatever the number. */
LP_FORMULA(scalar_tensor,
           "scalar_tensor(Scalar s, *, ScalarType? dtype=None) -> Tensor @fr")
{
    LpType t = {.dtype = lp_default_dtype()};
    return full_of(b, t, &attr[1], attr[0].s);
}

/* ---- fill, zero ---------------------------------------------------------- */
/* The operand's sizes and type, filled with one value; its elements are not
 * read. */
static LpStatus infer_fill(LpInfer *x)
{
    LP_FAIL_IF(x->n_in > 1 && x->in[1].ndim != 0, x->err, LP_E_RUNTIME,
               "fill_ only supports 0-dimension value tensor but got tensor "
               "with %d dimensions.",
               x->in[1].ndim);
    if (x->n_in > 1 && x->in[1].wrapped)
        LP_TRY(held(x->num[1], x->in[0].dtype, x->err));
    x->out[0] = x->in[0];
    x->out[0].wrapped = false;
    return LP_OK;
}

static void grad_fill(LpGrad *g)
{
    if (g->need[1])
        g->din[1] = lp_sum(g->b, g->dout[0], NULL, 0, false);
}

LP_PRIMITIVE(fill, "fill(Tensor self, Value value) -> Tensor @fmi", infer_fill,
             lp_fill_prepare, lp_rule_fill, .flags = LP_OPF_INPLACE_OK,
             .grad = grad_fill)

static void grad_zero(LpGrad *g)
{
    (void)g; /* a constant */
}

LP_PRIMITIVE(zero, "zero(Tensor self) -> Tensor @fi", infer_fill,
             lp_fill_prepare, lp_rule_fill, .flags = LP_OPF_INPLACE_OK,
             .grad = grad_zero)

/* ---- arange -------------------------------------------------------------- */
static LpStatus infer_arange(LpInfer *x)
{
    LpAttr *a = x->attr;
    bool real = false;
    for (int i = LP_ARANGE_START; i <= LP_ARANGE_STEP; i++)
        real |= a[i].s.kind == LP_KIND_FLOAT;
    LpDtype t =
        lp_infer_dtype(x, LP_ARANGE_DTYPE, real ? lp_default_dtype() : LP_I64);
    double start = lp_scalar_f(a[LP_ARANGE_START].s),
           end = lp_scalar_f(a[LP_ARANGE_END].s);
    double step = lp_scalar_f(a[LP_ARANGE_STEP].s), n;
    LP_FAIL_IF(step == 0, x->err, LP_E_RUNTIME, "step must be nonzero");
    LP_FAIL_IF(!isfinite(start) || !isfinite(end), x->err, LP_E_RUNTIME,
               "unsupported range: %g -> %g", start, end);
    LP_FAIL_IF((step > 0 && end < start) || (step < 0 && end > start), x->err,
               LP_E_RUNTIME,
               "upper bound and lower bound inconsistent with step sign: %g -> "
               "%g by %g",
               start, end, step);
    int64_t count, diff;
    if (!real && lp_dtype_kind(t) != LP_KIND_FLOAT) {
        LP_FAIL_IF(__builtin_sub_overflow(a[LP_ARANGE_END].s.i,
                                          a[LP_ARANGE_START].s.i, &diff),
                   x->err, LP_E_RUNTIME, "arange: the range overflows");
        count =
            diff / a[LP_ARANGE_STEP].s.i + (diff % a[LP_ARANGE_STEP].s.i != 0);
    } else {
        n = ceil((end - start) / step);
        LP_FAIL_IF(!(n < 0x1p62), x->err, LP_E_RUNTIME,
                   "invalid size, possible overflow?");
        count = (int64_t)n;
    }
    x->out[0] = (LpType){.dtype = t, .ndim = 1, .shape = {count}};
    return LP_OK;
}

MAKER(arange,
      "arange(Scalar start, Scalar end, Scalar step=1, *, ScalarType? "
      "dtype=None) -> Tensor @for\n"
      "arange.end(Scalar end, *, ScalarType? dtype=None) -> Tensor @for "
      ";start=0",
      infer_arange, lp_arange_prepare, lp_rule_fill)

/* ---- linspace, logspace -------------------------------------------------- */
static LpStatus infer_linspace(LpInfer *x)
{
    int64_t n = x->attr[LP_SPACE_STEPS].i;
    LP_FAIL_IF(n < 0, x->err, LP_E_RUNTIME,
               "number of steps must be non-negative, got %lld", (long long)n);
    LpDtype t = lp_infer_dtype(x, x->op->n_attr - 1, lp_default_dtype());
    x->out[0] = (LpType){.dtype = t, .ndim = 1, .shape = {n}};
    return LP_OK;
}

MAKER(linspace,
      "linspace(Scalar start, Scalar end, int steps, *, ScalarType? "
      "dtype=None) -> Tensor @for",
      infer_linspace, lp_linspace_prepare, lp_rule_fill)

MAKER(logspace,
      "logspace(Scalar start, Scalar end, int steps, float base=10.0, "
      "*, ScalarType? dtype=None) -> Tensor @for",
      infer_linspace, lp_linspace_prepare, lp_rule_fill)

/* ---- eye ----------------------------------------------------------------- */
static LpStatus infer_eye(LpInfer *x)
{
    LpAttr *a = x->attr;
    if (lp_attr_none(&a[1]))
        a[1] = a[0];
    for (int i = 0; i < 2; i++)
        LP_FAIL_IF(a[i].i < 0, x->err, LP_E_RUNTIME,
                   "%c must be greater or equal to 0, got %lld",
                   i == 0 ? 'n' : 'm', (long long)a[i].i);
    LpDtype t = lp_infer_dtype(x, 2, lp_default_dtype());
    x->out[0] = (LpType){.dtype = t, .ndim = 2, .shape = {a[0].i, a[1].i}};
    return LP_OK;
}

MAKER(eye, "eye(int n, int? m=None, *, ScalarType? dtype=None) -> Tensor @for",
      infer_eye, lp_eye_prepare, lp_rule_fill)

/* ---- tril_indices, triu_indices ------------------------------------------ */
/* Rows of [2, n]: row and column of every element of the triangle, row by row.
 */
static LpStatus infer_tri_indices(LpInfer *x)
{
    LpAttr *a = x->attr;
    bool lower = x->op == &op_tril_indices;
    for (int i = 0; i < 2; i++)
        LP_FAIL_IF(a[i].i < 0 || a[i].i > INT32_MAX, x->err, LP_E_RUNTIME,
                   "%s: %s must be in [0, 2^31), got %lld", x->op->name,
                   i == 0 ? "row" : "col", (long long)a[i].i);
    LpDtype t = lp_infer_dtype(x, LP_TRI_INDICES_DTYPE, LP_I64);
    LP_FAIL_IF(t != LP_I64 && t != LP_I32, x->err, LP_E_RUNTIME,
               "%s: dtype must be int64 or int32, got %s", x->op->name,
               lp_dtype_name(t));
    int64_t n = 0;
    for (int64_t r = 0; r < a[LP_TRI_INDICES_ROW].i; r++)
        n += lp_tri_columns(lower, r, a[LP_TRI_INDICES_COL].i,
                            a[LP_TRI_INDICES_OFFSET].i);
    x->out[0] = (LpType){.dtype = t, .ndim = 2, .shape = {2, n}};
    return LP_OK;
}

#define TRIANGLE(id)                                                           \
    MAKER(id,                                                                  \
          #id "(int row, int col, int offset=0, *, ScalarType? "               \
              "dtype=None) -> Tensor @fr",                                     \
          infer_tri_indices, lp_tri_indices_prepare, lp_rule_fill)
TRIANGLE(tril_indices)
TRIANGLE(triu_indices)
