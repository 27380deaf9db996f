/* Filling masked places, windows at a position known at run time, classes as
 * rows of ones, membership. */
#include "src/kernel/copy/hooks.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/index/index.h"
#include "src/ops/infer.h"
#include "src/ops/layout_cost.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define LL(x) ((long long)(x))

/* ---- masked_scatter ------------------------------------------------------ */
/* self with the places where the mask is set filled by the source's elements
 * in order; exact: of which there must be as many. Operands of one shape; the
 * composite below broadcasts. */
static LpStatus infer_masked_scatter(LpInfer *x)
{
    LP_FAIL_IF(x->in[1].dtype != LP_BOOL, x->err, LP_E_RUNTIME,
               "masked_scatter_ only supports boolean masks, but got mask with "
               "dtype %s",
               lp_dtype_name(x->in[1].dtype));
    LP_FAIL_IF(x->in[0].dtype != x->in[2].dtype, x->err, LP_E_RUNTIME,
               "masked_scatter: expected self and source to have same dtypes "
               "but got %s and %s",
               lp_dtype_name(x->in[0].dtype), lp_dtype_name(x->in[2].dtype));
    LP_FAIL_IF(!lp_shape_eq(&x->in[0], &x->in[1]), x->err, LP_E_RUNTIME,
               "%s: self and mask must have the same shape, got %s and %s",
               x->op->name, lp_shape_str(&x->in[0]), lp_shape_str(&x->in[1]));
    x->out[0] = x->in[0];
    return LP_OK;
}

static void grad_masked_scatter(LpGrad *g)
{
    if (g->need[0])
        g->din[0] = lp_where(g->b, g->in[1], lp_immf(g->b, 0), g->dout[0]);
    if (g->need[2]) {
        LpType t = lp_type_of(g->b, g->in[2]);
        LpAttr a = lp_attr_ints(t.shape, t.ndim);
        g->din[2] = lp_emit(g->b, LP_OP_masked_pack,
                            (LpVal[]){g->dout[0], g->in[1]}, 2, &a);
    }
}

LP_PRIMITIVE(masked_unpack,
             "masked_unpack(Tensor self, Tensor mask, Tensor source, bool "
             "exact=False) -> Tensor @p",
             infer_masked_scatter, lp_masked_unpack_prepare, lp_rule_select,
             .flags = LP_OPF_INPLACE_OK, .grad = grad_masked_scatter,
             .grad_in = 1 << 1)

/* The masked elements in order, in the first places of a tensor of `sizes`;
 * zeros after them. */
static LpStatus infer_masked_pack(LpInfer *x)
{
    LP_FAIL_IF(x->attr[0].n > LP_MAX_DIMS || x->in[1].dtype != LP_BOOL ||
                   !lp_shape_eq(&x->in[0], &x->in[1]),
               x->err, LP_E_RUNTIME,
               "masked_pack: mask must be bool of self's shape %s and sizes at "
               "most %d numbers, got %s of shape %s and %d",
               lp_shape_str(&x->in[0]), LP_MAX_DIMS,
               lp_dtype_name(x->in[1].dtype), lp_shape_str(&x->in[1]),
               x->attr[0].n);
    x->out[0] = (LpType){.dtype = x->in[0].dtype};
    lp_set_dims(&x->out[0], x->attr[0].v, x->attr[0].n);
    return LP_OK;
}

static void grad_masked_pack(LpGrad *g)
{
    LpVal z = lp_zeros_as(g->b, g->in[0], lp_dtype_of(g->b, g->dout[0]));
    LpAttr exact = lp_attr_bool(false);
    g->din[0] = lp_emit(g->b, LP_OP_masked_unpack,
                        (LpVal[]){z, g->in[1], g->dout[0]}, 3, &exact);
}

LP_PRIMITIVE(masked_pack,
             "masked_pack(Tensor self, Tensor mask, int[] sizes) -> Tensor @p",
             infer_masked_pack, lp_masked_pack_prepare, lp_rule_copy,
             .grad = grad_masked_pack, .grad_in = 1 << 1)

LP_FORMULA(masked_scatter,
           "masked_scatter(Tensor self, Tensor mask, Tensor source) -> "
           "Tensor @fmi")
{
    LpType both = lp_type_of(b, in[0]);
    LpAttr exact = lp_attr_bool(false);
    if (lp_broadcast(&both, lp_type(b, in[1]), b->err) != LP_OK)
        return LP_NOVAL;
    return lp_emit(b, LP_OP_masked_unpack,
                   (LpVal[]){lp_expand_as(b, in[0], &both),
                             lp_expand_as(b, in[1], &both), in[2]},
                   3, &exact);
}

/* ---- dynamic_slice, dynamic_update --------------------------------------- */
/* Elements start, start + step, … of a window of `size` along dim; positions
 * beyond the dimension's end go on at its beginning. */
static LpStatus check_window(LpInfer *x, int start, int64_t dim, int64_t size)
{
    LpDtype t = x->in[start].dtype;
    LP_FAIL_IF(lp_dtype_kind(t) != LP_KIND_INT, x->err, LP_E_POPTORCH,
               "%s: start must be an integer tensor, got %s", x->op->name,
               lp_dtype_name(t));
    LP_FAIL_IF(lp_numel(&x->in[start]) != 1, x->err, LP_E_POPTORCH,
               "%s: start must have one element, got %lld", x->op->name,
               LL(lp_numel(&x->in[start])));
    LP_FAIL_IF(size == 0, x->err, LP_E_POPTORCH,
               "%s: the start and end of a slice must be different",
               x->op->name);
    LP_FAIL_IF(size < 0, x->err, LP_E_POPTORCH,
               "%s: size must be positive, got %lld", x->op->name, LL(size));
    LP_FAIL_IF(x->in[0].ndim == 0 || size > x->in[0].shape[dim], x->err,
               LP_E_POPTORCH, "%s: size %lld is larger than dimension %lld",
               x->op->name, LL(size), LL(dim));
    return LP_OK;
}

static LpStatus infer_dynamic_slice(LpInfer *x)
{
    const LpAttr *a = x->attr;
    LP_TRY(lp_wrap_dim(&x->attr[LP_DYNAMIC_DIM].i, x->in[0].ndim, x->err));
    int64_t dim = a[LP_DYNAMIC_DIM].i, size = a[LP_DYNAMIC_SIZE].i;
    int64_t step = a[LP_DYNAMIC_STEP].i;
    LP_TRY(check_window(x, 1, dim, size));
    LP_FAIL_IF(step < 1, x->err, LP_E_POPTORCH,
               "dynamic_slice: step must be at least 1, got %lld", LL(step));
    int64_t n = x->in[0].shape[dim];
    LP_FAIL_IF(n % size != 0, x->err, LP_E_POPTORCH,
               "dynamic_slice: the size of the slice (%lld) must be a factor "
               "of the dimension's size (%lld)",
               LL(size), LL(n));
    x->out[0] = x->in[0];
    x->out[0].shape[dim] = (size - 1) / step + 1;
    return LP_OK;
}

static void window_cost(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    LpCostType t = lp_cost_type(r->in[0].dtype);
    int64_t n = lp_numel(&r->in[0]),
            rows = r->in[0].shape[r->attr[LP_DYNAMIC_DIM].i];
    lp_cost_add(out, lp_cost_dynamic_slice(&x, t, rows, rows > 0 ? n / rows : 0,
                                           r->attr[LP_DYNAMIC_SIZE].i));
}

LP_PRIMITIVE(dynamic_slice,
             "dynamic_slice(Tensor self, int dim, Tensor start, int size, int "
             "step=1) -> Tensor @p",
             infer_dynamic_slice, lp_dynamic_slice_prepare, window_cost,
             .no_grad = "dynamic_slice is not supported in training")

static LpStatus infer_dynamic_update(LpInfer *x)
{
    LpAttr *a = x->attr;
    LP_FAIL_IF(x->in[0].ndim != x->in[1].ndim, x->err, LP_E_POPTORCH,
               "dynamic_update: input and src must have the same number of "
               "dimensions: (%d) vs (%d)",
               x->in[0].ndim, x->in[1].ndim);
    LP_FAIL_IF(x->in[0].dtype != x->in[1].dtype, x->err, LP_E_POPTORCH,
               "dynamic_update: input and src must have the same dtype, got %s "
               "and %s",
               lp_dtype_name(x->in[0].dtype), lp_dtype_name(x->in[1].dtype));
    LP_TRY(lp_wrap_dim(&a[LP_DYNAMIC_DIM].i, x->in[0].ndim, x->err));
    LP_TRY(check_window(x, 2, a[LP_DYNAMIC_DIM].i, a[LP_DYNAMIC_SIZE].i));
    LpType want = x->in[0];
    want.shape[a[LP_DYNAMIC_DIM].i] = a[LP_DYNAMIC_SIZE].i;
    LP_FAIL_IF(!lp_shape_eq(&want, &x->in[1]), x->err, LP_E_POPTORCH,
               "dynamic_update: src must have the shape %s, got %s",
               lp_shape_str(&want), lp_shape_str(&x->in[1]));
    x->out[0] = x->in[0];
    return LP_OK;
}

LP_PRIMITIVE(dynamic_update,
             "dynamic_update(Tensor self, Tensor src, int dim, Tensor start, "
             "int size) -> Tensor @p",
             infer_dynamic_update, lp_dynamic_update_prepare, window_cost,
             .flags = LP_OPF_INPLACE_OK,
             .no_grad = "dynamic_update is not supported in training")

/* ---- one_hot ------------------------------------------------------------- */
/* num_classes -1: one more than the largest class, which only an eager call
 * can know. A class outside is an error when the kernel runs. */
static LpStatus infer_one_hot(LpInfer *x)
{
    bool any = x->op->n_attr == 0;
    int64_t classes = any ? 0 : x->attr[0].i;
    LP_FAIL_IF(!any && classes < 1, x->err, LP_E_RUNTIME,
               "one_hot: num_classes must be given and positive, got %lld",
               LL(classes));
    LP_FAIL_IF(x->in[0].dtype != LP_I64 && x->in[0].dtype != LP_I32, x->err,
               LP_E_RUNTIME,
               "one_hot is only applicable to index tensor of type LongTensor "
               "(int64), "
               "got %s",
               lp_dtype_name(x->in[0].dtype));
    LP_FAIL_IF(x->in[0].ndim == LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "one_hot: a tensor of %d dimensions, at most %d are supported",
               x->in[0].ndim, LP_MAX_DIMS - 1);
    x->out[0] = x->in[0];
    x->out[0].shape[x->out[0].ndim++] = classes;
    return LP_OK;
}

LP_PRIMITIVE(one_hot, "one_hot(Tensor self, int num_classes) -> Tensor @n",
             infer_one_hot, lp_one_hot_prepare, lp_rule_select,
             .no_grad = "classes have no gradient")

LP_PRIMITIVE(one_hot_any, "one_hot.any(Tensor self) -> Tensor @n",
             infer_one_hot, lp_one_hot_prepare, NULL, .flags = LP_OPF_DYNAMIC,
             .no_grad = "classes have no gradient",
             .measure = lp_one_hot_measure)

/* ---- isin ---------------------------------------------------------------- */
#define BY_SEARCH 16 /* tested elements that pay for being sorted */

/* Each element beside the first of those in order that is no less; a NaN, which
 * stands last, equals none. */
static LpVal hits_by_search(LpBuilder *b, LpVal x, LpVal test)
{
    LpType t[] = {lp_type_of(b, x), lp_type_of(b, test)};
    t[0].ndim = 1; /* one element counts as many */
    LpDtype both = lp_infer_promote(t, 2);
    LpAttr order[] = {lp_attr_int(0), lp_attr_bool(false), lp_attr_bool(false)};
    LpAttr search[3] = {lp_attr_bool(false), lp_attr_bool(false), LP_NONE_ATTR};
    LpVal sorted[2], cast = lp_cast(b, test, both);
    if (!lp_emit_n(b, LP_OP_sort, &cast, 1, order, sorted))
        return LP_NOVAL;
    x = lp_cast(b, x, both);
    LpVal at = lp_emit(b, LP_OP_searchsorted, (LpVal[]){sorted[0], x, LP_NOVAL},
                       3, search);
    at = lp_op2(b, LP_OP_minimum, at, lp_immi(b, t[1].shape[0] - 1));
    return lp_op2(b, LP_OP_eq, x, lp_op2(b, LP_OP_take, sorted[0], at));
}

LP_FORMULA(isin, "isin(Value elements, Value test_elements, *, bool "
                 "assume_unique=False, bool invert=False) -> Tensor @fo")
{
    LpType self = lp_type_of(b, in[0]);
    LpVal x = lp_is_imm(in[0]) ? in[0] : lp_unsqueeze(b, in[0], -1);
    LpVal test = in[1];
    int64_t last = -1;
    if (!lp_is_imm(test))
        test = lp_reshape(b, test, (int64_t[]){-1}, 1);
    if (self.ndim == LP_MAX_DIMS || (lp_is_imm(in[0]) && lp_is_imm(in[1])))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "isin: at least one tensor of at most %d dimensions is needed",
            LP_MAX_DIMS - 1);
    if (self.dtype == LP_BOOL || lp_type(b, test)->dtype == LP_BOOL)
        return LP_REFUSE(b, LP_E_NOT_IMPLEMENTED,
                         "Unsupported input type encountered for isin(): Bool");
    LpVal hit;
    if (!lp_is_imm(in[0]) && !lp_is_imm(test) &&
        lp_type(b, test)->shape[0] >= BY_SEARCH) {
        hit = hits_by_search(b, in[0], test);
    } else {
        LpAttr a[] = {lp_attr_ints(&last, 1), lp_attr_bool(false)};
        hit = lp_op2(b, LP_OP_eq, x, test);
        hit = lp_emit(b, LP_OP_any, &hit, 1, a);
    }
    return attr[1].i ? lp_op1(b, LP_OP_logical_not, hit) : hit;
}
