/* PopTorch's serialized product: the parts of one matrix product, one after
 * another, each of which needs less memory for its operands and partials. The
 * parts are products of their own, so that their gradients are in parts as
 * well. */
#include <string.h>

#include "src/ops/nn/nnop.h"
#include "src/ops/rules.h"

typedef struct Parts {
    int64_t factor;
    int dim_x, dim_y; /* that are cut, from the end; 0: none */
    bool adds;        /* the parts are summed, not joined */
    int joined;
} Parts;

/* Of [m, n] by [n, p]. */
static bool parts_of(const char *mode, Parts *p)
{
    if (strcmp(mode, "input_channels") == 0)
        p->dim_x = p->joined = -2;
    else if (strcmp(mode, "reducing_dim") == 0)
        p->dim_x = -1, p->dim_y = -2, p->adds = true;
    else if (strcmp(mode, "output_channels") == 0)
        p->dim_y = p->joined = -1;
    else
        return false;
    return true;
}

static bool fits(LpBuilder *b, const Parts *p, LpVal x, LpVal y)
{
    LpType t = lp_type_of(b, p->dim_x ? x : y);
    int64_t n = t.shape[t.ndim + (p->dim_x ? p->dim_x : p->dim_y)];
    if (lp_failed(b) ||
        (p->factor > 0 && p->factor <= (n ? n : 1) && n % p->factor == 0))
        return !lp_failed(b);
    return LP_REFUSE(b, LP_E_POPTORCH,
                     "serializedMatMul: factor must be a factor of the "
                     "serialized dimension's size, got %lld for a size of "
                     "%lld",
                     (long long)p->factor, (long long)n);
}

/* Part i of x, cut along a dimension from the end. */
static LpVal part(LpBuilder *b, LpVal x, int dim, int64_t i, int64_t factor)
{
    if (dim == 0)
        return x;
    LpType t = lp_type_of(b, x);
    int at = t.ndim + dim;
    int64_t n = t.shape[at] / factor;
    return lp_slice(b, x, at, i * n, (i + 1) * n, 1);
}

static LpVal in_parts(LpBuilder *b, const Parts *p, LpVal x, LpVal y)
{
    LpVal *v = lp_value_list(b, (int)p->factor);
    for (int64_t i = 0; v && i < p->factor; i++) {
        v[i] = lp_matmul(b, part(b, x, p->dim_x, i, p->factor),
                         part(b, y, p->dim_y, i, p->factor));
        if (p->adds && i > 0)
            v[0] = lp_add(b, v[0], v[i]);
    }
    if (lp_failed(b) || p->adds)
        return lp_failed(b) ? LP_NOVAL : v[0];
    LpType t = lp_type_of(b, v[0]);
    return lp_cat(b, v, (int)p->factor, t.ndim + p->joined);
}

/* x times y, of which both have two dimensions at least. Sums of half parts,
 * in the product or in its gradients, are float32 ones if asked. */
static LpVal product(LpBuilder *b, const LpAttr *attr, const Parts *p, LpVal x,
                     LpVal y)
{
    LpDtype t = lp_dtype_of(b, x);
    if (!lp_alike(b, y, x, "serializedMatMul", "rhs"))
        return LP_NOVAL;
    bool widen =
        attr[LP_SERIALIZED_KEEP_PRECISION].i && p->dim_x != 0 && lp_is_half(t);
    if (widen) {
        x = lp_cast(b, x, LP_F32);
        y = lp_cast(b, y, LP_F32);
    }
    return lp_cast(b, in_parts(b, p, x, y), t);
}

LP_FORMULA(serialized_matmul,
           "serialized_matmul(Tensor self, Tensor other, str mode, int "
           "factor=0, bool keep_precision=False) -> Tensor @p",
           .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    Parts p = {.factor = attr[LP_SERIALIZED_FACTOR].i};
    LpType tx = lp_type_of(b, in[0]), ty = lp_type_of(b, in[1]);
    bool cut = parts_of(attr[LP_SERIALIZED_MODE].str, &p) && tx.ndim && ty.ndim;
    LpVal x = cut && tx.ndim == 1 ? lp_unsqueeze(b, in[0], 0) : in[0];
    LpVal y = cut && ty.ndim == 1 ? lp_unsqueeze(b, in[1], 1) : in[1];
    if (cut && !fits(b, &p, x, y))
        return LP_NOVAL;
    if (!cut || p.factor == 1)
        return lp_matmul(b, in[0], in[1]);
    LpVal r = product(b, attr, &p, x, y);
    LpType t = lp_type_of(b, r); /* drop the ones put in */
    int n = t.ndim;
    if (ty.ndim == 1)
        n--;
    else if (tx.ndim == 1)
        t.shape[n - 2] = t.shape[n - 1];
    if (tx.ndim == 1)
        n--;
    return n == t.ndim ? r : lp_reshape(b, r, t.shape, n);
}
