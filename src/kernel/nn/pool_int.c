/* Window by window: nothing is shared between them, as in nnloops for floats.
 * Training never comes here: integers have no gradients. */
#include "src/kernel/nn/pool_int.h"

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
        uint64_t sum = 0;
        EACH(g, w, at, sum += (uint64_t)x[at]);
        y[o] = (int64_t)sum / (g->divisor ? g->divisor : w.count);
    }
}
