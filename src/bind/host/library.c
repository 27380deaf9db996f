/* Libraries of custom operators: core.load_library(path), core.custom_ops(). */
#include "src/io/library.h"
#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"
#include "src/ops/custom/registry.h"

static int load_library(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "torch.ops.load_library");
    lp_must(L, lp_library_load(path, &e), &e);
    return 0;
}

static void push_attr(lua_State *L, const lupine_attr_spec *a)
{
    static const char *const kinds[] = {
        [LUPINE_FLOAT] = "float",   [LUPINE_FLOATS] = "floats",
        [LUPINE_INT] = "int",       [LUPINE_INTS] = "ints",
        [LUPINE_STRING] = "string", [LUPINE_STRINGS] = "strings"};
    lua_createtable(L, 0, 3);
    lp_set_string(L, "name", a->name);
    lp_set_string(L, "kind", kinds[a->kind]);
    lp_set_string(L, "fallback", a->fallback);
}

static void push_op(lua_State *L, const LpCustomOp *c)
{
    lua_createtable(L, 0, 8);
    lp_set_string(L, "domain", c->op.domain);
    lp_set_string(L, "name", c->op.name);
    lp_set_int(L, "version", c->op.version);
    lp_set_int(L, "inputs", c->op.n_in);
    lp_set_int(L, "outputs", c->op.n_out);
    lp_set_bool(L, "gradient", c->op.grad != NULL);
    lp_set_string(L, "library", c->library);
    lp_set_int(L, "hash", (int64_t)c->hash);
    LP_PUSH_LIST(L, i, c->op.n_attrs, push_attr(L, &c->op.attrs[i]));
    lua_setfield(L, -2, "attributes");
}

/* {{domain=, name=, version=, inputs=, outputs=, gradient=, library=,
 * hash=, attributes = {{name=, kind=, fallback=}}}} of all that are loaded */
static int custom_ops(lua_State *L)
{
    LP_PUSH_LIST(L, i, lp_n_custom_ops(), push_op(L, lp_custom_op((size_t)i)));
    return 1;
}

void lp_bind_library(lua_State *L)
{
    static const luaL_Reg functions[] = {{"load_library", load_library},
                                         {"custom_ops", custom_ops},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
