/* Worker processes (forked) and the channel to one: messages of a text and
 * tensors. Tensors may also stay shared: then both sides read and write them,
 * and messages say who may. */
#ifndef LP_IO_WORKER_H
#define LP_IO_WORKER_H

#include <sys/types.h>

#include "src/io/message.h"

/* One end. Zero-initialised is closed. */
typedef struct LpWorker {
    pid_t pid; /* of the worker; 0 in the worker itself and when reaped */
    int fd;    /* -1: closed */
    struct LpWorker *next; /* of the open ends of this process */
    char cause[64];        /* how the worker ended, once reaped */
} LpWorker;

/* Forks. In the child *child is true and *w its end; the child owns no other
 * channel, has one thread (lp_in_worker), ignores Ctrl-C and dies with its
 * parent; it may start workers of its own only if it is a `leader`. The caller
 * keeps *w where it is until lp_worker_end. */
LpStatus lp_worker_start(LpWorker *w, bool leader, bool *child, LpErr *e);

/* Sends a text and n contiguous tensors; waits while the channel is full.
 * KeyboardInterrupt on Ctrl-C. When the other side is gone this is no error:
 * receiving tells. */
LpStatus lp_worker_send(LpWorker *w, const char *text, size_t size,
                        LpTensor *const *t, size_t n, LpErr *e);

/* Sends what lp_message_share makes: both sides share the tensors from now on.
 * What the other side receives is `out` here, too, the caller's to fini (after
 * an error as well). */
LpStatus lp_worker_share(LpWorker *w, const char *text, size_t size,
                         LpTensor *const *like, size_t n, size_t copies,
                         LpMessage *out, LpErr *e);

typedef enum { LP_GOT, LP_TIMEOUT, LP_CLOSED } LpReceived;
/* Waits for `seconds` (less than 0: for ever); LP_CLOSED: the other side is
 * gone. KeyboardInterrupt on Ctrl-C. */
LpStatus lp_worker_receive(LpWorker *w, double seconds, LpReceived *got,
                           LpMessage *out, LpErr *e);

/* Closes the channel, which ends an idle worker; waits for up to `seconds`,
 * then kills. No process is left over. */
void lp_worker_end(LpWorker *w, double seconds);
/* How an ended worker ended: "killed by signal 9", "exit code 1"; waits for a
 * moment if it has only just closed its end. */
const char *lp_worker_cause(LpWorker *w);

#endif
