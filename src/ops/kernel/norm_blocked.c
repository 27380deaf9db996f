/* Batch normalisation, forward and backward, of blocked images: two passes
 * over memory each, statistics and result. With n positions in a plane of one
 * sample, N samples and the planes' own means m_i and squares q_i about them
 * (Chan, Golub, LeVeque 1979),
 *
 *     mean = sum m_i / N      var = (sum q_i + n sum (m_i - mean)^2) / (n N)
 *
 * so the statistics need one pass and data far from 0 keeps its precision.
 * Planes are split over the threads and their sums added in order: bits do not
 * depend on the width. */
#include "src/ops/kernel/norm_blocked.h"

#include <math.h>
#include <string.h>

#include "src/ops/kernel/loops.h"

LP_SIMD_EXTERN(LpNormBlockedLoops, lp_norm_blocked);

enum { SERIAL = 16384 }; /* elements not worth another thread */

typedef struct State {
    int64_t batch, channels, n; /* n: positions of a plane */
    double eps;
    int block;
} State;
_Static_assert(sizeof(State) <= sizeof(((LpKernel *)0)->inl), "State");

/* Planes lie one after another: samples, then blocks of channels; sums of
 * plane p are the elements from p * block of [batch, channels]. */
static int64_t planes(const State *s)
{
    return s->batch * (s->channels / s->block);
}

static int width(const LpKernel *k, const State *s)
{
    return s->batch * s->channels * s->n < SERIAL ? 1 : k->threads;
}

/* part: means of the planes, then their squares. */
static void gather_stats(const State *s, const float *part, float *mean,
                         float *var)
{
    const int64_t c_n = s->channels, all = s->batch * c_n;
    memset(mean, 0, (size_t)c_n * sizeof *mean);
    memset(var, 0, (size_t)c_n * sizeof *var);
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t c = 0; c < c_n; c++)
            mean[c] += part[i * c_n + c];
    for (int64_t c = 0; c < c_n; c++)
        mean[c] /= (float)s->batch;
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t c = 0; c < c_n; c++) {
            float d = part[i * c_n + c] - mean[c];
            var[c] += part[all + i * c_n + c] + d * d * (float)s->n;
        }
    for (int64_t c = 0; c < c_n; c++)
        var[c] /= (float)(s->batch * s->n);
}

/* in: x, w, b; out: y, mean, var */
static LpStatus run_forward(const LpKernel *k, void *const *in,
                            void *const *out, void *work, const LpRunCtx *rc,
                            LpErr *e)
{
    (void)rc, (void)e;
    const State *s = (const void *)k->inl;
    const LpNormBlocked *loops = LP_SIMD_PICK(lp_norm_blocked);
    const float *x = in[0], *w = in[1], *b = in[2];
    float *y = out[0], *mean = out[1], *var = out[2], *part = work;
    const int64_t c_n = s->channels, all = s->batch * c_n, step = s->block;
    float *scale = part + 2 * all, *shift = scale + c_n;
    int threads = width(k, s);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < planes(s); p++)
        loops->stats(s->block, s->n, x + p * s->n * step, part + p * step,
                     part + all + p * step);
    gather_stats(s, part, mean, var);
    for (int64_t c = 0; c < c_n; c++) {
        scale[c] = (w ? w[c] : 1) / sqrtf(var[c] + (float)s->eps);
        shift[c] = b ? b[c] : 0;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < planes(s); p++) {
        int64_t c = p * step % c_n, at = p * s->n * step;
        loops->scale(s->block, s->n, x + at, mean + c, scale + c, shift + c,
                     y + at);
    }
    return LP_OK;
}

/* in: dy, x, mean, var, w; out: dx, dw, db */
static LpStatus run_backward(const LpKernel *k, void *const *in,
                             void *const *out, void *work, const LpRunCtx *rc,
                             LpErr *e)
{
    (void)rc, (void)e;
    const State *s = (const void *)k->inl;
    const LpNormBlocked *loops = LP_SIMD_PICK(lp_norm_blocked);
    const float *dy = in[0], *x = in[1], *mean = in[2], *var = in[3];
    const float *w = in[4];
    float *dx = out[0], *dw = out[1], *db = out[2], *part = work;
    const int64_t c_n = s->channels, all = s->batch * c_n, step = s->block;
    const float count = (float)(s->batch * s->n);
    float *ka = part + 2 * all, *kb = ka + c_n, *kc = kb + c_n;
    int threads = width(k, s);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < planes(s); p++) {
        int64_t at = p * s->n * step;
        loops->sums(s->block, s->n, dy + at, x + at, mean + p * step % c_n,
                    part + p * step, part + all + p * step);
    }
    memset(db, 0, (size_t)c_n * sizeof *db);
    memset(dw, 0, (size_t)c_n * sizeof *dw);
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t c = 0; c < c_n; c++) {
            db[c] += part[i * c_n + c];
            dw[c] += part[all + i * c_n + c];
        }
    for (int64_t c = 0; c < c_n; c++) {
        float r = 1 / sqrtf(var[c] + (float)s->eps), wr = (w ? w[c] : 1) * r;
        ka[c] = wr;
        kb[c] = -wr * r * r * dw[c] / count;
        kc[c] = -wr * db[c] / count;
        dw[c] *= r;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < planes(s); p++) {
        int64_t c = p * step % c_n, at = p * s->n * step;
        loops->back(s->block, s->n, dy + at, x + at, mean + c, ka + c, kb + c,
                    kc + c, dx + at);
    }
    return LP_OK;
}

static void prepare(const LpKernelReq *r, int image, LpKernel *k)
{
    State *s = (void *)k->inl;
    const LpDesc *x = &r->in[image];
    *s = (State){.batch = x->shape[0],
                 .channels = x->shape[1],
                 .n = x->shape[2] * x->shape[3],
                 .eps = r->attr[0].f,
                 .block = x->block};
    k->work_bytes =
        (size_t)((2 * s->batch + 3) * s->channels) * sizeof(float);
    k->threads = r->threads;
}

LpStatus lp_batch_norm_blocked(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    prepare(r, 0, k);
    k->run = run_forward;
    return LP_OK;
}

LpStatus lp_batch_norm_back_blocked(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    prepare(r, 1, k);
    k->run = run_backward;
    return LP_OK;
}
