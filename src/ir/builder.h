/* The builder: what every rule (expand, grad, put) emits operators into. Three
 * kinds exist: eager (a table of tensors, released when the rule returns),
 * tracing (nodes of a graph), and the reverse sweep (the same graph).
 *
 * Errors stick: after the first failure every emit returns LP_NOVAL and does
 * nothing; test `err->code` once at the end. */
#ifndef LP_IR_BUILDER_H
#define LP_IR_BUILDER_H

#include "src/base/mem.h"
#include "src/ir/op.h"

struct LpBuilder {
    /* Runs or records one operator; fills out[0..n_out-1], returns n_out (0 on
     * failure). Composite operators are expanded. `attr` is copied. */
    int (*emit)(LpBuilder *b, const LpOp *op, const LpVal *in, int n_in,
                const LpAttr *attr, LpVal *out);
    /* also of immediates; the pointer stays valid while the rule runs */
    const LpType *(*type)(LpBuilder *b, LpVal v);
    LpScalar (*imm)(LpBuilder *b, LpVal v);
    /* Do the columns of the matrix, not its rows, lie in one piece? NULL: no */
    bool (*turned)(LpBuilder *b, LpVal v);
    LpVal (*add_imm)(LpBuilder *b, LpScalar s);
    /* on: the random operators emitted next draw from `site` */
    void (*set_site)(LpBuilder *b, bool on, uint64_t site);
    /* Whether a rule may go on as if `text`, why it cannot be compiled, were no
     * failure: it is noted, and nothing that is emitted will run. NULL: no. */
    bool (*excuse)(LpBuilder *b, const char *text);
    bool on_host;     /* computes at once: no trace runs */
    LpArena *scratch; /* for attribute lists of rules */
    LpErr *err;       /* never NULL */
};

/* A failed rule goes on to its end, with values that are not there: it may ask
 * for their first and last sizes and divide by them. Several dimensions of size
 * 1. */
extern const LpType lp_unmade;

static inline bool lp_failed(const LpBuilder *b)
{
    return b->err->code != LP_OK;
}
static inline bool lp_excused(LpBuilder *b, const char *text)
{
    return b->excuse && b->excuse(b, text);
}
static inline bool lp_is_imm(LpVal v)
{
    return (v & LP_VAL_IMM) != 0;
}
/* A value of the graph: neither a hole nor an immediate. */
static inline bool lp_is_value(LpVal v)
{
    return v != LP_NOVAL && !lp_is_imm(v);
}
/* Of a value that was not made since the rule failed: lp_unmade. */
static inline const LpType *lp_type(LpBuilder *b, LpVal v)
{
    return v == LP_NOVAL && lp_failed(b) ? &lp_unmade : b->type(b, v);
}
static inline LpVal lp_imm(LpBuilder *b, LpScalar s)
{
    return b->add_imm(b, s);
}

/* The first result. `attr` may be NULL when op has no attributes. */
LpVal lp_emit(LpBuilder *b, int op, const LpVal *in, int n_in,
              const LpAttr *attr);
/* Several results; returns their number. */
int lp_emit_n(LpBuilder *b, int op, const LpVal *in, int n_in,
              const LpAttr *attr, LpVal *out);

/* The operands in one type, if they mix half and float32 and `op` says in which
 * (LpMix); NULL after a failure. */
const LpVal *lp_in_one_type(LpBuilder *b, const LpOp *op, const LpVal *in,
                            int n);

#endif
