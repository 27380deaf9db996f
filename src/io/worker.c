/* A message is one datagram on a socket pair: a byte and the text, if it is
 * short and alone, or the byte and the descriptor of a file of memory
 * (message.c). Sources: unix(7), prctl(2). */
#include "src/io/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/autodiff/op_call.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"

#define SHORT 256 /* what a text in the datagram may have */

static LpWorker *open_ends;
static bool may_start = true;

static LpStatus failed(const char *what, LpErr *e)
{
    return lp_fail(e, LP_E_OS, "worker: %s: %s", what, strerror(errno));
}

static void close_end(LpWorker *w)
{
    LpWorker **at = &open_ends;
    if (w->fd < 0)
        return;
    close(w->fd);
    w->fd = -1;
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
}

/* ---- starting ------------------------------------------------------------ */
/* What its parent's other workers are is no business of the child: their
 * numbers may soon be those of its own. */
static void become_child(LpWorker *w, int fd, bool leader, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGINT, SIG_IGN);
    while (open_ends) {
        open_ends->pid = 0;
        close_end(open_ends);
    }
    may_start = leader;
    *w = (LpWorker){.fd = fd, .next = NULL};
    open_ends = w;
    lp_enter_worker();
}

LpStatus lp_worker_start(LpWorker *w, bool leader, bool *child, LpErr *e)
{
    int ends[2];
    pid_t parent = getpid();
    *w = (LpWorker){.fd = -1};
    LP_FAIL_IF(!may_start, e, LP_E_RUNTIME,
               "a worker process cannot start workers of its own");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return failed("socketpair", e);
    fflush(NULL); /* or the child writes what waits here once more */
    pid_t pid = fork();
    if (pid < 0) {
        LpStatus s = failed("fork", e);
        close(ends[0]);
        close(ends[1]);
        return s;
    }
    *child = pid == 0;
    close(ends[*child ? 0 : 1]);
    if (*child) {
        become_child(w, ends[1], leader, parent);
        return LP_OK;
    }
    *w = (LpWorker){.pid = pid, .fd = ends[0], .next = open_ends};
    open_ends = w;
    return LP_OK;
}

/* ---- waiting ------------------------------------------------------------- */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static LpStatus wait_for(LpWorker *w, short events, double seconds, bool *ready,
                         LpErr *e)
{
    double end = now() + seconds;
    for (;;) {
        double left = seconds < 0 ? 1.0 : end - now();
        struct pollfd p = {.fd = w->fd, .events = events};
        int ms = left <= 0 ? 0 : left >= 1.0 ? 1000 : (int)(left * 1000) + 1;
        int k = poll(&p, 1, ms);
        if (k < 0 && errno != EINTR)
            return failed("poll", e);
        if (lp_interrupt_raised())
            return lp_fail(e, LP_E_INTERRUPT, "interrupted");
        *ready = k > 0;
        if (*ready || left <= 0)
            return LP_OK;
    }
}

/* ---- sending ------------------------------------------------------------- */
/* One datagram of a byte and a text, with a descriptor if fd >= 0. */
static LpStatus send_datagram(LpWorker *w, const char *text, size_t size,
                              int fd, LpErr *e)
{
    char byte = 0;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec parts[] = {{&byte, 1}, {(void *)(uintptr_t)text, size}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    if (fd >= 0) {
        m.msg_control = control.space;
        m.msg_controllen = sizeof control.space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    bool ready;
    ssize_t k = sendmsg(w->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && (errno == EINTR || errno == EAGAIN)) {
        /* a full channel is waited for where Ctrl-C is seen */
        LP_TRY(wait_for(w, POLLOUT, -1, &ready, e));
        k = sendmsg(w->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    LP_FAIL_IF(k < 0 && errno == ETOOMANYREFS, e, LP_E_OS,
               "worker: more batches are under way than files may be open; "
               "take fewer workers, fetch fewer batches ahead, or raise the "
               "limit (ulimit -n)");
    bool gone = k < 0 && (errno == EPIPE || errno == ECONNRESET);
    return k >= 0 || gone ? LP_OK : failed("send", e);
}

static LpStatus send_file(LpWorker *w, int fd, LpErr *e)
{
    LpStatus s = send_datagram(w, NULL, 0, fd, e);
    close(fd);
    return s;
}

LpStatus lp_worker_send(LpWorker *w, const char *text, size_t size,
                        LpTensor *const *t, size_t n, LpErr *e)
{
    int fd;
    LP_FAIL_IF(w->fd < 0, e, LP_E_OS, "worker: the channel is closed");
    if (n == 0 && size <= SHORT)
        return send_datagram(w, text, size, -1, e);
    LP_TRY(lp_message_write(text, size, t, n, &fd, e));
    return send_file(w, fd, e);
}

LpStatus lp_worker_share(LpWorker *w, const char *text, size_t size,
                         LpTensor *const *like, size_t n, size_t copies,
                         LpMessage *out, LpErr *e)
{
    int fd;
    *out = (LpMessage){0};
    LP_FAIL_IF(w->fd < 0, e, LP_E_OS, "worker: the channel is closed");
    LP_TRY(lp_message_share(text, size, like, n, copies, &fd, e));
    LpStatus s = lp_message_read(fd, out, e);
    if (s != LP_OK) {
        close(fd);
        return s;
    }
    return send_file(w, fd, e);
}

/* ---- receiving ----------------------------------------------------------- */
/* The next datagram: a text that stands in it, or a descriptor. */
typedef struct Datagram {
    int fd;         /* -1: none */
    ssize_t length; /* of bytes; 0: the other side is gone, -1: none is there */
    char bytes[1 + SHORT];
} Datagram;

static LpStatus receive_datagram(LpWorker *w, Datagram *d, LpErr *e)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {d->bytes, sizeof d->bytes};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.space,
                       .msg_controllen = sizeof control.space};
    d->fd = -1;
    /* An end that was closed with messages unread says so once, before those
     * that it has sent. */
    do
        d->length = recvmsg(w->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (d->length < 0 && (errno == EINTR || errno == ECONNRESET));
    if (d->length < 0)
        return errno == EAGAIN ? LP_OK : failed("receive", e);
    if (m.msg_flags & MSG_CTRUNC) {
        errno = EMFILE;
        return failed("receive", e);
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&d->fd, CMSG_DATA(c), sizeof d->fd);
    return LP_OK;
}

static LpStatus short_message(const Datagram *d, LpMessage *out, LpErr *e)
{
    out->size = (size_t)d->length - 1;
    out->text = lp_alloc(out->size + 1);
    if (!out->text)
        return lp_no_memory(e);
    memcpy(out->text, d->bytes + 1, out->size);
    out->text[out->size] = '\0';
    return LP_OK;
}

LpStatus lp_worker_receive(LpWorker *w, double seconds, LpReceived *got,
                           LpMessage *out, LpErr *e)
{
    bool ready = true;
    Datagram d;
    *out = (LpMessage){0};
    LP_FAIL_IF(w->fd < 0, e, LP_E_OS, "worker: the channel is closed");
    LP_TRY(receive_datagram(w, &d, e));
    while (d.length < 0 && seconds != 0 && ready) {
        LP_TRY(wait_for(w, POLLIN, seconds, &ready, e));
        LP_TRY(receive_datagram(w, &d, e));
    }
    *got = d.length < 0 ? LP_TIMEOUT : d.length == 0 ? LP_CLOSED : LP_GOT;
    if (d.length <= 0)
        return LP_OK;
    if (d.fd < 0)
        return short_message(&d, out, e);
    LpStatus s = lp_message_read(d.fd, out, e);
    close(d.fd);
    return s;
}

/* ---- ending -------------------------------------------------------------- */
static bool reap(LpWorker *w, bool block)
{
    int status;
    pid_t k;
    if (w->pid == 0)
        return true;
    do
        k = waitpid(w->pid, &status, block ? 0 : WNOHANG);
    while (k < 0 && errno == EINTR);
    if (k == 0)
        return false;
    w->pid = 0;
    if (k < 0)
        snprintf(w->cause, sizeof w->cause, "it was reaped by someone else");
    else if (WIFSIGNALED(status))
        snprintf(w->cause, sizeof w->cause, "killed by signal %d (%s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(w->cause, sizeof w->cause, "exit code %d",
                 WEXITSTATUS(status));
    return true;
}

/* Sleeps until the worker ends, or some milliseconds: few where the system
 * cannot wake up for the former. */
static void sleep_beside(pid_t pid, int ms)
{
    struct pollfd p = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    poll(&p, p.fd >= 0, p.fd >= 0 ? ms : 1);
    if (p.fd >= 0)
        close(p.fd);
}

static bool reap_within(LpWorker *w, double seconds)
{
    double end = now() + seconds;
    while (!reap(w, false)) {
        double left = end - now();
        if (left <= 0)
            return false;
        sleep_beside(w->pid, (int)(left * 1000) + 1);
    }
    return true;
}

void lp_worker_end(LpWorker *w, double seconds)
{
    close_end(w);
    if (w->pid == 0 || reap_within(w, seconds))
        return;
    kill(w->pid, SIGKILL);
    reap(w, true);
}

const char *lp_worker_cause(LpWorker *w)
{
    return reap_within(w, 1.0) ? w->cause : "it closed its channel";
}
