/* The one entry of every operator: torch.NAME, x:NAME, x:NAME_,
 * torch.nn.functional.NAME, torch.special.NAME and torch.linalg.NAME are one C
 * function closed over the forms of that name. Forms are tried in the order of
 * the records; the first that takes the arguments runs. */
#include <stdlib.h>
#include <string.h>

#include "src/autodiff/trace.h"
#include "src/base/mem.h"
#include "src/bind/call/call.h"
#include "src/bind/module.h"

/* Overload sets of all names and surfaces, sorted by (surface, name); they
 * live as long as the process, as forms do. */
static LpArena arena;
static LpOverloads *sets;
static int n_sets;

/* ---- tables of keywords -------------------------------------------------- */
bool lp_is_empty_table(lua_State *L, int i)
{
    i = lua_absindex(L, i);
    if (lua_type(L, i) != LUA_TTABLE)
        return false;
    lua_pushnil(L);
    if (!lua_next(L, i))
        return true;
    lua_pop(L, 2);
    return false;
}

/* Number of keys; 0 when the first key is no string. */
static int count_keywords(lua_State *L, int i, const char *fn)
{
    int n = 0, others = 0;
    if (lua_type(L, i) != LUA_TTABLE)
        return 0;
    if (lua_getmetatable(L, i)) {
        lua_pop(L, 1);
        return 0;
    }
    lua_pushnil(L);
    while (lua_next(L, i)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING)
            n++;
        else if (++others > 64 &&
                 n == 0) { /* a long list: no need to look on */
            lua_pop(L, 1);
            return 0;
        }
    }
    if (n && others)
        lp_raise(L, LP_E_TYPE,
                 "%s(): a table mixes list elements and keywords: a list has "
                 "no string keys, keywords have nothing else",
                 fn);
    return n;
}

bool lp_is_keywords(lua_State *L, int i, const char *fn)
{
    return count_keywords(L, lua_absindex(L, i), fn) > 0;
}

void lp_check_keywords(lua_State *L, int i, const char *fn,
                       const char *const *names)
{
    int n = 0;
    i = lua_absindex(L, i);
    while (names[n])
        n++;
    lua_pushnil(L);
    while (lua_next(L, i)) {
        lua_pop(L, 1);
        const char *key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1)
                                                         : "(not a name)";
        int k = 0;
        while (k < n && strcmp(names[k], key) != 0)
            k++;
        if (k < n)
            continue;
        const char *near = lp_nearest(key, names, n);
        lp_raise(L, LP_E_TYPE,
                 "%s(): got an unexpected keyword argument '%.60s'%s%s%s", fn,
                 key, near ? "; did you mean '" : "", near ? near : "",
                 near ? "'?" : "");
    }
}

/* ---- running ------------------------------------------------------------- */
static int run_inplace(LpFormCall *c, const LpForm *f)
{
    LpErr e = {0};
    int tries = 0;
    while (lp_op_call_inplace(f->op, c->in, c->n_in, c->attr, &e) != LP_OK)
        lp_gc_retry(c->L, &e, &tries, f);
    lp_gc_account(c->L);
    if (c->n_pos)
        lua_settop(c->L, 1);
    else
        lp_push_tensor(c->L, c->in[0].t);
    return 1;
}

/* What is made of no tensor gets the dtype of out= unless the call names one;
 * so do sums. */
static void dtype_of_out(LpFormCall *c, const LpForm *f)
{
    if (c->n_in > 0 && !(f->flags & LP_FORM_TAKES_DTYPE))
        return;
    for (int i = 0; i < f->n_args; i++)
        if (strcmp(f->arg[i].name, "dtype") == 0 &&
            c->attr[f->arg[i].slot].kind == LP_ATTR_NONE)
            c->attr[f->arg[i].slot] = lp_attr_dtype(c->out[0]->dtype);
}

static bool names(LpFormCall *c, const char *key)
{
    bool is = c->kw && lua_getfield(c->L, c->kw, key) != LUA_TNIL;
    if (c->kw)
        lua_pop(c->L, 1);
    return is;
}

static int run_out(LpFormCall *c, const LpForm *f)
{
    if (f->op->flags & LP_OPF_OUT_BY_DIM && c->n_pos < 2 && !names(c, "dim") &&
        !names(c, "axis"))
        return lp_raise(c->L, LP_E_TYPE,
                        "%s(): got an unexpected keyword argument 'out'; it "
                        "goes with 'dim'",
                        c->ov->name);
    LpErr e = {0};
    int tries = 0;
    bool some = c->ov->surface == LP_FORM_INTERNAL && c->n_out < f->n_results;
    if (c->n_out != f->n_results && !some)
        return lp_raise(c->L, LP_E_TYPE, "%s(): out has %d tensors, not %d",
                        c->ov->name, c->n_out, f->n_results);
    bool casts = (f->flags & LP_FORM_CASTS) != 0;
    dtype_of_out(c, f);
    while (lp_op_call_out(f->op, c->in, c->n_in, c->attr, c->out, c->n_out,
                          casts, &e) != LP_OK)
        lp_gc_retry(c->L, &e, &tries, f);
    lp_gc_account(c->L);
    for (int i = 0; i < c->n_out; i++)
        lp_push_tensor(c->L, c->out[i]);
    return c->n_out;
}

/* device = "meta": the shape rule alone. */
static int run_meta(LpFormCall *c, const LpForm *f)
{
    LpErr e = {0};
    LpArena scratch = {0};
    LpType in[LP_MAX_IN], out[LP_MAX_OUT];
    LpScalar num[LP_MAX_IN];
    LpBox *box = lp_push_box(c->L);
    LpTensor *t = NULL;
    memset(in, 0, sizeof in);
    for (int i = 0; i < c->n_in && i < LP_MAX_IN; i++) {
        in[i].dtype = LP_DT_NONE;
        if (c->in[i].t)
            in[i] = lp_tensor_type(c->in[i].t);
        if (!c->in[i].is_num)
            continue;
        num[i] = c->in[i].num;
        in[i] = *lp_number_type(num[i].kind);
    }
    LpInfer x = {.op = f->op,
                 .n_in = c->n_in,
                 .n_out = 1,
                 .in = in,
                 .num = num,
                 .attr = c->attr,
                 .out = out,
                 .arena = &scratch,
                 .err = &e};
    if (lp_op_infer(&x) == LP_OK)
        lp_tensor_empty(&out[0], LP_ST_META, &t, &e);
    box->p = t;
    lp_arena_fini(&scratch);
    return e.code == LP_OK ? 1 : lp_bind_fail_in(c->L, &e, f);
}

static int run(LpFormCall *c, const LpForm *f)
{
    LpErr e = {0};
    int n;
    if (c->ov->surface == LP_FORM_INPLACE || c->inplace)
        return run_inplace(c, f);
    if (c->n_out)
        return run_out(c, f);
    /* a traced function's tensors are values of its graph, on no device */
    if (c->device == LP_DEV_CPU || (c->device == LP_DEV_META && lp_tracing))
        n = lp_call_push(c->L, f, c->in, c->n_in, c->attr, f->n_results);
    else if (c->device == LP_DEV_META && f->op->infer && f->n_results == 1)
        n = run_meta(c, f);
    else
        return lp_raise(c->L, LP_E_RUNTIME,
                        "%s(): tensors are made on the device 'cpu' or "
                        "'meta'; poptorch moves them to IPUs",
                        c->ov->name);
    if (c->requires_grad &&
        lp_set_requires_grad(lp_to_tensor(c->L, -1), true, &e) != LP_OK)
        return lp_bind_fail(c->L, &e);
    return n;
}

/* Argument 1: the call; 2: the form. */
static int run_protected(lua_State *L)
{
    LpFormCall *c = lua_touserdata(L, 1);
    const LpForm *f = lua_touserdata(L, 2);
    c->n_pos = 0; /* this frame has none */
    return run(c, f);
}

/* The global random state is put back whatever happens. */
static int run_generator(LpFormCall *c, const LpForm *f)
{
    lua_State *L = c->L;
    LpGenerator *g = c->generator;
    uint64_t global[2];
    int top = lua_gettop(L), named = c->kw && c->n_pos == 0;
    if (lp_tracing)
        return lp_raise(L, LP_E_RUNTIME,
                        "%s(): a generator cannot be used in a traced "
                        "function: its random numbers depend on rng_state",
                        c->ov->name);
    lp_rng_get(global);
    lua_pushcfunction(L, run_protected);
    lua_pushlightuserdata(L, c);
    lua_pushlightuserdata(L, (void *)(uintptr_t)f);
    lp_rng_set(g->state);
    int failed = lua_pcall(L, 2, LUA_MULTRET, 0);
    lp_rng_get(g->state);
    lp_rng_set(global);
    if (failed)
        return lua_error(L);
    if (c->ov->surface == LP_FORM_INPLACE && !named)
        lua_settop(L, 1);
    return c->ov->surface == LP_FORM_INPLACE ? 1 : lua_gettop(L) - top;
}

static int entry(lua_State *L)
{
    LpFormCall c;
    LpMiss miss, best;
    c.L = L;
    c.ov = lua_touserdata(L, lua_upvalueindex(1));
    c.n_pos = lua_gettop(L);
    c.kw = c.n_kw = 0;
    c.empty_last = c.values = false;
    luaL_checkstack(L, LP_MAX_FORM_ARGS + 16, NULL);
    if (c.n_pos && lua_type(L, c.n_pos) == LUA_TTABLE) {
        c.n_kw = count_keywords(L, c.n_pos, c.ov->name);
        if (c.n_kw)
            c.kw = c.n_pos--;
        else
            c.empty_last = lp_is_empty_table(L, c.n_pos);
    }
    c.top = lua_gettop(L);
    best.rank = -1;
    for (int i = 0; i < 2 * c.ov->n; i++) {
        const LpForm *f = c.ov->form[i % c.ov->n];
        c.values = i >= c.ov->n; /* when no form takes the tensors as such */
        if (lp_call_match(&c, f, &miss))
            return c.generator ? run_generator(&c, f) : run(&c, f);
        lua_settop(L, c.top);
        if (miss.rank > best.rank)
            best = miss;
    }
    return lp_call_complain(&c, &best);
}

/* ---- overload sets ------------------------------------------------------- */
typedef struct Entry {
    const char *name;
    uint32_t surface;
    int form;
} Entry;

static int compare(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    if (x->surface != y->surface)
        return x->surface < y->surface ? -1 : 1;
    int by_name = strcmp(x->name, y->name);
    return by_name ? by_name : x->form - y->form;
}

static const uint32_t surfaces[] = {
    LP_FORM_FUNCTION, LP_FORM_METHOD, LP_FORM_INPLACE,  LP_FORM_NN,
    LP_FORM_SPECIAL,  LP_FORM_LINALG, LP_FORM_INTERNAL,
};
enum { N_SURFACES = sizeof surfaces / sizeof *surfaces };

static int list_entries(Entry *all)
{
    int n = 0;
    for (int i = 0; i < lp_n_forms(); i++)
        for (int s = 0; s < N_SURFACES; s++) {
            const LpForm *f = lp_form(i);
            if (!(f->flags & surfaces[s]))
                continue;
            const char *name = f->name;
            if (surfaces[s] == LP_FORM_INPLACE) {
                size_t len = strlen(name);
                char *own = lp_arena_alloc(&arena, len + 2);
                if (!own)
                    return -1;
                memcpy(own, name, len);
                memcpy(own + len, "_", 2);
                name = own;
            }
            all[n++] = (Entry){name, surfaces[s], i};
        }
    qsort(all, (size_t)n, sizeof *all, compare);
    return n;
}

static bool build_sets(void)
{
    size_t most = (size_t)lp_n_forms() * N_SURFACES + 1;
    Entry *all = lp_alloc(most * sizeof *all);
    const LpForm **list = lp_arena_alloc(&arena, most * sizeof *list);
    sets = lp_arena_alloc(&arena, most * sizeof *sets);
    int n = all && list && sets ? list_entries(all) : -1;
    n_sets = 0;
    for (int i = 0; i < n; i++) {
        LpOverloads *o = &sets[n_sets ? n_sets - 1 : 0];
        if (n_sets == 0 || o->surface != all[i].surface ||
            strcmp(o->name, all[i].name) != 0) {
            o = &sets[n_sets++];
            *o = (LpOverloads){all[i].name, all[i].surface, 0, &list[i]};
        }
        list[i] = lp_form(all[i].form);
        o->n++;
    }
    lp_free(all);
    return n >= 0;
}

const LpForm *lp_find_form(const char *name, uint32_t flags)
{
    for (int i = 0; i < lp_n_forms(); i++) {
        const LpForm *f = lp_form(i);
        if (strcmp(f->name, name) == 0 && (!flags || f->flags & flags))
            return f;
    }
    return NULL;
}

/* Into the table on top: a closure for each name of a surface. */
static void add_surface(lua_State *L, uint32_t surface)
{
    for (int i = 0; i < n_sets; i++) {
        if (sets[i].surface != surface)
            continue;
        lua_pushlightuserdata(L, &sets[i]);
        lua_pushcclosure(L, entry, 1);
        lua_setfield(L, -2, sets[i].name);
    }
}

void lp_add_form_methods(lua_State *L)
{
    add_surface(L, LP_FORM_METHOD);
    add_surface(L, LP_FORM_INPLACE);
}

/* core.forms {functions, nn, special, linalg, internal}: name -> function */
void lp_bind_forms(lua_State *L)
{
    static const struct {
        const char *name;
        uint32_t surface;
    } tables[] = {
        {"functions", LP_FORM_FUNCTION}, {"nn", LP_FORM_NN},
        {"special", LP_FORM_SPECIAL},    {"linalg", LP_FORM_LINALG},
        {"internal", LP_FORM_INTERNAL},
    };
    LpErr e = {0};
    if (lp_schema_init(&e) != LP_OK)
        luaL_error(L, "lupine.core: %s", e.msg);
    if (!sets && !build_sets())
        luaL_error(L, "lupine.core: out of memory");
    lua_newtable(L);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        lua_newtable(L);
        add_surface(L, tables[i].surface);
        lua_setfield(L, -2, tables[i].name);
    }
    lua_setfield(L, -2, "forms");
    lp_set_function(L, "default_device", lp_default_device);
}
