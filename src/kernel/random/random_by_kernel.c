/* Draws by tensors of parameters, in double. Sources:
 *   Poisson and binomial from 10 on: transformed rejection with squeeze
 *     (Hormann, "The transformed rejection method for generating Poisson random
 *     variables", 1993; "The generation of binomial random variates", 1993);
 *   Poisson below: products of uniform numbers (Knuth); binomial below: sums
 *     of geometric waiting times (Devroye, "Non-Uniform Random Variate
 *     Generation", 1986, X.4);
 *   gamma: Marsaglia and Tsang, "A simple method for generating gamma
 *     variables", 2000; a shape below 1 by their power of a uniform number. */
#include "src/kernel/random/random.h"

#include <math.h>
#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/random.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/special.h"
#include "src/kernel/state.h"

#define PARALLEL 256
#define PI 3.14159265358979323846

/* The numbers of one element, two a block of the generator. */
typedef struct Stream {
    LpRandom r;
    uint32_t block;
    bool second;
    uint32_t word[4];
} Stream;

/* [0, 1) of 53 bits */
static double unit(Stream *s)
{
    if (!s->second)
        lp_random_block(&s->r, s->block++, s->word);
    const uint32_t *w = s->word + (s->second ? 2 : 0);
    s->second = !s->second;
    return lp_random_unit2(w[0], w[1]);
}

/* (0, 1] */
static double open_unit(Stream *s)
{
    return 1 - unit(s);
}

static double normal(Stream *s)
{
    double radius = sqrt(-2 * log(open_unit(s)));
    return radius * cos(2 * PI * unit(s));
}

/* ---- the distributions --------------------------------------------------- */
static double poisson_rejected(Stream *s, double rate)
{
    double root = sqrt(rate), b = 0.931 + 2.53 * root;
    double a = -0.059 + 0.02483 * b, inverse = 1.1239 + 1.1328 / (b - 3.4);
    double accept = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = unit(s) - 0.5, v = open_unit(s), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= accept)
            return k;
        if (!(k >= 0) || (us < 0.013 && v > us))
            continue;
        double left = log(v * inverse / (a / (us * us) + b));
        if (left <= k * log(rate) - rate - lp_lgamma(k + 1))
            return k;
    }
}

static double poisson(Stream *s, const double *p)
{
    double rate = p[0], k = 0;
    if (rate >= 10)
        return isinf(rate) ? rate : poisson_rejected(s, rate);
    double end = exp(-rate);
    for (double x = open_unit(s); x > end; x *= open_unit(s))
        k++;
    return k;
}

static double binomial_rejected(Stream *s, double n, double p)
{
    double spread = sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * spread;
    double a = -0.0873 + 0.0248 * b + 0.01 * p, c = n * p + 0.5;
    double accept = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * spread;
    double odds = log(p / (1 - p)), m = floor((n + 1) * p);
    double top = lp_lgamma(m + 1) + lp_lgamma(n - m + 1);
    for (;;) {
        double u = unit(s) - 0.5, v = open_unit(s), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + c);
        if (us >= 0.07 && v <= accept)
            return k;
        if (!(k >= 0 && k <= n))
            continue;
        double left = log(v * alpha / (a / (us * us) + b));
        double right = top - lp_lgamma(k + 1) - lp_lgamma(n - k + 1);
        if (left <= right + (k - m) * odds)
            return k;
    }
}

/* p up to a half */
static double binomial_low(Stream *s, double n, double p)
{
    if (n * p >= 10)
        return binomial_rejected(s, n, p);
    double trials = 0, k = 0, base = log1p(-p);
    for (;;) {
        double wait = ceil(log(open_unit(s)) / base);
        trials += wait < 1 ? 1 : wait;
        if (!(trials <= n))
            return k;
        k++;
    }
}

static double binomial(Stream *s, const double *x)
{
    double n = x[0], p = x[1];
    if (p != p || n != n)
        return NAN;
    if (!(n > 0 && p > 0))
        return 0;
    if (p >= 1)
        return n;
    return p <= 0.5 ? binomial_low(s, n, p) : n - binomial_low(s, n, 1 - p);
}

/* Of a shape of 1 and more. */
static double gamma_from_one(Stream *s, double shape)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(s), v = 1 + c * x;
        if (!(v > 0))
            continue;
        v = v * v * v;
        if (log(open_unit(s)) < 0.5 * x * x + d * (1 - v + log(v)))
            return d * v;
    }
}

static double standard_gamma(Stream *s, const double *p)
{
    double shape = p[0];
    if (!(shape > 0) || isinf(shape))
        return shape == 0 ? 0 : shape > 0 ? shape : NAN;
    if (shape >= 1)
        return gamma_from_one(s, shape);
    double power = pow(open_unit(s), 1 / shape);
    return power * gamma_from_one(s, shape + 1);
}

/* ---- the kernel ---------------------------------------------------------- */
typedef double (*Sampler)(Stream *s, const double *p);
enum { MOST = 2 };

typedef struct By {
    LpDesc in[MOST], out;
    Sampler draw;
    const char *refused; /* of a parameter 0 that is not >= 0; NULL: none is */
    uint64_t site;
    int64_t n;
    int n_in, threads;
} By;

/* An operand as if it had the result's shape. */
static LpDesc spread(const LpDesc *d, const LpDesc *out)
{
    LpDesc s = *d;
    int more = out->ndim - d->ndim;
    s.ndim = out->ndim;
    for (int i = 0; i < out->ndim; i++) {
        bool own = i >= more && d->shape[i - more] == out->shape[i];
        s.shape[i] = out->shape[i];
        s.strides[i] = own ? d->strides[i - more] : 0;
    }
    return s;
}

/* work: the parameters one after another, in double; results take the place of
 * the first */
LP_KERNEL_RUN(run_by)
{
    const By *s = k->state;
    LpDesc plain = lp_desc_plain(&s->out, LP_F64);
    double *p = work;
    for (int i = 0; i < s->n_in; i++)
        lp_copy_strided(&s->in[i], in[i], &plain, p + i * s->n);
    for (int64_t i = 0; s->refused && i < s->n; i++)
        LP_FAIL_IF(!(p[i] >= 0), e, LP_E_RUNTIME, "%s, got %g at position %lld",
                   s->refused, p[i], (long long)i);
    LpRandom r = lp_random(rc->seed, s->site, rc->iteration, rc->replica,
                           rc->micro_batch);
    int threads = s->n < PARALLEL ? 1 : s->threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < s->n; i++) {
        if (lp_kernel_stops())
            continue;
        Stream x = {.r = r};
        double of[MOST] = {p[i], s->n_in > 1 ? p[s->n + i] : 0};
        x.r.key = lp_mix64_pair(r.key, (uint64_t)i);
        p[i] = s->draw(&x, of);
    }
    lp_copy_strided(&plain, p, &s->out, out[0]);
    return LP_OK;
}

static LpStatus prepare(const LpKernelReq *r, int n_in, Sampler draw,
                        const char *refused, LpKernel *k, LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(By), run_by, k, e));
    By *s = k->state;
    *s = (By){.out = r->out[0],
              .draw = draw,
              .refused = refused,
              .site = r->site,
              .n = lp_desc_numel(&r->out[0]),
              .n_in = n_in,
              .threads = r->threads};
    for (int i = 0; i < n_in; i++)
        s->in[i] = spread(&r->in[i], &r->out[0]);
    k->work_bytes = (size_t)s->n * (size_t)n_in * sizeof(double);
    return LP_OK;
}

LP_PREPARE_AS(lp_poisson_prepare,
              prepare(r, 1, poisson,
                      "invalid Poisson rate, expected rate to be non-negative",
                      k, e))
LP_PREPARE_AS(lp_binomial_prepare, prepare(r, 2, binomial, NULL, k, e))
LP_PREPARE_AS(lp_standard_gamma_prepare,
              prepare(r, 1, standard_gamma, NULL, k, e))
