/* Inside host lowering: the state that its passes (passes.def) share. */
#ifndef LP_PASSES_HOST_LOWER_IMPL_H
#define LP_PASSES_HOST_LOWER_IMPL_H

#include "src/passes/host/lower.h"

#define LP_NO_BUF UINT32_MAX

/* What an exception says of a node, in `to`, which it returns. */
enum { LP_WHERE = 512 };
const char *lp_place_text(const LpGraph *g, const LpGraphNode *n,
                          char to[LP_WHERE]);

/* A buffer: one allocation that values lie in. */
typedef struct LpAlloc {
    uint64_t bytes;
    uint32_t var;         /* a variable's memory, or UINT32_MAX: arena */
    uint32_t first, last; /* instructions that touch it */
    uint32_t reads_left;  /* of all values in it */
} LpAlloc;

typedef struct LpValueLocation {
    uint32_t buf;   /* LP_NO_BUF: not computed yet */
    int64_t offset; /* elements */
    LpDesc desc;
} LpValueLocation;

/* By whom values are read. */
typedef struct LpReaders {
    uint32_t *uses;   /* per value: by nodes, and at the end */
    LpNodeId *reader; /* per value: the last node, or LP_NO_NODE */
} LpReaders;

/* In `mem`; `out`: n_out values, or holes, that are read at the end. */
LpStatus lp_find_readers(const LpGraph *g, const LpVal *out, size_t n_out,
                         LpArena *mem, LpReaders *r, LpErr *e);

/* The only reader of v; LP_NO_NODE: none, or more, or an output. */
static inline LpNodeId lp_only_reader(const LpReaders *r, LpVal v)
{
    return r->uses[v] == 1 ? r->reader[v] : LP_NO_NODE;
}

typedef struct LpLower {
    LpProgram *program;
    const LpStep *step;
    const LpGraph *g;
    const LpVal *in, *out; /* of g, per variable */
    bool update;
    const LpHostOptions *o;
    LpCode *code;
    LpArena mem;
    LpValueLocation *location; /* per value */
    LpValueLocation *alt; /* per value: the same in the other layout, if made */
    LpReaders read;
    uint32_t *target; /* per value: variable to receive it, or UINT32_MAX */
    /* per value: 1 + parameter whose weight layout it shares, or 0 */
    uint32_t *layout_group;
    uint8_t *block; /* per value: channels in a block of it; 0: plain */
    LpAlloc *buf;
    size_t n_buf, cap_buf;
    struct LpPending *pending; /* refs to patch when the arena is planned */
    size_t n_pending, cap_pending;
    /* per node: for a product, what its epilogue is, and for that the product
     * (epilogue.c); else LP_NO_NODE */
    LpNodeId *partner;
    LpErr *err;
} LpLower;

typedef struct LpPending {
    LpRef *ref;
    uint32_t buf;
} LpPending;

/* Which convolution `op` is, if its kernel takes blocks and weights in the
 * library's layout. */
static inline LpProductKind lp_conv_of(const LpOp *op)
{
    return op->flags & LP_OPF_BLOCKED ? op->product : LP_PRODUCT_NONE;
}

/* Passes that fill the tables above, or the code. */
#define PASS(name, text) LpStatus lp_lower_##name(LpLower *l);
#include "src/passes/host/passes.def"

/* Gives v memory of its own: a variable's (var) or the arena's
 * (UINT32_MAX). */
LpStatus lp_lower_own(LpLower *l, LpVal v, uint32_t var);
/* A buffer, touched by the next instruction: of the arena (var UINT32_MAX), or
 * the memory of a variable. */
LpStatus lp_lower_buffer(LpLower *l, uint64_t bytes, uint32_t var,
                         uint32_t *buf);
LpStatus lp_lower_new_kernel(LpLower *l, LpKernel **k);
/* Appends the instruction if `s` is LP_OK, else frees the kernel. Operands
 * are places, NULL for holes and immediates. */
LpStatus lp_lower_finish(LpLower *l, LpStatus s, LpNodeId node, LpKernel *k,
                         const LpValueLocation *const *in, int n_in,
                         const LpValueLocation *const *out, int n_out);
LpStatus lp_lower_node(LpLower *l, LpNodeId id);
/* May result r of n lie as d over operand i, which dies here? */
bool lp_lower_fits(const LpLower *l, const LpGraphNode *n, uint32_t r,
                   uint32_t i, const LpDesc *d);
/* v, an operand of a node, lies in the buffer of w. */
static inline bool lp_in_place_of(const LpLower *l, LpVal v, LpVal w)
{
    return lp_is_value(v) && l->location[v].buf == l->location[w].buf;
}
/* A place for v, which an instruction for n makes: the variable's that
 * receives it, if it can be, or its own. */
LpStatus lp_lower_result(LpLower *l, const LpGraphNode *n, LpVal v);
/* A copy between places of one value, or of equally shaped ones, in any
 * layouts. */
LpStatus lp_lower_copy(LpLower *l, LpNodeId node, const LpValueLocation *src,
                       const LpValueLocation *dst);

/* p->micro_graph alone as code, of which the variables are the arguments. */
LpStatus lp_lower_function(LpProgram *p, const LpHostOptions *o, LpCode *code,
                           LpErr *e);

/* ---- layout ------------------------------------------------------------- */
/* n reduces a blocked image over all of its positions. */
bool lp_layout_reduces(const LpLower *l, const LpGraphNode *n);
/* v in the library's `layout` or, if that is NULL, in that of the block; copied
 * if it must be. The pointer is good until the next value gets a place. */
LpStatus lp_layout_place(LpLower *l, LpVal v, int block,
                         const LpConvLayout *layout,
                         const LpValueLocation **out);
/* v as it lies, but every element with memory of its own. */
LpStatus lp_layout_dense(LpLower *l, LpVal v, const LpValueLocation **out);
/* v in plain rows, without gaps. */
LpStatus lp_layout_rows(LpLower *l, LpVal v, const LpValueLocation **out);
LpDesc lp_layout_split(const LpLower *l, const LpDesc *d, const LpType *like);
/* Attributes and descriptions for reducing in[] (already split). */
void lp_layout_reduction(const LpGraphNode *n, LpAttr *attr, int64_t dims[5],
                         LpDesc *in, LpDesc *out);

/* ---- layouts of weights ------------------------------------------------- */
/* Chooses the layout of the weights that n, a convolution, is the first to
 * read. */
LpStatus lp_weight_layout_choose(LpLower *l, const LpGraphNode *n);
/* NULL: plain */
const LpConvLayout *lp_weight_layout_of(const LpLower *l, LpVal v);
const LpConvLayout *lp_weight_layout_of_var(const LpLower *l, size_t var);
/* The layout in which n makes its results; NULL: none. */
const LpConvLayout *lp_weight_layout_results(const LpLower *l,
                                             const LpGraphNode *n);
uint64_t lp_weight_layout_bytes(const LpDesc *d); /* of a value's memory */

/* ---- memory ------------------------------------------------------------- */
/* Most bytes in use after each of n changes, and the first where; 0 if none. */
int64_t lp_most_in_use(const int64_t *change, uint32_t n, uint32_t *at);
/* Variable `var` is an accumulator that nothing is added to. */
bool lp_may_be_in_arena(const LpLower *l, size_t var);
/* Node id is lowered after all that are not. */
bool lp_sinks(const LpLower *l, LpNodeId id);
/* Offsets of all buffers; `update` NULL: there is none. */
LpStatus lp_place_buffers(LpLower *micro, LpLower *update);

/* ---- packed weights ----------------------------------------------------- */
/* n is a convolution, or its gradient to the input, of a parameter that does
 * not change: what its kernel makes of it is made once. */
bool lp_keeps(const LpLower *l, const LpGraphNode *n);
/* n is a product that may read a packed copy of a parameter. */
bool lp_packs(const LpLower *l, const LpGraphNode *n);
LpStatus lp_lower_packed(LpLower *l, LpNodeId id, bool *done);
/* If k, the kernel of the convolution n or of it and its epilogue, reorders a
 * parameter in each call and that is worth a copy: *index is the copy's, else
 * UINT32_MAX. */
LpStatus lp_pack_weights(LpLower *l, const LpGraphNode *n, LpKernel *k,
                         uint32_t *index);
/* Operand `at` of the last instruction is the copy. */
void lp_packed_operand(LpLower *l, uint32_t index, uint32_t at);

/* ---- fusion ------------------------------------------------------------- */
/* A place for result v of n in what a concatenation joins it to, if it can be
 * there; that concatenation needs no instruction then. */
LpStatus lp_join_place(LpLower *l, const LpGraphNode *n, LpVal v);
bool lp_joined(const LpLower *l, const LpGraphNode *n);
bool lp_can_fuse(const LpGraphNode *n);
LpStatus lp_prepare_chain(const LpKernelReq *r, bool blocks, LpKernel *k,
                          LpErr *e);
/* n, which `chain` is prepared with, behind the product, whose operands are
 * in[]. */
LpStatus lp_prepare_epilogue(LpLower *l, LpNodeId product, const LpGraphNode *n,
                             const LpKernelReq *chain,
                             const LpValueLocation **in, LpKernel *k);
/* Can n run with the product, by where its results would lie? */
bool lp_epilogue_fits(const LpLower *l, const LpGraphNode *n, LpVal product);

#endif
