/* Padding by elements of the operand itself (shape_pad.c says which), of
 * widths of zero or more, and its adjoint: each other's gradients. The device
 * joins parts, so a trace inlines that. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/hooks.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* The widest side of a dimension of n elements. */
static int64_t widest(const char *mode, int64_t n)
{
    return mode[2] == 'f' ? n - 1 : mode[2] == 'r' ? n : INT64_MAX;
}

static LpStatus check(const LpInfer *x)
{
    const LpAttr *pad = &x->attr[LP_EDGES_PAD];
    const char *mode = x->attr[LP_EDGES_MODE].str;
    LP_FAIL_IF(strcmp(mode, "reflect") != 0 && strcmp(mode, "replicate") != 0 &&
                   strcmp(mode, "circular") != 0,
               x->err, LP_E_RUNTIME,
               "%s: mode must be reflect, replicate or circular, got %s",
               x->op->name, mode);
    LP_FAIL_IF(pad->n % 2 != 0 || pad->n < 2 || pad->n > 6 ||
                   pad->n / 2 > x->in[0].ndim,
               x->err, LP_E_RUNTIME,
               "%s: pad takes 2, 4 or 6 values, for as many sides of the last "
               "of %d dimensions; got %d",
               x->op->name, x->in[0].ndim, pad->n);
    LP_FAIL_IF(!lp_is_float(x->in[0].dtype), x->err, LP_E_RUNTIME,
               "%s: expected floating-point elements, got %s", x->op->name,
               lp_dtype_name(x->in[0].dtype));
    return LP_OK;
}

static LpStatus infer(LpInfer *x, int sign)
{
    const LpAttr *pad = &x->attr[LP_EDGES_PAD];
    LP_TRY(check(x));
    x->out[0] = x->in[0];
    for (int i = 0; i < pad->n / 2; i++) {
        int64_t p = pad->v[2 * i], q = pad->v[2 * i + 1], made, n;
        int64_t *size = &x->out[0].shape[x->in[0].ndim - 1 - i], from = *size;
        bool fits = p >= 0 && q >= 0 && lp_add_i64(p, q, &n) &&
                    lp_add_i64(from, sign * n, &made) && made >= 0;
        n = fits && sign < 0 ? made : from;
        int64_t most = widest(x->attr[LP_EDGES_MODE].str, n);
        LP_FAIL_IF(!fits || n == 0 || p > most || q > most, x->err,
                   LP_E_RUNTIME,
                   "%s: dimension %d of size %lld has no sides of %lld and "
                   "%lld elements",
                   x->op->name, x->in[0].ndim - 1 - i, (long long)from,
                   (long long)p, (long long)q);
        *size = made;
    }
    return LP_OK;
}

static LpStatus infer_forth(LpInfer *x)
{
    return infer(x, 1);
}

static LpStatus infer_back(LpInfer *x)
{
    return infer(x, -1);
}

LP_EXPAND(expand_forth)
{
    const LpAttr *pad = &attr[LP_EDGES_PAD];
    int last = lp_type(b, in[0])->ndim - 1;
    out[0] = in[0];
    for (int i = 0; i < pad->n / 2 && !lp_failed(b); i++)
        out[0] = lp_pad_sides(b, out[0], last - i, pad->v[2 * i],
                              pad->v[2 * i + 1], attr[LP_EDGES_MODE].str);
}

/* What the side of dimension d, `p` wide, adds to the n elements. */
static LpVal side_back(LpBuilder *b, LpVal g, int d, int64_t n, int64_t p,
                       bool before, int64_t at, const char *mode)
{
    int64_t from = before ? 0 : at + n, place = before ? 0 : n - p;
    LpVal v = lp_slice(b, g, d, from, from + p, 1);
    int64_t wide = p;
    if (mode[2] == 'f') {
        v = lp_flip(b, v, d);
        place = before ? 1 : n - 1 - p;
    } else if (mode[2] == 'p') {
        if (p > 1)
            v = lp_sum(b, v, (int64_t[]){d}, 1, true);
        wide = 1;
        place = before ? 0 : n - 1;
    } else {
        place = before ? n - p : 0;
    }
    int64_t pad[2 * LP_MAX_DIMS] = {0};
    int k = lp_type(b, g)->ndim - 1 - d;
    pad[2 * k] = place;
    pad[2 * k + 1] = n - wide - place;
    LpAttr a[] = {lp_attr_ints(pad, 2 * k + 2), lp_attr_scalar(lp_int(0))};
    return lp_emit(b, LP_OP_constant_pad_nd, &v, 1, a);
}

LP_EXPAND(expand_back)
{
    const LpAttr *pad = &attr[LP_EDGES_PAD];
    const char *mode = attr[LP_EDGES_MODE].str;
    int last = lp_type(b, in[0])->ndim - 1;
    LpVal g = in[0];
    for (int i = pad->n / 2 - 1; i >= 0 && !lp_failed(b); i--) {
        int d = last - i;
        int64_t p = pad->v[2 * i], q = pad->v[2 * i + 1];
        int64_t n = lp_type(b, g)->shape[d] - p - q;
        LpVal sum = lp_slice(b, g, d, p, p + n, 1);
        if (p > 0)
            sum = lp_add(b, sum, side_back(b, g, d, n, p, true, p, mode));
        if (q > 0)
            sum = lp_add(b, sum, side_back(b, g, d, n, q, false, p, mode));
        g = sum;
    }
    out[0] = g;
}

static void grad_forth(LpGrad *g)
{
    g->din[0] =
        lp_emit(g->b, LP_OP_pad_edges_backward, &g->dout[0], 1, g->attr);
}

static void grad_back(LpGrad *g)
{
    g->din[0] = lp_emit(g->b, LP_OP_pad_edges, &g->dout[0], 1, g->attr);
}

LP_PRIMITIVE(pad_edges,
             "pad_edges(Tensor self, int[] pad, str mode) -> Tensor "
             "@p",
             infer_forth, lp_edges_prepare, NULL, .kind = LP_OP_FUSED,
             .expand = expand_forth, .grad = grad_forth)

LP_PRIMITIVE(pad_edges_backward,
             "pad_edges_backward(Tensor grad, int[] pad, str mode) -> Tensor "
             "@p",
             infer_back, lp_edges_back_prepare, NULL, .kind = LP_OP_FUSED,
             .expand = expand_back, .grad = grad_back)
