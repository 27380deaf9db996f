/* Mirrors of variables in the host's tensors. While they are marked their
 * storages are hooked, and the first that is touched pulls them all. Pages of
 * a mirror that nobody reads are given back meanwhile. */
#include "runtime/exec/sync.h"

#include <string.h>

#include "src/kernel/copy/copy.h"

enum { QUIET = 8 }; /* marks without a pull until pages go again */

typedef struct Mirror {
    size_t var;
    LpTensor *t; /* retained */
    bool gone;   /* its pages were given back */
} Mirror;

struct LpSync {
    LpExec *x;
    Mirror *mirror;
    size_t n, cap;
    int64_t pulls;
    int quiet; /* marks until pages may be given back */
    bool lend, marked;
};

LpStatus lp_sync_new(LpExec *x, bool lend, LpSync **out, LpErr *e)
{
    *out = lp_calloc(1, sizeof **out);
    LP_FAIL_IF(!*out, e, LP_E_MEMORY, "out of memory");
    (*out)->x = x;
    (*out)->lend = lend;
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
    for (size_t i = 0; i < s->n; i++) {
        s->mirror[i].t->st->flags &= ~(uint32_t)LP_ST_MIRRORED;
        lp_tensor_release(s->mirror[i].t);
    }
    s->n = 0;
}

/* Nobody else reads the mirror's bytes in place. */
static LpStatus claim(LpTensor *t, LpErr *e)
{
    if (t->st->flags & LP_ST_SHARED)
        LP_TRY(lp_tensor_touch(t, true, e));
    t->st->flags |= LP_ST_MIRRORED;
    return LP_OK;
}

LpStatus lp_sync_fits(const LpExec *x, size_t var, const LpTensor *t, LpErr *e)
{
    const LpStep *step = lp_exec_program(x)->step;
    const LpVariable *v = &step->var[var];
    LpType now = lp_tensor_type(t), want = lp_var_host_type(step, v);
    if (!lp_type_eq(&now, &want))
        return lp_fail_hint(
            e, LP_E_POPTORCH, "replaced",
            "%s '%s' is %s %s%s now, the model was compiled for %s %s",
            lp_var_role_name(v->role), v->name, lp_dtype_name(now.dtype),
            lp_shape_str(&now),
            lp_tensor_contiguous(t) ? "" : ", not contiguous,",
            lp_dtype_name(want.dtype), lp_shape_str(&want));
    return LP_OK;
}

/* By way of memory in which the elements lie densely. */
static LpStatus read_strided(const LpExec *x, size_t var, LpTensor *t, LpErr *e)
{
    LpTensor *dense = NULL;
    LpType type = lp_tensor_type(t);
    LP_TRY(lp_tensor_new(&type, &dense, e));
    LpStatus st = lp_exec_read_host(x, var, lp_tensor_data(dense), e);
    if (st == LP_OK) {
        LpDesc from = lp_desc_of(&type), to = from;
        memcpy(to.strides, t->strides, sizeof to.strides);
        lp_copy_strided(&from, lp_tensor_data(dense), &to, lp_tensor_data(t));
    }
    lp_tensor_release(dense);
    return st;
}

LpStatus lp_sync_read(const LpExec *x, size_t var, LpTensor *t, LpErr *e)
{
    if (lp_tensor_contiguous(t))
        LP_TRY(lp_exec_read_host(x, var, lp_tensor_data(t), e));
    else
        LP_TRY(read_strided(x, var, t, e));
    t->st->version++;
    return LP_OK;
}

LpStatus lp_sync_add(LpSync *s, size_t var, LpTensor *t, LpErr *e)
{
    LP_FAIL_IF(!LP_GROW(s->mirror, s->cap, s->n), e, LP_E_MEMORY,
               "out of memory");
    if (lp_exec_due(s->x, var))
        t->st->flags |= LP_ST_MIRRORED; /* the first run ends the sharing */
    else
        LP_TRY(claim(t, e));
    s->mirror[s->n++] = (Mirror){var, lp_tensor_retain(t), false};
    return LP_OK;
}

static LpStatus pull(void *ctx, LpStorage *st, bool will_write, LpErr *e)
{
    (void)st, (void)will_write;
    return lp_sync_pull(ctx, e);
}

LpStatus lp_sync_check(const LpSync *s, LpErr *e)
{
    for (size_t i = 0; i < s->n; i++)
        LP_TRY(lp_sync_fits(s->x, s->mirror[i].var, s->mirror[i].t, e));
    return LP_OK;
}

/* The host's values will not be seen before they are pulled. A script that
 * pulls them all the time keeps its pages. */
static void lend_pages(LpSync *s)
{
    if (!s->lend || (s->quiet > 0 && s->quiet--))
        return;
    for (size_t i = 0; i < s->n; i++) {
        Mirror *m = &s->mirror[i];
        LpStorage *st = m->t->st;
        if (!m->gone && m->t->offset == 0 && !st->release &&
            st->bytes ==
                (size_t)lp_tensor_numel(m->t) * lp_dtype_size(m->t->dtype))
            lp_forget(st->data, st->bytes);
        m->gone = true;
    }
}

LpStatus lp_sync_mark(LpSync *s, LpErr *e)
{
    for (size_t i = 0; i < s->n; i++)
        LP_TRY(claim(s->mirror[i].t, e));
    s->marked = true;
    for (size_t i = 0; i < s->n; i++) {
        LpStorage *st = s->mirror[i].t->st;
        st->hook = (LpStorageHook){.pull = pull, .ctx = s};
        st->flags |= LP_ST_HOOKED;
    }
    lend_pages(s);
    return LP_OK;
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
    s->quiet = QUIET;
    for (size_t i = 0; i < s->n; i++) {
        LpTensor *t = s->mirror[i].t;
        s->mirror[i].gone = false;
        if (lp_sync_fits(s->x, s->mirror[i].var, t, NULL) != LP_OK)
            continue;
        LP_TRY(claim(t, e));
        LP_TRY(lp_sync_read(s->x, s->mirror[i].var, t, e));
    }
    return LP_OK;
}

int64_t lp_sync_pulls(const LpSync *s)
{
    return s->pulls;
}
