/* Most tensors lie on all tiles, small ones on a few, so that few classes
 * change in a step by themselves: a class is looked at when it does, for all
 * the steps since it did last. Of what all classes have alike only those steps
 * count that no later one exceeds; they are kept in order. */
#include <string.h>

#include "src/base/checked.h"
#include "src/passes/ipu/tiles.h"

typedef struct Moment {
    uint32_t at;
    int64_t held, temporary; /* of every tile */
} Moment;

struct LpPeaks {
    LpTiles some;  /* of a class, beside what is on all tiles: */
    int64_t whole; /* of every tile */
    const LpTiles *always;
    LpPeak peak[LP_TILE_CLASSES];
    uint32_t since[LP_TILE_CLASSES]; /* steps before it have been looked at */
    Moment *moment;
    size_t n;
    uint32_t steps;           /* that have been */
    uint32_t asked, asked_at; /* since when, and when, for the last time */
    size_t answer;
    int64_t fullest;
    uint32_t fullest_at;
};

LpPeaks *lp_peaks_new(LpIpuPlan *p, const LpTiles *always, size_t steps)
{
    LpPeaks *x = lp_ipu_scratch(p, 1, sizeof *x);
    Moment *moment = lp_ipu_scratch(p, steps, sizeof *moment);
    if (!x || !moment)
        return NULL;
    x->always = always;
    x->some.n = always->n;
    x->moment = moment;
    return x;
}

static void note(LpPeaks *x, int class, Moment m)
{
    LpPeak *most = &x->peak[class];
    int64_t now = m.held + m.temporary;
    int64_t all = now + x->always->b[class];
    if (now > most->held + most->temporary)
        *most = (LpPeak){m.held, m.temporary};
    if (all > x->fullest || (all == x->fullest && m.at < x->fullest_at)) {
        x->fullest = all;
        x->fullest_at = m.at;
    }
}

/* The first moment from step `since` on; many classes ask for the same. */
static size_t moment_from(LpPeaks *x, uint32_t since)
{
    size_t first = 0, end = x->n;
    if (x->asked_at == x->steps && x->asked == since)
        return x->answer;
    while (first < end) {
        size_t half = first + (end - first) / 2;
        if (x->moment[half].at < since)
            first = half + 1;
        else
            end = half;
    }
    x->asked_at = x->steps;
    x->asked = since;
    return x->answer = first;
}

static void look(LpPeaks *x, int class)
{
    if (x->since[class] == x->steps)
        return;
    size_t i = moment_from(x, x->since[class]);
    x->since[class] = x->steps;
    if (i == x->n)
        return;
    Moment m = x->moment[i];
    m.held += x->some.b[class];
    note(x, class, m);
}

void lp_peaks_add(LpPeaks *x, LpSpread s, int64_t times)
{
    int64_t bytes = times * s.tile;
    int first, n = lp_tiles_few(&x->some, s, &first, &bytes, &x->whole);
    for (; n > 0; n--, first++) {
        look(x, first % LP_TILE_CLASSES);
        x->some.b[first % LP_TILE_CLASSES] += bytes;
    }
}

/* What a tile holds beside `held` bytes, where of `temporary` ones `less` are
 * gone. */
static Moment moment(const LpPeaks *x, int64_t held, int64_t temporary,
                     int64_t less)
{
    temporary -= less;
    return (Moment){x->steps, held + lp_min(temporary, 0),
                    lp_max(temporary, 0)};
}

void lp_made_add(LpMade *m, LpSpread s)
{
    m->total += s.all;
    if (s.used >= m->some.n) {
        m->whole += s.tile;
        return;
    }
    if (s.used <= 0)
        return;
    if (m->n_some == 1) {
        memset(m->some.b, 0, sizeof m->some.b);
        lp_tiles_add_to(m->some.b, &m->some, m->last, 1);
    }
    if (m->n_some++ > 0)
        lp_tiles_add_to(m->some.b, &m->some, s, 1);
    m->last = s;
}

/* A class on which so much is gone, other than on most. */
static void step_alone(LpPeaks *x, int class, int64_t temporary, int64_t less)
{
    look(x, class);
    note(x, class, moment(x, x->whole + x->some.b[class], temporary, less));
    x->since[class]++;
}

static int64_t step_of_several(LpPeaks *x, int64_t temporary, int64_t early,
                               const LpMade *made)
{
    int64_t least = made->some.b[0];
    for (int c = 1; c < LP_TILE_CLASSES; c++)
        least = lp_min(least, made->some.b[c]);
    least = lp_min(early, made->whole + least);
    for (int c = 0; c < LP_TILE_CLASSES; c++) {
        int64_t less = lp_min(early, made->whole + made->some.b[c]);
        if (less != least)
            step_alone(x, c, temporary, less);
    }
    return least;
}

/* Returns what is gone on most classes; the others are looked at by
 * themselves. */
static int64_t step_of_some(LpPeaks *x, int64_t temporary, int64_t early,
                            const LpMade *made)
{
    if (made->n_some > 1)
        return step_of_several(x, temporary, early, made);
    int first = 0, n = 0;
    int64_t here = lp_min(early, made->whole + made->last.tile);
    int64_t rest = lp_min(early, made->whole);
    if (made->n_some == 1)
        n = lp_tiles_classes(&made->some, made->last, &first);
    if (n > LP_TILE_CLASSES / 2) {
        int64_t most = here;
        here = rest;
        rest = most;
        first += n;
        n = LP_TILE_CLASSES - n;
    }
    for (int k = first; k < first + n && here != rest; k++)
        step_alone(x, k % LP_TILE_CLASSES, temporary, here);
    return rest;
}

void lp_peaks_step(LpPeaks *x, int64_t temporary, int64_t early,
                   const LpMade *made)
{
    int64_t less = early > 0 ? step_of_some(x, temporary, early, made) : 0;
    Moment m = moment(x, x->whole, temporary, less);
    x->steps++;
    while (x->n > 0 &&
           x->moment[x->n - 1].held + x->moment[x->n - 1].temporary <
               m.held + m.temporary)
        x->n--;
    x->moment[x->n++] = m;
}

LpPeak lp_peaks_of(LpPeaks *x, int class)
{
    look(x, class);
    return x->peak[class];
}

int64_t lp_peaks_fullest(LpPeaks *x, uint32_t *at)
{
    for (int c = 0; c < LP_TILE_CLASSES; c++)
        look(x, c);
    *at = x->fullest_at;
    return x->fullest;
}
