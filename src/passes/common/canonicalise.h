/* Rules of the pass canonicalise. A rule returns the value that stands for
 * the node's result, of the same type, or LP_NOVAL to leave the node. */
#ifndef LP_PASSES_CANONICALISE_H
#define LP_PASSES_CANONICALISE_H

#include "src/ops/ops.h"
#include "src/passes/pass.h"

typedef LpVal (*LpCanonRule)(LpRewrite *rw, const LpGraphNode *n,
                             const LpVal *in);

static inline const LpType *lp_canon_type(const LpRewrite *rw,
                                          const LpGraphNode *n)
{
    return lp_graph_type(rw->from, n->out);
}

/* canonicalise_view.c */
LpVal lp_canon_reshape(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_permute(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_expand(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_slice(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_select(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_cat(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_cast(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_same(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);
LpVal lp_canon_detach(LpRewrite *rw, const LpGraphNode *n, const LpVal *in);

#endif
