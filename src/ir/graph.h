/* The graph: nodes over values of static type, in the order they were made
 * (operands before users). One arena owns everything. Values, nodes, origins
 * are small integers, stable while the graph grows. A graph is built, copied
 * and rewritten by making a new one; passes that only annotate keep side
 * tables indexed by node id.
 *
 * A body (of a loop, a branch, a call) is a graph that is an attribute. It is
 * counted, shared by copies of the node, and changed by nobody; what it reads
 * from outside are operands of the node. */
#ifndef LP_IR_GRAPH_H
#define LP_IR_GRAPH_H

#include "src/base/map.h"
#include "src/base/mem.h"
#include "src/ir/builder.h"

typedef uint32_t LpNodeId;   /* index into graph->node */
typedef uint32_t LpOriginId; /* index into graph->origin; 0: none (refused) */

/* Where a node comes from. Strings are interned in the graph. Ids count from
 * 0; -1: not given. */
typedef struct LpOrigin {
    const char *block; /* user id of the block, "" outside blocks */
    const char *scope; /* module path, "layer1/0" */
    const char *file;  /* Lua source, "" if unknown */
    int32_t line;
    int32_t ipu, stage, phase;
    bool backward; /* made by the reverse sweep */
    bool update;   /* part of the weight update */
    /* of convolutions that run as one: the number of their group and its
     * settings (src/passes/ipu/shares.c), "" for others */
    const char *multi_conv;
    /* equal work is one piece of code on the device only if this is the same */
    const char *outline;
    /* scopes that were entered or left before it: tells calls of a line apart
     * between which a module was called; not part of the text */
    int32_t entered;
} LpOrigin;

typedef struct LpGraphNode {
    const LpOp *op;
    const LpAttr *attr; /* op->n_attr, canonical */
    const LpVal *in;    /* n_in; LP_NOVAL holes, immediates */
    uint32_t n_in;
    LpVal out; /* first result; the others follow */
    uint32_t n_out;
    LpOriginId origin;
    uint32_t region; /* 0, or the id of the fused operator it came from */
    uint64_t site;   /* random operators; of a step whose numerics are
                        stochastic also nodes that round */
    /* its running sums of float16 are rounded on the way
     * (src/kernel/product/half_sums.h): part of what it computes */
    bool half_partials;
} LpGraphNode;

#define LP_NO_NODE UINT32_MAX
/* A value that passes merged with others keeps all their names. */
typedef struct LpName {
    const char *text;
    struct LpName *next;
} LpName;

typedef struct LpValue {
    const LpType *type; /* in the arena: stays where it is */
    LpNodeId node;      /* LP_NO_NODE: an input of the graph */
    uint32_t nr;        /* which result, or which input */
    const char *name;   /* NULL, or a name that anchors can ask for */
    LpName *more;       /* further names */
} LpValue;

/* A region: the nodes a fused operator was inlined to. */
typedef struct LpRegion {
    const LpOp *op;
    const LpAttr *attr;
    const LpVal *in, *out;
    uint32_t n_in, n_out;
} LpRegion;

struct LpGraph {
    int refs;
    LpArena arena;
    LpGraphNode *node;
    size_t n_node, cap_node;
    LpValue *value; /* value[0] is LP_NOVAL */
    size_t n_value, cap_value;
    LpScalar *imm; /* immediates; an LpVal with LP_VAL_IMM indexes here */
    size_t n_imm, cap_imm;
    LpOrigin *origin; /* origin[0] is unused */
    size_t n_origin, cap_origin;
    LpRegion *region; /* region[0] is unused */
    size_t n_region, cap_region;
    LpVal *input;
    size_t n_input, cap_input;
    LpVal *output;
    size_t n_output, cap_output;
    const char **str; /* interned strings */
    size_t n_str, cap_str;
    LpMap str_at; /* by hash */
    /* The reverse sweep has run, or none will: detach is the identity now. */
    bool differentiated;
    /* The host's own copy: fused operators are nodes of it, too. */
    bool host;
};

/* One reference; NULL when memory is short. */
LpGraph *lp_graph_new(void);
void lp_graph_free(const LpGraph *g); /* a reference; NULL is fine */

/* All return LP_NOVAL / 0 / NULL with `e` filled when memory is short. */
LpVal lp_graph_input(LpGraph *g, const LpType *type, const char *name,
                     LpErr *e);
bool lp_graph_output(LpGraph *g, LpVal v, LpErr *e);
/* Adds a node as it is: types, canonical attributes are the caller's (the
 * builder runs the shape rule; see LpGraphBuilder). Copies everything. */
LpVal lp_graph_add(LpGraph *g, const LpGraphNode *like, const LpType *out,
                   LpErr *e);
LpVal lp_graph_imm(LpGraph *g, LpScalar s, LpErr *e);
LpOriginId lp_graph_origin(LpGraph *g, const LpOrigin *o, LpErr *e);
/* Copies everything; out may come later (n_out 0). */
uint32_t lp_graph_region(LpGraph *g, const LpRegion *r, LpErr *e);
const char *lp_graph_intern(LpGraph *g, const char *s, LpErr *e);
/* One more name of a value (none twice); false when memory is short. */
bool lp_graph_add_name(LpGraph *g, LpVal v, const char *name, LpErr *e);
/* Owned copy; every id stays what it was. */
LpGraph *lp_graph_clone(const LpGraph *g, LpErr *e);
/* May op be a node of g? Composites never; of fused operators those that the
 * device has as one, and in a graph of the host's all. */
bool lp_graph_takes(const LpGraph *g, const LpOp *op);
/* Do nodes of these origins run in one stage, forward or backward? */
bool lp_origin_same_stage(const LpOrigin *a, const LpOrigin *b);
/* The first body of a node at or after attribute *i, which is left behind it;
 * NULL: there is none. */
const LpGraph *lp_node_body(const LpGraphNode *n, int *i);
/* Attribute i of node id is `body` from now on; takes over one reference. */
void lp_graph_set_body(LpGraph *g, LpNodeId id, int i, LpGraph *body);
/* What a node is called where scripts read it: a custom operator's own name. */
static inline const char *lp_node_title(const LpGraphNode *n)
{
    return n->op->title ? n->attr[n->op->title - 1].str : n->op->name;
}
/* Flags of the operator, and LP_OPF_RANDOM or LP_OPF_EFFECT if a node of a
 * body, of any depth, has them. */
uint32_t lp_node_flags(const LpGraphNode *n);
/* May n write its first result over operand i while it reads its operands
 * (LP_OPF_INPLACE_OK)? */
bool lp_node_may_overwrite(const LpGraphNode *n, uint32_t i);
/* Do they compute the same, node for node and in the same places? */
bool lp_graph_same(const LpGraph *a, const LpGraph *b);
uint64_t lp_graph_hash(const LpGraph *g); /* same graphs, same hash */
/* The same of n values, by number or as numbers, and of an operator's
 * attributes. */
bool lp_same_values(const LpGraph *a, const LpVal *x, const LpGraph *b,
                    const LpVal *y, uint32_t n);
bool lp_same_attrs(const LpOp *op, const LpAttr *x, const LpAttr *y);
uint64_t lp_hash_attrs(const LpOp *op, const LpAttr *attr, uint64_t h);
/* Appends the nodes of `from` to `to`: input i is in[i]; out[i] receives output
 * i. False with `e` filled when memory is short. */
bool lp_graph_inline(LpGraph *to, const LpGraph *from, const LpVal *in,
                     LpVal *out, LpErr *e);
/* Does n store numbers in a half type that it computes in a wider one? */
bool lp_node_rounds(const LpGraph *g, const LpGraphNode *n);
/* Is it a product or a sum of float16 numbers, whose partials may be halves? */
bool lp_node_sums_halves(const LpGraph *g, const LpGraphNode *n);
/* The numerics of a step, as they are for n. */
static inline LpNumerics lp_node_numerics(LpNumerics step, const LpGraphNode *n)
{
    step.half_partials = n->half_partials;
    return step;
}
/* The place in the program (module path, file, line; not where it runs), which
 * sites are made of. */
uint64_t lp_origin_location(const LpOrigin *o);
/* May nodes of these origins be merged: equal but for scope, file, line. The
 * strings must be interned in one graph. */
bool lp_origin_same_location(const LpOrigin *a, const LpOrigin *b);
bool lp_origin_same(const LpOrigin *a, const LpOrigin *b); /* in all */
/* The number of the multi-convolution that the node, a convolution or one of
 * its gradients, is part of; -1: of none. */
long lp_node_multi_conv(const LpOrigin *o, const LpGraphNode *n);

static inline const LpType *lp_graph_type(const LpGraph *g, LpVal v)
{
    return g->value[v].type; /* not for immediates */
}
static inline LpScalar lp_graph_scalar(const LpGraph *g, LpVal v)
{
    return g->imm[v & ~LP_VAL_IMM];
}
/* The node that makes v; NULL: an input, an immediate or a hole. */
static inline const LpGraphNode *lp_graph_maker(const LpGraph *g, LpVal v)
{
    bool made = v != LP_NOVAL && !(v & LP_VAL_IMM);
    LpNodeId id = made ? g->value[v].node : LP_NO_NODE;
    return id == LP_NO_NODE ? NULL : &g->node[id];
}
/* Type of an operand; immediates are wrapped numbers; a hole has no dtype. */
LpType lp_graph_operand_type(const LpGraph *g, LpVal v);
/* Types of n operands, and the numbers of those that are immediates: what a
 * shape rule is given. */
void lp_graph_operands(const LpGraph *g, const LpVal *in, size_t n, LpType *t,
                       LpScalar num[LP_MAX_IN]);

/* Emits into a graph: runs shape rules, inlines composites and those fused
 * operators that are no device operation (their nodes are labelled as a
 * region). `origin` and `site` describe the rule being run. */
typedef struct LpGraphBuilder {
    LpBuilder b;
    LpGraph *g;
    LpOriginId origin;
    uint64_t site;      /* of the call being emitted */
    bool half_partials; /* of what is emitted, where a node may have them */
    uint64_t pos;       /* of the next random operator in it */
    bool forced;        /* site is used as it is */
    uint32_t region;
    LpArena scratch;
} LpGraphBuilder;

/* `e` sticks; borrowed. fini frees the scratch only. */
void lp_graph_builder_init(LpGraphBuilder *b, LpGraph *g, LpErr *e);
void lp_graph_builder_fini(LpGraphBuilder *b);

/* Text form (src/ir/text.c): owned string, freed with lp_free. */
char *lp_graph_print(const LpGraph *g, LpErr *e);
LpStatus lp_graph_parse(const char *text, LpGraph **out, LpErr *e);
/* Every node against its operator's shape rule, order, origins, regions
 * (src/ir/verify.c). The error shows the node with ten before and after. */
LpStatus lp_graph_verify(const LpGraph *g, LpErr *e);

#endif
