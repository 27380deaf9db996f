/* Communication between the processes that run the replicas of one step. The
 * replicas are dealt out in order: process `rank` of `size` has the replicas
 * rank * local .. rank * local + local - 1.
 *
 * Gradients are summed over the replicas of a group in the order of replicas,
 * whatever process they are in, so that the bits do not depend on how many
 * processes there are. An accumulator is started as soon as it is final in all
 * replicas of a process, while the last one still computes others, and waited
 * for before the update. All processes start them in the same order.
 *
 * Processes on unlike machines may lay gradients out otherwise, or end them in
 * another order: they agree on the program's table of sums first, and if they
 * do not, sum the plain form, in the order of variables, when all is computed.
 *
 * What is written to the replicas of a group must be the same in all processes;
 * nothing is sent to make it so. */
#ifndef LP_RUNTIME_EXEC_COMM_H
#define LP_RUNTIME_EXEC_COMM_H

#include "runtime/exec/sum.h"
#include "src/ir/group.h"

/* The n elements of an accumulator in each replica of this process, in the same
 * layout in all processes. */
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
    /* Whether `mine` is the same in all processes. Asked once, before all else.
     */
    LpStatus (*agree)(const struct LpComm *c, uint64_t mine, bool *same,
                      LpErr *e);
    /* Begins; what is in the buffers is its own until `wait` has returned. */
    LpStatus (*start)(const struct LpComm *c, const LpReduction *r, LpErr *e);
    /* Then a group's sum is in its first buffer of this process; the other
     * buffers have nothing to be read. */
    LpStatus (*wait)(const struct LpComm *c, const LpReduction *r, LpErr *e);
} LpComm;

/* All replicas in this process. Lives forever. */
const LpComm *lp_comm_alone(void);

#endif
