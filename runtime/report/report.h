/* Reports drawn from the tables of the IPU passes: totals by operator and by
 * vertex. Everything is simulated. */
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

/* A node runs so many times in a call; recomputed ones come again. */
typedef void LpReportRun(void *ctx, const LpGraphNode *n, const LpNodeCost *c,
                         int64_t times);
void lp_report_each_run(const LpIpuPlan *p, LpReportRun *f, void *ctx);

/* Largest first; owned by the caller (lp_free). NULL when memory is short. */
LpOpTotal *lp_report_operators(const LpIpuPlan *p, size_t *n, LpErr *e);

/* All vertices of one codelet, over the tiles of a replica. */
typedef struct LpVertexTotal {
    int id;
    LpVertexName name;
    int64_t vertices, edges;
    int64_t bytes, edge_bytes; /* of state; of that, pointers */
    int64_t cycles, idle;      /* of all tiles in a call; of threads that have
                                  nothing to do, as if all six had not */
} LpVertexTotal;

enum { LP_VERTEX_TOTALS = 320 }; /* codelets */

typedef struct LpVertexTotals {
    int64_t vertices, edges, cycles, idle;
    int64_t compute_sets;
    size_t n;
    LpVertexTotal of[LP_VERTEX_TOTALS]; /* most cycles first */
} LpVertexTotals;

/* Owned by the caller (lp_free). NULL when memory is short. */
LpVertexTotals *lp_report_vertices(const LpIpuPlan *p, LpErr *e);

#endif
