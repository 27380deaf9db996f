/* Arrangements made of other operators: stacks, rolls, repeats, diagonals,
 * pads by mode, grids, pixel shuffles. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/hooks.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define LL(x) ((long long)(x))

/* ---- stacks -------------------------------------------------------------- */
LP_FORMULA(stack, "stack(Tensor[] tensors, int dim=0) -> Tensor @fc",
           .flags = LP_OPF_JOINS, .cast = LP_CAST_WIDEST)
{
    if (n_in == 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "stack expects a non-empty TensorList");
    LpType first = lp_type_of(b, in[0]);
    int d = lp_wrapped(b, attr[0].i, first.ndim + 1);
    LpVal *v = lp_value_list(b, n_in);
    for (int i = 0; i < n_in && v && !lp_failed(b); i++) {
        LpType t = lp_type_of(b, in[i]);
        if (!lp_shape_eq(&t, &first))
            lp_fail(b->err, LP_E_RUNTIME,
                    "stack expects each tensor to be equal size, but got %s at "
                    "entry 0 and %s at entry %d",
                    lp_shape_str(&first), lp_shape_str(&t), i);
        v[i] = lp_unsqueeze(b, in[i], d);
    }
    return lp_cat(b, v, n_in, d);
}

static bool has_any(LpBuilder *b, const char *who, int n_in)
{
    if (n_in == 0)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: expected a non-empty list of Tensors", who);
    return n_in > 0;
}

/* Each operand through the operator `make`, joined along `dim` (-2: 0 for one
 * dimension, else 1). */
static LpVal stack_by(LpBuilder *b, const char *who, int make, int dim,
                      const LpVal *in, int n_in)
{
    if (!has_any(b, who, n_in))
        return LP_NOVAL;
    LpVal *v = lp_value_list(b, n_in);
    for (int i = 0; i < n_in && v; i++)
        v[i] = lp_emit(b, make, &in[i], 1, NULL);
    if (lp_failed(b))
        return LP_NOVAL;
    if (dim == -2)
        dim = lp_type(b, v[0])->ndim == 1 ? 0 : 1;
    return lp_cat(b, v, n_in, dim);
}

#define STACK(name, more, make, dim)                                           \
    LP_FORMULA(name, #name "(Tensor[] tensors) -> Tensor @fc" more,            \
               .flags = LP_OPF_JOINS)                                          \
    {                                                                          \
        return stack_by(b, #name, LP_OP_##make, dim, in, n_in);                \
    }
STACK(hstack, "", atleast_1d, -2)
STACK(vstack, "\nrow_stack(Tensor[] tensors) -> Tensor @fc", atleast_2d, 0)
STACK(dstack, "", atleast_3d, 2)

LP_FORMULA(column_stack, "column_stack(Tensor[] tensors) -> Tensor @fc",
           .flags = LP_OPF_JOINS)
{
    if (!has_any(b, "column_stack", n_in))
        return LP_NOVAL;
    LpVal *v = lp_value_list(b, n_in);
    for (int i = 0; i < n_in && v && !lp_failed(b); i++) {
        int n = lp_type(b, in[i])->ndim;
        v[i] = n < 2 ? lp_reshape(b, in[i], (int64_t[]){-1, 1}, 2) : in[i];
    }
    return lp_cat(b, v, n_in, 1);
}

/* ---- flips, rolls -------------------------------------------------------- */
LP_FORMULA(fliplr, "fliplr(Tensor self) -> Tensor @fm")
{
    if (lp_type(b, in[0])->ndim < 2)
        lp_fail(b->err, LP_E_RUNTIME, "Input must be >= 2-d, got %d-d.",
                lp_type(b, in[0])->ndim);
    return lp_flip(b, in[0], 1);
}

LP_FORMULA(flipud, "flipud(Tensor self) -> Tensor @fm")
{
    if (lp_type(b, in[0])->ndim < 1)
        lp_fail(b->err, LP_E_RUNTIME, "Input must be >= 1-d, got 0-d.");
    return lp_flip(b, in[0], 0);
}

LP_FORMULA(rot90,
           "rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor @fm")
{
    int n = lp_type(b, in[0])->ndim;
    if (attr[1].n != 2)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "expected total rotation dims == 2, but got dims = %d",
                         attr[1].n);
    int d0 = lp_wrapped(b, attr[1].v[0], n),
        d1 = lp_wrapped(b, attr[1].v[1], n);
    if (lp_failed(b))
        return LP_NOVAL;
    if (n < 2 || d0 == d1)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "expected rotation dims to be different and the total "
                         "dims >= 2, but got dims %d and %d of %d",
                         d0, d1, n);
    int k = (int)((attr[0].i % 4 + 4) % 4);
    LpVal x = in[0];
    if (k == 2)
        x = lp_flip(b, lp_flip(b, x, d0), d1);
    else if (k != 0)
        x = lp_transpose(b, lp_flip(b, x, k == 1 ? d1 : d0), d0, d1);
    return k == 0 ? lp_clone(b, x) : x;
}

/* The elements along dim from `from` on, then those before it. The device joins
 * the parts, so a trace inlines that. */
static LpStatus infer_roll(LpInfer *x)
{
    LpAttr *a = x->attr;
    LP_TRY(lp_wrap_dim(&a[LP_ROLL_DIM].i, x->in[0].ndim, x->err));
    int64_t from = a[LP_ROLL_FROM].i;
    LP_FAIL_IF(x->in[0].ndim == 0 || from < 0 ||
                   from >= x->in[0].shape[a[LP_ROLL_DIM].i],
               x->err, LP_E_INDEX,
               "roll_along: dimension %lld of %s has no element %lld",
               LL(a[LP_ROLL_DIM].i), lp_shape_str(&x->in[0]), LL(from));
    x->out[0] = x->in[0];
    return LP_OK;
}

LP_EXPAND(expand_roll_along)
{
    int dim = (int)attr[LP_ROLL_DIM].i;
    int64_t from = attr[LP_ROLL_FROM].i, n = lp_type(b, in[0])->shape[dim];
    LpVal part[] = {lp_slice(b, in[0], dim, from, n, 1),
                    lp_slice(b, in[0], dim, 0, from, 1)};
    out[0] = lp_cat(b, part, 2, dim);
}

static LpVal roll_from(LpBuilder *b, LpVal x, int dim, int64_t from)
{
    LpAttr a[] = {lp_attr_int(dim), lp_attr_int(from)};
    return lp_emit(b, LP_OP_roll_along, &x, 1, a);
}

static void grad_roll(LpGrad *g)
{
    int dim = (int)g->attr[LP_ROLL_DIM].i;
    int64_t n = lp_type(g->b, g->dout[0])->shape[dim];
    g->din[0] =
        roll_from(g->b, g->dout[0], dim, (n - g->attr[LP_ROLL_FROM].i) % n);
}

LP_PRIMITIVE(roll_along,
             "roll_along(Tensor self, int dim, int from) -> Tensor @p",
             infer_roll, lp_roll_prepare, NULL, .kind = LP_OP_FUSED,
             .expand = expand_roll_along, .grad = grad_roll)

static LpVal roll_one(LpBuilder *b, LpVal x, int64_t shift, int dim)
{
    if (lp_failed(b))
        return LP_NOVAL;
    int64_t n = lp_type(b, x)->shape[dim];
    int64_t cut = n == 0 ? 0 : (n - shift % n) % n;
    return cut == 0 ? x : roll_from(b, x, dim, cut);
}

LP_FORMULA(roll,
           "roll(Tensor self, int[1] shifts, int[1]? dims=None) -> Tensor @fm")
{
    const LpAttr *shifts = &attr[0], *dims = &attr[1];
    LpType t = lp_type_of(b, in[0]);
    LpVal x = in[0];
    int n_dims = dims->kind == LP_ATTR_NONE ? 0 : dims->n;
    if (shifts->n == 0 || (n_dims == 0 ? shifts->n != 1 : n_dims != shifts->n))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "shifts and dimensions must align. shifts: %d, dims:%d", shifts->n,
            n_dims);
    if (n_dims == 0) {
        x = lp_reshape(b, x, (int64_t[]){-1}, 1);
        x = roll_one(b, x, shifts->v[0], 0);
        x = lp_reshape(b, x, t.shape, t.ndim);
    }
    for (int i = 0; i < n_dims && !lp_failed(b); i++) {
        int d = lp_wrapped(b, dims->v[i], t.ndim);
        if (t.ndim == 0)
            return LP_REFUSE(b, LP_E_INDEX,
                             "roll: dimension %lld was given, but the tensor "
                             "has no dimensions",
                             (long long)dims->v[i]);
        x = roll_one(b, x, shifts->v[i], d);
    }
    return x == in[0] ? lp_clone(b, x) : x;
}

/* ---- repeats ------------------------------------------------------------- */
/* [a, b] by [r, s]: seen as [1, a, 1, b], expanded to [r, a, s, b] and joined
 * to [r * a, s * b]; dimensions that are not repeated are left as they are. */
static LpVal repeat(LpBuilder *b, LpVal x, const int64_t *r, int n)
{
    LpType t = lp_type_of(b, x);
    int64_t apart[2 * LP_MAX_DIMS], wide[2 * LP_MAX_DIMS], joined[LP_MAX_DIMS];
    int m = 0;
    for (int i = 0; i < n; i++) {
        int64_t size = i < n - t.ndim ? 1 : t.shape[i - (n - t.ndim)];
        if (r[i] < 0 || !lp_mul_i64(r[i], size, &joined[i]))
            return LP_REFUSE(b, LP_E_RUNTIME,
                             "repeat: %lld repeats of a dimension of size %lld",
                             LL(r[i]), LL(size));
        if (r[i] != 1) {
            apart[m] = 1;
            wide[m++] = r[i];
        }
        apart[m] = wide[m] = size;
        m++;
    }
    if (m > LP_MAX_DIMS)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "repeat: too many repeated dimensions (%d in all, at most %d)", m,
            LP_MAX_DIMS);
    LpAttr a = lp_attr_ints(wide, m);
    x = lp_reshape(b, x, apart, m);
    x = lp_emit(b, LP_OP_expand, &x, 1, &a);
    return lp_reshape(b, lp_clone(b, x), joined, n);
}

LP_FORMULA(repeat, "repeat(Tensor self, int[] repeats) -> Tensor @m")
{
    int n = lp_type(b, in[0])->ndim;
    if (attr[0].n < n || attr[0].n > LP_MAX_DIMS)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "Number of dimensions of repeat dims (%d) can not be "
                         "smaller than number of dimensions of tensor (%d)",
                         attr[0].n, n);
    return repeat(b, in[0], attr[0].v, attr[0].n);
}

LP_FORMULA(tile, "tile(Tensor self, int[] dims) -> Tensor @fm")
{
    int n = lp_type(b, in[0])->ndim, m = attr[0].n;
    int64_t r[LP_MAX_DIMS];
    int all = m > n ? m : n;
    if (m > LP_MAX_DIMS)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "tile: %d dims, at most %d are supported", m,
                         LP_MAX_DIMS);
    for (int i = 0; i < all; i++)
        r[i] = i < all - m ? 1 : attr[0].v[i - (all - m)];
    return repeat(b, in[0], r, all);
}

LP_FORMULA(repeat_interleave,
           "repeat_interleave(Tensor self, int repeats, int? dim=None) -> "
           "Tensor @fm")
{
    LpVal x = in[0];
    int64_t r = attr[0].i;
    if (lp_attr_none(&attr[1]))
        x = lp_reshape(b, x, (int64_t[]){-1}, 1);
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, x);
    int d = lp_attr_none(&attr[1]) ? 0 : lp_wrapped(b, attr[1].i, t.ndim);
    if (r < 0 || t.ndim == LP_MAX_DIMS)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "repeats can not be negative (got %lld), nor the "
                         "dimensions more than %d",
                         LL(r), LP_MAX_DIMS - 1);
    if (t.ndim == 0)
        x = lp_unsqueeze(b, x, 0);
    if (lp_failed(b))
        return LP_NOVAL;
    t = lp_type_of(b, x);
    LpType wide = t;
    wide.ndim++;
    for (int i = t.ndim; i > d + 1; i--)
        wide.shape[i] = t.shape[i - 1];
    wide.shape[d + 1] = r;
    x = lp_expand_as(b, lp_unsqueeze(b, x, d + 1), &wide);
    x = lp_clone(b, x);
    if (lp_failed(b))
        return LP_NOVAL;
    t.shape[d] *= r;
    return lp_reshape(b, x, t.shape, t.ndim);
}
