/* Running sums, products and extremes of float32 whose elements lie beside
 * each other along the lines or across them. Sums and products run in double,
 * as in line.c, and have its bits. Along: four lines at once, so that one need
 * not wait for the addition before. Across: some columns at once, a row after
 * the other. */
#include "src/kernel/loops/scan.h"

#include "src/base/interrupt.h"

enum { AT_ONCE = 4, COLUMNS = 256, WORK_MIN = 1 << 15 };

typedef struct Lines {
    int64_t n;            /* elements of a line */
    int64_t x_row, y_row; /* floats from one to the next */
    bool back;
} Lines;

typedef struct Plan {
    Lines l;
    void (*along)(const Lines *l, const float *const *x, float *const *y,
                  int64_t *const *at);
    void (*across)(const Lines *l, int64_t m, const float *x, float *y,
                   int64_t *at);
    LpReduceGeo g;
} Plan;

/* ---- sums and products --------------------------------------------------- */
#define ADDS(a, b) ((a) + (double)(b))
#define MULTIPLIES(a, b) ((a) * (double)(b))
#define SCAN(name, START, OP)                                                  \
    static void name##_along(const Lines *l, const float *const *x,            \
                             float *const *y, int64_t *const *at)              \
    {                                                                          \
        double a = START, b = START, c = START, d = START;                     \
        const int64_t step = l->back ? -1 : 1;                                 \
        int64_t i = l->back ? l->n - 1 : 0;                                    \
        (void)at;                                                              \
        for (int64_t k = 0; k < l->n; k++, i += step) {                        \
            a = OP(a, x[0][i]);                                                \
            b = OP(b, x[1][i]);                                                \
            c = OP(c, x[2][i]);                                                \
            d = OP(d, x[3][i]);                                                \
            y[0][i] = (float)a;                                                \
            y[1][i] = (float)b;                                                \
            y[2][i] = (float)c;                                                \
            y[3][i] = (float)d;                                                \
        }                                                                      \
    }                                                                          \
    static void name##_across(const Lines *l, int64_t m, const float *x,       \
                              float *y, int64_t *at)                           \
    {                                                                          \
        double run[COLUMNS];                                                   \
        (void)at;                                                              \
        for (int64_t c = 0; c < m; c++)                                        \
            run[c] = START;                                                    \
        for (int64_t k = 0; k < l->n; k++) {                                   \
            int64_t i = l->back ? l->n - 1 - k : k;                            \
            const float *u = x + i * l->x_row;                                 \
            float *v = y + i * l->y_row;                                       \
            for (int64_t c = 0; c < m; c++)                                    \
                run[c] = OP(run[c], u[c]);                                     \
            for (int64_t c = 0; c < m; c++)                                    \
                v[c] = (float)run[c];                                          \
        }                                                                      \
    }
SCAN(sum, -0.0, ADDS)
SCAN(product, 1.0, MULTIPLIES)

/* ---- extremes ------------------------------------------------------------ */
/* Does v take the place of `best`? Equal ones do; a NaN gives way to none but
 * another one. */
#define MORE(best, v) ((best) != (best) ? (v) != (v) : !((best) > (v)))
#define LESS(best, v) ((best) != (best) ? (v) != (v) : !((best) < (v)))
#define EXTREME(name, TAKES)                                                   \
    static void name##_along(const Lines *l, const float *const *x,            \
                             float *const *y, int64_t *const *at)              \
    {                                                                          \
        for (int q = 0; q < AT_ONCE; q++) {                                    \
            float best = l->n > 0 ? x[q][0] : 0;                               \
            int64_t where = 0;                                                 \
            for (int64_t i = 0; i < l->n; i++) {                               \
                float v = x[q][i];                                             \
                if (TAKES(best, v)) {                                          \
                    best = v;                                                  \
                    where = i;                                                 \
                }                                                              \
                y[q][i] = best;                                                \
                at[q][i] = where;                                              \
            }                                                                  \
        }                                                                      \
    }                                                                          \
    static void name##_across(const Lines *l, int64_t m, const float *x,       \
                              float *y, int64_t *at)                           \
    {                                                                          \
        float best[COLUMNS];                                                   \
        int64_t where[COLUMNS];                                                \
        for (int64_t i = 0; i < l->n; i++) {                                   \
            const float *u = x + i * l->x_row;                                 \
            for (int64_t c = 0; c < m; c++) {                                  \
                bool takes = i == 0 || TAKES(best[c], u[c]);                   \
                best[c] = takes ? u[c] : best[c];                              \
                where[c] = takes ? i : where[c];                               \
                y[i * l->y_row + c] = best[c];                                 \
                at[i * l->y_row + c] = where[c];                               \
            }                                                                  \
        }                                                                      \
    }
EXTREME(most, MORE)
EXTREME(least, LESS)

/* ---- running ------------------------------------------------------------- */
/* Lines from … to; the last ones beside themselves. */
static void run_along(const Plan *p, int64_t from, int64_t to, const char *in,
                      void *const *out)
{
    for (int64_t i = from; i < to && !lp_kernel_stops(); i += AT_ONCE) {
        const float *x[AT_ONCE];
        float *y[AT_ONCE];
        int64_t *at[AT_ONCE] = {NULL}, o;
        for (int q = 0; q < AT_ONCE; q++) {
            int64_t line = i + q < to ? i + q : to - 1;
            x[q] = (const void *)(in + lp_reduce_offset(p->g.axis, p->g.n_kept,
                                                        line, &o));
            y[q] = (void *)((char *)out[0] + o);
            if (out[1])
                at[q] = (int64_t *)out[1] + o / (int64_t)sizeof(float);
        }
        p->along(&p->l, x, y, at);
    }
}

/* Pieces from … to; a row of columns has `pieces` of them. */
static void run_across(const Plan *p, int64_t pieces, int64_t from, int64_t to,
                       const char *in, void *const *out)
{
    int64_t wide = p->g.axis[p->g.n_kept - 1].size, o;
    for (int64_t i = from; i < to && !lp_kernel_stops(); i++) {
        int64_t c = i % pieces * COLUMNS;
        int64_t m = wide - c < COLUMNS ? wide - c : COLUMNS;
        const char *x = in + lp_reduce_offset(p->g.axis, p->g.n_kept,
                                              i / pieces * wide + c, &o);
        int64_t *at =
            out[1] ? (int64_t *)out[1] + o / (int64_t)sizeof(float) : NULL;
        p->across(&p->l, m, (const void *)x, (void *)((char *)out[0] + o), at);
    }
}

LP_KERNEL_RUN(run)
{
    const Plan *p = (const void *)k->inl;
    bool pair = p->along == most_along || p->along == least_along;
    void *to[2] = {out[0], pair ? out[1] : NULL};
    int64_t wide = p->g.axis[p->g.n_kept - 1].size;
    int64_t pieces = (wide + COLUMNS - 1) / COLUMNS;
    int64_t n = p->across ? p->g.kept_elems / wide * pieces : p->g.kept_elems;
    (void)work, (void)rc, (void)e;
#pragma omp parallel for num_threads(k->threads) if (k->threads > 1)           \
    schedule(static)
    for (int t = 0; t < k->threads; t++) {
        int64_t a = n * t / k->threads, b = n * (t + 1) / k->threads;
        if (p->across)
            run_across(p, pieces, a, b, in[0], to);
        else
            run_along(p, a, b, in[0], to);
    }
    return LP_OK;
}

bool lp_scan_prepare(const LpKernelReq *r, LpLineKind kind,
                     const LpReduceGeo *g, LpKernel *k)
{
    Plan *p = (void *)k->inl;
    const LpAxis *red = &g->axis[g->n_kept], *last = red - 1;
    const int64_t size = sizeof(float);
    _Static_assert(sizeof *p <= sizeof k->inl, "plan");
    if (r->in[0].dtype != LP_F32 || r->out[0].dtype != LP_F32 ||
        g->n_red != 1 || g->kept_elems == 0 || g->red_elems == 0)
        return false;
    bool along = red->in == size && red->out == size;
    if (!along && (last->in != size || last->out != size))
        return false;
    p->g = *g;
    p->l = (Lines){.n = red->size,
                   .x_row = red->in / size,
                   .y_row = red->out / size,
                   .back = kind == LP_LINE_CUMSUM_REVERSE};
    p->across = NULL;
    switch (kind) {
#define KIND(name)                                                             \
    p->along = name##_along;                                                   \
    p->across = along ? NULL : name##_across;                                  \
    break
    case LP_LINE_CUMSUM:
    case LP_LINE_CUMSUM_REVERSE:
        KIND(sum);
    case LP_LINE_CUMPROD:
        KIND(product);
    case LP_LINE_CUMMAX:
        KIND(most);
    case LP_LINE_CUMMIN:
        KIND(least);
    default:
        return false;
    }
    k->run = run;
    k->threads = 1;
    if (g->kept_elems * g->red_elems >= WORK_MIN && g->kept_elems > 1)
        k->threads = r->threads;
    return true;
}
