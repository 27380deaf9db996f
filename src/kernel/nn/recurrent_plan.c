/* What both kernels of recurrent layers share: sizes, products of slices of the
 * batch, and the walk of slices over threads. */
#include "src/kernel/nn/recurrent_plan.h"
#include "src/base/mem.h"

static const LpRnnLoops *loops_of(LpDtype t)
{
    return &LP_SIMD_PICK(lp_rnn)[t == LP_F64];
}

/* Few rows would leave most of a product's time to reading the weights. */
static int slices_of(int64_t batch, int threads)
{
    enum { LEAST_ROWS = 8 };
    int n = threads;
    while (n > 1 && (batch % n != 0 || batch / n < LEAST_ROWS))
        n--;
    return n;
}

LpStatus lp_rnn_fill(LpRnn *r, const LpKernelReq *q, const LpDesc *in, int ids,
                     LpErr *e)
{
    LpRnnKind kind = lp_rnn_kind(q->op, q->attr);
    const LpRnnKindInfo *info = lp_rnn_info(kind);
    const LpDesc *x = &in[info->at[LP_RNN_X]];
    const LpDesc *steps = ids < 0 ? x : &q->in[ids];
    int threads = q->threads < 1 ? 1 : q->threads;
    const LpDesc *w = &in[info->at[LP_RNN_W_HH]];
    int hr = info->at[LP_RNN_W_HR];
    LpDtype t = lp_plain_type(x->dtype);
    *r = (LpRnn){
        .kind = kind,
        .info = info,
        .loops = loops_of(t),
        .steps = steps->shape[0],
        .batch = steps->shape[1],
        .in = x->shape[x->ndim - 1],
        .hidden = w->shape[0] / info->gates,
        .out = w->shape[1],
        .rows = w->shape[0],
        .kept = w->shape[0] / info->gates * info->kept,
        .size = lp_dtype_size(t),
        .t = t,
        .reverse = q->attr[LP_RNN_REVERSE].i != 0,
        .projects = hr >= 0 && in[hr].dtype != LP_DT_NONE,
        .table = ids < 0 ? 0 : x->shape[0],
        .ids = ids,
        .threads = threads,
        .slices = slices_of(steps->shape[1], threads),
    };
    r->twin =
        lp_calloc((size_t)r->slices * LP_RNN_STEP_PRODUCTS, sizeof *r->twin);
    return r->twin ? LP_OK : lp_no_memory(e);
}

LpStatus lp_rnn_product(LpRnn *r, int i, int64_t m, int64_t n, int64_t k,
                        bool ta, bool tb, int flags, LpErr *e)
{
    LpGemmArgs g = {.m = m,
                    .n = n,
                    .k = k,
                    .a_rs = ta ? 1 : k,
                    .a_cs = ta ? m : 1,
                    .b_rs = tb ? 1 : n,
                    .b_cs = tb ? k : 1,
                    .c_rs = n,
                    .c_cs = 1};
    return lp_product_init(&r->product[i], r->t, &g, r->threads, flags, e);
}

LpStatus lp_rnn_step_product(LpRnn *r, int i, int64_t n, int64_t k, bool tb,
                             LpErr *e)
{
    LpGemmArgs g = {.m = r->batch / r->slices,
                    .n = n,
                    .k = k,
                    .a_rs = k,
                    .a_cs = 1,
                    .b_rs = tb ? 1 : n,
                    .b_cs = tb ? k : 1,
                    .c_rs = n,
                    .c_cs = 1};
    int threads = r->slices > 1 ? 1 : r->threads, flags = LP_PRODUCT_REPEAT;
    if (lp_product_library(r->t, r->batch, n, k)) /* the same for all widths */
        flags |= LP_PRODUCT_PART;
    for (int s = 0; s < r->slices; s++) {
        LpProduct *p = s == 0 ? &r->product[i]
                              : &r->twin[(s - 1) * LP_RNN_STEP_PRODUCTS + i];
        LP_TRY(lp_product_init(p, r->t, &g, threads, flags, e));
        if (p->work_bytes > r->apart)
            r->apart = (p->work_bytes + 63) / 64 * 64;
    }
    return LP_OK;
}

LpStatus lp_rnn_walk(const LpRnn *r, LpRnnWalk walk, const void *ctx, LpErr *e)
{
    if (r->slices == 1)
        return walk(r, 0, ctx, e);
    LpStatus all = LP_OK;
#pragma omp parallel for num_threads(r->slices) schedule(static)
    for (int i = 0; i < r->slices; i++) {
        LpErr own = {0};
        LpStatus s = walk(r, i, ctx, &own);
#pragma omp critical(lp_rnn_walk)
        if (s != LP_OK) {
            all = s;
            if (e)
                *e = own;
        }
    }
    return all;
}

void lp_rnn_pass(const LpRnn *r, LpRnnPart part, const void *step, int64_t rows)
{
    int width = r->slices > 1 || r->batch * r->kept < 8192 ? 1 : r->threads;
    int64_t each = (rows + width - 1) / width;
#pragma omp parallel for num_threads(width) schedule(static) if (width > 1)
    for (int i = 0; i < width; i++) {
        int64_t a = i * each, b = a + each < rows ? a + each : rows;
        if (a < b)
            part(r, step, a, b);
    }
}

LpStatus lp_rnn_lookups(const LpRnn *r, void *const *in, const int64_t **at,
                        LpErr *e)
{
    *at = r->ids < 0 ? NULL : in[r->ids];
    for (int64_t i = 0; *at && i < r->steps * r->batch; i++)
        LP_FAIL_IF((*at)[i] < 0 || (*at)[i] >= r->table, e, LP_E_INDEX,
                   "embedding: index %lld is out of bounds for dimension 0 "
                   "with size %lld (indices count from 0)",
                   (long long)(*at)[i], (long long)r->table);
    return LP_OK;
}

void lp_rnn_space(LpRnn *r, int i, int64_t n)
{
    r->space[i] = r->work;
    r->work += ((size_t)n * r->size + 63) / 64 * 64;
}

static void drop(void *state)
{
    LpRnn *r = state;
    for (int i = 0; i < LP_RNN_MAX_PRODUCT; i++)
        lp_product_fini(&r->product[i]);
    for (int i = 0; r->twin && i < r->slices * LP_RNN_STEP_PRODUCTS; i++)
        lp_product_fini(&r->twin[i]);
    lp_free(r->twin);
    lp_free(r);
}

LpStatus lp_rnn_finish(LpRnn *r, LpStatus s, const LpKernelReq *q, LpKernel *k,
                       LpPlainCore core, LpErr *e)
{
    if (s != LP_OK) {
        drop(r);
        return s;
    }
    size_t inner = r->apart * (size_t)r->slices;
    for (int i = 0; i < LP_RNN_MAX_PRODUCT; i++)
        if (r->product[i].work_bytes > inner)
            inner = r->product[i].work_bytes;
    r->inner = r->work;
    return lp_plain_prepare_owned(q, k, core, r->t, (LpPlainOwned){r, drop},
                                  r->work + inner, e);
}
