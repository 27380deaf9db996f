/* JSON: core.json_decode and core.json_encode over jansson. Integers stay
 * integers, floats floats; an array is a table with the metatable
 * core.json_array and its length in `n`; null is core.none. Duplicate names,
 * NaN and numbers beyond a double are refused, as is nesting beyond 2048. */
#include <jansson.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/bind/box.h"
#include "src/bind/module.h"

#define DEEPEST 200 /* of Lua tables to write: cycles end here */

/* jansson's values on their way: released when collected. */
typedef struct JsonBox {
    json_t *v;
    char *text; /* of lp_alloc */
} JsonBox;

static const char array_key;

static int box_gc(lua_State *L)
{
    JsonBox *b = lua_touserdata(L, 1);
    json_decref(b->v);
    lp_free(b->text);
    *b = (JsonBox){0};
    return 0;
}

static JsonBox *push_box(lua_State *L)
{
    return lp_new_owned(L, sizeof(JsonBox), "lupine.json", box_gc);
}

static void push_none(lua_State *L)
{
    lua_getfield(L, lua_upvalueindex(1), "none");
}

static void push_value(lua_State *L, json_t *v)
{
    const char *key;
    size_t i;
    json_t *x;
    luaL_checkstack(L, 5, "JSON nested too deeply");
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        lua_createtable(L, 0, (int)json_object_size(v));
        json_object_foreach(v, key, x)
        {
            push_value(L, x);
            lua_setfield(L, -2, key);
        }
        break;
    case JSON_ARRAY:
        lua_createtable(L, (int)json_array_size(v), 1);
        json_array_foreach(v, i, x)
        {
            push_value(L, x);
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        lp_set_int(L, "n", (lua_Integer)json_array_size(v));
        lua_rawgetp(L, LUA_REGISTRYINDEX, &array_key);
        lua_setmetatable(L, -2);
        break;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        lua_pushinteger(L, json_integer_value(v));
        break;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(v));
        break;
    case JSON_NULL:
        push_none(L);
        break;
    default:
        lua_pushboolean(L, json_is_true(v));
        break;
    }
}

/* (text, what) -> value; `what` names the text in messages */
static int decode(lua_State *L)
{
    size_t n;
    json_error_t bad;
    const char *text = luaL_checklstring(L, 1, &n);
    const char *what = luaL_optstring(L, 2, "JSON");
    JsonBox *box = push_box(L);
    box->v = json_loadb(
        text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
        &bad);
    /* jansson gives no text when memory runs out */
    if (!box->v && !bad.text[0])
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    if (!box->v)
        return lp_raise(L, LP_E_PARSE, "%s, line %d, column %d: %s", what,
                        bad.line, bad.column, bad.text);
    push_value(L, box->v);
    return 1;
}

/* ---- writing ------------------------------------------------------------- */
static json_t *to_json(lua_State *L, int i, int depth);

static bool is_array(lua_State *L, int i)
{
    if (!lua_getmetatable(L, i))
        return false;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &array_key);
    bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same;
}

/* Owned by a box while its parts are made: a part may raise. */
static json_t *array_json(lua_State *L, int i, int depth)
{
    JsonBox *box = push_box(L);
    box->v = json_array();
    lua_getfield(L, i, "n");
    lua_Integer n =
        lua_isinteger(L, -1) ? lua_tointeger(L, -1) : luaL_len(L, i);
    lua_pop(L, 1);
    for (lua_Integer k = 1; k <= n; k++) {
        lua_rawgeti(L, i, k);
        if (json_array_append_new(box->v, to_json(L, lua_gettop(L), depth)) !=
            0)
            lp_raise(L, LP_E_MEMORY, "out of memory");
        lua_pop(L, 1);
    }
    json_t *v = box->v;
    box->v = NULL;
    lua_pop(L, 1);
    return v;
}

static json_t *object_json(lua_State *L, int i, int depth)
{
    JsonBox *box = push_box(L);
    box->v = json_object();
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        size_t n = 0;
        if (lua_type(L, -2) != LUA_TSTRING)
            lp_raise(L, LP_E_TYPE, "JSON: a key of an object is a %s",
                     luaL_typename(L, -2));
        const char *key = lua_tolstring(L, -2, &n);
        json_t *v = to_json(L, lua_gettop(L), depth);
        if (strlen(key) != n || json_object_set_new(box->v, key, v) != 0)
            lp_raise(L, LP_E_VALUE, "JSON: the key '%s' is not UTF-8", key);
    }
    json_t *v = box->v;
    box->v = NULL;
    lua_pop(L, 1);
    return v;
}

static json_t *to_json(lua_State *L, int i, int depth)
{
    char what[LP_DESCRIBE];
    size_t n;
    const char *s;
    json_t *v = NULL;
    luaL_checkstack(L, 8, "JSON nested too deeply");
    switch (lua_type(L, i)) {
    case LUA_TNIL:
        return json_null();
    case LUA_TBOOLEAN:
        return json_boolean(lua_toboolean(L, i));
    case LUA_TNUMBER:
        v = lua_isinteger(L, i) ? json_integer(lua_tointeger(L, i))
                                : json_real(lua_tonumber(L, i));
        break;
    case LUA_TSTRING:
        s = lua_tolstring(L, i, &n);
        v = json_stringn(s, n);
        break;
    case LUA_TTABLE:
        if (depth == DEEPEST)
            lp_raise(L, LP_E_VALUE,
                     "JSON: tables nested more than %d deep (a cycle?)",
                     DEEPEST);
        return is_array(L, i) ? array_json(L, i, depth + 1)
                              : object_json(L, i, depth + 1);
    default:
        if (lp_is_none(L, i))
            return json_null();
    }
    if (!v)
        lp_raise(L, LP_E_VALUE,
                 "JSON: %s cannot be written (numbers must be finite, strings "
                 "UTF-8)",
                 lp_describe(L, i, what));
    return v;
}

/* (value, indent) -> text; names of objects are sorted */
static int encode(lua_State *L)
{
    lua_Integer indent = luaL_optinteger(L, 2, 0);
    luaL_argcheck(L, indent >= 0 && indent <= 31, 2, "0 to 31");
    size_t flags = JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    flags |= indent ? JSON_INDENT((size_t)indent) : JSON_COMPACT;
    lua_settop(L, 1);
    JsonBox *box = push_box(L);
    box->v = to_json(L, 1, 0);
    size_t n = json_dumpb(box->v, NULL, 0, flags);
    box->text = lp_alloc(n);
    if (!box->text || json_dumpb(box->v, box->text, n, flags) != n)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    lua_pushlstring(L, box->text, n);
    return 1;
}

static const luaL_Reg functions[] = {
    {"json_decode", decode},
    {"json_encode", encode},
    {NULL, NULL},
};

void lp_bind_json(lua_State *L)
{
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &array_key);
    lua_setfield(L, -2, "json_array");
    lua_pushvalue(L, -1);
    luaL_setfuncs(L, functions, 1);
}
