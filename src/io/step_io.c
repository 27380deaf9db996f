/* Inputs and anchors by shared libraries; see step_io.h. */
#include "src/io/step_io.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/io/library.h"
#include "src/ops/custom/registry.h"

#define SYMBOL "lupine_open_step_io"

typedef const lupine_step_io *Open(const char *argument, char *error);

struct LpStepIo {
    void *handle;
    const lupine_step_io *io;
    char file[256]; /* for messages, perhaps cut */
};

/* Whether the table can be used; what it points to is taken on trust. */
static LpStatus check(const lupine_step_io *io, LpErr *e)
{
    LP_FAIL_IF(io->abi != LUPINE_STEP_IO_ABI, e, LP_E_RUNTIME,
               "it was compiled with version %u of lupine/step_io.h, this "
               "program has version %u: compile it again",
               io->abi, LUPINE_STEP_IO_ABI);
    LP_FAIL_IF(io->bytes != sizeof *io, e, LP_E_RUNTIME,
               "its table has %u bytes, expected %zu: compile it again",
               io->bytes, sizeof *io);
    LP_FAIL_IF(!io->in || !io->in_complete || !io->out || !io->out_complete, e,
               LP_E_RUNTIME, "its table has no function `%s`",
               !io->in            ? "in"
               : !io->in_complete ? "in_complete"
               : !io->out         ? "out"
                                  : "out_complete");
    return LP_OK;
}

static LpStatus start(LpStepIo *s, const char *argument, void *symbol, LpErr *e)
{
    Open *open = NULL;
    char error[LUPINE_ERROR_BYTES] = "";
    memcpy(&open, &symbol, sizeof open);
    const lupine_step_io *io = open(argument, error);
    error[LUPINE_ERROR_BYTES - 1] = 0;
    LP_FAIL_IF(!io, e, LP_E_RUNTIME, "%s",
               *error ? error : SYMBOL " returned NULL");
    LP_TRY(check(io, e));
    s->io = io;
    return LP_OK;
}

LpStatus lp_step_io_open(const char *path, const char *argument, LpStepIo **out,
                         LpErr *e)
{
    void *symbol;
    LpErr why = {0};
    LpStepIo *s = lp_alloc(sizeof *s);
    if (!s)
        return lp_no_memory(e);
    *s = (LpStepIo){0};
    snprintf(s->file, sizeof s->file, "%s", path);
    LpStatus status = lp_library_open("popart.StepIO", path, SYMBOL,
                                      "step_io.h", &s->handle, &symbol, e);
    if (status == LP_OK) {
        status = start(s, argument, symbol, &why);
        if (status != LP_OK)
            lp_fail(e, status, "popart.StepIO: %.250s: %.440s", path, why.msg);
    }
    if (status != LP_OK)
        lp_step_io_free(s);
    else
        *out = s;
    return status;
}

void lp_step_io_free(LpStepIo *s)
{
    if (s->io && s->io->close)
        s->io->close(s->io->context);
    if (s->handle)
        dlclose(s->handle);
    lp_free(s);
}

static LpStatus call(LpStepIo *s, lupine_step_function *f, const char *what,
                     lupine_buffer *b, LpErr *e)
{
    char error[LUPINE_ERROR_BYTES] = "";
    b->error = error;
    int failed = f(s->io->context, b);
    error[LUPINE_ERROR_BYTES - 1] = 0;
    LP_FAIL_IF(failed, e, LP_E_RUNTIME, "popart.StepIO: %s: %s('%.200s'): %s",
               s->file, what, b->tensor,
               *error ? error : "it failed, and does not say why");
    return LP_OK;
}

static lupine_buffer buffer(const LpStepBuffer *b)
{
    return (lupine_buffer){.tensor = b->name,
                           .dtype = lp_custom_dtype(b->dtype),
                           .prefetch = b->prefetch,
                           .broadcast = b->broadcast,
                           .n = b->n};
}

LpStatus lp_step_io_read(LpStepIo *s, const LpStepBuffer *b, void *values,
                         bool *given, LpErr *e)
{
    lupine_buffer theirs = buffer(b);
    LP_TRY(call(s, s->io->in, "in", &theirs, e));
    *given = theirs.data != NULL;
    LP_FAIL_IF(!*given && !b->prefetch, e, LP_E_RUNTIME,
               "popart.StepIO: %s: in('%.200s') gave no values", s->file,
               b->name);
    if (!*given)
        return LP_OK;
    memcpy(values, theirs.data, (size_t)b->n * lp_dtype_size(b->dtype));
    return call(s, s->io->in_complete, "in_complete", &theirs, e);
}

LpStatus lp_step_io_write(LpStepIo *s, const LpStepBuffer *b,
                          const void *values, LpErr *e)
{
    lupine_buffer theirs = buffer(b);
    LP_TRY(call(s, s->io->out, "out", &theirs, e));
    LP_FAIL_IF(!theirs.data, e, LP_E_RUNTIME,
               "popart.StepIO: %s: out('%.200s') gave no place for values",
               s->file, b->name);
    memcpy(theirs.data, values, (size_t)b->n * lp_dtype_size(b->dtype));
    return call(s, s->io->out_complete, "out_complete", &theirs, e);
}
