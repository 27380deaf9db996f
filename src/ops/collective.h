/* Collectives between replicas: operators at which all replicas of a program
 * meet. Groups are as PopART's ReplicaGrouping has them: a group has `size`
 * replicas that are `stride` apart. What a replica's operand becomes is for
 * who runs the replicas (runtime/exec/collective.c); a program of groups of
 * one replica just copies. */
#ifndef LP_OPS_COLLECTIVE_H
#define LP_OPS_COLLECTIVE_H

#include "runtime/cost/cost.h"
#include "src/ir/op.h"

typedef enum {
    LP_REDUCE_ADD,
    LP_REDUCE_MEAN,
    LP_REDUCE_MUL,
    LP_REDUCE_MIN,
    LP_REDUCE_MAX,
    LP_REDUCE_AND,
    LP_REDUCE_OR,
    LP_REDUCE_SQUARE_ADD,
    LP_REDUCE_LOCAL, /* a replica has what is its own */
    LP_N_REDUCTIONS
} LpReductionKind;

typedef struct LpReplicaGroups {
    int64_t replicas, stride, size;
} LpReplicaGroups;

/* The first replica of group g; the groups are replicas / size. */
static inline int64_t lp_groups_first(LpReplicaGroups x, int64_t g)
{
    return g % x.stride + g / x.stride * x.stride * x.size;
}

/* One node's collective. */
typedef struct LpMeet {
    LpCollective kind; /* all_reduce, reduce_scatter or all_gather */
    LpReductionKind reduction;
    LpReplicaGroups groups;
    LpDtype dtype;
    int64_t n; /* elements of the operand */
    int64_t n_out;
    LpKernel pack; /* the operand as contiguous memory */
} LpMeet;

/* What a kernel of these operators does; `op` must be one of them. */
const LpMeet *lp_meet_of(const LpKernel *k);
bool lp_is_collective(const LpOp *op);

#endif
