/* torch.Tensor: a box that owns one reference to an LpTensor. */
#include "src/autodiff/autocast.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"
#include "src/ops/ops.h"

const char lp_tag_tensor = 't';
static const char tag_owner = 'o';
static const char key_tensor; /* registry: the metatable of tensors */
static const char key_owner;

LpTensor *lp_new_tensor(lua_State *L, const LpType *type)
{
    LpErr e = {0};
    LpTensor *t = NULL;
    int tries = 0;
    lp_gc_account(L);
    LpBox *box = lp_push_box(L);
    while (lp_tensor_new(type, &t, &e) != LP_OK)
        lp_gc_retry(L, &e, &tries, NULL);
    box->p = t;
    return t;
}

LpTensor *lp_check_tensor(lua_State *L, int i, const char *fn, const char *arg)
{
    LpTensor *t = lp_to_tensor(L, i);
    if (t)
        return t;
    char what[LP_DESCRIBE];
    lp_raise(L, LP_E_TYPE, "%s(): argument '%s' must be a Tensor, not %s", fn,
             arg, lp_describe(L, i, what));
    return NULL;
}

const void *lp_read_tensor(lua_State *L, const LpTensor *t)
{
    LpErr e = {0};
    lp_must(L, lp_tensor_touch(t, false, &e), &e);
    return lp_tensor_data(t);
}

LpTensor **lp_check_tensors(lua_State *L, int i, const char *fn,
                            const char *arg, int *n)
{
    luaL_checktype(L, i, LUA_TTABLE);
    *n = (int)lua_rawlen(L, i);
    LpTensor **t = lua_newuserdatauv(L, ((size_t)*n + 1) * sizeof *t, 0);
    for (int k = 0; k < *n; k++) {
        lua_rawgeti(L, i, k + 1);
        t[k] = lp_check_tensor(L, -1, fn, arg);
        lua_pop(L, 1);
    }
    return t;
}

LpTensor *lp_check_self(lua_State *L, const char *fn, int most)
{
    LpTensor *t = lp_check_tensor(L, 1, fn, "self");
    int n = lua_gettop(L) - 1;
    if (n <= most || (n == most + 1 && lp_is_empty_table(L, n + 1)))
        return t;
    lp_raise(L, LP_E_TYPE, "%s() takes %s%d argument%s, but %d %s given", fn,
             most > 1 ? "at most " : "", most, most == 1 ? "" : "s", n,
             n == 1 ? "was" : "were");
    return NULL;
}

LpBox *lp_push_box(lua_State *L)
{
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 0);
    b->tag = &lp_tag_tensor;
    b->p = NULL;
    lp_gc_made();
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_tensor);
    lua_setmetatable(L, -2);
    return b;
}

void lp_push_tensor(lua_State *L, LpTensor *t)
{
    if (t)
        lp_push_box(L)->p = lp_tensor_retain(t);
    else
        lua_pushnil(L);
}

LpOwner *lp_push_owner(lua_State *L)
{
    LpOwner *o = lua_newuserdatauv(L, sizeof *o, 0);
    o->box = (LpBox){&tag_owner, NULL};
    o->n = 0;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_owner);
    lua_setmetatable(L, -2);
    return o;
}

/* Pushes a list of the owner's tensors and empties it. */
static void owner_list(lua_State *L, LpOwner *o)
{
    lua_createtable(L, o->n, 0);
    for (int i = 0; i < o->n; i++) {
        if (!o->t[i])
            lp_raise(L, LP_E_INTERNAL, "a result is missing");
        lp_push_box(L)->p = o->t[i];
        o->t[i] = NULL;
        lua_rawseti(L, -2, i + 1);
    }
    o->n = 0;
    lp_mark_list(L);
}

static int owner_gc(lua_State *L)
{
    LpOwner *o = lua_touserdata(L, 1);
    for (int i = 0; i < o->n; i++)
        lp_tensor_release(o->t[i]);
    o->n = 0;
    return 0;
}

/* __gc, __close and free(): afterwards the value is a closed tensor. Upvalue:
 * the shelf of functions that stand with boxes (keep.c). */
static int tensor_free(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &lp_tag_tensor);
    if (b) {
        lp_tensor_release(b->p);
        b->p = NULL;
        lp_gc_freed();
        lp_box_freed(L, lua_upvalueindex(1), 1);
    }
    return 0;
}

static void push_tensor_free(lua_State *L, lua_CFunction f)
{
    lp_push_shelf(L);
    lua_pushcclosure(L, f, 1);
}

bool lp_to_scalar(lua_State *L, int i, LpScalar *s)
{
    switch (lua_type(L, i)) {
    case LUA_TNUMBER:
        *s = lua_isinteger(L, i) ? lp_int(lua_tointeger(L, i))
                                 : lp_float(lua_tonumber(L, i));
        return true;
    case LUA_TBOOLEAN:
        *s = lp_boolean(lua_toboolean(L, i));
        return true;
    default:
        return false;
    }
}

void lp_push_scalar(lua_State *L, LpScalar s)
{
    if (s.kind == LP_KIND_FLOAT)
        lua_pushnumber(L, s.f);
    else if (s.kind == LP_KIND_INT)
        lua_pushinteger(L, s.i);
    else
        lua_pushboolean(L, s.i != 0);
}

void lp_push_ints(lua_State *L, const int64_t *v, int n)
{
    LP_PUSH_LIST(L, i, n, lua_pushinteger(L, v[i]));
}

static int push_list(lua_State *L, const LpForm *f, const LpArg *in, int n_in,
                     const LpAttr *attr)
{
    LpErr e = {0};
    int tries = 0;
    LpOwner *o = lp_push_owner(L);
    while (lp_autocast_call(f->op, in, n_in, attr, o->t, &o->n, &e) != LP_OK) {
        o->n = 0;
        lp_gc_retry(L, &e, &tries, f);
    }
    owner_list(L, o);
    lua_remove(L, -2);
    return 1;
}

int lp_call_push(lua_State *L, const LpForm *f, const LpArg *in, int n_in,
                 const LpAttr *attr, int n_results)
{
    LpTensor *out[LP_MAX_OUT];
    LpBox *box[LP_MAX_OUT];
    LpErr e;
    int n = 0, tries = 0;
    lp_gc_account(L);
    if (n_results == 0)
        return push_list(L, f, in, n_in, attr);
    e.code = LP_OK;
    e.msg[0] = e.context[0] = '\0';
    for (int i = 0; i < n_results; i++)
        box[i] = lp_push_box(L);
    while (lp_autocast_call(f->op, in, n_in, attr, out, &n, &e) != LP_OK)
        lp_gc_retry(L, &e, &tries, f);
    for (int i = 0; i < n; i++) {
        if (i < n_results)
            box[i]->p = out[i];
        else
            lp_tensor_release(out[i]);
    }
    return n_results;
}

/* ---- arithmetic ---------------------------------------------------------- */
bool lp_to_operand(lua_State *L, int i, LpArg *a)
{
    a->t = lp_to_tensor(L, i);
    a->is_num = !a->t && lp_to_scalar(L, i, &a->num);
    return a->t || a->is_num;
}

/* Upvalue 1: the form. */
static int binary(lua_State *L)
{
    const LpForm *f = lua_touserdata(L, lua_upvalueindex(1));
    LpArg in[LP_MAX_IN];
    for (int i = 0; i < 2; i++)
        if (!lp_to_operand(L, i + 1, &in[i])) {
            char what[LP_DESCRIBE];
            return lp_raise(L, LP_E_TYPE,
                            "%s(): an operand is %s; a Tensor or a number is "
                            "allowed",
                            f->name, lp_describe(L, i + 1, what));
        }
    if (in[0].is_num && f == lp_op_form(&op_div)) {
        /* as in PyTorch: the gradient reads this, the divisor may be written */
        const LpForm *inverse = lp_op_form(&op_reciprocal);
        lp_call_push(L, inverse, in + 1, 1, inverse->base, 1);
        in[1].t = lp_to_tensor(L, -1);
        f = lp_op_form(&op_mul);
    }
    return lp_call_push(L, f, in, 2, f->base, 1);
}

static int unary(lua_State *L)
{
    const LpForm *f = lua_touserdata(L, lua_upvalueindex(1));
    LpArg in = lp_arg_tensor(lp_check_tensor(L, 1, f->name, "self"));
    return lp_call_push(L, f, &in, 1, f->base, 1);
}

static int tensor_len(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, 1, "#", "self");
    if (t->ndim == 0)
        return lp_raise(L, LP_E_TYPE,
                        "#: a tensor without dimensions has no "
                        "length");
    lua_pushinteger(L, t->shape[0]);
    return 1;
}

static int tensor_eq(lua_State *L)
{
    LpTensor *a = lp_to_tensor(L, 1), *b = lp_to_tensor(L, 2);
    lua_pushboolean(L, a && a == b);
    return 1;
}

static int tensor_order(lua_State *L)
{
    return lp_raise(L, LP_E_TYPE,
                    "Lua's < and <= can only give true or false: compare "
                    "tensors with a:lt(b), a:le(b), a:gt(b), a:ge(b)");
}

/* Without the printer of lua/torch: what it is, not what it holds. */
static int tensor_tostring(lua_State *L)
{
    char what[LP_DESCRIBE];
    lua_pushstring(L, lp_describe(L, 1, what));
    return 1;
}

static int next_row(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, 1, "pairs", "self");
    lua_Integer i = lua_isnil(L, 2) ? 0 : lua_tointeger(L, 2) + 1;
    if (t->ndim == 0 || i >= t->shape[0])
        return 0;
    lua_settop(L, 1);
    lua_pushinteger(L, i);
    lua_pushinteger(L, i);
    lua_gettable(L, 1);
    return 2;
}

static int tensor_pairs(lua_State *L)
{
    lp_check_tensor(L, 1, "pairs", "self");
    lua_pushcfunction(L, next_row);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

static int iter_step(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, lua_upvalueindex(1), "iter", "self");
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
    if (t->ndim == 0 || i >= t->shape[0])
        return 0;
    lua_pushinteger(L, i + 1);
    lua_replace(L, lua_upvalueindex(2));
    lua_pushinteger(L, i);
    lua_gettable(L, lua_upvalueindex(1));
    return 1;
}

/* for row in x:iter() do … end */
static int tensor_iter(lua_State *L)
{
    LpTensor *t = lp_check_self(L, "iter", 0);
    if (t->ndim == 0)
        return lp_raise(L, LP_E_TYPE,
                        "iter(): a tensor without dimensions "
                        "has no rows");
    lua_settop(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, iter_step, 2);
    return 1;
}

/* x:free(): again of a freed one is nothing. */
static int method_free(lua_State *L)
{
    if (lp_to_tensor(L, 1))
        lp_check_self(L, "free", 0);
    lua_settop(L, 1);
    return tensor_free(L);
}

static const luaL_Reg plain[] = {
    {"__len", tensor_len},
    {"__eq", tensor_eq},
    {"__lt", tensor_order},
    {"__le", tensor_order},
    {"__pairs", tensor_pairs},
    {"__tostring", tensor_tostring},
    {NULL, NULL},
};

static const struct {
    const char *event, *form;
    lua_CFunction fn;
} arithmetic[] = {
    {"__add", "add", binary},
    {"__sub", "sub", binary},
    {"__mul", "mul", binary},
    {"__div", "div", binary},
    {"__mod", "remainder", binary},
    {"__pow", "pow", binary},
    {"__idiv", "floor_divide", binary},
    {"__unm", "neg", unary},
    {"__band", "bitwise_and", binary},
    {"__bor", "bitwise_or", binary},
    {"__bxor", "bitwise_xor", binary},
    {"__bnot", "bitwise_not", unary},
    {"__shl", "bitwise_left_shift", binary},
    {"__shr", "bitwise_right_shift", binary},
};

static void add_arithmetic(lua_State *L)
{
    size_t n = sizeof arithmetic / sizeof *arithmetic;
    for (size_t i = 0; i < n; i++) {
        const LpForm *f =
            lp_find_form(arithmetic[i].form, LP_FORM_FUNCTION | LP_FORM_METHOD);
        if (!f)
            continue;
        lua_pushlightuserdata(L, (void *)(uintptr_t)f);
        lua_pushcclosure(L, arithmetic[i].fn, 1);
        lua_setfield(L, -2, arithmetic[i].event);
    }
}

/* core.Tensor: the metatable; core.methods: what x:name() finds. */
void lp_bind_tensor(lua_State *L)
{
    lua_gc(L, LUA_GCGEN, 0, 0);
    lua_newtable(L);
    lp_set_function(L, "__gc", owner_gc);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_owner);

    lua_newtable(L);
    luaL_setfuncs(L, plain, 0);
    lp_set_string(L, "__name", "torch.Tensor");
    add_arithmetic(L);
    push_tensor_free(L, tensor_free);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "__close");
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lp_add_form_methods(L);
    lp_add_methods(L);
    lp_add_reshaping(L);
    lp_add_properties(L);
    push_tensor_free(L, method_free);
    lua_setfield(L, -2, "free");
    lp_set_function(L, "iter", tensor_iter);
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, lp_tensor_index, 1);
    lua_setfield(L, -3, "__index");
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, lp_tensor_newindex, 1);
    lua_setfield(L, -3, "__newindex");
    lua_setfield(L, -3, "methods");
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_tensor);
    lua_setfield(L, -2, "Tensor");
}
