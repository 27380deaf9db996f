/* Brings operands that are strided, broadcast or of another type into plain
 * scratch memory, runs the inner kernel, brings results back. */
#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/kernel/plain.h"

LP_KERNEL_RUN(plain_run)
{
    const LpPlain *p = (const void *)k->inl;
    void *pin[LP_MAX_IN], *pout[LP_PLAIN_MAX_OUT];
    char *w = work;
    const LpCopyPlan *plan = p->plan;
    for (int i = 0; i < p->n_in; i++) {
        pin[i] = in[i];
        if (p->convert_in & 1u << i) {
            pin[i] = w + (size_t)p->off_in[i] * 64;
            lp_copy_run(plan++, in[i], pin[i]);
        }
    }
    for (int i = 0; i < p->n_out; i++)
        pout[i] =
            p->convert_out & 1u << i ? w + (size_t)p->off_out[i] * 64 : out[i];
    LP_TRY(p->core(p, pin, pout, w + (size_t)p->core_off * 64, rc, e));
    for (int i = 0; i < p->n_out; i++)
        if (p->convert_out & 1u << i)
            lp_copy_run(plan++, pout[i], out[i]);
    return LP_OK;
}

static void fini(LpKernel *k)
{
    LpPlain *p = (void *)k->inl;
    lp_free(p->plan);
    p->plan = NULL;
}

static void fini_owned(LpKernel *k)
{
    const LpPlainOwned *own =
        (const void *)((const LpPlain *)(const void *)k->inl)->param;
    own->drop(own->state);
    fini(k);
}

static bool reserve(size_t *total, size_t n, uint32_t *off)
{
    *off = (uint32_t)(*total / 64);
    size_t t;
    if (!lp_add_size(*total, (n + 63) / 64 * 64, &t) || t / 64 > UINT32_MAX)
        return false;
    *total = t;
    return true;
}

static LpDtype wanted(LpDtype t, LpDtype compute)
{
    return lp_is_float(t) ? compute : LP_I64;
}

/* Marks an operand that has to be converted and reserves its copy. */
static bool place(const LpDesc *d, LpDtype compute, size_t *total,
                  uint32_t *off, bool *convert)
{
    LpDtype t = wanted(d->dtype, compute);
    *convert = d->dtype != t || !lp_desc_contiguous(d);
    size_t n = (size_t)lp_desc_numel(d) * lp_dtype_size(t);
    return !*convert || reserve(total, n, off);
}

/* `d` as the core sees it. */
static LpDesc plain_desc(const LpDesc *d, LpDtype compute)
{
    return lp_desc_plain(d, wanted(d->dtype, compute));
}

static LpStatus make_plans(const LpKernelReq *r, LpPlain *p, LpErr *e)
{
    int n = 0, at = 0;
    for (int i = 0; i < LP_MAX_IN; i++)
        n += (p->convert_in >> i & 1) + (p->convert_out >> i & 1);
    if (n == 0)
        return LP_OK;
    p->plan = lp_alloc((size_t)n * sizeof *p->plan);
    LP_FAIL_IF(!p->plan, e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < r->n_in; i++)
        if (p->convert_in & 1u << i) {
            LpDesc d = plain_desc(&r->in[i], (LpDtype)p->compute);
            lp_copy_plan(&r->in[i], &d, r->threads, &p->plan[at++]);
        }
    for (int i = 0; i < r->n_out; i++)
        if (p->convert_out & 1u << i) {
            LpDesc d = plain_desc(&r->out[i], (LpDtype)p->compute);
            lp_copy_plan(&d, &r->out[i], r->threads, &p->plan[at++]);
        }
    return LP_OK;
}

LpStatus lp_plain_prepare(const LpKernelReq *r, LpKernel *k, LpPlainCore core,
                          LpDtype compute, const void *param, size_t n_param,
                          size_t core_work, LpErr *e)
{
    return lp_plain_prepare_but(r, k, core, compute, param, n_param, core_work,
                                0, 0, e);
}

LpStatus lp_plain_prepare_owned(const LpKernelReq *r, LpKernel *k,
                                LpPlainCore core, LpDtype compute,
                                LpPlainOwned own, size_t core_work, LpErr *e)
{
    LpStatus s =
        lp_plain_prepare(r, k, core, compute, &own, sizeof own, core_work, e);
    if (s == LP_OK)
        k->fini = fini_owned;
    else
        own.drop(own.state);
    return s;
}

LpStatus lp_plain_prepare_but(const LpKernelReq *r, LpKernel *k,
                              LpPlainCore core, LpDtype compute,
                              const void *param, size_t n_param,
                              size_t core_work, uint32_t as_is_in,
                              uint32_t as_is_out, LpErr *e)
{
    _Static_assert(sizeof(LpPlain) <= sizeof k->inl, "LpPlain too large");
    LpPlain *p = (void *)k->inl;
    LP_FAIL_IF(n_param > sizeof p->param || r->n_in > LP_MAX_IN ||
                   r->n_out > LP_PLAIN_MAX_OUT,
               e, LP_E_INTERNAL, "%s: kernel frame too small", r->op->name);
    *p = (LpPlain){.core = core,
                   .n_in = (uint8_t)r->n_in,
                   .n_out = (uint8_t)r->n_out,
                   .compute = (uint8_t)compute,
                   .threads = r->threads};
    if (n_param > 0)
        memcpy(p->param, param, n_param);
    size_t total = 0;
    bool ok = true, convert;
    for (int i = 0; i < r->n_in && ok; i++) {
        if (r->in[i].dtype == LP_DT_NONE || as_is_in >> i & 1)
            continue;
        ok = place(&r->in[i], compute, &total, &p->off_in[i], &convert);
        p->convert_in |= (uint16_t)(convert << i);
    }
    for (int i = 0; i < r->n_out && ok; i++) {
        if (as_is_out >> i & 1)
            continue;
        ok = place(&r->out[i], compute, &total, &p->off_out[i], &convert);
        p->convert_out |= (uint16_t)(convert << i);
    }
    ok = ok && reserve(&total, core_work, &p->core_off);
    LP_FAIL_IF(!ok, e, LP_E_MEMORY, "%s: scratch memory too large",
               r->op->name);
    LP_TRY(make_plans(r, p, e));
    k->run = plain_run;
    k->fini = p->plan ? fini : NULL;
    k->work_bytes = total;
    return LP_OK;
}
