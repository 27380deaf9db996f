/* Folders, made with those around them. */
#ifndef LP_IO_FOLDER_H
#define LP_IO_FOLDER_H

#include "src/base/status.h"

/* All folders of the path that are not there yet. OSError. */
LpStatus lp_folder_make(const char *path, LpErr *e);

#endif
