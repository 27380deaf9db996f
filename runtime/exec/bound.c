/* Variables that lie in tensors of the host: of a program that runs where the
 * host's tensors are, there is one copy of each, whoever else reads or writes
 * it and however many programs there are. A run asks where the tensors lie, and
 * what others have to say of them (LP_ST_HOOKED) is said then. */
#include "runtime/exec/exec_impl.h"
#include "runtime/exec/sync.h"

static LpBound *find(const LpExec *x, size_t var)
{
    for (size_t i = 0; i < x->n_bound; i++)
        if (x->bound[i].var == var)
            return &x->bound[i];
    return NULL;
}

bool lp_exec_is_bound(const LpExec *x, size_t var)
{
    return find(x, var) != NULL;
}

static LpStatus fits(const LpExec *x, size_t var, const LpTensor *t, LpErr *e)
{
    LP_TRY(lp_sync_fits(x, var, t, e));
    LP_FAIL_IF(!lp_tensor_contiguous(t), e, LP_E_RUNTIME,
               "'%s' cannot be bound to a tensor that is not contiguous",
               x->p->step->var[var].name);
    return LP_OK;
}

static LpStatus check(const LpExec *x, size_t var, LpErr *e)
{
    const LpVariable *v = &x->p->step->var[var];
    bool held = !lp_is_stream(v) && v->role != LP_VAR_CONST &&
                !(x->p->arena_grad && x->p->arena_grad[var]);
    LP_FAIL_IF(!held || x->p->step->replicas > 1 || x->running ||
                   lp_program_weight_layout(x->p, var),
               e, LP_E_RUNTIME, "the %s '%s' cannot be bound to a tensor",
               lp_var_role_name(v->role), v->name);
    return LP_OK;
}

/* Who gives an accumulator memory sees to it that it starts at zero. */
static void leave_as_is(LpExec *x, size_t var)
{
    size_t n = 0;
    for (size_t k = 0; k < x->n_sum; k++)
        if (x->sum[k] != var)
            x->sum[n++] = x->sum[k];
    x->n_sum = n;
}

LpStatus lp_exec_bind(LpExec *x, size_t var, LpTensor *t, LpErr *e)
{
    const LpVariable *v = &x->p->step->var[var];
    LP_TRY(check(x, var, e));
    LP_TRY(fits(x, var, t, e));
    LpBound *b = find(x, var);
    if (!b) {
        LP_FAIL_IF(!LP_GROW(x->bound, x->cap_bound, x->n_bound), e, LP_E_MEMORY,
                   "out of memory");
        LP_TRY(lp_exec_disown(x, var, e));
        leave_as_is(x, var);
        b = &x->bound[x->n_bound++];
        *b = (LpBound){.var = (uint32_t)var};
        b->written = v->micro_out != LP_NOVAL || v->update_out != LP_NOVAL;
    }
    lp_tensor_retain(t);
    lp_tensor_release(b->t);
    b->t = t;
    *lp_exec_at(x, 0, var) = lp_tensor_data(t);
    return LP_OK;
}

bool lp_exec_bound(const LpExec *x)
{
    for (size_t i = 0; i < x->n_bound; i++)
        if (fits(x, x->bound[i].var, x->bound[i].t, NULL) != LP_OK)
            return false;
    return true;
}

/* Packed copies of the variable are to be made again. */
static void stale(LpExec *x, size_t var)
{
    for (size_t i = 0; i < x->p->n_packed; i++)
        if (x->p->packed[i].var == var)
            x->fresh[i] = false;
}

LpStatus lp_bound_enter(LpExec *x, LpErr *e)
{
    for (size_t i = 0; i < x->n_bound; i++) {
        const LpBound *b = &x->bound[i];
        LP_TRY(fits(x, b->var, b->t, e));
        LP_TRY(lp_tensor_touch(b->t, b->written, e));
        *lp_exec_at(x, 0, b->var) = lp_tensor_data(b->t);
        stale(x, b->var);
    }
    return LP_OK;
}

void lp_bound_leave(LpExec *x)
{
    for (size_t i = 0; i < x->n_bound; i++)
        if (x->bound[i].written)
            x->bound[i].t->st->version++;
}

void lp_bound_free(LpExec *x)
{
    for (size_t i = 0; i < x->n_bound; i++)
        lp_tensor_release(x->bound[i].t);
    lp_free(x->bound);
}
