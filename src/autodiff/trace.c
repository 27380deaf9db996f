/* A trace: its life, the origins of its nodes, the sites of its draws, its
 * variables; bodies. */
#include <stdio.h>
#include <string.h>

#include "src/autodiff/meta.h"
#include "src/autodiff/trace_impl.h"
#include "src/base/mem.h"
#include "src/base/random.h"

bool lp_tracing;
static LpTrace *current;
static uint64_t n_traces;

/* ---- life --------------------------------------------------------------- */
LpStatus lp_trace_new(LpTrace **out, LpErr *e)
{
    LpTrace *tr = lp_calloc(1, sizeof *tr);
    LP_FAIL_IF(!tr, e, LP_E_MEMORY, "out of memory");
    tr->g = lp_graph_new();
    if (!tr->g) {
        lp_free(tr);
        return lp_fail(e, LP_E_MEMORY, "out of memory");
    }
    tr->serial = ++n_traces;
    tr->origin = (LpOrigin){.block = "",
                            .scope = "",
                            .file = "",
                            .phase = -1,
                            .multi_conv = "",
                            .outline = ""};
    *out = tr;
    return LP_OK;
}

void lp_trace_free(LpTrace *tr)
{
    if (!tr)
        return;
    lp_trace_end(tr);
    for (size_t i = 0; i < tr->n; i++) {
        lp_tensor_release(tr->var[i].user);
        lp_tensor_release(tr->var[i].standin);
    }
    for (size_t i = 0; i < tr->n_owned; i++)
        tr->owned[i].release(tr->owned[i].ctx);
    lp_free(tr->owned);
    lp_free(tr->var);
    lp_map_fini(&tr->var_of);
    lp_free(tr->log);
    lp_map_fini(&tr->draws);
    lp_free(tr->loss);
    lp_buf_fini(&tr->refused);
    lp_graph_free(tr->g);
    lp_free(tr);
}

static void set_current(LpTrace *tr)
{
    current = tr;
    lp_tracing = tr != NULL;
    lp_storage_era = tr ? (uint32_t)tr->serial : 0;
}

LpStatus lp_trace_begin(LpTrace *tr, LpErr *e)
{
    LP_FAIL_IF(current != tr->outer, e, LP_E_RUNTIME,
               "a trace is running already: a compiled model cannot be called "
               "while another one is traced");
    set_current(tr);
    return LP_OK;
}

void lp_trace_end(LpTrace *tr)
{
    if (current == tr)
        set_current(tr->outer);
}

LpTrace *lp_trace_suspend(void)
{
    LpTrace *was = current;
    set_current(NULL);
    return was;
}

void lp_trace_go_on(LpTrace *was)
{
    set_current(was);
}

LpStatus lp_trace_begin_body(LpTrace **out, LpErr *e)
{
    LpTrace *tr, *outer = current;
    LP_FAIL_IF(!outer, e, LP_E_INTERNAL, "a body without a trace around it");
    LP_TRY(lp_trace_new(&tr, e));
    tr->outer = outer;
    tr->origin = outer->origin;
    tr->ipu = outer->origin.ipu;
    tr->stage = outer->origin.stage;
    tr->phase = outer->origin.phase;
    tr->on_call = outer->on_call;
    tr->on_call_ctx = outer->on_call_ctx;
    LpStatus s = lp_trace_begin(tr, e);
    if (s == LP_OK)
        *out = tr;
    else
        lp_trace_free(tr);
    return s;
}

static LpStatus on_one_stage(const LpTrace *tr, LpErr *e)
{
    for (size_t i = 0; i < tr->g->n_node; i++) {
        const LpOrigin *o = &tr->g->origin[tr->g->node[i].origin];
        LP_FAIL_IF(o->ipu != tr->ipu || o->stage != tr->stage ||
                       o->phase != tr->phase,
                   e, LP_E_POPTORCH,
                   "%s at %s:%d: the body of a loop or a branch lies where "
                   "that stands; begin the block around it",
                   tr->g->node[i].op->name, o->file, (int)o->line);
    }
    return LP_OK;
}

LpStatus lp_trace_body(LpTrace *tr, LpTensor *const *out, int n, LpGraph **body,
                       LpErr *e)
{
    LpVal v;
    for (int i = 0; i < n; i++) {
        LP_TRY(lp_trace_value(tr, out[i], &v, e));
        if (!lp_graph_output(tr->g, v, e))
            return LP_E_MEMORY;
    }
    LP_TRY(on_one_stage(tr, e));
    for (; tr->n_owned > 0; tr->n_owned--)
        LP_TRY(lp_trace_own(tr->outer, tr->owned[tr->n_owned - 1].release,
                            tr->owned[tr->n_owned - 1].ctx, e));
    *body = lp_trace_take(tr);
    return LP_OK;
}

void lp_trace_guard_captured(LpTrace *tr)
{
    tr->guarded = true;
}

void lp_trace_tolerate(LpTrace *tr)
{
    tr->tolerant = true;
}

void lp_trace_narrow(LpTrace *tr)
{
    tr->narrow = true;
}

bool lp_trace_is_narrow(void)
{
    const LpTrace *tr = current;
    while (tr && !tr->narrow)
        tr = tr->outer;
    return tr != NULL;
}

const char *lp_trace_refused(const LpTrace *tr)
{
    return tr->refused.n > 0 ? tr->refused.p : "";
}

/* One call has one line: an operator out of which another is made tells of it
 * first, and in better words. */
bool lp_trace_excuse(LpBuilder *b, const char *text)
{
    (void)b;
    LpTrace *at = current, *tr = current;
    char place[512];
    while (tr && tr->outer)
        tr = tr->outer;
    if (!tr || !tr->tolerant)
        return false;
    if (at->on_call)
        at->on_call(at->on_call_ctx, at);
    snprintf(place, sizeof place, "%s:%d: ", at->origin.file,
             (int)at->origin.line);
    const char *last = lp_trace_refused(tr) + tr->last;
    if (strncmp(last, place, strlen(place)) == 0 && strstr(last, text))
        return true;
    tr->last = tr->refused.n;
    lp_buf_fmt(&tr->refused, "%s%s\n", place, text);
    return !tr->refused.failed;
}

LpTrace *lp_trace_current(void)
{
    return current;
}

LpGraph *lp_trace_graph(LpTrace *tr)
{
    return tr->g;
}

size_t lp_trace_n_vars(const LpTrace *tr)
{
    return tr->n;
}

const LpTraceVar *lp_trace_var(const LpTrace *tr, size_t i)
{
    return &tr->var[i];
}

LpVal lp_trace_var_now(const LpTrace *tr, size_t i)
{
    return tr->var[i].standin->st->held;
}

LpGraph *lp_trace_take(LpTrace *tr)
{
    LpGraph *g = tr->g;
    tr->g = NULL;
    return g;
}

size_t lp_trace_n_losses(const LpTrace *tr)
{
    return tr->n_loss;
}

LpVal lp_trace_loss(const LpTrace *tr, size_t i)
{
    return tr->loss[i];
}

LpStatus lp_trace_mark_loss(LpTensor **out, int n, LpErr *e)
{
    LpTrace *tr = current;
    LpVal v;
    LpStatus s = lp_trace_value(tr, out[0], &v, e);
    if (s == LP_OK && !LP_GROW(tr->loss, tr->cap_loss, tr->n_loss))
        s = lp_fail(e, LP_E_MEMORY, "out of memory");
    if (s == LP_OK)
        tr->loss[tr->n_loss++] = v;
    else
        for (int i = 0; i < n; i++)
            lp_tensor_release(out[i]);
    return s;
}

/* ---- origins ------------------------------------------------------------ */
LpStatus lp_trace_set_origin(LpTrace *tr, const LpOrigin *o, LpErr *e)
{
    LpOriginId id = lp_graph_origin(tr->g, o, e);
    if (id == 0)
        return LP_E_MEMORY;
    tr->origin_id = id;
    tr->origin = tr->g->origin[id];
    /* a body of it runs: what comes next is in there */
    for (LpTrace *t = current; t && t != tr; t = t->outer)
        if (t->outer == tr)
            return lp_trace_set_origin(t, o, e);
    return LP_OK;
}

void lp_trace_set_outside(LpTrace *tr, bool outside)
{
    tr->outside = outside;
}

const LpOrigin *lp_trace_origin(const LpTrace *tr)
{
    return &tr->origin;
}

void lp_trace_on_call(LpTrace *tr, void (*fn)(void *ctx, LpTrace *tr),
                      void *ctx)
{
    tr->on_call = fn;
    tr->on_call_ctx = ctx;
}

LpStatus lp_trace_next_draw(LpTrace *tr, uint64_t *site, LpErr *e)
{
    LpOrigin at = tr->origin;
    if (tr->outside) {
        at.file = "";
        at.line = 0;
    }
    uint64_t place = lp_origin_location(&at);
    while (tr->outer) /* a place in a body is no other one */
        tr = tr->outer;
    if (tr->salt)
        place = lp_mix64_pair(place, tr->salt);
    uint32_t *before = lp_map_at(&tr->draws, place);
    LP_FAIL_IF(!before || !LP_GROW(tr->log, tr->cap_log, tr->n_log), e,
               LP_E_MEMORY, "out of memory");
    tr->log[tr->n_log++] = place;
    *site = lp_mix64_pair(place, (*before)++);
    return LP_OK;
}

static LpTrace *outermost(void)
{
    LpTrace *tr = current;
    while (tr && tr->outer)
        tr = tr->outer;
    return tr;
}

size_t lp_trace_rng_mark(void)
{
    return current ? outermost()->n_log : 0;
}

void lp_trace_rng_rollback(size_t n)
{
    LpTrace *tr = outermost();
    while (tr && tr->n_log > n)
        --*lp_map_at(&tr->draws, tr->log[--tr->n_log]);
}

/* ---- variables ---------------------------------------------------------- */
LpStatus lp_trace_set_value(LpTrace *tr, LpTensor *t, LpVal v, LpErr *e)
{
    LpTensorMeta *m = lp_meta(t, e);
    if (!m)
        return LP_E_MEMORY;
    m->trace_serial = tr->serial;
    m->val = v;
    m->val_version = t->st->version;
    return LP_OK;
}

const LpTraceVar *lp_trace_find(const LpTrace *tr, const LpStorage *st,
                                const LpTensor *user)
{
    const uint32_t *at = lp_map_first(&tr->var_of, (uintptr_t)st);
    for (; at; at = lp_map_next(&tr->var_of, at)) {
        const LpTraceVar *v = &tr->var[*at];
        /* not the entry of a declaration that lacked memory */
        if (*at < tr->n &&
            (v->standin->st == st || (v->user && v->user->st == st)) &&
            (!user || v->user == user))
            return v;
    }
    return NULL;
}

void lp_trace_scale(LpTrace *tr, const LpStorage *st)
{
    const LpTraceVar *v = lp_trace_find(tr, st, NULL);
    if (v && v->role == LP_TRACE_PARAM)
        tr->var[v - tr->var].scaled = true;
}

static LpStatus add_var(LpTrace *tr, LpTraceVar v, const LpType *type, LpErr *e)
{
    LP_FAIL_IF(!LP_GROW(tr->var, tr->cap, tr->n), e, LP_E_MEMORY,
               "out of memory");
    LP_TRY(lp_tensor_empty(type, LP_ST_TRACED, &v.standin, e));
    LpStatus s = lp_trace_set_value(tr, v.standin, v.input, e);
    v.standin->st->held = v.input;
    uint32_t n = (uint32_t)tr->n;
    if (s == LP_OK &&
        ((v.user && !lp_map_add(&tr->var_of, (uintptr_t)v.user->st, n)) ||
         !lp_map_add(&tr->var_of, (uintptr_t)v.standin->st, n)))
        s = lp_fail(e, LP_E_MEMORY, "out of memory");
    if (s != LP_OK) {
        lp_tensor_release(v.standin);
        return s;
    }
    if (v.user)
        lp_tensor_retain(v.user);
    tr->var[tr->n++] = v;
    return LP_OK;
}

/* The graph's input comes last: a declaration that lacks memory is made again,
 * and would leave an input that no variable reads. */
static LpStatus add_input(LpTrace *tr, const char *name, const LpType *type,
                          LpErr *e)
{
    LpTraceVar *v = &tr->var[tr->n - 1];
    v->input = lp_graph_input(tr->g, type, *name ? name : NULL, e);
    v->standin->st->held = v->input;
    if (v->input != LP_NOVAL)
        return lp_trace_set_value(tr, v->standin, v->input, e);
    tr->n--;
    lp_tensor_release(v->standin);
    lp_tensor_release(v->user);
    return LP_E_MEMORY;
}

/* A variable with a stand-in of this type, unless its storage is known; to a
 * body, which writes no captured memory, each base of it is one of its own. */
static LpStatus declare(LpTrace *tr, LpTraceVar v, const LpType *type,
                        LpTensor **standin, LpErr *e)
{
    const LpTraceVar *known = NULL;
    if (v.user)
        known = lp_trace_find(tr, v.user->st, tr->outer ? v.user : NULL);
    if (!known) {
        const char *name = v.name;
        v.name = lp_graph_intern(tr->g, name, e);
        if (!v.name)
            return LP_E_MEMORY;
        LP_TRY(add_var(tr, v, type, e));
        LP_TRY(add_input(tr, name, type, e));
        known = &tr->var[tr->n - 1];
    }
    *standin = known->standin;
    return LP_OK;
}

static LpTensor *whole(LpTensor *t)
{
    return t->base ? t->base : t;
}

LpStatus lp_trace_declare(LpTrace *tr, LpTraceRole role, const char *name,
                          LpTensor *user, const LpType *type,
                          LpTensor **standin, LpErr *e)
{
    LpTraceVar v = {.role = role, .name = name};
    LpType own;
    if (user) {
        v.user = whole(user);
        own = lp_tensor_type(v.user);
        type = &own;
    }
    return declare(tr, v, type, standin, e);
}

LpStatus lp_trace_declare_grouped(LpTrace *tr, const char *name, LpTensor *user,
                                  LpGroup group, LpTensor **standin, LpErr *e)
{
    LpTraceVar v = {.role = LP_TRACE_PARAM, .name = name, .group = group};
    v.user = whole(user);
    LpType type = lp_tensor_type(v.user);
    LP_FAIL_IF(type.ndim == 0, e, LP_E_POPTORCH,
               "parameter '%s' has replica groups, but no first dimension with "
               "a value for each",
               name);
    lp_type_drop_first(&type);
    LP_TRY(declare(tr, v, &type, standin, e));
    (*standin)->requires_grad = lp_requires_grad(v.user);
    return LP_OK;
}

/* ---- resumed traces ----------------------------------------------------- */
LpStatus lp_trace_resume(LpGraph *g, uint64_t serial, LpTrace **out, LpErr *e)
{
    LpTrace *tr = lp_calloc(1, sizeof *tr);
    LP_FAIL_IF(!tr, e, LP_E_MEMORY, "out of memory");
    tr->g = g;
    tr->serial = serial;
    tr->salt = g->n_node + 1;
    *out = tr;
    return LP_OK;
}

LpStatus lp_trace_know(LpTrace *tr, LpTraceRole role, LpTensor *user, LpVal v,
                       LpErr *e)
{
    if (user->base)
        user = user->base;
    LpType type = lp_tensor_type(user);
    return add_var(
        tr, (LpTraceVar){.role = role, .name = "", .user = user, .input = v},
        &type, e);
}

void lp_trace_leave(LpTrace *tr)
{
    if (tr)
        lp_trace_take(tr);
    lp_trace_free(tr);
}

void lp_trace_set_origin_id(LpTrace *tr, LpOriginId id)
{
    tr->origin_id = id;
    tr->origin = tr->g->origin[id];
}

uint64_t lp_trace_serial(const LpTrace *tr)
{
    return tr->serial;
}

LpStatus lp_trace_own(LpTrace *tr, void (*release)(void *ctx), void *ctx,
                      LpErr *e)
{
    LP_FAIL_IF(!LP_GROW(tr->owned, tr->cap_owned, tr->n_owned), e, LP_E_MEMORY,
               "out of memory");
    tr->owned[tr->n_owned++] = (struct Owned){release, ctx};
    return LP_OK;
}
