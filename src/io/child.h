/* Programs that this process starts and waits for. A child has a process group
 * of its own, so that a Ctrl-C of the terminal reaches it through whoever
 * started it; it reads nothing, and gets SIGTERM when this process dies. */
#ifndef LP_IO_CHILD_H
#define LP_IO_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "src/base/status.h"

/* Zero-initialised: none was started. */
typedef struct LpChild {
    pid_t pid;    /* 0: none, or its end was seen */
    int fd;       /* tells its end; closed with pid 0 */
    pid_t parent; /* who started it: a forked worker has no child of its own */
    int code;     /* of its exit, once ended; -1: a signal killed it */
    int signal;   /* that one */
} LpChild;

/* Runs `program` with argv and env, whose ends are NULL; what it writes goes to
 * the end of the file `output`. OSError, also for a program that cannot be run.
 */
LpStatus lp_child_start(LpChild *c, const char *program, char *const *argv,
                        char *const *env, const char *output, LpErr *e);

/* Waits until one of n ends, a signal comes or `seconds` are over.
 * KeyboardInterrupt. */
LpStatus lp_child_wait_any(LpChild *const *c, size_t n, double seconds,
                           LpErr *e);
/* Whether it has ended; code and signal are known then. */
bool lp_child_ended(LpChild *c);
void lp_child_signal(LpChild *c, int sig); /* of one that ended: nothing */
/* SIGTERM, and SIGKILL to one that is there `seconds` later. */
void lp_child_end(LpChild *c, double seconds);

#endif
