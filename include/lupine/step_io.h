/* Inputs and anchors of popart's sessions in C: what a shared library exports
 * so that popart.StepIO(path) makes an IStepIO of it. Beside this header stands
 * custom_op.h, which has the types of elements; C99 and C++.
 *
 *   static int in(void *context, lupine_buffer *b)
 *   {
 *       if (strcmp(b->tensor, "x") != 0 || b->dtype != LUPINE_FLOAT32)
 *           return lupine_refuse(b->error, "no data for %s", b->tensor);
 *       b->data = next_batch(context, b->n);
 *       return 0;
 *   }
 *   ...
 *   static const lupine_step_io io = {LUPINE_STEP_IO_ABI, sizeof io, &mine, in,
 *                                     in_complete, out, out_complete, NULL};
 *   const lupine_step_io *lupine_open_step_io(const char *file, char *error)
 *   {
 *       return open_data(&mine, file, error) ? &io : NULL;
 *   }
 *
 *   cc -shared -fPIC -I PREFIX/include -o libmine.so FILE
 *
 * For each micro-batch, and in it for each tensor and replica, a session calls
 * `in`, reads the values that `data` points to, and calls `in_complete`; after
 * the run it calls `out`, writes to where `data` points, and calls
 * `out_complete`. Calls never overlap.
 *
 * Every function returns 0, or anything else if it failed; what it has written
 * to `error` then (lupine_refuse) is what the script sees. */
#ifndef LUPINE_STEP_IO_H
#define LUPINE_STEP_IO_H

#include "custom_op.h"

/* Changes with anything below; a library of another number is refused. */
#define LUPINE_STEP_IO_ABI 1u

/* The values of one tensor in one micro-batch of one replica. */
typedef struct lupine_buffer {
    const char *tensor; /* the name that the model has */
    int32_t dtype;      /* lupine_dtype */
    int32_t prefetch;   /* of an input, 1: `data` may stay NULL, if there are no
                           values yet */
    int32_t broadcast;  /* of an input, 1: all replicas read these values */
    int64_t n;          /* elements */
    void *data;         /* to be set by `in` and `out`, aligned as its type is:
                           n elements that stay until the buffer is complete */
    char *error;        /* LUPINE_ERROR_BYTES */
} lupine_buffer;

typedef int lupine_step_function(void *context, lupine_buffer *b);

typedef struct lupine_step_io {
    uint32_t abi;   /* LUPINE_STEP_IO_ABI */
    uint32_t bytes; /* sizeof(lupine_step_io) */
    void *context;  /* the library's own: the functions' first argument */
    lupine_step_function *in, *in_complete, *out, *out_complete;
    void (*close)(void *context); /* nothing reads it any more; may be NULL */
} lupine_step_io;

#ifdef __cplusplus
extern "C" {
#endif
/* The one symbol that a library exports, called for each popart.StepIO:
 * `argument` is what the script gave, "" if nothing. The result stays until
 * `close`. NULL: it failed, and wrote why to `error` (LUPINE_ERROR_BYTES). */
LUPINE_EXPORT const lupine_step_io *lupine_open_step_io(const char *argument,
                                                        char *error);
#ifdef __cplusplus
}
#endif

/* return lupine_refuse(b->error, "no data for %s", b->tensor); */
static inline int lupine_refuse(char *error, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error, LUPINE_ERROR_BYTES, format, list);
    va_end(list);
    return 1;
}

#endif
