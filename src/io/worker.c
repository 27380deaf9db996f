/* A message is one datagram on a socket pair with a file descriptor: that of a
 * memfd with a head, the text and the tensors. The sender writes it once; the
 * receiver maps large tensors where they are and copies small ones. The kernel
 * frees the memory when nobody maps it any more, so nothing is left over,
 * whichever process dies when. Sources: memfd_create(2), unix(7), prctl(2). */
#include "src/io/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/autodiff/op_call.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/base/process.h"

#define PAGE 4096
#define COPIED (64 << 10) /* smaller tensors are copied: one page fault less */

typedef struct Head {
    uint64_t n, size; /* tensors, bytes of the text */
} Head;

typedef struct Item {
    LpType type;
    uint64_t at, bytes;
} Item;

static LpWorker *open_ends;

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
static void become_child(LpWorker *w, int fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGINT, SIG_IGN);
    while (open_ends)
        close_end(open_ends);
    *w = (LpWorker){.fd = fd, .next = NULL};
    open_ends = w;
    lp_enter_worker();
}

LpStatus lp_worker_start(LpWorker *w, bool *child, LpErr *e)
{
    int ends[2];
    pid_t parent = getpid();
    *w = (LpWorker){.fd = -1};
    LP_FAIL_IF(lp_in_worker(), e, LP_E_RUNTIME,
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
        become_child(w, ends[1], parent);
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
        double left = end - now();
        struct pollfd p = {.fd = w->fd, .events = events};
        int ms = seconds <= 0 ? 1000
                 : left <= 0  ? 0
                 : left > 1.0 ? 1000
                              : (int)(left * 1000) + 1;
        int k = poll(&p, 1, ms);
        if (k < 0 && errno != EINTR)
            return failed("poll", e);
        if (lp_interrupt_raised())
            return lp_fail(e, LP_E_INTERRUPT, "interrupted");
        *ready = k > 0;
        if (*ready || (seconds > 0 && left <= 0))
            return LP_OK;
    }
}

/* ---- sending ------------------------------------------------------------- */
/* All n bytes at `at`, of the file or to it. */
static bool transfer(int fd, void *p, size_t n, uint64_t at, bool out)
{
    for (char *c = p; n > 0;) {
        ssize_t k =
            out ? pwrite(fd, c, n, (off_t)at) : pread(fd, c, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        c += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return true;
}

static bool write_at(int fd, const void *p, size_t n, uint64_t at)
{
    return transfer(fd, (void *)(uintptr_t)p, n, at, true);
}

static uint64_t next_page(uint64_t at)
{
    return (at + PAGE - 1) / PAGE * PAGE;
}

static LpStatus fill(int fd, const char *text, size_t size, Item *items,
                     LpTensor *const *t, size_t n, LpErr *e)
{
    Head h = {n, size};
    uint64_t text_at = sizeof h + n * sizeof *items, at = text_at + size;
    for (size_t i = 0; i < n; i++) {
        LP_TRY(lp_tensor_touch(t[i], false, e));
        LP_FAIL_IF(!lp_tensor_contiguous(t[i]), e, LP_E_VALUE,
                   "worker: a tensor is not contiguous");
        items[i].type = lp_tensor_type(t[i]);
        items[i].bytes =
            (uint64_t)lp_tensor_numel(t[i]) * lp_dtype_size(t[i]->dtype);
        items[i].at = at = next_page(at);
        at += items[i].bytes;
    }
    bool ok = write_at(fd, &h, sizeof h, 0) &&
              write_at(fd, items, n * sizeof *items, sizeof h) &&
              write_at(fd, text, size, text_at);
    for (size_t i = 0; ok && i < n; i++)
        ok = write_at(fd, lp_tensor_data(t[i]), items[i].bytes, items[i].at);
    return ok ? LP_OK : failed("shared memory", e);
}

static LpStatus send_fd(LpWorker *w, int fd, LpErr *e)
{
    char byte = 0;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.space,
                       .msg_controllen = sizeof control.space};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    ssize_t k;
    bool ready;
    do { /* a full channel is waited for where Ctrl-C is seen */
        LP_TRY(wait_for(w, POLLOUT, 0, &ready, e));
        k = sendmsg(w->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (k < 0 && (errno == EINTR || errno == EAGAIN));
    LP_FAIL_IF(k < 0 && errno == ETOOMANYREFS, e, LP_E_OS,
               "worker: more batches are under way than files may be open; "
               "take fewer workers, fetch fewer batches ahead, or raise the "
               "limit (ulimit -n)");
    bool gone = k < 0 && (errno == EPIPE || errno == ECONNRESET);
    return k == 1 || gone ? LP_OK : failed("send", e);
}

LpStatus lp_worker_send(LpWorker *w, const char *text, size_t size,
                        LpTensor *const *t, size_t n, LpErr *e)
{
    LP_FAIL_IF(w->fd < 0, e, LP_E_OS, "worker: the channel is closed");
    Item *items = lp_calloc(n, sizeof *items);
    int fd = items ? memfd_create("lupine", MFD_CLOEXEC) : -1;
    LpStatus s = !items   ? lp_no_memory(e)
                 : fd < 0 ? failed("memfd_create", e)
                          : fill(fd, text, size, items, t, n, e);
    if (s == LP_OK)
        s = send_fd(w, fd, e);
    if (fd >= 0)
        close(fd);
    lp_free(items);
    return s;
}

/* ---- receiving ----------------------------------------------------------- */
/* The descriptor of the next message; -1 when the other side is gone. */
static LpStatus receive_fd(LpWorker *w, int *fd, LpErr *e)
{
    char byte;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.space,
                       .msg_controllen = sizeof control.space};
    ssize_t k;
    *fd = -1;
    do
        k = recvmsg(w->fd, &m, MSG_CMSG_CLOEXEC);
    while (k < 0 && errno == EINTR);
    if (k == 0 || (k < 0 && errno == ECONNRESET))
        return LP_OK;
    if (k < 0)
        return failed("receive", e);
    if (m.msg_flags & MSG_CTRUNC) {
        errno = EMFILE;
        return failed("receive", e);
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_type != SCM_RIGHTS)
        return lp_fail(e, LP_E_OS, "worker: a message without its memory");
    memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return LP_OK;
}

static bool read_at(int fd, void *p, size_t n, uint64_t at)
{
    return transfer(fd, p, n, at, false);
}

static void unmap(void *ctx, void *data)
{
    munmap(data, (size_t)(uintptr_t)ctx);
}

static LpStatus map_tensor(int fd, const Item *x, LpTensor **out, LpErr *e)
{
    LpStorage *st;
    void *p = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_POPULATE, fd, (off_t)x->at);
    if (p == MAP_FAILED)
        return failed("mmap", e);
    LpStatus s = lp_storage_wrap(p, x->bytes, unmap,
                                 (void *)(uintptr_t)x->bytes, &st, e);
    if (s != LP_OK) {
        munmap(p, x->bytes);
        return s;
    }
    s = lp_tensor_over(st, &x->type, NULL, 0, out, e);
    lp_storage_release(st);
    return s;
}

static LpStatus read_tensor(int fd, const Item *x, LpTensor **out, LpErr *e)
{
    if (x->bytes >= COPIED)
        return map_tensor(fd, x, out, e);
    LP_TRY(lp_tensor_new(&x->type, out, e));
    if (read_at(fd, lp_tensor_data(*out), x->bytes, x->at))
        return LP_OK;
    lp_tensor_release(*out);
    *out = NULL;
    return failed("shared memory", e);
}

static LpStatus read_message(int fd, LpMessage *out, LpErr *e)
{
    Head h;
    if (!read_at(fd, &h, sizeof h, 0))
        return failed("shared memory", e);
    Item *items = lp_calloc(h.n, sizeof *items);
    out->text = lp_alloc(h.size + 1);
    out->t = lp_calloc(h.n, sizeof(LpTensor *));
    LpStatus s = items && out->text && out->t ? LP_OK : lp_no_memory(e);
    uint64_t at = sizeof h + h.n * sizeof *items;
    if (s == LP_OK && !(read_at(fd, items, h.n * sizeof *items, sizeof h) &&
                        read_at(fd, out->text, h.size, at)))
        s = failed("shared memory", e);
    if (s == LP_OK) {
        out->text[h.size] = '\0';
        out->size = h.size;
    }
    for (; s == LP_OK && out->n < h.n; out->n += s == LP_OK)
        s = read_tensor(fd, &items[out->n], &out->t[out->n], e);
    lp_free(items);
    return s;
}

LpStatus lp_worker_receive(LpWorker *w, double seconds, LpReceived *got,
                           LpMessage *out, LpErr *e)
{
    bool ready;
    int fd;
    *out = (LpMessage){0};
    LP_FAIL_IF(w->fd < 0, e, LP_E_OS, "worker: the channel is closed");
    LP_TRY(wait_for(w, POLLIN, seconds, &ready, e));
    *got = LP_TIMEOUT;
    if (!ready)
        return LP_OK;
    LP_TRY(receive_fd(w, &fd, e));
    *got = fd < 0 ? LP_CLOSED : LP_GOT;
    if (fd < 0)
        return LP_OK;
    LpStatus s = read_message(fd, out, e);
    close(fd);
    if (s != LP_OK)
        lp_message_fini(out);
    return s;
}

void lp_message_fini(LpMessage *m)
{
    for (size_t i = 0; i < m->n; i++)
        lp_tensor_release(m->t[i]);
    lp_free(m->t);
    lp_free(m->text);
    *m = (LpMessage){0};
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

static bool reap_within(LpWorker *w, double seconds)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    double end = now() + seconds;
    while (!reap(w, false)) {
        if (now() >= end)
            return false;
        nanosleep(&nap, NULL);
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
