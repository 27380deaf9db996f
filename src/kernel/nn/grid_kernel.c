/* Kernels of src/ops/nn/grid_sample.c: a block of points at a time is planned
 * once for all channels (gridloops.h). Sums go over the blocks, the corners and
 * the channels in order, whatever the threads take: images, or of few of them
 * blocks of points, and by the gradient of the input channels. */
#include <string.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/gridloops.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/plain.h"

static const LpGridLoops *loops(void)
{
    return LP_SIMD_PICK(lp_grid);
}

/* What a part of the work goes over; dx, dgrid: NULL where not asked for. */
typedef struct Part {
    const LpGrid *g;
    const void *x, *grid, *dy;
    void *y, *dx, *dgrid, *work;
} Part;

#define BLOCK LP_GRID_BLOCK
/* Points [p0, p1) of channels [c0, c1) of image n. */
#define PARTS(T, field)                                                        \
    static void forth_##field(const Part *q, int64_t n, int64_t c0,            \
                              int64_t c1, int64_t p0, int64_t p1)              \
    {                                                                          \
        const LpGrid *g = q->g;                                                \
        for (int64_t p = p0; p < p1; p += BLOCK) {                             \
            int m = (int)lp_min(p1 - p, BLOCK);                                \
            loops()->field.plan(                                               \
                g, (const T *)q->grid + (n * g->points + p) * g->axes, m,      \
                false, q->work);                                               \
            for (int64_t c = n * g->channels + c0; c < n * g->channels + c1;   \
                 c++)                                                          \
                loops()->field.sample(g, m, q->work,                           \
                                      (const T *)q->x + c * g->plane,          \
                                      (T *)q->y + c * g->points + p);          \
        }                                                                      \
    }                                                                          \
    static void back_##field(const Part *q, int64_t n, int64_t c0, int64_t c1, \
                             int64_t p0, int64_t p1)                           \
    {                                                                          \
        const LpGrid *g = q->g;                                                \
        T sum[LP_GRID_AXES * BLOCK];                                           \
        for (int64_t p = p0; p < p1; p += BLOCK) {                             \
            int m = (int)lp_min(p1 - p, BLOCK);                                \
            int64_t at = (n * g->points + p) * g->axes;                        \
            loops()->field.plan(g, (const T *)q->grid + at, m,                 \
                                q->dgrid != NULL, q->work);                    \
            memset(sum, 0, sizeof sum);                                        \
            for (int64_t c = n * g->channels + c0; c < n * g->channels + c1;   \
                 c++) {                                                        \
                const T *dy = (const T *)q->dy + c * g->points + p;            \
                if (q->dgrid)                                                  \
                    loops()->field.slopes(g, m, q->work,                       \
                                          (const T *)q->x + c * g->plane, dy,  \
                                          sum);                                \
                if (q->dx)                                                     \
                    loops()->field.scatter(g, m, q->work, dy,                  \
                                           (T *)q->dx + c * g->plane);         \
            }                                                                  \
            for (int i = 0; q->dgrid && i < m * g->axes; i++)                  \
                ((T *)q->dgrid)[at + i] =                                      \
                    sum[i % g->axes * BLOCK + i / g->axes];                    \
        }                                                                      \
    }
PARTS(float, f32)
PARTS(double, f64)

typedef void (*Run)(const Part *q, int64_t n, int64_t c0, int64_t c1,
                    int64_t p0, int64_t p1);

/* Share t of `width` of n, in steps of `step`. */
static int64_t share(int64_t n, int t, int width, int64_t step)
{
    int64_t part = (n + step * width - 1) / (step * width) * step;
    return lp_min(n, part * t);
}

typedef enum { IMAGES, CHANNELS, POINTS } Split;

static void run(const Part *q, Run f, Split split, int width, size_t bytes)
{
    const LpGrid *g = q->g;
#pragma omp parallel for num_threads(width) schedule(static)
    for (int t = 0; t < width; t++) {
        Part own = *q;
        own.work = (char *)q->work + (size_t)t * bytes;
        int64_t from[] = {0, 0, 0}, to[] = {g->n, g->channels, g->points};
        int64_t step = split == POINTS ? BLOCK : 1, n = to[split];
        from[split] = share(n, t, width, step);
        to[split] = share(n, t + 1, width, step);
        for (int64_t i = from[0]; i < to[0]; i++)
            f(&own, i, from[1], to[1], from[2], to[2]);
    }
}

static size_t bytes_of(const LpGrid *g, LpDtype t)
{
    size_t n = t == LP_F64 ? loops()->f64.bytes(g) : loops()->f32.bytes(g);
    return (n + 63) / 64 * 64;
}

static int width_of(const LpPlain *p, const LpGrid *g)
{
    return lp_plain_width(p, g->n * g->channels * g->points * g->corners);
}

LP_PLAIN_CORE(forward_core)
{
    const LpGrid *g = (const void *)p->param;
    Part q = {.g = g, .x = in[0], .grid = in[1], .y = out[0], .work = work};
    bool wide = p->compute == LP_F64;
    int width = width_of(p, g);
    run(&q, wide ? forth_f64 : forth_f32, g->n < width ? POINTS : IMAGES, width,
        bytes_of(g, (LpDtype)p->compute));
    return LP_OK;
}

LP_PLAIN_CORE(backward_core)
{
    const LpGrid *g = (const void *)p->param;
    LpDtype t = (LpDtype)p->compute;
    Part q = {.g = g, .dy = in[0], .x = in[1], .grid = in[2], .work = work};
    Part to_x = q, to_grid = q;
    to_x.dx = q.dx = out[0];
    to_grid.dgrid = q.dgrid = out[1];
    size_t bytes = bytes_of(g, t);
    int width = width_of(p, g);
    Run f = t == LP_F64 ? back_f64 : back_f32;
    memset(out[0], 0,
           (size_t)(g->n * g->channels * g->plane) * lp_dtype_size(t));
    if (g->n >= width) {
        run(&q, f, IMAGES, width, bytes);
        return LP_OK;
    }
    run(&to_x, f, CHANNELS, width, bytes);
    run(&to_grid, f, POINTS, width, bytes);
    return LP_OK;
}

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, int self,
                        LpPlainCore core, LpErr *e)
{
    const LpDesc *x = &r->in[self], *grid = &r->in[self + 1];
    int axes = x->ndim - 2;
    LpGrid g = {.axes = axes,
                .mode = (int)r->attr[LP_GRID_INTERPOLATION_MODE].i,
                .padding = (int)r->attr[LP_GRID_PADDING_MODE].i,
                .align = r->attr[LP_GRID_ALIGN_CORNERS].i != 0,
                .n = x->shape[0],
                .channels = x->shape[1],
                .plane = 1,
                .points = lp_elements(grid->shape + 1, axes)};
    g.taps = g.mode == LP_GRID_BICUBIC ? 4 : g.mode == LP_GRID_NEAREST ? 1 : 2;
    g.corners = g.taps * g.taps * (axes == 3 ? g.taps : 1);
    for (int a = 0; a < axes; a++) {
        g.size[a] = x->shape[x->ndim - 1 - a];
        g.step[a] = g.plane;
        LP_FAIL_IF(g.size[a] > INT32_MAX / g.plane, e, LP_E_RUNTIME,
                   "grid_sample: a picture has more than %d elements",
                   INT32_MAX);
        g.plane *= g.size[a];
    }
    LpDtype t = lp_plain_type(x->dtype);
    return lp_plain_prepare(r, k, core, t, &g, sizeof g,
                            (size_t)r->threads * bytes_of(&g, t), e);
}

LP_PREPARE_AS(lp_grid_prepare, prepare(r, k, 0, forward_core, e))
LP_PREPARE_AS(lp_grid_back_prepare, prepare(r, k, 1, backward_core, e))
