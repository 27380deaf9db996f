/* Folders of files that appear as a whole or not at all: filled under a
 * temporary name beside their place, synced, renamed. */
#ifndef LP_IO_FOLDER_OUT_H
#define LP_IO_FOLDER_OUT_H

#include <stdbool.h>

#include "src/base/process.h"

/* The folder that is filled. It is locked, so that others know that somebody
 * works on it. Zero-initialised: none. */
typedef struct LpFolderOut {
    LpOwnFd file; /* fd -1: of the process that forked this one */
    char *path;   /* owned; NULL: none */
} LpFolderOut;

/* Makes an empty folder within `parent`, which is there; what writers that
 * were killed have left in it goes. *o stays where it is until its end or drop.
 * OSError. */
LpStatus lp_folder_begin(LpFolderOut *o, const char *parent, LpErr *e);
/* The folder gets its place `path`, beside the one where it was filled; it and
 * the rename are on the disk then. *done is false if something is there already
 * (but an empty folder), which stays, and *o goes on; with `replace` it takes
 * the place of the folder there, at one blow, and that one goes. OSError. */
LpStatus lp_folder_end(LpFolderOut *o, const char *path, bool replace,
                       bool *done, LpErr *e);
/* Removes what was filled; none is fine. */
void lp_folder_drop(LpFolderOut *o);

/* Removes a folder with all that is in it; links go, not what they lead to.
 * Nobody sees a part of it under its name. OSError, also if some of it stays,
 * which has a temporary name then. */
LpStatus lp_folder_remove(const char *path, LpErr *e);

#endif
