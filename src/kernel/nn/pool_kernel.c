/* Kernels of pooling. A plane is one channel of one sample; planes are split
 * over the threads, so a gradient that scatters needs no lock. Indices of
 * maxima are flat in the input plane. Floats have vector loops; integers, whose
 * sums wrap as int64 does, and maxima of adaptive windows, which differ from
 * place to place, are walked one by one. */
#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/nn/pool_blocked.h"
#include "src/kernel/plain.h"

typedef enum { MAX, AVG, AVG_BACK, SCATTER, GATHER, KINDS } Kind;
typedef struct Pool Pool;
/* One plane; `row` is scratch for an input row. The position of an index that
 * lies outside, or -1. */
typedef int64_t Plane(const Pool *q, const void *from, int64_t *index, void *to,
                      void *row);
struct Pool {
    LpPoolGeom g;
    int64_t planes, in_plane, out_plane;
    const char *op;
    Plane *plane;
    Kind kind;
    LpDtype half; /* of both sides, converted plane by plane; else NONE */
};
_Static_assert(sizeof(Pool) <= LP_PLAIN_PARAM, "Pool");

/* Of attribute `size`, one entry a pooled axis; the leading axes are planes. */
static Pool pool_of(const LpKernelReq *r, int size, Kind kind)
{
    bool back = kind == AVG_BACK || kind == SCATTER;
    const LpDesc *in = back ? &r->out[0] : &r->in[0];
    const LpDesc *out = back ? &r->in[0] : &r->out[0];
    Pool p = {.in_plane = 1, .out_plane = 1, .kind = kind, .half = LP_DT_NONE};
    p.op = r->op->name;
    int n = r->attr[size].n;
    p.planes = lp_elements(in->shape, in->ndim - n);
    for (int i = 0; i < 3; i++) {
        int axis = in->ndim - 3 + i;
        bool have = i >= 3 - n;
        p.g.in[i] = have ? in->shape[axis] : 1;
        p.g.out[i] = have ? out->shape[axis] : 1;
        p.g.kernel[i] = p.g.stride[i] = p.g.dilation[i] = 1;
        p.in_plane *= p.g.in[i];
        p.out_plane *= p.g.out[i];
    }
    return p;
}

/* Of the attributes of max_pool (`dilated`) or avg_pool, which begin alike. */
static void set_window(LpPoolGeom *g, const LpAttr *a, bool dilated)
{
    int n = a[LP_MAX_POOL_KERNEL_SIZE].n;
    for (int i = 0; i < n; i++) {
        g->kernel[3 - n + i] = a[LP_MAX_POOL_KERNEL_SIZE].v[i];
        g->stride[3 - n + i] = a[LP_MAX_POOL_STRIDE].v[i];
        g->pad[3 - n + i] = a[LP_MAX_POOL_PADDING].v[i];
        g->dilation[3 - n + i] = dilated ? a[LP_MAX_POOL_DILATION].v[i] : 1;
    }
}

/* ---- one plane ----------------------------------------------------------- */
typedef struct Window {
    int64_t first[3], last[3]; /* positions; last is one behind */
    int64_t count;             /* elements that a mean divides by */
} Window;

static void adaptive_span(const LpPoolGeom *g, int i, int64_t o, Window *w)
{
    w->first[i] = o * g->in[i] / g->out[i];
    w->last[i] = ((o + 1) * g->in[i] + g->out[i] - 1) / g->out[i];
    w->count *= w->last[i] - w->first[i];
}

static void span(const LpPoolGeom *g, int i, int64_t o, Window *w)
{
    int64_t from = o * g->stride[i] - g->pad[i];
    int64_t to = from + (g->kernel[i] - 1) * g->dilation[i] + 1;
    int64_t end = g->in[i] + (g->include_pad ? g->pad[i] : 0);
    int64_t begin = from;
    while (begin < 0)
        begin += g->dilation[i];
    w->first[i] = begin;
    w->last[i] = to < g->in[i] ? to : g->in[i];
    w->count *= (to < end ? to : end) - (g->include_pad ? from : begin);
}

static Window window_at(const Pool *q, int64_t o)
{
    Window w = {.count = 1};
    for (int i = 2; i >= 0; o /= q->g.out[i--])
        (q->g.adaptive ? adaptive_span : span)(&q->g, i, o % q->g.out[i], &w);
    if (q->g.divisor)
        w.count = q->g.divisor;
    return w;
}

/* `body` for every position `at` of the window. */
#define EACH(g, w, at, body)                                                   \
    do {                                                                       \
        for (int64_t a_ = (w).first[0]; a_ < (w).last[0];                      \
             a_ += (g)->dilation[0])                                           \
            for (int64_t b_ = (w).first[1]; b_ < (w).last[1];                  \
                 b_ += (g)->dilation[1])                                       \
                for (int64_t c_ = (w).first[2]; c_ < (w).last[2];              \
                     c_ += (g)->dilation[2]) {                                 \
                    int64_t at = (a_ * (g)->in[1] + b_) * (g)->in[2] + c_;     \
                    body;                                                      \
                }                                                              \
    } while (0)

#define PLANE(name)                                                            \
    static int64_t name(const Pool *q, const void *from,                       \
                        int64_t *index LP_UNUSED, void *to,                    \
                        void *row LP_UNUSED)

/* Sums are taken in `ACC`; the maximum of no element is LOWEST. */
#define WINDOWS(T, ACC, LOWEST, type)                                          \
    PLANE(max_##type)                                                          \
    {                                                                          \
        const T *x = from;                                                     \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            Window w = window_at(q, o);                                        \
            int64_t best = -1;                                                 \
            EACH(                                                              \
                &q->g, w, at,                                                  \
                if (best < 0 || x[at] > x[best] || x[at] != x[at]) {           \
                    best = at;                                                 \
                });                                                            \
            index[o] = best < 0 ? 0 : best;                                    \
            ((T *)to)[o] = best < 0 ? LOWEST : x[best];                        \
        }                                                                      \
        return -1;                                                             \
    }                                                                          \
    PLANE(avg_##type)                                                          \
    {                                                                          \
        const T *x = from;                                                     \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            Window w = window_at(q, o);                                        \
            ACC sum = 0;                                                       \
            EACH(&q->g, w, at, sum += (ACC)x[at]);                             \
            ((T *)to)[o] = (T)sum / (T)w.count;                                \
        }                                                                      \
        return -1;                                                             \
    }                                                                          \
    PLANE(avg_back_##type)                                                     \
    {                                                                          \
        T *dx = to;                                                            \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            Window w = window_at(q, o);                                        \
            T d = ((const T *)from)[o] / (T)w.count;                           \
            EACH(&q->g, w, at, dx[at] += d);                                   \
        }                                                                      \
        return -1;                                                             \
    }                                                                          \
    PLANE(scatter_##type)                                                      \
    {                                                                          \
        T *dx = to;                                                            \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            if (index[o] < 0 || index[o] >= q->in_plane)                       \
                return o;                                                      \
            dx[index[o]] += ((const T *)from)[o];                              \
        }                                                                      \
        return -1;                                                             \
    }                                                                          \
    PLANE(gather_##type)                                                       \
    {                                                                          \
        T *y = to;                                                             \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            if (index[o] < 0 || index[o] >= q->in_plane)                       \
                return o;                                                      \
            y[o] = ((const T *)from)[index[o]];                                \
        }                                                                      \
        return -1;                                                             \
    }
WINDOWS(float, float, -INFINITY, f32)
WINDOWS(double, double, -INFINITY, f64)
WINDOWS(int64_t, uint64_t, INT64_MIN, i64)

#define VECTORS(type)                                                          \
    PLANE(max_vec_##type)                                                      \
    {                                                                          \
        lp_nn()->type->max_plane(&q->g, from, to, index);                      \
        return -1;                                                             \
    }                                                                          \
    PLANE(avg_vec_##type)                                                      \
    {                                                                          \
        /* wide steps: no vectors across them */                               \
        if (q->g.adaptive || q->g.stride[2] > 2)                               \
            lp_nn()->type->avg_rows(&q->g, from, to, row);                     \
        else                                                                   \
            lp_nn()->type->avg_plane(&q->g, from, to);                         \
        return -1;                                                             \
    }                                                                          \
    PLANE(avg_back_vec_##type)                                                 \
    {                                                                          \
        lp_nn()->type->avg_rows_back(&q->g, from, to, row);                    \
        return -1;                                                             \
    }
VECTORS(f32)
VECTORS(f64)

/* By LpDtype: the walk by windows, and what is quicker of regular ones. */
#define WALKS(type)                                                            \
    {                                                                          \
        max_##type, avg_##type, avg_back_##type, scatter_##type, gather_##type \
    }
#define VECS(type)                                                             \
    {                                                                          \
        max_vec_##type, avg_vec_##type, avg_back_vec_##type                    \
    }
static Plane *const walks[][KINDS] = {
    [LP_F32] = WALKS(f32), [LP_F64] = WALKS(f64), [LP_I64] = WALKS(i64)};
static Plane *const vectors[][KINDS] = {
    [LP_F32] = VECS(f32), [LP_F64] = VECS(f64), [LP_I64] = {0}};

/* ---- all of them --------------------------------------------------------- */
static bool is_half(const Pool *q)
{
    return q->half != LP_DT_NONE;
}

static int64_t row_bytes(const Pool *q, int64_t size)
{
    bool sums = q->kind == AVG || q->kind == AVG_BACK;
    return sums ? (q->g.in[2] * size + 63) / 64 * 64 : 0;
}

/* Of a thread: a row, then both planes as floats if they are halves. */
static int64_t scratch_bytes(const Pool *q, int64_t size)
{
    int64_t planes = is_half(q) ? (q->in_plane + q->out_plane) * size : 0;
    return row_bytes(q, size) + (planes + 63) / 64 * 64;
}

LP_PLAIN_CORE(pool_core)
{
    const Pool *q = (const void *)p->param;
    bool back = q->kind == AVG_BACK || q->kind == SCATTER;
    int64_t size = (int64_t)lp_dtype_size(p->compute);
    bool half = is_half(q);
    int64_t stored = half ? (int64_t)lp_dtype_size(q->half) : size;
    int64_t from = back ? q->out_plane : q->in_plane;
    int64_t to = back ? q->in_plane : q->out_plane;
    int64_t *index = p->n_in > 1 ? in[1] : p->n_out > 1 ? out[1] : NULL;
    LpConvert load = half ? lp_convert_loop(q->half, LP_F32) : NULL;
    LpConvert store = half ? lp_convert_loop(LP_F32, q->half) : NULL;
    int threads = lp_plain_width(p, q->planes * q->in_plane);
    int64_t chunk = (q->planes + threads - 1) / threads, bad = -1;
#pragma omp parallel for num_threads(threads) schedule(static)                 \
    reduction(max                                                              \
              : bad)
    for (int t = 0; t < threads; t++) {
        char *row = (char *)work + t * scratch_bytes(q, size);
        char *planes = row + row_bytes(q, size);
        for (int64_t i = t * chunk; i < (t + 1) * chunk && i < q->planes; i++) {
            const char *x = (const char *)in[0] + i * from * stored;
            char *y = (char *)out[0] + i * to * stored;
            char *made = half ? planes + from * size : y;
            if (half) {
                load(from, planes, size, x, stored);
                x = planes;
            }
            if (back)
                memset(made, 0, (size_t)(to * size));
            int64_t o = q->plane(q, x, index ? index + i * q->out_plane : NULL,
                                 made, row);
            bad = o < 0 ? bad : i * q->out_plane + o;
            if (half)
                store(to, y, stored, made, size);
        }
    }
    LP_FAIL_IF(bad >= 0, e, LP_E_INDEX,
               "%s: `indices` must lie in 0 … %lld, got %lld", q->op,
               (long long)q->in_plane - 1, (long long)index[bad]);
    return LP_OK;
}

static LpStatus prepare(const LpKernelReq *r, Pool *q, LpKernel *k, LpErr *e)
{
    LpDtype t = lp_plain_type(r->out[0].dtype);
    bool walked = q->kind == MAX && q->g.adaptive;
    q->plane = walked ? NULL : vectors[t][q->kind];
    if (!q->plane)
        q->plane = walks[t][q->kind];
    const LpDesc *x = &r->in[0], *y = &r->out[0];
    if (lp_is_half(x->dtype) && x->dtype == y->dtype && lp_desc_contiguous(x) &&
        lp_desc_contiguous(y))
        q->half = x->dtype;
    int64_t scratch = scratch_bytes(q, (int64_t)lp_dtype_size(t));
    uint32_t as_is = is_half(q);
    return lp_plain_prepare_but(r, k, pool_core, t, q, sizeof *q,
                                (size_t)(r->threads * scratch), as_is, as_is,
                                e);
}

LP_KERNEL_PREPARE(lp_max_pool_prepare)
{
    Pool q = pool_of(r, LP_MAX_POOL_KERNEL_SIZE, MAX);
    set_window(&q.g, r->attr, true);
    LP_FAIL_IF(q.in_plane > INT32_MAX, e, LP_E_RUNTIME,
               "max_pool: a plane of %lld elements is too large",
               (long long)q.in_plane);
    if (r->in[0].block)
        return lp_max_pool_blocked(r, &q.g, k, e);
    return prepare(r, &q, k, e);
}

LP_KERNEL_PREPARE(lp_max_pool_scatter_prepare)
{
    if (r->out[0].block)
        return lp_max_pool_scatter_blocked(r, k, e);
    Pool q = pool_of(r, LP_POOL_SIZE, SCATTER);
    return prepare(r, &q, k, e);
}

LP_KERNEL_PREPARE(lp_max_pool_gather_prepare)
{
    Pool q = pool_of(r, LP_POOL_SIZE, GATHER);
    return prepare(r, &q, k, e);
}

/* Attributes of avg_pool begin at `first`; what ceil_mode is the output's size
 * tells. */
static LpStatus avg(const LpKernelReq *r, int first, Kind kind, LpKernel *k,
                    LpErr *e)
{
    Pool q = pool_of(r, first + LP_AVG_POOL_KERNEL_SIZE, kind);
    const LpAttr *a = r->attr + first;
    set_window(&q.g, a, false);
    q.g.include_pad = a[LP_AVG_POOL_COUNT_INCLUDE_PAD].i != 0;
    const LpAttr *divisor = &a[LP_AVG_POOL_DIVISOR_OVERRIDE];
    q.g.divisor = divisor->kind == LP_ATTR_NONE ? 0 : divisor->i;
    return prepare(r, &q, k, e);
}

LP_PREPARE_AS(lp_avg_pool_prepare, avg(r, 0, AVG, k, e))
LP_PREPARE_AS(lp_avg_pool_back_prepare,
              avg(r, LP_AVG_BACK_KERNEL_SIZE, AVG_BACK, k, e))

/* Equal windows of means that do not overlap are a regular pooling. */
static LpStatus adaptive(const LpKernelReq *r, Kind kind, LpKernel *k, LpErr *e)
{
    Pool q = pool_of(r, LP_POOL_SIZE, kind);
    q.g.adaptive = kind == MAX;
    for (int i = 0; i < 3; i++)
        q.g.adaptive |= q.g.out[i] == 0 || q.g.in[i] % q.g.out[i] != 0;
    for (int i = 0; i < 3 && !q.g.adaptive; i++)
        q.g.kernel[i] = q.g.stride[i] = q.g.in[i] / q.g.out[i];
    return prepare(r, &q, k, e);
}

LP_PREPARE_AS(lp_adaptive_max_pool_prepare, adaptive(r, MAX, k, e))
LP_PREPARE_AS(lp_adaptive_avg_pool_prepare, adaptive(r, AVG, k, e))
LP_PREPARE_AS(lp_adaptive_avg_pool_back_prepare, adaptive(r, AVG_BACK, k, e))
