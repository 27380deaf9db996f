/* A lock between processes, on a file that is there while it is held or waited
 * for. It ends with its process; a forked one does not have it. */
#ifndef LP_IO_LOCK_H
#define LP_IO_LOCK_H

#include "src/base/process.h"

typedef struct LpLock {
    LpOwnFd file; /* fd -1: of the process that forked this one */
    char *path;   /* owned; NULL: not held */
} LpLock;

/* Waits until nobody holds it; *l stays where it is until it is released.
 * OSError; KeyboardInterrupt on Ctrl-C. */
LpStatus lp_lock_take(LpLock *l, const char *path, LpErr *e);
void lp_lock_release(LpLock *l); /* one that is not held is fine */

#endif
