/* Shared libraries: those of custom operators, and how others are loaded. */
#ifndef LP_IO_LIBRARY_H
#define LP_IO_LIBRARY_H

#include "src/base/status.h"

/* Loads the library, which runs what it runs when it is loaded, and takes over
 * the operators of its table (src/ops/custom/registry.h). It stays loaded
 * unless it is refused. A library that is there already is left alone. Errors:
 * OSError, RuntimeError (the table is wrong), naming the path. */
LpStatus lp_library_load(const char *path, LpErr *e);

/* Loads a shared library and finds its symbol, which `header` of lupine/ tells
 * to export; `who` loads it, in messages. The caller closes the handle. Errors:
 * OSError, RuntimeError, naming the path. */
LpStatus lp_library_open(const char *who, const char *path, const char *symbol,
                         const char *header, void **handle, void **found,
                         LpErr *e);

#endif
