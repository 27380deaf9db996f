/* Graphs for specs, dumps and tools:
 *
 *   g = core.graph_parse(text)   the text form, src/ir/text.c
 *   g:print()  tostring(g)       the text form again
 *   g:verify()                   true, or raises what is wrong
 *   g:run_pass(name)             in place; returns g
 *   g:run_passes()               all common passes
 *   g:clone()
 *   g:nodes()                    a table for each node, see push_node
 *   g:inputs()                   a table for each, see push_result
 *   g:outputs()                  numbers of values
 *   core.passes()                names of the common passes, and of those that
 *                                rewrite the host's graph
 */
#include <string.h>

#include "src/base/mem.h"
#include "src/bind/module.h"
#include "src/bind/program/program.h"
#include "src/ir/text.h"
#include "src/passes/pass.h"

LP_BOX_FREE(free_graph, lp_graph_free)
const LpBoxClass lp_graph_class = {"lupine.graph", "graph", free_graph};

static LpBox *check_box(lua_State *L)
{
    lp_check_box(L, 1, &lp_graph_class);
    return lua_touserdata(L, 1);
}

static int graph_parse(lua_State *L)
{
    LpErr e = {0};
    const char *text = lp_check_text(L, "a graph's");
    LpBox *b = lp_new_box(L, &lp_graph_class);
    LpGraph *g;
    lp_must(L, lp_graph_parse(text, &g, &e), &e);
    b->p = g;
    return 1;
}

static int graph_clone(lua_State *L)
{
    LpErr e = {0};
    LpBox *from = check_box(L), *b = lp_new_box(L, &lp_graph_class);
    b->p = lp_graph_clone(from->p, &e);
    lp_must(L, e.code, &e);
    return 1;
}

static int graph_print(lua_State *L)
{
    LpErr e = {0};
    LpBox *g = check_box(L), *text = lp_new_text(L);
    text->p = lp_graph_print(g->p, &e);
    lp_must(L, e.code, &e);
    lp_push_text(L, text);
    return 1;
}

static int graph_verify(lua_State *L)
{
    LpErr e = {0};
    lp_must(L, lp_graph_verify(check_box(L)->p, &e), &e);
    lua_pushboolean(L, true);
    return 1;
}

/* A failing pass leaves the graph as it was before it. */
static int with_pass(lua_State *L, const char *name)
{
    LpErr e = {0};
    LpBox *b = check_box(L);
    LpGraph *g = b->p;
    LpStatus st =
        name ? lp_run_pass(name, &g, &e) : lp_run_common_passes(&g, &e);
    b->p = g;
    lp_must(L, st, &e);
    lua_settop(L, 1);
    return 1;
}

LP_FUNCTION_AS(graph_run_pass, with_pass(L, luaL_checkstring(L, 2)))
LP_FUNCTION_AS(graph_run_passes, with_pass(L, NULL))

/* ---- nodes --------------------------------------------------------------- */
/* To be read: a script that runs passes on it works on a clone. */
static void push_body(lua_State *L, const LpGraph *g)
{
    LpErr e = {0};
    LpBox *b = lp_new_box(L, &lp_graph_class);
    b->p = lp_graph_clone(g, &e);
    lp_must(L, e.code, &e);
}

void lp_push_attr(lua_State *L, const LpAttr *a)
{
    switch (a->kind) {
    case LP_ATTR_NONE:
        lua_pushboolean(L, false);
        break;
    case LP_ATTR_INT:
        lua_pushinteger(L, a->i);
        break;
    case LP_ATTR_FLOAT:
        lua_pushnumber(L, a->f);
        break;
    case LP_ATTR_BOOL:
        lua_pushboolean(L, a->i != 0);
        break;
    case LP_ATTR_INTS:
        lp_push_ints(L, a->v, a->n);
        break;
    case LP_ATTR_SCALAR:
        lp_push_scalar(L, a->s);
        break;
    case LP_ATTR_DTYPE:
        lua_pushstring(L, lp_dtype_name((LpDtype)a->i));
        break;
    case LP_ATTR_STR:
        lua_pushstring(L, a->str);
        break;
    case LP_ATTR_GRAPH:
        push_body(L, a->graph);
        break;
    }
}

void lp_push_origin(lua_State *L, const LpOrigin *o)
{
    lua_createtable(L, 0, 11);
    lp_set_string(L, "block", o->block);
    lp_set_string(L, "multi_conv", o->multi_conv);
    lp_set_string(L, "outline", o->outline);
    lp_set_string(L, "scope", o->scope);
    lp_set_string(L, "file", o->file);
    lp_set_int(L, "line", o->line);
    lp_set_int(L, "ipu", o->ipu);
    lp_set_int(L, "stage", o->stage);
    lp_set_int(L, "phase", o->phase);
    lp_set_bool(L, "backward", o->backward);
    lp_set_bool(L, "update", o->update);
}

/* A value's number, {number}, or false for a hole. */
static void push_operand(lua_State *L, const LpGraph *g, LpVal v)
{
    if (v == LP_NOVAL) {
        lua_pushboolean(L, false);
    } else if (lp_is_imm(v)) {
        lua_createtable(L, 1, 0);
        lp_push_scalar(L, lp_graph_scalar(g, v));
        lua_rawseti(L, -2, 1);
    } else {
        lua_pushinteger(L, v);
    }
}

static void push_names(lua_State *L, const LpValue *x)
{
    lua_Integer i = 1;
    lua_newtable(L);
    if (!x->name)
        return;
    lua_pushstring(L, x->name);
    lua_rawseti(L, -2, i++);
    for (const LpName *n = x->more; n; n = n->next) {
        lua_pushstring(L, n->text);
        lua_rawseti(L, -2, i++);
    }
}

/* {value, dtype, shape, names} */
static void push_result(lua_State *L, const LpGraph *g, LpVal v)
{
    const LpType *t = lp_graph_type(g, v);
    lua_createtable(L, 0, 4);
    lp_set_int(L, "value", v);
    lp_set_string(L, "dtype", lp_dtype_name(t->dtype));
    lp_push_ints(L, t->shape, t->ndim);
    lua_setfield(L, -2, "shape");
    push_names(L, &g->value[v]);
    lua_setfield(L, -2, "names");
}

/* {op, operands, attributes, results, origin, region, site, half_partials} */
static void push_node(lua_State *L, const LpGraph *g, const LpGraphNode *n)
{
    const LpForm *f = lp_op_form(n->op);
    lua_createtable(L, 0, 7);
    lp_set_string(L, "op", n->op->name);
    LP_PUSH_LIST(L, i, n->n_in, push_operand(L, g, n->in[i]));
    lua_setfield(L, -2, "operands");
    lua_createtable(L, 0, n->op->n_attr);
    for (int i = 0; i < f->n_args; i++)
        if (!lp_arg_is_operand(f->arg[i].kind)) {
            lp_push_attr(L, &n->attr[f->arg[i].slot]);
            lua_setfield(L, -2, f->arg[i].name);
        }
    lua_setfield(L, -2, "attributes");
    LP_PUSH_LIST(L, i, n->n_out, push_result(L, g, n->out + (LpVal)i));
    lua_setfield(L, -2, "results");
    if (n->origin) {
        lp_push_origin(L, &g->origin[n->origin]);
        lua_setfield(L, -2, "origin");
    }
    lp_set_int(L, "region", n->region);
    lp_set_int(L, "site", (lua_Integer)n->site);
    lp_set_bool(L, "half_partials", n->half_partials);
}

static int graph_nodes(lua_State *L)
{
    const LpGraph *g = check_box(L)->p;
    luaL_checkstack(L, 12, NULL);
    LP_PUSH_LIST(L, i, g->n_node, push_node(L, g, &g->node[i]));
    return 1;
}

static int graph_inputs(lua_State *L)
{
    const LpGraph *g = check_box(L)->p;
    LP_PUSH_LIST(L, i, g->n_input, push_result(L, g, g->input[i]));
    return 1;
}

static int graph_outputs(lua_State *L)
{
    const LpGraph *g = check_box(L)->p;
    LP_PUSH_LIST(L, i, g->n_output, lua_pushinteger(L, g->output[i]));
    return 1;
}

static int passes(lua_State *L)
{
    lp_push_names(L, lp_pass_names);
    lp_push_names(L, lp_host_pass_names);
    return 2;
}

static const luaL_Reg graph_methods[] = {
    {"print", graph_print},       {"verify", graph_verify},
    {"run_pass", graph_run_pass}, {"run_passes", graph_run_passes},
    {"clone", graph_clone},       {"nodes", graph_nodes},
    {"inputs", graph_inputs},     {"outputs", graph_outputs},
    {"__tostring", graph_print},  {NULL, NULL},
};

void lp_bind_graph(lua_State *L)
{
    lp_add_class(L, &lp_graph_class, graph_methods);
    lp_set_function(L, "graph_parse", graph_parse);
    lp_set_function(L, "passes", passes);
}
