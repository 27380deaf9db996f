/* Forms: the notation of op.h parsed once at start-up. Bindings, keyword
 * handling and messages are read from the parsed forms. */
#ifndef LP_IR_SCHEMA_H
#define LP_IR_SCHEMA_H

#include "src/ir/op.h"

typedef enum {
    LP_ARG_TENSOR,
    LP_ARG_TENSORS, /* Tensor[] */
    LP_ARG_VALUE,   /* tensor or number */
    LP_ARG_INT,
    LP_ARG_INTS,
    LP_ARG_FLOAT,
    LP_ARG_BOOL,
    LP_ARG_STR,
    LP_ARG_SCALAR,
    LP_ARG_DTYPE,
    LP_ARG_GRAPH,
} LpArgKind;

extern const char *const lp_arg_kind_names[]; /* "Tensor[]", as forms have it */

static inline bool lp_arg_is_operand(LpArgKind k)
{
    return k == LP_ARG_TENSOR || k == LP_ARG_TENSORS || k == LP_ARG_VALUE;
}

typedef struct LpFormArg {
    const char *name;
    LpArgKind kind;
    bool optional; /* Type? : None allowed */
    bool kw_only;  /* after `*` */
    bool has_default;
    int repeat;    /* int[N]: N, else 0 */
    int slot;      /* operand index, or attribute index */
    LpArgKind own; /* kind of this argument in the operator's first form: an
                      int may stand for an int[], any number for a Scalar */
    LpAttr def;    /* default; SCALAR for a Value, NONE for tensors */
} LpFormArg;

enum {
    LP_FORM_FUNCTION = 1,
    LP_FORM_METHOD = 2,
    LP_FORM_INPLACE = 4,
    LP_FORM_NN = 8,
    LP_FORM_OUT = 16,
    LP_FORM_SPECIAL = 32,
    LP_FORM_LINALG = 64,
    LP_FORM_INTERNAL = 128,
    LP_FORM_CASTS = 256,       /* out= may have another type */
    LP_FORM_TAKES_DTYPE = 512, /* of out=, unless the call names one */
    LP_FORM_OVERWRITES = 1024, /* torch.nn.functional: takes inplace= */
    LP_FORM_DRAWS = 2048,      /* takes generator= */
    LP_FORM_MAKES = 4096,      /* takes device= and requires_grad= */
};

#define LP_MAX_FORM_ARGS 20
typedef struct LpForm {
    const LpOp *op;
    const char *name;    /* Lua name */
    const char *variant; /* "" if none */
    const char *text;    /* the line as written */
    uint32_t flags;
    int n_args;
    int n_positional; /* arguments before `*`; they come first */
    int n_results;    /* at most the operator's; 0: Tensor[] */
    int list_arg;     /* the Tensor[] argument, or -1 */
    LpFormArg arg[LP_MAX_FORM_ARGS];
    /* operands that the call leaves out: NONE is a hole, else a number */
    LpAttr operand[LP_MAX_IN];
    /* attributes of the operator before the call's arguments are filled in */
    LpAttr base[LP_MAX_ATTR];
} LpForm;

/* Parses every form of every operator; fills the derived fields of the
 * records. Idempotent. A mistake in a record is LP_E_INTERNAL naming it. */
LpStatus lp_schema_init(LpErr *e);
int lp_n_forms(void);
const LpForm *lp_form(int i);
/* The first form of an operator: its own signature. */
const LpForm *lp_op_form(const LpOp *op);

#endif
