/* What many expansions share. */
#ifndef LP_OPS_RULES_H
#define LP_OPS_RULES_H

#include "src/ops/ops.h"

/* The head of an expand hook; a hook need not use every argument. */
#define LP_EXPAND(name)                                                        \
    static void name(LpBuilder *b LP_UNUSED, const LpAttr *attr LP_UNUSED,     \
                     const LpVal *in LP_UNUSED, int n_in LP_UNUSED,            \
                     LpVal *out LP_UNUSED, int n_out LP_UNUSED)

/* The record of a composite whose expand hook is there. `...`: further fields
 * of the record. */
#define LP_EXPANDED(id, forms_, expand_, ...)                                  \
    LpOp op_##id = {.kind = LP_OP_COMPOSITE,                                   \
                    .forms = forms_,                                           \
                    .expand = expand_,                                         \
                    __VA_ARGS__};

/* A composite: its record, and the head of its expand hook, whose body
 * follows. */
#define LP_COMPOSITE(id, forms_, ...)                                          \
    LP_EXPAND(expand_##id);                                                    \
    LP_EXPANDED(id, forms_, expand_##id, __VA_ARGS__)                          \
    LP_EXPAND(expand_##id)

/* A composite of one result, which the body that follows returns. */
#define LP_FORMULA(id, forms_, ...)                                            \
    static LpVal value_of_##id(LpBuilder *b, const LpAttr *attr,               \
                               const LpVal *in, int n_in);                     \
    LP_COMPOSITE(id, forms_, __VA_ARGS__)                                      \
    {                                                                          \
        out[0] = value_of_##id(b, attr, in, n_in);                             \
    }                                                                          \
    static LpVal value_of_##id(LpBuilder *b LP_UNUSED,                         \
                               const LpAttr *attr LP_UNUSED,                   \
                               const LpVal *in LP_UNUSED, int n_in LP_UNUSED)

/* Fails; the value (or truth) that there is then: none. */
#define LP_REFUSE(b, ...) (lp_fail((b)->err, __VA_ARGS__), LP_NOVAL)

/* A copy of the type: the builder's own moves when it emits. */
static inline LpType lp_type_of(LpBuilder *b, LpVal v)
{
    return *lp_type(b, v);
}

/* Dimension `d` of `n`, wrapped; 0 after a failure. */
static inline int lp_wrapped(LpBuilder *b, int64_t d, int n)
{
    return lp_wrap_dim(&d, n, b->err) == LP_OK ? (int)d : 0;
}

static inline LpVal lp_cat(LpBuilder *b, const LpVal *v, int n, int dim)
{
    LpAttr a = lp_attr_int(dim);
    return lp_emit(b, LP_OP_cat, v, n, &a);
}

static inline LpVal lp_flip(LpBuilder *b, LpVal x, int64_t dim)
{
    LpAttr a = lp_attr_ints(&dim, 1);
    return lp_emit(b, LP_OP_flip, &x, 1, &a);
}

static inline LpVal lp_clone(LpBuilder *b, LpVal x)
{
    return lp_emit(b, LP_OP_clone, &x, 1, NULL);
}

static inline LpDtype lp_dtype_of(LpBuilder *b, LpVal v)
{
    return lp_type(b, v)->dtype;
}

/* Zeros of x's shape and of type t. */
static inline LpVal lp_zeros_as(LpBuilder *b, LpVal x, LpDtype t)
{
    LpType type = lp_type_of(b, x);
    type.dtype = t;
    return lp_full(b, &type, lp_int(0));
}

/* r as a function of x whose gradient is 0, whatever x holds: as PyTorch has
 * where a factor of 0 leaves an operand out. x broadcasts to r. */
static inline LpVal lp_regardless(LpBuilder *b, LpVal r, LpVal x)
{
    LpType never = {.dtype = LP_BOOL};
    return lp_where(b, lp_full(b, &never, lp_boolean(false)), x, r);
}

/* Room for n values in the scratch arena; NULL after a failure. */
static inline LpVal *lp_value_list(LpBuilder *b, int n)
{
    LpVal *v = lp_arena_calloc(b->scratch, (size_t)(n + 1) * sizeof *v);
    if (!v)
        lp_fail(b->err, LP_E_MEMORY, "no memory for a list of values");
    return v;
}

#endif
