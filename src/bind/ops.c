/* The operator table as Lua tables, for specs and documentation:
 *
 *   core.ops()  -> {{name=, kind=, flags={pointwise=true, ...}, forms=,
 *                    grad=, no_grad=, grad_in=, grad_out=, cost=, domain=,
 *                    operands=, results=, list=}, ...}
 *   core.op_cost(name, {operand, ...}, {attribute=value, ...}, chip, tiles)
 *               -> {compute_cyc=, ...}; nil if the record has no cost rule
 *
 * An operand is {dtype=name, shape={...}}, a number, or false (a hole); an
 * attribute has the form that graph:nodes() gives it, false is None. The chip
 * is "ipu1", "ipu2" or "ipu21", of which all tiles compute unless it is said
 * how many. */
#include <string.h>

#include "runtime/cost/cost.h"
#include "src/base/mem.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"
#include "src/bind/program/program.h"
#include "src/ir/cost.h"
#include "src/ir/text.h"
#include "src/kernel/loops/pointwise.h"

/* ---- records ------------------------------------------------------------- */
static const char *const kinds[] = {
    [LP_OP_PRIMITIVE] = "primitive",
    [LP_OP_COMPOSITE] = "composite",
    [LP_OP_FUSED] = "fused",
};

static const struct {
    const char *name;
    uint32_t flag;
} flags[] = {
    {"pointwise", LP_OPF_POINTWISE}, {"view", LP_OPF_VIEW},
    {"random", LP_OPF_RANDOM},       {"effect", LP_OPF_EFFECT},
    {"dynamic", LP_OPF_DYNAMIC},     {"marker", LP_OPF_MARKER},
    {"device", LP_OPF_DEVICE},       {"cached", LP_OPF_CACHED},
    {"inplace", LP_OPF_INPLACE_OK},  {"commutes", LP_OPF_COMMUTES},
    {"loss", LP_OPF_LOSS},           {"exact", LP_OPF_EXACT},
};

static void push_record(lua_State *L, const LpOp *op)
{
    const LpPointwise *pw = lp_pointwise_of(op);
    lua_createtable(L, 0, 16);
    lp_set_string(L, "name", op->name);
    lp_set_string(L, "kind", kinds[op->kind]);
    lua_createtable(L, 0, 4);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (op->flags & flags[i].flag)
            lp_set_bool(L, flags[i].name, true);
    lua_setfield(L, -2, "flags");
    lp_set_string(L, "forms", op->forms);
    lp_set_bool(L, "grad", op->grad != NULL);
    lp_set_string(L, "no_grad", op->no_grad); /* nil if NULL */
    lp_set_int(L, "grad_in", op->grad_in);
    lp_set_int(L, "grad_out", op->grad_out);
    lp_set_bool(L, "cost", op->cost != NULL);
    lp_set_string(L, "domain", pw ? pw->domain : NULL);
    lp_set_int(L, "operands", op->n_operands);
    lp_set_int(L, "results", op->n_results);
    lp_set_bool(L, "list", op->has_list);
}

static int ops(lua_State *L)
{
    LP_PUSH_LIST(L, i, lp_n_ops, push_record(L, lp_ops[i]));
    return 1;
}

/* ---- cost ---------------------------------------------------------------- */
enum { MAX_OPERANDS = 64, MAX_INTS = 256, MAX_TYPES = LP_MAX_LIST };

/* A call in C. `out` belongs to Lua: types are large. */
typedef struct Call {
    LpType in[MAX_OPERANDS];
    LpScalar num[MAX_OPERANDS];
    int n_in;
    LpAttr attr[LP_MAX_ATTR];
    int64_t ints[MAX_INTS];
    int n_ints;
    LpType *out;
} Call;

static int wrong(lua_State *L, const char *what, int i)
{
    char buf[LP_DESCRIBE];
    return lp_raise(L, LP_E_TYPE, "op_cost(): %s is %s", what,
                    lp_describe(L, i, buf));
}

static LpDtype dtype_at(lua_State *L, int i)
{
    LpDtype t = lp_to_dtype(L, i);
    if (t == LP_DT_NONE && lua_type(L, i) == LUA_TSTRING)
        t = lp_dtype_find(lua_tostring(L, i));
    if (t == LP_DT_NONE)
        wrong(L, "a dtype", i);
    return t;
}

/* The operand on top of the stack, and its number if it is one. */
static LpType operand(lua_State *L, LpScalar *num)
{
    LpType t = {.dtype = LP_DT_NONE};
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "dtype");
        t.dtype = dtype_at(L, -1);
        lua_pop(L, 1);
        if (lua_getfield(L, -1, "shape") != LUA_TTABLE ||
            lua_rawlen(L, -1) > LP_MAX_DIMS)
            wrong(L, "an operand's shape", -1);
        t.ndim = (int8_t)lua_rawlen(L, -1);
        for (int i = 0; i < t.ndim; i++) {
            lua_rawgeti(L, -1, i + 1);
            t.shape[i] = luaL_checkinteger(L, -1);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    } else if (lua_toboolean(L, -1)) {
        if (!lp_to_scalar(L, -1, num))
            wrong(L, "an operand", -1);
        t = *lp_number_type(num->kind);
    }
    return t;
}

static LpAttr int_list(lua_State *L, Call *c)
{
    int64_t *v = c->ints + c->n_ints;
    int n = lua_istable(L, -1) ? (int)lua_rawlen(L, -1) : -1;
    if (n < 0 || n > MAX_INTS - c->n_ints)
        wrong(L, "a list", -1);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        v[i] = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    c->n_ints += n;
    return lp_attr_ints(v, n);
}

/* The attribute on top of the stack. */
static LpAttr attribute(lua_State *L, Call *c, const LpFormArg *a)
{
    LpScalar s;
    if (a->kind == LP_ARG_BOOL && lua_isboolean(L, -1) && !a->optional)
        return lp_attr_bool(lua_toboolean(L, -1));
    if (lua_isboolean(L, -1) && !lua_toboolean(L, -1))
        return LP_NONE_ATTR;
    switch (a->kind) {
    case LP_ARG_INT:
        return lp_attr_int(luaL_checkinteger(L, -1));
    case LP_ARG_FLOAT:
        return lp_attr_float(luaL_checknumber(L, -1));
    case LP_ARG_BOOL:
        return lp_attr_bool(lua_toboolean(L, -1));
    case LP_ARG_INTS:
        return int_list(L, c);
    case LP_ARG_STR: /* lives in the caller's table */
        return lp_attr_str(luaL_checkstring(L, -1));
    case LP_ARG_DTYPE:
        return lp_attr_dtype(dtype_at(L, -1));
    case LP_ARG_GRAPH: /* likewise */
        return lp_attr_graph(lp_check_box(L, -1, &lp_graph_class));
    default:
        if (!lp_to_scalar(L, -1, &s))
            wrong(L, a->name, -1);
        return lp_attr_scalar(s);
    }
}

static void read_call(lua_State *L, const LpOp *op, Call *c)
{
    const LpForm *f = lp_op_form(op);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    c->n_in = (int)lua_rawlen(L, 2);
    if (c->n_in > MAX_OPERANDS)
        lp_raise(L, LP_E_VALUE, "op_cost(): %d operands, at most %d", c->n_in,
                 MAX_OPERANDS);
    for (int i = 0; i < c->n_in; i++) {
        lua_rawgeti(L, 2, i + 1);
        c->in[i] = operand(L, &c->num[i]);
        lua_pop(L, 1);
    }
    memcpy(c->attr, f->base, sizeof c->attr);
    c->n_ints = 0;
    for (int i = 0; i < f->n_args; i++) {
        if (lp_arg_is_operand(f->arg[i].kind))
            continue;
        if (lua_getfield(L, 3, f->arg[i].name) != LUA_TNIL)
            c->attr[f->arg[i].slot] = attribute(L, c, &f->arg[i]);
        lua_pop(L, 1);
    }
    c->out = lua_newuserdatauv(L, MAX_TYPES * sizeof *c->out, 0);
}

static LpStatus cost_of(const LpOp *op, Call *c, const LpChip *chip, int tiles,
                        LpCost *o, LpErr *e)
{
    LpArena arena = {0};
    LpInfer x = {.op = op,
                 .n_in = c->n_in,
                 .n_out = op->n_results,
                 .in = c->in,
                 .num = c->num,
                 .attr = c->attr,
                 .out = c->out,
                 .arena = &arena,
                 .err = e};
    LpStatus st = lp_op_infer(&x);
    if (st == LP_OK) {
        LpCostReq r = {.op = op,
                       .attr = c->attr,
                       .n_in = c->n_in,
                       .n_out = x.n_out,
                       .in = c->in,
                       .out = c->out,
                       .chip = chip,
                       .system = lp_system_find(chip->version),
                       .rivals = 1,
                       .tiles = tiles,
                       .memory_proportion = lp_cost_ctx(chip).proportion,
                       .partials = LP_F32};
        op->cost(&r, o);
    }
    lp_arena_fini(&arena);
    return st;
}

/* vertices = {{name=, n=, …}, …}, and how many compute sets. */
static void push_vertices(lua_State *L, const LpCost *c)
{
    lua_createtable(L, c->n_vertices, 0);
    for (int i = 0; i < c->n_vertices; i++) {
        const LpVertices *v = &c->vertices[i];
        lua_createtable(L, 0, 6);
        lp_set_string(L, "name", lp_vertex_name(v->id).text);
        lp_set_int(L, "n", v->n);
        lp_set_int(L, "edges", v->edges);
        lp_set_int(L, "tile_bytes", v->tile_bytes);
        lp_set_int(L, "cyc", v->cyc);
        lp_set_int(L, "idle_cyc", v->idle_cyc);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "vertices");
    lp_set_int(L, "compute_sets", c->compute_sets);
}

static int op_cost(lua_State *L)
{
    LpErr e = {0};
    LpCost o = {0};
    Call c;
    const char *name = luaL_checkstring(L, 1);
    const LpOp *op = lp_op_find(name);
    const LpChip *chip = lp_chip_find(luaL_checkstring(L, 4));
    if (!op)
        return lp_raise(L, LP_E_VALUE, "op_cost(): no operator '%s'", name);
    if (!chip)
        return lp_raise(L, LP_E_VALUE,
                        "op_cost(): no chip '%s'; allowed are ipu1, ipu2, "
                        "ipu21",
                        lua_tostring(L, 4));
    int64_t tiles = luaL_optinteger(L, 5, chip->tiles);
    if (tiles < 1 || tiles > chip->tiles)
        return lp_raise(L, LP_E_VALUE,
                        "op_cost(): tiles: expected 1..%d, got %lld",
                        chip->tiles, (long long)tiles);
    if (!op->cost || !op->infer)
        return 0;
    read_call(L, op, &c);
    lp_must(L, cost_of(op, &c, chip, (int)tiles, &o, &e), &e);
    lua_createtable(L, 0, 12);
    lp_set_int(L, "compute_cyc", o.compute_cyc);
    lp_set_int(L, "exchange_cyc", o.exchange_cyc);
    lp_set_int(L, "sync_cyc", o.sync_cyc);
    lp_set_int(L, "cyc", lp_cost_cyc(&o));
    lp_set_int(L, "flops", o.flops);
    lp_set_int(L, "temp_tile_bytes", o.temp_tile_bytes);
    lp_set_int(L, "vertex_bytes", o.vertex_bytes);
    lp_set_int(L, "exchange_code_bytes", o.exchange_code_bytes);
    lp_set_int(L, "code_bytes", o.code_bytes);
    lp_set_int(L, "tiles", o.tiles);
    push_vertices(L, &o);
    return 1;
}

static const luaL_Reg functions[] = {
    {"ops", ops},
    {"op_cost", op_cost},
    {NULL, NULL},
};

void lp_bind_ops(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
}
