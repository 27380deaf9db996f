/* One flag: set after a fork, never taken back; and the files that only the
 * process that opened them has. Source: pthread_atfork(3). */
#include "src/base/process.h"

#include <pthread.h>
#include <unistd.h>

static bool worker;
static LpOwnFd *own;

bool lp_in_worker(void)
{
    return worker;
}

void lp_mark_worker(void)
{
    worker = true;
}

/* In a forked process. */
static void close_inherited(void)
{
    for (LpOwnFd *o = own; o; o = o->next) {
        if (o->fd >= 0)
            close(o->fd);
        o->fd = -1;
    }
}

LpStatus lp_own_fd(LpOwnFd *o, int fd, LpErr *e)
{
    static bool watched;
    *o = (LpOwnFd){.fd = fd, .next = own};
    own = o;
    if (!watched && pthread_atfork(NULL, NULL, close_inherited) != 0) {
        lp_own_fd_close(o);
        return lp_fail(e, LP_E_MEMORY, "out of memory");
    }
    watched = true;
    return LP_OK;
}

void lp_own_fd_close(LpOwnFd *o)
{
    LpOwnFd **at = &own;
    while (*at && *at != o)
        at = &(*at)->next;
    if (*at)
        *at = o->next;
    if (o->fd >= 0)
        close(o->fd);
    *o = (LpOwnFd){.fd = -1};
}
