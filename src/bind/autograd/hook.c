/* Gradient hooks from Lua: x:register_hook(f) and
 * x:register_post_accumulate_grad_hook(f) return a handle with remove().
 * The functions are kept by keep.c, with the tensor's box: a hook lives as long
 * as its tensor's history or until it is removed, and one that refers to its
 * own tensor does not keep it. */
#include "src/bind/box.h"
#include "src/bind/module.h"

static lua_State *running; /* whose backward pass calls hooks */

/* ---- calling ------------------------------------------------------------ */
typedef struct Call {
    const void *record;
    LpTensor *grad, *out;
} Call;

/* Protected; argument: the call. */
static int call(lua_State *L)
{
    Call *c = lua_touserdata(L, 1);
    char what[LP_DESCRIBE];
    lp_forget_kept(L);
    lp_push_kept(L, c->record);
    lp_push_tensor(L, c->grad);
    lua_call(L, 1, 1);
    if (lua_isnil(L, -1))
        return 0;
    LpTensor *t = lp_to_tensor(L, -1);
    if (!t)
        return lp_raise(L, LP_E_TYPE,
                        "a gradient hook must return a Tensor or nil, not %s",
                        lp_describe(L, -1, what));
    c->out = lp_tensor_retain(t);
    return 0;
}

static LpStatus hook(void *ctx, LpTensor *grad, LpTensor **out, LpErr *e)
{
    lua_State *L = running;
    Call c = {.record = ctx, .grad = grad};
    LP_FAIL_IF(!L || !lua_checkstack(L, 8), e, LP_E_INTERNAL,
               "a gradient hook has no interpreter to run in");
    lua_pushcfunction(L, call);
    lua_pushlightuserdata(L, &c);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK)
        return lp_bind_keep_error(L, e);
    *out = c.out;
    return LP_OK;
}

lua_State *lp_hooks_enter(lua_State *L)
{
    lua_State *was = running;
    running = L;
    return was;
}

void lp_hooks_leave(lua_State *was)
{
    running = was;
}

lua_State *lp_hooks_running(void)
{
    return running;
}

/* ---- registering -------------------------------------------------------- */
LP_BOX_FREE(handle_free, lp_hook_release)
static const LpBoxClass handle_class = {"torch.RemovableHandle", "handle",
                                        handle_free};

static int handle_remove(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &handle_class);
    if (!b)
        return lp_raise(L, LP_E_TYPE, "remove(): expected a hook's handle");
    lp_hook_remove(b->p);
    lp_forget_kept(L);
    return 0;
}

/* The hook at 2 stands with its tensor's other boxes that it has as upvalues
 * too: it would keep them, and so itself, once the box at 1 is gone. */
static void keep_with_upvalues(lua_State *L, const LpTensor *t, void *record)
{
    for (int i = 1; lua_isfunction(L, 2) && lua_getupvalue(L, 2, i); i++) {
        if (lp_to_tensor(L, -1) == t)
            lp_keep_with(L, record, -1);
        lua_pop(L, 1);
    }
}

static int add(lua_State *L, bool after, const char *fn)
{
    LpTensor *t = lp_check_self(L, fn, 1);
    LpErr e = {0};
    char what[LP_DESCRIBE];
    if (!lua_isfunction(L, 2) && !luaL_getmetafield(L, 2, "__call"))
        return lp_raise(L, LP_E_TYPE,
                        "%s(): argument 'hook' must be a function, not %s", fn,
                        lp_describe(L, 2, what));
    lua_settop(L, 2);
    LpBox *box = lp_new_box(L, &handle_class);
    LpHook *h = NULL;
    void *r = lp_keep_function(L, 2);
    if (lp_hook_add(t, after, hook, lp_drop_kept, r, &h, &e) != LP_OK) {
        lp_drop_kept(r);
        return lp_bind_fail(L, &e);
    }
    box->p = h;
    lp_keep_with(L, r, 1);
    keep_with_upvalues(L, t, r);
    return 1;
}

LP_FUNCTION_AS(register_hook, add(L, false, "register_hook"))
LP_FUNCTION_AS(register_post,
               add(L, true, "register_post_accumulate_grad_hook"))

/* hooked(tensor) -> whether functions are called with the gradient of a leaf */
static int hooked(lua_State *L)
{
    lua_pushboolean(L, lp_hooked(lp_check_tensor(L, 1, "hooked", "tensor")));
    return 1;
}

/* The core table is on top. */
void lp_bind_hook(lua_State *L)
{
    static const luaL_Reg handles[] = {
        {"remove", handle_remove}, {"__close", handle_remove}, {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"register_hook", register_hook},
        {"register_post_accumulate_grad_hook", register_post},
        {NULL, NULL}};
    lp_add_class(L, &handle_class, handles);
    lp_set_function(L, "hooked", hooked);
    lua_getfield(L, -1, "methods");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
}
