/* Methods that give a tensor another shape, or another memory, in place:
 * x:t_(), squeeze_, unsqueeze_, transpose_, swapaxes_, swapdims_, as_strided_,
 * resize_, resize_as_, set_.
 *
 * The new shape is found by the view operator of the same name. A tensor that
 * nothing else refers to, and a leaf (which optimizers hold), changes itself;
 * else the userdata refers to the view from now on: views of the old shape and
 * recorded history stay what they were. */
#include <string.h>

#include "src/autodiff/trace.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"

/* The userdata at 1; raises when its tensor's shape may not change. */
static LpBox *check_self(lua_State *L, const char *fn)
{
    LpTensor *t = lp_check_tensor(L, 1, fn, "self");
    if (lp_grad_enabled() && lp_requires_grad(t) && lp_is_leaf(t))
        lp_raise(L, LP_E_RUNTIME,
                 "%s(): a leaf tensor that requires grad is being used in an "
                 "in-place operation; do it under torch.no_grad()",
                 fn);
    const LpTraceVar *v = NULL; /* the caller's tensor would keep its shape */
    if (lp_tracing)
        v = lp_trace_find(lp_trace_current(), t->st, NULL);
    if (lp_tracing &&
        (!(t->st->flags & LP_ST_TRACED) || (v && v->standin == t)))
        lp_raise(L, LP_E_RUNTIME,
                 "%s(): a tensor of the script, or one that it gives, cannot "
                 "change its shape inside a traced function; use the method "
                 "without '_'",
                 fn);
    return lp_to_box(L, 1, &lp_tag_tensor);
}

/* Does the tensor change itself? Asked before a view of it is made. */
static bool changes_itself(const LpTensor *t)
{
    bool leaf = t->requires_grad && lp_is_leaf(t);
    return leaf ? !t->base : t->refs == 1 && !t->meta;
}

static void take_geometry(LpTensor *t, const LpTensor *from)
{
    t->ndim = from->ndim;
    t->offset = from->offset;
    memcpy(t->shape, from->shape, sizeof t->shape);
    memcpy(t->strides, from->strides, sizeof t->strides);
}

static void take_memory(LpTensor *t, LpTensor *from)
{
    LpStorage *st = t->st;
    LpTensor *base = t->base;
    LpViewStep *view = t->view;
    from->st->refs++;
    t->st = from->st;
    t->base = from->base ? lp_tensor_retain(from->base) : NULL;
    t->view = from->view;
    if (t->view)
        t->view->refs++;
    lp_storage_release(st);
    if (view)
        lp_view_step_release(view);
    lp_tensor_release(base);
}

/* The userdata of `box` becomes a name for what `now` is. */
static void become(LpBox *box, LpTensor *now, bool itself)
{
    LpTensor *t = box->p;
    if (itself && !(now->meta && !t->meta)) {
        if (now->base != t)
            take_memory(t, now);
        take_geometry(t, now);
        return;
    }
    box->p = lp_tensor_retain(now);
    lp_tensor_release(t);
}

/* Upvalue 1: the view operator's method; 2: the name. */
static int m_view_(lua_State *L)
{
    LpBox *box = check_self(L, lua_tostring(L, lua_upvalueindex(2)));
    bool itself = changes_itself(box->p);
    int n = lua_gettop(L);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_rotate(L, 1, 2); /* self stays at the bottom */
    lua_call(L, n, 1);
    become(box, lp_to_tensor(L, -1), itself);
    lua_settop(L, 1);
    return 1;
}

/* ---- resize_ ------------------------------------------------------------- */
/* {2, 3}, a Size, or loose integers from index 2 on. */
static LpType check_sizes(lua_State *L, const char *fn, LpDtype dtype)
{
    LpErr e = {0};
    LpType t = {.dtype = dtype};
    bool list = lua_istable(L, 2) || lua_isuserdata(L, 2);
    lua_Integer n = list ? luaL_len(L, 2) : lua_gettop(L) - 1;
    if (list && lua_gettop(L) > 2)
        lp_raise(L, LP_E_TYPE, "%s(): takes sizes and nothing else", fn);
    if (n > LP_MAX_DIMS)
        lp_raise(L, LP_E_VALUE, "%s(): a tensor has at most %d dimensions", fn,
                 LP_MAX_DIMS);
    t.ndim = (int8_t)n;
    for (int i = 0; i < (int)n; i++) {
        int isint;
        if (list)
            lua_geti(L, 2, i + 1);
        else
            lua_pushvalue(L, i + 2);
        t.shape[i] = lua_tointegerx(L, -1, &isint);
        char what[LP_DESCRIBE];
        if (!isint || t.shape[i] < 0)
            lp_raise(L, LP_E_TYPE,
                     "%s(): size %d is %s; sizes are integers from 0 on", fn, i,
                     lp_describe(L, -1, what));
        lua_pop(L, 1);
    }
    lp_must(L, lp_shape_check(&t, &e), &e);
    return t;
}

/* A tensor of this type over the memory of `t`, or over more memory that
 * starts with a copy of it. */
static LpStatus resized(LpTensor *t, const LpType *type, LpTensor **out,
                        LpErr *e)
{
    size_t size = lp_dtype_size(t->dtype);
    size_t need = ((size_t)lp_numel(type) + (size_t)t->offset) * size;
    if (t->st->flags & LP_ST_META)
        return lp_tensor_empty(type, LP_ST_META, out, e);
    LP_TRY(lp_tensor_touch(t, true, e));
    if (need <= t->st->bytes)
        return lp_tensor_over(t->st, type, NULL, t->offset, out, e);
    size_t have = t->st->bytes - (size_t)t->offset * size;
    LP_TRY(lp_tensor_new(type, out, e));
    char *p = lp_tensor_data(*out);
    if (have)
        memcpy(p, lp_tensor_data(t), have);
    memset(p + have, 0, (size_t)lp_numel(type) * size - have);
    return LP_OK;
}

static int resize_to(lua_State *L, const char *fn, LpType type)
{
    LpErr e = {0};
    LpTensor *now = NULL;
    int tries = 0;
    LpBox *box = check_self(L, fn);
    LpTensor *t = box->p;
    if (lp_requires_grad(t) || t->st->flags & LP_ST_TRACED)
        return lp_raise(L, LP_E_RUNTIME,
                        "%s(): cannot resize tensors that require grad or "
                        "are traced",
                        fn);
    LpType was = lp_tensor_type(t);
    if (!lp_shape_eq(&was, &type)) {
        LpBox *made = lp_push_box(L);
        while (resized(t, &type, &now, &e) != LP_OK)
            lp_gc_retry(L, &e, &tries, NULL);
        made->p = now;
        become(box, now, changes_itself(t));
        lp_gc_account(L);
    }
    lua_settop(L, 1);
    return 1;
}

/* The elements keep their order; those of memory that is new are 0. Growing
 * takes other memory, so that views of the old one stay views of it. */
static int m_resize_(lua_State *L)
{
    LpTensor *t = lp_check_tensor(L, 1, "resize_", "self");
    return resize_to(L, "resize_", check_sizes(L, "resize_", t->dtype));
}

static int m_resize_as_(lua_State *L)
{
    LpTensor *t = lp_check_self(L, "resize_as_", 1);
    LpTensor *like = lp_check_tensor(L, 2, "resize_as_", "the_template");
    LpType type = lp_tensor_type(like);
    type.dtype = t->dtype;
    return resize_to(L, "resize_as_", type);
}

/* ---- set_ ---------------------------------------------------------------- */
/* Under no_grad a leaf takes the memory too. */
static int m_set_(lua_State *L)
{
    LpErr e = {0};
    LpTensor *now = NULL;
    LpBox *box = check_self(L, "set_");
    LpTensor *t = box->p;
    LpType none = {.dtype = t->dtype, .ndim = 1};
    bool empty = lua_isnoneornil(L, 2);
    LpTensor *src = empty ? NULL : lp_check_tensor(L, 2, "set_", "source");
    if (t->st->flags & LP_ST_TRACED)
        return lp_raise(L, LP_E_RUNTIME,
                        "set_(): a traced tensor has no memory to change");
    if (src && src->dtype != t->dtype)
        return lp_raise(L, LP_E_RUNTIME,
                        "set_(): source is %s, the tensor %s; they must be "
                        "equal",
                        lp_dtype_name(src->dtype), lp_dtype_name(t->dtype));
    LpBox *made = lp_push_box(L);
    if ((src ? lp_detach(src, &now, &e) : lp_tensor_new(&none, &now, &e)) !=
        LP_OK)
        return lp_bind_fail(L, &e);
    made->p = now;
    bool leaf = t->requires_grad && lp_is_leaf(t); /* be it a view */
    become(box, now, leaf || changes_itself(t));
    lua_settop(L, 1);
    return 1;
}

/* Into the methods' table on top, which has the operators' methods. */
void lp_add_reshaping(lua_State *L)
{
    static const char *const views[] = {"t",         "squeeze",  "unsqueeze",
                                        "transpose", "swapaxes", "swapdims",
                                        "as_strided"};
    static const luaL_Reg methods[] = {{"resize_", m_resize_},
                                       {"resize_as_", m_resize_as_},
                                       {"set_", m_set_},
                                       {NULL, NULL}};
    luaL_setfuncs(L, methods, 0);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        lua_pushfstring(L, "%s_", views[i]);
        lua_getfield(L, -2, views[i]);
        lua_pushvalue(L, -2);
        lua_pushcclosure(L, m_view_, 2);
        lua_rawset(L, -3);
    }
}
