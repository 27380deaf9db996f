/* Running sums and products of the usual types, and extremes of float32, whose
 * elements lie beside each other along the lines or across them. Sums and
 * products of floats run in double, as in line.c, and have its bits; those of
 * integers wrap. Along: four lines at once, so that one need not wait for the
 * addition before. Across: some columns at once, a row after the other. */
#include "src/kernel/loops/scan.h"

#include "src/base/interrupt.h"

enum { AT_ONCE = 4, COLUMNS = 256, WORK_MIN = 1 << 15 };

typedef struct Lines {
    int64_t n;            /* elements of a line */
    int64_t x_row, y_row; /* elements from one to the next */
    bool back;
} Lines;

typedef struct Plan {
    Lines l;
    void (*along)(const Lines *l, int lines, const void *const *x,
                  void *const *y, int64_t *const *at);
    void (*across)(const Lines *l, int64_t m, const void *x, void *y,
                   int64_t *at);
    LpReduceGeo g;
} Plan;

/* ---- sums and products --------------------------------------------------- */
#define ADDS(a, b) ((a) + (b))
#define MULTIPLIES(a, b) ((a) * (b))
/* X and Y: of elements and results; R: what runs. */
#define SCAN(name, X, Y, R, START, OP)                                         \
    static void name##_along(const Lines *l, int lines, const void *const *in, \
                             void *const *out, int64_t *const *at)             \
    {                                                                          \
        const X *p = in[0], *q = in[1], *r = in[2], *s = in[3];                \
        Y *t = out[0], *u = out[1], *v = out[2], *w = out[3];                  \
        R a = START, b = START, c = START, d = START;                          \
        const int64_t step = l->back ? -1 : 1, n = l->n;                       \
        int64_t i = l->back ? n - 1 : 0;                                       \
        (void)at;                                                              \
        if (lines == 1) {                                                      \
            for (int64_t k = 0; k < n; k++, i += step) {                       \
                a = OP(a, (R)p[i]);                                            \
                t[i] = (Y)a;                                                   \
            }                                                                  \
            return;                                                            \
        }                                                                      \
        for (int64_t k = 0; k < n; k++, i += step) {                           \
            a = OP(a, (R)p[i]);                                                \
            b = OP(b, (R)q[i]);                                                \
            c = OP(c, (R)r[i]);                                                \
            d = OP(d, (R)s[i]);                                                \
            t[i] = (Y)a;                                                       \
            u[i] = (Y)b;                                                       \
            v[i] = (Y)c;                                                       \
            w[i] = (Y)d;                                                       \
        }                                                                      \
    }                                                                          \
    static void name##_across(const Lines *l, int64_t m, const void *in,       \
                              void *out, int64_t *at)                          \
    {                                                                          \
        const X *x = in;                                                       \
        Y *y = out;                                                            \
        R run[COLUMNS];                                                        \
        (void)at;                                                              \
        for (int64_t c = 0; c < m; c++)                                        \
            run[c] = START;                                                    \
        for (int64_t k = 0; k < l->n; k++) {                                   \
            int64_t i = l->back ? l->n - 1 - k : k;                            \
            const X *u = x + i * l->x_row;                                     \
            Y *v = y + i * l->y_row;                                           \
            for (int64_t c = 0; c < m; c++)                                    \
                run[c] = OP(run[c], (R)u[c]);                                  \
            for (int64_t c = 0; c < m; c++)                                    \
                v[c] = (Y)run[c];                                              \
        }                                                                      \
    }
#define SCANS(name, START, ZERO, OP)                                           \
    SCAN(name##_f32, float, float, double, START, OP)                          \
    SCAN(name##_f64, double, double, double, START, OP)                        \
    SCAN(name##_i64, int64_t, int64_t, uint64_t, ZERO, OP)                     \
    SCAN(name##_i32, int32_t, int64_t, uint64_t, ZERO, OP)                     \
    SCAN(name##_bool, uint8_t, int64_t, uint64_t, ZERO, OP)
SCANS(sum, -0.0, 0, ADDS)
SCANS(product, 1.0, 1, MULTIPLIES)

/* ---- extremes ------------------------------------------------------------ */
/* Does v take the place of `best`? Equal ones do; a NaN gives way to none but
 * another one. */
#define MORE(best, v) ((best) != (best) ? (v) != (v) : !((best) > (v)))
#define LESS(best, v) ((best) != (best) ? (v) != (v) : !((best) < (v)))
#define EXTREME(name, TAKES)                                                   \
    static void name##_along(const Lines *l, int lines, const void *const *in, \
                             void *const *out, int64_t *const *at)             \
    {                                                                          \
        for (int q = 0; q < lines; q++) {                                      \
            const float *x = in[q];                                            \
            float *y = out[q], best = l->n > 0 ? x[0] : 0;                     \
            int64_t where = 0;                                                 \
            for (int64_t i = 0; i < l->n; i++) {                               \
                float v = x[i];                                                \
                if (TAKES(best, v)) {                                          \
                    best = v;                                                  \
                    where = i;                                                 \
                }                                                              \
                y[i] = best;                                                   \
                at[q][i] = where;                                              \
            }                                                                  \
        }                                                                      \
    }                                                                          \
    static void name##_across(const Lines *l, int64_t m, const void *in,       \
                              void *out, int64_t *at)                          \
    {                                                                          \
        const float *x = in;                                                   \
        float *y = out;                                                        \
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
        const void *x[AT_ONCE];
        void *y[AT_ONCE];
        int64_t *at[AT_ONCE] = {NULL}, o;
        for (int q = 0; q < AT_ONCE; q++) {
            int64_t line = i + q < to ? i + q : to - 1;
            x[q] = in + lp_reduce_offset(p->g.axis, p->g.n_kept, line, &o);
            y[q] = (char *)out[0] + o;
            if (out[1])
                at[q] = (int64_t *)out[1] + o / (int64_t)sizeof(float);
        }
        p->along(&p->l, to - i < AT_ONCE ? (int)(to - i) : AT_ONCE, x, y, at);
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
        p->across(&p->l, m, x, (char *)out[0] + o, at);
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

/* The loops; false: none for these types. */
static bool choose(const LpKernelReq *r, LpLineKind kind, Plan *p)
{
    const LpDtype from = r->in[0].dtype, to = r->out[0].dtype;
    const bool sum = kind == LP_LINE_CUMSUM || kind == LP_LINE_CUMSUM_REVERSE;
    const bool whole = to == LP_I64;
#define LOOPS(name)                                                            \
    do {                                                                       \
        p->along = name##_along;                                               \
        p->across = name##_across;                                             \
        return true;                                                           \
    } while (0)
#define TYPED(type, goes)                                                      \
    do {                                                                       \
        if ((goes) && sum)                                                     \
            LOOPS(sum_##type);                                                 \
        if ((goes) && kind == LP_LINE_CUMPROD)                                 \
            LOOPS(product_##type);                                             \
    } while (0)
    if (kind == LP_LINE_CUMMAX && from == LP_F32)
        LOOPS(most);
    if (kind == LP_LINE_CUMMIN && from == LP_F32)
        LOOPS(least);
    TYPED(f32, from == LP_F32 && to == LP_F32);
    TYPED(f64, from == LP_F64 && to == LP_F64);
    TYPED(i64, from == LP_I64 && whole);
    TYPED(i32, from == LP_I32 && whole);
    TYPED(bool, from == LP_BOOL && whole);
    return false;
}

bool lp_scan_prepare(const LpKernelReq *r, LpLineKind kind,
                     const LpReduceGeo *g, LpKernel *k)
{
    Plan *p = (void *)k->inl;
    const LpAxis *red = &g->axis[g->n_kept], *last = red - 1;
    const int64_t x = (int64_t)lp_dtype_size(r->in[0].dtype);
    const int64_t y = (int64_t)lp_dtype_size(r->out[0].dtype);
    _Static_assert(sizeof *p <= sizeof k->inl, "plan");
    if (g->n_red != 1 || g->kept_elems == 0 || g->red_elems == 0)
        return false;
    bool along = red->in == x && red->out == y;
    if ((!along && (last->in != x || last->out != y)) || !choose(r, kind, p))
        return false;
    p->g = *g;
    p->l = (Lines){.n = red->size,
                   .x_row = red->in / x,
                   .y_row = red->out / y,
                   .back = kind == LP_LINE_CUMSUM_REVERSE};
    if (along)
        p->across = NULL;
    k->run = run;
    k->threads = 1;
    if (g->kept_elems * g->red_elems >= WORK_MIN && g->kept_elems > 1)
        k->threads = r->threads;
    return true;
}
