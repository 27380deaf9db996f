/* What the device holds.
 *
 * A value that no run writes (weights of an inference model, constants) need
 * not exist twice. One that the program reads as it is lies in the host's
 * storage, until somebody writes that: the hook then takes a copy for the
 * device. One that the program reads in another layout only has no plain form
 * on the device, and the host's pages are given back; the hook makes them again
 * as soon as they are touched. Either way nobody can tell, but by the memory.
 *
 * Storages that a training model mirrors are left alone: it gives them new
 * values all the time. But the first values of what runs write are copied late,
 * by the first run: a program that is compiled to be stored needs none. */
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/exec_impl.h"
#include "src/base/hash.h"

enum {
    WORTH = 64 * 1024,    /* bytes; less is copied */
    MOST_ARENA = 32 << 20 /* bytes of all lanes */
};

/* As it lies here. */
static size_t own_bytes(const LpExec *x, size_t var)
{
    return (size_t)lp_program_var_bytes(x->p, var);
}

static bool in_arena(const LpExec *x, size_t var)
{
    return x->p->arena_grad && x->p->arena_grad[var];
}

static LpStatus check_held(const LpExec *x, size_t var, LpErr *e)
{
    const LpVariable *v = &x->p->step->var[var];
    LP_FAIL_IF(lp_is_stream(v) || in_arena(x, var), e, LP_E_RUNTIME,
               "the %s '%s' has no values outside of a step",
               lp_var_role_name(v->role), v->name);
    return LP_OK;
}

static void *zeros(size_t bytes, LpErr *e)
{
    void *p = lp_zeros(bytes);
    if (!p)
        lp_fail(e, LP_E_MEMORY, "out of memory: %zu bytes for a variable",
                bytes);
    return p;
}

void *lp_exec_block(LpExec *x, size_t bytes, LpErr *e)
{
    if (!LP_GROW(x->owned, x->cap_owned, x->n_owned)) {
        lp_no_memory(e);
        return NULL;
    }
    void *p = zeros(bytes, e);
    if (p)
        x->owned[x->n_owned++] = (LpBlock){p, bytes};
    return p;
}

void *lp_exec_list(LpExec *x, size_t n, size_t size, LpErr *e)
{
    void *p = lp_arena_calloc(&x->mem, (n + 1) * size);
    if (!p)
        lp_no_memory(e);
    return p;
}

size_t lp_exec_take_block(LpExec *x, const void *p)
{
    size_t i = 0;
    while (i < x->n_owned && x->owned[i].p != p)
        i++;
    if (i == x->n_owned)
        return 0;
    size_t bytes = x->owned[i].bytes;
    x->owned[i] = x->owned[--x->n_owned];
    return bytes;
}

/* For all replicas. */
static void set_ptr(LpExec *x, size_t i, void *to)
{
    for (int64_t r = 0; r < x->replicas; r++)
        *lp_exec_at(x, r, i) = to;
}

/* ---- moving values ------------------------------------------------------ */
static LpStatus move(const LpExec *x, const LpKernel *k, const void *from,
                     void *to, LpErr *e)
{
    LpRunCtx rc = {.seed = x->seed};
    void *in[1] = {(void *)(uintptr_t)from}, *out[1] = {to};
    return k->run(k, in, out, x->moving, &rc, e);
}

LpStatus lp_exec_move_sum(const LpExec *x, const LpReduction *d, bool back,
                          LpErr *e)
{
    const LpWeightLayout *layout = lp_program_weight_layout(x->p, d->var);
    for (int64_t r = 0; r < x->replicas && layout && x->plain; r++) {
        void *own = *lp_exec_at(x, r, d->var);
        LP_TRY(back ? move(x, layout->load, d->local[r], own, e)
                    : move(x, layout->save, own, d->local[r], e));
    }
    return LP_OK;
}

/* The copy gets its memory with the first values: those of the host can be
 * given back before the next copy takes any. */
static LpStatus pack(LpExec *x, size_t i, const void *from, LpErr *e)
{
    LpRunCtx rc = {.seed = x->seed};
    void **copy = lp_exec_at(x, 0, x->n_var + i);
    if (!*copy) {
        *copy = lp_exec_block(x, x->p->packed[i].bytes, e);
        set_ptr(x, x->n_var + i, *copy);
    }
    if (!*copy)
        return LP_E_MEMORY;
    const LpKernel *k = x->p->packed[i].pack;
    void *in[1] = {(void *)(uintptr_t)from};
    LP_TRY(k->run(k, in, copy, x->lane[0].work, &rc, e));
    x->fresh[i] = true;
    return LP_OK;
}

LpStatus lp_exec_pack(LpExec *x, LpErr *e)
{
    for (size_t i = 0; i < x->p->n_packed; i++) {
        if (x->fresh[i])
            continue;
        LP_TRY(pack(x, i, x->ptr[x->p->packed[i].var], e));
        if (x->timing)
            lp_profile_lap(x->timing, x->timing->pack + (uint32_t)i, -1);
    }
    return LP_OK;
}

/* The copies of a variable: to be made again, or (it has no memory of its own)
 * made now from the plain rows. */
static LpStatus renew(LpExec *x, size_t var, const void *plain, LpErr *e)
{
    for (size_t i = 0; i < x->p->n_packed; i++) {
        if (x->p->packed[i].var != var)
            continue;
        x->fresh[i] = false;
        if (x->backing[var].unread)
            LP_TRY(pack(x, i, plain, e));
    }
    return LP_OK;
}

/* From a packed copy. */
static LpStatus unpack(const LpExec *x, size_t var, void *dst, LpErr *e)
{
    size_t i = 0;
    while (x->p->packed[i].var != var)
        i++;
    return move(x, x->p->packed[i].unpack, *lp_exec_at(x, 0, x->n_var + i), dst,
                e);
}

static LpStatus read_due(const LpExec *x, size_t var, int64_t replica,
                         void *dst)
{
    const LpVariable *v = &x->p->step->var[var];
    const char *src = x->backing[var].st->data;
    memmove(dst, src + lp_var_host_slice(x->p->step, v, x->first + replica),
            lp_var_bytes(v));
    return LP_OK;
}

LpStatus lp_exec_read(const LpExec *x, size_t var, int64_t replica, void *dst,
                      LpErr *e)
{
    const void *src = *lp_exec_at(x, replica, var);
    const LpWeightLayout *layout = lp_program_weight_layout(x->p, var);
    LP_TRY(check_held(x, var, e));
    if (x->backing[var].due)
        return read_due(x, var, replica, dst);
    if (x->backing[var].unread)
        return unpack(x, var, dst, e);
    if (layout)
        return move(x, layout->save, src, dst, e);
    if (src != dst)
        memcpy(dst, src, lp_var_bytes(&x->p->step->var[var]));
    return LP_OK;
}

/* ---- values that exist once --------------------------------------------- */
static void unhook(LpBacking *h)
{
    LpStorage *st = h->st;
    h->st = NULL;
    h->gone = h->due = false;
    st->flags &= ~(uint32_t)(LP_ST_HOOKED | LP_ST_SHARED);
    lp_storage_release(st);
}

/* Memory of its own for a variable that may be held. */
static LpStatus own(LpExec *x, size_t var, LpErr *e)
{
    LpBacking *h = &x->backing[var];
    if (h->own || h->unread)
        return LP_OK;
    h->own = zeros(own_bytes(x, var), e);
    if (!h->own)
        return LP_E_MEMORY;
    set_ptr(x, var, h->own);
    return LP_OK;
}

/* Where the host has a slice a replica, those of a group must be equal. */
static LpStatus check_slices(const LpExec *x, const LpVariable *v,
                             const char *src, LpErr *e)
{
    const LpStep *s = x->p->step;
    LpGroup g = lp_var_group(s, v);
    for (int64_t r = 0; g.each && r < s->replicas; r++) {
        int64_t first =
            lp_group_first(g, s->replicas, lp_group_of(g, s->replicas, r));
        LP_FAIL_IF(memcmp(src + lp_var_host_slice(s, v, r),
                          src + lp_var_host_slice(s, v, first),
                          lp_var_bytes(v)) != 0,
                   e, LP_E_POPTORCH,
                   "%s '%s': replicas %lld and %lld are of one group, which "
                   "shares its values, but slices %lld and %lld differ",
                   lp_var_role_name(v->role), v->name, (long long)first,
                   (long long)r, (long long)first, (long long)r);
    }
    return LP_OK;
}

/* Puts values of a variable where it lies. */
static LpStatus load(LpExec *x, size_t var, const void *src, LpErr *e)
{
    const LpVariable *v = &x->p->step->var[var];
    const LpWeightLayout *layout = lp_program_weight_layout(x->p, var);
    int64_t n = lp_per_replica(x, v) ? x->replicas : 1;
    LP_TRY(check_slices(x, v, src, e));
    for (int64_t r = 0; r < n && !x->backing[var].unread; r++) {
        void *dst = *lp_exec_at(x, r, var);
        const char *from =
            (const char *)src + lp_var_host_slice(x->p->step, v, x->first + r);
        if (layout)
            LP_TRY(move(x, layout->load, from, dst, e));
        else
            memcpy(dst, from, lp_var_bytes(v));
    }
    return renew(x, var, src, e);
}

/* The bytes are still in the host's tensor. */
static LpStatus copy_due(LpExec *x, size_t var, LpErr *e)
{
    LpBacking *h = &x->backing[var];
    LP_TRY(load(x, var, h->st->data, e));
    unhook(h);
    return LP_OK;
}

LpStatus lp_exec_settle(LpExec *x, LpErr *e)
{
    for (size_t i = 0; i < x->n_var; i++)
        if (x->backing[i].due)
            LP_TRY(copy_due(x, i, e));
    return LP_OK;
}

static LpStatus restore(LpBacking *h, LpErr *e)
{
    size_t var = (size_t)(h - h->x->backing);
    return lp_exec_read(h->x, var, 0, h->st->data, e);
}

LpStatus lp_exec_disown(LpExec *x, size_t var, LpErr *e)
{
    LpBacking *h = &x->backing[var];
    LP_TRY(h->st && h->gone ? restore(h, e) : LP_OK);
    if (h->st)
        unhook(h);
    lp_zeros_free(h->own, own_bytes(x, var));
    h->own = NULL;
    h->unread = false;
    size_t bytes = lp_exec_take_block(x, x->ptr[var]);
    if (bytes > 0)
        lp_zeros_free(x->ptr[var], bytes);
    set_ptr(x, var, NULL);
    return LP_OK;
}

/* The hook: the host's storage is about to be read or written. */
static LpStatus touched(void *ctx, LpStorage *st, bool will_write, LpErr *e)
{
    LpBacking *h = ctx;
    size_t var = (size_t)(h - h->x->backing);
    if (h->gone) {
        LP_TRY(restore(h, e));
    } else if (will_write && h->due) {
        return copy_due(h->x, var, e);
    } else if (will_write) {
        LP_TRY(own(h->x, var, e));
        memcpy(h->x->ptr[var], st->data, st->bytes);
    } else {
        return LP_OK;
    }
    unhook(h);
    return LP_OK;
}

/* Nobody else has a say in the storage, and t is all of it. */
static bool may_hold(const LpBacking *h, const LpTensor *t, size_t bytes)
{
    return h->still && bytes >= WORTH && t->st->bytes == bytes &&
           !t->st->release && t->st->flags == 0;
}

static void hook(LpBacking *h, LpStorage *st, bool gone)
{
    st->refs++;
    st->flags |= LP_ST_HOOKED | LP_ST_SHARED;
    st->hook = (LpStorageHook){.pull = touched, .ctx = h};
    h->st = st;
    h->gone = gone;
    if (gone)
        lp_forget(st->data, st->bytes);
}

LpStatus lp_exec_write(LpExec *x, size_t var, const LpTensor *t, LpErr *e)
{
    LpBacking *h = &x->backing[var];
    LP_TRY(check_held(x, var, e));
    LP_FAIL_IF(lp_exec_is_bound(x, var), e, LP_E_RUNTIME,
               "'%s' is bound to a tensor: write that",
               x->p->step->var[var].name);
    LP_TRY(lp_tensor_touch(t, false, e));
    if (h->st == t->st)
        return LP_OK; /* it is the same memory */
    if (h->due)
        unhook(h);
    if (!h->still)
        return load(x, var, lp_tensor_data(t), e);
    bool alone = may_hold(h, t, lp_var_bytes(&x->p->step->var[var]));
    bool plain = !h->unread && !lp_program_weight_layout(x->p, var);
    LP_TRY(h->st && h->gone ? restore(h, e) : LP_OK);
    if (!alone || !plain)
        LP_TRY(own(x, var, e));
    if (h->st)
        unhook(h);
    if (alone && plain) {
        set_ptr(x, var, lp_tensor_data(t));
        lp_zeros_free(h->own, own_bytes(x, var));
        h->own = NULL;
        hook(h, t->st, false);
        return renew(x, var, lp_tensor_data(t), e);
    }
    LP_TRY(load(x, var, lp_tensor_data(t), e));
    if (alone)
        hook(h, t->st, true);
    return LP_OK;
}

bool lp_exec_differs(const LpExec *x, size_t var)
{
    const LpVariable *v = &x->p->step->var[var];
    return x->replicas > 1 && v->role == LP_VAR_BUFFER && lp_per_replica(x, v);
}

LpStatus lp_exec_write_one(LpExec *x, size_t var, int64_t replica,
                           const void *src, LpErr *e)
{
    LpBacking *h = &x->backing[var];
    const LpWeightLayout *layout = lp_program_weight_layout(x->p, var);
    LP_TRY(check_held(x, var, e));
    LP_FAIL_IF(!lp_exec_differs(x, var) || h->still || h->unread, e, LP_E_VALUE,
               "'%s' is the same in all replicas", x->p->step->var[var].name);
    if (h->due)
        LP_TRY(copy_due(x, var, e));
    void *dst = *lp_exec_at(x, replica, var);
    if (layout)
        return move(x, layout->load, src, dst, e);
    memcpy(dst, src, lp_var_bytes(&x->p->step->var[var]));
    return LP_OK;
}

LpStatus lp_exec_read_host(const LpExec *x, size_t var, void *dst, LpErr *e)
{
    const LpVariable *v = &x->p->step->var[var];
    bool grouped = lp_var_group(x->p->step, v).kind != LP_GROUP_ALL;
    for (int64_t r = grouped ? x->replicas : 1; r-- > 0;) /* the first wins */
        LP_TRY(lp_exec_read(
            x, var, r,
            (char *)dst + lp_var_host_slice(x->p->step, v, x->first + r), e));
    return LP_OK;
}

bool lp_exec_shares(const LpExec *x, size_t var, const LpTensor *t)
{
    return x->backing[var].st == t->st;
}

bool lp_exec_due(const LpExec *x, size_t var)
{
    return x->backing[var].due;
}

LpStatus lp_exec_let_go(LpExec *x, LpErr *e)
{
    for (size_t i = 0; x->backing && i < x->n_var; i++) {
        LpBacking *h = &x->backing[i];
        if (!h->st || !h->gone)
            continue;
        LP_TRY(restore(h, e));
        unhook(h);
    }
    return LP_OK;
}

/* ---- set-up ------------------------------------------------------------- */
static bool is_variable(const LpRef *r, size_t n_var)
{
    return r->space == LP_SPACE_ARG && r->arg < n_var;
}

/* Variables whose plain memory instructions use, and those that they write. */
static void mark_code(const LpCode *c, size_t n_var, bool *read, bool *written)
{
    for (size_t i = 0; i < c->n; i++) {
        const LpInstr *n = &c->instr[i];
        for (uint32_t k = 0; k < n->n_in; k++)
            if (is_variable(&n->in[k], n_var))
                read[n->in[k].arg] = true;
        for (uint32_t k = 0; k < n->n_out; k++)
            if (is_variable(&n->out[k], n_var))
                read[n->out[k].arg] = written[n->out[k].arg] = true;
    }
}

static LpStatus set_up_backing(LpExec *x, LpErr *e)
{
    const LpStep *s = x->p->step;
    bool *read = lp_exec_list(x, x->n_var, sizeof *read, e);
    bool *written = lp_exec_list(x, x->n_var, sizeof *written, e);
    bool *packed = lp_exec_list(x, x->n_var, sizeof *packed, e);
    x->backing = lp_exec_list(x, x->n_var, sizeof *x->backing, e);
    LP_TRY(e->code);
    mark_code(&x->p->micro, x->n_var, read, written);
    mark_code(&x->p->update, x->n_var, read, written);
    for (size_t i = 0; i < x->p->n_packed; i++)
        if (x->p->packed[i].unpack)
            packed[x->p->packed[i].var] = true;
        else
            read[x->p->packed[i].var] = true;
    for (size_t i = 0; i < x->n_var; i++) {
        const LpVariable *v = &s->var[i];
        bool role = v->role == LP_VAR_PARAM || v->role == LP_VAR_BUFFER ||
                    v->role == LP_VAR_CONST;
        x->backing[i].x = x;
        x->backing[i].still = role && !written[i] && v->micro_out == LP_NOVAL &&
                              v->update_out == LP_NOVAL &&
                              v->group.kind == LP_GROUP_ALL;
        x->backing[i].unread = x->backing[i].still && !read[i] && packed[i] &&
                               !lp_program_weight_layout(x->p, i);
    }
    return LP_OK;
}

/* The first values of what runs write. */
static LpStatus first_values(LpExec *x, size_t i, const LpTensor *t, LpErr *e)
{
    LpBacking *h = &x->backing[i];
    LP_TRY(lp_tensor_touch(t, false, e));
    if (t->st->bytes < WORTH || t->offset != 0 || t->st->release ||
        t->st->flags & (LP_ST_HOOKED | LP_ST_SHARED))
        return lp_exec_write(x, i, t, e);
    LP_TRY(check_slices(x, &x->p->step->var[i], lp_tensor_data(t), e));
    hook(h, t->st, false);
    h->due = true;
    return LP_OK;
}

static LpStatus alloc_var(LpExec *x, size_t i, LpErr *e)
{
    const LpVariable *v = &x->p->step->var[i];
    size_t bytes = own_bytes(x, i);
    if (in_arena(x, i)) /* one replica: lp_exec_move_arena */
        return LP_OK;
    if (x->backing[i].still)
        return v->data ? lp_exec_write(x, i, v->data, e) : own(x, i, e);
    for (int64_t r = 0; r < x->replicas; r++) {
        void **at = lp_exec_at(x, r, i);
        *at = r == 0 || lp_per_replica(x, v) ? lp_exec_block(x, bytes, e)
                                             : x->ptr[i];
        if (!*at)
            return LP_E_MEMORY;
    }
    return v->data ? first_values(x, i, v->data, e) : LP_OK;
}

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Scratch: of the copies to and from other layouts, of instructions; copies of
 * parameters, made when these come. */
static LpStatus set_up_scratch(LpExec *x, LpErr *e)
{
    const LpProgram *p = x->p;
    size_t work = LP_SHARED_SCRATCH, most = 1;
    for (size_t i = 0; i < p->n_weight_layout; i++)
        most = max(most, max(p->weight_layout[i].load->work_bytes,
                             p->weight_layout[i].save->work_bytes));
    for (size_t i = 0; i < p->n_packed; i++) {
        const LpPackedWeights *d = &p->packed[i];
        work = max(work, d->pack->work_bytes);
        most = max(most, d->unpack ? d->unpack->work_bytes : 0);
    }
    x->moving = lp_exec_block(x, most, e);
    for (int i = 0; i < x->lanes; i++) {
        x->lane[i].work = lp_exec_block(x, work, e);
        x->lane[i].arena = lp_exec_block(x, lp_exec_arena_bytes(x), e);
    }
    return e->code;
}

/* Replicas run one after the other, each on all threads; where no instruction
 * has work for more than one thread they run side by side, unless one does what
 * the next one sees. Those that meet take turns. */
static int lanes_of(const LpExec *x)
{
    const LpCode *c = &x->p->micro;
    const LpGraph *g = x->p->micro_graph.g;
    const LpVariable *v = x->p->step->var;
    int64_t n = x->p->threads;
    if (x->meets)
        return (int)x->replicas;
    n = n > x->replicas ? x->replicas : n;
    if (n < 2 || (uint64_t)n * c->arena_bytes > MOST_ARENA)
        return 1;
    for (size_t i = 0; i < c->n; i++)
        if (c->instr[i].kernel->threads > 1)
            return 1;
    for (size_t i = 0; i < g->n_node; i++)
        if (lp_node_flags(&g->node[i]) & LP_OPF_EFFECT)
            return 1;
    for (size_t i = 0; i < x->n_var; i++)
        if (v[i].role == LP_VAR_PARAM && lp_var_carried(&v[i]))
            return 1; /* as weights that max_norm shortens */
    return (int)n;
}

static LpStatus set_up_lanes(LpExec *x, LpErr *e)
{
    size_t operands =
        max(lp_code_width(&x->p->micro), lp_code_width(&x->p->update));
    size_t bytes;
    LP_TRY(lp_exec_find_meetings(x, &bytes, e));
    x->packed = lp_exec_list(x, (size_t)x->replicas, sizeof *x->packed, e);
    x->meet_out = lp_exec_list(x, (size_t)x->replicas, sizeof *x->meet_out, e);
    for (int64_t r = 0; x->meets && x->packed && r < x->replicas; r++)
        x->packed[r] = lp_exec_block(x, max(bytes, 1), e);
    x->lanes = lanes_of(x);
    x->lane = lp_exec_list(x, (size_t)x->lanes, sizeof *x->lane, e);
    for (int i = 0; x->lane && i < x->lanes; i++)
        x->lane[i].wide = lp_exec_list(x, operands, sizeof(void *), e);
    return e->code;
}

/* The variables that every micro-batch, and every iteration, goes over. */
static void set_up_lists(LpExec *x)
{
    const LpStep *s = x->p->step;
    for (uint32_t i = 0; i < x->n_var; i++) {
        const LpVariable *v = &s->var[i];
        if (lp_is_stream(v))
            x->stream[x->n_stream++] = i;
        if (v->role == LP_VAR_ACCUM && v->micro_in != LP_NOVAL)
            x->sum[x->n_sum++] = i;
        if (x->grouped && v->role == LP_VAR_PARAM && lp_var_carried(v))
            x->handed[x->n_handed++] = i;
        x->shows |= lp_var_shows_update(s, v);
    }
}

/* Where replica r's values of a reduction are. Accumulators never move. */
static void *sum_buffer(LpExec *x, size_t var, int64_t r, LpErr *e)
{
    return x->plain && lp_program_weight_layout(x->p, var)
               ? lp_exec_block(x, lp_var_bytes(&x->p->step->var[var]), e)
               : *lp_exec_at(x, r, var);
}

static LpStatus set_up_reduction(LpExec *x, const LpReduce *from,
                                 LpReduction *to, LpErr *e)
{
    const LpVariable *v = &x->p->step->var[from->var];
    void **local = lp_exec_list(x, (size_t)x->replicas, sizeof *local, e);
    size_t bytes = x->plain ? lp_var_bytes(v) : own_bytes(x, from->var);
    LP_TRY(e->code);
    for (int64_t r = 0; r < x->replicas; r++)
        local[r] = sum_buffer(x, from->var, r, e);
    *to = (LpReduction){.var = from->var,
                        .dtype = v->type.dtype,
                        .n = (int64_t)(bytes / lp_dtype_size(v->type.dtype)),
                        .group = from->group,
                        .local = local,
                        .n_local = x->replicas,
                        .rounding.site = lp_sum_site(x->p->step, from->var)};
    return e->code;
}

static int by_variable(const void *a, const void *b)
{
    const LpReduction *p = a, *q = b;
    return (p->var > q->var) - (p->var < q->var);
}

static LpStatus set_up_reductions(LpExec *x, LpErr *e)
{
    const LpProgram *p = x->p;
    uint64_t all = LP_HASH_START;
    bool same = true;
    for (size_t i = 0; i < p->n_reduce; i++) {
        uint64_t one[2] = {p->reduce[i].var, p->reduce[i].layout};
        all = lp_hash_bytes(all, one, sizeof one);
    }
    if (p->n_reduce > 0)
        LP_TRY(x->comm->agree(x->comm, all, &same, e));
    x->plain = !same;
    x->reduction = lp_exec_list(x, p->n_reduce, sizeof *x->reduction, e);
    LP_TRY(e->code);
    for (size_t i = 0; i < p->n_reduce; i++)
        LP_TRY(set_up_reduction(x, &p->reduce[i], &x->reduction[i], e));
    if (x->plain)
        qsort(x->reduction, p->n_reduce, sizeof *x->reduction, by_variable);
    return LP_OK;
}

LpStatus lp_exec_set_up(LpExec *x, LpErr *e)
{
    const LpStep *s = x->p->step;
    lp_storage_trim();
    x->ptr = lp_exec_list(x, x->n_arg * (size_t)x->replicas, sizeof *x->ptr, e);
    x->spare = lp_exec_list(x, x->n_var, sizeof *x->spare, e);
    x->fresh = lp_exec_list(x, x->p->n_packed, sizeof *x->fresh, e);
    x->stream = lp_exec_list(x, x->n_var, sizeof *x->stream, e);
    x->sum = lp_exec_list(x, x->n_var, sizeof *x->sum, e);
    x->handed = lp_exec_list(x, x->n_var, sizeof *x->handed, e);
    LP_TRY(e->code);
    LP_TRY(set_up_lanes(x, e));
    LP_TRY(set_up_backing(x, e));
    LP_TRY(set_up_scratch(x, e));
    for (size_t i = 0; i < x->n_var; i++) {
        if (s->var[i].role == LP_VAR_STREAM_OUT)
            x->spare[i] = lp_exec_block(
                x, lp_var_bytes(&s->var[i]) * (size_t)x->lanes, e);
        else if (!lp_is_stream(&s->var[i]))
            LP_TRY(alloc_var(x, i, e));
        LP_TRY(e->code);
    }
    LP_TRY(lp_exec_set_up_undo(x, e));
    lp_exec_move_arena(x, x->lane[0].arena);
    set_up_lists(x);
    return set_up_reductions(x, e);
}

void lp_exec_tear_down(LpExec *x)
{
    LpErr e = {0};
    lp_bound_free(x);
    lp_arena_release(x->shared);
    (void)lp_exec_let_go(x, &e); /* after a failure, as far as it goes */
    for (size_t i = 0; x->backing && i < x->n_var; i++) {
        if (x->backing[i].st)
            unhook(&x->backing[i]);
        lp_zeros_free(x->backing[i].own, own_bytes(x, i));
    }
    for (size_t i = 0; i < x->n_owned; i++)
        lp_zeros_free(x->owned[i].p, x->owned[i].bytes);
    lp_free(x->owned);
    lp_arena_fini(&x->mem);
}
