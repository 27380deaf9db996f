/* A folder takes its place by rename after fsync of its files (which
 * lp_file_end does), of itself and, afterwards, of the folder around it
 * (rename(2), fsync(2)). Temporary names are ".tmp-PID-N": those whose process
 * is gone and that nobody has locked are left over. */
#include "src/io/folder_out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/io/file.h"
#include "src/io/folder.h"

#define PREFIX ".tmp-"
#define ATTEMPTS 100
#define DEEPEST 32 /* of folders within each other */

/* ---- removing ------------------------------------------------------------ */
/* A folder with all that is in it, by name in the one that `at` is. Links go,
 * not what they lead to. False, with errno: something of it is there. */
static bool remove_at(int at, const char *name, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, x->d_name, 0) != 0 && errno == EISDIR &&
            depth < DEEPEST)
            (void)remove_at(fd, x->d_name, depth + 1);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return unlinkat(at, name, AT_REMOVEDIR) == 0;
}

/* The process that a temporary name is of; 0: it is no such name. */
static long writer_of(const char *name)
{
    char *end;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return 0;
    name += strlen(PREFIX);
    long pid = *name >= '1' && *name <= '9' ? strtol(name, &end, 10) : 0;
    if (pid < 1 || pid > INT_MAX || *end != '-')
        return 0;
    size_t digits = strspn(end + 1, "0123456789");
    return digits && !end[1 + digits] ? pid : 0;
}

/* What processes left in a folder that were killed: they are gone, and so are
 * their locks (of one on another machine only the lock tells). */
static void remove_stale(const char *parent)
{
    DIR *d = opendir(parent);
    for (struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        long pid = writer_of(x->d_name);
        if (!pid || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        int fd = openat(dirfd(d), x->d_name,
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void)remove_at(dirfd(d), x->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

/* ---- names --------------------------------------------------------------- */
/* A temporary name within `parent`, owned. */
static char *temp_name(const char *parent)
{
    static unsigned count;
    size_t room = strlen(parent) + 64;
    char *name = lp_alloc(room);
    if (name)
        snprintf(name, room, "%s/" PREFIX "%ld-%u", parent, (long)getpid(),
                 ++count);
    return name;
}

/* Another machine's process of this number may take it for a left-over until it
 * is locked. */
static bool lock(LpFolderOut *o, LpErr *e)
{
    int fd = open(o->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || lp_own_fd(&o->file, fd, e) != LP_OK)
        return false;
    (void)flock(fd, LOCK_EX | LOCK_NB);
    if (lp_file_is_named(fd, o->path))
        return true;
    lp_own_fd_close(&o->file);
    errno = ENOENT;
    return false;
}

LpStatus lp_folder_begin(LpFolderOut *o, const char *parent, LpErr *e)
{
    *o = (LpFolderOut){.file.fd = -1};
    remove_stale(parent);
    for (int i = 0; i < ATTEMPTS; i++) {
        o->path = temp_name(parent);
        if (!o->path)
            return lp_no_memory(e);
        bool made = mkdir(o->path, 0777) == 0;
        if (made && lock(o, e))
            return LP_OK;
        LpStatus s = made ? e->code : LP_OK;
        bool again = s == LP_OK && errno == (made ? ENOENT : EEXIST);
        if (s == LP_OK && !again)
            s = lp_file_error(parent, e);
        lp_free(o->path);
        o->path = NULL;
        if (!again)
            return s;
    }
    return lp_fail(e, LP_E_OS, "%s: no temporary name is free", parent);
}

/* ---- taking its place ---------------------------------------------------- */
/* A plain rename takes the place of nothing but an empty folder. */
static bool take_place(LpFolderOut *o, const char *path, bool replace,
                       bool *old)
{
    if (rename(o->path, path) == 0)
        return true;
    if (!replace || (errno != ENOTEMPTY && errno != EEXIST))
        return false;
    *old = renameat2(AT_FDCWD, o->path, AT_FDCWD, path, RENAME_EXCHANGE) == 0;
    return *old;
}

static void release(LpFolderOut *o)
{
    lp_own_fd_close(&o->file);
    lp_free(o->path);
    o->path = NULL;
}

LpStatus lp_folder_end(LpFolderOut *o, const char *path, bool replace,
                       bool *done, LpErr *e)
{
    bool old = false;
    LP_FAIL_IF(!o->path, e, LP_E_VALUE, "%s: there is no folder to rename",
               path);
    LP_TRY(lp_folder_sync(o->path, e));
    *done = take_place(o, path, replace, &old);
    if (!*done)
        return !replace && (errno == ENOTEMPTY || errno == EEXIST)
                   ? LP_OK
                   : lp_file_error(path, e);
    char *parent = lp_folder_around(path);
    LpStatus s = parent ? lp_folder_sync(parent, e) : lp_no_memory(e);
    lp_free(parent);
    if (old)
        (void)remove_at(AT_FDCWD, o->path, 0);
    release(o);
    return s;
}

void lp_folder_drop(LpFolderOut *o)
{
    if (!o->path)
        return;
    if (o->file.fd >= 0)
        (void)remove_at(AT_FDCWD, o->path, 0);
    release(o);
}

LpStatus lp_folder_remove(const char *path, LpErr *e)
{
    char *parent = lp_folder_around(path);
    char *temp = parent ? temp_name(parent) : NULL;
    LpStatus s = temp ? LP_OK : lp_no_memory(e);
    if (s == LP_OK && rename(path, temp) != 0)
        s = lp_file_error(path, e);
    if (s == LP_OK && !remove_at(AT_FDCWD, temp, 0))
        s = lp_file_error(temp, e);
    lp_free(parent);
    lp_free(temp);
    return s;
}
