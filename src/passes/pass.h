/* Common passes: each takes a graph and leaves an equivalent one in its place.
 * Inputs and outputs keep their number and order; merged values keep all their
 * names. One file each under common/; the order is in passes.def. In sanitized
 * builds the verifier runs after each (watch.c). */
#ifndef LP_PASSES_PASS_H
#define LP_PASSES_PASS_H

#include "src/ir/step.h"

typedef LpStatus (*LpPass)(LpGraph **g, LpErr *e);

/* passes.def: PASS(name, "what it does"), in the order they run. */
#define PASS(name, text) LpStatus lp_pass_##name(LpGraph **g, LpErr *e);
#include "src/passes/passes.def"
#undef PASS

/* All common passes, in order; the result is verified. */
LpStatus lp_run_common_passes(LpGraph **g, LpErr *e);
/* One by name, a common one or one of the host's, then the verifier;
 * LP_E_VALUE if there is none. For specs and dumps. */
LpStatus lp_run_pass(const char *name, LpGraph **g, LpErr *e);
/* A site for every node that rounds and has none (sites.c). `time`: 0 before
 * the common passes, 1 after them. g may be NULL. */
LpStatus lp_give_sites(LpGraph *g, int time, LpErr *e);
/* Names of the common passes, and of those that rewrite the host's graph
 * (host/passes.def); NULL at the end. */
extern const char *const lp_pass_names[];
extern const char *const lp_host_pass_names[];
/* The host's of that name, with its usual options. */
LpStatus lp_run_host_pass(const char *name, LpGraph **g, LpErr *e);

/* The verifier, whose failure names the pass. */
LpStatus lp_pass_verify(const char *pass, const LpGraph *g, LpErr *e);
/* To be called when a pass has left g (NULL: nothing to see): prints it if
 * LUPINE_DUMP names the pass, verifies it if LUPINE_VERIFY is set. */
LpStatus lp_pass_done(const char *pass, const LpGraph *g, LpErr *e);

/* Puts what fn makes of a copy of it in the place of every body of g; bodies
 * are shared. */
LpStatus lp_in_bodies(LpGraph *g,
                      LpStatus (*fn)(LpGraph **g, void *ctx, LpErr *e),
                      void *ctx, LpErr *e);

/* What makes another graph of one: inputs and outputs keep their order. */
typedef LpStatus (*LpRebuild)(LpGraph **g, const void *ctx, LpErr *e);
/* Runs it over a graph of a step with n_var variables, whose values are found
 * again. On failure x holds a graph still, its values are lost. */
LpStatus lp_rebuild(LpStepGraph *x, size_t n_var, LpRebuild pass,
                    const void *ctx, LpErr *e);

/* Rebuilding: makes a graph node by node, operands before users, from one that
 * stays as it is. `visit` may emit something else for a node through `gb`
 * (whose origin, region, site and partials are the node's) and set out[],
 * values of the new graph of the same types; LP_NOVAL drops a result that
 * nobody reads.
 * in[] are the node's operands in the new graph. Returning false copies the
 * node as it is. Names go to what their values became. */
typedef struct LpRewrite {
    const LpGraph *from;
    LpGraph *to;
    LpGraphBuilder gb;
    LpVal *map;   /* value of `from` -> value of `to` */
    bool *broken; /* region of `from` -> its label goes from all its nodes */
    void *ctx;
    LpErr *err;
} LpRewrite;
typedef bool (*LpVisit)(LpRewrite *rw, LpNodeId id, const LpVal *in,
                        LpVal *out);

/* Regions: labels keep their ids while the graph is built; a region that is
 * broken, has no node left, has lost an operand or all its results then
 * loses its label, the others are numbered anew. Room for `out` is the node's
 * n_out. */
LpStatus lp_rewrite(LpGraph **g, LpVisit visit, void *ctx, LpErr *e);

/* What became of v, a value, number or hole of the old graph; LP_NOVAL: it was
 * dropped. */
LpVal lp_rewrite_value(LpRewrite *rw, LpVal v);
/* Of all n; false if one was dropped. */
bool lp_rewrite_values(LpRewrite *rw, const LpVal *v, uint32_t n, LpVal *to);
/* Value v of the old graph, of this node or of one that is dropped, is `to`:
 * for rules that put one node in the place of several. */
void lp_rewrite_becomes(LpRewrite *rw, LpVal v, LpVal to);

/* The node that makes v, a value of the new graph, rounds at random at `site`,
 * if that is not 0. */
void lp_rewrite_rounds(LpRewrite *rw, LpVal v, uint64_t site);

/* The node of the new graph that makes `v`, if a rule for the node being
 * visited may look through it: a node in a region sees the nodes of its
 * region only, else a fused operator would get operands it does not have; one
 * outside sees none inside, else what lies between would be read from outside.
 * Nor is a node of another stage seen: looked through it might be dropped, and
 * its stage with it. NULL: an input, an immediate, a hole, or not to be seen.
 */
const LpGraphNode *lp_rewrite_def(const LpRewrite *rw, LpVal v);

/* Is every element of `v`, a value of the new graph, one known number: an
 * immediate, or a full node's value as its type holds it. */
bool lp_rewrite_constant(const LpRewrite *rw, LpVal v, LpScalar *s);

#endif
