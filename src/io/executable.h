/* Executable files: named texts and tensors in one safetensors file that says
 * which format and version it is of, and has a hash of all of it. What texts
 * and tensors mean is their writer's (lua/lupine/session/stored.lua). Plain
 * data: reading runs no code. */
#ifndef LP_IO_EXECUTABLE_H
#define LP_IO_EXECUTABLE_H

#include "src/io/file.h"

/* A number that grows whenever older files can no longer be understood. */
#define LP_EXECUTABLE_FORMAT "3"

/* Replaces the file at `path`. One of the texts is called "version"; tensors
 * are contiguous and have other names than the texts. */
LpStatus lp_executable_write(const char *path, const LpNamed *in, LpErr *e);

/* Adds what was written to *out, which the caller owns also after a failure;
 * the text "format" tells the file's. Of a file of another format or version
 * that is all there is: texts "format" and "version". OSError; ValueError for
 * what is no such file, or a damaged one, with its name. */
LpStatus lp_executable_read(const char *path, const char *version, LpNamed *out,
                            LpErr *e);

#endif
