/* Enumeration of splits with pruning.
 *
 * Of every dimension only the splits that give another share size are tried
 * (PL popsolver's constraint), so a dimension of u grains has about
 * 2 * sqrt(u) of them; the output split takes what tiles are left, since a
 * wider one costs nothing but the parity that pairs of tiles like. A branch is
 * cut when its weight blocks alone, spread over all tiles left, take longer
 * than the best plan. Loops (serial splits) are tried from few turns to many,
 * and only while a split that would be faster does not fit. */
#include "runtime/cost/plan.h"

#include <math.h>

typedef struct Search {
    const LpCostCtx *x;
    const Conv *c;
    LpPlan *best;
    bool *found;
    int64_t in_grains, out_grains;
    int64_t turns; /* of the loop */
    bool crowded;  /* something faster than *best did not fit */
    bool coarse;   /* doubles splits: a first guess, for the cuts */
} Search;

/* The next split to try; of a first guess one whose share is half of it. */
static int64_t search_split(const Search *q, int64_t u, int64_t p)
{
    int64_t size = div_up(u, p);
    return q->coarse && size > 1 ? div_up(u, div_up(size, 2))
                                 : next_split(u, p);
}

/* The least split with the same share as p. */
static int64_t smallest_split(int64_t u, int64_t p)
{
    return div_up(u, div_up(u, p));
}

static bool worse(const Search *q, int64_t cyc)
{
    const LpPlan *b = q->best;
    return *q->found && b->fits && cyc >= plan_weighed(b);
}

static void try_split(Search *q, const LpSplit *s)
{
    LpPlan p;
    if (!plan_eval(q->x, q->c, s, *q->found ? q->best : NULL, &p))
        return;
    if (!p.fits && !worse(q, plan_weighed(&p)))
        q->crowded = true;
    if (!*q->found || plan_better(&p, q->best)) {
        *q->best = p;
        *q->found = true;
    }
}

static void search_out(Search *q, LpSplit *s, int64_t block, int64_t tiles)
{
    int64_t most = lp_min(q->out_grains, tiles);
    if (worse(q, block * div_up(q->out_grains, most)))
        return;
    int64_t p = smallest_split(q->out_grains, most);
    s->out = p;
    try_split(q, s);
    while (p > 1 && p % q->x->chip->tiles_per_bus)
        p = smallest_split(q->out_grains, p - 1);
    if (p != s->out) {
        s->out = p; /* fewer shares, but whole pairs */
        try_split(q, s);
    }
}

/* Cycles a tile spends on its field under one grain of inputs and outputs, in
 * all turns; never more than the kernel takes. */
static int64_t block_cyc(const Search *q, const LpSplit *s)
{
    const Conv *c = q->c;
    int64_t rows = div_up(c->batch, s->batch) * div_up(c->rows, s->rows);
    int64_t cols = div_up(c->cols, s->cols);
    if (c->krows * c->kcols > 1) { /* of a tap, at least those that it meets */
        rows = div_up(lp_min(div_up(rows, c->zrow),
                             div_up(c->batch * c->row_uses,
                                    c->krows * s->batch * s->rows)),
                      1);
        cols = lp_min(div_up(cols, c->zcol),
                      div_up(c->col_uses, c->kcols * s->cols));
    }
    int64_t krows = div_up(c->krows, s->kernel);
    int64_t each = q->turns * div_up(c->groups, s->groups);
    LpAmpMode mode = amp_mode(c->type, c->partials);
    if (c->method != LP_CONV_AMP)
        return each * rows * cols * krows * c->kcols * plan_in_grain(q->x, c) /
               vec_elems(q->x->chip, c->type);
    if (krows * c->kcols * plan_pack(q->x, c) == 1)
        return each *
               amp_block_cyc(q->x->chip, mode, rows * cols, c->out_group);
    AmpConv a = {rows, cols, krows, c->kcols, plan_pack(q->x, c)};
    return each * amp_conv_block_cyc(q->x->chip, mode, a, c->out_group);
}

static void search_in(Search *q, LpSplit *s, int64_t tiles)
{
    int64_t block = block_cyc(q, s);
    if (worse(q, block * div_up(q->in_grains * q->out_grains, tiles)))
        return;
    for (s->in = 1; s->in <= lp_min(q->in_grains, tiles);
         s->in = search_split(q, q->in_grains, s->in))
        search_out(q, s, block * div_up(q->in_grains, s->in), tiles / s->in);
}

static void search_field(Search *q, LpSplit *s, int64_t tiles)
{
    const Conv *c = q->c;
    for (s->batch = 1; s->batch <= lp_min(c->batch, tiles);
         s->batch = search_split(q, c->batch, s->batch)) {
        int64_t a = tiles / s->batch;
        for (s->rows = 1; s->rows <= lp_min(c->rows, a);
             s->rows = search_split(q, c->rows, s->rows)) {
            int64_t b = a / s->rows;
            for (s->cols = 1; s->cols <= lp_min(c->cols, b);
                 s->cols = search_split(q, c->cols, s->cols))
                search_in(q, s, b / s->cols);
        }
    }
}

static void search_turn(Search *q, int64_t serial_out, int64_t serial_in)
{
    const Conv *c = q->c;
    int64_t tiles = ctx_tiles(q->x),
            most = lp_min(div_up(c->groups, plan_group_grain(c)), tiles);
    LpSplit s = {.serial_in = serial_in, .serial_out = serial_out};
    q->turns = serial_in * serial_out;
    q->in_grains = div_up(div_up(c->in, plan_in_grain(q->x, c)), serial_in);
    q->out_grains = div_up(div_up(c->out, plan_out_grain(c)), serial_out);
    /* groups are independent: splitting them first is never far from best */
    for (s.groups = div_up(most, 4); s.groups <= most;
         s.groups = search_split(q, c->groups, s.groups)) {
        int64_t a = tiles / s.groups;
        for (s.kernel = 1; s.kernel <= lp_min(c->krows, a);
             s.kernel = search_split(q, c->krows, s.kernel))
            search_field(q, &s, a / s.kernel);
    }
}

/* No split of this many turns has less bytes on a tile. The three blocks of a
 * product hold at least macs^2 / taps elements multiplied together, and a sum
 * is least where its parts are equal. */
static double least_bytes(const Search *q, int64_t turns)
{
    const Conv *c = q->c;
    double taps = (double)(c->krows * c->kcols);
    double macs = (double)c->groups * (double)c->batch * (double)c->rows *
                  (double)c->cols * (double)c->in * (double)c->out * taps;
    double e = lp_cost_type_bytes(c->type);
    macs /= (double)ctx_tiles(q->x) * (double)turns;
    return 3 *
           cbrt(macs * macs / taps * e * e * lp_cost_type_bytes(c->partials));
}

static void search_both(Search *q, int64_t serial_out, int64_t serial_in)
{
    q->coarse = true;
    search_turn(q, serial_out, serial_in);
    q->coarse = false;
    q->crowded = false;
    search_turn(q, serial_out, serial_in);
}

void plan_search(const LpCostCtx *x, const Conv *c, LpPlan *best, bool *found)
{
    static const int turns[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32};
    enum { N = sizeof turns / sizeof *turns };
    Search q = {.x = x, .c = c, .best = best, .found = found};
    double bound = x->proportion * (double)x->chip->tile_bytes;
    int64_t in = lp_min(div_up(c->in, plan_in_grain(x, c)), turns[N - 1]);
    int64_t out = lp_min(div_up(c->out, plan_out_grain(c)), turns[N - 1]);
    bool any = false;
    for (int j = 0; j < N && turns[j] <= in; j++)
        for (int i = 0; i < N && turns[i] <= out; i++) {
            int64_t n = turns[i] * turns[j];
            if (n > turns[N - 1])
                break;
            if (least_bytes(&q, n) > bound)
                continue;
            any = true;
            search_both(&q, turns[i], turns[j]);
            if (q.crowded)
                continue;
            if (i == 0)
                return; /* more turns only cost more */
            break;
        }
    if (!any && !*found) /* nothing can fit: as little as there can be */
        search_both(&q, out, lp_min(in, turns[N - 1] / out));
}
