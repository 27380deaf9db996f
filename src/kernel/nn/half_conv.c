/* Convolutions with half partials (half_sums.h). The side that the window
 * moves over is copied into a frame of zeros, with zeros between its positions
 * where the gradient to the input strides; then every operand's offsets are
 * sums of those of rows, columns and products:
 *
 *     pass       rows        products         columns
 *     forward    c_dst       c_src, kernel    batch, dst
 *     to src     c_src       c_dst, kernel    batch, src
 *     to w       c_dst       batch, dst       c_src, kernel
 *
 * where channels are those of one group, and groups the batch of the product.
 */
#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/conv_sides.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/half_sums.h"

enum { SRC = LP_CONV_SRC, W = LP_CONV_W, DST = LP_CONV_DST };
enum { MOST = 5 }; /* axes of a side: batch or channels, channels, space */

/* The side that is framed: position i along an axis lies at origin + i step. */
typedef struct Framed {
    int64_t planes, size[3], origin[3], step[3], extent[3];
    int64_t plane; /* of the frame */
    bool as_is;
} Framed;

typedef struct Conv {
    LpHalfSums *h;
    Framed f;
    uint8_t role[LP_CONV_SIDES];
    uint8_t left, right, result; /* sides that are a, b, c */
    size_t framed_bytes;
} Conv;

static void drop(void *state)
{
    Conv *c = state;
    lp_free(c->h);
    lp_free(c);
}

/* ---- the frame ----------------------------------------------------------- */
static void put_row(const Framed *f, const float *x, float *to)
{
    for (int64_t i = 0; i < f->size[2]; i++) {
        int64_t at = f->origin[2] + i * f->step[2];
        if (at < f->extent[2])
            to[at] = x[i];
    }
}

static void put_plane(const Framed *f, const float *x, float *to)
{
    memset(to, 0, (size_t)f->plane * sizeof *to);
    for (int64_t d = 0; d < f->size[0]; d++)
        for (int64_t h = 0; h < f->size[1]; h++) {
            int64_t at0 = f->origin[0] + d * f->step[0];
            int64_t at1 = f->origin[1] + h * f->step[1];
            if (at0 < f->extent[0] && at1 < f->extent[1])
                put_row(f, x + (d * f->size[1] + h) * f->size[2],
                        to + (at0 * f->extent[1] + at1) * f->extent[2]);
        }
}

static void put(const Framed *f, const float *x, float *to, int threads)
{
    int64_t plane = f->size[0] * f->size[1] * f->size[2];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < f->planes; i++)
        put_plane(f, x + i * plane, to + i * f->plane);
}

/* Axes of space are filled up with ones in front. */
static LpConvGeom filled(const LpConvGeom *g)
{
    LpConvGeom w = *g;
    int skip = 3 - g->n_spatial;
    for (int i = 0; i < 3; i++) {
        int from = i - skip;
        w.src[i] = from < 0 ? 1 : g->src[from];
        w.dst[i] = from < 0 ? 1 : g->dst[from];
        w.kernel[i] = from < 0 ? 1 : g->kernel[from];
        w.stride[i] = from < 0 ? 1 : g->stride[from];
        w.dilation[i] = from < 0 ? 1 : g->dilation[from];
        w.pad_l[i] = from < 0 ? 0 : g->pad_l[from];
    }
    return w;
}

static Framed frame_of(const LpConvGeom *g, LpDnnPass pass)
{
    bool data = pass == LP_DNN_BACKWARD_DATA;
    Framed f = {.planes = g->n * (data ? g->c_dst : g->c_src),
                .plane = 1,
                .as_is = true};
    for (int i = 0; i < 3; i++) {
        int64_t reach = (g->kernel[i] - 1) * g->dilation[i];
        f.size[i] = data ? g->dst[i] : g->src[i];
        f.step[i] = data ? g->stride[i] : 1;
        f.origin[i] = data ? reach : g->pad_l[i];
        f.extent[i] = reach + 1 +
                      (data ? g->src[i] - 1 + g->pad_l[i]
                            : (g->dst[i] - 1) * g->stride[i]);
        f.as_is &=
            f.step[i] == 1 && f.origin[i] == 0 && f.extent[i] <= f.size[i];
    }
    for (int i = 0; i < 3; i++) {
        if (f.as_is)
            f.extent[i] = f.size[i];
        f.plane *= f.extent[i];
    }
    return f;
}

/* ---- offsets ------------------------------------------------------------- */
typedef struct Axes {
    int n;
    int64_t size[MOST], stride[MOST], from;
} Axes;

static void axis(Axes *a, int64_t size, int64_t stride)
{
    a->size[a->n] = size;
    a->stride[a->n++] = stride;
}

static int64_t volume(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

static void space(Axes *a, const int64_t size[3])
{
    axis(a, size[0], size[1] * size[2]);
    axis(a, size[1], size[2]);
    axis(a, size[2], 1);
}

/* Steps in the frame of window positions (stride[i] from one to the next) or
 * of places of the kernel (dilation). */
static void framed(Axes *a, const Framed *f, const int64_t size[3],
                   const int64_t step[3], bool back)
{
    int64_t row[3] = {f->extent[1] * f->extent[2], f->extent[2], 1};
    for (int i = 0; i < 3; i++) {
        int64_t by = (step ? step[i] : 1) * row[i];
        axis(a, size[i], back ? -by : by);
        a->from += back ? (size[i] - 1) * by : 0;
    }
}

static void table(int64_t *to, const Axes *a)
{
    lp_half_sums_axes(to, a->n, a->size, a->stride, a->from);
}

static int64_t count(const Axes *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->n; i++)
        n *= a->size[i];
    return n;
}

/* All that a pass's product is made of. */
typedef struct Tables {
    Axes a_batch, b_batch, c_batch, a_i, c_i, a_k, b_k, b_j, c_j;
} Tables;

static void forward(const LpConvGeom *g, const Framed *f, Tables *t)
{
    int64_t ic = g->c_src / g->groups, oc = g->c_dst / g->groups;
    int64_t taps = volume(g->kernel), plane = volume(g->dst);
    axis(&t->a_batch, g->groups, oc * ic * taps);
    axis(&t->b_batch, g->groups, ic * f->plane);
    axis(&t->c_batch, g->groups, oc * plane);
    axis(&t->a_i, oc, ic * taps);
    axis(&t->c_i, oc, plane);
    axis(&t->a_k, ic * taps, 1);
    axis(&t->b_k, ic, f->plane);
    framed(&t->b_k, f, g->kernel, g->dilation, false);
    axis(&t->b_j, g->n, g->c_src * f->plane);
    framed(&t->b_j, f, g->dst, g->stride, false);
    axis(&t->c_j, g->n, g->c_dst * plane);
    space(&t->c_j, g->dst);
}

static void to_source(const LpConvGeom *g, const Framed *f, Tables *t)
{
    int64_t ic = g->c_src / g->groups, oc = g->c_dst / g->groups;
    int64_t taps = volume(g->kernel), plane = volume(g->src);
    axis(&t->a_batch, g->groups, oc * ic * taps);
    axis(&t->b_batch, g->groups, oc * f->plane);
    axis(&t->c_batch, g->groups, ic * plane);
    axis(&t->a_i, ic, taps);
    axis(&t->c_i, ic, plane);
    axis(&t->a_k, oc, ic * taps);
    axis(&t->a_k, taps, 1);
    axis(&t->b_k, oc, f->plane);
    framed(&t->b_k, f, g->kernel, g->dilation, true);
    axis(&t->b_j, g->n, g->c_dst * f->plane);
    framed(&t->b_j, f, g->src, NULL, false);
    int64_t row[3] = {f->extent[1] * f->extent[2], f->extent[2], 1};
    for (int i = 0; i < 3; i++)
        t->b_j.from += g->pad_l[i] * row[i];
    axis(&t->c_j, g->n, g->c_src * plane);
    space(&t->c_j, g->src);
}

static void to_weights(const LpConvGeom *g, const Framed *f, Tables *t)
{
    int64_t ic = g->c_src / g->groups, oc = g->c_dst / g->groups;
    int64_t taps = volume(g->kernel), plane = volume(g->dst);
    axis(&t->a_batch, g->groups, oc * plane);
    axis(&t->b_batch, g->groups, ic * f->plane);
    axis(&t->c_batch, g->groups, oc * ic * taps);
    axis(&t->a_i, oc, plane);
    axis(&t->c_i, oc, ic * taps);
    axis(&t->a_k, g->n, g->c_dst * plane);
    space(&t->a_k, g->dst);
    axis(&t->b_k, g->n, g->c_src * f->plane);
    framed(&t->b_k, f, g->dst, g->stride, false);
    axis(&t->b_j, ic, f->plane);
    framed(&t->b_j, f, g->kernel, g->dilation, false);
    axis(&t->c_j, ic * taps, 1);
}

static LpStatus tables(const LpKernelReq *r, const LpConvGeom *g,
                       LpDnnPass pass, Conv *c, LpErr *e)
{
    Tables t = {0};
    (pass == LP_DNN_FORWARD         ? forward
     : pass == LP_DNN_BACKWARD_DATA ? to_source
                                    : to_weights)(g, &c->f, &t);
    LP_TRY(lp_half_sums_new(r, g->groups, count(&t.a_i), count(&t.b_j),
                            count(&t.a_k), &c->h, e));
    LpHalfSums *h = c->h;
    table(h->a_batch, &t.a_batch);
    table(h->b_batch, &t.b_batch);
    table(h->c_batch, &t.c_batch);
    table(h->a_i, &t.a_i);
    table(h->c_i, &t.c_i);
    table(h->a_k, &t.a_k);
    table(h->b_k, &t.b_k);
    table(h->b_j, &t.b_j);
    table(h->c_j, &t.c_j);
    return lp_half_sums_ready(h, e);
}

/* ---- the kernel ---------------------------------------------------------- */
LP_PLAIN_CORE(core)
{
    const Conv *c = lp_plain_owned(p);
    void *side[LP_CONV_SIDES];
    side[c->role[0]] = in[0];
    side[c->role[1]] = in[1];
    side[c->role[2]] = out[0];
    const float *right = side[c->right];
    if (!c->f.as_is) {
        put(&c->f, right, work, p->threads);
        right = work;
    }
    lp_half_sums_run(c->h, side[c->left], right, side[c->result],
                     (char *)work + c->framed_bytes);
    return LP_OK;
}

static LpStatus prepare(const LpKernelReq *r, int op_kind, Conv *c,
                        size_t *work, LpErr *e)
{
    const LpAttr *a = lp_conv_attrs(r, op_kind);
    const LpDesc *d[LP_CONV_SIDES] = {&r->in[0], &r->in[1], &r->out[0]};
    const LpDesc *side[LP_CONV_SIDES];
    LpDnnPass pass =
        lp_conv_pass(op_kind, a[LP_CONV_TRANSPOSED].i != 0, c->role);
    for (int i = 0; i < LP_CONV_SIDES; i++)
        side[c->role[i]] = d[i];
    LpConvGeom g;
    lp_conv_geometry(a, side, &g);
    g = filled(&g);
    c->left = pass == LP_DNN_BACKWARD_WEIGHTS ? DST : W;
    c->right = pass == LP_DNN_BACKWARD_DATA ? DST : SRC;
    c->result = c->role[2];
    c->f = frame_of(&g, pass);
    size_t all = 0;
    bool ok = c->f.as_is ||
              (lp_mul_size((size_t)c->f.planes, (size_t)c->f.plane, &all) &&
               lp_mul_size(all, sizeof(float), &all));
    c->framed_bytes = (all + 63) / 64 * 64;
    LP_TRY(tables(r, &g, pass, c, e));
    LP_FAIL_IF(!ok || !lp_add_size(c->framed_bytes, c->h->work, work), e,
               LP_E_MEMORY, "%s: scratch memory too large", r->op->name);
    return LP_OK;
}

LpStatus lp_half_conv_prepare(const LpKernelReq *r, int op_kind, LpKernel *k,
                              LpErr *e)
{
    size_t work = 0;
    Conv *c = lp_calloc(1, sizeof *c);
    LP_FAIL_IF(!c, e, LP_E_MEMORY, "%s: out of memory", r->op->name);
    LpStatus s = prepare(r, op_kind, c, &work, e);
    if (s != LP_OK) {
        drop(c);
        return s;
    }
    return lp_plain_prepare_owned(r, k, core, LP_F32, (LpPlainOwned){c, drop},
                                  work, e);
}
