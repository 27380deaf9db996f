/* Shared libraries that give the inputs of runs and take their anchors
 * (include/lupine/step_io.h). */
#ifndef LP_IO_STEP_IO_H
#define LP_IO_STEP_IO_H

#include "include/lupine/step_io.h"
#include "src/base/status.h"
#include "src/tensor/tensor.h"

typedef struct LpStepIo LpStepIo;

/* A buffer of the tensor `name`, of n elements of the dtype. */
typedef struct LpStepBuffer {
    const char *name;
    LpDtype dtype;
    int64_t n;
    bool prefetch, broadcast;
} LpStepBuffer;

/* Loads the library, which runs what it runs when it is loaded, and opens it
 * with the argument. Errors: OSError, RuntimeError (its table is wrong, or it
 * says so), naming the path. */
LpStatus lp_step_io_open(const char *path, const char *argument, LpStepIo **out,
                         LpErr *e);
void lp_step_io_free(LpStepIo *s);

/* Copies an input's values from the library and completes the buffer; *given is
 * false, and nothing is copied, if it has none, which it may where the buffer
 * is for prefetching. */
LpStatus lp_step_io_read(LpStepIo *s, const LpStepBuffer *b, void *values,
                         bool *given, LpErr *e);
/* Copies an anchor's values to the library and completes the buffer. */
LpStatus lp_step_io_write(LpStepIo *s, const LpStepBuffer *b,
                          const void *values, LpErr *e);

#endif
