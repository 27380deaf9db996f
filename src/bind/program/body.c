/* Bodies of the running trace (lua/lupine/control.lua):
 *
 *   body = core.body(fn, {inputs})   fn({stand-ins}) -> {results}, traced once
 *   core.loop(count, body, {inputs}, carried = all)   -> {results}
 *   core.branch(condition, then, {…}, otherwise, {…}) -> {results}
 *   core.call(body, {inputs})                         -> {results}
 *
 * Captured tensors are read where a body is used. Calls and branches may share
 * one; a loop's is its own, since it gets outputs for the gradient. */
#include <string.h>

#include "src/bind/module.h"
#include "src/bind/program/program.h"
#include "src/ops/control.h"

typedef struct Body {
    LpTrace *tr; /* knows what was captured */
    LpGraph *g;
    int n_input;
    bool looped;            /* a loop has it, and no other operator may */
    bool grad[LP_MAX_LIST]; /* per result: it requires a gradient */
} Body;

static void body_free(void *held)
{
    Body *b = held;
    lp_trace_free(b->tr);
    lp_graph_free(b->g);
    lp_free(b);
}

static const LpBoxClass body_class = {"lupine.body", "body", body_free};

/* The list of tensors at i, kept by its table. */
static LpTensor **tensors(lua_State *L, int i, const char *what, int *n)
{
    LpTensor **t = lp_check_tensors(L, i, "body", what, n);
    if (*n > LP_MAX_LIST)
        lp_raise(L, LP_E_VALUE, "%s: at most %d tensors, got %d", what,
                 LP_MAX_LIST, *n);
    return t;
}

/* ---- tracing ------------------------------------------------------------ */
/* Protected; arguments: the body, fn, {inputs}. What a loop carries may require
 * a gradient from the second round on. */
static int run(lua_State *L)
{
    LpErr e = {0};
    bool any = false;
    Body *b = lua_touserdata(L, 1);
    LpTensor **in = tensors(L, 3, "inputs", &b->n_input), *standin;
    lua_pushvalue(L, 2);
    lua_createtable(L, b->n_input, 0);
    for (int i = 0; i < b->n_input; i++)
        any |= lp_requires_grad(in[i]);
    for (int i = 0; i < b->n_input; i++) {
        LpType t = lp_tensor_type(in[i]);
        lp_must(L,
                lp_trace_declare(b->tr, LP_TRACE_STREAM, "", NULL, &t, &standin,
                                 &e),
                &e);
        standin->requires_grad = any && lp_is_float(t.dtype);
        lp_push_tensor(L, standin);
        lua_rawseti(L, -2, i + 1);
    }
    lua_call(L, 1, 1);
    int n;
    LpTensor **out = tensors(L, lua_gettop(L), "results", &n);
    for (int i = 0; i < n; i++)
        b->grad[i] = lp_requires_grad(out[i]);
    lp_must(L, lp_trace_body(b->tr, out, n, &b->g, &e), &e);
    return 0;
}

static int body_new(lua_State *L)
{
    LpErr e = {0};
    lua_settop(L, 2);
    LpBox *box = lp_new_box(L, &body_class);
    Body *b = lp_calloc(1, sizeof *b);
    if (!b)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    box->p = b;
    lp_must(L, lp_trace_begin_body(&b->tr, &e), &e);
    lua_pushcfunction(L, run);
    lua_pushlightuserdata(L, b);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    int st = lua_pcall(L, 3, 0, 0);
    lp_trace_end(b->tr);
    return st == LUA_OK ? 1 : lua_error(L);
}

/* ---- using -------------------------------------------------------------- */
typedef struct Use {
    LpArg *in;
    int n, cap;
} Use;

/* Adds what the list at i has, then what the body captured. */
static Body *add_operands(lua_State *L, Use *u, int body, int list)
{
    int n;
    Body *b = lp_check_box(L, body, &body_class);
    LpTensor **t = tensors(L, list, "inputs", &n);
    if (n != b->n_input)
        lp_raise(L, LP_E_VALUE, "a body of %d inputs, %d given", b->n_input, n);
    if (b->looped)
        lp_raise(L, LP_E_VALUE, "the body is in use already");
    for (int i = 0; i < n; i++)
        u->in[u->n++] = lp_arg_tensor(t[i]);
    for (size_t i = (size_t)n; i < lp_trace_n_vars(b->tr); i++)
        u->in[u->n++] = lp_arg_tensor(lp_trace_var(b->tr, i)->user);
    return b;
}

static void make_room(lua_State *L, Use *u, int body)
{
    Body *b = lp_check_box(L, body, &body_class);
    u->cap += (int)lp_trace_n_vars(b->tr) + 1;
}

static void open(lua_State *L, Use *u)
{
    u->in = lua_newuserdatauv(L, (size_t)u->cap * sizeof *u->in, 0);
}

/* The first n results of the operator as a list; one that requires a gradient
 * does so in `a` or, if there is one, in `b`. */
static int push_results(lua_State *L, const LpOp *op, const Use *u,
                        const LpAttr *attr, int n, const Body *a, const Body *b)
{
    LpErr e = {0};
    LpTensor *out[LP_MAX_LIST];
    int n_out = 0;
    LpStatus s = lp_trace_call(op, u->in, u->n, attr, NULL, out, &n_out, &e);
    lp_must(L, s, &e);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n_out; i++) {
        if (i < n) {
            out[i]->requires_grad &= a->grad[i] || (b && b->grad[i]);
            lp_push_tensor(L, out[i]);
            lua_rawseti(L, -2, i + 1);
        }
        lp_tensor_release(out[i]);
    }
    return 1;
}

/* The operands of a loop: like the inputs that its body was traced for, but
 * those behind the first `carried` are stacks of them. Emits a stack of every
 * carried input, for the gradient (ops/control.c), if it can be one. */
static int control_loop(lua_State *L)
{
    Use u = {0};
    lua_settop(L, 4);
    make_room(L, &u, 2);
    open(L, &u);
    Body *b = add_operands(L, &u, 2, 3);
    LpErr e = {0};
    int n_result = (int)b->g->n_output;
    int carried = (int)luaL_optinteger(L, 4, b->n_input);
    if (b->g->refs > 1)
        return lp_raise(L, LP_E_VALUE, "loop: the body is in use already");
    luaL_argcheck(L, carried >= 0 && carried <= b->n_input, 4, "not so many");
    b->looped = true;
    for (int i = 0; i < carried; i++) {
        LpVal v = b->g->input[i];
        b->grad[i] |= lp_requires_grad(u.in[i].t); /* without a round */
        if (lp_graph_type(b->g, v)->ndim < LP_MAX_DIMS &&
            !lp_graph_output(b->g, v, &e))
            return lp_bind_fail(L, &e);
    }
    LpAttr attr[LP_LOOP_N_ATTR] = {
        [LP_LOOP_BODY] = lp_attr_graph(b->g),
        [LP_LOOP_COUNT] = lp_attr_int(luaL_checkinteger(L, 1)),
        [LP_LOOP_CARRIED] = lp_attr_int(carried),
        [LP_LOOP_SCANNED] = lp_attr_int(b->n_input - carried),
        [LP_LOOP_REVERSE] = lp_attr_bool(false)};
    return push_results(L, &op_loop, &u, attr, n_result, b, NULL);
}

static int control_branch(lua_State *L)
{
    Use u = {.cap = 1};
    lua_settop(L, 5);
    make_room(L, &u, 2);
    make_room(L, &u, 4);
    open(L, &u);
    u.in[u.n++] = lp_arg_tensor(lp_check_tensor(L, 1, "branch", "condition"));
    Body *then = add_operands(L, &u, 2, 3);
    int split = u.n - 1;
    Body *otherwise = add_operands(L, &u, 4, 5);
    LpAttr attr[LP_BRANCH_N_ATTR] = {[LP_BRANCH_THEN] = lp_attr_graph(then->g),
                                     [LP_BRANCH_OTHERWISE] =
                                         lp_attr_graph(otherwise->g),
                                     [LP_BRANCH_SPLIT] = lp_attr_int(split)};
    return push_results(L, &op_branch, &u, attr, (int)then->g->n_output, then,
                        otherwise);
}

static int control_call(lua_State *L)
{
    Use u = {0};
    lua_settop(L, 2);
    make_room(L, &u, 1);
    open(L, &u);
    Body *b = add_operands(L, &u, 1, 2);
    LpAttr attr[LP_CALL_N_ATTR] = {lp_attr_graph(b->g)};
    return push_results(L, &op_call, &u, attr, (int)b->g->n_output, b, NULL);
}

void lp_bind_body(lua_State *L)
{
    static const luaL_Reg functions[] = {{"body", body_new},
                                         {"loop", control_loop},
                                         {"branch", control_branch},
                                         {"call", control_call},
                                         {NULL, NULL}};
    lp_add_class(L, &body_class, (luaL_Reg[]){{NULL, NULL}});
    luaL_setfuncs(L, functions, 0);
}
