/* The file is removed by who has the lock. Who waits on a file that is gone
 * since waits for nothing, and tries again on the one that is there now. */
#include "src/io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/io/file.h"

#define WAIT_NS 5000000 /* between two tries */

/* Locks the open file; *mine: it still has its name. */
static LpStatus lock(int fd, const char *path, bool *mine, LpErr *e)
{
    bool locked = false;
    while ((*mine = lp_file_is_named(fd, path)) && !locked) {
        locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (locked)
            continue; /* it may have gone before that */
        if (lp_interrupt_raised())
            return lp_fail(e, LP_E_INTERRUPT, "interrupted");
        if (errno != EWOULDBLOCK && errno != EINTR)
            return lp_file_error(path, e);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
    }
    return LP_OK;
}

static LpStatus take(LpLock *l, bool *mine, LpErr *e)
{
    int fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return lp_file_error(l->path, e);
    LP_TRY(lp_own_fd(&l->file, fd, e));
    LpStatus s = lock(fd, l->path, mine, e);
    if (!*mine || s != LP_OK)
        lp_own_fd_close(&l->file);
    return s;
}

LpStatus lp_lock_take(LpLock *l, const char *path, LpErr *e)
{
    bool mine = false;
    *l = (LpLock){.file.fd = -1, .path = lp_strdup(path)};
    LpStatus s = l->path ? LP_OK : lp_no_memory(e);
    while (s == LP_OK && !mine)
        s = take(l, &mine, e);
    if (s != LP_OK) {
        lp_free(l->path);
        l->path = NULL;
    }
    return s;
}

void lp_lock_release(LpLock *l)
{
    if (!l->path)
        return;
    if (l->file.fd >= 0 && lp_file_is_named(l->file.fd, l->path))
        (void)unlink(l->path);
    lp_own_fd_close(&l->file);
    lp_free(l->path);
    l->path = NULL;
}
