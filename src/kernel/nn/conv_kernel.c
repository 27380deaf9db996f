/* Kernels of convolution and its two gradients.
 *
 * Every one of the three operators, transposed or not, is one of three passes
 * of a plain convolution from the larger side (src) to the smaller (dst):
 *
 *     operator            plain               transposed
 *     convolution         dst = src * w       src = w^T dst
 *     … backward_input    src = w^T dst       dst = src * w
 *     … backward_weight   w   = src^T dst     w   = src^T dst
 *
 * float32 (bfloat16 where the CPU has it) runs in the library, in layouts of
 * its choice; operands are reordered from their strides and the result back.
 * Of wide depthwise windows the gradient is depthwise.h's, where the library
 * has not got Winograd's algorithm it is winograd.h's, and windows that do not
 * change are direct.h's.
 * float16 goes through float32 by the plain frame. float64, and windows the
 * library does not take, run the direct loops of convref.c in float64. */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/kernel/nn/conv_sides.h"
#include "src/kernel/nn/convref.h"
#include "src/kernel/nn/depthwise.h"
#include "src/kernel/nn/direct.h"
#include "src/kernel/nn/winograd.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/packed.h"
#include "src/kernel/state.h"

typedef struct Conv {
    LpDnnPrim *prim, *reorder[LP_CONV_SIDES]; /* NULL: used as it is */
    LpDepthwise *depthwise;                   /* in place of prim, */
    LpWinograd *winograd;                     /* or this, */
    LpDirect *direct;                         /* or this, */
    LpDnnLayout *lies;                        /* which have a layout a side */
    LpDnnPass pass;
    int threads;
    uint8_t role[LP_CONV_SIDES]; /* side of operand 0, operand 1, the result */
    size_t off[LP_CONV_SIDES];   /* of reordered copies */
    size_t scratch;              /* offset of the library's scratch */
    size_t windows;              /* of our own, unless they are packed */
    bool packed;
    size_t work;
    int64_t parts;              /* of the batch, one after the other */
    size_t step[LP_CONV_SIDES]; /* from one part of an operand to the next */
    size_t zero_bytes;          /* an empty sum: the result is all zero */
    bool empty;
} Conv;

static void conv_free(void *state)
{
    Conv *c = state;
    lp_dnn_free(c->prim);
    lp_free(c->depthwise);
    lp_free(c->winograd);
    lp_free(c->direct);
    lp_free(c->lies);
    for (int i = 0; i < LP_CONV_SIDES; i++)
        lp_dnn_free(c->reorder[i]);
    lp_free(c);
}

/* ---- the library --------------------------------------------------------- */
static const LpDnnLayout *layout_of(const Conv *c, int side)
{
    static const LpDnnArg arg[] = {LP_DNN_SRC, LP_DNN_WEIGHTS, LP_DNN_DST};
    return c->lies ? &c->lies[side] : lp_dnn_layout(c->prim, arg[side]);
}

static LpStatus add_reorder(Conv *c, int side, const LpDnnLayout *user,
                            bool out, int threads, LpErr *e)
{
    const LpDnnLayout *own = layout_of(c, side);
    if (lp_dnn_layout_eq(own, user))
        return LP_OK;
    LP_TRY(lp_dnn_reorder_new(out ? own : user, out ? user : own, threads,
                              &c->reorder[side], e));
    c->off[side] = c->work;
    c->work += (own->bytes + 63) / 64 * 64;
    return LP_OK;
}

/* Whether Winograd's algorithm (tiles of 4 x 4 results) pays: measured on one
 * core with AVX-512, 0.45 to 0.7 of the direct one's time from these sizes on,
 * up to 1.5 below them; 32 tiles give 1.0 to 1.2 forward and for the input's
 * gradient, 0.7 to 0.85 for the weights'. 32 channels to 32 want more tiles.
 * It works on blocks: one side that has none is reordered either way.
 * Its errors are about 1e-5 of the largest result. Ours (winograd.h) takes
 * 0.3 to 0.6 of the direct one's time from these sizes on, gradients too; where
 * windows are transformed once, from `ONCE` tiles on, of any channels. */
static bool winograd_pays(const LpKernelReq *r, LpDnnPass pass,
                          const LpConvGeom *g,
                          const LpDesc *const side[LP_CONV_SIDES])
{
    enum { CHANNELS = 32, PRODUCTS = 2048, TILES = 64, FEW = 32, MANY = 512 };
    enum { ONCE = 12 };
    enum { SMALL = 256 * 256 }; /* 9 MB transformed; 512 x 512 take 38 */
    bool fits = r->fast && side[LP_CONV_DST]->dtype == LP_F32 &&
                g->n_spatial == 2 && g->groups == 1 &&
                (side[LP_CONV_SRC]->block || side[LP_CONV_DST]->block);
    for (int i = 0; i < 2 && fits; i++)
        fits = g->kernel[i] == 3 && g->stride[i] == 1 && g->dilation[i] == 1;
    int64_t products = g->c_src * g->c_dst;
    bool few = pass == LP_DNN_BACKWARD_WEIGHTS && products <= SMALL;
    bool once = r->keeps && lp_winograd_runs();
    int64_t least = once                  ? ONCE
                    : products < PRODUCTS ? MANY
                    : few                 ? FEW
                                          : TILES;
    return fits && g->c_src >= CHANNELS && g->c_dst >= CHANNELS &&
           g->n * ((g->dst[0] + 3) / 4) * ((g->dst[1] + 3) / 4) >= least;
}

/* The problem for the library, and in `user` how the operands lie. Blocked ones
 * are used so if they are `kept`; the library chooses all else. */
static LpStatus describe(const Conv *c, const LpConvGeom *g,
                         const LpDesc *const side[LP_CONV_SIDES], bool kept,
                         LpDnnConv *d, LpDnnLayout user[LP_CONV_SIDES],
                         LpErr *e)
{
    LpDnnLayout *wish[LP_CONV_SIDES] = {&d->src, &d->weights, &d->dst};
    d->pass = c->pass;
    d->n_spatial = g->n_spatial;
    memcpy(d->stride, g->stride, sizeof d->stride);
    memcpy(d->dilation, g->dilation, sizeof d->dilation);
    memcpy(d->pad_l, g->pad_l, sizeof d->pad_l);
    memcpy(d->pad_r, g->pad_r, sizeof d->pad_r);
    for (int i = 0; i < LP_CONV_SIDES; i++) {
        int64_t shape[6], strides[6];
        int n =
            lp_conv_axes(side[i], i == LP_CONV_W, g->groups, shape, strides);
        LpDtype t = side[i]->dtype;
        if (side[i]->layout)
            user[i] = side[i]->layout->layout;
        else if (side[i]->block)
            LP_TRY(lp_dnn_blocked(t, n, shape, side[i]->block, &user[i], e));
        else
            LP_TRY(lp_dnn_plain(t, n, shape, strides, &user[i], e));
        if (side[i]->block && kept)
            *wish[i] = user[i];
        else
            LP_TRY(lp_dnn_any(t, n, shape, wish[i], e));
    }
    return LP_OK;
}

static LpStatus new_prim(LpDnnConv *d, bool winograd, LpDnnPrim **out, LpErr *e)
{
    LpErr probe = {0};
    d->alg = LP_DNN_WINOGRAD;
    if (winograd && lp_dnn_conv_new(d, out, &probe) == LP_OK)
        return LP_OK;
    d->alg = LP_DNN_DIRECT;
    return lp_dnn_conv_new(d, out, e);
}

/* The primitive. Blocks for which the library has only its reference loops are
 * reordered: that costs a pass over memory. */
static LpStatus choose(Conv *c, const LpConvGeom *g,
                       const LpDesc *const side[LP_CONV_SIDES],
                       const LpKernelReq *r, LpDnnLayout user[LP_CONV_SIDES],
                       LpErr *e)
{
    bool kept = side[LP_CONV_SRC]->block || side[LP_CONV_DST]->block;
    bool winograd = winograd_pays(r, c->pass, g, side);
    for (;; kept = false) {
        LpDnnConv d = {.threads = r->threads};
        LpErr probe = {0};
        LP_TRY(describe(c, g, side, kept, &d, user, e));
        LpStatus s = new_prim(&d, winograd, &c->prim, kept ? &probe : e);
        if (!kept || (s == LP_OK && !lp_dnn_is_reference(c->prim)))
            return s;
        if (s == LP_OK)
            lp_dnn_free(c->prim);
        c->prim = NULL;
    }
}

/* Operands as our own kernels take them: images in blocks, windows in plain
 * rows. */
static LpStatus describe_own(Conv *c, const LpConvGeom *g, int block,
                             const LpDesc *const side[LP_CONV_SIDES],
                             LpDnnLayout user[LP_CONV_SIDES], LpErr *e)
{
    LpDnnConv ignored;
    LP_TRY(describe(c, g, side, false, &ignored, user, e));
    c->lies = lp_calloc(LP_CONV_SIDES, sizeof *c->lies);
    LP_FAIL_IF(!c->lies, e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < LP_CONV_SIDES; i++) {
        int64_t shape[6], strides[6];
        int n =
            lp_conv_axes(side[i], i == LP_CONV_W, g->groups, shape, strides);
        if (i == LP_CONV_W)
            LP_TRY(lp_dnn_plain(LP_F32, n, shape, NULL, &c->lies[i], e));
        else
            LP_TRY(lp_dnn_blocked(LP_F32, n, shape, block, &c->lies[i], e));
    }
    return LP_OK;
}

/* A copy that c owns. */
static void *kept(const void *from, size_t bytes, LpErr *e)
{
    void *to = lp_alloc(bytes);
    if (to)
        memcpy(to, from, bytes);
    else
        lp_no_memory(e);
    return to;
}

/* What runs: our own kernels where they are quicker, else the library. */
static LpStatus choose_any(Conv *c, const LpConvGeom *g,
                           const LpDesc *const side[LP_CONV_SIDES],
                           const LpKernelReq *r,
                           LpDnnLayout user[LP_CONV_SIDES], LpErr *e)
{
    LpDepthwise d;
    LpWinograd w;
    if (c->pass == LP_DNN_BACKWARD_WEIGHTS &&
        side[LP_CONV_DST]->dtype == LP_F32 && lp_depthwise_takes(g, &d)) {
        c->depthwise = kept(&d, sizeof d, e);
        return c->depthwise ? describe_own(c, g, d.block, side, user, e)
                            : e->code;
    }
    if (winograd_pays(r, c->pass, g, side) &&
        lp_winograd_takes(g, c->pass, &w)) {
        c->winograd = kept(&w, sizeof w, e);
        return c->winograd
                   ? describe_own(c, g, LP_WINOGRAD_BLOCK, side, user, e)
                   : e->code;
    }
    if (r->keeps && c->pass == LP_DNN_FORWARD &&
        side[LP_CONV_DST]->dtype == LP_F32 && side[LP_CONV_SRC]->block &&
        side[LP_CONV_DST]->block && lp_direct_takes(g)) {
        c->direct = lp_direct_new(g, r->threads);
        return c->direct ? describe_own(c, g, LP_DIRECT_BLOCK, side, user, e)
                         : lp_no_memory(e);
    }
    return choose(c, g, side, r, user, e);
}

/* Our own windows, of which some kernels make something first. */
static size_t window_bytes(const Conv *c)
{
    return c->direct ? lp_direct_window_bytes(c->direct)
           : c->winograd && !c->winograd->gradient
               ? lp_winograd_window_bytes(c->winograd)
               : 0;
}

static void make_windows(const Conv *c, const float *rows, float *u)
{
    if (c->direct)
        lp_direct_windows(c->direct, c->threads, rows, u);
    else
        lp_winograd_windows(c->winograd, c->threads, rows, u);
}

static LpStatus build(Conv *c, const LpConvGeom *g,
                      const LpDesc *const side[LP_CONV_SIDES],
                      const LpKernelReq *r, LpErr *e)
{
    LpDnnLayout user[LP_CONV_SIDES];
    c->threads = r->threads;
    LP_TRY(choose_any(c, g, side, r, user, e));
    for (int i = 0; i < LP_CONV_SIDES; i++)
        LP_TRY(add_reorder(c, i, &user[i], i == c->role[2], r->threads, e));
    c->scratch = c->work;
    size_t inner = c->prim       ? lp_dnn_work_bytes(c->prim)
                   : c->winograd ? lp_winograd_work_bytes(c->winograd)
                   : c->direct   ? lp_direct_work_bytes(c->direct, r->threads)
                                 : 0;
    for (int i = 0; i < LP_CONV_SIDES; i++)
        if (c->reorder[i] && lp_dnn_work_bytes(c->reorder[i]) > inner)
            inner = lp_dnn_work_bytes(c->reorder[i]);
    c->work += (inner + 63) / 64 * 64;
    c->windows = c->work;
    c->work += window_bytes(c);
    return LP_OK;
}

static LpStatus run_reorder(const Conv *c, int side, void *from, void *to,
                            void *scratch, LpErr *e)
{
    void *args[LP_DNN_N_ARGS] = {[LP_DNN_SRC] = from, [LP_DNN_DST] = to};
    return lp_dnn_run(c->reorder[side], args, scratch, e);
}

/* Windows are made once for all parts. */
static void run_own(const Conv *c, int64_t part, void *const own[LP_CONV_SIDES],
                    const LpConvThen *then, char *w)
{
    bool forward = c->pass == LP_DNN_FORWARD;
    if (c->winograd && c->winograd->gradient) {
        lp_winograd_gradient(c->winograd, c->threads, own[LP_CONV_SRC],
                             own[LP_CONV_DST], own[LP_CONV_W], w + c->scratch);
        return;
    }
    void *u = c->packed ? own[LP_CONV_W] : w + c->windows;
    if (!c->packed && part == 0)
        make_windows(c, own[LP_CONV_W], u);
    if (c->direct)
        lp_direct_run(c->direct, c->threads, own[LP_CONV_SRC], u,
                      own[LP_CONV_DST], then, w + c->scratch);
    else
        lp_winograd_run(
            c->winograd, c->threads, own[forward ? LP_CONV_SRC : LP_CONV_DST],
            u, own[forward ? LP_CONV_DST : LP_CONV_SRC], then, w + c->scratch);
}

static LpStatus run_part(const Conv *c, int64_t part,
                         char *const side[LP_CONV_SIDES],
                         const LpConvThen *then, char *w, LpErr *e)
{
    void *user[LP_CONV_SIDES], *own[LP_CONV_SIDES];
    for (int i = 0; i < LP_CONV_SIDES; i++) {
        user[i] = side[i] + (size_t)part * c->step[i];
        own[i] = c->reorder[i] ? w + c->off[i] : user[i];
        bool there = part > 0 && c->step[i] == 0; /* reordered before */
        if (c->reorder[i] && i != c->role[2] && !there)
            LP_TRY(run_reorder(c, i, user[i], own[i], w + c->scratch, e));
    }
    void *args[LP_DNN_N_ARGS] = {[LP_DNN_SRC] = own[LP_CONV_SRC],
                                 [LP_DNN_WEIGHTS] = own[LP_CONV_W],
                                 [LP_DNN_DST] = own[LP_CONV_DST]};
    if (c->depthwise)
        lp_depthwise_run(c->depthwise, c->threads, own[LP_CONV_SRC],
                         own[LP_CONV_DST], own[LP_CONV_W]);
    else if (c->winograd || c->direct)
        run_own(c, part, own, then, w);
    else
        LP_TRY(lp_dnn_run(c->prim, args, w + c->scratch, e));
    int r = c->role[2];
    return c->reorder[r] ? run_reorder(c, r, own[r], user[r], w + c->scratch, e)
                         : LP_OK;
}

/* Does it tell of its result? */
static bool tells(const Conv *c)
{
    bool forward = c->role[2] == LP_CONV_DST;
    return forward && (c->direct || c->winograd) && !c->reorder[LP_CONV_DST];
}

static LpStatus conv_run(const Conv *c, void *const *in, void *out,
                         const LpConvThen *then, void *work, LpErr *e)
{
    char *side[LP_CONV_SIDES];
    if (c->empty) {
        memset(out, 0, c->zero_bytes);
        return LP_OK;
    }
    side[c->role[0]] = in[0];
    side[c->role[1]] = in[1];
    side[c->role[2]] = out;
    for (int64_t i = 0; i < c->parts && !lp_kernel_stops(); i++) {
        LpConvThen part;
        if (then) {
            part = *then;
            part.first = i * (int64_t)(c->step[LP_CONV_DST] / sizeof(float));
        }
        LP_TRY(run_part(c, i, side, then ? &part : NULL, work, e));
    }
    return LP_OK;
}

/* ---- parts ----------------------------------------------------------------
 */

/* The library does not stop in the middle: a convolution of more products runs
 * in parts of the batch, so that Ctrl-C is heard in between. */
#define PART 5e9

static double all_products(const LpConvGeom *g, const LpDesc *w)
{
    double n = (double)g->n * (double)lp_desc_numel(w);
    for (int i = 0; i < g->n_spatial; i++)
        n *= (double)g->dst[i];
    return n;
}

/* Replaces src and dst by their first parts. */
static void divide(Conv *c, LpConvGeom *g, LpDesc part[LP_CONV_SIDES])
{
    double all = all_products(g, &part[LP_CONV_W]);
    if (c->pass == LP_DNN_BACKWARD_WEIGHTS || all <= PART)
        return;
    int64_t parts = (int64_t)(all / PART) + 1;
    while (parts < g->n && g->n % parts != 0)
        parts++;
    c->parts = parts < g->n ? parts : g->n;
    g->n /= c->parts;
    for (int i = 0; i < LP_CONV_SIDES; i += LP_CONV_DST) {
        LpDesc *d = &part[i];
        d->shape[0] = g->n;
        int64_t items = d->block ? lp_desc_numel(d) : g->n * d->strides[0];
        c->step[i] = (size_t)items * lp_dtype_size(d->dtype);
    }
}

/* a: the attributes that the three operators share. */
static LpStatus conv_new(const LpAttr *a, int op_kind,
                         const LpDesc d[LP_CONV_SIDES], const LpKernelReq *r,
                         Conv **out, LpErr *e)
{
    Conv *c = lp_calloc(1, sizeof *c);
    LP_FAIL_IF(!c, e, LP_E_MEMORY, "out of memory");
    LpDesc part[LP_CONV_SIDES];
    const LpDesc *const side[LP_CONV_SIDES] = {
        &part[LP_CONV_SRC], &part[LP_CONV_W], &part[LP_CONV_DST]};
    c->pass = lp_conv_pass(op_kind, a[LP_CONV_TRANSPOSED].i != 0, c->role);
    c->parts = 1;
    for (int i = 0; i < LP_CONV_SIDES; i++)
        part[c->role[i]] = d[i];
    LpConvGeom g;
    lp_conv_geometry(a, side, &g);
    LpStatus s = LP_OK;
    if (lp_desc_numel(&d[0]) == 0 || lp_desc_numel(&d[1]) == 0 ||
        lp_desc_numel(&d[2]) == 0) {
        c->empty = true;
        c->zero_bytes =
            (size_t)lp_desc_numel(&d[2]) * lp_dtype_size(d[2].dtype);
    } else {
        divide(c, &g, part);
        s = build(c, &g, side, r, e);
    }
    if (s != LP_OK) {
        conv_free(c);
        return s;
    }
    *out = c;
    return LP_OK;
}

/* ---- kernels ------------------------------------------------------------- */
LP_KERNEL_RUN(direct_run)
{
    return conv_run(k->state, in, out[0], NULL, work, e);
}

bool lp_conv_tells(const LpKernel *k)
{
    return k->run == direct_run && tells(k->state);
}

LpStatus lp_conv_run_then(const LpKernel *k, void *const *in, void *out,
                          const LpConvThen *then, void *work, LpErr *e)
{
    return conv_run(k->state, in, out, then, work, e);
}

LP_PLAIN_CORE(core)
{
    return conv_run(lp_plain_owned(p), in, out[0], NULL, work, e);
}

typedef struct Reference {
    LpConvGeom g;
    uint8_t role[LP_CONV_SIDES];
    uint8_t pass;
    bool integers;
} Reference;

LP_PLAIN_CORE(reference_core)
{
    const Reference *f = (const void *)p->param;
    void *side[LP_CONV_SIDES];
    side[f->role[0]] = in[0];
    side[f->role[1]] = in[1];
    side[f->role[2]] = out[0];
    lp_conv_ref(&f->g, (LpDnnPass)f->pass, f->integers, side, p->threads);
    return LP_OK;
}

static LpStatus reference(const LpKernelReq *r, int op_kind, LpKernel *k,
                          LpErr *e)
{
    const LpAttr *a = lp_conv_attrs(r, op_kind);
    Reference f;
    const LpDesc *d[LP_CONV_SIDES] = {&r->in[0], &r->in[1], &r->out[0]};
    const LpDesc *side[LP_CONV_SIDES];
    f.pass =
        (uint8_t)lp_conv_pass(op_kind, a[LP_CONV_TRANSPOSED].i != 0, f.role);
    f.integers = !lp_is_float(r->out[0].dtype);
    for (int i = 0; i < LP_CONV_SIDES; i++)
        side[f.role[i]] = d[i];
    lp_conv_geometry(a, side, &f.g);
    return lp_plain_prepare(r, k, reference_core, LP_F64, &f, sizeof f, 0, e);
}

static bool dense(const LpDesc *d)
{
    if (d->block || d->layout)
        return true;
    for (int i = 0; i < d->ndim; i++)
        if (d->strides[i] <= 0 && d->shape[i] > 1)
            return false;
    return true;
}

static LpDesc contiguous(const LpDesc *d, LpDtype t)
{
    LpDesc c = *d;
    int64_t step = 1;
    c.dtype = t;
    for (int i = d->ndim - 1; i >= 0; i--) {
        c.strides[i] = step;
        step *= d->shape[i];
    }
    return c;
}

static bool has_layout(const LpKernelReq *r)
{
    return r->in[0].layout || r->in[1].layout || r->out[0].layout;
}

static LpStatus prepare(const LpKernelReq *r, int op_kind, LpKernel *k,
                        LpErr *e)
{
    LpDtype t = r->out[0].dtype;
    if (r->numerics.half_partials)
        return lp_half_conv_prepare(r, op_kind, k, e);
    if (t == LP_F64 || !lp_is_float(t))
        return reference(r, op_kind, k, e);
    if (lp_conv_one_takes(r, op_kind))
        return lp_conv_one_prepare(r, op_kind, k, e);
    bool direct = lp_dnn_native(r->in[0].dtype) && dense(&r->in[0]) &&
                  dense(&r->in[1]) &&
                  (r->out[0].block || lp_desc_contiguous(&r->out[0]));
    LP_FAIL_IF(!direct && has_layout(r), e, LP_E_INTERNAL,
               "%s: weights in the library's layout with other operands that "
               "are converted",
               r->op->name);
    LpDesc d[LP_CONV_SIDES] = {r->in[0], r->in[1], r->out[0]};
    for (int i = 0; i < LP_CONV_SIDES && !direct; i++)
        d[i] = contiguous(&d[i], LP_F32);
    Conv *c;
    LpErr probe = {0};
    LpStatus s = conv_new(lp_conv_attrs(r, op_kind), op_kind, d, r, &c, &probe);
    if (s == LP_E_MEMORY || (s != LP_OK && has_layout(r)))
        return lp_fail(e, s, "%s", probe.msg);
    if (s != LP_OK) /* a window the library does not take */
        return reference(r, op_kind, k, e);
    if (!direct)
        return lp_plain_prepare_owned(r, k, core, LP_F32,
                                      (LpPlainOwned){c, conv_free}, c->work, e);
    lp_kernel_own(c, conv_free, direct_run, k);
    k->work_bytes = c->work;
    return LP_OK;
}

/* ---- layouts ------------------------------------------------------------- */
bool lp_conv_makes(const LpKernelReq *r, bool gradient)
{
    LpDesc d[LP_CONV_SIDES] = {r->in[0], r->in[1], r->out[0]};
    LpErr probe = {0};
    Conv *c;
    if (conv_new(lp_conv_attrs(r, gradient), gradient, d, r, &c, &probe) !=
        LP_OK)
        return false;
    bool makes = !c->empty && !c->reorder[c->role[2]];
    conv_free(c);
    return makes;
}

/* ---- layouts of weights -------------------------------------------------- */
LpStatus lp_conv_layout(const LpKernelReq *r, bool gradient, LpConvLayout *h,
                        bool *plain, LpErr *e)
{
    const LpDesc *x = &r->in[0], *w = &r->in[1], *y = &r->out[0];
    LpDesc forward[LP_CONV_SIDES] = {*x, *w, *y},
           back[LP_CONV_SIDES] = {*y, *x, *w};
    LpDnnLayout rows;
    int64_t shape[6], strides[6];
    Conv *c;
    *h = (LpConvLayout){.groups = r->attr[LP_CONV_GROUPS].i};
    int n = lp_conv_axes(w, true, h->groups, shape, strides);
    LP_TRY(lp_dnn_plain(w->dtype, n, shape, strides, &rows, e));
    LP_TRY(conv_new(r->attr, gradient ? 2 : 0, gradient ? back : forward, r, &c,
                    e));
    *plain = c->empty;
    if (!c->empty) {
        h->layout = *layout_of(c, LP_CONV_W);
        *plain = lp_dnn_layout_eq(&h->layout, &rows);
    }
    conv_free(c);
    return LP_OK;
}

/* Its state is a pointer to the convolution's, which lives as long. */
LP_KERNEL_RUN(run_windows)
{
    (void)work, (void)rc, (void)e;
    make_windows(*(const Conv *const *)k->state, in[0], out[0]);
    return LP_OK;
}

LP_KERNEL_RUN(run_rows)
{
    (void)work, (void)rc, (void)e;
    const Conv *c = *(const Conv *const *)k->state;
    lp_direct_rows(c->direct, in[0], out[0]);
    return LP_OK;
}

static bool point(LpKernel *k, LpKernelRun run, const Conv *c)
{
    LpErr probe = {0};
    if (lp_kernel_state("a convolution's windows", sizeof c, run, k, &probe) !=
        LP_OK)
        return false;
    memcpy(k->state, &c, sizeof c);
    return true;
}

static bool take_windows(Conv *c, LpKernel *conv, LpKernel *pack,
                         LpKernel *unpack, size_t *bytes)
{
    if (c->reorder[LP_CONV_W] || !point(pack, run_windows, c) ||
        (c->direct && !point(unpack, run_rows, c)))
        return false;
    pack->threads = conv->threads;
    *bytes = window_bytes(c);
    conv->work_bytes = c->work = c->windows;
    c->packed = true;
    return true;
}

bool lp_conv_take_packing(LpKernel *conv, LpKernel *pack, LpKernel *unpack,
                          size_t *bytes)
{
    if (conv->run != direct_run)
        return false;
    Conv *c = conv->state;
    if (c->empty || c->role[1] != LP_CONV_W)
        return false;
    if (window_bytes(c) > 0)
        return take_windows(c, conv, pack, unpack, bytes);
    if (!c->reorder[LP_CONV_W])
        return false;
    *bytes = lp_dnn_layout(c->prim, LP_DNN_WEIGHTS)->bytes;
    lp_reorder_kernel(c->reorder[LP_CONV_W], pack);
    c->reorder[LP_CONV_W] = NULL;
    return true;
}

LP_PREPARE_AS(lp_conv_prepare, prepare(r, 0, k, e))
LP_PREPARE_AS(lp_conv_input_prepare, prepare(r, 1, k, e))
LP_PREPARE_AS(lp_conv_weight_prepare, prepare(r, 2, k, e))

/* The smaller side's elements times what each is the sum of. */
static double products(const LpDesc *small, const LpDesc *w)
{
    return w->shape[0] > 0 ? (double)lp_desc_numel(small) *
                                 (double)lp_desc_numel(w) / (double)w->shape[0]
                           : 0;
}

double lp_conv_work(const LpKernelReq *r)
{
    return products(r->attr[LP_CONV_TRANSPOSED].i ? &r->in[0] : &r->out[0],
                    &r->in[1]);
}

double lp_conv_input_work(const LpKernelReq *r)
{
    return products(r->attr[LP_CONV_BACK_TRANSPOSED].i ? &r->out[0] : &r->in[0],
                    &r->in[1]);
}

double lp_conv_weight_work(const LpKernelReq *r)
{
    return products(r->attr[LP_CONV_BACK_TRANSPOSED].i ? &r->in[1] : &r->in[0],
                    &r->out[0]);
}
