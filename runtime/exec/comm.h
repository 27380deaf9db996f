/* Communication between the processes that run the replicas of one step. The
 * replicas are dealt out in order: process `rank` of `size` has the replicas
 * rank * local .. rank * local + local - 1.
 *
 * Gradients are summed over the replicas of a group in the order of replicas,
 * whatever process they are in, so that the bits do not depend on how many
 * processes there are. Every accumulator is started when all replicas of a
 * process have their values, in the same order in all processes, and waited for
 * before the update. */
#ifndef LP_RUNTIME_EXEC_COMM_H
#define LP_RUNTIME_EXEC_COMM_H

#include "runtime/exec/sum.h"
#include "src/ir/group.h"

/* The n elements of an accumulator in each replica of this process. */
typedef struct LpReduction {
    uint32_t var;
    LpDtype dtype;
    int64_t n;
    LpGroup group;
    void *const *local; /* n_local buffers, valid until the wait is over */
    int64_t n_local;
    LpSumRounding rounding; /* of group 0, from its first replica on */
} LpReduction;

typedef struct LpComm {
    void *ctx;
    int64_t rank, size;
    /* Begins; what is in the buffers is its own until `wait` has returned. */
    LpStatus (*start)(const struct LpComm *c, const LpReduction *r, LpErr *e);
    /* Then a group's sum is in its first buffer of this process; the other
     * buffers have nothing to be read. */
    LpStatus (*wait)(const struct LpComm *c, const LpReduction *r, LpErr *e);
} LpComm;

/* All replicas in this process. Lives forever. */
const LpComm *lp_comm_alone(void);

#endif
