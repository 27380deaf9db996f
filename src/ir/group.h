/* Replica groups: replicas of one group have the same value of a variable.
 * With n replicas in groups of k (PopTorch's CommGroupType):
 *
 *   consecutive  {0 .. k-1}, {k .. 2k-1}, …
 *   orthogonal   {0, m, 2m, …}, {1, m+1, …}, …    m = n / k
 *
 * The host's tensor of such a variable has a slice a group, or a slice a
 * replica (PopTorch's VariableRetrievalMode). */
#ifndef LP_IR_GROUP_H
#define LP_IR_GROUP_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    LP_GROUP_ALL, /* one group */
    LP_GROUP_CONSECUTIVE,
    LP_GROUP_ORTHOGONAL,
    LP_GROUP_NONE, /* each replica is its own */
    LP_N_GROUP_KINDS
} LpGroupKind;
extern const char *const lp_group_kind_names[]; /* with NULL at the end */

typedef struct LpGroup {
    LpGroupKind kind;
    int64_t size; /* of a group; ALL, NONE: 0 */
    bool each;    /* the host has a slice a replica */
} LpGroup;

/* The replicas of a step, and those that this process runs: `local` of them
 * from number `first` on; local 0: all. */
typedef struct LpTopology {
    int64_t replicas, first, local;
} LpTopology;

static inline int64_t lp_group_size(LpGroup g, int64_t replicas)
{
    return g.kind == LP_GROUP_ALL    ? replicas
           : g.kind == LP_GROUP_NONE ? 1
                                     : g.size;
}

static inline int64_t lp_group_count(LpGroup g, int64_t replicas)
{
    return replicas / lp_group_size(g, replicas);
}

/* Replicas between one member of a group and the next. */
static inline int64_t lp_group_stride(LpGroup g, int64_t replicas)
{
    return g.kind == LP_GROUP_ORTHOGONAL ? lp_group_count(g, replicas) : 1;
}

/* The first replica of group i. */
static inline int64_t lp_group_first(LpGroup g, int64_t replicas, int64_t i)
{
    return g.kind == LP_GROUP_ORTHOGONAL ? i : i * lp_group_size(g, replicas);
}

/* The group of a replica. */
static inline int64_t lp_group_of(LpGroup g, int64_t replicas, int64_t r)
{
    return g.kind == LP_GROUP_ORTHOGONAL ? r % lp_group_count(g, replicas)
                                         : r / lp_group_size(g, replicas);
}

/* Slices of the host's tensor, and the one of a replica. */
static inline int64_t lp_group_slices(LpGroup g, int64_t replicas)
{
    return g.each ? replicas : lp_group_count(g, replicas);
}

static inline int64_t lp_group_slice(LpGroup g, int64_t replicas, int64_t r)
{
    return g.each ? r : lp_group_of(g, replicas, r);
}

#endif
