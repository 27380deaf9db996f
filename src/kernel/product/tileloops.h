/* The loops of the product by matrix tiles (tiles.h): amx_tiles.c has them for
 * CPUs with AMX. Everything runs on one thread.
 *
 * A panel is 32 lines, rows of the left or columns of the right operand, of
 * some multiple of 32 elements along k, cut into pieces: [k / 32][piece][2]
 * tiles of 16 lines by 32 elements, zeros where the operand has ended. */
#ifndef LP_KERNEL_PRODUCT_TILELOOPS_H
#define LP_KERNEL_PRODUCT_TILELOOPS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LP_TILE = 16,                /* rows and columns of a tile of sums */
    LP_TILE_DEPTH = 32,          /* elements along k of an operand's tile */
    LP_TILE_PANEL = 2 * LP_TILE, /* lines */
    LP_TILE_ELEMENTS = LP_TILE * LP_TILE_DEPTH,
    LP_TILE_BAD = -1,
};

/* A panel's source: x[line][k]; strides in elements, `lines` at most 32. */
typedef struct LpTileSource {
    const float *x;
    int64_t line, along; /* strides */
    int64_t lines, k;
} LpTileSource;

/* Products of one panel, the moving one, with each of `n` others, side by side
 * in c: rows of c if `left_moves`, else columns. One stride of c is 1. */
typedef struct LpTileRun {
    const uint16_t *moving, *fixed;
    int64_t n, apart; /* fixed panels, elements from one to the next */
    int64_t depth;    /* tiles along k */
    int pieces;
    bool left_moves, add; /* c += instead of c = */
    float *c;
    int64_t c_rs, c_cs;
    int64_t rows, cols; /* of c: what is beyond them is padding */
    LpTileSource next;  /* cut meanwhile into `panel`, the next to move; */
    uint16_t *panel;    /* NULL: none */
} LpTileRun;

/* Numbers are cut into `pieces` (1 to 3) of bfloat16, to nearest, ties away
 * from zero. Both return the biased exponent of the largest number of the panel
 * that was cut, rounded so, 0 if there are only zeros. LP_TILE_BAD: pieces do
 * not stand for the source, as some number of it is so large, infinite or small
 * that a piece is none of bfloat16's normal ones. */
typedef struct LpTileLoops {
    int (*pack)(const LpTileSource *, bool left, int pieces, uint16_t *panel);
    int (*multiply)(const LpTileRun *r);
    /* Before and after the other loops, by each thread. */
    void (*begin)(void);
    void (*end)(void);
} LpTileLoops;

extern const LpTileLoops lp_amx_tiles; /* on x86-64 */

#endif
