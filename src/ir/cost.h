/* What a record's cost rule is given. The rule adds to `out` what the operator
 * costs when its tensors are spread over `tiles` tiles of `chip`. */
#ifndef LP_IR_COST_H
#define LP_IR_COST_H

#include "src/ir/op.h"

struct LpChip;
struct LpSystem;
struct LpPlanCache;

typedef struct LpCostReq {
    const LpOp *op;
    const LpAttr *attr;
    int n_in, n_out;
    const LpType *in, *out;
    const struct LpChip *chip;
    const struct LpSystem *system; /* NULL: what leaves the chip is free */
    int rivals; /* IPUs that share a machine's link to the host */
    int ipus;   /* of a replica */
    int tiles;
    double memory_proportion; /* availableMemoryProportion, 0..1 */
    LpDtype partials;         /* of matmul and convolution */
    bool stable_norm;         /* normalisations take the mean first */
    int64_t host_sync;        /* cycles */
    int pass; /* LpConvPass of a product: what it is a gradient of */
    struct LpPlanCache *cache; /* borrowed; NULL plans every shape anew */
    /* adds what the nodes of a body cost, one after another; NULL: nothing */
    void (*body_cost)(const struct LpCostReq *r, const LpGraph *body,
                      struct LpCost *out);
    void *ctx; /* body_cost's */
} LpCostReq;

#endif
