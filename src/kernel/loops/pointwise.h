/* Pointwise operators: one driver over the loops of loops.h.
 *
 * The driver brings operands into the loop's type, walks strides, broadcasts,
 * splits over threads and rounds once when it stores. An operator that is a
 * row of unary.def or binary.def has `prepare = lp_pointwise_prepare` and a
 * LpPointwise in LpOp.data.
 *
 * For a fusion pass: lp_pointwise_resolve says what a node computes, as a
 * function of blocks. A chain runs block by block: each operand in the type
 * node.in[i], the result in the type node.out; after each node that the step
 * stores in a narrower type than node.out, lp_pointwise_round brings the
 * block to that type's values. The bits are those of the single nodes. */
#ifndef LP_KERNEL_LOOPS_POINTWISE_H
#define LP_KERNEL_LOOPS_POINTWISE_H

#include "src/ir/op.h"
#include "src/kernel/loops/loops.h"

/* What operands become and what the result is. P is PyTorch's promotion of
 * the operands. */
typedef enum {
    LP_PW_SAME,          /* computed in P, result P */
    LP_PW_SAME_NOT_BOOL, /* the same; P = bool is an error */
    LP_PW_FLOAT,         /* integers become the default float type */
    LP_PW_FLOAT_NOT_BOOL,
    LP_PW_WIDE_FLOAT, /* as FLOAT; float16 and bfloat16 are an error */
    LP_PW_FLOAT_ONLY, /* integers are an error */
    LP_PW_INT,        /* floats are an error */
    LP_PW_INT_NOT_BOOL,
    LP_PW_BOOL,   /* computed in P, result bool */
    LP_PW_MASK,   /* operand 0 is boolean, P of the others */
    LP_PW_DIVIDE, /* FLOAT without rounding mode, SAME with one */
    LP_PW_CAST,   /* result: attribute 0, or the operand's type if None */
} LpPwPolicy;

/* An immediate in a loop's type. */
typedef union LpPwOne {
    double f64;
    float f32;
    int64_t i64;
    uint8_t u8;
} LpPwOne;

/* What one node computes. */
typedef struct LpPwNode {
    LpLoop loop;              /* NULL: the identity (a conversion) */
    LpLoop stored;            /* of `values` as they are stored, or NULL */
    LpDtype values;           /* the type that is computed */
    LpDtype in[LP_PW_MAX_IN]; /* what the loop reads, by loop operand */
    LpDtype out;              /* what the loop writes */
    LpDtype number;           /* what an immediate is rounded to first */
    LpDtype narrow;  /* what operands in `narrows` are rounded to first */
    uint8_t narrows; /* bits by loop operand; these have memory */
    int8_t n_in;
    int8_t operand[LP_PW_MAX_IN]; /* loop operand -> operator operand */
    bool splat_ok;                /* the loop takes single elements (loops.h) */
    bool divides;                 /* a zero in loop operand 1 is an error */
    LpNum p[LP_PW_MAX_PARAM];
} LpPwNode;

/* Charges a scaled addition of popops. */
typedef enum {
    LP_PW_UNSCALED,
    LP_PW_SCALED,          /* after the step of `cost` */
    LP_PW_SCALED_BY_ALPHA, /* in its place, where attribute 0 is not 1 */
} LpPwScaled;

typedef struct LpPointwise {
    uint16_t loop;  /* LP_LOOP_… */
    uint8_t policy; /* LpPwPolicy */
    uint8_t cost;   /* LP_EW_… of runtime/cost */
    uint8_t scaled; /* LpPwScaled */
    bool narrow;    /* of half results: a number and alpha are halves, too */
    /* The cost's row by the attributes. NULL: always `cost`. */
    uint8_t (*cost_by)(const LpAttr *attr);
    /* The operator's own shape rule, run after the policy's: refuses what that
     * lets through; may change *t, the result's type. NULL: none. */
    LpStatus (*rule)(const LpInfer *x, LpDtype *t);
    /* May choose another loop by attributes and operands, and set n->p,
     * n->n_in, n->operand, n->number; `type` is the loop's type. NULL: none. */
    int (*select)(const LpKernelReq *r, LpDtype type, LpPwNode *n);
    /* "(low,high)", one for all operands or one for each: where samples for
     * finite differences lie. "": none. */
    const char *domain;
} LpPointwise;

/* NULL if `op` is not run by this driver. */
const LpPointwise *lp_pointwise_of(const LpOp *op);

LpPrepare lp_pointwise_prepare;

/* r->threads and strides are not read. */
void lp_pointwise_resolve(const LpKernelReq *r, LpPwNode *n);

/* An immediate as one element of loop type `t`. */
void lp_pointwise_number(const LpPwNode *n, LpScalar s, LpDtype t, void *one);

/* x = the n values at `from`, which may be x, held as loop type `held`, rounded
 * to those that `stored`, another type, has. */
void lp_pointwise_round(int64_t n, const void *from, void *x, LpDtype held,
                        LpDtype stored);

#endif
