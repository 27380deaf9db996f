/* Views made of the primitive ones: transposes, flattening, splitting and the
 * forms that take sizes from another tensor. */
#include "src/base/checked.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* ---- like another tensor ------------------------------------------------- */
LP_FORMULA(reshape_as, "reshape_as(Tensor self, Tensor other) -> Tensor @m")
{
    LpType t = lp_type_of(b, in[1]);
    return lp_reshape(b, in[0], t.shape, t.ndim);
}

LP_FORMULA(view_as, "view_as(Tensor self, Tensor other) -> Tensor @m")
{
    LpType t = lp_type_of(b, in[1]);
    LpAttr a = lp_attr_ints(t.shape, t.ndim);
    return lp_emit(b, LP_OP_view, &in[0], 1, &a);
}

LP_FORMULA(expand_as, "expand_as(Tensor self, Tensor other) -> Tensor @m")
{
    LpType t = lp_type_of(b, in[1]);
    LpAttr a = lp_attr_ints(t.shape, t.ndim);
    return lp_emit(b, LP_OP_expand, &in[0], 1, &a);
}

/* ---- transposes ---------------------------------------------------------- */
LP_FORMULA(transpose,
           "transpose(Tensor self, int dim0, int dim1) -> Tensor @fm\n"
           "swapdims(Tensor self, int dim0, int dim1) -> Tensor @fm\n"
           "swapaxes(Tensor self, int dim0, int dim1) -> Tensor @fm")
{
    return lp_transpose(b, in[0], (int)attr[0].i, (int)attr[1].i);
}

LP_FORMULA(t, "t(Tensor self) -> Tensor @fm")
{
    int n = lp_type(b, in[0])->ndim;
    if (n > 2)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "t() expects a tensor with <= 2 dimensions, but self is %dD", n);
    return n < 2 ? lp_op1(b, LP_OP_alias, in[0]) : lp_transpose(b, in[0], 0, 1);
}

LP_FORMULA(movedim,
           "movedim(Tensor self, int[1] source, int[1] destination) -> "
           "Tensor @fm\n"
           "moveaxis(Tensor self, int[1] source, int[1] destination) -> "
           "Tensor @fm")
{
    int n = lp_type(b, in[0])->ndim;
    const LpAttr *from = &attr[0], *to = &attr[1];
    int64_t dims[LP_MAX_DIMS];
    bool taken[LP_MAX_DIMS] = {false}, set[LP_MAX_DIMS] = {false};
    if (from->n != to->n)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "movedim: Invalid source or destination dims: source (%d dims) "
            "should contain the same number of dims as destination (%d dims)",
            from->n, to->n);
    for (int i = 0; i < from->n; i++) {
        int s = lp_wrapped(b, from->v[i], n), d = lp_wrapped(b, to->v[i], n);
        if (lp_failed(b))
            return LP_NOVAL;
        if (taken[s] || set[d])
            return LP_REFUSE(
                b, LP_E_RUNTIME, "movedim: repeated dim in `%s`: %d",
                taken[s] ? "source" : "destination", taken[s] ? s : d);
        taken[s] = set[d] = true;
        dims[d] = s;
    }
    for (int d = 0, s = 0; d < n; d++) {
        if (set[d])
            continue;
        while (taken[s])
            s++;
        dims[d] = s++;
    }
    return lp_permute(b, in[0], dims, n);
}

/* ---- flattening ---------------------------------------------------------- */
LP_FORMULA(flatten,
           "flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor "
           "@fm")
{
    LpType t = lp_type_of(b, in[0]);
    int64_t sizes[LP_MAX_DIMS + 1];
    int first = lp_wrapped(b, attr[0].i, t.ndim), n = 0;
    int last = lp_wrapped(b, attr[1].i, t.ndim);
    if (lp_failed(b))
        return LP_NOVAL;
    if (first > last)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "flatten() has invalid args: start_dim cannot come "
                         "after end_dim (%d > %d)",
                         first, last);
    for (int i = 0; i < first; i++)
        sizes[n++] = t.shape[i];
    sizes[n] = 1;
    for (int i = first; i <= last && i < t.ndim; i++)
        sizes[n] *= t.shape[i];
    n++;
    for (int i = last + 1; i < t.ndim; i++)
        sizes[n++] = t.shape[i];
    return n == t.ndim ? lp_op1(b, LP_OP_alias, in[0])
                       : lp_reshape(b, in[0], sizes, n);
}

LP_FORMULA(ravel, "ravel(Tensor self) -> Tensor @fm")
{
    return lp_reshape(b, in[0], (int64_t[]){-1}, 1);
}

LP_FORMULA(unflatten,
           "unflatten(Tensor self, int dim, int[] sizes) -> Tensor @fm")
{
    LpType t = lp_type_of(b, in[0]);
    const LpAttr *s = &attr[1];
    int64_t sizes[LP_MAX_DIMS], known = 1;
    int d = lp_wrapped(b, attr[0].i, t.ndim), n = 0, open = 0;
    bool overflows = false;
    if (lp_failed(b))
        return LP_NOVAL;
    for (int i = 0; i < s->n; i++) {
        open += s->v[i] == -1;
        if (s->v[i] != -1 && !lp_mul_i64(known, s->v[i], &known))
            overflows = true;
    }
    if (s->n == 0 || t.ndim == 0 || s->n + t.ndim - 1 > LP_MAX_DIMS)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "unflatten: sizes must be non-empty and the result "
                         "must have at most %d dimensions",
                         LP_MAX_DIMS);
    if (open > 1 || overflows ||
        (open ? known <= 0 || t.shape[d] % known != 0 : known != t.shape[d])) {
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "unflatten: Provided sizes %s don't multiply up to "
                         "the size of dim %d (%lld) in the input tensor",
                         lp_ints_str(s->v, s->n), d, (long long)t.shape[d]);
    }
    for (int i = 0; i < d; i++)
        sizes[n++] = t.shape[i];
    for (int i = 0; i < s->n; i++)
        sizes[n++] = s->v[i] == -1 ? t.shape[d] / known : s->v[i];
    for (int i = d + 1; i < t.ndim; i++)
        sizes[n++] = t.shape[i];
    LpAttr a = lp_attr_ints(sizes, n);
    return lp_emit(b, LP_OP_view, &in[0], 1, &a);
}

LP_FORMULA(narrow,
           "narrow(Tensor self, int dim, int start, int length) -> Tensor "
           "@fm")
{
    LpType t = lp_type_of(b, in[0]);
    if (t.ndim == 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "narrow() cannot be applied to a 0-dim tensor.");
    int d = lp_wrapped(b, attr[0].i, t.ndim);
    if (lp_failed(b))
        return LP_NOVAL;
    int64_t start = attr[1].i, n = attr[2].i, size = t.shape[d];
    if (start < -size || start > size || n < 0 ||
        (start < 0 ? start + size : start) > size - n)
        return LP_REFUSE(
            b, start < -size || start > size ? LP_E_INDEX : LP_E_RUNTIME,
            "narrow: start (%lld) + length (%lld) exceeds dimension size "
            "(%lld), or one of them is out of range",
            (long long)start, (long long)n, (long long)size);
    start = start < 0 ? start + size : start;
    return lp_slice(b, in[0], d, start, start + n, 1);
}

LP_FORMULA(narrow_copy,
           "narrow_copy(Tensor self, int dim, int start, int length) -> "
           "Tensor @fmo")
{
    return lp_clone(b, value_of_narrow(b, attr, in, n_in));
}

/* ---- at least n dimensions ----------------------------------------------- */
LP_FORMULA(atleast_1d, "atleast_1d(Tensor self) -> Tensor @f")
{
    return lp_type(b, in[0])->ndim == 0 ? lp_unsqueeze(b, in[0], 0) : in[0];
}

LP_FORMULA(atleast_2d, "atleast_2d(Tensor self) -> Tensor @f")
{
    LpVal v = in[0];
    while (!lp_failed(b) && lp_type(b, v)->ndim < 2)
        v = lp_unsqueeze(b, v, 0);
    return v;
}

LP_FORMULA(atleast_3d, "atleast_3d(Tensor self) -> Tensor @f")
{
    LpVal v = in[0];
    while (!lp_failed(b) && lp_type(b, v)->ndim < 2)
        v = lp_unsqueeze(b, v, 0);
    if (!lp_failed(b) && lp_type(b, v)->ndim == 2)
        v = lp_unsqueeze(b, v, 2);
    return v;
}
