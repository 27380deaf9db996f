/* Tracing, steps and executors as Lua userdata. Thin on purpose: what a
 * wrapper such as poptorch.trainingModel does with them is Lua.
 *
 *   trace = core.trace()
 *   x     = trace:declare(role, name, tensor | nil, shape, dtype)
 *   trace:start()  …operators…  trace:stop()
 *   step  = trace:step({tensors that are outputs})
 *   step:complete{…}; exec = step:compile{…}; exec:run(inputs, modes)
 *
 * Variables are numbered from 1 here, as lists in Lua are. */
#include <string.h>

#include "runtime/exec/exec.h"
#include "runtime/exec/sync.h"
#include "src/autodiff/trace.h"
#include "src/base/mem.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"
#include "src/passes/compile.h"

static const char tag_trace = 't', tag_step = 's', tag_exec = 'x';

static LpBox *new_box(lua_State *L, const void *tag, const char *name)
{
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 1);
    b->tag = tag;
    b->p = NULL;
    luaL_setmetatable(L, name);
    return b;
}

static void *check(lua_State *L, int i, const void *tag, const char *what)
{
    LpBox *b = lp_to_box(L, i, tag);
    if (!b || !b->p)
        lp_raise(L, LP_E_TYPE, "expected a %s that is still open", what);
    return b->p;
}

static LpTrace *check_trace(lua_State *L)
{
    return check(L, 1, &tag_trace, "trace");
}

static LpStep *check_step(lua_State *L)
{
    return check(L, 1, &tag_step, "step");
}

/* An executor and the host tensors that mirror its variables. */
typedef struct Device {
    LpExec *x;
    LpSync *sync;
} Device;

static Device *check_device(lua_State *L)
{
    return check(L, 1, &tag_exec, "executor");
}

static LpExec *check_exec(lua_State *L)
{
    return check_device(L)->x;
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

static int64_t opt_int(lua_State *L, int t, const char *key, int64_t def)
{
    lua_getfield(L, t, key);
    int64_t v = lua_isnil(L, -1) ? def : luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    return v;
}

static const char *opt_str(lua_State *L, int t, const char *key)
{
    lua_getfield(L, t, key);
    const char *s = luaL_optstring(L, -1, "");
    lua_pop(L, 1); /* the table keeps it alive */
    return s;
}

static bool opt_bool(lua_State *L, int t, const char *key, bool def)
{
    lua_getfield(L, t, key);
    bool b = lua_isnil(L, -1) ? def : lua_toboolean(L, -1);
    lua_pop(L, 1);
    return b;
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
    LpBox *b = new_box(L, &tag_trace, "lupine.trace");
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

static bool is_ours(const char *src)
{
    return strstr(src, "/lua/torch/") || strstr(src, "/lua/poptorch/") ||
           strstr(src, "/lua/lupine/") || strstr(src, "/lua/popart/");
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

static int trace_start(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    lp_trace_on_call(tr, find_line, L);
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
    o.ipu = (int32_t)opt_int(L, 2, "ipu", o.ipu);
    o.stage = (int32_t)opt_int(L, 2, "stage", o.stage);
    o.phase = (int32_t)opt_int(L, 2, "phase", o.phase);
    if (lp_trace_set_origin(tr, &o, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    return 0;
}

/* ---- step --------------------------------------------------------------- */
static int step_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_step);
    if (b) {
        lp_step_free(b->p);
        b->p = NULL;
    }
    return 0;
}

static LpStatus take_vars(LpTrace *tr, LpStep *s, LpErr *e)
{
    static const LpVarRole role[] = {[LP_TRACE_STREAM] = LP_VAR_STREAM_IN,
                                     [LP_TRACE_PARAM] = LP_VAR_PARAM,
                                     [LP_TRACE_BUFFER] = LP_VAR_BUFFER,
                                     [LP_TRACE_CONSTANT] = LP_VAR_CONST};
    for (size_t i = 0; i < lp_trace_n_vars(tr); i++) {
        const LpTraceVar *t = lp_trace_var(tr, i);
        LpVariable v = {.role = role[t->role],
                        .name = t->name,
                        .type = *lp_graph_type(lp_trace_graph(tr), t->input),
                        .micro_in = t->input,
                        .param = -1};
        LpVal now = lp_trace_var_now(tr, i);
        if (now != t->input && t->role == LP_TRACE_BUFFER)
            v.micro_out = now;
        LP_FAIL_IF(now != t->input && t->role == LP_TRACE_PARAM, e,
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

/* The losses that feed no other loss. */
static void push_losses(lua_State *L, LpTrace *tr, const LpGraph *g)
{
    size_t n = lp_trace_n_losses(tr);
    bool *reach = lua_newuserdatauv(L, g->n_value, 0);
    lua_newtable(L);
    for (size_t i = 0; i < n; i++) {
        LpVal loss = lp_trace_loss(tr, i);
        memset(reach, 0, g->n_value);
        reach[loss] = true;
        for (size_t k = 0; k < g->n_node; k++) {
            const LpGraphNode *d = &g->node[k];
            bool any = false;
            for (uint32_t j = 0; j < d->n_in; j++)
                any |= !lp_is_imm(d->in[j]) && reach[d->in[j]];
            for (uint32_t j = 0; any && j < d->n_out; j++)
                reach[d->out + j] = true;
        }
        bool final = true;
        for (size_t k = 0; k < n; k++)
            final &=
                lp_trace_loss(tr, k) == loss || !reach[lp_trace_loss(tr, k)];
        if (final) {
            lua_pushinteger(L, (lua_Integer)loss);
            lua_rawseti(L, -2, luaL_len(L, -2) + 1);
        }
    }
}

/* trace:step({outputs}) -> step, {values of final losses} */
static int trace_step(lua_State *L)
{
    LpErr e = {0};
    LpTrace *tr = check_trace(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lp_trace_end(tr);
    LpBox *b = new_box(L, &tag_step, "lupine.step");
    LpStep *s = lp_step_new();
    b->p = s;
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
        st = take_vars(tr, s, &e);
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

static int step_vars(lua_State *L)
{
    LpStep *s = check_step(L);
    lua_createtable(L, (int)s->n_var, 0);
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        lua_createtable(L, 0, 7);
        lua_pushstring(L, lp_var_role_name(v->role));
        lua_setfield(L, -2, "role");
        lua_pushstring(L, v->name);
        lua_setfield(L, -2, "name");
        lp_push_size(L, v->type.shape, v->type.ndim);
        lua_setfield(L, -2, "shape");
        lp_push_dtype(L, v->type.dtype);
        lua_setfield(L, -2, "dtype");
        lua_pushboolean(L,
                        v->micro_out != LP_NOVAL || v->update_out != LP_NOVAL);
        lua_setfield(L, -2, "written");
        lua_pushinteger(L, v->param + 1);
        lua_setfield(L, -2, "of");
        if (v->micro_in != LP_NOVAL) {
            lua_pushboolean(L, true);
            lua_setfield(L, -2, "read");
        }
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* step:places() -> {{block=, stage=, ipu=, phase=, op=, file=, line=}, …}: the
 * places of operators in order of first use, each with its first operator. */
static int step_places(lua_State *L)
{
    const LpGraph *g = check_step(L)->micro;
    bool *seen = lua_newuserdatauv(L, g->n_origin, 0);
    memset(seen, 0, g->n_origin);
    lua_newtable(L);
    for (size_t i = 0; i < g->n_node; i++) {
        const LpOrigin *o = &g->origin[g->node[i].origin];
        if (seen[g->node[i].origin])
            continue;
        seen[g->node[i].origin] = true;
        lua_createtable(L, 0, 7);
        lua_pushstring(L, o->block);
        lua_setfield(L, -2, "block");
        lua_pushinteger(L, o->stage);
        lua_setfield(L, -2, "stage");
        lua_pushinteger(L, o->ipu);
        lua_setfield(L, -2, "ipu");
        lua_pushinteger(L, o->phase);
        lua_setfield(L, -2, "phase");
        lua_pushstring(L, g->node[i].op->name);
        lua_setfield(L, -2, "op");
        lua_pushstring(L, o->file);
        lua_setfield(L, -2, "file");
        lua_pushinteger(L, o->line);
        lua_setfield(L, -2, "line");
        lua_rawseti(L, -2, luaL_len(L, -2) + 1);
    }
    return 1;
}

/* step:add_var(role, name, tensor, param) -> index */
static int step_add_var(lua_State *L)
{
    static const char *const roles[] = {"state", "hyper", NULL};
    static const LpVarRole role[] = {LP_VAR_STATE, LP_VAR_HYPER};
    LpErr e = {0};
    LpStep *s = check_step(L);
    LpVariable v = {.role = role[luaL_checkoption(L, 2, NULL, roles)]};
    v.name = luaL_checkstring(L, 3);
    v.data = lp_check_tensor(L, 4, "add_var", "tensor");
    v.param = (int)luaL_optinteger(L, 5, 0) - 1;
    v.type = lp_tensor_type(v.data);
    int at = lp_step_add(s, &v, &e);
    if (at < 0)
        return lp_bind_fail(L, &e);
    lua_pushinteger(L, at + 1);
    return 1;
}

/* A list of variable numbers; "grad" and false stand for themselves. */
static int read_refs(lua_State *L, int t, const char *key, int *out, int cap,
                     const LpStep *s)
{
    lua_getfield(L, t, key);
    luaL_checktype(L, -1, LUA_TTABLE);
    int n = (int)luaL_len(L, -1);
    if (n > cap)
        lp_raise(L, LP_E_VALUE, "%s: at most %d entries", key, cap);
    for (int i = 0; i < n; i++) {
        lua_geti(L, -1, i + 1);
        if (lua_type(L, -1) == LUA_TSTRING) {
            out[i] = LP_RULE_GRAD;
        } else if (!lua_toboolean(L, -1)) {
            out[i] = LP_RULE_HOLE;
        } else {
            lua_Integer at = luaL_checkinteger(L, -1) - 1;
            if (at < 0 || (size_t)at >= s->n_var)
                lp_raise(L, LP_E_INDEX, "%s: no variable %d", key, (int)at + 1);
            out[i] = (int)at;
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return n;
}

/* The value on top as the attribute `key` of a form. */
static LpAttr read_attr(lua_State *L, const LpForm *f, const char *key)
{
    LpScalar v;
    LpArgKind kind = LP_ARG_STR;
    for (int i = 0; i < f->n_args; i++)
        if (strcmp(f->arg[i].name, key) == 0)
            kind = f->arg[i].kind;
    if (!lp_to_scalar(L, -1, &v))
        lp_raise(L, LP_E_TYPE, "attribute '%s' must be a number or boolean",
                 key);
    switch (kind) {
    case LP_ARG_SCALAR:
    case LP_ARG_VALUE:
        return lp_attr_scalar(v);
    case LP_ARG_FLOAT:
        return lp_attr_float(lp_scalar_f(v));
    case LP_ARG_INT:
        return lp_attr_int(lp_scalar_i(v));
    case LP_ARG_BOOL:
        return lp_attr_bool(lp_scalar_i(v) != 0);
    case LP_ARG_TENSOR:
    case LP_ARG_TENSORS:
    case LP_ARG_INTS:
    case LP_ARG_STR:
    case LP_ARG_DTYPE:
        break;
    }
    lp_raise(L, LP_E_VALUE, "%s has no numeric attribute '%s'", f->op->name,
             key);
    return LP_NONE_ATTR;
}

/* {op=, param=, in_={…}, out={…}, attrs={name=…}} -> rule */
static void read_rule(lua_State *L, int t, const LpStep *s, LpUpdateRule *r,
                      LpAttr *attr)
{
    const char *name = opt_str(L, t, "op");
    *r = (LpUpdateRule){.op = lp_op_find(name), .attr = attr};
    if (!r->op)
        lp_raise(L, LP_E_VALUE, "no operator '%s'", name);
    r->param = (int)opt_int(L, t, "param", 0) - 1;
    if (r->param < 0 || (size_t)r->param >= s->n_var)
        lp_raise(L, LP_E_INDEX, "param: no variable %d", r->param + 1);
    r->n_in = read_refs(L, t, "inputs", r->in, LP_MAX_ATTR, s);
    r->n_out = read_refs(L, t, "outputs", r->out, LP_MAX_OUT, s);
    const LpForm *f = lp_op_form(r->op);
    memcpy(attr, f->base, r->op->n_attr * sizeof *attr);
    lua_getfield(L, t, "attrs");
    if (lua_istable(L, -1)) {
        lua_pushnil(L);
        while (lua_next(L, -2)) {
            const char *key = luaL_checkstring(L, -2);
            lp_set_attr(f, attr, key, read_attr(L, f, key));
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

/* step:complete{device_iterations=, gradient_accumulation=, replicas=,
 *   mean=, loss=value, loss_scale=var, rules={…}} */
static int step_complete(lua_State *L)
{
    LpErr e = {0};
    LpStep *s = check_step(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    s->device_iterations = opt_int(L, 2, "device_iterations", 1);
    s->gradient_accumulation = opt_int(L, 2, "gradient_accumulation", 1);
    s->replicas = opt_int(L, 2, "replicas", 1);
    s->mean_reduction = opt_bool(L, 2, "mean", true);
    LpTraining t = {.loss = (LpVal)opt_int(L, 2, "loss", 0)};
    t.loss_scale = (int)opt_int(L, 2, "loss_scale", 0) - 1;
    if (t.loss) {
        lua_getfield(L, 2, "rules");
        luaL_checktype(L, -1, LUA_TTABLE);
        int rules = lua_gettop(L);
        size_t n = (size_t)luaL_len(L, rules);
        LpUpdateRule *rule = lua_newuserdatauv(L, (n + 1) * sizeof *rule, 0);
        LpAttr *attr =
            lua_newuserdatauv(L, (n + 1) * LP_MAX_ATTR * sizeof *attr, 0);
        for (size_t i = 0; i < n; i++) {
            lua_geti(L, rules, (lua_Integer)i + 1);
            read_rule(L, lua_gettop(L), s, &rule[i], attr + i * LP_MAX_ATTR);
            lua_pop(L, 1);
        }
        t.rule = rule;
        t.n_rule = (int)n;
    }
    if (lp_complete_step(s, t.loss ? &t : NULL, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    return 0;
}

/* step:text("micro" | "update") */
static int step_text(lua_State *L)
{
    static const char *const which[] = {"micro", "update", NULL};
    LpErr e = {0};
    LpStep *s = check_step(L);
    LpGraph *g = luaL_checkoption(L, 2, "micro", which) ? s->update : s->micro;
    char *text = g ? lp_graph_print(g, &e) : NULL;
    if (g && !text)
        return lp_bind_fail(L, &e);
    lua_pushstring(L, text ? text : "");
    lp_free(text);
    return 1;
}

static void device_free(Device *d)
{
    if (!d)
        return;
    lp_sync_free(d->sync);
    lp_exec_free(d->x);
    lp_free(d);
}

static int exec_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_exec);
    if (b) {
        device_free(b->p);
        b->p = NULL;
    }
    return 0;
}

/* step:compile{threads=, fuse=}: the step becomes the executor's. */
static int step_compile(lua_State *L)
{
    LpErr e = {0};
    LpStep *s = check_step(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    LpCompileOptions o = {
        .host = {.threads = (int)opt_int(L, 2, "threads", lp_num_threads()),
                 .fuse = opt_bool(L, 2, "fuse", true)}};
    LpBox *b = new_box(L, &tag_exec, "lupine.exec");
    LpProgram *p = NULL;
    Device *d = lp_calloc(1, sizeof *d);
    if (!d)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    b->p = d;
    lp_to_box(L, 1, &tag_step)->p = NULL;
    if (lp_compile_host(s, &o, &p, &e) != LP_OK ||
        lp_exec_new(p, &d->x, &e) != LP_OK ||
        lp_sync_new(d->x, &d->sync, &e) != LP_OK) {
        device_free(d);
        b->p = NULL;
        return lp_bind_fail(L, &e);
    }
    return 1;
}

/* ---- executor ----------------------------------------------------------- */
static size_t check_var(lua_State *L, int i, const LpStep *s)
{
    lua_Integer v = luaL_checkinteger(L, i) - 1;
    if (v < 0 || (size_t)v >= s->n_var)
        lp_raise(L, LP_E_INDEX, "no variable %d", (int)v + 1);
    return (size_t)v;
}

/* exec:read(var, replica from 0) -> tensor */
static int exec_read(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_exec(L);
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = check_var(L, 2, s);
    int64_t r = luaL_optinteger(L, 3, 0);
    if (r < 0 || r >= s->replicas)
        return lp_raise(L, LP_E_INDEX, "no replica %d", (int)r);
    LpTensor *t = NULL;
    LpBox *b = lp_push_box(L);
    if (lp_tensor_new(&s->var[i].type, &t, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    b->p = t;
    lp_exec_read(x, i, r, lp_tensor_data(t));
    lp_gc_account(L);
    return 1;
}

/* exec:read_into(var, tensor): overwrites the tensor's memory */
static int exec_read_into(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_exec(L);
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = check_var(L, 2, s);
    LpTensor *t = lp_check_tensor(L, 3, "read_into", "tensor");
    LpType type = lp_tensor_type(t);
    if (!lp_type_eq(&type, &s->var[i].type))
        return lp_raise(L, LP_E_RUNTIME, "variable '%s' has another type",
                        s->var[i].name);
    if (lp_tensor_contiguous(t)) {
        lp_exec_read(x, i, 0, lp_tensor_data(t));
        t->st->version++;
        return 0;
    }
    LpTensor *tmp = NULL;
    LpBox *b = lp_push_box(L);
    if (lp_tensor_new(&type, &tmp, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    b->p = tmp;
    lp_exec_read(x, i, 0, lp_tensor_data(tmp));
    bool grad = lp_grad_enabled();
    lp_set_grad_enabled(false);
    LpStatus st = lp_copy_into(t, &(LpArg){.t = tmp}, &e);
    lp_set_grad_enabled(grad);
    return st != LP_OK ? lp_bind_fail(L, &e) : 0;
}

/* A contiguous tensor of the variable's dtype at i, pushed. */
static LpTensor *check_data(lua_State *L, int i, const LpVariable *v)
{
    LpErr e = {0};
    LpTensor *t = lp_check_tensor(L, i, "write", v->name), *c = NULL;
    if (t->dtype != v->type.dtype)
        lp_raise(L, LP_E_RUNTIME, "'%s' has dtype %s, compiled for %s", v->name,
                 lp_dtype_name(t->dtype), lp_dtype_name(v->type.dtype));
    LpBox *b = lp_push_box(L);
    if (lp_tensor_touch(t, false, &e) != LP_OK ||
        lp_contiguous(t, &c, &e) != LP_OK)
        lp_bind_fail(L, &e);
    b->p = c;
    return c;
}

static int exec_write(lua_State *L)
{
    LpExec *x = check_exec(L);
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = check_var(L, 2, s);
    LpTensor *t = check_data(L, 3, &s->var[i]);
    LpType type = lp_tensor_type(t);
    if (!lp_shape_eq(&type, &s->var[i].type))
        return lp_raise(L, LP_E_RUNTIME, "variable '%s' has another shape",
                        s->var[i].name);
    lp_exec_write(x, i, lp_tensor_data(t));
    return 0;
}

/* Shape of a whole stream: dimension 0 times the slices; a value without
 * dimensions becomes one-dimensional when there are several. */
static LpType stream_type(const LpVariable *v, int64_t slices)
{
    LpType t = v->type;
    if (t.ndim == 0 && slices != 1) {
        t.ndim = 1;
        t.shape[0] = slices;
    } else if (t.ndim > 0) {
        t.shape[0] *= slices;
    }
    return t;
}

static void bind_input(lua_State *L, const LpStep *s, size_t i, LpStream *st)
{
    char a[LP_SHAPE_STR], b[LP_SHAPE_STR];
    lua_geti(L, 2, (lua_Integer)i + 1);
    LpTensor *t = check_data(L, -1, &s->var[i]);
    LpType got = lp_tensor_type(t);
    LpType want =
        stream_type(&s->var[i], s->device_iterations *
                                    s->gradient_accumulation * s->replicas);
    if (!lp_shape_eq(&got, &want))
        lp_raise(L, LP_E_RUNTIME, "input '%s' has shape %s, expected %s",
                 s->var[i].name, lp_shape_str(&got, a), lp_shape_str(&want, b));
    st->in = lp_tensor_data(t);
}

static void bind_output(lua_State *L, const LpStep *s, size_t i, LpStream *st,
                        int results)
{
    LpErr e = {0};
    lua_geti(L, 3, (lua_Integer)i + 1);
    st->mode = LP_OUT_ALL;
    st->period = 1;
    if (lua_istable(L, -1)) {
        static const char *const modes[] = {"final", "everyn", "all", "sum"};
        const char *m = opt_str(L, lua_gettop(L), "mode");
        for (int k = 0; k < 4; k++)
            if (strcmp(m, modes[k]) == 0)
                st->mode = (LpOutMode)k;
        st->period = opt_int(L, lua_gettop(L), "period", 1);
    }
    LpType t =
        stream_type(&s->var[i], lp_exec_out_slices(s, st->mode, st->period));
    LpTensor *out = NULL;
    LpBox *b = lp_push_box(L);
    if (lp_tensor_new(&t, &out, &e) != LP_OK)
        lp_bind_fail(L, &e);
    b->p = out;
    st->out = lp_tensor_data(out);
    lua_rawseti(L, results, (lua_Integer)i + 1);
}

/* exec:run({[var] = tensor}, {[var] = {mode=, period=}}) -> {[var] = tensor} */
static int exec_run(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_exec(L);
    const LpStep *s = lp_exec_program(x)->step;
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    lua_newtable(L);
    LpStream *st = lua_newuserdatauv(L, (s->n_var + 1) * sizeof *st, 0);
    luaL_checkstack(L, (int)s->n_var * 3 + 8, "too many variables");
    for (size_t i = 0; i < s->n_var; i++) {
        if (s->var[i].role == LP_VAR_STREAM_IN)
            bind_input(L, s, i, &st[i]);
        else if (s->var[i].role == LP_VAR_STREAM_OUT)
            bind_output(L, s, i, &st[i], 4);
    }
    int64_t finished = 0;
    if (lp_exec_run(x, st, &finished, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    lp_gc_account(L);
    lua_settop(L, 4);
    return 1;
}

/* exec:rng() -> seed, micro-batches; exec:rng(seed, n) sets */
static int exec_rng(lua_State *L)
{
    LpExec *x = check_exec(L);
    uint64_t st[2];
    if (!lua_isnoneornil(L, 2)) {
        st[0] = (uint64_t)luaL_checkinteger(L, 2);
        st[1] = (uint64_t)luaL_optinteger(L, 3, 0);
        lp_exec_rng_set(x, st);
    }
    lp_exec_rng_get(x, st);
    lua_pushinteger(L, (lua_Integer)st[0]);
    lua_pushinteger(L, (lua_Integer)st[1]);
    return 2;
}

/* exec:mirror(var, tensor): the host tensor is pulled when it is read */
static int exec_mirror(lua_State *L)
{
    LpErr e = {0};
    Device *d = check_device(L);
    const LpStep *s = lp_exec_program(d->x)->step;
    size_t i = check_var(L, 2, s);
    LpTensor *t = lp_check_tensor(L, 3, "mirror", "tensor");
    LpType type = lp_tensor_type(t);
    if (!lp_type_eq(&type, &s->var[i].type) || !lp_tensor_contiguous(t))
        return lp_raise(L, LP_E_RUNTIME,
                        "the host tensor of '%s' must be contiguous and of "
                        "the compiled type",
                        s->var[i].name);
    if (lp_sync_add(d->sync, i, t, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    return 0;
}

/* exec:mark(): the device's copies of mirrored variables are newer */
static int exec_mark(lua_State *L)
{
    lp_sync_mark(check_device(L)->sync);
    return 0;
}

static int exec_unmark(lua_State *L)
{
    lp_sync_clear(check_device(L)->sync);
    return 0;
}

static int exec_marked(lua_State *L)
{
    lua_pushboolean(L, lp_sync_marked(check_device(L)->sync));
    return 1;
}

static int exec_pull(lua_State *L)
{
    lp_sync_pull(check_device(L)->sync);
    return 0;
}

static int exec_pulls(lua_State *L)
{
    lua_pushinteger(L, lp_sync_pulls(check_device(L)->sync));
    return 1;
}

/* exec:stats() -> {instructions=, arena_bytes=, …} of the host program */
static int exec_stats(lua_State *L)
{
    const LpProgram *p = lp_exec_program(check_exec(L));
    lua_newtable(L);
    lua_pushinteger(L, (lua_Integer)(p->micro.n + p->update.n));
    lua_setfield(L, -2, "instructions");
    lua_pushinteger(L, (lua_Integer)p->micro.arena_bytes);
    lua_setfield(L, -2, "micro_arena_bytes");
    lua_pushinteger(L, (lua_Integer)p->update.arena_bytes);
    lua_setfield(L, -2, "update_arena_bytes");
    return 1;
}

/* ---- registration ------------------------------------------------------- */
static const luaL_Reg trace_methods[] = {
    {"declare", trace_declare}, {"start", trace_start},
    {"stop", trace_stop},       {"origin", trace_origin},
    {"step", trace_step},       {"__gc", trace_gc},
    {"__close", trace_gc},      {NULL, NULL}};

static const luaL_Reg step_methods[] = {{"vars", step_vars},
                                        {"add_var", step_add_var},
                                        {"places", step_places},
                                        {"complete", step_complete},
                                        {"text", step_text},
                                        {"compile", step_compile},
                                        {"__gc", step_gc},
                                        {"__close", step_gc},
                                        {NULL, NULL}};

static const luaL_Reg exec_methods[] = {
    {"read", exec_read},     {"read_into", exec_read_into},
    {"write", exec_write},   {"run", exec_run},
    {"rng", exec_rng},       {"stats", exec_stats},
    {"mirror", exec_mirror}, {"mark", exec_mark},
    {"marked", exec_marked}, {"unmark", exec_unmark},
    {"pull", exec_pull},     {"pulls", exec_pulls},
    {"close", exec_gc},      {"__gc", exec_gc},
    {"__close", exec_gc},    {NULL, NULL}};

static void add_class(lua_State *L, const char *name, const luaL_Reg *m)
{
    luaL_newmetatable(L, name);
    luaL_setfuncs(L, m, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

void lp_bind_compile(lua_State *L)
{
    add_class(L, "lupine.trace", trace_methods);
    add_class(L, "lupine.step", step_methods);
    add_class(L, "lupine.exec", exec_methods);
    lua_pushcfunction(L, trace_new);
    lua_setfield(L, -2, "trace");
}
