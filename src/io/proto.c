/* Messages of protocol buffers: the bytes are checked first; see proto.h. */
#include "src/io/proto.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/io/file.h"

/* ---- checking ------------------------------------------------------------ */
typedef struct Bytes {
    const uint8_t *start, *at, *end;
    uint32_t messages, depth;
    LpErr *e;
} Bytes;

static LpStatus bad(const Bytes *b, const ProtobufCMessageDescriptor *d,
                    const char *why)
{
    return lp_fail(b->e, LP_E_PARSE, "%s, byte %zu: %s", d->short_name,
                   (size_t)(b->at - b->start), why);
}

static bool varint(Bytes *b, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 70 && b->at < b->end; shift += 7) {
        uint8_t byte = *b->at++;
        if (shift < 64)
            *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static LpStatus check(Bytes *b, const ProtobufCMessageDescriptor *d);

/* n bytes of field f, which may be one that the class does not have. */
static LpStatus check_bytes(Bytes *b, const ProtobufCMessageDescriptor *d,
                            const ProtobufCFieldDescriptor *f, size_t n)
{
    const uint8_t *end = b->end;
    if (f && f->type == PROTOBUF_C_TYPE_STRING && memchr(b->at, 0, n))
        return bad(b, d, "a text with a zero byte");
    if (!f || f->type != PROTOBUF_C_TYPE_MESSAGE) {
        b->at += n;
        return LP_OK;
    }
    b->end = b->at + n;
    LP_TRY(check(b, f->descriptor));
    b->end = end;
    return LP_OK;
}

static LpStatus check_field(Bytes *b, const ProtobufCMessageDescriptor *d)
{
    uint64_t key, n;
    if (!varint(b, &key) || key >> 3 == 0 || key >> 32)
        return bad(b, d, "expected a field's key");
    unsigned id = (unsigned)(key >> 3);
    switch (key & 7) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        return varint(b, &n) ? LP_OK : bad(b, d, "expected a number");
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        n = 8;
        break;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        n = 4;
        break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!varint(b, &n))
            return bad(b, d, "expected a length");
        break;
    default:
        return bad(b, d, "unknown kind of field");
    }
    if (n > (uint64_t)(b->end - b->at))
        return bad(b, d, "a field ends behind the end");
    return check_bytes(b, d, protobuf_c_message_descriptor_get_field(d, id),
                       (size_t)n);
}

static LpStatus check(Bytes *b, const ProtobufCMessageDescriptor *d)
{
    if (++b->depth > LP_PROTO_DEEPEST)
        return bad(b, d, "messages are nested deeper than 100");
    if (++b->messages > LP_PROTO_MOST)
        return bad(b, d, "more than 4194304 messages");
    while (b->at < b->end)
        LP_TRY(check_field(b, d));
    b->depth--;
    return LP_OK;
}

/* ---- reading ------------------------------------------------------------- */
static void *allocate(void *failed, size_t n)
{
    void *p = n < LP_PROTO_LENT ? lp_alloc(n) : lp_alloc_aligned(n);
    *(bool *)failed |= !p;
    return p;
}

static void release(LP_UNUSED void *failed, void *p)
{
    lp_free(p);
}

LpStatus lp_proto_read(const ProtobufCMessageDescriptor *d, const void *bytes,
                       size_t n, ProtobufCMessage **out, LpErr *e)
{
    Bytes b = {
        .start = bytes, .at = bytes, .end = (const uint8_t *)bytes + n, .e = e};
    bool failed = false;
    ProtobufCAllocator a = {allocate, release, &failed};
    LP_FAIL_IF(n > LP_PROTO_LARGEST, e, LP_E_PARSE,
               "%s: %zu bytes are more than a message has (2 GiB)",
               d->short_name, n);
    LP_TRY(check(&b, d));
    *out = protobuf_c_message_unpack(d, &a, n, bytes);
    if (*out)
        return LP_OK;
    return failed ? lp_no_memory(e)
                  : lp_fail(e, LP_E_PARSE, "%s: a field has another type",
                            d->short_name);
}

static LpStatus read_bytes(FILE *f, const char *path, int64_t size,
                           const ProtobufCMessageDescriptor *d,
                           ProtobufCMessage **out, LpErr *e)
{
    size_t n = (size_t)size;
    LP_FAIL_IF(size > LP_PROTO_LARGEST, e, LP_E_PARSE,
               "%s: %zu bytes are more than a message has (2 GiB)",
               d->short_name, n);
    char *bytes = lp_alloc_aligned(n); /* with large pages */
    LP_FAIL_IF(!bytes, e, LP_E_MEMORY,
               "out of memory: tried to allocate %zu bytes", n);
    LpStatus s = lp_file_read(f, path, bytes, n, "the message", e);
    if (s == LP_OK)
        s = lp_proto_read(d, bytes, n, out, e);
    lp_free(bytes);
    return s;
}

LpStatus lp_proto_read_file(const ProtobufCMessageDescriptor *d,
                            const char *path, ProtobufCMessage **out, LpErr *e)
{
    FILE *f;
    int64_t size;
    LP_TRY(lp_file_open(path, &f, &size, e));
    LpStatus s = read_bytes(f, path, size, d, out, e);
    fclose(f);
    return s;
}

void lp_proto_free(ProtobufCMessage *m)
{
    bool failed;
    ProtobufCAllocator a = {allocate, release, &failed};
    if (m)
        protobuf_c_message_free_unpacked(m, &a);
}

/* ---- writing ------------------------------------------------------------- */
typedef struct Sink {
    ProtobufCBuffer base;
    LpFileOut *to;
    LpStatus s;
    LpErr *e;
} Sink;

static void append(ProtobufCBuffer *base, size_t n, const uint8_t *p)
{
    Sink *sink = (Sink *)(void *)base;
    if (sink->s == LP_OK)
        sink->s = lp_file_write(sink->to, p, n, sink->e);
}

LpStatus lp_proto_check_size(const ProtobufCMessage *m, LpErr *e)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    return n <= LP_PROTO_LARGEST
               ? LP_OK
               : lp_fail_hint(e, LP_E_VALUE, "model_size",
                              "%s: %zu bytes are more than a message has (2 "
                              "GiB): store its tensors in a file of their own",
                              m->descriptor->short_name, n);
}

LpStatus lp_proto_write_file(const ProtobufCMessage *m, const char *path,
                             LpErr *e)
{
    LpFileOut o;
    Sink sink = {.base = {append}, .to = &o, .e = e};
    LP_TRY(lp_proto_check_size(m, e));
    LP_TRY(lp_file_begin(&o, path, e));
    protobuf_c_message_pack_to_buffer(m, &sink.base);
    return lp_file_end(&o, sink.s, e);
}
