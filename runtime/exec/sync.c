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
    lp_sync_clear(s);
    for (size_t i = 0; i < s->n; i++)
        lp_tensor_release(s->mirror[i].t);
    lp_free(s->mirror);
    lp_free(s);
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
    (void)st, (void)will_write, (void)e;
    lp_sync_pull(ctx);
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

void lp_sync_pull(LpSync *s)
{
    lp_sync_clear(s);
    s->pulls++;
    for (size_t i = 0; i < s->n; i++) {
        LpTensor *t = s->mirror[i].t;
        lp_exec_read(s->x, s->mirror[i].var, 0, lp_tensor_data(t));
        t->st->version++;
    }
}

int64_t lp_sync_pulls(const LpSync *s)
{
    return s->pulls;
}
