/* Reading regular files and replacing whole ones. A file is replaced by
 * rename after fsync, and the directory is synced too, so that after a crash
 * or kill at any moment the name leads to the old content or to the new one
 * (rename(2), fsync(2)). */
#include "src/io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/checked.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/base/xxh3.h"

#define MODE 0666 /* less the umask */
#define ATTEMPTS 100
#define PIECE ((size_t)64 << 20)   /* read between two looks for Ctrl-C */
#define HASHED ((size_t)256 << 10) /* bytes that are hashed at a time */

LpStatus lp_file_error(const char *name, LpErr *e)
{
    return lp_fail(e, errno == ENOENT ? LP_E_NO_FILE : LP_E_OS, "%s: %s", name,
                   strerror(errno));
}

/* ---- reading ------------------------------------------------------------- */
LpStatus lp_file_open(const char *path, FILE **out, int64_t *size, LpErr *e)
{
    struct stat st;
    /* A pipe without a writer must not block. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return lp_file_error(path, e);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return lp_fail(e, LP_E_OS, "%s: not a regular file", path);
    }
    *out = fdopen(fd, "rb");
    *size = st.st_size;
    if (!*out) {
        LpStatus s = lp_file_error(path, e);
        close(fd);
        return s;
    }
    return LP_OK;
}

bool lp_file_is_named(int fd, const char *path)
{
    struct stat held, now;
    return fstat(fd, &held) == 0 && stat(path, &now) == 0 &&
           held.st_dev == now.st_dev && held.st_ino == now.st_ino;
}

LpStatus lp_file_size(FILE *f, const char *name, int64_t *size, LpErr *e)
{
    bool ok = fseeko(f, 0, SEEK_END) == 0 && (*size = ftello(f)) >= 0 &&
              fseeko(f, 0, SEEK_SET) == 0;
    return ok ? LP_OK : lp_file_error(name, e);
}

LpStatus lp_file_some(FILE *f, const char *name, void *p, size_t n, size_t *got,
                      LpErr *e)
{
    for (size_t k = 1, want; k > 0 && *got < n; *got += k) {
        LP_FAIL_IF(lp_interrupt_raised(), e, LP_E_INTERRUPT, "interrupted");
        want = n - *got < PIECE ? n - *got : PIECE;
        k = fread((char *)p + *got, 1, want, f);
        if (ferror(f))
            return lp_file_error(name, e);
    }
    return LP_OK;
}

static LpStatus check_all(const char *name, const char *what, size_t n,
                          size_t got, LpErr *e)
{
    LP_FAIL_IF(got < n, e, LP_E_VALUE,
               "%s: truncated: %s has %zu bytes, only %zu are there", name,
               what, n, got);
    return LP_OK;
}

LpStatus lp_source_read(const LpSource *src, void *p, size_t n,
                        const char *what, LpErr *e)
{
    size_t got;
    LP_TRY(src->read(src->ctx, p, n, &got, e));
    return check_all(src->name, what, n, got, e);
}

LpStatus lp_file_read(FILE *f, const char *name, void *p, size_t n,
                      const char *what, LpErr *e)
{
    size_t got = 0;
    LP_TRY(lp_file_some(f, name, p, n, &got, e));
    return check_all(name, what, n, got, e);
}

static LpStatus hash_stream(FILE *f, const char *path, void *room, LpXxh3 *x,
                            LpErr *e)
{
    size_t got = HASHED;
    while (got == HASHED) {
        got = 0;
        LP_TRY(lp_file_some(f, path, room, HASHED, &got, e));
        lp_xxh3_add(x, room, got);
    }
    return LP_OK;
}

LpStatus lp_file_hash(const char *path, uint64_t *hash, int64_t *size, LpErr *e)
{
    FILE *f;
    LpXxh3 x;
    LP_TRY(lp_file_open(path, &f, size, e));
    lp_xxh3_begin(&x);
    void *room = lp_alloc(HASHED);
    LpStatus s = room ? hash_stream(f, path, room, &x, e) : lp_no_memory(e);
    *hash = lp_xxh3_end(&x);
    *size = (int64_t)x.n;
    lp_free(room);
    fclose(f);
    return s;
}

void lp_file_order(void *p, int64_t n, size_t size, bool big)
{
    const int one = 1;
    bool machine_big = *(const char *)&one != 1;
    if (size == 1 || machine_big == big)
        return;
    unsigned char *b = p;
    for (int64_t i = 0; i < n; i++, b += size)
        for (size_t lo = 0, hi = size - 1; lo < hi; lo++, hi--) {
            unsigned char t = b[lo];
            b[lo] = b[hi];
            b[hi] = t;
        }
}

bool lp_file_array_bytes(const LpType *t, int64_t *bytes)
{
    int64_t n = (int64_t)lp_dtype_size(t->dtype);
    bool empty = false;
    for (int i = 0; i < t->ndim; i++) {
        empty |= t->shape[i] == 0;
        if (!lp_mul_i64(n, t->shape[i] ? t->shape[i] : 1, &n))
            return false;
    }
    *bytes = empty ? 0 : n;
    return true;
}

void lp_file_elements(void *p, const LpType *t, bool big)
{
    unsigned char *b = p;
    int64_t n = lp_numel(t);
    lp_file_order(p, n, lp_dtype_size(t->dtype), big);
    for (int64_t i = 0; t->dtype == LP_BOOL && i < n; i++)
        b[i] = b[i] != 0;
}

/* ---- replacing ----------------------------------------------------------- */
/* A link keeps pointing where it points: its target is replaced. */
static char *target_of(const char *path)
{
    char real[PATH_MAX];
    return lp_strdup(realpath(path, real) ? real : path);
}

/* Whether a file can stand at o->path, and the mode that it shall have: that
 * of the file it replaces. One that may not be written is not replaced. */
static LpStatus check_target(const char *path, mode_t *mode, bool *there,
                             LpErr *e)
{
    struct stat st;
    *mode = MODE;
    *there = stat(path, &st) == 0;
    if (!*there) {
        LP_FAIL_IF(lstat(path, &st) == 0, e, LP_E_OS,
                   "%s: a symbolic link that leads to no file", path);
        return LP_OK;
    }
    LP_FAIL_IF(!S_ISREG(st.st_mode), e, LP_E_OS, "%s: not a regular file",
               path);
    *mode = st.st_mode & 0777;
    return access(path, W_OK) == 0 ? LP_OK : lp_file_error(path, e);
}

/* A new file beside o->path, whose name it writes to o->temp; -1 with errno.
 * A name may be taken by a process of the same number that was killed. */
static int create_temp(LpFileOut *o, size_t room, mode_t mode)
{
    static unsigned count;
    int fd = -1;
    for (int i = 0; fd < 0 && i < ATTEMPTS; i++) {
        snprintf(o->temp, room, "%s.%ld-%u.tmp", o->path, (long)getpid(),
                 ++count);
        fd = open(o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

/* The process that `tail` names, of a name "PATH.tail" as create_temp makes
 * them; 0: it is none. */
static long writer_of(const char *tail)
{
    char *end;
    long pid = *tail >= '1' && *tail <= '9' ? strtol(tail, &end, 10) : 0;
    if (pid < 1 || pid > INT_MAX || *end != '-')
        return 0;
    size_t digits = strspn(end + 1, "0123456789");
    return digits && strcmp(end + 1 + digits, ".tmp") == 0 ? pid : 0;
}

/* Removes what writers of o->path left that were killed: their processes are
 * gone, and so are their locks (of a writer on another machine only the lock
 * tells). */
static void remove_stale(const LpFileOut *o)
{
    const char *slash = strrchr(o->path, '/');
    const char *base = slash ? slash + 1 : o->path;
    size_t n = strlen(base);
    char *folder = lp_strdup(o->path);
    DIR *d = folder ? opendir(dirname(folder)) : NULL;
    for (struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        if (strncmp(x->d_name, base, n) != 0 || x->d_name[n] != '.')
            continue;
        long pid = writer_of(x->d_name + n + 1);
        if (!pid || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        int fd = openat(dirfd(d), x->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void)unlinkat(dirfd(d), x->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
    lp_free(folder);
}

/* Opens o->temp; if it fails then without a name that is not ours. */
static LpStatus open_temp(LpFileOut *o, size_t room, const char *path, LpErr *e)
{
    mode_t mode;
    bool there;
    LpStatus s = check_target(o->path, &mode, &there, e);
    if (s == LP_OK)
        remove_stale(o);
    int fd = s == LP_OK ? create_temp(o, room, mode) : -1;
    if (fd >= 0)
        (void)flock(fd, LOCK_EX | LOCK_NB);
    if (fd < 0) {
        lp_free(o->temp);
        o->temp = NULL;
        return s == LP_OK ? lp_file_error(path, e) : s;
    }
    /* The umask is for new files. */
    if (!there || fchmod(fd, mode) == 0)
        o->f = fdopen(fd, "wb");
    if (o->f)
        return LP_OK;
    s = lp_file_error(path, e);
    close(fd);
    return s;
}

static void abandon(LpFileOut *o)
{
    if (o->f)
        fclose(o->f);
    if (o->temp)
        unlink(o->temp);
    lp_free(o->temp);
    lp_free(o->path);
    *o = (LpFileOut){0};
}

LpStatus lp_file_begin(LpFileOut *o, const char *path, LpErr *e)
{
    *o = (LpFileOut){.path = target_of(path)};
    size_t room = strlen(o->path ? o->path : path) + 64;
    o->temp = o->path ? lp_alloc(room) : NULL;
    LpStatus s = o->temp ? open_temp(o, room, path, e) : lp_no_memory(e);
    if (s != LP_OK)
        abandon(o);
    return s;
}

LpStatus lp_file_write(LpFileOut *o, const void *p, size_t n, LpErr *e)
{
    if (n > 0 && fwrite(p, 1, n, o->f) != n)
        return lp_file_error(o->path, e);
    return LP_OK;
}

static bool sync_name(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

LpStatus lp_file_sync(const char *path, LpErr *e)
{
    return sync_name(path, O_RDONLY) ? LP_OK : lp_file_error(path, e);
}

static LpStatus commit(LpFileOut *o, LpErr *e)
{
    bool ok = fclose(o->f) == 0;
    o->f = NULL;
    ok = ok && sync_name(o->temp, O_RDONLY) && rename(o->temp, o->path) == 0;
    LpStatus s = ok ? LP_OK : lp_file_error(o->path, e);
    if (ok) {
        lp_free(o->temp);
        o->temp = NULL;
        /* Some file systems cannot sync a directory; the rename is done. */
        (void)sync_name(dirname(o->path), O_RDONLY | O_DIRECTORY);
    }
    abandon(o);
    return s;
}

LpStatus lp_file_end(LpFileOut *o, LpStatus s, LpErr *e)
{
    if (s == LP_OK)
        return commit(o, e);
    abandon(o);
    return s;
}

/* ---- named tensors ------------------------------------------------------- */
LpStatus lp_named_add(LpNamed *l, const char *name, LpTensor *t, LpErr *e)
{
    char *copy = lp_strdup(name);
    if (!copy || !LP_GROW(l->items, l->cap, l->n)) {
        lp_free(copy);
        lp_tensor_release(t);
        return lp_no_memory(e);
    }
    l->items[l->n].name = copy;
    l->items[l->n++].t = t;
    return LP_OK;
}

LpStatus lp_named_text(LpNamed *l, const char *name, const char *text, LpErr *e)
{
    char *a = lp_strdup(name), *b = lp_strdup(text);
    if (!a || !b || !LP_GROW(l->texts, l->text_cap, l->n_text)) {
        lp_free(a);
        lp_free(b);
        return lp_no_memory(e);
    }
    l->texts[l->n_text].name = a;
    l->texts[l->n_text++].text = b;
    return LP_OK;
}

void lp_named_fini(LpNamed *l)
{
    for (size_t i = 0; i < l->n; i++) {
        lp_free(l->items[i].name);
        lp_tensor_release(l->items[i].t);
    }
    for (size_t i = 0; i < l->n_text; i++) {
        lp_free(l->texts[i].name);
        lp_free(l->texts[i].text);
    }
    lp_free(l->items);
    lp_free(l->texts);
    *l = (LpNamed){0};
}

LpStatus lp_named_ready(const LpNamed *l, const char *what, LpErr *e)
{
    for (size_t i = 0; i < l->n; i++) {
        const LpTensor *t = l->items[i].t;
        LP_TRY(lp_tensor_touch(t, false, e));
        LP_FAIL_IF(!lp_tensor_contiguous(t), e, LP_E_VALUE,
                   "%s: tensor '%s' is not contiguous", what, l->items[i].name);
    }
    return LP_OK;
}
