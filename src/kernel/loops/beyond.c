/* Counts of elements by magnitude, for loss scales that are found: how many lie
 * within an edge and how many beyond. Magnitudes of one type are ordered as
 * their bits are, so that nothing is converted; an element that is not finite
 * counts as infinitely many beyond. */
#include <math.h>

#include "src/base/half.h"
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/loops.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/kernel/state.h"

enum {
    BLOCK = 1 << 14,    /* elements: a count of them fits 16 bits */
    PARALLEL = 1 << 17, /* elements that pay for waking threads */
};

typedef struct Bits {
    uint64_t edge, infinity; /* magnitudes */
} Bits;

typedef struct Beyond {
    LpDesc in, before;
    int64_t n;
    Bits bits;
    bool copies; /* the operand does not lie in one piece */
    int threads;
} Beyond;

/* How many of a block lie beyond; *wild: some are not finite. */
#define COUNT(name, word)                                                      \
    static int64_t name(const word *x, int64_t n, Bits bits, bool *wild)       \
    {                                                                          \
        const word sign = (word)1 << (8 * sizeof(word) - 1);                   \
        const word mask = (word)~sign, edge = (word)bits.edge,                 \
                   infinity = (word)bits.infinity;                             \
        word count = 0, not_finite = 0;                                        \
        for (int64_t i = 0; i < n; i++) {                                      \
            word magnitude = (word)(x[i] & mask);                              \
            count = (word)(count + (magnitude > edge));                        \
            not_finite = (word)(not_finite | (magnitude >= infinity));         \
        }                                                                      \
        *wild |= not_finite != 0;                                              \
        return (int64_t)count;                                                 \
    }
COUNT(count16, uint16_t)
COUNT(count32, uint32_t)
COUNT(count64, uint64_t)

static int64_t count(const Beyond *s, const char *p, int64_t at, bool *wild)
{
    int64_t n = s->n - at < BLOCK ? s->n - at : BLOCK;
    size_t size = lp_dtype_size(s->in.dtype);
    p += (size_t)at * size;
    if (size == 2)
        return count16((const void *)p, n, s->bits, wild);
    return size == 4 ? count32((const void *)p, n, s->bits, wild)
                     : count64((const void *)p, n, s->bits, wild);
}

static double count_all(const Beyond *s, const char *p)
{
    int64_t beyond = 0, blocks = (s->n + BLOCK - 1) / BLOCK;
    bool wild = false;
#pragma omp parallel for num_threads(s->threads) reduction(+ : beyond)         \
    reduction(|| : wild)
    for (int64_t i = 0; i < blocks; i++) {
        bool own = false;
        beyond += lp_kernel_stops() ? 0 : count(s, p, i * BLOCK, &own);
        wild = wild || own;
    }
    return wild ? INFINITY : (double)beyond;
}

/* work: the operand in one piece */
LP_KERNEL_RUN(run_beyond)
{
    const Beyond *s = k->state;
    const char *p = in[0];
    float *to = out[0], before[2] = {0, 0};
    if (s->copies) {
        LpDesc plain = lp_desc_plain(&s->in, s->in.dtype);
        lp_copy_strided(&s->in, p, &plain, work);
        p = work;
    }
    if (s->before.dtype != LP_DT_NONE)
        lp_convert(s->before.dtype, in[1], s->before.strides[0], LP_F32, before,
                   1, 2);
    double beyond = count_all(s, p);
    double within = isinf(beyond) ? 0 : (double)s->n - beyond;
    to[0] = before[0] + (float)within;
    to[1] = before[1] + (float)beyond;
    return LP_OK;
}

/* The greatest magnitude of a type that is at most `edge`, and infinity's. */
static Bits bits_of(LpDtype t, double edge)
{
    LpScalar inf = lp_float(INFINITY), most = lp_float(edge);
    uint64_t word[2] = {0, 0};
    lp_scalar_store(inf, t, &word[1]);
    lp_scalar_store(most, t, &word[0]);
    if (lp_scalar_f(lp_scalar_load(t, &word[0])) > edge)
        word[0]--;
    return (Bits){.edge = word[0], .infinity = word[1]};
}

LP_KERNEL_PREPARE(lp_count_beyond_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Beyond), run_beyond, k, e));
    Beyond *s = k->state;
    *s = (Beyond){.in = r->in[0],
                  .before = r->in[1],
                  .n = lp_desc_numel(&r->in[0]),
                  .bits =
                      bits_of(r->in[0].dtype, r->attr[LP_COUNT_BEYOND_EDGE].f),
                  .copies = !lp_desc_contiguous(&r->in[0])};
    s->threads = s->n < PARALLEL ? 1 : r->threads;
    if (s->copies)
        k->work_bytes = (size_t)s->n * lp_dtype_size(s->in.dtype);
    return LP_OK;
}
