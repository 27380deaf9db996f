/* The operator table: ids, names and look-up by name. */
#include <string.h>

#include "src/base/hash.h"
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

/* Id + 1 by the hash of the name, or in the next slot that is free; 0: free.
 * Texts of steps have thousands of names. */
#define SLOTS 4096
_Static_assert(LP_N_OPS < SLOTS / 2, "the table of names is too small");
static uint16_t by_name[SLOTS];

static uint16_t *slot_of(const char *name)
{
    uint64_t h = lp_hash_str(LP_HASH_START, name);
    size_t at = (size_t)(h ^ h >> 32) % SLOTS;
    while (by_name[at] && strcmp(names[by_name[at] - 1], name) != 0)
        at = (at + 1) % SLOTS;
    return &by_name[at];
}

static void set_names(void) __attribute__((constructor));
static void set_names(void)
{
    for (int i = 0; i < lp_n_ops; i++) {
        lp_ops[i]->name = names[i];
        lp_ops[i]->id = (uint16_t)i;
        *slot_of(names[i]) = (uint16_t)(i + 1);
    }
}

const LpOp *lp_op_find(const char *name)
{
    int at = *slot_of(name);
    return at ? lp_ops[at - 1] : NULL;
}
