/* Requests to the driver of gather.h. */
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/gather.h"
#include "src/kernel/copy/hooks.h"

/* One index operand `slot` for dimension `dim`. */
static LpRowsReq one_index(const LpKernelReq *r, LpRowsMode mode, int dim,
                           int slot)
{
    LpRowsReq q = {.mode = mode,
                   .n_indexed = 1,
                   .dim = {dim},
                   .slot = {slot},
                   .place_dim = dim,
                   .a_slot = 0,
                   .b_slot = -1,
                   .threads = r->threads,
                   .name = r->op->name};
    q.index[0] = r->in[slot];
    q.place = lp_type_of_desc(&r->in[slot]);
    return q;
}

LP_KERNEL_PREPARE(lp_index_select_prepare)
{
    LpRowsReq q = one_index(r, LP_ROWS_GATHER, (int)r->attr[LP_INDEX_DIM].i, 1);
    q.index[0] = lp_at_least_1d(&q.index[0]);
    q.place = lp_type_of_desc(&q.index[0]);
    q.a = lp_at_least_1d(&r->in[0]);
    q.b = lp_at_least_1d(&r->out[0]);
    return lp_rows_prepare(&q, k, e);
}

LP_KERNEL_PREPARE(lp_index_add_prepare)
{
    LpRowsReq q = one_index(r, LP_ROWS_ADD, (int)r->attr[LP_INDEX_DIM].i, 1);
    q.index[0] = lp_at_least_1d(&q.index[0]);
    q.place = lp_type_of_desc(&q.index[0]);
    q.a = lp_at_least_1d(&r->out[0]);
    q.before = lp_at_least_1d(&r->in[0]);
    q.b = lp_at_least_1d(&r->in[2]);
    q.b_slot = 2;
    return lp_rows_prepare(&q, k, e);
}

LP_KERNEL_PREPARE(lp_embedding_prepare)
{
    LpRowsReq q = one_index(r, LP_ROWS_GATHER, 0, 1);
    q.a = r->in[0];
    q.b = r->out[0];
    return lp_rows_prepare(&q, k, e);
}

LP_KERNEL_PREPARE(lp_embedding_backward_prepare)
{
    LpRowsReq q = one_index(r, LP_ROWS_ADD, 0, 1);
    q.a = r->out[0];
    q.b = r->in[0];
    q.a_slot = -1;
    q.b_slot = 0;
    q.skips = r->attr[LP_EMBEDDING_BACK_PADDING_IDX].kind == LP_ATTR_INT;
    q.skip = q.skips ? r->attr[LP_EMBEDDING_BACK_PADDING_IDX].i : 0;
    return lp_rows_prepare(&q, k, e);
}

LpStatus lp_index_place(const LpType *index, int n, LpType *place, int *at,
                        LpErr *e)
{
    int first = -1, last = -1, count = 0;
    *place = (LpType){.dtype = LP_I64};
    for (int i = 0; i < n; i++) {
        if (index[i].dtype == LP_DT_NONE)
            continue;
        LP_TRY(lp_broadcast(place, &index[i], e));
        first = first < 0 ? i : first;
        last = i;
        count++;
    }
    *at = last - first + 1 == count ? first : 0;
    return LP_OK;
}

/* Indices are the operands from `from` on. */
static LpStatus many_indices(const LpKernelReq *r, int from, LpRowsReq *q,
                             LpErr *e)
{
    LpType t[LP_MAX_DIMS];
    int n = r->n_in - from;
    q->threads = r->threads;
    q->name = "index";
    q->wrap = true;
    for (int i = 0; i < n; i++) {
        t[i] = lp_type_of_desc(&r->in[from + i]);
        if (t[i].dtype == LP_DT_NONE)
            continue;
        q->dim[q->n_indexed] = i;
        q->slot[q->n_indexed] = from + i;
        q->index[q->n_indexed++] = r->in[from + i];
    }
    return lp_index_place(t, n, &q->place, &q->place_dim, e);
}

LP_KERNEL_PREPARE(lp_index_get_prepare)
{
    LpRowsReq q = {.mode = LP_ROWS_GATHER, .a_slot = 0, .b_slot = -1};
    LP_TRY(many_indices(r, 1, &q, e));
    q.a = r->in[0];
    q.b = r->out[0];
    return lp_rows_prepare(&q, k, e);
}

/* The values are broadcast to the indexed part of self. */
LP_KERNEL_PREPARE(lp_index_set_prepare)
{
    LpRowsReq q = {.mode = r->attr[LP_INDEX_SET_ACCUMULATE].i ? LP_ROWS_ADD
                                                              : LP_ROWS_PUT,
                   .a_slot = 0,
                   .b_slot = 1};
    LP_TRY(many_indices(r, 2, &q, e));
    q.a = r->out[0];
    q.before = r->in[0];
    q.b = (LpDesc){.dtype = r->in[1].dtype};
    int n = 0, k_th = 0;
    for (int i = 0; i <= q.a.ndim; i++) {
        if (n == q.place_dim) {
            memcpy(q.b.shape + n, q.place.shape,
                   (size_t)q.place.ndim * sizeof *q.b.shape);
            n += q.place.ndim;
            q.place_dim = -1; /* placed */
        }
        if (i == q.a.ndim)
            break;
        if (k_th < q.n_indexed && q.dim[k_th] == i)
            k_th++;
        else
            q.b.shape[n++] = q.a.shape[i];
    }
    q.b.ndim = (int8_t)n;
    LpType t[LP_MAX_DIMS];
    for (int i = 0; i < r->n_in - 2; i++)
        t[i] = lp_type_of_desc(&r->in[2 + i]);
    LP_TRY(lp_index_place(t, r->n_in - 2, &q.place, &q.place_dim, e));
    int shift = n - r->in[1].ndim;
    for (int i = 0; i < n; i++)
        q.b.strides[i] = i < shift || r->in[1].shape[i - shift] == 1
                             ? 0
                             : r->in[1].strides[i - shift];
    return lp_rows_prepare(&q, k, e);
}
