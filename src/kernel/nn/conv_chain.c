/* See conv_chain.h. Of the chain's nodes the first ones are steps
 * (conv_steps.h), if they can be, and the rest runs on parts of the result.
 * Where a convolution takes neither (conv_kernel.c), its result is whole before
 * the chain begins. */
#include "src/kernel/nn/conv_chain.h"

#include <string.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/kernel/state.h"

bool lp_conv_chain_pays(const LpType *x, const LpAttr *a)
{
    return lp_cpu_simd() == LP_SIMD_AVX2 && x->dtype == LP_F32 &&
           x->ndim == 4 && !a[LP_CONV_TRANSPOSED].i;
}

/* Scratch: the convolution's, then the chain's of each thread. */
typedef struct Both {
    LpKernel conv, chain; /* `chain`: of what no step does */
    int at, n_ext, n_out;
    LpConvSteps steps;
    LpConvStepArgs arg[LP_CONV_STEPS];
    bool whole;                        /* the steps are all */
    int n_ahead, ahead[LP_CONV_AHEAD]; /* externals, then results */
    size_t off, each;
} Both;

typedef struct Told {
    const Both *b;
    void *const *in, *const *out;
    char *work;
    const LpRunCtx *rc;
} Told;

static void run_part(const LpConvThen *then, const float *made, int64_t from,
                     int64_t to, int thread)
{
    const Told *t = then->with;
    void *in[LP_FUSED_MAX_EXT];
    memcpy(in, t->in, (size_t)t->b->n_ext * sizeof *in);
    /* as if all elements before were there */
    in[t->b->at] =
        (char *)(uintptr_t)made - (then->first + from) * (int64_t)sizeof *made;
    lp_fused_part(&t->b->chain, in, t->out,
                  t->work + (size_t)thread * t->b->each, t->rc,
                  then->first + from, then->first + to);
}

static const float *external(void *const *in, int i)
{
    return i < 0 ? NULL : in[i];
}

static LpConvThen then_of(const Both *b, void *const *in, void *const *out)
{
    LpConvThen then = {.steps = b->steps, .n_ahead = b->n_ahead};
    for (int i = 0; i < b->steps.n; i++) {
        then.steps.step[i].scale = external(in, b->arg[i].scale);
        then.steps.step[i].shift = external(in, b->arg[i].shift);
        then.steps.step[i].image = external(in, b->arg[i].image);
    }
    for (int i = 0; i < b->n_ahead; i++)
        then.ahead[i] = b->ahead[i] < b->n_ext ? in[b->ahead[i]]
                                               : out[b->ahead[i] - b->n_ext];
    return then;
}

LP_KERNEL_RUN(run)
{
    const Both *b = k->state;
    void *const *operands = in + b->n_ext;
    void *result = in[b->at];
    Told t = {b, in, out, (char *)work + b->off, rc};
    if (lp_conv_tells(&b->conv)) {
        LpConvThen then = then_of(b, in, out);
        then.with = &t;
        then.run = b->whole ? NULL : run_part;
        return lp_conv_run_then(&b->conv, operands, b->whole ? out[0] : result,
                                &then, work, e);
    }
    LP_TRY(b->conv.run(&b->conv, operands, &result, work, rc, e));
    return b->chain.run(&b->chain, in, out, t.work, rc, e);
}

static void drop(void *state)
{
    Both *b = state;
    lp_kernel_fini(&b->conv);
    lp_kernel_fini(&b->chain);
    lp_free(b);
}

static void set_scratch(LpKernel *k)
{
    Both *b = k->state;
    b->each = b->whole ? 0 : (lp_fused_work(&b->chain) + 63) / 64 * 64;
    b->off = (b->conv.work_bytes + 63) / 64 * 64;
    k->work_bytes = b->off + (size_t)k->threads * b->each;
}

/* Operands and results of the chain that lie as the convolution's result. */
static void find_images(const LpFusedReq *chain, Both *b)
{
    int n = chain->n_ext + chain->n_out;
    for (int i = 0; i < n && b->n_ahead < LP_CONV_AHEAD; i++) {
        const LpDesc *d =
            i < chain->n_ext ? &chain->ext[i] : &chain->out[i - chain->n_ext];
        if (i != b->at && d->dtype == LP_F32 &&
            lp_desc_numel(d) == lp_desc_numel(chain->out))
            b->ahead[b->n_ahead++] = i;
    }
}

/* The nodes that are not taken; what the steps make is external `at`. */
static LpFusedReq rest_of(const LpFusedReq *chain, int at,
                          const bool taken[LP_FUSED_MAX_NODE], int value,
                          LpFusedNode node[LP_FUSED_MAX_NODE])
{
    int number[LP_FUSED_MAX_NODE], n = 0;
    for (int k = 0; k < chain->n_node; k++) {
        if (taken[k])
            continue;
        LpFusedNode *f = &node[n];
        *f = chain->node[k];
        for (int i = 0; i < f->n_in; i++) {
            LpFusedArg *a = &f->in[i];
            if (a->from == LP_FUSED_NODE && a->at == value)
                *a = (LpFusedArg){.from = LP_FUSED_EXT, .at = at};
            else if (a->from == LP_FUSED_NODE)
                a->at = number[a->at];
        }
        number[k] = n++;
    }
    LpFusedReq rest = *chain;
    rest.node = node;
    rest.n_node = n;
    return rest;
}

/* Divides the chain between steps and the rest, if the convolution tells. */
static LpStatus prepare_chain(Both *b, const LpFusedReq *chain, LpErr *e)
{
    bool taken[LP_FUSED_MAX_NODE] = {false};
    LpFusedNode node[LP_FUSED_MAX_NODE];
    int value = -1;
    if (!lp_conv_tells(&b->conv))
        return lp_fused_prepare(chain, &b->chain, e);
    lp_conv_find_steps(chain, b->at, &b->steps, b->arg, taken, &value);
    if (value >= 0 && chain->node[value].out >= 0) {
        bool all = chain->n_out == 1;
        for (int k = 0; k < chain->n_node; k++)
            all &= taken[k];
        b->whole = all;
        if (!all) /* what is stored is made by the chain itself */
            b->steps.n = 0;
    }
    if (b->whole)
        return LP_OK;
    LpFusedReq rest =
        b->steps.n > 0 ? rest_of(chain, b->at, taken, value, node) : *chain;
    return lp_fused_prepare(&rest, &b->chain, e);
}

LpStatus lp_conv_chain_prepare(const LpKernelReq *conv, const LpFusedReq *chain,
                               int at, LpKernel *k, LpErr *e)
{
    Both *b = lp_calloc(1, sizeof *b);
    LP_FAIL_IF(!b, e, LP_E_MEMORY, "out of memory");
    b->conv.threads = conv->threads;
    b->at = at;
    b->n_ext = chain->n_ext;
    LpStatus s = lp_conv_prepare(conv, &b->conv, e);
    if (s == LP_OK)
        s = prepare_chain(b, chain, e);
    if (s != LP_OK) {
        drop(b);
        return s;
    }
    find_images(chain, b);
    lp_kernel_own(b, drop, run, k);
    k->threads = (int)lp_max(b->conv.threads, b->chain.threads);
    set_scratch(k);
    return LP_OK;
}

bool lp_conv_chain_take_packing(LpKernel *k, LpKernel *pack, LpKernel *unpack,
                                size_t *bytes)
{
    if (k->run != run)
        return false;
    Both *b = k->state;
    if (!lp_conv_take_packing(&b->conv, pack, unpack, bytes))
        return false;
    set_scratch(k);
    return true;
}
