/* Collectives as operators: all replicas have come as far as one, and then each
 * gets what it asks for. Numbers are taken in the order of replicas and rounded
 * to the dtype after each, as gradients' sums are. */
#include <string.h>

#include "runtime/exec/exec_impl.h"
#include "src/ops/collective.h"

/* ---- two numbers --------------------------------------------------------- */
static double of_floats(LpReductionKind how, double a, double b)
{
    switch (how) {
    case LP_REDUCE_MUL:
        return a * b;
    case LP_REDUCE_MIN:
        return b < a ? b : a;
    case LP_REDUCE_MAX:
        return b > a ? b : a;
    case LP_REDUCE_AND:
        return a != 0 && b != 0;
    case LP_REDUCE_OR:
        return a != 0 || b != 0;
    case LP_REDUCE_SQUARE_ADD:
        return a + b * b;
    default:
        return a + b;
    }
}

static int64_t of_ints(LpReductionKind how, int64_t a, int64_t b)
{
    switch (how) {
    case LP_REDUCE_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case LP_REDUCE_MIN:
        return b < a ? b : a;
    case LP_REDUCE_MAX:
        return b > a ? b : a;
    case LP_REDUCE_AND:
        return a != 0 && b != 0;
    case LP_REDUCE_OR:
        return a != 0 || b != 0;
    case LP_REDUCE_SQUARE_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b * (uint64_t)b);
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static void join(LpReductionKind how, LpDtype t, char *a, const char *b,
                 int64_t n)
{
    size_t size = lp_dtype_size(t);
    for (int64_t i = 0; i < n; i++, a += size, b += size) {
        LpScalar x = lp_scalar_load(t, a), y = lp_scalar_load(t, b);
        lp_scalar_store(lp_is_float(t) ? lp_float(of_floats(how, x.f, y.f))
                                       : lp_int(of_ints(how, x.i, y.i)),
                        t, a);
    }
}

static void divide(LpDtype t, char *a, int64_t by, int64_t n)
{
    size_t size = lp_dtype_size(t);
    for (int64_t i = 0; i < n; i++, a += size) {
        LpScalar x = lp_scalar_load(t, a);
        lp_scalar_store(lp_is_float(t) ? lp_float(x.f / (double)by)
                                       : lp_int(x.i / by),
                        t, a);
    }
}

/* ---- a group ------------------------------------------------------------- */
typedef struct Group {
    const LpMeet *m;
    char *const *in, *const *out; /* of all replicas */
    int64_t first;
} Group;

static int64_t member(const Group *g, int64_t i)
{
    return g->first + i * g->m->groups.stride;
}

/* What the group makes of n elements from `from` on. */
static void reduce(const Group *g, int64_t from, int64_t n, char *to)
{
    const LpMeet *m = g->m;
    size_t at = (size_t)from * lp_dtype_size(m->dtype);
    size_t bytes = (size_t)n * lp_dtype_size(m->dtype);
    bool squares = m->reduction == LP_REDUCE_SQUARE_ADD;
    bool sums = m->reduction == LP_REDUCE_ADD || m->reduction == LP_REDUCE_MEAN;
    if (squares)
        memset(to, 0, bytes);
    else
        memcpy(to, g->in[g->first] + at, bytes);
    for (int64_t i = squares ? 0 : 1; i < m->groups.size; i++) {
        char *next = g->in[member(g, i)] + at;
        if (sums)
            lp_sum_buffers(m->dtype, (void *[]){to, next}, 2, 1, n, NULL);
        else
            join(m->reduction, m->dtype, to, next, n);
    }
    if (m->reduction == LP_REDUCE_MEAN)
        divide(m->dtype, to, m->groups.size, n);
}

static void all_reduce(const Group *g)
{
    size_t bytes = (size_t)g->m->n * lp_dtype_size(g->m->dtype);
    bool local = g->m->reduction == LP_REDUCE_LOCAL;
    if (!local)
        reduce(g, 0, g->m->n, g->out[g->first]);
    for (int64_t i = local ? 0 : 1; i < g->m->groups.size; i++)
        memcpy(g->out[member(g, i)],
               local ? g->in[member(g, i)] : g->out[g->first], bytes);
}

/* Each its share; zeros fill up the last ones. */
static void reduce_scatter(const Group *g)
{
    const LpMeet *m = g->m;
    size_t size = lp_dtype_size(m->dtype);
    for (int64_t i = 0; i < m->groups.size; i++) {
        int64_t from = i * m->n_out, r = member(g, i);
        int64_t n = m->n - from < m->n_out ? m->n - from : m->n_out;
        n = n > 0 ? n : 0;
        if (n > 0 && m->reduction == LP_REDUCE_LOCAL)
            memcpy(g->out[r], g->in[r] + (size_t)from * size, (size_t)n * size);
        else if (n > 0)
            reduce(g, from, n, g->out[r]);
        memset(g->out[r] + (size_t)n * size, 0, (size_t)(m->n_out - n) * size);
    }
}

static void all_gather(const Group *g)
{
    size_t bytes = (size_t)g->m->n * lp_dtype_size(g->m->dtype);
    for (int64_t i = 0; i < g->m->groups.size; i++)
        for (int64_t k = 0; k < g->m->groups.size; k++)
            memcpy(g->out[member(g, i)] + (size_t)k * bytes,
                   g->in[member(g, k)], bytes);
}

/* ---- a meeting ----------------------------------------------------------- */
static LpStatus pack(LpExec *x, const LpInstr *at, int64_t r,
                     const LpRunCtx *rc, LpErr *e)
{
    const LpMeet *m = lp_meet_of(at->kernel);
    LpFrame f = {.arg = lp_exec_at(x, r, 0), .arena = x->lane[r].arena};
    void *in = lp_ref_at(&f, &at->in[0]), *to = x->packed[r];
    x->meet_out[r] = lp_ref_at(&f, &at->out[0]);
    return m->pack.run(&m->pack, &in, &to, x->lane[r].work, rc, e);
}

LpStatus lp_exec_meet(LpExec *x, const LpInstr *at, const LpRunCtx *rc,
                      LpErr *e)
{
    const LpMeet *m = lp_meet_of(at->kernel);
    for (int64_t r = 0; r < x->replicas; r++)
        LP_TRY(pack(x, at, r, rc, e));
    Group g = {.m = m, .in = x->packed, .out = x->meet_out};
    for (int64_t i = 0; i < m->groups.replicas / m->groups.size; i++) {
        g.first = lp_groups_first(m->groups, i);
        if (m->kind == LP_COLL_ALL_REDUCE)
            all_reduce(&g);
        else if (m->kind == LP_COLL_REDUCE_SCATTER)
            reduce_scatter(&g);
        else
            all_gather(&g);
    }
    return LP_OK;
}

bool lp_exec_is_meeting(const LpInstr *in)
{
    return in->op && lp_is_collective(in->op) &&
           lp_meet_of(in->kernel)->groups.size > 1;
}

/* ---- before the first run ------------------------------------------------ */
static LpStatus check(const LpExec *x, const LpMeet *m, LpErr *e)
{
    LP_FAIL_IF(m->groups.replicas != x->p->topology.replicas, e, LP_E_VALUE,
               "a collective between %lld replicas is in a program of %lld",
               (long long)m->groups.replicas,
               (long long)x->p->topology.replicas);
    LP_FAIL_IF(x->comm->size > 1, e, LP_E_NOT_IMPLEMENTED,
               "collectives between replicas of several processes, as "
               "operators, are not there");
    for (size_t i = 0; i < x->n_var; i++) {
        const LpVariable *v = &x->p->step->var[i];
        LP_FAIL_IF(v->role == LP_VAR_PARAM && lp_var_carried(v), e,
                   LP_E_NOT_IMPLEMENTED,
                   "micro-batches write the parameter '%s', which replicas "
                   "that meet in a collective cannot do one after another",
                   v->name);
    }
    return LP_OK;
}

LpStatus lp_exec_find_meetings(LpExec *x, size_t *bytes, LpErr *e)
{
    const LpCode *c = &x->p->micro;
    *bytes = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!lp_exec_is_meeting(&c->instr[i]))
            continue;
        const LpMeet *m = lp_meet_of(c->instr[i].kernel);
        LP_TRY(check(x, m, e));
        size_t own = (size_t)m->n * lp_dtype_size(m->dtype);
        *bytes = own > *bytes ? own : *bytes;
        x->meets = true;
    }
    return LP_OK;
}
