/* Replay: the proof of a plan. The step is run by plain kernels, node by node,
 * in the order that the IPU passes planned, and only what the plan keeps is
 * there: each value lies in the memory of its IPU where the plan has room for
 * it and as long as that, a stash has as many places as its ring, a recomputed
 * node runs again, a variable is on its own IPU or where it is brought. Reading
 * what is gone, or what is written over, is an error that names the value. What
 * is moved must be in the acts of the schedule, what is held in the report. In
 * micro-batch order the same kernels run without a plan; both must give the
 * same bits.
 *
 * Host memory is spent on every replica's variables and on what is alive. */
#ifndef LP_RUNTIME_EXEC_REPLAY_H
#define LP_RUNTIME_EXEC_REPLAY_H

#include "src/passes/ipu/ipu.h"

typedef enum { LP_REPLAY_SCHEDULE, LP_REPLAY_MICRO_BATCHES } LpReplayOrder;

/* Of a stream variable: slices in the order [loop][micro-batch][replica]. */
typedef struct LpReplayStream {
    const void *in;
    void *out;
} LpReplayStream;

typedef struct LpReplay LpReplay;

/* Borrows the plan. Variables with data start with it, others with zeros. */
LpStatus lp_replay_new(const LpIpuPlan *p, int threads, LpReplay **out,
                       LpErr *e);
void lp_replay_free(LpReplay *x); /* NULL is fine */

/* What answers host calls; borrowed. The order of rows calls the functions in
 * another order than that of micro-batches. */
void lp_replay_set_host(LpReplay *x, const struct LpHostCalls *host);

/* One call. `stream` has an entry a variable; seed and count of micro-batches
 * are those of the executor's random state. */
LpStatus lp_replay_run(LpReplay *x, LpReplayOrder order,
                       const LpReplayStream *stream, uint64_t seed,
                       uint64_t micro_batch, LpErr *e);

/* A variable's memory; of values, the most bytes that were alive at once: on
 * each IPU, and in rings and streaming memory. */
void *lp_replay_var(const LpReplay *x, size_t var, int64_t replica);
int64_t lp_replay_peak(const LpReplay *x);

/* ---- plain kernels (replay_kernel.c) ------------------------------------- */
/* Every node of a graph by its own kernel on contiguous operands; a view is a
 * copy. Prepared at first use. */
typedef struct LpNodeKernels {
    const LpGraph *g;
    LpNumerics numerics;
    int threads;
    struct LpNodeKernel *node;
    void *work;
    size_t work_bytes;
} LpNodeKernels;

LpStatus lp_node_kernels_init(LpNodeKernels *k, const LpGraph *g,
                              LpNumerics numerics, int threads, LpErr *e);
void lp_node_kernels_fini(LpNodeKernels *k);
LpStatus lp_node_kernels_run(LpNodeKernels *k, LpNodeId id, void *const *in,
                             void *const *out, const LpRunCtx *rc, LpErr *e);

#endif
