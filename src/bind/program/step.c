/* Steps from Lua; see program.h. */
#include <string.h>

#include "src/base/mem.h"
#include "src/bind/module.h"
#include "src/bind/program/program.h"
#include "src/passes/anchors.h"
#include "src/passes/compile.h"

const char lp_tag_step = 's';

size_t lp_check_var(lua_State *L, int i, const LpStep *s)
{
    lua_Integer v = luaL_checkinteger(L, i) - 1;
    if (v < 0 || (size_t)v >= s->n_var)
        lp_raise(L, LP_E_INDEX, "no variable %d", (int)v + 1);
    return (size_t)v;
}

/* ---- step --------------------------------------------------------------- */
/* A step that may still be changed. */
static LpStep *check_open(lua_State *L)
{
    LpStep *s = lp_check_step(L);
    if (s->complete)
        lp_raise(L, LP_E_RUNTIME, "this step is complete and cannot change");
    return s;
}

static int step_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &lp_tag_step);
    if (b) {
        lp_step_release(b->p);
        b->p = NULL;
    }
    return 0;
}

static int step_vars(lua_State *L)
{
    LpStep *s = lp_check_step(L);
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

static void push_name(void *ctx, const char *prefix, const char *name)
{
    lua_State *L = ctx;
    lua_pushfstring(L, "%s%s", prefix, name);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

/* step:names() -> {names that anchors of such a step may have} */
static int step_names(lua_State *L)
{
    const LpStep *s = lp_check_step(L);
    lua_newtable(L);
    lp_each_name(s, push_name, L);
    return 1;
}

/* step:places() -> {{block=, stage=, ipu=, phase=, scope=, backward=, op=,
 * file=, line=}, …}: the places of operators in order of first use, each with
 * its first operator. */
static int step_places(lua_State *L)
{
    const LpGraph *g = lp_check_step(L)->micro;
    bool *seen = lua_newuserdatauv(L, g->n_origin, 0);
    memset(seen, 0, g->n_origin);
    lua_newtable(L);
    for (size_t i = 0; i < g->n_node; i++) {
        const LpOrigin *o = &g->origin[g->node[i].origin];
        if (seen[g->node[i].origin])
            continue;
        seen[g->node[i].origin] = true;
        lua_createtable(L, 0, 9);
        lua_pushstring(L, o->scope);
        lua_setfield(L, -2, "scope");
        lua_pushboolean(L, o->backward);
        lua_setfield(L, -2, "backward");
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
    LpStep *s = check_open(L);
    LpVariable v = {.role = role[luaL_checkoption(L, 2, NULL, roles)]};
    v.name = luaL_checkstring(L, 3);
    v.data = lp_check_tensor(L, 4, "add_var", "tensor");
    v.param = (int)luaL_optinteger(L, 5, 0) - 1;
    v.type = lp_tensor_type(v.data);
    if (v.param >= 0 && (size_t)v.param < s->n_var &&
        s->var[v.param].group.kind != LP_GROUP_ALL && v.type.ndim > 0)
        lp_type_drop_first(&v.type); /* of groups, as the parameter's */
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
    case LP_ARG_GRAPH:
        break;
    }
    lp_raise(L, LP_E_VALUE, "%s has no numeric attribute '%s'", f->op->name,
             key);
    return LP_NONE_ATTR;
}

/* {op=, param=, inputs={…}, outputs={…}, count=, accum=dtype, attrs={name=…}}
 * -> rule */
static void read_rule(lua_State *L, int t, const LpStep *s, LpUpdateRule *r,
                      LpAttr *attr)
{
    const char *name = lp_opt_str(L, t, "op");
    *r = (LpUpdateRule){.op = lp_op_find(name), .attr = attr};
    if (!r->op)
        lp_raise(L, LP_E_VALUE, "no operator '%s'", name);
    r->param = (int)lp_opt_int(L, t, "param", 0) - 1;
    if (r->param < 0 || (size_t)r->param >= s->n_var)
        lp_raise(L, LP_E_INDEX, "param: no variable %d", r->param + 1);
    r->n_in = read_refs(L, t, "inputs", r->in, LP_MAX_ATTR, s);
    r->n_out = read_refs(L, t, "outputs", r->out, LP_MAX_OUT, s);
    r->count = (int)lp_opt_int(L, t, "count", 0) - 1;
    if (r->count >= (int)s->n_var)
        lp_raise(L, LP_E_INDEX, "count: no variable %d", r->count + 1);
    lua_getfield(L, t, "accum");
    r->accum = lua_isnil(L, -1) ? LP_DT_NONE : lp_to_dtype(L, -1);
    lua_pop(L, 1);
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

static int opt_var(lua_State *L, const char *key, const LpStep *s)
{
    int64_t at = lp_opt_int(L, 2, key, 0) - 1;
    if (at < -1 || at >= (int64_t)s->n_var)
        lp_raise(L, LP_E_INDEX, "%s: no variable %lld", key, (long long)at + 1);
    return (int)at;
}

static bool *numeric(LpNumerics *n, const char *name)
{
#define LP_NUMERIC(own)                                                        \
    if (strcmp(name, #own) == 0)                                               \
        return &n->own;
    LP_NUMERICS(LP_NUMERIC)
#undef LP_NUMERIC
    return NULL;
}

/* numerics = {stochastic=, half_partials=, trap=}, booleans, false if left
 * out */
static LpNumerics read_numerics(lua_State *L, int t)
{
    LpNumerics n = {0};
    if (lua_getfield(L, t, "numerics") == LUA_TNIL) {
        lua_pop(L, 1);
        return n;
    }
    luaL_checktype(L, -1, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const char *name =
            lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        bool *to = numeric(&n, name);
        if (!to || !lua_isboolean(L, -1)) {
            name = luaL_tolstring(L, -2, NULL);
            const char *value = luaL_tolstring(L, -2, NULL);
            lp_raise(L, LP_E_VALUE,
                     "numerics: got %s = %s. Allowed: stochastic, "
                     "half_partials, trap, each true or false",
                     name, value);
        }
        *to = lua_toboolean(L, -1);
    }
    lua_pop(L, 1);
    return n;
}

/* rules = {…} of the table at index 2; what the training points to is left on
 * the stack. */
static void read_rules(lua_State *L, const LpStep *s, LpTraining *t)
{
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
    t->rule = rule;
    t->n_rule = (int)n;
}

/* anchors = {names}; the list stays on the stack, its strings in the table. */
static void read_anchors(lua_State *L, LpCompileSpec *spec)
{
    if (lua_getfield(L, 2, "anchors") == LUA_TNIL)
        return;
    luaL_checktype(L, -1, LUA_TTABLE);
    int names = lua_gettop(L), n = (int)luaL_len(L, names);
    const char **list = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *list, 0);
    for (int i = 0; i < n; i++) {
        if (lua_geti(L, names, i + 1) != LUA_TSTRING)
            lp_raise(L, LP_E_TYPE, "anchors: expected names, got a %s",
                     luaL_typename(L, -1));
        list[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    spec->anchor = list;
    spec->n_anchor = n;
}

/* step:complete{device_iterations=, gradient_accumulation=, replicas=,
 *   mean=, running=, numerics={…}, loss=value, loss_scale=var, max_norm=var,
 *   rules={…}, anchors={names}, names=boolean} */
static int step_complete(lua_State *L)
{
    LpErr e = {0};
    LpStep *s = check_open(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    LpCompileSpec spec = {
        .device_iterations = lp_opt_int(L, 2, "device_iterations", 1),
        .gradient_accumulation = lp_opt_int(L, 2, "gradient_accumulation", 1),
        .replicas = lp_opt_int(L, 2, "replicas", 1),
        .mean = lp_opt_bool(L, 2, "mean", true),
        .numerics = read_numerics(L, 2),
        .name_values = lp_opt_bool(L, 2, "names", false)};
    int64_t loss = lp_opt_int(L, 2, "loss", 0);
    if (loss < 0 || loss >= (int64_t)s->micro->n_value)
        return lp_raise(L, LP_E_INDEX, "loss: no value %lld", (long long)loss);
    LpTraining t = {.loss = (LpVal)loss};
    t.loss_scale = opt_var(L, "loss_scale", s);
    t.max_norm = opt_var(L, "max_norm", s);
    t.running = spec.mean && lp_opt_bool(L, 2, "running", false);
    if (t.loss) {
        read_rules(L, s, &t);
        spec.training = &t;
    }
    read_anchors(L, &spec);
    lua_State *was = lp_functions_enter(L, s);
    LpStatus st = lp_complete_step(s, &spec, &e);
    lp_functions_leave(was);
    if (st != LP_OK)
        return lp_bind_fail(L, &e);
    return 0;
}

/* A list of variable numbers at stack index i, as a userdata of ints. */
static int *read_list(lua_State *L, int i, const LpStep *s, int *n)
{
    luaL_checktype(L, i, LUA_TTABLE);
    *n = (int)luaL_len(L, i);
    int *list = lua_newuserdatauv(L, ((size_t)*n + 1) * sizeof *list, 0);
    for (int k = 0; k < *n; k++) {
        lua_geti(L, i, k + 1);
        list[k] = (int)lp_check_var(L, lua_gettop(L), s);
        lua_pop(L, 1);
    }
    return list;
}

/* step:gradients({outputs}, {cotangent inputs}, {wrt}) -> first new variable */
static int step_gradients(lua_State *L)
{
    LpErr e = {0};
    LpStep *s = check_open(L);
    int n_out, n_cot, n_wrt, first = 0;
    int *out = read_list(L, 2, s, &n_out);
    int *cot = read_list(L, 3, s, &n_cot);
    int *wrt = read_list(L, 4, s, &n_wrt);
    if (n_out != n_cot)
        return lp_raise(L, LP_E_VALUE, "%d outputs but %d cotangents", n_out,
                        n_cot);
    lua_State *was = lp_functions_enter(L, s);
    LpStatus st = lp_step_gradients(s, out, cot, n_out, wrt, n_wrt, &first, &e);
    lp_functions_leave(was);
    if (st != LP_OK)
        return lp_bind_fail(L, &e);
    lua_pushinteger(L, first + 1);
    return 1;
}

/* step:text("micro" | "update" | "step"): a graph ("" if there is none), or
 * all of a complete step, which core.step_parse reads */
static int step_text(lua_State *L)
{
    static const char *const which[] = {"micro", "update", "step", NULL};
    LpErr e = {0};
    const LpStep *s = lp_check_step(L);
    int what = luaL_checkoption(L, 2, "micro", which);
    const LpGraph *g = what == 1 ? s->update : s->micro;
    LpBox *text = lp_new_text(L);
    if (what == 2)
        text->p = lp_step_print(s, &e);
    else if (g)
        text->p = lp_graph_print(g, &e);
    if (e.code != LP_OK)
        return lp_bind_fail(L, &e);
    lp_push_text(L, text);
    return 1;
}

/* step_parse(text) -> step; its variables have no data yet */
static int step_parse(lua_State *L)
{
    LpErr e = {0};
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    if (strlen(text) != n)
        return lp_raise(L, LP_E_PARSE, "a step's text has no byte 0");
    LpBox *b = lp_new_box(L, &lp_tag_step, "lupine.step");
    LpStep *s = NULL;
    if (lp_step_parse(text, &s, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    b->p = s;
    return 1;
}

static LpHostOptions read_host_options(lua_State *L, int t)
{
    LpHostOptions o = lp_host_options();
    o.threads = (int)lp_opt_int(L, t, "threads", o.threads);
    o.fuse = lp_opt_bool(L, t, "fuse", o.fuse);
    o.epilogues = lp_opt_bool(L, t, "epilogues", o.epilogues);
    o.pack = lp_opt_bool(L, t, "packed", o.pack);
    o.weight_layouts = lp_opt_bool(L, t, "weight_layouts", o.weight_layouts);
    o.embedding_hoist = lp_opt_bool(L, t, "embedding_hoist", o.embedding_hoist);
    o.fast = lp_opt_bool(L, t, "winograd", o.fast);
    o.remat = (uint64_t)lp_opt_int(L, t, "remat", (int64_t)o.remat);
    if (!lp_opt_bool(L, t, "blocked", true))
        o.block = 0;
    return o;
}

/* step:compile{threads=, fuse=, epilogues=, blocked=, packed=,
 * weight_layouts=, winograd=, embedding_hoist=, remat=} -> executor. `remat`:
 * bytes of a micro-batch's values from which on cheap ones are made again. */
static int step_compile(lua_State *L)
{
    LpErr e = {0};
    const LpStep *s = lp_check_step(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    LpHostOptions o = read_host_options(L, 2);
    LpBox *b = lp_new_box(L, &lp_tag_exec, "lupine.exec");
    LpProgram *p = NULL;
    LpExecBox *d = lp_calloc(1, sizeof *d);
    if (!d)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    b->p = d;
    if (lp_compile_host(s, &o, &p, &e) != LP_OK ||
        lp_exec_new(p, lp_comm_alone(), &d->x, &e) != LP_OK ||
        lp_sync_new(d->x, false, &d->sync, &e) != LP_OK ||
        lp_sync_new(d->x, true, &d->state, &e) != LP_OK) {
        lp_exec_box_free(d);
        b->p = NULL;
        return lp_bind_fail(L, &e);
    }
    return 1;
}

static const luaL_Reg step_methods[] = {{"vars", step_vars},
                                        {"names", step_names},
                                        {"add_var", step_add_var},
                                        {"places", step_places},
                                        {"gradients", step_gradients},
                                        {"complete", step_complete},
                                        {"text", step_text},
                                        {"compile", step_compile},
                                        {"__gc", step_gc},
                                        {"__close", step_gc},
                                        {NULL, NULL}};

void lp_bind_step(lua_State *L)
{
    lp_add_class(L, "lupine.step", step_methods);
    lua_pushcfunction(L, step_parse);
    lua_setfield(L, -2, "step_parse");
}
