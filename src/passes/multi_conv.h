/* Settings of products and convolutions, which stand in the origins of nodes:
 * "NUMBER PLAN RESERVED BACK_OFF PROPORTIONS PARTIALS DITHERING", where the
 * last three are lists with commas (of one element for all, or "-"). PLAN is
 *
 *   parallel, serial  of the convolutions of one multi-convolution and their
 *                     gradients: those with one NUMBER
 *   alone             of a product or convolution in none and its gradients
 *   convolutions      the same, but products have the step's settings
 *
 * for the last two NUMBER is -1. Proportions of memory and dithering (0 or 1)
 * are the simulated system's (src/passes/ipu/shares.c), partials change values,
 * too. */
#ifndef LP_PASSES_MULTI_CONV_H
#define LP_PASSES_MULTI_CONV_H

#include "src/ir/graph.h"

typedef struct LpMultiConv {
    bool parallel, alone, convolutions;
    long reserved;
    double back_off;
    const char *proportions, *partials, *dithering; /* lists, to a blank */
} LpMultiConv;

LpStatus lp_multi_conv_read(const char *text, LpMultiConv *s, LpErr *e);
/* Are the settings, of no multi-convolution, those of n? */
bool lp_multi_conv_alone(const LpMultiConv *s, const LpGraphNode *n);
/* Element k of a list, or its only one; "" of the list "-". */
const char *lp_multi_conv_element(const char *list, uint32_t k);
/* Which convolution of its scope, from 0, node `own` is or is a gradient of;
 * `otherwise`: a gradient of none that is there. */
uint32_t lp_multi_conv_index(const LpGraph *g, LpNodeId own,
                             uint32_t otherwise);

/* Says of all products and sums of float16 numbers, in bodies too, whether they
 * have half partials: as their settings have it, else `half`. g may be NULL.
 * Before the common passes, which keep what it says of a node. */
LpStatus lp_set_partials(LpGraph *g, bool half, LpErr *e);

#endif
