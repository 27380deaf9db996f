/* A loss scale that the program finds: PopART's automatic loss scaling. The
 * optimizer's scale is multiplied by a factor, a variable that starts at 1. The
 * elements of the tracked gradients, of all micro-batches and replicas, are
 * counted within and beyond an edge; if the share beyond is more than a
 * threshold the factor is halved, else doubled, for the next update.
 *
 * Two things are ours. An update whose tracked gradients are not all finite is
 * left out, whatever its turn in the period, and the factor halved: there would
 * be NaN in the weights. And the factor is not doubled beyond what the loss's
 * type holds, since gradients that are zero would ask for more each time.
 *
 * Source: PopART, AutomaticLossScalingSettings; the head comment of the
 * transform. */
#include "src/passes/scaling.h"

#include <math.h>

#include "src/ops/layout_cost.h"
#include "src/ops/ops.h"
#include "src/passes/pass.h"

#define HALF_MAX 65504.0
#define MOST 0x1p64 /* of scales of losses in wider types */
#define LEAST 0x1p-64

/* ---- the micro graph's scale --------------------------------------------- */
static LpVal micro_input(LpStep *s, int var, LpErr *e)
{
    LpVariable *v = &s->var[var];
    if (v->micro_in == LP_NOVAL)
        v->micro_in = lp_graph_input(s->micro, &v->type, v->name, e);
    return v->micro_in;
}

LpStatus lp_scaling_begin(LpStep *s, const LpScaling *scaling, LpVal scale,
                          LpVal *product, LpVal *counts, LpErr *e)
{
    static const LpType two = {.dtype = LP_F32, .ndim = 1, .shape = {2}};
    LpGraphBuilder gb;
    LpVal factor = micro_input(s, scaling->factor, e);
    *counts = lp_graph_input(s->micro, &two, NULL, e);
    lp_graph_builder_init(&gb, s->micro, e);
    LpOrigin o = {.phase = -1, .backward = true};
    gb.origin = lp_graph_origin(s->micro, &o, e);
    *product = lp_mul(&gb.b, scale, factor);
    lp_graph_builder_fini(&gb);
    if (e->code == LP_OK)
        lp_graph_add_name(s->micro, *product, "finalLossScale", e);
    return e->code;
}

/* ---- which gradients ----------------------------------------------------- */
typedef struct Track {
    LpStep *s;
    LpGraph *g;
    const LpScaling *scaling;
    const LpTracked *of;
    LpArena mem;
    bool *flows;    /* value: the loss gradient reaches it */
    bool *variable; /* value: of a parameter or an optimizer's */
    bool *outside;  /* value: read where its node is not */
    LpGraphBuilder gb;
    LpVal total;
    LpErr *err;
} Track;

static void find_variables(Track *t)
{
    for (size_t i = 0; i < t->s->n_var; i++) {
        const LpVariable *v = &t->s->var[i];
        bool of = v->role == LP_VAR_PARAM || v->role == LP_VAR_BUFFER ||
                  v->role == LP_VAR_HYPER || v->role == LP_VAR_STATE;
        if (of && v->micro_in != LP_NOVAL)
            t->variable[v->micro_in] = true;
    }
}

/* What depends on the seed, and what somebody reads. A value within a fused
 * operator is none of the device's. */
static void find_flow(Track *t)
{
    const LpGraph *g = t->g;
    t->flows[t->of->seed] = true;
    for (LpNodeId id = 0; id < g->n_node; id++) {
        const LpGraphNode *n = &g->node[id];
        bool reached = false;
        for (uint32_t i = 0; i < n->n_in; i++) {
            if (!lp_is_value(n->in[i]))
                continue;
            const LpGraphNode *from = lp_graph_maker(g, n->in[i]);
            reached |= t->flows[n->in[i]];
            t->outside[n->in[i]] |=
                !from || !from->region || from->region != n->region;
        }
        for (uint32_t i = 0; reached && i < n->n_out; i++)
            t->flows[n->out + i] = true;
    }
    for (int i = 0; i < t->of->n_grad; i++)
        if (lp_is_value(t->of->grad[i]))
            t->outside[t->of->grad[i]] = true;
    for (size_t id = g->n_node; id-- > 0;) { /* results are read by views */
        const LpGraphNode *n = &g->node[id];
        if (n->op->flags & LP_OPF_VIEW && t->outside[n->out])
            t->outside[n->in[0]] = true;
    }
}

static bool reads_variable(const Track *t, const LpGraphNode *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (lp_is_value(n->in[i]) &&
            (t->variable[n->in[i]] || n->in[i] == t->of->seed))
            return true;
    return false;
}

/* Moves elements, which are counted where they are made. */
static bool rearranges(const LpOp *op)
{
    return (op->flags & (LP_OPF_VIEW | LP_OPF_MARKER)) != 0 ||
           op->cost == lp_rule_copy;
}

static bool is_tracked(const Track *t, const LpGraphNode *n)
{
    if (n->op->product != LP_PRODUCT_NONE)
        return true;
    return t->scaling->tracking == LP_TRACK_all && !rearranges(n->op) &&
           !reads_variable(t, n);
}

/* ---- counting ------------------------------------------------------------ */
static LpStatus count(Track *t, LpVal v)
{
    LpAttr edge = lp_attr_float(t->scaling->edge * HALF_MAX);
    LpNodeId from = t->g->value[v].node;
    LpOrigin o = {.phase = -1, .backward = true};
    if (from != LP_NO_NODE)
        o = t->g->origin[t->g->node[from].origin];
    t->gb.origin = lp_graph_origin(t->g, &o, t->err);
    t->total =
        lp_emit(&t->gb.b, LP_OP_count_beyond, (LpVal[]){v, t->total}, 2, &edge);
    return t->err->code;
}

static LpStatus count_found(Track *t)
{
    LpNodeId end = (LpNodeId)t->g->n_node;
    for (LpNodeId id = 0; id < end; id++)
        for (uint32_t i = 0; i < t->g->node[id].n_out; i++) {
            const LpGraphNode *n = &t->g->node[id];
            LpVal v = n->out + i;
            if (t->flows[v] && t->outside[v] &&
                lp_graph_type(t->g, v)->dtype == LP_F16 && is_tracked(t, n))
                LP_TRY(count(t, v));
        }
    return LP_OK;
}

static LpStatus count_named(Track *t)
{
    for (int i = 0; i < t->scaling->n_name; i++) {
        const char *name = t->scaling->name[i];
        LpVal v = t->of->named[i];
        if (v == LP_NOVAL) /* the loss does not depend on it */
            continue;
        LpDtype d = lp_graph_type(t->g, v)->dtype;
        LP_FAIL_IF(d != LP_F16, t->err, LP_E_POPTORCH,
                   "[AutomaticLossScale transform] Unsupported data type %s "
                   "for to-track tensor '%s': its gradient must be float16",
                   lp_dtype_name(d), name);
        LP_TRY(count(t, v));
    }
    return LP_OK;
}

static LpStatus track(Track *t)
{
    size_t n = t->g->n_value;
    t->flows = lp_arena_calloc(&t->mem, n);
    t->variable = lp_arena_calloc(&t->mem, n);
    t->outside = lp_arena_calloc(&t->mem, n);
    LP_FAIL_IF(!t->flows || !t->variable || !t->outside, t->err, LP_E_MEMORY,
               "out of memory");
    find_variables(t);
    find_flow(t);
    LP_TRY(t->scaling->tracking == LP_TRACK_named ? count_named(t)
                                                  : count_found(t));
    LP_FAIL_IF(t->total == t->of->counts, t->err, LP_E_POPTORCH,
               "[AutomaticLossScale transform] No tracked gradient tensors of "
               "type fp16 were found.");
    LpVariable v = {.role = LP_VAR_ACCUM,
                    .name = LP_SCALING_COUNTS,
                    .type = *lp_graph_type(t->g, t->total),
                    .micro_in = t->of->counts,
                    .micro_out = t->total,
                    .param = -1};
    return lp_step_add(t->s, &v, t->err) < 0 ? LP_E_MEMORY : LP_OK;
}

LpStatus lp_scaling_track(LpStep *s, const LpScaling *scaling,
                          const LpTracked *of, LpErr *e)
{
    Track t = {.s = s,
               .g = s->micro,
               .scaling = scaling,
               .of = of,
               .total = of->counts,
               .err = e};
    lp_graph_builder_init(&t.gb, s->micro, e);
    LpStatus st = track(&t);
    lp_graph_builder_fini(&t.gb);
    lp_arena_fini(&t.mem);
    return st;
}

/* ---- where they are made ------------------------------------------------- */
/* The counts still to come, in the order of the graph, as their operands are.
 */
typedef struct Hoist {
    const LpNodeId *node;
    size_t n;
} Hoist;

/* Emits the counts whose operands are there. */
static void emit_ready(LpRewrite *rw, Hoist *h)
{
    LpVal in[2];
    LpOriginId origin = rw->gb.origin;
    uint32_t region = rw->gb.region;
    for (; h->n > 0; h->n--, h->node++) {
        const LpGraphNode *n = &rw->from->node[*h->node];
        if (rw->map[n->in[0]] == LP_NOVAL)
            break;
        lp_rewrite_values(rw, n->in, n->n_in, in);
        rw->gb.origin =
            lp_graph_origin(rw->to, &rw->from->origin[n->origin], rw->err);
        rw->gb.region = 0;
        LpVal out = lp_emit(&rw->gb.b, LP_OP_count_beyond, in, 2, n->attr);
        if (rw->err->code != LP_OK)
            break;
        lp_rewrite_becomes(rw, n->out, out);
    }
    rw->gb.origin = origin;
    rw->gb.region = region;
}

static bool visit(LpRewrite *rw, LpNodeId id, const LpVal *in, LpVal *out)
{
    (void)in;
    const LpGraphNode *n = &rw->from->node[id];
    emit_ready(rw, rw->ctx);
    if (n->op->id != LP_OP_count_beyond)
        return false;
    out[0] = rw->map[n->out];
    return true;
}

LpStatus lp_scaling_hoist(LpGraph **g, const void *ctx, LpErr *e)
{
    (void)ctx;
    size_t n = 0;
    LpNodeId *node = lp_calloc((*g)->n_node + 1, sizeof *node);
    LP_FAIL_IF(!node, e, LP_E_MEMORY, "out of memory");
    for (LpNodeId id = 0; id < (*g)->n_node; id++)
        if ((*g)->node[id].op->id == LP_OP_count_beyond)
            node[n++] = id;
    Hoist h = {.node = node, .n = n};
    LpStatus s = lp_rewrite(g, visit, &h, e);
    lp_free(node);
    return s;
}

/* ---- the update ---------------------------------------------------------- */
typedef struct Next {
    LpStep *s;
    const LpScaling *scaling;
    LpGraphBuilder *gb;
} Next;

static LpVal update_input(const Next *x, int var)
{
    LpVariable *v = &x->s->var[var];
    if (v->update_in == LP_NOVAL)
        v->update_in =
            lp_graph_input(x->s->update, &v->type, v->name, x->gb->b.err);
    return v->update_in;
}

static LpVal element(LpBuilder *b, LpVal x, int64_t i)
{
    LpAttr at[] = {lp_attr_int(0), lp_attr_int(i)};
    return lp_emit(b, LP_OP_select, &x, 1, at);
}

static int counts_of(const LpStep *s)
{
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_ACCUM && s->var[i].param < 0)
            return (int)i;
    return -1;
}

/* Whether it is the factor's turn; counts on. */
static LpVal turn(const Next *x)
{
    LpBuilder *b = &x->gb->b;
    if (x->scaling->counter < 0)
        return LP_NOVAL;
    LpVal now = lp_add(b, update_input(x, x->scaling->counter), lp_immi(b, 1));
    LpVal over = lp_op2(b, LP_OP_ge, now, lp_immi(b, x->scaling->period));
    LpVal zero = lp_sub(b, now, now);
    now = lp_where(b, over, zero, now);
    x->s->var[x->scaling->counter].update_out = now;
    return lp_op2(b, LP_OP_eq, now, lp_immi(b, 0));
}

/* min and max of what the scale may be after a change */
static LpVal within(LpBuilder *b, LpVal halve, LpVal scale, double most)
{
    LpVal up = lp_op2(b, LP_OP_le, scale, lp_immf(b, most / 2));
    LpVal down = lp_op2(b, LP_OP_ge, scale, lp_immf(b, 2 * LEAST));
    return lp_where(b, halve, down, up);
}

static void next_factor(const Next *x, const LpTraining *t, LpVal halve,
                        LpVal wild)
{
    LpBuilder *b = &x->gb->b;
    LpVariable *v = &x->s->var[x->scaling->factor];
    LpVal factor = update_input(x, x->scaling->factor);
    LpVal scale = lp_mul(b, factor, update_input(x, t->loss_scale));
    bool half = lp_graph_type(x->s->micro, t->loss)->dtype == LP_F16;
    LpVal may = within(b, halve, scale, half ? HALF_MAX : MOST);
    LpVal due = turn(x);
    if (due != LP_NOVAL)
        may = lp_op2(b, LP_OP_logical_and, may,
                     lp_op2(b, LP_OP_logical_or, due, wild));
    LpVal next = lp_where(b, halve, lp_mul(b, factor, lp_immf(b, 0.5)),
                          lp_mul(b, factor, lp_immf(b, 2)));
    v->update_out = lp_where(b, may, next, factor);
}

void lp_scaling_update(LpStep *s, const LpTraining *t, LpGraphBuilder *gb,
                       LpVal *skips)
{
    LpBuilder *b = &gb->b;
    Next x = {.s = s, .scaling = t->scaling, .gb = gb};
    LpVal counts = update_input(&x, counts_of(s));
    LpVal lower = element(b, counts, 0), upper = element(b, counts, 1);
    LpVal most =
        lp_mul(b, lp_add(b, lower, upper), lp_immf(b, t->scaling->threshold));
    *skips = lp_op1(b, LP_OP_isinf, upper);
    LpVal halve =
        lp_op2(b, LP_OP_logical_or, *skips, lp_op2(b, LP_OP_gt, upper, most));
    next_factor(&x, t, halve, *skips);
}
