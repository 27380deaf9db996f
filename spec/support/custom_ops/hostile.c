/* A library whose table is wrong in one place: the compiler's options say
 * where. Without any it is right. */
#include <lupine/custom_op.h>

#ifndef ABI
#define ABI LUPINE_CUSTOM_OP_ABI
#endif
#ifndef OP_BYTES
#define OP_BYTES sizeof(lupine_op)
#endif
#ifndef N_OPS
#define N_OPS 2
#endif
#ifndef OPS
#define OPS ops
#endif
#ifndef TABLE
#define TABLE &library
#endif
#ifndef SYMBOL
#define SYMBOL lupine_custom_ops
#endif
#ifndef DOMAIN
#define DOMAIN "spec.hostile"
#endif
#ifndef NAME
#define NAME "Second"
#endif
#ifndef VERSION
#define VERSION 1
#endif
#ifndef N_IN
#define N_IN 1
#endif
#ifndef N_OUT
#define N_OUT 1
#endif
#ifndef ATTRS
#define ATTRS attrs
#endif
#ifndef N_ATTRS
#define N_ATTRS 2
#endif
#ifndef ATTR
#define ATTR "size"
#endif
#ifndef KIND
#define KIND LUPINE_INT
#endif
#ifndef FALLBACK
#define FALLBACK "3"
#endif
#ifndef INFER
#define INFER same
#endif
#ifndef RUN
#define RUN same
#endif

static int same(lupine_call *c)
{
    c->out[0].type = c->in[0].type;
    return 0;
}

static const lupine_attr_spec attrs[] = {{"alpha", LUPINE_FLOAT, "1.0"},
                                         {ATTR, KIND, FALLBACK}};
static const lupine_op ops[] = {
    {"spec.hostile", "First", 1, 1, 1, attrs, 1, same, same, NULL, NULL},
    {DOMAIN, NAME, VERSION, N_IN, N_OUT, ATTRS, N_ATTRS, INFER, RUN, NULL,
     NULL}};
static const lupine_library library = {ABI, OP_BYTES, N_OPS, OPS};

const lupine_library *SYMBOL(void);
const lupine_library *SYMBOL(void)
{
    const void *used[] = {attrs, ops, &library};
    return used[0] ? TABLE : NULL;
}
