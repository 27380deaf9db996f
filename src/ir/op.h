/* The operator record. One operator is one LpOp in one family file of src/ops
 * and one line of src/ops/ops.def; bindings, keyword handling, error messages,
 * verifier, gradients and costs are all read from it.
 *
 * Signature. `forms` holds one form a line, in schema notation:
 *
 *   name[.variant](Type arg[=default], …, *, Type kw=default) -> results
 *       [@flags] [;arg=constant …]
 *
 * The first form is the operator's own signature: its Tensor arguments are the
 * operands in order, all others the attributes in order. Later forms use the
 * same argument names (any subset, any order); what they leave out has the
 * first form's default or the constant given after `;`. Types: Tensor, Tensor?
 * (may be a hole), Tensor[] (the last operand only), Value (a tensor or a
 * number: a number becomes an immediate), int, int?, int[], int[]?, int[N] (a
 * single int is repeated N times), float, float?, bool, bool?, str, str?,
 * Scalar, Scalar?, ScalarType, ScalarType?, Graph (a body). Flags: f
 * torch.NAME, m method NAME, i in-place method NAME_ (writes the first
 * operand), n torch.nn.functional.NAME, o accepts out= of the result's type, c
 * accepts out= of any type that the result can be cast to, d accepts out= of
 * any type, which is `dtype` unless the call names one, s torch.special.NAME, l
 * torch.linalg.NAME, w torch.nn.functional.NAME takes inplace=, g takes
 * generator=, r takes requires_grad= and device=, p internal (no public name;
 * the text form and the passes use it). A result list is `Tensor`, `(Tensor
 * values, Tensor indices)` or `Tensor[]` (as many as the shape rule says).
 *
 * Kinds. Primitive: kernel, gradient, cost. Composite: `expand` only; every
 * reader sees the expansion. Fused: kernel, gradient and `expand`; a node of
 * the step only if LP_OPF_DEVICE (one operation of PopLibs), else a trace
 * inlines the expansion. */
#ifndef LP_IR_OP_H
#define LP_IR_OP_H

#include "src/base/status.h"
#include "src/tensor/tensor.h"

/* ---- attributes --------------------------------------------------------- */
typedef enum {
    LP_ATTR_NONE, /* None */
    LP_ATTR_INT,
    LP_ATTR_FLOAT,
    LP_ATTR_BOOL,
    LP_ATTR_INTS,
    LP_ATTR_SCALAR,
    LP_ATTR_DTYPE,
    LP_ATTR_STR,
    LP_ATTR_GRAPH, /* a body; counted, nobody changes it */
} LpAttrKind;

typedef struct LpGraph LpGraph; /* src/ir/graph.h */

/* `v` and `str` are owned by whoever owns the record the attribute is in. */
typedef struct LpAttr {
    LpAttrKind kind;
    int32_t n; /* INTS: count */
    union {
        int64_t i; /* INT, BOOL, DTYPE */
        double f;
        const int64_t *v;
        LpScalar s;
        const char *str;
        const LpGraph *graph; /* the owner of the record has a reference */
    };
} LpAttr;

#define LP_NONE_ATTR ((LpAttr){.kind = LP_ATTR_NONE})
static inline LpAttr lp_attr_int(int64_t i)
{
    return (LpAttr){.kind = LP_ATTR_INT, .i = i};
}
static inline LpAttr lp_attr_float(double f)
{
    return (LpAttr){.kind = LP_ATTR_FLOAT, .f = f};
}
static inline LpAttr lp_attr_bool(bool b)
{
    return (LpAttr){.kind = LP_ATTR_BOOL, .i = b};
}
static inline LpAttr lp_attr_ints(const int64_t *v, int n)
{
    return (LpAttr){.kind = LP_ATTR_INTS, .n = n, .v = v};
}
static inline LpAttr lp_attr_scalar(LpScalar s)
{
    return (LpAttr){.kind = LP_ATTR_SCALAR, .s = s};
}
static inline LpAttr lp_attr_dtype(LpDtype t)
{
    return (LpAttr){.kind = LP_ATTR_DTYPE, .i = t};
}
static inline LpAttr lp_attr_str(const char *s)
{
    return (LpAttr){.kind = LP_ATTR_STR, .str = s};
}
static inline LpAttr lp_attr_graph(const LpGraph *g)
{
    return (LpAttr){.kind = LP_ATTR_GRAPH, .graph = g};
}
bool lp_attr_eq(const LpAttr *a, const LpAttr *b);
uint64_t lp_attr_hash(const LpAttr *a); /* equal attributes, equal hash */

/* ---- values and builders ------------------------------------------------ */
/* A value of a builder: 0 is none; an immediate number has LP_VAL_IMM set. */
typedef uint32_t LpVal;
#define LP_NOVAL 0u
#define LP_VAL_IMM 0x80000000u

#define LP_MAX_IN 16 /* fixed operands of an operator (lists may be longer) */
#define LP_MAX_OUT 8 /* fixed results */
#define LP_MAX_ATTR 16
#define LP_MAX_LIST 1024 /* results of Tensor[]; operands in the text form */

typedef struct LpBuilder LpBuilder; /* src/ir/builder.h */
typedef struct LpOp LpOp;

/* ---- shape rule --------------------------------------------------------- */
/* The only validation of arguments. The rule reads `in` (dtype LP_DT_NONE for
 * a hole), may rewrite `attr` into canonical form (wrapped dims, filled
 * defaults; memory for lists from `arena`), sets out[0..n_out-1]. For operators
 * with Tensor[] results it sets n_out (out holds up to LP_MAX_LIST). For a view
 * it also sets the strides and offset from those of its input, when `strides`
 * is not NULL. */
typedef struct LpInfer {
    const LpOp *op;
    int n_in, n_out;
    const LpType *in;
    /* num[i] is operand i where in[i].wrapped; elements of lists are tensors */
    const LpScalar *num;
    LpAttr *attr; /* op->n_attr */
    LpType *out;
    struct LpArena *arena;
    LpErr *err;
    /* views only; NULL when values have no memory */
    const int64_t *in_strides;
    int64_t in_offset;
    int64_t *strides; /* of out[0]; out */
    int64_t *offset;  /* out */
    bool *needs_copy; /* out: reshape that cannot be a view */
} LpInfer;

/* ---- gradient ----------------------------------------------------------- */
/* in/out/dout/din are values of `b` (LP_NOVAL: hole, or no gradient). The rule
 * sets din[i] for operands with need[i]; values it does not set are zero.
 * After the rule every din is summed to its operand's shape and cast to its
 * dtype, so rules of broadcasting operators need not. */
typedef struct LpGrad {
    LpBuilder *b;
    const LpOp *op;
    const LpAttr *attr;
    int n_in, n_out;
    const LpVal *in;
    const LpVal *out;
    const LpVal *dout;
    LpVal *din;
    const bool *need;
    uint64_t site; /* of the forward node: random operators draw again */
    /* the reverse sweep, for the bodies that a rule makes (contract:
     * src/autodiff/sweep.h); NULL in eager backward passes */
    LpStatus (*sweep)(LpGraph *g, const LpVal *root, const LpVal *seed,
                      int n_root, const LpVal *wrt, int n_wrt, LpVal *grad,
                      LpErr *e);
} LpGrad;

/* ---- kernel ------------------------------------------------------------- */
typedef struct LpConvLayout LpConvLayout; /* src/kernel/nn/conv_layout.h */
typedef struct LpDesc {
    LpDtype dtype; /* LP_DT_NONE: hole */
    int8_t ndim;
    bool is_imm;
    /* 0: plain, strides say where elements are. Else dimension 1 is blocked
     * (host lowering only, operators with LP_OPF_BLOCKED): memory is dense in
     * the order [d0, d1 / block, d2, …, block], shape is the logical one,
     * strides are unused; block divides shape[1]. */
    uint8_t block;
    const LpConvLayout *layout; /* not NULL: weights in the library's layout */
    LpScalar imm;               /* is_imm */
    int64_t shape[LP_MAX_DIMS];
    int64_t strides[LP_MAX_DIMS];
} LpDesc;

/* How a step computes where types alone do not say: part of what fixes
 * values. */
#define LP_NUMERICS(NUMERIC)                                                   \
    NUMERIC(stochastic) /* half results round at random: right on average */   \
    NUMERIC(half_partials)   /* of float16 sums, see half_sums.h */            \
    NUMERIC(half_statistics) /* of float16, see norm_kernel.c */               \
    NUMERIC(trap)            /* invalid operations and overflows are errors */
typedef struct LpNumerics {
#define LP_NUMERIC(name) bool name;
    LP_NUMERICS(LP_NUMERIC)
#undef LP_NUMERIC
} LpNumerics;

/* Random operators: Philox key = mix(seed, site), counter = (element / 4,
 * loop iteration, replica, micro-batch). */
typedef struct LpRunCtx {
    uint64_t seed;
    uint32_t micro_batch, replica, iteration;
    const struct LpHostCalls *host; /* src/ops/host_call.h; NULL: none */
} LpRunCtx;

typedef struct LpKernel LpKernel;
/* What a run is about to write over operand 0, where result 0 lies there: kept
 * in memory of so many bytes, and put back from it (out: result 0). */
typedef struct LpKernelUndo {
    void (*keep)(const LpKernel *k, void *const *in, void *kept);
    void (*put_back)(const LpKernel *k, void *out, void *kept);
} LpKernelUndo;
typedef LpStatus (*LpKernelRun)(const LpKernel *k, void *const *in,
                                void *const *out, void *work,
                                const LpRunCtx *rc, LpErr *e);
/* The head of a hook. */
#define LP_KERNEL_RUN(name)                                                    \
    static LpStatus name(const LpKernel *k LP_UNUSED,                          \
                         void *const *in LP_UNUSED,                            \
                         void *const *out LP_UNUSED, void *work LP_UNUSED,     \
                         const LpRunCtx *rc LP_UNUSED, LpErr *e LP_UNUSED)
struct LpKernel {
    LpKernelRun run;
    void (*fini)(LpKernel *k); /* NULL: nothing to free */
    const LpKernelUndo *undo;  /* NULL: it may write all of the result */
    size_t undo_bytes;
    size_t work_bytes;          /* scratch, 64-byte aligned, given to run */
    int threads;                /* width fixed when prepared */
    void *state;                /* NULL or owned: fini frees it */
    _Alignas(16) char inl[512]; /* small state, no allocation */
};

enum { LP_SPLIT_ALL = 3 };

typedef struct LpKernelReq {
    const LpOp *op;
    const LpAttr *attr;
    int n_in, n_out;
    const LpDesc *in, *out;
    int threads;
    uint64_t site;       /* random operators; results that round at random */
    LpNumerics numerics; /* of the step; all false outside steps */
    const char *where;   /* what exceptions say of it; NULL: its name */
    bool widened;        /* halves are float32 here (rounding.c) */
    bool fast;           /* a quicker algorithm that rounds more will do */
    bool keeps; /* what is made of a parameter alone may be made once */
    /* float32 products may be made of so many bfloat16 pieces of each number
     * where that is quicker; LP_SPLIT_ALL keep all its bits, 0: none */
    int split;
} LpKernelReq;
/* `k` comes empty, but for its threads, which are the request's. */
typedef LpStatus LpPrepare(const LpKernelReq *r, LpKernel *k, LpErr *e);
#define LP_KERNEL_PREPARE(name)                                                \
    LpStatus name(const LpKernelReq *r LP_UNUSED, LpKernel *k LP_UNUSED,       \
                  LpErr *e LP_UNUSED)
/* One that only returns what a call gives. */
#define LP_PREPARE_AS(name, ...)                                               \
    LP_KERNEL_PREPARE(name)                                                    \
    {                                                                          \
        return __VA_ARGS__;                                                    \
    }

/* LpOp.measure */
typedef LpStatus LpMeasure(const LpKernelReq *r, void *const *in, LpType *out,
                           LpErr *e);
#define LP_KERNEL_MEASURE(name)                                                \
    LpStatus name(const LpKernelReq *r LP_UNUSED, void *const *in,             \
                  LpType *out, LpErr *e LP_UNUSED)

/* ---- tile cost ---------------------------------------------------------- */
struct LpCostReq; /* src/ir/cost.h: types, attributes, chip, tiles */
struct LpCost;    /* runtime/cost/cost.h */
typedef void LpCostRule(const struct LpCostReq *r, struct LpCost *out);

/* ---- the record --------------------------------------------------------- */
typedef enum { LP_OP_PRIMITIVE, LP_OP_COMPOSITE, LP_OP_FUSED } LpOpKind;

enum {
    LP_OPF_POINTWISE = 1u << 0, /* same index in, same index out, broadcast */
    LP_OPF_VIEW = 1u << 1,      /* result 0 aliases operand 0 */
    LP_OPF_RANDOM = 1u << 2,  /* draws from its site; never merged or folded */
    LP_OPF_EFFECT = 1u << 3,  /* must stay: print, host call */
    LP_OPF_DYNAMIC = 1u << 4, /* result shape of data: eager only */
    LP_OPF_MARKER = 1u << 5,  /* read by IPU passes, dropped by host passes */
    LP_OPF_DEVICE = 1u << 6,  /* fused operator that PopLibs has as one */
    LP_OPF_CACHED = 1u << 7,  /* preparing is dear: keep prepared kernels */
    /* may write over operand 0 while reading it; a pointwise operator over any
     */
    LP_OPF_INPLACE_OK = 1u << 8,
    LP_OPF_COMMUTES = 1u << 9,
    LP_OPF_LOSS = 1u << 10,    /* PopTorch's one-final-loss rule counts it */
    LP_OPF_BLOCKED = 1u << 11, /* its kernel takes blocked operands */
    /* an optimizer: each result may be written over the operand whose new
     * value it is */
    LP_OPF_INPLACE_EACH = 1u << 12,
    /* reads and writes the elements of one index of all its tensors together,
     * other operands are numbers: any order of elements will do */
    LP_OPF_ELEMENTWISE = 1u << 13,
    /* out= may share no memory with an operand, as of pointwise operators */
    LP_OPF_OUT_APART = 1u << 14,
    LP_OPF_JOINS = 1u << 15, /* tensors; out= of a kind below: a TypeError */
    LP_OPF_TRUTH = 1u << 16, /* bool and uint8 results go to out= of either */
    LP_OPF_COINS = 1u << 17, /* 0 or 1: out= may have any type */
    LP_OPF_OUT_BY_DIM = 1u << 18, /* out= only of calls that name dim */
    /* results are numbers of operands, their negatives, or made for the
     * result's own type (draws): never rounded */
    LP_OPF_EXACT = 1u << 19,
    /* PopLibs plans it within a share of the memory: what the marker
     * set_available_memory may mean */
    LP_OPF_PLANNED = 1u << 20,
    /* its kernel gives results of any strides as it makes them */
    LP_OPF_STRIDED_OUT = 1u << 21,
    /* a view by strides of its own, which count contiguous elements whatever
     * the operand's strides are */
    LP_OPF_OWN_STRIDES = 1u << 22,
    /* result 0 costs little more than a pointwise one: it is made again rather
     * than kept where memory is short */
    LP_OPF_CHEAP = 1u << 23,
    /* a sum or mean over the dimensions LP_REDUCE_DIM, of operands of any
     * strides */
    LP_OPF_SUMS = 1u << 24,
};

/* The types that a script's call runs in under automatic casting
 * (src/autodiff/autocast.h): PyTorch 2.15's for the CPU (the kernels registered
 * for its dispatch key AutocastCPU); a composition of such operators (inner,
 * tensordot, einsum) says itself what they would make of it. */
typedef enum {
    LP_CAST_AS_IS,
    LP_CAST_NARROW, /* the scope's float16 or bfloat16 */
    LP_CAST_WIDE,   /* float32 */
    LP_CAST_WIDEST, /* float32 if an operand is that */
    LP_N_CASTS,
} LpCast;

/* What a graph does where float operands of an operator are half and float32;
 * eagerly the operator refuses them, as PyTorch does. */
typedef enum {
    LP_MIX_REFUSED,
    LP_MIX_FOLLOW, /* the others are cast to the first's type, as weights */
    LP_MIX_WIDEN,  /* all are cast to float32 */
} LpMix;

/* Of what products an operator consists. */
typedef enum {
    LP_PRODUCT_NONE,
    LP_PRODUCT_MATRIX, /* of operands 0 and 1 */
    LP_PRODUCT_CONV,
    LP_PRODUCT_CONV_INPUT,  /* its gradient to the input */
    LP_PRODUCT_CONV_WEIGHT, /* … to the weights */
} LpProductKind;

/* LpOp.readers of operands 0 to 2 and result 0: the operands among the first
 * four, as a bit mask, whose gradients read it; 0: all that are wanted. */
#define LP_READERS(x, y, z, r) ((x) | (y) << 4 | (z) << 8 | (r) << 12)

struct LpOp {
    const char *name; /* set from ops.def; unique */
    uint16_t id;
    LpOpKind kind;
    uint32_t flags;
    const char *forms;
    LpProductKind product;
    LpMix mix;
    LpCast cast;
    LpCast (*cast_of)(const LpAttr *attr); /* NULL: `cast`, of every call */
    LpStatus (*infer)(LpInfer *x);
    void (*expand)(LpBuilder *b, const LpAttr *attr, const LpVal *in, int n_in,
                   LpVal *out, int n_out);
    void (*grad)(LpGrad *g);
    const char *no_grad; /* reason, when it has none */
    /* what grad reads, as bit masks over operands (bit 31: the list) and
     * results; everything else is only there as a type */
    uint32_t grad_in, grad_out;
    uint16_t readers; /* whose gradients read them: LP_READERS */
    /* dynamic operators: sets the sizes that the shape rule bounded, from the
     * operands' data (r->out is NULL); called before results are allocated */
    LpMeasure *measure;
    LpPrepare *prepare;
    /* multiply-adds of a call; NULL: about one for each element that it reads
     * or writes (src/ops/width.h decides from it how many threads pay) */
    double (*work)(const LpKernelReq *r);
    /* views: value of the parent after the view was overwritten by `v` */
    LpVal (*put)(LpBuilder *b, const LpAttr *attr, LpVal parent, LpVal v);
    LpCostRule *cost;
    /* the row of runtime/cost that `cost` charges for this operator, where
     * several share a rule: LP_RED_… of folds, LP_EW_… of running sums */
    uint8_t cost_row;
    /* fused and inlined by traces: the operator, of the operands [gradient of
     * result 0, operands …] and the same attributes, that the inlined backward
     * nodes stand for; the host may run it instead of them */
    LpOp *back;
    /* fused: the operator that rounds at random where the inlined nodes do, and
     * whose last attribute has their sites; `sites` says how many those must
     * be, 0: it does not take such operands (NULL: a hole). One more result is
     * what the last but one of the nodes makes; that of `back` reads it in
     * place of its last operand */
    const LpOp *at_random;
    int (*sites)(const LpType *const *in, const LpAttr *attr);
    const void *data; /* family's own facts (loops of a pointwise operator) */
    /* optimizers' updates: the operand that multiplies the gradient first */
    uint8_t grad_scale;
    /* 1 + the text attribute by which nodes are called in place of `name` */
    uint8_t title;
    /* derived from forms at start-up by src/ir/schema.c */
    uint8_t n_operands; /* fixed operands, the list counted as one */
    uint8_t n_attr;
    uint8_t n_results; /* 0: Tensor[] */
    bool has_list;
};

/* The shape rule of x->op (which has one), and the check that every result can
 * exist: who has a type from here may multiply its sizes. */
LpStatus lp_op_infer(LpInfer *x);

/* The table, in the order of ops.def. Defined by src/ops/table.c. */
extern LpOp *const lp_ops[];
extern const int lp_n_ops;
const LpOp *lp_op_find(const char *name); /* NULL if unknown */

#endif
