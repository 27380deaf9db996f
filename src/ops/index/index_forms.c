/* Indexing made of other operators. Masks become positions by nonzero, whose
 * number depends on the data; assigning under one mask does not need them and
 * works in a trace too. */
#include <string.h>

#include "src/ops/index/index.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define MAX_INDICES LP_MAX_DIMS

/* ---- along one dimension ------------------------------------------------- */
LP_FORMULA(index_add,
           "index_add(Tensor self, int dim, Tensor index, Tensor source, *, "
           "Scalar alpha=1) -> Tensor @fmio")
{
    LpVal src = in[2];
    if (lp_scalar_f(attr[1].s) != 1)
        src = lp_mul(b, src, lp_imm(b, attr[1].s));
    return lp_emit(b, LP_OP_index_add_rows, (LpVal[]){in[0], in[1], src}, 3,
                   attr);
}

/* self with the rows at index along `dim` set to `values` (which has the
 * rows' sizes, or broadcasts to them). */
static LpVal set_rows(LpBuilder *b, LpVal self, int64_t dim, LpVal index,
                      LpVal values)
{
    LpVal v[MAX_INDICES + 2] = {self, values};
    LpAttr a = lp_attr_bool(false);
    if (lp_failed(b))
        return LP_NOVAL;
    LpType t = lp_type_of(b, self);
    int d = lp_wrapped(b, dim, t.ndim);
    if (lp_failed(b))
        return LP_NOVAL;
    if (t.ndim == 0)
        v[0] = lp_reshape(b, self, (int64_t[]){1}, 1);
    v[d + 2] = index;
    v[0] = lp_emit(b, LP_OP_index_set, v, d + 3, &a);
    return lp_reshape_as(b, v[0], &t);
}

/* PyTorch has only int64 here; in a trace int32 may be a device's int64. */
static bool is_long(LpBuilder *b, const char *name, LpVal index)
{
    LpDtype t = lp_type(b, index)->dtype;
    bool ok = t == LP_I64 || (t == LP_I32 && !b->on_host);
    if (!ok)
        lp_fail(b->err, LP_E_RUNTIME,
                "%s: index has the type %s; it must be int64", name,
                lp_dtype_name(t));
    return ok;
}

static bool is_vector(LpBuilder *b, const char *name, LpVal index)
{
    int n = lp_type(b, index)->ndim;
    if (n > 1)
        lp_fail(b->err, LP_E_INDEX,
                "%s: Index is supposed to be a vector, got %d dimensions", name,
                n);
    return n <= 1;
}

LP_FORMULA(index_copy,
           "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> "
           "Tensor @fmio",
           .cast = LP_CAST_WIDEST)
{
    LpType self = lp_type_of(b, in[0]), src = lp_type_of(b, in[2]);
    LpType index = lp_type_of(b, in[1]);
    if (!is_long(b, "index_copy_()", in[1]) ||
        !is_vector(b, "index_copy_()", in[1]))
        return LP_NOVAL;
    int d = lp_wrapped(b, attr[0].i, self.ndim);
    if (lp_failed(b))
        return LP_NOVAL;
    LpType want = self;
    if (want.ndim > 0)
        want.shape[d] = lp_numel(&index);
    if (!lp_shape_eq(&want, &src) && !(src.ndim == 0 && self.ndim <= 1))
        return LP_REFUSE(
            b, LP_E_INDEX,
            "index_copy_(): Source/destination tensor must have same slice "
            "shapes: expected a source of shape %s, got %s",
            lp_shape_str(&want), lp_shape_str(&src));
    return set_rows(b, in[0], attr[0].i, in[1], in[2]);
}

/* A number or a 0-d tensor as a 0-d value of type t. */
static LpVal one_value(LpBuilder *b, const char *name, LpVal v, LpDtype t)
{
    LpType type = {.dtype = t};
    if (lp_is_imm(v))
        return lp_full(b, &type, b->imm(b, v));
    if (lp_type(b, v)->ndim != 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "%s only supports a 0-dimensional value tensor, but "
                         "got tensor with %d dimension(s).",
                         name, lp_type(b, v)->ndim);
    return lp_cast(b, v, t);
}

LP_FORMULA(index_fill,
           "index_fill(Tensor self, int dim, Tensor index, Value value) -> "
           "Tensor @fmi")
{
    if (!is_long(b, "index_fill_()", in[1]) ||
        !is_vector(b, "index_fill_()", in[1]))
        return LP_NOVAL;
    LpVal v = one_value(b, "index_fill_", in[2], lp_type(b, in[0])->dtype);
    if (lp_failed(b) || lp_is_imm(in[2]))
        return set_rows(b, in[0], attr[0].i, in[1], v);
    /* By a mask: positions named twice count once in the value's gradient. */
    LpType t = {.dtype = LP_BOOL}, all = lp_type_of(b, in[0]);
    all.dtype = LP_BOOL;
    LpVal mask = set_rows(b, lp_full(b, &all, lp_int(0)), attr[0].i, in[1],
                          lp_full(b, &t, lp_int(1)));
    return lp_where(b, mask, v, in[0]);
}

/* The index spread over the other dimensions of the source. */
LP_FORMULA(index_reduce,
           "index_reduce(Tensor self, int dim, Tensor index, Tensor source, "
           "str reduce, *, bool include_self=True) -> Tensor @fmio")
{
    const char *how = attr[1].str;
    LpType src = lp_type_of(b, in[2]);
    if (strcmp(how, "sum") == 0 || !is_vector(b, "index_reduce()", in[1]))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "index_reduce(): Expected reduce to be one of prod, "
                         "mean, amax or amin but got %s.",
                         how);
    int d = lp_wrapped(b, attr[0].i, src.ndim);
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal index = in[1];
    if (src.ndim > 0) {
        int64_t sizes[LP_MAX_DIMS];
        for (int i = 0; i < src.ndim; i++)
            sizes[i] = i == d ? lp_numel(lp_type(b, in[1])) : 1;
        index = lp_reshape(b, index, sizes, src.ndim);
        index = lp_expand_as(b, index, &src);
    }
    return lp_emit(b, LP_OP_scatter_reduce, (LpVal[]){in[0], index, in[2]}, 3,
                   attr);
}

/* ---- over all elements --------------------------------------------------- */
LP_FORMULA(take, "take(Tensor self, Tensor index) -> Tensor @fmo")
{
    if (!is_long(b, "take", in[1]))
        return LP_NOVAL;
    LpVal flat = lp_reshape(b, in[0], (int64_t[]){-1}, 1);
    return lp_emit(b, LP_OP_index_get, (LpVal[]){flat, in[1]}, 2, NULL);
}

LP_FORMULA(put, "put(Tensor self, Tensor index, Tensor source, bool "
                "accumulate=False) -> Tensor @fmi")
{
    LpType self = lp_type_of(b, in[0]), index = lp_type_of(b, in[1]);
    LpAttr a = lp_attr_bool(attr[0].i);
    if (!is_long(b, "put_()", in[1]))
        return LP_NOVAL;
    if (lp_numel(&index) != lp_numel(lp_type(b, in[2])))
        return LP_REFUSE(b, LP_E_INDEX,
                         "put_(): Expected source and index to have the same "
                         "number of elements, but got %lld and %lld",
                         (long long)lp_numel(lp_type(b, in[2])),
                         (long long)lp_numel(&index));
    LpVal flat = lp_reshape(b, in[0], (int64_t[]){-1}, 1);
    LpVal src = lp_reshape(b, in[2], index.shape, index.ndim);
    flat = lp_emit(b, LP_OP_index_set, (LpVal[]){flat, src, in[1]}, 3, &a);
    return lp_reshape_as(b, flat, &self);
}

/* Both broadcast except along dim, where negative positions count from the
 * end; without a dim both are flat. */
LP_FORMULA(take_along_dim,
           "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> "
           "Tensor @fmo")
{
    LpVal x = in[0], index = in[1];
    LpAttr a = lp_attr_int(0);
    if (!is_long(b, "take_along_dim", index))
        return LP_NOVAL;
    if (!lp_attr_none(&attr[0]) && lp_type(b, x)->ndim == 0)
        return LP_REFUSE(
            b, LP_E_INDEX,
            "take_along_dim: dim is %lld, but the tensor has no dimensions",
            (long long)attr[0].i);
    if (lp_attr_none(&attr[0])) {
        x = lp_reshape(b, x, (int64_t[]){-1}, 1);
        index = lp_reshape(b, index, (int64_t[]){-1}, 1);
    } else {
        LpType s = lp_type_of(b, x), t = lp_type_of(b, index), both;
        if (s.ndim != t.ndim)
            return LP_REFUSE(
                b, LP_E_RUNTIME,
                "torch.take_along_dim(): input and indices should have the "
                "same number of dimensions, but got %d dimensions for input, "
                "and %d dimensions for indices",
                s.ndim, t.ndim);
        int d = lp_wrapped(b, attr[0].i, s.ndim);
        int64_t n = s.shape[d], m = t.shape[d];
        s.shape[d] = t.shape[d] = 1;
        both = s;
        if (lp_failed(b) || lp_broadcast(&both, &t, b->err) != LP_OK)
            return LP_NOVAL;
        both.shape[d] = n;
        x = s.ndim > 0 ? lp_expand_as(b, x, &both) : x;
        both.shape[d] = m;
        index = s.ndim > 0 ? lp_expand_as(b, index, &both) : index;
        a.i = d;
        index = lp_where(b, lp_op2(b, LP_OP_lt, index, lp_immi(b, 0)),
                         lp_add(b, index, lp_immi(b, n)), index);
    }
    return lp_emit(b, LP_OP_gather, (LpVal[]){x, index}, 2, &a);
}

/* ---- advanced indexing with masks ---------------------------------------- */
static bool is_mask(LpBuilder *b, LpVal v)
{
    if (v == LP_NOVAL)
        return false;
    LpDtype t = lp_type(b, v)->dtype;
    return t == LP_BOOL || t == LP_U8;
}

/* The positions of a mask over the dimensions of `self` from `at` on, which
 * become one. */
static LpVal mask_index(LpBuilder *b, LpVal mask, LpVal *self, int at)
{
    LpType t = lp_type_of(b, mask), all = lp_type_of(b, *self);
    int n = t.ndim, rest = all.ndim - at - n;
    for (int i = 0; i < n; i++)
        if (at + i >= all.ndim || all.shape[at + i] != t.shape[i])
            return LP_REFUSE(
                b, LP_E_INDEX,
                "The shape of the mask %s at index %d does not match the shape "
                "of the indexed tensor %s at index %d",
                lp_shape_str(&t), i, lp_shape_str(&all), at + i);
    static const char refused[] =
        "a mask as an index: nonzero has a result whose shape depends on its "
        "data; it works eagerly but cannot be compiled. Allowed: x[mask] = "
        "values, torch.where, masked_fill";
    if (!b->on_host && !lp_excused(b, refused))
        return LP_REFUSE(b, LP_E_UNTRACED, refused);
    if (n > 1) {
        all.shape[at] = lp_numel(&t);
        memmove(all.shape + at + 1, all.shape + at + n,
                (size_t)rest * sizeof *all.shape);
        *self = lp_reshape(b, *self, all.shape, all.ndim - n + 1);
        mask = lp_reshape(b, mask, all.shape + at, 1);
    }
    LpVal where = lp_emit(b, LP_OP_nonzero, &mask, 1, NULL);
    LpAttr a[] = {lp_attr_int(1), lp_attr_int(0)};
    return lp_emit(b, LP_OP_select, &where, 1, a);
}

/* Indices without masks, of int64; returns their number. What a mask is over
 * becomes one dimension of `self`, a new one for a mask of none. */
static int plain_indices(LpBuilder *b, LpVal *self, const LpVal *in, int n,
                         LpVal *to)
{
    int m = 0;
    for (int i = 0; i < n && !lp_failed(b); i++) {
        LpType t = lp_type_of(b, *self);
        if (m >= t.ndim && !(is_mask(b, in[i]) && !lp_type(b, in[i])->ndim)) {
            lp_fail(b->err, LP_E_INDEX,
                    "too many indices for tensor of dimension %d", t.ndim);
        } else if (is_mask(b, in[i])) {
            LpVal mask = in[i];
            if (lp_type(b, mask)->ndim == 0) {
                *self = lp_unsqueeze(b, *self, m);
                mask = lp_unsqueeze(b, mask, 0);
            }
            if (!lp_failed(b))
                to[m] = mask_index(b, mask, self, m), m++;
        } else {
            LpDtype d = in[i] ? lp_type(b, in[i])->dtype : LP_I64;
            if (lp_is_float(d))
                lp_fail(b->err, LP_E_INDEX,
                        "tensors used as indices must be long, int, byte or "
                        "bool tensors, got %s",
                        lp_dtype_name(d));
            to[m++] = !in[i] || d == LP_I64 || d == LP_I32
                          ? in[i]
                          : lp_cast(b, in[i], LP_I64);
        }
    }
    return m;
}

LP_FORMULA(index, "index(Tensor self, Tensor?[] indices) -> Tensor @p")
{
    LpVal v[MAX_INDICES + 1];
    v[0] = in[0];
    int n = plain_indices(b, &v[0], in + 1, n_in - 1, v + 1);
    bool any = false;
    for (int i = 0; i < n; i++)
        any |= v[1 + i] != LP_NOVAL;
    if (lp_failed(b))
        return LP_NOVAL;
    return any ? lp_emit(b, LP_OP_index_get, v, n + 1, NULL)
               : lp_emit(b, LP_OP_alias, v, 1, NULL);
}

/* The mask over the leading dimensions of t, a 1 for each of the others. */
static LpVal over_leading(LpBuilder *b, LpVal mask, const LpType *t)
{
    LpType m = lp_type_of(b, mask), wide = *t;
    wide.ndim = m.ndim;
    if (m.ndim > t->ndim || !lp_shape_eq(&wide, &m)) {
        return LP_REFUSE(b, LP_E_INDEX,
                         "The shape of the mask %s does not match the shape of "
                         "the indexed tensor %s",
                         lp_shape_str(&m), lp_shape_str(t));
    }
    for (wide.ndim = t->ndim; m.ndim < t->ndim; m.ndim++)
        wide.shape[m.ndim] = 1;
    return lp_reshape_as(b, lp_cast(b, mask, LP_BOOL), &wide);
}

/* Does v, [n, ...] or less, broadcast to [n] and the sizes of row? */
static bool has_rows(const LpType *v, const LpType *row)
{
    for (int i = 1; i <= v->ndim && i <= row->ndim; i++) {
        int64_t n = v->shape[v->ndim - i];
        if (n != 1 && n != row->shape[row->ndim - i])
            return false;
    }
    return v->ndim <= row->ndim + 1;
}

/* self with v where the mask is set, false if that takes positions. One row
 * for all places is chosen; in a trace, which has no positions, several are
 * unpacked. */
static bool put_masked(LpBuilder *b, LpVal self, LpVal mask, LpVal v,
                       LpVal *out)
{
    LpType t = lp_type_of(b, self), u = lp_type_of(b, v), row = t;
    int masked = lp_type(b, mask)->ndim;
    LpVal wide = over_leading(b, mask, &t);
    if (lp_failed(b))
        return true;
    row.ndim = (int8_t)(t.ndim - masked);
    memmove(row.shape, row.shape + masked,
            (size_t)row.ndim * sizeof *row.shape);
    bool all = u.ndim > row.ndim && u.shape[0] != 1, fits = has_rows(&u, &row);
    if (b->on_host && (all || !fits))
        return false;
    if (!fits || (all && masked == 0)) {
        lp_fail(b->err, LP_E_INDEX,
                "shape mismatch: value tensor of shape %s cannot be broadcast "
                "to rows of shape %s",
                lp_shape_str(&u), lp_shape_str(&row));
        return true;
    }
    if (!all) {
        v = u.ndim > row.ndim ? lp_reshape_as(b, v, &row) : v;
        *out = lp_where(b, wide, v, self);
        return true;
    }
    LpAttr exact = lp_attr_bool(true);
    u.ndim = (int8_t)(row.ndim + 1);
    memcpy(u.shape + 1, row.shape, (size_t)row.ndim * sizeof *row.shape);
    *out = lp_emit(
        b, LP_OP_masked_unpack,
        (LpVal[]){self, lp_expand_as(b, wide, &t), lp_expand_as(b, v, &u)}, 3,
        &exact);
    return true;
}

LP_FORMULA(index_put,
           "index_put.values(Tensor self, Tensor values, Tensor?[] indices, "
           "bool accumulate=False) -> Tensor @p\n"
           "index_put(Tensor self, Tensor?[] indices, Tensor values, bool "
           "accumulate=False) -> Tensor @fmi")
{
    LpVal v[MAX_INDICES + 2], self = in[0], y = LP_NOVAL;
    LpDtype t = lp_type(b, self)->dtype, u = lp_type(b, in[1])->dtype;
    if (t != u)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "Index put requires the source and destination dtypes match, got "
            "%s for the destination and %s for the source.",
            lp_dtype_name(t), lp_dtype_name(u));
    if (n_in == 3 && !attr[0].i && is_mask(b, in[2]) &&
        put_masked(b, self, in[2], in[1], &y))
        return y;
    LpType before = lp_type_of(b, self);
    int n = plain_indices(b, &self, in + 2, n_in - 2, v + 2);
    v[0] = self;
    v[1] = in[1];
    if (lp_failed(b))
        return LP_NOVAL;
    y = lp_emit(b, LP_OP_index_set, v, n + 2, attr);
    return lp_reshape_as(b, y, &before);
}

LP_FORMULA(masked_select,
           "masked_select(Tensor self, Tensor mask) -> Tensor @fmo")
{
    LpType both = lp_type_of(b, in[0]);
    if (lp_type(b, in[1])->dtype != LP_BOOL)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "masked_select: expected BoolTensor for mask, got %s",
                         lp_dtype_name(lp_type(b, in[1])->dtype));
    if (lp_broadcast(&both, lp_type(b, in[1]), b->err) != LP_OK)
        return LP_NOVAL;
    LpVal x = lp_expand_as(b, in[0], &both);
    LpVal v[] = {x, lp_expand_as(b, in[1], &both)};
    if (both.ndim == 0) {
        v[0] = lp_unsqueeze(b, v[0], 0);
        v[1] = lp_unsqueeze(b, v[1], 0);
    }
    return lp_emit(b, LP_OP_index, v, 2, NULL);
}
