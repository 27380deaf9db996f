/* Reductions composed of others: variance and its kin, norm, nansum, nanmean,
 * aminmax, the median of all. */
#include <math.h>
#include <string.h>

#include "src/base/log.h"
#include "src/kernel/copy/copy.h"
#include "src/ops/reduce/reduce.h"
#include "src/ops/rules.h"

/* var, std, var_mean, std_mean */
enum { DIM, UNBIASED, KEEPDIM, CORRECTION };

static double elements(const LpType *t)
{
    return (double)lp_numel(t);
}

/* Deviations from the mean, kept dimensions, in float32 for half types. */
typedef struct Spread {
    LpVal mean, apart;
    double dof; /* number of elements less the correction */
} Spread;

/* Each function says so once. */
static void warn_of_freedom(const char *name, bool *told)
{
    if (!*told)
        lp_log(LP_LOG_WARN,
               "%s(): degrees of freedom is <= 0: the correction (1 unless "
               "given) should be less than the number of elements that are "
               "reduced; the result is nan or inf",
               name);
    *told = true;
}

static Spread spread(LpBuilder *b, const LpAttr *attr, LpVal x,
                     const char *name, bool *told)
{
    Spread s = {LP_NOVAL, LP_NOVAL, 0};
    LpAttr a[3] = {attr[DIM], lp_attr_bool(true), LP_NONE_ATTR};
    double correction = 1;
    if (attr[CORRECTION].kind == LP_ATTR_SCALAR)
        correction = lp_scalar_f(attr[CORRECTION].s);
    else if (attr[UNBIASED].kind == LP_ATTR_BOOL)
        correction = attr[UNBIASED].i ? 1 : 0;
    LpDtype t = lp_type(b, x)->dtype;
    if (t == LP_F16 || t == LP_BF16)
        x = lp_cast(b, x, LP_F32);
    s.mean = lp_emit(b, LP_OP_mean, &x, 1, a);
    s.apart = lp_sub(b, x, s.mean);
    if (lp_failed(b))
        return s;
    double all = elements(lp_type(b, x)), sets = elements(lp_type(b, s.mean));
    double n = sets > 0 ? all / sets : 0;
    s.dof = n > 0 ? fmax(0, n - correction) : 0;
    if (s.dof == 0)
        warn_of_freedom(name, told);
    return s;
}

static LpVal variance(LpBuilder *b, const LpAttr *attr, const Spread *s)
{
    LpAttr a[3] = {attr[DIM], lp_attr_bool(attr[KEEPDIM].i), LP_NONE_ATTR};
    LpVal squares = lp_op1(b, LP_OP_square, s->apart);
    LpVal sum = lp_emit(b, LP_OP_sum, &squares, 1, a);
    return lp_div(b, sum, lp_immf(b, s->dof));
}

/* By the norm, whose gradient is 0 where all elements are equal. */
static LpVal deviation(LpBuilder *b, const LpAttr *attr, const Spread *s)
{
    LpAttr a[4] = {attr[DIM], lp_attr_bool(attr[KEEPDIM].i),
                   lp_attr_scalar(lp_int(2)), LP_NONE_ATTR};
    if (s->dof == 0) /* no number; neither is the gradient */
        return lp_op1(b, LP_OP_sqrt, variance(b, attr, s));
    LpVal norm = lp_emit(b, LP_OP_vector_norm, (LpVal[]){s->apart}, 1, a);
    return lp_div(b, norm, lp_immf(b, sqrt(s->dof)));
}

/* The mean as asked: without the kept dimensions unless keepdim. */
static LpVal mean_of(LpBuilder *b, const LpAttr *attr, LpVal x)
{
    LpAttr a[3] = {attr[DIM], lp_attr_bool(attr[KEEPDIM].i), LP_NONE_ATTR};
    return lp_emit(b, LP_OP_mean, &x, 1, a);
}

#define STATISTIC(name, results, flags, of, with_mean)                         \
    LP_COMPOSITE(name, #name                                                   \
                 ".own(Tensor self, int[1]? dim=None, bool? unbiased=None, "   \
                 "bool keepdim=False, Scalar? correction=None) -> " results    \
                 " @p\n" #name "(Tensor self, int[1]? dim=None, *, Scalar? "   \
                 "correction=None, bool keepdim=False) -> " results flags      \
                 "\n" #name ".dim(Tensor self, int[1]? dim, bool? "            \
                 "unbiased, bool keepdim=False) -> " results flags "\n" #name  \
                 ".all(Tensor self, bool? unbiased) -> " results " @fm")       \
    {                                                                          \
        static bool told;                                                      \
        Spread s = spread(b, attr, in[0], #name, &told);                       \
        LpVal v = of(b, attr, &s);                                             \
        if (lp_failed(b))                                                      \
            return;                                                            \
        out[0] = lp_cast(b, v, lp_type(b, in[0])->dtype);                      \
        if (with_mean)                                                         \
            out[1] = mean_of(b, attr, in[0]);                                  \
    }

STATISTIC(var, "Tensor", " @fmc", variance, false)
STATISTIC(std, "Tensor", " @fmc", deviation, false)
STATISTIC(var_mean, "(Tensor var, Tensor mean)", " @fm", variance, true)
STATISTIC(std_mean, "(Tensor std, Tensor mean)", " @fm", deviation, true)

/* torch.norm of numbers p; None is 2. */
LP_FORMULA(norm, "norm(Tensor self, Scalar? p=None, int[1]? dim=None, bool "
                 "keepdim=False, *, ScalarType? dtype=None) -> Tensor @fmo")
{
    LpAttr a[4] = {attr[1], attr[2], attr[0], attr[3]};
    if (a[LP_NORM_ORD].kind == LP_ATTR_NONE)
        a[LP_NORM_ORD] = lp_attr_scalar(lp_int(2));
    return lp_emit(b, LP_OP_vector_norm, in, 1, a);
}

/* Of two dimensions; all of a matrix when none are named. */
static LpVal nuclear(LpBuilder *b, const LpAttr *attr, LpVal x)
{
    static const int64_t last[] = {-2, -1};
    LpAttr a[4] = {attr[0], attr[1], lp_attr_bool(attr[2].i), attr[3]};
    if (a[LP_NORMS_DIM].kind == LP_ATTR_NONE && lp_type(b, x)->ndim == 2)
        a[LP_NORMS_DIM] = lp_attr_ints(last, 2);
    if (a[LP_NORMS_DIM].kind == LP_ATTR_NONE)
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "norm: p='nuc' takes a matrix, or dim with two dimensions");
    return lp_emit(b, LP_OP_matrix_norm_named, &x, 1, a);
}

/* The norms that have names: "fro" is 2 over all given dimensions. */
LP_FORMULA(norm_named,
           "norm.named(Tensor self, str p, int[1]? dim=None, bool "
           "keepdim=False, *, ScalarType? dtype=None) -> Tensor @fmo")
{
    LpAttr a[4] = {lp_attr_scalar(lp_int(2)), attr[1], attr[2], attr[3]};
    if (strcmp(attr[0].str, "nuc") == 0)
        return nuclear(b, attr, in[0]);
    if (strcmp(attr[0].str, "fro") != 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "norm: p is '%s'; it must be a number, 'fro' or 'nuc'",
                         attr[0].str);
    return value_of_norm(b, a, in, n_in);
}

LP_FORMULA(nansum,
           "nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
           "ScalarType? dtype=None) -> Tensor @fmd")
{
    LpDtype from = lp_type(b, in[0])->dtype;
    LpDtype to = attr[2].kind == LP_ATTR_DTYPE ? (LpDtype)attr[2].i : from;
    if (!lp_is_float(from))
        return lp_emit(b, LP_OP_sum, in, 1, attr);
    if (lp_is_float(to))
        return lp_emit(b, LP_OP_sum_numbers, in, 1, attr);
    LpVal nan = lp_op1(b, LP_OP_isnan, in[0]);
    LpVal x = lp_where(b, nan, lp_immi(b, 0), in[0]);
    return lp_emit(b, LP_OP_sum, &x, 1, attr);
}

LP_FORMULA(nanmean,
           "nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
           "ScalarType? dtype=None) -> Tensor @fmc")
{
    LpDtype t = lp_type(b, in[0])->dtype;
    if (!lp_is_float(t))
        return LP_REFUSE(b, LP_E_NOT_IMPLEMENTED,
                         "nanmean: the tensor has the type %s; it must be a "
                         "floating-point type",
                         lp_dtype_name(t));
    if (attr[2].kind == LP_ATTR_DTYPE && !lp_is_float((LpDtype)attr[2].i))
        return LP_REFUSE(
            b, LP_E_RUNTIME,
            "nanmean: dtype is %s; it must be a floating-point type",
            lp_dtype_name((LpDtype)attr[2].i));
    LpVal number = lp_op2(b, LP_OP_eq, in[0], in[0]);
    LpVal n = lp_emit(b, LP_OP_sum, &number, 1, attr);
    LpVal s = lp_emit(b, LP_OP_nansum, in, 1, attr);
    return lp_div(b, s, n);
}

LP_COMPOSITE(aminmax,
             "aminmax.own(Tensor self, int[1]? dim=None, bool keepdim=False) "
             "-> (Tensor min, Tensor max) @p\n"
             "aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> "
             "(Tensor min, Tensor max) @fmo")
{
    out[0] = lp_emit(b, LP_OP_amin, in, 1, attr);
    out[1] = lp_emit(b, LP_OP_amax, in, 1, attr);
}

/* ---- a number that is an element of a tensor ----------------------------- */
static LpStatus infer_shared(LpInfer *x)
{
    LP_FAIL_IF(x->in[0].ndim != 0 || x->in[0].dtype != x->in[1].dtype, x->err,
               LP_E_RUNTIME,
               "%s: m has the shape %s and the type %s; it must be a number "
               "of the tensor's type %s",
               x->op->name, lp_shape_str(&x->in[0]),
               lp_dtype_name(x->in[0].dtype), lp_dtype_name(x->in[1].dtype));
    x->out[0] = x->in[0];
    return LP_OK;
}

static LpVal equals(LpBuilder *b, LpVal x, LpVal m)
{
    LpVal nan = lp_op2(b, LP_OP_logical_and, lp_op1(b, LP_OP_isnan, x),
                       lp_op1(b, LP_OP_isnan, m));
    return lp_op2(b, LP_OP_logical_or, lp_op2(b, LP_OP_eq, x, m), nan);
}

/* As the greatest of the elements that equal m and of -infinity: the gradient
 * of an extreme is shared evenly. */
LP_EXPAND(expand_shared)
{
    LpAttr a[] = {LP_NONE_ATTR, lp_attr_bool(false)};
    LpVal x =
        lp_where(b, equals(b, in[1], in[0]), in[1], lp_immf(b, -INFINITY));
    out[0] = lp_emit(b, LP_OP_amax, &x, 1, a);
}

static void grad_shared(LpGrad *g)
{
    LpVal hit = equals(g->b, Y, X);
    LpVal hits = lp_cast(g->b, hit, lp_type(g->b, DY)->dtype);
    LpVal n = lp_sum(g->b, hits, NULL, 0, false);
    g->din[1] = WHERE(hit, DIV(DY, n), K(0));
}

static LP_KERNEL_PREPARE(prepare_shared)
{
    return lp_copy_kernel(&r->in[0], 0, &r->out[0], r->threads, k);
}

/* m; its gradient goes to self. */
LP_PRIMITIVE(shared, "shared(Tensor m, Tensor self) -> Tensor @p", infer_shared,
             prepare_shared, NULL, .kind = LP_OP_FUSED, .expand = expand_shared,
             .grad = grad_shared, .grad_in = 3)

LpVal lp_reduce_shared(LpBuilder *b, LpVal x, LpVal m)
{
    if (lp_failed(b) || !lp_is_float(lp_type(b, x)->dtype))
        return m;
    return lp_op2(b, LP_OP_shared, m, x);
}

/* ---- median -------------------------------------------------------------- */
static LpScalar least(LpDtype t)
{
    return lp_is_float(t) ? lp_float(NAN)
           : t == LP_I64  ? lp_int(INT64_MIN)
           : t == LP_I32  ? lp_int(INT32_MIN)
                          : lp_int(0);
}

/* Of no elements: NaN, or what it becomes as an integer. */
LP_FORMULA(median, "median(Tensor self) -> Tensor @fm")
{
    LpAttr a[2] = {lp_attr_int(0), lp_attr_bool(false)};
    LpVal both[2];
    int64_t flat = -1;
    LpType t = *lp_type(b, in[0]);
    if (lp_numel(&t) == 0) {
        LpType one = {.dtype = t.dtype};
        LpVal sum = lp_sum(b, in[0], NULL, 0, false);
        LpVal none = lp_full(b, &one, least(t.dtype));
        return lp_is_float(t.dtype) ? lp_regardless(b, none, sum) : none;
    }
    LpVal x = lp_op1(b, LP_OP_detach, lp_reshape(b, in[0], &flat, 1));
    return lp_emit_n(b, LP_OP_median_dim, &x, 1, a, both)
               ? lp_reduce_shared(b, in[0], both[0])
               : LP_NOVAL;
}
