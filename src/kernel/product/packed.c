/* Products whose right operand lies in the library's layout or in panels, and
 * what brings it there. */
#include "src/kernel/product/packed.h"

#include <string.h>

#include "src/kernel/product/gemm.h"
#include "src/kernel/product/panels.h"
#include "src/kernel/product/vector.h"
#include "src/kernel/state.h"

static void fini(LpKernel *k)
{
    lp_dnn_free(k->state);
    k->state = NULL;
}

LP_KERNEL_RUN(run_mm)
{
    void *args[LP_DNN_N_ARGS] = {
        [LP_DNN_SRC] = in[0], [LP_DNN_WEIGHTS] = in[1], [LP_DNN_DST] = out[0]};
    return lp_dnn_run(k->state, args, work, e);
}

LP_KERNEL_RUN(run_pack)
{
    void *args[LP_DNN_N_ARGS] = {[LP_DNN_SRC] = in[0], [LP_DNN_DST] = out[0]};
    return lp_dnn_run(k->state, args, work, e);
}

static void fill(LpKernel *k, LpKernelRun run, LpDnnPrim *prim)
{
    k->run = run;
    k->fini = fini;
    k->state = prim;
    k->work_bytes = lp_dnn_work_bytes(prim);
}

void lp_reorder_kernel(LpDnnPrim *reorder, LpKernel *k)
{
    fill(k, run_pack, reorder);
}

/* ---- panels -------------------------------------------------------------- */
LP_KERNEL_RUN(run_panels)
{
    lp_panels_product(k->state, in[0], in[1], out[0], work, k->threads);
    return LP_OK;
}

LP_KERNEL_RUN(run_to_panels)
{
    lp_gemm_pack(k->state, LP_F32, in[0], out[0], k->threads);
    return LP_OK;
}

LP_KERNEL_RUN(run_from_panels)
{
    lp_panels_unpack(k->state, in[0], out[0]);
    return LP_OK;
}

static LpStatus panels(const LpGemmArgs *g, LpKernelRun run, LpKernel *k,
                       LpErr *e)
{
    LP_TRY(lp_kernel_state("mm", sizeof *g, run, k, e));
    memcpy(k->state, g, sizeof *g);
    return LP_OK;
}

static LpStatus prepare_panels(const LpGemmArgs *g, LpKernel *mm,
                               LpKernel *pack, LpKernel *unpack, size_t *bytes,
                               LpErr *e)
{
    LP_TRY(panels(g, run_panels, mm, e));
    mm->work_bytes = lp_panels_work(g, mm->threads);
    *bytes = lp_gemm_packed_bytes(g, LP_F32);
    LP_TRY(panels(g, run_to_panels, pack, e));
    return panels(g, run_from_panels, unpack, e);
}

LpStatus lp_packed_mm_prepare(const LpDesc *x, const LpDesc *w, const LpDesc *y,
                              LpKernel *mm, LpKernel *pack, LpKernel *unpack,
                              size_t *bytes, bool *same, LpErr *e)
{
    LpDnnMatmul d = {.threads = mm->threads};
    LpDnnLayout plain;
    LpDnnPrim *product = NULL, *to = NULL, *from = NULL;
    LpGemmArgs g = {.m = x->shape[0],
                    .k = x->shape[1],
                    .n = w->shape[1],
                    .a_rs = x->strides[0],
                    .a_cs = x->strides[1],
                    .b_rs = w->strides[0],
                    .b_cs = w->strides[1],
                    .c_rs = w->shape[1],
                    .c_cs = 1};
    *same = lp_gemm_is_fast(&g, LP_F32) || lp_vector_takes(&g);
    if (*same)
        return LP_OK;
    if (lp_panels_pay(&g))
        return prepare_panels(&g, mm, pack, unpack, bytes, e);
    LP_TRY(lp_dnn_plain(LP_F32, 2, x->shape, x->strides, &d.src, e));
    LP_TRY(lp_dnn_plain(LP_F32, 2, w->shape, w->strides, &plain, e));
    LP_TRY(lp_dnn_any(LP_F32, 2, w->shape, &d.weights, e));
    LP_TRY(lp_dnn_plain(LP_F32, 2, y->shape, NULL, &d.dst, e));
    LP_TRY(lp_dnn_matmul_new(&d, &product, e));
    const LpDnnLayout *own = lp_dnn_layout(product, LP_DNN_WEIGHTS);
    *same = lp_dnn_layout_eq(own, &plain);
    *bytes = own->bytes;
    LpStatus s = LP_OK;
    if (!*same)
        s = lp_dnn_reorder_new(&plain, own, pack->threads, &to, e);
    if (!*same && s == LP_OK) /* width 1: a forked worker may enter no pool */
        s = lp_dnn_reorder_new(own, &plain, 1, &from, e);
    if (*same || s != LP_OK) {
        lp_dnn_free(product);
        lp_dnn_free(to);
        return s;
    }
    fill(mm, run_mm, product);
    lp_reorder_kernel(to, pack);
    lp_reorder_kernel(from, unpack);
    return LP_OK;
}
