/* Views of other sizes and of another type over the same memory. */
#include "src/base/checked.h"
#include "src/kernel/copy/copy_view.h"
#include "src/ops/layout_cost.h"
#include "src/ops/view/view.h"

/* ---- reshape, view ------------------------------------------------------- */
/* Fills in a -1 and checks the number of elements. */
static LpStatus resolve_sizes(LpInfer *x, const LpAttr *a, LpType *out)
{
    int64_t numel = lp_numel(&x->in[0]), known = 1;
    int open = -1;
    if (a->n > LP_MAX_DIMS)
        return lp_too_many_dims(x, a->n);
    for (int i = 0; i < a->n; i++) {
        if (a->v[i] == -1) {
            LP_FAIL_IF(open >= 0, x->err, LP_E_RUNTIME,
                       "only one dimension can be inferred, shape %s has "
                       "more -1",
                       lp_ints_str(a->v, a->n));
            open = i;
            continue;
        }
        LP_FAIL_IF(a->v[i] < 0, x->err, LP_E_RUNTIME,
                   "invalid shape dimension %lld at index %d of shape %s",
                   (long long)a->v[i], i, lp_ints_str(a->v, a->n));
        if (!lp_mul_i64(known, a->v[i], &known))
            known = INT64_MAX;
    }
    lp_set_dims(out, a->v, a->n);
    LP_FAIL_IF(open >= 0 && known == 0 && numel == 0, x->err, LP_E_RUNTIME,
               "cannot reshape tensor of 0 elements into shape %s because the "
               "unspecified dimension size -1 can be any value and is "
               "ambiguous",
               lp_ints_str(a->v, a->n));
    if (open >= 0 && known > 0 && numel % known == 0)
        out->shape[open] = numel / known;
    else
        LP_FAIL_IF(open >= 0 || known != numel, x->err, LP_E_RUNTIME,
                   "shape '%s' is invalid for input of size %lld",
                   lp_ints_str(a->v, a->n), (long long)numel);
    return LP_OK;
}

/* Sizes `to` over memory of `from`, without moving anything: cut the memory
 * into runs of evenly spaced elements (neighbouring dimensions whose strides
 * follow one another); the new dimensions, from the last, must each fill up
 * one run before the next begins. False: impossible. */
static bool restride(const LpType *from, const int64_t *fs, const LpType *to,
                     int64_t *ts)
{
    if (lp_numel(from) == 0) {
        lp_contiguous_strides(to, ts);
        return true;
    }
    int f = from->ndim - 1, t = to->ndim - 1;
    while (f >= 0) {
        int64_t step = fs[f], left = from->shape[f];
        bool unit = left == 1;
        for (f--; f >= 0; f--) { /* the run that ends here */
            if (from->shape[f] == 1)
                continue;
            if (unit) {
                step = fs[f];
                unit = false;
            } else if (fs[f] != step * left) {
                break;
            }
            left *= from->shape[f];
        }
        for (; t >= 0 && left % to->shape[t] == 0 &&
               (left > 1 || to->shape[t] == 1);
             t--) {
            ts[t] = step;
            step *= to->shape[t];
            left /= to->shape[t];
        }
        if (left != 1)
            return false;
    }
    for (; t >= 0; t--) { /* a 0-d operand, or leading 1s */
        if (to->shape[t] != 1)
            return false;
        ts[t] = 1;
    }
    return true;
}

static LpStatus infer_reshape(LpInfer *x)
{
    LpType out = x->in[0];
    LP_TRY(resolve_sizes(x, &x->attr[0], &out));
    LP_TRY(lp_set_ints(x, 0, out.shape, out.ndim));
    x->out[0] = out;
    if (x->strides) {
        *x->offset = x->in_offset;
        *x->needs_copy = !restride(&x->in[0], x->in_strides, &out, x->strides);
    }
    return LP_OK;
}

static LpStatus infer_view(LpInfer *x)
{
    bool copy = false, *needs = x->needs_copy;
    x->needs_copy = &copy;
    LpStatus st = infer_reshape(x);
    x->needs_copy = needs;
    LP_TRY(st);
    LP_FAIL_IF(copy, x->err, LP_E_RUNTIME,
               "view size is not compatible with input tensor's size and "
               "stride (at least one dimension spans across two contiguous "
               "subspaces). Use .reshape(...) instead.");
    return LP_OK;
}

LP_VIEW(reshape, "reshape(Tensor self, int[] shape) -> Tensor @fm",
        infer_reshape, lp_reshape_put, .grad = lp_reshape_grad)

LP_VIEW(view, "view(Tensor self, int[] size) -> Tensor @m", infer_view,
        lp_reshape_put, .grad = lp_reshape_grad)

/* ---- view as another type ------------------------------------------------ */
/* The bytes of the last dimension seen as elements of another size. */
static LpStatus resize_elements(LpInfer *x, LpType *out, int64_t from,
                                int64_t to)
{
    const char *a = lp_dtype_name(x->in[0].dtype);
    const char *b = lp_dtype_name(out->dtype);
    int last = out->ndim - 1;
    LP_FAIL_IF(out->ndim == 0, x->err, LP_E_RUNTIME,
               "self.dim() cannot be 0 to view %s as %s (different element "
               "sizes)",
               a, b);
    int64_t bytes = out->shape[last] * from; /* of existing memory */
    LP_FAIL_IF(bytes % to, x->err, LP_E_RUNTIME,
               "self.size(-1) must be divisible by %lld to view %s as %s "
               "(different element sizes), but got %lld",
               (long long)(to / from), a, b, (long long)out->shape[last]);
    out->shape[last] = bytes / to;
    if (!x->strides)
        return LP_OK;
    LP_FAIL_IF(x->strides[last] != 1, x->err, LP_E_RUNTIME,
               "self.stride(-1) must be 1 to view %s as %s (different element "
               "sizes), but got %lld",
               a, b, (long long)x->strides[last]);
    LP_FAIL_IF(*x->offset * from % to, x->err, LP_E_RUNTIME,
               "self.storage_offset() must be divisible by %lld to view %s as "
               "%s (different element sizes), but got %lld",
               (long long)(to / from), a, b, (long long)*x->offset);
    *x->offset = *x->offset * from / to;
    for (int i = 0; i < last; i++) {
        LP_FAIL_IF(x->strides[i] * from % to, x->err, LP_E_RUNTIME,
                   "self.stride(%d) must be divisible by %lld to view %s as "
                   "%s (different element sizes), but got %lld",
                   i, (long long)(to / from), a, b, (long long)x->strides[i]);
        x->strides[i] = x->strides[i] * from / to;
    }
    return LP_OK;
}

static LpStatus infer_view_dtype(LpInfer *x)
{
    LP_TRY(lp_view_same(x));
    x->out[0].dtype = (LpDtype)x->attr[0].i;
    int64_t from = (int64_t)lp_dtype_size(x->in[0].dtype);
    int64_t to = (int64_t)lp_dtype_size(x->out[0].dtype);
    return from == to ? LP_OK : resize_elements(x, &x->out[0], from, to);
}

/* Of the same type it is the operand itself; bits have no gradient. */
static void grad_view_dtype(LpGrad *g)
{
    LpDtype from = lp_type(g->b, g->in[0])->dtype;
    if (from != lp_type(g->b, g->out[0])->dtype)
        lp_fail(g->b->err, LP_E_NOT_IMPLEMENTED,
                "view(dtype): another type's bits have no gradient");
    g->din[0] = g->dout[0];
}

LP_VIEW(view_dtype, "view(Tensor self, ScalarType dtype) -> Tensor @m",
        infer_view_dtype, NULL, .grad = grad_view_dtype)
