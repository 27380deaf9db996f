/* Every product of a convolution is visited as (sample, output channel, input
 * channel of its group, place of the kernel, output position); forward adds
 * it to the destination, backward to the source. Training never comes here:
 * integers have no gradients. */
#include <string.h>

#include "src/ops/kernel/window_int.h"

static int64_t wrap_add_mul(int64_t s, int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)s + (uint64_t)a * (uint64_t)b);
}

/* Three axes, the missing ones of one element in front. */
typedef struct Axes {
    int64_t src[3], dst[3], k[3], stride[3], dil[3], pad[3];
    int64_t src_plane, dst_plane, kernel;
} Axes;

static Axes axes_of(const LpConvGeom *g)
{
    Axes a = {.src_plane = 1, .dst_plane = 1, .kernel = 1};
    int skip = 3 - g->n_spatial;
    for (int i = 0; i < 3; i++) {
        bool have = i >= skip;
        a.src[i] = have ? g->src[i - skip] : 1;
        a.dst[i] = have ? g->dst[i - skip] : 1;
        a.k[i] = have ? g->kernel[i - skip] : 1;
        a.stride[i] = have ? g->stride[i - skip] : 1;
        a.dil[i] = have ? g->dilation[i - skip] : 1;
        a.pad[i] = have ? g->pad_l[i - skip] : 0;
        a.src_plane *= a.src[i];
        a.dst_plane *= a.dst[i];
        a.kernel *= a.k[i];
    }
    return a;
}

/* Source position of place k for destination position p; -1: padding. */
static int64_t source(const Axes *a, int64_t p, int64_t k)
{
    int64_t at[3];
    for (int i = 2; i >= 0; i--) {
        at[i] =
            p % a->dst[i] * a->stride[i] + k % a->k[i] * a->dil[i] - a->pad[i];
        if (at[i] < 0 || at[i] >= a->src[i])
            return -1;
        p /= a->dst[i];
        k /= a->k[i];
    }
    return (at[0] * a->src[1] + at[1]) * a->src[2] + at[2];
}

static void plane_forward(const Axes *a, const int64_t *src, const int64_t *w,
                          int64_t *dst)
{
    for (int64_t k = 0; k < a->kernel; k++)
        for (int64_t p = 0; p < a->dst_plane; p++) {
            int64_t q = source(a, p, k);
            if (q >= 0)
                dst[p] = wrap_add_mul(dst[p], src[q], w[k]);
        }
}

static void plane_data(const Axes *a, const int64_t *dst, const int64_t *w,
                       int64_t *src)
{
    for (int64_t k = 0; k < a->kernel; k++)
        for (int64_t p = 0; p < a->dst_plane; p++) {
            int64_t q = source(a, p, k);
            if (q >= 0)
                src[q] = wrap_add_mul(src[q], dst[p], w[k]);
        }
}

void lp_conv_int(const LpConvGeom *g, const int64_t *src, const int64_t *w,
                 int64_t *dst)
{
    Axes a = axes_of(g);
    int64_t ic = g->c_src / g->groups, oc = g->c_dst / g->groups;
    memset(dst, 0, (size_t)(g->n * g->c_dst * a.dst_plane) * sizeof *dst);
    for (int64_t n = 0; n < g->n; n++)
        for (int64_t o = 0; o < g->c_dst; o++)
            for (int64_t i = 0; i < ic; i++)
                plane_forward(
                    &a, src + (n * g->c_src + o / oc * ic + i) * a.src_plane,
                    w + (o * ic + i) * a.kernel,
                    dst + (n * g->c_dst + o) * a.dst_plane);
}

void lp_conv_int_data(const LpConvGeom *g, const int64_t *dst, const int64_t *w,
                      int64_t *src)
{
    Axes a = axes_of(g);
    int64_t ic = g->c_src / g->groups, oc = g->c_dst / g->groups;
    memset(src, 0, (size_t)(g->n * g->c_src * a.src_plane) * sizeof *src);
    for (int64_t n = 0; n < g->n; n++)
        for (int64_t o = 0; o < g->c_dst; o++)
            for (int64_t i = 0; i < ic; i++)
                plane_data(&a, dst + (n * g->c_dst + o) * a.dst_plane,
                           w + (o * ic + i) * a.kernel,
                           src +
                               (n * g->c_src + o / oc * ic + i) * a.src_plane);
}

/* ---- pooling --------------------------------------------------------------
 */
typedef struct Window {
    int64_t first[3], last[3]; /* positions; last is one behind */
    int64_t count;             /* elements that a mean divides by */
} Window;

static Window window_at(const LpPoolGeom *g, int64_t o)
{
    Window w = {.count = 1};
    for (int i = 2; i >= 0; i--) {
        int64_t from = o % g->out[i] * g->stride[i] - g->pad[i];
        int64_t to = from + (g->kernel[i] - 1) * g->dilation[i] + 1;
        int64_t end = g->in[i] + (g->include_pad ? g->pad[i] : 0);
        int64_t begin = from;
        while (begin < 0)
            begin += g->dilation[i];
        w.first[i] = begin;
        w.last[i] = to < g->in[i] ? to : g->in[i];
        w.count *= (to < end ? to : end) - (g->include_pad ? from : begin);
        o /= g->out[i];
    }
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

void lp_max_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y,
                      int64_t *index)
{
    for (int64_t o = 0; o < g->out[0] * g->out[1] * g->out[2]; o++) {
        Window w = window_at(g, o);
        int64_t best = -1;
        EACH(
            g, w, at, if (best < 0 || x[at] > x[best]) { best = at; });
        index[o] = best < 0 ? 0 : best;
        y[o] = best < 0 ? INT64_MIN : x[best];
    }
}

void lp_avg_plane_int(const LpPoolGeom *g, const int64_t *x, int64_t *y)
{
    for (int64_t o = 0; o < g->out[0] * g->out[1] * g->out[2]; o++) {
        Window w = window_at(g, o);
        int64_t sum = 0;
        EACH(g, w, at, sum = wrap_add_mul(sum, x[at], 1));
        y[o] = sum / (g->divisor ? g->divisor : w.count);
    }
}
