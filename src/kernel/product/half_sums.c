/* See half_sums.h. All of a is packed in tiles of rows; then pieces of panels
 * of b, packed a stretch of k at a time, meet it. A tile's sums wait in c from
 * one stretch to the next. */
#include "src/kernel/product/half_sums.h"

#include <omp.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/halfloops.h"

enum {
    DEPTH = 256, /* of a stretch of k; whole runs */
    PANELS = 8,  /* of a piece, at most: its packed stretch stays in a cache */
    FEW = 4,     /* results that are summed one by one */
    MAX_ROWS = 16,
    MAX_WIDTH = 32,
};

static const LpHalfLoops *loops(void)
{
    return LP_SIMD_PICK(lp_half_loops);
}

static int64_t up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* ---- tables -------------------------------------------------------------- */
void lp_half_sums_axes(int64_t *to, int n, const int64_t *size,
                       const int64_t *stride, int64_t from)
{
    int64_t count = 1;
    for (int d = 0; d < n; d++)
        if (size[d] == 0)
            return;
    to[0] = from;
    for (int d = n - 1; d >= 0; d--) {
        for (int64_t i = count; i < count * size[d]; i++)
            to[i] = to[i - count] + stride[d];
        count *= size[d];
    }
}

LpStatus lp_half_sums_new(const LpKernelReq *r, int64_t batch, int64_t m,
                          int64_t n, int64_t k, LpHalfSums **out, LpErr *e)
{
    /* either side may become the one of panels, which are whole */
    int64_t mw = up(m, MAX_WIDTH) * MAX_WIDTH,
            nw = up(n, MAX_WIDTH) * MAX_WIDTH;
    size_t total = (size_t)(3 * batch + 2 * mw + 2 * k + 2 * nw);
    LpHalfSums *h =
        lp_calloc(1, sizeof *h + total * sizeof *h->table + (size_t)(mw + nw));
    LP_FAIL_IF(!h, e, LP_E_MEMORY, "%s: out of memory", r->op->name);
    int64_t *at = h->table;
    int64_t **table[] = {&h->a_batch, &h->b_batch, &h->c_batch,
                         &h->a_i,     &h->c_i,     &h->a_k,
                         &h->b_k,     &h->b_j,     &h->c_j};
    const int64_t size[] = {batch, batch, batch, mw, mw, k, k, nw, nw};
    for (int i = 0; i < 9; i++, at += size[i - 1])
        *table[i] = at;
    h->dense = (void *)at;
    h->batch = batch;
    h->m = m;
    h->n = n;
    h->k = k;
    h->threads = r->threads < 1 ? 1 : r->threads;
    bool open = r->numerics.stochastic && r->site;
    h->rounds = k / LP_HALF_RUN - (open && k % LP_HALF_RUN == 0 && k > 0);
    *out = h;
    return LP_OK;
}

#define SWAP(a, b)                                                             \
    do {                                                                       \
        __typeof__(a) s_ = a;                                                  \
        a = b;                                                                 \
        b = s_;                                                                \
    } while (0)

/* The transposed product: the longer side of a narrow one fills the panels. */
static void turn(LpHalfSums *h)
{
    h->turned = !h->turned;
    SWAP(h->m, h->n);
    SWAP(h->a_batch, h->b_batch);
    SWAP(h->a_i, h->b_j);
    SWAP(h->c_i, h->c_j);
    SWAP(h->a_k, h->b_k);
}

static bool is_dense(const int64_t *at, int64_t n)
{
    for (int64_t j = 1; j < n; j++)
        if (at[j] != at[0] + j)
            return false;
    return true;
}

static size_t stretch_bytes(const LpHalfSums *h)
{
    return (size_t)(h->piece * loops()->width * DEPTH) * sizeof(float);
}

LpStatus lp_half_sums_ready(LpHalfSums *h, LpErr *e)
{
    int64_t width = loops()->width;
    if (h->n < width && h->m > h->n)
        turn(h);
    h->panels = up(h->n, width);
    /* what is past the end is computed and not stored */
    for (int64_t j = h->n; j < h->panels * width && h->n > 0; j++)
        h->b_j[j] = h->b_j[h->n - 1];
    for (int64_t p = 0; p < h->panels; p++)
        h->dense[p] = is_dense(h->b_j + p * width, width);
    h->piece = up(h->panels * h->batch, h->threads);
    h->piece = h->piece < 1 ? 1 : h->piece < PANELS ? h->piece : PANELS;
    h->pieces = up(h->panels, h->piece);
    bool ok = lp_mul_size((size_t)h->m, (size_t)h->k * 4, &h->packed) &&
              lp_mul_size(h->packed, (size_t)h->batch, &h->work) &&
              lp_add_size(h->work, (size_t)h->threads * stretch_bytes(h) + 128,
                          &h->work);
    LP_FAIL_IF(!ok, e, LP_E_MEMORY, "scratch memory too large");
    return LP_OK;
}

/* ---- running ------------------------------------------------------------- */
typedef struct Run {
    const LpHalfSums *h;
    const float *a, *b; /* as turned */
    float *c, *left;    /* the result; packed a */
    int64_t tiles;      /* of rows */
} Run;

static int64_t row_of(const Run *r, int64_t tile)
{
    return r->h->m * tile / r->tiles;
}

/* Packed: tile after tile, each [k][its rows]. */
static void pack_tile(const Run *r, int64_t batch, int64_t tile)
{
    const LpHalfSums *h = r->h;
    int64_t i0 = row_of(r, tile), rows = row_of(r, tile + 1) - i0;
    const float *a = r->a + h->a_batch[batch];
    float *to = r->left + (batch * h->m + i0) * h->k;
    if (rows > 1 && h->a_i[i0 + 1] == h->a_i[i0] + 1) {
        for (int64_t q = 0; q < h->k; q++)
            for (int64_t i = 0; i < rows; i++)
                to[q * rows + i] = a[h->a_i[i0 + i] + h->a_k[q]];
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t q = 0; q < h->k; q++)
            to[q * rows + i] = a[h->a_i[i0 + i] + h->a_k[q]];
}

/* Between c and a tile in t. */
static void move(const LpHalfSums *h, float *c, int64_t i0, int64_t rows,
                 int64_t j0, int64_t width, float *t, bool store)
{
    int64_t n = lp_min(width, h->n - j0);
    const int64_t *at = h->c_j + j0;
    for (int64_t i = 0; i < rows; i++, t += width) {
        float *row = c + h->c_i[i0 + i];
        for (int64_t j = 0; j < n && store; j++)
            row[at[j]] = t[j];
        for (int64_t j = 0; j < n && !store; j++)
            t[j] = row[at[j]];
    }
}

/* A tile of rows times one packed panel, k0 … k0 + k - 1. */
static void one_tile(const Run *r, int64_t batch, int64_t tile, int64_t panel,
                     int64_t k0, int64_t k, const float *right)
{
    const LpHalfSums *h = r->h;
    const LpHalfLoops *l = loops();
    _Alignas(64) float t[MAX_ROWS * MAX_WIDTH] = {0};
    int64_t i0 = row_of(r, tile), rows = row_of(r, tile + 1) - i0;
    const float *left = r->left + (batch * h->m + i0) * h->k + k0 * rows;
    float *c = r->c + h->c_batch[batch];
    if (k0 > 0)
        move(h, c, i0, rows, panel * l->width, l->width, t, false);
    l->tile(rows, k, h->rounds - k0 / LP_HALF_RUN, left, right, t);
    move(h, c, i0, rows, panel * l->width, l->width, t, true);
}

static void one_piece(const Run *r, int64_t batch, int64_t piece, float *right)
{
    const LpHalfSums *h = r->h;
    const LpHalfLoops *l = loops();
    int64_t p0 = piece * h->piece, p1 = lp_min(p0 + h->piece, h->panels);
    const float *b = r->b + h->b_batch[batch];
    for (int64_t k0 = 0; k0 < h->k && !lp_kernel_stops(); k0 += DEPTH) {
        int64_t k = lp_min(DEPTH, h->k - k0);
        for (int64_t p = p0; p < p1; p++)
            l->pack(k, b, h->b_k + k0, h->b_j + p * l->width, h->dense[p],
                    right + (p - p0) * l->width * DEPTH);
        for (int64_t t = 0; t < r->tiles; t++)
            for (int64_t p = p0; p < p1; p++)
                one_tile(r, batch, t, p, k0, k,
                         right + (p - p0) * l->width * DEPTH);
    }
}

/* Sums over nothing. */
static void zeros(const LpHalfSums *h, float *c)
{
    for (int64_t b = 0; b < h->batch; b++)
        for (int64_t i = 0; i < h->m; i++)
            for (int64_t j = 0; j < h->n; j++)
                c[h->c_batch[b] + h->c_i[i] + h->c_j[j]] = 0;
}

/* Few results: panels would be nearly empty. */
static void lines(const LpHalfSums *h, const float *a, const float *b, float *c)
{
    for (int64_t at = 0; at < h->batch * h->m * h->n; at++) {
        int64_t batch = at / (h->m * h->n), j = at % h->n, i = at / h->n % h->m;
        const float *x = a + h->a_batch[batch] + h->a_i[i];
        const float *y = b + h->b_batch[batch] + h->b_j[j];
        c[h->c_batch[batch] + h->c_i[i] + h->c_j[j]] =
            loops()->line(h->k, h->rounds, x, h->a_k, y, h->b_k);
    }
}

void lp_half_sums_run(const LpHalfSums *h, const float *a, const float *b,
                      float *c, void *work)
{
    if (h->batch * h->m * h->n == 0)
        return;
    if (h->k == 0) {
        zeros(h, c);
        return;
    }
    if (h->m * h->n <= FEW) {
        lines(h, h->turned ? b : a, h->turned ? a : b, c);
        return;
    }
    Run r = {.h = h,
             .a = h->turned ? b : a,
             .b = h->turned ? a : b,
             .c = c,
             .left = work,
             .tiles = up(h->m, loops()->rows)};
    char *right = (char *)work + (h->packed * (size_t)h->batch + 63) / 64 * 64;
#pragma omp parallel num_threads(h->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < h->batch * r.tiles; i++)
            pack_tile(&r, i / r.tiles, i % r.tiles);
        float *mine = (float *)(void *)(right + (size_t)omp_get_thread_num() *
                                                    stretch_bytes(h));
#pragma omp for schedule(static)
        for (int64_t i = 0; i < h->batch * h->pieces; i++)
            one_piece(&r, i / h->pieces, i % h->pieces, mine);
    }
}

/* ---- mm and bmm ---------------------------------------------------------- */
LP_PLAIN_CORE(core)
{
    lp_half_sums_run(lp_plain_owned(p), in[0], in[1], out[0], work);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_half_mm_prepare)
{
    const LpDesc *x = &r->in[0], *y = &r->in[1];
    int64_t m = x->shape[x->ndim - 2], k0 = x->shape[x->ndim - 1];
    int64_t n = y->shape[y->ndim - 1], batch = x->ndim == 3 ? x->shape[0] : 1;
    const int64_t one = 1;
    LpHalfSums *h;
    LP_TRY(lp_half_sums_new(r, batch, m, n, k0, &h, e));
    lp_half_sums_axes(h->a_batch, 1, &batch, &(int64_t){m * k0}, 0);
    lp_half_sums_axes(h->b_batch, 1, &batch, &(int64_t){k0 * n}, 0);
    lp_half_sums_axes(h->c_batch, 1, &batch, &(int64_t){m * n}, 0);
    lp_half_sums_axes(h->a_i, 1, &m, &k0, 0);
    lp_half_sums_axes(h->a_k, 1, &k0, &one, 0);
    lp_half_sums_axes(h->b_k, 1, &k0, &n, 0);
    lp_half_sums_axes(h->b_j, 1, &n, &one, 0);
    lp_half_sums_axes(h->c_i, 1, &m, &n, 0);
    lp_half_sums_axes(h->c_j, 1, &n, &one, 0);
    LpStatus s = lp_half_sums_ready(h, e);
    if (s != LP_OK) {
        lp_free(h);
        return s;
    }
    return lp_plain_prepare_owned(r, k, core, LP_F32,
                                  (LpPlainOwned){h, lp_free}, h->work, e);
}
