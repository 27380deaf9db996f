/* What processes send one another: a text and tensors in a file of memory that
 * has no name and goes with the last process that maps it. */
#ifndef LP_IO_MESSAGE_H
#define LP_IO_MESSAGE_H

#include "src/tensor/tensor.h"

/* What came: the caller frees text (lp_free) and the list, and releases its
 * tensors. */
typedef struct LpMessage {
    char *text; /* terminated */
    size_t size, n;
    LpTensor **t;
} LpMessage;

/* Writes a text and n contiguous tensors; the caller closes *fd. */
LpStatus lp_message_write(const char *text, size_t size, LpTensor *const *t,
                          size_t n, int *fd, LpErr *e);
/* A text and zeros like the n tensors, `copies` times, copy by copy: all that
 * read this file share their memory. */
LpStatus lp_message_share(const char *text, size_t size, LpTensor *const *like,
                          size_t n, size_t copies, int *fd, LpErr *e);
LpStatus lp_message_read(int fd, LpMessage *out, LpErr *e);
void lp_message_fini(LpMessage *m);

#endif
