/* Vertices of a program by the codelet that they run. They are there once for
 * equal work of an IPU (what outlining achieves), as the memory of their state
 * is (passes/ipu/memory.c), and run for every node. */
#include "runtime/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/checked.h"

typedef struct Totals {
    const LpIpuPlan *p;
    LpVertexTotals *t;
    bool *seen; /* by IPU and label */
} Totals;

static LpVertexTotal *total_of(LpVertexTotals *t, int id)
{
    size_t i = 0;
    while (i < t->n && t->of[i].id != id)
        i++;
    if (i == LP_VERTEX_TOTALS)
        return NULL;
    if (i == t->n) {
        t->of[t->n++] = (LpVertexTotal){.id = id};
        t->of[i].name = lp_vertex_name(id);
    }
    return &t->of[i];
}

static void run(void *ctx, const LpGraphNode *node LP_UNUSED,
                const LpNodeCost *n, int64_t times)
{
    Totals *x = ctx;
    for (int i = 0; i < n->cost->n_vertices; i++) {
        const LpVertices *v = &n->cost->vertices[i];
        LpVertexTotal *t = total_of(x->t, v->id);
        if (!t)
            continue;
        t->cycles = lp_add_sat(t->cycles, lp_mul_sat(v->cyc, times));
        t->idle = lp_add_sat(t->idle, lp_mul_sat(v->idle_cyc, times));
    }
}

static void place(Totals *x, int ipu, const LpNodeCost *n)
{
    bool *seen = x->seen + (size_t)ipu * x->p->n_label;
    if (n->label == LP_NO_LABEL || seen[n->label])
        return;
    seen[n->label] = true;
    x->t->compute_sets += n->cost->compute_sets;
    for (int i = 0; i < n->cost->n_vertices; i++) {
        const LpVertices *v = &n->cost->vertices[i];
        LpVertexTotal *t = total_of(x->t, v->id);
        if (!t)
            continue;
        t->vertices += v->n;
        t->edges += v->edges;
        t->bytes += v->tile_bytes * lp_ipu_tiles(x->p);
        t->edge_bytes += v->edge_tile_bytes * lp_ipu_tiles(x->p);
    }
}

static int larger(const void *a, const void *b)
{
    const LpVertexTotal *x = a, *y = b;
    if (x->cycles != y->cycles)
        return x->cycles < y->cycles ? 1 : -1;
    return strcmp(x->name.text, y->name.text);
}

static void place_all(Totals *x)
{
    const LpIpuPlan *p = x->p;
    const LpGraph *g = p->step->micro, *u = p->step->update;
    for (LpNodeId n = 0; n < g->n_node; n++)
        place(x, p->stage[p->node_stage[n]].ipu, &p->cost[n]);
    for (LpNodeId n = 0; u && n < u->n_node; n++)
        place(x, p->update_ipu[n], &p->update_cost[n]);
}

LpVertexTotals *lp_report_vertices(const LpIpuPlan *p, LpErr *e)
{
    Totals x = {.p = p, .t = lp_calloc(1, sizeof *x.t)};
    x.seen = lp_calloc((size_t)p->n_ipus * p->n_label + 1, sizeof *x.seen);
    if (!x.t || !x.seen) {
        lp_no_memory(e);
        lp_free(x.t);
        lp_free(x.seen);
        return NULL;
    }
    place_all(&x);
    lp_report_each_run(p, run, &x);
    lp_free(x.seen);
    qsort(x.t->of, x.t->n, sizeof *x.t->of, larger);
    for (size_t i = 0; i < x.t->n; i++) {
        x.t->vertices += x.t->of[i].vertices;
        x.t->edges += x.t->of[i].edges;
        x.t->cycles = lp_add_sat(x.t->cycles, x.t->of[i].cycles);
        x.t->idle = lp_add_sat(x.t->idle, x.t->of[i].idle);
    }
    return x.t;
}
