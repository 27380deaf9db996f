/* Owning a step, its table of variables, and graphs taken out of it. */
#include "src/ir/step.h"

LpStep *lp_step_new(void)
{
    LpStep *s = lp_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->refs = 1;
    s->micro = lp_graph_new();
    s->device_iterations = s->gradient_accumulation = s->replicas = 1;
    s->mean_reduction = true;
    if (s->micro)
        return s;
    lp_free(s);
    return NULL;
}

LpStep *lp_step_retain(const LpStep *s)
{
    LpStep *own = (LpStep *)(uintptr_t)s; /* only its count changes */
    own->refs++;
    return own;
}

void lp_step_release(LpStep *s)
{
    if (!s || --s->refs > 0)
        return;
    lp_graph_free(s->micro);
    lp_graph_free(s->update);
    for (size_t i = 0; i < s->n_var; i++)
        lp_tensor_release(s->var[i].data);
    lp_free(s->var);
    lp_arena_fini(&s->names);
    lp_free(s);
}

int lp_step_add(LpStep *s, const LpVariable *v, LpErr *e)
{
    if (s->complete) {
        lp_fail(e, LP_E_RUNTIME, "variable '%s': the step is complete",
                v->name);
        return -1;
    }
    if (!LP_GROW(s->var, s->cap_var, s->n_var)) {
        lp_no_memory(e);
        return -1;
    }
    LpVariable *n = &s->var[s->n_var];
    *n = *v;
    n->name = lp_arena_strdup(&s->names, v->name);
    if (!n->name) {
        lp_no_memory(e);
        return -1;
    }
    if (n->data)
        lp_tensor_retain(n->data);
    return (int)s->n_var++;
}

static bool has_data(LpVarRole r)
{
    return r == LP_VAR_PARAM || r == LP_VAR_BUFFER || r == LP_VAR_CONST ||
           r == LP_VAR_STATE || r == LP_VAR_HYPER;
}

LpStatus lp_step_bind(LpStep *s, size_t var, LpTensor *data, LpErr *e)
{
    LpVariable *v = &s->var[var];
    LpType type = lp_tensor_type(data), want = lp_var_host_type(s, v);
    LP_FAIL_IF(!has_data(v->role) || v->data, e, LP_E_RUNTIME, "%s '%s' %s",
               lp_var_role_name(v->role), v->name,
               v->data ? "has its data already" : "has no data");
    LP_FAIL_IF(type.dtype != want.dtype || !lp_shape_eq(&type, &want), e,
               LP_E_VALUE, "%s '%s' is %s%s, its data are %s%s",
               lp_var_role_name(v->role), v->name, lp_dtype_name(want.dtype),
               lp_shape_str(&want), lp_dtype_name(type.dtype),
               lp_shape_str(&type));
    v->data = lp_tensor_retain(data);
    return LP_OK;
}

bool lp_var_carried(const LpVariable *v)
{
    return (v->role == LP_VAR_BUFFER || v->role == LP_VAR_PARAM) &&
           v->micro_out != LP_NOVAL;
}

LpGroup lp_var_group(const LpStep *s, const LpVariable *v)
{
    bool of =
        (v->role == LP_VAR_ACCUM || v->role == LP_VAR_STATE) && v->param >= 0;
    return of ? s->var[v->param].group : v->group;
}

/* A state without dimensions counts updates: alike in all groups, the host has
 * it once. */
static LpGroup host_group(const LpStep *s, const LpVariable *v)
{
    if (v->role == LP_VAR_STATE && v->type.ndim == 0)
        return (LpGroup){LP_GROUP_ALL};
    return lp_var_group(s, v);
}

LpType lp_var_host_type(const LpStep *s, const LpVariable *v)
{
    LpType t = v->type;
    LpGroup g = host_group(s, v);
    if (g.kind != LP_GROUP_ALL && t.ndim < LP_MAX_DIMS)
        lp_type_add_first(&t, lp_group_slices(g, s->replicas));
    return t;
}

size_t lp_var_host_slice(const LpStep *s, const LpVariable *v, int64_t replica)
{
    LpGroup g = host_group(s, v);
    if (g.kind == LP_GROUP_ALL)
        return 0;
    return (size_t)lp_group_slice(g, s->replicas, replica) *
           (size_t)lp_type_bytes(&v->type);
}

bool lp_var_shows_update(const LpStep *s, const LpVariable *v)
{
    return v->role == LP_VAR_STREAM_OUT && v->param >= 0 &&
           s->var[v->param].role != LP_VAR_STREAM_IN;
}

bool lp_step_grouped(const LpStep *s)
{
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].group.kind != LP_GROUP_ALL)
            return true;
    return false;
}

const char *lp_var_role_name(LpVarRole r)
{
    static const char *const names[LP_N_VAR_ROLES] = {
        [LP_VAR_PARAM] = "parameter",   [LP_VAR_BUFFER] = "buffer",
        [LP_VAR_ACCUM] = "accumulator", [LP_VAR_STATE] = "state",
        [LP_VAR_HYPER] = "hyper",       [LP_VAR_STREAM_IN] = "input",
        [LP_VAR_STREAM_OUT] = "output", [LP_VAR_CONST] = "constant",
    };
    return names[r];
}

const char *const lp_group_kind_names[] = {[LP_GROUP_ALL] = "all",
                                           [LP_GROUP_CONSECUTIVE] =
                                               "consecutive",
                                           [LP_GROUP_ORTHOGONAL] = "orthogonal",
                                           [LP_GROUP_NONE] = "none",
                                           [LP_N_GROUP_KINDS] = NULL};

/* ---- one graph ---------------------------------------------------------- */
static LpGraph **graph_at(LpStep *s, bool update)
{
    return update ? &s->update : &s->micro;
}

static LpStatus list_values(const LpStep *s, bool update, LpStepGraph *x,
                            LpErr *e)
{
    x->in = lp_calloc(s->n_var + 1, sizeof *x->in);
    x->out = lp_calloc(s->n_var + 1, sizeof *x->out);
    LP_FAIL_IF(!x->in || !x->out, e, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        x->in[i] = update ? v->update_in : v->micro_in;
        x->out[i] = update ? v->update_out : v->micro_out;
    }
    return LP_OK;
}

LpStatus lp_step_graph_copy(const LpStep *s, bool update, LpStepGraph *out,
                            LpErr *e)
{
    const LpGraph *g = update ? s->update : s->micro;
    *out = (LpStepGraph){0};
    LpStatus st = list_values(s, update, out, e);
    if (st == LP_OK && g) {
        out->g = lp_graph_clone(g, e);
        st = out->g ? LP_OK : LP_E_MEMORY;
    }
    if (st != LP_OK)
        lp_step_graph_fini(out);
    return st;
}

LpStatus lp_step_graph_take(LpStep *s, bool update, LpStepGraph *out, LpErr *e)
{
    *out = (LpStepGraph){0};
    LpStatus st = list_values(s, update, out, e);
    if (st != LP_OK) {
        lp_step_graph_fini(out);
        return st;
    }
    out->g = *graph_at(s, update);
    *graph_at(s, update) = NULL;
    return LP_OK;
}

void lp_step_graph_put(LpStep *s, bool update, LpStepGraph *x)
{
    *graph_at(s, update) = x->g;
    x->g = NULL;
    for (size_t i = 0; i < s->n_var; i++) {
        LpVariable *v = &s->var[i];
        *(update ? &v->update_in : &v->micro_in) = x->in[i];
        *(update ? &v->update_out : &v->micro_out) = x->out[i];
    }
    lp_step_graph_fini(x);
}

void lp_step_graph_fini(LpStepGraph *x)
{
    lp_graph_free(x->g);
    lp_free(x->in);
    lp_free(x->out);
    *x = (LpStepGraph){0};
}
