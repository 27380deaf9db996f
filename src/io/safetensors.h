/* safetensors: named tensors in one file. Plain data: reading runs no code. */
#ifndef LP_IO_SAFETENSORS_H
#define LP_IO_SAFETENSORS_H

#include "src/io/file.h"

/* Adds the tensors, in the order of the header, and the metadata to *out,
 * which the caller owns also after a failure. Errors: OSError, ValueError (no
 * safetensors file, or one that is damaged). */
LpStatus lp_safetensors_read(const char *path, LpNamed *out, LpErr *e);

/* Replaces the file at `path`. Names must be UTF-8 and differ; the tensors
 * must be contiguous. */
LpStatus lp_safetensors_write(const char *path, const LpNamed *in, LpErr *e);

#endif
