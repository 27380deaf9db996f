/* Kernels of src/ops/view/pad_edges.c. The operand is planes of up to three
 * dimensions, padded by elements of their own. Along a dimension of n, place o
 * of the result has element edge(o): beyond an edge the inner neighbours
 * backwards, the edge again, or the other side. Threads take planes. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/hooks.h"
#include "src/kernel/plain.h"

enum { ROWS = 4 }; /* of the result, to sum in: two for each dimension */

typedef struct Edges {
    int64_t planes;
    int64_t n[3], before[3], made[3]; /* of the operand; of the result */
    char mode;                        /* 'f', 'p' or 'r' of its name */
} Edges;

static inline int64_t edge(const Edges *p, int a, int64_t o)
{
    int64_t n = p->n[a], i = o - p->before[a];
    if (i >= 0 && i < n)
        return i;
    if (p->mode == 'f')
        return i < 0 ? -i : 2 * (n - 1) - i;
    if (p->mode == 'p')
        return i < 0 ? 0 : n - 1;
    return i < 0 ? i + n : i - n;
}

/* Where row r of the result's plane comes from. */
static int64_t row_of(const Edges *p, int64_t r)
{
    int64_t d = edge(p, 0, r / p->made[1]), h = edge(p, 1, r % p->made[1]);
    return (d * p->n[1] + h) * p->n[2];
}

#define PLANES(T)                                                              \
    static void forth_##T(const Edges *p, const T *x, T *y)                    \
    {                                                                          \
        int64_t n = p->n[2], at = p->before[2], wide = p->made[2];             \
        for (int64_t r = 0; r < p->made[0] * p->made[1]; r++, y += wide) {     \
            const T *row = x + row_of(p, r);                                   \
            for (int64_t o = 0; o < at; o++)                                   \
                y[o] = row[edge(p, 2, o)];                                     \
            memcpy(y + at, row, (size_t)n * sizeof *y);                        \
            for (int64_t o = at + n; o < wide; o++)                            \
                y[o] = row[edge(p, 2, o)];                                     \
        }                                                                      \
    }

PLANES(float)
PLANES(double)

/* The adjoint adds as the joined parts' gradients do, which are in traces: the
 * outermost dimension first, along each the middle, what lies behind it and
 * what lies before it. */
typedef struct Sources {
    int64_t from[2], to[2]; /* places behind, and before */
} Sources;

static Sources sources(const Edges *p, int a, int64_t i)
{
    int64_t n = p->n[a], at = p->before[a], end = p->made[a], o;
    Sources s = {{0, 0}, {0, 0}};
    if (p->mode == 'p') {
        if (i == n - 1)
            s.from[0] = at + n, s.to[0] = end;
        if (i == 0)
            s.to[1] = at;
        return s;
    }
    o = at + (p->mode == 'f' ? 2 * (n - 1) - i : n + i);
    if (o >= at + n && o < end)
        s.from[0] = o, s.to[0] = o + 1;
    o = at - (p->mode == 'f' ? i : n - i);
    if (o >= 0 && o < at)
        s.from[1] = o, s.to[1] = o + 1;
    return s;
}

#define ADJOINT(T)                                                             \
    static void add_##T(int64_t n, T *y, const T *x)                           \
    {                                                                          \
        for (int64_t i = 0; i < n; i++)                                        \
            y[i] += x[i];                                                      \
    }                                                                          \
    /* Row i along dimension a of those before the last; `o`: the place */     \
    /* along the one after it. Made in `work` if it is a sum. */               \
    static const T *row_##T(const Edges *p, const T *g, int a, int64_t i,      \
                            int64_t o, T *work);                               \
    static const T *place_##T(const Edges *p, const T *g, int a, int64_t d,    \
                              int64_t o, T *work)                              \
    {                                                                          \
        return a == 0 ? g + (d * p->made[1] + o) * p->made[2]                  \
                      : row_##T(p, g, 0, d, o, work);                          \
    }                                                                          \
    static const T *sum_##T(const Edges *p, const T *g, int a, int64_t d,      \
                            int64_t o, int64_t mid, Sources s, T *work)        \
    {                                                                          \
        int64_t n = p->made[2];                                                \
        T *sum = work, *side = work + n, *next = work + 2 * n;                 \
        for (int k = -1; k < 2; k++) {                                         \
            int64_t from = k < 0 ? mid : s.from[k];                            \
            int64_t to = k < 0 ? mid + 1 : s.to[k];                            \
            for (int64_t r = from; r < to; r++) {                              \
                const T *x =                                                   \
                    place_##T(p, g, a, a == 0 ? r : d, a == 0 ? o : r, next);  \
                T *y = k < 0 ? sum : side;                                     \
                if (r == from)                                                 \
                    memcpy(y, x, (size_t)n * sizeof *y);                       \
                else                                                           \
                    add_##T(n, y, x);                                          \
            }                                                                  \
            if (k >= 0 && to > from)                                           \
                add_##T(n, sum, side);                                         \
        }                                                                      \
        return sum;                                                            \
    }                                                                          \
    static const T *row_##T(const Edges *p, const T *g, int a, int64_t i,      \
                            int64_t o, T *work)                                \
    {                                                                          \
        int64_t mid = p->before[a] + (a == 0 ? i : o);                         \
        Sources s = sources(p, a, a == 0 ? i : o);                             \
        if (s.from[0] == s.to[0] && s.from[1] == s.to[1])                      \
            return place_##T(p, g, a, a == 0 ? mid : i, a == 0 ? o : mid,      \
                             work);                                            \
        return sum_##T(p, g, a, i, o, mid, s, work);                           \
    }                                                                          \
    static void back_##T(const Edges *p, const T *g, T *x, T *work)            \
    {                                                                          \
        int64_t n = p->n[2], at = p->before[2], behind = p->made[2] - at - n;  \
        int64_t edges = (at > behind ? at : behind) + 1;                       \
        for (int64_t r = 0; r < p->n[0] * p->n[1]; r++, x += n) {              \
            const T *y = row_##T(p, g, 1, r / p->n[1], r % p->n[1], work);     \
            memcpy(x, y + at, (size_t)n * sizeof *x);                          \
            for (int64_t i = 0; i < n; i++) {                                  \
                if (i == edges && n - edges > i)                               \
                    i = n - edges; /* none in the middle has others */         \
                Sources s = sources(p, 2, i);                                  \
                for (int k = 0; k < 2; k++) {                                  \
                    T side = 0;                                                \
                    for (int64_t o = s.from[k]; o < s.to[k]; o++)              \
                        side += y[o];                                          \
                    if (s.to[k] > s.from[k])                                   \
                        x[i] += side;                                          \
                }                                                              \
            }                                                                  \
        }                                                                      \
    }
ADJOINT(float)
ADJOINT(double)

static void plane(const Edges *p, bool wide, bool back, const void *from,
                  void *to, void *work)
{
    if (back)
        wide ? back_double(p, from, to, work) : back_float(p, from, to, work);
    else
        wide ? forth_double(p, from, to) : forth_float(p, from, to);
}

static LpStatus run(const LpPlain *k, const char *from, char *to, char *work,
                    bool back)
{
    const Edges *p = (const void *)k->param;
    bool wide = k->compute == LP_F64;
    int64_t size = wide ? 8 : 4;
    int64_t x = lp_elements(p->n, 3) * size, y = lp_elements(p->made, 3) * size;
    int64_t sf = back ? y : x, st = back ? x : y;
    int width = lp_plain_width(k, p->planes * y / size);
#pragma omp parallel for num_threads(width) schedule(static)
    for (int t = 0; t < width; t++)
        for (int64_t i = p->planes * t / width; i < p->planes * (t + 1) / width;
             i++)
            plane(p, wide, back, from + i * sf, to + i * st,
                  work + t * ROWS * p->made[2] * size);
    return LP_OK;
}

LP_PLAIN_CORE(edges_core)
{
    return run(p, in[0], out[0], NULL, false);
}

LP_PLAIN_CORE(edges_back_core)
{
    return run(p, in[0], out[0], work, true);
}

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, const LpDesc *self,
                        const LpDesc *made, LpPlainCore core, LpErr *e)
{
    const LpAttr *pad = &r->attr[LP_EDGES_PAD];
    int m = pad->n / 2, from = self->ndim - m;
    Edges p = {.planes = lp_elements(self->shape, from),
               .n = {1, 1, 1},
               .made = {1, 1, 1},
               .mode = r->attr[LP_EDGES_MODE].str[2]};
    for (int i = 0; i < m; i++) {
        p.n[3 - m + i] = self->shape[from + i];
        p.made[3 - m + i] = made->shape[from + i];
        p.before[2 - i] = pad->v[2 * i];
    }
    LpDtype type = lp_plain_type(r->out[0].dtype);
    int threads = r->threads < 1 ? 1 : r->threads;
    size_t row = (size_t)p.made[2] * lp_dtype_size(type), work = 0;
    LP_FAIL_IF(core == edges_back_core &&
                   !lp_mul_size(row, (size_t)threads * ROWS, &work),
               e, LP_E_MEMORY, "out of memory");
    return lp_plain_prepare(r, k, core, type, &p, sizeof p, work, e);
}

LP_PREPARE_AS(lp_edges_prepare,
              prepare(r, k, &r->in[0], &r->out[0], edges_core, e))
LP_PREPARE_AS(lp_edges_back_prepare,
              prepare(r, k, &r->out[0], &r->in[0], edges_back_core, e))
