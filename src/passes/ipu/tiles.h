/* Bytes of tiles, by classes of neighbouring tiles: class c holds the tiles
 * c*T/64 .. (c+1)*T/64 - 1 and its figure is that of the fullest of them.
 * Private to the passes. */
#ifndef LP_PASSES_IPU_TILES_H
#define LP_PASSES_IPU_TILES_H

#include "src/passes/ipu/ipu.h"

/* A tensor on `used` tiles from `start` on (around the end). */
typedef struct LpSpread {
    int start, used;
    int64_t tile, all; /* bytes of the fullest tile, of all */
} LpSpread;

typedef struct LpTiles {
    int n;    /* tiles that hold data */
    int next; /* where the next small tensor starts */
    int64_t b[LP_TILE_CLASSES];
    int64_t total; /* bytes over all tiles */
} LpTiles;

/* n elements of `size` bytes dealt out evenly; small tensors begin at `at`. */
LpSpread lp_tiles_deal(LpTiles *t, const LpChip *chip, int64_t n, int64_t size,
                       LpStart at);
/* The first tile of class c, of n tiles. */
static inline int lp_tiles_first(int c, int n)
{
    return (c * n + LP_TILE_CLASSES - 1) / LP_TILE_CLASSES;
}
/* Of a tensor on some of the tiles: number of the classes from *first on,
 * around the end. */
int lp_tiles_classes(const LpTiles *t, LpSpread s, int *first);
/* Of a tensor: number of the classes from *first on, around the end, that have
 * *bytes beside what is added to *whole, which all have. They are half of the
 * classes at most: a tensor on more of them is on all, and taken away from the
 * others. */
int lp_tiles_few(const LpTiles *t, LpSpread s, int *first, int64_t *bytes,
                 int64_t *whole);
/* To the classes of such tiles; times -1 takes away. */
void lp_tiles_add_to(int64_t *b, const LpTiles *t, LpSpread s, int64_t times);

/* What must lie past something else on a tile: most bytes that want the
 * interleaved region, that must not be in one element with others. */
typedef struct LpTileGaps {
    int64_t interleaved, apart;
} LpTileGaps;

/* Most bytes of each class over the steps of an IPU (peaks.c). */
typedef struct LpPeaks LpPeaks;

typedef struct LpPeak {
    int64_t held, temporary; /* of the class, in the step with most */
} LpPeak;

/* What a node makes. */
typedef struct LpMade {
    int n_some;    /* tensors that are on some tiles, */
    LpSpread last; /* the last of them */
    LpTiles some;  /* they, if there are several */
    int64_t whole; /* of every tile: others */
    int64_t total; /* bytes over all tiles */
} LpMade;

void lp_made_add(LpMade *m, LpSpread s);

/* `always`: what is there beside, borrowed. Scratch, for so many steps; NULL
 * when memory is short, which p->err tells. */
LpPeaks *lp_peaks_new(LpIpuPlan *p, const LpTiles *always, size_t steps);
/* A tensor comes, or goes (times -1). */
void lp_peaks_add(LpPeaks *x, LpSpread s, int64_t times);
/* A step in which a tile needs `temporary` bytes beside, of which `early` are
 * gone when it has what is made (NULL: early is 0). */
void lp_peaks_step(LpPeaks *x, int64_t temporary, int64_t early,
                   const LpMade *made);
LpPeak lp_peaks_of(LpPeaks *x, int class);
/* Of the fullest tile, with what is always there, and when. */
int64_t lp_peaks_fullest(LpPeaks *x, uint32_t *at);

/* The nodes of IPU i, or numbers of what else it is said to be, in order:
 * node[first[i]] .. node[first[i + 1] - 1]. */
typedef struct LpNodesOf {
    size_t *first;
    LpNodeId *node;
} LpNodesOf;

/* What the memory of an IPU is found from (by_ipu.c); all scratch. */
typedef struct LpByIpu {
    LpNodesOf node, update; /* of step->micro, of step->update */
    LpNodesOf owned;        /* variables, copies of other IPUs' too */
    /* runs; stashes; copies from it and to it; transfers */
    LpNodesOf run, stash, copy, transfer;
    size_t *stash_of, *next_stash; /* of a value, + 1: the first, the one after
                                    */
    size_t *copy_of, *next_copy;   /* likewise */
    LpNodesOf touched; /* of the update, also those that only read from it;
                               none without an update, as those below: */
    int *var, *out; /* by value of the update: the variable of which it is the
                       old one, the new one; -1 */
    LpVal *root;    /* likewise: what it is a view of, or it itself */
    int *home;      /* likewise: its IPU, or its variable's; -1: all have it */
    LpNodeId *last; /* by variable: after the last node that reads its old
                       value */
    /* of one IPU, for the next one clear again */
    size_t *span, *update_span; /* by value: its last span + 1 */
    size_t *came;               /* by variable off chip: its span + 1 */
    bool *off;                  /* by value: its stash is off chip */
    uint32_t *base;             /* by run: its first entry; need not be clear */
} LpByIpu;

LpStatus lp_ipu_by_ipu(LpIpuPlan *p, LpByIpu *by);

/* What is on an IPU for some of the time: fills in the peak of *m, whose
 * always-live part is in `always`. */
LpStatus lp_ipu_liveness(LpIpuPlan *p, int ipu, const LpByIpu *by,
                         const LpTiles *always, LpTileGaps gaps,
                         LpIpuMemory *m);

/* Keeps the largest in m->largest. */
void lp_ipu_note_largest(LpIpuMemory *m, LpLargest b);

#endif
