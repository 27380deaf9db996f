/* Rows by index, a bag of them reduced to one row: what embedding_bag is
 * eagerly. A sum's (or mean's) adjoint has the sum as its own. */
#include "src/ops/index/index.h"
#include "src/ops/layout_cost.h"

#include "src/kernel/attrs.h"
#include "src/kernel/copy/hooks.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

static LpStatus check_bags(LpInfer *x, int64_t rows, int64_t *bags)
{
    const LpType *d = &x->in[0], *at = &x->in[1], *off = &x->in[2];
    LpAttr *pad = &x->attr[LP_BAG_PADDING_IDX];
    LP_TRY(lp_check_index(x, 1, "indices"));
    LP_TRY(lp_check_index(x, 2, "offsets"));
    LP_FAIL_IF(d->ndim != 2 || lp_dtype_kind(d->dtype) != LP_KIND_FLOAT, x->err,
               LP_E_RUNTIME,
               "%s: weight must be floats of 2 dimensions, got %s of %d",
               x->op->name, lp_dtype_name(d->dtype), d->ndim);
    LP_FAIL_IF(at->ndim != 1 || off->ndim != 1, x->err, LP_E_RUNTIME,
               "%s: indices and offsets must have 1 dimension, got %d and %d",
               x->op->name, at->ndim, off->ndim);
    if (x->n_in > 3 && x->in[3].dtype != LP_DT_NONE)
        LP_FAIL_IF(x->in[3].dtype != d->dtype || !lp_shape_eq(&x->in[3], at),
                   x->err, LP_E_RUNTIME,
                   "%s: per_sample_weights must be %s of the shape %s, got %s "
                   "of %s",
                   x->op->name, lp_dtype_name(d->dtype), lp_shape_str(at),
                   lp_dtype_name(x->in[3].dtype), lp_shape_str(&x->in[3]));
    *bags = off->shape[0] - (x->attr[LP_BAG_INCLUDE_LAST_OFFSET].i != 0);
    LP_FAIL_IF(*bags < 0, x->err, LP_E_RUNTIME,
               "%s: include_last_offset needs at least one offset",
               x->op->name);
    if (lp_attr_none(pad))
        return LP_OK;
    LP_FAIL_IF(pad->i < -rows || pad->i >= rows, x->err, LP_E_RUNTIME,
               "%s: padding_idx must be from %lld to %lld, got %lld",
               x->op->name, (long long)-rows, (long long)rows - 1,
               (long long)pad->i);
    pad->i += pad->i < 0 ? rows : 0;
    return LP_OK;
}

static LpStatus infer_bags(LpInfer *x)
{
    int64_t bags;
    LP_TRY(check_bags(x, x->in[0].shape[0], &bags));
    x->out[0] = x->in[0];
    x->out[0].shape[0] = bags;
    if (x->op == &op_embedding_bag_max) {
        x->out[1] = x->out[0];
        x->out[1].dtype = LP_I64;
    }
    return LP_OK;
}

static void refuse_factors(LpGrad *g)
{
    if (g->n_in > 3 && g->need[3])
        lp_fail(g->b->err, LP_E_NOT_IMPLEMENTED,
                "%s: per_sample_weights have no gradient here; those of "
                "embedding_bag have one",
                g->op->name);
}

static void grad_bag_sum(LpGrad *g)
{
    LpAttr a[] = {g->attr[LP_BAG_INCLUDE_LAST_OFFSET],
                  g->attr[LP_BAG_PADDING_IDX], g->attr[LP_BAG_MEAN],
                  lp_attr_int(lp_type(g->b, g->in[0])->shape[0])};
    refuse_factors(g);
    g->din[0] = lp_emit(g->b, LP_OP_embedding_bag_backward,
                        (LpVal[]){g->dout[0], g->in[1], g->in[2],
                                  g->n_in > 3 ? g->in[3] : LP_NOVAL},
                        4, a);
}

LP_PRIMITIVE(embedding_bag_sum,
             "embedding_bag_sum(Tensor weight, Tensor input, Tensor offsets, "
             "Tensor? per_sample_weights=None, bool include_last_offset=False, "
             "int? padding_idx=None, bool mean=False) -> Tensor @p",
             infer_bags, lp_bag_sum_prepare, lp_rule_lookup,
             .grad = grad_bag_sum, .grad_in = 7 << 1)

/* A bag without rows, whose places are -1, is constant. */
static void grad_bag_max(LpGrad *g)
{
    LpAttr dim = lp_attr_int(0);
    LpVal none = lp_op2(g->b, LP_OP_lt, g->out[1], lp_immi(g->b, 0));
    LpVal at = lp_where(g->b, none, lp_immi(g->b, 0), g->out[1]);
    LpVal d = lp_where(g->b, none, lp_immf(g->b, 0), g->dout[0]);
    LpVal z = lp_zeros_as(g->b, g->in[0], lp_dtype_of(g->b, g->dout[0]));
    g->din[0] = lp_emit(g->b, LP_OP_scatter_add, (LpVal[]){z, at, d}, 3, &dim);
}

LP_PRIMITIVE(embedding_bag_max,
             "embedding_bag_max(Tensor weight, Tensor input, Tensor offsets, "
             "bool include_last_offset=False, int? padding_idx=None) -> "
             "(Tensor output, Tensor indices) @p",
             infer_bags, lp_bag_max_prepare, lp_rule_lookup,
             .grad = grad_bag_max, .grad_out = 1 << 1)

/* grad has a row for each bag. */
static LpStatus infer_bag_backward(LpInfer *x)
{
    int64_t bags, rows = x->attr[LP_BAG_NUM_WEIGHTS].i;
    LP_FAIL_IF(rows < 0, x->err, LP_E_RUNTIME,
               "%s: num_weights must be 0 or more, got %lld", x->op->name,
               (long long)rows);
    LP_TRY(check_bags(x, rows, &bags));
    LP_FAIL_IF(x->in[0].shape[0] != bags, x->err, LP_E_RUNTIME,
               "%s: grad has the shape %s for %lld bags of %lld rows",
               x->op->name, lp_shape_str(&x->in[0]), (long long)bags,
               (long long)rows);
    x->out[0] = x->in[0];
    x->out[0].shape[0] = rows;
    return LP_OK;
}

static void grad_bag_backward(LpGrad *g)
{
    refuse_factors(g);
    g->din[0] = lp_emit(g->b, LP_OP_embedding_bag_sum,
                        (LpVal[]){g->dout[0], g->in[1], g->in[2],
                                  g->n_in > 3 ? g->in[3] : LP_NOVAL},
                        4, g->attr);
}

LP_PRIMITIVE(embedding_bag_backward,
             "embedding_bag_backward(Tensor grad, Tensor indices, Tensor "
             "offsets, Tensor? per_sample_weights, bool include_last_offset, "
             "int? padding_idx, bool mean, int num_weights) -> Tensor @p",
             infer_bag_backward, lp_bag_backward_prepare, lp_rule_lookup_add,
             .grad = grad_bag_backward, .grad_in = 7 << 1)
