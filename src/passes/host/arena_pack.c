/* The arena plan of few buffers, the largest first: each takes the smallest gap
 * that holds it between those placed before that live with it, the lowest of
 * equal ones, or the place after them. In the order of time (arena.c) a small
 * buffer of long life may lie where two large ones of short life would fit one
 * after the other. Time: quadratic in buffers. */
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/passes/host/lower.h"

#define ALIGN 64u

static int by_bytes(const void *a, const void *b, void *spans)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const LpSpan *s = spans;
    if (s[x].bytes != s[y].bytes)
        return s[x].bytes > s[y].bytes ? -1 : 1;
    return x < y ? -1 : 1;
}

static uint64_t end_of(const LpSpan *s)
{
    return s->offset + s->bytes;
}

/* Where s fits beside the n spans `placed`, which are in the order of their
 * offsets. */
static uint64_t place(const LpSpan *span, const uint32_t *placed, size_t n,
                      const LpSpan *s)
{
    uint64_t free = 0, best = 0, smallest = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        const LpSpan *p = &span[placed[i]];
        if (p->last < s->first || s->last < p->first)
            continue;
        uint64_t gap = p->offset > free ? p->offset - free : 0;
        if (gap >= s->bytes && gap < smallest) {
            smallest = gap;
            best = free;
        }
        if (end_of(p) > free)
            free = end_of(p);
    }
    return smallest == UINT64_MAX ? free : best;
}

LpStatus lp_arena_pack(LpSpan *span, size_t n, uint64_t *total, LpErr *e)
{
    uint32_t *order = lp_alloc((n + 1) * sizeof *order);
    uint32_t *placed = lp_alloc((n + 1) * sizeof *placed);
    bool ok = order && placed;
    size_t n_placed = 0;
    *total = 0;
    for (uint32_t i = 0; ok && i < n; i++) {
        order[i] = i;
        span[i].offset = 0;
        span[i].bytes = (span[i].bytes + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    }
    if (ok)
        qsort_r(order, n, sizeof *order, by_bytes, span);
    for (size_t i = 0; ok && i < n && span[order[i]].bytes > 0; i++) {
        LpSpan *s = &span[order[i]];
        s->offset = place(span, placed, n_placed, s);
        size_t at = n_placed++;
        for (; at > 0 && span[placed[at - 1]].offset > s->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = order[i];
        if (end_of(s) > *total)
            *total = end_of(s);
    }
    lp_free(order);
    lp_free(placed);
    return ok ? LP_OK : lp_fail(e, LP_E_MEMORY, "out of memory");
}
