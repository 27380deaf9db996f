/* Calls of the host's functions in the middle of a program (poptorch.CPU). A
 * call is plain data: the function's name and the types of its results. Who
 * runs the program says what answers (LpRunCtx.host). */
#ifndef LP_OPS_HOST_CALL_H
#define LP_OPS_HOST_CALL_H

#include "src/ir/op.h"

/* host_call */
enum {
    LP_HOST_CALL_ID,
    LP_HOST_CALL_TYPES, /* "float32[2, 3], int32[]" */
    LP_HOST_CALL_N_ATTR
};

typedef struct LpHostCall {
    const char *id;
    int n_in, n_out;
    const LpDesc *in; /* of any strides */
    const LpDesc *out;
    void *const *in_data;
    void *const *out_data;
} LpHostCall;

/* Fills the call's results; in the thread that runs the program, one call at a
 * time. */
typedef struct LpHostCalls {
    LpStatus (*call)(void *ctx, const LpHostCall *c, LpErr *e);
    void *ctx;
} LpHostCalls;

#endif
