/* Kernels of src/ops/nn/resample.c. The operand is [outer, n, inner]. Of one
 * inner element (the last dimension) the taps are looked up one by one, of
 * more whole rows are weighted and summed. Sums are made in the order of the
 * taps and, by the adjoint, of the result's elements within a tap's pair;
 * threads take outer indices or inner columns, where no two meet. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/plain.h"

#define MOST_TAPS (LP_MAX_IN / 2)
#define STRIP 2048 /* inner elements at once: the rows of a sum stay cached */

typedef struct Resample {
    int64_t outer, inner, n, m; /* of the operand and of the result */
    int taps, first;            /* operand of the first index */
} Resample;

/* ---- along rows ---------------------------------------------------------- */
/* One outer index, columns [c0, c1). w, at: of each tap. */
#define ROWS(T)                                                                \
    static void forth_##T(const Resample *s, const int64_t *const *at,         \
                          void *const *weight, const void *xp, void *yp,       \
                          int64_t c0, int64_t c1)                              \
    {                                                                          \
        for (int64_t i = 0; i < s->m; i++)                                     \
            for (int64_t c = c0; c < c1; c += STRIP) {                         \
                int64_t n = lp_min(c1 - c, STRIP);                             \
                T *y = (T *)yp + i * s->inner + c;                             \
                for (int k = 0; k < s->taps; k++) {                            \
                    const T *x = (const T *)xp + at[k][i] * s->inner + c;      \
                    const T w = ((const T *)weight[k])[i];                     \
                    if (k == 0)                                                \
                        for (int64_t j = 0; j < n; j++)                        \
                            y[j] = x[j] * w;                                   \
                    else                                                       \
                        for (int64_t j = 0; j < n; j++)                        \
                            y[j] += x[j] * w;                                  \
                }                                                              \
            }                                                                  \
    }                                                                          \
    static void back_##T(const Resample *s, const int64_t *const *at,          \
                         void *const *weight, const void *gp, void *xp,        \
                         int64_t c0, int64_t c1)                               \
    {                                                                          \
        for (int64_t i = 0; i < s->n; i++)                                     \
            memset((T *)xp + i * s->inner + c0, 0,                             \
                   (size_t)(c1 - c0) * sizeof(T));                             \
        for (int64_t i = 0; i < s->m; i++)                                     \
            for (int k = 0; k < s->taps; k++) {                                \
                const T *g = (const T *)gp + i * s->inner;                     \
                T *x = (T *)xp + at[k][i] * s->inner;                          \
                const T w = ((const T *)weight[k])[i];                         \
                for (int64_t j = c0; j < c1; j++)                              \
                    x[j] += g[j] * w;                                          \
            }                                                                  \
    }

/* ---- along the last dimension -------------------------------------------- */
#define TWO(T)                                                                 \
    static void forth_two_##T(const Resample *s, const int64_t *const *at,     \
                              void *const *weight, const T *x, T *y)           \
    {                                                                          \
        const int64_t *a = at[0], *b = at[1];                                  \
        const T *u = weight[0], *v = weight[1];                                \
        for (int64_t i = 0; i < s->m; i++)                                     \
            y[i] = x[a[i]] * u[i] + x[b[i]] * v[i];                            \
    }                                                                          \
    static void forth_four_##T(const Resample *s, const int64_t *const *at,    \
                               void *const *weight, const T *x, T *y)          \
    {                                                                          \
        const int64_t *a = at[0], *b = at[1], *c = at[2], *d = at[3];          \
        const T *u = weight[0], *v = weight[1], *w = weight[2];                \
        const T *z = weight[3];                                                \
        for (int64_t i = 0; i < s->m; i++)                                     \
            y[i] = x[a[i]] * u[i] + x[b[i]] * v[i] + x[c[i]] * w[i] +          \
                   x[d[i]] * z[i];                                             \
    }                                                                          \
    static void line_##T(const Resample *s, const int64_t *const *at,          \
                         void *const *weight, const void *x, void *y,          \
                         int64_t c0, int64_t c1)                               \
    {                                                                          \
        if (s->taps == 2)                                                      \
            forth_two_##T(s, at, weight, x, y);                                \
        else if (s->taps == 4)                                                 \
            forth_four_##T(s, at, weight, x, y);                               \
        else                                                                   \
            forth_##T(s, at, weight, x, y, c0, c1);                            \
    }                                                                          \
    static void line_back_##T(const Resample *s, const int64_t *const *at,     \
                              void *const *weight, const void *gp, void *xp,   \
                              int64_t c0 LP_UNUSED, int64_t c1 LP_UNUSED)      \
    {                                                                          \
        const T *g = gp;                                                       \
        T *x = xp;                                                             \
        memset(x, 0, (size_t)s->n * sizeof *x);                                \
        for (int k = 0; k + 1 < s->taps; k += 2) {                             \
            const int64_t *a = at[k], *b = at[k + 1];                          \
            const T *u = weight[k], *v = weight[k + 1];                        \
            for (int64_t i = 0; i < s->m; i++) {                               \
                x[a[i]] += g[i] * u[i];                                        \
                x[b[i]] += g[i] * v[i];                                        \
            }                                                                  \
        }                                                                      \
        for (int64_t i = 0; s->taps % 2 != 0 && i < s->m; i++)                 \
            x[at[s->taps - 1][i]] +=                                           \
                g[i] * ((const T *)weight[s->taps - 1])[i];                    \
    }
ROWS(float)
ROWS(double)
TWO(float)
TWO(double)

typedef void (*Line)(const Resample *s, const int64_t *const *at,
                     void *const *weight, const void *from, void *to,
                     int64_t c0, int64_t c1);

static Line line_of(bool wide, bool line, bool back)
{
    static const Line by[2][2][2] = {
        {{forth_float, back_float}, {line_float, line_back_float}},
        {{forth_double, back_double}, {line_double, line_back_double}}};
    return by[wide][line][back];
}

/* ---- the kernels --------------------------------------------------------- */
static LpStatus check_index(const Resample *s, const int64_t *at, LpErr *e)
{
    for (int64_t i = 0; i < s->m; i++)
        LP_FAIL_IF(at[i] < 0 || at[i] >= s->n, e, LP_E_INDEX,
                   "resample: index %lld is out of bounds for a dimension of "
                   "size %lld",
                   (long long)at[i], (long long)s->n);
    return LP_OK;
}

static LpStatus run(const LpPlain *p, void *const *in, void *out, bool back,
                    LpErr *e)
{
    const Resample *s = (const void *)p->param;
    const int64_t *at[MOST_TAPS];
    void *weight[MOST_TAPS];
    int64_t bytes = p->compute == LP_F64 ? 8 : 4, inner = s->inner;
    int64_t from = (back ? s->m : s->n) * inner * bytes;
    int64_t to = (back ? s->n : s->m) * inner * bytes;
    for (int k = 0; k < s->taps; k++) {
        at[k] = in[s->first + 2 * k];
        weight[k] = in[s->first + 2 * k + 1];
        LP_TRY(check_index(s, at[k], e));
    }
    Line line = line_of(p->compute == LP_F64, inner == 1, back);
    int width = lp_plain_width(p, s->outer * s->m * inner * s->taps);
    bool columns = s->outer < width && inner >= 64;
    int64_t n = columns ? inner : s->outer, part = (n + width - 1) / width;
#pragma omp parallel for num_threads(width) schedule(static)
    for (int t = 0; t < width; t++) {
        int64_t a = t * part, z = lp_min(a + part, n);
        for (int64_t o = columns ? 0 : a; o < (columns ? s->outer : z); o++)
            if (a < z)
                line(s, at, weight, (const char *)in[0] + o * from,
                     (char *)out + o * to, columns ? a : 0,
                     columns ? z : inner);
    }
    return LP_OK;
}

LP_PLAIN_CORE(resample_core)
{
    return run(p, in, out[0], false, e);
}

LP_PLAIN_CORE(resample_back_core)
{
    return run(p, in, out[0], true, e);
}

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, int first,
                        const LpDesc *self, const LpDesc *made,
                        LpPlainCore core, LpErr *e)
{
    int dim = (int)r->attr[LP_RESAMPLE_DIM].i;
    Resample s = {.outer = lp_elements(self->shape, dim),
                  .inner =
                      lp_elements(self->shape + dim + 1, self->ndim - dim - 1),
                  .n = self->shape[dim],
                  .m = made->shape[dim],
                  .taps = (r->n_in - first) / 2,
                  .first = first};
    LP_FAIL_IF(r->n_in > LP_MAX_IN, e, LP_E_RUNTIME,
               "%s: %d taps, at most %d are supported", r->op->name, s.taps,
               MOST_TAPS - 1);
    /* of the operand the adjoint reads the type alone */
    return lp_plain_prepare_but(r, k, core, lp_plain_type(r->out[0].dtype), &s,
                                sizeof s, 0, first == 2 ? 1 << 1 : 0, 0, e);
}

LP_PREPARE_AS(lp_resample_prepare,
              prepare(r, k, 1, &r->in[0], &r->out[0], resample_core, e))
LP_PREPARE_AS(lp_resample_back_prepare,
              prepare(r, k, 2, &r->in[1], &r->in[0], resample_back_core, e))
