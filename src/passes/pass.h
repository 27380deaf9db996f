/* Common passes: each takes a graph and leaves an equivalent one in its place.
 * Inputs and outputs keep their number and order; merged values keep all their
 * names. One file each under common/; the order is in pipeline.c. In debug
 * builds the verifier runs after each. */
#ifndef LP_PASSES_PASS_H
#define LP_PASSES_PASS_H

#include "src/ir/step.h"

typedef LpStatus (*LpPass)(LpGraph **g, LpErr *e);

/* passes.def: PASS(name, "what it does"), in the order they run. */
#define PASS(name, text) LpStatus lp_pass_##name(LpGraph **g, LpErr *e);
#include "src/passes/passes.def"
#undef PASS

/* All common passes, in order. */
LpStatus lp_run_common_passes(LpGraph **g, LpErr *e);
/* One by name; LP_E_VALUE if there is none. For specs and dumps. */
LpStatus lp_run_pass(const char *name, LpGraph **g, LpErr *e);

/* Rebuilding: copies `from` node by node. `visit` may emit something else for
 * a node through `gb` and set out[] (values of the new graph; in[] are its
 * operands there); returning false copies the node as it is. */
typedef struct LpRewrite {
    const LpGraph *from;
    LpGraph *to;
    LpGraphBuilder gb;
    LpVal *map; /* value of `from` -> value of `to` */
    void *ctx;
} LpRewrite;
typedef bool (*LpVisit)(LpRewrite *rw, LpNodeId id, const LpVal *in,
                        LpVal *out);
LpStatus lp_rewrite(LpGraph **g, LpVisit visit, void *ctx, LpErr *e);

#endif
