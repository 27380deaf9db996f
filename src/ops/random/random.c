/* Random operators. A result depends on the seed, on the site of the operator
 * and on the run's counters (base/random.h); the numbers are not PyTorch's,
 * the distributions are. Counts drawn by parameters have no gradient, gamma's
 * draws have one by their shape, along which the distribution function stays
 * what it is. */
#include "src/kernel/random/random.h"

#include <math.h>

#include "src/ops/infer.h"
#include "src/ops/layout_cost.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

#define RANDOM(id, flags_, forms_, infer_, prepare_, ...)                      \
    LP_PRIMITIVE(id, forms_, infer_, prepare_, lp_rule_random,                 \
                 .flags = LP_OPF_RANDOM | LP_OPF_EXACT | (flags_),             \
                 __VA_ARGS__)
#define NO_GRAD .no_grad = "random numbers have no gradient"

/* One that fills a tensor by lp_draw_prepare. */
#define DRAW(id, flags_, forms_, infer_, grad_, draw_, ...)                    \
    static LpStatus prepare_##id(const LpKernelReq *r, LpKernel *k, LpErr *e)  \
    {                                                                          \
        LpDrawReq q = {.draw = draw_, __VA_ARGS__};                            \
        return lp_draw_prepare(r, &q, k, e);                                   \
    }                                                                          \
    RANDOM(id, flags_, forms_, infer_, prepare_##id, grad_)

static LpStatus need_float(LpInfer *x, LpDtype t)
{
    LP_FAIL_IF(!lp_is_float(t), x->err, LP_E_NOT_IMPLEMENTED,
               "%s: a floating dtype is needed, got %s", x->op->name,
               lp_dtype_name(t));
    return LP_OK;
}

/* ---- by size ------------------------------------------------------------- */
static LpStatus infer_rand(LpInfer *x)
{
    LpDtype t = lp_infer_dtype(x, 1, lp_default_dtype());
    LP_TRY(need_float(x, t));
    return lp_infer_sized(x, 0, t);
}

DRAW(rand, 0, "rand(int[] size, *, ScalarType? dtype=None) -> Tensor @fogr",
     infer_rand, NO_GRAD, LP_DRAW_UNIFORM, .b = 1)
DRAW(randn, 0, "randn(int[] size, *, ScalarType? dtype=None) -> Tensor @fogr",
     infer_rand, NO_GRAD, LP_DRAW_NORMAL, .b = 1)

static LpStatus infer_randint(LpInfer *x)
{
    LP_FAIL_IF(x->attr[LP_RANDINT_LOW].i >= x->attr[LP_RANDINT_HIGH].i, x->err,
               LP_E_RUNTIME,
               "randint: low must be less than high, got low=%lld and "
               "high=%lld",
               (long long)x->attr[LP_RANDINT_LOW].i,
               (long long)x->attr[LP_RANDINT_HIGH].i);
    return lp_infer_sized(x, LP_RANDINT_SIZE,
                          lp_infer_dtype(x, LP_RANDINT_DTYPE, LP_I64));
}

DRAW(randint, 0,
     "randint(int low, int high, int[] size, *, ScalarType? dtype=None) -> "
     "Tensor @fogr\n"
     "randint.high(int high, int[] size, *, ScalarType? dtype=None) -> Tensor "
     "@fogr ;low=0",
     infer_randint, NO_GRAD, LP_DRAW_INTEGER, .low = r->attr[LP_RANDINT_LOW].i,
     .high = r->attr[LP_RANDINT_HIGH].i)

static LpStatus infer_randperm(LpInfer *x)
{
    LP_FAIL_IF(x->attr[0].i < 0, x->err, LP_E_RUNTIME,
               "n must be non-negative, got %lld", (long long)x->attr[0].i);
    x->out[0] = (LpType){.dtype = lp_infer_dtype(x, 1, LP_I64), .ndim = 1};
    x->out[0].shape[0] = x->attr[0].i;
    return LP_OK;
}

RANDOM(randperm, 0,
       "randperm(int n, *, ScalarType? dtype=None) -> Tensor @fogr",
       infer_randperm, lp_randperm_prepare, NO_GRAD)

/* ---- like another tensor ------------------------------------------------- */
static LpVal draw_like(LpBuilder *b, int op, LpVal self, const LpAttr *dtype)
{
    LpType t = lp_type_of(b, self);
    LpAttr a[] = {lp_attr_ints(t.shape, t.ndim),
                  lp_attr_none(dtype) ? lp_attr_dtype(t.dtype) : *dtype};
    return lp_emit(b, op, NULL, 0, a);
}

LP_FORMULA(rand_like,
           "rand_like(Tensor self, *, ScalarType? dtype=None) -> Tensor @fgr")
{
    return draw_like(b, LP_OP_rand, in[0], &attr[0]);
}

LP_FORMULA(randn_like,
           "randn_like(Tensor self, *, ScalarType? dtype=None) -> Tensor @fgr")
{
    return draw_like(b, LP_OP_randn, in[0], &attr[0]);
}

LP_FORMULA(randint_like,
           "randint_like(Tensor self, int low, int high, *, ScalarType? "
           "dtype=None) -> Tensor @fgr\n"
           "randint_like.high(Tensor self, int high, *, ScalarType? "
           "dtype=None) -> Tensor @fgr ;low=0")
{
    LpType t = lp_type_of(b, in[0]);
    LpAttr a[] = {attr[0], attr[1], lp_attr_ints(t.shape, t.ndim),
                  lp_attr_none(&attr[2]) ? lp_attr_dtype(t.dtype) : attr[2]};
    return lp_emit(b, LP_OP_randint, NULL, 0, a);
}

/* ---- written over a tensor ----------------------------------------------- */
static LpStatus infer_over(LpInfer *x)
{
    LP_TRY(need_float(x, x->in[0].dtype));
    x->out[0] = x->in[0];
    return LP_OK;
}

/* What was there has no part in the result, and a count does not change with a
 * small change of a parameter: the gradient is zero. */
static void grad_over(LpGrad *g LP_UNUSED) {}

#define OVER(id, forms_, infer_, draw_, ...)                                   \
    DRAW(id, LP_OPF_INPLACE_OK, forms_, infer_, .grad = grad_over, draw_,      \
         __VA_ARGS__)

static LpStatus infer_uniform(LpInfer *x)
{
    LP_FAIL_IF(!(x->attr[LP_UNIFORM_FROM].f <= x->attr[LP_UNIFORM_TO].f),
               x->err, LP_E_RUNTIME,
               "uniform_ expects to return a [from, to) range, but found "
               "from=%g > to=%g",
               x->attr[LP_UNIFORM_FROM].f, x->attr[LP_UNIFORM_TO].f);
    return infer_over(x);
}
OVER(uniform,
     "uniform(Tensor self, float from=0.0, float to=1.0) -> Tensor @ig",
     infer_uniform, LP_DRAW_UNIFORM, .a = r->attr[LP_UNIFORM_FROM].f,
     .b = r->attr[LP_UNIFORM_TO].f)

static LpStatus infer_normal(LpInfer *x)
{
    LP_FAIL_IF(!(x->attr[LP_NORMAL_STD].f >= 0), x->err, LP_E_RUNTIME,
               "%s expects std >= 0.0, but found std %g", x->op->name,
               x->attr[LP_NORMAL_STD].f);
    return infer_over(x);
}
OVER(normal,
     "normal.over(Tensor self, float mean=0.0, float std=1.0) -> Tensor @ig",
     infer_normal, LP_DRAW_NORMAL, .a = r->attr[LP_NORMAL_MEAN].f,
     .b = r->attr[LP_NORMAL_STD].f)

static LpStatus infer_spread(LpInfer *x)
{
    bool cauchy = x->op == &op_cauchy;
    const char *name = cauchy ? "sigma" : "std";
    double spread = x->attr[cauchy ? LP_CAUCHY_SIGMA : LP_NORMAL_STD].f;
    LP_FAIL_IF(!(spread > 0), x->err, LP_E_RUNTIME,
               "%s_ expects %s > 0.0, but found %s=%g", x->op->name, name, name,
               spread);
    return infer_over(x);
}

OVER(log_normal,
     "log_normal(Tensor self, float mean=1.0, float std=2.0) -> Tensor @ig",
     infer_spread, LP_DRAW_LOG_NORMAL, .a = r->attr[LP_NORMAL_MEAN].f,
     .b = r->attr[LP_NORMAL_STD].f)

OVER(cauchy,
     "cauchy(Tensor self, float median=0.0, float sigma=1.0) -> Tensor @ig",
     infer_spread, LP_DRAW_CAUCHY, .a = r->attr[LP_CAUCHY_MEDIAN].f,
     .b = r->attr[LP_CAUCHY_SIGMA].f)

static LpStatus infer_exponential(LpInfer *x)
{
    LP_FAIL_IF(!(x->attr[0].f > 0), x->err, LP_E_RUNTIME,
               "exponential_ expects lambda > 0.0, but found lambda=%g",
               x->attr[0].f);
    return infer_over(x);
}
OVER(exponential, "exponential(Tensor self, float lambd=1.0) -> Tensor @ig",
     infer_exponential, LP_DRAW_EXPONENTIAL, .a = r->attr[0].f)

static LpStatus infer_geometric(LpInfer *x)
{
    LP_FAIL_IF(!(x->attr[0].f > 0 && x->attr[0].f < 1), x->err, LP_E_RUNTIME,
               "geometric_ expects p to be in (0, 1), but got p=%g",
               x->attr[0].f);
    x->out[0] = x->in[0];
    return LP_OK;
}
OVER(geometric, "geometric(Tensor self, float p) -> Tensor @ig",
     infer_geometric, LP_DRAW_GEOMETRIC, .a = r->attr[0].f)

static LpStatus infer_coin(LpInfer *x)
{
    LP_FAIL_IF(!(x->attr[0].f >= 0 && x->attr[0].f <= 1), x->err, LP_E_RUNTIME,
               "bernoulli_ expects p to be in [0, 1], but got p=%g",
               x->attr[0].f);
    x->out[0] = x->in[0];
    return LP_OK;
}
OVER(bernoulli_of,
     "bernoulli.p(Tensor self, float p) -> Tensor @fmg\n"
     "bernoulli.over(Tensor self, float p=0.5) -> Tensor @ig",
     infer_coin, LP_DRAW_BERNOULLI, .a = r->attr[0].f)

static LpStatus infer_trunc_normal(LpInfer *x)
{
    LP_FAIL_IF(!(x->attr[LP_NORMAL_A].f < x->attr[LP_NORMAL_B].f) ||
                   !(x->attr[LP_NORMAL_STD].f > 0),
               x->err, LP_E_VALUE,
               "trunc_normal_ expects a < b and std > 0, got a=%g, b=%g, "
               "std=%g",
               x->attr[LP_NORMAL_A].f, x->attr[LP_NORMAL_B].f,
               x->attr[LP_NORMAL_STD].f);
    return infer_over(x);
}
OVER(trunc_normal,
     "trunc_normal(Tensor self, float mean=0.0, float std=1.0, float a=-2.0, "
     "float b=2.0) -> Tensor @ig",
     infer_trunc_normal, LP_DRAW_TRUNCATED, .a = r->attr[LP_NORMAL_MEAN].f,
     .b = r->attr[LP_NORMAL_STD].f, .c = r->attr[LP_NORMAL_A].f,
     .d = r->attr[LP_NORMAL_B].f)

/* Without bounds: all integers that the type holds exactly. */
static int64_t largest(LpDtype t)
{
    switch (t) {
    case LP_F64:
        return (int64_t)1 << 53;
    case LP_F32:
        return 1 << 24;
    case LP_F16:
        return 1 << 11;
    case LP_BF16:
        return 1 << 8;
    case LP_I64:
        return INT64_MAX;
    case LP_I32:
        return INT32_MAX;
    case LP_I16:
        return INT16_MAX;
    case LP_I8:
        return INT8_MAX;
    case LP_U8:
        return UINT8_MAX;
    default:
        return 1;
    }
}

/* Canonical: both bounds given. */
static LpStatus infer_random(LpInfer *x)
{
    LpAttr *from = &x->attr[LP_RANDOM_FROM], *to = &x->attr[LP_RANDOM_TO];
    if (lp_attr_none(from))
        *from = lp_attr_int(0);
    if (lp_attr_none(to)) {
        int64_t most = largest(x->in[0].dtype);
        *to = lp_attr_int(most < INT64_MAX ? most + 1 : most);
    }
    LP_FAIL_IF(from->i >= to->i, x->err, LP_E_RUNTIME,
               "random_ expects 'from' to be less than 'to', but got from=%lld "
               ">= to=%lld",
               (long long)from->i, (long long)to->i);
    x->out[0] = x->in[0];
    return LP_OK;
}
OVER(random,
     "random.between(Tensor self, int? from=0, int? to=None) -> Tensor @p\n"
     "random.from(Tensor self, int from, int to) -> Tensor @ig\n"
     "random.to(Tensor self, int to) -> Tensor @ig ;from=0\n"
     "random(Tensor self) -> Tensor @ig ;from=0",
     infer_random, LP_DRAW_INTEGER, .low = r->attr[LP_RANDOM_FROM].i,
     .high = r->attr[LP_RANDOM_TO].i)

/* ---- by parameters ------------------------------------------------------- */
RANDOM(bernoulli, LP_OPF_COINS, "bernoulli(Tensor self) -> Tensor @fmcg",
       infer_over, lp_bernoulli_prepare, .grad = grad_over)

/* In self's shape and dtype, by a tensor of probabilities. */
LP_FORMULA(bernoulli_by,
           "bernoulli.tensor(Tensor self, Tensor p) -> Tensor @ig")
{
    LpType t = lp_type_of(b, in[0]), p = lp_type_of(b, in[1]);
    LpVal like = lp_emit(b, LP_OP_expand, &in[1], 1,
                         (LpAttr[]){lp_attr_ints(t.shape, t.ndim)});
    if (!lp_is_float(p.dtype))
        like = lp_cast(b, like, lp_default_dtype());
    return lp_cast(b, lp_op1(b, LP_OP_bernoulli, like), t.dtype);
}

/* mean + std * a standard normal of their common shape. */
LP_FORMULA(normal_tensors,
           "normal.tensors(Value mean, Value std=1.0) -> Tensor @fog")
{
    LpType t = {.dtype = lp_default_dtype()};
    for (int i = 0; i < 2; i++) {
        LpType p = lp_type_of(b, in[i]);
        if (lp_broadcast(&t, &p, b->err) != LP_OK)
            return LP_NOVAL;
        if (!lp_is_imm(in[i]))
            t.dtype = p.dtype;
    }
    LpAttr a[] = {lp_attr_ints(t.shape, t.ndim), lp_attr_dtype(t.dtype)};
    LpVal z = lp_emit(b, LP_OP_randn, NULL, 0, a);
    return lp_add(b, lp_mul(b, z, in[1]), in[0]);
}

LP_FORMULA(normal_size,
           "normal.size(float mean, float std, int[] size, *, ScalarType? "
           "dtype=None) -> Tensor @fogr")
{
    LpAttr a[] = {attr[2], attr[3]};
    if (!(attr[1].f >= 0))
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "normal expects std >= 0.0, but found std %g",
                         attr[1].f);
    LpVal z = lp_emit(b, LP_OP_randn, NULL, 0, a);
    z = lp_mul(b, z, lp_immf(b, attr[1].f));
    return lp_add(b, z, lp_immf(b, attr[0].f));
}

static LpStatus infer_multinomial(LpInfer *x)
{
    const LpType *t = &x->in[0];
    LP_FAIL_IF(!lp_is_float(t->dtype), x->err, LP_E_RUNTIME,
               "multinomial: a floating dtype is needed, got %s",
               lp_dtype_name(t->dtype));
    LP_FAIL_IF(t->ndim != 1 && t->ndim != 2, x->err, LP_E_RUNTIME,
               "prob_dist must be 1 or 2 dim, got %d", t->ndim);
    int64_t n = t->shape[t->ndim - 1],
            k = x->attr[LP_MULTINOMIAL_NUM_SAMPLES].i;
    LP_FAIL_IF(k < 1, x->err, LP_E_RUNTIME,
               "cannot sample n_sample <= 0 samples, got %lld", (long long)k);
    LP_FAIL_IF(!x->attr[LP_MULTINOMIAL_REPLACEMENT].i && k > n, x->err,
               LP_E_RUNTIME,
               "cannot sample n_sample > prob_dist.size(-1) samples without "
               "replacement: %lld of %lld",
               (long long)k, (long long)n);
    x->out[0] = *t;
    x->out[0].dtype = LP_I64;
    x->out[0].shape[t->ndim - 1] = k;
    return LP_OK;
}

RANDOM(multinomial, 0,
       "multinomial(Tensor self, int num_samples, bool replacement=False) -> "
       "Tensor @fmog",
       infer_multinomial, lp_multinomial_prepare, NO_GRAD)

RANDOM(poisson, 0, "poisson(Tensor self) -> Tensor @fg", infer_over,
       lp_poisson_prepare, .grad = grad_over)

static LpStatus infer_binomial(LpInfer *x)
{
    const LpType *n = &x->in[0], *p = &x->in[1];
    static const char *const names[] = {"count", "prob"};
    for (int i = 0; i < 2; i++)
        LP_FAIL_IF(!lp_is_float(x->in[i].dtype), x->err, LP_E_VALUE,
                   "binomial only supports floating-point dtypes for %s, got: "
                   "%s",
                   names[i], lp_dtype_name(x->in[i].dtype));
    LP_FAIL_IF(n->dtype != p->dtype, x->err, LP_E_RUNTIME,
               "binomial: prob must have the dtype of count, %s, got %s",
               lp_dtype_name(n->dtype), lp_dtype_name(p->dtype));
    x->out[0] = *n;
    return lp_broadcast(&x->out[0], p, x->err);
}

RANDOM(binomial, 0, "binomial(Tensor count, Tensor prob) -> Tensor @fg",
       infer_binomial, lp_binomial_prepare, .grad = grad_over)

static void grad_standard_gamma(LpGrad *g)
{
    g->din[0] = MUL(g->dout[0], OP2(standard_gamma_slope, g->in[0], g->out[0]));
}

RANDOM(standard_gamma, 0, "_standard_gamma(Tensor self) -> Tensor @fg",
       infer_over, lp_standard_gamma_prepare, .grad = grad_standard_gamma,
       .grad_in = 1, .grad_out = 1)
