/* The driver of the optimizers' updates. Operands that are not contiguous are
 * copied first; then blocks of BLOCK elements go through the loop, split over
 * threads. Types other than the one computed in (double for a double
 * parameter, else float) are converted block by block on the stack; halves that
 * round at random, lamb's but for that, do so there. Numbers are read when the
 * kernel runs. */
#include "src/kernel/loops/optim.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "src/kernel/plain.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"

#define BLOCK 1024
#define PARALLEL (1 << 15) /* elements */
#define MAX_IN 5
#define MAX_OUT 4
#define MAX_NUMBERS 9

/* Where numbers and flags go in LpOptimNumbers. */
typedef struct Places {
    int n;
    uint8_t number[MAX_NUMBERS], flag[MAX_NUMBERS];
} Places;

typedef struct Update {
    LpOptimLoop loop;
    const Places *places;
    int n_in, n_out; /* tensors: the first operands, the first results */
    int n_results;   /* of the operator; lamb's direction is one more */
    bool has_in[MAX_IN], has_out[MAX_OUT];
    LpDesc in[MAX_IN], out[MAX_OUT];
    bool copy_in[MAX_IN], copy_out[MAX_OUT]; /* not contiguous */
    LpDesc number[MAX_NUMBERS];
    LpDtype type;         /* computed in */
    LpOptimNumbers flags; /* without the numbers */
    int64_t n;
    int threads;
    bool lamb;
    uint64_t site; /* of results that round at random; 0: to nearest */
} Update;

static const LpOptimLoops *loops(LpDtype t)
{
    return &LP_SIMD_PICK(lp_optim)[t == LP_F64];
}

/* ---- blocks -------------------------------------------------------------- */
/* One block of an operand in the type computed in. */
static const void *load(const Update *u, int k, const char *p, int64_t at,
                        int64_t n, double *buf)
{
    LpDtype t = u->in[k].dtype;
    const char *from = p + at * (int64_t)lp_dtype_size(t);
    if (t == u->type)
        return from;
    lp_convert(t, from, 1, u->type, buf, 1, n);
    return buf;
}

/* One block of a result from what it was computed in. */
static void store(const Update *u, int k, const LpRunCtx *rc, int64_t at,
                  int64_t n, const double *buf, char *p)
{
    LpDtype t = u->out[k].dtype;
    char *to = p + at * (int64_t)lp_dtype_size(t);
    if (!u->site || !lp_is_half(t)) {
        lp_convert(u->type, buf, 1, t, to, 1, n);
        return;
    }
    float narrow[BLOCK];
    const float *x = (const float *)buf;
    LpRandom r = lp_rounding_stream(rc, u->site, k);
    if (u->type != LP_F32) {
        lp_convert(u->type, buf, 1, LP_F32, narrow, 1, n);
        x = narrow;
    }
    lp_store_at_random(&r, t, (uint64_t)at, n, x, (uint16_t *)(void *)to);
}

static void run_block(const Update *u, char *const *in, char *const *out,
                      int64_t at, int64_t n, const LpOptimNumbers *c,
                      const LpRunCtx *rc)
{
    double in_buf[MAX_IN][BLOCK], out_buf[MAX_OUT][BLOCK];
    const void *pi[MAX_IN] = {NULL};
    void *po[MAX_OUT] = {NULL};
    for (int k = 0; k < u->n_in; k++)
        if (u->has_in[k])
            pi[k] = load(u, k, in[k], at, n, in_buf[k]);
    for (int k = 0; k < u->n_out; k++)
        if (u->has_out[k])
            po[k] = u->out[k].dtype == u->type
                        ? out[k] + at * (int64_t)lp_dtype_size(u->type)
                        : (char *)out_buf[k];
    u->loop(n, pi, po, c);
    for (int k = 0; k < u->n_out; k++)
        if (u->has_out[k] && u->out[k].dtype != u->type)
            store(u, k, rc, at, n, out_buf[k], out[k]);
}

static void run_blocks(const Update *u, char *const *in, char *const *out,
                       const LpOptimNumbers *c, const LpRunCtx *rc)
{
    int64_t blocks = (u->n + BLOCK - 1) / BLOCK;
    int threads = u->n < PARALLEL ? 1 : u->threads;
    if (blocks == 1) {
        run_block(u, in, out, 0, u->n, c, rc);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t at = i * BLOCK, left = u->n - at;
        run_block(u, in, out, at, left < BLOCK ? left : BLOCK, c, rc);
    }
}

/* ---- lamb's second half -------------------------------------------------- */
/* Euclidean norm, by blocks of fixed size: the same for any width. */
static double norm(const Update *u, const LpDesc *d, const char *p)
{
    double sum = 0, buf[BLOCK];
    for (int64_t at = 0; at < u->n; at += BLOCK) {
        int64_t n = u->n - at < BLOCK ? u->n - at : BLOCK;
        double part = 0;
        lp_convert(d->dtype, p + at * (int64_t)lp_dtype_size(d->dtype), 1,
                   LP_F64, buf, 1, n);
        for (int64_t i = 0; i < n; i++)
            part += buf[i] * buf[i];
        sum += part;
    }
    return sqrt(sum);
}

/* p -= lr min(|p|, most) / |x| x, the ratio 1 if a norm or most is 0. */
static void lamb_apply(const Update *u, const char *p, const char *x, char *out,
                       double lr, double most)
{
    double wn = norm(u, &u->in[0], p);
    LpDesc xd = {.dtype = u->type};
    double xn = norm(u, &xd, x);
    bool plain = wn == 0 || xn == 0 || most == 0;
    double ratio = plain ? 1 : (wn < most ? wn : most) / xn;
    double buf[BLOCK];
    LpDtype t = u->in[0].dtype, o = u->out[0].dtype;
    for (int64_t at = 0; at < u->n; at += BLOCK) {
        int64_t n = u->n - at < BLOCK ? u->n - at : BLOCK;
        lp_convert(t, p + at * (int64_t)lp_dtype_size(t), 1, LP_F64, buf, 1, n);
        for (int64_t i = 0; i < n; i++)
            buf[i] -= lr * ratio * lp_real_at(u->type, x, at + i);
        lp_convert(LP_F64, buf, 1, o, out + at * (int64_t)lp_dtype_size(o), 1,
                   n);
    }
}

/* ---- the kernel ---------------------------------------------------------- */
/* A float32 is taken for the number of seven decimals that it is the nearest
 * to, if there is one: of what is left of 1 by the float32 beside 0.999 5e-5
 * would be wrong. As a float32 it stays what it is. */
static double read_number(const LpDesc *d, const void *p)
{
    double x = d->is_imm ? lp_scalar_f(d->imm)
                         : lp_scalar_f(lp_scalar_load(d->dtype, p));
    double written = nearbyint(x * 1e7) / 1e7;
    bool stands = !d->is_imm && d->dtype == LP_F32 && (float)written == x;
    return stands ? written : x;
}

/* mu(t) = beta1 (1 - 0.96^(t decay) / 2); mu_product is that of all so far. */
static double mu_at(const LpOptimNumbers *c, double t)
{
    return c->beta1 * (1 - 0.5 * pow(0.96, t * c->momentum_decay));
}

static void find_nadam(LpOptimNumbers *c)
{
    double mu = mu_at(c, c->step), next = mu_at(c, c->step + 1);
    c->of_grad = c->lr * (1 - mu) / (1 - c->mu_product);
    c->of_moment = c->lr * next / (1 - c->mu_product * next);
    c->bias_correction = true;
}

static LpOptimNumbers read_numbers(const Update *u, void *const *in)
{
    LpOptimNumbers c = u->flags;
    for (int i = 0; i < u->places->n; i++) {
        double x = read_number(&u->number[i], in[u->n_in + i]);
        memcpy((char *)&c + u->places->number[i], &x, sizeof x);
    }
    c.lr /= 1 + (c.step - 1) * c.lr_decay;
    if (c.mu_product != 0)
        find_nadam(&c);
    c.rate = u->lamb ? 1 : c.lr;
    c.root = 1;
    if (c.bias_correction) {
        c.rate /= 1 - pow(c.beta1, c.step);
        c.root /= sqrt(1 - pow(c.beta2, c.step));
    }
    c.keep = 1 - c.lr * c.weight_decay;
    c.grad_scale = c.maximize ? -c.grad_scale : c.grad_scale;
    /* moments in units of the scale: so is all that meets them */
    c.grad_scale *= c.state_scale;
    c.eps *= c.state_scale;
    c.weight_decay *= c.decoupled ? 1 : c.state_scale;
    return c;
}

/* Results are what their operands are: the parameter, then the last states. */
static void keep_all(const Update *u, void *const *in, void *const *out)
{
    for (int i = 0; i < u->n_results; i++) {
        int from = i == 0 ? 0 : u->n_in - u->n_results + i;
        if (u->has_in[from] && out[i] != in[from])
            lp_copy_strided(&u->in[from], in[from], &u->out[i], out[i]);
    }
}

/* work: contiguous copies, then lamb's direction */
LP_KERNEL_RUN(run_update)
{
    const Update *u = k->state;
    LpOptimNumbers c = read_numbers(u, in);
    if (isinf(c.grad_scale)) {
        keep_all(u, in, out);
        return LP_OK;
    }
    char *pi[MAX_IN] = {NULL}, *po[MAX_OUT] = {NULL}, *next = work;
    for (int i = 0; i < u->n_in; i++) {
        pi[i] = in[i];
        if (!u->copy_in[i])
            continue;
        LpDesc to = lp_desc_plain(&u->in[i], u->in[i].dtype);
        lp_copy_strided(&u->in[i], in[i], &to, next);
        pi[i] = next;
        next += u->n * 8;
    }
    for (int i = 0; i < u->n_out && !(u->lamb && i == 3); i++) {
        po[i] = out[i];
        if (!u->copy_out[i])
            continue;
        po[i] = next;
        next += u->n * 8;
    }
    if (u->lamb)
        po[3] = next;
    run_blocks(u, pi, po, &c, rc);
    if (u->lamb)
        lamb_apply(u, pi[0], po[3], po[0], c.lr, c.max_weight_norm);
    for (int i = 0; i < u->n_out; i++)
        if (u->copy_out[i]) {
            LpDesc from = lp_desc_plain(&u->out[i], u->out[i].dtype);
            lp_copy_strided(&from, po[i], &u->out[i], out[i]);
        }
    return LP_OK;
}

/* The operands are tensors and then numbers, the results tensors. */
static LpStatus update(const LpKernelReq *r, const Places *places, LpKernel *k,
                       LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Update), run_update, k, e));
    Update *u = k->state;
    int n_in = r->n_in - places->n, n_out = r->op->n_results;
    u->places = places;
    u->n_in = n_in;
    u->n_out = u->n_results = n_out;
    u->n = lp_desc_numel(&r->in[0]);
    u->threads = r->threads;
    u->flags.state_scale = 1;
    u->site = lp_call_rounds(r) ? r->site : 0;
    u->type = r->in[0].dtype == LP_F64 ? LP_F64 : LP_F32;
    for (int i = 0; i < n_in; i++) {
        u->in[i] = r->in[i];
        u->has_in[i] = r->in[i].dtype != LP_DT_NONE;
        u->copy_in[i] = u->has_in[i] && !lp_desc_contiguous(&r->in[i]);
        k->work_bytes += u->copy_in[i] ? (size_t)u->n * 8 : 0;
    }
    for (int i = 0; i < n_out; i++) {
        u->out[i] = r->out[i];
        u->has_out[i] = i == 0 || lp_desc_numel(&r->out[i]) == u->n;
        u->copy_out[i] = u->has_out[i] && !lp_desc_contiguous(&r->out[i]);
        k->work_bytes += u->copy_out[i] ? (size_t)u->n * 8 : 0;
    }
    for (int i = 0; i < places->n; i++)
        u->number[i] = r->in[n_in + i];
    for (int i = 0; i < r->op->n_attr; i++)
        *((bool *)&u->flags + places->flag[i]) = r->attr[i].i != 0;
    return LP_OK;
}

/* The direction comes from the blocks, in scratch; the parameter is written by
 * lamb_apply, as its norm has to be known first. */
static void split_lamb(Update *u, LpKernel *k)
{
    u->lamb = true;
    u->has_out[0] = false;
    u->n_out = 4;
    u->has_out[3] = true;
    u->out[3].dtype = u->type;
    k->work_bytes += (size_t)u->n * 8;
}

static LpStatus set_loop(Update *u, LpOptimLoop loop, LpKernel *k)
{
    u->loop = loop;
    if (loop == loops(u->type)->lamb)
        split_lamb(u, k);
    return LP_OK;
}

/* ---- one prepare hook each ----------------------------------------------- */
#define NONE(...)
#define FIELD(name, value) offsetof(LpOptimNumbers, name),
#define NUMBERS(name) LP_OPTIM_##name(NONE, NONE, FIELD, NONE, NONE)
#define FLAGS(name) LP_OPTIM_##name(NONE, NONE, NONE, NONE, FIELD)
#define PREPARE(name)                                                          \
    LP_KERNEL_PREPARE(lp_##name##_step_prepare)                                \
    {                                                                          \
        static const Places places = {sizeof(uint8_t[]){NUMBERS(name)},        \
                                      {NUMBERS(name)},                         \
                                      {FLAGS(name) 0}};                        \
        LP_TRY(update(r, &places, k, e));                                      \
        Update *u = k->state;                                                  \
        return set_loop(u, loops(u->type)->name, k);                           \
    }
LP_OPTIMIZERS(PREPARE)
