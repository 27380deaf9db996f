/* Names of values are looked up while the graph is as it was traced: common
 * passes come later, and what an anchor asks for is an output by then, which
 * they keep. Source of the prefixes and of what an anchored variable shows:
 * PopART, tensornames.hpp and the user guide's section on anchors. */
#include "src/passes/anchors.h"

#include <stdio.h>
#include <string.h>

#include "src/base/hash.h"
#include "src/base/map.h"
#include "src/ops/ops.h"
#include "src/passes/scaling.h"

#define ACCUM "Accum___"
#define UPDATED "UpdatedVar___"
#define INPUT "input/"
#define LOSS "loss"

/* ---- names --------------------------------------------------------------- */
static const char *popart_name(const LpGraphNode *n)
{
    static const struct {
        const LpOp *op;
        const char *name;
    } known[] = {
#define NAME(ours, theirs) {&op_##ours, theirs},
#include "src/passes/popart_names.def"
#undef NAME
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].op == n->op)
            return known[i].name;
    return lp_node_title(n);
}

/* Names of one hash count together: theirs have gaps, but are as different. */
static LpStatus name_result(LpGraph *g, LpMap *seen, LpNodeId id, uint32_t i,
                            LpErr *e)
{
    char name[256], again[16] = "";
    const LpGraphNode *d = &g->node[id];
    const char *scope = g->origin[d->origin].scope;
    snprintf(name, sizeof name - sizeof again, "%s%s%s:%u", scope,
             *scope ? "/" : "", popart_name(d), i);
    uint32_t *n = lp_map_at(seen, lp_hash_str(LP_HASH_START, name));
    LP_FAIL_IF(!n, e, LP_E_MEMORY, "out of memory");
    if ((*n)++ > 0)
        snprintf(again, sizeof again, "/%u", (unsigned)*n - 1);
    strcat(name, again);
    return lp_graph_add_name(g, d->out + i, name, e) ? LP_OK : LP_E_MEMORY;
}

LpStatus lp_name_values(LpGraph *g, LpVal loss, LpErr *e)
{
    LpMap seen = {0};
    LpStatus s = LP_OK;
    if (loss != LP_NOVAL && !lp_graph_add_name(g, loss, LOSS, e))
        return LP_E_MEMORY;
    for (LpNodeId id = 0; id < g->n_node; id++)
        for (uint32_t i = 0; i < g->node[id].n_out && s == LP_OK; i++)
            s = name_result(g, &seen, id, i, e);
    lp_map_fini(&seen);
    return s;
}

static LpVal named(const LpGraph *g, const char *name)
{
    for (LpVal v = 1; v < g->n_value; v++) {
        const LpValue *x = &g->value[v];
        if (x->name && strcmp(x->name, name) == 0)
            return v;
        for (const LpName *n = x->more; n; n = n->next)
            if (strcmp(n->text, name) == 0)
                return v;
    }
    return LP_NOVAL;
}

/* ---- finding ------------------------------------------------------------- */
static const char *after(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

static int variable(const LpStep *s, const char *name)
{
    const char *input = after(name, INPUT);
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        bool stream = v->role == LP_VAR_STREAM_IN;
        if ((v->role != LP_VAR_STREAM_OUT && strcmp(v->name, name) == 0) ||
            (stream && input && strcmp(v->name, input) == 0))
            return (int)i;
    }
    return -1;
}

static LpStatus unknown(const LpAnchor *a, const char *name, LpErr *e)
{
    return lp_fail_hint(e, LP_E_POPTORCH, "tensor_names",
                        "anchor '%s': the program has no tensor '%s'", a->name,
                        name);
}

/* A value, or a stream's. */
static LpStatus find_value(const LpStep *s, const char *name, LpAnchor *a,
                           LpErr *e)
{
    int var = variable(s, name);
    if (var >= 0)
        a->value = s->var[var].micro_in;
    if (a->value == LP_NOVAL)
        a->value = named(s->micro, name);
    return a->value == LP_NOVAL ? unknown(a, name, e) : LP_OK;
}

static LpStatus find_param(const LpStep *s, const char *name, LpAnchor *a,
                           LpErr *e)
{
    a->var = variable(s, name);
    if (a->var < 0 || s->var[a->var].role != LP_VAR_PARAM)
        return unknown(a, name, e);
    return LP_OK;
}

LpStatus lp_tensor_find(const LpStep *s, LpAnchor *a, LpErr *e)
{
    a->var = -1;
    a->value = LP_NOVAL;
    return find_value(s, a->name, a, e);
}

LpStatus lp_anchor_find(const LpStep *s, bool training, LpAnchor *a, LpErr *e)
{
    static const struct {
        const char *prefix;
        LpAnchorKind kind;
        LpStatus (*find)(const LpStep *, const char *, LpAnchor *, LpErr *);
    } trained[] = {{LP_GRADIENT, LP_ANCHOR_GRADIENT, find_value},
                   {ACCUM, LP_ANCHOR_ACCUM, find_param},
                   {UPDATED, LP_ANCHOR_UPDATED, find_param}};
    a->var = -1;
    a->value = LP_NOVAL;
    if (strcmp(a->name, LP_SCALING_COUNTS) == 0) {
        a->kind = LP_ANCHOR_COUNTS;
        return LP_OK;
    }
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++) {
        const char *of = after(a->name, trained[i].prefix);
        if (!of)
            continue;
        LP_FAIL_IF(!training, e, LP_E_POPTORCH,
                   "anchor '%s': an inference model has no such tensor",
                   a->name);
        a->kind = trained[i].kind;
        return trained[i].find(s, of, a, e);
    }
    a->var = variable(s, a->name);
    if (a->var >= 0 && s->var[a->var].role != LP_VAR_STREAM_IN) {
        bool after = s->gradient_accumulation == 1 || a->final;
        a->kind = after ? LP_ANCHOR_UPDATED : LP_ANCHOR_VARIABLE;
        return LP_OK;
    }
    a->var = -1;
    a->kind = LP_ANCHOR_VALUE;
    return find_value(s, a->name, a, e);
}

/* ---- outputs ------------------------------------------------------------- */
/* A variable that the update writes is linked if the last micro-batch of a
 * device iteration is to show it after the update. */
static LpStatus show_variable(LpStep *s, const LpAnchor *a, LpVariable *out,
                              LpErr *e)
{
    LpVariable *v = &s->var[a->var];
    if (v->micro_in == LP_NOVAL && v->micro_out == LP_NOVAL)
        v->micro_in = lp_graph_input(s->micro, &v->type, v->name, e);
    out->micro_out = v->micro_out != LP_NOVAL ? v->micro_out : v->micro_in;
    out->type = v->type;
    if (a->kind == LP_ANCHOR_UPDATED && v->update_out != LP_NOVAL)
        out->param = a->var;
    return e->code;
}

static LpStatus show_accumulator(const LpStep *s, const LpAnchor *a,
                                 LpVariable *out, LpErr *e)
{
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_ACCUM && s->var[i].param == a->var) {
            out->micro_out = s->var[i].micro_out;
            out->type = s->var[i].type;
            return LP_OK;
        }
    if (a->kind == LP_ANCHOR_COUNTS)
        return unknown(a, a->name, e);
    return lp_fail(e, LP_E_POPTORCH,
                   "anchor '%s': parameter '%s' is not trained", a->name,
                   s->var[a->var].name);
}

LpStatus lp_anchor_add(LpStep *s, const LpAnchor *a, LpErr *e)
{
    LpVariable out = {.role = LP_VAR_STREAM_OUT, .name = a->name, .param = -1};
    if (a->kind == LP_ANCHOR_VARIABLE || a->kind == LP_ANCHOR_UPDATED)
        LP_TRY(show_variable(s, a, &out, e));
    else if (a->kind == LP_ANCHOR_ACCUM || a->kind == LP_ANCHOR_COUNTS)
        LP_TRY(show_accumulator(s, a, &out, e));
    else {
        LP_FAIL_IF(a->value == LP_NOVAL, e, LP_E_POPTORCH,
                   "anchor '%s': there is no such gradient, since the loss "
                   "does not depend on that tensor",
                   a->name);
        out.micro_out = a->value;
        out.type = *lp_graph_type(s->micro, a->value);
    }
    return lp_step_add(s, &out, e) < 0 ? LP_E_MEMORY : LP_OK;
}

/* ---- all names ----------------------------------------------------------- */
static void each_variable(const LpStep *s, LpNameVisit visit, void *ctx)
{
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        switch (v->role) {
        case LP_VAR_STREAM_IN:
            visit(ctx, INPUT, v->name);
            break;
        case LP_VAR_PARAM:
            visit(ctx, "", v->name);
            if (v->update_out != LP_NOVAL)
                visit(ctx, UPDATED, v->name);
            break;
        case LP_VAR_ACCUM:
            if (v->param < 0) {
                visit(ctx, "", v->name);
                break;
            }
            visit(ctx, LP_GRADIENT, s->var[v->param].name);
            visit(ctx, ACCUM, s->var[v->param].name);
            break;
        case LP_VAR_BUFFER:
        case LP_VAR_STATE:
            visit(ctx, "", v->name);
            break;
        default:
            break;
        }
    }
}

void lp_each_name(const LpStep *s, LpNameVisit visit, void *ctx)
{
    const LpGraph *g = s->micro;
    each_variable(s, visit, ctx);
    for (LpVal v = 1; v < g->n_value; v++) {
        const LpValue *x = &g->value[v];
        if (x->node == LP_NO_NODE) /* a variable's */
            continue;
        if (x->name)
            visit(ctx, "", x->name);
        for (const LpName *n = x->more; n; n = n->next)
            visit(ctx, "", n->text);
    }
}
