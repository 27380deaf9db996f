/* Reports drawn from the tables of the IPU passes: totals by operator, and a
 * text laid out like Poplar's profile summary. Everything is simulated, and
 * what the simulation does not know is left out. */
#ifndef LP_RUNTIME_REPORT_REPORT_H
#define LP_RUNTIME_REPORT_REPORT_H

#include "src/passes/ipu/ipu.h"

typedef struct LpOpTotal {
    const char *name;
    int64_t nodes;     /* in the two graphs, recomputed ones again */
    int64_t instances; /* executions in one call, all replicas alike */
    int64_t cycles;    /* of these, one after another */
    int64_t flops;
} LpOpTotal;

/* Largest first; owned by the caller (lp_free). NULL when memory is short. */
LpOpTotal *lp_report_operators(const LpIpuPlan *p, size_t *n, LpErr *e);

/* Owned by the caller (lp_free); NULL when memory is short. */
char *lp_report_summary(const LpIpuPlan *p, LpErr *e);

#endif
