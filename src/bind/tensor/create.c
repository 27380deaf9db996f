/* Tensors of Lua values: torch.tensor, as_tensor, frombuffer, the core of
 * nn.Parameter; convert.c has the way back. A nested list is walked twice:
 * once for shape and kind, once to store. {1, 2} has integers, {1.0, 2}
 * floats, {true} booleans; strings are refused, also those that look like
 * numbers. */
#include <stdio.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"

typedef struct Scan {
    lua_State *L;
    const char *fn;
    LpType type;             /* shape so far; dtype unused */
    bool depth_known;        /* a number was met: ndim is final */
    LpKind kind;             /* highest kind met */
    LpDtype from_tensor;     /* elements that are 0-d tensors */
    int64_t at[LP_MAX_DIMS]; /* where the walk is, from 1 as Lua counts */
    char *p;                 /* store: next element */
    bool overflow;           /* an element does not fit the type */
} Scan;

static const char *place(const Scan *s, int depth, char buf[160])
{
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; i < depth && n < 140; i++)
        n += (size_t)snprintf(buf + n, 160 - n, "[%lld]", (long long)s->at[i]);
    return buf;
}

static void ragged(Scan *s, int depth, int64_t got)
{
    char where[160];
    lp_raise(s->L, LP_E_VALUE,
             "%s(): the lists are ragged: data%s has %lld elements, others on "
             "that level have %lld (places count from 1)",
             s->fn, place(s, depth, where), (long long)got,
             (long long)s->type.shape[depth]);
}

static void leaf(Scan *s, int i, int depth)
{
    char where[160], what[LP_DESCRIBE];
    LpScalar x;
    LpTensor *t = lp_to_tensor(s->L, i);
    LpKind kind;
    if (t && t->ndim == 0) {
        kind = lp_dtype_kind(t->dtype);
        s->from_tensor = t->dtype;
    } else if (lp_to_scalar(s->L, i, &x)) {
        kind = x.kind;
    } else {
        lp_raise(s->L, LP_E_TYPE,
                 "%s(): data%s is %s; numbers, booleans and lists of them are "
                 "allowed",
                 s->fn, place(s, depth, where), lp_describe(s->L, i, what));
        return;
    }
    if (s->depth_known && s->type.ndim != depth)
        lp_raise(s->L, LP_E_VALUE,
                 "%s(): the lists are ragged: data%s is %s, others on that "
                 "level are lists (places count from 1)",
                 s->fn, place(s, depth, where), lp_describe(s->L, i, what));
    s->depth_known = true;
    if (kind > s->kind)
        s->kind = kind;
}

static void scan(Scan *s, int i, int depth)
{
    lua_State *L = s->L;
    if (lua_type(L, i) != LUA_TTABLE || lp_is_instance(L, i)) {
        leaf(s, i, depth);
        return;
    }
    int64_t n = (int64_t)lua_rawlen(L, i);
    if (n == 0 && !lp_is_empty_table(L, i))
        lp_raise(L, LP_E_TYPE,
                 "%s(): data has a table with names; lists are "
                 "allowed",
                 s->fn);
    if (depth == LP_MAX_DIMS)
        lp_raise(L, LP_E_VALUE, "%s(): data has more than %d levels", s->fn,
                 LP_MAX_DIMS);
    if (depth == s->type.ndim && !s->depth_known) {
        s->type.shape[depth] = n;
        s->type.ndim++;
    } else if (depth >= s->type.ndim) {
        char where[160];
        lp_raise(L, LP_E_VALUE,
                 "%s(): the lists are ragged: data%s is a list of %lld, "
                 "others on that level are numbers (places count from 1)",
                 s->fn, place(s, depth, where), (long long)n);
    } else if (s->type.shape[depth] != n) {
        ragged(s, depth, n);
    }
    luaL_checkstack(L, 4, NULL);
    for (int64_t k = 1; k <= n; k++) {
        s->at[depth] = k;
        lua_rawgeti(L, i, k);
        scan(s, lua_gettop(L), depth + 1);
        lua_pop(L, 1);
    }
    if (n == 0)
        s->depth_known = true; /* what has no elements has no more levels */
}

/* The same walk over checked data. Cannot raise. */
static void store(Scan *s, int i, LpDtype t)
{
    lua_State *L = s->L;
    LpScalar x = lp_int(0);
    if (lua_type(L, i) == LUA_TTABLE) {
        lua_Integer n = (lua_Integer)lua_rawlen(L, i);
        for (lua_Integer k = 1; k <= n; k++) {
            lua_rawgeti(L, i, k);
            store(s, lua_gettop(L), t);
            lua_pop(L, 1);
        }
        return;
    }
    LpTensor *e = lp_to_tensor(L, i);
    if (e)
        x = lp_scalar_load(e->dtype, lp_tensor_data(e));
    else
        lp_to_scalar(L, i, &x);
    if (!lp_is_float(t) && !lp_scalar_fits(x, t))
        s->overflow = true;
    lp_scalar_store(x, t, s->p);
    s->p += lp_dtype_size(t);
}

/* Values of 0-d tensors must be there before store() reads them. */
static void touch_leaves(lua_State *L, int i)
{
    if (lp_to_tensor(L, i))
        lp_read_tensor(L, lp_to_tensor(L, i));
    if (lua_type(L, i) != LUA_TTABLE)
        return;
    lua_Integer n = (lua_Integer)lua_rawlen(L, i);
    for (lua_Integer k = 1; k <= n; k++) {
        lua_rawgeti(L, i, k);
        touch_leaves(L, lua_gettop(L));
        lua_pop(L, 1);
    }
}

/* A copy without history, which becomes a leaf. */
static void push_copy(lua_State *L, LpTensor *src, LpDtype to)
{
    LpErr e = {0};
    LpType type = lp_tensor_type(src);
    if (to != LP_DT_NONE)
        type.dtype = to;
    LpArg a = lp_arg_tensor(src);
    LpTensor *t = lp_new_tensor(L, &type);
    bool on = lp_grad_enabled();
    lp_set_grad_enabled(false);
    lp_copy_into(t, &a, &e);
    lp_set_grad_enabled(on);
    lp_must(L, e.code, &e);
}

void lp_push_data(lua_State *L, int i, LpDtype t, const char *fn)
{
    Scan s = {.L = L, .fn = fn, .from_tensor = LP_DT_NONE};
    i = lua_absindex(L, i);
    if (lp_to_tensor(L, i)) {
        push_copy(L, lp_to_tensor(L, i), t);
        return;
    }
    s.kind = LP_KIND_BOOL;
    scan(&s, i, 0);
    if (s.from_tensor != LP_DT_NONE)
        touch_leaves(L, i);
    bool empty = lp_numel(&s.type) == 0;
    if (t == LP_DT_NONE)
        t = s.kind == LP_KIND_FLOAT || empty
                ? (s.from_tensor != LP_DT_NONE && lp_is_float(s.from_tensor)
                       ? s.from_tensor
                       : lp_default_dtype())
            : s.kind == LP_KIND_INT ? LP_I64
                                    : LP_BOOL;
    s.type.dtype = t;
    s.p = lp_tensor_data(lp_new_tensor(L, &s.type));
    store(&s, i, t);
    if (s.overflow)
        lp_raise(L, LP_E_RUNTIME,
                 "%s(): a value cannot be converted to type %s without "
                 "overflow",
                 fn, lp_dtype_name(t));
}

/* ---- torch.tensor -------------------------------------------------------- */
typedef struct Wanted {
    LpDtype dtype;
    LpDevice device;
    bool requires_grad;
} Wanted;

static Wanted wanted(lua_State *L, const char *fn)
{
    static const char *const names[] = {"dtype", "device", "requires_grad",
                                        NULL};
    Wanted w = {LP_DT_NONE, LP_DEV_CPU, false};
    if (lua_isnoneornil(L, 2))
        return w;
    if (!lua_istable(L, 2) || lua_gettop(L) > 2)
        lp_raise(L, LP_E_TYPE,
                 "%s(): takes the data and then keywords: {dtype = ..., "
                 "device = ..., requires_grad = ...}",
                 fn);
    lp_check_keywords(L, 2, fn, names);
    if (lua_getfield(L, 2, "dtype") != LUA_TNIL) {
        w.dtype = lp_to_dtype(L, -1);
        char what[LP_DESCRIBE];
        if (w.dtype == LP_DT_NONE)
            lp_raise(L, LP_E_TYPE, "%s(): dtype is %s, not a torch dtype", fn,
                     lp_describe(L, -1, what));
    }
    if (lua_getfield(L, 2, "device") != LUA_TNIL &&
        (!lp_to_device(L, -1, &w.device) || w.device != LP_DEV_CPU))
        lp_raise(L, LP_E_RUNTIME, "%s(): data is kept on the device 'cpu'", fn);
    lua_getfield(L, 2, "requires_grad");
    w.requires_grad = lua_toboolean(L, -1);
    lua_pop(L, 3);
    return w;
}

static int finish(lua_State *L, const Wanted *w)
{
    LpErr e = {0};
    if (w->requires_grad &&
        lp_set_requires_grad(lp_to_tensor(L, -1), true, &e) != LP_OK)
        return lp_bind_fail(L, &e);
    return 1;
}

static int torch_tensor(lua_State *L)
{
    Wanted w = wanted(L, "tensor");
    if (lua_isnone(L, 1))
        return lp_raise(L, LP_E_TYPE, "tensor(): argument 'data' is missing");
    lp_push_data(L, 1, w.dtype, "tensor");
    return finish(L, &w);
}

/* Shares a tensor that already fits. */
static int torch_as_tensor(lua_State *L)
{
    Wanted w = wanted(L, "as_tensor");
    LpTensor *t = lp_to_tensor(L, 1);
    if (!t)
        lp_push_data(L, 1, w.dtype, "as_tensor");
    else if (w.dtype == LP_DT_NONE || w.dtype == t->dtype)
        lua_pushvalue(L, 1);
    else
        lp_push_cast(L, t, w.dtype);
    return finish(L, &w);
}

/* ---- torch.frombuffer(string, {dtype, count, offset}) -------------------- */
static int64_t keyword_int(lua_State *L, int i, const char *name, int64_t def)
{
    int64_t v = def;
    if (lua_getfield(L, i, name) != LUA_TNIL) {
        if (!lua_isinteger(L, -1))
            lp_raise(L, LP_E_TYPE, "frombuffer(): %s must be an integer", name);
        v = lua_tointeger(L, -1);
    }
    lua_pop(L, 1);
    return v;
}

/* The bytes are copied: Lua strings never change, tensors do. */
static int torch_frombuffer(lua_State *L)
{
    static const char *const names[] = {"dtype", "count", "offset",
                                        "requires_grad", NULL};
    size_t len;
    if (lua_type(L, 1) != LUA_TSTRING || !lua_istable(L, 2))
        return lp_raise(L, LP_E_TYPE,
                        "frombuffer(): takes a string and "
                        "{dtype = ..., count = ..., offset = ...}");
    const char *bytes = lua_tolstring(L, 1, &len);
    lp_check_keywords(L, 2, "frombuffer", names);
    lua_getfield(L, 2, "dtype");
    Wanted w = {lp_to_dtype(L, -1), LP_DEV_CPU, false};
    lua_getfield(L, 2, "requires_grad");
    w.requires_grad = lua_toboolean(L, -1);
    if (w.dtype == LP_DT_NONE)
        return lp_raise(L, LP_E_TYPE,
                        "frombuffer(): keyword 'dtype' must be "
                        "a torch dtype");
    int64_t size = (int64_t)lp_dtype_size(w.dtype), n, total = (int64_t)len;
    int64_t offset = keyword_int(L, 2, "offset", 0);
    if (offset < 0 || offset > total)
        return lp_raise(L, LP_E_VALUE,
                        "frombuffer(): offset %lld lies outside of %lld bytes",
                        (long long)offset, (long long)total);
    n = keyword_int(L, 2, "count", -1);
    if (n < 0 && (total - offset) % size != 0)
        return lp_raise(L, LP_E_VALUE,
                        "frombuffer(): %lld bytes are no multiple of %lld, "
                        "the size of %s",
                        (long long)(total - offset), (long long)size,
                        lp_dtype_name(w.dtype));
    if (n < 0)
        n = (total - offset) / size;
    if (n > (total - offset) / size)
        return lp_raise(L, LP_E_VALUE,
                        "frombuffer(): %lld elements of %s do not fit in the "
                        "%lld bytes after the offset",
                        (long long)n, lp_dtype_name(w.dtype),
                        (long long)(total - offset));
    LpType type = {.dtype = w.dtype, .ndim = 1, .shape = {n}};
    memcpy(lp_tensor_data(lp_new_tensor(L, &type)), bytes + offset,
           (size_t)(n * size));
    return finish(L, &w);
}

/* torch.nn.Parameter's core: shares the elements, is a leaf of its own. */
static int parameter(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, 1, "Parameter", "data"), *out = NULL;
    bool on = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
    LpErr e = {0};
    LpBox *box = lp_push_box(L);
    lp_must(L, lp_detach(t, &out, &e), &e);
    out->is_param = true;
    box->p = out;
    lp_must(L, lp_set_requires_grad(out, on, &e), &e);
    return 1;
}

/* Of the heap's memory alone: other bytes are not this process's to give up. */
static int zero_room(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, 1, "zero_room", "room");
    size_t bytes = (size_t)lp_tensor_numel(t) * lp_dtype_size(t->dtype);
    if (t->st->flags & LP_ST_META)
        return 0;
    if (t->st->flags != 0 || t->st->release || t->st->bytes != bytes)
        lp_raise(L, LP_E_VALUE, "zero_room(): room must be newly made");
    lp_clear(t->st->data, bytes);
    return 0;
}

static const luaL_Reg functions[] = {
    {"tensor", torch_tensor},         {"as_tensor", torch_as_tensor},
    {"frombuffer", torch_frombuffer}, {"parameter", parameter},
    {"zero_room", zero_room},         {NULL, NULL},
};

void lp_bind_create(lua_State *L)
{
    luaL_setfuncs(L, functions, 0);
}
