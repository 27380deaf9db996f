/* Public forms of the normalisations of norm.c, batch normalisation with given
 * statistics, and local_response_norm. */
#include "src/ops/nn/nnop.h"

LP_FORMULA(layer_norm,
           "layer_norm(Tensor input, int[] normalized_shape, Tensor? "
           "weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor @fn")
{
    return lp_emit(b, LP_OP_native_layer_norm, in, 3, attr);
}

LP_FORMULA(group_norm,
           "group_norm(Tensor input, int num_groups, Tensor? weight=None, "
           "Tensor? bias=None, float eps=1e-05) -> Tensor @fn")
{
    return lp_emit(b, LP_OP_native_group_norm, in, 3, attr);
}

/* Every channel of every sample by itself. attr: eps */
LP_FORMULA(instance_norm_train,
           "instance_norm_train(Tensor input, Tensor? weight, Tensor? bias, "
           "float eps) -> Tensor @p\n"
           "_instance_norm_train(Tensor input, Tensor? weight, Tensor? bias, "
           "float eps) -> Tensor @n")
{
    LpType t = *lp_type(b, in[0]);
    LpAttr a[2] = {lp_attr_int(t.ndim > 1 ? t.shape[1] : 1), attr[0]};
    return lp_emit(b, LP_OP_native_group_norm, in, 3, a);
}

/* With given statistics: one multiplication and one addition an element. */
LP_FORMULA(batch_norm_eval,
           "batch_norm_eval(Tensor input, Tensor running_mean, Tensor "
           "running_var, Tensor? weight, Tensor? bias, float eps) -> Tensor "
           "@p\n"
           "_batch_norm_eval(Tensor input, Tensor running_mean, Tensor "
           "running_var, Tensor? weight, Tensor? bias, float eps) -> Tensor "
           "@n")
{
    LpType t = *lp_type(b, in[0]);
    if (t.ndim < 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "batch_norm: expected an input of at least 2 dimensions "
            "(batch, channels, …), got shape %s",
            lp_shape_str(&t));
    LpVal scale =
        lp_op1(b, LP_OP_rsqrt, lp_add(b, in[2], lp_immf(b, attr[0].f)));
    if (in[3] != LP_NOVAL)
        scale = lp_mul(b, scale, in[3]);
    LpVal shift = lp_neg(b, lp_mul(b, in[1], scale));
    if (in[4] != LP_NOVAL)
        shift = lp_add(b, shift, in[4]);
    int64_t shape[LP_MAX_DIMS];
    for (int i = 0; i < t.ndim - 1; i++)
        shape[i] = i == 0 ? t.shape[1] : 1;
    scale = lp_reshape(b, scale, shape, t.ndim - 1);
    shift = lp_reshape(b, shift, shape, t.ndim - 1);
    return lp_cast(b, lp_add(b, lp_mul(b, in[0], scale), shift), t.dtype);
}

/* y = x / (k + alpha mean of x^2 over `size` channels)^beta; the window of
 * channel c begins at c - size / 2 */
LP_FORMULA(local_response_norm,
           "local_response_norm(Tensor input, int size, float alpha=1e-04, "
           "float beta=0.75, float k=1.0) -> Tensor @n")
{
    LpType t = *lp_type(b, in[0]);
    int64_t size = attr[0].i;
    if (t.ndim >= 3 && lp_numel(&t) == 0) {
        return lp_op1(b, LP_OP_clone, in[0]);
    }
    if (t.ndim < 3 || size < 1)
        return LP_REFUSE(
            b, t.ndim < 3 ? LP_E_VALUE : LP_E_RUNTIME,
            "local_response_norm: expected an input of 3 or more "
            "dimensions and a size of at least 1, got %d dimensions and "
            "size %lld",
            t.ndim, (long long)size);
    int64_t places = lp_elements(t.shape + 2, t.ndim - 2);
    LpVal x2 = lp_mul(b, in[0], in[0]);
    x2 = lp_reshape(b, x2, (int64_t[]){t.shape[0], 1, t.shape[1], places}, 4);
    const int64_t kernel[2] = {size, 1}, one[2] = {1, 1};
    const int64_t pad[2] = {size / 2, 0};
    LpAttr a[6] = {lp_attr_ints(kernel, 2), lp_attr_ints(one, 2),
                   lp_attr_ints(pad, 2),    lp_attr_bool(false),
                   lp_attr_bool(true),      lp_attr_int(size)};
    LpVal m = lp_emit(b, LP_OP_avg_pool, &x2, 1, a);
    m = lp_slice(b, m, 2, 0, t.shape[1], 1); /* an even size has one more */
    m = lp_reshape(b, m, t.shape, t.ndim);
    m = lp_add(b, lp_mul(b, m, lp_immf(b, attr[1].f)), lp_immf(b, attr[3].f));
    m = lp_op2(b, LP_OP_pow, m, lp_immf(b, attr[2].f));
    return lp_div(b, in[0], m);
}
