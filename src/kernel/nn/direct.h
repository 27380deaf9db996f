/* Convolutions of images in blocks of channels, float32, for CPUs with AVX2 and
 * windows that stay the same. Results are told of (LpConvThen) while a cache
 * has them: what is pointwise behind a convolution costs no pass over memory.
 *
 *   image                        windows, packed: for 16 channels of the result
 *     |  a strip of places at    (of one with a window a channel 8) all that
 *     |  a time, copied with     they are multiplied by, in order
 *     |  zeros around it if it      |
 *     |  needs them                 |
 *     +------- tiles of places x channels in registers ---> told of
 *
 * Each result is summed in the order of channels, rows and columns of the
 * window; nothing depends on the number of threads. */
#ifndef LP_KERNEL_NN_DIRECT_H
#define LP_KERNEL_NN_DIRECT_H

#include "src/kernel/nn/nn.h"

enum {
    LP_DIRECT_BLOCK = 8, /* channels of a block */
    LP_DIRECT_PANEL = 2, /* blocks of the result that are made at once, */
    LP_DIRECT_SUMS = 12, /* in so many registers */
};

typedef struct LpDirect {
    int64_t n, groups;
    int64_t in, out; /* blocks of a group */
    int64_t src[2], dst[2], kernel[2], stride[2], dilation[2], pad[2];
    bool depthwise;      /* a window a channel; a group is a block of them */
    bool quads;          /* windows of four channels; so it is of two of them */
    bool copies;         /* strips */
    bool thins;          /* of what a window of one place strides over: copies
                            of only that */
    bool flat;           /* images are one line, made of the places below it */
    int64_t lines, line; /* of an image of the result, their places */
    int64_t strip;       /* lines made at once; places, if flat */
    int64_t chunk;       /* panels, likewise */
    int64_t from[2];     /* lines and columns of a strip's copy */
    int64_t taps;
    int64_t offset[]; /* of each block that the window meets, from its first */
} LpDirect;

/* A line of places, `step` elements apart, of one to three blocks, which are
 * `plane` elements apart where they are made; `add`: to what is there. In the
 * result they begin with element `element` of channel `channel`, and blocks are
 * image_plane apart; memory from ahead[] on that lies likewise is soon needed.
 * steps NULL: none yet. */
typedef struct LpDirectTile {
    int64_t blocks, step, plane, taps;
    const int64_t *offset;
    bool add, quads;
    const LpConvSteps *steps;
    int64_t channel, element, image_plane;
    int n_ahead;
    const float *ahead[LP_CONV_AHEAD];
} LpDirectTile;

typedef struct LpDirectLoops {
    /* n places */
    void (*line)(const LpDirectTile *t, int64_t n, const float *x,
                 const float *u, float *y);
    /* Lines first … last - 1 of a block of channels with a window each; line
     * 0 is that of t->element, made at `made`. */
    void (*lines)(const LpDirect *d, const LpDirectTile *t, int64_t first,
                  int64_t last, const float *image, const float *u,
                  float *made);
} LpDirectLoops;
typedef const LpDirectLoops LpDirectOf[1];

/* Whether this CPU can do it. */
bool lp_direct_takes(const LpConvGeom *g);
/* What it needs, to be freed; NULL: out of memory. */
LpDirect *lp_direct_new(const LpConvGeom *g, int threads);

size_t lp_direct_window_bytes(const LpDirect *d);
/* Plain rows of windows to u. */
void lp_direct_windows(const LpDirect *d, int threads, const float *rows,
                       float *u);
/* And back. */
void lp_direct_rows(const LpDirect *d, const float *u, float *rows);

size_t lp_direct_work_bytes(const LpDirect *d, int threads);
/* `then` may be NULL. */
void lp_direct_run(const LpDirect *d, int threads, const float *src,
                   const float *u, float *dst, const LpConvThen *then,
                   void *work);

#endif
