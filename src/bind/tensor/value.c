/* Values of torch that are no tensors: dtypes, devices, torch.Size, slices,
 * torch.none and torch.ellipsis; and how a value is described in a message.
 * Dtypes, devices, none and ellipsis exist once, so == and table keys work. A
 * Size is a Lua list with a metatable. */
#include <stdio.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"

const char lp_tag_slice = 's', lp_tag_ellipsis = 'e';
static const char tag_dtype = 'd', tag_device = 'v', tag_none = 'n';
static const char key_dtypes, key_devices, key_size, key_slice;

static const char *const device_names[] = {"cpu", "meta", "ipu"};

/* ---- dtypes -------------------------------------------------------------- */
void lp_push_dtype(lua_State *L, LpDtype t)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_dtypes);
    lua_rawgeti(L, -1, (lua_Integer)t + 1);
    lua_remove(L, -2);
}

LpDtype lp_to_dtype(lua_State *L, int i)
{
    LpBox *b = lp_to_box(L, i, &tag_dtype);
    return b ? (LpDtype)(uintptr_t)b->p : LP_DT_NONE;
}

static int dtype_tostring(lua_State *L)
{
    LpDtype t = lp_to_dtype(L, 1);
    lua_pushfstring(L, "torch.%s", t < LP_N_DTYPES ? lp_dtype_name(t) : "?");
    return 1;
}

static int dtype_index(lua_State *L)
{
    LpDtype t = lp_to_dtype(L, 1);
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    if (t >= LP_N_DTYPES)
        return 0;
    if (strcmp(key, "itemsize") == 0)
        lua_pushinteger(L, (lua_Integer)lp_dtype_size(t));
    else if (strcmp(key, "is_floating_point") == 0)
        lua_pushboolean(L, lp_is_float(t));
    else if (strcmp(key, "is_signed") == 0)
        lua_pushboolean(L, t != LP_U8 && t != LP_BOOL);
    else if (strcmp(key, "is_complex") == 0)
        lua_pushboolean(L, 0);
    else
        return 0;
    return 1;
}

/* ---- devices ------------------------------------------------------------- */
void lp_push_device(lua_State *L, LpDevice d)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_devices);
    lua_rawgeti(L, -1, (lua_Integer)d + 1);
    lua_remove(L, -2);
}

bool lp_to_device(lua_State *L, int i, LpDevice *d)
{
    LpBox *b = lp_to_box(L, i, &tag_device);
    if (b) {
        *d = (LpDevice)(uintptr_t)b->p;
        return true;
    }
    if (lua_type(L, i) != LUA_TSTRING)
        return false;
    size_t n;
    const char *s = lua_tolstring(L, i, &n);
    if (n > 2 && strcmp(s + n - 2, ":0") == 0)
        n -= 2;
    for (int k = 0; k < 3; k++)
        if (strlen(device_names[k]) == n &&
            memcmp(s, device_names[k], n) == 0) {
            *d = (LpDevice)k;
            return true;
        }
    return false;
}

static int device_tostring(lua_State *L)
{
    LpDevice d = LP_DEV_CPU;
    lp_to_device(L, 1, &d);
    lua_pushfstring(L, "device(type='%s')", device_names[d]);
    return 1;
}

static int device_index(lua_State *L)
{
    LpDevice d = LP_DEV_CPU;
    lp_to_device(L, 1, &d);
    if (lua_type(L, 2) == LUA_TSTRING &&
        strcmp(lua_tostring(L, 2), "type") == 0)
        return lua_pushstring(L, device_names[d]), 1;
    return 0;
}

static int device_new(lua_State *L)
{
    LpDevice d;
    if (!lp_to_device(L, 1, &d))
        return lp_no_device(L, 1, "torch.device");
    lp_push_device(L, d);
    return 1;
}

int lp_no_device(lua_State *L, int i, const char *fn)
{
    char what[LP_DESCRIBE];
    if (lua_type(L, i) != LUA_TSTRING)
        return lp_raise(L, LP_E_TYPE,
                        "%s(): argument 'device' must be a torch.device or its "
                        "name, not %s",
                        fn, lp_describe(L, i, what));
    return lp_raise(L, LP_E_RUNTIME,
                    "%s(): there is no device '%.40s' here; allowed are 'cpu', "
                    "'meta', 'ipu': tensors are on the host ('meta': shapes "
                    "without elements), poptorch.trainingModel and "
                    "inferenceModel take models to the simulated IPUs",
                    fn, lua_tostring(L, i));
}

/* ---- torch.Size ---------------------------------------------------------- */
void lp_push_size(lua_State *L, const int64_t *shape, int n)
{
    lp_push_ints(L, shape, n);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_size);
    lua_setmetatable(L, -2);
}

static int size_new(lua_State *L)
{
    char what[LP_DESCRIBE];
    if (!lua_istable(L, 1))
        return lp_raise(L, LP_E_TYPE,
                        "torch.Size(): expected a list of integers, not %s",
                        lp_describe(L, 1, what));
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    lua_createtable(L, (int)n, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(L, 1, i), !lua_isinteger(L, -1))
            return lp_raise(L, LP_E_TYPE,
                            "torch.Size(): element %lld is no integer",
                            (long long)i);
        lua_rawseti(L, -2, i);
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_size);
    lua_setmetatable(L, -2);
    return 1;
}

/* What getmetatable gives is called with anything: the length of the table at
 * `i`, an error if it is none. */
static lua_Integer size_len(lua_State *L, int i)
{
    luaL_checktype(L, i, LUA_TTABLE);
    return (lua_Integer)lua_rawlen(L, i);
}

static int size_tostring(lua_State *L)
{
    luaL_Buffer b;
    lua_Integer n = size_len(L, 1);
    luaL_buffinit(L, &b);
    luaL_addstring(&b, "torch.Size([");
    for (lua_Integer i = 1; i <= n; i++) {
        if (i > 1)
            luaL_addstring(&b, ", ");
        lua_rawgeti(L, 1, i);
        luaL_tolstring(L, -1, NULL); /* whatever a script put there */
        lua_remove(L, -2);
        luaL_addvalue(&b);
    }
    luaL_addstring(&b, "])");
    luaL_pushresult(&b);
    return 1;
}

/* Equal to any list of the same integers. */
static int size_eq(lua_State *L)
{
    lua_Integer n = size_len(L, 1);
    bool same = size_len(L, 2) == n;
    for (lua_Integer i = 1; same && i <= n; i++) {
        lua_rawgeti(L, 1, i);
        lua_rawgeti(L, 2, i);
        same = lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
    }
    lua_pushboolean(L, same);
    return 1;
}

static int size_numel(lua_State *L)
{
    lua_Integer n = size_len(L, 1);
    int64_t product = 1;
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        if (!lp_mul_i64(product, lua_tointeger(L, -1), &product))
            return lp_raise(L, LP_E_OVERFLOW,
                            "numel(): the product of %lld sizes overflows",
                            (long long)n);
        lua_pop(L, 1);
    }
    lua_pushinteger(L, product);
    return 1;
}

/* (size, key): negative positions count from the end. Upvalue: the methods. */
static int size_index(lua_State *L)
{
    if (!lua_isinteger(L, 2)) {
        lua_settop(L, 2);
        lua_rawget(L, lua_upvalueindex(1));
        return 1;
    }
    lua_Integer n = size_len(L, 1), i = lua_tointeger(L, 2);
    if (i == 0 || i < -n)
        return lp_raise(L, LP_E_INDEX,
                        "torch.Size: position %lld of %lld: sizes count from "
                        "1, as lists do, or from the end, -1; x:size(0) counts "
                        "from 0",
                        (long long)i, (long long)n);
    lua_rawgeti(L, 1, i < 0 ? n + 1 + i : i);
    return 1;
}

/* ---- slices -------------------------------------------------------------- */
/* As in Python a tensor of one integer is a position. */
static bool slice_bound(lua_State *L, int i, int64_t *v)
{
    char what[LP_DESCRIBE];
    if (lua_isnoneornil(L, i) || lp_is_none(L, i))
        return false;
    LpTensor *t = lp_to_tensor(L, i);
    if (t && t->st->flags & LP_ST_TRACED)
        lp_raise(L, LP_E_UNTRACED,
                 "torch.slice(): argument %d is a traced tensor, whose value "
                 "is known when the program runs: "
                 "poptorch.dynamic_slice(x, dim, start, size, step) takes one "
                 "as its start",
                 i);
    if (t && lp_dtype_kind(t->dtype) == LP_KIND_INT &&
        lp_tensor_numel(t) == 1) {
        *v = lp_scalar_i(lp_scalar_load(t->dtype, lp_read_tensor(L, t)));
        return true;
    }
    if (!lua_isinteger(L, i))
        lp_raise(L, LP_E_TYPE,
                 "torch.slice(): argument %d is %s; an integer, a tensor of "
                 "one integer or nil is allowed",
                 i, lp_describe(L, i, what));
    *v = lua_tointeger(L, i);
    return true;
}

/* torch.slice(stop), torch.slice(start, stop[, step]) */
static int slice_new(lua_State *L)
{
    LpSliceBox s = {.box = {&lp_tag_slice, NULL}, .step = 1};
    if (lua_gettop(L) == 1) {
        s.has_stop = slice_bound(L, 1, &s.stop);
    } else {
        s.has_start = slice_bound(L, 1, &s.start);
        s.has_stop = slice_bound(L, 2, &s.stop);
        slice_bound(L, 3, &s.step);
    }
    if (s.step <= 0)
        return lp_raise(L, LP_E_VALUE,
                        "torch.slice(): step must be positive, "
                        "not %lld",
                        (long long)s.step);
    *(LpSliceBox *)lua_newuserdatauv(L, sizeof s, 0) = s;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_slice);
    lua_setmetatable(L, -2);
    return 1;
}

static int slice_tostring(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &lp_tag_slice);
    LpSliceBox *s = (LpSliceBox *)(void *)b;
    char from[32] = "nil", to[32] = "nil";
    if (!s)
        return 0;
    if (s->has_start)
        snprintf(from, sizeof from, "%lld", (long long)s->start);
    if (s->has_stop)
        snprintf(to, sizeof to, "%lld", (long long)s->stop);
    lua_pushfstring(L, "torch.slice(%s, %s, %I)", from, to,
                    (LUAI_UACINT)s->step);
    return 1;
}

bool lp_is_none(lua_State *L, int i)
{
    return lp_to_box(L, i, &tag_none) != NULL;
}

static int none_tostring(lua_State *L)
{
    lua_pushliteral(L, "torch.none");
    return 1;
}

static int ellipsis_tostring(lua_State *L)
{
    lua_pushliteral(L, "torch.ellipsis");
    return 1;
}

bool lp_is_instance(lua_State *L, int i)
{
    if (lua_type(L, i) != LUA_TTABLE || !lua_getmetatable(L, i))
        return false;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_size);
    bool size = lua_rawequal(L, -1, -2);
    lua_pushliteral(L, "__index");
    bool indexed = lua_rawget(L, -3) != LUA_TNIL;
    lua_pop(L, 3);
    return indexed && !size && !lp_is_list(L, i);
}

/* ---- descriptions -------------------------------------------------------- */
static void describe_tensor(const LpBox *b, char buf[LP_DESCRIBE])
{
    const LpTensor *t = b->p;
    if (!t) {
        snprintf(buf, LP_DESCRIBE, "a closed Tensor");
        return;
    }
    LpType type = lp_tensor_type(t);
    snprintf(buf, LP_DESCRIBE, "Tensor %s %s", lp_dtype_name(t->dtype),
             lp_shape_str(&type));
}

static void describe_table(lua_State *L, int i, char buf[LP_DESCRIBE])
{
    size_t n = lua_rawlen(L, i);
    if (luaL_getmetafield(L, i, "__name") == LUA_TSTRING) {
        snprintf(buf, LP_DESCRIBE, "%s", lua_tostring(L, -1));
        lua_pop(L, 1);
    } else if (n) {
        snprintf(buf, LP_DESCRIBE, "list of %zu", n);
    } else {
        snprintf(buf, LP_DESCRIBE, "%s",
                 lp_is_empty_table(L, i) ? "an empty table" : "table");
    }
}

const char *lp_int_hint(lua_State *L, int i)
{
    bool is_float = lua_type(L, i) == LUA_TNUMBER && !lua_isinteger(L, i);
    return is_float ? "; // divides integers (4/2 and 2^3 are floats)" : "";
}

const char *lp_describe(lua_State *L, int i, char buf[LP_DESCRIBE])
{
    i = lua_absindex(L, i);
    LpBox *b = lp_to_box(L, i, &lp_tag_tensor);
    switch (lua_type(L, i)) {
    case LUA_TNUMBER:
        snprintf(buf, LP_DESCRIBE, "%s %s",
                 lua_isinteger(L, i) ? "int" : "float",
                 luaL_tolstring(L, i, NULL));
        lua_pop(L, 1);
        break;
    case LUA_TBOOLEAN:
        snprintf(buf, LP_DESCRIBE, "bool %s",
                 lua_toboolean(L, i) ? "true" : "false");
        break;
    case LUA_TSTRING:
        snprintf(buf, LP_DESCRIBE, "str '%.60s'", lua_tostring(L, i));
        break;
    case LUA_TTABLE:
        describe_table(L, i, buf);
        break;
    case LUA_TUSERDATA:
        if (b) {
            describe_tensor(b, buf);
        } else {
            snprintf(buf, LP_DESCRIBE, "%.100s", luaL_tolstring(L, i, NULL));
            lua_pop(L, 1);
        }
        break;
    default:
        snprintf(buf, LP_DESCRIBE, "%s", luaL_typename(L, i));
    }
    return buf;
}

/* ---- set-up -------------------------------------------------------------- */
/* A box of its own kind on the stack, with a metatable made of `events`. */
static void push_single(lua_State *L, const char *tag, uintptr_t v)
{
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 0);
    b->tag = tag;
    b->p = (void *)v;
}

static void push_metatable(lua_State *L, const char *name,
                           lua_CFunction to_string, lua_CFunction index)
{
    lua_newtable(L);
    lp_set_string(L, "__name", name);
    lp_set_function(L, "__tostring", to_string);
    if (index) {
        lp_set_function(L, "__index", index);
    }
}

static void bind_dtypes(lua_State *L)
{
    static const char *const aliases[] = {"float", "double", "half",
                                          "long",  "int",    "short"};
    lua_newtable(L); /* names */
    lua_createtable(L, LP_N_DTYPES, 0);
    push_metatable(L, "torch.dtype", dtype_tostring, dtype_index);
    for (LpDtype t = 0; t < LP_N_DTYPES; t++) {
        push_single(L, &tag_dtype, t);
        lua_pushvalue(L, -2);
        lua_setmetatable(L, -2);
        lua_pushvalue(L, -1);
        lua_rawseti(L, -4, (lua_Integer)t + 1);
        lua_setfield(L, -4, lp_dtype_name(t));
    }
    lua_pop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_dtypes);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        lp_push_dtype(L, lp_dtype_find(aliases[i]));
        lua_setfield(L, -2, aliases[i]);
    }
    lua_setfield(L, -2, "dtypes");
}

static void bind_devices(lua_State *L)
{
    lua_createtable(L, 3, 0);
    push_metatable(L, "torch.device", device_tostring, device_index);
    for (int d = 0; d < 3; d++) {
        push_single(L, &tag_device, (uintptr_t)d);
        lua_pushvalue(L, -2);
        lua_setmetatable(L, -2);
        lua_rawseti(L, -3, d + 1);
    }
    lua_pop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_devices);
    lp_set_function(L, "device", device_new);
}

static void bind_size(lua_State *L)
{
    push_metatable(L, "torch.Size", size_tostring, NULL);
    lp_set_function(L, "__eq", size_eq);
    lua_newtable(L);
    lp_set_function(L, "numel", size_numel);
    lua_pushcclosure(L, size_index, 1);
    lua_setfield(L, -2, "__index");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_size);
    lp_set_function(L, "Size", size_new);
}

/* core.dtypes {name = dtype}, device, Size, slice, none, ellipsis */
void lp_bind_value(lua_State *L)
{
    bind_dtypes(L);
    bind_devices(L);
    bind_size(L);
    push_metatable(L, "torch.slice", slice_tostring, NULL);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_slice);
    lp_set_function(L, "slice", slice_new);
    push_single(L, &tag_none, 0);
    push_metatable(L, "torch.none", none_tostring, NULL);
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "none");
    push_single(L, &lp_tag_ellipsis, 0);
    push_metatable(L, "torch.ellipsis", ellipsis_tostring, NULL);
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "ellipsis");
}
