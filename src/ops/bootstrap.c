/* Weak stand-ins, element by element, of the few operators that the core
 * itself calls; the family files define them properly. */
#include "src/ops/kernel/copy.h"
#include "src/ops/ops.h"

#define WEAK __attribute__((weak))

static LpStatus same_type(LpInfer *x)
{
    x->out[0] = x->in[0];
    return LP_OK;
}

static LpStatus add_type(LpInfer *x)
{
    LpPromo p = LP_PROMO_INIT;
    x->out[0] = x->in[0];
    for (int i = 0; i < 2; i++)
        lp_promo_tensor(&p, x->in[i].dtype, x->in[i].ndim);
    LP_TRY(lp_broadcast(&x->out[0], &x->in[1], x->err));
    x->out[0].dtype = lp_promo_result(&p);
    x->out[0].wrapped = false;
    return LP_OK;
}

static LpStatus clone_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    return lp_copy_kernel(&r->in[0], 0, &r->out[0], r->threads, k);
}

typedef struct Add {
    LpDesc in[2], out;
} Add;

static int64_t at(const LpDesc *d, const LpDesc *o, int64_t i)
{
    int64_t off = 0;
    for (int k = 1; k <= o->ndim; k++) {
        int64_t ix = i % o->shape[o->ndim - k];
        i /= o->shape[o->ndim - k];
        if (k <= d->ndim && d->shape[d->ndim - k] != 1)
            off += ix * d->strides[d->ndim - k];
    }
    return off;
}

static LpStatus add_run(const LpKernel *k, void *const *in, void *const *out,
                        void *work, const LpRunCtx *rc, LpErr *e)
{
    (void)work, (void)rc, (void)e;
    const Add *a = k->state;
    int64_t n = lp_desc_numel(&a->out);
    for (int64_t i = 0; i < n; i++) {
        double v[2];
        for (int j = 0; j < 2; j++) {
            const LpDesc *d = &a->in[j];
            const char *p = in[j];
            v[j] = lp_scalar_f(
                d->is_imm
                    ? d->imm
                    : lp_scalar_load(d->dtype,
                                     p + at(d, &a->out, i) *
                                             (int64_t)lp_dtype_size(d->dtype)));
        }
        char *o = out[0];
        lp_scalar_store(lp_float(v[0] + v[1]), a->out.dtype,
                        o + at(&a->out, &a->out, i) *
                                (int64_t)lp_dtype_size(a->out.dtype));
    }
    return LP_OK;
}

static void add_fini(LpKernel *k)
{
    lp_free(k->state);
}

static LpStatus add_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Add *a = lp_alloc(sizeof *a);
    LP_FAIL_IF(!a, e, LP_E_MEMORY, "out of memory");
    *a = (Add){{r->in[0], r->in[1]}, r->out[0]};
    k->state = a;
    k->run = add_run;
    k->fini = add_fini;
    return LP_OK;
}

static void add_grad(LpGrad *g)
{
    g->din[0] = g->din[1] = g->dout[0];
}

static void clone_grad(LpGrad *g)
{
    g->din[0] = g->dout[0];
}

WEAK LpOp op_add = {
    .flags = LP_OPF_POINTWISE | LP_OPF_INPLACE_OK,
    .forms = "add(Value self, Value other, *, Scalar alpha=1) -> Tensor @fmio",
    .infer = add_type,
    .prepare = add_prepare,
    .grad = add_grad,
};

WEAK LpOp op_clone = {
    .flags = LP_OPF_POINTWISE,
    .forms = "clone(Tensor self) -> Tensor @fm",
    .infer = same_type,
    .prepare = clone_prepare,
    .grad = clone_grad,
};

WEAK LpVal lp_add(LpBuilder *b, LpVal x, LpVal y)
{
    LpAttr one = lp_attr_scalar(lp_int(1));
    return lp_emit(b, LP_OP_add, (LpVal[]){x, y}, 2, &one);
}

static LpVal missing(LpBuilder *b, const char *what)
{
    lp_fail(b->err, LP_E_INTERNAL, "%s is not there", what);
    return LP_NOVAL;
}

WEAK LpVal lp_mul(LpBuilder *b, LpVal x, LpVal y)
{
    (void)x, (void)y;
    return missing(b, "mul");
}
WEAK LpVal lp_div(LpBuilder *b, LpVal x, LpVal y)
{
    (void)x, (void)y;
    return missing(b, "div");
}
WEAK LpVal lp_cast(LpBuilder *b, LpVal x, LpDtype t)
{
    return lp_type(b, x)->dtype == t ? x : missing(b, "cast");
}
WEAK LpVal lp_sum_to(LpBuilder *b, LpVal x, const LpType *like)
{
    return lp_type_eq(lp_type(b, x), like) ? x : missing(b, "sum_to");
}
