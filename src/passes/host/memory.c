/* Places in the arena: one plan for the micro graph and the update, which runs
 * after it. An accumulator that nothing is added to (one micro-batch, one
 * replica) holds a gradient from the instruction that makes it to the last one
 * of the update that reads it: it lies in the arena instead of in memory of its
 * own, which costs little where the backward half frees more than it makes. */
#include <string.h>

#include "src/passes/host/lower_impl.h"

enum {
    FEW = 4096,     /* buffers that are planned in both ways */
    LEAST_PART = 64 /* of the arena that the other plan must save */
};

/* Buffers of one graph; `base` is the number of its first instruction. */
static void note_spans(const LpLower *l, LpSpan *span, uint32_t base)
{
    for (size_t i = 0; i < l->n_buf; i++) {
        const LpAlloc *b = &l->buf[i];
        span[i] = (LpSpan){.bytes = b->var == UINT32_MAX ? b->bytes : 0,
                           .first = base + b->first,
                           .last = base + b->last};
    }
}

bool lp_may_be_in_arena(const LpLower *l, size_t var)
{
    const LpVariable *v = &l->step->var[var];
    return v->role == LP_VAR_ACCUM && v->micro_in == LP_NOVAL &&
           v->micro_out != LP_NOVAL && v->update_out == LP_NOVAL &&
           l->step->replicas == 1;
}

/* Elements without padding, which must stay zero. */
static bool in_arena(const LpLower *l, size_t var)
{
    const LpVariable *v = &l->step->var[var];
    const LpWeightLayout *layout = lp_program_weight_layout(l->program, var);
    return lp_may_be_in_arena(l, var) &&
           (!layout || layout->bytes == (uint64_t)lp_type_bytes(&v->type));
}

static void note_arena_grads(const LpLower *micro, const LpLower *update,
                             LpSpan *span)
{
    uint32_t base = (uint32_t)micro->code->n;
    for (size_t i = 0; i < micro->step->n_var; i++)
        if (in_arena(micro, i))
            span[i] = (LpSpan){.bytes = lp_program_var_bytes(micro->program, i),
                               .first = base,
                               .last = base};
    for (size_t i = 0; i < micro->n_buf; i++) {
        const LpAlloc *b = &micro->buf[i];
        if (b->var != UINT32_MAX && b->first < span[b->var].first)
            span[b->var].first = b->first;
    }
    for (size_t i = 0; i < update->n_buf; i++) {
        const LpAlloc *b = &update->buf[i];
        if (b->var != UINT32_MAX && base + b->last > span[b->var].last)
            span[b->var].last = base + b->last;
    }
}

int64_t lp_most_in_use(const int64_t *change, uint32_t n, uint32_t *at)
{
    int64_t now = 0, most = 0;
    *at = 0;
    for (uint32_t i = 0; i < n; i++) {
        now += change[i];
        if (now > most) {
            most = now;
            *at = i;
        }
    }
    return most;
}

/* A gradient that lives where most memory is in use keeps its own. */
static LpStatus drop_early(LpLower *l, const LpSpan *span, size_t n,
                           LpSpan *arena_grad, size_t n_arena_grad,
                           uint32_t n_instr)
{
    int64_t *change = lp_arena_calloc(&l->mem, (n_instr + 2) * sizeof *change);
    LP_FAIL_IF(!change, l->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        change[span[i].first] += (int64_t)span[i].bytes;
        change[span[i].last + 1] -= (int64_t)span[i].bytes;
    }
    uint32_t peak;
    lp_most_in_use(change, n_instr, &peak);
    for (size_t i = 0; i < n_arena_grad; i++)
        if (arena_grad[i].first <= peak)
            arena_grad[i].bytes = 0;
    return LP_OK;
}

static LpStatus take_arena_grads(LpLower *l, const LpSpan *span)
{
    LpProgram *p = l->program;
    p->arena_grad = lp_calloc(l->step->n_var, sizeof *p->arena_grad);
    LP_FAIL_IF(!p->arena_grad, l->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < l->step->n_var; i++)
        if (span[i].bytes > 0)
            p->arena_grad[i] = 1 + span[i].offset;
    return LP_OK;
}

static void raise_to(uint64_t *bytes, const LpSpan *s)
{
    if (s->bytes > 0 && s->offset + s->bytes > *bytes)
        *bytes = s->offset + s->bytes;
}

static void take_places(LpLower *l, const LpSpan *span)
{
    for (size_t i = 0; i < l->n_buf; i++)
        raise_to(&l->code->arena_bytes, &span[i]);
    for (size_t i = 0; i < l->n_pending; i++)
        l->pending[i].ref->offset += span[l->pending[i].buf].offset;
}

/* The plan in the order of time, which leaves what was touched last to the next
 * one; the other where it needs clearly less. */
static LpStatus plan(LpLower *l, LpSpan *span, size_t n)
{
    uint64_t total, packed;
    LP_TRY(lp_arena_plan(span, n, &total, l->err));
    if (n > FEW)
        return LP_OK;
    LpSpan *other = lp_arena_alloc(&l->mem, (n + 1) * sizeof *other);
    LP_FAIL_IF(!other, l->err, LP_E_MEMORY, "out of memory");
    memcpy(other, span, n * sizeof *span);
    LP_TRY(lp_arena_pack(other, n, &packed, l->err));
    if (packed < total - total / LEAST_PART)
        memcpy(span, other, n * sizeof *span);
    return LP_OK;
}

LpStatus lp_place_buffers(LpLower *micro, LpLower *update)
{
    size_t n_micro = micro->n_buf, n_update = update ? update->n_buf : 0;
    size_t n_var = update ? micro->step->n_var : 0, n = n_micro + n_update;
    LpSpan *span = lp_arena_calloc(&micro->mem, (n + n_var + 1) * sizeof *span);
    LP_FAIL_IF(!span, micro->err, LP_E_MEMORY, "out of memory");
    note_spans(micro, span, 0);
    if (update) {
        note_spans(update, span + n_micro, (uint32_t)micro->code->n);
        note_arena_grads(micro, update, span + n);
        LP_TRY(drop_early(micro, span, n, span + n, n_var,
                          (uint32_t)(micro->code->n + update->code->n)));
    }
    LP_TRY(plan(micro, span, n + n_var));
    take_places(micro, span);
    if (!update)
        return LP_OK;
    take_places(update, span + n_micro);
    for (size_t i = 0; i < n_var; i++)
        raise_to(&micro->code->arena_bytes, &span[n + i]);
    return take_arena_grads(micro, span + n);
}
