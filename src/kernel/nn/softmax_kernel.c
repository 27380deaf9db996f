/* Kernels of softmax and log_softmax over one axis: [outer, n, inner]. With
 * inner 1 a row at a time; else blocks of columns, so that the vector loops
 * run along memory. */
#include "src/kernel/attrs.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/plain.h"

#define COLS 64 /* of a block; what softmax_cols takes at most */

typedef struct Soft {
    int64_t outer, n, inner;
    bool is_log, back;
} Soft;

/* Block q: its offset and its columns. */
static int64_t block(const Soft *s, int64_t q, int64_t *cols)
{
    int64_t per = (s->inner + COLS - 1) / COLS, c = q % per * COLS;
    *cols = s->inner - c < COLS ? s->inner - c : COLS;
    return q / per * s->n * s->inner + c;
}

#define RUN(T, L)                                                              \
    static void run_##L(const Soft *s, int64_t q, const T *a, const T *b,      \
                        T *out)                                                \
    {                                                                          \
        int64_t cols;                                                          \
        if (s->inner == 1 && !s->back)                                         \
            (s->is_log ? lp_nn()->L->log_softmax : lp_nn()->L->softmax)(       \
                a + q * s->n, s->n, out + q * s->n);                           \
        else if (s->inner == 1)                                                \
            (s->is_log ? lp_nn()->L->log_softmax_back                          \
                       : lp_nn()->L->softmax_back)(a + q * s->n, b + q * s->n, \
                                                   s->n, out + q * s->n);      \
        else {                                                                 \
            int64_t at = block(s, q, &cols);                                   \
            if (s->back)                                                       \
                lp_nn()->L->softmax_cols_back(a + at, b + at, s->n, s->inner,  \
                                              cols, s->is_log, out + at);      \
            else                                                               \
                lp_nn()->L->softmax_cols(a + at, s->n, s->inner, cols,         \
                                         s->is_log, out + at);                 \
        }                                                                      \
    }
RUN(float, f32)
RUN(double, f64)

LP_PLAIN_CORE(core)
{
    const Soft *s = (const void *)p->param;
    int64_t blocks = s->outer * ((s->inner + COLS - 1) / COLS);
    int threads = lp_plain_width(p, s->outer * s->n * s->inner);
    if (s->n == 0)
        return LP_OK;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t q = 0; q < blocks; q++)
        if (p->compute == LP_F64)
            run_f64(s, q, in[0], s->back ? in[1] : NULL, out[0]);
        else
            run_f32(s, q, in[0], s->back ? in[1] : NULL, out[0]);
    return LP_OK;
}

static LpStatus prepare(const LpKernelReq *r, bool is_log, bool back,
                        LpKernel *k, LpErr *e)
{
    const LpDesc *d = &r->out[0];
    int dim = (int)r->attr[LP_SOFTMAX_DIM].i;
    Soft s = {.outer = lp_elements(d->shape, dim),
              .n = d->ndim ? d->shape[dim] : 1,
              .inner = lp_elements(d->shape + dim + 1, d->ndim - dim - 1),
              .is_log = is_log,
              .back = back};
    return lp_plain_prepare(r, k, core, lp_plain_type(d->dtype), &s, sizeof s,
                            0, e);
}

LP_PREPARE_AS(lp_softmax_prepare, prepare(r, false, false, k, e))
LP_PREPARE_AS(lp_log_softmax_prepare, prepare(r, true, false, k, e))
LP_PREPARE_AS(lp_softmax_back_prepare, prepare(r, false, true, k, e))
LP_PREPARE_AS(lp_log_softmax_back_prepare, prepare(r, true, true, k, e))
