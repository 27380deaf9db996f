/* Files: regular ones to read, whole ones to replace, and lists of named
 * tensors, which is what files of several tensors hold. */
#ifndef LP_IO_FILE_H
#define LP_IO_FILE_H

#include <stdio.h>

#include "src/tensor/tensor.h"

/* OSError that names the file and says what errno says. */
LpStatus lp_file_error(const char *name, LpErr *e);

/* Opens a regular file to read; *size is its length in bytes. The caller
 * closes *out. OSError for what is no regular file. */
LpStatus lp_file_open(const char *path, FILE **out, int64_t *size, LpErr *e);
/* Whether an open file or folder still has that name. */
bool lp_file_is_named(int fd, const char *path);
/* The length of a stream that can seek; it stands at its start afterwards. */
LpStatus lp_file_size(FILE *f, const char *name, int64_t *size, LpErr *e);
/* Bytes that a reader takes in order. */
typedef struct LpSource {
    const char *name; /* for messages */
    int64_t size;     /* bytes in all */
    /* Up to n bytes, fewer only at the end. */
    LpStatus (*read)(void *ctx, void *p, size_t n, size_t *got, LpErr *e);
    void *ctx;
} LpSource;

/* Exactly n bytes; ValueError "truncated" that names `what`. */
LpStatus lp_source_read(const LpSource *src, void *p, size_t n,
                        const char *what, LpErr *e);
/* Adds up to n - *got bytes at p + *got to *got, fewer at the end only.
 * KeyboardInterrupt on Ctrl-C. */
LpStatus lp_file_some(FILE *f, const char *name, void *p, size_t n, size_t *got,
                      LpErr *e);
/* Exactly n bytes; ValueError "truncated" that names `what`. */
LpStatus lp_file_read(FILE *f, const char *name, void *p, size_t n,
                      const char *what, LpErr *e);

/* The XXH3 of a regular file and its length in bytes. OSError;
 * KeyboardInterrupt on Ctrl-C. */
LpStatus lp_file_hash(const char *path, uint64_t *hash, int64_t *size,
                      LpErr *e);

/* A file that replaces `path` as a whole or not at all: written beside it
 * under a temporary name, synced, renamed. It keeps the permissions of the file
 * that it replaces; where a link leads, the file there is replaced. OSError if
 * that file may not be written. Every begin has its end. */
typedef struct LpFileOut {
    FILE *f;
    char *path, *temp; /* owned */
} LpFileOut;
LpStatus lp_file_begin(LpFileOut *o, const char *path, LpErr *e);
LpStatus lp_file_write(LpFileOut *o, const void *p, size_t n, LpErr *e);
/* What was written with status `s` takes its place if that is LP_OK and all of
 * it is on the disk; else it goes. */
LpStatus lp_file_end(LpFileOut *o, LpStatus s, LpErr *e);

/* What was written to the file is on the disk then. OSError. */
LpStatus lp_file_sync(const char *path, LpErr *e);

/* n elements of `size` bytes between the machine's order and that of a file
 * (big- or little-endian): both ways are the same. */
void lp_file_order(void *p, int64_t n, size_t size, bool big);
/* The bytes of an array of that type, of a header that is not to be believed;
 * false beyond int64_t. A size of 0 counts as 1 beside the others, so that
 * these cannot wrap either. */
bool lp_file_array_bytes(const LpType *t, int64_t *bytes);
/* Elements as they stand in a file to this machine's: order, and booleans 0 or
 * 1. `p` has all elements of the type. */
void lp_file_elements(void *p, const LpType *t, bool big);

/* Tensors by name, and texts by name beside them. Zero-initialised is empty;
 * owns its names, texts and one reference of each tensor. */
typedef struct LpNamed {
    size_t n, cap, n_text, text_cap;
    struct LpNamedTensor {
        char *name;
        LpTensor *t;
    } * items;
    struct LpNamedText {
        char *name, *text;
    } * texts;
} LpNamed;
/* Copies the name, takes over `t` (also on failure). */
LpStatus lp_named_add(LpNamed *l, const char *name, LpTensor *t, LpErr *e);
LpStatus lp_named_text(LpNamed *l, const char *name, const char *text,
                       LpErr *e);
void lp_named_fini(LpNamed *l);
/* ValueError if a tensor has no bytes or is not contiguous; makes all bytes
 * current. `what` is for messages. */
LpStatus lp_named_ready(const LpNamed *l, const char *what, LpErr *e);

#endif
