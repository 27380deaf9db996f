/* Which types an operator runs in is a fact of its record (LpCast). */
#include "src/autodiff/autocast.h"

#include <string.h>

#include "src/base/mem.h"

static LpDtype target = LP_DT_NONE;
static LpCastRules own;
static bool has_own;

LpDtype lp_autocast_get(void)
{
    return target;
}

const LpCastRules *lp_autocast_rules(void)
{
    return has_own ? &own : NULL;
}

void lp_autocast_set(LpDtype t, const LpCastRules *rules)
{
    target = t;
    has_own = rules != NULL;
    if (rules)
        memmove(&own, rules, sizeof own);
}

static bool short_float(LpDtype t)
{
    return t == LP_F16 || t == LP_BF16;
}

static bool has_type(const LpArg *in, int n_in, LpDtype t)
{
    for (int i = 0; i < n_in; i++)
        if (in[i].t && in[i].t->dtype == t)
            return true;
    return false;
}

/* The type to which float16, bfloat16 and float32 operands go. */
static LpDtype wanted(LpCast p, const LpArg *in, int n_in)
{
    if (p == LP_CAST_NARROW)
        return target;
    if (p == LP_CAST_WIDE || has_type(in, n_in, LP_F32))
        return LP_F32;
    return LP_DT_NONE;
}

static LpStatus cast_all(LpArg *arg, int n, LpDtype to, LpErr *e)
{
    LpAttr attr[] = {lp_attr_dtype(to)};
    for (int i = 0; i < n; i++) {
        LpTensor *t = arg[i].t, *cast = NULL;
        if (!t)
            continue;
        int results = 0;
        bool other = to != LP_DT_NONE && t->dtype != to &&
                     (t->dtype == LP_F32 || short_float(t->dtype));
        LpStatus s =
            other ? lp_op_call(&op_cast, &arg[i], 1, attr, &cast, &results, e)
                  : LP_OK;
        if (s != LP_OK) {
            while (i-- > 0)
                lp_tensor_release(arg[i].t);
            return s;
        }
        arg[i].t = other ? cast : lp_tensor_retain(t);
    }
    return LP_OK;
}

static LpStatus call_cast(LpCast p, const LpOp *op, const LpArg *in, int n_in,
                          const LpAttr *attr, LpTensor **out, int *n_out,
                          LpErr *e)
{
    LpArg few[LP_MAX_IN], *arg = few;
    if (n_in > LP_MAX_IN) {
        arg = lp_calloc((size_t)n_in, sizeof *arg);
        LP_FAIL_IF(!arg, e, LP_E_MEMORY, "out of memory");
    }
    memcpy(arg, in, (size_t)n_in * sizeof *arg);
    LpStatus s = cast_all(arg, n_in, wanted(p, in, n_in), e);
    if (s == LP_OK) {
        s = lp_op_call(op, arg, n_in, attr, out, n_out, e);
        for (int i = 0; i < n_in; i++)
            lp_tensor_release(arg[i].t);
    }
    if (arg != few)
        lp_free(arg);
    return s;
}

static LpCast cast_of(const LpOp *op, const LpArg *in, int n_in,
                      const LpAttr *attr)
{
    LpCast p = op->cast_of ? op->cast_of(attr) : op->cast;
    if (!has_own)
        return p;
    if (own.mixed[op->id] < LP_N_CASTS && has_type(in, n_in, target) &&
        has_type(in, n_in, LP_F32))
        return (LpCast)own.mixed[op->id];
    if (own.of[op->id] < LP_N_CASTS)
        return (LpCast)own.of[op->id];
    return p == LP_CAST_NARROW ? p : LP_CAST_AS_IS;
}

LpStatus lp_autocast_call(const LpOp *op, const LpArg *in, int n_in,
                          const LpAttr *attr, LpTensor **out, int *n_out,
                          LpErr *e)
{
    if (target == LP_DT_NONE)
        return lp_op_call(op, in, n_in, attr, out, n_out, e);
    LpCast p = cast_of(op, in, n_in, attr);
    if (p == LP_CAST_AS_IS)
        return lp_op_call(op, in, n_in, attr, out, n_out, e);
    return call_cast(p, op, in, n_in, attr, out, n_out, e);
}
