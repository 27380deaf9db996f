#include "src/ops/kernel/bf16_mm.h"

#include "src/base/cpu.h"
#include "src/base/mem.h"
#include "src/ops/kernel/dnn.h"

/* An operand as it lies: `rows` lines of `cols` elements side by side, `step`
 * apart, `batch` times; `along`: the lines run along the depth k. */
typedef struct Side {
    int64_t rows, cols, line, step, batch;
    bool along;
    size_t at; /* of its pieces in the scratch memory, bytes */
} Side;

struct LpBf16Mm {
    LpDnnPrim *prim;
    Side side[2];
    int pieces, threads;
    size_t work, prim_at;
};

/* Converting is work for m k + k n elements, the product for m n k. Measured on
 * a CPU with AMX with one thread, in GFLOP/s of float32, three pieces and one:
 * 119 138 392 for 4096 x 768 x 768, 138 139 344 for 2048 x 512 x 512, 125 129
 * 341 for 768 x 768 x 768, 126 93 286 for 512 x 2048 x 512, 71 - 82 for 32 x
 * 1024 x 1024, 119 - 93 for 24 x 768 x 768, 78 24 50 for 48 x 64 x 48. */
int lp_bf16_pieces(int wanted, int64_t m, int64_t n, int64_t k)
{
    bool amx = lp_cpu_has_amx();
    if (wanted == 3 && amx && m >= 2048 && n >= 512 && k >= 256)
        return 3;
    if (wanted == 1 && (amx || lp_cpu_has_avx512_bf16()) && m >= 32 &&
        n >= 32 && k >= 32 && m * n * k >= 1 << 20)
        return 1;
    return 0;
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

static int64_t side_elements(const Side *s, int pieces)
{
    return s->rows * s->cols * s->batch * pieces;
}

/* The pieces' layout: dense, in the operand's own order. */
static LpStatus layout(const LpBf16Mm *p, const Side *s, bool is_a,
                       int64_t batch, LpDnnLayout *out, LpErr *e)
{
    int64_t n = p->pieces, k = (s->along ? s->cols : s->rows) * n;
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
                        int64_t batch, int pieces, int threads, LpBf16Mm **out,
                        LpErr *e)
{
    LpBf16Mm *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->pieces = pieces;
    p->threads = threads;
    p->side[0] = side_of(g->m, g->k, g->a_rs, g->a_cs, step[0], batch, true);
    p->side[1] = side_of(g->k, g->n, g->b_rs, g->b_cs, step[1], batch, false);
    for (int i = 0; i < 2; i++) {
        p->side[i].at = p->work;
        p->work += round_up((size_t)side_elements(&p->side[i], pieces) * 2);
    }
    LpDnnMatmul d = {.threads = threads};
    int skip = batch == 1;
    int64_t shape[3] = {batch, g->m, g->n};
    int64_t strides[3] = {step[2], g->c_rs, g->c_cs};
    LpStatus s = layout(p, &p->side[0], true, batch, &d.src, e);
    if (s == LP_OK)
        s = layout(p, &p->side[1], false, batch, &d.weights, e);
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

/* Where the pieces of line r of one matrix go: a has hi, hi, lo along the
 * depth, b hi, lo, hi. `second` is where b has lo and a the other hi. */
static bool split_line(const LpBf16Mm *p, const Side *s, bool is_a, int64_t r,
                       const float *x, uint16_t *to)
{
    LpBf16Split split = LP_SIMD_PICK(lp_bf16_split)[0];
    int64_t n = p->pieces, next = s->along ? s->cols : s->rows * s->cols;
    to += r * s->cols * (s->along ? n : 1);
    if (n == 1)
        return split(s->cols, x, to, NULL);
    uint16_t *second = to + next, *third = second + next;
    bool finite = split(s->cols, x, to, is_a ? third : second);
    uint16_t *again = is_a ? second : third;
    for (int64_t i = 0; i < s->cols; i++)
        again[i] = to[i];
    return finite;
}

static bool split_side(const LpBf16Mm *p, bool is_a, const float *x,
                       uint16_t *to)
{
    const Side *s = &p->side[is_a ? 0 : 1];
    int64_t lines = s->rows * s->batch, bad = 0;
#pragma omp parallel for num_threads(p->threads) schedule(static)              \
    reduction(+ : bad)
    for (int64_t i = 0; i < lines; i++) {
        int64_t b = i / s->rows, r = i % s->rows;
        bad += !split_line(p, s, is_a, r, x + b * s->step + r * s->line,
                           to + b * s->rows * s->cols * p->pieces);
    }
    return bad == 0;
}

LpStatus lp_bf16_mm_run(const LpBf16Mm *p, const float *a, const float *b,
                        float *c, void *work, bool *done, LpErr *e)
{
    char *w = work;
    void *pa = w + p->side[0].at, *pb = w + p->side[1].at;
    *done = split_side(p, true, a, pa) && split_side(p, false, b, pb);
    if (!*done)
        return LP_OK;
    return lp_dnn_run(p->prim, (void *[LP_DNN_N_ARGS]){pa, pb, NULL, c},
                      w + p->prim_at, e);
}
