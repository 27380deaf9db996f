/* Attention that rounds at random where the operators do that it is made of,
 * by the same streams: one head's matrices, which a cache holds, go through
 * what those operators compute, and no bit differs from theirs. Above a causal
 * diagonal all is known: nothing is computed or drawn for. The probabilities
 * are a result: drawn for once more they would cost more than they weigh.
 *
 * Sites: scores, scaled ones, masked ones (if causal; they stay what they are),
 * probabilities, result; backward: gradients of the probabilities, of the
 * values, of the scores, of unscaled ones, of queries and of keys. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/gemm.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"

enum { FORWARD = 4, BACKWARD = 6, ROWS = 32 };
enum { MOST = 256 }; /* terms of a sum, which our product then adds in order */
enum { Q, K, V, O, P, DQ, DK, DV, N_MATRIX };
enum { SCORES, RESULT, D_PROBABLE, D_VALUES, D_QUERIES, D_KEYS, N_PRODUCT };

/* One head of an operand or result, as it is computed with, without gaps, and
 * where it is. */
typedef struct Matrix {
    LpCopyPlan plan;
    int64_t step[LP_MAX_DIMS]; /* strides of the leading dimensions */
} Matrix;

typedef struct Att {
    int64_t heads, q, k, e, v; /* leading product, queries, keys, sizes */
    double scale;
    bool causal, back;
    int lead, threads;
    int64_t size[LP_MAX_DIMS]; /* of leading dimensions */
    uint64_t site[BACKWARD];
    LpDtype t, c;  /* of operands and results; what is computed in */
    int64_t bytes; /* of a number of c */
    size_t each;   /* scratch of a thread */
    Matrix m[N_MATRIX];
} Att;

static LpGemmArgs product_of(const Att *a, int which)
{
    LpGemmArgs g[N_PRODUCT] = {
        [SCORES] = {a->q, a->k, a->e, a->e, 1, 1, a->e, a->k, 1, 0},
        [RESULT] = {a->q, a->v, a->k, a->k, 1, a->v, 1, a->v, 1, 0},
        [D_PROBABLE] = {a->q, a->k, a->v, a->v, 1, 1, a->v, a->k, 1, 0},
        [D_VALUES] = {a->k, a->v, a->q, 1, a->k, a->v, 1, a->v, 1, 0},
        [D_QUERIES] = {a->q, a->e, a->k, a->k, 1, a->e, 1, a->e, 1, 0},
        [D_KEYS] = {a->e, a->k, a->q, 1, a->e, a->k, 1, a->k, 1, 0}};
    return g[which];
}

/* What a thread has of one head. */
typedef struct Head {
    const Att *a;
    int64_t at; /* its number */
    LpRandom draws[BACKWARD];
    char *q, *k, *v, *p, *o, *ds, *made;
    void *work;
} Head;

static size_t places(const Att *a, char *base, Head *h)
{
    int64_t made = a->k * (a->e > a->v ? a->e : a->v);
    made = made > a->q * a->e ? made : a->q * a->e;
    int64_t n[] = {a->q * a->e, a->k * a->e, a->k * a->v, a->q * a->k,
                   a->q * a->v, a->q * a->k, made};
    char **to[] = {&h->q, &h->k, &h->v, &h->p, &h->o, &h->ds, &h->made};
    size_t at = 0, most = 0;
    for (int i = 0; i < 7; i++) {
        *to[i] = base + at;
        at += (size_t)((n[i] * a->bytes + 63) / 64 * 64);
    }
    h->work = base + at;
    for (int i = 0; i < N_PRODUCT; i++) {
        LpGemmArgs g = product_of(a, i);
        size_t need = lp_gemm_work(&g, a->c);
        most = need > most ? need : most;
    }
    return at + (most + 63) / 64 * 64;
}

/* Keys that query i sees. */
static int64_t seen(const Att *a, int64_t i)
{
    return a->causal && i + 1 < a->k ? i + 1 : a->k;
}

/* Lines at … of the product, queries or keys, where they see each other. */
static void multiply_part(const Head *h, int which, int64_t at, int64_t lines,
                          const char *x, const char *y, char *to)
{
    const Att *a = h->a;
    LpGemmArgs g = product_of(a, which);
    if (which == D_VALUES ||
        which == D_KEYS) { /* keys, by queries from it on */
        int64_t from = lp_min(at, a->q);
        g.k = a->q - from;
        x += from * g.a_cs * a->bytes;
        y += from * g.b_rs * a->bytes;
    }
    if (which == D_KEYS) {
        g.n = lines;
        y += at * g.b_cs * a->bytes;
        to += at * g.c_cs * a->bytes;
    } else {
        g.m = lines;
        x += at * g.a_rs * a->bytes;
        to += at * g.c_rs * a->bytes;
    }
    if (which == SCORES || which == D_PROBABLE)
        g.n = seen(a, at + lines - 1);
    if (which == RESULT || which == D_QUERIES)
        g.k = seen(a, at + lines - 1);
    if (g.k > 0)
        lp_gemm(&g, a->c, x, y, to, NULL, h->work, 1);
    else
        lp_gemm_zero(&g, a->c, to);
}

static void multiply(const Head *h, int which, const char *x, const char *y,
                     char *to)
{
    const Att *a = h->a;
    LpGemmArgs g = product_of(a, which);
    int64_t n = which == D_VALUES || which == D_KEYS ? a->k : a->q;
    if (!a->causal) {
        lp_gemm(&g, a->c, x, y, to, NULL, h->work, 1);
        return;
    }
    for (int64_t i = 0; i < n; i += ROWS)
        multiply_part(h, which, i, lp_min(ROWS, n - i), x, y, to);
}

static void *element(const Head *h, int which, void *const *at)
{
    const Att *a = h->a;
    int64_t head = h->at, off = 0;
    for (int d = a->lead - 1; d >= 0; d--) {
        off += head % a->size[d] * a->m[which].step[d];
        head /= a->size[d];
    }
    return (char *)at[which] + off * (int64_t)lp_dtype_size(a->t);
}

static void load(const Head *h, int which, void *const *at, char *to)
{
    lp_copy_run(&h->a->m[which].plan, element(h, which, at), to);
}

/* Halves alone; `at` numbers the elements. */
static void rounds(const Head *h, int site, uint64_t at, int64_t n, char *x)
{
    if (lp_is_half(h->a->t))
        lp_round_at_random(&h->draws[site], h->a->t, at, n, (float *)(void *)x);
}

/* n seen keys and those beyond that are computed as fast; strips of rows have
 * them. Sums over them add up as those over all keys do. */
static int64_t at_once(const Att *a, int64_t n)
{
    return lp_min((n + ROWS - 1) / ROWS * ROWS, a->k);
}

/* Of row i of the scores. */
static void rounds_row(const Head *h, int site, int64_t i, int64_t n, char *row)
{
    const Att *a = h->a;
    rounds(h, site, (uint64_t)((h->at * a->q + i) * a->k), at_once(a, n), row);
}

/* n elements of this head. */
static void store(const Head *h, int which, int site, int64_t n, char *x,
                  void *const *at)
{
    rounds(h, site, (uint64_t)(h->at * n), n, x);
    lp_copy_run(&h->a->m[which].plan, x, element(h, which, at));
}

#define ROW(T, L)                                                              \
    static void scale_##L(const Att *a, int64_t n, void *row)                  \
    {                                                                          \
        T *x = row;                                                            \
        for (int64_t j = 0; j < n; j++)                                        \
            x[j] *= (T)a->scale;                                               \
    }                                                                          \
    static void soft_##L(const Att *a, int64_t n, void *row)                   \
    {                                                                          \
        T *x = row;                                                            \
        int64_t whole = at_once(a, n);                                         \
        for (int64_t j = n; j < whole; j++)                                    \
            x[j] = -(T)INFINITY;                                               \
        lp_nn()->L->softmax(x, whole, x);                                      \
        memset(x + whole, 0, (size_t)(a->k - whole) * sizeof *x);              \
    }                                                                          \
    static void soft_back_##L(const Att *a, int64_t n, const void *p,          \
                              void *row)                                       \
    {                                                                          \
        T *x = row;                                                            \
        memset(x + n, 0, (size_t)(a->k - n) * sizeof *x);                      \
        lp_nn()->L->softmax_back(x, p, at_once(a, n), x);                      \
    }
ROW(float, f32)
ROW(double, f64)

static void probabilities(const Head *h)
{
    const Att *a = h->a;
    bool wide = a->c == LP_F64;
    multiply(h, SCORES, h->q, h->k, h->p);
    for (int64_t i = 0; i < a->q; i++) {
        int64_t n = seen(a, i);
        char *p = h->p + i * a->k * a->bytes;
        rounds_row(h, 0, i, n, p);
        (wide ? scale_f64 : scale_f32)(a, n, p);
        rounds_row(h, 1, i, n, p);
        (wide ? soft_f64 : soft_f32)(a, n, p);
        rounds_row(h, 2 + a->causal, i, n, p);
    }
}

static void slopes(const Head *h)
{
    const Att *a = h->a;
    bool wide = a->c == LP_F64;
    for (int64_t i = 0; i < a->q; i++) {
        int64_t n = seen(a, i), off = i * a->k * a->bytes;
        char *ds = h->ds + off;
        rounds_row(h, 0, i, n, ds);
        (wide ? soft_back_f64 : soft_back_f32)(a, n, h->p + off, ds);
        rounds_row(h, 2, i, n, ds);
        (wide ? scale_f64 : scale_f32)(a, n, ds);
        rounds_row(h, 3, i, n, ds);
    }
}

static void forward(const Head *h, void *const *at)
{
    const Att *a = h->a;
    load(h, V, at, h->v);
    probabilities(h);
    lp_copy_run(&a->m[P].plan, h->p, element(h, P, at));
    multiply(h, RESULT, h->p, h->v, h->o);
    store(h, O, FORWARD - 1 + a->causal, a->q * a->v, h->o, at);
}

static void backward(const Head *h, void *const *at)
{
    const Att *a = h->a;
    load(h, V, at, h->v);
    load(h, O, at, h->o);
    load(h, P, at, h->p);
    multiply(h, D_PROBABLE, h->o, h->v, h->ds);
    multiply(h, D_VALUES, h->p, h->o, h->made);
    store(h, DV, 1, a->k * a->v, h->made, at);
    slopes(h);
    multiply(h, D_QUERIES, h->ds, h->k, h->made);
    store(h, DQ, 4, a->q * a->e, h->made, at);
    multiply(h, D_KEYS, h->q, h->ds, h->made);
    store(h, DK, 5, a->k * a->e, h->made, at);
}

LP_KERNEL_RUN(run)
{
    const Att *a = k->state;
    void *at[N_MATRIX] = {[Q] = in[a->back],
                          [K] = in[1 + a->back],
                          [V] = in[2 + a->back],
                          [O] = a->back ? in[0] : out[0],
                          [P] = a->back ? in[4] : out[1]};
    if (a->back)
        memcpy(at + DQ, out, 3 * sizeof *at);
    LpRandom draws[BACKWARD];
    for (int i = 0; i < BACKWARD; i++)
        draws[i] = lp_rounding_stream(rc, a->site[i], 0);
    (void)e;
#pragma omp parallel for num_threads(a->threads) schedule(static)
    for (int64_t i = 0; i < a->heads; i++) {
        Head h = {.a = a, .at = i};
        if (lp_kernel_stops())
            continue;
        memcpy(h.draws, draws, sizeof draws);
        places(a, (char *)work + (size_t)omp_get_thread_num() * a->each, &h);
        load(&h, Q, at, h.q);
        load(&h, K, at, h.k);
        (a->back ? backward : forward)(&h, at);
    }
    return LP_OK;
}

/* ---- preparing ----------------------------------------------------------- */
/* `turned`: what is computed has it transposed. */
static void add(const LpDesc *d, int which, bool result, bool turned, Att *a)
{
    int n = d->ndim;
    LpDesc own = {.dtype = d->dtype, .ndim = 2}, wide;
    for (int i = 0; i < 2; i++) {
        own.shape[i] = d->shape[n - 2 + (i ^ turned)];
        own.strides[i] = d->strides[n - 2 + (i ^ turned)];
    }
    wide = lp_desc_plain(&own, a->c);
    lp_copy_plan(result ? &wide : &own, result ? &own : &wide, 1,
                 &a->m[which].plan);
    a->m[which].plan.stops = false;
    memcpy(a->m[which].step, d->strides, sizeof d->strides);
}

static LpStatus prepare(const LpKernelReq *r, bool back, LpKernel *k, LpErr *e)
{
    const LpDesc *in = r->in + back;
    const LpAttr *sites = &r->attr[LP_ATTENTION_SITES];
    int n = in[0].ndim;
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Att), run, k, e));
    Att *a = k->state;
    *a = (Att){.heads = lp_elements(in[0].shape, n - 2),
               .q = in[0].shape[n - 2],
               .k = in[1].shape[n - 2],
               .e = in[0].shape[n - 1],
               .v = in[2].shape[n - 1],
               .scale = r->attr[LP_ATTENTION_SCALE].f,
               .causal = r->attr[LP_ATTENTION_IS_CAUSAL].i != 0,
               .back = back,
               .lead = n - 2,
               .threads = r->threads < 1 ? 1 : r->threads,
               .t = in[0].dtype,
               .c = lp_plain_type(in[0].dtype)};
    a->bytes = (int64_t)lp_dtype_size(a->c);
    memcpy(a->size, in[0].shape, sizeof a->size);
    LP_FAIL_IF(
        lp_is_half(a->t) && sites->n != (back ? BACKWARD : FORWARD + a->causal),
        e, LP_E_VALUE, "%s: %d are not as many sites as it has roundings",
        r->op->name, sites->n);
    memcpy(a->site, sites->v,
           (size_t)lp_min(sites->n, BACKWARD) * sizeof *a->site);
    for (int i = 0; i < 3; i++) {
        add(&in[i], Q + i, false, false, a);
        if (back)
            add(&r->out[i], DQ + i, true, i == 1, a);
    }
    add(back ? &r->in[0] : &r->out[0], O, !back, false, a);
    add(back ? &r->in[4] : &r->out[1], P, !back, false, a);
    Head h;
    a->each = places(a, NULL, &h);
    k->work_bytes = a->each * (size_t)a->threads;
    return LP_OK;
}

LP_PREPARE_AS(lp_attention_random_prepare, prepare(r, false, k, e))
LP_PREPARE_AS(lp_attention_random_back_prepare, prepare(r, true, k, e))

/* The same bits are those of products that are ours and add up in order. */
static int sites_of(const LpType *const *in, const LpAttr *attr, bool back)
{
    const LpType *q = in[back], *k = in[1 + back], *v = in[2 + back];
    int64_t size[] = {q->shape[q->ndim - 2], k->shape[k->ndim - 2],
                      q->shape[q->ndim - 1], v->shape[v->ndim - 1]};
    bool fits = lp_gemm_is_fast_of(q->dtype) && !in[3 + back];
    for (int i = 0; i < 4; i++)
        fits = fits && size[i] > 1 && size[i] <= MOST;
    if (!fits)
        return 0;
    return back ? BACKWARD : FORWARD + (attr[LP_ATTENTION_IS_CAUSAL].i != 0);
}

int lp_attention_sites(const LpType *const *in, const LpAttr *attr)
{
    return sites_of(in, attr, false);
}

int lp_attention_back_sites(const LpType *const *in, const LpAttr *attr)
{
    return sites_of(in, attr, true);
}
