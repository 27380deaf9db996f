/* Reader of IDX files, the format of the MNIST family of data sets: one array
 * of numbers, plain or compressed with gzip. */
#ifndef LP_IO_IDX_H
#define LP_IO_IDX_H

#include <stdio.h>

#include "src/tensor/tensor.h"

/* Reads the array in the file at `path`, a regular file. *out is owned by the
 * caller. Errors: OSError (cannot be opened or read), ValueError (no IDX
 * file, or one that is damaged). */
LpStatus lp_idx_read(const char *path, LpTensor **out, LpErr *e);

/* The same of an open stream that can seek; `name` is for messages. The
 * stream stays open, its position is undefined afterwards. */
LpStatus lp_idx_read_stream(FILE *f, const char *name, LpTensor **out,
                            LpErr *e);

#endif
