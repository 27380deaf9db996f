/* PNG and JPEG images as uint8 tensors [channels, height, width]. */
#ifndef LP_IO_IMAGE_H
#define LP_IO_IMAGE_H

#include "src/io/file.h"

/* What the result has: the image's own channels (1 gray, 2 gray with alpha,
 * 3 RGB, 4 RGB with alpha), or these. */
typedef enum { LP_IMAGE_UNCHANGED, LP_IMAGE_GRAY, LP_IMAGE_RGB } LpImageMode;

/* Reads the image in a file, told by its first bytes; *out is owned by the
 * caller. Errors: OSError, ValueError (neither PNG nor JPEG, or damaged). */
LpStatus lp_image_read(const char *path, LpImageMode mode, LpTensor **out,
                       LpErr *e);

/* Replaces the file at `path` by the PNG of a contiguous uint8 tensor of 1 to
 * 4 channels. */
LpStatus lp_png_write(const char *path, const LpTensor *t, LpErr *e);

#endif
