/* Operators of one's own for lupine: what a shared library exports so that
 * torch.ops.load_library finds operators in it. This header needs nothing of
 * lupine's but itself; C99 and C++.
 *
 *   static int same(lupine_call *c)
 *   {
 *       c->out[0].type = c->in[0].type;
 *       return 0;
 *   }
 *   static int run(lupine_call *c)
 *   {
 *       for (int64_t i = 0; i < c->in[0].n; i++)
 *           lupine_store(&c->out[0], i, 2 * lupine_load(&c->in[0], i));
 *       return 0;
 *   }
 *   static const lupine_op ops[] = {
 *       {"com.acme", "Twice", 1, 1, 1, NULL, 0, same, run, NULL, NULL}};
 *   LUPINE_OPS(ops)
 *
 *   cc -shared -fPIC -I PREFIX/include -o libtwice.so FILE
 *
 * An operator is a function of its inputs and attributes and of nothing else:
 * a program may leave a call out, run it twice or at another time, merge equal
 * calls, and call it from several threads at once. Tensors lie in memory
 * element by element, without gaps, in the order of their indices. Outputs
 * never overlap inputs. What a function is given is its own until it returns.
 *
 * Every function returns 0, or anything else if it failed; what it has written
 * to `error` then (lupine_fail) is what the script sees. */
#ifndef LUPINE_CUSTOM_OP_H
#define LUPINE_CUSTOM_OP_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Changes with anything below; a library of another number is refused. */
#define LUPINE_CUSTOM_OP_ABI 1u

#define LUPINE_MAX_RANK 12
#define LUPINE_MAX_INPUTS 16
#define LUPINE_MAX_OUTPUTS 8
#define LUPINE_MAX_ATTRS 64
#define LUPINE_ERROR_BYTES 256

/* ---- tensors -------------------------------------------------------- */
typedef enum lupine_dtype {
    LUPINE_FLOAT64 = 1,  /* double */
    LUPINE_FLOAT32 = 2,  /* float */
    LUPINE_FLOAT16 = 3,  /* uint16_t, the bits */
    LUPINE_BFLOAT16 = 4, /* uint16_t, the bits */
    LUPINE_INT64 = 5,
    LUPINE_INT32 = 6,
    LUPINE_INT16 = 7,
    LUPINE_INT8 = 8,
    LUPINE_UINT8 = 9,
    LUPINE_BOOL = 10 /* uint8_t, 0 or 1 */
} lupine_dtype;

typedef struct lupine_type {
    int32_t dtype; /* lupine_dtype */
    int32_t rank;
    int64_t shape[LUPINE_MAX_RANK];
} lupine_type;

typedef struct lupine_tensor {
    lupine_type type;
    int64_t n;  /* elements */
    void *data; /* NULL while only types are asked for */
} lupine_tensor;

/* ---- attributes ----------------------------------------------------- */
typedef enum lupine_attr_kind {
    LUPINE_FLOAT = 1, /* 32 bits */
    LUPINE_FLOATS = 2,
    LUPINE_INT = 3, /* 64 bits */
    LUPINE_INTS = 4,
    LUPINE_STRING = 5, /* ASCII */
    LUPINE_STRINGS = 6
} lupine_attr_kind;

/* What an operator takes. `fallback` is the value of an attribute that a call
 * leaves out, as text: "0.01", "3", "\"mean\"", "[1.0, 2.0]", "[]"; NULL: every
 * call has to give it. */
typedef struct lupine_attr_spec {
    const char *name;
    int32_t kind; /* lupine_attr_kind */
    const char *fallback;
} lupine_attr_spec;

/* What a call gives: n values of the kind; one unless the kind is a list. */
typedef struct lupine_attr {
    int32_t kind;
    int32_t n;
    const float *floats;
    const int64_t *ints;
    const char *const *strings;
} lupine_attr;

/* ---- calls ---------------------------------------------------------- */
typedef struct lupine_call {
    int32_t n_in, n_out, n_attr;
    const lupine_attr *attr; /* in the order of the operator's list */
    const lupine_tensor *in;
    lupine_tensor *out;
    /* of gradients: of each output; of each input to be written, `data` NULL
     * if it is not asked for or the input is no float */
    const lupine_tensor *out_grad;
    lupine_tensor *in_grad;
    char *error; /* LUPINE_ERROR_BYTES */
} lupine_call;

typedef int lupine_function(lupine_call *c);

/* What a call costs on the simulated IPU. */
typedef struct lupine_cost {
    int32_t n_in, n_out, n_attr;
    const lupine_attr *attr;
    const lupine_type *in, *out;
    int32_t gradient; /* 1: the call of the gradient is meant */
    int32_t tiles;    /* over which the tensors are spread */
    int64_t cycles;   /* to be set: of the slowest tile */
    int64_t bytes;    /* to be set: of a tile, beyond inputs and outputs */
} lupine_cost;

/* ---- operators ------------------------------------------------------ */
typedef struct lupine_op {
    const char *domain, *name; /* "com.acme", "Cube" */
    int32_t version;           /* of the domain, from 1 */
    int32_t n_in, n_out;
    const lupine_attr_spec *attrs; /* NULL: none */
    int32_t n_attrs;
    /* sets out[i].type from inputs (without data) and attributes, and refuses
     * those that the operator does not take */
    lupine_function *infer;
    lupine_function *run; /* fills out[i].data */
    /* fills in_grad[i].data from in, out and out_grad; NULL: no gradient */
    lupine_function *grad;
    /* NULL: that of an elementwise operation */
    void (*cost)(lupine_cost *c);
} lupine_op;

typedef struct lupine_library {
    uint32_t abi;      /* LUPINE_CUSTOM_OP_ABI */
    uint32_t op_bytes; /* sizeof(lupine_op) */
    uint32_t n_ops;
    const lupine_op *ops; /* they stay where they are */
} lupine_library;

#if defined(__GNUC__)
#define LUPINE_EXPORT __attribute__((visibility("default")))
#else
#define LUPINE_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* The one symbol that a library exports. */
LUPINE_EXPORT const lupine_library *lupine_custom_ops(void);
#ifdef __cplusplus
}
#endif

/* Exports an array of operators. */
#define LUPINE_OPS(array)                                                      \
    const lupine_library *lupine_custom_ops(void)                              \
    {                                                                          \
        static const lupine_library library = {                                \
            LUPINE_CUSTOM_OP_ABI, (uint32_t)sizeof(lupine_op),                 \
            (uint32_t)(sizeof(array) / sizeof *(array)), (array)};             \
        return &library;                                                       \
    }

/* ---- helpers -------------------------------------------------------- */
/* return lupine_fail(c, "expected %d, got %d", a, b); */
static inline int lupine_fail(lupine_call *c, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(c->error, LUPINE_ERROR_BYTES, format, list);
    va_end(list);
    return 1;
}

static inline int lupine_is_float(int32_t dtype)
{
    return dtype >= LUPINE_FLOAT64 && dtype <= LUPINE_BFLOAT16;
}

static inline int lupine_same_type(const lupine_type *a, const lupine_type *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return 0;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return 0;
    return 1;
}

/* Formats of 16 bits: so many of them are the fraction's, the exponent of 1 is
 * stored as `bias`. */
static inline double lupine_from_bits(uint16_t bits, int fraction, int bias)
{
    int e = (bits & 0x7fff) >> fraction;
    int m = bits & ((1 << fraction) - 1);
    double v = e == 2 * bias + 1 ? (m ? NAN : INFINITY)
               : e ? ldexp(m + (1 << fraction), e - bias - fraction)
                   : ldexp(m, 1 - bias - fraction);
    return bits & 0x8000 ? -v : v;
}

/* To nearest, ties to even. */
static inline uint16_t lupine_to_bits(double v, int fraction, int bias)
{
    uint64_t b, rest, half, m;
    uint32_t most = (uint32_t)(2 * bias + 1) << fraction, out;
    memcpy(&b, &v, sizeof b);
    uint16_t sign = (uint16_t)(b >> 48 & 0x8000);
    int e = (int)(b >> 52 & 0x7ff) - 1023;
    int shift = 52 - fraction + (e < 1 - bias ? 1 - bias - e : 0);
    if (e == 1024)
        return (uint16_t)(sign | most | (b << 12 ? 1u << (fraction - 1) : 0u));
    if (shift > 54)
        return sign;
    m = (b & 0xfffffffffffffu) | 1ull << 52;
    rest = m & ((1ull << shift) - 1);
    half = 1ull << (shift - 1);
    out = (uint32_t)(m >> shift);
    out += rest > half || (rest == half && (out & 1));
    if (e >= 1 - bias)
        out += (uint32_t)(e + bias - 1) << fraction;
    return (uint16_t)(sign | (out > most ? most : out));
}

/* Element i as a double. */
static inline double lupine_load(const lupine_tensor *t, int64_t i)
{
    switch (t->type.dtype) {
    case LUPINE_FLOAT64:
        return ((const double *)t->data)[i];
    case LUPINE_FLOAT32:
        return ((const float *)t->data)[i];
    case LUPINE_FLOAT16:
        return lupine_from_bits(((const uint16_t *)t->data)[i], 10, 15);
    case LUPINE_BFLOAT16:
        return lupine_from_bits(((const uint16_t *)t->data)[i], 7, 127);
    case LUPINE_INT64:
        return (double)((const int64_t *)t->data)[i];
    case LUPINE_INT32:
        return ((const int32_t *)t->data)[i];
    case LUPINE_INT16:
        return ((const int16_t *)t->data)[i];
    case LUPINE_INT8:
        return ((const int8_t *)t->data)[i];
    default:
        return ((const uint8_t *)t->data)[i];
    }
}

/* Rounds to the type of the element; what is no integer of an integer type is
 * the caller's mistake. */
static inline void lupine_store(lupine_tensor *t, int64_t i, double v)
{
    switch (t->type.dtype) {
    case LUPINE_FLOAT64:
        ((double *)t->data)[i] = v;
        return;
    case LUPINE_FLOAT32:
        ((float *)t->data)[i] = (float)v;
        return;
    case LUPINE_FLOAT16:
        ((uint16_t *)t->data)[i] = lupine_to_bits(v, 10, 15);
        return;
    case LUPINE_BFLOAT16:
        ((uint16_t *)t->data)[i] = lupine_to_bits(v, 7, 127);
        return;
    case LUPINE_INT64:
        ((int64_t *)t->data)[i] = (int64_t)v;
        return;
    case LUPINE_INT32:
        ((int32_t *)t->data)[i] = (int32_t)v;
        return;
    case LUPINE_INT16:
        ((int16_t *)t->data)[i] = (int16_t)v;
        return;
    case LUPINE_INT8:
        ((int8_t *)t->data)[i] = (int8_t)v;
        return;
    case LUPINE_BOOL:
        ((uint8_t *)t->data)[i] = v != 0;
        return;
    default:
        ((uint8_t *)t->data)[i] = (uint8_t)v;
    }
}

#endif
