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
#define LP_PROTO_LENT 1024 /* bytes of a field that lie as storages do */

/* Reads a message of class d. ValueError for bytes that are none, naming where.
 * The caller frees *out; what it takes out of that it frees by lp_free. */
LpStatus lp_proto_read(const ProtobufCMessageDescriptor *d, const void *bytes,
                       size_t n, ProtobufCMessage **out, LpErr *e);
/* The same of a regular file. Also OSError. */
LpStatus lp_proto_read_file(const ProtobufCMessageDescriptor *d,
                            const char *path, ProtobufCMessage **out, LpErr *e);
/* ValueError for a message of more bytes than one has. */
LpStatus lp_proto_check_size(const ProtobufCMessage *m, LpErr *e);
/* Replaces a file as a whole or not at all, without another copy of the bytes
 * in memory. */
LpStatus lp_proto_write_file(const ProtobufCMessage *m, const char *path,
                             LpErr *e);
void lp_proto_free(ProtobufCMessage *m); /* NULL is fine */

#endif
