/* A lock between processes, on a file that is there while it is held or waited
 * for. It ends with its process. */
#ifndef LP_IO_LOCK_H
#define LP_IO_LOCK_H

#include "src/base/status.h"

typedef struct LpLock {
    int fd;
    char *path; /* owned; NULL: not held */
} LpLock;

/* Waits until no other process holds it. OSError; KeyboardInterrupt on
 * Ctrl-C. */
LpStatus lp_lock_take(LpLock *l, const char *path, LpErr *e);
void lp_lock_release(LpLock *l); /* one that is not held is fine */

#endif
