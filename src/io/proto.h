/* Messages of protocol buffers, by protobuf-c: what is read is checked before,
 * since that library recurses as deep as the bytes say and ends texts at a zero
 * byte. */
#ifndef LP_IO_PROTO_H
#define LP_IO_PROTO_H

#include <protobuf-c/protobuf-c.h>

#include "src/base/status.h"

#define LP_PROTO_DEEPEST 100        /* messages in messages */
#define LP_PROTO_MOST (4u << 20)    /* of them in one that is read */
#define LP_PROTO_LARGEST 0x7fffffff /* bytes: the format's own limit */

/* Reads a message of class d. ValueError for bytes that are none, naming where.
 * The caller frees *out. */
LpStatus lp_proto_read(const ProtobufCMessageDescriptor *d, const void *bytes,
                       size_t n, ProtobufCMessage **out, LpErr *e);
void lp_proto_free(ProtobufCMessage *m); /* NULL is fine */

#endif
