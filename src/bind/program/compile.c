/* What steps are compiled with, from tables: rules of optimizers, anchors,
 * options of the host; and the programs that come of it. */
#include <string.h>

#include "src/base/mem.h"
#include "src/bind/module.h"
#include "src/bind/program/scaling.h"
#include "src/bind/program/simulation.h"
#include "src/passes/compile.h"

/* ---- what fixes values --------------------------------------------------- */
/* What a spec points to. */
typedef struct Parts {
    LpTraining training;
    LpScaling scaling;
    LpCotangents cotangents;
} Parts;

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
    default:
        lp_raise(L, LP_E_VALUE, "%s has no numeric attribute '%s'", f->op->name,
                 key);
        return LP_NONE_ATTR;
    }
}

int lp_opt_var(lua_State *L, int t, const char *key, int least, const LpStep *s)
{
    int64_t at = lp_opt_int(L, t, key, 0) - 1;
    if (at < least || at >= (int64_t)s->n_var)
        lp_raise(L, LP_E_INDEX, "%s: no variable %lld", key, (long long)at + 1);
    return (int)at;
}

/* clips = "gradient", …; gradient if left out */
static LpClip read_clip(lua_State *L, int t)
{
#define LP_CLIP_NAME(name) #name,
    static const char *const names[] = {LP_CLIPS(LP_CLIP_NAME)};
#undef LP_CLIP_NAME
    const char *given = lp_opt_str(L, t, "clips");
    if (given[0] == '\0')
        return LP_CLIP_gradient;
    int at = 0;
    while (at < LP_N_CLIP && strcmp(names[at], given) != 0)
        at++;
    if (at == LP_N_CLIP)
        lp_raise(L, LP_E_VALUE,
                 "clips: got '%s'. Allowed: gradient, sum, decayed, velocity, "
                 "gathered",
                 given);
    return (LpClip)at;
}

/* first = {op=, inputs={…}, output=} */
static void read_first(lua_State *L, int t, const LpStep *s, LpUpdateRule *r)
{
    if (lua_getfield(L, t, "first") == LUA_TTABLE) {
        int at = lua_gettop(L);
        const char *name = lp_opt_str(L, at, "op");
        r->first_op = lp_op_find(name);
        if (!r->first_op)
            lp_raise(L, LP_E_VALUE, "no operator '%s'", name);
        r->n_first = read_refs(L, at, "inputs", r->first, LP_MAX_IN, s);
        r->first_out = lp_opt_var(L, at, "output", 0, s);
    }
    lua_pop(L, 1);
}

/* {op=, param=, inputs={…}, outputs={…}, count=, first={…}, accum=dtype,
 * max_norm=, clips=, attrs={name=…}} -> rule */
static void read_rule(lua_State *L, int t, const LpStep *s, LpUpdateRule *r,
                      LpAttr *attr)
{
    const char *name = lp_opt_str(L, t, "op");
    *r = (LpUpdateRule){.op = lp_op_find(name), .attr = attr};
    if (!r->op)
        lp_raise(L, LP_E_VALUE, "no operator '%s'", name);
    r->param = lp_opt_var(L, t, "param", 0, s);
    r->n_in = read_refs(L, t, "inputs", r->in, LP_MAX_ATTR, s);
    r->n_out = read_refs(L, t, "outputs", r->out, LP_MAX_OUT, s);
    r->count = lp_opt_var(L, t, "count", -1, s);
    read_first(L, t, s, r);
    r->max_norm = lp_opt_var(L, t, "max_norm", -1, s);
    r->clip = read_clip(L, t);
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

static bool *numeric(LpNumerics *n, const char *name)
{
#define LP_NUMERIC(own)                                                        \
    if (strcmp(name, #own) == 0)                                               \
        return &n->own;
    LP_NUMERICS(LP_NUMERIC)
#undef LP_NUMERIC
    return NULL;
}

/* numerics = {stochastic=, half_partials=, half_statistics=, trap=}, booleans,
 * false if left out */
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
                     "half_partials, half_statistics, trap, each true or "
                     "false",
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

/* List k of the table on top, of variable numbers; it stays below the table. */
static int *read_list(lua_State *L, int k, const LpStep *s, int *n)
{
    lua_geti(L, -1, k);
    luaL_checktype(L, -1, LUA_TTABLE);
    *n = (int)luaL_len(L, -1);
    int *list = lua_newuserdatauv(L, ((size_t)*n + 1) * sizeof *list, 0);
    for (int i = 0; i < *n; i++) {
        lua_geti(L, -2, i + 1);
        list[i] = (int)lp_check_var(L, lua_gettop(L), s);
        lua_pop(L, 1);
    }
    lua_replace(L, -2);
    lua_insert(L, -2);
    return list;
}

/* gradients = {outputs, cotangents, inputs or parameters}, lists of variables,
 * which stay on the stack. */
static void read_gradients(lua_State *L, const LpStep *s, LpCompileSpec *spec,
                           LpCotangents *c)
{
    int n;
    if (lua_getfield(L, 2, "gradients") == LUA_TNIL)
        return;
    luaL_checktype(L, -1, LUA_TTABLE);
    c->out = read_list(L, 1, s, &c->n_out);
    c->cotangent = read_list(L, 2, s, &n);
    c->wrt = read_list(L, 3, s, &c->n_wrt);
    if (c->n_out != n)
        lp_raise(L, LP_E_VALUE, "gradients: %d outputs but %d cotangents",
                 c->n_out, n);
    spec->cotangents = c;
}

/* A name, or {name=, final=true}; the string stays in the table. */
static LpAsked read_anchor(lua_State *L, int names, int i)
{
    LpAsked a = {0};
    int top = lua_gettop(L);
    if (lua_geti(L, names, i) == LUA_TTABLE) {
        lua_getfield(L, -1, "final");
        a.final = lua_toboolean(L, -1);
        lua_getfield(L, top + 1, "name");
    }
    if (lua_type(L, -1) != LUA_TSTRING)
        lp_raise(L, LP_E_TYPE, "anchors: expected names, got a %s",
                 luaL_typename(L, -1));
    a.name = lua_tostring(L, -1);
    lua_settop(L, top);
    return a;
}

/* anchors = {names}; the list stays on the stack. */
static void read_anchors(lua_State *L, LpCompileSpec *spec)
{
    if (lua_getfield(L, 2, "anchors") == LUA_TNIL)
        return;
    luaL_checktype(L, -1, LUA_TTABLE);
    int names = lua_gettop(L), n = (int)luaL_len(L, names);
    LpAsked *list = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *list, 0);
    for (int i = 0; i < n; i++)
        list[i] = read_anchor(L, names, i + 1);
    spec->anchor = list;
    spec->n_anchor = n;
}

/* The table at index 2: device_iterations=, gradient_accumulation=, replicas=,
 * mean=, running=, early=, numerics={…}, loss=value, loss_scale=var,
 * scaling={…}, gathered=var, rules={…}, gradients={…}, anchors={names},
 * names=boolean. What is in `of` belongs to the spec; what all point to stays
 * on the stack. */
static LpCompileSpec read_spec(lua_State *L, const LpStep *s, Parts *of)
{
    LpTraining *t = &of->training;
    static const char *const keys[] = {"device_iterations",
                                       "gradient_accumulation",
                                       "replicas",
                                       "mean",
                                       "running",
                                       "early",
                                       "numerics",
                                       "loss",
                                       "loss_scale",
                                       "scaling",
                                       "gathered",
                                       "gradients",
                                       "rules",
                                       "anchors",
                                       "names",
                                       "system",
                                       "host",
                                       "progress",
                                       NULL};
    lp_check_keys(L, 2, "compile", keys);
    LpCompileSpec spec = {
        .device_iterations = lp_opt_int(L, 2, "device_iterations", 1),
        .gradient_accumulation = lp_opt_int(L, 2, "gradient_accumulation", 1),
        .topology = {.replicas = lp_opt_int(L, 2, "replicas", 1)},
        .mean = lp_opt_bool(L, 2, "mean", true),
        .numerics = read_numerics(L, 2),
        .name_values = lp_opt_bool(L, 2, "names", false)};
    int64_t loss = lp_opt_int(L, 2, "loss", 0);
    if (loss < 0 || loss >= (int64_t)s->micro->n_value)
        lp_raise(L, LP_E_INDEX, "loss: no value %lld", (long long)loss);
    *t = (LpTraining){.loss = (LpVal)loss};
    t->loss_scale = lp_opt_var(L, 2, "loss_scale", -1, s);
    t->gathered = lp_opt_var(L, 2, "gathered", -1, s);
    t->running = spec.mean && lp_opt_bool(L, 2, "running", false);
    t->early = spec.mean && lp_opt_bool(L, 2, "early", false);
    if (t->loss) {
        t->scaling = lp_read_scaling(L, s, t->loss_scale >= 0, &of->scaling);
        read_rules(L, s, t);
        spec.training = t;
    }
    read_gradients(L, s, &spec, &of->cotangents);
    read_anchors(L, &spec);
    return spec;
}

/* step:complete{…}: read_spec */
int lp_step_complete(lua_State *L)
{
    LpErr e = {0};
    Parts of;
    LpStep *s = lp_check_open_step(L);
    LpCompileSpec spec = read_spec(L, s, &of);
    lua_State *was = lp_functions_enter(L, s);
    LpStatus st = lp_complete_step(s, &spec, &e);
    lp_functions_leave(was);
    lp_must(L, st, &e);
    return 0;
}

/* ---- how the host runs it ------------------------------------------------ */
static LpHostOptions read_host_options(lua_State *L, int t)
{
    static const char *const keys[] = {
        "threads",         "fuse",     "epilogues", "packed",  "weight_layouts",
        "embedding_hoist", "winograd", "remat",     "blocked", NULL};
    LpHostOptions o = lp_host_options();
    lp_check_keys(L, t, "host", keys);
    int64_t threads = lp_opt_int(L, t, "threads", o.threads);
    if (threads < 1 || threads > LP_MAX_THREADS)
        lp_raise(L, LP_E_VALUE, "threads: expected 1..%d, got %lld",
                 LP_MAX_THREADS, (long long)threads);
    o.threads = (int)threads;
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

/* ---- programs ------------------------------------------------------------ */
LP_BOX_FREE(free_program, lp_program_free)
static const LpBoxClass program_class = {"lupine.program", "program",
                                         free_program};

/* An executor of *p, which is taken over, also when this raises. */
static int push_exec(lua_State *L, LpBox *b, LpProgram *p)
{
    LpErr e = {0};
    LpExecBox *d = b->p = lp_calloc(1, sizeof *d);
    if (!d) {
        lp_program_free(p);
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    }
    lp_must(L, lp_exec_new(p, lp_comm_alone(), &d->x, &e), &e);
    lp_must(L, lp_sync_new(d->x, false, &d->sync, &e), &e);
    lp_must(L, lp_sync_new(d->x, true, &d->state, &e), &e);
    return 1;
}

/* program:executor() -> executor; variables with data start with what it is
 * now. Only once. */
static int program_executor(lua_State *L)
{
    LpProgram *p = lp_check_box(L, 1, &program_class);
    LpBox *b = lp_new_box(L, &lp_exec_class);
    lp_to_box(L, 1, &program_class)->p = NULL;
    return push_exec(L, b, p);
}

/* step:compile{threads=, fuse=, epilogues=, blocked=, packed=,
 * weight_layouts=, winograd=, embedding_hoist=, remat=} -> executor. `remat`:
 * bytes of a micro-batch's values from which on cheap ones are made again. */
int lp_step_compile(lua_State *L)
{
    LpErr e = {0};
    const LpStep *s = lp_check_step(L);
    LpHostOptions o = read_host_options(L, 2);
    LpBox *b = lp_new_box(L, &lp_exec_class);
    LpProgram *p = NULL;
    lp_must(L, lp_compile_host(s, NULL, &o, &p, &e), &e);
    return push_exec(L, b, p);
}

/* ---- all of it ----------------------------------------------------------- */
/* core.compile(step, {…, system={…}, host={…}}) -> plan, program: what
 * step:complete, core.plan and step:compile take in one table. Without `system`
 * the plan is a closed one. (A placement
 * names places of the completed step: core.plan.) */
/* Calls progress(part), of the table at 2; what it raises is dropped. */
static void call_progress(void *ctx, const char *part)
{
    lua_State *L = ctx;
    int top = lua_gettop(L);
    lua_getfield(L, 2, "progress");
    lua_pushstring(L, part);
    lua_pcall(L, 1, 0, 0);
    lua_settop(L, top);
}

static int compile(lua_State *L)
{
    LpErr e = {0};
    Parts of;
    LpCompiled made;
    LpStep *s = lp_check_open_step(L);
    luaL_checkstack(L, 40, NULL);
    LpCompileSpec spec = read_spec(L, s, &of);
    LpIpuOptions ipu;
    if (lua_getfield(L, 2, "system") != LUA_TNIL) {
        ipu = lp_read_ipu_options(L, lua_gettop(L));
        spec.ipu = &ipu;
    }
    lua_getfield(L, 2, "host");
    LpHostOptions host = read_host_options(L, lua_gettop(L));
    spec.host = &host;
    if (lua_getfield(L, 2, "progress") == LUA_TFUNCTION) {
        spec.progress = call_progress;
        spec.progress_ctx = L;
    }
    LpBox *plan = lp_new_plan(L);
    LpBox *program = lp_new_box(L, &program_class);
    lua_State *was = lp_functions_enter(L, s);
    LpStatus st = lp_compile(s, &spec, &made, &e);
    lp_functions_leave(was);
    plan->p = made.plan;
    program->p = made.program;
    lp_must(L, st, &e);
    return 2;
}

/* core.lower(step, {host={…}}) -> program: of a complete step, the half of
 * core.compile that is this machine's. */
static int lower(lua_State *L)
{
    LpErr e = {0};
    LpProgram *p = NULL;
    LpStep *s = lp_check_step(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "host");
    LpHostOptions host = read_host_options(L, lua_gettop(L));
    LpBox *b = lp_new_box(L, &program_class);
    lp_must(L, lp_compile_host(s, NULL, &host, &p, &e), &e);
    b->p = p;
    return 1;
}

static const luaL_Reg program_methods[] = {{"executor", program_executor},
                                           {NULL, NULL}};

void lp_bind_compile(lua_State *L)
{
    lp_add_class(L, &program_class, program_methods);
    lp_set_function(L, "compile", compile);
    lp_set_function(L, "lower", lower);
}
