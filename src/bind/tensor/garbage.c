/* When Lua's collector runs.
 *
 * Storages are memory that it does not see. It runs in generational mode, where
 * a young collection looks at what was made since the last two and takes a
 * microsecond: lp_gc_account asks for one each YOUNG bytes of storages or BOXES
 * tensors, and what a loop drops is used again while the caches hold it. HOT
 * bytes would fill them: for those it asks at once, lest four of them be in
 * turn where one or two do.
 *
 * What lived through two waits for a full collection, made when the live bytes
 * have grown by a quarter, GUARD, or twice what is Lua's own. If two
 * of these, within CALM young ones, found much that no young one was too late
 * for, the script's values live longer than thought: it is asked after twice as
 * many boxes then, until CALM young collections passed.
 *
 * Both are timed, and made more seldom if they would take more than 5 % of the
 * time together, those for HOT bytes more than a tenth, which is less than
 * caches give: a young one is long when an old table of many elements is
 * written to, a full one when much is Lua's own. Some are long for once: the
 * first ones, as all is young, and one during which others had the processor.
 */
#include <string.h>
#include <time.h>

#include "src/bind/bind.h"

#define GUARD ((int64_t)32 << 20)
#define YOUNG ((int64_t)512 << 10)
#define HOT ((int64_t)2 << 20)
enum {
    BOXES = 64,
    FEW = 4, /* for a value that lives shorter is not old, however large */
    CALM = 128,
    FREEING = 4000, /* ns that a box may take at its end, its bytes cold, and */
    LEAST = 1500,   /* a collection itself, without a wait for the next */
};

enum { SHARE_YOUNG = 80, SHARE_FULL = 25, SHARE_HOT = 10 };

/* Collections take at most 1/share of the time: the next one waits as long as
 * that needs. A full one is timed by what this thread has of the processor:
 * others may take that for longer than it lasts. */
typedef struct Pace {
    clockid_t clock;
    unsigned n;      /* made so far */
    int64_t last;    /* when the last one ended, ns */
    int64_t took[4]; /* the last ones: fewer were long for once */
} Pace;

static struct {
    int64_t seen;  /* live bytes when last looked at */
    int64_t boxes; /* made since then */
    int64_t base;  /* live bytes after the last full collection, or less */
    int64_t most;  /* more than those, for the next one */
    int64_t freed; /* boxes in all */
    int few;       /* 1 to FEW boxes of HOT bytes or more */
    int calm;      /* young collections since `few` changed */
    int much;      /* those since a full one found much, or CALM */
    bool late;     /* one was left out since the last full one */
    Pace young, full;
} gc = {.few = 1,
        .much = CALM,
        .young = {CLOCK_MONOTONIC},
        .full = {CLOCK_THREAD_CPUTIME_ID}};

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void collect_all(lua_State *L)
{
    lua_gc(L, LUA_GCCOLLECT);
    lua_gc(L, LUA_GCSTEP, 0); /* has Lua's own pace set for a young one */
    int64_t own = (int64_t)lua_gc(L, LUA_GCCOUNT) << 11;
    gc.base = lp_storage_live_bytes();
    gc.most = own > gc.base / 4 ? own : gc.base / 4;
    if (gc.most < GUARD)
        gc.most = GUARD;
}

/* Whether it was time: with a share of 0 it always is. */
static bool collect(lua_State *L, Pace *p, int share)
{
    enum { N = sizeof p->took / sizeof *p->took };
    int64_t start = nanoseconds(p->clock), freed = gc.freed;
    int64_t took = p->took[0];
    for (int i = 1; i < N; i++)
        took = p->took[i] < took ? p->took[i] : took;
    if (start - p->last < took * share)
        return false;
    if (p == &gc.full)
        collect_all(L);
    else
        lua_gc(L, LUA_GCSTEP, 0);
    p->last = nanoseconds(p->clock);
    p->took[p->n++ % N] =
        p->last - start - LEAST - (gc.freed - freed) * FREEING;
    return true;
}

static void set_few(int few)
{
    gc.few = few < 1 ? 1 : few > FEW ? FEW : few;
    gc.calm = 0;
}

/* The full collection, if it is time. */
static void collect_old(lua_State *L)
{
    int64_t live = lp_storage_live_bytes();
    if (live < gc.base)
        gc.base = live;
    int64_t more = live - gc.base;
    if (more <= gc.most)
        return;
    if (!collect(L, &gc.full, more > 2 * gc.most ? 0 : SHARE_FULL))
        return;
    if (!gc.late && live - lp_storage_live_bytes() > more / 2) {
        if (gc.much < CALM)
            set_few(2 * gc.few);
        gc.much = 0;
    }
    gc.late = false;
}

void lp_gc_account(lua_State *L)
{
    int64_t live = lp_storage_live_bytes();
    if (live < gc.seen)
        gc.seen = live;
    int64_t grown = live - gc.seen;
    int few = grown < HOT ? FEW : gc.few;
    if (gc.boxes < BOXES && (grown < YOUNG || gc.boxes < few))
        return;
    if (!collect(L, &gc.young, grown < HOT ? SHARE_YOUNG : SHARE_HOT))
        gc.late = true;
    if (gc.much < CALM)
        gc.much++;
    if (++gc.calm >= CALM)
        set_few(gc.few / 2);
    collect_old(L);
    gc.seen = lp_storage_live_bytes();
    gc.boxes = 0;
}

void lp_gc_guard(lua_State *L)
{
    if (lp_storage_live_bytes() - gc.seen > GUARD)
        lp_gc_account(L);
}

void lp_gc_retry(lua_State *L, LpErr *e, int *tries, const LpForm *f)
{
    if (e->code != LP_E_MEMORY || (*tries)++)
        f ? lp_bind_fail_in(L, e, f) : lp_bind_fail(L, e);
    collect_all(L);
    memset(e, 0, sizeof *e);
}

void lp_gc_made(void)
{
    gc.boxes++;
}

void lp_gc_freed(void)
{
    gc.freed++;
}
