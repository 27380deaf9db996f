/* Messages of onnx.proto as plain tables: core.onnx_decode(bytes, class) and
 * core.onnx_encode(table, class). Fields have the names of onnx.proto; a
 * repeated one is a list, also when it is empty, another that is not set is
 * absent; enumerations are numbers. What is not in onnx.proto is left out by
 * reading and refused by writing. */
#include <limits.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/bind/box.h"
#include "src/bind/module.h"
#include "src/io/proto.h"
#include <onnx.pb-c.h>

typedef ProtobufCFieldDescriptor Field;
typedef ProtobufCMessageDescriptor Class;

LP_BOX_FREE(message_free, lp_proto_free)
static const LpBoxClass message_class = {"lupine.message", "message",
                                         message_free};

static const Class *check_class(lua_State *L, int i)
{
    static const char *const names[] = {"ModelProto", "GraphProto",
                                        "TensorProto", NULL};
    static const Class *const classes[] = {&onnx__model_proto__descriptor,
                                           &onnx__graph_proto__descriptor,
                                           &onnx__tensor_proto__descriptor};
    return classes[luaL_checkoption(L, i, "ModelProto", names)];
}

static size_t size_of(const Field *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return 8;
    default:
        return 4;
    }
}

/* ---- reading ------------------------------------------------------------- */
static void push_message(lua_State *L, const ProtobufCMessage *m);

static void push_value(lua_State *L, const Field *f, const void *p)
{
    const ProtobufCBinaryData *bytes = p;
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        lua_pushstring(L, *(char *const *)p);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        lua_pushlstring(L, bytes->len ? (const char *)bytes->data : "",
                        bytes->len);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        push_message(L, *(ProtobufCMessage *const *)p);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        lua_pushboolean(L, *(const protobuf_c_boolean *)p);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        lua_pushnumber(L, (lua_Number) * (const float *)p);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        lua_pushnumber(L, *(const double *)p);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        lua_pushinteger(L, *(const uint32_t *)p);
        break;
    default:
        lua_pushinteger(L, size_of(f) == 8 ? *(const int64_t *)p
                                           : *(const int32_t *)p);
        break;
    }
}

static bool is_set(const Field *f, const void *base)
{
    const char *flag = (const char *)base + f->quantifier_offset;
    const void *at = (const char *)base + f->offset;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(const void *)flag == f->id;
    if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(void *const *)at;
    return f->label == PROTOBUF_C_LABEL_REQUIRED ||
           *(const protobuf_c_boolean *)flag;
}

static void push_list(lua_State *L, const Field *f, const void *base)
{
    size_t n = *(const size_t *)(const void *)((const char *)base +
                                               f->quantifier_offset);
    const char *list =
        *(char *const *)(const void *)((const char *)base + f->offset);
    lua_createtable(L, n < INT_MAX ? (int)n : 0, 0);
    for (size_t i = 0; i < n; i++) {
        push_value(L, f, list + i * size_of(f));
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_message(lua_State *L, const ProtobufCMessage *m)
{
    const Class *d = m->descriptor;
    luaL_checkstack(L, 8, "messages nested too deeply");
    lua_createtable(L, 0, (int)d->n_fields);
    for (unsigned i = 0; i < d->n_fields; i++) {
        const Field *f = &d->fields[i];
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            push_list(L, f, m);
        else if (is_set(f, m))
            push_value(L, f, (const char *)m + f->offset);
        else
            continue;
        lua_setfield(L, -2, f->name);
    }
}

/* (bytes, class) -> table */
static int decode(lua_State *L)
{
    size_t n;
    LpErr e = {0};
    const char *bytes = luaL_checklstring(L, 1, &n);
    const Class *d = check_class(L, 2);
    LpBox *box = lp_new_box(L, &message_class);
    ProtobufCMessage *m = NULL;
    lp_must(L, lp_proto_read(d, bytes, n, &m, &e), &e);
    box->p = m;
    push_message(L, m);
    lp_proto_free(m); /* as large as the model: not left to the collector */
    box->p = NULL;
    return 1;
}

/* ---- writing ------------------------------------------------------------- */
#define KEEP 3 /* the table of memory that the message being made is in */

static void *room(lua_State *L, size_t n)
{
    void *p = lua_newuserdatauv(L, n ? n : 1, 0);
    memset(p, 0, n ? n : 1);
    lua_rawseti(L, KEEP, luaL_len(L, KEEP) + 1);
    return p;
}

static ProtobufCMessage *to_message(lua_State *L, const Class *d, int depth);

static int other_type(lua_State *L, const Class *d, const Field *f,
                      const char *want)
{
    return lp_raise(L, LP_E_TYPE, "%s: %s: expected %s, got a %s",
                    d->short_name, f->name, want, luaL_typename(L, -1));
}

static lua_Integer to_integer(lua_State *L, const Class *d, const Field *f)
{
    int ok = 0;
    lua_Integer v = lua_tointegerx(L, -1, &ok);
    if (!ok || lua_type(L, -1) != LUA_TNUMBER)
        other_type(L, d, f, "an integer");
    bool natural =
        f->type == PROTOBUF_C_TYPE_UINT32 || f->type == PROTOBUF_C_TYPE_FIXED32;
    lua_Integer least = natural ? 0 : INT32_MIN;
    if (size_of(f) == 4 && (v < least || v > least + UINT32_MAX))
        lp_raise(L, LP_E_VALUE, "%s: %s: %lld is more than a field of 32 bits",
                 d->short_name, f->name, (long long)v);
    return v;
}

/* The value on top -> *p; texts stay where Lua has them. */
static void set_value(lua_State *L, const Class *d, const Field *f, void *p,
                      int depth)
{
    size_t n = 0;
    bool text = lua_type(L, -1) == LUA_TSTRING;
    const char *s = text ? lua_tolstring(L, -1, &n) : NULL;
    lua_Integer v;
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        if (!text || strlen(s) != n)
            other_type(L, d, f, "a text without zero bytes");
        memcpy(p, &s, sizeof s);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        if (!text)
            other_type(L, d, f, "a string");
        *(ProtobufCBinaryData *)p = (ProtobufCBinaryData){n, (uint8_t *)s};
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        if (!lua_istable(L, -1))
            other_type(L, d, f, "a table");
        *(ProtobufCMessage **)p = to_message(L, f->descriptor, depth + 1);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)p = lua_toboolean(L, -1);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        if (lua_type(L, -1) != LUA_TNUMBER)
            other_type(L, d, f, "a number");
        if (f->type == PROTOBUF_C_TYPE_FLOAT)
            *(float *)p = (float)lua_tonumber(L, -1);
        else
            *(double *)p = lua_tonumber(L, -1);
        break;
    default:
        v = to_integer(L, d, f);
        memcpy(p, &v, size_of(f)); /* the lower half is first */
        break;
    }
}

static void set_list(lua_State *L, const Class *d, const Field *f, void *base,
                     int depth)
{
    if (!lua_istable(L, -1))
        other_type(L, d, f, "a list");
    size_t n = lua_rawlen(L, -1), each = size_of(f), bytes = 0;
    if (!lp_mul_size(n, each, &bytes)) /* a border far out, in a table's hash */
        lp_raise(L, LP_E_VALUE, "%s: %s: %zu elements are too many",
                 d->short_name, f->name, n);
    char *list = room(L, bytes);
    *(size_t *)(void *)((char *)base + f->quantifier_offset) = n;
    *(char **)(void *)((char *)base + f->offset) = list;
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        set_value(L, d, f, list + i * each, depth);
        lua_pop(L, 1);
    }
}

static void set_flag(const Field *f, void *base)
{
    void *flag = (char *)base + f->quantifier_offset;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        *(uint32_t *)flag = f->id;
    else if (f->type != PROTOBUF_C_TYPE_STRING &&
             f->type != PROTOBUF_C_TYPE_MESSAGE)
        *(protobuf_c_boolean *)flag = true;
}

static const Field *check_key(lua_State *L, const Class *d)
{
    if (lua_type(L, -2) != LUA_TSTRING)
        lp_raise(L, LP_E_TYPE, "%s: a field's name is a %s", d->short_name,
                 luaL_typename(L, -2));
    const char *key = lua_tostring(L, -2);
    const Field *f = protobuf_c_message_descriptor_get_field_by_name(d, key);
    if (!f)
        lp_raise(L, LP_E_ATTRIBUTE, "%s has no field '%s'", d->short_name, key);
    return f;
}

/* The table on top. */
static ProtobufCMessage *to_message(lua_State *L, const Class *d, int depth)
{
    if (depth > LP_PROTO_DEEPEST)
        lp_raise(L, LP_E_VALUE, "%s: messages are nested deeper than %d",
                 d->short_name, LP_PROTO_DEEPEST);
    luaL_checkstack(L, 8, "messages nested too deeply");
    ProtobufCMessage *m = room(L, d->sizeof_message);
    d->message_init(m);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const Field *f = check_key(L, d);
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            set_list(L, d, f, m, depth);
        } else {
            set_value(L, d, f, (char *)m + f->offset, depth);
            set_flag(f, m);
        }
    }
    return m;
}

/* (table, class) -> bytes */
static int encode(lua_State *L)
{
    luaL_Buffer b;
    luaL_checktype(L, 1, LUA_TTABLE);
    const Class *d = check_class(L, 2);
    lua_settop(L, 2);
    lua_newtable(L);
    lua_pushvalue(L, 1);
    const ProtobufCMessage *m = to_message(L, d, 1);
    size_t n = protobuf_c_message_get_packed_size(m);
    if (n > LP_PROTO_LARGEST)
        lp_raise(L, LP_E_VALUE,
                 "%s: %zu bytes are more than a message has (2 GiB): store its "
                 "tensors in a file of their own",
                 d->short_name, n);
    char *to = luaL_buffinitsize(L, &b, n);
    protobuf_c_message_pack(m, (uint8_t *)to);
    luaL_pushresultsize(&b, n);
    return 1;
}

void lp_bind_onnx(lua_State *L)
{
    lp_add_class(L, &message_class, (luaL_Reg[]){{NULL, NULL}});
    lp_set_function(L, "onnx_decode", decode);
    lp_set_function(L, "onnx_encode", encode);
}
