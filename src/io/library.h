/* Shared libraries with custom operators. */
#ifndef LP_IO_LIBRARY_H
#define LP_IO_LIBRARY_H

#include "src/base/status.h"

/* Loads the library, which runs what it runs when it is loaded, and takes over
 * the operators of its table (src/ops/custom/registry.h). It stays loaded
 * unless it is refused. A library that is there already is left alone. Errors:
 * OSError, RuntimeError (the table is wrong), naming the path. */
LpStatus lp_library_load(const char *path, LpErr *e);

#endif
