/* NumPy's files: one array (.npy) and named ones in a zip archive (.npz). */
#ifndef LP_IO_NPY_H
#define LP_IO_NPY_H

#include "src/io/file.h"

/* The array of a .npy file; *out is owned by the caller. An array in Fortran
 * order becomes a tensor whose strides say so. Errors: OSError, ValueError. */
LpStatus lp_npy_read(const char *path, LpTensor **out, LpErr *e);
LpStatus lp_npy_read_source(const LpSource *src, LpTensor **out, LpErr *e);
/* Adds the arrays of a .npz file, named without ".npy", to *out, which the
 * caller owns also after a failure. A bad array is an error; with `each` it is
 * added without a tensor, and a text of its name says what is wrong. */
LpStatus lp_npz_read(const char *path, bool each, LpNamed *out, LpErr *e);

/* Replace the file at `path`. TypeError for bfloat16, which NumPy lacks; the
 * tensors must be contiguous. */
LpStatus lp_npy_write(const char *path, const LpTensor *t, LpErr *e);
LpStatus lp_npz_write(const char *path, const LpNamed *in, bool compressed,
                      LpErr *e);

/* The header of t's .npy file: magic number to line end. */
#define LP_NPY_HEADER 512
LpStatus lp_npy_header(const LpTensor *t, char buf[LP_NPY_HEADER], size_t *n,
                       LpErr *e);

#endif
