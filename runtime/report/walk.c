/* A function for each group of report.def, which sends the fields of one entry
 * to the sink. */
#include "runtime/report/walk.h"

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/passes/ipu/strategy.h"

/* An operator of one of the two graphs, with what the plan knows of it. */
typedef struct LpReportNode {
    LpNodeId id;
    bool update;
    const LpGraphNode *node;
    const LpOrigin *origin;
    const LpNodeCost *cost;
    int ipu, stage;
    int64_t elements;
} LpReportNode;

typedef struct Walk {
    const LpIpuPlan *p;
    const LpReportSink *sink;
    LpWalkWhat what;
    LpOpTotal *op;
    size_t n_op;
    LpVertexTotals *vertices;
    LpVertexName name;         /* of the vertex being walked */
    const LpIpuMemory *memory; /* being walked */
    LpReportNode at;           /* the node being walked */
} Walk;

/* ---- what fields ask ---------------------------------------------------- */
#define LP_NR(x, list) ((int64_t)((x) - (list)))

static const LpStagePass *backward_run(const LpIpuPlan *p, const LpStage *x)
{
    return p->training ? &p->pass[lp_pass_of(p, (int)LP_NR(x, p->stage), true)]
                       : NULL;
}

static int64_t lp_report_backward(const LpIpuPlan *p, const LpStage *x)
{
    const LpStagePass *b = backward_run(p, x);
    return b ? lp_pass_cyc(b) : 0;
}

static int64_t lp_report_recompute(const LpIpuPlan *p, const LpStage *x)
{
    const LpStagePass *b = backward_run(p, x);
    return b ? b->recompute_cyc : 0;
}

static int64_t lp_report_depth(const LpIpuPlan *p, const LpStage *x)
{
    for (size_t i = 0; i < p->n_stash; i++)
        if (p->stash[i].stage == LP_NR(x, p->stage))
            return p->stash[i].depth;
    return 0;
}

/* Phases as PopART counts them: some lie between those of the model where
 * tensors leave the chip, some between the forward and the backward pass. */
typedef struct LpPhases {
    int64_t stride, count, turn; /* count: up to the first backward one, turn */
} LpPhases;

static int64_t last_phase(const LpIpuPlan *p)
{
    int64_t last = 0;
    for (int i = 0; i < p->n_stage; i++)
        last = p->stage[i].phase > last ? p->stage[i].phase : last;
    return last;
}

static LpPhases lp_report_phases(const LpIpuPlan *p)
{
    static const int64_t stride[] = {[LP_ALWAYS_LIVE] = 1,
                                     [LP_OFF_CHIP_AFTER_FWD] = 1,
                                     [LP_OFF_CHIP_AFTER_FWD_NO_OVERLAP] = 2,
                                     [LP_OFF_CHIP_AFTER_EACH_PHASE] = 4};
    LpPhases x = {.stride = stride[p->o.liveness]};
    bool gone = p->o.liveness != LP_ALWAYS_LIVE;
    x.count = last_phase(p) * x.stride + 1 + (gone ? 3 : 0) +
              (p->o.separate_backward ? 1 : 0);
    x.turn = x.count - (gone || p->o.separate_backward ? 0 : 1);
    return x;
}

static int64_t lp_report_forward_phase(const LpIpuPlan *p, const LpStage *x)
{
    return x->phase * lp_report_phases(p).stride;
}

static int64_t lp_report_backward_phase(const LpIpuPlan *p, const LpStage *x)
{
    LpPhases n = lp_report_phases(p);
    return n.turn + (last_phase(p) - x->phase) * n.stride;
}

/* The run that reads or makes a stream; NULL: it is none. */
static const LpStagePass *lp_report_stream(const LpIpuPlan *p,
                                           const LpVariable *x)
{
    LpVal v = x->role == LP_VAR_STREAM_IN    ? x->micro_in
              : x->role == LP_VAR_STREAM_OUT ? x->micro_out
                                             : LP_NOVAL;
    return v == LP_NOVAL ? NULL : &p->pass[lp_ipu_pass_making(p, v)];
}

static int64_t lp_report_n_nodes(const LpIpuPlan *p)
{
    const LpGraph *u = p->step->update;
    return (int64_t)(p->step->micro->n_node + (u ? u->n_node : 0));
}

static const LpReportNode *lp_report_node(const LpIpuPlan *p, size_t k, Walk *r)
{
    size_t n = p->step->micro->n_node;
    LpReportNode *x = &r->at;
    x->update = k >= n;
    x->id = (LpNodeId)(x->update ? k - n : k);
    const LpGraph *g = x->update ? p->step->update : p->step->micro;
    x->node = &g->node[x->id];
    x->origin = lp_origin_of(g, x->id);
    x->cost = x->update ? &p->update_cost[x->id] : &p->cost[x->id];
    x->stage = x->update ? -1 : p->node_stage[x->id];
    x->ipu = x->update ? p->update_ipu[x->id] : p->stage[x->stage].ipu;
    x->elements = 0;
    for (uint32_t i = 0; i < x->node->n_out; i++)
        x->elements =
            lp_add_sat(x->elements, lp_numel(g->value[x->node->out + i].type));
    return x;
}

static const char *lp_report_name(Walk *r, int id)
{
    r->name = lp_vertex_name(id);
    return r->name.text;
}

static const LpIpuMemory *lp_report_memory(Walk *r, const LpIpuMemory *m)
{
    return r->memory = m;
}

/* Cycles of a tile, on average over all tiles of a replica. */
static int64_t lp_report_of_tile(const LpIpuPlan *p, int64_t cycles)
{
    return cycles / ((int64_t)p->n_ipus * (lp_ipu_tiles(p) + p->o.io_tiles));
}

/* Tensors of the program: variables and what its operators make. */
static int64_t lp_report_tensors(const LpIpuPlan *p)
{
    const LpGraph *g[] = {p->step->micro, p->step->update};
    int64_t n = (int64_t)p->step->n_var;
    for (int i = 0; i < 2; i++)
        for (LpNodeId k = 0; g[i] && k < g[i]->n_node; k++)
            n += g[i]->node[k].n_out;
    return n;
}

/* ---- sending ------------------------------------------------------------ */
static LpReportKey named(const char *name)
{
    return (LpReportKey){.name = name};
}

static LpReportKey numbered(int64_t nr)
{
    return (LpReportKey){.nr = nr};
}

static void send(const Walk *r, LpReportKey key, LpReportValue v)
{
    if (v.kind == LP_FIELD_TEXT && !v.s)
        v.s = "";
    r->sink->value(r->sink->ctx, key, v);
}

static void begin(const Walk *r, LpReportKey key, LpTreeKind kind)
{
    r->sink->begin(r->sink->ctx, key, kind);
}

static void end(const Walk *r)
{
    r->sink->end(r->sink->ctx);
}

#define GROUP(name, type, doc)                                                 \
    static void walk_##name(Walk *r, const type *x)                            \
    {
#define END(name) }
#define WHEN(condition) if (condition)
#define SEND(key, KIND, field, value)                                          \
    send(r, key, (LpReportValue){.kind = LP_FIELD_##KIND, .field = value});
#define INT(name, unit, value, doc) SEND(named(#name), INT, i, value)
#define NUM(name, unit, value, doc) SEND(named(#name), NUM, f, value)
#define BOOL(name, unit, value, doc) SEND(named(#name), BOOL, i, value)
#define TEXT(name, unit, value, doc) SEND(named(#name), TEXT, s, value)
#define INTS(name, unit, n, value, doc)                                        \
    begin(r, named(#name), LP_TREE_LIST);                                      \
    for (int64_t k = 0; k < (int64_t)(n); k++)                                 \
        SEND(numbered(k), INT, i, value)                                       \
    end(r);
#define NAMED(name, unit, n, key, value, doc)                                  \
    begin(r, named(#name), LP_TREE_GROUP);                                     \
    for (int64_t k = 0; k < (int64_t)(n); k++)                                 \
        SEND(named(key), INT, i, value)                                        \
    end(r);
#define ENTRIES(name, kind, group, n, entry, keep, nr)                         \
    begin(r, named(#name), kind);                                              \
    for (int64_t k = 0, at = 0; k < (int64_t)(n); k++) {                       \
        if (!(keep))                                                           \
            continue;                                                          \
        begin(r, numbered(nr), LP_TREE_GROUP);                                 \
        walk_##group(r, entry);                                                \
        end(r);                                                                \
        at++;                                                                  \
    }                                                                          \
    end(r);
#define LIST(name, group, n, entry, keep, doc)                                 \
    ENTRIES(name, LP_TREE_LIST, group, n, entry, keep, at)
#define MAP(name, group, n, entry, keep, doc)                                  \
    ENTRIES(name, LP_TREE_MAP, group, n, entry, keep, k)
#include "runtime/report/report.def"

static void walk_rows(Walk *r)
{
    for (size_t k = 0; k < r->p->n_row; k++) {
        begin(r, numbered((int64_t)k), LP_TREE_GROUP);
        walk_row(r, &r->p->row[k]);
        end(r);
    }
}

LpStatus lp_report_walk(const LpIpuPlan *p, LpWalkWhat what,
                        const LpReportSink *sink, LpErr *e)
{
    Walk r = {.p = p, .sink = sink, .what = what};
    bool report = what == LP_WALK_REPORT || what == LP_WALK_FIGURES;
    LP_FAIL_IF(p->bare && (what == LP_WALK_REPORT || what == LP_WALK_SCHEDULE),
               e, LP_E_INTERNAL, "the schedule's acts are still to be made");
    if (report) {
        r.op = lp_report_operators(p, &r.n_op, e);
        r.vertices = r.op ? lp_report_vertices(p, e) : NULL;
        if (!r.vertices) {
            lp_free(r.op);
            return LP_E_MEMORY;
        }
    }
    begin(&r, named(NULL),
          what == LP_WALK_SCHEDULE ? LP_TREE_LIST : LP_TREE_GROUP);
    if (report)
        walk_report(&r, p);
    else if (what == LP_WALK_SCHEDULE)
        walk_rows(&r);
    else if (what == LP_WALK_NODES)
        walk_plan(&r, p);
    else
        walk_liveness(&r, p);
    end(&r);
    lp_free(r.op);
    lp_free(r.vertices);
    return LP_OK;
}
