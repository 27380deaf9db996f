/* See direct.h. */
#include "src/kernel/nn/direct.h"

#include <omp.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/loops/loops.h"

LP_SIMD_EXTERN(LpDirectOf, lp_direct);

enum {
    B = LP_DIRECT_BLOCK,
    PANEL = LP_DIRECT_PANEL,
    QUAD = 4,
    ROOM = 192 * 1024, /* bytes of a strip: the second cache has it */
    FEW = 4,           /* pieces of work that a thread should have */
    MOST = 160,        /* places of a strip: the first cache has what is made */
    DEPTH = 32,        /* taps that are summed at once, of these windows */
    LONG = 1024,       /* of a strip of one block that is read once */
    LINE = 16,         /* elements: blocks do not lie on top of each other */
};

static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Windows of so many channels, of as many, or whole blocks. */
static bool of(const LpConvGeom *g, int64_t channels)
{
    return g->c_src == channels * g->groups && g->c_dst == g->c_src;
}

bool lp_direct_takes(const LpConvGeom *g)
{
    int64_t groups = of(g, 1) || of(g, QUAD) ? 1 : g->groups;
    return lp_cpu_simd() == LP_SIMD_AVX2 && g->n_spatial == 2 &&
           g->c_src % (groups * B) == 0 && g->c_dst % (groups * B) == 0;
}

/* ---- the plan ------------------------------------------------------------ */
/* Lines and columns of the image that a strip of results is made of. */
static void set_copy(LpDirect *d)
{
    if (d->thins) {
        d->from[0] = d->strip;
        d->from[1] = d->line;
        return;
    }
    d->from[0] =
        (d->strip - 1) * d->stride[0] + (d->kernel[0] - 1) * d->dilation[0] + 1;
    d->from[1] =
        (d->line - 1) * d->stride[1] + (d->kernel[1] - 1) * d->dilation[1] + 1;
}

static void set_offsets(LpDirect *d)
{
    int64_t row = (d->copies ? d->from[1] : d->src[1]) * B, at = 0;
    int64_t plane = (d->copies ? d->from[0] : d->src[0]) * row;
    for (int64_t c = 0; c < d->in; c++)
        for (int64_t y = 0; y < d->kernel[0]; y++)
            for (int64_t x = 0; x < d->kernel[1]; x++)
                d->offset[at++] = c * plane + y * d->dilation[0] * row +
                                  x * d->dilation[1] * B;
}

static int64_t panels(const LpDirect *d)
{
    return over(d->out, PANEL);
}

/* The first block of a panel; they have nearly one size. */
static int64_t first_of(const LpDirect *d, int64_t panel)
{
    return d->out * panel / panels(d);
}

/* Of an image, and places of a line of one. */
static int64_t strips(const LpDirect *d)
{
    return over(d->flat ? d->line : d->lines, d->strip);
}

static void set_strips(LpDirect *d, int threads)
{
    int64_t bytes = d->in * B * (int64_t)sizeof(float);
    int64_t all = d->flat ? d->line : d->lines;
    int64_t places = d->depthwise ? LONG : MOST;
    int64_t most = d->flat ? places : lp_max(places / d->line, 1);
    if (!d->flat)
        bytes *= d->src[1] * lp_min(d->stride[0], d->kernel[0]);
    most = lp_min(most, lp_max(ROOM / bytes, 1));
    d->strip = over(all, over(all, most));
    int64_t want = threads > 1 ? threads * FEW : 1;
    int64_t pieces =
        lp_min(panels(d), over(want, d->n * d->groups * strips(d)));
    d->chunk = over(panels(d), pieces);
}

LpDirect *lp_direct_new(const LpConvGeom *g, int threads)
{
    bool depthwise = of(g, 1), quads = of(g, QUAD);
    int64_t places = g->kernel[0] * g->kernel[1];
    int64_t groups = depthwise || quads ? g->c_src / B : g->groups;
    int64_t in = g->c_src / (groups * B), out = g->c_dst / (groups * B);
    int64_t taps = in * places;
    LpDirect *d = lp_calloc(1, sizeof *d + (size_t)taps * sizeof d->offset[0]);
    if (!d)
        return NULL;
    *d = (LpDirect){.n = g->n,
                    .groups = groups,
                    .in = in,
                    .out = out,
                    .depthwise = depthwise,
                    .quads = quads,
                    .lines = g->dst[0],
                    .line = g->dst[1],
                    .taps = taps};
    bool one = places == 1;
    for (int i = 0; i < 2; i++) {
        d->src[i] = g->src[i];
        d->dst[i] = g->dst[i];
        d->kernel[i] = g->kernel[i];
        d->stride[i] = g->stride[i];
        d->dilation[i] = g->dilation[i];
        d->pad[i] = g->pad_l[i];
        d->copies |= !depthwise && (g->pad_l[i] > 0 || g->pad_r[i] > 0);
        one = one && g->stride[i] == 1 && g->src[i] == g->dst[i];
    }
    d->flat = one && !depthwise && !d->copies;
    d->thins = places == 1 && !d->flat && !depthwise && !d->copies;
    d->copies |= d->thins;
    if (d->flat) {
        d->line *= d->lines;
        d->lines = 1;
    }
    set_strips(d, threads);
    set_copy(d);
    set_offsets(d);
    return d;
}

/* ---- windows ------------------------------------------------------------- */
static int64_t all_blocks(const LpDirect *d)
{
    return d->groups * d->out;
}

/* Channels of a block of the image that a channel of the result is made of. */
static int64_t met(const LpDirect *d)
{
    return d->depthwise ? 1 : d->quads ? QUAD : B;
}

/* Numbers that make a block of the result. */
static int64_t window_size(const LpDirect *d)
{
    return d->taps * met(d) * B;
}

size_t lp_direct_window_bytes(const LpDirect *d)
{
    return (size_t)(all_blocks(d) * window_size(d)) * sizeof(float);
}

/* Elements of a channel of the result, as they lie in its row, are `to` apart
 * in u from the first place on; `back`: from there to the row. */
static void move_channel(const LpDirect *d, float *row, float *u, int64_t to,
                         bool back)
{
    int64_t places = d->kernel[0] * d->kernel[1], of = met(d);
    for (int64_t c = 0; c < d->in * of; c++)
        for (int64_t k = 0; k < places; k++, row++) {
            float *x = u + ((c / of * places + k) * of + c % of) * to;
            *(back ? row : x) = *(back ? x : row);
        }
}

static void move_block(const LpDirect *d, int64_t block, float *rows, float *u,
                       bool back)
{
    int64_t panel = block % d->out * panels(d) / d->out;
    while (first_of(d, panel + 1) <= block % d->out)
        panel++;
    int64_t first = first_of(d, panel), at = block % d->out - first;
    int64_t wide = (first_of(d, panel + 1) - first) * B;
    int64_t row = d->taps * met(d);
    for (int64_t c = 0; c < B; c++)
        move_channel(d, rows + (block * B + c) * row,
                     u + (block - at) * window_size(d) + at * B + c, wide,
                     back);
}

void lp_direct_windows(const LpDirect *d, int threads, const float *rows,
                       float *u)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < all_blocks(d); i++)
        move_block(d, i, (float *)(uintptr_t)rows, u, false);
}

void lp_direct_rows(const LpDirect *d, const float *u, float *rows)
{
    for (int64_t i = 0; i < all_blocks(d); i++)
        move_block(d, i, rows, (float *)(uintptr_t)u, true);
}

/* ---- images -------------------------------------------------------------- */
typedef struct Run {
    const LpDirect *d;
    const float *src, *u;
    float *dst;
    const LpConvThen *then;
} Run;

/* A thread's memory: the copy of strip number `there`, what it makes. */
typedef struct Own {
    int64_t there;
    float *copy, *made;
} Own;

static size_t copy_bytes(const LpDirect *d)
{
    return d->copies
               ? (size_t)(d->in * d->from[0] * d->from[1] * B) * sizeof(float)
               : 0;
}

/* Elements of a block of what a thread makes at once. */
static int64_t made_size(const LpDirect *d)
{
    return d->strip * (d->flat ? 1 : d->line) * B + LINE;
}

size_t lp_direct_work_bytes(const LpDirect *d, int threads)
{
    size_t made = (size_t)(PANEL * made_size(d)) * sizeof(float);
    return (size_t)threads * (copy_bytes(d) + made);
}

/* A row of a copy, zeros where it lies outside the image. */
static void copy_row(const LpDirect *d, const float *plane, int64_t y,
                     float *to)
{
    int64_t left = lp_min(d->pad[1], d->from[1]);
    int64_t n = lp_min(d->from[1] - left, d->src[1]);
    if (y < 0 || y >= d->src[0])
        left = n = 0;
    memset(to, 0, (size_t)(left * B) * sizeof *to);
    memcpy(to + left * B, plane + y * d->src[1] * B,
           (size_t)(n * B) * sizeof *to);
    memset(to + (left + n) * B, 0,
           (size_t)((d->from[1] - left - n) * B) * sizeof *to);
}

/* Places of a row, which are not neighbours. */
static void thin_row(const LpDirect *d, const float *plane, int64_t y,
                     float *to)
{
    if (y >= d->src[0]) /* below the last strip */
        return;
    for (int64_t x = 0; x < d->line; x++)
        memcpy(to + x * B, plane + (y * d->src[1] + x * d->stride[1]) * B,
               B * sizeof *to);
}

/* What lines from `line` on are made of; group: its first block. */
static void copy_strip(const LpDirect *d, const float *group, int64_t line,
                       float *to)
{
    int64_t first = line * d->stride[0] - d->pad[0];
    for (int64_t c = 0; c < d->in; c++, group += d->src[0] * d->src[1] * B)
        for (int64_t y = 0; y < d->from[0]; y++, to += d->from[1] * B)
            if (d->thins)
                thin_row(d, group, first + y * d->stride[0], to);
            else
                copy_row(d, group, first + y, to);
}

/* Of n elements from number `at` on. */
static void tell(const Run *r, const float *made, int64_t at, int64_t n)
{
    if (r->then && r->then->run)
        r->then->run(r->then, made, at, at + n, omp_get_thread_num());
}

/* n lines of a panel, windows in parts that the first cache has. */
static void run_lines(const LpDirect *d, LpDirectTile *t, int64_t n,
                      const float *x, const float *u, float *y)
{
    const LpDirectLoops *loops = LP_SIMD_PICK(lp_direct);
    int64_t row = (d->copies ? d->from[1] : d->src[1]) * d->stride[0] * B;
    int64_t lines = d->flat || d->thins ? 1 : n;
    int64_t places = d->flat ? n : d->thins ? n * d->line : d->line;
    int64_t parts = d->quads ? 1 : over(d->taps, DEPTH), element = t->element;
    const LpConvSteps *steps = t->steps;
    int n_ahead = t->n_ahead;
    for (int64_t i = 0; i < parts; i++) {
        int64_t from = d->taps * i / parts;
        t->taps = d->taps * (i + 1) / parts - from;
        t->offset = d->offset + from;
        t->add = i > 0;
        t->n_ahead = i == parts - 1 ? n_ahead : 0;
        t->steps = i == parts - 1 ? steps : NULL;
        for (int64_t k = 0; k < lines; k++) {
            t->element = element + k * places * B;
            loops->line(t, places, x + k * row, u + from * t->blocks * B * B,
                        y + k * places * B);
        }
    }
}

/* Whether results go to a thread's memory, and are told of. */
static bool tells(const Run *r)
{
    return r->then && r->then->run;
}

/* What is behind the tile that begins with element `to` of the result. */
static void set_then(const Run *r, LpDirectTile *t, int64_t to)
{
    const LpConvThen *then = r->then;
    t->element = to;
    if (!then)
        return;
    t->element += then->first;
    t->steps = then->steps.n > 0 ? &then->steps : NULL;
    t->n_ahead = r->d->flat ? then->n_ahead : 0;
    for (int i = 0; i < t->n_ahead; i++)
        t->ahead[i] = then->ahead[i] + t->element;
}

/* A strip of an image that begins with element `image`; x: where the first
 * window begins. */
static void run_strip(const Run *r, int64_t block, int64_t panel, int64_t strip,
                      const float *x, int64_t image, float *made)
{
    const LpDirect *d = r->d;
    int64_t plane = d->lines * d->line * B, first = strip * d->strip;
    int64_t n = lp_min(d->strip, (d->flat ? d->line : d->lines) - first);
    int64_t size = d->flat ? B : d->line * B; /* of a line of the strip */
    LpDirectTile t = {.step = d->thins ? B : d->stride[1] * B,
                      .plane = tells(r) ? made_size(d) : plane,
                      .quads = d->quads,
                      .image_plane = plane};
    for (int64_t p = panel; p < lp_min(panel + d->chunk, panels(d)); p++) {
        int64_t at = block + first_of(d, p);
        int64_t to = image + at * plane + first * size;
        float *y = tells(r) ? made : r->dst + to;
        t.blocks = first_of(d, p + 1) - first_of(d, p);
        t.channel = at * B;
        set_then(r, &t, to);
        run_lines(d, &t, n, x, r->u + at * window_size(d), y);
        for (int64_t b = 0; b < t.blocks; b++)
            tell(r, y + b * t.plane, to + b * plane, n * size);
    }
}

/* Piece i of the work: panels fastest, then strips, groups, images. */
static void run_piece(const Run *r, int64_t i, Own *own)
{
    const LpDirect *d = r->d;
    int64_t chunks = over(panels(d), d->chunk), piece = i / chunks;
    int64_t strip = piece % strips(d), group = piece / strips(d) % d->groups;
    int64_t n = piece / strips(d) / d->groups;
    int64_t size = d->src[0] * d->src[1] * B;
    const float *x = r->src + (n * d->groups + group) * d->in * size;
    if (d->copies && own->there != piece)
        copy_strip(d, x, strip * d->strip, own->copy);
    own->there = piece;
    int64_t from = strip * d->strip * B;
    if (!d->flat)
        from *= d->stride[0] * d->src[1];
    run_strip(r, group * d->out, i % chunks * d->chunk, strip,
              d->copies ? own->copy : x + from,
              n * all_blocks(d) * d->lines * d->line * B, own->made);
}

/* Likewise of a depthwise one: strips fastest, then blocks. */
static void run_depthwise(const Run *r, int64_t i, const Own *own)
{
    const LpDirect *d = r->d;
    const LpDirectLoops *loops = LP_SIMD_PICK(lp_direct);
    int64_t block = i / strips(d), first = i % strips(d) * d->strip;
    int64_t row = d->line * B, to = (block * d->lines + first) * row;
    int64_t n = lp_min(d->strip, d->lines - first);
    const float *image = r->src + block * d->src[0] * d->src[1] * B;
    const float *u = r->u + block % d->groups * window_size(d);
    float *y = tells(r) ? own->made : r->dst + to;
    LpDirectTile t = {.channel = block % d->groups * B};
    set_then(r, &t, to - first * row);
    loops->lines(d, &t, first, first + n, image, u, y - first * row);
    tell(r, y, to, n * row);
}

/* Threads take piece after piece. */
void lp_direct_run(const LpDirect *d, int threads, const float *src,
                   const float *u, float *dst, const LpConvThen *then,
                   void *work)
{
    const Run r = {d, src, u, dst, then};
    int64_t n = d->n * d->groups * strips(d) * over(panels(d), d->chunk);
    int64_t next = 0;
#pragma omp parallel num_threads(threads)
    {
        size_t each = lp_direct_work_bytes(d, 1) / sizeof *u;
        Own own = {.there = -1};
        own.copy = (float *)work + (size_t)omp_get_thread_num() * each;
        own.made = own.copy + copy_bytes(d) / sizeof *u;
        int64_t i;
        while ((i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < n &&
               !lp_kernel_stops())
            if (d->depthwise)
                run_depthwise(&r, i, &own);
            else
                run_piece(&r, i, &own);
    }
}
