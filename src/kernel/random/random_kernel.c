/* Drawing. Blocks of elements are filled in float, double or int64 and
 * converted to the result's type. A double takes 53 bits: 32 of its own word,
 * the others from the same counter under a second key. */
#include "src/kernel/random/random.h"

#include <string.h>

#include "src/base/interrupt.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/loops.h"
#include "src/kernel/random/random_words.h"
#include "src/kernel/state.h"

#define PARALLEL (1 << 14)

typedef struct Draw {
    LpDrawReq q;
    LpDesc out;
    LpDtype type; /* drawn in: double, float or int64 */
    uint64_t site;
    int64_t n;
    bool strided; /* drawn to scratch, then copied */
    int threads;
} Draw;

/* ---- float --------------------------------------------------------------- */
/* [0, 1) with as many bits as the type has, so that 1 is never reached. */
static float unit(uint32_t w, LpDtype t)
{
    if (t == LP_F16)
        return (float)(w >> 21) * 0x1p-11f;
    if (t == LP_BF16)
        return (float)(w >> 24) * 0x1p-8f;
    return lp_random_unit(w);
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
        return -log(lp_draw_open(hi, lo)) / q->a;
    case LP_DRAW_CAUCHY:
        u = lp_random_unit2(hi, lo) - 0.5;
        return q->a + q->b * tan(3.14159265358979324 * u);
    case LP_DRAW_GEOMETRIC:
        u = ceil(log(lp_draw_open(hi, lo)) / log1p(-q->a));
        return u < 1 ? 1 : u;
    case LP_DRAW_BERNOULLI:
        return lp_random_unit2(hi, lo) < q->a;
    default:
        return truncated(q, lp_random_unit2(hi, lo));
    }
}

/* Pairs as lp_random_normal2 makes them, by the loops of this CPU. */
static void normals(const uint32_t *w, int64_t n, double mean, double dev,
                    bool power, double *to)
{
    float radius[LP_DRAW_BLOCK / 2], angle[LP_DRAW_BLOCK / 2],
        across[LP_DRAW_BLOCK / 2];
    int64_t m = (n + 1) / 2;
    const void *r = radius, *a = angle;
    for (int64_t i = 0; i < m; i++) {
        radius[i] = (float)((w[2 * i] >> 8) + 1) * 0x1p-24f;
        angle[i] = 6.28318530717958647692f * lp_random_unit(w[2 * i + 1]);
    }
    const LpNum none[LP_PW_MAX_PARAM] = {{0}};
    lp_loop_row(LP_LOOP_log)->f32(m, radius, &r, 0, none);
    lp_loop_row(LP_LOOP_sin)->f32(m, across, &a, 0, none);
    lp_loop_row(LP_LOOP_cos)->f32(m, angle, &a, 0, none);
    for (int64_t i = 0; i < m; i++)
        radius[i] = -2.0f * radius[i];
    lp_loop_row(LP_LOOP_sqrt)->f32(m, radius, &r, 0, none);
    for (int64_t i = 0; i < n; i++) {
        float v = radius[i / 2] * (i % 2 ? across[i / 2] : angle[i / 2]);
        to[i] = mean + dev * (double)v;
    }
    for (int64_t i = 0; power && i < n; i++)
        to[i] = exp(to[i]);
}

/* Does a draw read second words? */
static bool is_wide(const Draw *d)
{
    return d->q.draw != LP_DRAW_NORMAL && d->q.draw != LP_DRAW_LOG_NORMAL &&
           (d->q.draw != LP_DRAW_UNIFORM || d->out.dtype == LP_F64);
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
        d->out.dtype == LP_F64 || (d->q.a == 0 && d->q.b == 1))
        return; /* a unit has no more bits than the type */
    for (int64_t i = 0; d->out.dtype == LP_F32 && i < n; i++)
        x[i] = (double)(float)x[i] >= d->q.b ? d->q.a : x[i];
    if (d->out.dtype == LP_F32)
        return;
    char one[8];
    for (int64_t i = 0; i < n; i++) {
        lp_scalar_store(lp_float(x[i]), d->out.dtype, one);
        if (lp_scalar_f(lp_scalar_load(d->out.dtype, one)) >= d->q.b)
            x[i] = d->q.a;
    }
}

/* ---- integers ------------------------------------------------------------ */
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

/* ---- the kernel ---------------------------------------------------------- */
static void draw_block(const Draw *d, const LpRandom *r, const LpRandom *r2,
                       int64_t at, int64_t n, char *out)
{
    uint32_t hi[LP_DRAW_BLOCK + 4], lo[LP_DRAW_BLOCK + 4];
    double x[LP_DRAW_BLOCK];
    int64_t k[LP_DRAW_BLOCK];
    LpDtype t = d->out.dtype;
    char *to = out + at * (int64_t)lp_dtype_size(t);
    lp_draw_words(r, at, n, hi);
    if (is_wide(d))
        lp_draw_words(r2, at, n, lo);
    if (d->q.draw == LP_DRAW_INTEGER) {
        fill_integer(d, hi, lo, n, k);
        lp_convert(LP_I64, k, 1, t, to, 1, n);
    } else {
        fill_float(d, hi, lo, n, x);
        keep_below(d, n, x);
        lp_convert(LP_F64, x, 1, t, to, 1, n);
    }
}

LP_KERNEL_RUN(run_draw)
{
    const Draw *d = k->state;
    LpRandom r = lp_draw_stream(rc, d->site),
             r2 = lp_draw_stream(rc, d->site ^ LP_DRAW_SECOND);
    char *to = d->strided ? work : out[0];
    int64_t blocks = (d->n + LP_DRAW_BLOCK - 1) / LP_DRAW_BLOCK;
    int threads = d->n < PARALLEL ? 1 : d->threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t left = d->n - i * LP_DRAW_BLOCK;
        if (lp_kernel_stops())
            continue;
        draw_block(d, &r, &r2, i * LP_DRAW_BLOCK,
                   left < LP_DRAW_BLOCK ? left : LP_DRAW_BLOCK, to);
    }
    if (d->strided) {
        LpDesc plain = lp_desc_plain(&d->out, d->out.dtype);
        lp_copy_strided(&plain, work, &d->out, out[0]);
    }
    return LP_OK;
}

LpStatus lp_draw_prepare(const LpKernelReq *r, const LpDrawReq *q, LpKernel *k,
                         LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Draw), run_draw, k, e));
    Draw *d = k->state;
    d->q = *q;
    d->out = r->out[0];
    d->site = r->site;
    d->n = lp_desc_numel(&d->out);
    d->strided = !lp_desc_contiguous(&d->out);
    d->threads = r->threads;
    k->work_bytes = d->strided ? (size_t)d->n * lp_dtype_size(d->out.dtype) : 0;
    return LP_OK;
}

/* ---- bernoulli ----------------------------------------------------------- */
typedef struct Coin {
    LpDesc in, out;
    uint64_t site;
    int64_t n;
} Coin;

/* work: the probabilities, then the results, in double */
LP_KERNEL_RUN(run_bernoulli)
{
    const Coin *s = k->state;
    LpRandom r = lp_draw_stream(rc, s->site),
             r2 = lp_draw_stream(rc, s->site ^ LP_DRAW_SECOND);
    LpDesc plain = lp_desc_plain(&s->in, LP_F64);
    double *p = work;
    lp_copy_strided(&s->in, in[0], &plain, p);
    uint32_t hi[LP_DRAW_BLOCK], lo[LP_DRAW_BLOCK];
    for (int64_t i = 0; i < s->n; i += LP_DRAW_BLOCK) {
        int64_t m = s->n - i < LP_DRAW_BLOCK ? s->n - i : LP_DRAW_BLOCK;
        lp_draw_words(&r, i, m, hi);
        lp_draw_words(&r2, i, m, lo);
        for (int64_t j = i; j < i + m; j++) {
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

LP_KERNEL_PREPARE(lp_bernoulli_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Coin), run_bernoulli, k, e));
    Coin *s = k->state;
    *s = (Coin){.in = r->in[0],
                .out = r->out[0],
                .site = r->site,
                .n = lp_desc_numel(&r->in[0])};
    k->work_bytes = (size_t)s->n * sizeof(double);
    k->threads = 1;
    return LP_OK;
}
