/* Cycles by operator. */
#include "runtime/report/report.h"

#include <stdlib.h>

#include "src/base/checked.h"
#include "src/ops/ops.h"

static void count(LpOpTotal *t, const LpGraph *g, LpNodeId n,
                  const LpNodeCost *c, int64_t times)
{
    LpOpTotal *o = &t[g->node[n].op->id];
    o->name = g->node[n].op->name;
    o->nodes++;
    o->instances += times;
    o->cycles = lp_add_sat(o->cycles, lp_mul_sat(times, lp_cost_cyc(&c->cost)));
    o->flops = lp_add_sat(o->flops, lp_mul_sat(times, c->cost.flops));
}

static int larger(const void *a, const void *b)
{
    const LpOpTotal *x = a, *y = b;
    if (x->cycles != y->cycles)
        return x->cycles < y->cycles ? 1 : -1;
    return (x->instances < y->instances) - (x->instances > y->instances);
}

LpOpTotal *lp_report_operators(const LpIpuPlan *p, size_t *n, LpErr *e)
{
    const LpGraph *g = p->step->micro, *u = p->step->update;
    LpOpTotal *t = lp_calloc(LP_N_OPS, sizeof *t);
    if (!t) {
        lp_no_memory(e);
        return NULL;
    }
    for (int r = 0; r < p->n_pass; r++)
        for (uint32_t i = 0; i < p->pass[r].n; i++) {
            LpNodeId id = p->pass[r].entry[i].node;
            count(t, g, id, &p->cost[id], p->micro_batches * p->loops);
        }
    for (LpNodeId id = 0; id < g->n_node; id++)
        if (p->sum[id].var >= 0)
            count(t, g, id, &p->cost[id], p->micro_batches * p->loops);
    for (LpNodeId id = 0; u && id < u->n_node; id++)
        count(t, u, id, &p->update_cost[id], p->loops);
    *n = 0;
    for (size_t i = 0; i < LP_N_OPS; i++)
        if (t[i].nodes > 0)
            t[(*n)++] = t[i];
    qsort(t, *n, sizeof *t, larger);
    return t;
}
