/* Bytes of tiles over steps, as the memory pass counts them by classes, beside
 * a count tile by tile: tensors come and go at random, some on all tiles and
 * some on a few, and steps need scratch of which a part goes when what they
 * make is there. Prints "right", or what differs.
 *
 *     tiles_probe TILES SEED */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/random.h"
#include "src/passes/ipu/tiles.h"

enum { STEPS = 200, MOST = 40, MOST_TILES = 2048 };

static uint64_t drawn;

static int64_t draw(int64_t below)
{
    drawn = lp_mix64(drawn);
    return (int64_t)(drawn % (uint64_t)below);
}

/* What is counted, once by classes and once by tiles. */
typedef struct Both {
    LpIpuPlan plan;
    LpTiles tiles;
    LpMade made;
    LpPeaks *peaks;
    LpSpread spread[MOST];
    int n;      /* tensors that are there */
    bool alike; /* sizes, so that steps have as much as others */
    int64_t tile[MOST_TILES], always[MOST_TILES], made_tile[MOST_TILES];
    int64_t most[LP_TILE_CLASSES], fullest;
    int fullest_at;
} Both;

static int class_of(const Both *b, int tile)
{
    int c = 0;
    while (lp_tiles_first(c + 1, b->tiles.n) <= tile)
        c++;
    return c;
}

/* Every tile of a class that the tensor touches counts as if it had a share. */
static void add_tiles(const Both *b, int64_t *tile, LpSpread s, int64_t bytes)
{
    bool touched[LP_TILE_CLASSES] = {false};
    for (int i = 0; i < s.used; i++)
        touched[class_of(b, (s.start + i) % b->tiles.n)] = true;
    for (int t = 0; t < b->tiles.n; t++)
        tile[t] += touched[class_of(b, t)] ? bytes : 0;
}

static LpSpread some(Both *b)
{
    LpStart at = {(LpStartKind)draw(3), (int)draw(b->tiles.n)};
    int64_t n = draw(3) ? 1 + draw(4000) : 1 + draw(400000);
    if (b->alike)
        n = draw(3) ? 512 : 200000;
    return lp_tiles_deal(&b->tiles, b->plan.o.chip, n, 4, at);
}

static void come(Both *b, bool is_made)
{
    LpSpread s = b->spread[b->n++] = some(b);
    lp_peaks_add(b->peaks, s, 1);
    add_tiles(b, b->tile, s, s.tile);
    if (!is_made)
        return;
    lp_made_add(&b->made, s);
    add_tiles(b, b->made_tile, s, s.tile);
}

static void go(Both *b)
{
    int i = (int)draw(b->n);
    lp_peaks_add(b->peaks, b->spread[i], -1);
    add_tiles(b, b->tile, b->spread[i], -b->spread[i].tile);
    b->spread[i] = b->spread[--b->n];
}

static void step(Both *b, int at)
{
    b->made = (LpMade){.some = {.n = b->tiles.n}};
    memset(b->made_tile, 0, sizeof b->made_tile);
    for (int64_t k = draw(3); k > 0 && b->n < MOST; k--)
        come(b, draw(2));
    int64_t temporary = draw(2) * (b->alike ? 4096 : draw(5000));
    int64_t early = draw(2) && !b->alike ? draw(temporary + 1) : 0;
    lp_peaks_step(b->peaks, temporary, early, early ? &b->made : NULL);
    for (int t = 0; t < b->tiles.n; t++) {
        int64_t gone = early < b->made_tile[t] ? early : b->made_tile[t];
        int64_t now = b->tile[t] + temporary - gone, c = class_of(b, t);
        b->most[c] = now > b->most[c] ? now : b->most[c];
        if (now + b->always[t] > b->fullest) {
            b->fullest = now + b->always[t];
            b->fullest_at = at;
        }
    }
    for (int64_t k = draw(3); k > 0 && b->n > 0; k--)
        go(b);
}

static bool right(Both *b, int at)
{
    uint32_t when;
    int64_t fullest = lp_peaks_fullest(b->peaks, &when);
    if (fullest != b->fullest || (int)when != b->fullest_at) {
        printf("step %d: %lld at %d for %lld at %d\n", at, (long long)fullest,
               (int)when, (long long)b->fullest, b->fullest_at);
        return false;
    }
    for (int c = 0; c < LP_TILE_CLASSES; c++) {
        LpPeak p = lp_peaks_of(b->peaks, c);
        if (p.held < 0 || p.temporary < 0 ||
            p.held + p.temporary != b->most[c]) {
            printf("step %d, class %d: %lld + %lld for %lld\n", at, c,
                   (long long)p.held, (long long)p.temporary,
                   (long long)b->most[c]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static Both b;
    LpErr e = {0};
    LpTiles always = {.n = argc > 1 ? atoi(argv[1]) : 0};
    if (argc != 3 || always.n < LP_TILE_CLASSES || always.n > MOST_TILES)
        return 2;
    drawn = strtoull(argv[2], NULL, 10);
    b.alike = drawn % 2;
    b.plan.o = lp_ipu_options();
    b.plan.err = &e;
    b.tiles.n = always.n;
    for (int i = 0; i < 5; i++) {
        LpSpread s = some(&b);
        lp_tiles_add_to(always.b, &always, s, 1);
        add_tiles(&b, b.always, s, s.tile);
    }
    b.peaks = lp_peaks_new(&b.plan, &always, STEPS);
    bool fine = b.peaks != NULL;
    for (int at = 0; at < STEPS && fine; at++) {
        step(&b, at);
        /* as after the loop and after the update */
        fine = (draw(20) && at < STEPS - 1) || right(&b, at);
    }
    if (fine)
        puts("right");
    lp_arena_fini(&b.plan.scratch);
    return 0;
}
