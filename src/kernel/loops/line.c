/* Operators along a dimension that are no plain folds: positions of extremes,
 * medians, modes, running sums, products and extremes. A line is the reduced
 * elements of one result; it is read in chunks as double or int64, whatever
 * its stride, and lines are shared out to threads whole (reduce_kernel.h). */
#include <string.h>

#include "src/base/half.h"
#include "src/base/interrupt.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/gather_sort.h"
#include "src/kernel/loops/pointwise.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/kernel/loops/scan.h"

enum { CHUNK = 1024, WORK_MIN = 1 << 15 };

typedef union Value {
    double f;
    int64_t i;
} Value;

typedef struct Plan {
    LpConvert load, store; /* store: of values */
    uint8_t kind;
    bool real;         /* Value.f */
    bool keyed;        /* median: of float32 or halves */
    int64_t out_size;  /* bytes of an element of result 0 */
    int64_t line_work; /* Values of scratch a thread has */
    LpReduceGeo g;
} Plan;

/* Reads elements from … from + n of the line at x. */
static void read_line(const Plan *p, const char *x, int64_t from, int64_t n,
                      Value *v)
{
    const LpAxis *red = p->g.axis + p->g.n_kept;
    const LpAxis *last = red + p->g.n_red - 1;
    while (n > 0) {
        int64_t unused, m = last->size - from % last->size;
        m = m < n ? m : n;
        p->load(m, v, sizeof *v,
                x + lp_reduce_offset(red, p->g.n_red, from, &unused), last->in);
        v += m;
        from += m;
        n -= m;
    }
}

/* Writes them to the line at y. */
static void write_line(const Plan *p, char *y, int64_t from, int64_t n,
                       const Value *v)
{
    const LpAxis *red = p->g.axis + p->g.n_kept;
    const LpAxis *last = red + p->g.n_red - 1;
    while (n > 0) {
        int64_t at, m = last->size - from % last->size;
        m = m < n ? m : n;
        lp_reduce_offset(red, p->g.n_red, from, &at);
        p->store(m, y + at, last->out, v, sizeof *v);
        v += m;
        from += m;
        n -= m;
    }
}

/* Does a come before b? The greatest first (`most`) or the least; a NaN
 * before everything. */
static bool before(bool real, bool most, Value a, Value b)
{
    if (!real)
        return most ? a.i > b.i : a.i < b.i;
    if (a.f != a.f)
        return b.f == b.f;
    return most ? a.f > b.f : a.f < b.f;
}

static int64_t extreme(const Plan *p, const char *x, bool most, Value *best)
{
    Value v[CHUNK];
    int64_t n = p->g.red_elems, at = -1;
    for (int64_t k = 0; k < n; k += CHUNK) {
        int64_t m = n - k < CHUNK ? n - k : CHUNK;
        if (k > 0 && lp_kernel_stops())
            break;
        read_line(p, x, k, m, v);
        for (int64_t j = 0; j < m; j++)
            if (at < 0 || before(p->real, most, v[j], *best)) {
                *best = v[j];
                at = k + j;
            }
    }
    return at;
}

/* ---- median -------------------------------------------------------------- */
typedef struct Ranked {
    Value v;
    int64_t at;
} Ranked;

static bool ranked_before(bool real, Ranked a, Ranked b)
{
    if (before(real, false, a.v, b.v))
        return true;
    return !before(real, false, b.v, a.v) && a.at < b.at;
}

/* The element of rank k by Hoare's selection; the pivot is the middle of
 * three, so that sorted lines stay linear. */
static Ranked ranked(bool real, Ranked *a, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        Ranked x = a[lo], y = a[(lo + hi) / 2], z = a[hi];
        Ranked least = ranked_before(real, x, y) ? x : y;
        Ranked most = ranked_before(real, x, y) ? y : x;
        Ranked pivot = ranked_before(real, z, least)  ? least
                       : ranked_before(real, most, z) ? most
                                                      : z;
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (ranked_before(real, a[i], pivot))
                i++;
            while (ranked_before(real, pivot, a[j]))
                j--;
            if (i <= j) {
                Ranked t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            break;
    }
    return a[k];
}

/* The same of keys that are all different. */
static uint64_t ranked_key(uint64_t *a, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        uint64_t x = a[lo], y = a[(lo + hi) / 2], z = a[hi];
        uint64_t least = x < y ? x : y, most = x < y ? y : x;
        uint64_t pivot = z < least ? least : most < z ? most : z;
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (a[i] < pivot)
                i++;
            while (pivot < a[j])
                j--;
            if (i <= j) {
                uint64_t t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            break;
    }
    return a[k];
}

/* Of values that float32 holds: keys of the value, in its order, and then the
 * place. */
static int64_t median_by_keys(const Plan *p, const char *x, uint64_t *a,
                              Value *value)
{
    Value v[CHUNK];
    int64_t n = p->g.red_elems, at;
    for (int64_t k = 0; k < n; k += CHUNK) {
        int64_t m = n - k < CHUNK ? n - k : CHUNK;
        bool none = false;
        read_line(p, x, k, m, v);
        for (int64_t j = 0; j < m; j++) {
            uint32_t u = lp_float_bits((float)v[j].f + 0.0f); /* no -0 */
            u ^= u >> 31 ? UINT32_MAX : 0x80000000u;
            a[k + j] = (uint64_t)u << 32 | (uint64_t)(k + j);
            none |= v[j].f != v[j].f;
        }
        for (int64_t j = 0; none && j < m; j++)
            if (v[j].f != v[j].f) {
                *value = v[j];
                return k + j;
            }
    }
    at = (int64_t)(ranked_key(a, n, (n - 1) / 2) & UINT32_MAX);
    read_line(p, x, at, 1, value);
    return at;
}

static int64_t median(const Plan *p, const char *x, Ranked *a, Value *value)
{
    Value v[CHUNK];
    int64_t n = p->g.red_elems;
    for (int64_t k = 0; k < n; k += CHUNK) {
        int64_t m = n - k < CHUNK ? n - k : CHUNK;
        read_line(p, x, k, m, v);
        for (int64_t j = 0; j < m; j++) {
            a[k + j] = (Ranked){v[j], k + j};
            if (p->real && v[j].f != v[j].f) {
                *value = v[j];
                return k + j;
            }
        }
    }
    Ranked r = ranked(p->real, a, n, (n - 1) / 2);
    *value = r.v;
    return r.at;
}

/* ---- mode ---------------------------------------------------------------- */
/* room: n values, then 2 n items to sort. Equal values stand together in the
 * order of their positions; NaN counts as one value, the greatest. */
static int64_t mode(const Plan *p, const char *x, Value *room, Value *value)
{
    int64_t n = p->g.red_elems, best = 0, most = 0, first = 0;
    LpSortItem *item = (LpSortItem *)(void *)(room + n);
    read_line(p, x, 0, n, room);
    lp_sort_keys(p->real ? LP_F64 : LP_I64, room, 1, n, item);
    lp_sort_items(item, item + n, n, false);
    for (int64_t i = 0; i < n; i++) {
        if (item[i].key != item[first].key)
            first = i;
        if (i - first >= most) {
            most = i - first + 1;
            best = item[i].at;
        }
    }
    *value = room[best];
    return best;
}

/* ---- running sums and products ------------------------------------------- */
static Value plus(bool real, Value a, Value b)
{
    if (real)
        return (Value){.f = a.f + b.f};
    return (Value){.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i)};
}

static Value times(bool real, Value a, Value b)
{
    if (real)
        return (Value){.f = a.f * b.f};
    return (Value){.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i)};
}

/* log(exp(a) + exp(b)) */
static Value plus_logs(bool real LP_UNUSED, Value a, Value b)
{
    double top = a.f > b.f || a.f != a.f ? a.f : b.f;
    double less = a.f > b.f || a.f != a.f ? b.f : a.f;
    if (top == less && isinf(top))
        return a;
    return (Value){.f = top + log1p(exp(less - top))};
}

/* Runs over chunks, forwards or backwards. y: the line of the result. */
static void scan(const Plan *p, const char *x, char *y)
{
    Value v[CHUNK];
    bool logs = p->kind >= LP_LINE_CUMLOGSUM;
    bool back = p->kind == LP_LINE_CUMSUM_REVERSE ||
                p->kind == LP_LINE_CUMLOGSUM_REVERSE;
    Value (*op)(bool, Value, Value) = logs                         ? plus_logs
                                      : p->kind == LP_LINE_CUMPROD ? times
                                                                   : plus;
    int64_t n = p->g.red_elems;
    Value run = {0};
    for (int64_t k = 0; k < n; k += CHUNK) {
        int64_t m = n - k < CHUNK ? n - k : CHUNK;
        int64_t from = back ? n - k - m : k;
        read_line(p, x, from, m, v);
        for (int64_t j = 0; j < m; j++) {
            Value *u = &v[back ? m - 1 - j : j];
            run = k + j == 0 ? *u : op(p->real, run, *u);
            *u = run;
        }
        write_line(p, y, from, m, v);
    }
}

/* at: where the positions of the line at y go, in steps like y's. */
static void scan_extremes(const Plan *p, const char *x, char *y, int64_t *at)
{
    Value v[CHUNK], best = {0};
    const LpAxis *red = p->g.axis + p->g.n_kept;
    int64_t n = p->g.red_elems, best_at = 0;
    for (int64_t k = 0; k < n; k += CHUNK) {
        int64_t m = n - k < CHUNK ? n - k : CHUNK;
        read_line(p, x, k, m, v);
        for (int64_t j = 0; j < m; j++) {
            /* equal ones give way to later ones; a NaN to nothing else */
            if (k + j == 0 ||
                !before(p->real, p->kind == LP_LINE_CUMMAX, best, v[j])) {
                best = v[j];
                best_at = k + j;
            }
            v[j] = best;
            int64_t to;
            lp_reduce_offset(red, p->g.n_red, k + j, &to);
            at[to / p->out_size] = best_at;
        }
        write_line(p, y, k, m, v);
    }
}

/* y[i] = product of all x but x[i]: products from the left, then times those
 * from the right. */
static void others(const Plan *p, const char *x, char *y, Value *v)
{
    int64_t n = p->g.red_elems;
    read_line(p, x, 0, n, v);
    Value *left = v + n;
    Value run = p->real ? (Value){.f = 1} : (Value){.i = 1};
    Value one = run;
    for (int64_t i = 0; i < n; i++) {
        left[i] = run;
        run = times(p->real, run, v[i]);
    }
    run = one;
    for (int64_t i = n - 1; i >= 0; i--) {
        left[i] = times(p->real, left[i], run);
        run = times(p->real, run, v[i]);
    }
    write_line(p, y, 0, n, left);
}

/* ---- running ------------------------------------------------------------- */
static void run_line(const Plan *p, int64_t line, const char *x,
                     void *const *out, Value *room)
{
    int64_t offset, at;
    Value v = {0};
    x += lp_reduce_offset(p->g.axis, p->g.n_kept, line, &offset);
    char *y = (char *)out[0] + offset;
    switch ((LpLineKind)p->kind) {
    case LP_LINE_ARGMAX:
    case LP_LINE_ARGMIN:
        *(int64_t *)(void *)y = extreme(p, x, p->kind == LP_LINE_ARGMAX, &v);
        return;
    case LP_LINE_MAX:
    case LP_LINE_MIN:
        at = extreme(p, x, p->kind == LP_LINE_MAX, &v);
        break;
    case LP_LINE_MEDIAN:
        at = p->keyed ? median_by_keys(p, x, (uint64_t *)(void *)room, &v)
                      : median(p, x, (Ranked *)(void *)room, &v);
        break;
    case LP_LINE_MODE:
        at = mode(p, x, room, &v);
        break;
    case LP_LINE_CUMMAX:
    case LP_LINE_CUMMIN:
        scan_extremes(p, x, y, (int64_t *)out[1] + offset / p->out_size);
        return;
    case LP_LINE_OTHERS:
        others(p, x, y, room);
        return;
    default:
        scan(p, x, y);
        return;
    }
    p->store(1, y, 0, &v, 0);
    memcpy((char *)out[1] + offset / p->out_size * (int64_t)sizeof at, &at,
           sizeof at);
}

LP_KERNEL_RUN(run)
{
    const Plan *p = (const void *)k->inl;
    int64_t n = p->g.kept_elems;
    if (p->g.red_elems == 0)
        return LP_OK;
#pragma omp parallel for num_threads(k->threads) if (k->threads > 1)           \
    schedule(static)
    for (int t = 0; t < k->threads; t++)
        for (int64_t i = n * t / k->threads; i < n * (t + 1) / k->threads; i++)
            if (!lp_kernel_stops())
                run_line(p, i, in[0], out, (Value *)work + p->line_work * t);
    return LP_OK;
}

LpStatus lp_line_prepare(const LpKernelReq *r, LpLineKind kind, LpKernel *k,
                         LpErr *e)
{
    Plan *p = (void *)k->inl;
    LpDtype from = r->in[0].dtype, to = r->out[0].dtype;
    bool by_result = kind >= LP_LINE_CUMSUM;
    _Static_assert(sizeof *p <= sizeof k->inl, "plan");
    for (int d = 0; r->n_out > 1 && d < r->out[0].ndim; d++)
        LP_FAIL_IF(r->out[0].strides[d] != r->out[1].strides[d] &&
                       r->out[0].shape[d] != 1,
                   e, LP_E_INTERNAL, "%s: results of different layout",
                   r->op->name);
    LpReduceGeo g;
    lp_reduce_geometry(&r->in[0], &r->out[0], &r->attr[LP_REDUCE_DIM], &g);
    if (lp_scan_prepare(r, kind, &g, k) || lp_extreme_prepare(r, kind, &g, k))
        return LP_OK;
    p->g = g;
    p->kind = (uint8_t)kind;
    p->real = lp_is_float(by_result ? to : from);
    p->load = lp_convert_loop(from, p->real ? LP_F64 : LP_I64);
    p->store = lp_convert_loop(p->real ? LP_F64 : LP_I64, to);
    p->keyed = p->real && from != LP_F64 && g.red_elems <= UINT32_MAX;
    p->out_size = (int64_t)lp_dtype_size(to);
    int64_t room = kind == LP_LINE_MODE                               ? 5
                   : kind == LP_LINE_MEDIAN || kind == LP_LINE_OTHERS ? 2
                                                                      : 0;
    p->line_work = room * p->g.red_elems;
    k->run = run;
    k->threads = 1;
    if (p->g.kept_elems * p->g.red_elems >= WORK_MIN && p->g.kept_elems > 1)
        k->threads = r->threads;
    k->work_bytes = (size_t)p->line_work * (size_t)k->threads * sizeof(Value);
    return LP_OK;
}
