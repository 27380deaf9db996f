/* See folder.h. */
#include "src/io/folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/mem.h"
#include "src/io/file.h"

/* One folder; that it is there already is fine, that a file has its name is
 * not. */
static LpStatus make_one(const char *path, LpErr *e)
{
    struct stat s;
    if (mkdir(path, 0777) == 0)
        return LP_OK;
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
