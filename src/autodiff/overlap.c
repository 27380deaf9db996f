/* Overlap of a written tensor with itself and with operands. */
#include "src/autodiff/overlap.h"

LpStatus lp_check_target(const LpTensor *t, LpErr *e)
{
    bool empty = lp_tensor_numel(t) == 0;
    for (int i = 0; i < t->ndim; i++)
        LP_FAIL_IF(!empty && t->strides[i] == 0 && t->shape[i] > 1, e,
                   LP_E_RUNTIME,
                   "an expanded tensor has several elements in one place and "
                   "cannot be written in place: clone() it first");
    return LP_OK;
}

/* Does every element of a run of memory belong to t, once? Each dimension, by
 * growing stride, must step over just what the smaller ones span. */
static bool is_dense(const LpTensor *t)
{
    bool done[LP_MAX_DIMS] = {false};
    int64_t span = 1;
    for (int k = 0; k < t->ndim; k++) {
        int best = -1;
        for (int i = 0; i < t->ndim; i++)
            if (!done[i] && (best < 0 || t->strides[i] < t->strides[best]))
                best = i;
        done[best] = true;
        if (t->shape[best] == 1)
            continue;
        if (t->strides[best] != span)
            return false;
        span *= t->shape[best];
    }
    return true;
}

/* A dimension of size 1 has no second element for its stride to tell of. */
static bool same_strides(const LpTensor *t, const LpTensor *x)
{
    for (int i = 0; i < t->ndim && t->ndim == x->ndim; i++)
        if ((t->shape[i] != 1 || x->shape[i] != 1) &&
            t->strides[i] != x->strides[i])
            return false;
    return t->ndim == x->ndim;
}

static bool shares_part(const LpTensor *t, const LpTensor *x)
{
    if (t == x || t->st != x->st || !is_dense(t) || !is_dense(x))
        return false;
    int64_t n = lp_tensor_numel(t), m = lp_tensor_numel(x);
    int64_t a = t->offset * (int64_t)lp_dtype_size(t->dtype);
    int64_t b = x->offset * (int64_t)lp_dtype_size(x->dtype);
    int64_t a_end = a + n * (int64_t)lp_dtype_size(t->dtype);
    int64_t b_end = b + m * (int64_t)lp_dtype_size(x->dtype);
    if (a == b && a_end == b_end)
        return !same_strides(t, x);
    return a < b_end && b < a_end;
}

LpStatus lp_check_overlap(const LpTensor *t, const LpArg *in, int n_in,
                          LpErr *e)
{
    for (int i = 0; i < n_in; i++)
        LP_FAIL_IF(in[i].t && shares_part(t, in[i].t), e, LP_E_RUNTIME,
                   "unsupported operation: some elements of the input tensor "
                   "and the written-to tensor refer to a single memory "
                   "location. Please clone() the tensor before performing the "
                   "operation.");
    return LP_OK;
}
