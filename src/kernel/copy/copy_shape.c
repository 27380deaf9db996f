/* Joining, flipping, triangles, padding: copies to parts of the result, or
 * from an operand walked backwards. */
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/hooks.h"
#include "src/kernel/state.h"

/* ---- cat, roll ----------------------------------------------------------- */
typedef struct Join {
    int n;
    struct Part {
        LpCopyPlan plan;
        int slot; /* of the operand */
        int64_t from_bytes, to_bytes;
    } part[];
} Join;

LP_KERNEL_RUN(run_cat)
{
    const Join *j = k->state;
    for (int i = 0; i < j->n; i++)
        lp_copy_run(&j->part[i].plan,
                    (char *)in[j->part[i].slot] + j->part[i].from_bytes,
                    (char *)out[0] + j->part[i].to_bytes);
    return LP_OK;
}

static LpStatus joined(const LpKernelReq *r, int n, LpKernel *k, LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name,
                           sizeof(Join) + (size_t)n * sizeof(struct Part),
                           run_cat, k, e));
    ((Join *)k->state)->n = n;
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_cat_prepare)
{
    int dim = (int)r->attr[LP_CAT_DIM].i;
    int64_t at = 0, bytes = (int64_t)lp_dtype_size(r->out[0].dtype);
    LP_TRY(joined(r, r->n_in, k, e));
    Join *j = k->state;
    for (int i = 0; i < r->n_in; i++) {
        if (lp_desc_numel(&r->in[i]) == 0) {
            j->part[i].plan.empty = true;
            continue;
        }
        LpDesc to = r->out[0];
        to.shape[dim] = r->in[i].shape[dim];
        lp_copy_plan(&r->in[i], &to, r->threads, &j->part[i].plan);
        j->part[i].slot = i;
        j->part[i].to_bytes = at * to.strides[dim] * bytes;
        at += to.shape[dim];
    }
    return LP_OK;
}

/* The elements from `from` on, then those before it. */
LP_KERNEL_PREPARE(lp_roll_prepare)
{
    int dim = (int)r->attr[LP_ROLL_DIM].i;
    int64_t from = r->attr[LP_ROLL_FROM].i, n = r->in[0].shape[dim];
    int64_t bytes = (int64_t)lp_dtype_size(r->out[0].dtype);
    LP_TRY(joined(r, 2, k, e));
    struct Part *part = ((Join *)k->state)->part;
    for (int i = 0; i < 2; i++) {
        LpDesc x = r->in[0], y = r->out[0];
        x.shape[dim] = y.shape[dim] = i == 0 ? n - from : from;
        lp_copy_plan(&x, &y, r->threads, &part[i].plan);
    }
    part[0].from_bytes = from * r->in[0].strides[dim] * bytes;
    part[1].to_bytes = (n - from) * r->out[0].strides[dim] * bytes;
    return LP_OK;
}

/* ---- flip ---------------------------------------------------------------- */
LP_KERNEL_PREPARE(lp_flip_prepare)
{
    LpDesc from = r->in[0];
    int64_t offset = 0;
    for (int i = 0; i < r->attr[LP_FLIP_DIMS].n && from.ndim > 0; i++) {
        int d = (int)r->attr[LP_FLIP_DIMS].v[i];
        if (from.shape[d] > 0)
            offset += (from.shape[d] - 1) * from.strides[d];
        from.strides[d] = -from.strides[d];
    }
    return lp_copy_kernel(&from, offset, &r->out[0], r->threads, k);
}

/* ---- tril, triu ---------------------------------------------------------- */
typedef struct Tri {
    LpCopyPlan all;
    LpDesc out;
    int64_t diagonal;
    bool lower, dense;
} Tri;

/* The part of row r that is to be zero: [*from, *to). */
static void zero_part(const Tri *t, int64_t r, int64_t cols, int64_t *from,
                      int64_t *to)
{
    int64_t edge = r + t->diagonal + (t->lower ? 1 : 0);
    edge = edge < 0 ? 0 : edge > cols ? cols : edge;
    *from = t->lower ? edge : 0;
    *to = t->lower ? cols : edge;
}

/* Of matrices without gaps, rows in the order of memory. */
static void dense_tri(const Tri *t, const char *in, char *out)
{
    int n = t->out.ndim;
    int64_t rows = t->out.shape[n - 2], cols = t->out.shape[n - 1];
    int64_t all = lp_elements(t->out.shape, n - 1);
    int64_t size = (int64_t)lp_dtype_size(t->out.dtype);
#pragma omp parallel for num_threads(t->all.threads)                           \
    schedule(static) if (t->all.threads > 1)
    for (int64_t i = 0; i < all; i++) {
        int64_t from, to, at = i * cols * size;
        zero_part(t, i % rows, cols, &from, &to);
        if (in != out) {
            memcpy(out + at, in + at, (size_t)(from * size));
            memcpy(out + at + to * size, in + at + to * size,
                   (size_t)((cols - to) * size));
        }
        memset(out + at + from * size, 0, (size_t)((to - from) * size));
    }
}

LP_KERNEL_RUN(run_tri)
{
    const Tri *t = k->state;
    int n = t->out.ndim;
    if (t->dense) {
        dense_tri(t, in[0], out[0]);
        return LP_OK;
    }
    int64_t rows = t->out.shape[n - 2], cols = t->out.shape[n - 1], from, to;
    int64_t bytes = (int64_t)lp_dtype_size(t->out.dtype);
    if (in[0] != out[0])
        lp_copy_run(&t->all, in[0], out[0]);
    for (int64_t r = 0; r < rows && !t->all.empty; r++) {
        LpDesc part = t->out; /* one row of every matrix */
        zero_part(t, r, cols, &from, &to);
        part.shape[n - 2] = 1;
        part.shape[n - 1] = to - from;
        if (to > from)
            lp_fill_strided(&part,
                            (char *)out[0] + (r * part.strides[n - 2] +
                                              from * part.strides[n - 1]) *
                                                 bytes,
                            lp_int(0));
    }
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_tri_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Tri), run_tri, k, e));
    Tri *t = k->state;
    lp_copy_plan(&r->in[0], &r->out[0], r->threads, &t->all);
    t->out = r->out[0];
    /* beyond the longest side all diagonals are alike */
    const int64_t far = INT64_C(1) << 60, given = r->attr[LP_TRI_DIAGONAL].i;
    t->diagonal = given > far ? far : given < -far ? -far : given;
    t->lower = r->op->name[3] == 'l';
    t->dense = lp_desc_contiguous(&r->in[0]) && lp_desc_contiguous(&t->out) &&
               r->in[0].dtype == t->out.dtype;
    return LP_OK;
}

/* ---- constant_pad_nd ----------------------------------------------------- */
typedef struct Pad {
    LpCopyPlan inside;
    LpDesc out;
    LpScalar value;
    int64_t at[LP_MAX_DIMS], shape[LP_MAX_DIMS]; /* the inside of `out` */
    bool padded;                                 /* something is to be filled */
    int64_t from_bytes, to_bytes;
} Pad;

LP_KERNEL_RUN(run_pad)
{
    const Pad *p = k->state;
    if (p->padded)
        lp_fill_around(&p->out, out[0], p->at, p->shape, p->value);
    lp_copy_run(&p->inside, (const char *)in[0] + p->from_bytes,
                (char *)out[0] + p->to_bytes);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_pad_prepare)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Pad), run_pad, k, e));
    Pad *p = k->state;
    LpDesc from = r->in[0], to = r->out[0];
    int64_t skip_from = 0, skip_to = 0;
    for (int i = 0; i < r->attr[LP_PAD_PAD].n / 2; i++) {
        int d = from.ndim - 1 - i;
        int64_t before = r->attr[LP_PAD_PAD].v[2 * i],
                after = r->attr[LP_PAD_PAD].v[2 * i + 1];
        int64_t crop = before < 0 ? -before : 0;
        p->padded |= before > 0 || after > 0;
        skip_from += crop * from.strides[d];
        p->at[d] = before > 0 ? before : 0;
        skip_to += p->at[d] * to.strides[d];
        from.shape[d] -= crop + (after < 0 ? -after : 0);
        if (from.shape[d] < 0)
            from.shape[d] = 0;
        to.shape[d] = from.shape[d];
    }
    int64_t bytes = (int64_t)lp_dtype_size(to.dtype);
    lp_copy_plan(&from, &to, r->threads, &p->inside);
    memcpy(p->shape, to.shape, sizeof p->shape);
    p->out = r->out[0];
    p->value = r->attr[LP_PAD_VALUE].s;
    p->from_bytes = skip_from * bytes;
    p->to_bytes = skip_to * bytes;
    return LP_OK;
}
