/* Folders, made with those around them; files within them that outside data
 * names. */
#ifndef LP_IO_FOLDER_H
#define LP_IO_FOLDER_H

#include <stdint.h>
#include <stdio.h>

#include "src/base/status.h"

/* All folders of the path that are not there yet, on the disk. OSError. */
LpStatus lp_folder_make(const char *path, LpErr *e);
/* What was made, renamed or removed in the folder is on the disk then, if its
 * file system can say so. OSError. */
LpStatus lp_folder_sync(const char *path, LpErr *e);
/* The folder around a path, owned; NULL without memory. */
char *lp_folder_around(const char *path);

/* Opens a regular file that lies within the folder, by a path that is not to be
 * trusted: it is relative, and its parts are names of folders and of the file,
 * no ".." and no links, which could lead out of the folder. *size is its length
 * in bytes; the caller closes *out. ValueError, OSError. */
LpStatus lp_folder_file(const char *folder, const char *path, FILE **out,
                        int64_t *size, LpErr *e);

#endif
