/* Writing through views, as values.
 *
 *   X_scatter(self, src, …)   self with the view X(self, …) overwritten by src
 *   X_backward(grad, sizes, …) zeros of `sizes`, to which grad is added where
 *                             the view X takes its elements from
 *
 * The second is X's adjoint, X the second's; both take X's attributes. Where
 * the view meets an element twice, _scatter refuses and _backward adds. */
#include <string.h>

#include "src/kernel/copy/copy_view.h"
#include "src/ops/layout_cost.h"
#include "src/ops/rules.h"
#include "src/ops/view/view.h"

/* data of the records here: the view */
static const LpOp *view_of(const LpOp *op)
{
    return op->data;
}

/* The view's attributes: n of them are given. */
static void view_attrs(const LpAttr *given, int n, LpAttr a[LP_MAX_ATTR])
{
    for (int i = 0; i < LP_MAX_ATTR; i++)
        a[i] = i < n ? given[i] : LP_NONE_ATTR;
}

/* ---- scatter ------------------------------------------------------------- */
/* Canonical attributes come from the view's own rule. */
static LpStatus infer_scatter(LpInfer *x)
{
    const LpOp *view = view_of(x->op);
    LpAttr a[LP_MAX_ATTR];
    LpType seen;
    LpInfer y = *x;
    view_attrs(x->attr, x->op->n_attr, a);
    y.op = view;
    y.attr = a;
    y.out = &seen;
    y.strides = NULL;
    y.n_in = 1;
    LP_TRY(lp_op_infer(&y));
    memcpy(x->attr, a, x->op->n_attr * sizeof *a);
    LP_FAIL_IF(!lp_shape_eq(&seen, &x->in[1]), x->err, LP_E_RUNTIME,
               "%s: expected src to have a size equal to the %s of self. src "
               "size = %s, %s size = %s",
               x->op->name, view->name, lp_shape_str(&x->in[1]), view->name,
               lp_shape_str(&seen));
    LpViewGeometry g;
    LP_TRY(
        lp_view_geometry(view, a, x->op->n_attr, &x->in[0], NULL, &g, x->err));
    LP_FAIL_IF(lp_view_overlaps(&g), x->err, LP_E_RUNTIME,
               "%s: unsupported operation: more than one element of the "
               "written-to tensor refers to a single memory location",
               x->op->name);
    return lp_view_same(x);
}

static void grad_scatter(LpGrad *g)
{
    LpBuilder *b = g->b;
    LpVal dy = g->dout[0];
    LpAttr a[LP_MAX_ATTR];
    view_attrs(g->attr, g->op->n_attr, a);
    if (g->need[0]) {
        LpVal zero = lp_zeros_as(b, g->in[1], lp_dtype_of(b, dy));
        g->din[0] = lp_emit(b, g->op->id, (LpVal[]){dy, zero}, 2, a);
    }
    if (g->need[1])
        g->din[1] = lp_emit(b, view_of(g->op)->id, &dy, 1, a);
}

#define SCATTER(name, view, args, pub)                                         \
    LP_PRIMITIVE(                                                              \
        name, #name "(Tensor self, Tensor src, " args ") -> Tensor " pub,      \
        infer_scatter, lp_scatter_prepare, lp_rule_embed,                      \
        .flags = LP_OPF_INPLACE_OK, .grad = grad_scatter, .data = &op_##view)

SCATTER(slice_scatter, slice,
        "int dim=0, int? start=None, int? end=None, int step=1", "@fm")
SCATTER(select_scatter, select, "int dim, int index", "@fm")
SCATTER(diagonal_scatter, diagonal, "int offset=0, int dim1=0, int dim2=1",
        "@fm")
SCATTER(as_strided_embed, as_strided,
        "int[] size, int[] stride, int? storage_offset=None", "@p")
SCATTER(unfold_scatter, unfold, "int dimension, int size, int step", "@p")

/* What PyTorch calls as_strided_scatter. Its backward gives self the gradient
 * of the elements that src replaced, as if it were a view; so does this one,
 * while a write through a view uses the operator above. */
static void grad_as_pytorch(LpGrad *g)
{
    LpType self = lp_type_of(g->b, g->in[0]);
    LpAttr see[] = {g->attr[LP_STRIDED_SIZE], g->attr[LP_STRIDED_STRIDE],
                    g->attr[LP_STRIDED_STORAGE_OFFSET], LP_NONE_ATTR};
    LpVal seen = lp_emit(g->b, LP_OP_as_strided, &g->dout[0], 1, see);
    if (g->need[1])
        g->din[1] = seen;
    LpAttr back[] = {lp_attr_ints(self.shape, self.ndim), see[LP_STRIDED_SIZE],
                     see[LP_STRIDED_STRIDE], see[LP_STRIDED_STORAGE_OFFSET],
                     LP_NONE_ATTR};
    if (g->need[0])
        g->din[0] = lp_emit(g->b, LP_OP_as_strided_backward, &seen, 1, back);
}

LP_PRIMITIVE(as_strided_scatter,
             "as_strided_scatter(Tensor self, Tensor src, int[] size, int[] "
             "stride, int? storage_offset=None) -> Tensor @fm",
             infer_scatter, lp_scatter_prepare, lp_rule_embed,
             .flags = LP_OPF_INPLACE_OK, .grad = grad_as_pytorch,
             .data = &op_as_strided)

/* ---- backward ------------------------------------------------------------ */
static LpStatus infer_backward(LpInfer *x)
{
    const LpOp *view = view_of(x->op);
    LpAttr a[LP_MAX_ATTR];
    LpType seen, base = {.dtype = x->in[0].dtype};
    int own = x->op->n_attr - LP_VIEW_BACK_OWN;
    LpInfer y = *x;
    if (x->attr[0].n > LP_MAX_DIMS)
        return lp_too_many_dims(x, x->attr[0].n);
    lp_set_dims(&base, x->attr[0].v, x->attr[0].n);
    LP_TRY(lp_shape_check(&base, x->err));
    view_attrs(x->attr + LP_VIEW_BACK_OWN, own, a);
    y.op = view;
    y.attr = a;
    y.in = &base;
    y.out = &seen;
    y.strides = NULL;
    LP_TRY(lp_op_infer(&y));
    memcpy(x->attr + LP_VIEW_BACK_OWN, a, (size_t)own * sizeof *a);
    LP_FAIL_IF(!lp_shape_eq(&seen, &x->in[0]), x->err, LP_E_RUNTIME,
               "%s: the gradient has size %s, the view has size %s",
               x->op->name, lp_shape_str(&x->in[0]), lp_shape_str(&seen));
    x->out[0] = base;
    return LP_OK;
}

static void grad_backward(LpGrad *g)
{
    LpAttr a[LP_MAX_ATTR];
    view_attrs(g->attr + LP_VIEW_BACK_OWN, g->op->n_attr - LP_VIEW_BACK_OWN, a);
    g->din[0] = lp_emit(g->b, view_of(g->op)->id, &g->dout[0], 1, a);
}

#define BACKWARD(view, flags_, args)                                           \
    LP_PRIMITIVE(view##_backward,                                              \
                 #view "_backward(Tensor grad, int[] sizes, " args             \
                       ") -> Tensor @p",                                       \
                 infer_backward, lp_view_backward_prepare, lp_rule_embed,      \
                 .flags = flags_, .grad = grad_backward, .data = &op_##view)

BACKWARD(slice, LP_OPF_EXACT, "int dim, int? start, int? end, int step")
BACKWARD(select, LP_OPF_EXACT, "int dim, int index")
BACKWARD(diagonal, LP_OPF_EXACT, "int offset, int dim1, int dim2")
BACKWARD(as_strided, 0,
         "int[] size, int[] stride, int? storage_offset, int[]? geometry=None")
BACKWARD(unfold, 0, "int dimension, int size, int step")
