/* Worker processes (forked) and the channel to one: messages of a text and
 * tensors, whose elements lie in shared memory that has no name and goes with
 * the last process that maps it. */
#ifndef LP_IO_WORKER_H
#define LP_IO_WORKER_H

#include <sys/types.h>

#include "src/tensor/tensor.h"

/* One end. Zero-initialised is closed. */
typedef struct LpWorker {
    pid_t pid; /* of the worker; 0 in the worker itself and when reaped */
    int fd;    /* -1: closed */
    struct LpWorker *next; /* of the open ends of this process */
    char cause[64];        /* how the worker ended, once reaped */
} LpWorker;

/* Forks. In the child *child is true and *w its end; the child owns no other
 * channel, has one thread (lp_in_worker), ignores Ctrl-C and dies with its
 * parent. The caller keeps *w where it is until lp_worker_end. */
LpStatus lp_worker_start(LpWorker *w, bool *child, LpErr *e);

/* Sends a text and n contiguous tensors; waits while the channel is full.
 * KeyboardInterrupt on Ctrl-C. When the other side is gone this is no error:
 * receiving tells. */
LpStatus lp_worker_send(LpWorker *w, const char *text, size_t size,
                        LpTensor *const *t, size_t n, LpErr *e);

/* What came: the caller frees text (lp_free) and the list, and releases its
 * tensors. */
typedef struct LpMessage {
    char *text; /* terminated */
    size_t size, n;
    LpTensor **t;
} LpMessage;
typedef enum { LP_GOT, LP_TIMEOUT, LP_CLOSED } LpReceived;
/* Waits for `seconds` (0: for ever); LP_CLOSED: the other side is gone.
 * KeyboardInterrupt on Ctrl-C. */
LpStatus lp_worker_receive(LpWorker *w, double seconds, LpReceived *got,
                           LpMessage *out, LpErr *e);
void lp_message_fini(LpMessage *m);

/* Closes the channel, which ends an idle worker; waits for up to `seconds`,
 * then kills. No process is left over. */
void lp_worker_end(LpWorker *w, double seconds);
/* How an ended worker ended: "killed by signal 9", "exit code 1"; waits for a
 * moment if it has only just closed its end. */
const char *lp_worker_cause(LpWorker *w);

#endif
