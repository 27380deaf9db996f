/* Operators whose result's size depends on the data: they run eagerly, and
 * tracing refuses them by name. The shape rule gives an upper bound, `measure`
 * the size for the data at hand. */
#include "src/kernel/copy/hooks.h"
#include "src/ops/index/index.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* ---- nonzero ------------------------------------------------------------- */
static LpStatus infer_nonzero(LpInfer *x)
{
    x->out[0] = (LpType){.dtype = LP_I64,
                         .ndim = 2,
                         .shape = {lp_numel(&x->in[0]), x->in[0].ndim}};
    return LP_OK;
}

LP_PRIMITIVE(nonzero,
             "nonzero(Tensor self) -> Tensor @fmo\n"
             "argwhere(Tensor self) -> Tensor @fm",
             infer_nonzero, lp_nonzero_prepare, NULL, .flags = LP_OPF_DYNAMIC,
             .no_grad = "positions have no gradient",
             .measure = lp_nonzero_measure)

/* ---- unique -------------------------------------------------------------- */
/* Distinct values, or distinct slices along dim; sorted, unless only
 * neighbours are compared. An inverse or counts that are not asked for have
 * no elements. */
static LpStatus infer_unique(LpInfer *x)
{
    const LpType *in = &x->in[0];
    LpAttr *dim = &x->attr[LP_UNIQUE_DIM];
    LpType flat = {.dtype = in->dtype, .ndim = 1, .shape = {lp_numel(in)}};
    x->out[0] = flat;
    x->out[1] = *in;
    x->out[2] = flat;
    if (!lp_attr_none(dim)) {
        LP_TRY(lp_wrap_dim(&dim->i, in->ndim, x->err));
        if (in->ndim > 0) {
            x->out[0] = *in;
            x->out[1] = x->out[2] = (LpType){.ndim = 1};
            x->out[1].shape[0] = x->out[2].shape[0] = in->shape[dim->i];
        }
    }
    LpType none = {.ndim = 1};
    if (!x->attr[LP_UNIQUE_RETURN_INVERSE].i)
        x->out[1] = none;
    if (!x->attr[LP_UNIQUE_RETURN_COUNTS].i)
        x->out[2] = none;
    x->out[1].dtype = x->out[2].dtype = LP_I64;
    return LP_OK;
}

LP_PRIMITIVE(unique_all,
             "unique_all(Tensor self, bool consecutive=False, int? dim=None, "
             "bool return_inverse=True, bool return_counts=True) "
             "-> (Tensor output, Tensor inverse_indices, Tensor counts) @f",
             infer_unique, lp_unique_prepare, NULL, .flags = LP_OPF_DYNAMIC,
             .no_grad = "distinct values have no gradient",
             .measure = lp_unique_measure)

/* ---- repeat_interleave --------------------------------------------------- */
/* Position i as often as element i says. */
static LpStatus infer_repeat(LpInfer *x)
{
    LP_TRY(lp_check_index(x, 0, "repeats"));
    LP_FAIL_IF(x->in[0].ndim != 1, x->err, LP_E_RUNTIME,
               "repeats must have 1 dimension, got %d", x->in[0].ndim);
    x->out[0] = (LpType){.dtype = LP_I64, .ndim = 1};
    return LP_OK;
}

LP_PRIMITIVE(repeat_interleave_any,
             "repeat_interleave.positions(Tensor repeats) -> Tensor @p",
             infer_repeat, lp_repeat_prepare, NULL, .flags = LP_OPF_DYNAMIC,
             .no_grad = "positions have no gradient",
             .measure = lp_repeat_measure)

/* ---- bincount ------------------------------------------------------------ */
static LpStatus counted(const LpType *in, const LpType *w, int64_t minlength,
                        LpType *out, LpErr *e)
{
    bool weighted = w && w->dtype != LP_DT_NONE;
    bool real = lp_dtype_kind(in->dtype) == LP_KIND_FLOAT;
    LP_FAIL_IF(in->ndim != 1 || real, e,
               real ? LP_E_NOT_IMPLEMENTED : LP_E_RUNTIME,
               "bincount only supports 1-d non-negative integral inputs, got "
               "%s of %d dimensions",
               lp_dtype_name(in->dtype), in->ndim);
    LP_FAIL_IF(weighted && !lp_shape_eq(in, w), e, LP_E_RUNTIME,
               "weights should be 1-d and have the same length as input, got "
               "the shapes %s and %s",
               lp_shape_str(w), lp_shape_str(in));
    LP_FAIL_IF(minlength < 0, e, LP_E_RUNTIME,
               "minlength should be >= 0, got %lld", (long long)minlength);
    *out = (LpType){.dtype = LP_I64, .ndim = 1};
    if (weighted)
        out->dtype = w->dtype == LP_F32 ? LP_F32 : LP_F64;
    out->shape[0] = minlength;
    return LP_OK;
}

static LpStatus infer_bincount(LpInfer *x)
{
    return counted(&x->in[0], x->n_in > 1 ? &x->in[1] : NULL,
                   x->attr[LP_BINCOUNT_MINLENGTH].i, &x->out[0], x->err);
}

LP_PRIMITIVE(bincount_any,
             "bincount_any(Tensor self, Tensor? weights=None, int "
             "minlength=0) -> Tensor @p",
             infer_bincount, lp_bincount_prepare, NULL, .flags = LP_OPF_DYNAMIC,
             .no_grad = "counts have no gradient",
             .measure = lp_bincount_measure)

/* In a trace there are minlength counts, as on the device, and a number beyond
 * them is an error when it runs. */
LP_FORMULA(bincount,
           "bincount(Tensor self, Tensor? weights=None, int minlength=0) -> "
           "Tensor @fm")
{
    static const char refused[] =
        "without minlength, which compiled is the number of counts, "
        "bincount has a result whose shape depends on its data; it works "
        "eagerly but cannot be compiled";
    bool none = attr[LP_BINCOUNT_MINLENGTH].i == 0;
    if (b->on_host || (none && lp_excused(b, refused)))
        return lp_emit(b, LP_OP_bincount_any, in, 2, attr);
    if (none)
        return LP_REFUSE(b, LP_E_UNTRACED, refused);
    LpType self = lp_type_of(b, in[0]), w = {.dtype = LP_DT_NONE}, t;
    LpAttr dim = lp_attr_int(0);
    if (in[1] != LP_NOVAL)
        w = lp_type_of(b, in[1]);
    if (counted(&self, &w, attr[LP_BINCOUNT_MINLENGTH].i, &t, b->err) != LP_OK)
        return LP_NOVAL;
    self.dtype = t.dtype;
    LpVal zero = lp_full(b, &t, lp_int(0));
    LpVal at = lp_cast(b, in[0], LP_I64);
    LpVal add = in[1] != LP_NOVAL
                    ? lp_cast(b, lp_op1(b, LP_OP_detach, in[1]), t.dtype)
                    : lp_full(b, &self, lp_int(1));
    return lp_emit(b, LP_OP_index_add_rows, (LpVal[]){zero, at, add}, 3, &dim);
}
