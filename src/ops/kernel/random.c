/* Drawing. Blocks of BLOCK elements are filled in float, double or int64 and
 * converted to the result's type. A double takes 53 bits: 32 of its own word,
 * the others from the same counter under a second key. */
#include "src/ops/kernel/random.h"

#include <string.h>

#include "src/base/random.h"
#include "src/ops/kernel/copy.h"
#include "src/ops/kernel/gather_sort.h"
#include "src/ops/kernel/state.h"

#define BLOCK 1024 /* a multiple of 4 */
#define PARALLEL (1 << 14)
#define SECOND 0x5bd1e9955bd1e995u

static LpRandom stream(const LpRunCtx *rc, uint64_t site)
{
    return lp_random(rc->seed, site, rc->iteration, rc->replica,
                     rc->micro_batch);
}

/* Words of elements at … at + n; `at` is a multiple of 4. */
static void words(const LpRandom *r, int64_t at, int64_t n, uint32_t *to)
{
    uint32_t last[4];
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t *w = n - i < 4 ? last : to + i;
        lp_random_block(r, (uint32_t)((at + i) / 4), w);
        if (w == last)
            memcpy(to + i, last, (size_t)(n - i) * sizeof *last);
    }
}

typedef struct Draw {
    LpDrawReq q;
    LpDesc out;
    LpDtype type; /* drawn in: double, float or int64 */
    uint64_t site;
    int64_t n;
    bool strided; /* drawn to scratch, then copied */
    int threads;
} Draw;

/* ---- float ---------------------------------------------------------------
 */
/* [0, 1) with as many bits as the type has, so that 1 is never reached. */
static float unit(uint32_t w, LpDtype t)
{
    if (t == LP_F16)
        return (float)(w >> 21) * 0x1p-11f;
    if (t == LP_BF16)
        return (float)(w >> 24) * 0x1p-8f;
    return lp_random_unit(w);
}

/* (0, 1] */
static double open_unit(uint32_t hi, uint32_t lo)
{
    return 1.0 - lp_random_unit2(hi, lo);
}

/* Inverse of the error function: Giles' approximation ("Approximating the
 * erfinv function", 2010), then two steps of Newton. */
static double inverse_erf(double x)
{
    double w = -log((1 - x) * (1 + x)), p;
    if (w < 5) {
        static const double c[] = {
            2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
            -4.39150654e-06, 0.00021858087,  -0.00125372503,
            -0.00417768164,  0.246640727,    1.50140941};
        w -= 2.5;
        p = c[0];
        for (int i = 1; i < 9; i++)
            p = p * w + c[i];
    } else {
        static const double c[] = {
            -0.000200214257, 0.000100950558, 0.00134934322,
            -0.00367342844,  0.00573950773,  -0.0076224613,
            0.00943887047,   1.00167406,     2.83297682};
        w = sqrt(w) - 3;
        p = c[0];
        for (int i = 1; i < 9; i++)
            p = p * w + c[i];
    }
    double y = p * x;
    for (int i = 0; i < 2 && y == y && fabs(y) < 6; i++)
        y -= (erf(y) - x) / (1.1283791670955126 * exp(-y * y));
    return y;
}

static double truncated(const LpDrawReq *q, double u)
{
    double lo = erf((q->c - q->a) / q->b * 0.70710678118654752);
    double hi = erf((q->d - q->a) / q->b * 0.70710678118654752);
    double x =
        q->a + q->b * 1.4142135623730951 * inverse_erf(lo + u * (hi - lo));
    return x < q->c ? q->c : x > q->d ? q->d : x;
}

/* One number that is no normal, from 53 bits. */
static double value(const LpDrawReq *q, uint32_t hi, uint32_t lo)
{
    double u;
    switch (q->draw) {
    case LP_DRAW_UNIFORM:
        return q->a + (q->b - q->a) * lp_random_unit2(hi, lo);
    case LP_DRAW_EXPONENTIAL:
        return -log(open_unit(hi, lo)) / q->a;
    case LP_DRAW_CAUCHY:
        u = lp_random_unit2(hi, lo) - 0.5;
        return q->a + q->b * tan(3.14159265358979324 * u);
    case LP_DRAW_GEOMETRIC:
        u = ceil(log(open_unit(hi, lo)) / log1p(-q->a));
        return u < 1 ? 1 : u;
    case LP_DRAW_BERNOULLI:
        return lp_random_unit2(hi, lo) < q->a;
    default:
        return truncated(q, lp_random_unit2(hi, lo));
    }
}

static void normals(const uint32_t *w, int64_t n, double mean, double dev,
                    bool power, double *to)
{
    for (int64_t i = 0; i < n; i += 2) {
        float pair[2];
        lp_random_normal2(w[i], w[i + 1], pair);
        for (int64_t j = i; j < i + 2 && j < n; j++) {
            double v = mean + dev * (double)pair[j - i];
            to[j] = power ? exp(v) : v;
        }
    }
}

static void fill_float(const Draw *d, const uint32_t *hi, const uint32_t *lo,
                       int64_t n, double *to)
{
    const LpDrawReq *q = &d->q;
    bool power = q->draw == LP_DRAW_LOG_NORMAL;
    if (q->draw == LP_DRAW_NORMAL || power) {
        normals(hi, n, q->a, q->b, power, to);
    } else if (q->draw == LP_DRAW_UNIFORM && d->out.dtype != LP_F64) {
        for (int64_t i = 0; i < n; i++)
            to[i] = q->a + (q->b - q->a) * (double)unit(hi[i], d->out.dtype);
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = value(q, hi[i], lo[i]);
    }
}

/* A uniform result that rounds up to b is taken below it. */
static void keep_below(const Draw *d, int64_t n, double *x)
{
    if (d->q.draw != LP_DRAW_UNIFORM || d->q.b <= d->q.a ||
        d->out.dtype == LP_F64)
        return;
    char one[8];
    for (int64_t i = 0; i < n; i++) {
        lp_scalar_store(lp_float(x[i]), d->out.dtype, one);
        if (lp_scalar_f(lp_scalar_load(d->out.dtype, one)) >= d->q.b)
            x[i] = d->q.a;
    }
}

/* ---- integers ------------------------------------------------------------
 */
static void fill_integer(const Draw *d, const uint32_t *hi, const uint32_t *lo,
                         int64_t n, int64_t *to)
{
    uint64_t range = (uint64_t)d->q.high - (uint64_t)d->q.low;
    for (int64_t i = 0; i < n; i++) {
        uint64_t w = (uint64_t)hi[i] << 32 | lo[i], k = w;
        if (range != 0) /* 0: all 2^64 */
            k = (uint64_t)((unsigned __int128)w * range >> 64);
        to[i] = (int64_t)((uint64_t)d->q.low + k);
    }
}

/* ---- the kernel ----------------------------------------------------------
 */
static void draw_block(const Draw *d, const LpRandom *r, const LpRandom *r2,
                       int64_t at, int64_t n, char *out)
{
    uint32_t hi[BLOCK + 4], lo[BLOCK + 4];
    double x[BLOCK];
    int64_t k[BLOCK];
    LpDtype t = d->out.dtype;
    char *to = out + at * (int64_t)lp_dtype_size(t);
    words(r, at, (n + 3) & ~(int64_t)3, hi);
    words(r2, at, (n + 3) & ~(int64_t)3, lo);
    if (d->q.draw == LP_DRAW_INTEGER) {
        fill_integer(d, hi, lo, n, k);
        lp_convert(LP_I64, k, 1, t, to, 1, n);
    } else {
        fill_float(d, hi, lo, n, x);
        keep_below(d, n, x);
        lp_convert(LP_F64, x, 1, t, to, 1, n);
    }
}

static LpStatus run_draw(const LpKernel *k, void *const *in, void *const *out,
                         void *work, const LpRunCtx *rc, LpErr *e)
{
    (void)in, (void)e;
    const Draw *d = k->state;
    LpRandom r = stream(rc, d->site), r2 = stream(rc, d->site ^ SECOND);
    char *to = d->strided ? work : out[0];
    int64_t blocks = (d->n + BLOCK - 1) / BLOCK;
    int threads = d->n < PARALLEL ? 1 : d->threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t left = d->n - i * BLOCK;
        draw_block(d, &r, &r2, i * BLOCK, left < BLOCK ? left : BLOCK, to);
    }
    if (d->strided) {
        LpType t = {.dtype = d->out.dtype, .ndim = d->out.ndim};
        memcpy(t.shape, d->out.shape, sizeof t.shape);
        LpDesc plain = lp_desc_of(&t);
        lp_copy_strided(&plain, work, &d->out, out[0]);
    }
    return LP_OK;
}

LpStatus lp_draw_prepare(const LpKernelReq *r, const LpDrawReq *q, LpKernel *k,
                         LpErr *e)
{
    Draw *d = lp_kernel_state(r->op->name, sizeof *d, k, e);
    if (!d)
        return LP_E_MEMORY;
    d->q = *q;
    d->out = r->out[0];
    d->site = r->site;
    d->n = lp_desc_numel(&d->out);
    d->strided = !lp_desc_contiguous(&d->out);
    d->threads = r->threads;
    k->work_bytes = d->strided ? (size_t)d->n * lp_dtype_size(d->out.dtype) : 0;
    k->run = run_draw;
    k->threads = r->threads;
    return LP_OK;
}

/* ---- bernoulli -----------------------------------------------------------
 */
typedef struct Coin {
    LpDesc in, out;
    uint64_t site;
    int64_t n;
} Coin;

static LpDesc plain_of(const LpDesc *d, LpDtype t)
{
    LpType type = {.dtype = t, .ndim = d->ndim};
    memcpy(type.shape, d->shape, sizeof type.shape);
    return lp_desc_of(&type);
}

/* work: the probabilities, then the results, in double */
static LpStatus run_bernoulli(const LpKernel *k, void *const *in,
                              void *const *out, void *work, const LpRunCtx *rc,
                              LpErr *e)
{
    const Coin *s = k->state;
    LpRandom r = stream(rc, s->site), r2 = stream(rc, s->site ^ SECOND);
    LpDesc plain = plain_of(&s->in, LP_F64);
    double *p = work;
    lp_copy_strided(&s->in, in[0], &plain, p);
    for (int64_t i = 0; i < s->n; i += 4) {
        uint32_t hi[4], lo[4];
        words(&r, i, 4, hi);
        words(&r2, i, 4, lo);
        for (int64_t j = i; j < i + 4 && j < s->n; j++) {
            LP_FAIL_IF(!(p[j] >= 0 && p[j] <= 1), e, LP_E_RUNTIME,
                       "Expected p_in >= 0 && p_in <= 1 to be true, got %g at "
                       "position %lld",
                       p[j], (long long)j);
            p[j] = lp_random_unit2(hi[j - i], lo[j - i]) < p[j];
        }
    }
    lp_copy_strided(&plain, p, &s->out, out[0]);
    return LP_OK;
}

LpStatus lp_bernoulli_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Coin *s = lp_kernel_state(r->op->name, sizeof *s, k, e);
    if (!s)
        return LP_E_MEMORY;
    *s = (Coin){.in = r->in[0],
                .out = r->out[0],
                .site = r->site,
                .n = lp_desc_numel(&r->in[0])};
    k->work_bytes = (size_t)s->n * sizeof(double);
    k->run = run_bernoulli;
    k->threads = 1;
    return LP_OK;
}

/* ---- randperm ------------------------------------------------------------
 */
/* work: items and as many again */
static LpStatus run_randperm(const LpKernel *k, void *const *in,
                             void *const *out, void *work, const LpRunCtx *rc,
                             LpErr *e)
{
    (void)in, (void)e;
    const Coin *s = k->state;
    LpRandom r = stream(rc, s->site), r2 = stream(rc, s->site ^ SECOND);
    LpSortItem *x = work;
    for (int64_t i = 0; i < s->n; i += 4) {
        uint32_t hi[4], lo[4];
        words(&r, i, 4, hi);
        words(&r2, i, 4, lo);
        for (int64_t j = i; j < i + 4 && j < s->n; j++)
            x[j] = (LpSortItem){
                (int64_t)((uint64_t)hi[j - i] << 32 | lo[j - i]), j};
    }
    lp_sort_items(x, x + s->n, s->n, false);
    int64_t step = s->out.strides[0] * (int64_t)lp_dtype_size(s->out.dtype);
    for (int64_t i = 0; i < s->n; i++)
        lp_scalar_store(lp_int(x[i].at), s->out.dtype,
                        (char *)out[0] + i * step);
    return LP_OK;
}

LpStatus lp_randperm_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Coin *s = lp_kernel_state(r->op->name, sizeof *s, k, e);
    if (!s)
        return LP_E_MEMORY;
    *s = (Coin){.out = r->out[0], .site = r->site, .n = r->out[0].shape[0]};
    k->work_bytes = (size_t)s->n * 2 * sizeof(LpSortItem);
    k->run = run_randperm;
    k->threads = 1;
    return LP_OK;
}

/* ---- multinomial ---------------------------------------------------------
 */
typedef struct Urn {
    LpDesc in, out;
    uint64_t site;
    int64_t rows, n, samples;
    bool replacement;
} Urn;

static LpStatus check_weights(const double *p, int64_t n, int64_t samples,
                              bool replacement, LpErr *e)
{
    double sum = 0;
    int64_t some = 0;
    for (int64_t i = 0; i < n; i++) {
        LP_FAIL_IF(!(p[i] >= 0) || isinf(p[i]), e, LP_E_RUNTIME,
                   "probability tensor contains either `inf`, `nan` or element "
                   "< 0 (%g at position %lld)",
                   p[i], (long long)i);
        sum += p[i];
        some += p[i] > 0;
    }
    LP_FAIL_IF(!(sum > 0), e, LP_E_RUNTIME,
               "invalid multinomial distribution (sum of probabilities <= 0)");
    LP_FAIL_IF(!replacement && some < samples, e, LP_E_RUNTIME,
               "invalid multinomial distribution (with replacement=False, not "
               "enough non-negative category to sample: %lld of %lld)",
               (long long)some, (long long)samples);
    return LP_OK;
}

/* With replacement: where u falls in the running sum. */
static void draw_again(const LpRandom *r, const LpRandom *r2, int64_t row,
                       const Urn *s, double *p, int64_t *to)
{
    for (int64_t i = 1; i < s->n; i++)
        p[i] += p[i - 1];
    for (int64_t j = 0; j < s->samples; j++) {
        uint64_t at = (uint64_t)(row * s->samples + j);
        double u =
            lp_random_unit2(lp_random_word(r, at), lp_random_word(r2, at)) *
            p[s->n - 1];
        int64_t lo = 0, hi = s->n - 1;
        while (lo < hi) {
            int64_t mid = lo + (hi - lo) / 2;
            if (p[mid] > u)
                hi = mid;
            else
                lo = mid + 1;
        }
        to[j] = lo;
    }
}

/* Without: an exponential time of rate p for each, the first ones win
 * (Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
 * 2006). */
static void draw_once(const LpRandom *r, const LpRandom *r2, int64_t row,
                      const Urn *s, double *p, LpSortItem *x, int64_t *to)
{
    for (int64_t i = 0; i < s->n; i++) {
        uint64_t at = (uint64_t)(row * s->n + i);
        double u = open_unit(lp_random_word(r, at), lp_random_word(r2, at));
        p[i] = p[i] > 0 ? -log(u) / p[i] : INFINITY;
    }
    lp_sort_keys(LP_F64, p, 1, s->n, x);
    lp_sort_items(x, x + s->n, s->n, false);
    for (int64_t j = 0; j < s->samples; j++)
        to[j] = x[j].at;
}

/* work: weights, results, items twice */
static LpStatus run_multinomial(const LpKernel *k, void *const *in,
                                void *const *out, void *work,
                                const LpRunCtx *rc, LpErr *e)
{
    const Urn *s = k->state;
    LpRandom r = stream(rc, s->site), r2 = stream(rc, s->site ^ SECOND);
    LpDesc pd = plain_of(&s->in, LP_F64), od = plain_of(&s->out, LP_I64);
    LpSortItem *x = work;
    double *p = (double *)(void *)(x + 2 * s->n);
    int64_t *to = (int64_t *)(void *)(p + s->rows * s->n);
    lp_copy_strided(&s->in, in[0], &pd, p);
    for (int64_t i = 0; i < s->rows; i++) {
        double *w = p + i * s->n;
        LP_TRY(check_weights(w, s->n, s->samples, s->replacement, e));
        if (s->replacement)
            draw_again(&r, &r2, i, s, w, to + i * s->samples);
        else
            draw_once(&r, &r2, i, s, w, x, to + i * s->samples);
    }
    lp_copy_strided(&od, to, &s->out, out[0]);
    return LP_OK;
}

LpStatus lp_multinomial_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Urn *s = lp_kernel_state(r->op->name, sizeof *s, k, e);
    if (!s)
        return LP_E_MEMORY;
    const LpDesc *d = &r->in[0];
    *s = (Urn){.in = *d,
               .out = r->out[0],
               .site = r->site,
               .rows = d->ndim == 2 ? d->shape[0] : 1,
               .n = d->shape[d->ndim - 1],
               .samples = r->attr[0].i,
               .replacement = r->attr[1].i != 0};
    k->work_bytes = (size_t)s->n * 2 * sizeof(LpSortItem) +
                    (size_t)(s->rows * (s->n + s->samples)) * 8;
    k->run = run_multinomial;
    k->threads = 1;
    return LP_OK;
}
