/* The custom operators of all libraries that were loaded. They stay as long as
 * the process. */
#ifndef LP_OPS_CUSTOM_REGISTRY_H
#define LP_OPS_CUSTOM_REGISTRY_H

#include "src/ops/custom/attributes.h"
#include "src/tensor/dtype.h"

/* An operator, copied from its library's table. */
typedef struct LpCustomOp {
    lupine_op op;
    LpCustomSpecs specs;
    const char *label;   /* "com.acme.Cube" */
    const char *library; /* the file's name, without folders */
    uint64_t hash;       /* XXH3 of the file when it was loaded */
} LpCustomOp;

/* Checks all of a library's table, which may be anything that memory can hold:
 * only what pointers that are not NULL point to is taken on trust. */
LpStatus lp_custom_check(const lupine_library *l, LpErr *e);

/* Takes over the operators of a table; all or none. `file` is for messages,
 * `hash` that of its bytes. A table that is there already is left alone. */
LpStatus lp_custom_register(const lupine_library *l, const char *file,
                            uint64_t hash, LpErr *e);

/* An error says what is missing, and which library had it (`library`; "": that
 * is not known). */
LpStatus lp_custom_find(const char *domain, const char *name, int64_t version,
                        const char *library, const LpCustomOp **out, LpErr *e);

/* The lupine_dtype of a dtype. */
int32_t lp_custom_dtype(LpDtype dtype);

size_t lp_n_custom_ops(void);
const LpCustomOp *lp_custom_op(size_t i);

#endif
