/* Lua functions that the core calls: gradient hooks, rules of
 * torch.autograd.Function. A function has a record, which its hook or node
 * owns, and lives until that is dropped. This may happen where no Lua may run
 * (inside the core, while a tensor is collected): the record is put aside, and
 * its function is forgotten at the next call from here.
 *
 * Lua's collector sees no references between tensors. A function that stood in
 * the registry and mentioned its own tensor (a hook its leaf, a rule's ctx its
 * result) would keep it, and so itself, for ever. It stands therefore with the
 * boxes of that tensor: in an ephemeron table, where what is reachable through
 * the function alone is none the less collected. When the last of its boxes is
 * finalised and the record is alive still (a graph holds the tensor), the
 * function moves to a table of its own. Boxes of one tensor that were made
 * elsewhere are not known, but for a hook's upvalues: a function whose box died
 * before those stays as long as the tensor. */
#include "src/base/mem.h"
#include "src/bind/bind.h"
#include "src/bind/module.h"

typedef struct Record Record;

/* What the records of one interpreter share; the last one frees it. */
typedef struct Shelf {
    int64_t refs;  /* the interpreter's and one a record */
    bool closed;   /* the interpreter is gone */
    int64_t boxes; /* that functions stand with */
    Record *dead;  /* put aside */
} Shelf;

struct Record {
    Shelf *shelf;
    Record *next;
    int boxes; /* that the function stands with; 0: in a table of its own */
    bool dropped;
};

static const char tag_shelf = 's';
static const char key_shelf; /* registry: the shelf's box and its tables */

/* User values of the shelf's box. A cell is {function, record, set, …}, with
 * the sets that it is in, and empty when forgotten. OWN has a slot for every
 * record, so that moving there takes no memory. */
enum {
    OWN = 1, /* record -> function, or false */
    BOXES,   /* weak: box -> set of cells */
    CELLS,   /* weak: record -> cell */
    N_TABLES = CELLS
};
enum { CELL_FUNCTION = 1, CELL_RECORD };

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

void lp_drop_kept(void *record)
{
    Record *r = record;
    if (r->shelf->closed) {
        record_free(r);
        return;
    }
    r->dropped = true;
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

/* ---- tables -------------------------------------------------------------- */
static void push_table(lua_State *L, int which)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_shelf);
    lua_getiuservalue(L, -1, which);
    lua_remove(L, -2);
}

/* The cell of r in the box's set on top, or nil, is pushed. */
static bool find_cell(lua_State *L, const Record *r)
{
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        lua_rawgeti(L, -2, CELL_RECORD);
        bool found = lua_touserdata(L, -1) == r;
        lua_pop(L, 1);
        if (found) {
            lua_pop(L, 1);
            return true;
        }
    }
    return false;
}

/* Pushes the cell of a record with boxes. Between the mark that found its last
 * box dead and that box's finaliser the weak table lacks it; it is then looked
 * for among all. */
static bool push_cell(lua_State *L, const Record *r)
{
    push_table(L, CELLS);
    lua_rawgetp(L, -1, r);
    lua_remove(L, -2);
    if (lua_istable(L, -1))
        return true;
    lua_pop(L, 1);
    push_table(L, BOXES);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        if (find_cell(L, r)) {
            lua_replace(L, -4);
            lua_pop(L, 2);
            return true;
        }
    lua_pop(L, 1);
    return false;
}

/* The cell on top is emptied, and leaves its sets. */
static void clear_cell(lua_State *L)
{
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1); i > 0; i--) {
        if (i > CELL_RECORD) {
            lua_rawgeti(L, -1, i);
            lua_pushvalue(L, -2);
            lua_pushnil(L);
            lua_rawset(L, -3);
            lua_pop(L, 1);
        }
        lua_pushnil(L);
        lua_rawseti(L, -2, i);
    }
}

static void set_own(lua_State *L, const Record *r)
{
    push_table(L, OWN);
    lua_insert(L, -2);
    lua_rawsetp(L, -2, r);
    lua_pop(L, 1);
}

static Shelf *shelf_of(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_shelf);
    Shelf *s = ((LpBox *)lua_touserdata(L, -1))->p;
    lua_pop(L, 1);
    return s;
}

void lp_forget_kept(lua_State *L)
{
    Shelf *s = shelf_of(L);
    luaL_checkstack(L, 12, NULL);
    while (s && s->dead) {
        Record *r = s->dead;
        if (r->boxes && push_cell(L, r)) {
            clear_cell(L);
            lua_pop(L, 1);
        }
        lua_pushnil(L);
        set_own(L, r);
        s->dead = r->next;
        record_free(r);
    }
}

/* ---- keeping ------------------------------------------------------------- */
void *lp_keep_function(lua_State *L, int i)
{
    i = lua_absindex(L, i);
    lp_forget_kept(L);
    Shelf *s = shelf_of(L);
    Record *r = s ? lp_alloc(sizeof *r) : NULL;
    if (!r)
        lp_raise(L, LP_E_MEMORY, "out of memory");
    *r = (Record){.shelf = s};
    s->refs++;
    lua_pushvalue(L, i);
    set_own(L, r);
    return r;
}

static void push_new_cell(lua_State *L, const Record *r)
{
    lua_createtable(L, CELL_RECORD, 0);
    push_table(L, OWN);
    lua_rawgetp(L, -1, r);
    lua_rawseti(L, -3, CELL_FUNCTION);
    lua_pushboolean(L, false);
    lua_rawseti(L, -3, CELL_RECORD);
    push_table(L, CELLS);
    lua_pushvalue(L, -3);
    lua_rawsetp(L, -2, r);
    lua_pop(L, 2);
}

void lp_keep_with(lua_State *L, void *record, int box)
{
    Record *r = record;
    box = lua_absindex(L, box);
    if (r->dropped)
        return;
    if (!r->boxes || !push_cell(L, r))
        push_new_cell(L, r);
    push_table(L, BOXES);
    lua_pushvalue(L, box);
    lua_rawget(L, -2);
    if (!lua_istable(L, -1)) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, box);
        lua_pushvalue(L, -2);
        lua_rawset(L, -4);
        r->shelf->boxes++;
    }
    lua_pushvalue(L, -3);
    lua_rawget(L, -2);
    bool known = !lua_isnil(L, -1);
    lua_pushvalue(L, -4);
    lua_pushboolean(L, true);
    lua_rawset(L, -4);
    lua_pop(L, 1);
    if (!known) {
        lua_rawseti(L, -3, (lua_Integer)lua_rawlen(L, -3) + 1);
        lua_pushnil(L);
        r->boxes++;
    }
    lua_pop(L, 2); /* the cell is on top */
    lua_pushlightuserdata(L, r);
    lua_rawseti(L, -2, CELL_RECORD);
    lua_pop(L, 1);
    lua_pushboolean(L, false);
    set_own(L, r);
}

/* The cell on top loses a box: its last one makes the function the record's
 * own, if the record lives on. */
static void leave_box(lua_State *L)
{
    lua_rawgeti(L, -1, CELL_RECORD);
    Record *r = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (!r || (--r->boxes > 0 && !r->dropped))
        return;
    if (!r->dropped) {
        lua_rawgeti(L, -1, CELL_FUNCTION);
        set_own(L, r);
    }
    r->boxes = 0;
    clear_cell(L);
}

void lp_push_shelf(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_shelf);
}

void lp_box_freed(lua_State *L, int shelf, int box)
{
    Shelf *s = ((LpBox *)lua_touserdata(L, shelf))->p;
    if (!s || !s->boxes)
        return;
    box = lua_absindex(L, box);
    luaL_checkstack(L, 12, NULL);
    push_table(L, BOXES);
    lua_pushvalue(L, box);
    lua_rawget(L, -2);
    if (lua_istable(L, -1)) {
        for (lua_pushnil(L); lua_next(L, -2);) {
            lua_pop(L, 1);
            leave_box(L);
        }
        lua_pushvalue(L, box);
        lua_pushnil(L);
        lua_rawset(L, -4);
        s->boxes--;
    }
    lua_pop(L, 2);
}

void lp_push_kept(lua_State *L, const void *record)
{
    const Record *r = record;
    luaL_checkstack(L, 12, NULL);
    push_table(L, OWN);
    lua_rawgetp(L, -1, r);
    lua_remove(L, -2);
    if (lua_toboolean(L, -1))
        return;
    lua_pop(L, 1);
    if (!push_cell(L, r))
        lp_raise(L, LP_E_INTERNAL, "a function of the core is lost");
    lua_rawgeti(L, -1, CELL_FUNCTION);
    lua_remove(L, -2);
}

static void weak_table(lua_State *L, const char *mode)
{
    lua_newtable(L);
    lua_newtable(L);
    lp_set_string(L, "__mode", mode);
    lua_setmetatable(L, -2);
}

/* The core table is on top. */
void lp_bind_keep(lua_State *L)
{
    LpBox *b = lua_newuserdatauv(L, sizeof *b, N_TABLES);
    *b = (LpBox){&tag_shelf, NULL};
    lua_newtable(L);
    lua_setiuservalue(L, -2, OWN);
    weak_table(L, "k");
    lua_setiuservalue(L, -2, BOXES);
    weak_table(L, "v");
    lua_setiuservalue(L, -2, CELLS);
    lua_newtable(L);
    lp_set_function(L, "__gc", shelf_gc);
    lua_setmetatable(L, -2);
    Shelf *s = lp_calloc(1, sizeof *s);
    if (!s)
        lp_raise(L, LP_E_MEMORY, "out of memory");
    s->refs = 1;
    b->p = s;
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_shelf);
}
