/* Pointwise steps behind a convolution that run on its sums while registers
 * have them: what a normalisation, a bias, a residual and an activation are.
 * The bits are those of the chain that they are taken from. */
#ifndef LP_KERNEL_NN_CONV_STEPS_H
#define LP_KERNEL_NN_CONV_STEPS_H

#include "src/kernel/loops/fused.h"

enum { LP_CONV_STEPS = 8 };

typedef enum {
    LP_STEP_SCALE, /* times a number a channel */
    LP_STEP_SHIFT, /* plus one */
    LP_STEP_IMAGE, /* plus an image, that times `scale` plus `shift` if given */
    LP_STEP_RELU,
    LP_STEP_CLIP, /* to lo … hi */
} LpConvStepKind;

/* Images lie as the result of the convolution does. */
typedef struct LpConvStep {
    LpConvStepKind kind;
    const float *scale, *shift, *image;
    float lo, hi;
} LpConvStep;

typedef struct LpConvSteps {
    int n;
    LpConvStep step[LP_CONV_STEPS];
} LpConvSteps;

/* Which external of the chain each pointer of a step is; -1: none. */
typedef struct LpConvStepArgs {
    int scale, shift, image;
} LpConvStepArgs;

/* The first nodes of the chain behind external `at` as steps; the pointers are
 * NULL. Of the chain's nodes `taken` become true. *value: the node whose value
 * the steps make. */
void lp_conv_find_steps(const LpFusedReq *chain, int at, LpConvSteps *s,
                        LpConvStepArgs arg[LP_CONV_STEPS],
                        bool taken[LP_FUSED_MAX_NODE], int *value);

#endif
