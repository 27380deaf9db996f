/* Traces from Lua; see program.h. */
#include <stdio.h>
#include <string.h>

#include "src/bind/module.h"
#include "src/bind/program.h"

static const char tag_trace = 't';

static LpTrace *check_trace(lua_State *L)
{
    LpTrace *tr = lp_check_box(L, 1, &tag_trace, "trace");
    if (!lp_trace_graph(tr))
        lp_raise(L, LP_E_RUNTIME, "this trace has become a step already");
    return tr;
}

/* ---- types -------------------------------------------------------------- */
/* {shape}, dtype at i, i+1 */
static LpType check_type(lua_State *L, int i)
{
    LpType t = {.dtype = lp_to_dtype(L, i + 1)};
    luaL_checktype(L, i, LUA_TTABLE);
    if (t.dtype == LP_DT_NONE)
        lp_raise(L, LP_E_TYPE, "expected a dtype");
    lua_Integer n = luaL_len(L, i);
    if (n > LP_MAX_DIMS)
        lp_raise(L, LP_E_VALUE, "a tensor has at most %d dimensions, not %d",
                 LP_MAX_DIMS, (int)n);
    t.ndim = (int8_t)n;
    for (int k = 0; k < n; k++) {
        lua_geti(L, i, k + 1);
        t.shape[k] = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    return t;
}

/* ---- trace -------------------------------------------------------------- */
static int trace_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_trace);
    if (b) {
        lp_trace_free(b->p);
        b->p = NULL;
    }
    return 0;
}

static int trace_new(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = NULL;
    LpBox *b = lp_new_box(L, &tag_trace, "lupine.trace");
    if (lp_trace_new(&tr, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    b->p = tr;
    return 1;
}

static int trace_declare(lua_State *L)
{
    static const char *const roles[] = {"input", "parameter", "buffer", NULL};
    static const LpTraceRole role[] = {LP_TRACE_STREAM, LP_TRACE_PARAM,
                                       LP_TRACE_BUFFER};
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    LpTraceRole r = role[luaL_checkoption(L, 2, NULL, roles)];
    const char *name = luaL_checkstring(L, 3);
    LpTensor *user = lp_to_tensor(L, 4), *standin = NULL;
    LpType type = {0};
    if (!user)
        type = check_type(L, 5);
    if (lp_trace_declare(tr, r, name, user, &type, &standin, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    lp_push_tensor(L, standin);
    return 1;
}

/* Lua file and line of the user's code that makes the call: the innermost
 * frame whose source is not part of the library. */
typedef struct Where {
    lua_State *L;
} Where;

/* The folder of the library's Lua files with its `/`, found as require does;
 * empty: nothing is ours. */
static char library[1024];

static void find_library(lua_State *L)
{
    static const char tail[] = "lupine/class.lua";
    library[0] = '\0';
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "searchpath");
    lua_pushliteral(L, "lupine.class");
    lua_getfield(L, -3, "path");
    if (lua_pcall(L, 2, 1, 0) == LUA_OK && lua_isstring(L, -1)) {
        size_t n;
        const char *path = lua_tolstring(L, -1, &n);
        if (n >= sizeof tail && n < sizeof library) {
            memcpy(library, path, n - (sizeof tail - 1));
            library[n - (sizeof tail - 1)] = '\0';
        }
    }
    lua_pop(L, 2);
}

static bool is_ours(const char *src)
{
    return *library && *src == '@' &&
           strncmp(src + 1, library, strlen(library)) == 0;
}

static void find_line(void *ctx, LpTrace *tr)
{
    lua_State *L = ctx;
    lua_Debug ar;
    LpErr e = {0};
    LpOrigin o = *lp_trace_origin(tr);
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0 && !is_ours(ar.source)) {
            o.file = *ar.source == '@' ? ar.source + 1 : ar.short_src;
            o.line = ar.currentline;
            lp_trace_set_origin(tr, &o, &e);
            return;
        }
    }
}

/* trace:start(guarded): with true, writes to captured tensors raise */
static int trace_start(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    if (lua_toboolean(L, 2))
        lp_trace_guard_captured(tr);
    find_library(L);
    lp_trace_on_call(tr, find_line, L);
    lua_pushthread(L); /* the trace looks at its stack */
    lua_setiuservalue(L, 1, 1);
    if (lp_trace_begin(tr, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    return 0;
}

static int trace_stop(lua_State *L)
{
    lp_trace_end(check_trace(L));
    return 0;
}

/* origin{block=, scope=, ipu=, stage=, phase=}: what is left out stays. */
static int trace_origin(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    LpOrigin o = *lp_trace_origin(tr);
    lua_getfield(L, 2, "block");
    o.block = luaL_optstring(L, -1, o.block);
    lua_getfield(L, 2, "scope");
    o.scope = luaL_optstring(L, -1, o.scope);
    o.ipu = (int32_t)lp_opt_int(L, 2, "ipu", o.ipu);
    o.stage = (int32_t)lp_opt_int(L, 2, "stage", o.stage);
    o.phase = (int32_t)lp_opt_int(L, 2, "phase", o.phase);
    if (lp_trace_set_origin(tr, &o, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    return 0;
}

/* ---- step --------------------------------------------------------------- */
LpStatus lp_take_trace_vars(LpTrace *tr, size_t from, LpStep *s, LpErr *e)
{
    static const LpVarRole role[] = {[LP_TRACE_STREAM] = LP_VAR_STREAM_IN,
                                     [LP_TRACE_PARAM] = LP_VAR_PARAM,
                                     [LP_TRACE_BUFFER] = LP_VAR_BUFFER,
                                     [LP_TRACE_CONSTANT] = LP_VAR_CONST};
    for (size_t i = from; i < lp_trace_n_vars(tr); i++) {
        const LpTraceVar *t = lp_trace_var(tr, i);
        LpVariable v = {.role = role[t->role],
                        .name = t->name,
                        .type = *lp_graph_type(lp_trace_graph(tr), t->input),
                        .micro_in = t->input,
                        .param = -1};
        LpVal now = lp_trace_var_now(tr, i);
        bool carried = t->role == LP_TRACE_BUFFER || t->scaled;
        if (now != t->input && carried)
            v.micro_out = now;
        LP_FAIL_IF(now != t->input && t->role == LP_TRACE_PARAM && !carried, e,
                   LP_E_POPTORCH,
                   "parameter '%s' is modified in place by forward: only "
                   "buffers may be",
                   t->name);
        if (t->role != LP_TRACE_STREAM) {
            v.data = t->user;
            LP_TRY(lp_tensor_touch(t->user, false, e));
        }
        int at = lp_step_add(s, &v, e);
        if (at < 0)
            return LP_E_MEMORY;
        if (v.data && !lp_tensor_contiguous(v.data)) {
            LpTensor *c = NULL;
            LP_TRY(lp_contiguous(v.data, &c, e));
            lp_tensor_release(s->var[at].data);
            s->var[at].data = c;
        }
    }
    return LP_OK;
}

static LpStatus add_output(LpTrace *tr, LpStep *s, LpTensor *t, int i, LpErr *e)
{
    char name[32];
    LpVal v;
    LP_TRY(lp_trace_value(tr, t, &v, e));
    snprintf(name, sizeof name, "output_%d", i);
    LpVariable out = {.role = LP_VAR_STREAM_OUT,
                      .name = name,
                      .type = lp_tensor_type(t),
                      .micro_out = v,
                      .param = -1};
    return lp_step_add(s, &out, e) < 0 ? LP_E_MEMORY : LP_OK;
}

/* Inputs that forward wrote in place come back as outputs. */
static LpStatus add_written_inputs(LpTrace *tr, LpStep *s, LpErr *e)
{
    for (size_t i = 0; i < lp_trace_n_vars(tr); i++) {
        const LpTraceVar *t = lp_trace_var(tr, i);
        LpVal now = lp_trace_var_now(tr, i);
        if (t->role != LP_TRACE_STREAM || now == t->input)
            continue;
        LpVariable out = {.role = LP_VAR_STREAM_OUT,
                          .name = t->name,
                          .type = *lp_graph_type(lp_trace_graph(tr), now),
                          .micro_out = now,
                          .param = (int)i};
        if (lp_step_add(s, &out, e) < 0)
            return LP_E_MEMORY;
    }
    return LP_OK;
}

/* The losses that feed no other loss: one look back over the nodes. */
static void push_losses(lua_State *L, LpTrace *tr, const LpGraph *g)
{
    enum { LOSS = 1, FEEDS = 2, TOLD = 4 };
    size_t n = lp_trace_n_losses(tr);
    unsigned char *is = lua_newuserdatauv(L, g->n_value, 0);
    memset(is, 0, g->n_value);
    for (size_t i = 0; i < n; i++)
        is[lp_trace_loss(tr, i)] |= LOSS;
    for (size_t k = g->n_node; k-- > 0;) {
        const LpGraphNode *d = &g->node[k];
        bool any = false;
        for (uint32_t j = 0; j < d->n_out; j++)
            any |= is[d->out + j] != 0;
        for (uint32_t j = 0; any && j < d->n_in; j++)
            if (d->in[j] != LP_NOVAL && !lp_is_imm(d->in[j]))
                is[d->in[j]] |= FEEDS;
    }
    lua_newtable(L);
    for (size_t i = 0; i < n; i++) {
        LpVal loss = lp_trace_loss(tr, i);
        if (is[loss] != LOSS)
            continue;
        is[loss] |= TOLD; /* marked before by what it is made of */
        lua_pushinteger(L, (lua_Integer)loss);
        lua_rawseti(L, -2, luaL_len(L, -2) + 1);
    }
}

/* trace:step({outputs}) -> step, {values of final losses} */
static int trace_step(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lp_trace_end(tr);
    LpBox *b = lp_new_box(L, &lp_tag_step, "lupine.step");
    LpStep *s = lp_step_new();
    b->p = s;
    lua_pushvalue(L, 1); /* it owns rules that the sweep may ask */
    lua_setiuservalue(L, -2, 1);
    if (!s)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    LpStatus st = LP_OK;
    int n = (int)luaL_len(L, 2);
    size_t before;
    do { /* a captured output may add a variable: names first, then table */
        before = lp_trace_n_vars(tr);
        for (int i = 1; i <= n && st == LP_OK; i++) {
            LpVal v;
            lua_geti(L, 2, i);
            LpTensor *t = lp_check_tensor(L, -1, "step", "outputs");
            st = lp_trace_value(tr, t, &v, &e);
            lua_pop(L, 1);
        }
    } while (st == LP_OK && before != lp_trace_n_vars(tr));
    if (st == LP_OK)
        st = lp_take_trace_vars(tr, 0, s, &e);
    for (int i = 1; i <= n && st == LP_OK; i++) {
        lua_geti(L, 2, i);
        st = add_output(tr, s, lp_to_tensor(L, -1), i, &e);
        lua_pop(L, 1);
    }
    if (st == LP_OK)
        st = add_written_inputs(tr, s, &e);
    if (st != LP_OK)
        return lp_bind_fail(L, &e);
    push_losses(L, tr, lp_trace_graph(tr));
    lp_graph_free(s->micro);
    s->micro = lp_trace_take(tr);
    lua_remove(L, -2); /* scratch */
    return 2;
}

/* trace:knows(tensor): traced, or a user's tensor that the program has met */
static int trace_knows(lua_State *L)
{
    LpTrace *tr = check_trace(L);
    LpTensor *t = lp_check_tensor(L, 2, "knows", "tensor");
    lua_pushboolean(L, t->st->flags & LP_ST_TRACED || lp_trace_find(tr, t->st));
    return 1;
}

/* trace_scales(tensor): forward may write this parameter, if one it is */
static int trace_scales(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, 1, "trace_scales", "tensor");
    if (lp_trace_current())
        lp_trace_scale(lp_trace_current(), t->st);
    return 0;
}

/* ---- registration ------------------------------------------------------- */
static const luaL_Reg trace_methods[] = {
    {"declare", trace_declare}, {"start", trace_start}, {"stop", trace_stop},
    {"origin", trace_origin},   {"step", trace_step},   {"knows", trace_knows},
    {"__gc", trace_gc},         {"__close", trace_gc},  {NULL, NULL}};

void lp_bind_trace(lua_State *L)
{
    lp_add_class(L, "lupine.trace", trace_methods);
    lua_pushcfunction(L, trace_new);
    lua_setfield(L, -2, "trace");
    lua_pushcfunction(L, trace_scales);
    lua_setfield(L, -2, "trace_scales");
}
