/* Arena plan. Buffers are placed in the order in which they come to life; at
 * each instruction the buffers that died before it have returned their place.
 * Free places are kept as a sorted list of gaps; a buffer takes the smallest
 * gap that holds it (best fit), or the end of the arena. Neighbouring gaps
 * merge. Time: n log n for the two sorted orders plus the length of the gap
 * list, which stays short because neighbours merge. */
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/passes/host/lower.h"

#define ALIGN 64u

typedef struct Gap {
    uint64_t at, bytes;
} Gap;

typedef struct Plan {
    Gap *gap;
    size_t n, cap;
    uint64_t end;
} Plan;

static bool give_back(Plan *p, uint64_t at, uint64_t bytes)
{
    size_t i = 0;
    while (i < p->n && p->gap[i].at < at)
        i++;
    bool left = i > 0 && p->gap[i - 1].at + p->gap[i - 1].bytes == at;
    bool right = i < p->n && at + bytes == p->gap[i].at;
    if (left && right) {
        p->gap[i - 1].bytes += bytes + p->gap[i].bytes;
        memmove(&p->gap[i], &p->gap[i + 1], (p->n - i - 1) * sizeof *p->gap);
        p->n--;
    } else if (left) {
        p->gap[i - 1].bytes += bytes;
    } else if (right) {
        p->gap[i].at = at;
        p->gap[i].bytes += bytes;
    } else {
        if (!LP_GROW(p->gap, p->cap, p->n))
            return false;
        memmove(&p->gap[i + 1], &p->gap[i], (p->n - i) * sizeof *p->gap);
        p->gap[i] = (Gap){at, bytes};
        p->n++;
    }
    return true;
}

static uint64_t take(Plan *p, uint64_t bytes)
{
    size_t best = p->n;
    for (size_t i = 0; i < p->n; i++)
        if (p->gap[i].bytes >= bytes &&
            (best == p->n || p->gap[i].bytes < p->gap[best].bytes))
            best = i;
    if (best < p->n) {
        uint64_t at = p->gap[best].at;
        p->gap[best].at += bytes;
        p->gap[best].bytes -= bytes;
        if (p->gap[best].bytes == 0) {
            memmove(&p->gap[best], &p->gap[best + 1],
                    (p->n - best - 1) * sizeof *p->gap);
            p->n--;
        }
        return at;
    }
    /* a gap at the very end grows instead of leaving a hole */
    if (p->n && p->gap[p->n - 1].at + p->gap[p->n - 1].bytes == p->end) {
        uint64_t at = p->gap[--p->n].at;
        p->end = at + bytes;
        return at;
    }
    uint64_t at = p->end;
    p->end += bytes;
    return at;
}

static const LpSpan *sorting;

static int by_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (sorting[x].first != sorting[y].first)
        return sorting[x].first < sorting[y].first ? -1 : 1;
    return x < y ? -1 : 1;
}

static int by_last(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (sorting[x].last != sorting[y].last)
        return sorting[x].last < sorting[y].last ? -1 : 1;
    return x < y ? -1 : 1;
}

LpStatus lp_arena_plan(LpSpan *span, size_t n, uint64_t *total, LpErr *e)
{
    Plan p = {0};
    uint32_t *start = lp_alloc(n * sizeof *start);
    uint32_t *stop = lp_alloc(n * sizeof *stop);
    bool ok = start && stop;
    for (uint32_t i = 0; ok && i < n; i++) {
        start[i] = stop[i] = i;
        span[i].bytes = (span[i].bytes + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    }
    if (ok) {
        sorting = span;
        qsort(start, n, sizeof *start, by_first);
        qsort(stop, n, sizeof *stop, by_last);
    }
    size_t gone = 0;
    for (size_t i = 0; ok && i < n; i++) {
        LpSpan *s = &span[start[i]];
        for (; ok && gone < n && span[stop[gone]].last < s->first; gone++)
            if (span[stop[gone]].bytes)
                ok = give_back(&p, span[stop[gone]].offset,
                               span[stop[gone]].bytes);
        if (ok)
            s->offset = s->bytes ? take(&p, s->bytes) : 0;
    }
    *total = p.end;
    lp_free(start);
    lp_free(stop);
    lp_free(p.gap);
    return ok ? LP_OK : lp_fail(e, LP_E_MEMORY, "out of memory");
}
