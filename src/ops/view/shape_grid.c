/* Arrangements made of other operators, second part: diagonals, grids, block
 * matrices, pixel shuffles, products of arrangements. */
#include <string.h>

#include "src/base/checked.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define LL(x) ((long long)(x))

/* ---- diagonals ----------------------------------------------------------- */
/* The adjoint of diagonal puts elements on one; d1, d2 count in the result. */
static LpVal embed(LpBuilder *b, LpVal x, int64_t offset, int64_t d1,
                   int64_t d2)
{
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, x);
    int n = t.ndim + 1;
    int64_t sizes[LP_MAX_DIMS + 1];
    if (t.ndim == 0 || n > LP_MAX_DIMS || lp_wrap_dim(&d1, n, b->err) ||
        lp_wrap_dim(&d2, n, b->err) || d1 == d2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "diagonal dimensions cannot be identical (%lld, %lld), and the "
            "input must have 1 to %d dimensions, got %d",
            LL(d1), LL(d2), LP_MAX_DIMS - 1, t.ndim);
    if (offset > INT32_MAX || offset < -INT32_MAX)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "the offset of a diagonal is %lld; it must lie "
                         "between -2147483647 and 2147483647",
                         LL(offset));
    int64_t side = t.shape[t.ndim - 1] + (offset < 0 ? -offset : offset);
    for (int i = 0, k = 0; i < n; i++)
        sizes[i] = i == d1 || i == d2 ? side : t.shape[k++];
    LpAttr a[] = {lp_attr_ints(sizes, n), lp_attr_int(offset), lp_attr_int(d1),
                  lp_attr_int(d2)};
    return lp_emit(b, LP_OP_diagonal_backward, &x, 1, a);
}

LP_FORMULA(diag_embed,
           "diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) "
           "-> Tensor @fm")
{
    return embed(b, in[0], attr[0].i, attr[1].i, attr[2].i);
}

LP_FORMULA(diag, "diag(Tensor self, int diagonal=0) -> Tensor @fmo")
{
    int n = lp_type(b, in[0])->ndim;
    LpAttr a[] = {attr[0], lp_attr_int(0), lp_attr_int(1)};
    if (n == 1)
        return embed(b, in[0], attr[0].i, 0, 1);
    if (n != 2)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "diag(): Supports 1D or 2D tensors. Got %dD", n);
    return lp_clone(b, lp_emit(b, LP_OP_diagonal, &in[0], 1, a));
}

LP_FORMULA(diagflat, "diagflat(Tensor self, int offset=0) -> Tensor @fm")
{
    LpVal x = lp_reshape(b, in[0], (int64_t[]){-1}, 1);
    return embed(b, x, attr[0].i, 0, 1);
}

LP_FORMULA(trace, "trace(Tensor self) -> Tensor @fm", .cast = LP_CAST_WIDE)
{
    int n = lp_type(b, in[0])->ndim;
    LpAttr a[] = {lp_attr_int(0), lp_attr_int(0), lp_attr_int(1)};
    if (n != 2)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "trace: expected a matrix, but got tensor with dim %d",
                         n);
    if (lp_type(b, in[0])->dtype == LP_BOOL)
        return LP_REFUSE(
            b, LP_E_NOT_IMPLEMENTED,
            "trace: the matrix has the type bool; it must be a number type");
    LpVal d = lp_emit(b, LP_OP_diagonal, &in[0], 1, a);
    return lp_sum(b, d, NULL, 0, false);
}

/* ---- grids --------------------------------------------------------------- */
/* indexing "xy" exchanges the first two of the results' dimensions. */
static bool grid_xy(const LpAttr *a)
{
    return !lp_attr_none(a) && strcmp(a->str, "xy") == 0;
}

static LpStatus infer_meshgrid(LpInfer *x)
{
    LpType t = {.ndim = (int8_t)x->n_in};
    const LpAttr *a = &x->attr[0];
    bool xy = grid_xy(a) && x->n_in > 1;
    LP_FAIL_IF(x->n_in == 0, x->err, LP_E_RUNTIME,
               "meshgrid expects a non-empty TensorList");
    LP_FAIL_IF(x->n_in > LP_MAX_DIMS, x->err, LP_E_RUNTIME,
               "meshgrid: %d tensors, at most %d are supported", x->n_in,
               LP_MAX_DIMS);
    LP_FAIL_IF(!lp_attr_none(a) && !grid_xy(a) && strcmp(a->str, "ij") != 0,
               x->err, LP_E_RUNTIME,
               "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but "
               "received: %s",
               a->str);
    for (int i = 0; i < x->n_in; i++) {
        int d = xy && i < 2 ? 1 - i : i;
        LP_FAIL_IF(x->in[i].ndim > 1, x->err, LP_E_RUNTIME,
                   "torch.meshgrid: Expected 0D or 1D tensor in the tensor "
                   "list but got %d dimensions at position %d",
                   x->in[i].ndim, i);
        LP_FAIL_IF(x->in[i].dtype != x->in[0].dtype, x->err, LP_E_RUNTIME,
                   "torch.meshgrid expects all tensors to have the same dtype");
        t.shape[d] = lp_numel(&x->in[i]);
    }
    t.dtype = x->in[0].dtype;
    x->n_out = x->n_in;
    for (int i = 0; i < x->n_out; i++)
        x->out[i] = t;
    return LP_OK;
}

static void emit_grid(LpBuilder *b, const LpVal *in, int n, bool xy, LpVal *out)
{
    LpType wide = {.ndim = (int8_t)n};
    for (int i = 0; i < n; i++)
        wide.shape[xy && i < 2 ? 1 - i : i] = lp_numel(lp_type(b, in[i]));
    for (int i = 0; i < n && !lp_failed(b); i++) {
        int d = xy && i < 2 ? 1 - i : i;
        int64_t sizes[LP_MAX_DIMS];
        for (int k = 0; k < n; k++)
            sizes[k] = k == d ? wide.shape[d] : 1;
        out[i] = lp_expand_as(b, lp_reshape(b, in[i], sizes, n), &wide);
    }
}

LP_COMPOSITE(meshgrid,
             "meshgrid(Tensor[] tensors, *, str? indexing=None) -> Tensor[] @f",
             .infer = infer_meshgrid)
{
    emit_grid(b, in, n_in, grid_xy(&attr[0]) && n_in > 1, out);
}

LP_FORMULA(cartesian_prod, "cartesian_prod(Tensor[] tensors) -> Tensor @f")
{
    LpVal v[LP_MAX_DIMS];
    if (n_in == 0 || n_in > LP_MAX_DIMS)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "cartesian_prod: 1 to %d tensors are supported, got %d",
            LP_MAX_DIMS, n_in);
    for (int i = 0; i < n_in; i++)
        if (lp_type(b, in[i])->ndim != 1)
            lp_fail(b->err, LP_E_RUNTIME,
                    "Expect a 1D vector, but got %d dimensions at position %d",
                    lp_type(b, in[i])->ndim, i);
    if (lp_failed(b))
        return LP_NOVAL;
    if (n_in == 1)
        return lp_op1(b, LP_OP_alias, in[0]);
    emit_grid(b, in, n_in, false, v);
    for (int i = 0; i < n_in; i++)
        v[i] = lp_reshape(b, v[i], (int64_t[]){-1, 1}, 2);
    return lp_cat(b, v, n_in, 1);
}

static LpStatus infer_broadcast_tensors(LpInfer *x)
{
    LpType t = {.ndim = 0};
    for (int i = 0; i < x->n_in; i++)
        LP_TRY(lp_broadcast(&t, &x->in[i], x->err));
    x->n_out = x->n_in;
    for (int i = 0; i < x->n_out; i++) {
        t.dtype = x->in[i].dtype;
        x->out[i] = t;
    }
    return LP_OK;
}

LP_COMPOSITE(broadcast_tensors,
             "broadcast_tensors(Tensor[] tensors) -> Tensor[] @f",
             .infer = infer_broadcast_tensors)
{
    LpType t = {.ndim = 0};
    for (int i = 0; i < n_in; i++)
        if (lp_broadcast(&t, lp_type(b, in[i]), b->err) != LP_OK)
            return;
    for (int i = 0; i < n_in; i++)
        out[i] = lp_expand_as(b, in[i], &t);
}

/* ---- block_diag ---------------------------------------------------------- */
LP_FORMULA(block_diag, "block_diag(Tensor[] tensors) -> Tensor @f")
{
    int64_t cols = 0, at = 0;
    LpVal *v = lp_value_list(b, n_in);
    for (int i = 0; i < n_in && !lp_failed(b); i++) {
        LpType t = lp_type_of(b, in[i]);
        if (t.ndim > 2)
            lp_fail(b->err, LP_E_RUNTIME,
                    "torch.block_diag: Input tensors must have 2 or fewer "
                    "dimensions. Input %d has %d dimensions",
                    i, t.ndim);
        v[i] = lp_emit(b, LP_OP_atleast_2d, &in[i], 1, NULL);
        cols += t.ndim == 0 ? 1 : t.shape[t.ndim - 1];
    }
    for (int i = 0; i < n_in && !lp_failed(b); i++) {
        int64_t w = lp_type(b, v[i])->shape[1];
        int64_t pad[] = {at, cols - at - w};
        LpAttr a[] = {lp_attr_ints(pad, 2), lp_attr_scalar(lp_int(0))};
        at += w;
        v[i] = lp_emit(b, LP_OP_constant_pad_nd, &v[i], 1, a);
    }
    return lp_cat(b, v, n_in, 0);
}

/* ---- pixel_shuffle, pixel_unshuffle -------------------------------------- */
/* The last three dimensions cut into five, which are put into another order and
 * joined to three. */
static LpVal shuffled(LpBuilder *b, LpVal x, const int64_t cut[5],
                      const int64_t order[5], const int64_t joined[3])
{
    LpType t = lp_type_of(b, x);
    int lead = t.ndim - 3;
    int64_t p[LP_MAX_DIMS];
    for (int i = 0; i < lead; i++)
        p[i] = i;
    for (int i = 0; i < 5; i++) {
        t.shape[lead + i] = cut[i];
        p[lead + i] = lead + order[i];
    }
    x = lp_permute(b, lp_reshape(b, x, t.shape, lead + 5), p, lead + 5);
    memcpy(t.shape + lead, joined, 3 * sizeof *joined);
    return lp_reshape(b, x, t.shape, lead + 3);
}

/* [*, C r r, H, W] -> [*, C, H r, W r]: channels are cut into (C, r, r), the
 * two r go to the right of H and of W. */
LP_FORMULA(pixel_shuffle,
           "pixel_shuffle(Tensor self, int upscale_factor) -> Tensor @fn")
{
    LpType t = lp_type_of(b, in[0]);
    int n = t.ndim, lead = n - 3;
    int64_t r = attr[0].i;
    if (n < 3 || n + 2 > LP_MAX_DIMS || r < 1 || r > INT32_MAX ||
        t.shape[lead] % (r * r) != 0)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "pixel_shuffle expects its input's 'channel' dimension to be "
            "divisible by the square of upscale_factor and at least 3 "
            "dimensions, but got %d dimensions, upscale_factor=%lld",
            n, LL(r));
    int64_t c = t.shape[lead] / (r * r), h = t.shape[n - 2], w = t.shape[n - 1];
    return shuffled(b, in[0], (int64_t[]){c, r, r, h, w},
                    (int64_t[]){0, 3, 1, 4, 2}, (int64_t[]){c, h * r, w * r});
}

LP_FORMULA(pixel_unshuffle,
           "pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor @fn")
{
    LpType t = lp_type_of(b, in[0]);
    int n = t.ndim;
    int64_t r = attr[0].i;
    if (n < 3 || n + 2 > LP_MAX_DIMS || r < 1 || t.shape[n - 2] % r != 0 ||
        t.shape[n - 1] % r != 0)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "pixel_unshuffle expects height and width to be divisible by "
            "downscale_factor and at least 3 dimensions, but got %d "
            "dimensions, downscale_factor=%lld",
            n, LL(r));
    int64_t c = t.shape[n - 3], h = t.shape[n - 2] / r, w = t.shape[n - 1] / r;
    return shuffled(b, in[0], (int64_t[]){c, h, r, w, r},
                    (int64_t[]){0, 2, 4, 1, 3}, (int64_t[]){c * r * r, h, w});
}

/* ---- kron, cross --------------------------------------------------------- */
/* Every element of the first times the whole second: [a, 1] * [1, b]. */
LP_FORMULA(kron, "kron(Tensor self, Tensor other) -> Tensor @fmc")
{
    LpType x = lp_type_of(b, in[0]), y = lp_type_of(b, in[1]);
    int n = x.ndim > y.ndim ? x.ndim : y.ndim;
    int64_t xs[2 * LP_MAX_DIMS], ys[2 * LP_MAX_DIMS], joined[LP_MAX_DIMS];
    if (2 * n > LP_MAX_DIMS)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "kron: at most %d dimensions are supported, got %d",
                         LP_MAX_DIMS / 2, n);
    for (int i = 0; i < n; i++) {
        int64_t p = i < n - x.ndim ? 1 : x.shape[i - (n - x.ndim)];
        int64_t q = i < n - y.ndim ? 1 : y.shape[i - (n - y.ndim)];
        xs[2 * i] = p;
        xs[2 * i + 1] = ys[2 * i] = 1;
        ys[2 * i + 1] = q;
        joined[i] = p * q;
    }
    LpVal v = lp_mul(b, lp_reshape(b, in[0], xs, 2 * n),
                     lp_reshape(b, in[1], ys, 2 * n));
    return lp_reshape(b, v, joined, n);
}

static LpVal rolled(LpBuilder *b, LpVal x, int dim, int64_t by)
{
    LpVal v[] = {lp_slice(b, x, dim, by, 3, 1), lp_slice(b, x, dim, 0, by, 1)};
    return lp_cat(b, v, 2, dim);
}

/* c[i] = x[i+1] y[i+2] - x[i+2] y[i+1], indices modulo 3. */
static LpVal cross_along(LpBuilder *b, const LpVal *in, int64_t dim)
{
    LpType t = lp_type_of(b, in[0]), y = lp_type_of(b, in[1]);
    if (t.ndim != y.ndim)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "cross: inputs must have the same number of "
                         "dimensions, got %d and %d",
                         t.ndim, y.ndim);
    if (lp_broadcast(&t, &y, b->err) || lp_wrap_dim(&dim, t.ndim, b->err))
        return LP_NOVAL;
    int d = (int)dim;
    if (t.ndim == 0 || lp_type(b, in[0])->shape[d] != 3 || y.shape[d] != 3)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "cross: inputs dimension %d must have length 3. Got %lld", d,
            t.ndim == 0 ? 0LL : LL(t.shape[d]));
    LpDtype left = lp_type(b, in[0])->dtype, right = lp_type(b, in[1])->dtype;
    if (left != right)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "cross: other has the type %s; it must have self's, %s",
            lp_dtype_name(right), lp_dtype_name(left));
    LpVal p = lp_expand_as(b, in[0], &t), q = lp_expand_as(b, in[1], &t);
    return lp_sub(b, lp_mul(b, rolled(b, p, d, 1), rolled(b, q, d, 2)),
                  lp_mul(b, rolled(b, p, d, 2), rolled(b, q, d, 1)));
}

/* Without a dim: the first of size 3. */
LP_FORMULA(cross,
           "cross(Tensor self, Tensor other, int? dim=None) -> Tensor @fmo\n"
           "cross.linalg(Tensor self, Tensor other, *, int? dim=-1) -> "
           "Tensor @lo",
           .mix = LP_MIX_WIDEN)
{
    LpType t = lp_type_of(b, in[0]);
    int64_t dim = 0;
    if (!lp_attr_none(&attr[0])) {
        dim = attr[0].i;
    } else {
        while (dim < t.ndim && t.shape[dim] != 3)
            dim++;
        if (dim == t.ndim)
            return LP_REFUSE(
                b, LP_E_RUNTIME,
                "no dimension of size 3 in input, got the shape %s",
                lp_shape_str(&t));
    }
    return cross_along(b, in, dim);
}
