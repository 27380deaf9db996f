/* Operands are rounded into scratch memory, then the library multiplies. */
#include "src/kernel/product/bf16_mm.h"

#include "src/base/cpu.h"
#include "src/base/mem.h"
#include "src/kernel/product/dnn.h"

/* An operand as it lies: `rows` lines of `cols` elements side by side, `step`
 * apart, `batch` times; `along`: the lines run along the depth k. */
typedef struct Side {
    int64_t rows, cols, line, step, batch;
    bool along;
    size_t at; /* in the scratch memory, bytes */
} Side;

struct LpBf16Mm {
    LpDnnPrim *prim;
    Side side[2];
    int threads;
    size_t work, prim_at;
};

/* Converting is work for m k + k n elements, the product for m n k. */
bool lp_bf16_is_fast(int64_t m, int64_t n, int64_t k)
{
    return lp_cpu_has_avx512_bf16() && m >= 32 && n >= 32 && k >= 32 &&
           m * n * k >= 1 << 20;
}

static size_t round_up(size_t n)
{
    return (n + 63) / 64 * 64;
}

static Side side_of(int64_t rows, int64_t cols, int64_t rs, int64_t cs,
                    int64_t step, int64_t batch, bool depth_in_cols)
{
    bool by_rows = cs == 1;
    return (Side){.rows = by_rows ? rows : cols,
                  .cols = by_rows ? cols : rows,
                  .line = by_rows ? rs : cs,
                  .step = step,
                  .batch = step ? batch : 1,
                  .along = by_rows == depth_in_cols};
}

/* Dense, in the operand's own order. */
static LpStatus layout(const Side *s, bool is_a, int64_t batch,
                       LpDnnLayout *out, LpErr *e)
{
    int64_t k = s->along ? s->cols : s->rows;
    int64_t other = s->along ? s->rows : s->cols;
    int64_t of_k = s->along ? 1 : other, of_other = s->along ? k : 1;
    int64_t shape[3] = {s->batch, is_a ? other : k, is_a ? k : other};
    int64_t strides[3] = {k * other, is_a ? of_other : of_k,
                          is_a ? of_k : of_other};
    int skip = batch == 1;
    return lp_dnn_plain(LP_BF16, 3 - skip, shape + skip, strides + skip, out,
                        e);
}

LpStatus lp_bf16_mm_new(const LpGemmArgs *g, const int64_t step[3],
                        int64_t batch, int threads, LpBf16Mm **out, LpErr *e)
{
    LpBf16Mm *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->threads = threads;
    p->side[0] = side_of(g->m, g->k, g->a_rs, g->a_cs, step[0], batch, true);
    p->side[1] = side_of(g->k, g->n, g->b_rs, g->b_cs, step[1], batch, false);
    for (int i = 0; i < 2; i++) {
        p->side[i].at = p->work;
        const Side *x = &p->side[i];
        p->work += round_up((size_t)(x->rows * x->cols * x->batch) * 2);
    }
    LpDnnMatmul d = {.threads = threads};
    int skip = batch == 1;
    int64_t shape[3] = {batch, g->m, g->n};
    int64_t strides[3] = {step[2], g->c_rs, g->c_cs};
    LpStatus s = layout(&p->side[0], true, batch, &d.src, e);
    if (s == LP_OK)
        s = layout(&p->side[1], false, batch, &d.weights, e);
    if (s == LP_OK)
        s = lp_dnn_plain(LP_F32, 3 - skip, shape + skip, strides + skip, &d.dst,
                         e);
    if (s == LP_OK)
        s = lp_dnn_matmul_new(&d, &p->prim, e);
    if (s != LP_OK) {
        lp_free(p);
        return s;
    }
    p->prim_at = p->work;
    p->work += lp_dnn_work_bytes(p->prim);
    *out = p;
    return LP_OK;
}

size_t lp_bf16_mm_work(const LpBf16Mm *p)
{
    return p->work;
}

void lp_bf16_mm_free(LpBf16Mm *p)
{
    if (p)
        lp_dnn_free(p->prim);
    lp_free(p);
}

static void round_side(const LpBf16Mm *p, const Side *s, const float *x,
                       uint16_t *to)
{
    LpBf16Round round = LP_SIMD_PICK(lp_bf16_round)[0];
    int64_t lines = s->rows * s->batch;
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int64_t i = 0; i < lines; i++) {
        int64_t b = i / s->rows, r = i % s->rows;
        round(s->cols, x + b * s->step + r * s->line, to + i * s->cols);
    }
}

LpStatus lp_bf16_mm_run(const LpBf16Mm *p, const float *a, const float *b,
                        float *c, void *work, LpErr *e)
{
    char *w = work;
    void *pa = w + p->side[0].at, *pb = w + p->side[1].at;
    round_side(p, &p->side[0], a, pa);
    round_side(p, &p->side[1], b, pb);
    return lp_dnn_run(p->prim, (void *[LP_DNN_N_ARGS]){pa, pb, NULL, c},
                      w + p->prim_at, e);
}
