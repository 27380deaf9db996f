/* Entries of every run, and what the backward runs need of their forward runs.
 *
 * A backward run reads forward values. One that is the same for every
 * micro-batch (a parameter, a constant) is just read. A view is made again
 * from what it looks at. With recomputation every other value is made again
 * too, from the stage's inputs and from checkpoints (operands of the marker),
 * just before its first reader; what cannot be made again (inputs of the
 * stage, checkpoints, values of carried buffers, results of operators with
 * effects) is stashed. Without recomputation everything is stashed.
 *
 * A gradient is added to its accumulator as soon as it is made, wherever the
 * step does so: no run holds the gradients of all its parameters.
 *
 * As in PopART a pipeline over several IPUs recomputes by default; the last
 * stage, whose backward follows at once, only if it has checkpoints, and
 * nothing that follows from its last ones: those, or its inputs, that no other
 * checkpoint follows from (popart: Pipeline::setFinalFwdStageRecomputation). */
#include "src/ops/ops.h"
#include "src/passes/ipu/strategy.h"

typedef struct Frame {
    LpNodeId node;
    uint32_t next; /* operand to look at */
} Frame;

typedef struct Recomputation {
    LpIpuPlan *p;
    const LpGraph *g;
    int *there; /* stage whose backward run has the value, by value */
    bool *late; /* read by the backward run of an earlier stage */
    bool *kept; /* a checkpoint */
    int *mark;  /* the last run to read it */
    LpVal *read;
    LpNodeId *list; /* nodes by run */
    size_t *first;
    LpPassEntry *entry; /* of the run that is made: a node once */
    size_t n_entry;
    Frame *stack;
    size_t n_stack, cap_stack;
    bool any_late;
    bool *done;       /* by node: the backward run has it */
    LpNodeId *reader; /* by value: a node that adds and reads it, + 1 */
    bool *last; /* follows from the last checkpoints, by value; of the last
                   stage alone */
    int stage;
} Recomputation;

static void add_entry(Recomputation *a, LpNodeId n, bool again)
{
    a->entry[a->n_entry++] = (LpPassEntry){n, again};
}

static LpStatus add_stash(Recomputation *a, LpVal v)
{
    LpIpuPlan *p = a->p;
    int depth =
        p->strategy->stash_depth ? p->strategy->stash_depth(p, a->stage) : 1;
    const LpLocation *l = lp_ipu_val_location(p, v);
    bool off = !l->on_chip &&
               lp_numel(lp_graph_type(a->g, v)) >= l->min_off_chip &&
               (!p->strategy->stash_off_chip ||
                p->strategy->stash_off_chip(p, a->stage));
    LP_IPU_ADD(p, stash, p->err, (LpStash){v, a->stage, depth, off});
    return LP_OK;
}

static bool is_checkpoint(const LpGraphNode *d)
{
    return d->op->id == LP_OP_recomputation_checkpoint;
}

static bool can_repeat(const Recomputation *a, LpNodeId n)
{
    uint32_t flags = lp_node_flags(&a->g->node[n]);
    if (flags & LP_OPF_EFFECT)
        return false;
    return (flags & (LP_OPF_VIEW | LP_OPF_MARKER)) ||
           (a->p->stage[a->stage].recomputed && !a->last[a->g->node[n].out]);
}

/* The backward run needs forward value v: marks it, stashes it, or pushes the
 * node that makes it again. */
static LpStatus want(Recomputation *a, LpVal v)
{
    if (!lp_is_value(v) || a->p->val_is[v] != 0 || a->there[v] == a->stage)
        return LP_OK;
    LpNodeId n = a->g->value[v].node;
    int from = a->p->val_stage[v];
    if (from > a->stage)
        return LP_OK; /* comes with the backward values */
    a->there[v] = a->stage;
    if (n == LP_NO_NODE || from != a->stage || a->kept[v] || !can_repeat(a, n))
        return add_stash(a, v);
    for (uint32_t i = 0; i < a->g->node[n].n_out; i++)
        a->there[a->g->node[n].out + i] = a->stage;
    LP_IPU_ADD(a, stack, a->p->err, (Frame){n, 0});
    return LP_OK;
}

static LpStatus ensure(Recomputation *a, LpVal v)
{
    LP_TRY(want(a, v));
    while (a->n_stack) {
        Frame *f = &a->stack[a->n_stack - 1];
        const LpGraphNode *d = &a->g->node[f->node];
        if (f->next < d->n_in) {
            LP_TRY(want(a, d->in[f->next++]));
            continue;
        }
        add_entry(a, f->node, true);
        a->n_stack--;
    }
    return LP_OK;
}

/* ---- runs ---------------------------------------------------------------- */
static void list_reads(Recomputation *a, LpStagePass *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const LpGraphNode *d = &a->g->node[r->entry[i].node];
        for (uint32_t k = 0; k < d->n_in; k++) {
            LpVal v = d->in[k];
            if (!lp_is_value(v) || a->mark[v] == r - a->p->pass)
                continue;
            a->mark[v] = (int)(r - a->p->pass);
            a->read[r->n_read++] = v;
        }
    }
    r->read = lp_ipu_keep(a->p, a->read, r->n_read, sizeof *a->read);
}

static LpStatus keep_run(Recomputation *a, int stage, bool backward)
{
    LpIpuPlan *p = a->p;
    LpStagePass *r = &p->pass[lp_pass_of(p, stage, backward)];
    const LpStage *s = &p->stage[stage];
    *r = (LpStagePass){.stage = stage,
                       .ipu = s->ipu,
                       .phase = s->phase,
                       .backward = backward,
                       .n = (uint32_t)a->n_entry};
    if (p->strategy->offset)
        r->offset = p->strategy->offset(p, stage, backward);
    if (r > p->pass)
        r->row = r[-1].row +
                 (p->strategy->one_row && !p->strategy->one_row(p, &r[-1], r));
    r->entry = lp_ipu_keep(p, a->entry, a->n_entry, sizeof *a->entry);
    a->n_entry = 0;
    LP_TRY(p->err->code);
    list_reads(a, r);
    return p->err->code;
}

/* Node ids by run, in order: those of run r are list[first[r]] ..
 * list[first[r + 1] - 1]. */
static LpStatus by_run(Recomputation *a)
{
    LpIpuPlan *p = a->p;
    size_t n = 2 * (size_t)p->n_stage;
    a->list = lp_ipu_scratch(p, a->g->n_node, sizeof *a->list);
    a->first = lp_ipu_scratch(p, n + 2, sizeof *a->first);
    LP_TRY(p->err->code);
    size_t *next = a->first + 1;
    for (LpNodeId i = 0; i < a->g->n_node; i++)
        next[lp_pass_of(p, p->node_stage[i], p->backward[i]) + 1] +=
            p->sum[i].var < 0;
    for (size_t r = 0; r < n; r++)
        next[r + 1] += next[r];
    for (LpNodeId i = 0; i < a->g->n_node; i++)
        if (p->sum[i].var < 0)
            a->list[next[lp_pass_of(p, p->node_stage[i], p->backward[i])]++] =
                i;
    return LP_OK;
}

/* ---- the last stage ------------------------------------------------------ */
/* Values that a checkpoint follows from. */
static void find_leads(const Recomputation *a, const LpNodeId *list, size_t n,
                       bool *leads)
{
    while (n-- > 0) {
        const LpGraphNode *d = &a->g->node[list[n]];
        bool reaches = is_checkpoint(d);
        for (uint32_t i = 0; i < d->n_out; i++)
            reaches |= leads[d->out + i];
        for (uint32_t i = 0; i < d->n_in; i++)
            if (lp_is_value(d->in[i]))
                leads[d->in[i]] |= reaches;
    }
}

/* Copied from another IPU; not from the host. */
static bool comes_from_before(const Recomputation *a, LpVal v)
{
    return lp_is_value(v) && !lp_ipu_is_free(a->p, v) &&
           a->g->value[v].node != LP_NO_NODE && a->p->val_stage[v] != a->stage;
}

static void find_last(Recomputation *a, const LpNodeId *list, size_t n,
                      const bool *leads)
{
    for (size_t k = 0; k < n; k++) {
        const LpGraphNode *d = &a->g->node[list[k]];
        bool last = is_checkpoint(d) && !leads[d->out];
        for (uint32_t i = 0; i < d->n_in; i++) {
            LpVal v = d->in[i];
            last |= lp_is_value(v) && a->last[v];
            last |= comes_from_before(a, v) && !leads[v];
        }
        for (uint32_t i = 0; i < d->n_out; i++)
            a->last[d->out + i] = last;
    }
}

static LpStatus choose(Recomputation *a)
{
    LpIpuPlan *p = a->p;
    LpStage *s = &p->stage[a->stage];
    s->recomputed =
        p->o.recompute == LP_RECOMPUTE_ALL ||
        (p->o.recompute == LP_RECOMPUTE_AUTO && p->strategy->recompute);
    if (!s->recomputed || a->stage < p->n_stage - 1)
        return LP_OK;
    const LpNodeId *list = a->list + a->first[a->stage];
    size_t n = a->first[a->stage + 1] - a->first[a->stage];
    bool *leads = lp_ipu_scratch(p, a->g->n_value, sizeof *leads);
    LP_TRY(p->err->code);
    s->recomputed = false;
    for (size_t i = 0; i < n; i++)
        s->recomputed |= is_checkpoint(&a->g->node[list[i]]);
    find_leads(a, list, n, leads);
    find_last(a, list, n, leads);
    return LP_OK;
}

/* ---- accumulators -------------------------------------------------------- */
/* Backwards from what accumulators become. */
static LpStatus find_adds(Recomputation *a)
{
    const LpIpuPlan *p = a->p;
    bool *ends = lp_ipu_scratch(a->p, a->g->n_value, sizeof *ends);
    LP_TRY(p->err->code);
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (lp_is_value(v->micro_out) && v->role == LP_VAR_ACCUM)
            ends[v->micro_out] = true;
    }
    for (LpNodeId n = (LpNodeId)a->g->n_node; n-- > 0;) {
        const LpGraphNode *d = &a->g->node[n];
        if (!ends[d->out] || !lp_ipu_is_linear(d) || !p->backward[n])
            continue;
        for (uint32_t i = 0; i < d->n_in; i++)
            if (lp_is_backward(a->p, d->in[i])) {
                ends[d->in[i]] = true;
                a->reader[d->in[i]] = n + 1;
            }
    }
    return LP_OK;
}

/* Has the backward run made all backward values of its stage that d reads? */
static bool is_ready(const Recomputation *a, const LpGraphNode *d)
{
    for (uint32_t i = 0; i < d->n_in; i++)
        if (lp_is_backward(a->p, d->in[i]) &&
            a->p->val_stage[d->in[i]] == a->stage &&
            !a->done[a->g->value[d->in[i]].node])
            return false;
    return true;
}

static LpStatus add_backward(Recomputation *a, LpNodeId n)
{
    const LpGraphNode *d = &a->g->node[n];
    for (uint32_t k = 0; k < d->n_in; k++)
        LP_TRY(ensure(a, d->in[k]));
    a->done[n] = true;
    add_entry(a, n, false);
    return LP_OK;
}

/* A node, then what adds its results and waits for nothing else. */
static LpStatus add_with_sums(Recomputation *a, LpNodeId n)
{
    LP_TRY(add_backward(a, n));
    const LpGraphNode *d = &a->g->node[n];
    for (LpVal v = d->out; v < d->out + d->n_out; v++)
        for (LpVal w = v; a->reader[w];) {
            LpNodeId next = a->reader[w] - 1;
            if (a->done[next] || a->p->sum[next].var >= 0 ||
                a->p->node_stage[next] != a->stage ||
                !is_ready(a, &a->g->node[next]))
                break;
            LP_TRY(add_backward(a, next));
            w = a->g->node[next].out;
        }
    return LP_OK;
}

static LpStatus backward_run(Recomputation *a)
{
    int run = lp_pass_of(a->p, a->stage, true);
    for (size_t i = a->first[run]; i < a->first[run + 1]; i++)
        if (!a->done[a->list[i]])
            LP_TRY(add_with_sums(a, a->list[i]));
    for (LpVal v = 1; a->any_late && v < a->g->n_value; v++)
        if (a->late[v] && a->p->val_stage[v] == a->stage)
            LP_TRY(ensure(a, v));
    return keep_run(a, a->stage, true);
}

static void mark_late_and_kept(Recomputation *a)
{
    const LpIpuPlan *p = a->p;
    for (LpNodeId n = 0; n < a->g->n_node; n++) {
        const LpGraphNode *d = &a->g->node[n];
        if (is_checkpoint(d))
            a->kept[d->in[0]] = true;
        bool reads = p->n_stage > 1 && p->backward[n];
        for (uint32_t i = 0; reads && i < d->n_in; i++) {
            LpVal v = d->in[i];
            if (lp_is_value(v) && p->val_is[v] == 0 &&
                p->val_stage[v] > p->node_stage[n])
                a->any_late = a->late[v] = true;
        }
    }
}

static LpStatus build(Recomputation *a)
{
    LpIpuPlan *p = a->p;
    LP_TRY(by_run(a));
    for (int s = 0; s < p->n_stage; s++) {
        for (size_t i = a->first[s]; i < a->first[s + 1]; i++)
            add_entry(a, a->list[i], false);
        LP_TRY(keep_run(a, s, false));
    }
    if (!p->training)
        return LP_OK;
    mark_late_and_kept(a);
    LP_TRY(find_adds(a));
    for (a->stage = p->n_stage - 1; a->stage >= 0; a->stage--) {
        LP_TRY(choose(a));
        LP_TRY(backward_run(a));
    }
    return LP_OK;
}

LpStatus lp_ipu_recomputation(LpIpuPlan *p)
{
    Recomputation a = {.p = p, .g = p->step->micro};
    size_t n = a.g->n_value;
    p->n_pass = p->training ? 2 * p->n_stage : p->n_stage;
    p->pass = lp_ipu_alloc(p, (size_t)p->n_pass, sizeof *p->pass);
    a.there = lp_ipu_marks(p, n);
    a.mark = lp_ipu_marks(p, n);
    a.read = lp_ipu_scratch(p, n, sizeof *a.read);
    a.late = lp_ipu_scratch(p, n, sizeof *a.late);
    a.kept = lp_ipu_scratch(p, n, sizeof *a.kept);
    a.entry = lp_ipu_scratch(p, a.g->n_node, sizeof *a.entry);
    a.done = lp_ipu_scratch(p, a.g->n_node, sizeof *a.done);
    a.reader = lp_ipu_scratch(p, n, sizeof *a.reader);
    a.last = lp_ipu_scratch(p, n, sizeof *a.last);
    LpStatus s = p->err->code == LP_OK ? build(&a) : p->err->code;
    lp_free(a.stack);
    return s;
}
