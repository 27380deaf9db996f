/* What this process is: the one that was started, or a forked worker of it
 * (src/io/worker.h); and what it alone has. */
#ifndef LP_BASE_PROCESS_H
#define LP_BASE_PROCESS_H

#include "src/base/status.h"

bool lp_in_worker(void);
/* Called once, by the worker itself. */
void lp_mark_worker(void);

/* The descriptor of an open file that has locks, which belong to the file: a
 * process that is forked would keep them. There it is closed at once, and fd
 * is -1. */
typedef struct LpOwnFd {
    int fd; /* -1: none */
    struct LpOwnFd *next;
} LpOwnFd;

/* Takes fd over, also if it fails: *o stays where it is until it is closed. */
LpStatus lp_own_fd(LpOwnFd *o, int fd, LpErr *e);
void lp_own_fd_close(LpOwnFd *o); /* one that was taken; once */

#endif
