/* Greatest and least of float32 along one dimension, and where they lie, for
 * elements that lie beside each other along the lines or across them. See
 * reduce_kernel.h; what else there is runs in line.c. */
#include "src/base/interrupt.h"
#include "src/kernel/loops/reduce_kernel.h"

enum {
    COLUMNS = 512,
    WORK_MIN = 1 << 15,
    SHORT_ROW = 16, /* elements up to which lines are turned */
    MANY = 64,      /* lines that pay for it */
};

#define SIZE ((int64_t)sizeof(float))

typedef struct Plan {
    const LpExtremeLoops *loops;
    int64_t step; /* floats from one row to the next */
    bool across, values;
    bool turns; /* across, of short lines that are brought side by side */
    LpReduceGeo g;
} Plan;

/* The results of line i, whose elements begin at x: the value, if asked for,
 * and where it lies. `o`: bytes in the first result. */
static void put(const Plan *p, void *const *out, int64_t o, float v, int64_t at)
{
    if (!p->values) {
        *(int64_t *)(void *)((char *)out[0] + o) = at;
        return;
    }
    *(float *)(void *)((char *)out[0] + o) = v;
    ((int64_t *)out[1])[o / (int64_t)sizeof v] = at;
}

static void run_along(const Plan *p, int64_t line, const char *in,
                      void *const *out)
{
    int64_t o, n = p->g.red_elems;
    const float *x =
        (const void *)(in + lp_reduce_offset(p->g.axis, p->g.n_kept, line, &o));
    int64_t at = p->loops->along(n, x);
    put(p, out, o, x[at], at);
}

/* Piece i: up to COLUMNS results side by side. */
static void run_across(const Plan *p, int64_t i, const char *in,
                       void *const *out)
{
    const LpAxis *last = &p->g.axis[p->g.n_kept - 1];
    int64_t pieces = (last->size + COLUMNS - 1) / COLUMNS, o;
    int64_t c = i % pieces * COLUMNS;
    int64_t m = last->size - c < COLUMNS ? last->size - c : COLUMNS;
    const char *x = in + lp_reduce_offset(p->g.axis, p->g.n_kept,
                                          i / pieces * last->size + c, &o);
    float best[COLUMNS], side[SHORT_ROW][COLUMNS];
    int32_t where[COLUMNS];
    int64_t n = p->g.red_elems, step = p->step, line = last->in / SIZE;
    const float *v = (const void *)x;
    if (p->turns) {
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < m; j++)
                side[k][j] = v[j * line + k];
        v = side[0];
        step = COLUMNS;
    }
    p->loops->across(n, step, m, v, best, where);
    for (int64_t j = 0; j < m; j++)
        put(p, out, o + j * last->out, best[j], where[j]);
}

LP_KERNEL_RUN(run)
{
    const Plan *p = (const void *)k->inl;
    int64_t n = p->g.kept_elems, wide = p->g.axis[p->g.n_kept - 1].size;
    if (p->across)
        n = n / wide * ((wide + COLUMNS - 1) / COLUMNS);
#pragma omp parallel for num_threads(k->threads) if (k->threads > 1)           \
    schedule(static)
    for (int t = 0; t < k->threads; t++)
        for (int64_t i = n * t / k->threads; i < n * (t + 1) / k->threads; i++)
            if (!lp_kernel_stops())
                (p->across ? run_across : run_along)(p, i, in[0], out);
    return LP_OK;
}

bool lp_extreme_prepare(const LpKernelReq *r, LpLineKind kind,
                        const LpReduceGeo *g, LpKernel *k)
{
    Plan *p = (void *)k->inl;
    const LpAxis *red = &g->axis[g->n_kept], *last = red - 1;
    _Static_assert(sizeof *p <= sizeof k->inl, "plan");
    if (kind > LP_LINE_MIN || r->in[0].dtype != LP_F32 || g->n_red != 1 ||
        g->kept_elems == 0 || g->red_elems == 0 || g->red_elems > INT32_MAX)
        return false;
    if (red->in != SIZE && last->in != SIZE)
        return false;
    p->loops = &LP_SIMD_PICK(
        lp_loops_extreme)[kind == LP_LINE_ARGMIN || kind == LP_LINE_MIN];
    p->turns = red->in == SIZE && g->red_elems <= SHORT_ROW &&
               last->size >= MANY && last->in % SIZE == 0;
    p->across = red->in != SIZE || p->turns;
    p->values = kind >= LP_LINE_MAX;
    p->step = red->in / SIZE;
    p->g = *g;
    k->run = run;
    k->threads = 1;
    if (g->kept_elems * g->red_elems >= WORK_MIN && g->kept_elems > 1)
        k->threads = r->threads;
    return true;
}
