/* What the kernels of linear algebra share: the work's layout, transposing
 * loads and stores, the text of errors. */
#include "src/kernel/linalg/linalg_kernel.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Multiplications of a matrix below which one thread is faster. */
#define ONE_THREAD (96.0 * 96.0 * 96.0)

LpMats lp_mats_of(const LpKernelReq *r)
{
    const LpDesc *a = &r->in[0];
    int n = a->ndim;
    LpMats p = {.type = a->dtype, .batched = n > 2};
    p.m = (int)a->shape[n - 2];
    p.n = (int)a->shape[n - 1];
    p.batch = lp_elements(a->shape, n - 2);
    int less = p.m < p.n ? p.m : p.n;
    double mul = (double)p.m * p.n * less;
    p.threads = mul < ONE_THREAD ? 1 : r->threads;
    return p;
}

void lp_mats_part(LpMats *p, size_t count, size_t size)
{
    p->off[p->parts++] = p->work;
    if (p->batch > 0)
        p->work += (count * size + 63) / 64 * 64;
}

void lp_mats_scratch(LpMats *p, const LpLapackWork *w)
{
    p->lwork = w->lwork;
    p->liwork = w->liwork;
    lp_mats_part(p, (size_t)w->lwork, lp_mats_size(p));
    lp_mats_part(p, (size_t)w->liwork, sizeof(int));
}

void lp_mats_who(LpMats *p, const LpAttr *a)
{
    snprintf(p->who, sizeof p->who, "%s", a->str);
}

LP_PLAIN_CORE(run)
{
    const LpMats *m = (const void *)p->param;
    LpStatus s = LP_OK;
    int before = lp_lapack_begin(m->threads);
    for (int64_t i = 0; i < m->batch && s == LP_OK; i++)
        s = m->core(m, i, in, out, work, e);
    lp_lapack_end(before);
    return s;
}

LpStatus lp_mats_ready(const LpKernelReq *r, LpKernel *k, LpMatsCore core,
                       LpMats *p, LpErr *e)
{
    _Static_assert(sizeof *p <= LP_PLAIN_PARAM, "parameters fit the frame");
    p->core = core;
    return lp_plain_prepare(r, k, run, p->type, p, sizeof *p, p->work, e);
}

/* Blocks of both sides that the first cache holds together. */
#define TURN(T)                                                                \
    static void turn_##T(const T *src, int64_t rows, int64_t cols,             \
                         int64_t from, T *dst, int64_t to)                     \
    {                                                                          \
        for (int64_t i0 = 0; i0 < rows; i0 += 32)                              \
            for (int64_t j0 = 0; j0 < cols; j0 += 32)                          \
                for (int64_t i = i0; i < i0 + 32 && i < rows; i++)             \
                    for (int64_t j = j0; j < j0 + 32 && j < cols; j++)         \
                        dst[j * to + i] = src[i * from + j];                   \
    }
TURN(float)
TURN(double)

/* dst[j][i] = src[i][j]; rows are `from` and `to` elements apart */
static void turn(LpDtype t, const void *src, int rows, int cols, int from,
                 void *dst, int to)
{
    if (t == LP_F64)
        turn_double(src, rows, cols, from, dst, to);
    else
        turn_float(src, rows, cols, from, dst, to);
}

void lp_load_columns(LpDtype t, const void *src, int rows, int cols, void *dst,
                     int ld)
{
    turn(t, src, rows, cols, cols, dst, ld);
}

void lp_store_rows(LpDtype t, const void *src, int ld, int rows, int cols,
                   void *dst)
{
    turn(t, src, cols, rows, ld, dst, cols);
}

LpStatus lp_mats_fail(const LpMats *p, int64_t i, LpErr *e, const char *fmt,
                      ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (p->batched)
        return lp_fail(e, LP_E_LINALG, "%s: (Batch element %lld): %s", p->who,
                       (long long)i, text);
    return lp_fail(e, LP_E_LINALG, "%s: %s", p->who, text);
}
