/* The file is removed by who has the lock. Who waited on a file that is gone
 * since has locked nothing, and tries again on the one that is there now. */
#include "src/io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/io/file.h"

#define WAIT_NS 5000000 /* between two tries */

static bool is_there(int fd, const char *path)
{
    struct stat held, now;
    return fstat(fd, &held) == 0 && stat(path, &now) == 0 &&
           held.st_dev == now.st_dev && held.st_ino == now.st_ino;
}

/* Locks the open file; *mine: it still has its name. */
static LpStatus lock(int fd, const char *path, bool *mine, LpErr *e)
{
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (lp_interrupt_raised())
            return lp_fail(e, LP_E_INTERRUPT, "interrupted");
        if (errno != EWOULDBLOCK && errno != EINTR)
            return lp_file_error(path, e);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
    }
    *mine = is_there(fd, path);
    return LP_OK;
}

LpStatus lp_lock_take(LpLock *l, const char *path, LpErr *e)
{
    bool mine = false;
    *l = (LpLock){.fd = -1, .path = lp_strdup(path)};
    LpStatus s = l->path ? LP_OK : lp_no_memory(e);
    while (s == LP_OK && !mine) {
        if (l->fd >= 0)
            close(l->fd);
        l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        s = l->fd >= 0 ? lock(l->fd, path, &mine, e) : lp_file_error(path, e);
    }
    if (s != LP_OK) {
        if (l->fd >= 0)
            close(l->fd);
        lp_free(l->path);
        l->path = NULL;
    }
    return s;
}

void lp_lock_release(LpLock *l)
{
    if (!l->path)
        return;
    (void)unlink(l->path);
    close(l->fd);
    lp_free(l->path);
    l->path = NULL;
}
