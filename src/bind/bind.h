/* What the binding files share: boxes (the userdata of this module), errors,
 * tensors on the Lua stack, and values such as dtypes.
 *
 * A binding function has three phases: check (arguments into C locals; may
 * raise, owns nothing), act (core calls; cannot raise), push (into boxes made
 * before, which own what they hold). error.c alone calls
 * lua_error. */
#ifndef LP_BIND_BIND_H
#define LP_BIND_BIND_H

#include <lauxlib.h>
#include <lua.h>

#include "src/autodiff/op_call.h"
#include "src/base/status.h"
#include "src/ir/schema.h"

/* ---- errors -------------------------------------------------------------- */
/* Raises `e` as an object of torch.errors; does not return. */
int lp_bind_fail(lua_State *L, const LpErr *e);
/* The same for a call by `f`: what an operator inside it says is said in the
 * name of `f`, and a dimension out of range is said of its argument. */
int lp_bind_fail_in(lua_State *L, LpErr *e, const LpForm *f);
/* The same of a code and a message. */
int lp_raise(lua_State *L, LpStatus code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Raises unless the call that filled `e` went well. */
static inline void lp_must(lua_State *L, LpStatus s, const LpErr *e)
{
    if (s != LP_OK)
        lp_bind_fail(L, e);
}
/* A callback failed under lua_pcall: takes the error value off the stack and
 * keeps it, fills `err` with LP_E_LUA; lp_bind_fail then raises that same
 * value. */
LpStatus lp_bind_keep_error(lua_State *L, LpErr *err);
#define LP_MAX_THREADS 4096 /* that a script may ask for */
/* The name among names[0..n-1] nearest to `word`, or NULL if none is near. */
const char *lp_nearest(const char *word, const char *const *names, int n);

/* ---- boxes --------------------------------------------------------------- */
/* Every userdata of ours starts with a box. The tag is the address of a
 * static object, so a type test costs two calls and no registry access. */
typedef struct LpBox {
    const void *tag;
    void *p;
} LpBox;

extern const char lp_tag_tensor, lp_tag_slice, lp_tag_ellipsis;

static inline LpBox *lp_to_box(lua_State *L, int i, const void *tag)
{
    LpBox *b = lua_touserdata(L, i);
    if (!b || lua_rawlen(L, i) < sizeof *b || b->tag != tag)
        return NULL;
    return b;
}

/* ---- tensors ------------------------------------------------------------- */
/* Borrowed; NULL if the value is no tensor or a closed one. */
static inline LpTensor *lp_to_tensor(lua_State *L, int i)
{
    LpBox *b = lp_to_box(L, i, &lp_tag_tensor);
    return b ? b->p : NULL;
}
LpTensor *lp_check_tensor(lua_State *L, int i, const char *fn, const char *arg);
/* Its elements, to be read; raises for a tensor that has none. */
const void *lp_read_tensor(lua_State *L, const LpTensor *t);
/* The list of tensors at i, kept by its table; the array by the stack. */
LpTensor **lp_check_tensors(lua_State *L, int i, const char *fn,
                            const char *arg, int *n);
/* Argument 1 of a method that takes at most `most` more; an empty last table
 * is none. */
LpTensor *lp_check_self(lua_State *L, const char *fn, int most);

/* Pushes an empty box for a tensor; the caller stores an owned tensor in
 * box->p once it has one. May raise. */
LpBox *lp_push_box(lua_State *L);
/* Pushes `t`, retained by the new box; nil if NULL. May raise, loses
 * nothing. */
void lp_push_tensor(lua_State *L, LpTensor *t);

/* Owned tensors on their way to Lua; released when collected. */
typedef struct LpOwner {
    LpBox box;
    int n;
    LpTensor *t[LP_MAX_LIST];
} LpOwner;
LpOwner *lp_push_owner(lua_State *L);

/* Tells the collector about bytes that storages took since the last call: best
 * before a result is made, which else lives through one collection more. */
void lp_gc_account(lua_State *L);
/* The same once bytes have become many: after a call that asked already. */
void lp_gc_guard(lua_State *L);
/* A box was made, its tensor let go. */
void lp_gc_made(void);
void lp_gc_freed(void);
/* After LP_E_MEMORY, the first time: collects everything, clears `e`, for the
 * call to be made again; else raises, with `f` in its name. */
void lp_gc_retry(lua_State *L, LpErr *e, int *tries, const LpForm *f);
/* A new tensor, its elements yet to be set, in a box that is pushed. */
LpTensor *lp_new_tensor(lua_State *L, const LpType *type);

/* Runs an operator with memory retry and pushes its n_results results (in
 * order) or, with n_results 0, a list. Raises on failure. */
int lp_call_push(lua_State *L, const LpForm *f, const LpArg *in, int n_in,
                 const LpAttr *attr, int n_results);

static inline LpArg lp_arg_tensor(LpTensor *t)
{
    return (LpArg){.t = t};
}
/* A number or boolean at `i` as an operand; false if it is neither. */
bool lp_to_scalar(lua_State *L, int i, LpScalar *s);
/* The same of a tensor or a number. */
bool lp_to_operand(lua_State *L, int i, LpArg *a);
/* Pushes the number in a tensor of no dimensions, with `list` also the list of
 * one of a dimension; false, and nothing, for anything else and for a tensor
 * that requires a gradient. Raises for a traced one. */
bool lp_push_numbers(lua_State *L, int i, bool list);

void lp_push_scalar(lua_State *L, LpScalar s);
void lp_push_ints(lua_State *L, const int64_t *v, int n); /* a list */
/* None is false, a dtype its name, a graph a copy. */
void lp_push_attr(lua_State *L, const LpAttr *a);

/* Fields of the table on top; a string that is NULL is none. */
static inline void lp_set_int(lua_State *L, const char *key, int64_t v)
{
    lua_pushinteger(L, (lua_Integer)v);
    lua_setfield(L, -2, key);
}
static inline void lp_set_number(lua_State *L, const char *key, double v)
{
    lua_pushnumber(L, v);
    lua_setfield(L, -2, key);
}
static inline void lp_set_bool(lua_State *L, const char *key, bool v)
{
    lua_pushboolean(L, v);
    lua_setfield(L, -2, key);
}
static inline void lp_set_string(lua_State *L, const char *key, const char *v)
{
    lua_pushstring(L, v);
    lua_setfield(L, -2, key);
}
static inline void lp_set_function(lua_State *L, const char *key,
                                   lua_CFunction f)
{
    lua_pushcfunction(L, f);
    lua_setfield(L, -2, key);
}
/* Pushes a list of n elements; `push` pushes that of index i. */
#define LP_PUSH_LIST(L, i, n, push)                                            \
    do {                                                                       \
        lua_createtable(L, (int)(n), 0);                                       \
        for (int i = 0; i < (int)(n); i++) {                                   \
            push;                                                              \
            lua_rawseti(L, -2, i + 1);                                         \
        }                                                                      \
    } while (0)
/* A function for Lua that gives one value: lua_push##type(L, value). */
#define LP_GETTER(name, type, value)                                           \
    static int name(lua_State *L)                                              \
    {                                                                          \
        lua_push##type(L, value);                                              \
        return 1;                                                              \
    }

/* One that only returns what a call gives. */
#define LP_FUNCTION_AS(name, ...)                                              \
    static int name(lua_State *L)                                              \
    {                                                                          \
        return __VA_ARGS__;                                                    \
    }

/* Around a backward pass: its hooks run in L. Returns what leave() takes. */
lua_State *lp_hooks_enter(lua_State *L);
void lp_hooks_leave(lua_State *was);
lua_State *lp_hooks_running(void); /* NULL: none */
/* A function that lives until its record is dropped, which may happen where no
 * Lua may run (keep.c). keep_with: it stands with a tensor's box, and is not
 * what keeps that alive; of several boxes with the last. keep and forget, which
 * lets go of the functions of dropped records, may raise. */
void *lp_keep_function(lua_State *L, int i);
void lp_keep_with(lua_State *L, void *record, int box);
void lp_push_kept(lua_State *L, const void *record);
void lp_drop_kept(void *record);
void lp_forget_kept(lua_State *L);
/* A tensor's box was emptied: after its tensor was released. `shelf`: where
 * that stands which push_shelf pushed. */
void lp_push_shelf(lua_State *L);
void lp_box_freed(lua_State *L, int shelf, int box);

/* ---- values -------------------------------------------------------------- */
void lp_push_dtype(lua_State *L, LpDtype t);
LpDtype lp_to_dtype(lua_State *L, int i); /* LP_DT_NONE: none */

typedef enum { LP_DEV_CPU, LP_DEV_META, LP_DEV_IPU } LpDevice;
void lp_push_device(lua_State *L, LpDevice d);
/* A device value or its name; false if neither. */
bool lp_to_device(lua_State *L, int i, LpDevice *d);
/* Raises for what is none, naming those that there are. */
int lp_no_device(lua_State *L, int i, const char *fn);

typedef struct LpSliceBox {
    LpBox box;
    bool has_start, has_stop;
    int64_t start, stop, step;
} LpSliceBox;

void lp_push_size(lua_State *L, const int64_t *shape, int n);
bool lp_is_none(lua_State *L, int i); /* torch.none */
/* The table on top is a list that a script gets: no position 0. */
void lp_mark_list(lua_State *L);
bool lp_is_list(lua_State *L, int i);
/* A table of a class: its metatable has __index, and it is no torch.Size and no
 * marked list. */
bool lp_is_instance(lua_State *L, int i);

/* A short description of a value for messages: "Tensor float32 [2, 3]",
 * "number 2.5", "list of 3". */
#define LP_DESCRIBE 240
const char *lp_describe(lua_State *L, int i, char buf[LP_DESCRIBE]);
/* For the end of a message that asks for an integer: how the script may have
 * come by a float, or "" if the value is none. */
const char *lp_int_hint(lua_State *L, int i);

/* ---- tables with string keys --------------------------------------------- */
/* Is the value at `i` a table of keywords (its keys are strings)? Raises when
 * string keys and list elements are mixed. {} is not. */
bool lp_is_keywords(lua_State *L, int i, const char *fn);
bool lp_is_empty_table(lua_State *L, int i);
/* Raises TypeError if the keywords at `i` have a name not in names[] (NULL at
 * the end). */
void lp_check_keywords(lua_State *L, int i, const char *fn,
                       const char *const *names);

/* ---- forms --------------------------------------------------------------- */
/* The first form of that Lua name; NULL if there is none (yet). */
const LpForm *lp_find_form(const char *name, uint32_t flags);

/* ---- the parts of tensor's metatable ------------------------------------- */
int lp_tensor_index(lua_State *L);    /* upvalue 1: methods */
int lp_tensor_newindex(lua_State *L); /* upvalue 1: methods */
void lp_add_methods(lua_State *L);    /* into the table on top */
void lp_add_reshaping(lua_State *L);
void lp_add_properties(lua_State *L);
void lp_add_form_methods(lua_State *L);

/* f's attribute of that name in `attr` (op->n_attr entries) becomes v. */
void lp_set_attr(const LpForm *f, LpAttr *attr, const char *name, LpAttr v);

/* x[key] and x[key] = value for a key that is no name. The key is at index 2,
 * the value at 3. lp_index_text tells whether a string may be an index. */
int lp_index_get(lua_State *L, LpTensor *t);
int lp_index_set(lua_State *L, LpTensor *t);
bool lp_index_text(const char *s);

/* Pushes a tensor of the value (number, boolean, nested list, tensor to copy)
 * at `i`; dtype LP_DT_NONE infers. Raises on failure. */
void lp_push_cast(lua_State *L, LpTensor *t, LpDtype to);
void lp_push_data(lua_State *L, int i, LpDtype t, const char *fn);

#endif
