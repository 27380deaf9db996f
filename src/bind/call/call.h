/* One call of a form: its arguments in C. Shared by forms.c (dispatch),
 * args.c and specials.c (reading arguments) and complain.c (messages). */
#ifndef LP_BIND_CALL_CALL_H
#define LP_BIND_CALL_CALL_H

#include "src/bind/bind.h"

typedef struct LpGenerator {
    LpBox box;
    uint64_t state[2]; /* as lp_rng_get */
} LpGenerator;
extern const char lp_tag_generator;
/* A random state as a tensor of 16 bytes; the check raises. */
void lp_push_rng_state(lua_State *L, const uint64_t state[2]);
void lp_check_rng_state(lua_State *L, int i, uint64_t state[2]);

/* All forms of one Lua name on one surface. */
typedef struct LpOverloads {
    const char *name; /* with the `_` of in-place names */
    uint32_t surface; /* one LP_FORM_… bit */
    int n;
    const LpForm **form;
} LpOverloads;

#define LP_CALL_IN 16
#define LP_CALL_INTS 48

typedef struct LpFormCall {
    lua_State *L;
    const LpOverloads *ov;
    int n_pos;   /* positional arguments, at stack indices 1 … */
    int kw;      /* stack index of the keyword table; 0: none */
    int n_kw;    /* its keys */
    bool values; /* tensors of no dimensions count as the numbers they hold */
    bool empty_last; /* the last argument is {} and may mean no keywords */
    int top;         /* stack top after the arguments */

    LpArg *in;
    int n_in;
    LpAttr attr[LP_MAX_ATTR];
    int used_kw;
    int used_pos; /* positional arguments that found a parameter */
    /* keywords that no form lists */
    LpTensor *out[LP_MAX_OUT];
    int n_out; /* tensors given as out= */
    bool requires_grad, inplace;
    LpDevice device;
    struct LpGenerator *generator; /* NULL: the global state */

    LpArg in_buf[LP_CALL_IN];
    int n_ints;
    int64_t ints[LP_CALL_INTS];
} LpFormCall;

typedef enum {
    LP_MISS_TYPE,    /* arg has a value of a wrong type */
    LP_MISS_ELEMENT, /* element `at` of a list does */
    LP_MISS_VALUE,   /* arg is missing */
    LP_MISS_TWICE,   /* by position and by name */
    LP_MISS_MANY,    /* too many positional arguments */
    LP_MISS_KEY,     /* a keyword that the form does not have */
    LP_MISS_SPECIAL, /* out=, device= … with a wrong value; arg is its index */
} LpMissWhy;

/* Why a form does not take the arguments, and how far it got. */
typedef struct LpMiss {
    const LpForm *form;
    LpMissWhy why;
    int rank;        /* of several, the one with the highest is reported */
    int arg;         /* index in form->arg */
    int at;          /* list element, from 1 */
    const char *key; /* that the form does not have; NULL: none */
} LpMiss;

/* Reads the arguments as `f` has them; false fills `miss`. May push scratch
 * that the caller must leave on the stack. */
bool lp_call_match(LpFormCall *c, const LpForm *f, LpMiss *miss);

/* What PyTorch takes for a parameter besides its name, NumPy's spelling; NULL:
 * nothing. */
const char *lp_other_name(const char *name);

/* Keywords beyond the form's own. Their names, in order; NULL at the end. */
extern const char *const lp_special_names[];
enum {
    LP_SPECIAL_OUT,
    LP_SPECIAL_REQUIRES_GRAD,
    LP_SPECIAL_DEVICE,
    LP_SPECIAL_INPLACE,
    LP_SPECIAL_GENERATOR
};
/* Does `f` on this surface take special keyword number i? */
bool lp_special_allowed(const LpFormCall *c, const LpForm *f, int i);
/* Where a call of `f` makes its result unless it says so. */
LpDevice lp_special_device(const LpForm *f);
int lp_default_device(lua_State *L);
/* Reads those that are given; false fills `m`. */
bool lp_special_read(LpFormCall *c, const LpForm *f, LpMiss *m);
/* Pushes the value of a keyword and counts it as used; false: not given,
 * nothing is pushed. */
bool lp_push_keyword(LpFormCall *c, const char *name);

/* Raises TypeError with the best miss and all forms. */
int lp_call_complain(LpFormCall *c, const LpMiss *best);

#endif
