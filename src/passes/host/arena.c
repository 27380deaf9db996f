/* Arena plan. Buffers are placed in the order in which they come to life; at
 * each instruction the buffers that died before it have returned their place.
 * A buffer takes the smallest gap that holds it, of equal ones the lowest (best
 * fit), or the end of the arena.
 *
 * The arena is a list of blocks in the order of their places, taken ones and
 * gaps, no two gaps side by side. Gaps also stand in a treap ordered by size
 * and place (Seidel and Aragon 1996), whose priorities are a hash of the
 * block's number, so that a plan depends on the buffers alone. Time: n log n,
 * however many buffers live at once. */
#include <stdlib.h>

#include "src/base/mem.h"
#include "src/base/random.h"
#include "src/passes/host/lower.h"

#define ALIGN 64u

/* Blocks are numbers into Plan.block; 0 is none. */
typedef struct Block {
    uint64_t at, bytes;
    uint32_t before, after;
    uint32_t low, high; /* children, while a gap */
    bool gap;
} Block;

typedef struct Plan {
    Block *block;
    size_t n, cap;
    uint32_t last; /* of the arena */
    uint32_t free; /* list of numbers to use again, by `after` */
    uint32_t root; /* of the treap */
} Plan;

/* ---- gaps by size ------------------------------------------------------- */
static bool smaller(const Plan *p, uint32_t a, uint64_t bytes, uint64_t at)
{
    const Block *x = &p->block[a];
    return x->bytes != bytes ? x->bytes < bytes : x->at < at;
}

static uint64_t priority(uint32_t b)
{
    return lp_mix64(b);
}

/* Parts the treap `t` into the gaps before (bytes, at) and the others. */
static void part(Plan *p, uint32_t t, uint64_t bytes, uint64_t at,
                 uint32_t *low, uint32_t *high)
{
    while (t) {
        Block *x = &p->block[t];
        if (smaller(p, t, bytes, at)) {
            *low = t;
            low = &x->high;
            t = x->high;
        } else {
            *high = t;
            high = &x->low;
            t = x->low;
        }
    }
    *low = *high = 0;
}

static void insert(Plan *p, uint32_t b)
{
    Block *x = &p->block[b];
    uint32_t *t = &p->root;
    while (*t && priority(*t) >= priority(b))
        t = smaller(p, *t, x->bytes, x->at) ? &p->block[*t].high
                                            : &p->block[*t].low;
    part(p, *t, x->bytes, x->at, &x->low, &x->high);
    *t = b;
    x->gap = true;
}

static void delete (Plan *p, uint32_t b)
{
    Block *x = &p->block[b];
    uint32_t *t = &p->root;
    while (*t != b)
        t = smaller(p, *t, x->bytes, x->at) ? &p->block[*t].high
                                            : &p->block[*t].low;
    uint32_t low = x->low, high = x->high;
    while (low && high) {
        if (priority(low) > priority(high)) {
            *t = low;
            t = &p->block[low].high;
            low = *t;
        } else {
            *t = high;
            t = &p->block[high].low;
            high = *t;
        }
    }
    *t = low ? low : high;
    x->gap = false;
}

/* The first gap of at least `bytes` in the order of sizes and places. */
static uint32_t best_fit(const Plan *p, uint64_t bytes)
{
    uint32_t best = 0;
    for (uint32_t t = p->root; t;) {
        if (smaller(p, t, bytes, 0)) {
            t = p->block[t].high;
        } else {
            best = t;
            t = p->block[t].low;
        }
    }
    return best;
}

/* ---- blocks by place ---------------------------------------------------- */
/* A taken block after `before`; 0 when memory is short. */
static uint32_t add_block(Plan *p, uint32_t before, uint64_t bytes)
{
    uint32_t b = p->free;
    if (b) {
        p->free = p->block[b].after;
    } else {
        if (p->n == 0)
            p->n = 1;
        if (!LP_GROW(p->block, p->cap, p->n))
            return 0;
        b = (uint32_t)p->n++;
    }
    Block *x = &p->block[b], *y = &p->block[before];
    *x = (Block){.bytes = bytes, .before = before};
    if (before) {
        x->at = y->at + y->bytes;
        x->after = y->after;
        y->after = b;
    }
    if (x->after)
        p->block[x->after].before = b;
    else
        p->last = b;
    return b;
}

/* Adds the gap `b` to the block before it. */
static void join(Plan *p, uint32_t b)
{
    Block *x = &p->block[b], *y = &p->block[x->before];
    y->bytes += x->bytes;
    y->after = x->after;
    if (x->after)
        p->block[x->after].before = x->before;
    else
        p->last = x->before;
    x->after = p->free;
    p->free = b;
}

static void give_back(Plan *p, uint32_t b)
{
    uint32_t before = p->block[b].before, after = p->block[b].after;
    if (after && p->block[after].gap) {
        delete (p, after);
        join(p, after);
    }
    if (before && p->block[before].gap) {
        delete (p, before);
        join(p, b);
        b = before;
    }
    insert(p, b);
}

/* A block of `bytes`; 0 when memory is short. */
static uint32_t take(Plan *p, uint64_t bytes)
{
    uint32_t b = best_fit(p, bytes);
    if (b == 0 && p->last && p->block[p->last].gap) {
        b = p->last; /* a gap at the end grows instead of leaving a hole */
        delete (p, b);
        p->block[b].bytes = bytes;
        return b;
    }
    if (b == 0)
        return add_block(p, p->last, bytes);
    delete (p, b);
    uint64_t rest = p->block[b].bytes - bytes;
    p->block[b].bytes = bytes;
    if (rest) {
        uint32_t gap = add_block(p, b, rest);
        if (gap == 0)
            return 0;
        insert(p, gap);
    }
    return b;
}

/* ---- the plan ----------------------------------------------------------- */
static int by_first(const void *a, const void *b, void *spans)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const LpSpan *s = spans;
    if (s[x].first != s[y].first)
        return s[x].first < s[y].first ? -1 : 1;
    return x < y ? -1 : 1;
}

static int by_last(const void *a, const void *b, void *spans)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const LpSpan *s = spans;
    if (s[x].last != s[y].last)
        return s[x].last < s[y].last ? -1 : 1;
    return x < y ? -1 : 1;
}

LpStatus lp_arena_plan(LpSpan *span, size_t n, uint64_t *total, LpErr *e)
{
    Plan p = {0};
    uint32_t *start = lp_alloc(n * sizeof *start);
    uint32_t *stop = lp_alloc(n * sizeof *stop);
    uint32_t *block = lp_calloc(n, sizeof *block);
    bool ok = start && stop && block;
    for (uint32_t i = 0; ok && i < n; i++) {
        start[i] = stop[i] = i;
        span[i].bytes = (span[i].bytes + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    }
    if (ok) {
        qsort_r(start, n, sizeof *start, by_first, span);
        qsort_r(stop, n, sizeof *stop, by_last, span);
    }
    size_t gone = 0;
    for (size_t i = 0; ok && i < n; i++) {
        LpSpan *s = &span[start[i]];
        for (; gone < n && span[stop[gone]].last < s->first; gone++)
            if (block[stop[gone]])
                give_back(&p, block[stop[gone]]);
        s->offset = 0;
        if (s->bytes == 0)
            continue;
        uint32_t b = take(&p, s->bytes);
        ok = b != 0;
        block[start[i]] = b;
        s->offset = b ? p.block[b].at : 0;
    }
    *total = p.last ? p.block[p.last].at + p.block[p.last].bytes : 0;
    lp_free(start);
    lp_free(stop);
    lp_free(block);
    lp_free(p.block);
    return ok ? LP_OK : lp_fail(e, LP_E_MEMORY, "out of memory");
}
