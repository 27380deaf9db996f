/* fork and exec: posix_spawn cannot tie a child's life to its parent's.
 * Sources: fork(2), prctl(2), pidfd_open(2). */
#include "src/io/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/io/file.h"

static LpStatus failed(const char *what, LpErr *e)
{
    return lp_fail(e, LP_E_OS, "%s: %s", what, strerror(errno));
}

/* ---- starting ------------------------------------------------------------ */
/* In the child: only calls that are safe after a fork of one thread of many.
 * Why exec failed goes through the pipe, which a good one closes. */
static _Noreturn void become(const char *program, char *const *argv,
                             char *const *env, int out, int told, pid_t parent)
{
    sigset_t none;
    int in = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (in >= 0 && dup2(in, STDIN_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0) {
        close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
        execve(program, argv, env);
    }
    int why = errno;
    ssize_t ignored = write(told, &why, sizeof why);
    (void)ignored;
    _exit(127);
}

/* 0, or the errno that the child told before it went. */
static int told_of(int fd)
{
    int why = 0;
    ssize_t k;
    do
        k = read(fd, &why, sizeof why);
    while (k < 0 && errno == EINTR);
    return k == (ssize_t)sizeof why ? why : 0;
}

static void reap(pid_t pid, int *status)
{
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
}

static LpStatus start(LpChild *c, const char *program, char *const *argv,
                      char *const *env, int out, LpErr *e)
{
    int ends[2], status;
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return failed("pipe", e);
    pid_t pid = fork();
    if (pid == 0)
        become(program, argv, env, out, ends[1], parent);
    int why = errno;
    close(ends[1]);
    why = pid < 0 ? why : told_of(ends[0]);
    close(ends[0]);
    int fd = pid > 0 && why == 0 ? pidfd_open(pid, 0) : -1;
    if (fd >= 0) {
        *c = (LpChild){.pid = pid, .fd = fd, .parent = parent};
        return LP_OK;
    }
    why = why ? why : errno;
    if (pid > 0) {
        kill(pid, SIGKILL);
        reap(pid, &status);
    }
    errno = why;
    return failed(program, e);
}

LpStatus lp_child_start(LpChild *c, const char *program, char *const *argv,
                        char *const *env, const char *output, LpErr *e)
{
    *c = (LpChild){.fd = -1};
    int out = open(output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (out < 0)
        return lp_file_error(output, e);
    LpStatus s = start(c, program, argv, env, out, e);
    close(out);
    return s;
}

/* ---- its end ------------------------------------------------------------- */
static void ended(LpChild *c, int status)
{
    close(c->fd);
    c->pid = 0;
    c->fd = -1;
    c->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

bool lp_child_ended(LpChild *c)
{
    int status = 0;
    pid_t k;
    if (c->pid == 0 || c->parent != getpid())
        return true;
    do
        k = waitpid(c->pid, &status, WNOHANG);
    while (k < 0 && errno == EINTR);
    if (k == 0)
        return false;
    ended(c, status);
    return true;
}

/* Sleeps until one ends, a signal comes or the time is over. */
static void sleep_beside(LpChild *const *c, size_t n, struct pollfd *p,
                         double seconds)
{
    double most = 1e6;
    double s = seconds < 0 ? 0 : seconds > most ? most : seconds;
    for (size_t i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = c[i]->fd, .events = POLLIN};
    poll(p, (nfds_t)n, (int)(s * 1000));
}

LpStatus lp_child_wait_any(LpChild *const *c, size_t n, double seconds,
                           LpErr *e)
{
    struct pollfd *p = lp_calloc(n ? n : 1, sizeof *p);
    if (!p)
        return lp_no_memory(e);
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any = any || c[i]->fd < 0;
    if (!any && !lp_interrupt_raised())
        sleep_beside(c, n, p, seconds);
    lp_free(p);
    LP_FAIL_IF(lp_interrupt_raised(), e, LP_E_INTERRUPT, "interrupted");
    return LP_OK;
}

void lp_child_signal(LpChild *c, int sig)
{
    if (!lp_child_ended(c))
        kill(c->pid, sig);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void lp_child_end(LpChild *c, double seconds)
{
    struct pollfd p;
    int status = 0;
    double end = now() + seconds;
    lp_child_signal(c, SIGTERM);
    while (!lp_child_ended(c) && now() < end)
        sleep_beside(&c, 1, &p, end - now() + 0.001);
    if (lp_child_ended(c))
        return;
    kill(c->pid, SIGKILL);
    reap(c->pid, &status);
    ended(c, status);
}
