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
    bool integers;
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

/* One pair of rows of n positions, of float64 or int64 (whose bits are summed
 * without a sign); *w is their weight. */
#define ROW(name, T)                                                           \
    static inline void name(LpDnnPass pass, T *src, T *dst, T *w, int64_t n,   \
                            int64_t s)                                         \
    {                                                                          \
        const T f = *w;                                                        \
        T sum = 0;                                                             \
        if (pass == LP_DNN_FORWARD)                                            \
            for (int64_t i = 0; i < n; i++)                                    \
                dst[i] += f * src[i * s];                                      \
        else if (pass == LP_DNN_BACKWARD_DATA)                                 \
            for (int64_t i = 0; i < n; i++)                                    \
                src[i * s] += f * dst[i];                                      \
        else                                                                   \
            for (int64_t i = 0; i < n; i++)                                    \
                sum += src[i * s] * dst[i];                                    \
        if (pass == LP_DNN_BACKWARD_WEIGHTS)                                   \
            *w += sum;                                                         \
    }
ROW(float_row, double)
ROW(int_row, uint64_t)

/* All places of the kernel for one plane of each side. */
static void planes(const Geom *g, LpDnnPass pass, double *src, double *dst,
                   double *w)
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
                double *x = src + (sd * g->src[1] + sh) * g->src[2] + sw;
                double *y = dst + (d * g->dst[1] + h) * g->dst[2] + lo[2];
                if (g->integers)
                    int_row(pass, (void *)x, (void *)y, (void *)(w + k),
                            hi[2] - lo[2], g->stride[2]);
                else
                    float_row(pass, x, y, w + k, hi[2] - lo[2], g->stride[2]);
            }
    }
}

/* Of sample n: output channel o and input channel i of its group. */
static void channels(const Geom *g, LpDnnPass pass, void *const side[3],
                     int64_t n, int64_t o, int64_t i)
{
    int64_t ci = o / g->oc * g->ic + i;
    planes(g, pass,
           (double *)side[0] + (n * g->groups * g->ic + ci) * g->src_plane,
           (double *)side[2] + (n * g->groups * g->oc + o) * g->dst_plane,
           (double *)side[1] + (o * g->ic + i) * g->kernel);
}

/* Plane q of the result: a sample's channel, or an output channel's weights. */
static void result(const Geom *g, LpDnnPass pass, void *const side[3],
                   int64_t q)
{
    int64_t c_src = g->groups * g->ic, c_dst = g->groups * g->oc;
    if (pass == LP_DNN_FORWARD)
        for (int64_t i = 0; i < g->ic && !lp_kernel_stops(); i++)
            channels(g, pass, side, q / c_dst, q % c_dst, i);
    else if (pass == LP_DNN_BACKWARD_DATA)
        for (int64_t o = 0; o < g->oc && !lp_kernel_stops(); o++)
            channels(g, pass, side, q / c_src, q % c_src / g->ic * g->oc + o,
                     q % g->ic);
    else
        for (int64_t i = 0; i < g->ic; i++)
            for (int64_t n = 0; n < g->n && !lp_kernel_stops(); n++)
                channels(g, pass, side, n, q, i);
}

void lp_conv_ref(const LpConvGeom *geom, LpDnnPass pass, bool integers,
                 void *const side[3], int threads)
{
    Geom g = widen(geom);
    g.integers = integers;
    bool weights = pass == LP_DNN_BACKWARD_WEIGHTS;
    int at = weights ? 1 : pass == LP_DNN_FORWARD ? 2 : 0;
    int64_t all = g.groups * (at == 0 ? g.ic : g.oc) * (weights ? 1 : g.n);
    int64_t plane = at == 0   ? g.src_plane
                    : weights ? g.ic * g.kernel
                              : g.dst_plane;
    memset(side[at], 0, (size_t)(all * plane) * sizeof(double));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t q = 0; q < all; q++)
        result(&g, pass, side, q);
}
