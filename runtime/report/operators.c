/* Cycles by operator. */
#include "runtime/report/report.h"

#include <stdlib.h>

#include "src/base/checked.h"
#include "src/ops/ops.h"

void lp_report_each_run(const LpIpuPlan *p, LpReportRun *f, void *ctx)
{
    const LpGraph *g = p->step->micro, *u = p->step->update;
    int64_t times = p->micro_batches * p->loops;
    for (int r = 0; r < p->n_pass; r++)
        for (uint32_t i = 0; i < p->pass[r].n; i++) {
            LpNodeId n = p->pass[r].entry[i].node;
            f(ctx, &g->node[n], &p->cost[n], times);
        }
    for (LpNodeId n = 0; n < g->n_node; n++)
        if (p->sum[n].var >= 0)
            f(ctx, &g->node[n], &p->cost[n], times);
    for (LpNodeId n = 0; u && n < u->n_node; n++)
        f(ctx, &u->node[n], &p->update_cost[n], p->loops);
}

static void count(void *ctx, const LpGraphNode *n, const LpNodeCost *c,
                  int64_t times)
{
    LpOpTotal *o = (LpOpTotal *)ctx + n->op->id;
    o->name = n->op->name;
    o->nodes++;
    o->instances += times;
    o->cycles = lp_add_sat(o->cycles, lp_mul_sat(times, lp_cost_cyc(c->cost)));
    o->flops = lp_add_sat(o->flops, lp_mul_sat(times, c->cost->flops));
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
    LpOpTotal *t = lp_calloc(LP_N_OPS, sizeof *t);
    if (!t) {
        lp_no_memory(e);
        return NULL;
    }
    lp_report_each_run(p, count, t);
    *n = 0;
    for (size_t i = 0; i < LP_N_OPS; i++)
        if (t[i].nodes > 0)
            t[(*n)++] = t[i];
    qsort(t, *n, sizeof *t, larger);
    return t;
}
