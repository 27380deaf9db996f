/* The pointwise driver where an operand is transposed against the result: by
 * tiles of the last dimension and the one along which that operand's elements
 * lie side by side, so that cache lines are read whole. See pointwise.h. */
#include "src/base/checked.h"
#include "src/base/interrupt.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/pointwise_plan.h"

enum {
    TILE = 1024, /* elements */
    WIDE = 32,   /* columns, unless there are few rows */
};

typedef struct Tile {
    int64_t rows, columns;
    const char *in[LP_PW_MAX_IN]; /* first elements */
    char *out;
} Tile;

typedef struct Room {
    _Alignas(64) char in[LP_PW_MAX_IN][TILE * 8];
    _Alignas(64) char out[TILE * 8];
} Room;

/* Rows that lie `rs` bytes apart, of elements `cs` apart, to one after the
 * other in `to`. */
static void fetch(const LpPwPlan *p, int i, const Tile *t, int64_t rs,
                  int64_t cs, char *to)
{
    int64_t size = p->in_size[i], held = p->loop_size[i];
    bool crossed = rs == size && cs != size;
    if (crossed && !lp_pw_has(p->converts, i)) {
        LpDtype raw = size == 1   ? LP_U8
                      : size == 2 ? LP_I16
                      : size == 4 ? LP_I32
                                  : LP_I64;
        LpDesc s = {.dtype = raw,
                    .ndim = 2,
                    .shape = {t->rows, t->columns},
                    .strides = {1, cs / size}};
        LpDesc d = s;
        LpCopyPlan plan;
        d.strides[0] = t->columns;
        d.strides[1] = 1;
        lp_copy_plan(&s, &d, 1, &plan);
        lp_copy_run(&plan, t->in[i], to);
    } else if (crossed) {
        for (int64_t c = 0; c < t->columns; c++)
            p->load[i](t->rows, to + c * held, t->columns * held,
                       t->in[i] + c * cs, size);
    } else {
        for (int64_t r = 0; r < t->rows; r++)
            p->load[i](t->columns, to + r * t->columns * held, held,
                       t->in[i] + r * rs, cs);
    }
}

static void run_tile(const LpPwPlan *p, const Tile *t, Room *room)
{
    const int64_t *rows = p->geo + p->crossed * lp_pw_row(p);
    const int64_t *columns = p->geo + (p->ndim - 1) * lp_pw_row(p);
    const void *x[LP_PW_MAX_IN];
    unsigned splat = 0;
    int64_t n = t->rows * t->columns;
    for (int i = 0; i < p->n_in; i++) {
        x[i] = room->in[i];
        if (!lp_pw_has(p->constant, i)) {
            fetch(p, i, t, rows[2 + i], columns[2 + i], room->in[i]);
            continue;
        }
        splat |= (unsigned)p->splat_ok << i;
        p->load[i](p->splat_ok ? 1 : n, room->in[i], p->loop_size[i], t->in[i],
                   0);
    }
    const char *y = p->loop ? room->out : room->in[0];
    if (p->loop)
        p->loop(n, room->out, x, splat, p->p);
    for (int64_t r = 0; r < t->rows; r++)
        p->store(t->columns, t->out + r * rows[1], columns[1],
                 y + r * t->columns * p->loop_out_size, p->loop_out_size);
}

/* Tile `at`, whose sides are at most `high` and `wide`; the tiles of a pair of
 * dimensions come after each other, along the last one first. */
static Tile tile_at(const LpPwPlan *p, void *const *in, void *const *out,
                    int64_t at, int64_t high, int64_t wide)
{
    int width = lp_pw_row(p), last = p->ndim - 1;
    const int64_t *rows = p->geo + p->crossed * width;
    const int64_t *columns = p->geo + last * width;
    int64_t across = (columns[0] + wide - 1) / wide;
    int64_t down = (rows[0] + high - 1) / high;
    int64_t index[LP_MAX_DIMS], outer = at / across / down;
    for (int d = last - 1; d >= 0; d--) {
        const int64_t *row = p->geo + d * width;
        if (d == p->crossed)
            continue;
        index[d] = outer % row[0];
        outer /= row[0];
    }
    index[last] = at % across * wide;
    index[p->crossed] = at / across % down * high;
    Tile t = {.rows = lp_min(high, rows[0] - index[p->crossed]),
              .columns = lp_min(wide, columns[0] - index[last]),
              .out = out[0]};
    for (int i = 0; i < p->n_in; i++)
        t.in[i] = lp_pw_has(p->is_imm, i) ? (const char *)&p->imm[i]
                                          : in[(int)p->operand[i]];
    for (int d = 0; d <= last; d++) {
        const int64_t *row = p->geo + d * width;
        t.out += index[d] * row[1];
        for (int i = 0; i < p->n_in; i++)
            t.in[i] += index[d] * row[2 + i];
    }
    return t;
}

LpStatus lp_pointwise_run_tiles(const LpKernel *k, void *const *in,
                                void *const *out, void *work,
                                const LpRunCtx *rc, LpErr *e)
{
    (void)work, (void)rc, (void)e;
    const LpPwPlan *p = k->state ? k->state : (const void *)k->inl;
    int width = lp_pw_row(p);
    int64_t n = p->geo[(p->ndim - 1) * width], m = p->geo[p->crossed * width];
    int64_t high = lp_min(m, TILE / lp_min(n, WIDE));
    int64_t wide = lp_min(n, TILE / high);
    int64_t tiles =
        p->n / n / m * ((n + wide - 1) / wide) * ((m + high - 1) / high);
#pragma omp parallel for num_threads(k->threads) if (k->threads > 1)           \
    schedule(static, 1)
    for (int t = 0; t < k->threads; t++) {
        Room room;
        int64_t end = tiles * (t + 1) / k->threads;
        for (int64_t i = tiles * t / k->threads; i < end; i++)
            if (!lp_kernel_stops()) {
                Tile tile = tile_at(p, in, out, i, high, wide);
                run_tile(p, &tile, &room);
            }
    }
    return LP_OK;
}
