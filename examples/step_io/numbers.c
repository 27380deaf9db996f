/* Inputs for popart.StepIO in C: a file of float32 numbers feeds the tensor
 * `x`, from the start again behind its end; anchors are summed up, and the sum
 * is printed when the library is closed. */
#include <lupine/step_io.h>

#include <stdlib.h>

typedef struct Numbers {
    FILE *file;
    float *values; /* of one micro-batch */
    int64_t n;     /* elements that it has room for */
    double sum;
} Numbers;

static int room(Numbers *s, lupine_buffer *b)
{
    if (b->dtype != LUPINE_FLOAT32)
        return lupine_refuse(b->error, "%s: expected float32", b->tensor);
    if (b->n > s->n) {
        float *more = realloc(s->values, (size_t)b->n * sizeof *more);
        if (!more)
            return lupine_refuse(b->error, "no memory");
        s->values = more;
        s->n = b->n;
    }
    b->data = s->values;
    return 0;
}

static int in(void *context, lupine_buffer *b)
{
    Numbers *s = context;
    if (strcmp(b->tensor, "x") != 0)
        return lupine_refuse(b->error, "the file has x alone");
    if (room(s, b))
        return 1;
    for (int64_t i = 0; i < b->n; i++)
        while (fread(&s->values[i], sizeof *s->values, 1, s->file) != 1) {
            if (ftell(s->file) < (long)sizeof *s->values)
                return lupine_refuse(b->error, "the file is empty");
            rewind(s->file);
        }
    return 0;
}

static int out(void *context, lupine_buffer *b)
{
    return room(context, b);
}

static int in_complete(void *context, lupine_buffer *b)
{
    (void)context;
    (void)b;
    return 0;
}

static int out_complete(void *context, lupine_buffer *b)
{
    Numbers *s = context;
    for (int64_t i = 0; i < b->n; i++)
        s->sum += s->values[i];
    return 0;
}

static void finish(void *context)
{
    Numbers *s = context;
    printf("sum %g\n", s->sum);
    fflush(stdout);
    fclose(s->file);
    free(s->values);
    free(s);
}

typedef struct Opened {
    Numbers numbers; /* first: both have one address */
    lupine_step_io io;
} Opened;

const lupine_step_io *lupine_open_step_io(const char *argument, char *error)
{
    FILE *file = fopen(argument, "rb");
    Opened *o = file ? calloc(1, sizeof *o) : NULL;
    if (!o) {
        lupine_refuse(error, "%s cannot be read", argument);
        if (file)
            fclose(file);
        return NULL;
    }
    o->numbers.file = file;
    o->io = (lupine_step_io){
        LUPINE_STEP_IO_ABI, sizeof o->io, &o->numbers,  in,
        in_complete,        out,          out_complete, finish};
    return &o->io;
}
