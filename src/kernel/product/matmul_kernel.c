/* Kernels of mm and bmm.
 *
 * float32 is cut into bfloat16 pieces where that is quicker (tiles.h). Other
 * float32 (and bfloat16 where the CPU has it) goes to the library with its own
 * strides: a transposed view is passed as it is, a batch that is broadcast
 * (stride 0) as a dimension of size 1. Products too small for the library,
 * those that gemm.h is quicker at, halves among them, and all of float64 are
 * ours. Everything else is converted by the plain frame: float16 to float32 and
 * back, integers to int64. Operands whose strides the library does not take are
 * copied by the frame too. */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/dnn.h"
#include "src/kernel/product/gemm.h"
#include "src/kernel/product/half_sums.h"
#include "src/kernel/product/product.h"
#include "src/kernel/product/tiles.h"
#include "src/kernel/product/vector.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"

enum { VECTOR_MIN = 1 << 16 }; /* products of a vector that pay for threads */

typedef struct Product {
    LpDnnPrim *prim; /* NULL: own */
    int pieces;      /* of tiles; 0: no tiles */
    bool vector;     /* vector.h */
    LpGemmArgs g;
    int64_t batch, a_step, b_step, c_step;
    /* of a and b, or what halves are widened to (g.half); of c, which may be
     * wider, or with g.half narrower */
    LpDtype t, c_t;
    int threads, wanted;
    size_t work, work_one;   /* of all threads; of an own product of a batch */
    size_t sums;             /* within: float32 of a result of halves */
    size_t strip;            /* of LpGemmThen */
    bool tells;              /* as lp_gemm_tells */
    uint64_t site;           /* of halves that round at random; 0: to nearest */
    size_t apart_a, apart_b; /* within: copies with rows apart; 0: none */
} Product;

static void product_free(void *state)
{
    Product *p = state;
    lp_dnn_free(p->prim);
    lp_free(p);
}

/* ---- rows that clash ----------------------------------------------------- */
/* Rows or columns of the other operand that pay for a copy. */
enum { APART_LEAST = 32, APART_MOST = 512 };

static bool pays(const Product *p, int64_t others, int64_t own, int64_t row)
{
    return p->batch == 1 && p->t == LP_F32 && lp_dnn_clashes(row) &&
           others >= APART_LEAST &&
           (others < APART_MOST || (others == APART_MOST && own == APART_MOST));
}

/* Copies k rows of n elements, `row` apart. Where none are to be copied, as
 * they are. */
static void *rows_apart(const Product *p, void *rows, int64_t n, int64_t row,
                        size_t offset, char *work)
{
    size_t bytes = (size_t)n * sizeof(float);
    size_t to = bytes + LP_DNN_APART * sizeof(float);
    size_t from = (size_t)row * sizeof(float);
    if (!offset)
        return rows;
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int64_t i = 0; i < p->g.k; i++)
        memcpy(work + offset + (size_t)i * to,
               (const char *)rows + (size_t)i * from, bytes);
    return work + offset;
}

/* The space of such a copy behind the work so far; never at 0. */
static size_t room_apart(Product *p, int64_t n)
{
    size_t offset = (p->work + 64) / 64 * 64;
    p->work = offset + (size_t)(p->g.k * (n + LP_DNN_APART)) * sizeof(float);
    return offset;
}

/* ---- results of halves --------------------------------------------------- */
typedef struct Narrow {
    const Product *p;
    const char *sums; /* float32 */
    char *c;
    LpRandom draws;
    uint64_t at; /* c's first element among those of the batch */
} Narrow;

/* n numbers, the first of which is element `at` of c. */
static void round_some(const Narrow *x, int64_t at, int64_t n, char *to,
                       const char *from)
{
    const Product *p = x->p;
    if (p->site)
        lp_store_at_random(&x->draws, p->c_t, x->at + (uint64_t)at, n,
                           (const float *)(const void *)from,
                           (uint16_t *)(void *)to);
    else
        lp_convert_loop(LP_F32, p->c_t)(n, to, 2 * p->g.c_cs, from, 4);
}

/* Rounds a part of the sums, which lie without gaps. */
static void narrow(const LpGemmThen *then, int64_t i0, int64_t i1, int64_t j0,
                   int64_t j1, int thread)
{
    const Narrow *x = then->with;
    const LpGemmArgs *g = &x->p->g;
    const char *sums = then->strip ? x->sums + (size_t)thread * then->strip
                                   : x->sums + (size_t)(i0 * g->n) * 4;
    if (g->c_cs == 1 && g->c_rs == g->n && j1 - j0 == g->n) {
        round_some(x, i0 * g->n, (i1 - i0) * g->n, x->c + i0 * g->n * 2, sums);
        return;
    }
    for (int64_t i = i0; i < i1; i++)
        round_some(x, i * g->n + j0, j1 - j0,
                   x->c + (i * g->c_rs + j0 * g->c_cs) * 2,
                   sums + ((i - i0) * g->n + j0) * 4);
}

/* One product of the batch. */
typedef struct Part {
    const char *a, *b;
    char *c;
    int64_t number;
    const LpRunCtx *rc;
} Part;

static LpGemmArgs without_gaps(const LpGemmArgs *g)
{
    LpGemmArgs all = *g;
    all.c_rs = g->n;
    all.c_cs = 1;
    return all;
}

/* How the sums of a result of halves are made. */
static void plan_sums(Product *p)
{
    LpGemmArgs g = without_gaps(&p->g);
    size_t all = ((size_t)(g.m * g.n) * sizeof(float) + 63) / 64 * 64;
    p->tells = lp_gemm_tells(&g, p->t);
    p->strip = lp_gemm_strip(&g, p->t);
    p->sums = p->strip > 0 ? p->strip * (size_t)p->threads : all;
}

/* The product in float32, a part of which is rounded while a cache has it. */
static void own_narrow(const Product *p, const Part *y, char *work, int threads)
{
    LpGemmArgs g = without_gaps(&p->g);
    Narrow x = {.p = p, .sums = work, .c = y->c};
    if (p->site) {
        x.draws = lp_rounding_stream(y->rc, p->site, 0);
        x.at = (uint64_t)(y->number * g.m * g.n);
    }
    LpGemmThen then = {narrow, &x, p->strip};
    lp_gemm(&g, p->t, y->a, y->b, work, p->tells ? &then : NULL, work + p->sums,
            threads);
    if (!p->tells)
        narrow(&then, 0, g.m, 0, g.n, 0);
}

/* One product of the batch, ours; false: not by tiles. */
static bool own(const Product *p, bool tiles, const Part *x,
                const LpGemmThen *then, char *work, int threads)
{
    const void *a = x->a, *b = x->b;
    void *c = x->c;
    if (tiles)
        return lp_tiles(&p->g, p->pieces, a, b, c, then, work, threads);
    if (p->sums)
        own_narrow(p, x, work, threads);
    else if (p->vector)
        lp_vector_product(&p->g, a, b, c, threads);
    else
        lp_gemm(&p->g, p->t, a, b, c, then, work, threads);
    return true;
}

/* x: the first. */
static bool own_batches(const Product *p, bool tiles, Part x,
                        const LpGemmThen *then, char *work)
{
    int64_t size = (int64_t)lp_dtype_size(p->g.half ? p->g.half : p->t);
    int64_t c_size = (int64_t)lp_dtype_size(p->c_t);
    if (p->batch == 1)
        return own(p, tiles, &x, then, work, p->threads);
    int64_t chunk = (p->batch + p->threads - 1) / p->threads;
    int bad = 0;
#pragma omp parallel for num_threads(p->threads) schedule(static)              \
    reduction(+ : bad)
    for (int t = 0; t < p->threads; t++)
        for (int64_t i = t * chunk; i < (t + 1) * chunk && i < p->batch; i++) {
            Part y = {x.a + i * p->a_step * size, x.b + i * p->b_step * size,
                      x.c + i * p->c_step * c_size, i, x.rc};
            bad += !lp_kernel_stops() &&
                   !own(p, tiles, &y, NULL, work + (size_t)t * p->work_one, 1);
        }
    return bad == 0;
}

/* *told: `then` has been told of all of c, of which there is one. */
static LpStatus product_run(const Product *p, void *a, void *b, void *c,
                            const LpGemmThen *then, bool *told, void *work,
                            const LpRunCtx *rc, LpErr *e)
{
    const Part x = {.a = a, .b = b, .c = c, .rc = rc};
    *told = false;
    if (p->batch * p->g.m * p->g.n == 0)
        return LP_OK;
    if (p->pieces > 0 && own_batches(p, true, x, then, work)) {
        *told = then != NULL;
        return LP_OK;
    }
    size_t step = (size_t)p->c_step * lp_dtype_size(p->c_t);
    if (p->g.k == 0)
        for (int64_t i = 0; i < p->batch; i++)
            lp_gemm_zero(&p->g, p->c_t, (char *)c + (size_t)i * step);
    else if (p->prim) {
        const LpGemmArgs *g = &p->g;
        a = rows_apart(p, a, g->m, g->a_cs, p->apart_a, work);
        b = rows_apart(p, b, g->n, g->b_rs, p->apart_b, work);
        return lp_dnn_run(p->prim, (void *[LP_DNN_N_ARGS]){a, b, c}, work, e);
    } else {
        *told = then && p->batch == 1 && !p->vector && !p->sums &&
                lp_gemm_tells(&p->g, p->t);
        own_batches(p, false, x, *told ? then : NULL, work);
    }
    return LP_OK;
}

/* The layout the library sees: size-1 batches for broadcast ones. */
static LpStatus layout(LpDtype t, int64_t batch, int64_t step, int64_t rows,
                       int64_t cols, int64_t rs, int64_t cs, LpDnnLayout *out,
                       LpErr *e)
{
    bool whole = step != 0;
    int64_t shape[3] = {whole ? batch : 1, rows, cols};
    int64_t strides[3] = {whole ? step : rows * cols, rs, cs};
    int skip = batch == 1;
    return lp_dnn_plain(t, 3 - skip, shape + skip, strides + skip, out, e);
}

static LpStatus use_library(Product *p, LpErr *e)
{
    const LpGemmArgs *g = &p->g;
    LpDnnMatmul d = {.threads = p->threads};
    bool a = g->a_rs == 1 && g->m > 1 && pays(p, g->n, g->m, g->a_cs);
    bool b = g->b_cs == 1 && pays(p, g->m, g->n, g->b_rs);
    LP_TRY(layout(p->t, p->batch, p->a_step, g->m, g->k, g->a_rs,
                  a ? g->m + LP_DNN_APART : g->a_cs, &d.src, e));
    LP_TRY(layout(p->t, p->batch, p->b_step, g->k, g->n,
                  b ? g->n + LP_DNN_APART : g->b_rs, g->b_cs, &d.weights, e));
    LP_TRY(layout(p->c_t, p->batch, p->c_step, g->m, g->n, g->c_rs, g->c_cs,
                  &d.dst, e));
    LP_TRY(lp_dnn_matmul_new(&d, &p->prim, e));
    p->work = lp_dnn_work_bytes(p->prim);
    p->apart_a = a ? room_apart(p, g->m) : 0;
    p->apart_b = b ? room_apart(p, g->n) : 0;
    return LP_OK;
}

/* Scratch of an own product, by each thread for a batch. */
static void need_work(Product *p, size_t one)
{
    one = (one + 63) / 64 * 64;
    p->work_one = one > p->work_one ? one : p->work_one;
    size_t all = p->work_one * (size_t)(p->batch > 1 ? p->threads : 1);
    p->work = all > p->work ? all : p->work;
}

static LpStatus product_new(Product p, Product **out, LpErr *e)
{
    const LpGemmArgs *g = &p.g;
    p.vector = p.t == LP_F32 && p.c_t == LP_F32 && lp_vector_takes(g);
    p.pieces = p.t == LP_F32 && g->c_cs == 1 && !p.vector
                   ? lp_tiles_split(g, p.wanted)
                   : 0;
    if (p.vector && g->m * g->n * g->k < VECTOR_MIN)
        p.threads = 1;
    bool ours = p.vector || p.t == LP_F64 || p.t == LP_I64 || p.pieces > 0 ||
                (p.t == LP_F32 && !lp_product_library(p.t, g->m, g->n, g->k)) ||
                (p.batch == 1 && lp_gemm_is_fast(g, p.t));
    ours |= g->half != 0;
    if (g->half && lp_is_half(p.c_t))
        plan_sums(&p);
    if (ours && !p.vector) {
        need_work(&p, p.sums + lp_gemm_work(g, p.t));
    } else if (!ours && p.batch * g->m * g->n * g->k > 0) {
        LpStatus s = use_library(&p, e);
        if (s != LP_OK) {
            lp_dnn_free(p.prim);
            return s;
        }
    }
    if (p.pieces > 0)
        need_work(&p, lp_tiles_work(g, p.pieces, p.batch > 1 ? 1 : p.threads));
    *out = lp_alloc(sizeof p);
    if (!*out) {
        lp_dnn_free(p.prim);
        return lp_no_memory(e);
    }
    **out = p;
    return LP_OK;
}

/* ---- operands ------------------------------------------------------------ */
typedef struct Matrix {
    int64_t batch, rows, cols, step, rs, cs;
} Matrix;

static Matrix matrix_of(const LpDesc *d)
{
    const int64_t *s = d->shape + d->ndim - 2, *t = d->strides + d->ndim - 2;
    Matrix m = {.batch = 1, .rows = s[0], .cols = s[1], .rs = t[0], .cs = t[1]};
    if (d->ndim == 3) {
        m.batch = d->shape[0];
        m.step = d->strides[0];
    }
    if (m.cols == 1) /* strides of single rows and columns are free */
        m.cs = 1;
    if (m.rows == 1)
        m.rs = m.cols * m.cs;
    return m;
}

/* Unit stride one way and no overlap the other. */
static bool library_takes(const Matrix *m)
{
    return (m->cs == 1 && m->rs >= m->cols) || (m->rs == 1 && m->cs >= m->rows);
}

static Matrix contiguous(Matrix m)
{
    m.step = m.rows * m.cols;
    m.rs = m.cols;
    m.cs = 1;
    return m;
}

static Product product_of(LpDtype t, LpDtype c_t, const LpKernelReq *r,
                          Matrix a, Matrix b, Matrix c)
{
    return (Product){
        .g = {.m = a.rows,
              .k = a.cols,
              .n = b.cols,
              .a_rs = a.rs,
              .a_cs = a.cs,
              .b_rs = b.rs,
              .b_cs = b.cs,
              .c_rs = c.rs,
              .c_cs = c.cs},
        .batch = a.batch,
        .a_step = a.step,
        .b_step = b.step,
        .c_step = c.step,
        .t = t,
        .c_t = c_t,
        .threads = r->threads < 1 ? 1 : r->threads,
        .wanted = r->split,
    };
}

/* ---- kernels ------------------------------------------------------------- */
LP_KERNEL_RUN(direct_run)
{
    bool told;
    return product_run(k->state, in[0], in[1], out[0], NULL, &told, work, rc,
                       e);
}

LpStatus lp_mm_run_then(const LpKernel *k, void *const *in, void *const *out,
                        const LpGemmThen *then, bool *told, void *work,
                        const LpRunCtx *rc, LpErr *e)
{
    *told = false;
    if (k->run != direct_run) /* operands are copied first */
        return k->run(k, in, out, work, rc, e);
    return product_run(k->state, in[0], in[1], out[0], then, told, work, rc, e);
}

LP_PLAIN_CORE(core)
{
    bool told;
    return product_run(lp_plain_owned(p), in[0], in[1], out[0], NULL, &told,
                       work, rc, e);
}

static LpStatus converted(const LpKernelReq *r, LpKernel *k, Matrix m[3],
                          LpErr *e)
{
    Product *q;
    LpDtype t = lp_plain_type(r->out[0].dtype);
    LP_TRY(product_new(product_of(t, t, r, contiguous(m[0]), contiguous(m[1]),
                                  contiguous(m[2])),
                       &q, e));
    return lp_plain_prepare_owned(r, k, core, t,
                                  (LpPlainOwned){q, product_free}, q->work, e);
}

LP_KERNEL_PREPARE(lp_mm_prepare)
{
    if (r->numerics.half_partials)
        return lp_half_mm_prepare(r, k, e);
    Matrix m[3] = {matrix_of(&r->in[0]), matrix_of(&r->in[1]),
                   matrix_of(&r->out[0])};
    LpDtype t = r->in[0].dtype, c_t = r->out[0].dtype;
    bool ok = t == LP_F64 || lp_dnn_native(t);
    for (int i = 0; i < 3 && t != LP_F64; i++)
        ok = ok && library_takes(&m[i]);
    if (m[2].batch > 1 && m[0].step == 0 && m[1].step == 0)
        ok = false; /* the library wants the batch in an operand */
    Product q = product_of(t, c_t, r, m[0], m[1], m[2]), *p;
    if (lp_gemm_is_fast_of(t) && r->in[1].dtype == t &&
        !lp_vector_takes(&q.g)) {
        q.g.half = t;
        q.t = LP_F32;
        q.site = lp_call_rounds(r) ? r->site : 0;
        ok = true;
    }
    if (!ok)
        return converted(r, k, m, e);
    LP_TRY(product_new(q, &p, e));
    lp_kernel_own(p, product_free, direct_run, k);
    k->work_bytes = p->work;
    k->threads = p->threads;
    return LP_OK;
}

/* As lp_mm_prepare decides. */
bool lp_mm_rounds(const LpKernelReq *r)
{
    LpDtype t = r->in[0].dtype;
    if (!lp_gemm_is_fast_of(t) || r->in[1].dtype != t || r->out[0].dtype != t ||
        r->numerics.half_partials || !lp_desc_contiguous(&r->out[0]))
        return false;
    Product q = product_of(t, t, r, matrix_of(&r->in[0]), matrix_of(&r->in[1]),
                           matrix_of(&r->out[0]));
    return !lp_vector_takes(&q.g);
}

size_t lp_mm_strip(const LpKernel *k)
{
    const Product *p = k->state;
    if (k->run != direct_run || p->prim || p->pieces > 0 || p->vector ||
        p->sums > 0 || p->batch != 1 || p->g.k == 0 || p->g.c_rs != p->g.n)
        return 0;
    return lp_gemm_strip(&p->g, p->t);
}

double lp_mm_work(const LpKernelReq *r)
{
    const LpDesc *a = &r->in[0];
    return (double)lp_desc_numel(&r->out[0]) * (double)a->shape[a->ndim - 1];
}
