/* What x.name and x[key] mean. Upvalue 1 of both functions is the methods
 * table, where properties stand beside the methods as integers (PROP_…): one
 * raw look-up serves both. A string that is neither and reads like Python's
 * index text is an index; any other is an AttributeError. */
#include <string.h>

#include "src/autodiff/trace.h"
#include "src/base/log.h"
#include "src/bind/bind.h"
#include "src/ops/ops.h"

typedef enum {
    PROP_SHAPE = 1,
    PROP_DTYPE,
    PROP_DEVICE,
    PROP_REQUIRES_GRAD,
    PROP_GRAD,
    PROP_GRAD_FN,
    PROP_IS_LEAF,
    PROP_DATA,
    PROP_T,
    PROP_MT,
    PROP_NDIM,
    PROP_ITEMSIZE,
    PROP_NBYTES,
    PROP_IS_META,
    PROP_IS_CPU,
    PROP_VERSION,
    PROP_BASE,
    PROP_REAL,
    PROP_RETAINS_GRAD,
    PROP_FALSE, /* kinds of tensors that there are none of */
} Property;

static const struct {
    const char *name;
    Property p;
} properties[] = {
    {"shape", PROP_SHAPE},
    {"dtype", PROP_DTYPE},
    {"device", PROP_DEVICE},
    {"requires_grad", PROP_REQUIRES_GRAD},
    {"grad", PROP_GRAD},
    {"grad_fn", PROP_GRAD_FN},
    {"is_leaf", PROP_IS_LEAF},
    {"data", PROP_DATA},
    {"T", PROP_T},
    {"mT", PROP_MT},
    {"ndim", PROP_NDIM},
    {"itemsize", PROP_ITEMSIZE},
    {"nbytes", PROP_NBYTES},
    {"is_meta", PROP_IS_META},
    {"is_cpu", PROP_IS_CPU},
    {"is_cuda", PROP_FALSE},
    {"H", PROP_MT},
    {"_version", PROP_VERSION},
    {"_base", PROP_BASE},
    {"mH", PROP_MT},
    {"real", PROP_REAL},
    {"retains_grad", PROP_RETAINS_GRAD},
    {"is_ipu", PROP_FALSE},
    {"is_mps", PROP_FALSE},
    {"is_xpu", PROP_FALSE},
    {"is_xla", PROP_FALSE},
    {"is_mkldnn", PROP_FALSE},
    {"is_nested", PROP_FALSE},
    {"is_quantized", PROP_FALSE},
    {"is_sparse", PROP_FALSE},
    {"is_sparse_csr", PROP_FALSE},
};

void lp_add_properties(lua_State *L)
{
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        lp_set_int(L, properties[i].name, properties[i].p);
    }
}

/* ---- reading ------------------------------------------------------------- */
static void warn_of_reversal(void)
{
    static bool told;
    if (told)
        return;
    told = true;
    lp_log(LP_LOG_WARN,
           ".T of a tensor with more than two dimensions reverses them all, "
           "which is deprecated: use .mT for matrices, or permute");
}

static int permuted(lua_State *L, LpTensor *t, bool last_two)
{
    int64_t dims[LP_MAX_DIMS];
    int n = t->ndim;
    const LpForm *f = lp_op_form(&op_permute);
    if (last_two && n == 1)
        return lp_raise(L, LP_E_RUNTIME,
                        ".mT needs at least two dimensions or none, not 1");
    if (!last_two && n > 2)
        warn_of_reversal();
    for (int i = 0; i < n; i++)
        dims[i] = last_two ? i : n - 1 - i;
    if (last_two && n >= 2) {
        dims[n - 2] = n - 1;
        dims[n - 1] = n - 2;
    }
    LpArg in = lp_arg_tensor(t);
    LpAttr attr = lp_attr_ints(dims, n);
    return lp_call_push(L, f, &in, 1, &attr, 1);
}

/* A node of the tape, as far as a script can see one: its name. */
static int grad_fn_name(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_rawgeti(L, 1, 1);
    return 1;
}

static int grad_fn_tostring(lua_State *L)
{
    grad_fn_name(L);
    lua_pushfstring(L, "<%s>", lua_tostring(L, -1));
    return 1;
}

/* Only leaves, and tensors that were told to, keep a gradient. */
static void warn_of_grad(const LpTensor *t)
{
    static bool told;
    if (told || lp_grad_get(t) || lp_is_leaf(t) || lp_retains_grad(t))
        return;
    told = true;
    lp_log(LP_LOG_WARN,
           "grad of a tensor that is no leaf is read: backward keeps none "
           "there unless retain_grad() was called before");
}

static int push_grad_fn(lua_State *L, const LpTensor *t)
{
    const char *name = lp_grad_fn_name(t);
    if (!name)
        return lua_pushnil(L), 1;
    lua_createtable(L, 1, 0);
    lua_pushfstring(L, "%s0", name);
    lua_rawseti(L, -2, 1);
    if (luaL_newmetatable(L, "torch.grad_fn")) {
        lp_set_function(L, "__tostring", grad_fn_tostring);
        lua_newtable(L);
        lp_set_function(L, "name", grad_fn_name);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
    return 1;
}

static int push_detached(lua_State *L, LpTensor *t)
{
    LpErr e = {0};
    LpTensor *out = NULL;
    LpBox *box = lp_push_box(L);
    lp_must(L, lp_detach(t, &out, &e), &e);
    box->p = out;
    return 1;
}

static int get_property(lua_State *L, LpTensor *t, Property p)
{
    lua_Integer size = (lua_Integer)lp_dtype_size(t->dtype);
    switch (p) {
    case PROP_SHAPE:
        lp_push_size(L, t->shape, t->ndim);
        return 1;
    case PROP_DTYPE:
        lp_push_dtype(L, t->dtype);
        return 1;
    case PROP_DEVICE:
        lp_push_device(L, t->st->flags & LP_ST_META ? LP_DEV_META : LP_DEV_CPU);
        return 1;
    case PROP_REQUIRES_GRAD:
        lua_pushboolean(L, lp_requires_grad(t));
        return 1;
    case PROP_GRAD:
        warn_of_grad(t);
        lp_push_tensor(L, lp_grad_get(t));
        return 1;
    case PROP_GRAD_FN:
        return push_grad_fn(L, t);
    case PROP_IS_LEAF:
        lua_pushboolean(L, lp_is_leaf(t));
        return 1;
    case PROP_DATA:
        return push_detached(L, t);
    case PROP_T:
        return permuted(L, t, false);
    case PROP_MT:
        return permuted(L, t, true);
    case PROP_NDIM:
        lua_pushinteger(L, t->ndim);
        return 1;
    case PROP_ITEMSIZE:
        lua_pushinteger(L, size);
        return 1;
    case PROP_NBYTES:
        lua_pushinteger(L, size * lp_tensor_numel(t));
        return 1;
    case PROP_IS_META:
        lua_pushboolean(L, (t->st->flags & LP_ST_META) != 0);
        return 1;
    case PROP_IS_CPU:
        lua_pushboolean(L, !(t->st->flags & LP_ST_META));
        return 1;
    case PROP_VERSION:
        lua_pushinteger(L, t->st->version);
        return 1;
    case PROP_BASE:
        lp_push_tensor(L, t->base);
        return 1;
    case PROP_REAL:
        lua_pushvalue(L, 1);
        return 1;
    case PROP_RETAINS_GRAD:
        lua_pushboolean(L, lp_retains_grad(t));
        return 1;
    case PROP_FALSE:
        lua_pushboolean(L, 0);
        return 1;
    }
    return 0;
}

static int no_attribute(lua_State *L, const char *key)
{
    const char *names[1024];
    int n = 0;
    lua_getglobal(L, "require");
    lua_pushliteral(L, "lupine.base.absent");
    lua_call(L, 1, 1);
    lua_pushliteral(L, "Tensor");
    lua_pushstring(L, key);
    lua_call(L, 2, 0);
    lua_pushnil(L);
    while (n < 1024 && lua_next(L, lua_upvalueindex(1))) {
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING)
            names[n++] = lua_tostring(L, -1); /* the table keeps it */
    }
    const char *near = lp_nearest(key, names, n);
    return lp_raise(L, LP_E_ATTRIBUTE,
                    "'Tensor' object has no attribute '%.60s'%s%s%s", key,
                    near ? "; did you mean '" : "", near ? near : "",
                    near ? "'?" : "");
}

static LpTensor *open_tensor(lua_State *L)
{
    LpTensor *t = lp_to_tensor(L, 1);
    if (!t)
        lp_check_tensor(L, 1, "index", "self");
    return t;
}

int lp_tensor_index(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        return lp_index_get(L, open_tensor(L));
    lua_pushvalue(L, 2);
    switch (lua_rawget(L, lua_upvalueindex(1))) {
    case LUA_TNUMBER:
        return get_property(L, open_tensor(L), (Property)lua_tointeger(L, -1));
    case LUA_TNIL:
        lua_pop(L, 1);
        if (lp_index_text(lua_tostring(L, 2)))
            return lp_index_get(L, open_tensor(L));
        return no_attribute(L, lua_tostring(L, 2));
    default:
        return 1;
    }
}

/* ---- writing ------------------------------------------------------------- */
static int set_grad(lua_State *L, LpTensor *t)
{
    LpTensor *g = NULL;
    if (!lua_isnil(L, 3) && !lp_is_none(L, 3)) {
        g = lp_check_tensor(L, 3, "grad", "value");
        LpType a = lp_tensor_type(t), b = lp_tensor_type(g);
        if (!lp_type_eq(&a, &b))
            return lp_raise(L, LP_E_RUNTIME,
                            "grad of a tensor %s %s was assigned %s %s; type "
                            "and shape must be equal",
                            lp_dtype_name(t->dtype), lp_shape_str(&a),
                            lp_dtype_name(g->dtype), lp_shape_str(&b));
    }
    LpErr e = {0};
    return lp_grad_set(t, g, &e) != LP_OK ? lp_bind_fail(L, &e) : 0;
}

/* x.data = v: x becomes another name for v's elements and keeps its history
 * and its place in modules and optimizers. A leaf without a gradient may
 * change its dtype. */
static int set_data(lua_State *L, LpTensor *t)
{
    LpTensor *v = lp_check_tensor(L, 3, "data", "value");
    bool fixed = !lp_is_leaf(t) || lp_grad_get(t) || !lp_is_float(v->dtype);
    if (v->dtype != t->dtype && fixed)
        return lp_raise(L, LP_E_RUNTIME,
                        "data of a %s tensor was assigned a %s tensor; only "
                        "a leaf without a gradient can change its dtype, to a "
                        "floating one",
                        lp_dtype_name(t->dtype), lp_dtype_name(v->dtype));
    if (t->base || lp_tracing || (t->st->flags | v->st->flags) & LP_ST_TRACED)
        return lp_raise(L, LP_E_RUNTIME,
                        "data cannot be assigned to a view "
                        "or inside a traced function");
    LpErr e = {0}; /* what other names of t's memory are to show comes now */
    if (!(t->st->flags & LP_ST_META))
        lp_must(L, lp_tensor_touch(t, true, &e), &e);
    LpStorage *old = t->st;
    v->st->refs++;
    t->st = v->st;
    t->dtype = v->dtype;
    t->ndim = v->ndim;
    t->offset = v->offset;
    memcpy(t->shape, v->shape, sizeof t->shape);
    memcpy(t->strides, v->strides, sizeof t->strides);
    lp_storage_release(old);
    return 0;
}

static int set_property(lua_State *L, LpTensor *t, Property p)
{
    LpErr e = {0};
    switch (p) {
    case PROP_REQUIRES_GRAD:
        if (!lua_isboolean(L, 3))
            return lp_raise(L, LP_E_TYPE, "requires_grad must be a bool");
        lp_must(L, lp_set_requires_grad(t, lua_toboolean(L, 3), &e), &e);
        return 0;
    case PROP_GRAD:
        return set_grad(L, t);
    case PROP_DATA:
        return set_data(L, t);
    default:
        return lp_raise(L, LP_E_ATTRIBUTE,
                        "attribute '%s' of a Tensor cannot be assigned",
                        lua_tostring(L, 2));
    }
}

int lp_tensor_newindex(lua_State *L)
{
    LpTensor *t = open_tensor(L);
    if (lua_type(L, 2) != LUA_TSTRING)
        return lp_index_set(L, t);
    lua_pushvalue(L, 2);
    int type = lua_rawget(L, lua_upvalueindex(1));
    lua_Integer p = lua_tointeger(L, -1);
    lua_pop(L, 1);
    if (type == LUA_TNUMBER)
        return set_property(L, t, (Property)p);
    if (type == LUA_TNIL && lp_index_text(lua_tostring(L, 2)))
        return lp_index_set(L, t);
    return lp_raise(L, LP_E_ATTRIBUTE,
                    "'Tensor' object has no attribute '%.60s' that can be "
                    "assigned",
                    lua_tostring(L, 2));
}
