/* The driver of reductions. See reduce_kernel.h.
 *
 * Two ways. Rows: the operand's shortest stride lies in a reduced dimension;
 * each result is folded on its own from contiguous runs. Columns: it lies in
 * a kept dimension; a stretch of results is accumulated at once, row by row,
 * with the loops of binary operators. So are many results of few elements each,
 * wherever these lie.
 *
 * An item is one result (rows) or one stretch of results (columns) over one
 * piece of the reduced elements. Items run on any thread; if there is more
 * than one piece their states meet in the scratch memory and are joined in
 * order afterwards. */
#include "src/kernel/loops/reduce_kernel.h"

#include "src/kernel/loops/half_reduce.h"

#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/loops/pointwise.h"
#include "src/kernel/plain.h"
#include "src/kernel/state.h"

enum {
    BLOCK = 2048,       /* elements of a buffer */
    COLUMNS = 1024,     /* results of a stretch */
    NARROW = 256,       /* as many where several rows are one */
    SHORT_ROW = 16,     /* elements up to which rows are taken as columns */
    MANY = 64,          /* rows that pay for it */
    LONG_ROW = 128,     /* elements that pay for a call of a chain */
    SOON = 4,           /* rows until one that is asked for is read */
    FLUSH = 64,         /* float32 rows between additions in double */
    PIECE = 1 << 16,    /* reduced elements of an item of rows */
    DEEP = 128,         /* rows of an item of columns, at least */
    WORK_MIN = 1 << 16, /* elements that pay for waking a thread */
};

typedef union State {
    double f;
    int64_t i;
} State;

typedef struct Plan {
    LpFoldLoop fold;
    LpRowsLoop rows; /* columns: several rows as they are; NULL: one by one */
    LpLoop map[2], column, exp, sub;
    LpConvert load;         /* operand -> loop type, or `seen` */
    LpConvert truth, widen; /* seen -> bool -> int64; NULL: not asked */
    LpConvert store;
    double p;
    int64_t pieces, piece; /* reduced elements (rows) or rows (columns) */
    int64_t items;
    uint8_t fold_kind, end, type, state_type;
    uint8_t size, seen_size; /* of the loop type; of what truth reads */
    bool columns, direct, answer;
    bool narrow; /* columns: sums of rows that lie end to end, several wide */
    LpReduceGeo g;
} Plan;

/* Buffers of one thread. */
typedef struct Room {
    _Alignas(64) char a[BLOCK * 8];
    _Alignas(64) char flags[BLOCK];
    _Alignas(64) char acc[COLUMNS * 8];
    _Alignas(64) char top[COLUMNS * 8]; /* the maxima of logsumexp */
} Room;

/* What makes the operand, in place of memory. */
typedef struct Made {
    const LpKernel *chain;
    void *const *in; /* of the chain */
    const LpRunCtx *rc;
    size_t room; /* bytes of a thread */
} Made;

typedef struct Operand {
    const char *at;
    const Made *made; /* not NULL: rows only, in order */
} Operand;

static LpFoldLoop fold_loop(LpFold fold, LpDtype loop_type)
{
    static const LpFoldLoop(*_Atomic table)[3];
    if (!table) /* any thread finds the same */
        table = LP_SIMD_PICK(lp_loops_fold);
    return table[fold][loop_type == LP_F64 ? 0 : loop_type == LP_F32 ? 1 : 2];
}

static LpRowsLoop rows_loop(LpFold fold, LpDtype loop_type)
{
    static const LpRowsLoop(*_Atomic table)[3];
    if (!table) /* as above */
        table = LP_SIMD_PICK(lp_loops_rows);
    return table[fold][loop_type == LP_F64 ? 0 : loop_type == LP_F32 ? 1 : 2];
}

/* ---- states -------------------------------------------------------------- */
static State identity(const Plan *p)
{
    bool real = p->state_type == LP_F64;
    if (p->answer) /* any of none is false, all of none true */
        return (State){.i = p->fold_kind == LP_FOLD_MIN};
    switch ((LpFold)p->fold_kind) {
    case LP_FOLD_PROD:
        return real ? (State){.f = 1} : (State){.i = 1};
    case LP_FOLD_MAX:
        return real ? (State){.f = -INFINITY} : (State){.i = INT64_MIN};
    case LP_FOLD_MIN:
        return real ? (State){.f = INFINITY} : (State){.i = INT64_MAX};
    default:
        return real ? (State){.f = 0} : (State){.i = 0};
    }
}

static void finish(const Plan *p, State *s, const double *top, int64_t n,
                   char *y, int64_t step)
{
    double count = (double)p->g.red_elems;
    for (int64_t j = 0; j < n && p->end != LP_END_NONE; j++)
        s[j].f = p->end == LP_END_MEAN ? s[j].f / count
                 : p->end == LP_END_ROOT
                     ? (p->p == 2 ? sqrt(s[j].f) : pow(s[j].f, 1 / p->p))
                     : log(s[j].f) + top[j];
    p->store(n, y, step, s, sizeof *s);
}

/* ---- rows ---------------------------------------------------------------- */
/* m elements of the loop type, mapped. */
static const void *mapped(const Plan *p, const void *v, int64_t m, Room *room)
{
    static const LpNum none[LP_PW_MAX_PARAM];
    for (int i = 0; i < 2 && p->map[i]; i++) {
        float f = (float)p->p;
        const void *in[2] = {v, p->type == LP_F32 ? (const void *)&f : &p->p};
        p->map[i](m, room->a, in, 2, none);
        v = room->a;
    }
    return v;
}

/* m elements at x, `step` apart, in the loop type and mapped. */
static const void *elements(const Plan *p, const char *x, int64_t step,
                            int64_t m, Room *room)
{
    const void *v = x;
    if (!p->direct || step != p->size) {
        p->load(m, room->a, p->seen_size, x, step);
        if (p->truth) {
            p->truth(m, room->flags, 1, room->a, p->seen_size);
            p->widen(m, room->a, p->size, room->flags, 1);
        }
        v = room->a;
    }
    return mapped(p, v, m, room);
}

/* As `elements`, of m from element `at` on of a chain, which come after each
 * other; a thread's scratch is behind the room. */
static const void *made(const Plan *p, const Made *c, int64_t at, int64_t m,
                        Room *room)
{
    lp_fused_values(c->chain, c->in, room->a, room + 1, c->rc, at, at + m);
    return mapped(p, room->a, m, room);
}

/* Folds reduced elements from … to of the result at x, `off` bytes into the
 * operand or what is made in its place. `top`: subtract it and take exp first.
 */
static void fold_row(const Plan *p, LpFoldLoop fold, const Operand *x,
                     int64_t off, int64_t from, int64_t to, const double *top,
                     Room *room, State *s)
{
    static const LpNum none[LP_PW_MAX_PARAM];
    const LpAxis *red = p->g.axis + p->g.n_kept;
    const LpAxis *last = red + p->g.n_red - 1;
    while (from < to) {
        int64_t in_line = last == red ? from : from % last->size;
        int64_t unused, left = last->size - in_line;
        int64_t m = to - from < left ? to - from : left;
        m = m < BLOCK ? m : BLOCK;
        int64_t at = off + lp_reduce_offset(red, p->g.n_red, from, &unused);
        const void *v = x->made ? made(p, x->made, at / p->size, m, room)
                                : elements(p, x->at + at, last->in, m, room);
        if (top) {
            float f = (float)*top;
            const void *in[2] = {v, p->type == LP_F32 ? (const void *)&f : top};
            p->sub(m, room->a, in, 2, none);
            in[0] = room->a;
            p->exp(m, room->a, in, 0, none);
            v = room->a;
        }
        fold(m, v, s);
        from += m;
    }
}

static double finite_top(double v)
{
    return fabs(v) == INFINITY ? 0 : v;
}

static void row_item(const Plan *p, const Operand *x, char *y, State *work,
                     int64_t item, Room *room)
{
    int64_t result = p->pieces > 1 ? item / p->pieces : item;
    int64_t from = (item - result * p->pieces) * p->piece;
    int64_t to = from + p->piece, out, n = p->g.red_elems;
    State s = identity(p);
    double top = 0;
    to = to < n ? to : n;
    int64_t off = lp_reduce_offset(p->g.axis, p->g.n_kept, result, &out);
    if (p->end == LP_END_LOGSUM) {
        State m = {.f = -INFINITY};
        fold_row(p, fold_loop(LP_FOLD_MAX, (LpDtype)p->type), x, off, from, to,
                 NULL, room, &m);
        top = finite_top(m.f);
    }
    fold_row(p, p->fold, x, off, from, to,
             p->end == LP_END_LOGSUM ? &top : NULL, room, &s);
    if (p->pieces > 1)
        work[item] = s;
    else
        finish(p, &s, &top, 1, y + out, 0);
}

/* ---- columns ------------------------------------------------------------- */
/* Accumulators of the loop type to states, joined with what is there. */
static void flush(const Plan *p, int64_t m, const char *acc, State *s,
                  bool fresh)
{
    State t[COLUMNS];
    LpDtype state = (LpDtype)p->state_type;
    lp_convert_loop((LpDtype)p->type, state)(m, t, 8, acc, p->size);
    if (fresh)
        memcpy(s, t, (size_t)m * sizeof *s);
    else if (state == LP_F64) /* only sums come here more than once */
        for (int64_t j = 0; j < m; j++)
            s[j].f += t[j].f;
    else
        for (int64_t j = 0; j < m; j++)
            s[j].i = (int64_t)((uint64_t)s[j].i + (uint64_t)t[j].i);
}

static void ask(const char *x, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(x + i);
}

/* Rows from … to, m columns at x, into s. `top` as in fold_row. */
static void fold_columns(const Plan *p, LpLoop column, bool sums, const char *x,
                         int64_t m, int64_t from, int64_t to, const char *top,
                         Room *room, State *s)
{
    static const LpNum none[LP_PW_MAX_PARAM];
    const LpAxis *red = p->g.axis + p->g.n_kept;
    int64_t step = red[-1].in, unused, rows = 0;
    bool fresh = true;
    for (int64_t i = from; i < to; i++) {
        const char *at = x + lp_reduce_offset(red, p->g.n_red, i, &unused);
        if (p->direct && i + SOON < to)
            ask(x + lp_reduce_offset(red, p->g.n_red, i + SOON, &unused),
                m * p->size);
        const void *v = elements(p, at, step, m, room);
        if (top) {
            const void *in[2] = {v, top};
            p->sub(m, room->a, in, 0, none);
            in[0] = room->a;
            p->exp(m, room->a, in, 0, none);
            v = room->a;
        }
        if (rows == 0) {
            memcpy(room->acc, v, (size_t)(m * p->size));
        } else {
            const void *in[2] = {room->acc, v};
            column(m, room->acc, in, 0, none);
        }
        rows++;
        if (i + 1 == to || (sums && rows == FLUSH)) {
            flush(p, m, room->acc, s, fresh);
            fresh = false;
            rows = 0;
        }
    }
}

/* As fold_columns, of elements as they are: several rows at once. */
static void fold_rows(const Plan *p, const char *x, int64_t m, int64_t from,
                      int64_t to, Room *room, State *s)
{
    const LpAxis *red = p->g.axis + p->g.n_kept;
    const LpAxis *last = red + p->g.n_red - 1;
    bool fresh = true;
    while (from < to) {
        int64_t n = to - from, unused;
        if (p->fold_kind == LP_FOLD_SUM && n > FLUSH)
            n = FLUSH;
        memcpy(room->acc, x + lp_reduce_offset(red, p->g.n_red, from, &unused),
               (size_t)(m * p->size));
        for (int64_t i = from + 1; i < from + n;) {
            int64_t left = last->size - i % last->size;
            int64_t rows = from + n - i < left ? from + n - i : left;
            p->rows(rows, last->in, m,
                    x + lp_reduce_offset(red, p->g.n_red, i, &unused),
                    room->acc);
            i += rows;
        }
        flush(p, m, room->acc, s, fresh);
        fresh = false;
        from += n;
    }
}

/* As fold_columns, for sums of few columns whose rows lie end to end: as many
 * rows as a stretch holds are added at once, each into its own accumulators. */
static void fold_narrow(const Plan *p, const char *x, int64_t m, int64_t from,
                        int64_t to, Room *room, State *s)
{
    static const LpNum none[LP_PW_MAX_PARAM];
    const LpAxis *red = p->g.axis + p->g.n_kept;
    const LpAxis *last = red + p->g.n_red - 1;
    int64_t wide = NARROW / m * m, step = red[-1].in;
    memset(s, 0, (size_t)m * sizeof *s);
    while (from < to) {
        State t[NARROW];
        int64_t unused, left = last->size - from % last->size;
        int64_t rows = to - from < left ? to - from : left;
        rows = rows < FLUSH * wide / m ? rows : FLUSH * wide / m;
        int64_t n = rows * m, first = n < wide ? n : wide;
        const char *at = x + lp_reduce_offset(red, p->g.n_red, from, &unused);
        memcpy(room->acc, elements(p, at, step, first, room),
               (size_t)(first * p->size));
        for (int64_t i = wide; i < n; i += wide) {
            int64_t some = n - i < wide ? n - i : wide;
            const void *in[2] = {room->acc,
                                 elements(p, at + i * step, step, some, room)};
            p->column(some, room->acc, in, 0, none);
        }
        flush(p, first, room->acc, t, true);
        for (int64_t i = 0; i < first; i += m)
            for (int64_t j = 0; j < m; j++)
                s[j].f += t[i + j].f;
        from += rows;
    }
}

/* That the columns are parted in; 1 for rows. */
static int64_t stretches_of(const Plan *p)
{
    int64_t n = p->columns ? p->g.axis[p->g.n_kept - 1].size : 1;
    return (n + COLUMNS - 1) / COLUMNS;
}

static void column_item(const Plan *p, const Operand *operand, char *y,
                        State *work, int64_t item, Room *room)
{
    const LpAxis *last = &p->g.axis[p->g.n_kept - 1];
    int64_t stretches = stretches_of(p);
    int64_t from = item % p->pieces * p->piece, to = from + p->piece, out;
    int64_t first = item / p->pieces % stretches * COLUMNS;
    int64_t outer = item / p->pieces / stretches, n = p->g.red_elems;
    int64_t m = last->size - first < COLUMNS ? last->size - first : COLUMNS;
    State s[COLUMNS];
    double top[COLUMNS];
    bool logsum = p->end == LP_END_LOGSUM;
    to = to < n ? to : n;
    const char *x = operand->at + first * last->in +
                    lp_reduce_offset(p->g.axis, p->g.n_kept - 1, outer, &out);
    if (logsum) {
        const LpLoopRow *row = lp_loop_row(LP_LOOP_maximum);
        fold_columns(p, p->type == LP_F32 ? row->f32 : row->f64, false, x, m,
                     from, to, NULL, room, s);
        for (int64_t j = 0; j < m; j++)
            top[j] = finite_top(s[j].f);
        lp_convert_loop(LP_F64, (LpDtype)p->type)(m, room->top, p->size, top,
                                                  8);
    }
    if (p->narrow)
        fold_narrow(p, x, m, from, to, room, s);
    else if (p->rows)
        fold_rows(p, x, m, from, to, room, s);
    else
        fold_columns(p, p->column, p->fold_kind == LP_FOLD_SUM, x, m, from, to,
                     logsum ? room->top : NULL, room, s);
    if (p->pieces > 1)
        memcpy(work + item * COLUMNS, s, (size_t)m * sizeof *s);
    else
        finish(p, s, top, m, y + out + first * last->out, last->out);
}

/* ---- running ------------------------------------------------------------- */
/* Joins the pieces of one result or stretch. */
static void join(const Plan *p, char *y, State *work, int64_t group)
{
    const LpAxis *last = &p->g.axis[p->g.n_kept - 1];
    int64_t width = p->columns ? COLUMNS : 1, out, m = 1;
    State *s = work + group * p->pieces * width;
    if (p->columns) {
        int64_t stretches = stretches_of(p);
        int64_t first = group % stretches * COLUMNS;
        m = last->size - first < COLUMNS ? last->size - first : COLUMNS;
        lp_reduce_offset(p->g.axis, p->g.n_kept - 1, group / stretches, &out);
        out += first * last->out;
    } else {
        lp_reduce_offset(p->g.axis, p->g.n_kept, group, &out);
    }
    rows_loop((LpFold)p->fold_kind, (LpDtype)p->state_type)(
        p->pieces - 1, width * (int64_t)sizeof *s, m, s + width, s);
    finish(p, s, NULL, m, y + out, last->out);
}

static void fill_identity(const Plan *p, char *y)
{
    double top = 0;
    for (int64_t i = 0; i < p->g.kept_elems; i++) {
        State s = identity(p);
        int64_t out;
        lp_reduce_offset(p->g.axis, p->g.n_kept, i, &out);
        finish(p, &s, &top, 1, y + out, 0);
    }
}

/* The i-th item as they lie in memory: a piece's stretches side by side, so
 * that a thread has the rows that it made. */
static int64_t item_at(const Plan *p, int64_t i)
{
    int64_t stretches = stretches_of(p);
    int64_t here = i % (stretches * p->pieces);
    return i - here + here % stretches * p->pieces + here / stretches;
}

static void run_items(const Plan *p, int threads, const Operand *x, char *y,
                      State *work)
{
    void (*item)(const Plan *, const Operand *, char *, State *, int64_t,
                 Room *) = p->columns ? column_item : row_item;
    if (threads == 1) {
        Room room;
        for (int64_t i = 0; i < p->items && !lp_kernel_stops(); i++)
            item(p, x, y, work, i, &room);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        Room room;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < p->items; i++)
            if (!lp_kernel_stops())
                item(p, x, y, work, item_at(p, i), &room);
    }
}

/* The same of rows that are made, each thread in a room of its own. */
static void run_made(const Plan *p, int threads, const Made *made, char *y,
                     State *work, char *rooms)
{
    Operand x = {.made = made};
#pragma omp parallel for num_threads(threads)                                  \
    schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        Room *room = (void *)(rooms + (size_t)t * made->room);
        int64_t end = p->items * (t + 1) / threads;
        for (int64_t i = p->items * t / threads; i < end; i++)
            if (!lp_kernel_stops())
                row_item(p, &x, y, work, i, room);
    }
}

static LpStatus finish_items(const Plan *p, char *y, State *work)
{
    if (p->pieces > 1)
        for (int64_t i = 0; i < p->items / p->pieces; i++)
            join(p, y, work, i);
    return LP_OK;
}

LP_KERNEL_RUN(run)
{
    const Plan *p = (const void *)k->inl;
    if (p->g.kept_elems == 0)
        return LP_OK;
    if (p->g.red_elems == 0) {
        fill_identity(p, out[0]);
        return LP_OK;
    }
    run_items(p, k->threads, &(Operand){.at = in[0]}, out[0], work);
    return finish_items(p, out[0], work);
}

/* ---- preparing ----------------------------------------------------------- */
static LpLoop loop_of(int loop, LpDtype t)
{
    if (loop == LP_LOOP_NONE)
        return NULL;
    const LpLoopRow *row = lp_loop_row(loop);
    return t == LP_F32 ? row->f32 : t == LP_F64 ? row->f64 : row->i64;
}

static bool wants_columns(const LpReduceGeo *g)
{
    const LpAxis *kept = &g->axis[g->n_kept - 1];
    const LpAxis *red = &g->axis[g->n_kept + g->n_red - 1];
    if (g->n_red == 1 && g->red_elems <= SHORT_ROW && kept->size >= MANY)
        return red->size > 1;
    return kept->size > 1 && red->size > 1 && kept->in < red->in;
}

static bool is_narrow(const Plan *p, LpDtype from)
{
    int64_t size = (int64_t)lp_dtype_size(from);
    const LpAxis *kept = &p->g.axis[p->g.n_kept - 1];
    const LpAxis *red = &p->g.axis[p->g.n_kept + p->g.n_red - 1];
    return p->columns && !p->truth && !p->map[0] && !p->map[1] &&
           p->fold_kind == LP_FOLD_SUM && p->end != LP_END_LOGSUM &&
           p->state_type == LP_F64 && kept->size <= NARROW / 2 &&
           kept->in == size && red->in == kept->size * size;
}

static void set_pieces(Plan *p)
{
    const LpReduceGeo *g = &p->g;
    int64_t columns = 1, groups = g->kept_elems;
    if (p->columns) {
        int64_t last = g->axis[g->n_kept - 1].size;
        columns = last < COLUMNS ? last : COLUMNS;
        groups = groups / last * ((last + COLUMNS - 1) / COLUMNS);
    }
    p->piece = PIECE / columns;
    if (p->piece < DEEP)
        p->piece = DEEP;
    p->pieces = p->end == LP_END_LOGSUM || g->red_elems == 0
                    ? 1
                    : (g->red_elems + p->piece - 1) / p->piece;
    if (p->pieces == 1)
        p->piece = g->red_elems;
    p->items = groups * p->pieces;
}

/* How elements come into the loop type. */
static void set_conversions(Plan *p, LpDtype from, LpDtype to, bool truth)
{
    LpDtype t = (LpDtype)p->type;
    LpDtype seen = truth && from != LP_BOOL ? lp_plain_type(from) : t;
    bool test = truth && from != LP_BOOL;
    p->load = lp_convert_loop(from, seen);
    p->truth = test ? lp_convert_loop(seen, LP_BOOL) : NULL;
    p->widen = lp_convert_loop(LP_BOOL, t);
    p->store = lp_convert_loop((LpDtype)p->state_type, to);
    p->size = (uint8_t)lp_dtype_size(t);
    p->seen_size = (uint8_t)lp_dtype_size(seen);
    p->direct = from == t && !test;
    p->answer = truth && p->fold_kind >= LP_FOLD_MAX;
}

LpStatus lp_reduce_prepare(const LpKernelReq *r, const LpReduceSpec *spec,
                           const LpAttr *dims, LpKernel *k, LpErr *e)
{
    static const int column[LP_N_FOLDS] = {LP_LOOP_add, LP_LOOP_mul,
                                           LP_LOOP_maximum, LP_LOOP_minimum};
    if (r->numerics.half_partials)
        return lp_half_reduce_prepare(r, spec->end == LP_END_MEAN, dims, k, e);
    Plan *p = (void *)k->inl;
    LpDtype to = r->out[0].dtype;
    LpDtype t = spec->truth ? LP_I64 : lp_plain_type(to);
    _Static_assert(sizeof *p <= sizeof k->inl, "plan");
    lp_reduce_geometry(&r->in[0], &r->out[0], dims, &p->g);
    p->fold_kind = (uint8_t)spec->fold;
    p->fold = fold_loop(spec->fold, t);
    p->column = loop_of(column[spec->fold], t);
    p->rows = NULL;
    p->exp = loop_of(LP_LOOP_exp, t);
    p->sub = loop_of(LP_LOOP_sub, t);
    for (int i = 0; i < 2; i++)
        p->map[i] = loop_of(spec->map[i], t);
    p->end = (uint8_t)spec->end;
    p->p = spec->p;
    p->type = (uint8_t)t;
    p->state_type = t == LP_I64 ? LP_I64 : LP_F64;
    set_conversions(p, r->in[0].dtype, to, spec->truth);
    p->columns = wants_columns(&p->g);
    p->narrow = is_narrow(p, r->in[0].dtype);
    if (p->columns && p->direct && !p->map[0] && !p->map[1] &&
        p->end != LP_END_LOGSUM && p->g.axis[p->g.n_kept - 1].in == p->size)
        p->rows = rows_loop(spec->fold, t);
    set_pieces(p);
    k->run = run;
    k->threads = 1;
    if (p->g.kept_elems * p->g.red_elems >= WORK_MIN && p->items > 1)
        k->threads = r->threads;
    if (p->pieces > 1)
        k->work_bytes =
            (size_t)(p->items * (p->columns ? COLUMNS : 1)) * sizeof(State);
    return LP_OK;
}

/* ---- of a chain ---------------------------------------------------------- */
typedef struct Chained {
    LpKernel reduce, chain;
    size_t states; /* bytes of scratch for them */
    size_t room;   /* of a thread */
} Chained;

LP_KERNEL_RUN(run_chained)
{
    const Chained *s = k->state;
    const Plan *p = (const void *)s->reduce.inl;
    Made made = {&s->chain, in, rc, s->room};
    run_made(p, k->threads, &made, out[0], work, (char *)work + s->states);
    return finish_items(p, out[0], work);
}

static void drop_chained(void *state)
{
    Chained *s = state;
    lp_kernel_fini(&s->chain);
    lp_free(s);
}

/* Do the elements that are reduced lie one after the other, as do results, and
 * are they many? */
static bool in_order(const Plan *p)
{
    const LpAxis *red = &p->g.axis[p->g.n_kept], *kept = &p->g.axis[0];
    return !p->columns && p->direct && p->end != LP_END_LOGSUM &&
           p->g.n_red == 1 && p->g.n_kept == 1 && red->in == p->size &&
           p->g.kept_elems > 0 && p->g.red_elems >= LONG_ROW &&
           (kept->size == 1 || kept->in == red->size * p->size);
}

LpStatus lp_reduce_of_chain(const LpKernel *reduce, const LpFusedReq *r,
                            LpKernel *k, LpErr *e)
{
    const Plan *p = (const void *)reduce->inl;
    LP_FAIL_IF(reduce->run != run || !in_order(p), e, LP_E_NOT_IMPLEMENTED,
               "no reduction of rows");
    Chained *s = lp_calloc(1, sizeof *s);
    LP_FAIL_IF(!s, e, LP_E_MEMORY, "out of memory");
    s->reduce = *reduce;
    LpStatus status = lp_fused_prepare(r, &s->chain, e);
    if (status != LP_OK) {
        lp_free(s);
        return status;
    }
    s->states = (reduce->work_bytes + 63) / 64 * 64;
    s->room = (sizeof(Room) + lp_fused_work(&s->chain) + 63) / 64 * 64;
    k->threads = reduce->threads;
    k->work_bytes = s->states + (size_t)k->threads * s->room;
    lp_kernel_own(s, drop_chained, run_chained, k);
    return LP_OK;
}
