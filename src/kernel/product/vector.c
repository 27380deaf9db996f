/* Products of a vector (vector.h): which of the loops runs, and its threads. */
#include "src/kernel/product/vector.h"

#include "src/base/cpu.h"

enum { PIECE = 64 /* rows or columns that a thread has at least */ };

/* As y = m v: what is turned so that the vector comes last. */
typedef struct Form {
    int64_t rows, n; /* of m */
    int64_t rs, cs;  /* strides of m */
    int64_t vs, ys;  /* of v and y */
    bool turned;     /* the vector is the first factor */
} Form;

static Form form_of(const LpGemmArgs *g)
{
    bool turned = g->n != 1;
    LpGemmArgs t = turned ? lp_gemm_turn(g) : *g;
    return (Form){t.m, t.k, t.a_rs, t.a_cs, t.b_rs, t.c_rs, turned};
}

static bool is_dots(const Form *f)
{
    return (f->cs == 1 || f->n == 1) && (f->vs == 1 || f->n == 1);
}

static bool is_sums(const Form *f)
{
    return (f->rs == 1 || f->rows == 1) && (f->ys == 1 || f->rows == 1);
}

bool lp_vector_takes(const LpGemmArgs *g)
{
    if ((g->m != 1 && g->n != 1) || g->k < 1)
        return false;
    Form f = form_of(g);
    return is_dots(&f) || is_sums(&f);
}

static int64_t bound(int64_t n, int t, int threads)
{
    int64_t pieces = (n + PIECE - 1) / PIECE * t / threads * PIECE;
    return t == threads || pieces > n ? n : pieces;
}

void lp_vector_product(const LpGemmArgs *g, const float *a, const float *b,
                       float *c, int threads)
{
    Form f = form_of(g);
    const LpVectorLoops *l = LP_SIMD_PICK(lp_vector);
    const float *m = f.turned ? b : a, *v = f.turned ? a : b;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        int64_t from = bound(f.rows, t, threads);
        int64_t n = bound(f.rows, t + 1, threads) - from;
        if (is_dots(&f))
            l->dots(n, f.n, m + from * f.rs, f.rs, v, c + from * f.ys, f.ys);
        else
            l->sums(f.n, n, m + from, f.cs, v, f.vs, c + from);
    }
}
