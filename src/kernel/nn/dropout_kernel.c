/* The kernel of dropout: element i is kept if its random number (base/random.h)
 * is at least p, and then scaled by 1 / (1 - p). Nothing is saved: the gradient
 * draws the same numbers at the same site. */
#include "src/base/random.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/plain.h"

typedef struct Drop {
    int64_t n;
    uint64_t site;
    double p;
} Drop;

#define BLOCKS 256 /* of four elements, drawn at a time */

static void draw(const Drop *d, const LpRandom *r, int64_t first, int64_t n,
                 float keep[4 * BLOCKS])
{
    uint32_t w[4 * BLOCKS];
    uint32_t ctr[4] = {(uint32_t)(first / 4), r->iteration, r->replica,
                       r->micro_batch};
    float scale = d->p < 1 ? (float)(1 / (1 - d->p)) : 0;
    float p = (float)d->p;
    lp_nn()->philox(r->key, ctr, (n + 3) / 4, w);
    for (int64_t i = 0; i < n; i++)
        keep[i] = lp_random_unit(w[i]) >= p ? scale : 0;
}

LP_PLAIN_CORE(core)
{
    const Drop *d = (const void *)p->param;
    LpRandom r = lp_random(rc->seed, d->site, rc->iteration, rc->replica,
                           rc->micro_batch);
    const int64_t step = 4 * BLOCKS;
#pragma omp parallel for num_threads(lp_plain_width(p, d->n)) schedule(static)
    for (int64_t i = 0; i < d->n; i += step) {
        float keep[4 * BLOCKS];
        int64_t n = d->n - i < step ? d->n - i : step;
        draw(d, &r, i, n, keep);
        if (p->compute == LP_F64) {
            const double *x = (const double *)in[0] + i;
            double *y = (double *)out[0] + i, s = d->p < 1 ? 1 / (1 - d->p) : 0;
            for (int64_t q = 0; q < n; q++)
                y[q] = keep[q] > 0 ? x[q] * s : 0;
        } else {
            const float *x = (const float *)in[0] + i;
            float *y = (float *)out[0] + i;
            for (int64_t q = 0; q < n; q++)
                y[q] = x[q] * keep[q];
        }
    }
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_dropout_prepare)
{
    Drop d = {.n = lp_desc_numel(&r->in[0]),
              .site = r->site,
              .p =
                  r->attr[LP_DROPOUT_TRAINING].i ? r->attr[LP_DROPOUT_P].f : 0};
    return lp_plain_prepare(r, k, core, lp_plain_type(r->out[0].dtype), &d,
                            sizeof d, 0, e);
}
