/* A chain (in general a small acyclic graph) of pointwise operators over one
 * index space, run as one pass over cache-sized blocks. Values that only the
 * chain reads never reach memory. Every node rounds to the type it is stored
 * in, so the bits are those of the single operators. */
#ifndef LP_KERNEL_LOOPS_FUSED_H
#define LP_KERNEL_LOOPS_FUSED_H

#include "src/kernel/loops/pointwise.h"

enum { LP_FUSED_MAX_NODE = 40, LP_FUSED_MAX_EXT = 24, LP_FUSED_MAX_OUT = 8 };

/* Where an operand comes from. */
typedef enum { LP_FUSED_IMM, LP_FUSED_EXT, LP_FUSED_NODE } LpFusedFrom;

typedef struct LpFusedArg {
    LpFusedFrom from;
    int at;       /* EXT, NODE: its number */
    LpScalar imm; /* IMM */
} LpFusedArg;

typedef struct LpFusedNode {
    const LpOp *op; /* of the pointwise driver */
    const LpAttr *attr;
    int n_in;
    LpFusedArg in[LP_PW_MAX_IN];
    LpDtype dtype; /* of its value */
    int ndim;      /* of its value, for promotion */
    int out;       /* result number, or -1: not stored */
    uint64_t site; /* not 0: a half value, rounded at random (rounding.h);
                      results then have contiguous elements in order, or are
                      images in blocks */
} LpFusedNode;

typedef struct LpFusedReq {
    const LpFusedNode *node; /* operands before users */
    int n_node;
    const LpDesc *ext; /* broadcast to out[0]'s shape */
    int n_ext;
    const LpDesc *out; /* all of one shape, dense in one order of dimensions */
    int n_out;
    int threads;
    bool blocks; /* images in five dimensions, the last within blocks of
                    channels (lp_desc_split) */
} LpFusedReq;

/* Operators that can be part of a chain. */
bool lp_fusable(const LpOp *op);
/* run: in[] are the externals, out[] the results; a result may lie exactly
 * over an external. */
LpStatus lp_fused_prepare(const LpFusedReq *r, LpKernel *k, LpErr *e);

/* Elements from … to - 1 of a prepared chain, on this thread; `work` are
 * lp_fused_work bytes. `rc` may be NULL if no node has a site. */
size_t lp_fused_work(const LpKernel *k);
void lp_fused_part(const LpKernel *k, void *const *in, void *const *out,
                   void *work, const LpRunCtx *rc, int64_t from, int64_t to);
/* The same of a chain of one result, which goes to out[0] … out[to - from - 1]
 * of its type. */
void lp_fused_values(const LpKernel *k, void *const *in, void *out, void *work,
                     const LpRunCtx *rc, int64_t from, int64_t to);

#endif
