/* The pointwise driver. See pointwise.h.
 *
 * Two ways to run. Direct: everything is dense, of the loop's own types; the
 * loop gets the caller's pointers. General: the index space is collapsed to
 * the fewest dimensions and cut into blocks; operands that are not dense or
 * not of the loop's type are brought into a block buffer, and the result is
 * stored from one. If rows are long a block lies in one row, so that dense
 * rows need no buffer; else it spans rows.
 *
 * The plan lives in LpKernel.inl (LpKernel.state for many dimensions). Bits
 * do not depend on threads: every element is computed alone. */
#include "src/ops/kernel/pointwise.h"

#include <string.h>

#include "src/base/mem.h"

enum {
    BLOCK = 1024,      /* elements; all buffers of a thread stay in L1 and L2 */
    LONG_ROW = 256,    /* elements from which blocks stay within rows */
    WORK_MIN = 65536,  /* additions that pay for waking a thread */
    FUNCTION_COST = 8, /* a transcendental function in additions */
};

typedef struct Plan {
    LpLoop loop;
    int64_t n;
    LpNum p[LP_PW_MAX_PARAM];
    LpConvert load[LP_PW_MAX_IN]; /* stored operand -> loop */
    LpConvert store;              /* loop -> stored result */
    LpPwOne imm[LP_PW_MAX_IN];
    uint8_t in_size[LP_PW_MAX_IN], loop_size[LP_PW_MAX_IN];
    uint8_t out_size, loop_out_size;
    int8_t operand[LP_PW_MAX_IN];
    uint8_t n_in, ndim;
    uint8_t is_imm, constant, linear, converts, narrows; /* bits by operand */
    uint8_t narrow;                                      /* LpDtype */
    bool out_linear, out_converts, splat_ok, divides;
    /* A dimension, outermost first: size, then strides in bytes of the
     * result and of each operand. */
    int64_t geo[];
} Plan;

static int row_of(const Plan *p)
{
    return 2 + p->n_in;
}

static const Plan *plan_of(const LpKernel *k)
{
    return k->state ? k->state : (const void *)k->inl;
}

static bool has(unsigned bits, int i)
{
    return bits >> i & 1;
}

/* ---- running --------------------------------------------------------------
 */
typedef struct Run {
    const Plan *p;
    const char *in[LP_PW_MAX_IN];
    char *out;
    LpErr *err;
} Run;

static LpStatus zero_divisor(const Plan *p, int64_t n, const void *y,
                             unsigned splat, LpErr *e)
{
    const int64_t *d = y;
    if (!p->divides)
        return LP_OK;
    bool zero = false;
    for (int64_t i = 0; i < (has(splat, 1) ? 1 : n); i++)
        zero |= d[i] == 0;
    LP_FAIL_IF(zero, e, LP_E_RUNTIME,
               "ZeroDivisionError: an integer was divided by zero");
    return LP_OK;
}

static void set_pointers(const Plan *p, void *const *in, Run *r)
{
    for (int i = 0; i < p->n_in; i++)
        r->in[i] = has(p->is_imm, i) ? (const char *)&p->imm[i]
                                     : in[(int)p->operand[i]];
}

static void run_direct_part(const Run *r, int64_t from, int64_t to)
{
    const Plan *p = r->p;
    const void *x[LP_PW_MAX_IN];
    if (from == to)
        return; /* loops read a constant operand first, which may be empty */
    for (int i = 0; i < p->n_in; i++)
        x[i] = r->in[i] +
               (has(p->constant, i) ? 0 : from * (int64_t)p->in_size[i]);
    void *y = r->out + from * p->out_size;
    if (p->loop)
        p->loop(to - from, y, x, p->constant, p->p);
    else
        p->load[0](to - from, y, p->out_size, x[0], p->in_size[0]);
}

/* The part of thread t of n: whole cache lines. */
static int64_t part(int64_t n, int t, int threads)
{
    int64_t each = (n / threads + 63) / 64 * 64, at = each * t;
    return t == threads || at > n ? n : at;
}

static LpStatus run_direct(const LpKernel *k, void *const *in, void *const *out,
                           void *work, const LpRunCtx *rc, LpErr *e)
{
    const Plan *p = (const void *)k->inl;
    Run r = {.p = p, .out = out[0], .err = e};
    (void)work, (void)rc;
    set_pointers(p, in, &r);
    if (k->threads == 1) {
        run_direct_part(&r, 0, p->n);
        return LP_OK;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int t = 0; t < k->threads; t++)
        run_direct_part(&r, part(p->n, t, k->threads),
                        part(p->n, t + 1, k->threads));
    return LP_OK;
}

/* Where a thread is: an index for each dimension. */
typedef struct Cursor {
    int64_t at[LP_MAX_DIMS];
} Cursor;

static Cursor cursor_at(const Plan *p, int64_t i)
{
    Cursor c = {{0}};
    for (int d = p->ndim - 1; d >= 0; d--) {
        int64_t size = p->geo[d * row_of(p)];
        c.at[d] = i % size;
        i /= size;
    }
    return c;
}

/* Moves by n elements, at most to the start of the next row. */
static void advance(const Plan *p, Cursor *c, int64_t n)
{
    int d = p->ndim - 1;
    c->at[d] += n;
    while (d > 0 && c->at[d] == p->geo[d * row_of(p)]) {
        c->at[d] = 0;
        c->at[--d]++;
    }
}

static int64_t offset(const Plan *p, const Cursor *c, int column)
{
    int64_t o = 0;
    for (int d = 0; d < p->ndim; d++)
        o += c->at[d] * p->geo[d * row_of(p) + column];
    return o;
}

static int64_t left_in_row(const Plan *p, const Cursor *c)
{
    int d = p->ndim - 1;
    return p->geo[d * row_of(p)] - c->at[d];
}

/* Reads n elements from `c` on into buf, row piece by row piece. */
static void gather(const Plan *p, int i, const char *x, Cursor c, int64_t n,
                   char *buf)
{
    int64_t step = p->geo[(p->ndim - 1) * row_of(p) + 2 + i];
    while (n > 0) {
        int64_t m = left_in_row(p, &c);
        m = m < n ? m : n;
        p->load[i](m, buf, p->loop_size[i], x + offset(p, &c, 2 + i), step);
        buf += m * p->loop_size[i];
        n -= m;
        advance(p, &c, m);
    }
}

static void scatter(const Plan *p, char *y, Cursor c, int64_t n,
                    const char *buf)
{
    int64_t step = p->geo[(p->ndim - 1) * row_of(p) + 1];
    while (n > 0) {
        int64_t m = left_in_row(p, &c);
        m = m < n ? m : n;
        p->store(m, y + offset(p, &c, 1), step, buf, p->loop_out_size);
        buf += m * p->loop_out_size;
        n -= m;
        advance(p, &c, m);
    }
}

typedef struct Buffers {
    _Alignas(64) char in[LP_PW_MAX_IN][BLOCK * 8];
    _Alignas(64) char out[BLOCK * 8];
} Buffers;

/* Operand i of the block of n elements at `c` (element `at`), as the loop
 * wants it. `one_row`: the block lies in one row. */
static const void *fetch(const Run *r, int i, const Cursor *c, int64_t at,
                         int64_t n, bool one_row, Buffers *b, unsigned *splat)
{
    const Plan *p = r->p;
    char *buf = b->in[i];
    int64_t step = p->geo[(p->ndim - 1) * row_of(p) + 2 + i];
    bool same = !has(p->converts, i);
    if (has(p->is_imm, i) && p->splat_ok) {
        *splat |= 1u << i;
        return r->in[i];
    }
    if (has(p->constant, i) || (one_row && step == 0)) {
        const char *x = r->in[i];
        if (!has(p->constant, i))
            x += offset(p, c, 2 + i);
        if (p->splat_ok)
            *splat |= 1u << i;
        p->load[i](p->splat_ok ? 1 : n, buf, p->loop_size[i], x, 0);
        return buf;
    }
    if (has(p->linear, i)) {
        const char *x = r->in[i] + at * p->in_size[i];
        if (same)
            return x;
        p->load[i](n, buf, p->loop_size[i], x, p->in_size[i]);
        return buf;
    }
    if (one_row && same && step == p->in_size[i])
        return r->in[i] + offset(p, c, 2 + i);
    gather(p, i, r->in[i], *c, n, buf);
    return buf;
}

static LpStatus run_block(const Run *r, const Cursor *c, int64_t at, int64_t n,
                          bool one_row, Buffers *b)
{
    const Plan *p = r->p;
    const void *x[LP_PW_MAX_IN];
    unsigned splat = 0;
    for (int i = 0; i < p->n_in; i++) {
        x[i] = fetch(r, i, c, at, n, one_row, b, &splat);
        if (has(p->narrows, i)) /* converted, so in its buffer */
            lp_pointwise_round(has(splat, i) ? 1 : n, b->in[i], LP_F32,
                               (LpDtype)p->narrow);
    }
    char *y = b->out;
    bool in_place = false;
    if (!p->out_converts) {
        int64_t step = p->geo[(p->ndim - 1) * row_of(p) + 1];
        in_place = p->out_linear || (one_row && step == p->out_size);
        if (in_place)
            y = r->out + (p->out_linear ? at * p->out_size : offset(p, c, 1));
    }
    const char *result = y;
    if (p->loop) {
        LP_TRY(zero_divisor(p, n, x[p->n_in - 1], splat, r->err));
        p->loop(n, y, x, splat, p->p);
    } else if (in_place) {
        if (x[0] != y)
            memmove(y, x[0], (size_t)(n * p->out_size));
    } else {
        result = x[0];
    }
    if (in_place)
        return LP_OK;
    if (p->out_linear)
        p->store(n, r->out + at * p->out_size, p->out_size, result,
                 p->loop_out_size);
    else
        scatter(p, r->out, *c, n, result);
    return LP_OK;
}

static LpStatus run_part(const Run *r, int64_t from, int64_t to)
{
    const Plan *p = r->p;
    Buffers b;
    bool rows = p->geo[(p->ndim - 1) * row_of(p)] >= LONG_ROW || p->ndim == 1;
    while (from < to) {
        Cursor c = cursor_at(p, from);
        int64_t n = rows ? left_in_row(p, &c) : to - from;
        n = n < to - from ? n : to - from;
        n = n < BLOCK ? n : BLOCK;
        LP_TRY(run_block(r, &c, from, n, rows, &b));
        from += n;
    }
    return LP_OK;
}

static LpStatus run_general(const LpKernel *k, void *const *in,
                            void *const *out, void *work, const LpRunCtx *rc,
                            LpErr *e)
{
    const Plan *p = plan_of(k);
    Run r = {.p = p, .out = out[0], .err = e};
    (void)work, (void)rc;
    if (p->n == 0)
        return LP_OK;
    set_pointers(p, in, &r);
    if (k->threads == 1)
        return run_part(&r, 0, p->n);
    int failed = 0;
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)           \
    reduction(|                                                                \
              : failed)
    for (int t = 0; t < k->threads; t++) {
        Run mine = r;
        mine.err = NULL;
        failed |= run_part(&mine, part(p->n, t, k->threads),
                           part(p->n, t + 1, k->threads)) != LP_OK;
    }
    /* The only failure there is; told again on this thread. */
    LP_FAIL_IF(failed, e, LP_E_RUNTIME,
               "ZeroDivisionError: an integer was divided by zero");
    return LP_OK;
}

/* ---- preparing ------------------------------------------------------------
 */
static bool dense(const LpDesc *d)
{
    int64_t want = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        if (d->shape[i] != 1 && d->strides[i] != want)
            return false;
        want *= d->shape[i];
    }
    return true;
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

static void fill_plan(const LpKernelReq *r, const LpPwNode *node, Plan *p)
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
    p->n = 1;
    for (int i = 0; i < o->ndim; i++)
        p->n *= o->shape[i];
    for (int i = 0; i < p->n_in; i++) {
        const LpDesc *x = &r->in[(int)node->operand[i]];
        LpDtype t = node->in[i], from = x->is_imm ? t : x->dtype;
        p->operand[i] = node->operand[i];
        p->load[i] = lp_convert_loop(from, t);
        p->in_size[i] = (uint8_t)lp_dtype_size(from);
        p->loop_size[i] = (uint8_t)lp_dtype_size(t);
        p->converts |= (uint8_t)((from != t || has(p->narrows, i)) << i);
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
static bool is_direct(const LpKernelReq *r, const Plan *p)
{
    const LpDesc *o = &r->out[0];
    if (p->out_converts || p->divides || !dense(o) ||
        (p->converts && (p->loop || p->constant)))
        return false;
    for (int i = 0; i < p->n_in; i++) {
        const LpDesc *x = &r->in[(int)p->operand[i]];
        if (has(p->constant, i)) {
            if (!p->splat_ok && p->n != 1)
                return false;
        } else if (!same_layout(x, o)) {
            return false;
        }
    }
    return true;
}

/* Stride in bytes of operand x along dimension d of the result. */
static int64_t stride_of(const LpDesc *x, const LpDesc *o, int d, int size)
{
    int at = d - (o->ndim - x->ndim);
    if (x->is_imm || at < 0 || x->shape[at] == 1)
        return 0;
    return x->strides[at] * size;
}

/* Dimensions without those of size 1, the result's longest strides first. */
static int sort_dims(const LpDesc *o, int order[LP_MAX_DIMS])
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

static void set_geometry(const LpKernelReq *r, Plan *p)
{
    const LpDesc *o = &r->out[0];
    int order[LP_MAX_DIMS], n = sort_dims(o, order), width = row_of(p);
    p->ndim = 0;
    for (int k = 0; k < n; k++) {
        int d = order[k];
        int64_t *row = p->geo + p->ndim * width, *outer = row - width;
        row[0] = o->shape[d];
        row[1] = o->strides[d] * p->out_size;
        for (int i = 0; i < p->n_in; i++)
            row[2 + i] =
                stride_of(&r->in[(int)p->operand[i]], o, d, p->in_size[i]);
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
static bool is_linear(const Plan *p, int c, int64_t size)
{
    for (int d = p->ndim - 1; d >= 0; d--) {
        const int64_t *row = p->geo + d * row_of(p);
        if (row[c] != size && row[0] != 1)
            return false;
        size *= row[0];
    }
    return true;
}

static void fini(LpKernel *k)
{
    lp_free(k->state);
    k->state = NULL;
}

static LpStatus prepare_general(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Plan *p = (void *)k->inl;
    size_t rows = r->out[0].ndim > 0 ? (size_t)r->out[0].ndim : 1;
    size_t bytes = sizeof *p + rows * (size_t)row_of(p) * sizeof *p->geo;
    if (bytes > sizeof k->inl) {
        p = lp_alloc(bytes);
        LP_FAIL_IF(!p, e, LP_E_MEMORY, "no memory to prepare %s", r->op->name);
        memcpy(p, k->inl, sizeof *p);
        k->state = p;
        k->fini = fini;
    }
    k->run = run_general;
    set_geometry(r, p);
    p->out_linear = is_linear(p, 1, p->out_size);
    for (int i = 0; i < p->n_in; i++)
        if (!has(p->constant, i))
            p->linear |= (uint8_t)(is_linear(p, 2 + i, p->in_size[i]) << i);
    return LP_OK;
}

LpStatus lp_pointwise_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    Plan *p = (void *)k->inl;
    LpPwNode node;
    _Static_assert(sizeof *p + 6 * sizeof *p->geo <= sizeof k->inl, "plan");
    lp_pointwise_resolve(r, &node);
    fill_plan(r, &node, p);
    k->fini = NULL;
    k->state = NULL;
    k->work_bytes = 0;
    uint8_t policy = lp_pointwise_of(r->op)->policy;
    bool is_function = policy >= LP_PW_FLOAT && policy <= LP_PW_FLOAT_ONLY;
    int64_t each = is_function ? FUNCTION_COST : 1;
    k->threads = p->n >= WORK_MIN / each && r->threads > 1 ? r->threads : 1;
    if (!is_direct(r, p))
        return prepare_general(r, k, e);
    k->run = run_direct;
    return LP_OK;
}
