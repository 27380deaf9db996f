/* Attention: out = softmax(q k^T scale + mask) v over the last two dimensions
 * [queries, size] x [keys, size] x [keys, value size]; leading dimensions are
 * equal. With P the softmax, S its argument:
 *
 *   dV = P^T dO    dP = dO V^T    dS = P (dP - rowsum(P dP))
 *   dQ = scale dS K               dK = scale dS^T Q
 *
 * The device has no such operation: a trace inlines the expansion, whose
 * scores then live in its memory, and the host may run the region by blocks
 * that never write the score matrix (src/kernel/nn/attention_kernel.c; it
 * computes the scores again for the gradient). */
#include <math.h>

#include "src/kernel/nn/nn.h"
#include "src/ops/nn/nnop.h"

static LpStatus check(LpInfer *x, const LpType *q, const LpType *k,
                      const LpType *v)
{
    int n = q->ndim;
    bool ok = n >= 2 && k->ndim == n && v->ndim == n;
    for (int d = 0; ok && d < n - 2; d++)
        ok = q->shape[d] == k->shape[d] && q->shape[d] == v->shape[d];
    ok = ok && q->shape[n - 1] == k->shape[n - 1] &&
         k->shape[n - 2] == v->shape[n - 2];
    LP_FAIL_IF(!ok, x->err, LP_E_RUNTIME,
               "%s: query %s, key %s and value %s do not fit: expected [..., "
               "L, E], [..., S, E], [..., S, V] with equal leading sizes",
               x->op->name, lp_shape_str(q), lp_shape_str(k), lp_shape_str(v));
    LP_FAIL_IF(!lp_is_float(q->dtype) || q->dtype != k->dtype ||
                   q->dtype != v->dtype,
               x->err, LP_E_RUNTIME,
               "%s: query, key and value must have one floating point dtype, "
               "got %s, %s and %s",
               x->op->name, lp_dtype_name(q->dtype), lp_dtype_name(k->dtype),
               lp_dtype_name(v->dtype));
    return LP_OK;
}

static LpStatus check_mask(LpInfer *x, const LpType *m, const LpType *q,
                           const LpType *k)
{
    if (m->dtype == LP_DT_NONE)
        return LP_OK;
    LpType s = *q, both;
    s.shape[s.ndim - 1] = k->shape[k->ndim - 2];
    both = s;
    bool fits = lp_broadcast(&both, m, NULL) == LP_OK;
    LP_FAIL_IF(!fits || !lp_shape_eq(&both, &s) || m->dtype != q->dtype, x->err,
               LP_E_RUNTIME,
               "%s: a mask of shape %s and dtype %s does not fit scores of "
               "shape %s and dtype %s",
               x->op->name, lp_shape_str(m), lp_dtype_name(m->dtype),
               lp_shape_str(&s), lp_dtype_name(q->dtype));
    return LP_OK;
}

static LpStatus infer(LpInfer *x)
{
    LP_TRY(check(x, &x->in[0], &x->in[1], &x->in[2]));
    LP_TRY(check_mask(x, &x->in[3], &x->in[0], &x->in[1]));
    x->out[0] = x->in[0];
    x->out[0].shape[x->in[0].ndim - 1] = x->in[2].shape[x->in[2].ndim - 1];
    return LP_OK;
}

static LpStatus infer_back(LpInfer *x)
{
    LP_TRY(check(x, &x->in[1], &x->in[2], &x->in[3]));
    LP_TRY(check_mask(x, &x->in[4], &x->in[1], &x->in[2]));
    LP_TRY(lp_need_float(x, 0, "grad"));
    LpType grad = x->in[1];
    grad.shape[grad.ndim - 1] = x->in[3].shape[grad.ndim - 1];
    LP_TRY(lp_need_shape(x, 0, "grad", &grad));
    for (int i = 0; i < 3; i++)
        x->out[i] = x->in[1 + i];
    return LP_OK;
}

static LpType scores_of(const LpType *q, const LpType *k)
{
    LpType s = *q;
    s.shape[s.ndim - 1] = k->shape[k->ndim - 2];
    return s;
}

static LpStatus infer_random(LpInfer *x)
{
    LP_TRY(infer(x));
    x->out[1] = scores_of(&x->in[0], &x->in[1]);
    return LP_OK;
}

static LpStatus infer_random_back(LpInfer *x)
{
    LP_TRY(infer_back(x));
    LpType p = scores_of(&x->in[1], &x->in[2]);
    return lp_need_shape(x, 4, "probabilities", &p);
}

/* 0 on and below the diagonal, -inf above. */
static LpVal causal_mask(LpBuilder *b, const LpType *scores)
{
    LpType t = {.dtype = scores->dtype, .ndim = 2};
    t.shape[0] = scores->shape[scores->ndim - 2];
    t.shape[1] = scores->shape[scores->ndim - 1];
    LpAttr diagonal = lp_attr_int(1);
    LpVal low = lp_full(b, &t, lp_float(-INFINITY));
    return lp_emit(b, LP_OP_triu, &low, 1, &diagonal);
}

static LpVal probabilities(LpBuilder *b, const LpAttr *attr, LpVal q, LpVal k,
                           LpVal mask)
{
    LpVal s = lp_matmul(b, q, lp_transpose(b, k, -1, -2));
    s = lp_mul(b, s, lp_immf(b, attr[LP_ATTENTION_SCALE].f));
    if (mask != LP_NOVAL)
        s = lp_add(b, s, mask);
    if (lp_failed(b))
        return LP_NOVAL;
    const LpType *t = lp_type(b, s);
    if (attr[LP_ATTENTION_IS_CAUSAL].i)
        s = lp_add(b, s, causal_mask(b, t));
    LpAttr dim = lp_attr_int(t->ndim - 1);
    return lp_emit(b, LP_OP_softmax, &s, 1, &dim);
}

LP_EXPAND(expand_attention)
{
    out[0] = lp_matmul(b, probabilities(b, attr, in[0], in[1], in[3]), in[2]);
}

LP_EXPAND(expand_random)
{
    out[1] = probabilities(b, attr, in[0], in[1], in[3]);
    out[0] = lp_matmul(b, out[1], in[2]);
}

LP_EXPAND(expand_random_back)
{
    LpVal g = in[0], q = in[1], k = in[2], v = in[3], p = in[4];
    LpVal scale = lp_immf(b, attr[LP_ATTENTION_SCALE].f);
    LpVal dp = lp_matmul(b, g, lp_transpose(b, v, -1, -2));
    if (lp_failed(b))
        return;
    LpAttr dim = lp_attr_int(lp_type(b, p)->ndim - 1);
    LpVal ds = lp_emit(b, LP_OP_softmax_backward, (LpVal[]){dp, p}, 2, &dim);
    ds = lp_mul(b, ds, scale);
    out[0] = lp_matmul(b, ds, k);
    out[1] = lp_matmul(b, lp_transpose(b, ds, -1, -2), q);
    out[2] = lp_matmul(b, lp_transpose(b, p, -1, -2), g);
}

LP_EXPAND(expand_back)
{
    LpVal arg[5] = {in[0], in[1], in[2], in[3]};
    arg[4] = probabilities(b, attr, in[1], in[2], in[4]);
    expand_random_back(b, attr, arg, 5, out, 3);
}

/* A mask that wants a gradient takes the way over the expansion. */
static void grad(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal in[5] = {g->dout[0], g->in[0], g->in[1], g->in[2], g->in[3]};
    LpVal out[3] = {0};
    lp_emit_n(b, LP_OP_attention_backward, in, 5, g->attr, out);
    for (int i = 0; i < 3; i++)
        g->din[i] = out[i];
    if (!g->need[3] || lp_failed(b))
        return;
    LpVal p = probabilities(b, g->attr, g->in[0], g->in[1], g->in[3]);
    LpVal dp = lp_matmul(b, g->dout[0], lp_transpose(b, g->in[2], -1, -2));
    if (lp_failed(b))
        return;
    LpAttr dim = lp_attr_int(lp_type(b, p)->ndim - 1);
    g->din[3] = lp_emit(b, LP_OP_softmax_backward, (LpVal[]){dp, p}, 2, &dim);
}

LP_PRIMITIVE(attention,
             "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, "
             "float scale, bool is_causal) -> Tensor @p",
             infer, lp_attention_prepare, NULL, .kind = LP_OP_FUSED,
             .flags = LP_OPF_STRIDED_OUT, .expand = expand_attention,
             .grad = grad, .grad_in = 15, .work = lp_attention_work,
             .back = &op_attention_backward,
             .at_random = &op_attention_at_random, .sites = lp_attention_sites)

LP_PRIMITIVE(attention_backward,
             "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor "
             "value, Tensor? mask, float scale, bool is_causal) -> (Tensor "
             "query, Tensor key, Tensor value) @p",
             infer_back, lp_attention_back_prepare, NULL, .kind = LP_OP_FUSED,
             .flags = LP_OPF_STRIDED_OUT, .expand = expand_back,
             .work = lp_attention_back_work,
             .at_random = &op_attention_at_random_backward,
             .sites = lp_attention_back_sites)

/* Host-only: of a step that rounds at random. */
LP_PRIMITIVE(attention_at_random,
             "attention_at_random(Tensor query, Tensor key, Tensor value, "
             "Tensor? mask, float scale, bool is_causal, int[] sites) -> "
             "(Tensor out, Tensor probabilities) @p",
             infer_random, lp_attention_random_prepare, NULL,
             .kind = LP_OP_FUSED, .flags = LP_OPF_STRIDED_OUT,
             .expand = expand_random, .work = lp_attention_work)

LP_PRIMITIVE(attention_at_random_backward,
             "attention_at_random_backward(Tensor grad, Tensor query, Tensor "
             "key, Tensor value, Tensor probabilities, float scale, bool "
             "is_causal, int[] sites) -> (Tensor query, Tensor key, Tensor "
             "value) @p",
             infer_random_back, lp_attention_random_back_prepare, NULL,
             .kind = LP_OP_FUSED, .flags = LP_OPF_STRIDED_OUT,
             .expand = expand_random_back, .work = lp_attention_back_work)

/* ---- public form --------------------------------------------------------- */
/* scaled_dot_product_attention */
enum { P_DROPOUT_P, P_IS_CAUSAL, P_SCALE, P_ENABLE_GQA };

/* Key and value heads repeated to the number of query heads. */
static LpVal repeat_heads(LpBuilder *b, LpVal x, const LpType *q)
{
    const LpType *t = lp_type(b, x);
    int64_t heads = t->shape[t->ndim - 3], want = q->shape[q->ndim - 3];
    if (heads == want || heads == 0)
        return x;
    LpType wide = {.dtype = t->dtype, .ndim = (int8_t)(t->ndim + 1)};
    LpType flat = *t;
    for (int d = 0; d < wide.ndim; d++)
        wide.shape[d] = d == t->ndim - 2  ? want / heads
                        : d < t->ndim - 2 ? t->shape[d]
                                          : t->shape[d - 1];
    flat.shape[flat.ndim - 3] = want;
    x = lp_unsqueeze(b, x, t->ndim - 2);
    x = lp_expand_as(b, x, &wide);
    return lp_reshape(b, x, flat.shape, flat.ndim);
}

/* Leading dimensions of x broadcast to those of `like`. */
static LpVal lead_like(LpBuilder *b, LpVal x, const LpType *like)
{
    const LpType *t = lp_type(b, x);
    LpType want = *like;
    for (int d = 1; d <= 2; d++)
        want.shape[want.ndim - d] = t->shape[t->ndim - d];
    return lp_shape_eq(t, &want) ? x : lp_expand_as(b, x, &want);
}

/* x broadcast to the leading dimensions of `like` but for its last `own`. */
static LpVal lead_of(LpBuilder *b, LpVal x, const LpType *like, int own)
{
    LpType t = *lp_type(b, x), want = t.ndim < like->ndim ? *like : t;
    if (t.ndim < own || like->ndim < own)
        return x;
    want.dtype = t.dtype;
    for (int d = 1; d <= want.ndim; d++) {
        int64_t mine = d <= t.ndim ? t.shape[t.ndim - d] : 1;
        bool yields = d > own && mine == 1 && d <= like->ndim;
        want.shape[want.ndim - d] = yields ? like->shape[like->ndim - d] : mine;
    }
    return lp_shape_eq(&t, &want) ? x : lp_expand_as(b, x, &want);
}

/* Rows and columns, and heads before them where those are repeated. */
static bool enough_dims(LpBuilder *b, const LpVal *in, bool heads)
{
    static const char *const name[] = {"query", "key", "value"};
    int least = heads && lp_type(b, in[0])->ndim > 2 ? 3 : 2;
    for (int i = 0; i < 3 && !lp_failed(b); i++)
        if (lp_type(b, in[i])->ndim < least)
            lp_fail(b->err, LP_E_RUNTIME,
                    "scaled_dot_product_attention: %s must have at least %d "
                    "dimensions, got %d",
                    name[i], least, lp_type(b, in[i])->ndim);
    return !lp_failed(b);
}

LP_FORMULA(scaled_dot_product_attention,
           "scaled_dot_product_attention(Tensor query, Tensor key, Tensor "
           "value, Tensor? attn_mask=None, float dropout_p=0.0, bool "
           "is_causal=False, float? scale=None, bool enable_gqa=False) -> "
           "Tensor @n",
           .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    LpVal q = in[0], k = in[1], v = in[2], mask = in[3];
    LpType qt = *lp_type(b, q);
    if (mask != LP_NOVAL && attr[P_IS_CAUSAL].i)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "scaled_dot_product_attention: Explicit attn_mask should not "
            "be set when is_causal=True");
    if (!enough_dims(b, in, attr[P_ENABLE_GQA].i))
        return LP_NOVAL;
    q = lead_of(b, q, lp_type(b, k), attr[P_ENABLE_GQA].i ? 3 : 2);
    if (lp_failed(b))
        return LP_NOVAL;
    qt = *lp_type(b, q);
    if (attr[P_ENABLE_GQA].i && qt.ndim >= 3) {
        k = repeat_heads(b, k, &qt);
        v = repeat_heads(b, v, &qt);
    }
    if (lp_failed(b))
        return LP_NOVAL;
    k = lead_like(b, k, &qt);
    v = lead_like(b, v, &qt);
    if (mask != LP_NOVAL && lp_type(b, mask)->dtype == LP_BOOL) {
        LpType t = {.dtype = qt.dtype};
        mask = lp_where(b, mask, lp_full(b, &t, lp_float(0)),
                        lp_full(b, &t, lp_float(-INFINITY)));
    }
    LpAttr a[2];
    a[LP_ATTENTION_SCALE] =
        lp_attr_float(attr[P_SCALE].kind == LP_ATTR_FLOAT
                          ? attr[P_SCALE].f
                          : 1 / sqrt((double)qt.shape[qt.ndim - 1]));
    a[LP_ATTENTION_IS_CAUSAL] = lp_attr_bool(attr[P_IS_CAUSAL].i);
    if (attr[P_DROPOUT_P].f > 0) {
        LpVal p = probabilities(b, a, q, k, mask);
        LpAttr d[2] = {lp_attr_float(attr[P_DROPOUT_P].f), lp_attr_bool(true)};
        p = lp_emit(b, LP_OP_dropout, &p, 1, d);
        return lp_matmul(b, p, v);
    }
    return lp_emit(b, LP_OP_attention, (LpVal[]){q, k, v, mask}, 4, a);
}
