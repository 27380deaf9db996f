/* First-order linear recurrences along a dimension, y_j = d_j + a_j y_(j-1).
 * A line is run in double whatever its type; lines are shared out to threads
 * whole. See reduce_kernel.h. */
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/kernel/state.h"

enum { WORK_MIN = 1 << 15 };

typedef struct Recurrence {
    LpDesc d[3]; /* a, d, result */
    int dim;     /* -1: of no dimensions, one element */
    int64_t n, lines;
    bool reverse;
} Recurrence;

/* Steps in elements; the first a is not read. */
#define LINE(name, T)                                                          \
    static void name(int64_t n, const T *a, const T *d, T *y,                  \
                     const int64_t step[3])                                    \
    {                                                                          \
        double run = 0;                                                        \
        for (int64_t j = 0; j < n; j++) {                                      \
            double v = (double)d[j * step[1]];                                 \
            run = j == 0 ? v : v + (double)a[j * step[0]] * run;               \
            y[j * step[2]] = (T)run;                                           \
        }                                                                      \
    }
LINE(line_f32, float)
LINE(line_f64, double)

static void run_line(const Recurrence *s, int64_t line, void *const *in,
                     void *const *out)
{
    int64_t at[3] = {0}, step[3] = {0};
    for (int i = s->d[2].ndim - 1; i >= 0; i--) {
        if (i == s->dim)
            continue;
        for (int k = 0; k < 3; k++)
            at[k] += line % s->d[2].shape[i] * s->d[k].strides[i];
        line /= s->d[2].shape[i];
    }
    for (int k = 0; k < 3 && s->dim >= 0; k++) {
        step[k] = s->d[k].strides[s->dim];
        if (s->reverse) {
            at[k] += (s->n - 1) * step[k];
            step[k] = -step[k];
        }
    }
    if (s->d[2].dtype == LP_F64)
        line_f64(s->n, (const double *)in[0] + at[0],
                 (const double *)in[1] + at[1], (double *)out[0] + at[2], step);
    else
        line_f32(s->n, (const float *)in[0] + at[0],
                 (const float *)in[1] + at[1], (float *)out[0] + at[2], step);
}

LP_KERNEL_RUN(run)
{
    const Recurrence *s = k->state;
#pragma omp parallel for num_threads(k->threads) if (k->threads > 1)           \
    schedule(static)
    for (int64_t i = 0; i < s->lines; i++)
        if (!lp_kernel_stops())
            run_line(s, i, in, out);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_recurrence_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Recurrence), run, k, e));
    Recurrence *s = k->state;
    *s = (Recurrence){.d = {r->in[0], r->in[1], r->out[0]},
                      .dim = r->attr[LP_RUNNING_DIM].n > 0
                                 ? (int)r->attr[LP_RUNNING_DIM].v[0]
                                 : -1,
                      .n = 1,
                      .reverse = r->attr[LP_RUNNING_REVERSE].i != 0};
    if (s->dim >= 0)
        s->n = r->out[0].shape[s->dim];
    int64_t all = lp_desc_numel(&r->out[0]);
    s->lines = s->n > 0 ? all / s->n : 0;
    k->threads = all >= WORK_MIN && s->lines > 1 ? r->threads : 1;
    return LP_OK;
}
