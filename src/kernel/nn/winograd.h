/* Convolutions of 3 x 3 windows by Winograd's algorithm (Lavin and Gray, "Fast
 * algorithms for convolutional neural networks", CVPR 2016), float32, for CPUs
 * on which the library has the direct one alone: a tile of 4 x 4 results takes
 * 36 products a pair of channels in place of 144.
 *
 *   image, in blocks of channels        windows
 *     tiles of 6 x 6, transformed         transformed: `u`
 *                    \                   /
 *            36 products of matrices [tiles, in] [in, out]
 *                              |
 *              tiles of 4 x 4 results, transformed back
 *
 * The gradient to the windows has tiles of results transformed, too, products
 * [in, tiles] [tiles, out] and windows transformed back.
 *
 * Errors are about 4e-6 of the largest result. Nothing depends on the number of
 * threads: a chunk of tiles after the other, each sum in the order of its
 * channels. */
#ifndef LP_KERNEL_NN_WINOGRAD_H
#define LP_KERNEL_NN_WINOGRAD_H

#include "src/kernel/nn/nn.h"
#include "src/kernel/product/dnn.h"

enum {
    LP_WINOGRAD_BLOCK = 8,   /* channels of a block of an image */
    LP_WINOGRAD_TILE = 6,    /* numbers a side */
    LP_WINOGRAD_STEP = 4,    /* results a side */
    LP_WINOGRAD_PLACES = 36, /* products */
};

/* An image [n, in, src] and a window a pair of channels make [n, out, dst]. */
typedef struct LpWinograd {
    int64_t n, in, out;
    int64_t src[2], dst[2], pad[2];
    bool turned;   /* windows are [in, out, 3, 3], to be read backwards */
    bool gradient; /* they are what is made */
    int64_t across, down; /* tiles of an image */
    int64_t chunk;        /* tiles at once */
    int64_t panels;       /* of the products' columns */
    /* elements from one of the 36 to the next, of tiles and of windows */
    int64_t in_plane, out_plane, window_plane;
} LpWinograd;

typedef struct LpWinogradLoops {
    /* tile number `at` of all and the next n - 1, for every input channel, to
     * v[place * in_plane + tile * in + channel] */
    void (*spread)(const LpWinograd *w, const float *image, int64_t at,
                   int64_t n, float *v);
    /* and back, for results that m holds likewise; then's steps, unless it is
     * NULL */
    void (*gather)(const LpWinograd *w, const LpConvThen *then, const float *m,
                   int64_t at, int64_t n, float *image);
    /* tiles of an image [n, out, dst], to panels: m[place * out_plane + panel *
     * chunk * width + tile * width + column] */
    void (*raise)(const LpWinograd *w, int64_t width, const float *image,
                  int64_t at, int64_t n, float *m);
    /* a block of windows, and the 36 times as many numbers they become */
    void (*window)(const LpWinograd *w, const float g[9 * LP_WINOGRAD_BLOCK],
                   float *u);
    /* and back */
    void (*fold)(const LpWinograd *w, const float *u,
                 float g[9 * LP_WINOGRAD_BLOCK]);
} LpWinogradLoops;
typedef const LpWinogradLoops LpWinogradOf[1];

/* Whether this CPU is one of those. */
bool lp_winograd_runs(void);
/* Whether it can do this one; then w is what it needs. */
bool lp_winograd_takes(const LpConvGeom *g, LpDnnPass pass, LpWinograd *w);

size_t lp_winograd_window_bytes(const LpWinograd *w);
/* Plain rows of windows to u. */
void lp_winograd_windows(const LpWinograd *w, int threads, const float *rows,
                         float *u);

size_t lp_winograd_work_bytes(const LpWinograd *w);
/* `then` may be NULL. */
void lp_winograd_run(const LpWinograd *w, int threads, const float *src,
                     const float *u, float *dst, const LpConvThen *then,
                     void *work);
/* The gradient: `dst` is that of the results, `rows` are plain. */
void lp_winograd_gradient(const LpWinograd *w, int threads, const float *src,
                          const float *dst, float *rows, void *work);

#endif
