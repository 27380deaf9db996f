/* Gradient hooks from Lua: x:register_hook(f) and
 * x:register_post_accumulate_grad_hook(f) return a handle with remove().
 *
 * The functions stand in a table of the interpreter, by the address of their
 * record, so a hook lives as long as its tensor's history or until it is
 * removed; one that refers to its own leaf keeps both. A record may be dropped
 * where no Lua may run (inside the core, while a tensor is collected): it is
 * put aside, and its function is forgotten at the next call from here. */
#include "src/base/mem.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"

typedef struct Record Record;

/* What the records of one interpreter share; the last one frees it. */
typedef struct Shelf {
    int64_t refs; /* the interpreter's and one a record */
    bool closed;  /* the interpreter is gone */
    Record *dead; /* put aside */
} Shelf;

struct Record {
    Shelf *shelf;
    Record *next;
};

static const char tag_shelf = 's', tag_handle = 'h';
static const char key_shelf; /* registry: a box; user value 1: functions */
static const char key_handle;
static lua_State *running; /* whose backward pass calls hooks */

static void shelf_release(Shelf *s)
{
    if (--s->refs == 0)
        lp_free(s);
}

static void record_free(Record *r)
{
    shelf_release(r->shelf);
    lp_free(r);
}

static void drop(void *ctx)
{
    Record *r = ctx;
    if (r->shelf->closed) {
        record_free(r);
        return;
    }
    r->next = r->shelf->dead;
    r->shelf->dead = r;
}

static int shelf_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_shelf);
    Shelf *s = b ? b->p : NULL;
    if (!s)
        return 0;
    b->p = NULL;
    s->closed = true;
    while (s->dead) {
        Record *r = s->dead;
        s->dead = r->next;
        record_free(r);
    }
    shelf_release(s);
    return 0;
}

/* Pushes the table of functions; forgets those of dropped records. NULL while
 * the interpreter closes. */
static Shelf *push_functions(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_shelf);
    Shelf *s = ((LpBox *)lua_touserdata(L, -1))->p;
    lua_getiuservalue(L, -1, 1);
    lua_remove(L, -2);
    while (s && s->dead) {
        Record *r = s->dead;
        lua_pushnil(L);
        lua_rawsetp(L, -2, r);
        s->dead = r->next;
        record_free(r);
    }
    return s;
}

/* ---- calling ------------------------------------------------------------ */
typedef struct Call {
    Record *record;
    LpTensor *grad, *out;
} Call;

/* Protected; argument: the call. */
static int call(lua_State *L)
{
    Call *c = lua_touserdata(L, 1);
    char what[LP_DESCRIBE];
    push_functions(L);
    lua_rawgetp(L, -1, c->record);
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

static Record *record_new(Shelf *s)
{
    Record *r = lp_alloc(sizeof *r);
    if (r) {
        *r = (Record){.shelf = s};
        s->refs++;
    }
    return r;
}

/* ---- functions kept for the core ---------------------------------------- */
void *lp_keep_function(lua_State *L, int i)
{
    i = lua_absindex(L, i);
    Shelf *s = push_functions(L);
    Record *r = s ? record_new(s) : NULL;
    if (!r)
        lp_raise(L, LP_E_MEMORY, "out of memory");
    lua_pushvalue(L, i);
    lua_rawsetp(L, -2, r);
    lua_pop(L, 1);
    return r;
}

void lp_push_kept(lua_State *L, const void *record)
{
    push_functions(L);
    lua_rawgetp(L, -1, record);
    lua_remove(L, -2);
}

void lp_drop_kept(void *record)
{
    drop(record);
}

/* ---- registering -------------------------------------------------------- */
static int handle_free(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_handle);
    if (b) {
        lp_hook_release(b->p);
        b->p = NULL;
    }
    return 0;
}

static int handle_remove(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_handle);
    if (!b)
        return lp_raise(L, LP_E_TYPE, "remove(): expected a hook's handle");
    lp_hook_remove(b->p);
    lua_settop(L, 1);
    push_functions(L);
    return 0;
}

static LpBox *push_handle(lua_State *L)
{
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 0);
    *b = (LpBox){&tag_handle, NULL};
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_handle);
    lua_setmetatable(L, -2);
    return b;
}

static int add(lua_State *L, bool after, const char *fn)
{
    LpTensor *t = lp_check_tensor(L, 1, fn, "self");
    LpErr e = {0};
    char what[LP_DESCRIBE];
    if (!lua_isfunction(L, 2) && !luaL_getmetafield(L, 2, "__call"))
        return lp_raise(L, LP_E_TYPE,
                        "%s(): argument 'hook' must be a function, not %s", fn,
                        lp_describe(L, 2, what));
    LpBox *box = push_handle(L);
    Shelf *s = push_functions(L);
    LpHook *h = NULL;
    Record *r = s ? record_new(s) : NULL;
    if (!r)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    if (lp_hook_add(t, after, hook, drop, r, &h, &e) != LP_OK) {
        record_free(r);
        return lp_bind_fail(L, &e);
    }
    box->p = h;
    lua_pushvalue(L, 2);
    lua_rawsetp(L, -2, r);
    lua_pop(L, 1);
    return 1;
}

static int register_hook(lua_State *L)
{
    return add(L, false, "register_hook");
}

static int register_post(lua_State *L)
{
    return add(L, true, "register_post_accumulate_grad_hook");
}

static void handle_class(lua_State *L)
{
    static const luaL_Reg fields[] = {
        {"__gc", handle_free}, {"__close", handle_remove}, {NULL, NULL}};
    lua_newtable(L);
    luaL_setfuncs(L, fields, 0);
    lua_pushliteral(L, "torch.RemovableHandle");
    lua_setfield(L, -2, "__name");
    lua_newtable(L);
    lua_pushcfunction(L, handle_remove);
    lua_setfield(L, -2, "remove");
    lua_setfield(L, -2, "__index");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_handle);
}

/* The core table is on top. */
void lp_bind_hook(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"register_hook", register_hook},
        {"register_post_accumulate_grad_hook", register_post},
        {NULL, NULL}};
    handle_class(L);
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 1);
    *b = (LpBox){&tag_shelf, NULL};
    lua_newtable(L);
    lua_setiuservalue(L, -2, 1);
    lua_newtable(L);
    lua_pushcfunction(L, shelf_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    Shelf *s = lp_calloc(1, sizeof *s);
    if (!s)
        lp_raise(L, LP_E_MEMORY, "out of memory");
    s->refs = 1;
    b->p = s;
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_shelf);
    lua_getfield(L, -1, "methods");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
}
