/* Bytes as a regular file, for readers that take a path. */
#ifndef LP_SPEC_FUZZ_FILE_H
#define LP_SPEC_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The path of a file in memory that holds the bytes until the next call. */
static inline const char *lp_fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[32];
    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 ||
        pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    return path;
}

#endif
