#include "runtime/exec/sync.h"

typedef struct Mirror {
    size_t var;
    LpTensor *t; /* retained */
} Mirror;

struct LpSync {
    LpExec *x;
    Mirror *mirror;
    size_t n, cap;
    int64_t pulls;
    bool marked;
};

LpStatus lp_sync_new(LpExec *x, LpSync **out, LpErr *e)
{
    *out = lp_calloc(1, sizeof **out);
    LP_FAIL_IF(!*out, e, LP_E_MEMORY, "out of memory");
    (*out)->x = x;
    return LP_OK;
}

void lp_sync_free(LpSync *s)
{
    if (!s)
        return;
    lp_sync_drop(s);
    lp_free(s->mirror);
    lp_free(s);
}

void lp_sync_drop(LpSync *s)
{
    lp_sync_clear(s);
    for (size_t i = 0; i < s->n; i++)
        lp_tensor_release(s->mirror[i].t);
    s->n = 0;
}

LpStatus lp_sync_add(LpSync *s, size_t var, LpTensor *t, LpErr *e)
{
    LP_FAIL_IF(!LP_GROW(s->mirror, s->cap, s->n), e, LP_E_MEMORY,
               "out of memory");
    s->mirror[s->n++] = (Mirror){var, lp_tensor_retain(t)};
    return LP_OK;
}

static LpStatus pull(void *ctx, LpStorage *st, bool will_write, LpErr *e)
{
    (void)st, (void)will_write;
    return lp_sync_pull(ctx, e);
}

static bool fits(const LpSync *s, const Mirror *m)
{
    LpType type = lp_tensor_type(m->t);
    return lp_type_eq(&type, &lp_exec_program(s->x)->step->var[m->var].type) &&
           lp_tensor_contiguous(m->t);
}

LpStatus lp_sync_check(const LpSync *s, LpErr *e)
{
    char a[LP_SHAPE_STR], b[LP_SHAPE_STR];
    for (size_t i = 0; i < s->n; i++) {
        const Mirror *m = &s->mirror[i];
        const LpVariable *v = &lp_exec_program(s->x)->step->var[m->var];
        LpType now = lp_tensor_type(m->t);
        LP_FAIL_IF(!fits(s, m), e, LP_E_POPTORCH,
                   "%s '%s' is %s %s now, the model was compiled for %s %s: "
                   "destroy() it or wrap the module again",
                   lp_var_role_name(v->role), v->name, lp_dtype_name(now.dtype),
                   lp_shape_str(&now, a), lp_dtype_name(v->type.dtype),
                   lp_shape_str(&v->type, b));
    }
    return LP_OK;
}

void lp_sync_mark(LpSync *s)
{
    s->marked = true;
    for (size_t i = 0; i < s->n; i++) {
        LpStorage *st = s->mirror[i].t->st;
        st->hook = (LpStorageHook){.pull = pull, .ctx = s};
        st->flags |= LP_ST_HOOKED;
    }
}

void lp_sync_clear(LpSync *s)
{
    s->marked = false;
    for (size_t i = 0; i < s->n; i++) {
        LpStorage *st = s->mirror[i].t->st;
        if (st->hook.ctx == s)
            st->flags &= ~(uint32_t)LP_ST_HOOKED;
    }
}

bool lp_sync_marked(const LpSync *s)
{
    return s->marked;
}

LpStatus lp_sync_pull(LpSync *s, LpErr *e)
{
    lp_sync_clear(s);
    s->pulls++;
    for (size_t i = 0; i < s->n; i++) {
        LpTensor *t = s->mirror[i].t;
        if (!fits(s, &s->mirror[i]))
            continue;
        LP_TRY(lp_exec_read(s->x, s->mirror[i].var, 0, lp_tensor_data(t), e));
        t->st->version++;
    }
    return LP_OK;
}

int64_t lp_sync_pulls(const LpSync *s)
{
    return s->pulls;
}
