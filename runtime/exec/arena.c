/* One arena for many programs, of which one runs at a time: what they compute
 * in is as much as the largest of them needs. */
#include "runtime/exec/exec_impl.h"

size_t lp_exec_arena_bytes(const LpExec *x)
{
    uint64_t micro = x->p->micro.arena_bytes;
    uint64_t update = x->p->update.arena_bytes;
    return (size_t)(micro > update ? micro : update);
}

void lp_exec_move_arena(LpExec *x, void *to)
{
    x->lane[0].arena = to;
    for (size_t i = 0; i < x->n_var; i++)
        if (x->p->arena_grad && x->p->arena_grad[i])
            x->ptr[i] = to ? (char *)to + x->p->arena_grad[i] - 1 : NULL;
}

/* Of the first one's memory. */
static LpStatus begin(LpExec *x, LpErr *e)
{
    LpSharedArena *a = lp_calloc(1, sizeof *a);
    LP_FAIL_IF(!a, e, LP_E_MEMORY, "out of memory");
    a->refs = 1;
    a->p = x->lane[0].arena;
    a->bytes = lp_exec_take_block(x, a->p);
    x->shared = a;
    return LP_OK;
}

LpStatus lp_exec_share(LpExec *x, LpExec *with, LpErr *e)
{
    LP_FAIL_IF(x == with || x->shared || x->running || with->running ||
                   x->lanes > 1 || with->lanes > 1,
               e, LP_E_RUNTIME, "these executors cannot share an arena");
    if (!with->shared)
        LP_TRY(begin(with, e));
    void *own = x->lane[0].arena;
    lp_zeros_free(own, lp_exec_take_block(x, own));
    lp_exec_move_arena(x, NULL);
    x->shared = with->shared;
    x->shared->refs++;
    return LP_OK;
}

static LpStatus grow(LpSharedArena *a, size_t bytes, LpErr *e)
{
    lp_zeros_free(a->p, a->bytes);
    a->bytes = 0;
    a->p = lp_zeros(bytes);
    LP_FAIL_IF(!a->p, e, LP_E_MEMORY, "out of memory: %zu bytes for an arena",
               bytes);
    a->bytes = bytes;
    return LP_OK;
}

LpStatus lp_arena_enter(LpExec *x, LpErr *e)
{
    LpSharedArena *a = x->shared;
    if (!a)
        return LP_OK;
    LP_FAIL_IF(a->by, e, LP_E_RUNTIME,
               "an executor that shares this one's arena is running");
    if (!a->p || a->bytes < lp_exec_arena_bytes(x))
        LP_TRY(grow(a, lp_exec_arena_bytes(x), e));
    if (x->lane[0].arena != a->p)
        lp_exec_move_arena(x, a->p);
    a->by = x;
    return LP_OK;
}

void lp_arena_leave(LpExec *x)
{
    if (x->shared && x->shared->by == x)
        x->shared->by = NULL;
}

void lp_arena_release(LpSharedArena *a)
{
    if (!a || --a->refs > 0)
        return;
    lp_zeros_free(a->p, a->bytes);
    lp_free(a);
}
