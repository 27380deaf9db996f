/* The operator table: ids, names and look-up by name. */
#include <string.h>

#include "src/ops/ops.h"

LpOp *const lp_ops[] = {
#define OP(name) &op_##name,
#include "src/ops/ops.def"
#undef OP
    NULL,
};

const int lp_n_ops = LP_N_OPS;

static const char *const names[] = {
#define OP(name) #name,
#include "src/ops/ops.def"
#undef OP
    NULL,
};

static void set_names(void) __attribute__((constructor));
static void set_names(void)
{
    for (int i = 0; i < lp_n_ops; i++) {
        lp_ops[i]->name = names[i];
        lp_ops[i]->id = (uint16_t)i;
    }
}

const LpOp *lp_op_find(const char *name)
{
    for (int i = 0; i < lp_n_ops; i++)
        if (strcmp(names[i], name) == 0)
            return lp_ops[i];
    return NULL;
}
