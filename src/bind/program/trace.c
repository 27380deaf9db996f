/* Traces from Lua; see program.h. */
#include <string.h>

#include "src/bind/module.h"
#include "src/bind/program/program.h"

LP_BOX_FREE(trace_free, lp_trace_free)
static const LpBoxClass trace_class = {"lupine.trace", "trace", trace_free};

static LpTrace *check_trace(lua_State *L)
{
    LpTrace *tr = lp_check_box(L, 1, &trace_class);
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
static int trace_new(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = NULL;
    LpBox *b = lp_new_box(L, &trace_class);
    lp_must(L, lp_trace_new(&tr, &e), &e);
    b->p = tr;
    return 1;
}

/* {kind, size, each} at i */
static LpGroup check_group(lua_State *L, int i)
{
    luaL_checktype(L, i, LUA_TTABLE);
    lua_geti(L, i, 1);
    lua_geti(L, i, 2);
    lua_geti(L, i, 3);
    LpGroup g = {
        .kind = (LpGroupKind)luaL_checkoption(L, -3, NULL, lp_group_kind_names),
        .size = luaL_optinteger(L, -2, 0),
        .each = lua_toboolean(L, -1)};
    lua_pop(L, 3);
    return g;
}

/* trace:declare(role, name, tensor | nil, shape, dtype) -> stand-in;
 * trace:declare("parameter", name, tensor, group) */
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
    LpGroup g = {0};
    if (!user)
        type = check_type(L, 5);
    else if (r == LP_TRACE_PARAM && !lua_isnoneornil(L, 5))
        g = check_group(L, 5);
    LpStatus st =
        g.kind == LP_GROUP_ALL
            ? lp_trace_declare(tr, r, name, user, &type, &standin, &e)
            : lp_trace_declare_grouped(tr, name, user, g, &standin, &e);
    lp_must(L, st, &e);
    lp_push_tensor(L, standin);
    return 1;
}

/* What is no user's code while a trace runs. The strings stand on its stack. */
typedef struct Excluded {
    lua_State *L;
    const char *library; /* the folder of our Lua files with its `/` */
    size_t n_library;    /* 0: they count as the user's */
    const char *texts; /* sources that hold one of these, one after another, an
                          empty one behind the last */
} Excluded;

static bool is_excluded(const Excluded *x, const char *src)
{
    if (x->n_library > 0 && *src == '@' &&
        strncmp(src + 1, x->library, x->n_library) == 0)
        return true;
    for (const char *s = x->texts; *s; s += strlen(s) + 1)
        if (strstr(src, s))
            return true;
    return false;
}

/* trace:excludes({texts}, library): frames of sources that hold one of them do
 * not count as the place of a call, nor, with `library`, those of our files. */
static int trace_excludes(lua_State *L)
{
    check_trace(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_Buffer b;
    lua_Integer n = luaL_len(L, 2);
    luaL_buffinit(L, &b);
    luaL_addchar(&b, lua_toboolean(L, 3) ? '+' : '-');
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, 2, i);
        if (lua_rawlen(L, -1) > 0) {
            luaL_addvalue(&b);
            luaL_addchar(&b, '\0');
        } else {
            lua_pop(L, 1);
        }
    }
    luaL_pushresult(&b);
    lua_setiuservalue(L, 1, 1);
    return 0;
}

/* Pushes the path of one of the library's Lua files, found as require does. */
static void push_library(lua_State *L, Excluded *x)
{
    static const char tail[] = "lupine/base/class.lua";
    size_t n = 0;
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "package"); /* a script may have a global of the name */
    lua_getfield(L, -1, "searchpath");
    lua_pushliteral(L, "lupine.base.class");
    lua_getfield(L, -3, "path");
    if (lua_pcall(L, 2, 1, 0) == LUA_OK)
        x->library = lua_tolstring(L, -1, &n);
    lua_replace(L, -3);
    lua_pop(L, 1);
    x->n_library = n >= sizeof tail ? n - (sizeof tail - 1) : 0;
}

/* Of the trace at 1, without a list our files alone; pushes two values. */
static void push_excluded(lua_State *L, Excluded *x)
{
    *x = (Excluded){.L = L};
    lua_getiuservalue(L, 1, 1);
    const char *texts = lua_isnil(L, -1) ? "+" : lua_tostring(L, -1);
    x->texts = texts + 1;
    if (*texts == '+')
        push_library(L, x);
    else
        lua_pushnil(L);
}

static int trace_run(lua_State *L);

/* Is it the frame of the trace itself? */
static bool is_run(lua_State *L, lua_Debug *ar)
{
    if (*ar->what != 'C')
        return false;
    lua_getinfo(L, "f", ar);
    bool is = lua_tocfunction(L, -1) == trace_run;
    lua_pop(L, 1);
    return is;
}

/* Lua file and line of the user's code that makes the call: the innermost
 * frame whose source is not excluded. */
static void find_line(void *ctx, LpTrace *tr)
{
    const Excluded *x = ctx;
    lua_State *L = x->L;
    lua_Debug ar;
    LpErr e = {0};
    LpOrigin o = *lp_trace_origin(tr);
    bool outside = false;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        outside |= is_run(L, &ar);
        if (ar.currentline > 0 && !is_excluded(x, ar.source)) {
            o.file = *ar.source == '@' ? ar.source + 1 : ar.short_src;
            o.line = ar.currentline;
            lp_trace_set_origin(tr, &o, &e);
            lp_trace_set_outside(tr, outside);
            return;
        }
    }
}

/* The error on top, of a function that was traced. */
static int traced_error(lua_State *L)
{
    const char *text =
        lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    if (strstr(text, "attempt to yield across"))
        return lp_raise(L, LP_E_RUNTIME,
                        "a function may not yield while it is traced: its "
                        "coroutine might never go on; it may resume others");
    return lua_error(L);
}

/* trace:run(guarded, f, ...) -> what f returns. However f ends, the trace has
 * ended too. With `guarded`, writes to captured tensors raise. */
static int trace_run(lua_State *L)
{
    enum { BEFORE_F = 3 }; /* the trace and what push_excluded pushes */
    LpErr e = {0};
    Excluded x;
    LpTrace *tr = check_trace(L);
    luaL_checkany(L, 3);
    if (lua_toboolean(L, 2))
        lp_trace_guard_captured(tr);
    lua_remove(L, 2);
    push_excluded(L, &x);
    lua_rotate(L, 2, 2);
    lp_must(L, lp_trace_begin(tr, &e), &e);
    lp_trace_on_call(tr, find_line, &x);
    int status = lua_pcall(L, lua_gettop(L) - BEFORE_F - 1, LUA_MULTRET, 0);
    lp_trace_on_call(tr, NULL, NULL);
    lp_trace_end(tr);
    return status == LUA_OK ? lua_gettop(L) - BEFORE_F : traced_error(L);
}

/* origin{block=, scope=, multi_conv=, outline=, ipu=, stage=, phase=}: what is
 * left out stays. */
static int trace_origin(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    LpOrigin o = *lp_trace_origin(tr);
    lua_getfield(L, 2, "block");
    o.block = luaL_optstring(L, -1, o.block);
    o.entered += lua_getfield(L, 2, "scope") != LUA_TNIL;
    o.scope = luaL_optstring(L, -1, o.scope);
    lua_getfield(L, 2, "multi_conv");
    o.multi_conv = luaL_optstring(L, -1, o.multi_conv);
    lua_getfield(L, 2, "outline");
    o.outline = luaL_optstring(L, -1, o.outline);
    o.ipu = (int32_t)lp_opt_int(L, 2, "ipu", o.ipu);
    o.stage = (int32_t)lp_opt_int(L, 2, "stage", o.stage);
    o.phase = (int32_t)lp_opt_int(L, 2, "phase", o.phase);
    lp_must(L, lp_trace_set_origin(tr, &o, &e), &e);
    return 0;
}

/* convolutions(number) -> how many of the multi-convolution there are, in the
 * body that is being traced if there is one */
static int trace_convolutions(lua_State *L)
{
    LpTrace *tr = check_trace(L), *inner = lp_trace_current();
    const LpGraph *g = lp_trace_graph(inner ? inner : tr);
    lua_Integer number = luaL_checkinteger(L, 2), n = 0;
    for (LpNodeId i = 0; i < g->n_node; i++) {
        bool forward = g->node[i].op->product == LP_PRODUCT_CONV;
        n += forward && lp_node_multi_conv(&g->origin[g->node[i].origin],
                                           &g->node[i]) == number;
    }
    lua_pushinteger(L, n);
    return 1;
}

/* ---- step --------------------------------------------------------------- */
/* The values of final losses, as a list. */
static void push_losses(lua_State *L, LpTrace *tr, LpTensor *const *out, int k)
{
    LpErr e = {0};
    size_t n = lp_trace_n_losses(tr);
    LpVal *loss = lua_newuserdatauv(L, (n + 1) * sizeof *loss, 0);
    lp_must(L, lp_trace_final_losses(tr, out, k, loss, &n, &e), &e);
    LP_PUSH_LIST(L, i, n, lua_pushinteger(L, (lua_Integer)loss[i]));
    lua_remove(L, -2); /* scratch */
}

/* trace:step({outputs}) -> step, {values of final losses} */
static int trace_step(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lp_trace_end(tr);
    LpBox *b = lp_new_box(L, &lp_step_class);
    lua_pushvalue(L, 1); /* it owns rules that the sweep may ask */
    lua_setiuservalue(L, -2, 1);
    int n;
    LpTensor **out = lp_check_tensors(L, 2, "step", "outputs", &n);
    push_losses(L, tr, out, n);
    LpStep *s = NULL;
    lp_must(L, lp_step_of_trace(tr, out, n, &s, &e), &e);
    b->p = s;
    lua_remove(L, 4); /* scratch */
    return 2;
}

/* trace:narrow(): int64 inputs came as int32, see lp_trace_narrow */
static int trace_narrow(lua_State *L)
{
    lp_trace_narrow(check_trace(L));
    return 0;
}

/* trace:tolerate(): what cannot be compiled is noted, see refused */
static int trace_tolerate(lua_State *L)
{
    lp_trace_tolerate(check_trace(L));
    return 0;
}

/* trace:refused() -> lines of "file:line: why" */
static int trace_refused(lua_State *L)
{
    lua_pushstring(L, lp_trace_refused(check_trace(L)));
    return 1;
}

/* trace:knows(tensor): traced, or a user's tensor that the program has met */
static int trace_knows(lua_State *L)
{
    LpTrace *tr = check_trace(L);
    LpTensor *t = lp_check_tensor(L, 2, "knows", "tensor");
    lua_pushboolean(L, t->st->flags & LP_ST_TRACED ||
                           lp_trace_find(tr, t->st, NULL));
    return 1;
}

/* trace:value(tensor) -> its number in the graph, as step's losses are */
static int trace_value(lua_State *L)
{
    LpErr e = {0};
    LpVal v;
    LpTrace *tr = check_trace(L);
    LpTensor *t = lp_check_tensor(L, 2, "value", "tensor");
    lp_must(L, lp_trace_value(tr, t, &v, &e), &e);
    lua_pushinteger(L, (lua_Integer)v);
    return 1;
}

/* trace:name(tensor, name): anchors find it by that, too */
static int trace_name(lua_State *L)
{
    LpErr e = {0};
    LpVal v;
    LpTrace *tr = check_trace(L);
    LpTensor *t = lp_check_tensor(L, 2, "name", "tensor");
    const char *name = luaL_checkstring(L, 3);
    lp_must(L, lp_trace_value(tr, t, &v, &e), &e);
    if (!lp_graph_add_name(lp_trace_graph(tr), v, name, &e))
        lp_bind_fail(L, &e);
    return 0;
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
static const luaL_Reg trace_methods[] = {{"declare", trace_declare},
                                         {"excludes", trace_excludes},
                                         {"run", trace_run},
                                         {"origin", trace_origin},
                                         {"step", trace_step},
                                         {"knows", trace_knows},
                                         {"convolutions", trace_convolutions},
                                         {"value", trace_value},
                                         {"name", trace_name},
                                         {"narrow", trace_narrow},
                                         {"tolerate", trace_tolerate},
                                         {"refused", trace_refused},
                                         {NULL, NULL}};

void lp_bind_trace(lua_State *L)
{
    lp_add_class(L, &trace_class, trace_methods);
    lp_set_function(L, "trace", trace_new);
    lp_set_function(L, "trace_scales", trace_scales);
}
