/* Checks of one call against its operator's record, and its shape rule. */
#include <string.h>

#include "src/ir/text.h"

static const LpFormArg *operand_arg(const LpForm *f, int slot)
{
    for (int i = 0; i < f->n_args; i++)
        if (lp_arg_is_operand(f->arg[i].kind) && f->arg[i].slot == slot)
            return &f->arg[i];
    return NULL;
}

bool lp_graph_takes(const LpGraph *g, const LpOp *op)
{
    return op->kind == LP_OP_PRIMITIVE || op->flags & LP_OPF_DEVICE ||
           (op->kind == LP_OP_FUSED && g->host);
}

static LpStatus check_op(const LpGraph *g, const LpOp *op, LpErr *e)
{
    LP_FAIL_IF(op->flags & LP_OPF_DYNAMIC, e, LP_E_VALUE,
               "the shape of %s's result depends on data: it is no operation "
               "of a graph",
               op->name);
    LP_FAIL_IF(!lp_graph_takes(g, op), e, LP_E_VALUE,
               "%s is %s: a graph has its expansion, never the operator itself",
               op->name,
               op->kind == LP_OP_FUSED ? "no operation of the device"
                                       : "composite");
    return LP_OK;
}

LpStatus lp_check_operands(const LpGraph *g, const LpOp *op, const LpVal *in,
                           size_t n_in, LpErr *e)
{
    const LpForm *f = lp_op_form(op);
    size_t fixed = op->has_list ? op->n_operands - 1u : op->n_operands;
    LP_TRY(check_op(g, op, e));
    LP_FAIL_IF(n_in < fixed || (n_in > fixed && !op->has_list), e, LP_E_VALUE,
               "%s takes %s%zu operands, not %zu", op->name,
               op->has_list ? "at least " : "", fixed, n_in);
    for (size_t i = 0; i < n_in; i++) {
        const LpFormArg *a = operand_arg(f, (int)(i < fixed ? i : fixed));
        LP_FAIL_IF(in[i] == LP_NOVAL && !a->optional, e, LP_E_VALUE,
                   "operand %s of %s may not be a hole", a->name, op->name);
        /* the pointwise driver takes numbers everywhere */
        LP_FAIL_IF((in[i] & LP_VAL_IMM) && a->kind != LP_ARG_VALUE &&
                       !(op->flags & LP_OPF_POINTWISE),
                   e, LP_E_VALUE,
                   "operand %s of %s must be a tensor, no number", a->name,
                   op->name);
    }
    return LP_OK;
}

LpStatus lp_check_attrs(const LpOp *op, const LpAttr *attr, LpErr *e)
{
    static const LpAttrKind fits[] = {
        [LP_ARG_INT] = LP_ATTR_INT,     [LP_ARG_INTS] = LP_ATTR_INTS,
        [LP_ARG_FLOAT] = LP_ATTR_FLOAT, [LP_ARG_BOOL] = LP_ATTR_BOOL,
        [LP_ARG_STR] = LP_ATTR_STR,     [LP_ARG_SCALAR] = LP_ATTR_SCALAR,
        [LP_ARG_DTYPE] = LP_ATTR_DTYPE, [LP_ARG_GRAPH] = LP_ATTR_GRAPH,
    };
    static const char *const names[] = {
        [LP_ATTR_NONE] = "None",     [LP_ATTR_INT] = "int",
        [LP_ATTR_FLOAT] = "float",   [LP_ATTR_BOOL] = "bool",
        [LP_ATTR_INTS] = "int[]",    [LP_ATTR_SCALAR] = "Scalar",
        [LP_ATTR_DTYPE] = "a dtype", [LP_ATTR_STR] = "str",
        [LP_ATTR_GRAPH] = "Graph",
    };
    const LpForm *f = lp_op_form(op);
    for (int i = 0; i < f->n_args; i++) {
        const LpFormArg *a = &f->arg[i];
        if (lp_arg_is_operand(a->kind))
            continue;
        LpAttrKind k = attr[a->slot].kind;
        if (k != LP_ATTR_NONE || !a->optional)
            LP_FAIL_IF(k != fits[a->kind], e, LP_E_VALUE,
                       "attribute %s of %s has the kind %s, which its form "
                       "does not allow",
                       a->name, op->name, names[k]);
    }
    return LP_OK;
}

LpStatus lp_op_infer(LpInfer *x)
{
    LP_TRY(x->op->infer(x));
    for (int i = 0; i < x->n_out; i++)
        LP_TRY(lp_shape_check(&x->out[i], x->err));
    return LP_OK;
}

LpStatus lp_graph_infer(const LpGraph *g, const LpOp *op, const LpVal *in,
                        size_t n_in, LpAttr *attr, LpType *out, int *n_out,
                        LpArena *arena, LpErr *e)
{
    LpType *tin = lp_arena_alloc(arena, n_in * sizeof *tin);
    LpScalar num[LP_MAX_IN];
    LP_FAIL_IF(!tin, e, LP_E_MEMORY, "out of memory");
    lp_graph_operands(g, in, n_in, tin, num);
    LpInfer x = {.op = op,
                 .n_in = (int)n_in,
                 .n_out = op->n_results,
                 .in = tin,
                 .num = num,
                 .attr = attr,
                 .out = out,
                 .arena = arena,
                 .err = e};
    LP_FAIL_IF(!op->infer, e, LP_E_INTERNAL, "%s has no shape rule", op->name);
    LP_TRY(lp_op_infer(&x));
    *n_out = x.n_out;
    return LP_OK;
}
