/* The host's functions that programs call (src/ops/host_call.h), from Lua:
 *
 *   exec:answer({[id] = f})         f({tensors}) -> {tensors}
 *   plan:replay(inputs, {calls = {[id] = f}})
 *   core.untraced(f, …) -> what f returns: no trace records what it does
 *
 * A call copies what the device has into tensors of their own, which f may
 * keep, and what f returns back. An error of f is the one that the run raises.
 */
#include "src/bind/program/host_call.h"

#include <string.h>

#include "src/autodiff/trace.h"
#include "src/base/interrupt.h"
#include "src/bind/module.h"
#include "src/kernel/copy/copy.h"
#include "src/ops/ops.h"

/* ---- answering ------------------------------------------------------ */
static void push_operands(lua_State *L, const LpHostCall *c)
{
    lua_createtable(L, c->n_in, 0);
    for (int i = 0; i < c->n_in; i++) {
        LpType type = lp_type_of_desc(&c->in[i]);
        LpDesc plain = lp_desc_of(&type);
        LpTensor *t = lp_new_tensor(L, &type);
        lp_copy_strided(&c->in[i], c->in_data[i], &plain, lp_tensor_data(t));
        lua_rawseti(L, -2, i + 1);
    }
}

/* Result i, on top. */
static void take_result(lua_State *L, const LpHostCall *c, int i)
{
    LpErr e = {0};
    char what[LP_DESCRIBE];
    LpType want = lp_type_of_desc(&c->out[i]);
    LpTensor *t = lp_to_tensor(L, -1), *plain = NULL;
    LpType got = t ? lp_tensor_type(t) : want;
    if (!t || !lp_type_eq(&got, &want))
        lp_raise(L, LP_E_POPTORCH,
                 "the host's function '%s' returned %s as result %d; the "
                 "program was compiled for a tensor %s %s",
                 c->id, lp_describe(L, -1, what), i, lp_dtype_name(want.dtype),
                 lp_shape_str(&want));
    lp_read_tensor(L, t);
    LpBox *b = lp_push_box(L);
    lp_must(L, lp_contiguous(t, &plain, &e), &e);
    b->p = plain;
    LpDesc from = lp_desc_of(&want);
    lp_copy_strided(&from, lp_tensor_data(plain), &c->out[i], c->out_data[i]);
    lua_pop(L, 1);
}

/* Protected; arguments: the functions, the call. */
static int ask(lua_State *L)
{
    const LpHostCall *c = lua_touserdata(L, 2);
    if (!lua_istable(L, 1) || lua_getfield(L, 1, c->id) == LUA_TNIL)
        return lp_raise(L, LP_E_POPTORCH,
                        "no function answers the host call '%s'", c->id);
    push_operands(L, c);
    lua_call(L, 1, 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    if (luaL_len(L, -1) != c->n_out)
        return lp_raise(L, LP_E_POPTORCH,
                        "the host's function '%s' returned %d results; the "
                        "program was compiled for %d",
                        c->id, (int)luaL_len(L, -1), c->n_out);
    for (int i = 0; i < c->n_out; i++) {
        lua_geti(L, -1, i + 1);
        take_result(L, c, i);
        lua_pop(L, 1);
    }
    return 0;
}

/* Kernels that the function calls end as eager ones do. */
static LpStatus answer(void *ctx, const LpHostCall *c, LpErr *e)
{
    const LpHostFunctions *f = ctx;
    lua_State *L = f->L;
    bool may_stop = lp_kernels_may_stop;
    LP_FAIL_IF(!lua_checkstack(L, 8), e, LP_E_MEMORY,
               "no room on Lua's stack to call '%.80s'", c->id);
    lua_pushcfunction(L, ask);
    lua_pushvalue(L, f->at);
    lua_pushlightuserdata(L, (void *)(uintptr_t)c);
    lp_kernels_may_stop = false;
    int status = lua_pcall(L, 2, 0, 0);
    lp_kernels_may_stop = may_stop;
    return status == LUA_OK ? LP_OK : lp_bind_keep_error(L, e);
}

void lp_host_functions(lua_State *L, int at, LpHostFunctions *f)
{
    *f = (LpHostFunctions){
        .L = L, .at = lua_absindex(L, at), .calls = {answer, f}};
}

/* ---- which are called ----------------------------------------------- */
/* The name of a function that g, or a body in it, calls and the table at `at`
 * lacks; NULL: it has all. */
static const char *missing(lua_State *L, const LpGraph *g, int at, bool *any)
{
    for (LpNodeId i = 0; g && i < g->n_node; i++) {
        int k = 0;
        const char *id = NULL;
        for (const LpGraph *b; !id && (b = lp_node_body(&g->node[i], &k));)
            id = missing(L, b, at, any);
        if (!id && g->node[i].op == &op_host_call) {
            *any = true;
            const char *name = g->node[i].attr[LP_HOST_CALL_ID].str;
            if (!lua_istable(L, at) || lua_getfield(L, at, name) == LUA_TNIL)
                id = name;
            lua_settop(L, at);
        }
        if (id)
            return id;
    }
    return NULL;
}

bool lp_check_host_functions(lua_State *L, const LpGraph *g, int at)
{
    bool any = false;
    lua_settop(L, at);
    const char *id = missing(L, g, at, &any);
    if (!id)
        return any;
    LpErr e = {0};
    lp_fail_hint(&e, LP_E_POPTORCH, "host_function",
                 "the program calls the host's function '%s', and there is no "
                 "function of that name",
                 id);
    return lp_bind_fail(L, &e);
}

/* ---- outside the trace ---------------------------------------------- */
static int untraced(lua_State *L)
{
    luaL_checkany(L, 1);
    LpTrace *was = lp_trace_suspend();
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    lp_trace_go_on(was);
    return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

void lp_bind_host_call(lua_State *L)
{
    lp_set_function(L, "untraced", untraced);
}
