/* Fills and sequences. Sequences are computed in double (integers in int64)
 * by element, not by running sums, and converted once. */
#include <math.h>

#include "src/base/checked.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/hooks.h"

#define BLOCK 256
#define MANY 32768 /* elements for which threads are woken */

/* ---- empty, fill --------------------------------------------------------- */
LP_KERNEL_RUN(run_nothing)
{
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_empty_prepare)
{
    k->run = run_nothing;
    return LP_OK;
}

LP_KERNEL_RUN(run_fill_from)
{
    const LpCopyPlan *p = (const LpCopyPlan *)(const void *)k->inl;
    lp_copy_run(p, in[1], out[0]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_fill_prepare)
{
    if (r->n_in < 2 || r->in[1].is_imm) {
        LpScalar v = r->n_in < 2 ? lp_int(0) : r->in[1].imm;
        return lp_fill_kernel(&r->out[0], v, r->threads, k);
    }
    lp_copy_plan(&r->in[1], &r->out[0], r->threads,
                 (LpCopyPlan *)(void *)k->inl);
    k->run = run_fill_from;
    return LP_OK;
}

/* ---- sequences ----------------------------------------------------------- */
typedef struct Sequence {
    LpDtype to;
    int64_t n, out_step;
    bool whole; /* integers: first + i * by */
    int64_t first, by;
    double start, end, step; /* else */
    bool two_sided;          /* linspace: from the nearer end */
    bool power;              /* logspace: base to the power of it */
    double base;
} Sequence;
_Static_assert(sizeof(Sequence) <= sizeof((LpKernel *)0)->inl, "inline state");

static double element(const Sequence *s, int64_t i)
{
    double v = s->two_sided && i >= s->n / 2
                   ? s->end - s->step * (double)(s->n - 1 - i)
                   : s->start + s->step * (double)i;
    return s->power ? pow(s->base, v) : v;
}

/* Elements [i, i + n). */
static void whole_block(const Sequence *s, int64_t i, int64_t n, int64_t *to)
{
    for (int64_t j = 0; j < n; j++)
        to[j] =
            (int64_t)((uint64_t)s->first + (uint64_t)(i + j) * (uint64_t)s->by);
}

static void real_block(const Sequence *s, int64_t i, int64_t n, double *to)
{
    if (s->two_sided)
        for (int64_t j = 0; j < n; j++)
            to[j] = element(s, i + j);
    else
        for (int32_t j = 0; j < n; j++)
            to[j] = s->start + s->step * ((double)i + (double)j);
}

static void float_block(const Sequence *s, int64_t i, int64_t n, float *to)
{
    for (int32_t j = 0; j < n; j++)
        to[j] = (float)(s->start + s->step * ((double)i + (double)j));
}

LP_KERNEL_RUN(run_sequence)
{
    const Sequence *s = (const Sequence *)(const void *)k->inl;
    int64_t bytes = (int64_t)lp_dtype_size(s->to);
    bool direct = s->whole && s->to == LP_I64 && s->out_step == 1;
    bool floats = !s->whole && !s->two_sided && !s->power && s->to == LP_F32 &&
                  s->out_step == 1;
    int64_t blocks = (s->n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t i = b * BLOCK, n = lp_min(s->n - i, BLOCK);
        char *to = (char *)out[0] + i * s->out_step * bytes;
        double real[BLOCK];
        int64_t whole[BLOCK];
        if (direct) {
            whole_block(s, i, n, (int64_t *)(void *)to);
        } else if (s->whole) {
            whole_block(s, i, n, whole);
            lp_convert(LP_I64, whole, 1, s->to, to, s->out_step, n);
        } else if (floats) {
            float_block(s, i, n, (float *)(void *)to);
        } else {
            real_block(s, i, n, real);
            lp_convert(LP_F64, real, 1, s->to, to, s->out_step, n);
        }
    }
    return LP_OK;
}

static Sequence *sequence(const LpKernelReq *r, LpKernel *k)
{
    Sequence *s = (Sequence *)(void *)k->inl;
    *s = (Sequence){.to = r->out[0].dtype,
                    .n = r->out[0].shape[0],
                    .out_step = r->out[0].strides[0]};
    k->run = run_sequence;
    k->threads = s->n < MANY ? 1 : r->threads;
    return s;
}

LP_KERNEL_PREPARE(lp_arange_prepare)
{
    Sequence *s = sequence(r, k);
    LpScalar start = r->attr[LP_ARANGE_START].s,
             step = r->attr[LP_ARANGE_STEP].s;
    s->whole = start.kind != LP_KIND_FLOAT && step.kind != LP_KIND_FLOAT;
    if (s->whole) {
        s->first = start.i;
        s->by = step.i;
    } else if (!lp_is_float(s->to)) { /* truncated before they are added */
        s->whole = true;
        s->first = lp_scalar_i(start);
        s->by = lp_scalar_i(step);
    } else {
        s->start = lp_scalar_f(start);
        s->step = lp_scalar_f(step);
    }
    return LP_OK;
}

/* As the result's type has it: 2.7 in an integer type is 2. */
static double in_type(LpScalar v, LpDtype t)
{
    char one[8];
    lp_scalar_store(v, t, one);
    return lp_scalar_f(lp_scalar_load(t, one));
}

LP_KERNEL_PREPARE(lp_linspace_prepare)
{
    Sequence *s = sequence(r, k);
    s->power = r->op->n_attr == 5;
    s->base = s->power ? r->attr[LP_SPACE_BASE].f : 0;
    s->two_sided = true;
    s->start = in_type(r->attr[LP_SPACE_START].s, s->to);
    s->end = in_type(r->attr[LP_SPACE_END].s, s->to);
    s->step = s->n > 1 ? (s->end - s->start) / (double)(s->n - 1) : 0;
    if (s->n == 1)
        s->end = s->start;
    return LP_OK;
}

/* ---- eye ----------------------------------------------------------------- */
LP_KERNEL_RUN(run_eye)
{
    const LpDesc *d = (const LpDesc *)(const void *)k->inl;
    LpDesc ones = {
        .dtype = d->dtype,
        .ndim = 1,
        .shape = {d->shape[0] < d->shape[1] ? d->shape[0] : d->shape[1]}};
    ones.strides[0] = d->strides[0] + d->strides[1];
    lp_fill_strided(d, out[0], lp_int(0));
    lp_fill_strided(&ones, out[0], lp_int(1));
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_eye_prepare)
{
    *(LpDesc *)(void *)k->inl = r->out[0];
    k->run = run_eye;
    return LP_OK;
}

#define CHUNK 256

/* ---- triangles ----------------------------------------------------------- */
typedef struct Triangle {
    LpDesc out;
    int64_t rows, cols, offset;
    bool lower;
} Triangle;
_Static_assert(sizeof(Triangle) <= sizeof((LpKernel *)0)->inl, "inline state");

LP_KERNEL_RUN(run_triangle)
{
    const Triangle *t = (const Triangle *)(const void *)k->inl;
    int64_t bytes = (int64_t)lp_dtype_size(t->out.dtype);
    int64_t step = t->out.strides[1], number[CHUNK];
    char *row = out[0], *col = row + t->out.strides[0] * bytes;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t n = lp_tri_columns(t->lower, r, t->cols, t->offset);
        int64_t c = t->lower ? 0 : t->cols - n;
        for (int64_t m; n > 0; n -= m, c += m) {
            m = lp_min(n, CHUNK);
            for (int64_t i = 0; i < m; i++)
                number[i] = c + i;
            lp_convert(LP_I64, &r, 0, t->out.dtype, row, step, m);
            lp_convert(LP_I64, number, 1, t->out.dtype, col, step, m);
            row += m * step * bytes;
            col += m * step * bytes;
        }
    }
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_tri_indices_prepare)
{
    *(Triangle *)(void *)k->inl =
        (Triangle){.out = r->out[0],
                   .rows = r->attr[LP_TRI_INDICES_ROW].i,
                   .cols = r->attr[LP_TRI_INDICES_COL].i,
                   .offset = r->attr[LP_TRI_INDICES_OFFSET].i,
                   .lower = r->op->name[3] == 'l'};
    k->run = run_triangle;
    k->threads = 1;
    return LP_OK;
}
