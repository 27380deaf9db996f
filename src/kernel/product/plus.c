/* The product goes to scratch memory in float32, then a fused chain of
 * pointwise steps scales it, adds, and rounds once. */
#include "src/kernel/product/plus.h"

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/loops/fused.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/plain.h"
#include "src/kernel/product/gemm.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"

/* Scratch: the product, or as many rows of it as are made at once, then what
 * both kernels want, `each` of it a thread's of the chain. */
typedef struct Plus {
    LpKernel product, sum;
    size_t off; /* of the kernels' scratch */
    /* the chain is told of parts of a product of `cols` columns */
    size_t strip, each, at;
    int64_t cols;
} Plus;

typedef struct Told {
    const Plus *p;
    void *const *ext, *const *out;
    char *work;
    const LpRunCtx *rc;
} Told;

static void sum_part(const LpGemmThen *then, int64_t i0, int64_t i1, int64_t j0,
                     int64_t j1, int thread)
{
    const Told *t = then->with;
    const Plus *p = t->p;
    char *rows = (char *)t->ext[0] + (size_t)thread * p->strip;
    /* as if all rows before were there */
    void *ext[2] = {rows - i0 * p->cols * (int64_t)sizeof(float), t->ext[1]};
    void *work = t->work + (size_t)thread * p->each;
    int64_t once = j1 - j0 == p->cols ? i1 - i0 : 1;
    for (int64_t i = i0; i < i1; i += once)
        lp_fused_part(&p->sum, ext, t->out, work, t->rc, i * p->cols + j0,
                      (i + once - 1) * p->cols + j1);
}

LP_KERNEL_RUN(run)
{
    const Plus *p = k->state;
    void *ext[2] = {work, in[2]};
    char *scratch = (char *)work + p->off;
    if (p->strip > 0) {
        Told t = {p, ext, out, scratch + p->at, rc};
        LpGemmThen then = {sum_part, &t, p->strip};
        bool told;
        return lp_mm_run_then(&p->product, in, ext, &then, &told, scratch, rc,
                              e);
    }
    LP_TRY(p->product.run(&p->product, in, ext, scratch, rc, e));
    return p->sum.run(&p->sum, ext, out, scratch, rc, e);
}

static void drop(void *state)
{
    Plus *p = state;
    lp_kernel_fini(&p->product);
    lp_kernel_fini(&p->sum);
    lp_free(p);
}

/* The product's rows meet the chain as they are made. */
static void by_parts(Plus *p, const LpDesc *y)
{
    p->strip = lp_mm_strip(&p->product);
    if (p->strip == 0)
        return;
    p->cols = y->shape[y->ndim - 1];
    p->each = (lp_fused_work(&p->sum) + 63) / 64 * 64;
    p->at = (p->product.work_bytes + 63) / 64 * 64;
}

/* The steps after the product in a chain of type `wide`. */
typedef struct Steps {
    LpFusedNode node[3];
    int n, ndim;
    LpDtype wide;
    const LpPlusOps *op;
} Steps;

static LpFusedArg step(Steps *s, const LpOp *op, const LpAttr *attr,
                       LpFusedArg a, const LpFusedArg *b, LpDtype t)
{
    LpFusedNode *f = &s->node[s->n];
    *f = (LpFusedNode){.op = op,
                       .attr = attr,
                       .n_in = b ? 2 : 1,
                       .in = {a},
                       .dtype = t,
                       .ndim = s->ndim,
                       .out = -1};
    if (b)
        f->in[1] = *b;
    return (LpFusedArg){.from = LP_FUSED_NODE, .at = s->n++};
}

static LpFusedArg times(Steps *s, LpFusedArg a, LpScalar number)
{
    if (lp_scalar_f(number) == 1)
        return a;
    LpFusedArg by = {.from = LP_FUSED_IMM, .imm = number};
    return step(s, s->op->mul, NULL, a, &by, s->wide);
}

/* beta addend + alpha product, both operands of the chain. */
static LpStatus prepare_sum(const LpKernelReq *r, LpDtype wide, LpScalar beta,
                            LpScalar alpha, const LpDesc *product, LpKernel *k,
                            LpErr *e)
{
    const LpAttr one = lp_attr_scalar(lp_int(1));
    const LpAttr same = lp_attr_dtype(r->out[0].dtype);
    LpDesc ext[2] = {*product, r->in[2]}, out = r->out[0];
    bool reads = lp_scalar_f(beta) != 0;
    if (out.block) { /* in five dimensions */
        const int n = out.ndim, block = out.block;
        const int64_t channels = out.shape[1];
        out = lp_desc_split(&r->out[0], n, channels, block);
        for (int i = 0; i < 2; i++)
            ext[i] = lp_desc_split(&ext[i], n, channels, block);
    }
    Steps s = {.ndim = out.ndim, .wide = wide, .op = r->op->data};
    LpFusedArg v = {.from = LP_FUSED_EXT, .at = 0};
    v = times(&s, v, alpha);
    if (reads) {
        LpFusedArg c =
            times(&s, (LpFusedArg){.from = LP_FUSED_EXT, .at = 1}, beta);
        step(&s, s.op->add, &one, c, &v, wide);
    } else if (s.n == 0) {
        step(&s, s.op->cast, &same, v, NULL, wide);
    }
    s.node[s.n - 1].out = 0;
    s.node[s.n - 1].dtype = r->out[0].dtype; /* stored: rounded here */
    s.node[s.n - 1].site = lp_call_rounds(r) ? r->site : 0;
    return lp_fused_prepare(&(LpFusedReq){.node = s.node,
                                          .n_node = s.n,
                                          .ext = ext,
                                          .n_ext = 1 + reads,
                                          .out = &out,
                                          .n_out = 1,
                                          .threads = r->threads},
                            k, e);
}

static LpStatus prepare(const LpKernelReq *r, LpPrepare *product, LpScalar beta,
                        LpScalar alpha, LpKernel *k, LpErr *e)
{
    LpDtype wide = lp_plain_type(r->out[0].dtype);
    LpDesc y = lp_desc_plain(&r->out[0], wide);
    y.block = r->out[0].block;
    LpKernelReq q = *r;
    q.n_in = 2;
    q.out = &y;
    Plus *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->product.threads = p->sum.threads = r->threads;
    LpStatus s = product(&q, &p->product, e);
    if (s == LP_OK)
        s = prepare_sum(r, wide, beta, alpha, &y, &p->sum, e);
    if (s == LP_OK && product == lp_mm_prepare)
        by_parts(p, &y);
    size_t width = (size_t)p->product.threads;
    size_t inner = p->product.work_bytes > p->sum.work_bytes
                       ? p->product.work_bytes
                       : p->sum.work_bytes;
    p->off = ((size_t)lp_desc_numel(&y) * lp_dtype_size(wide) + 63) / 64 * 64;
    if (p->strip > 0) {
        inner = p->at + width * p->each;
        p->off = width * p->strip;
    }
    if (s == LP_OK && !lp_add_size(p->off, inner, &k->work_bytes))
        s = lp_fail(e, LP_E_MEMORY, "%s: scratch memory too large",
                    r->op->name);
    if (s != LP_OK) {
        drop(p);
        return s;
    }
    lp_kernel_own(p, drop, run, k);
    return LP_OK;
}

LP_PREPARE_AS(lp_mm_plus_prepare,
              prepare(r, lp_mm_prepare, r->attr[LP_PLUS_BETA].s,
                      r->attr[LP_PLUS_ALPHA].s, k, e))
LP_PREPARE_AS(lp_conv_plus_prepare,
              prepare(r, lp_conv_prepare, lp_int(1), lp_int(1), k, e))
