/* Attention by blocks of queries (attnloops_t.h), never the whole score
 * matrix; the gradient computes the scores again. A head is one thread's, so
 * the bits do not depend on the number of threads.
 *
 * Operands whose rows have no gaps are read and written where they are, such
 * as the heads of one wide matrix; others are copied to scratch and back.
 * Halves among them are widened and rounded head by head, in the cache. */
#include <string.h>

#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/attnloops.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/plain.h"

enum { Q, K, V, O, DQ, DK, DV, N_MATRIX };

typedef struct Att {
    int64_t heads, q, k, e, v; /* leading product, queries, keys, sizes */
    double scale;
    bool causal, masked;
    int8_t lead;                    /* leading dimensions */
    uint32_t size[LP_MAX_DIMS];     /* of them: results have as many rows */
    int64_t mask_step[LP_MAX_DIMS]; /* strides of the mask, elements */
    /* strides: the last leading dimension but one, the last (all of them
     * where there are more than two), rows */
    int64_t step[N_MATRIX][3];
    uint8_t stored[N_MATRIX]; /* LpDtype */
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
             .scale = attr[LP_ATTENTION_SCALE].f,
             .causal = attr[LP_ATTENTION_IS_CAUSAL].i != 0,
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
        a.size[d] = (uint32_t)q->shape[d];
        a.heads *= q->shape[d];
    }
    return a;
}

/* The strides of one matrix; whether it is used where it is. */
static bool steps_of(Att *a, int which, const LpDesc *d, LpDtype compute)
{
    int n = d->ndim;
    int64_t rows = d->shape[n - 2], size = d->shape[n - 1];
    int64_t *step = a->step[which];
    bool half = lp_is_half(d->dtype) && compute == LP_F32;
    bool in_place = (d->dtype == compute || half) && a->lead <= 2 &&
                    (d->strides[n - 1] == 1 || size <= 1);
    a->stored[which] = (uint8_t)(in_place ? d->dtype : compute);
    step[2] = in_place ? d->strides[n - 2] : size;
    step[1] = rows * size;
    step[0] = a->lead == 2 ? rows * size * a->size[1] : 0;
    for (int i = 0; in_place && i < a->lead; i++)
        step[2 - a->lead + i] = d->strides[i];
    return in_place;
}

static LpAttnRows rows_of(const Att *a, int which, int64_t head, void *at)
{
    const int64_t *step = a->step[which];
    int64_t last = a->lead == 2 ? a->size[1] : a->heads;
    int64_t off = head / last * step[0] + head % last * step[1];
    int64_t size = (int64_t)lp_dtype_size((LpDtype)a->stored[which]);
    return (LpAttnRows){(char *)at + off * size, step[2]};
}

static int64_t mask_at(const Att *a, int64_t head)
{
    int64_t off = 0;
    for (int d = a->lead - 1; d >= 0; d--) {
        off += head % a->size[d] * a->mask_step[d];
        head /= a->size[d];
    }
    return off;
}

static LpAttnRows *matrix(LpAttnHead *h, int which)
{
    LpAttnRows *m[N_MATRIX] = {&h->q,  &h->k,  &h->val, &h->out,
                               &h->dq, &h->dk, &h->dval};
    return m[which];
}

/* `at`: by matrix; NULL: not used. */
static LpAttnHead head_of(const Att *a, int64_t head, void *const *at,
                          const void *mask, LpDtype t)
{
    LpAttnHead h = {.n_q = a->q,
                    .n_k = a->k,
                    .e = a->e,
                    .v = a->v,
                    .scale = a->scale,
                    .causal = a->causal,
                    .mask_q = a->mask_step[a->lead],
                    .mask_k = a->mask_step[a->lead + 1]};
    if (mask)
        h.mask =
            (const char *)mask + mask_at(a, head) * (int64_t)lp_dtype_size(t);
    for (int i = 0; i < N_MATRIX; i++)
        if (at[i])
            *matrix(&h, i) = rows_of(a, i, head, at[i]);
    return h;
}

static const LpAttnLoops *loops(LpDtype t)
{
    return &LP_SIMD_PICK(lp_attn_loops)[t == LP_F64];
}

/* ---- halves -------------------------------------------------------------- */
static void shape_of(const Att *a, int which, int64_t *rows, int64_t *size)
{
    bool keys = which == K || which == V || which == DK || which == DV;
    *rows = keys ? a->k : a->q;
    *size = which == V || which == O || which == DV ? a->v : a->e;
}

static bool is_wide(const Att *a, int which, LpDtype t)
{
    return a->stored[which] == t;
}

/* Bytes of a head's matrix in the type computed in. */
static size_t wide_bytes(const Att *a, int which, LpDtype t)
{
    int64_t rows, size;
    shape_of(a, which, &rows, &size);
    return ((size_t)(rows * size) * lp_dtype_size(t) + 63) / 64 * 64;
}

/* Rows without gaps from one type to another. */
static void convert(const Att *a, int which, LpDtype from_t, LpAttnRows from,
                    LpDtype to_t, LpAttnRows to)
{
    int64_t rows, size, f = (int64_t)lp_dtype_size(from_t),
                        t = (int64_t)lp_dtype_size(to_t);
    shape_of(a, which, &rows, &size);
    LpConvert loop = lp_convert_loop(from_t, to_t);
    for (int64_t i = 0; i < rows; i++)
        loop(size, (char *)to.at + i * to.step * t, t,
             (const char *)from.at + i * from.step * f, f);
}

/* ---- all heads ----------------------------------------------------------- */
/* What a direction reads and writes. */
static bool reads(int which, bool back)
{
    return which < O || (which == O && back);
}

static size_t loops_work(const Att *a, LpDtype t, bool back)
{
    LpAttnHead h = {.n_q = a->q, .n_k = a->k, .e = a->e, .v = a->v};
    return (loops(t)->work(&h, back) + 63) / 64 * 64;
}

/* Of a thread; once `stored` is known. */
static size_t scratch(const Att *a, LpDtype t, bool back)
{
    size_t n = loops_work(a, t, back);
    for (int i = 0; i < (back ? N_MATRIX : DQ); i++)
        n += is_wide(a, i, t) ? 0 : wide_bytes(a, i, t);
    return n;
}

static void one_head(const Att *a, LpAttnHead h, LpDtype t, bool back,
                     char *work)
{
    LpAttnRows narrow[N_MATRIX];
    char *own = work + loops_work(a, t, back);
    int n = back ? N_MATRIX : DQ;
    for (int i = 0; i < n; i++) {
        LpAttnRows *m = matrix(&h, i);
        narrow[i] = *m;
        if (is_wide(a, i, t))
            continue;
        int64_t rows;
        m->at = own;
        shape_of(a, i, &rows, &m->step);
        own += wide_bytes(a, i, t);
        if (reads(i, back))
            convert(a, i, (LpDtype)a->stored[i], narrow[i], t, *m);
    }
    (back ? loops(t)->backward : loops(t)->forward)(&h, work);
    for (int i = 0; i < n; i++)
        if (!is_wide(a, i, t) && !reads(i, back))
            convert(a, i, t, *matrix(&h, i), (LpDtype)a->stored[i], narrow[i]);
}

static void run(const LpPlain *p, void *const *at, const void *mask, void *work,
                bool back)
{
    const Att *a = (const void *)p->param;
    LpDtype t = (LpDtype)p->compute;
    size_t each = scratch(a, t, back);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int i = 0; i < p->threads; i++)
        for (int64_t n = a->heads * i / p->threads;
             n < a->heads * (i + 1) / p->threads && !lp_kernel_stops(); n++)
            one_head(a, head_of(a, n, at, mask, t), t, back,
                     (char *)work + (size_t)i * each);
}

LP_PLAIN_CORE(forward)
{
    void *at[N_MATRIX] = {[Q] = in[0], [K] = in[1], [V] = in[2], [O] = out[0]};
    run(p, at, in[3], work, false);
    return LP_OK;
}

LP_PLAIN_CORE(backward)
{
    void *at[N_MATRIX] = {
        [O] = in[0],   [Q] = in[1],   [K] = in[2],  [V] = in[3],
        [DQ] = out[0], [DK] = out[1], [DV] = out[2]};
    run(p, at, in[4], work, true);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_attention_prepare)
{
    LpDtype t = lp_plain_type(r->out[0].dtype);
    Att a = att_of(&r->in[0], &r->in[1], &r->in[2], &r->in[3], r->attr);
    uint32_t in = 0, out = steps_of(&a, O, &r->out[0], t);
    for (int i = 0; i < 3; i++)
        in |= (uint32_t)steps_of(&a, Q + i, &r->in[i], t) << i;
    return lp_plain_prepare_but(r, k, forward, t, &a, sizeof a,
                                scratch(&a, t, false) * (size_t)r->threads, in,
                                out, e);
}

LP_KERNEL_PREPARE(lp_attention_back_prepare)
{
    LpDtype t = lp_plain_type(r->out[0].dtype);
    Att a = att_of(&r->in[1], &r->in[2], &r->in[3], &r->in[4], r->attr);
    uint32_t in = steps_of(&a, O, &r->in[0], t), out = 0;
    for (int i = 0; i < 3; i++) {
        in |= (uint32_t)steps_of(&a, Q + i, &r->in[1 + i], t) << (1 + i);
        out |= (uint32_t)steps_of(&a, DQ + i, &r->out[i], t) << i;
    }
    return lp_plain_prepare_but(r, k, backward, t, &a, sizeof a,
                                scratch(&a, t, true) * (size_t)r->threads, in,
                                out, e);
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
