/* Steps from Lua; see program.h. */
#include <string.h>

#include "src/base/mem.h"
#include "src/bind/module.h"
#include "src/bind/program/program.h"
#include "src/passes/anchors.h"
#include "src/passes/compile.h"
#include "src/passes/host_io.h"

LP_BOX_FREE(step_free, lp_step_release)
const LpBoxClass lp_step_class = {"lupine.step", "step", step_free};

size_t lp_check_var(lua_State *L, int i, const LpStep *s)
{
    lua_Integer v = luaL_checkinteger(L, i) - 1;
    if (v < 0 || (size_t)v >= s->n_var)
        lp_raise(L, LP_E_INDEX, "no variable %d", (int)v + 1);
    return (size_t)v;
}

/* ---- step --------------------------------------------------------------- */
LpStep *lp_check_open_step(lua_State *L)
{
    LpStep *s = lp_check_step(L);
    if (s->complete)
        lp_raise(L, LP_E_RUNTIME, "this step is complete and cannot change");
    return s;
}

/* {kind, size, each}, as trace:declare takes it. */
static void push_group(lua_State *L, const LpGroup *g)
{
    lua_createtable(L, 3, 0);
    lua_pushstring(L, lp_group_kind_names[g->kind]);
    lua_rawseti(L, -2, 1);
    lua_pushinteger(L, g->size);
    lua_rawseti(L, -2, 2);
    lua_pushboolean(L, g->each);
    lua_rawseti(L, -2, 3);
}

static int step_vars(lua_State *L)
{
    LpStep *s = lp_check_step(L);
    lua_createtable(L, (int)s->n_var, 0);
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        lua_createtable(L, 0, 7);
        lp_set_string(L, "role", lp_var_role_name(v->role));
        lp_set_string(L, "name", v->name);
        lp_push_size(L, v->type.shape, v->type.ndim);
        lua_setfield(L, -2, "shape");
        lp_push_dtype(L, v->type.dtype);
        lua_setfield(L, -2, "dtype");
        lp_set_bool(L, "written",
                    v->micro_out != LP_NOVAL || v->update_out != LP_NOVAL);
        lp_set_int(L, "of", v->param + 1);
        if (v->micro_in != LP_NOVAL)
            lp_set_bool(L, "read", true);
        if (v->group.kind != LP_GROUP_ALL) {
            push_group(L, &v->group);
            lua_setfield(L, -2, "group");
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
 * file=, line=, …}, …}: the places of operators in order of first use, each
 * with its first operator. */
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
        lp_push_origin(L, o);
        lp_set_string(L, "op", g->node[i].op->name);
        lua_rawseti(L, -2, luaL_len(L, -2) + 1);
    }
    return 1;
}

/* step:entered() -> {n, …}: of each node of the micro graph how many scopes its
 * place was behind, entered or left; all 0 in a step that was read from text */
static int step_entered(lua_State *L)
{
    const LpGraph *g = lp_check_step(L)->micro;
    lua_createtable(L, (int)g->n_node, 0);
    for (LpNodeId i = 0; i < g->n_node; i++) {
        lua_pushinteger(L, g->origin[g->node[i].origin].entered);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* step:overlaps() -> {input = {accumulation, iterations}, output = {…}}: which
 * ways forward asks for of host I/O beside computing; an error where such marks
 * may not be. Of a step that is not complete. */
static int step_overlaps(lua_State *L)
{
    LpErr e = {0};
    LpHostIo io;
    lp_must(L, lp_check_host_io(lp_check_open_step(L), &io, &e), &e);
    lua_createtable(L, 0, 2);
    for (int out = 0; out < 2; out++) {
        lua_createtable(L, 2, 0);
        for (int k = 0; k < 2; k++) {
            lua_pushboolean(L, (out ? io.output : io.input)[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, out ? "output" : "input");
    }
    return 1;
}

/* step:loops() -> device iterations, gradient accumulation, replicas: of a
 * complete step */
static int step_loops(lua_State *L)
{
    const LpStep *s = lp_check_step(L);
    lua_pushinteger(L, s->device_iterations);
    lua_pushinteger(L, s->gradient_accumulation);
    lua_pushinteger(L, s->replicas);
    return 3;
}

/* step:trains(): it is complete and has an update */
static int step_trains(lua_State *L)
{
    lua_pushboolean(L, lp_check_step(L)->update != NULL);
    return 1;
}

/* step:add_var(role, name, tensor, param) -> index */
static int step_add_var(lua_State *L)
{
    static const char *const roles[] = {"state", "hyper", NULL};
    static const LpVarRole role[] = {LP_VAR_STATE, LP_VAR_HYPER};
    LpErr e = {0};
    LpStep *s = lp_check_open_step(L);
    LpVariable v = {.role = role[luaL_checkoption(L, 2, NULL, roles)]};
    v.name = luaL_checkstring(L, 3);
    LpTensor *t = lp_check_tensor(L, 4, "add_var", "tensor");
    v.data = t->st->flags & LP_ST_META ? NULL : t;
    v.param = (int)luaL_optinteger(L, 5, 0) - 1;
    v.type = lp_tensor_type(t);
    if (v.param >= 0 && (size_t)v.param < s->n_var &&
        s->var[v.param].group.kind != LP_GROUP_ALL && v.type.ndim > 0)
        lp_type_drop_first(&v.type); /* of groups, as the parameter's */
    int at = lp_step_add(s, &v, &e);
    lp_must(L, e.code, &e);
    lua_pushinteger(L, at + 1);
    return 1;
}

/* step:data(var) -> the tensor that it starts with, nil if it has none */
static int step_data(lua_State *L)
{
    const LpStep *s = lp_check_step(L);
    size_t i = lp_check_var(L, 2, s);
    if (s->var[i].data)
        lp_push_tensor(L, s->var[i].data);
    else
        lua_pushnil(L);
    return 1;
}

/* step:bind(var, tensor): lp_step_bind */
static int step_bind(lua_State *L)
{
    LpErr e = {0};
    LpStep *s = lp_check_step(L);
    size_t i = lp_check_var(L, 2, s);
    LpTensor *t = lp_check_tensor(L, 3, "bind", "tensor"), *c = NULL;
    LpBox *b = lp_push_box(L);
    lp_must(L, lp_contiguous(t, &c, &e), &e);
    b->p = c;
    lp_must(L, lp_step_bind(s, i, c, &e), &e);
    return 0;
}

/* step:text("micro" | "update" | "step" | "key"): a graph ("" if there is
 * none), all of a complete step, which core.step_parse reads, or what a step is
 * told by (lp_step_print_key) */
static int step_text(lua_State *L)
{
    static const char *const which[] = {"micro", "update", "step", "key", NULL};
    LpErr e = {0};
    const LpStep *s = lp_check_step(L);
    int what = luaL_checkoption(L, 2, "micro", which);
    const LpGraph *g = what == 1 ? s->update : s->micro;
    LpBox *text = lp_new_text(L);
    if (what >= 2)
        text->p = (what == 2 ? lp_step_print : lp_step_print_key)(s, &e);
    else if (g)
        text->p = lp_graph_print(g, &e);
    lp_must(L, e.code, &e);
    lp_push_text(L, text);
    return 1;
}

/* step:graph() -> its micro graph, a copy */
static int step_graph(lua_State *L)
{
    LpErr e = {0};
    const LpStep *s = lp_check_step(L);
    LpBox *b = lp_new_box(L, &lp_graph_class);
    b->p = lp_graph_clone(s->micro, &e);
    lp_must(L, e.code, &e);
    return 1;
}

/* step_parse(text) -> step; its variables have no data yet */
static int step_parse(lua_State *L)
{
    LpErr e = {0};
    const char *text = lp_check_text(L, "a step's");
    LpBox *b = lp_new_box(L, &lp_step_class);
    LpStep *s = NULL;
    lp_must(L, lp_step_parse(text, &s, &e), &e);
    b->p = s;
    return 1;
}

static const luaL_Reg step_methods[] = {{"vars", step_vars},
                                        {"names", step_names},
                                        {"add_var", step_add_var},
                                        {"places", step_places},
                                        {"entered", step_entered},
                                        {"loops", step_loops},
                                        {"trains", step_trains},
                                        {"overlaps", step_overlaps},
                                        {"complete", lp_step_complete},
                                        {"text", step_text},
                                        {"graph", step_graph},
                                        {"data", step_data},
                                        {"bind", step_bind},
                                        {"compile", lp_step_compile},
                                        {NULL, NULL}};

void lp_bind_step(lua_State *L)
{
    lp_add_class(L, &lp_step_class, step_methods);
    lp_set_function(L, "step_parse", step_parse);
}
