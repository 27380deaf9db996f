/* What torch.autograd.Function is made of (lua/torch/autograd/function.lua):
 *
 *   core.function_record(rule, inputs, outputs, keep_in, keep_out, dirty,
 *                        materialize)
 *       gives the outputs, made without history, a node whose gradient is
 *       asked of the rule; inputs[dirty[i]] was written and is output i
 *   core.function_trace(rule, inputs, outputs, materialize) -> {tensors}
 *       the same of the running trace
 *
 * rule(grads, inputs, outputs, needs) -> {gradient of each input, or false};
 * what is not kept, or has no gradient, is false. It runs in backward passes
 * and, for a trace, once while the step is made: under a resumed trace, so
 * that what it computes are nodes of the graph. Tensors it meets there that
 * the program does not know become constants. */
#include "src/autodiff/function.h"

#include "src/autodiff/trace.h"
#include "src/bind/module.h"
#include "src/bind/program/program.h"
#include "src/ops/function.h"
#include "src/ops/ops.h"

/* The step whose reverse sweep runs, and the trace that it is resumed with. */
static struct {
    LpStep *step;
    LpTrace *trace;
} sweep;

lua_State *lp_functions_enter(lua_State *L, LpStep *s)
{
    sweep.step = s;
    sweep.trace = NULL;
    return lp_hooks_enter(L);
}

void lp_functions_leave(lua_State *was)
{
    lp_trace_leave(sweep.trace);
    sweep.step = NULL;
    sweep.trace = NULL;
    lp_hooks_leave(was);
}

/* ---- asking the rule ----------------------------------------------------- */
static LpStatus resume(const LpGrad *g, LpErr *e)
{
    static const LpTraceRole role[] = {[LP_VAR_PARAM] = LP_TRACE_PARAM,
                                       [LP_VAR_BUFFER] = LP_TRACE_BUFFER,
                                       [LP_VAR_CONST] = LP_TRACE_CONSTANT};
    uint64_t serial = (uint64_t)g->attr[LP_FUNCTION_TRACE].i;
    LpStep *s = sweep.step;
    LP_FAIL_IF(!s, e, LP_E_INTERNAL, "a rule is asked outside a step");
    LP_FAIL_IF(((LpGraphBuilder *)g->b)->g != s->micro, e, LP_E_NOT_IMPLEMENTED,
               "a torch.autograd.Function in the body of a loop or branch has "
               "no gradient in a compiled program");
    if (sweep.trace)
        return LP_OK;
    LP_TRY(lp_trace_resume(s->micro, serial, &sweep.trace, e));
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        bool known = v->role == LP_VAR_PARAM || v->role == LP_VAR_BUFFER ||
                     v->role == LP_VAR_CONST;
        if (known && v->data && v->micro_in != LP_NOVAL)
            LP_TRY(lp_trace_know(sweep.trace, role[v->role], v->data,
                                 v->micro_in, e));
    }
    return LP_OK;
}

static void push_value(lua_State *L, LpGrad *g, LpVal v)
{
    LpErr e = {0};
    LpTensor *t = NULL;
    LpBox *box = lp_push_box(L);
    lp_must(L, lp_rule_tensor(g->b, v, &t, &e), &e);
    box->p = t;
    if (!t) {
        lua_pop(L, 1);
        lua_pushboolean(L, 0);
    }
}

static void push_values(lua_State *L, LpGrad *g, const LpVal *v, int n)
{
    LP_PUSH_LIST(L, i, n, push_value(L, g, v[i]));
}

static void push_grads(lua_State *L, LpGrad *g)
{
    LpVal d[LP_MAX_OUT];
    for (int i = 0; i < g->n_out; i++) {
        d[i] = g->dout[i];
        if (d[i] == LP_NOVAL && g->attr[LP_FUNCTION_MATERIALIZE].i)
            d[i] = lp_full(g->b, lp_type(g->b, g->out[i]), lp_float(0));
    }
    lp_must(L, g->b->err->code, g->b->err);
    push_values(L, g, d, g->n_out);
}

/* The gradient of operand i, which may be larger by broadcasting. */
static void take(lua_State *L, LpGrad *g, int i, int nr, LpTensor *t)
{
    LpErr e = {0};
    LpType want = *lp_type(g->b, g->in[i]), got = lp_tensor_type(t);
    LpType both = want;
    if (lp_broadcast(&both, &got, &e) != LP_OK || !lp_shape_eq(&both, &got))
        lp_raise(L, LP_E_RUNTIME,
                 "backward returned a gradient of shape %s for tensor %d, "
                 "which has shape %s",
                 lp_shape_str(&got), nr + 1, lp_shape_str(&want));
    g->din[i] = lp_rule_value(g->b, t);
}

/* Protected; argument: the gradient record. */
static int ask(lua_State *L)
{
    LpGrad *g = lua_touserdata(L, 1);
    bool eager = lp_rule_is_eager(g->b);
    int first = eager ? 0 : g->n_out, n = g->n_in - first;
    luaL_checkstack(L, 12, NULL);
    lp_push_kept(L, (const void *)(intptr_t)g->attr[LP_FUNCTION_RULE].i);
    push_grads(L, g);
    push_values(L, g, g->in + first, n);
    push_values(L, g, g->out, g->n_out);
    LP_PUSH_LIST(L, i, n, lua_pushboolean(L, g->need[first + i]));
    lua_call(L, 4, 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        LpTensor *t = lp_to_tensor(L, -1);
        if (t)
            take(L, g, first + i, i, t);
        lua_pop(L, 1);
    }
    return 0;
}

static void rule(LpGrad *g)
{
    lua_State *L = lp_hooks_running();
    LpErr *e = g->b->err;
    bool eager = lp_rule_is_eager(g->b);
    if (!L || !lua_checkstack(L, 8)) {
        lp_fail(e, LP_E_INTERNAL, "a rule has no interpreter to run in");
        return;
    }
    size_t known = 0;
    if (!eager) {
        LpGraphBuilder *gb = (LpGraphBuilder *)g->b;
        if (resume(g, e) != LP_OK)
            return;
        known = lp_trace_n_vars(sweep.trace);
        lp_trace_set_origin_id(sweep.trace, gb->origin);
        if (lp_trace_begin(sweep.trace, e) != LP_OK)
            return;
    }
    lua_pushcfunction(L, ask);
    lua_pushlightuserdata(L, g);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK)
        lp_bind_keep_error(L, e);
    if (eager)
        return;
    lp_trace_end(sweep.trace);
    if (e->code == LP_OK)
        lp_step_take_vars(sweep.trace, known, sweep.step, e);
}

/* ---- recording ----------------------------------------------------------- */
static bool *flags(lua_State *L, int i, int n)
{
    luaL_checktype(L, i, LUA_TTABLE);
    bool *b = lua_newuserdatauv(L, (size_t)n + 1, 0);
    for (int k = 0; k < n; k++) {
        lua_rawgeti(L, i, k + 1);
        b[k] = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    return b;
}

static void fill(LpAttr *attr, int n_out, const void *record, uint64_t serial,
                 bool materialize)
{
    attr[LP_FUNCTION_RESULTS] = lp_attr_int(n_out);
    attr[LP_FUNCTION_RULE] = lp_attr_int((int64_t)(intptr_t)record);
    attr[LP_FUNCTION_TRACE] = lp_attr_int((int64_t)serial);
    attr[LP_FUNCTION_MATERIALIZE] = lp_attr_bool(materialize);
}

static void check_results(lua_State *L, LpTensor *const *out, int n)
{
    if (n > LP_MAX_OUT)
        lp_raise(L, LP_E_VALUE,
                 "apply(): forward returned %d tensors with a gradient, at "
                 "most %d are supported",
                 n, LP_MAX_OUT);
    for (int i = 0; i < n; i++)
        if (!lp_is_float(out[i]->dtype))
            lp_raise(L, LP_E_TYPE,
                     "apply(): result %d has the type %s, which has no "
                     "gradient",
                     i + 1, lp_dtype_name(out[i]->dtype));
}

/* Which input output i is, written in place, of the list at `list`; -1: none.
 */
static int dirty_input(lua_State *L, int list, int i, const LpFunctionCall *c)
{
    lua_rawgeti(L, list, i + 1);
    lua_Integer at = lua_toboolean(L, -1) ? luaL_checkinteger(L, -1) : 0;
    lua_pop(L, 1);
    if (at < 0 || at > c->n_in)
        lp_raise(L, LP_E_INDEX, "no input %lld", (long long)at);
    if (at == 0)
        return -1;
    LpType in = lp_tensor_type(c->in[at - 1]), out = lp_tensor_type(c->out[i]);
    if (!lp_type_eq(&in, &out))
        lp_raise(L, LP_E_TYPE,
                 "output %d and the written input %lld are of several types",
                 i + 1, (long long)at);
    return (int)at - 1;
}

static int function_record(lua_State *L)
{
    LpErr e = {0};
    LpAttr attr[LP_FUNCTION_N_ATTR];
    LpFunctionCall c = {.attr = attr, .release = lp_drop_kept};
    int dirty[LP_MAX_OUT];
    lua_settop(L, 7);
    luaL_checktype(L, 1, LUA_TFUNCTION);
    c.in = lp_check_tensors(L, 2, "apply", "tensors", &c.n_in);
    c.out = lp_check_tensors(L, 3, "apply", "tensors", &c.n_out);
    check_results(L, c.out, c.n_out);
    c.keep_in = flags(L, 4, c.n_in);
    c.keep_out = flags(L, 5, c.n_out);
    luaL_checktype(L, 6, LUA_TTABLE);
    for (int i = 0; i < c.n_out; i++)
        dirty[i] = dirty_input(L, 6, i, &c);
    c.dirty = dirty;
    c.ctx = lp_keep_function(L, 1);
    fill(attr, c.n_out, c.ctx, 0, lua_toboolean(L, 7));
    lp_must(L, lp_record_function(&c, &e), &e);
    for (int i = 0; i < c.n_out; i++) {
        lua_rawgeti(L, dirty[i] < 0 ? 3 : 2, (dirty[i] < 0 ? i : dirty[i]) + 1);
        lp_keep_with(L, c.ctx, -1);
        lua_pop(L, 1);
    }
    return 0;
}

static int function_trace(lua_State *L)
{
    LpErr e = {0};
    LpAttr attr[LP_FUNCTION_N_ATTR];
    LpTrace *tr = lp_trace_current();
    int n_in, n_out;
    lua_settop(L, 4);
    luaL_checktype(L, 1, LUA_TFUNCTION);
    LpTensor **in = lp_check_tensors(L, 2, "apply", "tensors", &n_in),
             **out = lp_check_tensors(L, 3, "apply", "tensors", &n_out);
    check_results(L, out, n_out);
    LpArg *arg = lua_newuserdatauv(L, (size_t)(n_in + n_out) * sizeof *arg, 0);
    for (int i = 0; i < n_out; i++)
        arg[i] = lp_arg_tensor(out[i]);
    for (int i = 0; i < n_in; i++)
        arg[n_out + i] = lp_arg_tensor(in[i]);
    if (!tr)
        return lp_raise(L, LP_E_INTERNAL, "no trace is running");
    void *record = lp_keep_function(L, 1);
    if (lp_trace_own(tr, lp_drop_kept, record, &e) != LP_OK) {
        lp_drop_kept(record);
        return lp_bind_fail(L, &e);
    }
    fill(attr, n_out, record, lp_trace_serial(tr), lua_toboolean(L, 4));
    return lp_call_push(L, lp_op_form(&op_custom_function), arg, n_in + n_out,
                        attr, 0);
}

LP_GETTER(is_tracing, boolean, lp_tracing)

/* The core table is on top. */
void lp_bind_function(lua_State *L)
{
    static const luaL_Reg functions[] = {{"function_record", function_record},
                                         {"function_trace", function_trace},
                                         {"is_tracing", is_tracing},
                                         {NULL, NULL}};
    lp_function_rule = rule;
    luaL_setfuncs(L, functions, 0);
}
