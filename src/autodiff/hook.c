/* Gradient hooks. A non-leaf's hooks stand with the node that made it (an
 * in-place operation gives the tensor another node, and the hooks stay with
 * the value that they were registered for); a leaf's with its meta. A hook is
 * counted: by its list and by the handle that its caller got. A removed hook
 * stays in the list, dead, while lists are being walked. */
#include "src/autodiff/meta.h"
#include "src/base/mem.h"

static int walking; /* lists being walked: dead hooks keep their place */

static void kill(LpHook *h)
{
    if (h->fn && h->release)
        h->release(h->ctx);
    h->fn = NULL;
}

void lp_hook_release(LpHook *h)
{
    if (!h || --h->refs > 0)
        return;
    kill(h);
    lp_free(h);
}

bool lp_hooked(const LpTensor *t)
{
    const LpHook *h = t->meta ? t->meta->hook : NULL;
    while (h && !h->fn)
        h = h->next;
    return h != NULL;
}

void lp_hook_remove(LpHook *h)
{
    if (h)
        kill(h);
}

void lp_hooks_drop(LpHook **list)
{
    while (*list) {
        LpHook *h = *list;
        *list = h->next;
        h->next = NULL;
        kill(h);
        lp_hook_release(h);
    }
}

/* The place behind the last hook. */
static LpHook **end_of(LpHook **list)
{
    while (*list) {
        LpHook *h = *list;
        if (h->fn || walking) {
            list = &h->next;
            continue;
        }
        *list = h->next;
        lp_hook_release(h);
    }
    return list;
}

static LpStatus list_of(LpTensor *t, bool after, LpHook ***list, uint32_t *nr,
                        LpErr *e)
{
    LpEdge edge;
    LP_FAIL_IF(t->st->flags & LP_ST_TRACED, e, LP_E_RUNTIME,
               "hooks cannot be registered on a traced tensor: a compiled "
               "program does not call them");
    LP_TRY(lp_edge_of(t, &edge, e));
    LP_FAIL_IF(!edge.node && !edge.leaf, e, LP_E_RUNTIME,
               "a hook cannot be registered on a tensor that does not require "
               "a gradient");
    LP_FAIL_IF(after && edge.node, e, LP_E_RUNTIME,
               "a hook after accumulation can only be registered on a leaf");
    if (edge.leaf && !lp_meta(t, e))
        return LP_E_MEMORY;
    *list = edge.node ? &edge.node->hook : &t->meta->hook;
    *nr = edge.out_nr;
    return LP_OK;
}

/* A copy of `like` behind the last of the list. */
static LpStatus append(LpHook **list, LpHook like, LpHook **out, LpErr *e)
{
    LpHook *h = lp_calloc(1, sizeof *h);
    LP_FAIL_IF(!h, e, LP_E_MEMORY, "out of memory");
    *h = like;
    *end_of(list) = *out = h;
    return LP_OK;
}

LpStatus lp_hook_add(LpTensor *t, bool after, LpHookFn fn,
                     void (*release)(void *ctx), void *ctx, LpHook **handle,
                     LpErr *e)
{
    LpHook **list = NULL, like = {.refs = 2,
                                  .after = after,
                                  .fn = fn,
                                  .release = release,
                                  .ctx = ctx};
    LP_TRY(list_of(t, after, &list, &like.out_nr, e));
    return append(list, like, handle, e);
}

/* Never called: no result has its number. */
static LpStatus nothing(void *ctx, LpTensor *grad, LpTensor **out, LpErr *e)
{
    (void)ctx, (void)grad, (void)out, (void)e;
    return LP_OK;
}

LpStatus lp_hooks_keep(LpHook **list, void (*release)(void *ctx), void *ctx,
                       LpErr *e)
{
    LpHook *h;
    return append(list,
                  (LpHook){.refs = 1,
                           .out_nr = UINT32_MAX,
                           .fn = nothing,
                           .release = release,
                           .ctx = ctx},
                  &h, e);
}

static LpStatus check_new(const LpTensor *was, const LpTensor *now, LpErr *e)
{
    LpType a = lp_tensor_type(was), b = lp_tensor_type(now);
    LP_FAIL_IF(!lp_type_eq(&a, &b), e, LP_E_RUNTIME,
               "a gradient hook must return a gradient of the same type and "
               "shape: it was given %s %s and returned %s %s",
               lp_dtype_name(a.dtype), lp_shape_str(&a), lp_dtype_name(b.dtype),
               lp_shape_str(&b));
    return LP_OK;
}

static LpStatus run_one(LpHook *h, LpTensor **grad, LpErr *e)
{
    LpTensor *now = NULL;
    LpStatus s = h->fn(h->ctx, *grad, &now, e);
    if (s == LP_OK && now && !h->after)
        s = check_new(*grad, now, e);
    if (s != LP_OK || !now || h->after) {
        lp_tensor_release(now);
        return s;
    }
    lp_tensor_release(*grad);
    *grad = now;
    return LP_OK;
}

LpStatus lp_hooks_run(LpHook *list, bool after, uint32_t out_nr,
                      LpTensor **grad, LpErr *e)
{
    LpStatus s = LP_OK;
    walking++;
    for (LpHook *h = list, *next; h && s == LP_OK; h = next) {
        h->refs++; /* it may remove itself, or run a pass that drops its node */
        if (h->fn && h->after == after && h->out_nr == out_nr)
            s = run_one(h, grad, e);
        next = h->next;
        lp_hook_release(h);
    }
    walking--;
    return s;
}
