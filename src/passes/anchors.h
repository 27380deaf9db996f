/* Anchors: tensors of a program that a caller asks for by name, besides what
 * forward returns.
 *
 *   X, input/X       the value of a stream, a variable, a named value
 *   loss             what is differentiated
 *   Gradient___X     of the loss with respect to X, of one micro-batch
 *   Accum___X        gradients of parameter X, summed up to the micro-batch
 *   finalLossScale, Accum___autoLossScaleStats
 *                    of a loss scale that is found: what the loss gradient
 *                    starts at, counts of gradients up to the micro-batch
 *   UpdatedVar___X   parameter X, which the last micro-batch of a device
 *                    iteration shows after the update
 *
 * A variable is shown as each micro-batch reads it, with two exceptions: where
 * one micro-batch makes an update it is shown after that, and so is its last
 * value of a run if that is all that is asked for. */
#ifndef LP_PASSES_ANCHORS_H
#define LP_PASSES_ANCHORS_H

#include "src/ir/step.h"

#define LP_GRADIENT "Gradient___"

typedef enum {
    LP_ANCHOR_VALUE,    /* of the micro graph */
    LP_ANCHOR_GRADIENT, /* Gradient___X: of the loss, one micro-batch's */
    LP_ANCHOR_ACCUM,    /* Accum___X: summed up to this micro-batch */
    LP_ANCHOR_COUNTS,   /* of gradients, likewise */
    LP_ANCHOR_VARIABLE, /* as the micro-batches read it */
    LP_ANCHOR_UPDATED   /* as it is after the last one and the update */
} LpAnchorKind;

typedef struct LpAnchor {
    const char *name; /* borrowed */
    bool final;       /* nothing but the last value of a run is wanted */
    LpAnchorKind kind;
    LpVal value; /* VALUE: itself; GRADIENT: what it is of, then itself */
    int var;     /* ACCUM: the parameter; VARIABLE, UPDATED: itself; else -1 */
} LpAnchor;

/* Names the results of all nodes of the micro graph:
 * "scope/operator:result" with PopART's name of the operator, the second of a
 * name with "/1" behind it; and the loss, or LP_NOVAL. */
LpStatus lp_name_values(LpGraph *g, LpVal loss, LpErr *e);
/* Each name that an anchor of a complete step like this one may have, in two
 * parts; not of hyper-parameters. */
typedef void (*LpNameVisit)(void *ctx, const char *prefix, const char *name);
void lp_each_name(const LpStep *s, LpNameVisit visit, void *ctx);
/* What a->name is, before the reverse sweep. */
LpStatus lp_anchor_find(const LpStep *s, bool training, LpAnchor *a, LpErr *e);
/* The same of a tensor whose gradient is wanted. */
LpStatus lp_tensor_find(const LpStep *s, LpAnchor *a, LpErr *e);
/* The output variable of an anchor, after the update graph is built: a
 * gradient is in `value` now (LP_NOVAL: none reaches it). */
LpStatus lp_anchor_add(LpStep *s, const LpAnchor *a, LpErr *e);

#endif
