/* Marks of overlapping host I/O in a trace, where every use of a value still
 * stands: inputs first, then outputs, then marks that are at neither. */
#include "src/passes/host_io.h"

#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/ops.h"

static bool is_mark(const LpGraph *g, LpNodeId n, uint16_t op)
{
    return n != LP_NO_NODE && g->node[n].op->id == op;
}

static LpNodeId maker(const LpGraph *g, LpVal v)
{
    return lp_is_value(v) ? g->value[v].node : LP_NO_NODE;
}

/* What the marks for outputs stand for. */
static LpVal unmarked(const LpGraph *g, LpVal v)
{
    while (is_mark(g, maker(g, v), LP_OP_set_overlap_for_output))
        v = g->node[maker(g, v)].in[0];
    return v;
}

static int returns_of(const LpStep *s, LpVal v, bool unmark)
{
    int n = 0;
    for (size_t i = 0; i < s->n_var; i++) {
        LpVal out = s->var[i].micro_out;
        n += s->var[i].role == LP_VAR_STREAM_OUT &&
             (unmark ? unmarked(s->micro, out) : out) == v;
    }
    return n;
}

static LpStatus check_input(const LpStep *s, const LpVariable *v, LpErr *e)
{
    const LpGraph *g = s->micro;
    int uses = returns_of(s, v->micro_in, false), marks = 0;
    for (LpNodeId n = 0; n < g->n_node; n++)
        for (uint32_t k = 0; k < g->node[n].n_in; k++) {
            bool reads = g->node[n].in[k] == v->micro_in;
            uses += reads;
            marks += reads && is_mark(g, n, LP_OP_set_overlap_for_input);
        }
    if (marks == 0 || uses <= 1)
        return LP_OK;
    return lp_fail_hint(
        e, LP_E_POPTORCH, "mark",
        "set_overlap_for_input must be the only op applied to an input. This "
        "is not the case for input '%s' to the model: use what it returned "
        "everywhere",
        v->name);
}

static LpStatus check_output(const LpStep *s, const LpVariable *v, LpErr *e)
{
    const LpGraph *g = s->micro;
    if (!is_mark(g, maker(g, v->micro_out), LP_OP_set_overlap_for_output) ||
        returns_of(s, unmarked(g, v->micro_out), true) <= 1)
        return LP_OK;
    return lp_fail_hint(
        e, LP_E_POPTORCH, "mark",
        "set_overlap_for_output cannot be used with a tensor that is returned "
        "twice. Please check all returned tensors including those nested in "
        "lists and tables");
}

static bool is_input(const LpStep *s, LpVal v)
{
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_STREAM_IN && s->var[i].micro_in == v)
            return true;
    return false;
}

/* A mark in the right place; `s` NULL: in a body there is none. */
static LpStatus check_mark(const LpStep *s, const LpGraph *g, LpNodeId n,
                           LpErr *e)
{
    const LpGraphNode *d = &g->node[n];
    const LpOrigin *o = &g->origin[d->origin];
    bool in = is_mark(g, n, LP_OP_set_overlap_for_input);
    bool right =
        s && (in ? is_input(s, d->in[0]) : returns_of(s, d->out, false) > 0);
    if (right)
        return LP_OK;
    return lp_fail_hint(
        e, LP_E_POPTORCH, "mark",
        "%s applied on a node which is not a tensor %s to the model (%s:%d)",
        d->op->name, in ? "input" : "output", o->file, (int)o->line);
}

static void note(const LpGraphNode *d, LpHostIo *io)
{
    const char *mode = d->attr[LP_OVERLAP_MODE].str;
    bool in = d->op->id == LP_OP_set_overlap_for_input;
    bool along = strcmp(mode, "overlap_accumulation_loop") == 0;
    if (strcmp(mode, "no_overlap") != 0)
        (in ? io->input : io->output)[!along] = true;
}

static LpStatus check_marks(const LpStep *s, const LpGraph *g, LpHostIo *io,
                            LpErr *e)
{
    for (LpNodeId n = 0; n < g->n_node; n++) {
        const LpGraphNode *d = &g->node[n];
        int at = 0;
        for (const LpGraph *body; (body = lp_node_body(d, &at));)
            LP_TRY(check_marks(NULL, body, io, e));
        if (!is_mark(g, n, LP_OP_set_overlap_for_input) &&
            !is_mark(g, n, LP_OP_set_overlap_for_output))
            continue;
        LP_TRY(check_mark(s, g, n, e));
        note(d, io);
    }
    return LP_OK;
}

LpStatus lp_check_host_io(const LpStep *s, LpHostIo *io, LpErr *e)
{
    *io = (LpHostIo){0};
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_STREAM_IN)
            LP_TRY(check_input(s, &s->var[i], e));
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_STREAM_OUT)
            LP_TRY(check_output(s, &s->var[i], e));
    return check_marks(s, s->micro, io, e);
}
