/* Executors from Lua; see program.h. */
#include <string.h>

#include "src/base/mem.h"
#include "src/bind/module.h"
#include "src/bind/program/host_call.h"
#include "src/bind/program/program.h"

static LpExecBox *check_device(lua_State *L)
{
    return lp_check_box(L, 1, &lp_exec_class);
}

static LpExec *check_exec(lua_State *L)
{
    return check_device(L)->x;
}

static void exec_free(LpExecBox *d)
{
    lp_sync_free(d->sync);
    lp_sync_free(d->state);
    lp_exec_free(d->x);
    lp_free(d);
}

const LpBoxClass lp_exec_class = {"lupine.exec", "executor", NULL};

static LpStatus pull_newer(LpSync *s, LpErr *e)
{
    return s && lp_sync_marked(s) ? lp_sync_pull(s, e) : LP_OK;
}

/* Only what is not being run may change: the script of a host call sees an
 * executor that is. */
static LpExec *check_idle(lua_State *L, const char *what)
{
    LpExec *x = check_exec(L);
    if (lp_exec_running(x))
        lp_raise(L, LP_E_RUNTIME,
                 "%s: the executor is running: a function of the host that "
                 "its program calls may not do this",
                 what);
    return x;
}

/* An executor that goes away leaves what it trained to the host's tensors. */
static int exec_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &lp_exec_class);
    LpExecBox *d = b ? b->p : NULL;
    LpErr e = {0};
    if (!d)
        return 0;
    if (d->x)
        check_idle(L, "close");
    b->p = NULL;
    if (pull_newer(d->sync, &e) == LP_OK && pull_newer(d->state, &e) == LP_OK &&
        d->x)
        lp_exec_let_go(d->x, &e);
    exec_free(d);
    lp_must(L, e.code, &e);
    return 0;
}

/* ---- executor ----------------------------------------------------------- */
/* exec:read(var, replica from 0) -> tensor */
static int exec_read(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_exec(L);
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = lp_check_var(L, 2, s);
    int64_t r = luaL_optinteger(L, 3, 0);
    if (r < 0 || r >= lp_exec_replicas(x))
        return lp_raise(L, LP_E_INDEX, "no replica %d", (int)r);
    LpTensor *t = lp_new_tensor(L, &s->var[i].type);
    lp_must(L, lp_exec_read(x, i, r, lp_tensor_data(t), &e), &e);
    return 1;
}

/* What the trace declared for a tensor that is a view: the whole that it is a
 * view of. */
static LpTensor *whole(LpTensor *t, const LpVariable *v)
{
    if (!t->base || !v->data || v->data->st != t->st)
        return t;
    LpType has = lp_tensor_type(v->data), all = lp_tensor_type(t->base);
    return lp_type_eq(&has, &all) ? t->base : t;
}

/* exec:read_into(var, tensor): overwrites the tensor's memory */
static int exec_read_into(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_exec(L);
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = lp_check_var(L, 2, s);
    LpTensor *t =
        whole(lp_check_tensor(L, 3, "read_into", "tensor"), &s->var[i]);
    lp_must(L, lp_sync_fits(x, i, t, &e), &e);
    bool shared = lp_exec_shares(x, i, t);
    lp_must(L, lp_tensor_touch(t, !shared, &e), &e);
    if (!shared)
        lp_must(L, lp_sync_read(x, i, t, &e), &e);
    return 0;
}

/* exec:fits(var, tensor): raises unless it has the type that was compiled */
static int exec_fits(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_exec(L);
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = lp_check_var(L, 2, s);
    LpTensor *t = lp_check_tensor(L, 3, "fits", "tensor");
    lp_must(L, lp_sync_fits(x, i, whole(t, &s->var[i]), &e), &e);
    return 0;
}

/* A contiguous tensor of the variable's dtype at i, pushed. */
static LpTensor *check_data(lua_State *L, int i, const LpVariable *v)
{
    LpErr e = {0};
    LpTensor *t = whole(lp_check_tensor(L, i, "write", v->name), v), *c = NULL;
    if (t->dtype != v->type.dtype)
        lp_raise(L, LP_E_RUNTIME, "'%s' has dtype %s, compiled for %s", v->name,
                 lp_dtype_name(t->dtype), lp_dtype_name(v->type.dtype));
    LpBox *b = lp_push_box(L);
    lp_must(L, lp_tensor_touch(t, false, &e), &e);
    lp_must(L, lp_contiguous(t, &c, &e), &e);
    b->p = c;
    return c;
}

/* exec:values(var) -> how many: one for each replica where these differ and the
 * host has one of them, else 1 */
static int exec_values(lua_State *L)
{
    const LpExec *x = check_exec(L);
    size_t i = lp_check_var(L, 2, lp_exec_program(x)->step);
    lua_pushinteger(L, lp_exec_differs(x, i) ? lp_exec_replicas(x) : 1);
    return 1;
}

/* exec:write(var, tensor, replica from 0): that one's value; without it all
 * get it */
static int exec_write(lua_State *L)
{
    LpExec *x = check_idle(L, "write");
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = lp_check_var(L, 2, s);
    int64_t r = luaL_optinteger(L, 4, -1);
    LpErr e = {0};
    if (r < -1 || r >= lp_exec_replicas(x))
        return lp_raise(L, LP_E_INDEX, "no replica %d", (int)r);
    LpTensor *t = lp_check_tensor(L, 3, "write", s->var[i].name);
    lp_must(L, lp_sync_fits(x, i, whole(t, &s->var[i]), &e), &e);
    t = check_data(L, 3, &s->var[i]);
    lp_must(L,
            r < 0 ? lp_exec_write(x, i, t, &e)
                  : lp_exec_write_one(x, i, r, lp_tensor_data(t), &e),
            &e);
    return 0;
}

/* exec:bind(var, tensor): the variable lies in the tensor from now on */
static int exec_bind(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_idle(L, "bind");
    const LpStep *s = lp_exec_program(x)->step;
    size_t i = lp_check_var(L, 2, s);
    LpTensor *t = lp_check_tensor(L, 3, "bind", "tensor");
    lp_must(L, lp_exec_bind(x, i, whole(t, &s->var[i]), &e), &e);
    return 0;
}

/* exec:bound(): every bound tensor still has the type that was compiled */
LP_GETTER(exec_bound, boolean, lp_exec_bound(check_exec(L)))

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

/* The memory of t stays, whatever a function that the program calls makes of
 * t; pushed. */
static void hold(lua_State *L, const LpTensor *t)
{
    LpErr e = {0};
    LpTensor *same = NULL;
    LpType type = lp_tensor_type(t);
    LpBox *b = lp_push_box(L);
    lp_must(L, lp_tensor_over(t->st, &type, t->strides, t->offset, &same, &e),
            &e);
    b->p = same;
}

static void bind_input(lua_State *L, const LpExec *x, size_t i, LpStream *st,
                       bool calls)
{
    const LpStep *s = lp_exec_program(x)->step;
    lua_geti(L, 2, (lua_Integer)i + 1);
    LpTensor *t = check_data(L, -1, &s->var[i]);
    LpType got = lp_tensor_type(t);
    LpType want = stream_type(&s->var[i], s->device_iterations *
                                              s->gradient_accumulation *
                                              lp_exec_replicas(x));
    if (!lp_shape_eq(&got, &want))
        lp_raise(L, LP_E_RUNTIME, "input '%s' has shape %s, expected %s",
                 s->var[i].name, lp_shape_str(&got), lp_shape_str(&want));
    if (calls)
        hold(L, t);
    st->in = lp_tensor_data(t);
}

#define NAME(name, text) text,
static const char *const modes[] = {LP_OUT_MODES(NAME) NULL};
#define LISTED(name, text) text ", "

static void bind_output(lua_State *L, const LpExec *x, size_t i, LpStream *st,
                        int results)
{
    const LpStep *s = lp_exec_program(x)->step;
    lua_geti(L, 3, (lua_Integer)i + 1);
    st->mode = LP_OUT_ALL;
    st->period = 1;
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "guard");
        st->guard = lua_toboolean(L, -1);
        lua_pop(L, 1);
        const char *m = lp_opt_str(L, lua_gettop(L), "mode");
        int mode = 0;
        while (modes[mode] && strcmp(m, modes[mode]) != 0)
            mode++;
        st->mode = (LpOutMode)mode;
        st->period = lp_opt_int(L, lua_gettop(L), "period", 1);
        if (!modes[mode] || st->period < 1)
            lp_raise(L, LP_E_VALUE,
                     "output '%s': mode '%s' with period %lld; modes "
                     "are " LP_OUT_MODES(LISTED) "periods start at 1",
                     s->var[i].name, m, (long long)st->period);
        if (st->mode == LP_OUT_EVERY_N && s->device_iterations % st->period)
            lp_raise(L, LP_E_VALUE,
                     "output '%s': the period must divide the device "
                     "iterations, got %lld and %lld",
                     s->var[i].name, (long long)st->period,
                     (long long)s->device_iterations);
    }
    LpType t =
        stream_type(&s->var[i], lp_exec_out_slices(x, st->mode, st->period));
    st->out = lp_tensor_data(lp_new_tensor(L, &t));
    lua_rawseti(L, results, (lua_Integer)i + 1);
}

/* exec:answer({[id] = f}): the functions that the program calls */
static int exec_answer(lua_State *L)
{
    LpExec *x = check_idle(L, "answer");
    luaL_checktype(L, 2, LUA_TTABLE);
    bool any = lp_check_host_functions(L, lp_exec_program(x)->micro_graph.g, 2);
    if (!any)
        lua_pushnil(L);
    lua_setiuservalue(L, 1, 1);
    return 0;
}

/* With the functions at `at`, if there are any. */
static LpStatus run(lua_State *L, LpExec *x, const LpStream *st, int at,
                    LpErr *e)
{
    LpHostFunctions f;
    int64_t finished = 0;
    if (lua_istable(L, at)) {
        lp_host_functions(L, at, &f);
        lp_exec_set_host(x, &f.calls);
    }
    LpStatus s = lp_exec_run(x, st, &finished, e);
    lp_exec_set_host(x, NULL);
    return s;
}

/* exec:run({[var] = tensor}, {[var] = {mode=, period=, guard=}})
 *     -> {[var] = tensor}, device iterations whose update was held */
static int exec_run(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_idle(L, "run");
    const LpStep *s = lp_exec_program(x)->step;
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    lua_newtable(L);
    bool calls = lua_getiuservalue(L, 1, 1) == LUA_TTABLE;
    LpStream *st = lua_newuserdatauv(L, (s->n_var + 1) * sizeof *st, 0);
    memset(st, 0, (s->n_var + 1) * sizeof *st);
    luaL_checkstack(L, (int)s->n_var * 3 + 16, "too many variables");
    for (size_t i = 0; i < s->n_var; i++) {
        if (s->var[i].role == LP_VAR_STREAM_IN)
            bind_input(L, x, i, &st[i], calls);
        else if (s->var[i].role == LP_VAR_STREAM_OUT)
            bind_output(L, x, i, &st[i], 4);
    }
    lp_must(L, lp_sync_check(check_device(L)->sync, &e), &e);
    lp_must(L, run(L, x, st, 5, &e), &e);
    lp_gc_account(L);
    lua_settop(L, 4);
    lua_pushinteger(L, lp_exec_held(x));
    return 2;
}

/* exec:share(other): both compute in one arena, never at the same time */
static int exec_share(lua_State *L)
{
    LpErr e = {0};
    LpExecBox *other = lp_check_box(L, 2, &lp_exec_class);
    lp_must(L, lp_exec_share(check_idle(L, "share"), other->x, &e), &e);
    return 0;
}

/* exec:gathers(on): the next runs end without the update */
static int exec_gathers(lua_State *L)
{
    lp_exec_set_gathers(check_idle(L, "gathers"), lua_toboolean(L, 2));
    return 0;
}

/* exec:trap(iteration from 0, share): the next run fails there */
static int exec_trap(lua_State *L)
{
    double share = luaL_checknumber(L, 3);
    luaL_argcheck(L, share >= 0 && share <= 1, 3, "0 to 1");
    lp_exec_set_trap(check_exec(L), luaL_checkinteger(L, 2), share);
    return 0;
}

/* exec:running() -> whether a function of the host is called by a run */
LP_GETTER(exec_running, boolean, lp_exec_running(check_exec(L)))
/* exec:finished() -> device iterations of the last run that took effect */
LP_GETTER(exec_finished, integer, lp_exec_finished(check_exec(L)))

/* exec:step() -> the complete step that it runs */
static int exec_step(lua_State *L)
{
    const LpStep *s = lp_exec_program(check_exec(L))->step;
    LpBox *b = lp_new_box(L, &lp_step_class);
    b->p = lp_step_retain(s);
    return 1;
}

/* exec:text("micro" | "update"): the host's graph, "" if there is none */
static int exec_text(lua_State *L)
{
    static const char *const which[] = {"micro", "update", NULL};
    LpErr e = {0};
    const LpProgram *p = lp_exec_program(check_exec(L));
    const LpGraph *g = luaL_checkoption(L, 2, "micro", which)
                           ? p->update_graph.g
                           : p->micro_graph.g;
    LpBox *text = lp_new_text(L);
    if (g && !(text->p = lp_graph_print(g, &e)))
        return lp_bind_fail(L, &e);
    lp_push_text(L, text);
    return 1;
}

/* exec:rng() -> seed, micro-batches; exec:rng(seed, n) sets */
static int exec_rng(lua_State *L)
{
    LpExec *x = check_exec(L);
    uint64_t st[2];
    if (!lua_isnoneornil(L, 2)) {
        check_idle(L, "rng");
        st[0] = (uint64_t)luaL_checkinteger(L, 2);
        st[1] = (uint64_t)luaL_optinteger(L, 3, 0);
        lp_exec_rng_set(x, st);
    }
    lp_exec_rng_get(x, st);
    lua_pushinteger(L, (lua_Integer)st[0]);
    lua_pushinteger(L, (lua_Integer)st[1]);
    return 2;
}

/* Two sets of host tensors mirror the device's variables, each is pulled as a
 * whole: the module's ("weights", the default) and the optimizer's states
 * ("states"). */
static LpSync *check_set(lua_State *L, int i)
{
    static const char *const sets[] = {"weights", "states", NULL};
    LpExecBox *d = check_device(L);
    return luaL_checkoption(L, i, "weights", sets) == 0 ? d->sync : d->state;
}

/* exec:mirror(var, tensor, set): the host tensor is pulled when it is read */
static int exec_mirror(lua_State *L)
{
    LpErr e = {0};
    LpExec *x = check_exec(L);
    size_t i = lp_check_var(L, 2, lp_exec_program(x)->step);
    const LpVariable *v = &lp_exec_program(x)->step->var[i];
    LpTensor *t = whole(lp_check_tensor(L, 3, "mirror", "tensor"), v);
    lp_must(L, lp_sync_fits(x, i, t, &e), &e);
    lp_must(L, lp_sync_add(check_set(L, 4), i, t, &e), &e);
    return 0;
}

/* exec:unmirror(set): no host tensor is tied to the set any more */
static int exec_unmirror(lua_State *L)
{
    lp_sync_drop(check_set(L, 2));
    return 0;
}

/* exec:mark(set): the device's copies of mirrored variables are newer */
static int exec_mark(lua_State *L)
{
    LpErr e = {0};
    lp_must(L, lp_sync_mark(check_set(L, 2), &e), &e);
    return 0;
}

static int exec_unmark(lua_State *L)
{
    lp_sync_clear(check_set(L, 2));
    return 0;
}

LP_GETTER(exec_marked, boolean, lp_sync_marked(check_set(L, 2)))

static int exec_pull(lua_State *L)
{
    LpErr e = {0};
    lp_must(L, lp_sync_pull(check_set(L, 2), &e), &e);
    return 0;
}

LP_GETTER(exec_pulls, integer, lp_sync_pulls(check_set(L, 2)))

static uint64_t arena_gradient_bytes(const LpProgram *p)
{
    uint64_t n = 0;
    for (size_t i = 0; p->arena_grad && i < p->step->n_var; i++)
        if (p->arena_grad[i])
            n += lp_program_var_bytes(p, i);
    return n;
}

/* Does a node of g, or of a body in it, have a site to draw at? */
static bool draws(const LpGraph *g)
{
    for (LpNodeId i = 0; g && i < g->n_node; i++) {
        int at = 0;
        if (g->node[i].site)
            return true;
        for (const LpGraph *b; (b = lp_node_body(&g->node[i], &at));)
            if (draws(b))
                return true;
    }
    return false;
}

/* exec:stats() -> {instructions=, micro_arena_bytes=, copies=, …} of the
 * host program; weight_layouts: parameters in a layout of the library's,
 * copies: packed weights, arena_gradient_bytes: accumulators in the arena */
static int exec_stats(lua_State *L)
{
    const LpExec *x = check_exec(L);
    const LpProgram *p = lp_exec_program(x);
    lua_newtable(L);
    lp_set_int(L, "lanes", lp_exec_lanes(x));
    lp_set_bool(L, "draws",
                draws(p->micro_graph.g) || draws(p->update_graph.g));
    lp_set_int(L, "instructions", (lua_Integer)(p->micro.n + p->update.n));
    lp_set_int(L, "micro_arena_bytes", (lua_Integer)p->micro.arena_bytes);
    lp_set_int(L, "update_arena_bytes", (lua_Integer)p->update.arena_bytes);
    lp_set_int(L, "arena_gradient_bytes", (lua_Integer)arena_gradient_bytes(p));
    lp_set_int(L, "weight_layouts", (lua_Integer)p->n_weight_layout);
    lp_set_int(L, "copies", (lua_Integer)p->n_packed);
    return 1;
}

static const luaL_Reg exec_methods[] = {{"read", exec_read},
                                        {"fits", exec_fits},
                                        {"read_into", exec_read_into},
                                        {"write", exec_write},
                                        {"bind", exec_bind},
                                        {"bound", exec_bound},
                                        {"values", exec_values},
                                        {"run", exec_run},
                                        {"gathers", exec_gathers},
                                        {"share", exec_share},
                                        {"answer", exec_answer},
                                        {"rng", exec_rng},
                                        {"stats", exec_stats},
                                        {"step", exec_step},
                                        {"text", exec_text},
                                        {"mirror", exec_mirror},
                                        {"mark", exec_mark},
                                        {"marked", exec_marked},
                                        {"unmark", exec_unmark},
                                        {"pull", exec_pull},
                                        {"pulls", exec_pulls},
                                        {"unmirror", exec_unmirror},
                                        {"trap", exec_trap},
                                        {"running", exec_running},
                                        {"finished", exec_finished},
                                        {"profile", lp_exec_profile_method},
                                        {"close", exec_gc},
                                        {"__gc", exec_gc},
                                        {"__close", exec_gc},
                                        {NULL, NULL}};

void lp_bind_exec(lua_State *L)
{
    lp_add_class(L, &lp_exec_class, exec_methods);
    lp_push_names(L, modes);
    lua_setfield(L, -2, "output_modes");
}
