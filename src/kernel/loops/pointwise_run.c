/* The pointwise driver: running. See pointwise.h.
 *
 * Three ways to run. Direct: everything is dense, of the loop's own types; the
 * loop gets the caller's pointers. By rows: the same of each row, as for a row
 * or a column that is broadcast. General: the index space is collapsed to
 * the fewest dimensions and cut into blocks; operands that are not dense or
 * not of the loop's type are brought into a block buffer, and the result is
 * stored from one. If rows are long a block lies in one row, so that dense
 * rows need no buffer; else it spans rows.
 *
 * Bits do not depend on threads: every element is computed alone. */
#include <string.h>

#include "src/base/interrupt.h"
#include "src/kernel/loops/pointwise_plan.h"

enum {
    BLOCK = 1024,   /* elements; all buffers of a thread stay in L1 and L2 */
    LONG_ROW = 256, /* elements from which blocks stay within rows */
    FEW = 8,        /* elements that are read without a call */
    LOOK = 1 << 20, /* elements between two looks for Ctrl-C */
    ROWS = 4096,    /* rows likewise */
};

static const LpPwPlan *plan_of(const LpKernel *k)
{
    return k->state ? k->state : (const void *)k->inl;
}

typedef struct Run {
    const LpPwPlan *p;
    const char *in[LP_PW_MAX_IN];
    char *out;
    LpErr *err;
} Run;

static LpStatus zero_divisor(const LpPwPlan *p, int64_t n, const void *y,
                             unsigned splat, LpErr *e)
{
    const int64_t *d = y;
    if (!p->divides)
        return LP_OK;
    bool zero = false;
    for (int64_t i = 0; i < (lp_pw_has(splat, 1) ? 1 : n); i++)
        zero |= d[i] == 0;
    LP_FAIL_IF(zero, e, LP_E_RUNTIME,
               "ZeroDivisionError: an integer was divided by zero");
    return LP_OK;
}

static void set_pointers(const LpPwPlan *p, void *const *in, Run *r)
{
    for (int i = 0; i < p->n_in; i++)
        r->in[i] = lp_pw_has(p->is_imm, i) ? (const char *)&p->imm[i]
                                           : in[(int)p->operand[i]];
}

static void run_direct_piece(const Run *r, int64_t from, int64_t to)
{
    const LpPwPlan *p = r->p;
    const void *x[LP_PW_MAX_IN];
    if (from == to)
        return; /* loops read a constant operand first, which may be empty */
    for (int i = 0; i < p->n_in; i++)
        x[i] = r->in[i] +
               (lp_pw_has(p->constant, i) ? 0 : from * (int64_t)p->in_size[i]);
    void *y = r->out + from * p->out_size;
    if (p->loop)
        p->loop(to - from, y, x, p->constant, p->p);
    else
        p->load[0](to - from, y, p->out_size, x[0], p->in_size[0]);
}

static void run_direct_part(const Run *r, int64_t from, int64_t to)
{
    for (; to - from > LOOK && !lp_kernel_stops(); from += LOOK)
        run_direct_piece(r, from, from + LOOK);
    run_direct_piece(r, from, to - from > LOOK ? from : to);
}

LpStatus lp_pointwise_run_direct(const LpKernel *k, void *const *in,
                                 void *const *out, void *work,
                                 const LpRunCtx *rc, LpErr *e)
{
    const LpPwPlan *p = (const void *)k->inl;
    Run r = {.p = p, .out = out[0], .err = e};
    (void)work, (void)rc;
    set_pointers(p, in, &r);
    if (k->threads == 1) {
        run_direct_part(&r, 0, p->n);
        return LP_OK;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int t = 0; t < k->threads; t++)
        run_direct_part(&r, lp_pw_part(p->n, t, k->threads),
                        lp_pw_part(p->n, t + 1, k->threads));
    return LP_OK;
}

/* Where a thread is: an index for each dimension. */
typedef struct Cursor {
    int64_t at[LP_MAX_DIMS];
} Cursor;

static Cursor cursor_at(const LpPwPlan *p, int64_t i)
{
    Cursor c = {{0}};
    for (int d = p->ndim - 1; d >= 0; d--) {
        int64_t size = p->geo[d * lp_pw_row(p)];
        c.at[d] = i % size;
        i /= size;
    }
    return c;
}

/* Moves by n elements, at most to the start of the next row. */
static void advance(const LpPwPlan *p, Cursor *c, int64_t n)
{
    int d = p->ndim - 1;
    c->at[d] += n;
    while (d > 0 && c->at[d] == p->geo[d * lp_pw_row(p)]) {
        c->at[d] = 0;
        c->at[--d]++;
    }
}

static int64_t offset(const LpPwPlan *p, const Cursor *c, int column)
{
    int64_t o = 0;
    for (int d = 0; d < p->ndim; d++)
        o += c->at[d] * p->geo[d * lp_pw_row(p) + column];
    return o;
}

static int64_t left_in_row(const LpPwPlan *p, const Cursor *c)
{
    int d = p->ndim - 1;
    return p->geo[d * lp_pw_row(p)] - c->at[d];
}

/* A few elements of four bytes. */
static inline void gather_few(int64_t n, char *to, const char *x, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + 4 * i, x + i * step, 4);
}

/* Reads n elements from `c` on into buf, row piece by row piece. */
static void gather(const LpPwPlan *p, int i, const char *x, Cursor c, int64_t n,
                   char *buf)
{
    int64_t step = p->geo[(p->ndim - 1) * lp_pw_row(p) + 2 + i];
    bool same = p->loop_size[i] == 4 && !lp_pw_has(p->converts, i);
    while (n > 0) {
        int64_t m = left_in_row(p, &c);
        m = m < n ? m : n;
        if (same && m <= FEW)
            gather_few(m, buf, x + offset(p, &c, 2 + i), step);
        else
            p->load[i](m, buf, p->loop_size[i], x + offset(p, &c, 2 + i), step);
        buf += m * p->loop_size[i];
        n -= m;
        advance(p, &c, m);
    }
}

static void scatter(const LpPwPlan *p, char *y, Cursor c, int64_t n,
                    const char *buf)
{
    int64_t step = p->geo[(p->ndim - 1) * lp_pw_row(p) + 1];
    while (n > 0) {
        int64_t m = left_in_row(p, &c);
        m = m < n ? m : n;
        p->store(m, y + offset(p, &c, 1), step, buf, p->loop_out_size);
        buf += m * p->loop_out_size;
        n -= m;
        advance(p, &c, m);
    }
}

/* Rows from … to; an operand that stands still along a row is a number. */
static void run_rows_part(const Run *r, int64_t from, int64_t to)
{
    const LpPwPlan *p = r->p;
    int width = lp_pw_row(p), last = p->ndim - 1;
    const int64_t *inner = p->geo + last * width;
    Cursor c = cursor_at(p, from * inner[0]);
    const void *x[LP_PW_MAX_IN];
    unsigned splat = 0;
    for (int i = 0; i < p->n_in; i++) {
        x[i] = r->in[i] + offset(p, &c, 2 + i);
        splat |= (unsigned)(inner[2 + i] == 0) << i;
    }
    char *y = r->out + offset(p, &c, 1);
    for (int64_t row = from; row < to; row++) {
        if (row % ROWS == 0 && lp_kernel_stops())
            return;
        p->loop(inner[0], y, x, splat, p->p);
        for (int d = last - 1; d >= 0; d--) {
            const int64_t *g = p->geo + d * width;
            int64_t step = ++c.at[d] < g[0] ? 1 : 1 - g[0];
            y += step * g[1];
            for (int i = 0; i < p->n_in; i++)
                x[i] = (const char *)x[i] + step * g[2 + i];
            if (step == 1)
                break;
            c.at[d] = 0;
        }
    }
}

LpStatus lp_pointwise_run_rows(const LpKernel *k, void *const *in,
                               void *const *out, void *work, const LpRunCtx *rc,
                               LpErr *e)
{
    const LpPwPlan *p = plan_of(k);
    Run r = {.p = p, .out = out[0], .err = e};
    (void)work, (void)rc;
    if (p->n == 0)
        return LP_OK;
    set_pointers(p, in, &r);
    int64_t rows = p->n / p->geo[(p->ndim - 1) * lp_pw_row(p)];
    if (k->threads == 1) {
        run_rows_part(&r, 0, rows);
        return LP_OK;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int t = 0; t < k->threads; t++)
        run_rows_part(&r, rows * t / k->threads, rows * (t + 1) / k->threads);
    return LP_OK;
}

typedef struct Buffers {
    _Alignas(64) char in[LP_PW_MAX_IN][(BLOCK + LONG_ROW) * 8];
    _Alignas(64) char out[BLOCK * 8];
    unsigned repeated; /* bits of operands that are the same in every row */
    unsigned filled;   /* those of them whose buffer has them */
} Buffers;

/* Of short rows, as a row that is broadcast. */
static unsigned repeated_operands(const LpPwPlan *p)
{
    unsigned bits = 0;
    for (int i = 0; i < p->n_in; i++) {
        bool same = !lp_pw_has(p->constant | p->narrows, i);
        for (int d = 0; d < p->ndim - 1; d++)
            same = same && p->geo[d * lp_pw_row(p) + 2 + i] == 0;
        bits |= (unsigned)same << i;
    }
    return bits;
}

/* One row after the other, for blocks that begin at any column. */
static void repeat_row(const LpPwPlan *p, int i, const char *x, char *buf)
{
    int64_t row = p->geo[(p->ndim - 1) * lp_pw_row(p)], have = row;
    int64_t want = row + (p->n < BLOCK ? p->n : BLOCK);
    size_t size = p->loop_size[i];
    gather(p, i, x, (Cursor){{0}}, row, buf);
    for (int64_t m; have < want; have += m) {
        m = have < want - have ? have : want - have;
        memcpy(buf + (size_t)have * size, buf, (size_t)m * size);
    }
}

/* Operand i of the block of n elements at `c` (element `at`), as the loop
 * wants it. `one_row`: the block lies in one row. */
static const void *fetch(const Run *r, int i, const Cursor *c, int64_t at,
                         int64_t n, bool one_row, Buffers *b, unsigned *splat)
{
    const LpPwPlan *p = r->p;
    char *buf = b->in[i];
    int64_t step = p->geo[(p->ndim - 1) * lp_pw_row(p) + 2 + i];
    bool same = !lp_pw_has(p->converts, i);
    if (lp_pw_has(p->is_imm, i) && p->splat_ok) {
        *splat |= 1u << i;
        return r->in[i];
    }
    if (lp_pw_has(p->constant, i) || (one_row && step == 0)) {
        const char *x = r->in[i];
        if (!lp_pw_has(p->constant, i))
            x += offset(p, c, 2 + i);
        if (p->splat_ok)
            *splat |= 1u << i;
        p->load[i](p->splat_ok ? 1 : n, buf, p->loop_size[i], x, 0);
        return buf;
    }
    if (lp_pw_has(b->repeated, i)) { /* filled once */
        int64_t row = p->geo[(p->ndim - 1) * lp_pw_row(p)];
        if (!lp_pw_has(b->filled, i))
            repeat_row(p, i, r->in[i], buf);
        b->filled |= 1u << i;
        return buf + at % row * p->loop_size[i];
    }
    if (lp_pw_has(p->linear, i)) {
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
    const LpPwPlan *p = r->p;
    const void *x[LP_PW_MAX_IN];
    unsigned splat = 0;
    for (int i = 0; i < p->n_in; i++) {
        x[i] = fetch(r, i, c, at, n, one_row, b, &splat);
        if (lp_pw_has(p->narrows, i)) /* converted, so in its buffer */
            lp_pointwise_round(lp_pw_has(splat, i) ? 1 : n, b->in[i], b->in[i],
                               lp_plain_type((LpDtype)p->narrow),
                               (LpDtype)p->narrow);
    }
    char *y = b->out;
    bool in_place = false;
    if (!p->out_converts) {
        int64_t step = p->geo[(p->ndim - 1) * lp_pw_row(p) + 1];
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
    const LpPwPlan *p = r->p;
    Buffers b;
    bool rows =
        p->geo[(p->ndim - 1) * lp_pw_row(p)] >= LONG_ROW || p->ndim == 1;
    b.repeated = rows ? 0 : repeated_operands(p);
    b.filled = 0;
    while (from < to && !lp_kernel_stops()) {
        Cursor c = cursor_at(p, from);
        int64_t n = rows ? left_in_row(p, &c) : to - from;
        n = n < to - from ? n : to - from;
        n = n < BLOCK ? n : BLOCK;
        LP_TRY(run_block(r, &c, from, n, rows, &b));
        from += n;
    }
    return LP_OK;
}

LpStatus lp_pointwise_run_general(const LpKernel *k, void *const *in,
                                  void *const *out, void *work,
                                  const LpRunCtx *rc, LpErr *e)
{
    const LpPwPlan *p = plan_of(k);
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
        failed |= run_part(&mine, lp_pw_part(p->n, t, k->threads),
                           lp_pw_part(p->n, t + 1, k->threads)) != LP_OK;
    }
    /* The only failure there is; told again on this thread. */
    LP_FAIL_IF(failed, e, LP_E_RUNTIME,
               "ZeroDivisionError: an integer was divided by zero");
    return LP_OK;
}
