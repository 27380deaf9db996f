/* See folder.h. */
#include "src/io/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/io/file.h"

char *lp_folder_around(const char *path)
{
    char *copy = lp_strdup(path);
    char *around = copy ? lp_strdup(dirname(copy)) : NULL;
    lp_free(copy);
    return around;
}

/* One that may not be read cannot be synced either. */
LpStatus lp_folder_sync(const char *path, LpErr *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? LP_OK : lp_file_error(path, e);
    bool ok = fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    LpStatus s = ok ? LP_OK : lp_file_error(path, e);
    close(fd);
    return s;
}

static LpStatus sync_around(const char *path, LpErr *e)
{
    char *around = lp_folder_around(path);
    LpStatus s = around ? lp_folder_sync(around, e) : lp_no_memory(e);
    lp_free(around);
    return s;
}

/* One folder; that it is there already is fine, that a file has its name is
 * not. */
static LpStatus make_one(const char *path, LpErr *e)
{
    struct stat s;
    if (mkdir(path, 0777) == 0)
        return sync_around(path, e);
    int why = errno;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        return LP_OK;
    errno = why == EEXIST ? ENOTDIR : why;
    return lp_file_error(path, e);
}

LpStatus lp_folder_make(const char *path, LpErr *e)
{
    char *p = lp_strdup(path);
    if (!p)
        return lp_no_memory(e);
    LpStatus st = LP_OK;
    for (char *at = p + 1; *p && *at && st == LP_OK; at++)
        if (*at == '/') {
            *at = '\0';
            st = make_one(p, e);
            *at = '/';
        }
    if (st == LP_OK && *p)
        st = make_one(p, e);
    lp_free(p);
    return st;
}

/* ---- files within ----------------------------------------------------------
 * Each part is opened in the folder before it, so that nobody can put a link
 * between a check and its use. */
typedef struct Walk {
    const char *folder, *path; /* for messages */
    int fd;                    /* of the folder or file that was reached */
    LpErr *e;
} Walk;

static LpStatus refuse(const Walk *w, const char *why)
{
    return lp_fail(w->e, LP_E_OS, "'%s' in the folder '%s': %s", w->path,
                   w->folder, why);
}

static LpStatus step_into(Walk *w, const char *part, bool last)
{
    /* A pipe without a writer must not block. */
    int fd = openat(w->fd, part,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC |
                        (last ? 0 : O_DIRECTORY));
    int why = errno;
    close(w->fd);
    w->fd = fd;
    if (fd >= 0)
        return LP_OK;
    if (why == ELOOP || why == ENOTDIR)
        return refuse(w, "a link, or no folder");
    errno = why;
    return lp_file_error(w->path, w->e);
}

/* `parts` is a copy of the path, cut here. */
static LpStatus walk(Walk *w, char *parts)
{
    char *rest = NULL, *part = strtok_r(parts, "/", &rest);
    for (char *next; part; part = next) {
        next = strtok_r(NULL, "/", &rest);
        LP_FAIL_IF(strcmp(part, "..") == 0, w->e, LP_E_VALUE,
                   "'%s': a path with '..' may lead out of the folder",
                   w->path);
        LP_TRY(step_into(w, part, !next));
    }
    return LP_OK;
}

static LpStatus open_regular(Walk *w, FILE **out, int64_t *size)
{
    struct stat st;
    if (fstat(w->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return refuse(w, "not a regular file");
    *size = st.st_size;
    *out = fdopen(w->fd, "rb");
    if (!*out)
        return lp_file_error(w->path, w->e);
    w->fd = -1; /* the stream has it */
    return LP_OK;
}

LpStatus lp_folder_file(const char *folder, const char *path, FILE **out,
                        int64_t *size, LpErr *e)
{
    LP_FAIL_IF(!*path || *path == '/', e, LP_E_VALUE,
               "'%s': expected the path of a file within the folder", path);
    Walk w = {.folder = folder, .path = path, .e = e};
    char *parts = lp_strdup(path);
    if (!parts)
        return lp_no_memory(e);
    w.fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    LpStatus st = w.fd < 0 ? lp_file_error(folder, e) : walk(&w, parts);
    if (st == LP_OK)
        st = open_regular(&w, out, size);
    if (w.fd >= 0)
        close(w.fd);
    lp_free(parts);
    return st;
}
