/* Row by row: for one output channel, one input channel and one place of the
 * kernel, whole rows along the last axis are combined, so that the innermost
 * loop is a multiply-add of two rows. Fewer than three spatial axes are
 * filled up with ones in front. */
#include <string.h>

#include "src/kernel/nn/convref.h"

#include "src/base/interrupt.h"

typedef struct Geom {
    int64_t n, groups, ic, oc; /* channels of one group */
    int64_t src[3], dst[3], k[3], stride[3], dil[3], pad[3];
    int64_t src_plane, dst_plane, kernel;
} Geom;

static Geom widen(const LpConvGeom *g)
{
    Geom w = {.n = g->n,
              .groups = g->groups,
              .ic = g->c_src / g->groups,
              .oc = g->c_dst / g->groups,
              .src_plane = 1,
              .dst_plane = 1,
              .kernel = 1};
    int skip = 3 - g->n_spatial;
    for (int i = 0; i < 3; i++) {
        bool have = i >= skip;
        w.src[i] = have ? g->src[i - skip] : 1;
        w.dst[i] = have ? g->dst[i - skip] : 1;
        w.k[i] = have ? g->kernel[i - skip] : 1;
        w.stride[i] = have ? g->stride[i - skip] : 1;
        w.dil[i] = have ? g->dilation[i - skip] : 1;
        w.pad[i] = have ? g->pad_l[i - skip] : 0;
        w.src_plane *= w.src[i];
        w.dst_plane *= w.dst[i];
        w.kernel *= w.k[i];
    }
    return w;
}

/* dst positions [*lo, *hi) of axis `a` whose place `k` of the kernel lies in
 * the source; *off is the source position of position 0. */
static void range(const Geom *g, int a, int64_t k, int64_t *lo, int64_t *hi,
                  int64_t *off)
{
    int64_t o = k * g->dil[a] - g->pad[a], s = g->stride[a];
    *off = o;
    *lo = o < 0 ? (-o + s - 1) / s : 0;
    *hi = g->src[a] - 1 - o < 0 ? 0 : (g->src[a] - 1 - o) / s + 1;
    if (*hi > g->dst[a])
        *hi = g->dst[a];
}

/* An element: float64, or int64 whose bits are summed without a sign. */
typedef union Number {
    double f;
    uint64_t i;
} Number;

/* What is done with one pair of rows of n positions. */
typedef enum {
    TO_DST,
    TO_SRC,
    TO_WEIGHT,
    INTEGERS, /* the same three of integers from here */
} Way;

static Way of_type(Way way, bool integers)
{
    return integers ? INTEGERS + way : way;
}

static inline void row(Way way, Number *src, Number *dst, Number *w, int64_t n,
                       int64_t s)
{
    if (way == TO_DST) {
        for (int64_t i = 0; i < n; i++)
            dst[i].f += w->f * src[i * s].f;
    } else if (way == TO_SRC) {
        for (int64_t i = 0; i < n; i++)
            src[i * s].f += w->f * dst[i].f;
    } else if (way == TO_WEIGHT) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += src[i * s].f * dst[i].f;
        w->f += sum;
    } else if (way == INTEGERS + TO_DST) {
        for (int64_t i = 0; i < n; i++)
            dst[i].i += w->i * src[i * s].i;
    } else if (way == INTEGERS + TO_SRC) {
        for (int64_t i = 0; i < n; i++)
            src[i * s].i += w->i * dst[i].i;
    } else {
        for (int64_t i = 0; i < n; i++)
            w->i += src[i * s].i * dst[i].i;
    }
}

/* All places of the kernel for one plane of each side. */
static void planes(const Geom *g, Way way, Number *src, Number *dst, Number *w)
{
    int64_t lo[3], hi[3], off[3];
    for (int64_t k = 0; k < g->kernel; k++) {
        int64_t kw = k % g->k[2], kh = k / g->k[2] % g->k[1];
        range(g, 0, k / g->k[2] / g->k[1], &lo[0], &hi[0], &off[0]);
        range(g, 1, kh, &lo[1], &hi[1], &off[1]);
        range(g, 2, kw, &lo[2], &hi[2], &off[2]);
        if (lo[2] >= hi[2])
            continue;
        for (int64_t d = lo[0]; d < hi[0]; d++)
            for (int64_t h = lo[1]; h < hi[1]; h++) {
                int64_t sd = d * g->stride[0] + off[0];
                int64_t sh = h * g->stride[1] + off[1];
                int64_t sw = lo[2] * g->stride[2] + off[2];
                row(way, src + (sd * g->src[1] + sh) * g->src[2] + sw,
                    dst + (d * g->dst[1] + h) * g->dst[2] + lo[2], w + k,
                    hi[2] - lo[2], g->stride[2]);
            }
    }
}

/* Operands that `way` only reads lose their const here and are not written. */
static void channels(const Geom *g, Way way, const void *src, const void *dst,
                     const void *w, int64_t n, int64_t o, int64_t i)
{
    int64_t group = o / g->oc;
    Number *s = (Number *)(uintptr_t)src;
    Number *d = (Number *)(uintptr_t)dst, *k = (Number *)(uintptr_t)w;
    int64_t ci = group * g->ic + i;
    planes(g, way, s + (n * g->groups * g->ic + ci) * g->src_plane,
           d + (n * g->groups * g->oc + o) * g->dst_plane,
           k + (o * g->ic + i) * g->kernel);
}

void lp_conv_ref(const LpConvGeom *geom, bool integers, const void *src,
                 const void *w, void *dst, int threads)
{
    Geom g = widen(geom);
    int64_t all = g.n * g.groups * g.oc;
    memset(dst, 0, (size_t)(all * g.dst_plane) * sizeof(Number));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t q = 0; q < all; q++)
        for (int64_t i = 0; i < g.ic && !lp_kernel_stops(); i++)
            channels(&g, of_type(TO_DST, integers), src, dst, w,
                     q / (g.groups * g.oc), q % (g.groups * g.oc), i);
}

void lp_conv_ref_data(const LpConvGeom *geom, bool integers, const void *dst,
                      const void *w, void *src, int threads)
{
    Geom g = widen(geom);
    int64_t all = g.n * g.groups * g.ic;
    memset(src, 0, (size_t)(all * g.src_plane) * sizeof(Number));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t q = 0; q < all; q++) {
        int64_t c = q % (g.groups * g.ic);
        for (int64_t o = 0; o < g.oc && !lp_kernel_stops(); o++)
            channels(&g, of_type(TO_SRC, integers), src, dst, w,
                     q / (g.groups * g.ic), c / g.ic * g.oc + o, c % g.ic);
    }
}

void lp_conv_ref_weights(const LpConvGeom *geom, bool integers, const void *src,
                         const void *dst, void *w, int threads)
{
    Geom g = widen(geom);
    int64_t all = g.groups * g.oc;
    memset(w, 0, (size_t)(all * g.ic * g.kernel) * sizeof(Number));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t o = 0; o < all; o++)
        for (int64_t i = 0; i < g.ic; i++)
            for (int64_t n = 0; n < g.n && !lp_kernel_stops(); n++)
                channels(&g, of_type(TO_WEIGHT, integers), src, dst, w, n, o,
                         i);
}
