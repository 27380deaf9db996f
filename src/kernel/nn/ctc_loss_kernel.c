/* Connectionist temporal classification: minus the log-likelihood of labels
 * under all their alignments with the steps.
 *
 * source: Graves et al. 2006, section 4.1, in logarithms. Places are the labels
 * with blanks around each; alpha[t][s] are the alignments of the first steps
 * that are at place s in step t. Every row is less its largest, and what was
 * taken away adds up in float64: float32 stays exact, however long the input.
 * The gradient goes through the steps backwards with such rows of what follows
 * a step; products of both, by their sum, are the shares of the places,
 * whatever was taken away.
 *
 * The gradient is PyTorch's, which is the one that the logits get, log_softmax
 * included: the class's probability less its places' shares. Where the last
 * label is the blank itself (which labels may not be) the last step keeps the
 * label's share alone; where no alignment fits it is NaN, or 0 with
 * zero_infinity. */
#include <math.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/nn/ctcloops.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/plain.h"

typedef struct Ctc {
    int64_t steps, batch, classes, most; /* labels of a row of targets */
    int32_t blank;
    bool zero_infinity, twice;
    size_t one; /* bytes of work that a sample needs */
} Ctc;

/* ---- a sample ------------------------------------------------------------ */
/* Sample i; its labels are written to `label`. */
static LpCtcSample sample_of(const Ctc *q, const int64_t *targets,
                             const int64_t *steps, const int64_t *lengths,
                             int64_t i, int32_t *label)
{
    LpCtcSample x = {.steps = steps[i],
                     .stride = q->batch * q->classes,
                     .classes = q->classes,
                     .places = 2 * lengths[i] + 1,
                     .row = 2 * q->most + 1,
                     .blank = q->blank,
                     .label = label};
    for (int64_t s = 0; s < lp_ctc_wide(x.places); s++)
        label[s] = s % 2 == 1 && s < x.places
                       ? (int32_t)targets[i * q->most + s / 2]
                       : q->blank;
    return x;
}

static LpStatus check(const Ctc *q, const int64_t *targets,
                      const int64_t *steps, const int64_t *lengths, LpErr *e)
{
    for (int64_t i = 0; i < q->batch; i++) {
        LP_FAIL_IF(steps[i] < 0 || steps[i] > q->steps, e, LP_E_RUNTIME,
                   "ctc_loss: input_lengths must be from 0 to %lld, got %lld",
                   (long long)q->steps, (long long)steps[i]);
        LP_FAIL_IF(lengths[i] < 0 || lengths[i] > q->most, e, LP_E_RUNTIME,
                   "ctc_loss: target_lengths must be from 0 to %lld, the "
                   "length of a row of targets, got %lld",
                   (long long)q->most, (long long)lengths[i]);
        for (int64_t s = 0; s < lengths[i]; s++) {
            int64_t c = targets[i * q->most + s];
            LP_FAIL_IF(c < 0 || c >= q->classes, e, LP_E_RUNTIME,
                       "ctc_loss: targets: label %lld of sample %lld is %lld, "
                       "allowed are 0 to %lld",
                       (long long)s, (long long)i, (long long)c,
                       (long long)q->classes - 1);
        }
    }
    return LP_OK;
}

static void fill(LpDtype t, void *p, int64_t n, double v)
{
    for (int64_t i = 0; i < n; i++)
        lp_real_set(t, p, i, v);
}

static void *at(LpDtype t, void *p, int64_t i)
{
    return (char *)p + (size_t)i * lp_dtype_size(t);
}

/* What one sample has of the work: labels, then the loops' own. */
static void *own_work(const Ctc *q, void *work, int thread, int32_t **label)
{
    *label = (void *)((char *)work + (size_t)thread * q->one);
    return (char *)*label +
           (size_t)lp_ctc_wide(2 * q->most + 1) * sizeof(int32_t);
}

/* ---- the loss ------------------------------------------------------------ */
/* (logp, targets, lengths of both) -> loss, alpha */
static void forward(const Ctc *q, LpDtype t, int64_t i, const LpCtcSample *x,
                    void *const *in, void *const *out, void *work)
{
    const LpCtcLoops *l = LP_SIMD_PICK(lp_ctc);
    const void *logp = at(t, in[0], i * q->classes);
    void *alpha = at(t, out[1], i * q->steps * x->row);
    double loss = t == LP_F64 ? l->f64.forward(x, logp, alpha, work)
                              : l->f32.forward(x, logp, alpha, work);
    if (q->zero_infinity && loss == (double)INFINITY)
        loss = 0;
    lp_real_set(t, out[0], i, loss);
    for (int64_t s = 0; s < q->steps; s++) { /* what is not used */
        int64_t used = s < x->steps ? x->places : 0;
        fill(t, at(t, alpha, s * x->row + used), x->row - used,
             -(double)INFINITY);
    }
}

LP_PLAIN_CORE(forward_core)
{
    const Ctc *q = (const void *)p->param;
    LpDtype t = (LpDtype)p->compute;
    LP_TRY(check(q, in[1], in[2], in[3], e));
    int threads = lp_plain_width(p, q->batch * q->steps * q->most * 8);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int k = 0; k < threads; k++)
        for (int64_t i = k; i < q->batch && !lp_kernel_stops(); i += threads) {
            int32_t *label;
            void *own = own_work(q, work, k, &label);
            LpCtcSample x = sample_of(q, in[1], in[2], in[3], i, label);
            forward(q, t, i, &x, in, out, own);
        }
    return LP_OK;
}

/* ---- its gradients ------------------------------------------------------- */
/* (grad, logp, targets, lengths of both, alpha) -> dlogp. With a seventh
 * operand v, the gradient of <v, dlogp> by logp, which is dlogp's derivative
 * along v: it is a matrix of second derivatives, and symmetric. */
static void backward(const Ctc *q, LpDtype t, int64_t i, const LpCtcSample *x,
                     void *const *in, void *const *out, void *work)
{
    const LpCtcLoops *l = LP_SIMD_PICK(lp_ctc);
    double g = lp_real_at(t, in[0], i);
    const void *logp = at(t, in[1], i * q->classes);
    const void *alpha = at(t, in[5], i * q->steps * x->row);
    const void *v = q->twice ? at(t, in[6], i * q->classes) : NULL;
    void *d = at(t, out[0], i * q->classes);
    bool fits;
    if (t == LP_F64)
        fits = v ? l->f64.along(x, logp, alpha, v, g, d, work)
                 : l->f64.backward(x, logp, alpha, g, d, work);
    else
        fits = v ? l->f32.along(x, logp, alpha, v, (float)g, d, work)
                 : l->f32.backward(x, logp, alpha, (float)g, d, work);
    for (int64_t s = fits ? x->steps : 0; s < q->steps; s++)
        fill(t, at(t, d, s * x->stride), q->classes,
             s >= x->steps || q->zero_infinity ? 0 : (double)NAN);
}

LP_PLAIN_CORE(backward_core)
{
    const Ctc *q = (const void *)p->param;
    LpDtype t = (LpDtype)p->compute;
    LP_TRY(check(q, in[2], in[3], in[4], e));
    int threads = lp_plain_width(p, q->batch * q->steps * q->most * 8);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int k = 0; k < threads; k++)
        for (int64_t i = k; i < q->batch && !lp_kernel_stops(); i += threads) {
            int32_t *label;
            void *own = own_work(q, work, k, &label);
            LpCtcSample x = sample_of(q, in[2], in[3], in[4], i, label);
            backward(q, t, i, &x, in, out, own);
        }
    return LP_OK;
}

/* ---- preparing ----------------------------------------------------------- */
static LpStatus prepare(const LpKernelReq *r, int logp, LpPlainCore core,
                        LpKernel *k, LpErr *e)
{
    const LpDesc *x = &r->in[logp];
    Ctc q = {.steps = x->shape[0],
             .batch = x->shape[1],
             .classes = x->shape[2],
             .most = r->in[logp + 1].shape[1],
             .blank = (int32_t)r->attr[LP_CTC_LOSS_BLANK].i,
             .zero_infinity = r->attr[LP_CTC_LOSS_ZERO_INFINITY].i != 0,
             .twice = r->n_in == 7};
    LpDtype t = lp_plain_type(x->dtype);
    int64_t places = 2 * q.most + 1, own = lp_ctc_work(places, q.classes);
    own += q.twice ? lp_ctc_work_along(q.steps, places) : 0;
    q.one = (size_t)lp_ctc_wide(places) * sizeof(int32_t) +
            ((size_t)own * lp_dtype_size(t) + 63) / 64 * 64;
    return lp_plain_prepare(r, k, core, t, &q, sizeof q,
                            (size_t)r->threads * q.one, e);
}

LP_PREPARE_AS(lp_ctc_loss_prepare, prepare(r, 0, forward_core, k, e))
LP_PREPARE_AS(lp_ctc_loss_back_prepare, prepare(r, 1, backward_core, k, e))
