/* The weight update in a replay of the schedule, on the memory of IPUs: nodes
 * in order, each on its own; values cross to the IPUs that read them, what
 * lives off chip is there from its first use to its last, new values of
 * variables are written over the old ones. */
#include <string.h>

#include "runtime/exec/replay_state.h"
#include "src/base/checked.h"

struct LpReplayUpdate {
    uint32_t **block; /* by IPU and value: its span + 1 */
    uint32_t **visit; /* by IPU and variable: likewise */
    int *var;         /* by value: of which it is the old value, + 1 */
    LpNodeId *last;   /* by variable: after the last node that reads it */
    bool *wrote;      /* by variable */
    uint32_t *step;   /* by IPU: its next */
};

typedef struct LpReplayUpdate Update;

/* What a value is a view of. */
static LpVal root(const LpGraph *u, LpVal v)
{
    const LpGraphNode *d = lp_graph_maker(u, v);
    while (d && lp_ipu_is_view(d)) {
        v = d->in[0];
        d = lp_graph_maker(u, v);
    }
    return v;
}

static void find_spans(const LpReplay *x, Update *t)
{
    for (int i = 0; i < x->p->n_ipus; i++)
        for (uint32_t k = 0; k < x->p->memory[i].n_span; k++) {
            const LpLiveSpan *s = &x->p->memory[i].span[k];
            if (s->update)
                (s->v ? &t->block[i][s->v] : &t->visit[i][s->var])[0] = k + 1;
        }
}

static void find_readers(const LpReplay *x, Update *t)
{
    const LpGraph *u = x->step->update;
    for (size_t i = 0; i < x->step->n_var; i++)
        if (x->step->var[i].update_in != LP_NOVAL)
            t->var[x->step->var[i].update_in] = (int)i + 1;
    for (LpNodeId n = 0; n < u->n_node; n++)
        for (uint32_t i = 0; i < u->node[n].n_in; i++) {
            LpVal v = u->node[n].in[i];
            v = lp_is_value(v) ? root(u, v) : LP_NOVAL;
            if (v && t->var[v])
                t->last[t->var[v] - 1] = n + 1;
        }
}

LpStatus lp_replay_set_up_update(LpReplay *x, LpErr *e)
{
    size_t ipus = (size_t)x->p->n_ipus, vars = x->step->n_var;
    size_t values = x->step->update->n_value;
    Update *t = x->up = lp_arena_calloc(&x->mem, sizeof *t);
    LP_FAIL_IF(!t, e, LP_E_MEMORY, "out of memory");
    t->block = lp_arena_calloc(&x->mem, ipus * sizeof *t->block);
    t->visit = lp_arena_calloc(&x->mem, ipus * sizeof *t->visit);
    t->var = lp_arena_calloc(&x->mem, values * sizeof *t->var);
    t->last = lp_arena_calloc(&x->mem, (vars + 1) * sizeof *t->last);
    t->wrote = lp_arena_calloc(&x->mem, (vars + 1) * sizeof *t->wrote);
    t->step = lp_arena_calloc(&x->mem, ipus * sizeof *t->step);
    bool ok = t->block && t->visit && t->var && t->last && t->wrote && t->step;
    for (size_t i = 0; i < ipus && ok; i++) {
        t->block[i] = lp_arena_calloc(&x->mem, values * sizeof **t->block);
        t->visit[i] = lp_arena_calloc(&x->mem, (vars + 1) * sizeof **t->visit);
        ok = t->block[i] && t->visit[i];
    }
    LP_FAIL_IF(!ok, e, LP_E_MEMORY, "out of memory");
    find_spans(x, t);
    find_readers(x, t);
    return LP_OK;
}

/* ---- reading ------------------------------------------------------------- */
static LpStatus dead_read(const LpReplay *x, LpVal v, int ipu, LpErr *e)
{
    const LpGraph *u = x->step->update;
    const LpGraphNode *d = lp_graph_maker(u, v);
    const char *what = d ? d->op->name : u->value[v].name;
    return lp_fail(e, LP_E_INTERNAL,
                   "the weight update reads value %%%u (%s) on IPU %d, where "
                   "%s",
                   (unsigned)v, what ? what : "an input", ipu,
                   x->lost.over    ? "it is written over"
                   : x->lost.freed ? "its memory is free again"
                                   : "it is not");
}

static bool is_at(const LpReplay *x, int ipu, uint32_t block)
{
    return x->ipu[ipu].block[block - 1].start <= x->ipu[ipu].now;
}

/* The memory of a variable on its IPU, to which it comes at its first use;
 * NULL: it has gone. An IPU that computes nothing only sends it. */
static void *variable(LpReplay *x, size_t i)
{
    int ipu = x->p->var_ipu[i];
    uint32_t block = x->up->visit[ipu][i];
    LpHolds what = {LP_NOVAL, (int)i, x->replica};
    bool idle = x->p->memory[ipu].n_step == x->ipu[ipu].line;
    const LpVariable *v = &x->step->var[i];
    if (!lp_ipu_off_chip(x->p, v) || lp_ipu_in_velocity(x->p, v) || idle)
        return lp_replay_here(x, i);
    if (block && !is_at(x, ipu, block))
        lp_block_put_now(x, ipu, block, what);
    return lp_block_get(x, ipu, block, what, false) ? lp_replay_here(x, i)
                                                    : NULL;
}

/* IPU of a value; `ipu`: all have it. */
static int home_of(const LpReplay *x, LpVal v, int ipu)
{
    LpNodeId n = lp_maker(x->step->update, v);
    int var = x->up->var[v] - 1;
    if (n != LP_NO_NODE)
        return x->p->update_ipu[n];
    return x->step->var[var].role == LP_VAR_HYPER ? ipu : x->p->var_ipu[var];
}

/* Is it the new value of a variable of the IPU, written there at once? -1. */
static int variable_made(const LpReplay *x, LpVal v, int ipu)
{
    for (size_t i = 0; i < x->step->n_var; i++)
        if (x->step->var[i].update_out == v && x->p->var_ipu[i] == ipu &&
            x->up->wrote[i])
            return (int)i;
    return -1;
}

/* On the IPU where it was made. */
static void *at_home(LpReplay *x, LpVal v, int ipu)
{
    int var = x->up->var[v] - 1;
    if (var >= 0) {
        x->lost.over =
            x->up->wrote[var] ? x->step->var[var].update_out : LP_NOVAL;
        return x->up->wrote[var] ? NULL : variable(x, (size_t)var);
    }
    if (x->up->block[ipu][v])
        return lp_block_get(x, ipu, x->up->block[ipu][v],
                            (LpHolds){v, -1, x->replica}, false);
    var = variable_made(x, v, ipu);
    return var < 0 ? NULL : variable(x, (size_t)var);
}

static size_t bytes_of(const LpReplay *x, LpVal v)
{
    return (size_t)lp_type_bytes(lp_graph_type(x->step->update, v));
}

static LpStatus look(LpReplay *x, LpVal v, int ipu, void **at, void **made,
                     LpErr *e)
{
    const LpGraph *u = x->step->update;
    const LpGraphNode *d = lp_graph_maker(u, v);
    *at = *made = NULL;
    if (d && lp_ipu_is_view(d)) {
        void *from, *of;
        LP_TRY(look(x, d->in[0], ipu, &from, &of, e));
        *at = *made = lp_alloc_aligned(bytes_of(x, v));
        LpStatus s = *at ? lp_node_kernels_run(&x->update, u->value[v].node,
                                               &from, at, &x->rc, e)
                         : lp_no_memory(e);
        lp_free(of);
        return s;
    }
    int home = home_of(x, v, ipu);
    uint32_t block = x->up->block[ipu][v];
    LpHolds what = {v, -1, x->replica};
    x->lost.freed = false;
    x->lost.over = LP_NOVAL;
    if (home == ipu) {
        *at = at_home(x, v, ipu);
    } else if (block && !is_at(x, ipu, block)) {
        const void *from = at_home(x, v, home);
        if (from)
            *at = memcpy(lp_block_put_now(x, ipu, block, what), from,
                         bytes_of(x, v));
    } else if (block) {
        *at = lp_block_get(x, ipu, block, what, false);
    }
    return *at ? LP_OK : dead_read(x, v, ipu, e);
}

/* ---- nodes --------------------------------------------------------------- */
/* Results have blocks, or lie in their variables. */
static LpStatus results(LpReplay *x, const LpGraphNode *d, int ipu, void **out,
                        LpErr *e)
{
    for (uint32_t k = 0; k < d->n_out; k++) {
        LpVal v = d->out + k;
        uint32_t block = x->up->block[ipu][v];
        if (block) {
            memcpy(
                lp_block_put_now(x, ipu, block, (LpHolds){v, -1, x->replica}),
                out[k], bytes_of(x, v));
            continue;
        }
        for (size_t i = 0; i < x->step->n_var; i++)
            if (x->step->var[i].update_out == v && x->p->var_ipu[i] == ipu) {
                void *to = variable(x, i);
                LP_FAIL_IF(!to, e, LP_E_INTERNAL,
                           "the weight update writes variable '%s' where it "
                           "has no memory",
                           x->step->var[i].name);
                memcpy(to, out[k], bytes_of(x, v));
                x->up->wrote[i] = true;
            }
    }
    return LP_OK;
}

static LpStatus compute(LpReplay *x, LpNodeId n, void **at, void **made,
                        LpErr *e)
{
    const LpGraphNode *d = &x->step->update->node[n];
    int ipu = x->p->update_ipu[n];
    for (uint32_t i = 0; i < d->n_in; i++)
        if (lp_is_value(d->in[i]))
            LP_TRY(look(x, d->in[i], ipu, &at[i], &made[i], e));
    for (uint32_t i = d->n_in; i < d->n_in + d->n_out; i++) {
        at[i] = made[i] = lp_alloc_aligned(bytes_of(x, d->out + i - d->n_in));
        LP_FAIL_IF(!at[i], e, LP_E_MEMORY, "out of memory");
    }
    LP_TRY(lp_node_kernels_run(&x->update, n, at, at + d->n_in, &x->rc, e));
    return lp_ipu_is_view(d) ? LP_OK : results(x, d, ipu, at + d->n_in, e);
}

/* New values whose places are free after node n. */
static LpStatus move_in(LpReplay *x, LpNodeId n, LpErr *e)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        LpVal v = x->step->var[i].update_out;
        LpNodeId m = lp_maker(x->step->update, v);
        if (m == LP_NO_NODE || x->up->wrote[i] || m > n ||
            x->up->last[i] > n + 1)
            continue;
        void *from, *made;
        LP_TRY(look(x, v, home_of(x, v, 0), &from, &made, e));
        memcpy(lp_replay_here(x, i), from, bytes_of(x, v));
        lp_free(made);
        x->up->wrote[i] = true;
    }
    return LP_OK;
}

static LpStatus run_node(LpReplay *x, LpNodeId n, LpErr *e)
{
    const LpGraphNode *d = &x->step->update->node[n];
    int ipu = x->p->update_ipu[n];
    uint32_t k = d->n_in + d->n_out;
    void **at = lp_calloc(2 * k, sizeof *at);
    LP_FAIL_IF(!at, e, LP_E_MEMORY, "out of memory");
    x->ipu[ipu].now = x->ipu[ipu].line + x->up->step[ipu]++;
    LpStatus s = compute(x, n, at, at + k, e);
    for (uint32_t i = 0; i < k; i++)
        lp_free(at[k + i]);
    lp_free(at);
    if (s == LP_OK)
        s = lp_replay_account(x, ipu, x->p->update_cost[n].cost, 0, e);
    return s == LP_OK ? move_in(x, n, e) : s;
}

/* Variables that are there from the first step, or were before. */
static void bring(LpReplay *x)
{
    for (size_t i = 0; i < x->step->n_var; i++) {
        int ipu = x->p->var_ipu[i];
        uint32_t block = x->up->visit[ipu][i];
        if (block &&
            (int64_t)x->p->memory[ipu].span[block - 1].from <= x->ipu[ipu].line)
            lp_block_put_now(x, ipu, block,
                             (LpHolds){LP_NOVAL, (int)i, x->replica});
    }
}

/* With the variables of replica r; the results are also those of the replicas
 * up to `to`. */
LpStatus lp_replay_update(LpReplay *x, int64_t r, int64_t to, LpErr *e)
{
    const LpStep *st = x->step;
    lp_replay_forget(x);
    x->turn = 0;
    x->updating = true;
    x->replica = r;
    for (int i = 0; i < x->p->n_ipus; i++) {
        x->ipu[i].now = x->ipu[i].line;
        x->up->step[i] = 0;
    }
    for (size_t i = 0; i < st->n_var; i++)
        x->up->wrote[i] = false;
    bring(x);
    for (LpNodeId n = 0; n < st->update->n_node; n++)
        LP_TRY(run_node(x, n, e));
    x->updating = false;
    for (size_t i = 0; i < st->n_var; i++)
        for (int64_t k = r + 1; x->up->wrote[i] && k <= to; k++)
            memcpy(lp_replay_var(x, i, k), lp_replay_var(x, i, r),
                   (size_t)lp_type_bytes(&st->var[i].type));
    return LP_OK;
}
