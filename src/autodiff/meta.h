/* Inside the autodiff layer: what a tensor carries besides data, tape nodes,
 * view calls, and the canonical form of a call. */
#ifndef LP_AUTODIFF_META_H
#define LP_AUTODIFF_META_H

#include "src/autodiff/op_call.h"
#include "src/ir/builder.h"
#include "src/kernel/loops/fused.h"

typedef struct LpNode LpNode;

/* Where a gradient goes: result `out_nr` of a node, or a leaf, or nowhere. */
typedef struct LpEdge {
    LpNode *node;   /* retained by whoever stores the edge */
    LpTensor *leaf; /* likewise */
    uint32_t out_nr;
} LpEdge;

/* A hook in the list of a node (results told apart by out_nr) or a leaf. */
struct LpHook {
    int32_t refs; /* the list's, the handle's, a running call's */
    uint32_t out_nr;
    bool after; /* called after accumulation, with the leaf */
    LpHook *next;
    LpHookFn fn; /* NULL: removed */
    void (*release)(void *ctx);
    void *ctx;
};

struct LpTensorMeta {
    LpTensor *grad; /* owned */
    LpHook *hook;   /* of a leaf; owned list */
    bool retain_grad;
    LpNode *node; /* retained; NULL: a leaf */
    uint32_t out_nr;
    /* of a base: how often its history was rewritten by in-place operations;
     * of a view: the base's count when `node` was made */
    uint32_t hist;
    bool leaf_view; /* of a base: a view of it was made a leaf */
    bool constant;  /* a traced view made without gradients: until `hist` of
                    * the base has grown */
    /* traced tensors: the trace (borrowed, checked by serial), the value, and
     * the storage's version it belongs to */
    uint64_t trace_serial;
    LpVal val;
    uint32_t val_version;
};

LpTensorMeta *lp_meta(LpTensor *t, LpErr *e); /* made on demand */

/* ---- a call in canonical form ------------------------------------------- */
typedef struct LpCall {
    const LpOp *op;
    int n_in, n_out;
    LpType *in, *out; /* point into the buffers below or into the arena */
    LpAttr attr[LP_MAX_ATTR];
    int64_t strides[LP_MAX_DIMS], offset; /* views of real tensors */
    bool needs_copy;
    LpType in_buf[LP_MAX_IN], out_buf[LP_MAX_OUT];
} LpCall;

/* An operand has no data. */
static inline bool lp_any_meta(const LpArg *in, int n_in)
{
    for (int i = 0; i < n_in; i++)
        if (in[i].t && in[i].t->st->flags & LP_ST_META)
            return true;
    return false;
}

/* Before data is read: memory that a read may need. */
static inline LpStatus lp_touch_all(const LpArg *in, int n_in, LpErr *e)
{
    for (int i = 0; i < n_in; i++)
        if (in[i].t && in[i].t->st->flags)
            LP_TRY(lp_tensor_touch(in[i].t, false, e));
    return LP_OK;
}

/* Runs the shape rule. With `base` (views of a real tensor) also strides. */
LpStatus lp_call_infer(LpCall *c, const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, LpArena *arena, LpErr *e);
/* Sizes of a dynamic operator's results, from the data. */
LpStatus lp_call_measure(LpCall *c, const LpArg *in, LpErr *e);
/* Prepares and runs the kernel into existing tensors. `may_stop`: an interrupt
 * may leave the results half written, as none is an operand's memory. */
LpStatus lp_call_run(const LpCall *c, const LpArg *in, LpTensor *const *out,
                     uint64_t site, bool may_stop, LpErr *e);

/* The same of a chain, on as many threads as there are; with `sum` (not NULL)
 * of that of its result. LP_E_NOT_IMPLEMENTED: no chain can do it. */
LpStatus lp_call_fused(LpFusedReq *r, LpKernelReq *sum, void *const *in,
                       void *const *out, LpErr *e);
void lp_desc_of_tensor(LpDesc *d, const LpTensor *t);

/* dst's elements = src's, converted, broadcast; they may overlap. */
LpStatus lp_copy_tensor(LpTensor *dst, LpTensor *src, LpErr *e);

/* The arena of the current outermost call; leave() resets it at depth 0. */
LpArena *lp_scratch_enter(void);
void lp_scratch_leave(void);

/* ---- view calls --------------------------------------------------------- */
typedef struct LpViewCall {
    const LpOp *op;
    LpAttr attr[]; /* op->n_attr, lists behind them in the same block */
} LpViewCall;

/* Copies attributes and what they point to into one block: `head` bytes, the
 * attributes, their lists and strings. NULL when memory is short. */
void *lp_attrs_block(size_t head, const LpAttr *attr, int n);

LpStatus lp_make_view(LpTensor *src, const LpCall *c, LpTensor **out, LpErr *e);
/* Before t is written. A read by strides of its own through a view of a part
 * gives no gradient to what lies beside that, while a write goes back to all of
 * the base: the history of its operand is the chain from there. */
void lp_reach_base(LpTensor *t);
/* The same view of a base without history, in the same memory. */
LpStatus lp_detached_alias(LpTensor *t, LpTensor **out, LpErr *e);
/* Emits the chain up to `step` from `base`; base itself for NULL. */
LpVal lp_replay_chain(LpBuilder *b, const LpViewStep *step, LpVal base);
/* The base's value after the view at `step` was overwritten by v. */
LpVal lp_put_chain(LpBuilder *b, const LpViewStep *step, LpVal base, LpVal v);

/* ---- the eager builder -------------------------------------------------- */
typedef struct LpLater LpLater; /* eager_chain.c */

typedef struct LpEagerVal {
    LpTensor *t;         /* owned; NULL: a type, an immediate, or `later` */
    LpLater *later;      /* an operator yet to be run */
    const LpType *type;  /* in the scratch arena: stays where it is */
    bool is_imm, turned; /* a type's: of the tensor that it stands for */
    LpScalar imm;
} LpEagerVal;

/* A matrix whose columns, not rows, lie in one piece, as the transposed weight
 * of linear. */
static inline bool lp_is_turned(const LpTensor *t)
{
    const int64_t *s = t->strides + t->ndim;
    return t->ndim >= 2 && s[-2] == 1 && s[-1] > 1;
}

typedef struct LpEager {
    LpBuilder b;
    LpEagerVal *val;
    size_t n, cap;
    uint64_t forced_site;
    bool has_site;
    LpLater *last; /* emitted and put off */
    int n_later;
} LpEager;

/* Around the use of the scratch memory. */
void lp_eager_init(LpEager *g, LpErr *e);
void lp_eager_fini(LpEager *g);
LpEager *lp_to_eager(LpBuilder *b); /* NULL: another kind of builder */
LpVal lp_eager_tensor(LpEager *g, LpTensor *t); /* takes over one reference */
LpVal lp_eager_type(LpEager *g, const LpType *t, bool turned);
LpVal lp_eager_arg(LpEager *g, const LpArg *a); /* retains */
LpTensor *lp_eager_get(LpEager *g, LpVal v);    /* borrowed; NULL: failed */
/* Whether the operator need not run yet; *out stands for its result. */
bool lp_eager_put_off(LpEager *g, const LpOp *op, const LpVal *in, int n_in,
                      const LpAttr *attr, LpVal *out);
/* Computes a value that was put off. */
LpStatus lp_eager_make(LpEager *g, LpVal v);
/* Computes those of v[n] that were put off and have one shape in one pass, if
 * there are several. */
LpStatus lp_eager_make_all(LpEager *g, const LpVal *v, int n);
/* Whether this is a sum of elements that were put off; *out is it then. */
bool lp_eager_sum(LpEager *g, const LpOp *op, const LpVal *in,
                  const LpAttr *attr, LpVal *out);

/* ---- the tape ----------------------------------------------------------- */
typedef struct LpSaved {
    LpTensor *t; /* an alias without history; NULL: type only */
    uint32_t version;
    bool is_num, turned;
    LpScalar num;
    LpType type; /* dtype LP_DT_NONE: a hole */
} LpSaved;

struct LpNode {
    int32_t refs;
    bool freed; /* saved tensors are gone */
    uint64_t seq, site;
    const LpOp *op;
    LpAttr *attr; /* owned block */
    int n_in, n_out;
    LpEdge *edge;    /* n_in */
    LpSaved *in;     /* n_in */
    LpSaved *out;    /* n_out */
    LpTensor **dout; /* n_out: gradients gathered by a running backward */
    LpTensor **keep; /* n_out: borrowed, retain_grad asked; else NULL */
    LpHook *hook;    /* of results; owned list */
    LpNode *next;    /* of a work list, while it is on one */
};

/* Runs the hooks of result `out_nr` (0 of a leaf) on *grad, owned, which they
 * may replace; those `after` accumulation get the leaf. */
LpStatus lp_hooks_run(LpHook *list, bool after, uint32_t out_nr,
                      LpTensor **grad, LpErr *e);
void lp_hooks_drop(LpHook **list);

/* A node without edges and saved tensors; attributes are copied. */
LpNode *lp_node_new(const LpOp *op, const LpAttr *attr, int n_in, int n_out,
                    LpErr *e);
/* Retains; n comes after all nodes that there are now: to find an edge may
 * record a view again. */
void lp_edge_store(LpNode *n, int i, LpEdge src);
/* What a rule will read: an alias, with the version it has. */
LpStatus lp_save_tensor(LpSaved *s, LpTensor *t, const LpStorage *bumped,
                        LpErr *e);
/* release(ctx) is called once, with the hooks. On failure nothing was taken. */
LpStatus lp_hooks_keep(LpHook **list, void (*release)(void *ctx), void *ctx,
                       LpErr *e);

bool lp_wants_grad(const LpArg *in, int n_in);
/* The operands that want a gradient, as in op->readers; whether theirs will
 * read operand i. */
unsigned lp_wanting(const LpOp *op, const LpArg *in, int n_in);
bool lp_reads(const LpOp *op, unsigned want, int i);
/* Records the call; attaches histories to out[]. `bumped`: storage whose
 * version this very call has raised (in-place), or NULL. */
LpStatus lp_record(const LpCall *c, const LpArg *in, LpTensor *const *out,
                   uint64_t site, const LpStorage *bumped, LpErr *e);
/* Current edge of a tensor (refreshes a stale view); borrowed. */
LpStatus lp_edge_of(LpTensor *t, LpEdge *edge, LpErr *e);
/* Makes (node, out_nr) the history of t; retains node. */
LpStatus lp_set_history(LpTensor *t, LpNode *node, uint32_t out_nr, LpErr *e);
/* t is written in place: its value gets the history of `from`. Everything that
 * can fail is in the plan, made before the bytes change; commit cannot fail.
 * A plan owns its nodes until lp_rebase_drop. */
typedef struct LpRebase {
    bool any; /* there is a history */
    LpNode *base, *own;
    uint32_t base_nr, own_nr;
} LpRebase;
LpStatus lp_rebase_plan(LpTensor *t, LpTensor *from, LpRebase *r, LpErr *e);
void lp_rebase_commit(LpTensor *t, const LpRebase *r);
void lp_rebase_drop(LpRebase *r);
LpNode *lp_node_retain(LpNode *n);
void lp_node_release(LpNode *n);
void lp_node_drop_saved(LpNode *n);

/* ---- random state ------------------------------------------------------- */
uint64_t lp_next_site(void);

#endif
