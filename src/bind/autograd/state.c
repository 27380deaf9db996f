/* What is neither a tensor nor an operator: backward and grad, the random
 * state, threads, default dtype, promotion, memory. */
#include <malloc.h>
#include <string.h>

#include "src/autodiff/autocast.h"
#include "src/base/mem.h"
#include "src/bind/call/call.h"
#include "src/bind/module.h"

/* ---- lists of tensors ---------------------------------------------------- */
/* Tensors at `i` (one, a list, or nothing) as an array that a userdata pushed
 * on the stack holds; torch.none gives NULL. */
static LpTensor **check_list(lua_State *L, int i, const char *fn,
                             const char *arg, bool holes, int *n)
{
    char what[LP_DESCRIBE];
    i = lua_absindex(L, i);
    LpTensor *one = lp_to_tensor(L, i);
    bool none = lua_isnoneornil(L, i);
    *n = one ? 1 : none ? 0 : -1;
    if (*n < 0 && lua_istable(L, i))
        *n = (int)lua_rawlen(L, i);
    if (*n < 0)
        lp_raise(L, LP_E_TYPE,
                 "%s(): argument '%s' must be a Tensor or a list "
                 "of Tensors, not %s",
                 fn, arg, lp_describe(L, i, what));
    LpTensor **t = lua_newuserdatauv(L, (size_t)(*n + 1) * sizeof *t, 0);
    if (one)
        t[0] = one;
    for (int k = 0; !one && k < *n; k++) {
        lua_rawgeti(L, i, k + 1);
        t[k] = lp_to_tensor(L, -1);
        if (!t[k] && !(holes && (lp_is_none(L, -1) || lua_isnil(L, -1))))
            lp_raise(L, LP_E_TYPE,
                     "%s(): element %d of '%s' must be a Tensor, not %s", fn,
                     k + 1, arg, lp_describe(L, -1, what));
        lua_pop(L, 1);
    }
    return t;
}

static bool keyword_bool(lua_State *L, int kw, const char *name, bool def)
{
    if (!kw)
        return def;
    int type = lua_getfield(L, kw, name);
    bool v = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return type == LUA_TNIL ? def : v;
}

/* Positional argument `i`, or the keyword of that name; leaves it on the
 * stack and returns its index. */
static int argument(lua_State *L, int i, int n_pos, int kw, const char *name)
{
    if (i <= n_pos && !lua_isnil(L, i))
        return i;
    if (kw)
        lua_getfield(L, kw, name);
    else
        lua_pushnil(L);
    return lua_gettop(L);
}

static bool argument_bool(lua_State *L, int i, int n_pos, int kw,
                          const char *name, bool def)
{
    return i <= n_pos && lua_isboolean(L, i) ? lua_toboolean(L, i)
                                             : keyword_bool(L, kw, name, def);
}

/* grads must be as many as roots, or none; returns an array of n with NULLs. */
static LpTensor **check_grads(lua_State *L, int i, const char *fn, int n_roots)
{
    int n;
    LpTensor **g = check_list(L, i, fn, "gradient", true, &n);
    if (n == n_roots)
        return g;
    if (n != 0)
        lp_raise(L, LP_E_RUNTIME, "%s(): %d gradients for %d tensors", fn, n,
                 n_roots);
    g = lua_newuserdatauv(L, (size_t)n_roots * sizeof *g, 0);
    memset(g, 0, (size_t)n_roots * sizeof *g);
    return g;
}

/* x:backward(gradient, retain_graph, create_graph, inputs) and
 * torch.autograd.backward(tensors, grad_tensors, …) */
static int backward(lua_State *L)
{
    static const char *const names[] = {"gradient",     "grad_tensors",
                                        "retain_graph", "create_graph",
                                        "inputs",       NULL};
    LpErr e = {0};
    int n_pos = lua_gettop(L), kw = 0, n, n_in;
    if (n_pos > 1 && lp_is_keywords(L, n_pos, "backward")) {
        kw = n_pos--;
        lp_check_keywords(L, kw, "backward", names);
    }
    if (lua_isnoneornil(L, 1))
        return lp_raise(L, LP_E_TYPE,
                        "backward(): argument 'tensors' is missing; the method "
                        "is called with a colon, loss:backward()");
    LpTensor **roots = check_list(L, 1, "backward", "tensors", false, &n);
    int g = argument(L, 2, n_pos, kw, "gradient");
    if (lua_isnil(L, g))
        g = argument(L, 2, n_pos, kw, "grad_tensors");
    LpTensor **grads = check_grads(L, g, "backward", n);
    bool create = argument_bool(L, 4, n_pos, kw, "create_graph", false);
    bool retain = argument_bool(L, 3, n_pos, kw, "retain_graph", create);
    LpTensor **inputs = check_list(L, argument(L, 5, n_pos, kw, "inputs"),
                                   "backward", "inputs", false, &n_in);
    lua_State *was = lp_hooks_enter(L);
    LpStatus s = lp_backward(roots, grads, n, inputs, n_in, retain, create, &e);
    lp_hooks_leave(was);
    lp_must(L, s, &e);
    return 0;
}

/* torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph,
 * create_graph, {allow_unused}) -> list */
static int grad(lua_State *L)
{
    static const char *const names[] = {"grad_outputs", "retain_graph",
                                        "create_graph", "allow_unused", NULL};
    LpErr e = {0};
    int n_pos = lua_gettop(L), kw = 0, n, n_in;
    if (n_pos > 2 && lp_is_keywords(L, n_pos, "grad")) {
        kw = n_pos--;
        lp_check_keywords(L, kw, "grad", names);
    }
    LpTensor **roots = check_list(L, 1, "grad", "outputs", false, &n);
    LpTensor **inputs = check_list(L, 2, "grad", "inputs", false, &n_in);
    LpTensor **grads =
        check_grads(L, argument(L, 3, n_pos, kw, "grad_outputs"), "grad", n);
    bool create = argument_bool(L, 5, n_pos, kw, "create_graph", false);
    bool retain = argument_bool(L, 4, n_pos, kw, "retain_graph", create);
    bool unused = argument_bool(L, 6, n_pos, kw, "allow_unused", false);
    if (n_in > LP_MAX_LIST)
        return lp_raise(L, LP_E_VALUE, "grad(): more than %d inputs",
                        LP_MAX_LIST);
    lp_gc_guard(L);
    LpOwner *o = lp_push_owner(L);
    memset(o->t, 0, sizeof o->t);
    lua_State *was = lp_hooks_enter(L);
    LpStatus s = lp_grad(roots, grads, n, inputs, n_in, retain, create, unused,
                         o->t, &e);
    lp_hooks_leave(was);
    lp_must(L, s, &e);
    o->n = n_in;
    lua_createtable(L, n_in, 0);
    for (int i = 0; i < n_in; i++) {
        if (o->t[i]) {
            lp_push_box(L)->p = o->t[i];
            o->t[i] = NULL;
        } else { /* allow_unused: None keeps its place in the list */
            lua_getfield(L, lua_upvalueindex(1), "none");
        }
        lua_rawseti(L, -2, i + 1);
    }
    lp_mark_list(L);
    return 1;
}

LP_GETTER(is_grad_enabled, boolean, lp_grad_enabled())
LP_GETTER(is_anomaly_enabled, boolean, lp_detect_anomaly())

/* set_autocast(dtype or nil, rules or nil); autocast() -> dtype, rules or nil;
 * rules: a string that cast_rules made */
static int set_autocast(lua_State *L)
{
    size_t n;
    LpCastRules rules;
    const char *text = luaL_optlstring(L, 2, NULL, &n);
    LpDtype t = lua_isnoneornil(L, 1) ? LP_DT_NONE : lp_to_dtype(L, 1);
    if ((t != LP_DT_NONE && t != LP_BF16 && t != LP_F16) ||
        (text && n != sizeof rules))
        return lp_raise(L, LP_E_TYPE,
                        "set_autocast(): expected bfloat16 or float16, and "
                        "rules that cast_rules() made");
    if (text)
        memcpy(&rules, text, sizeof rules);
    lp_autocast_set(t, text ? &rules : NULL);
    return 0;
}

static int autocast(lua_State *L)
{
    const LpCastRules *rules = lp_autocast_rules();
    if (lp_autocast_get() == LP_DT_NONE)
        return 0;
    lp_push_dtype(L, lp_autocast_get());
    if (!rules)
        return 1;
    lua_pushlstring(L, (const char *)rules, sizeof *rules);
    return 2;
}

/* The rule of table t for an operator. */
static uint8_t rule_of(lua_State *L, int t, const LpOp *op)
{
    static const char *const casts[] = {"as_is", "narrow", "wide", "widest",
                                        NULL};
    uint8_t rule = LP_N_CASTS;
    if (lua_getfield(L, t, op->name) != LUA_TNIL)
        rule = (uint8_t)luaL_checkoption(L, -1, NULL, casts);
    lua_pop(L, 1);
    return rule;
}

/* cast_rules({OP = "narrow", …}, {OP = …} of mixed operands) -> rules for
 * set_autocast; what is not named has no rule */
static int cast_rules(lua_State *L)
{
    LpCastRules rules;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    for (int i = 0; i < lp_n_ops; i++) {
        rules.of[i] = rule_of(L, 1, lp_ops[i]);
        rules.mixed[i] = rule_of(L, 2, lp_ops[i]);
    }
    lua_pushlstring(L, (const char *)&rules, sizeof rules);
    return 1;
}

static int set_anomaly_enabled(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    lp_set_detect_anomaly(lua_toboolean(L, 1));
    return 0;
}

static int set_grad_enabled(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    lp_set_grad_enabled(lua_toboolean(L, 1));
    return 0;
}

/* ---- random state -------------------------------------------------------- */
static int manual_seed(lua_State *L)
{
    if (!lua_isinteger(L, 1)) {
        char what[LP_DESCRIBE];
        return lp_raise(L, LP_E_TYPE,
                        "manual_seed(): the seed is %s; an "
                        "integer is allowed%s",
                        lp_describe(L, 1, what), lp_int_hint(L, 1));
    }
    lp_manual_seed((uint64_t)lua_tointeger(L, 1));
    return 0;
}

LP_GETTER(initial_seed, integer, (lua_Integer)lp_initial_seed())

void lp_push_rng_state(lua_State *L, const uint64_t state[2])
{
    LpType type = {.dtype = LP_U8, .ndim = 1, .shape = {2 * sizeof *state}};
    memcpy(lp_tensor_data(lp_new_tensor(L, &type)), state, 2 * sizeof *state);
}

void lp_check_rng_state(lua_State *L, int i, uint64_t state[2])
{
    LpTensor *t = lp_check_tensor(L, i, "set_rng_state", "new_state");
    if (t->dtype != LP_U8 ||
        lp_tensor_numel(t) != (int64_t)(2 * sizeof *state) ||
        !lp_tensor_contiguous(t))
        lp_raise(L, LP_E_TYPE,
                 "set_rng_state(): the state must be a tensor "
                 "that get_rng_state() gave");
    memcpy(state, lp_read_tensor(L, t), 2 * sizeof *state);
}

static int get_rng_state(lua_State *L)
{
    uint64_t state[2];
    lp_rng_get(state);
    lp_push_rng_state(L, state);
    return 1;
}

static int set_rng_state(lua_State *L)
{
    uint64_t state[2];
    lp_check_rng_state(L, 1, state);
    lp_rng_set(state);
    return 0;
}

/* ---- settings ------------------------------------------------------------ */
LP_GETTER(get_num_threads, integer, lp_num_threads())

static int set_num_threads(lua_State *L)
{
    LpErr e = {0};
    luaL_checktype(L, 1, LUA_TNUMBER); /* a string of digits is no number */
    lua_Integer n = luaL_checkinteger(L, 1);
    if (n < 1 || n > LP_MAX_THREADS)
        return lp_raise(L, LP_E_RUNTIME,
                        "set_num_threads(threads): expected an int from 1 to "
                        "4096, got %lld",
                        (long long)n);
    lp_must(L, lp_set_num_threads((int)n, &e), &e);
    return 0;
}

static int use_deterministic(lua_State *L)
{
    LpErr e = {0};
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    lp_must(L, lp_set_deterministic(lua_toboolean(L, 1), &e), &e);
    return 0;
}

/* set_task(on) -> what was set (lp_set_task) */
static int set_task(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    lua_pushboolean(L, lp_set_task(lua_toboolean(L, 1)));
    return 1;
}

LP_GETTER(are_deterministic, boolean, lp_deterministic())

/* By pieces, from LP_SPLIT_ALL down. */
static const char *const precisions[] = {"highest", "high", "medium", NULL};

static int set_matmul_precision(lua_State *L)
{
    char what[LP_DESCRIBE];
    const char *given = lua_tostring(L, 1);
    for (int i = 0; given && precisions[i]; i++)
        if (strcmp(given, precisions[i]) == 0) {
            lp_set_product_split(LP_SPLIT_ALL - i);
            return 0;
        }
    return lp_raise(L, LP_E_VALUE,
                    "set_float32_matmul_precision(precision): expected "
                    "'highest', 'high' or 'medium', got %s",
                    lp_describe(L, 1, what));
}

LP_GETTER(get_matmul_precision, string,
          precisions[LP_SPLIT_ALL - lp_product_split()])

static LpDtype check_dtype(lua_State *L, int i, const char *fn)
{
    char what[LP_DESCRIBE];
    LpDtype t = lp_to_dtype(L, i);
    if (t == LP_DT_NONE)
        lp_raise(L, LP_E_TYPE, "%s(): argument %d is %s, not a torch dtype", fn,
                 i, lp_describe(L, i, what));
    return t;
}

static int set_default_dtype(lua_State *L)
{
    LpDtype t = check_dtype(L, 1, "set_default_dtype");
    if (!lp_is_float(t))
        return lp_raise(L, LP_E_TYPE,
                        "set_default_dtype(): %s is no floating-point dtype",
                        lp_dtype_name(t));
    lp_set_default_dtype(t);
    return 0;
}

static int get_default_dtype(lua_State *L)
{
    lp_push_dtype(L, lp_default_dtype());
    return 1;
}

/* ---- promotion ----------------------------------------------------------- */
static int promote_types(lua_State *L)
{
    LpDtype a = check_dtype(L, 1, "promote_types");
    lp_push_dtype(L, lp_dtype_promote(a, check_dtype(L, 2, "promote_types")));
    return 1;
}

static int can_cast(lua_State *L)
{
    LpDtype from = check_dtype(L, 1, "can_cast");
    LpDtype to = check_dtype(L, 2, "can_cast");
    bool down = lp_dtype_kind(from) > lp_dtype_kind(to);
    bool sign =
        to == LP_U8 && lp_dtype_kind(from) == LP_KIND_INT && from != LP_U8;
    lua_pushboolean(L, !down && !sign);
    return 1;
}

static int result_type(lua_State *L)
{
    LpPromo p = LP_PROMO_INIT;
    for (int i = 1; i <= 2; i++) {
        LpArg a;
        char what[LP_DESCRIBE];
        if (!lp_to_operand(L, i, &a))
            return lp_raise(L, LP_E_TYPE,
                            "result_type(): argument %d is %s; a Tensor or a "
                            "number is allowed",
                            i, lp_describe(L, i, what));
        if (a.t)
            lp_promo_tensor(&p, a.t->dtype, a.t->ndim);
        else
            lp_promo_number(&p, a.num.kind);
    }
    lp_push_dtype(L, lp_promo_result(&p));
    return 1;
}

/* ---- memory -------------------------------------------------------------- */
/* torch.memory() -> {live, peak, cached}: bytes of tensors' storages; what
 * the heap holds free of them, for reuse. */
static int memory(lua_State *L)
{
    lua_createtable(L, 0, 3);
    lp_set_int(L, "live", lp_storage_live_bytes());
    lp_set_int(L, "peak", lp_storage_peak_bytes());
    lp_set_int(L, "cached", (int64_t)mallinfo2().fordblks);
    return 1;
}

/* mem_fail_at(n, lasting), for specs: the n-th allocation from now fails (0:
 * none), and if `lasting` all after it. Returns what is left of the number
 * before. */
static int mem_fail_at(lua_State *L)
{
    lua_Integer n = luaL_checkinteger(L, 1);
    uint64_t left =
        lp_mem_fail_at(n > 0 ? (uint64_t)n : 0, lua_toboolean(L, 2));
    lua_pushinteger(L, (lua_Integer)left);
    return 1;
}

/* mem_most(n), for specs: no allocation of more bytes succeeds from now on */
static int mem_most(lua_State *L)
{
    lua_Integer n = luaL_checkinteger(L, 1);
    lp_mem_most(n > 0 ? (size_t)n : SIZE_MAX);
    return 0;
}

LP_GETTER(mem_live, integer, lp_mem_live())

static const luaL_Reg functions[] = {
    {"mem_fail_at", mem_fail_at},
    {"mem_live", mem_live},
    {"mem_most", mem_most},
    {"backward", backward},
    {"is_grad_enabled", is_grad_enabled},
    {"set_grad_enabled", set_grad_enabled},
    {"is_anomaly_enabled", is_anomaly_enabled},
    {"set_anomaly_enabled", set_anomaly_enabled},
    {"set_autocast", set_autocast},
    {"autocast", autocast},
    {"cast_rules", cast_rules},
    {"manual_seed", manual_seed},
    {"initial_seed", initial_seed},
    {"get_rng_state", get_rng_state},
    {"set_rng_state", set_rng_state},
    {"get_num_threads", get_num_threads},
    {"set_float32_matmul_precision", set_matmul_precision},
    {"get_float32_matmul_precision", get_matmul_precision},
    {"set_num_threads", set_num_threads},
    {"use_deterministic_algorithms", use_deterministic},
    {"are_deterministic_algorithms_enabled", are_deterministic},
    {"set_task", set_task},
    {"set_default_dtype", set_default_dtype},
    {"get_default_dtype", get_default_dtype},
    {"promote_types", promote_types},
    {"can_cast", can_cast},
    {"result_type", result_type},
    {"memory", memory},
    {NULL, NULL},
};

void lp_bind_state(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, grad, 1);
    lua_setfield(L, -2, "grad");
    lua_getfield(L, -1, "methods");
    lp_set_function(L, "backward", backward);
    lua_pop(L, 1);
}
