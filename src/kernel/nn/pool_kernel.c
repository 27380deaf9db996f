/* Kernels of pooling. A plane is one channel of one sample; planes are split
 * over the threads, so a gradient that scatters needs no lock. Indices of
 * maxima are flat in the input plane. Adaptive windows, which differ from
 * place to place, have plain loops over tables of bounds; where they are all
 * equal the regular kernel runs. */
#include <math.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/nn/pool_blocked.h"
#include "src/kernel/nn/pool_int.h"
#include "src/kernel/plain.h"

typedef struct Pool {
    LpPoolGeom g;
    int64_t planes, in_plane, out_plane;
} Pool;
_Static_assert(sizeof(Pool) <= LP_PLAIN_PARAM, "Pool");

/* Sizes of the last `n` axes; the leading ones are the planes. */
static Pool pool_of(const LpDesc *in, const LpDesc *out, int n)
{
    Pool p = {.planes = 1, .in_plane = 1, .out_plane = 1};
    for (int i = 0; i < in->ndim - n; i++)
        p.planes *= in->shape[i];
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

/* ---- maximum ------------------------------------------------------------- */
LP_PLAIN_CORE(max_core)
{
    const Pool *q = (const void *)p->param;
    int threads = lp_plain_width(p, q->planes * q->in_plane);
    int64_t chunk = (q->planes + threads - 1) / threads;
    int64_t *index = out[1];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int32_t *tmp = (int32_t *)work + t * q->g.out[2];
        for (int64_t i = t * chunk; i < (t + 1) * chunk && i < q->planes; i++)
            if (p->compute == LP_I64)
                lp_max_plane_int(&q->g, (int64_t *)in[0] + i * q->in_plane,
                                 (int64_t *)out[0] + i * q->out_plane,
                                 index + i * q->out_plane);
            else if (p->compute == LP_F64)
                lp_nn()->f64->max_plane(&q->g,
                                        (double *)in[0] + i * q->in_plane,
                                        (double *)out[0] + i * q->out_plane,
                                        index + i * q->out_plane, tmp);
            else
                lp_nn()->f32->max_plane(&q->g, (float *)in[0] + i * q->in_plane,
                                        (float *)out[0] + i * q->out_plane,
                                        index + i * q->out_plane, tmp);
    }
    return LP_OK;
}

LpStatus lp_max_pool_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Pool q = pool_of(&r->in[0], &r->out[0], r->attr[LP_MAX_POOL_KERNEL_SIZE].n);
    set_window(&q.g, r->attr, true);
    LP_FAIL_IF(q.in_plane > INT32_MAX, e, LP_E_RUNTIME,
               "max_pool: a plane of %lld elements is too large",
               (long long)q.in_plane);
    if (r->in[0].block)
        return lp_max_pool_blocked(r, &q.g, k, e);
    size_t work = (size_t)(r->threads * q.g.out[2]) * sizeof(int32_t);
    return lp_plain_prepare(r, k, max_core, lp_plain_type(r->out[0].dtype), &q,
                            sizeof q, work, e);
}

/* Bounds of adaptive window o of `out` over `in`. */
static int64_t lower(int64_t o, int64_t in, int64_t out)
{
    return o * in / out;
}

static int64_t upper(int64_t o, int64_t in, int64_t out)
{
    return ((o + 1) * in + out - 1) / out;
}

/* f(position) for every element of output o's adaptive window */
#define WINDOW(g, o, pos, body)                                                \
    do {                                                                       \
        int64_t ow_ = (o) % (g)->out[2],                                       \
                oh_ = (o) / (g)->out[2] % (g)->out[1];                         \
        int64_t od_ = (o) / (g)->out[2] / (g)->out[1];                         \
        for (int64_t a_ = lower(od_, (g)->in[0], (g)->out[0]);                 \
             a_ < upper(od_, (g)->in[0], (g)->out[0]); a_++)                   \
            for (int64_t b_ = lower(oh_, (g)->in[1], (g)->out[1]);             \
                 b_ < upper(oh_, (g)->in[1], (g)->out[1]); b_++)               \
                for (int64_t c_ = lower(ow_, (g)->in[2], (g)->out[2]);         \
                     c_ < upper(ow_, (g)->in[2], (g)->out[2]); c_++) {         \
                    int64_t pos = (a_ * (g)->in[1] + b_) * (g)->in[2] + c_;    \
                    body;                                                      \
                }                                                              \
    } while (0)

static int64_t window_size(const LpPoolGeom *g, int64_t o)
{
    int64_t n = 0;
    WINDOW(g, o, pos, (void)pos; n++);
    return n;
}

#define ADAPTIVE(T, name)                                                      \
    static void max_##name(const Pool *q, const T *x, T *y, int64_t *index)    \
    {                                                                          \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            T best = -(T)INFINITY;                                             \
            int64_t at = -1;                                                   \
            WINDOW(                                                            \
                &q->g, o, pos,                                                 \
                if (at < 0 || x[pos] > best || x[pos] != x[pos]) {             \
                    best = x[pos];                                             \
                    at = pos;                                                  \
                });                                                            \
            y[o] = best;                                                       \
            index[o] = at;                                                     \
        }                                                                      \
    }                                                                          \
    static void avg_##name(const Pool *q, const T *x, T *y)                    \
    {                                                                          \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            T s = 0;                                                           \
            WINDOW(&q->g, o, pos, s += x[pos]);                                \
            y[o] = s / (T)window_size(&q->g, o);                               \
        }                                                                      \
    }                                                                          \
    static void avg_back_##name(const Pool *q, const T *dy, T *dx)             \
    {                                                                          \
        for (int64_t o = 0; o < q->out_plane; o++) {                           \
            T d = dy[o] / (T)window_size(&q->g, o);                            \
            WINDOW(&q->g, o, pos, dx[pos] += d);                               \
        }                                                                      \
    }                                                                          \
    static void scatter_##name(const Pool *q, const T *dy,                     \
                               const int64_t *index, T *dx)                    \
    {                                                                          \
        for (int64_t o = 0; o < q->out_plane; o++)                             \
            dx[index[o]] += dy[o];                                             \
    }                                                                          \
    static void gather_##name(const Pool *q, const T *x, const int64_t *index, \
                              T *y)                                            \
    {                                                                          \
        for (int64_t o = 0; o < q->out_plane; o++)                             \
            y[o] = x[index[o]];                                                \
    }
ADAPTIVE(float, f32)
ADAPTIVE(double, f64)

LP_PLAIN_CORE(adaptive_max_core)
{
    const Pool *q = (const void *)p->param;
    int threads = lp_plain_width(p, q->planes * q->in_plane);
    int64_t *index = out[1];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < q->planes; i++) {
        int64_t a = i * q->in_plane, b = i * q->out_plane;
        if (p->compute == LP_F64)
            max_f64(q, (double *)in[0] + a, (double *)out[0] + b, index + b);
        else
            max_f32(q, (float *)in[0] + a, (float *)out[0] + b, index + b);
    }
    return LP_OK;
}

LpStatus lp_adaptive_max_pool_prepare(const LpKernelReq *r, LpKernel *k,
                                      LpErr *e)
{
    Pool q = pool_of(&r->in[0], &r->out[0], r->attr[LP_POOL_SIZE].n);
    return lp_plain_prepare(r, k, adaptive_max_core,
                            lp_plain_type(r->out[0].dtype), &q, sizeof q, 0, e);
}

/* in: dy, index -> dx */
LP_PLAIN_CORE(scatter_core)
{
    const Pool *q = (const void *)p->param;
    const int64_t *index = in[1];
    int threads = lp_plain_width(p, q->planes * q->in_plane);
    int bad = 0;
#pragma omp parallel for num_threads(threads) schedule(static)                 \
    reduction(|                                                                \
              : bad)
    for (int64_t i = 0; i < q->planes; i++) {
        int64_t a = i * q->in_plane, b = i * q->out_plane;
        for (int64_t o = b; o < b + q->out_plane; o++)
            bad |= index[o] < 0 || index[o] >= q->in_plane;
        size_t size = p->compute == LP_F64 ? 8 : 4;
        memset((char *)out[0] + (size_t)a * size, 0,
               (size_t)q->in_plane * size);
        if (bad)
            continue;
        if (p->compute == LP_F64)
            scatter_f64(q, (double *)in[0] + b, index + b,
                        (double *)out[0] + a);
        else
            scatter_f32(q, (float *)in[0] + b, index + b, (float *)out[0] + a);
    }
    LP_FAIL_IF(bad, e, LP_E_INDEX,
               "max_pool_backward: `indices` must lie in 0 … %lld",
               (long long)q->in_plane - 1);
    return LP_OK;
}

LpStatus lp_max_pool_scatter_prepare(const LpKernelReq *r, LpKernel *k,
                                     LpErr *e)
{
    if (r->out[0].block)
        return lp_max_pool_scatter_blocked(r, k, e);
    Pool q = pool_of(&r->out[0], &r->in[0], r->attr[LP_POOL_SIZE].n);
    return lp_plain_prepare(r, k, scatter_core, lp_plain_type(r->out[0].dtype),
                            &q, sizeof q, 0, e);
}

/* in: x, index -> y */
LP_PLAIN_CORE(gather_core)
{
    const Pool *q = (const void *)p->param;
    const int64_t *index = in[1];
    for (int64_t o = 0; o < q->planes * q->out_plane; o++)
        LP_FAIL_IF(index[o] < 0 || index[o] >= q->in_plane, e, LP_E_INDEX,
                   "max_pool_gather: `indices` must lie in 0 … %lld, got %lld",
                   (long long)q->in_plane - 1, (long long)index[o]);
    int threads = lp_plain_width(p, q->planes * q->in_plane);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < q->planes; i++) {
        int64_t a = i * q->in_plane, b = i * q->out_plane;
        if (p->compute == LP_F64)
            gather_f64(q, (double *)in[0] + a, index + b, (double *)out[0] + b);
        else
            gather_f32(q, (float *)in[0] + a, index + b, (float *)out[0] + b);
    }
    return LP_OK;
}

LpStatus lp_max_pool_gather_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Pool q = pool_of(&r->in[0], &r->out[0], r->attr[LP_POOL_SIZE].n);
    return lp_plain_prepare(r, k, gather_core, lp_plain_type(r->out[0].dtype),
                            &q, sizeof q, 0, e);
}

/* ---- average ------------------------------------------------------------- */
typedef enum { AVG, AVG_BACK, ADAPTIVE_AVG, ADAPTIVE_AVG_BACK } AvgKind;
typedef struct Avg {
    Pool p;
    AvgKind kind;
} Avg;
_Static_assert(sizeof(Avg) <= LP_PLAIN_PARAM, "Avg");

static void avg_one(const Avg *a, LpDtype t, int64_t i, void *in, void *out)
{
    const Pool *q = &a->p;
    bool back = a->kind == AVG_BACK || a->kind == ADAPTIVE_AVG_BACK;
    int64_t big = i * q->in_plane, small = i * q->out_plane;
    size_t size = lp_dtype_size(t);
    char *x = (char *)in + (size_t)(back ? small : big) * size;
    char *y = (char *)out + (size_t)(back ? big : small) * size;
    void *from = x, *to = y;
    if (back)
        memset(y, 0, (size_t)q->in_plane * size);
    switch (a->kind) {
    case AVG:
        if (t == LP_I64)
            lp_avg_plane_int(&q->g, from, to);
        else if (t == LP_F64)
            lp_nn()->f64->avg_plane(&q->g, from, to);
        else
            lp_nn()->f32->avg_plane(&q->g, from, to);
        break;
    case AVG_BACK:
        if (t == LP_F64)
            lp_nn()->f64->avg_plane_back(&q->g, from, to);
        else
            lp_nn()->f32->avg_plane_back(&q->g, from, to);
        break;
    case ADAPTIVE_AVG:
        if (t == LP_F64)
            avg_f64(q, from, to);
        else
            avg_f32(q, from, to);
        break;
    case ADAPTIVE_AVG_BACK:
        if (t == LP_F64)
            avg_back_f64(q, from, to);
        else
            avg_back_f32(q, from, to);
        break;
    }
}

LP_PLAIN_CORE(avg_core)
{
    const Avg *a = (const void *)p->param;
    int threads = lp_plain_width(p, a->p.planes * a->p.in_plane);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < a->p.planes; i++)
        avg_one(a, (LpDtype)p->compute, i, in[0], out[0]);
    return LP_OK;
}

/* a: attributes of avg_pool; what ceil_mode is the output's size tells. */
static LpStatus avg(const LpKernelReq *r, const LpAttr *a, bool back,
                    LpKernel *k, LpErr *e)
{
    Avg q = {.kind = back ? AVG_BACK : AVG};
    q.p = pool_of(back ? &r->out[0] : &r->in[0], back ? &r->in[0] : &r->out[0],
                  a[LP_AVG_POOL_KERNEL_SIZE].n);
    set_window(&q.p.g, a, false);
    q.p.g.include_pad = a[LP_AVG_POOL_COUNT_INCLUDE_PAD].i != 0;
    const LpAttr *divisor = &a[LP_AVG_POOL_DIVISOR_OVERRIDE];
    q.p.g.divisor = divisor->kind == LP_ATTR_NONE ? 0 : divisor->i;
    return lp_plain_prepare(r, k, avg_core, lp_plain_type(r->out[0].dtype), &q,
                            sizeof q, 0, e);
}

LpStatus lp_avg_pool_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    return avg(r, r->attr, false, k, e);
}

LpStatus lp_avg_pool_back_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    return avg(r, r->attr + LP_AVG_BACK_KERNEL_SIZE, true, k, e);
}

/* Equal windows that do not overlap are a regular pooling. */
static LpStatus adaptive(const LpKernelReq *r, bool back, LpKernel *k, LpErr *e)
{
    Avg q = {.kind = back ? ADAPTIVE_AVG_BACK : ADAPTIVE_AVG};
    q.p = pool_of(back ? &r->out[0] : &r->in[0], back ? &r->in[0] : &r->out[0],
                  r->attr[LP_POOL_SIZE].n);
    bool even = true;
    for (int i = 0; i < 3; i++)
        even = even && q.p.g.out[i] > 0 && q.p.g.in[i] % q.p.g.out[i] == 0;
    for (int i = 0; i < 3 && even; i++)
        q.p.g.kernel[i] = q.p.g.stride[i] = q.p.g.in[i] / q.p.g.out[i];
    if (even)
        q.kind = back ? AVG_BACK : AVG;
    return lp_plain_prepare(r, k, avg_core, lp_plain_type(r->out[0].dtype), &q,
                            sizeof q, 0, e);
}

LpStatus lp_adaptive_avg_pool_prepare(const LpKernelReq *r, LpKernel *k,
                                      LpErr *e)
{
    return adaptive(r, false, k, e);
}

LpStatus lp_adaptive_avg_pool_back_prepare(const LpKernelReq *r, LpKernel *k,
                                           LpErr *e)
{
    return adaptive(r, true, k, e);
}
