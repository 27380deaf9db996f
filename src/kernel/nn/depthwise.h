/* The gradient to the weights of a depthwise convolution (a channel has its own
 * window), float32, for windows wider than the library has code for: there its
 * way is a product of matrices a channel, up to a hundred times slower.
 *
 * Operands lie in blocks of channels. A task is a row of the window, or a part
 * of one, of a block: its sums stay in registers while it runs down the images,
 * and nothing but the order within an image decides their bits. */
#ifndef LP_KERNEL_NN_DEPTHWISE_H
#define LP_KERNEL_NN_DEPTHWISE_H

#include "src/kernel/nn/nn.h"

/* The most places of a row of the window that a task takes. */
enum { LP_DEPTHWISE_TAPS = 8 };

/* Two axes, the first of size 1 where the convolution has one. */
typedef struct LpDepthwise {
    int block;
    int64_t n, channels;
    int64_t src[2], dst[2], kernel[2], stride[2], dilation[2], pad[2];
} LpDepthwise;

/* Places from..from + taps - 1 of row `row` of the window: sum[place] of a
 * block, whose first images `src` and `dst` point at. */
typedef struct LpDepthwiseTask {
    int64_t row, from;
    int taps;
    const float *src, *dst;
} LpDepthwiseTask;

typedef struct LpDepthwiseLoops {
    void (*sum)(const LpDepthwise *d, const LpDepthwiseTask *t, float *sum);
} LpDepthwiseLoops;
typedef const LpDepthwiseLoops LpDepthwiseOf[1];

/* Whether it pays for this gradient; then `d` has all but the block. */
bool lp_depthwise_takes(const LpConvGeom *g, LpDepthwise *d);

/* w: plain rows. */
void lp_depthwise_run(const LpDepthwise *d, int threads, const float *src,
                      const float *dst, float *w);

#endif
