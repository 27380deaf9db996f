/* The table of IPUs; see devices.h. The locks belong to the open file, not to
 * the process: they stay when somebody else here opens the table and closes
 * it, and fall when the last descriptor of the open file is closed. A process
 * opens a table once, and held[] says which IPUs it has taken, as its own locks
 * do not keep it out. A forked process has the parent's open file: it closes
 * that at once, so that it neither holds nor releases anything, and opens the
 * table anew if it wants IPUs. Source: fcntl(2).
 *
 * A record is text, for whoever looks into the file:
 *   pid 4711 ipus 4 2 script train.lua
 * and blanks up to its 256 bytes, the last of which ends the line. */
#include "runtime/exec/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/base/process.h"

#define TABLE "ipus"

struct LpMachine {
    LpMachine *next;
    int refs;
    LpOwnFd table; /* fd -1: of the process that forked this one */
    dev_t dev;
    ino_t ino;
    char *path;
    bool held[LP_MOST_MACHINE_IPUS];
};

static LpMachine *machines; /* that are open */

/* ---- records ------------------------------------------------------------ */
/* "WORD NUMBER " at *p, below `end`; moves *p behind it. */
static bool read_number(const char **p, const char *end, const char *word,
                        int64_t most, int64_t *out)
{
    size_t n = strlen(word);
    const char *at = *p;
    if ((size_t)(end - at) <= n || memcmp(at, word, n) != 0)
        return false;
    int64_t v = 0;
    const char *digits = at += n;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        v = v * 10 + (*at - '0');
        if (v > most)
            return false;
    }
    if (at == digits || at == end || *at++ != ' ')
        return false;
    *out = v;
    *p = at;
    return true;
}

static void clean(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            *s = '?';
}

bool lp_ipu_record_read(const char *bytes, size_t n, LpHolder *out)
{
    const char *p = bytes, *end = bytes + n;
    LpHolder h = {0};
    if (n != LP_IPU_RECORD || end[-1] != '\n' ||
        !read_number(&p, end, "pid ", INT32_MAX, &h.pid) ||
        !read_number(&p, end, "ipus ", LP_MOST_MACHINE_IPUS - 1, &h.first) ||
        !read_number(&p, end, "", LP_MOST_MACHINE_IPUS, &h.count) ||
        h.count < 1 || (size_t)(end - p) < 7 || memcmp(p, "script ", 7) != 0)
        return false;
    p += 7;
    end--;
    while (end > p && end[-1] == ' ')
        end--;
    size_t length = (size_t)(end - p);
    if (length >= sizeof h.script)
        return false;
    memcpy(h.script, p, length);
    clean(h.script);
    *out = h;
    return true;
}

/* `script` NULL: of an IPU that is free. */
static void fill_record(char record[LP_IPU_RECORD], int64_t pid, int64_t first,
                        int64_t count, const char *script)
{
    char text[LP_IPU_RECORD] = "";
    if (script)
        snprintf(text, sizeof text,
                 "pid %" PRId64 " ipus %" PRId64 " %" PRId64 " script %s", pid,
                 first, count, script);
    clean(text);
    memset(record, ' ', LP_IPU_RECORD);
    memcpy(record, text, strlen(text));
    record[LP_IPU_RECORD - 1] = '\n';
}

/* What is not written is not told: the lock is what counts. */
static void write_records(const LpMachine *m, int64_t first, int64_t count,
                          const char *script)
{
    char record[LP_IPU_RECORD];
    fill_record(record, getpid(), first, count, script);
    for (int64_t i = first; i < first + count; i++)
        if (pwrite(m->table.fd, record, sizeof record, i * LP_IPU_RECORD) < 0)
            return;
}

/* ---- the file ----------------------------------------------------------- */
static LpStatus fail_os(const char *what, LpErr *e)
{
    return lp_fail(e, LP_E_OS, "the table of IPUs: %s: %s", what,
                   strerror(errno));
}

/* The folder must be the user's own: what stands in a folder for all may be
 * anybody's. */
static LpStatus open_folder(const char *folder, int *out, LpErr *e)
{
    struct stat st;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return fail_os(folder, e);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_os(folder, e);
    if (fstat(fd, &st) != 0) {
        fail_os(folder, e);
    } else if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        lp_fail(e, LP_E_OS,
                "the table of IPUs: the folder %s %s; name another in "
                "LUPINE_DEVICES, of the mode 0700",
                folder,
                st.st_uid != geteuid() ? "belongs to another user"
                                       : "can be entered by other users");
    } else {
        *out = fd;
        return LP_OK;
    }
    close(fd);
    return LP_E_OS;
}

static LpMachine *find(dev_t dev, ino_t ino)
{
    LpMachine *m = machines;
    while (m && (m->table.fd < 0 || m->dev != dev || m->ino != ino))
        m = m->next;
    return m;
}

static LpStatus open_table(int folder, LpMachine *m, LpErr *e)
{
    struct stat st;
    int fd =
        openat(folder, TABLE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        LP_TRY(lp_own_fd(&m->table, fd, e));
    if (fd < 0 || fstat(fd, &st) != 0)
        return fail_os(m->path, e);
    LP_FAIL_IF(!S_ISREG(st.st_mode) || st.st_uid != geteuid(), e, LP_E_OS,
               "the table of IPUs: %s is no file of this user", m->path);
    m->dev = st.st_dev;
    m->ino = st.st_ino;
    return LP_OK;
}

static LpMachine *new_machine(const char *folder)
{
    LpMachine *m = lp_calloc(1, sizeof *m);
    size_t n = strlen(folder) + sizeof "/" TABLE;
    if (!m)
        return NULL;
    m->table.fd = -1;
    m->refs = 1;
    m->path = lp_alloc(n);
    if (!m->path) {
        lp_free(m);
        return NULL;
    }
    snprintf(m->path, n, "%s/" TABLE, folder);
    m->next = machines;
    machines = m;
    return m;
}

LpStatus lp_machine_open(const char *folder, LpMachine **out, LpErr *e)
{
    struct stat st;
    int fd = -1;
    LP_TRY(open_folder(folder, &fd, e));
    bool there = fstatat(fd, TABLE, &st, AT_SYMLINK_NOFOLLOW) == 0;
    LpMachine *m = there ? find(st.st_dev, st.st_ino) : NULL;
    LpStatus s = LP_OK;
    if (m) {
        lp_machine_retain(m);
    } else if (!(m = new_machine(folder))) {
        s = lp_no_memory(e);
    } else if ((s = open_table(fd, m, e)) != LP_OK) {
        lp_machine_release(m);
        m = NULL;
    }
    close(fd);
    *out = m;
    return s;
}

LpMachine *lp_machine_retain(LpMachine *m)
{
    m->refs++;
    return m;
}

void lp_machine_release(LpMachine *m)
{
    if (!m || --m->refs > 0)
        return;
    LpMachine **at = &machines;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    lp_own_fd_close(&m->table);
    lp_free(m->path);
    lp_free(m);
}

const char *lp_machine_path(const LpMachine *m)
{
    return m->path;
}

/* ---- locks -------------------------------------------------------------- */
static struct flock range(short type, int64_t first, int64_t count)
{
    return (struct flock){.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)(first * LP_IPU_RECORD),
                          .l_len = (off_t)(count * LP_IPU_RECORD)};
}

static LpStatus check(const LpMachine *m, int64_t first, int64_t count,
                      LpErr *e)
{
    LP_FAIL_IF(m->table.fd < 0, e, LP_E_OS,
               "the table of IPUs: %s was opened before this process was "
               "forked; open it anew",
               m->path);
    LP_FAIL_IF(first < 0 || count < 1 || first > LP_MOST_MACHINE_IPUS ||
                   count > LP_MOST_MACHINE_IPUS - first,
               e, LP_E_INDEX, "no machine has %" PRId64 " IPUs from %" PRId64,
               count, first);
    return LP_OK;
}

LpStatus lp_ipus_take(LpMachine *m, int64_t first, int64_t count,
                      const char *script, bool *taken, LpErr *e)
{
    *taken = false;
    LP_TRY(check(m, first, count, e));
    for (int64_t i = first; i < first + count; i++)
        if (m->held[i])
            return LP_OK;
    struct flock l = range(F_WRLCK, first, count);
    if (fcntl(m->table.fd, F_OFD_SETLK, &l) != 0)
        return errno == EAGAIN || errno == EACCES ? LP_OK : fail_os(m->path, e);
    memset(&m->held[first], true, (size_t)count);
    write_records(m, first, count, script);
    *taken = true;
    return LP_OK;
}

void lp_ipus_give_back(LpMachine *m, int64_t first, int64_t count)
{
    if (m->table.fd < 0)
        return;
    write_records(m, first, count, NULL);
    struct flock l = range(F_UNLCK, first, count);
    (void)fcntl(m->table.fd, F_OFD_SETLK, &l); /* giving back cannot fail */
    memset(&m->held[first], false, (size_t)count);
}

LpStatus lp_ipu_holder(LpMachine *m, int64_t ipu, bool *held, LpHolder *out,
                       LpErr *e)
{
    char record[LP_IPU_RECORD];
    *held = false;
    *out = (LpHolder){0};
    LP_TRY(check(m, ipu, 1, e));
    struct flock l = range(F_WRLCK, ipu, 1);
    if (!m->held[ipu] && fcntl(m->table.fd, F_OFD_GETLK, &l) != 0)
        return fail_os(m->path, e);
    if (!m->held[ipu] && l.l_type == F_UNLCK)
        return LP_OK;
    *held = true;
    ssize_t n = pread(m->table.fd, record, sizeof record, ipu * LP_IPU_RECORD);
    if (n > 0)
        (void)lp_ipu_record_read(record, (size_t)n, out);
    if (m->held[ipu] && out->pid != getpid())
        *out = (LpHolder){.pid = getpid()};
    return LP_OK;
}

LpStatus lp_devices_sleep(double seconds, LpErr *e)
{
    double whole = floor(seconds);
    struct timespec t = {.tv_sec = (time_t)whole,
                         .tv_nsec = (long)((seconds - whole) * 1e9)};
    nanosleep(&t, NULL);
    if (lp_interrupt_raised())
        return lp_fail(e, LP_E_INTERRUPT, "interrupted");
    return LP_OK;
}
