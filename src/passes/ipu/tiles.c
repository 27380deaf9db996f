/* Elements are dealt out in grains over the tiles; what a tile has follows
 * from its number alone. */
#include "src/passes/ipu/tiles.h"

/* Poplar's linear mapping gives a tile at least so many bytes of a tensor
 * (PL poputil/TileMapping). */
#define LEAST_BYTES 128

static int begin(LpTiles *t, int used, LpStart at)
{
    if (at.kind == LP_START_UP)
        return at.tile % t->n;
    if (at.kind == LP_START_DOWN)
        return (2 * t->n - at.tile % t->n - used) % t->n;
    int start = t->next;
    t->next = (t->next + used) % t->n;
    return start;
}

/* How often n has `part`, the rest counted. Numbers of 32 bits are divided in
 * half the time. */
static int64_t parts(int64_t n, int64_t part)
{
    uint64_t all = (uint64_t)(n + part - 1);
    if (all <= UINT32_MAX)
        return (uint32_t)all / (uint32_t)part;
    return (int64_t)(all / (uint64_t)part);
}

LpSpread lp_tiles_deal(LpTiles *t, const LpChip *chip, int64_t n, int64_t size,
                       LpStart at)
{
    LpSpread s = {0};
    if (n <= 0 || t->n <= 0 || size <= 0)
        return s;
    int vec = chip->data_path_bytes / (int)size,
        least = LEAST_BYTES / (int)size;
    vec = vec > 0 ? vec : 1;
    least = least > 0 ? least : 1;
    int64_t per = parts(parts(n, t->n), vec) * vec;
    per = per > least ? per : least;
    s.used = (int)parts(n, per);
    s.tile = (per < n ? per : n) * size;
    s.all = n * size;
    if (s.used < t->n)
        s.start = begin(t, s.used, at);
    return s;
}

static int class_of(const LpTiles *t, int tile)
{
    return (int)((uint32_t)tile * LP_TILE_CLASSES / (uint32_t)t->n);
}

int lp_tiles_classes(const LpTiles *t, LpSpread s, int *first)
{
    *first = class_of(t, s.start);
    int last = class_of(t, (s.start + s.used - 1) % t->n);
    if (s.start + s.used <= t->n)
        return last - *first + 1;
    return last < *first ? LP_TILE_CLASSES - *first + last + 1
                         : LP_TILE_CLASSES;
}

int lp_tiles_few(const LpTiles *t, LpSpread s, int *first, int64_t *bytes,
                 int64_t *whole)
{
    int n = LP_TILE_CLASSES;
    *first = 0;
    if (s.used <= 0)
        return 0;
    if (s.used < t->n)
        n = lp_tiles_classes(t, s, first);
    if (n <= LP_TILE_CLASSES / 2)
        return n;
    *whole += *bytes;
    *bytes = -*bytes;
    *first += n;
    return LP_TILE_CLASSES - n;
}

void lp_tiles_add_to(int64_t *b, const LpTiles *t, LpSpread s, int64_t times)
{
    int first = 0, n = LP_TILE_CLASSES;
    int64_t bytes = times * s.tile;
    if (s.used <= 0)
        return;
    if (s.used < t->n)
        n = lp_tiles_classes(t, s, &first);
    for (int i = first; i < LP_TILE_CLASSES && i < first + n; i++)
        b[i] += bytes;
    for (int i = 0; i < first + n - LP_TILE_CLASSES; i++)
        b[i] += bytes;
}
