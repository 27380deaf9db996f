/* Element types, PyTorch's promotion, scalar numbers. */
#ifndef LP_TENSOR_DTYPE_H
#define LP_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
#define DTYPE(id, name, bytes, kind, ctype) LP_##id,
#include "src/tensor/dtypes.def"
#undef DTYPE
    LP_N_DTYPES,
    LP_DT_NONE = LP_N_DTYPES
} LpDtype;

typedef enum { LP_KIND_BOOL, LP_KIND_INT, LP_KIND_FLOAT } LpKind;

const char *lp_dtype_name(LpDtype t);    /* "float32" */
LpDtype lp_dtype_find(const char *name); /* also half, float, double, int,
                                            long, short; LP_DT_NONE if none */
size_t lp_dtype_size(LpDtype t);
LpKind lp_dtype_kind(LpDtype t);
static inline bool lp_is_half(LpDtype t)
{
    return t == LP_F16 || t == LP_BF16;
}
static inline bool lp_is_float(LpDtype t)
{
    return t <= LP_BF16;
}

/* PyTorch's promotion of two tensors' types of equal standing. */
LpDtype lp_dtype_promote(LpDtype a, LpDtype b);

/* A number as written in a program: an integer, a float or a boolean. */
typedef struct LpScalar {
    LpKind kind;
    union {
        int64_t i; /* kinds INT, BOOL */
        double f;  /* kind FLOAT */
    };
} LpScalar;

static inline LpScalar lp_int(int64_t i)
{
    return (LpScalar){.kind = LP_KIND_INT, .i = i};
}
static inline LpScalar lp_float(double f)
{
    return (LpScalar){.kind = LP_KIND_FLOAT, .f = f};
}
static inline LpScalar lp_boolean(bool b)
{
    return (LpScalar){.kind = LP_KIND_BOOL, .i = b};
}
static inline double lp_scalar_f(LpScalar s)
{
    return s.kind == LP_KIND_FLOAT ? s.f : (double)s.i;
}
/* Truncates a float; out of range saturates. */
int64_t lp_scalar_i(LpScalar s);
bool lp_scalar_eq(LpScalar a, LpScalar b);
/* Writes `s` converted to dtype `t` at `p`; reads one element. */
/* Can the dtype hold s? As PyTorch: a negative integer counts modulo for
 * uint8, fractions are cut, infinities and NaN are floats. */
bool lp_scalar_fits(LpScalar s, LpDtype t);
void lp_scalar_store(LpScalar s, LpDtype t, void *p);
LpScalar lp_scalar_load(LpDtype t, const void *p);

/* Result type of an operation over operands of three standings: tensors with
 * dimensions, tensors without, plain numbers (PyTorch's "wrapped numbers").
 * Feed the operands in any order, then ask. */
typedef struct LpPromo {
    LpDtype dim, zero, num; /* LP_DT_NONE: none seen */
} LpPromo;
#define LP_PROMO_INIT                                                          \
    {                                                                          \
        LP_DT_NONE, LP_DT_NONE, LP_DT_NONE                                     \
    }
void lp_promo_tensor(LpPromo *p, LpDtype t, int ndim);
void lp_promo_number(LpPromo *p, LpKind k);
LpDtype lp_promo_result(const LpPromo *p);

/* The default dtype of new float tensors and of wrapped float numbers. */
LpDtype lp_default_dtype(void);
void lp_set_default_dtype(LpDtype t);

#endif
