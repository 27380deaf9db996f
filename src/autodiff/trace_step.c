/* A step out of a finished trace: its variables are what was declared and what
 * was met, its outputs the tensors that are asked for and the inputs that were
 * written in place. */
#include <stdio.h>
#include <string.h>

#include "src/autodiff/trace_step.h"
#include "src/base/mem.h"

LpStatus lp_step_take_vars(LpTrace *tr, size_t from, LpStep *s, LpErr *e)
{
    static const LpVarRole role[] = {[LP_TRACE_STREAM] = LP_VAR_STREAM_IN,
                                     [LP_TRACE_PARAM] = LP_VAR_PARAM,
                                     [LP_TRACE_BUFFER] = LP_VAR_BUFFER,
                                     [LP_TRACE_CONSTANT] = LP_VAR_CONST};
    for (size_t i = from; i < lp_trace_n_vars(tr); i++) {
        const LpTraceVar *t = lp_trace_var(tr, i);
        LpVariable v = {.role = role[t->role],
                        .name = t->name,
                        .type = *lp_graph_type(lp_trace_graph(tr), t->input),
                        .micro_in = t->input,
                        .group = t->group,
                        .param = -1};
        LpVal now = lp_trace_var_now(tr, i);
        bool carried = t->role == LP_TRACE_BUFFER || t->scaled;
        if (now != t->input && carried)
            v.micro_out = now;
        LP_FAIL_IF(now != t->input && t->role == LP_TRACE_PARAM && !carried, e,
                   LP_E_POPTORCH,
                   "parameter '%s' is modified in place by forward: only "
                   "buffers may be",
                   t->name);
        if (t->role != LP_TRACE_STREAM && !(t->user->st->flags & LP_ST_META)) {
            v.data = t->user;
            LP_TRY(lp_tensor_touch(t->user, false, e));
        }
        int at = lp_step_add(s, &v, e);
        if (at < 0)
            return LP_E_MEMORY;
        if (v.data && !lp_tensor_contiguous(v.data)) {
            LpTensor *c = NULL;
            LP_TRY(lp_contiguous(v.data, &c, e));
            lp_tensor_release(s->var[at].data);
            s->var[at].data = c;
        }
    }
    return LP_OK;
}

static LpStatus add_output(LpTrace *tr, LpStep *s, LpTensor *t, int i, LpErr *e)
{
    char name[32];
    LpVal v;
    LP_TRY(lp_trace_value(tr, t, &v, e));
    snprintf(name, sizeof name, "output_%d", i);
    LpVariable out = {.role = LP_VAR_STREAM_OUT,
                      .name = name,
                      .type = lp_tensor_type(t),
                      .micro_out = v,
                      .param = -1};
    return lp_step_add(s, &out, e) < 0 ? LP_E_MEMORY : LP_OK;
}

/* Inputs that forward wrote in place come back as outputs. */
static LpStatus add_written_inputs(LpTrace *tr, LpStep *s, LpErr *e)
{
    for (size_t i = 0; i < lp_trace_n_vars(tr); i++) {
        const LpTraceVar *t = lp_trace_var(tr, i);
        LpVal now = lp_trace_var_now(tr, i);
        if (t->role != LP_TRACE_STREAM || now == t->input)
            continue;
        LpVariable out = {.role = LP_VAR_STREAM_OUT,
                          .name = t->name,
                          .type = *lp_graph_type(lp_trace_graph(tr), now),
                          .micro_out = now,
                          .param = (int)i};
        if (lp_step_add(s, &out, e) < 0)
            return LP_E_MEMORY;
    }
    return LP_OK;
}

/* A view whose memory was written since is read once more, after forward: where
 * it was written, not behind the last block. */
static void read_where_written(LpTrace *tr, const LpTensor *t)
{
    const LpGraph *g = lp_trace_graph(tr);
    const LpStorage *st = t->st;
    if (!(st->flags & LP_ST_TRACED)) {
        const LpTraceVar *v = lp_trace_find(tr, st, NULL);
        if (!v)
            return;
        st = v->standin->st;
    }
    LpNodeId node =
        lp_is_value(st->held) ? g->value[st->held].node : LP_NO_NODE;
    if (node != LP_NO_NODE)
        lp_trace_set_origin_id(tr, g->node[node].origin);
}

/* A captured output may add a variable: all values first, then the table. */
static LpStatus meet_outputs(LpTrace *tr, LpTensor *const *out, int n, LpErr *e)
{
    size_t before;
    do {
        before = lp_trace_n_vars(tr);
        for (int i = 0; i < n; i++) {
            LpVal v;
            read_where_written(tr, out[i]);
            LP_TRY(lp_trace_value(tr, out[i], &v, e));
        }
    } while (before != lp_trace_n_vars(tr));
    return LP_OK;
}

static LpStatus fill(LpTrace *tr, LpTensor *const *out, int n, LpStep *s,
                     LpErr *e)
{
    LP_TRY(meet_outputs(tr, out, n, e));
    LP_TRY(lp_step_take_vars(tr, 0, s, e));
    for (int i = 0; i < n; i++)
        LP_TRY(add_output(tr, s, out[i], i + 1, e));
    return add_written_inputs(tr, s, e);
}

LpStatus lp_step_of_trace(LpTrace *tr, LpTensor *const *out, int n,
                          LpStep **step, LpErr *e)
{
    LpStep *s = lp_step_new();
    LP_FAIL_IF(!s, e, LP_E_MEMORY, "out of memory");
    LpStatus st = fill(tr, out, n, s, e);
    if (st != LP_OK) {
        lp_step_release(s);
        return st;
    }
    lp_graph_free(s->micro);
    s->micro = lp_trace_take(tr);
    *step = s;
    return LP_OK;
}

enum { LOSS = 1, FEEDS = 2, TOLD = 4, LIVE = 8 };

/* One look back over the nodes: what live results and effects are made of is
 * live, what live losses are made of feeds them. */
static void look_back(const LpGraph *g, unsigned char *is)
{
    for (size_t k = g->n_node; k-- > 0;) {
        const LpGraphNode *d = &g->node[k];
        unsigned char of = d->op->flags & LP_OPF_EFFECT ? LIVE : 0;
        for (uint32_t j = 0; j < d->n_out; j++)
            of |= is[d->out + j];
        of = of & LIVE ? of & (LOSS | FEEDS) ? LIVE | FEEDS : LIVE : 0;
        for (uint32_t j = 0; of && j < d->n_in; j++)
            if (lp_is_value(d->in[j]))
                is[d->in[j]] |= of;
    }
}

static LpStatus final_losses(LpTrace *tr, const LpVal *out, int n_out,
                             LpVal *loss, size_t *n, LpErr *e)
{
    const LpGraph *g = lp_trace_graph(tr);
    size_t all = lp_trace_n_losses(tr);
    unsigned char *is = lp_calloc(g->n_value, 1);
    LP_FAIL_IF(!is, e, LP_E_MEMORY, "out of memory");
    bool live = false;
    for (size_t i = 0; i < all; i++)
        is[lp_trace_loss(tr, i)] = LOSS;
    for (int i = 0; i < n_out; i++)
        is[out[i]] |= LIVE;
    for (size_t i = 0; i < lp_trace_n_vars(tr); i++)
        is[lp_trace_var_now(tr, i)] |= LIVE;
    look_back(g, is);
    for (size_t i = 0; i < all; i++)
        live |= is[lp_trace_loss(tr, i)] & LIVE;
    for (size_t i = 0; i < all && !live; i++)
        is[lp_trace_loss(tr, i)] |= LIVE;
    if (!live)
        look_back(g, is);
    *n = 0;
    for (size_t i = 0; i < all; i++) {
        LpVal v = lp_trace_loss(tr, i);
        if (is[v] != (LOSS | LIVE))
            continue;
        is[v] |= TOLD; /* marked before by what it is made of */
        loss[(*n)++] = v;
    }
    lp_free(is);
    return LP_OK;
}

LpStatus lp_trace_final_losses(LpTrace *tr, LpTensor *const *out, int n_out,
                               LpVal *loss, size_t *n, LpErr *e)
{
    LP_TRY(meet_outputs(tr, out, n_out, e));
    LpVal *now = lp_calloc((size_t)n_out + 1, sizeof *now);
    LP_FAIL_IF(!now, e, LP_E_MEMORY, "out of memory");
    LpStatus s = LP_OK;
    for (int i = 0; i < n_out && s == LP_OK; i++) /* views may get new nodes */
        s = lp_trace_value(tr, out[i], &now[i], e);
    if (s == LP_OK)
        s = final_losses(tr, now, n_out, loss, n, e);
    lp_free(now);
    return s;
}
