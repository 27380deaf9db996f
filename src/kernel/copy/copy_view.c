/* Kernels that materialise a view, overwrite one, or add into one. All are a
 * copy (copy.h) to or from the view's geometry over contiguous memory; only
 * a view that meets an element twice needs a loop that adds. That loop runs
 * in index order on one thread, in float for the half types, so its bits are
 * always the same. */
#include <string.h>

#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/copy_view.h"
#include "src/kernel/copy/view_geometry.h"
#include "src/kernel/state.h"

static LpDesc desc_of_view(const LpViewGeometry *g)
{
    LpDesc d = {.dtype = g->type.dtype, .ndim = g->type.ndim};
    memcpy(d.shape, g->type.shape, sizeof d.shape);
    memcpy(d.strides, g->strides, sizeof d.strides);
    return d;
}

/* ---- a view as a copy ---------------------------------------------------- */
LP_KERNEL_PREPARE(lp_view_prepare)
{
    LpViewGeometry g;
    LpType base = lp_type_of_desc(&r->in[0]);
    LP_TRY(lp_view_geometry(r->op, r->attr, r->op->n_attr, &base,
                            r->in[0].strides, &g, e));
    LpDesc from = desc_of_view(&g);
    LpDesc to = r->out[0];
    if (g.needs_copy) { /* the same elements in the same order */
        LP_FAIL_IF(!lp_desc_contiguous(&to), e, LP_E_INTERNAL,
                   "%s: the result of a copy must be contiguous", r->op->name);
        from = r->in[0];
        to = lp_desc_of(&base);
        g.offset = 0;
    }
    return lp_copy_kernel(&from, g.offset, &to, r->threads, k);
}

/* ---- overwriting a view -------------------------------------------------- */
typedef struct ScatterState {
    LpCopyPlan parent, part;
    int64_t offset_bytes;
} ScatterState;

LP_KERNEL_RUN(run_scatter)
{
    const ScatterState *s = k->state;
    if (in[0] != out[0])
        lp_copy_run(&s->parent, in[0], out[0]);
    lp_copy_run(&s->part, in[1], (char *)out[0] + s->offset_bytes);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_scatter_prepare)
{
    LpViewGeometry g;
    LpType base = lp_type_of_desc(&r->out[0]);
    const LpOp *view = r->op->data;
    LP_FAIL_IF(
        view->flags & LP_OPF_OWN_STRIDES && !lp_desc_contiguous(&r->out[0]), e,
        LP_E_INTERNAL, "%s: the result must be contiguous", r->op->name);
    LP_TRY(lp_view_geometry(view, r->attr, r->op->n_attr, &base,
                            r->out[0].strides, &g, e));
    LP_TRY(
        lp_kernel_state(r->op->name, sizeof(ScatterState), run_scatter, k, e));
    ScatterState *s = k->state;
    LpDesc to = desc_of_view(&g);
    lp_copy_plan(&r->in[0], &r->out[0], r->threads, &s->parent);
    lp_copy_plan(&r->in[1], &to, r->threads, &s->part);
    s->offset_bytes = g.offset * (int64_t)lp_dtype_size(base.dtype);
    return LP_OK;
}

/* ---- adding into a view -------------------------------------------------- */
#define ADD(T, W, load, store)                                                 \
    static void add_##T##_##W(const void *sp, int64_t ss, void *dp,            \
                              int64_t ds, int64_t n)                           \
    {                                                                          \
        const T *s = sp;                                                       \
        T *d = dp;                                                             \
        if (ss == 1 && ds == 1)                                                \
            for (int64_t i = 0; i < n; i++)                                    \
                d[i] = store(load(d[i]) + load(s[i]));                         \
        else                                                                   \
            for (int64_t i = 0; i < n; i++)                                    \
                d[i * ds] = store(load(d[i * ds]) + load(s[i * ss]));          \
    }
#define SAME(x) (x)
#define WRAP8(x) (uint8_t)(x)
#define WRAP16(x) (uint16_t)(x)
#define TRUTH(x) (uint8_t)((x) != 0)
ADD(double, plain, SAME, SAME)
ADD(float, plain, SAME, SAME)
/* unsigned: sums of integers wrap around */
ADD(uint64_t, plain, SAME, SAME)
ADD(uint32_t, plain, SAME, SAME)
ADD(uint16_t, plain, SAME, WRAP16)
ADD(uint8_t, plain, SAME, WRAP8)
ADD(uint8_t, truth, SAME, TRUTH)

void lp_add_strided(LpDtype t, const void *src, int64_t ss, void *dst,
                    int64_t ds, int64_t n)
{
    static void (*const add[LP_N_DTYPES])(const void *, int64_t, void *,
                                          int64_t, int64_t) = {
        [LP_F64] = add_double_plain,   [LP_F32] = add_float_plain,
        [LP_I64] = add_uint64_t_plain, [LP_I32] = add_uint32_t_plain,
        [LP_I16] = add_uint16_t_plain, [LP_I8] = add_uint8_t_plain,
        [LP_U8] = add_uint8_t_plain,   [LP_BOOL] = add_uint8_t_truth,
    };
    add[t](src, ss, dst, ds, n);
}

typedef struct BackwardState {
    LpCopyPlan to_sum; /* the gradient, contiguous, in the summing type */
    LpCopyPlan part;   /* no overlap: the gradient to its places */
    LpCopyPlan to_out; /* the sum to the result */
    LpDesc zero;       /* the result, to be zeroed */
    bool is_box;       /* the gradient covers a box of the result, from `at` */
    int64_t at[LP_MAX_DIMS];
    LpViewGeometry g; /* where the gradient's elements go */
    LpDtype sum_type;
    int64_t numel; /* of the result */
    bool overlaps;
} BackwardState;

LP_KERNEL_RUN(run_backward)
{
    const BackwardState *s = k->state;
    int64_t bytes = (int64_t)lp_dtype_size(s->zero.dtype);
    if (s->is_box)
        lp_fill_around(&s->zero, out[0], s->at, s->g.type.shape, lp_int(0));
    else
        lp_fill_strided(&s->zero, out[0], lp_int(0));
    lp_copy_run(&s->part, in[0], (char *)out[0] + s->g.offset * bytes);
    return LP_OK;
}

/* work: the sum, then the gradient */
LP_KERNEL_RUN(run_adding)
{
    const BackwardState *s = k->state;
    const LpType *t = &s->g.type;
    int64_t bytes = (int64_t)lp_dtype_size(s->sum_type);
    char *sum = work, *grad = sum + s->numel * bytes;
    int last = t->ndim - 1;
    int64_t row = last < 0 ? 1 : t->shape[last], at[LP_MAX_DIMS] = {0};
    int64_t step = last < 0 ? 1 : s->g.strides[last];
    int64_t rows = lp_elements(t->shape, last);
    memset(sum, 0, (size_t)(s->numel * bytes));
    lp_copy_run(&s->to_sum, in[0], grad);
    char *d = sum + s->g.offset * bytes;
    for (int64_t r = 0; r < rows && row > 0; r++, grad += row * bytes) {
        lp_add_strided(s->sum_type, grad, 1, d, step, row);
        for (int i = last - 1; i >= 0; i--) {
            d += s->g.strides[i] * bytes;
            if (++at[i] < t->shape[i])
                break;
            d -= s->g.strides[i] * t->shape[i] * bytes;
            at[i] = 0;
        }
    }
    lp_copy_run(&s->to_out, sum, out[0]);
    return LP_OK;
}

static LpStatus set_adding(const LpKernelReq *r, const LpType *base,
                           BackwardState *s, LpKernel *k, LpErr *e)
{
    LpType sum = *base;
    if (sum.dtype == LP_F16 || sum.dtype == LP_BF16)
        sum.dtype = LP_F32;
    LpType grad = s->g.type;
    grad.dtype = sum.dtype;
    LP_TRY(lp_view_geometry(r->op->data, r->attr + LP_VIEW_BACK_OWN,
                            r->op->n_attr - LP_VIEW_BACK_OWN, &sum, NULL, &s->g,
                            e));
    s->sum_type = sum.dtype;
    s->numel = lp_numel(&sum);
    LpDesc gd = lp_desc_of(&grad), sd = lp_desc_of(&sum);
    lp_copy_plan(&r->in[0], &gd, r->threads, &s->to_sum);
    lp_copy_plan(&sd, &r->out[0], r->threads, &s->to_out);
    k->work_bytes =
        (size_t)(s->numel + lp_numel(&grad)) * lp_dtype_size(sum.dtype);
    k->run = run_adding;
    return LP_OK;
}

/* What a slice without a step sees: the result, but for one narrower side. */
static void find_box(BackwardState *s)
{
    const LpType *t = &s->g.type;
    const LpDesc *z = &s->zero;
    int narrow = -1;
    for (int i = 0; i < t->ndim; i++) {
        if (t->ndim != z->ndim || s->g.strides[i] != z->strides[i])
            return;
        if (t->shape[i] == z->shape[i])
            continue;
        if (narrow >= 0)
            return;
        narrow = i;
    }
    if (narrow < 0 || z->strides[narrow] == 0)
        return;
    s->at[narrow] = s->g.offset / z->strides[narrow];
    s->is_box = s->g.offset % z->strides[narrow] == 0 &&
                s->at[narrow] + t->shape[narrow] <= z->shape[narrow];
}

LP_KERNEL_PREPARE(lp_view_backward_prepare)
{
    const LpOp *view = r->op->data;
    LpType base = lp_type_of_desc(&r->out[0]);
    LP_TRY(lp_kernel_state(r->op->name, sizeof(BackwardState), run_backward, k,
                           e));
    BackwardState *s = k->state;
    bool plain = lp_desc_contiguous(&r->out[0]);
    LpStatus st = lp_view_geometry(view, r->attr + LP_VIEW_BACK_OWN,
                                   r->op->n_attr - LP_VIEW_BACK_OWN, &base,
                                   plain ? NULL : r->out[0].strides, &s->g, e);
    if (st == LP_OK) {
        s->overlaps = lp_view_overlaps(&s->g) ||
                      (!plain && view->flags & LP_OPF_OWN_STRIDES);
        s->zero = r->out[0];
        LpDesc to = desc_of_view(&s->g);
        lp_copy_plan(&r->in[0], &to, r->threads, &s->part);
        find_box(s);
        if (s->overlaps)
            st = set_adding(r, &base, s, k, e);
    }
    if (st != LP_OK)
        k->fini(k);
    return st;
}
