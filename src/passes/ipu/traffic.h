/* What runs exchange with the host, in bytes of one micro-batch.
 * Private to the passes. */
#ifndef LP_PASSES_IPU_TRAFFIC_H
#define LP_PASSES_IPU_TRAFFIC_H

#include "src/passes/ipu/ipu.h"

typedef struct LpTraffic {
    int64_t host_in[LP_N_AHEAD], host_out[LP_N_AHEAD];
} LpTraffic;

/* One entry a run. */
LpStatus lp_ipu_traffic(LpIpuPlan *p, LpTraffic *t);

/* Adds the sharded parameters in the groups of variable `first` that a run
 * reads, whole. */
void lp_ipu_gathered(const LpIpuPlan *p, const LpStagePass *r, size_t first,
                     bool beside, int64_t bytes[LP_COST_N_TYPES]);

/* The row of the weight update, and of slices that a call returns at its
 * end. */
LpStatus lp_ipu_update_row(LpIpuPlan *p, LpRow *row);
LpStatus lp_ipu_output_row(LpIpuPlan *p, const LpTraffic *t, LpRow *row);

/* Adds acts to a row, one row after another. */
typedef struct LpRowBuilder {
    LpIpuPlan *p;
    LpRow *row;
    LpAct *act;
    size_t n_act, cap_act;
    int64_t *at; /* by IPU and way, while acts get their starts; NULL: none */
} LpRowBuilder;
LpStatus lp_row_add(LpRowBuilder *b, LpAct act);
/* The row has its acts, in the plan's arena. */
LpStatus lp_row_finish(LpRowBuilder *b, LpStatus s);
void lp_row_fini(LpRowBuilder *b);

/* A copy from IPU to IPU, whose cost is in *c. */
LpStatus lp_row_copy(LpRowBuilder *b, int from, int to, int64_t bytes,
                     LpCost *c);
/* Variables whose replica groups have one size and stride are exchanged
 * together: is variable i one of those with variable `first`? Is it the first
 * of them? */
bool lp_ipu_grouped_with(const LpIpuPlan *p, size_t i, size_t first);
bool lp_ipu_leads_group(const LpIpuPlan *p, size_t i);
/* All IPUs of a replica at once with their peers in the groups of variable
 * `first`, bytes by element type. */
LpStatus lp_row_collective(LpRowBuilder *b, LpCollective kind, size_t first,
                           int64_t bytes[][LP_COST_N_TYPES], int64_t *cyc);

/* The rows of a pipeline that fill, work and empty, bare; *made: false, it
 * cannot be done so. */
LpStatus lp_ipu_slots(LpIpuPlan *p, bool *made);

/* What the host's transfer of one IPU costs, of all that go at once. */
LpCost lp_row_transfer_cost(const LpIpuPlan *p, LpActKind kind,
                            const int64_t *bytes, int ipu);
/* Host transfers of all IPUs at once: adds an action an IPU with bytes; returns
 * the cycles of the slowest, its sync in *sync. */
LpStatus lp_row_transfer(LpRowBuilder *b, LpActKind kind, const int64_t *bytes,
                         int64_t *cyc, int64_t *sync);
/* What goes both ways between IPUs and streaming memory at once, likewise;
 * NULL: nothing goes that way. */
LpStatus lp_row_stream(LpRowBuilder *b, const int64_t *load,
                       const int64_t *store, int64_t *cyc, int64_t *sync);

#endif
