/* What a pointwise node computes: loop, types, parameters. See pointwise.h. */
#include <string.h>

#include "src/kernel/loops/pointwise.h"
#include "src/kernel/plain.h"

const LpLoopRow *lp_loop_row(int loop)
{
    static const LpLoopRow *_Atomic unary, *_Atomic binary;
    if (!unary) { /* any thread finds the same; `binary` is there before */
        binary = LP_SIMD_PICK(lp_loops_binary);
        unary = LP_SIMD_PICK(lp_loops_unary);
    }
    return loop < LP_N_UNARY_LOOPS ? unary + loop
                                   : binary + (loop - LP_N_UNARY_LOOPS);
}

/* Of operands and results of type t as they are stored, without the conversions
 * around lp_loop_row's. NULL: none. */
static LpLoop stored_loop(int loop, LpDtype t)
{
    static const LpLoop *const *_Atomic table;
    if (!table) /* as above */
        table = LP_SIMD_PICK(lp_loops_stored);
    return table[t] ? table[t][loop] : NULL;
}

LpConvert lp_convert_loop(LpDtype from, LpDtype to)
{
    static const LpConvert(*_Atomic table)[LP_N_DTYPES];
    if (!table) /* as above */
        table = LP_SIMD_PICK(lp_loops_convert);
    return table[from][to];
}

const LpPointwise *lp_pointwise_of(const LpOp *op)
{
    return op->prepare == lp_pointwise_prepare ? op->data : NULL;
}

static LpDtype promoted(const LpKernelReq *r)
{
    LpPromo promo = LP_PROMO_INIT;
    for (int i = 0; i < r->n_in; i++) {
        const LpDesc *x = &r->in[i];
        if (x->is_imm)
            lp_promo_number(&promo, x->imm.kind);
        else if (x->dtype != LP_DT_NONE)
            lp_promo_tensor(&promo, x->dtype, x->ndim);
    }
    return lp_promo_result(&promo);
}

static LpNum number_of(const LpAttr *a)
{
    LpNum v = {0, 0};
    if (a->kind == LP_ATTR_FLOAT) {
        v.f = a->f;
        v.i = lp_scalar_i(lp_float(a->f));
    } else if (a->kind == LP_ATTR_SCALAR) {
        v.f = lp_scalar_f(a->s);
        v.i = lp_scalar_i(a->s);
    } else if (a->kind == LP_ATTR_INT || a->kind == LP_ATTR_BOOL) {
        v.f = (double)a->i;
        v.i = a->i;
    }
    return v;
}

/* The identity: between two stored types that are both narrow, through the
 * wider of the loop types, so that nothing is rounded twice. */
static void resolve_cast(const LpKernelReq *r, LpPwNode *n)
{
    LpDtype from = r->in[0].is_imm ? LP_DT_NONE : r->in[0].dtype;
    LpDtype to = r->out[0].dtype;
    n->loop = n->stored = NULL;
    n->values = to;
    n->n_in = 1;
    n->operand[0] = 0;
    n->splat_ok = n->divides = false;
    n->narrows = 0;
    n->number = to;
    LpDtype via = from == LP_DT_NONE || lp_convert_loop(from, to)
                      ? to
                      : lp_plain_type(from);
    n->in[0] = n->out = via;
}

/* Computed are the values of type `to`: a tensor without dimensions of a wider
 * type wraps, and an integer is rounded to a half type. Only comparisons round
 * tensors without dimensions to a half type, too. */
static void narrow(const LpKernelReq *r, LpDtype to, bool compares, LpPwNode *n)
{
    bool half = lp_is_half(to);
    n->narrow = to;
    for (int i = 0; i < n->n_in && lp_plain_type(to) != to; i++) {
        const LpDesc *x = &r->in[(int)n->operand[i]];
        LpDtype t = x->dtype;
        bool whole = t == LP_I64 || t == LP_I32 || t == LP_I16;
        if (x->is_imm || t == LP_DT_NONE || t == LP_BOOL ||
            (half && !compares && x->ndim == 0))
            continue;
        if (half ? t != to && (whole || (compares && lp_is_float(t)))
                 : lp_dtype_promote(t, to) != to)
            n->narrows |= (uint8_t)(1 << i);
    }
}

void lp_pointwise_resolve(const LpKernelReq *r, LpPwNode *n)
{
    const LpPointwise *pw = r->op->data;
    if (pw->policy == LP_PW_CAST) {
        resolve_cast(r, n);
        return;
    }
    n->narrows = 0;
    LpDtype values = pw->policy == LP_PW_BOOL ? promoted(r) : r->out[0].dtype;
    LpDtype t = lp_plain_type(values);
    /* an integer wraps to the operands' type first: uint8 255 equals -1 */
    bool wraps = lp_dtype_kind(values) == LP_KIND_INT;
    bool rounds = pw->policy == LP_PW_BOOL ? lp_is_float(values)
                                           : pw->narrow && lp_is_half(values);
    n->number = wraps || rounds ? values : t;
    n->n_in = (int8_t)r->n_in;
    for (int i = 0; i < r->n_in; i++)
        n->operand[i] = (int8_t)i;
    for (int i = 0; i < LP_PW_MAX_PARAM; i++)
        n->p[i] = i < r->op->n_attr ? number_of(&r->attr[i]) : (LpNum){0, 0};
    int loop = pw->select ? pw->select(r, t, n) : pw->loop;
    narrow(r, values, pw->policy == LP_PW_BOOL, n);
    const LpLoopRow *row = lp_loop_row(loop);
    n->loop = t == LP_F32 ? row->f32 : t == LP_F64 ? row->f64 : row->i64;
    n->stored = stored_loop(loop, values);
    n->values = values;
    for (int i = 0; i < n->n_in; i++)
        n->in[i] = i == 0 && pw->policy == LP_PW_MASK ? LP_BOOL : t;
    n->out = row->to_bool ? LP_BOOL : t;
    n->splat_ok = row->n_in >= 2;
    n->divides = t == LP_I64 &&
                 (loop == LP_LOOP_div_floor || loop == LP_LOOP_div_trunc ||
                  loop == LP_LOOP_fmod || loop == LP_LOOP_remainder);
}

void lp_pointwise_number(const LpPwNode *n, LpScalar s, LpDtype t, void *one)
{
    double rounded; /* room for one element of any type */
    if (t == LP_BOOL || n->number == t || !lp_convert_loop(n->number, t)) {
        lp_scalar_store(s, t, one);
        return;
    }
    lp_scalar_store(s, n->number, &rounded);
    lp_convert_loop(n->number, t)(1, one, 0, &rounded, 0);
}

void lp_pointwise_round(int64_t n, const void *from, void *x, LpDtype held,
                        LpDtype stored)
{
    enum { STEP = 512 };
    double buf[STEP];
    int64_t size = (int64_t)lp_dtype_size(held);
    int64_t narrow = (int64_t)lp_dtype_size(stored);
    if (held == stored)
        return;
    LpConvert down = lp_convert_loop(held, stored);
    LpConvert up = lp_convert_loop(stored, held);
    for (int64_t i = 0; i < n; i += STEP) {
        int64_t m = n - i < STEP ? n - i : STEP;
        down(m, buf, narrow, (const char *)from + i * size, size);
        up(m, (char *)x + i * size, size, buf, narrow);
    }
}
