/* Lua values of tensors: item, tolist, tobytes; and what kind of tensor a value
 * is. */
#include "src/base/checked.h"
#include "src/base/interrupt.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"

/* Lists and elements that may become Lua values at once (some 4 GB of them): an
 * expanded or an empty tensor can have more than any memory. */
#define MOST_VALUES (INT64_C(1) << 28)

static int tensor_item(lua_State *L)
{
    LpTensor *t = lp_check_self(L, "item", 0);
    LpType type = lp_tensor_type(t);
    if (lp_tensor_numel(t) != 1)
        return lp_raise(L, LP_E_RUNTIME,
                        "item(): the tensor has shape %s; only one element "
                        "can become a Lua number",
                        lp_shape_str(&type));
    lp_push_scalar(L, lp_scalar_load(t->dtype, lp_read_tensor(L, t)));
    return 1;
}

/* Nested lists. With edge >= 0 a dimension of more than 2 * edge rows keeps
 * the first and the last `edge`. */
static void push_list(lua_State *L, const LpTensor *t, int dim, int64_t edge,
                      const char *p)
{
    int64_t size = (int64_t)lp_dtype_size(t->dtype), n, k = 0;
    if (dim == t->ndim) {
        lp_push_scalar(L, lp_scalar_load(t->dtype, p));
        return;
    }
    n = t->shape[dim];
    bool cut = edge >= 0 && n > 2 * edge;
    luaL_checkstack(L, 4, NULL);
    lua_createtable(L, (int)(cut ? 2 * edge : n), 0);
    for (int64_t i = 0; i < n; i++) {
        if (cut && i == edge)
            i = n - edge;
        if (i == n)
            break;
        if (k % 1024 == 1023 && lp_interrupt_raised())
            lp_raise(L, LP_E_INTERRUPT, "interrupted");
        push_list(L, t, dim + 1, edge, p + i * t->strides[dim] * size);
        lua_rawseti(L, -2, ++k);
    }
}

static void check_count(lua_State *L, const LpTensor *t)
{
    int64_t values = 1, all = 0;
    LpType type = lp_tensor_type(t);
    for (int i = 0; i < t->ndim && all <= MOST_VALUES; i++)
        if (!lp_mul_i64(values, t->shape[i], &values) ||
            !lp_add_i64(all, values, &all))
            all = INT64_MAX;
    if (all > MOST_VALUES)
        lp_raise(L, LP_E_OVERFLOW,
                 "tolist(): a tensor of shape %s makes more lists and numbers "
                 "than the %lld that are allowed",
                 lp_shape_str(&type), (long long)MOST_VALUES);
}

static void push_checked(lua_State *L, const LpTensor *t)
{
    const char *p = lp_read_tensor(L, t);
    check_count(L, t);
    push_list(L, t, 0, -1, p);
}

bool lp_push_numbers(lua_State *L, int i, bool list)
{
    LpTensor *t = lp_to_tensor(L, i);
    if (!t || t->ndim > list || lp_requires_grad(t))
        return false;
    push_checked(L, t);
    return true;
}

static int tensor_tolist(lua_State *L)
{
    LpTensor *t = lp_check_self(L, "tolist", 0);
    push_checked(L, t);
    return 1;
}

/* sample(t, edge): what printing needs of a large tensor. */
static int sample(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, 1, "sample", "self");
    push_list(L, t, 0, luaL_checkinteger(L, 2), lp_read_tensor(L, t));
    return 1;
}

/* The elements in order as a string of bytes: frombuffer's inverse. */
static int tensor_tobytes(lua_State *L)
{
    LpTensor *t = lp_check_self(L, "tobytes", 0);
    if (!lp_tensor_contiguous(t)) {
        lp_push_data(L, 1, LP_DT_NONE, "tobytes");
        t = lp_to_tensor(L, -1);
    }
    lua_pushlstring(L, lp_read_tensor(L, t),
                    (size_t)lp_tensor_numel(t) * lp_dtype_size(t->dtype));
    return 1;
}

LP_GETTER(is_parameter, boolean,
          lp_to_tensor(L, 1) && lp_to_tensor(L, 1)->is_param)

LP_GETTER(is_tensor, boolean, lp_to_tensor(L, 1) != NULL)

static int is_traced(lua_State *L)
{
    LpTensor *t = lp_to_tensor(L, 1);
    lua_pushboolean(L, t && t->st->flags & LP_ST_TRACED);
    return 1;
}

static int is_closed(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &lp_tag_tensor);
    lua_pushboolean(L, b && !b->p);
    return 1;
}

static const luaL_Reg functions[] = {
    {"sample", sample},       {"is_tensor", is_tensor},
    {"is_traced", is_traced}, {"is_parameter", is_parameter},
    {"is_closed", is_closed}, {NULL, NULL},
};

static const luaL_Reg methods[] = {
    {"item", tensor_item},
    {"tolist", tensor_tolist},
    {"tobytes", tensor_tobytes},
    {NULL, NULL},
};

void lp_bind_convert(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
    lua_getfield(L, -1, "methods");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
}
