/* Userdata that hold one pointer of the core (LpBox, bind.h), their classes,
 * and fields of option tables: what the bindings of traces, steps, executors
 * and plans share. */
#ifndef LP_BIND_BOX_H
#define LP_BIND_BOX_H

#include "src/bind/bind.h"

/* A class of boxes: its address is their tag. */
typedef struct LpBoxClass {
    const char *name, *what;  /* of the metatable; in messages */
    void (*free)(void *held); /* when it is collected or closed */
} LpBoxClass;

/* `free` of a class, of a function for the pointer's own type. */
#define LP_BOX_FREE(name, of)                                                  \
    static void name(void *held)                                               \
    {                                                                          \
        of(held);                                                              \
    }

/* A closed box, pushed; its p is set once there is something to own. */
LpBox *lp_new_box(lua_State *L, const LpBoxClass *c);
/* The pointer of the box at i; raises if it is closed or of another class. */
void *lp_check_box(lua_State *L, int i, const LpBoxClass *c);
/* The text at 1, of what is parsed. */
const char *lp_check_text(lua_State *L, const char *whose);
/* A closed box, pushed, for a string of the heap on its way to Lua. */
LpBox *lp_new_text(lua_State *L);
/* Pushes the box's string and closes the box; "" if it has none. */
void lp_push_text(lua_State *L, LpBox *text);
/* Methods of a class, beside __gc, __close and close, which free. */
void lp_add_class(lua_State *L, const LpBoxClass *c, const luaL_Reg *m);
/* Zeroed memory, pushed, that `gc` empties when it is collected; `name` of its
 * metatable. */
void *lp_new_owned(lua_State *L, size_t size, const char *name,
                   lua_CFunction gc);

/* Raises for a key of the table at t that is none of `keys`, whose end is NULL;
 * `whose`: of what the table is. */
void lp_check_keys(lua_State *L, int t, const char *whose,
                   const char *const *keys);
/* Pushes a list; NULL ends the names. */
void lp_push_names(lua_State *L, const char *const *name);
/* Fields of the table at t, `def` where there is none; what has another type
 * is an error that names the field. Strings live as long as the table; a choice
 * is the number of one of names[], which NULL ends. */
int64_t lp_opt_int(lua_State *L, int t, const char *key, int64_t def);
double lp_opt_number(lua_State *L, int t, const char *key, double def);
const char *lp_opt_str(lua_State *L, int t, const char *key);
bool lp_opt_bool(lua_State *L, int t, const char *key, bool def);
int lp_opt_choice(lua_State *L, int t, const char *key,
                  const char *const *names, int def);

#endif
