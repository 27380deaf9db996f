#include "src/autodiff/trace.h"

#include <string.h>

#include "src/autodiff/meta.h"
#include "src/base/hash.h"
#include "src/base/map.h"
#include "src/base/mem.h"
#include "src/base/random.h"

struct LpTrace {
    uint64_t serial;
    LpGraph *g;
    LpTraceVar *var;
    size_t n, cap;
    LpMap var_of; /* by address of the user's storage and the stand-in's */
    LpOrigin origin;
    LpOriginId origin_id; /* 0: to be interned */
    bool guarded;         /* captured tensors may not be written */
    void (*on_call)(void *ctx, LpTrace *tr);
    void *on_call_ctx;
    /* how often each place of the program drew random numbers */
    uint64_t *draw;
    size_t n_draw, cap_draw;
    size_t *drawn, n_drawn, cap_drawn; /* entries of draw, one a draw */
    LpMap draw_at;                     /* by hash of the place */
    LpVal *loss;
    size_t n_loss, cap_loss;
    struct Owned {
        void (*release)(void *ctx);
        void *ctx;
    } * owned;
    size_t n_owned, cap_owned;
    uint64_t salt; /* of a resumed trace: its draws are others */
};

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
    tr->origin = (LpOrigin){"", "", "", 0, 0, 0, -1, false, false};
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
    lp_free(tr->draw);
    lp_free(tr->drawn);
    lp_map_fini(&tr->draw_at);
    lp_free(tr->loss);
    lp_graph_free(tr->g);
    lp_free(tr);
}

LpStatus lp_trace_begin(LpTrace *tr, LpErr *e)
{
    LP_FAIL_IF(current, e, LP_E_RUNTIME,
               "a trace is running already: a compiled model cannot be called "
               "while another one is traced");
    current = tr;
    lp_tracing = true;
    lp_storage_era = (uint32_t)tr->serial;
    return LP_OK;
}

void lp_trace_end(LpTrace *tr)
{
    if (current != tr)
        return;
    current = NULL;
    lp_tracing = false;
    lp_storage_era = 0;
}

void lp_trace_guard_captured(LpTrace *tr)
{
    tr->guarded = true;
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
    return tr->var[i].standin->meta->val;
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
    return LP_OK;
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

static uint64_t hash(uint64_t h, const char *s)
{
    return lp_mix64(lp_hash_str(h, s));
}

/* A random call's site: its place in the program (module path, file, line; not
 * the folder, which depends on how the script was named)
 * and how many came from that place before; never a running number of the
 * whole trace, so that an edit elsewhere does not change it. */
static LpStatus next_draw(LpTrace *tr, uint64_t *site, LpErr *e)
{
    const char *slash = strrchr(tr->origin.file, '/');
    const char *file = slash ? slash + 1 : tr->origin.file;
    uint64_t place = hash(hash(1, tr->origin.scope), file);
    place = lp_mix64_pair(place, (uint64_t)tr->origin.line);
    if (tr->salt)
        place = lp_mix64_pair(place, tr->salt);
    LP_FAIL_IF(!LP_GROW(tr->drawn, tr->cap_drawn, tr->n_drawn), e, LP_E_MEMORY,
               "out of memory");
    const uint32_t *at = lp_map_first(&tr->draw_at, place);
    size_t i = at ? *at : tr->n_draw;
    if (!at) {
        LP_FAIL_IF(!LP_GROW(tr->draw, tr->cap_draw, i) ||
                       !lp_map_add(&tr->draw_at, place, (uint32_t)i),
                   e, LP_E_MEMORY, "out of memory");
        tr->draw[tr->n_draw++] = 0;
    }
    tr->drawn[tr->n_drawn++] = i;
    *site = lp_mix64_pair(place, tr->draw[i]++);
    return LP_OK;
}

size_t lp_trace_drawn(void)
{
    return current ? current->n_drawn : 0;
}

void lp_trace_undraw(size_t n)
{
    while (current && current->n_drawn > n)
        current->draw[current->drawn[--current->n_drawn]]--;
}

/* ---- variables ---------------------------------------------------------- */
static LpStatus set_value(LpTrace *tr, LpTensor *t, LpVal v, LpErr *e)
{
    LpTensorMeta *m = lp_meta(t, e);
    if (!m)
        return LP_E_MEMORY;
    m->trace_serial = tr->serial;
    m->val = v;
    m->val_version = t->st->version;
    return LP_OK;
}

const LpTraceVar *lp_trace_find(const LpTrace *tr, const LpStorage *st)
{
    const uint32_t *at = lp_map_first(&tr->var_of, (uintptr_t)st);
    for (; at; at = lp_map_next(&tr->var_of, at)) {
        const LpTraceVar *v = &tr->var[*at];
        /* not the entry of a declaration that lacked memory */
        if (*at < tr->n &&
            (v->standin->st == st || (v->user && v->user->st == st)))
            return v;
    }
    return NULL;
}

void lp_trace_scale(LpTrace *tr, const LpStorage *st)
{
    const LpTraceVar *v = lp_trace_find(tr, st);
    if (v)
        tr->var[v - tr->var].scaled = true;
}

static LpStatus add_var(LpTrace *tr, LpTraceVar v, const LpType *type, LpErr *e)
{
    LP_FAIL_IF(!LP_GROW(tr->var, tr->cap, tr->n), e, LP_E_MEMORY,
               "out of memory");
    LP_TRY(lp_tensor_empty(type, LP_ST_TRACED, &v.standin, e));
    LpStatus s = set_value(tr, v.standin, v.input, e);
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

LpStatus lp_trace_declare(LpTrace *tr, LpTraceRole role, const char *name,
                          LpTensor *user, const LpType *type,
                          LpTensor **standin, LpErr *e)
{
    LpType own;
    if (user) {
        if (user->base)
            user = user->base;
        own = lp_tensor_type(user);
        type = &own;
        const LpTraceVar *known = lp_trace_find(tr, user->st);
        if (known) {
            *standin = known->standin;
            return LP_OK;
        }
    }
    LpTraceVar v = {.role = role, .user = user};
    v.name = lp_graph_intern(tr->g, name, e);
    v.input =
        v.name ? lp_graph_input(tr->g, type, *name ? name : NULL, e) : LP_NOVAL;
    if (v.input == LP_NOVAL)
        return LP_E_MEMORY;
    LP_TRY(add_var(tr, v, type, e));
    *standin = tr->var[tr->n - 1].standin;
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

/* The traced tensor that stands for `t` (traced itself, or a user's), owned. */
static LpStatus standin_of(LpTrace *tr, LpTensor *t, LpTensor **out, LpErr *e)
{
    if (t->st->flags & LP_ST_TRACED) {
        const LpTensor *b = t->base ? t->base : t;
        LP_FAIL_IF(!b->meta || b->meta->trace_serial != tr->serial, e,
                   LP_E_RUNTIME,
                   "a traced tensor is used after its trace has ended: it "
                   "stood for a value of a compiled program and has none of "
                   "its own; return it from forward instead");
        *out = lp_tensor_retain(t);
        return LP_OK;
    }
    LpTensor *base = NULL;
    LP_TRY(lp_trace_declare(tr, LP_TRACE_CONSTANT, "", t, NULL, &base, e));
    if (!t->base) {
        LpType a = lp_tensor_type(t), b = lp_tensor_type(base);
        LP_FAIL_IF(!lp_type_eq(&a, &b), e, LP_E_RUNTIME,
                   "two tensors of different shapes share memory without one "
                   "being a view of the other; this cannot be traced");
        *out = lp_tensor_retain(base);
        return LP_OK;
    }
    LpType type = lp_tensor_type(t);
    LP_TRY(lp_tensor_over(base->st, &type, NULL, 0, out, e));
    (*out)->base = lp_tensor_retain(base);
    (*out)->view = t->view;
    t->view->refs++;
    return LP_OK;
}

/* Emits the view chain of a traced tensor whose base has changed, or that was
 * never read. */
static LpStatus refresh(LpTrace *tr, LpTensor *t, LpErr *e)
{
    if (!t->base)
        return LP_OK;
    if (t->meta && t->meta->val && t->meta->val_version == t->st->version)
        return LP_OK;
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, tr->g, e);
    gb.origin = tr->origin_id;
    LpVal v = lp_replay_chain(&gb.b, t->view, t->base->meta->val);
    lp_graph_builder_fini(&gb);
    return e->code != LP_OK ? e->code : set_value(tr, t, v, e);
}

LpStatus lp_trace_value(LpTrace *tr, LpTensor *t, LpVal *v, LpErr *e)
{
    LpTensor *s = NULL;
    LP_TRY(standin_of(tr, t, &s, e));
    LpStatus st = refresh(tr, s, e);
    if (st == LP_OK)
        *v = s->meta->val;
    lp_tensor_release(s);
    return st;
}

static LpStatus results(LpTrace *tr, const LpVal *v, int n, LpTensor **out,
                        LpErr *e);

LpStatus lp_trace_tensor(LpTrace *tr, LpVal v, LpTensor **out, LpErr *e)
{
    return results(tr, &v, 1, out, e);
}

/* ---- calls -------------------------------------------------------------- */
static LpStatus results(LpTrace *tr, const LpVal *v, int n, LpTensor **out,
                        LpErr *e)
{
    for (int i = 0; i < n; i++) {
        const LpType *type = lp_graph_type(tr->g, v[i]);
        LpStatus s = lp_tensor_empty(type, LP_ST_TRACED, &out[i], e);
        if (s == LP_OK && (s = set_value(tr, out[i], v[i], e)) != LP_OK)
            lp_tensor_release(out[i]);
        if (s != LP_OK) {
            while (i-- > 0)
                lp_tensor_release(out[i]);
            return s;
        }
    }
    return LP_OK;
}

static LpStatus trace_view(LpTrace *tr, const LpOp *op, LpTensor *src,
                           const LpAttr *attr, LpTensor **out, LpErr *e)
{
    LpCall c;
    LpTensor *s = NULL;
    LP_TRY(standin_of(tr, src, &s, e));
    LpArena *arena = lp_scratch_enter();
    LpArg in = {.t = s};
    LpStatus st = lp_call_infer(&c, op, &in, 1, attr, arena, e);
    if (st == LP_OK)
        st = lp_make_view(s, &c, out, e);
    if (st == LP_OK && (st = refresh(tr, *out, e)) != LP_OK)
        lp_tensor_release(*out);
    lp_scratch_leave();
    lp_tensor_release(s);
    return st;
}

static LpStatus record(LpTrace *tr, const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, const uint64_t *site, LpVal *vin,
                       LpTensor **out, int *n_out, LpErr *e)
{
    LpVal vout[LP_MAX_RESULTS];
    LpGraphBuilder gb;
    uint64_t at = 0;
    for (int i = 0; i < n_in; i++) {
        vin[i] = LP_NOVAL;
        if (in[i].t)
            LP_TRY(lp_trace_value(tr, in[i].t, &vin[i], e));
        else if (in[i].is_num)
            vin[i] = lp_graph_imm(tr->g, in[i].num, e);
    }
    /* a composite is expanded by op_call; a fused operator may hide a draw */
    bool draws = op->flags & LP_OPF_RANDOM || op->kind == LP_OP_FUSED;
    if (draws && !site)
        LP_TRY(next_draw(tr, &at, e));
    lp_graph_builder_init(&gb, tr->g, e);
    gb.origin = tr->origin_id;
    gb.b.set_site(&gb.b, true, site ? *site : at);
    if (op->kind == LP_OP_FUSED && !site)
        gb.forced = false; /* several draws in one expansion differ */
    *n_out = e->code == LP_OK ? gb.b.emit(&gb.b, op, vin, n_in, attr, vout) : 0;
    lp_graph_builder_fini(&gb);
    if (e->code != LP_OK)
        return e->code;
    return results(tr, vout, *n_out, out, e);
}

LpStatus lp_trace_call(const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, const uint64_t *site, LpTensor **out,
                       int *n_out, LpErr *e)
{
    LpTrace *tr = current;
    if (tr->on_call)
        tr->on_call(tr->on_call_ctx, tr);
    if (tr->origin_id == 0)
        LP_TRY(lp_trace_set_origin(tr, &tr->origin, e));
    if (op->flags & LP_OPF_VIEW) {
        *n_out = 1;
        return trace_view(tr, op, in[0].t, attr, out, e);
    }
    LpArena *arena = lp_scratch_enter();
    LpVal *vin = lp_arena_alloc(arena, (size_t)(n_in + 1) * sizeof *vin);
    LpStatus s = vin ? record(tr, op, in, n_in, attr, site, vin, out, n_out, e)
                     : lp_fail(e, LP_E_MEMORY, "out of memory");
    lp_scratch_leave();
    if (s == LP_OK && op->flags & LP_OPF_LOSS)
        s = lp_trace_mark_loss(out, *n_out, e);
    return s;
}

static LpStatus may_write(LpTrace *tr, const LpTensor *dst, const char *what,
                          LpErr *e)
{
    const LpTraceVar *v = lp_trace_find(tr, dst->st);
    const LpStorage *made = v && v->user ? v->user->st : dst->st;
    if (!tr->guarded || (v && v->role != LP_TRACE_CONSTANT) ||
        made->era == (uint32_t)tr->serial)
        return LP_OK;
    if (tr->on_call)
        tr->on_call(tr->on_call_ctx, tr);
    return lp_fail(e, LP_E_RUNTIME,
                   "%s at %s:%d writes in place to a tensor that the traced "
                   "function captured: it is a constant of the program, and "
                   "the write would be lost; pass the tensor as an input, "
                   "compile the module whose buffer it is, or make a new one",
                   what, tr->origin.file, (int)tr->origin.line);
}

LpStatus lp_trace_write(LpTensor *dst, LpTensor *src, const char *what,
                        LpErr *e)
{
    LpTrace *tr = current;
    LpVal v;
    LpTensor *d = NULL;
    LP_TRY(may_write(tr, dst, what, e));
    LP_TRY(lp_trace_value(tr, src, &v, e));
    LP_TRY(standin_of(tr, dst, &d, e));
    LpTensor *base = d->base ? d->base : d;
    LpGraphBuilder gb;
    lp_graph_builder_init(&gb, tr->g, e);
    gb.origin = tr->origin_id;
    LpVal now = lp_put_chain(&gb.b, d->view, base->meta->val, v);
    lp_graph_builder_fini(&gb);
    LpStatus s = e->code;
    if (s == LP_OK) {
        base->st->version++;
        s = set_value(tr, base, now, e);
    }
    if (s == LP_OK && d->base)
        s = set_value(tr, d, v, e);
    lp_tensor_release(d);
    return s;
}
