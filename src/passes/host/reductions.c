/* The table of sums over replicas: an accumulator is final when the last
 * instruction that touches it has run in the last micro-batch, which for a late
 * layer is long before the last one of all.
 *
 *   0  %g2 = mm(…)          writes g2                     {g2, after 1}
 *   1  %d = mm(…)           in the arena
 *   2  %g1 = mm(…)          writes g1                     {g1, after 3} */
#include <stdlib.h>

#include "src/base/hash.h"
#include "src/kernel/nn/conv_layout.h"
#include "src/passes/host/lower_impl.h"

/* Per variable: how many instructions have run when nothing touches it any
 * more; of one that none touches: 0. */
static void find_last(const LpCode *c, size_t n_var, uint32_t *last)
{
    for (size_t i = 0; i < c->n; i++) {
        const LpInstr *n = &c->instr[i];
        for (uint32_t k = 0; k < n->n_in + n->n_out; k++) {
            const LpRef *r = k < n->n_in ? &n->in[k] : &n->out[k - n->n_in];
            if (r->space == LP_SPACE_ARG && r->arg < n_var)
                last[r->arg] = (uint32_t)i + 1;
        }
    }
}

static uint64_t hash_of(const LpConvLayout *h)
{
    return h ? lp_hash_bytes(LP_HASH_START, &h->layout, sizeof h->layout) : 0;
}

static int by_end(const void *a, const void *b)
{
    const LpReduce *p = a, *q = b;
    return p->after != q->after ? (p->after > q->after) - (p->after < q->after)
                                : (p->var > q->var) - (p->var < q->var);
}

LpStatus lp_lower_reductions(LpLower *l)
{
    const LpStep *s = l->step;
    LpProgram *p = l->program;
    if (l->update || s->replicas == 1)
        return LP_OK;
    uint32_t *last = lp_arena_calloc(&l->mem, (s->n_var + 1) * sizeof *last);
    p->reduce = lp_calloc(s->n_var + 1, sizeof *p->reduce);
    LP_FAIL_IF(!last || !p->reduce, l->err, LP_E_MEMORY, "out of memory");
    find_last(l->code, s->n_var, last);
    for (uint32_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_ACCUM)
            p->reduce[p->n_reduce++] =
                (LpReduce){.var = i,
                           .after = last[i],
                           .group = lp_var_group(s, &s->var[i]),
                           .layout = hash_of(lp_weight_layout_of_var(l, i))};
    qsort(p->reduce, p->n_reduce, sizeof *p->reduce, by_end);
    return LP_OK;
}
