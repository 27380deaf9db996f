/* Inputs and anchors for specs: notes each call in the file that the argument
 * names, gives 0, 1, 2, … and takes whatever comes; macros make it wrong
 * somewhere. */
#include <lupine/step_io.h>

#ifndef ABI
#define ABI LUPINE_STEP_IO_ABI
#endif
#ifndef BYTES
#define BYTES sizeof(lupine_step_io)
#endif
#ifndef IN
#define IN in
#endif
#ifndef OUT_COMPLETE
#define OUT_COMPLETE out_complete
#endif
#ifndef TABLE
#define TABLE &io
#endif
#ifndef SYMBOL
#define SYMBOL lupine_open_step_io
#endif
#ifndef FAILED
#define FAILED 0
#endif
#ifndef DATA
#define DATA values
#endif
#ifndef WHY
#define WHY "not %s", b->tensor
#endif

static FILE *notes;
static int64_t values[64]; /* 512 bytes */

static void note(const char *what, const lupine_buffer *b)
{
    fprintf(notes, "%s %s %d %d %d %d\n", what, b->tensor, (int)b->dtype,
            (int)b->n, (int)b->prefetch, (int)b->broadcast);
    fflush(notes);
}

static int in(void *context, lupine_buffer *b)
{
    (void)context;
    note("in", b);
    if (FAILED)
        return lupine_refuse(b->error, WHY);
    for (int i = 0; i < (int)b->n; i++) {
        lupine_tensor t = {{b->dtype, 1, {0}}, b->n, values};
        lupine_store(&t, i, i);
    }
    b->data = DATA;
    return 0;
}

static int in_complete(void *context, lupine_buffer *b)
{
    (void)context;
    note("in_complete", b);
    return 0;
}

static int out(void *context, lupine_buffer *b)
{
    (void)context;
    note("out", b);
    b->data = DATA;
    return 0;
}

static int out_complete(void *context, lupine_buffer *b)
{
    lupine_tensor t = {{b->dtype, 1, {0}}, b->n, values};
    (void)context;
    note("out_complete", b);
    fprintf(notes, "last %g\n", lupine_load(&t, b->n - 1));
    return 0;
}

static void finish(void *context)
{
    (void)context;
    fprintf(notes, "close\n");
    fclose(notes);
}

const lupine_step_io *SYMBOL(const char *argument, char *error)
{
    static const lupine_step_io io = {ABI,         BYTES, NULL,         IN,
                                      in_complete, out,   OUT_COMPLETE, finish};
    if (strcmp(argument, "") == 0) {
        lupine_refuse(error, "it needs a file for notes");
        return NULL;
    }
    notes = fopen(argument, "w");
    return TABLE;
}
