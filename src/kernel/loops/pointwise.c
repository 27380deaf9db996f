/* The pointwise driver: preparing. See pointwise.h; what runs, and how, is in
 * pointwise_run.c. */
#include "src/kernel/loops/pointwise.h"

#include <string.h>

#include "src/kernel/loops/pointwise_plan.h"
#include "src/kernel/state.h"

enum {
    WORK_MIN = 65536,  /* additions that pay for waking a thread */
    FUNCTION_COST = 8, /* a transcendental function in additions */
    SHORT_ROW = 16,    /* elements of a row from which it has a call */
    SIDE = 4,          /* elements of a tile's side, at least */
    TILED = 1024,      /* elements that pay for tiles */
    LINE = 64,         /* bytes of the cache */
};

static bool dense(const LpDesc *d)
{
    return lp_is_dense(d->shape, d->strides, d->ndim);
}

static bool single(const LpDesc *d)
{
    for (int i = 0; i < d->ndim; i++)
        if (d->shape[i] != 1)
            return false;
    return true;
}

static bool same_layout(const LpDesc *a, const LpDesc *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] ||
            (a->strides[i] != b->strides[i] && a->shape[i] != 1))
            return false;
    return true;
}

/* Takes the loop over what is stored where all that is read and written is of
 * that type; a number has its values in integers alone. */
static void choose_stored(const LpKernelReq *r, LpPwNode *n)
{
    if (!n->stored)
        return;
    LpDtype t = n->values, out = r->out[0].dtype;
    bool whole = lp_dtype_kind(t) == LP_KIND_INT;
    bool all = out == t || n->out == LP_BOOL;
    for (int i = 0; all && i < n->n_in; i++) {
        const LpDesc *x = &r->in[(int)n->operand[i]];
        all = x->is_imm ? whole && n->splat_ok : x->dtype == t;
    }
    if (!all)
        return;
    n->loop = n->stored;
    n->out = out;
    for (int i = 0; i < n->n_in; i++)
        n->in[i] = t;
}

static void fill_plan(const LpKernelReq *r, const LpPwNode *node, LpPwPlan *p)
{
    const LpDesc *o = &r->out[0];
    p->loop = node->loop;
    memcpy(p->p, node->p, sizeof p->p);
    p->n_in = (uint8_t)node->n_in;
    p->is_imm = p->constant = p->linear = p->converts = 0;
    p->narrows = node->narrows;
    p->narrow = (uint8_t)node->narrow;
    p->splat_ok = node->splat_ok;
    p->divides = node->divides;
    p->n = lp_elements(o->shape, o->ndim);
    for (int i = 0; i < p->n_in; i++) {
        const LpDesc *x = &r->in[(int)node->operand[i]];
        LpDtype t = node->in[i], from = x->is_imm ? t : x->dtype;
        p->operand[i] = node->operand[i];
        p->load[i] = lp_convert_loop(from, t);
        p->in_size[i] = (uint8_t)lp_dtype_size(from);
        p->loop_size[i] = (uint8_t)lp_dtype_size(t);
        p->converts |= (uint8_t)((from != t || lp_pw_has(p->narrows, i)) << i);
        if (x->is_imm) {
            p->is_imm |= (uint8_t)(1 << i);
            lp_pointwise_number(node, x->imm, t, &p->imm[i]);
        }
        p->constant |= (uint8_t)((x->is_imm || single(x)) << i);
    }
    p->out_size = (uint8_t)lp_dtype_size(o->dtype);
    p->loop_out_size = (uint8_t)lp_dtype_size(node->out);
    p->out_converts = o->dtype != node->out;
    p->store = lp_convert_loop(node->out, o->dtype);
}

/* Everything dense and of the loop's types; an identity may convert. */
static bool is_direct(const LpKernelReq *r, const LpPwPlan *p)
{
    const LpDesc *o = &r->out[0];
    if (p->out_converts || p->divides || !dense(o) ||
        (p->converts && (p->loop || p->constant)))
        return false;
    for (int i = 0; i < p->n_in; i++) {
        const LpDesc *x = &r->in[(int)p->operand[i]];
        if (lp_pw_has(p->constant, i)) {
            if (!p->splat_ok && p->n != 1)
                return false;
        } else if (!same_layout(x, o)) {
            return false;
        }
    }
    return true;
}

int lp_pw_sort_dims(const LpDesc *o, int order[LP_MAX_DIMS])
{
    int n = 0;
    for (int d = 0; d < o->ndim; d++) {
        if (o->shape[d] == 1)
            continue;
        int at = n++;
        for (; at > 0 && o->strides[order[at - 1]] < o->strides[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    return n;
}

static void set_geometry(const LpKernelReq *r, LpPwPlan *p)
{
    const LpDesc *o = &r->out[0];
    int order[LP_MAX_DIMS], n = lp_pw_sort_dims(o, order), width = lp_pw_row(p);
    p->ndim = 0;
    for (int k = 0; k < n; k++) {
        int d = order[k];
        int64_t *row = p->geo + p->ndim * width, *outer = row - width;
        row[0] = o->shape[d];
        row[1] = o->strides[d] * p->out_size;
        for (int i = 0; i < p->n_in; i++)
            row[2 + i] =
                lp_pw_stride(&r->in[(int)p->operand[i]], o, d, p->in_size[i]);
        bool merges = p->ndim > 0;
        for (int c = 1; merges && c < width; c++)
            merges = outer[c] == row[c] * row[0];
        if (merges) {
            outer[0] *= row[0];
            memcpy(outer + 1, row + 1, (size_t)(width - 1) * sizeof *row);
        } else {
            p->ndim++;
        }
    }
    if (p->ndim == 0) {
        memset(p->geo, 0, (size_t)width * sizeof *p->geo);
        p->geo[0] = 1;
        p->ndim = 1;
    }
}

/* Does column c walk the whole index space in steps of `size` bytes? */
static bool is_linear(const LpPwPlan *p, int c, int64_t size)
{
    for (int d = p->ndim - 1; d >= 0; d--) {
        const int64_t *row = p->geo + d * lp_pw_row(p);
        if (row[c] != size && row[0] != 1)
            return false;
        size *= row[0];
    }
    return true;
}

/* Rows that the loop takes as they are, long enough for a call of it each. */
static bool by_rows(const LpPwPlan *p)
{
    const int64_t *inner = p->geo + (p->ndim - 1) * lp_pw_row(p);
    if (!p->loop || !p->splat_ok || p->converts || p->out_converts ||
        p->divides || inner[0] < SHORT_ROW || inner[1] != p->out_size)
        return false;
    for (int i = 0; i < p->n_in; i++)
        if (inner[2 + i] != 0 && inner[2 + i] != p->in_size[i])
            return false;
    return true;
}

/* The dimension along which an operand's elements lie side by side that are far
 * apart along the last one; -1: none. */
static int crossed_dim(const LpPwPlan *p)
{
    int width = lp_pw_row(p), last = p->ndim - 1;
    const int64_t *inner = p->geo + last * width;
    if (p->divides || p->narrows || p->n < TILED || inner[0] < SIDE)
        return -1;
    for (int i = 0; i < p->n_in; i++)
        for (int d = 0; d < last; d++) {
            const int64_t *row = p->geo + d * width;
            if (row[0] >= SIDE && row[2 + i] == p->in_size[i] &&
                inner[2 + i] >= LINE)
                return d;
        }
    return -1;
}

static LP_KERNEL_PREPARE(prepare_general)
{
    LpPwPlan *p = (void *)k->inl;
    size_t rows = r->out[0].ndim > 0 ? (size_t)r->out[0].ndim : 1;
    size_t bytes = sizeof *p + rows * (size_t)lp_pw_row(p) * sizeof *p->geo;
    if (bytes > sizeof k->inl) {
        LP_TRY(lp_kernel_state(r->op->name, bytes, NULL, k, e));
        p = memcpy(k->state, k->inl, sizeof *p);
    }
    k->run = lp_pointwise_run_general;
    set_geometry(r, p);
    p->out_linear = is_linear(p, 1, p->out_size);
    for (int i = 0; i < p->n_in; i++)
        if (!lp_pw_has(p->constant, i))
            p->linear |= (uint8_t)(is_linear(p, 2 + i, p->in_size[i]) << i);
    p->crossed = (int8_t)crossed_dim(p);
    if (by_rows(p))
        k->run = lp_pointwise_run_rows;
    else if (p->crossed >= 0)
        k->run = lp_pointwise_run_tiles;
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_pointwise_prepare)
{
    LpPwPlan *p = (void *)k->inl;
    LpPwNode node;
    _Static_assert(sizeof *p + 6 * sizeof *p->geo <= sizeof k->inl, "plan");
    lp_pointwise_resolve(r, &node);
    choose_stored(r, &node);
    fill_plan(r, &node, p);
    uint8_t policy = lp_pointwise_of(r->op)->policy;
    bool is_function = policy >= LP_PW_FLOAT && policy <= LP_PW_FLOAT_ONLY;
    int64_t each = is_function ? FUNCTION_COST : 1;
    k->threads = p->n >= WORK_MIN / each && r->threads > 1 ? r->threads : 1;
    if (!is_direct(r, p))
        return prepare_general(r, k, e);
    k->run = lp_pointwise_run_direct;
    return LP_OK;
}
