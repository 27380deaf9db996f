/* Methods of tensors that are no operators: sizes, conversion to Lua, dtype
 * conversion, autograd. */
#include <stdio.h>
#include <string.h>

#include "src/bind/bind.h"
#include "src/bind/module.h"
#include "src/ops/ops.h"

#define SELF(name, most) lp_check_self(L, name, most)

/* Argument 2, or `dim` of the table there: a dimension of t, wrapped. */
static int64_t which_dim(lua_State *L, const LpTensor *t, const char *name)
{
    char buf[LP_DESCRIBE];
    LpErr e = {0};
    int ok;
    if (lua_istable(L, 2))
        lua_getfield(L, 2, "dim");
    else
        lua_pushvalue(L, 2);
    int64_t d = lua_tointegerx(L, -1, &ok);
    if (!ok)
        lp_raise(L, LP_E_TYPE, "%s(): argument 'dim' must be an int, not %s",
                 name, lp_describe(L, -1, buf));
    if (t->ndim == 0)
        lp_raise(L, LP_E_INDEX,
                 "%s(): dim is %lld, but the tensor has no dimensions", name,
                 (long long)d);
    lp_must(L, lp_wrap_dim(&d, t->ndim, &e), &e);
    return d;
}

static int m_size(lua_State *L)
{
    LpTensor *t = SELF("size", 1);
    if (lua_isnoneornil(L, 2))
        return lp_push_size(L, t->shape, t->ndim), 1;
    lua_pushinteger(L, t->shape[which_dim(L, t, "size")]);
    return 1;
}

static int m_stride(lua_State *L)
{
    LpTensor *t = SELF("stride", 1);
    if (!lua_isnoneornil(L, 2)) {
        lua_pushinteger(L, t->strides[which_dim(L, t, "stride")]);
        return 1;
    }
    lp_push_ints(L, t->strides, t->ndim);
    lp_mark_list(L);
    return 1;
}

LP_GETTER(m_dim, integer, SELF("dim", 0)->ndim)
LP_GETTER(m_ndimension, integer, SELF("ndimension", 0)->ndim)
LP_GETTER(m_nelement, integer, lp_tensor_numel(SELF("nelement", 0)))
LP_GETTER(m_numel, integer, lp_tensor_numel(SELF("numel", 0)))
LP_GETTER(m_element_size, integer,
          (lua_Integer)lp_dtype_size(SELF("element_size", 0)->dtype))
LP_GETTER(m_storage_offset, integer, SELF("storage_offset", 0)->offset)
LP_GETTER(m_is_contiguous, boolean,
          lp_tensor_contiguous(SELF("is_contiguous", 0)))
LP_GETTER(m_is_floating_point, boolean,
          lp_is_float(SELF("is_floating_point", 0)->dtype))

static int m_is_complex(lua_State *L)
{
    SELF("is_complex", 0);
    lua_pushboolean(L, 0);
    return 1;
}

LP_GETTER(m_data_ptr, integer,
          (lua_Integer)(intptr_t)lp_read_tensor(L, SELF("data_ptr", 0)))

static int m_is_same_size(lua_State *L)
{
    LpType a = lp_tensor_type(SELF("is_same_size", 1));
    LpType b = lp_tensor_type(lp_check_tensor(L, 2, "is_same_size", "other"));
    lua_pushboolean(L, lp_shape_eq(&a, &b));
    return 1;
}

/* ---- dtype conversion ---------------------------------------------------- */
void lp_push_cast(lua_State *L, LpTensor *t, LpDtype to)
{
    if (t->dtype == to) {
        lp_push_tensor(L, t);
        return;
    }
    LpAttr attr[LP_MAX_ATTR];
    const LpForm *f = lp_op_form(&op_cast);
    memcpy(attr, f->base, sizeof attr);
    lp_set_attr(f, attr, "dtype", lp_attr_dtype(to));
    LpArg in = lp_arg_tensor(t);
    lp_call_push(L, f, &in, 1, attr, 1);
}

/* x:float() …; upvalues: the dtype, the name. The value itself when nothing
 * changes. */
static int m_cast(lua_State *L)
{
    LpTensor *t = SELF(lua_tostring(L, lua_upvalueindex(2)), 0);
    LpDtype to = (LpDtype)lua_tointeger(L, lua_upvalueindex(1));
    if (t->dtype == to)
        return lua_settop(L, 1), 1;
    lp_push_cast(L, t, to);
    return 1;
}

static void to_meta(lua_State *L, LpTensor *t)
{
    LpErr e = {0};
    LpTensor *out = NULL;
    LpType type = lp_tensor_type(t);
    LpBox *box = lp_push_box(L);
    lp_must(L, lp_tensor_empty(&type, LP_ST_META, &out, &e), &e);
    box->p = out;
}

typedef struct Target {
    LpDtype dtype;
    LpDevice device;
    bool copy;
} Target;

static LpDevice device_of(const LpTensor *t)
{
    return t->st->flags & LP_ST_META ? LP_DEV_META : LP_DEV_CPU;
}

/* One positional argument of to(): a dtype, a device or another tensor. */
static void to_argument(lua_State *L, int i, Target *to)
{
    char what[LP_DESCRIBE];
    LpTensor *like = lp_to_tensor(L, i);
    LpDtype t = lp_to_dtype(L, i);
    if (t != LP_DT_NONE) {
        to->dtype = t;
    } else if (like) {
        to->dtype = like->dtype;
        to->device = device_of(like);
    } else if (lua_isboolean(L, i)) {
        /* non_blocking: copies are done when to() returns */
    } else if (lua_type(L, i) == LUA_TSTRING) {
        if (!lp_to_device(L, i, &to->device))
            lp_no_device(L, i, "to");
    } else if (!lua_isnil(L, i) && !lp_to_device(L, i, &to->device)) {
        lp_raise(L, LP_E_TYPE,
                 "to(): argument %d is %s; a dtype, a device ('cpu', 'meta') "
                 "or a Tensor is allowed",
                 i - 1, lp_describe(L, i, what));
    }
}

static void to_keywords(lua_State *L, int i, Target *to)
{
    static const char *const names[] = {"dtype", "device", "copy",
                                        "non_blocking", NULL};
    lp_check_keywords(L, i, "to", names);
    if (lua_getfield(L, i, "dtype") != LUA_TNIL) {
        to->dtype = lp_to_dtype(L, -1);
        if (to->dtype == LP_DT_NONE)
            lp_raise(L, LP_E_TYPE, "to(): dtype is no torch dtype");
    }
    if (lua_getfield(L, i, "device") != LUA_TNIL &&
        !lp_to_device(L, -1, &to->device))
        lp_no_device(L, lua_gettop(L), "to");
    lua_getfield(L, i, "copy");
    to->copy = lua_toboolean(L, -1);
    lua_pop(L, 3);
}

static int push_clone(lua_State *L, LpTensor *t)
{
    const LpForm *f = lp_op_form(&op_clone);
    LpArg in = lp_arg_tensor(t);
    return lp_call_push(L, f, &in, 1, f->base, 1);
}

static int m_to(lua_State *L)
{
    LpTensor *t = SELF("to", 4);
    Target to = {t->dtype, device_of(t), false};
    int n = lua_gettop(L);
    if (n > 1 &&
        (lp_is_keywords(L, n, "to") || (n > 2 && lp_is_empty_table(L, n))))
        to_keywords(L, n--, &to);
    for (int i = 2; i <= n; i++)
        to_argument(L, i, &to);
    if (to.device == LP_DEV_IPU ||
        (to.device == LP_DEV_CPU && device_of(t) == LP_DEV_META))
        return lp_raise(L, LP_E_RUNTIME,
                        "to(): a tensor cannot be moved from '%s' to '%s'; "
                        "poptorch moves models to IPUs",
                        device_of(t) == LP_DEV_META ? "meta" : "cpu",
                        to.device == LP_DEV_IPU ? "ipu" : "cpu");
    if (to.dtype == t->dtype && to.device == device_of(t)) {
        if (to.copy)
            return push_clone(L, t);
        lua_settop(L, 1);
        return 1;
    }
    lp_push_cast(L, t, to.dtype);
    if (to.device == LP_DEV_META)
        to_meta(L, lp_to_tensor(L, -1));
    return 1;
}

static int m_cpu(lua_State *L)
{
    LpTensor *t = SELF("cpu", 0);
    if (device_of(t) == LP_DEV_META)
        return lp_raise(L, LP_E_RUNTIME, "cpu(): a meta tensor has no data");
    lua_settop(L, 1);
    return 1;
}

static int m_type_as(lua_State *L)
{
    LpTensor *t = SELF("type_as", 1);
    lp_push_cast(L, t, lp_check_tensor(L, 2, "type_as", "other")->dtype);
    return 1;
}

static const struct {
    const char *type, *name;
    LpDtype t;
} casts[] = {
    {"Float", "float", LP_F32}, {"Double", "double", LP_F64},
    {"Half", "half", LP_F16},   {"BFloat16", "bfloat16", LP_BF16},
    {"Long", "long", LP_I64},   {"Int", "int", LP_I32},
    {"Short", "short", LP_I16}, {"Char", "char", LP_I8},
    {"Byte", "byte", LP_U8},    {"Bool", "bool", LP_BOOL},
};
enum { N_CASTS = sizeof casts / sizeof *casts };

/* Is it the name of casts[i], "torch.FloatTensor"? */
static bool is_type(const char *name, int i)
{
    char own[32];
    snprintf(own, sizeof own, "torch.%sTensor", casts[i].type);
    return strcmp(name, own) == 0;
}

/* type() -> "torch.FloatTensor"; type(dtype) or type(that name) converts. */
static int m_type(lua_State *L)
{
    char what[LP_DESCRIBE];
    LpTensor *t = SELF("type", 2);
    LpDtype to = lp_to_dtype(L, 2);
    if (lua_isnoneornil(L, 2)) {
        for (int i = 0; i < N_CASTS; i++)
            if (casts[i].t == t->dtype)
                lua_pushfstring(L, "torch.%sTensor", casts[i].type);
        return 1;
    }
    for (int i = 0; to == LP_DT_NONE && i < N_CASTS; i++)
        if (lua_type(L, 2) == LUA_TSTRING && is_type(lua_tostring(L, 2), i))
            to = casts[i].t;
    if (to == LP_DT_NONE)
        return lp_raise(
            L, lua_type(L, 2) == LUA_TSTRING ? LP_E_VALUE : LP_E_TYPE,
            "type(): the argument is %s; a dtype or the name of a type, "
            "'torch.FloatTensor', is allowed",
            lp_describe(L, 2, what));
    lp_push_cast(L, t, to);
    return 1;
}

/* ---- autograd ------------------------------------------------------------ */
static int m_requires_grad_(lua_State *L)
{
    LpTensor *t = SELF("requires_grad_", 1);
    LpErr e = {0};
    char buf[LP_DESCRIBE];
    if (lua_istable(L, 2))
        lua_getfield(L, 2, "requires_grad");
    else
        lua_settop(L, 2);
    if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
        return lp_raise(L, LP_E_TYPE,
                        "requires_grad_(): argument 'requires_grad' must be a "
                        "bool, not %s",
                        lp_describe(L, -1, buf));
    bool on = lua_isnil(L, -1) || lua_toboolean(L, -1);
    lp_must(L, lp_set_requires_grad(t, on, &e), &e);
    lua_settop(L, 1);
    return 1;
}

/* Forgets how the tensor was made: it becomes a leaf. */
static int m_detach_(lua_State *L)
{
    LpTensor *t = SELF("detach_", 0);
    LpErr e = {0};
    if (t->base || t->st->flags & LP_ST_TRACED)
        return lp_raise(L, LP_E_RUNTIME,
                        "detach_(): views and traced tensors cannot be "
                        "detached in place; use detach()");
    if (!lp_is_leaf(t) && t->meta) {
        lp_tensor_meta_free(t);
        t->requires_grad = false;
    } else if (lp_set_requires_grad(t, false, &e) != LP_OK) {
        return lp_bind_fail(L, &e);
    }
    lua_settop(L, 1);
    return 1;
}

static int m_retain_grad(lua_State *L)
{
    LpTensor *t = SELF("retain_grad", 0);
    if (!lp_requires_grad(t))
        return lp_raise(L, LP_E_RUNTIME,
                        "retain_grad(): the tensor does not "
                        "require a gradient");
    lp_retain_grad(t);
    return 0;
}

static int m_contiguous(lua_State *L)
{
    LpTensor *t = SELF("contiguous", 0), *out = NULL;
    LpErr e = {0};
    int tries = 0;
    if (lp_tensor_contiguous(t))
        return lua_settop(L, 1), 1;
    lp_gc_account(L);
    LpBox *box = lp_push_box(L);
    while (lp_contiguous(t, &out, &e) != LP_OK)
        lp_gc_retry(L, &e, &tries, NULL);
    box->p = out;
    return 1;
}

static int m_copy_(lua_State *L)
{
    LpTensor *t = SELF("copy_", 2);
    LpErr e = {0};
    LpArg src;
    int tries = 0;
    if (!lp_to_operand(L, 2, &src))
        lp_check_tensor(L, 2, "copy_", "src");
    while (lp_copy_into(t, &src, &e) != LP_OK)
        lp_gc_retry(L, &e, &tries, NULL);
    lua_settop(L, 1);
    return 1;
}

static const luaL_Reg methods[] = {
    {"size", m_size},
    {"stride", m_stride},
    {"dim", m_dim},
    {"ndimension", m_ndimension},
    {"numel", m_numel},
    {"nelement", m_nelement},
    {"element_size", m_element_size},
    {"storage_offset", m_storage_offset},
    {"is_contiguous", m_is_contiguous},
    {"is_floating_point", m_is_floating_point},
    {"is_complex", m_is_complex},
    {"is_same_size", m_is_same_size},
    {"data_ptr", m_data_ptr},
    {"to", m_to},
    {"cpu", m_cpu},
    {"type", m_type},
    {"type_as", m_type_as},
    {"requires_grad_", m_requires_grad_},
    {"retain_grad", m_retain_grad},
    {"detach_", m_detach_},
    {"copy_", m_copy_},
    {"contiguous", m_contiguous},
    {NULL, NULL},
};

void lp_add_methods(lua_State *L)
{
    luaL_setfuncs(L, methods, 0);
    for (int i = 0; i < N_CASTS; i++) {
        lua_pushinteger(L, casts[i].t);
        lua_pushstring(L, casts[i].name);
        lua_pushcclosure(L, m_cast, 2);
        lua_setfield(L, -2, casts[i].name);
    }
}
