/* Batch normalisation, forward and backward, of blocked images. With n
 * positions in a plane (a block of channels of one sample), N samples and the
 * planes' own means m_i and squares q_i about them (Chan, Golub, LeVeque 1979),
 *
 *     mean = sum m_i / N      var = (sum q_i + n sum (m_i - mean)^2) / (n N)
 *
 * so the statistics read memory once and data far from 0 keeps its precision.
 *
 * A thread takes a block of channels through both passes, statistics and
 * result, the second from the last sample back: what the first left in the
 * cache is read first. Too few blocks for the threads: planes are split, pass
 * by pass. Sums of planes are added in order, so bits depend on neither. */
#include "src/kernel/nn/norm_blocked.h"

#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/loops/pointwise.h"

LP_SIMD_EXTERN(LpNormBlockedLoops, lp_norm_blocked);

enum { SERIAL = 16384 }; /* elements not worth another thread */

typedef struct State {
    int64_t batch, channels, n; /* n: positions of a plane */
    double eps;
    int block;
    bool relu, half; /* statistics are halves (norm_kernel.c) */
} State;
_Static_assert(sizeof(State) <= sizeof(((LpKernel *)0)->inl), "State");

/* One run. a, b: the planes' two sums, [batch, channels] each; coef, mean: four
 * vectors over the channels, the means as they are used. */
typedef struct Job Job;
struct Job {
    const State *s;
    const LpNormBlocked *loops;
    void *const *in, *const *out;
    float *a, *b, *coef[3], *mean;
    void (*sums)(const Job *j, int64_t i, int64_t c);
    void (*combine)(const Job *j, int64_t c);
    void (*result)(const Job *j, int64_t i, int64_t c);
};

/* A number as a half, if statistics are. */
static float narrowed(const State *s, float x)
{
    if (s->half)
        lp_pointwise_round(1, &x, &x, LP_F32, LP_F16);
    return x;
}

static float rstd_of(const State *s, float var)
{
    return narrowed(s, 1 / sqrtf(var + (float)s->eps));
}

/* Where the plane of sample i from channel c on begins. */
static int64_t plane(const State *s, int64_t i, int64_t c)
{
    return (i * s->channels + c) * s->n;
}

static void run(const Job *j, int threads)
{
    const State *s = j->s;
    const int64_t blocks = s->channels / s->block, step = s->block;
    if (blocks % threads == 0 || blocks >= 4 * threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t q = 0; q < blocks; q++) {
            for (int64_t i = 0; i < s->batch; i++)
                j->sums(j, i, q * step);
            j->combine(j, q * step);
            for (int64_t i = s->batch; i-- > 0;)
                j->result(j, i, q * step);
        }
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < s->batch * blocks; p++)
        j->sums(j, p / blocks, p % blocks * step);
    for (int64_t q = 0; q < blocks; q++)
        j->combine(j, q * step);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < s->batch * blocks; p++)
        j->result(j, p / blocks, p % blocks * step);
}

/* known: the means, unless they are made. */
static LpStatus start(const LpKernel *k, Job *j, const float *known,
                      float *work)
{
    const State *s = (const void *)k->inl;
    const int64_t all = s->batch * s->channels;
    j->s = s;
    j->loops = LP_SIMD_PICK(lp_norm_blocked);
    j->a = work;
    j->b = work + all;
    for (int i = 0; i < 3; i++)
        j->coef[i] = work + 2 * all + i * s->channels;
    j->mean = work + 2 * all + 3 * s->channels;
    for (int64_t c = 0; known && c < s->channels; c++)
        j->mean[c] = narrowed(s, known[c]);
    run(j, all * s->n < SERIAL ? 1 : k->threads);
    return LP_OK;
}

/* ---- forward: x, w, b (, add) -> y, mean, var ---------------------------- */
static void stats(const Job *j, int64_t i, int64_t c)
{
    const State *s = j->s;
    const float *x = j->in[0];
    const int64_t at = i * s->channels + c;
    j->loops->stats(s->block, s->n, x + plane(s, i, c), j->a + at, j->b + at);
}

static void combine_stats(const Job *j, int64_t c0)
{
    const State *s = j->s;
    const float *w = j->in[1], *b = j->in[2];
    float *mean = j->out[1], *var = j->out[2];
    for (int64_t c = c0; c < c0 + s->block; c++) {
        float m = 0, v = 0;
        for (int64_t i = 0; i < s->batch; i++)
            m += j->a[i * s->channels + c];
        m /= (float)s->batch;
        for (int64_t i = 0; i < s->batch; i++) {
            float d = j->a[i * s->channels + c] - (s->half ? 0 : m);
            v += j->b[i * s->channels + c] + d * d * (float)s->n;
        }
        mean[c] = m;
        v = v / (float)(s->batch * s->n) - (s->half ? m * m : 0);
        var[c] = v < 0 ? 0 : v; /* a NaN stays */
        j->mean[c] = narrowed(s, m);
        j->coef[0][c] = s->half
                            ? rstd_of(s, var[c]) * (w ? w[c] : 1)
                            : (w ? w[c] : 1) / sqrtf(var[c] + (float)s->eps);
        j->coef[1][c] = b ? b[c] : 0;
    }
}

static void scale(const Job *j, int64_t i, int64_t c)
{
    const State *s = j->s;
    const float *x = j->in[0], *add = j->in[3];
    float *y = j->out[0];
    const int64_t at = plane(s, i, c);
    j->loops->scale(s->block, s->n, x + at, j->mean + c, j->coef[0] + c,
                    j->coef[1] + c, add ? add + at : NULL, s->relu, y + at);
}

LP_KERNEL_RUN(run_forward)
{
    const State *s = (const void *)k->inl;
    void *all[] = {in[0], in[1], in[2], s->relu ? in[3] : NULL};
    Job j = {.in = all,
             .out = out,
             .sums = stats,
             .combine = combine_stats,
             .result = scale};
    return start(k, &j, NULL, work);
}

/* ---- backward: dy, x, mean, var, w (, r) -> dx, dw, db ------------------- */
static void sums(const Job *j, int64_t i, int64_t c)
{
    const State *s = j->s;
    const float *dy = j->in[0], *x = j->in[1];
    const float *r = j->in[5];
    const int64_t p = plane(s, i, c), at = i * s->channels + c;
    j->loops->sums(s->block, s->n, dy + p, x + p, r ? r + p : NULL, j->mean + c,
                   j->a + at, j->b + at);
}

static void combine_sums(const Job *j, int64_t c0)
{
    const State *s = j->s;
    const float *var = j->in[3], *w = j->in[4];
    float *dw = j->out[1], *db = j->out[2];
    const float count = (float)(s->batch * s->n);
    for (int64_t c = c0; c < c0 + s->block; c++) {
        float g = 0, gx = 0;
        for (int64_t i = 0; i < s->batch; i++) {
            g += j->a[i * s->channels + c];
            gx += j->b[i * s->channels + c];
        }
        float rstd = rstd_of(s, var[c]);
        float k = (w ? w[c] : 1) * rstd;
        j->coef[0][c] = k;
        j->coef[1][c] = -k * rstd * rstd * gx / count;
        j->coef[2][c] = -k * g / count;
        dw[c] = gx * rstd;
        db[c] = g;
    }
}

static void back(const Job *j, int64_t i, int64_t c)
{
    const State *s = j->s;
    const float *dy = j->in[0], *x = j->in[1];
    const float *r = j->in[5];
    float *dx = j->out[0];
    const int64_t p = plane(s, i, c);
    j->loops->back(s->block, s->n, dy + p, x + p, r ? r + p : NULL, j->mean + c,
                   j->coef[0] + c, j->coef[1] + c, j->coef[2] + c, dx + p);
}

LP_KERNEL_RUN(run_backward)
{
    const State *s = (const void *)k->inl;
    void *all[] = {in[0], in[1], in[2], in[3], in[4], s->relu ? in[5] : NULL};
    Job j = {.in = all,
             .out = out,
             .sums = sums,
             .combine = combine_sums,
             .result = back};
    return start(k, &j, in[2], work);
}

/* ---- preparation --------------------------------------------------------- */
static void prepare(const LpKernelReq *r, int image, LpKernel *k)
{
    State *s = (void *)k->inl;
    const LpDesc *x = &r->in[image];
    *s = (State){.batch = x->shape[0],
                 .channels = x->shape[1],
                 .n = x->shape[2] * x->shape[3],
                 .eps = r->attr[LP_BATCH_NORM_EPS].f,
                 .block = x->block,
                 .relu = r->n_in > (image ? 5 : 3),
                 .half = lp_half_statistics(r, image)};
    int64_t work = (2 * s->batch + 4) * s->channels;
    k->work_bytes = (size_t)work * sizeof(float);
}

LP_KERNEL_PREPARE(lp_batch_norm_blocked)
{
    prepare(r, 0, k);
    k->run = run_forward;
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_batch_norm_back_blocked)
{
    prepare(r, 1, k);
    k->run = run_backward;
    return LP_OK;
}
