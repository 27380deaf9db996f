/* The verifier of a step: that its table of variables is the signature of its
 * two graphs.
 *
 *   - every input of a graph is read by exactly one variable, every output is
 *     written by one, in the order of the table
 *   - a variable's type is that of the values it reads and writes, and of its
 *     data
 *   - its role allows what it reads and writes; links lead where they may: to a
 *     parameter, or from outputs to an input stream or what the update writes
 *   - nodes that round have a site if the step's numerics are stochastic, and
 *     only then (random operators have theirs always)
 *
 * What runs a program copies bytes between variables and values by these types
 * alone: a wrong one is memory overwritten. Linear in variables and inputs, so
 * that every step can be checked. */
#include "src/ir/step.h"

#include "src/base/checked.h"

enum { MICRO_IN = 1, MICRO_OUT = 2, UPDATE_IN = 4, UPDATE_OUT = 8 };

typedef struct RoleRule {
    unsigned may, must; /* of the above */
    bool data;          /* may have a tensor: a step read from text has none */
} RoleRule;

static const RoleRule rules[LP_N_VAR_ROLES] = {
    [LP_VAR_PARAM] = {MICRO_IN | MICRO_OUT | UPDATE_IN | UPDATE_OUT, 0, true},
    [LP_VAR_BUFFER] = {MICRO_IN | MICRO_OUT, 0, true},
    [LP_VAR_ACCUM] = {MICRO_IN | MICRO_OUT | UPDATE_IN, MICRO_OUT, false},
    [LP_VAR_STATE] = {MICRO_IN | UPDATE_IN | UPDATE_OUT, 0, true},
    [LP_VAR_HYPER] = {MICRO_IN | UPDATE_IN, 0, true},
    [LP_VAR_STREAM_IN] = {MICRO_IN, 0, false},
    [LP_VAR_STREAM_OUT] = {MICRO_OUT, MICRO_OUT, false},
    [LP_VAR_CONST] = {MICRO_IN, 0, true},
};

#define BAD(...) return lp_fail(e, LP_E_INTERNAL, __VA_ARGS__)
/* What is wrong with variable v. */
#define BAD_VAR(v, fmt, ...)                                                   \
    BAD("step is not valid: %s '%s' " fmt, lp_var_role_name((v)->role),        \
        (v)->name, __VA_ARGS__)

static LpStatus same_type(const LpVariable *v, const LpType *t,
                          const char *what, LpErr *e)
{
    if (!lp_type_eq(t, &v->type))
        BAD_VAR(v, "is %s%s, but %s is %s%s", lp_dtype_name(v->type.dtype),
                lp_shape_str(&v->type), what, lp_dtype_name(t->dtype),
                lp_shape_str(t));
    return LP_OK;
}

/* ---- one variable -------------------------------------------------------- */
static LpStatus check_group(const LpStep *s, const LpVariable *v, LpErr *e)
{
    LpGroup g = v->group;
    if (g.kind == LP_GROUP_ALL)
        return LP_OK;
    if (v->role != LP_VAR_PARAM || (unsigned)g.kind >= LP_N_GROUP_KINDS)
        BAD_VAR(v, "has a replica group of kind %d", (int)g.kind);
    if (g.kind != LP_GROUP_NONE && (g.size < 1 || s->replicas % g.size != 0))
        BAD_VAR(v, "has groups of %lld replicas, of which there are %lld",
                (long long)g.size, (long long)s->replicas);
    return LP_OK;
}

static LpStatus check_role(const LpVariable *v, LpErr *e)
{
    if ((unsigned)v->role >= LP_N_VAR_ROLES)
        BAD("step is not valid: variable '%s' has no role", v->name);
    const RoleRule *r = &rules[v->role];
    unsigned has = (v->micro_in != LP_NOVAL ? MICRO_IN : 0) |
                   (v->micro_out != LP_NOVAL ? MICRO_OUT : 0) |
                   (v->update_in != LP_NOVAL ? UPDATE_IN : 0) |
                   (v->update_out != LP_NOVAL ? UPDATE_OUT : 0);
    static const char *const names[] = {
        "input of the micro graph", "output of the micro graph",
        "input of the update graph", "output of the update graph"};
    for (int i = 0; i < 4; i++) {
        if (has & ~r->may & 1u << i)
            BAD_VAR(v, "may not be an %s", names[i]);
        if (r->must & ~has & 1u << i)
            BAD_VAR(v, "is no %s", names[i]);
    }
    if (v->data && !r->data)
        BAD_VAR(v, "%s", "has a tensor");
    return LP_OK;
}

/* Its group is known: links are right. */
static LpStatus check_data(const LpStep *s, const LpVariable *v, LpErr *e)
{
    if (!v->data)
        return LP_OK;
    LpType held = lp_tensor_type(v->data), want = lp_var_host_type(s, v);
    if (!lp_type_eq(&held, &want))
        BAD_VAR(v, "has a tensor of %s%s, not %s%s", lp_dtype_name(held.dtype),
                lp_shape_str(&held), lp_dtype_name(want.dtype),
                lp_shape_str(&want));
    return LP_OK;
}

/* Accumulators and optimizer state belong to a parameter, or to the step; an
 * output that is a written input names that. */
static LpStatus check_link(const LpStep *s, const LpVariable *v, LpErr *e)
{
    bool known = v->param >= 0 && (size_t)v->param < s->n_var;
    const LpVariable *p = known ? &s->var[v->param] : NULL;
    bool out = v->role == LP_VAR_STREAM_OUT;
    LpVarRole want = out ? LP_VAR_STREAM_IN : LP_VAR_PARAM;
    if (!p && v->param != -1)
        BAD_VAR(v, "belongs to variable %d of %zu", v->param, s->n_var);
    if (p && p->role != want && !(out && p->update_out != LP_NOVAL))
        BAD_VAR(v, "belongs to %s '%s'", lp_var_role_name(p->role), p->name);
    if (out && p && p->role != LP_VAR_STREAM_IN)
        return same_type(v, &p->type, "the variable that it shows", e);
    if (v->role != LP_VAR_ACCUM)
        return LP_OK;
    LpType t = p ? p->type : v->type;
    t.dtype = v->type.dtype; /* it may be wider or narrower */
    LP_TRY(same_type(v, &t, "its parameter", e));
    bool many = s->gradient_accumulation > 1;
    if (many && v->micro_in == LP_NOVAL)
        BAD_VAR(v, "is not read by micro-batches, of which there are %lld",
                (long long)s->gradient_accumulation);
    return LP_OK;
}

/* ---- one graph ----------------------------------------------------------- */
typedef struct Side {
    const LpGraph *g; /* NULL: inference has no update graph */
    bool update;
    bool *read;           /* per input: some variable does */
    size_t n_read, n_out; /* of inputs and outputs found so far */
} Side;

static LpStatus check_value(const Side *d, const LpVariable *v, LpVal x,
                            const char *what, LpErr *e)
{
    if (!d->g || lp_is_imm(x) || x >= d->g->n_value)
        BAD_VAR(v, "has %s %u of the %s graph, which does not exist", what,
                x & ~LP_VAL_IMM, d->update ? "update" : "micro");
    return same_type(v, lp_graph_type(d->g, x), "its value", e);
}

static LpStatus check_side(Side *d, const LpVariable *v, LpErr *e)
{
    LpVal in = d->update ? v->update_in : v->micro_in;
    LpVal out = d->update ? v->update_out : v->micro_out;
    if (in != LP_NOVAL) {
        LP_TRY(check_value(d, v, in, "input", e));
        const LpValue *x = &d->g->value[in];
        if (x->node != LP_NO_NODE)
            BAD_VAR(v, "reads value %u, which is no input", in);
        if (d->read[x->nr])
            BAD_VAR(v, "reads input %u, as another does", x->nr);
        d->read[x->nr] = true;
        d->n_read++;
    }
    if (out == LP_NOVAL)
        return LP_OK;
    LP_TRY(check_value(d, v, out, "output", e));
    if (d->n_out >= d->g->n_output || d->g->output[d->n_out] != out)
        BAD_VAR(v, "writes value %u, which is not output %zu", out, d->n_out);
    d->n_out++;
    return LP_OK;
}

static LpStatus check_graph(const LpStep *s, bool update, LpErr *e)
{
    const LpGraph *g = update ? s->update : s->micro;
    Side d = {.g = g, .update = update};
    if (g && g->host)
        BAD("step is not valid: the %s graph is one of the host's",
            update ? "update" : "micro");
    d.read = lp_calloc(g ? g->n_input : 0, sizeof *d.read);
    LP_FAIL_IF(!d.read, e, LP_E_MEMORY, "out of memory");
    LpStatus st = LP_OK;
    for (size_t i = 0; i < s->n_var && st == LP_OK; i++)
        st = check_side(&d, &s->var[i], e);
    lp_free(d.read);
    LP_TRY(st);
    if (g && (d.n_read != g->n_input || d.n_out != g->n_output))
        BAD("step is not valid: variables read %zu of %zu inputs and write "
            "%zu of %zu outputs of the %s graph",
            d.n_read, g->n_input, d.n_out, g->n_output,
            update ? "update" : "micro");
    return LP_OK;
}

static LpStatus check_sites(const LpStep *s, const LpGraph *g, LpErr *e)
{
    bool wanted = s->numerics.stochastic;
    for (size_t i = 0; g && i < g->n_node; i++) {
        const LpGraphNode *n = &g->node[i];
        int at = 0;
        for (const LpGraph *body; (body = lp_node_body(n, &at));)
            LP_TRY(check_sites(s, body, e));
        if (n->op->flags & LP_OPF_RANDOM || !lp_node_rounds(g, n) ||
            wanted == (n->site != 0))
            continue;
        BAD("step is not valid: node %zu (%s) has %s site to round at, but the "
            "step %s at random",
            i, n->op->name, wanted ? "no" : "a",
            wanted ? "rounds" : "does not round");
    }
    return LP_OK;
}

LpStatus lp_step_check_loops(const LpStep *s, LpErr *e)
{
    int64_t n = s->device_iterations, all = 0, bytes;
    LP_FAIL_IF(n < 1 || s->gradient_accumulation < 1 || s->replicas < 1 ||
                   s->replicas > UINT32_MAX || /* LpRunCtx's */
                   !lp_mul_i64(n, s->gradient_accumulation, &all) ||
                   !lp_mul_i64(all, s->replicas, &all),
               e, LP_E_VALUE,
               "device iterations, gradient accumulation and replicas must be "
               "at least 1 and their product countable, got %lld, %lld and "
               "%lld",
               (long long)n, (long long)s->gradient_accumulation,
               (long long)s->replicas);
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        bytes = lp_type_bytes(&v->type);
        LP_FAIL_IF(
            (v->role == LP_VAR_STREAM_IN || v->role == LP_VAR_STREAM_OUT) &&
                !lp_mul_i64(bytes, all, &bytes),
            e, LP_E_OVERFLOW, "'%s' over %lld micro-batches has too many bytes",
            v->name, (long long)all);
    }
    return LP_OK;
}

LpStatus lp_step_verify(const LpStep *s, LpErr *e)
{
    if (!s->micro)
        BAD("step is not valid: it has no micro graph");
    LP_TRY(lp_step_check_loops(s, e));
    for (size_t i = 0; i < s->n_var; i++) {
        LP_TRY(check_group(s, &s->var[i], e));
        LP_TRY(check_role(&s->var[i], e));
        LP_TRY(check_link(s, &s->var[i], e));
        LP_TRY(check_data(s, &s->var[i], e));
    }
    LP_TRY(check_graph(s, false, e));
    LP_TRY(check_graph(s, true, e));
    LP_TRY(check_sites(s, s->micro, e));
    return check_sites(s, s->update, e);
}
