/* Attention by blocks of queries: a thread holds the scores of ROWS queries
 * against all keys, never the whole matrix. The gradient computes the scores
 * again; keys and values of one head gather their gradients in one thread, so
 * the bits do not depend on the number of threads. */
#include <math.h>
#include <string.h>

#include "src/ops/kernel/gemm.h"
#include "src/ops/kernel/loops.h"
#include "src/ops/kernel/nn.h"
#include "src/ops/kernel/plain.h"

enum { ROWS = 64 };

typedef struct Att {
    int64_t heads, q, k, e, v; /* leading product, queries, keys, sizes */
    double scale;
    bool causal, masked;
    int8_t lead;                    /* leading dimensions */
    int64_t size[LP_MAX_DIMS];      /* of them */
    int64_t mask_step[LP_MAX_DIMS]; /* strides of the mask, elements */
} Att;
_Static_assert(sizeof(Att) <= LP_PLAIN_PARAM, "Att");

static Att att_of(const LpDesc *q, const LpDesc *k, const LpDesc *v,
                  const LpDesc *mask, const LpAttr *attr)
{
    int n = q->ndim;
    Att a = {.heads = 1,
             .q = q->shape[n - 2],
             .k = k->shape[n - 2],
             .e = q->shape[n - 1],
             .v = v->shape[n - 1],
             .scale = attr[0].f,
             .causal = attr[1].i != 0,
             .masked = mask->dtype != LP_DT_NONE,
             .lead = (int8_t)(n - 2)};
    int64_t step = 1; /* plain.h hands over a contiguous mask */
    int64_t steps[LP_MAX_DIMS] = {0};
    for (int d = mask->ndim - 1; a.masked && d >= 0; d--) {
        if (mask->shape[d] != 1)
            steps[n - mask->ndim + d] = step;
        step *= mask->shape[d];
    }
    memcpy(a.mask_step, steps, sizeof steps);
    for (int d = 0; d < n - 2; d++) {
        a.size[d] = q->shape[d];
        a.heads *= q->shape[d];
    }
    return a;
}

static int64_t mask_at(const Att *a, int64_t head, int64_t row)
{
    int64_t off = row * a->mask_step[a->lead];
    for (int d = a->lead - 1; d >= 0; d--) {
        off += head % a->size[d] * a->mask_step[d];
        head /= a->size[d];
    }
    return off;
}

static LpGemmArgs product(int64_t m, int64_t n, int64_t k, bool ta, bool tb)
{
    return (LpGemmArgs){.m = m,
                        .n = n,
                        .k = k,
                        .a_rs = ta ? 1 : k,
                        .a_cs = ta ? m : 1,
                        .b_rs = tb ? 1 : n,
                        .b_cs = tb ? k : 1,
                        .c_rs = n,
                        .c_cs = 1};
}

/* Scratch of one thread: scores, their gradient, one product, gemm's own. */
static size_t scratch(const Att *a, LpDtype t)
{
    size_t size = lp_dtype_size(t);
    int64_t wide = a->e > a->v ? a->e : a->v;
    LpGemmArgs g[3] = {product(ROWS, a->k, wide, false, true),
                       product(ROWS, wide, a->k, false, false),
                       product(a->k, wide, ROWS, true, false)};
    size_t inner = 0;
    for (int i = 0; i < 3; i++)
        if (lp_gemm_work(&g[i], t) > inner)
            inner = lp_gemm_work(&g[i], t);
    size_t own = (size_t)(2 * ROWS * a->k + (a->k > ROWS ? a->k : ROWS) * wide);
    return (own * size + inner + 127) / 64 * 64;
}

#define ATTENTION(T, LT, S, EXP)                                               \
    /* rows of softmax(q k^T scale + mask), from query `first` on */           \
    static void scores_##S(const Att *a, int64_t head, int64_t first,          \
                           int64_t rows, const T *q, const T *k,               \
                           const T *mask, T *p, void *work)                    \
    {                                                                          \
        LpGemmArgs g = product(rows, a->k, a->e, false, true);                 \
        lp_gemm(&g, LT, q + first * a->e, k, p, work, 1);                      \
        for (int64_t r = 0; r < rows; r++) {                                   \
            T *row = p + r * a->k, high = -(T)INFINITY, sum = 0;               \
            int64_t last = a->causal ? first + r + 1 : a->k;                   \
            int64_t seen = last < a->k ? last : a->k;                          \
            int64_t step = a->mask_step[a->lead + 1];                          \
            const T *m =                                                       \
                a->masked ? mask + mask_at(a, head, first + r) : NULL;         \
            for (int64_t j = 0; j < seen; j++) {                               \
                row[j] = row[j] * (T)a->scale + (m ? m[j * step] : 0);         \
                high = row[j] > high ? row[j] : high;                          \
            }                                                                  \
            for (int64_t j = 0; j < seen; j++)                                 \
                row[j] = row[j] - high;                                        \
            EXP(row, seen);                                                    \
            for (int64_t j = 0; j < seen; j++)                                 \
                sum += row[j];                                                 \
            for (int64_t j = 0; j < seen; j++)                                 \
                row[j] /= sum;                                                 \
            for (int64_t j = seen; j < a->k; j++)                              \
                row[j] = 0;                                                    \
        }                                                                      \
    }                                                                          \
    static void forward_##S(const Att *a, int64_t head, void *const *in,       \
                            void *out, void *work)                             \
    {                                                                          \
        const T *q = (const T *)in[0] + head * a->q * a->e;                    \
        const T *k = (const T *)in[1] + head * a->k * a->e;                    \
        const T *v = (const T *)in[2] + head * a->k * a->v;                    \
        T *o = (T *)out + head * a->q * a->v, *p = work;                       \
        void *inner = p + ROWS * a->k;                                         \
        for (int64_t at = 0; at < a->q; at += ROWS) {                          \
            int64_t rows = a->q - at < ROWS ? a->q - at : ROWS;                \
            scores_##S(a, head, at, rows, q, k, in[3], p, inner);              \
            LpGemmArgs g = product(rows, a->v, a->k, false, false);            \
            lp_gemm(&g, LT, p, v, o + at * a->v, inner, 1);                    \
        }                                                                      \
    }                                                                          \
    static void add_##S(T *to, const T *x, int64_t n)                          \
    {                                                                          \
        for (int64_t i = 0; i < n; i++)                                        \
            to[i] += x[i];                                                     \
    }                                                                          \
    static void backward_##S(const Att *a, int64_t head, void *const *in,      \
                             void *const *out, void *work)                     \
    {                                                                          \
        const T *go = (const T *)in[0] + head * a->q * a->v;                   \
        const T *q = (const T *)in[1] + head * a->q * a->e;                    \
        const T *k = (const T *)in[2] + head * a->k * a->e;                    \
        const T *v = (const T *)in[3] + head * a->k * a->v;                    \
        T *dq = (T *)out[0] + head * a->q * a->e;                              \
        T *dk = (T *)out[1] + head * a->k * a->e;                              \
        T *dv = (T *)out[2] + head * a->k * a->v;                              \
        T *p = work, *ds = p + ROWS * a->k, *part = ds + ROWS * a->k;          \
        int64_t wide = a->e > a->v ? a->e : a->v;                              \
        void *inner = part + (a->k > ROWS ? a->k : ROWS) * wide;               \
        memset(dk, 0, (size_t)(a->k * a->e) * sizeof *dk);                     \
        memset(dv, 0, (size_t)(a->k * a->v) * sizeof *dv);                     \
        for (int64_t at = 0; at < a->q; at += ROWS) {                          \
            int64_t rows = a->q - at < ROWS ? a->q - at : ROWS;                \
            scores_##S(a, head, at, rows, q, k, in[4], p, inner);              \
            LpGemmArgs g = product(rows, a->k, a->v, false, true);             \
            lp_gemm(&g, LT, go + at * a->v, v, ds, inner, 1);                  \
            for (int64_t r = 0; r < rows; r++) {                               \
                T *x = ds + r * a->k, dot = 0;                                 \
                const T *y = p + r * a->k;                                     \
                for (int64_t j = 0; j < a->k; j++)                             \
                    dot += x[j] * y[j];                                        \
                for (int64_t j = 0; j < a->k; j++)                             \
                    x[j] = y[j] * (x[j] - dot) * (T)a->scale;                  \
            }                                                                  \
            g = product(rows, a->e, a->k, false, false);                       \
            lp_gemm(&g, LT, ds, k, dq + at * a->e, inner, 1);                  \
            g = product(a->k, a->e, rows, true, false);                        \
            lp_gemm(&g, LT, ds, q + at * a->e, part, inner, 1);                \
            add_##S(dk, part, a->k * a->e);                                    \
            g = product(a->k, a->v, rows, true, false);                        \
            lp_gemm(&g, LT, p, go + at * a->v, part, inner, 1);                \
            add_##S(dv, part, a->k * a->v);                                    \
        }                                                                      \
    }

static const LpNum no_param[LP_PW_MAX_PARAM];

static void exp_f32(float *x, int64_t n)
{
    const void *in[1] = {x};
    lp_loop_row(LP_LOOP_exp)->f32(n, x, in, 0, no_param);
}

static void exp_f64(double *x, int64_t n)
{
    const void *in[1] = {x};
    lp_loop_row(LP_LOOP_exp)->f64(n, x, in, 0, no_param);
}

ATTENTION(float, LP_F32, f32, exp_f32)
ATTENTION(double, LP_F64, f64, exp_f64)

static LpStatus forward(const LpPlain *p, void *const *in, void *const *out,
                        void *work, const LpRunCtx *rc, LpErr *e)
{
    (void)rc, (void)e;
    const Att *a = (const void *)p->param;
    size_t each = scratch(a, (LpDtype)p->compute);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int t = 0; t < p->threads; t++)
        for (int64_t h = t; h < a->heads; h += p->threads)
            if (p->compute == LP_F64)
                forward_f64(a, h, in, out[0], (char *)work + (size_t)t * each);
            else
                forward_f32(a, h, in, out[0], (char *)work + (size_t)t * each);
    return LP_OK;
}

static LpStatus backward(const LpPlain *p, void *const *in, void *const *out,
                         void *work, const LpRunCtx *rc, LpErr *e)
{
    (void)rc, (void)e;
    const Att *a = (const void *)p->param;
    size_t each = scratch(a, (LpDtype)p->compute);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int t = 0; t < p->threads; t++)
        for (int64_t h = t; h < a->heads; h += p->threads)
            if (p->compute == LP_F64)
                backward_f64(a, h, in, out, (char *)work + (size_t)t * each);
            else
                backward_f32(a, h, in, out, (char *)work + (size_t)t * each);
    return LP_OK;
}

LpStatus lp_attention_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    LpDtype t = lp_plain_type(r->out[0].dtype);
    Att a = att_of(&r->in[0], &r->in[1], &r->in[2], &r->in[3], r->attr);
    size_t work = scratch(&a, t) * (size_t)r->threads;
    return lp_plain_prepare(r, k, forward, t, &a, sizeof a, work, e);
}

LpStatus lp_attention_back_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    LpDtype t = lp_plain_type(r->out[0].dtype);
    Att a = att_of(&r->in[1], &r->in[2], &r->in[3], &r->in[4], r->attr);
    size_t work = scratch(&a, t) * (size_t)r->threads;
    return lp_plain_prepare(r, k, backward, t, &a, sizeof a, work, e);
}

/* Two products a head; the backward makes the scores again and has five. */
static double products(const LpDesc *q, const LpDesc *k, const LpDesc *v)
{
    double keys = (double)k->shape[k->ndim - 2];
    double pairs = (double)lp_desc_numel(q) * keys;
    double e = (double)q->shape[q->ndim - 1];
    return e > 0 ? pairs * (1 + (double)v->shape[v->ndim - 1] / e) : 0;
}

double lp_attention_work(const LpKernelReq *r)
{
    return products(&r->in[0], &r->in[1], &r->in[2]);
}

double lp_attention_back_work(const LpKernelReq *r)
{
    return 2.5 * products(&r->in[1], &r->in[2], &r->in[3]);
}
