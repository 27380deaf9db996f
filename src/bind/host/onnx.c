/* Messages of onnx.proto as plain tables: core.onnx_decode(bytes, class),
 * core.onnx_read(path, class), core.onnx_encode(table, class) and
 * core.onnx_write(path, table, class). Fields have the names of onnx.proto; a
 * repeated one is a list, also when it is empty, another that is not set is
 * absent; enumerations are numbers. What is not in onnx.proto is left out by
 * reading and refused by writing.
 *
 * Models are mostly TensorProto.raw_data, so that this may be a tensor: reading
 * gives one of uint8 where it is asked to lend, which has the memory that the
 * message had, and writing takes the bytes of any. */
#include <limits.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/bind/box.h"
#include "src/bind/host/host.h"
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

static const Field *raw_data(void)
{
    enum { RAW_DATA = 9 }; /* of onnx.proto's TensorProto */
    return protobuf_c_message_descriptor_get_field(
        &onnx__tensor_proto__descriptor, RAW_DATA);
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
static void push_message(lua_State *L, ProtobufCMessage *m, bool lend);

/* The memory of the bytes becomes a tensor's. */
static void push_lent(lua_State *L, ProtobufCBinaryData *bytes)
{
    LpErr e = {0};
    LpTensor *t = NULL;
    LpStorage *st = NULL;
    LpType type = {.dtype = LP_U8, .ndim = 1, .shape = {(int64_t)bytes->len}};
    LpBox *box = lp_push_box(L);
    lp_must(L, lp_storage_wrap(bytes->data, bytes->len, NULL, NULL, &st, &e),
            &e);
    *bytes = (ProtobufCBinaryData){0, NULL};
    LpStatus s = lp_tensor_over(st, &type, NULL, 0, &t, &e);
    lp_storage_release(st);
    lp_must(L, s, &e);
    box->p = t;
}

/* They are freed at once: with others they are as large as the model. */
static void push_bytes(lua_State *L, ProtobufCBinaryData *bytes)
{
    lua_pushlstring(L, bytes->len ? (const char *)bytes->data : "", bytes->len);
    if (bytes->len >= LP_PROTO_LENT) {
        lp_free(bytes->data);
        *bytes = (ProtobufCBinaryData){0, NULL};
    }
}

static void push_value(lua_State *L, const Field *f, void *p, bool lend)
{
    ProtobufCBinaryData *bytes = p;
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        lua_pushstring(L, *(char *const *)p);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        if (lend && f == raw_data() && bytes->len >= LP_PROTO_LENT)
            push_lent(L, bytes);
        else
            push_bytes(L, bytes);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        push_message(L, *(ProtobufCMessage **)p, lend);
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

static void push_list(lua_State *L, const Field *f, void *base, bool lend)
{
    size_t n = *(size_t *)(void *)((char *)base + f->quantifier_offset);
    char *list = *(char **)(void *)((char *)base + f->offset);
    lua_createtable(L, n < INT_MAX ? (int)n : 0, 0);
    for (size_t i = 0; i < n; i++) {
        push_value(L, f, list + i * size_of(f), lend);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_message(lua_State *L, ProtobufCMessage *m, bool lend)
{
    const Class *d = m->descriptor;
    luaL_checkstack(L, 8, "messages nested too deeply");
    lua_createtable(L, 0, (int)d->n_fields);
    for (unsigned i = 0; i < d->n_fields; i++) {
        const Field *f = &d->fields[i];
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            push_list(L, f, m, lend);
        else if (is_set(f, m))
            push_value(L, f, (char *)m + f->offset, lend);
        else
            continue;
        lua_setfield(L, -2, f->name);
    }
}

/* Of (…, …, lend). */
static int push_all(lua_State *L, LpBox *box, ProtobufCMessage *m)
{
    box->p = m;
    push_message(L, m, lua_toboolean(L, 3));
    lp_proto_free(m);
    box->p = NULL;
    lp_gc_account(L);
    return 1;
}

/* (bytes, class, lend) -> table */
static int decode(lua_State *L)
{
    size_t n;
    LpErr e = {0};
    const char *bytes = luaL_checklstring(L, 1, &n);
    const Class *d = check_class(L, 2);
    lua_settop(L, 3);
    LpBox *box = lp_new_box(L, &message_class);
    ProtobufCMessage *m = NULL;
    lp_must(L, lp_proto_read(d, bytes, n, &m, &e), &e);
    return push_all(L, box, m);
}

/* (path, class, lend) -> table */
static int read_file(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 1, "onnx_read");
    const Class *d = check_class(L, 2);
    lua_settop(L, 3);
    LpBox *box = lp_new_box(L, &message_class);
    ProtobufCMessage *m = NULL;
    lp_must(L, lp_proto_read_file(d, path, &m, &e), &e);
    return push_all(L, box, m);
}

/* (raw_data, dtype) -> tensor over the memory of one that was lent */
static int values(lua_State *L)
{
    LpErr e = {0};
    LpTensor *t = lp_check_tensor(L, 1, "onnx_values", "raw_data"), *out = NULL;
    LpType type = {.dtype = lp_to_dtype(L, 2), .ndim = 1};
    luaL_argcheck(L, type.dtype != LP_DT_NONE, 2, "expected a dtype");
    int64_t size = (int64_t)lp_dtype_size(type.dtype);
    bool lent = t->dtype == LP_U8 && t->offset == 0 && !t->base &&
                !(t->st->flags & (LP_ST_TRACED | LP_ST_META));
    luaL_argcheck(L, lent && lp_tensor_contiguous(t), 1, "not lent");
    luaL_argcheck(L, lp_tensor_numel(t) % size == 0, 1, "no whole elements");
    type.shape[0] = lp_tensor_numel(t) / size;
    LpBox *box = lp_push_box(L);
    lp_must(L, lp_tensor_over(t->st, &type, NULL, 0, &out, &e), &e);
    box->p = out;
    return 1;
}

/* ---- writing ------------------------------------------------------------- */
#define KEEP 4 /* the table of memory that the message being made is in */
#define PIECE ((size_t)64 << 10) /* bytes that are not copied one by one */

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

/* The string or tensor on top -> *out; tensors are put in KEEP, strings of many
 * bytes by their address. */
static void set_bytes(lua_State *L, const Class *d, const Field *f,
                      ProtobufCBinaryData *out)
{
    LpErr e = {0};
    LpTensor *t = f == raw_data() ? lp_to_tensor(L, -1) : NULL;
    if (t) {
        if (!lp_tensor_contiguous(t))
            other_type(L, d, f, "a tensor that lies row by row");
        lp_must(L, lp_tensor_touch(t, false, &e), &e);
        out->data = lp_tensor_data(t);
        out->len = (size_t)lp_tensor_numel(t) * lp_dtype_size(t->dtype);
        return;
    }
    if (lua_type(L, -1) != LUA_TSTRING)
        other_type(L, d, f, "a string");
    out->data = (uint8_t *)lua_tolstring(L, -1, &out->len);
    if (out->len >= PIECE) {
        lua_pushvalue(L, -1);
        lua_rawsetp(L, KEEP, out->data);
    }
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
        set_bytes(L, d, f, p);
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

/* Of (table, class, …); the stack is three values and KEEP then. */
static const ProtobufCMessage *check_message(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    const Class *d = check_class(L, 2);
    lua_settop(L, KEEP - 1);
    lua_newtable(L);
    lua_pushvalue(L, 1);
    const ProtobufCMessage *m = to_message(L, d, 1);
    lua_pop(L, 1);
    return m;
}

/* (table, class): whether it has no more bytes than a message may have */
static int fits(lua_State *L)
{
    LpErr e = {0};
    lua_pushboolean(L, lp_proto_check_size(check_message(L), &e) == LP_OK);
    return 1;
}

/* Bytes that follow one another, as strings on the stack: `text` is the last,
 * of small pieces; large ones are the strings that are there. */
typedef struct Pieces {
    ProtobufCBuffer base;
    lua_State *L;
    luaL_Buffer text;
} Pieces;

static void append(ProtobufCBuffer *base, size_t n, const uint8_t *p)
{
    Pieces *out = (Pieces *)(void *)base;
    lua_State *L = out->L;
    if (n < PIECE) {
        luaL_addlstring(&out->text, (const char *)p, n);
        return;
    }
    luaL_pushresult(&out->text);
    luaL_checkstack(L, 8, "too many tensors");
    if (lua_rawgetp(L, KEEP, p) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_pushlstring(L, (const char *)p, n);
    }
    luaL_buffinit(L, &out->text);
}

/* (table, class) -> bytes */
static int encode(lua_State *L)
{
    LpErr e = {0};
    Pieces out = {.base = {append}, .L = L};
    const ProtobufCMessage *m = check_message(L);
    lp_must(L, lp_proto_check_size(m, &e), &e);
    luaL_buffinit(L, &out.text);
    protobuf_c_message_pack_to_buffer(m, &out.base);
    luaL_pushresult(&out.text);
    lua_concat(L, lua_gettop(L) - KEEP);
    return 1;
}

/* (table, class, path) */
static int write_file(lua_State *L)
{
    LpErr e = {0};
    const char *path = lp_check_path(L, 3, "onnx_write");
    const ProtobufCMessage *m = check_message(L);
    lp_must(L, lp_proto_write_file(m, path, &e), &e);
    return 0;
}

void lp_bind_onnx(lua_State *L)
{
    lp_add_class(L, &message_class, (luaL_Reg[]){{NULL, NULL}});
    lp_set_function(L, "onnx_decode", decode);
    lp_set_function(L, "onnx_read", read_file);
    lp_set_function(L, "onnx_values", values);
    lp_set_function(L, "onnx_encode", encode);
    lp_set_function(L, "onnx_fits", fits);
    lp_set_function(L, "onnx_write", write_file);
}
