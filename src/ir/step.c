/* Owning a step and its table of variables. */
#include "src/ir/step.h"

LpStep *lp_step_new(void)
{
    LpStep *s = lp_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->micro = lp_graph_new();
    s->device_iterations = s->gradient_accumulation = s->replicas = 1;
    s->mean_reduction = true;
    if (s->micro)
        return s;
    lp_free(s);
    return NULL;
}

void lp_step_free(LpStep *s)
{
    if (!s)
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
    if (!LP_GROW(s->var, s->cap_var, s->n_var)) {
        lp_fail(e, LP_E_MEMORY, "out of memory");
        return -1;
    }
    LpVariable *n = &s->var[s->n_var];
    *n = *v;
    n->name = lp_arena_strdup(&s->names, v->name);
    if (!n->name) {
        lp_fail(e, LP_E_MEMORY, "out of memory");
        return -1;
    }
    if (n->data)
        lp_tensor_retain(n->data);
    return (int)s->n_var++;
}

bool lp_var_carried(const LpVariable *v)
{
    return (v->role == LP_VAR_BUFFER || v->role == LP_VAR_PARAM) &&
           v->micro_out != LP_NOVAL;
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
