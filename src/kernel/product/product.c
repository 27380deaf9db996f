/* Chooses between the library's product and ours by size, and packs weights
 * that serve many runs. */
#include "src/kernel/product/product.h"

#define TINY (24 * 24 * 24) /* multiplications not worth a library call */

static LpStatus matrix(LpDtype t, int64_t rows, int64_t cols, int64_t rs,
                       int64_t cs, LpDnnLayout *out, LpErr *e)
{
    int64_t shape[2] = {rows, cols};
    int64_t strides[2] = {rows == 1 ? cols * cs : rs, cols == 1 ? 1 : cs};
    return lp_dnn_plain(t, 2, shape, strides, out, e);
}

static LpStatus library(LpProduct *p, int flags, LpErr *e)
{
    const LpGemmArgs *g = &p->g;
    bool repeat = flags & LP_PRODUCT_REPEAT;
    LpDnnMatmul d = {.threads = p->threads, .add = flags & LP_PRODUCT_ADD};
    LpDnnLayout plain;
    LP_TRY(matrix(p->t, g->m, g->k, g->a_rs, g->a_cs, &d.src, e));
    LP_TRY(matrix(p->t, g->k, g->n, g->b_rs, g->b_cs, &plain, e));
    LP_TRY(matrix(p->t, g->m, g->n, g->c_rs, g->c_cs, &d.dst, e));
    d.weights = plain;
    if (repeat)
        LP_TRY(lp_dnn_any(p->t, 2, (int64_t[]){g->k, g->n}, &d.weights, e));
    LP_TRY(lp_dnn_matmul_new(&d, &p->prim, e));
    p->work_bytes = lp_dnn_work_bytes(p->prim);
    const LpDnnLayout *own = lp_dnn_layout(p->prim, LP_DNN_WEIGHTS);
    if (!repeat || lp_dnn_layout_eq(own, &plain))
        return LP_OK;
    p->packed_bytes = own->bytes;
    LP_TRY(lp_dnn_reorder_new(&plain, own, p->threads, &p->pack, e));
    if (lp_dnn_work_bytes(p->pack) > p->work_bytes)
        p->work_bytes = lp_dnn_work_bytes(p->pack);
    return LP_OK;
}

bool lp_product_library(LpDtype t, int64_t m, int64_t n, int64_t k)
{
    return t == LP_F32 && m * n * k > TINY;
}

LpStatus lp_product_init(LpProduct *p, LpDtype t, const LpGemmArgs *g,
                         int threads, int flags, LpErr *e)
{
    *p = (LpProduct){.g = *g, .t = t, .threads = threads < 1 ? 1 : threads};
    if (!(flags & LP_PRODUCT_PART) &&
        !lp_product_library(t, g->m, g->n, g->k)) {
        LP_FAIL_IF(flags & LP_PRODUCT_ADD, e, LP_E_INTERNAL,
                   "a product of this size or type cannot add");
        if (flags & LP_PRODUCT_REPEAT)
            p->packed_bytes = lp_gemm_packed_bytes(g, t);
        else
            p->work_bytes = lp_gemm_work(g, t);
        return LP_OK;
    }
    LpStatus s = library(p, flags, e);
    if (s != LP_OK)
        lp_product_fini(p);
    return s;
}

void lp_product_fini(LpProduct *p)
{
    lp_dnn_free(p->prim);
    lp_dnn_free(p->pack);
    p->prim = p->pack = NULL;
}

LpStatus lp_product_weights(const LpProduct *p, const void *b, void *space,
                            void *work, const void **ready, LpErr *e)
{
    *ready = p->packed_bytes > 0 ? space : b;
    if (p->packed_bytes == 0)
        return LP_OK;
    if (!p->prim) {
        lp_gemm_pack(&p->g, p->t, b, space, 1);
        return LP_OK;
    }
    void *args[LP_DNN_N_ARGS] = {
        [LP_DNN_SRC] = (void *)(uintptr_t)b, [LP_DNN_DST] = space};
    return lp_dnn_run(p->pack, args, work, e);
}

LpStatus lp_product_run(const LpProduct *p, const void *a, const void *ready,
                        void *c, void *work, LpErr *e)
{
    if (!p->prim && p->g.k == 0) {
        lp_gemm_zero(&p->g, p->t, c);
        return LP_OK;
    }
    if (!p->prim && p->packed_bytes > 0) {
        lp_gemm_packed(&p->g, p->t, a, ready, c, p->threads);
        return LP_OK;
    }
    if (!p->prim) {
        lp_gemm(&p->g, p->t, a, ready, c, NULL, work, p->threads);
        return LP_OK;
    }
    void *args[LP_DNN_N_ARGS] = {[LP_DNN_SRC] = (void *)(uintptr_t)a,
                                 [LP_DNN_WEIGHTS] = (void *)(uintptr_t)ready,
                                 [LP_DNN_DST] = c};
    return lp_dnn_run(p->prim, args, work, e);
}
