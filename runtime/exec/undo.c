/* Carried buffers as they were before a device iteration that is abandoned:
 * copies of them or, of those that instructions write in parts, of these alone.
 * Keys and values of tokens before are long and get a row an iteration. */
#include <string.h>

#include "runtime/exec/exec_impl.h"

/* Of the carried buffer that a result is; n_var: it is none. */
static size_t carried_at(const LpExec *x, const LpRef *out)
{
    return out->space == LP_SPACE_ARG && out->arg < x->n_var &&
                   lp_var_carried(&x->p->step->var[out->arg])
               ? out->arg
               : x->n_var;
}

static bool writes_a_part(const LpExec *x, const LpInstr *in)
{
    const LpRef *a = in->in, *b = in->out;
    return in->kernel->undo && a->space == LP_SPACE_ARG && a->arg == b->arg &&
           a->offset == b->offset &&
           x->p->step->var[b->arg].role == LP_VAR_BUFFER;
}

/* Bytes of the parts of each variable that a device iteration writes; those
 * written otherwise count as whole. */
static void count_parts(const LpExec *x, size_t *bytes)
{
    const LpCode *c = &x->p->micro;
    size_t times = (size_t)x->p->step->gradient_accumulation;
    for (size_t i = 0; i < c->n; i++)
        for (uint32_t k = 0; k < c->instr[i].n_out; k++) {
            size_t v = carried_at(x, &c->instr[i].out[k]);
            if (v < x->n_var)
                bytes[v] += k == 0 && writes_a_part(x, &c->instr[i])
                                ? times * c->instr[i].kernel->undo_bytes
                                : lp_var_bytes(&x->p->step->var[v]);
        }
}

static LpStatus set_up_copies(LpExec *x, const size_t *part, LpErr *e)
{
    for (size_t i = 0; i < x->n_var; i++) {
        const LpVariable *v = &x->p->step->var[i];
        size_t bytes = lp_var_bytes(v);
        if (!lp_var_carried(v) || (part[i] > 0 && part[i] < bytes))
            continue;
        x->backup[i] = lp_exec_block(x, bytes * (size_t)x->replicas, e);
        if (!x->backup[i])
            return LP_E_MEMORY;
    }
    return LP_OK;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void set_up_parts(LpExec *x)
{
    const LpCode *c = &x->p->micro;
    for (size_t i = 0; i < c->n; i++) {
        size_t v =
            c->instr[i].n_out > 0 ? carried_at(x, c->instr[i].out) : x->n_var;
        if (v == x->n_var || x->backup[v])
            continue;
        x->undo[x->n_undo++] = (LpUndo){i, x->undo_bytes};
        x->undo_bytes += aligned(c->instr[i].kernel->undo_bytes);
    }
}

LpStatus lp_exec_set_up_undo(LpExec *x, LpErr *e)
{
    size_t n = (size_t)x->replicas;
    size_t *part = lp_exec_list(x, x->n_var, sizeof *part, e);
    x->backup = lp_exec_list(x, x->n_var, sizeof *x->backup, e);
    x->undo = lp_exec_list(x, x->p->micro.n, sizeof *x->undo, e);
    x->kept = lp_exec_list(x, n, sizeof *x->kept, e);
    x->n_kept = lp_exec_list(x, n, sizeof *x->n_kept, e);
    LP_TRY(e->code);
    count_parts(x, part);
    LP_TRY(set_up_copies(x, part, e));
    set_up_parts(x);
    for (size_t r = 0; r < n && x->n_undo > 0; r++) {
        x->kept[r] = lp_exec_block(
            x, x->undo_bytes * (size_t)x->p->step->gradient_accumulation, e);
        if (!x->kept[r])
            return LP_E_MEMORY;
    }
    return LP_OK;
}

static void each_copy(LpExec *x, bool keep)
{
    for (size_t i = 0; i < x->n_var; i++) {
        if (!x->backup[i])
            continue;
        size_t bytes = lp_var_bytes(&x->p->step->var[i]);
        for (int64_t r = 0; r < x->replicas; r++) {
            void *live = *lp_exec_at(x, r, i);
            char *kept = x->backup[i] + (size_t)r * bytes;
            memcpy(keep ? (void *)kept : live, keep ? live : (void *)kept,
                   bytes);
        }
    }
}

void lp_exec_keep(LpExec *x)
{
    each_copy(x, true);
    memset(x->n_kept, 0, (size_t)x->replicas * sizeof *x->n_kept);
}

/* Of undo number n of a replica. */
static char *kept_at(const LpExec *x, int64_t replica, size_t n)
{
    return x->kept[replica] + n / x->n_undo * x->undo_bytes +
           x->undo[n % x->n_undo].at;
}

void lp_exec_keep_before(LpExec *x, int64_t replica, size_t instr,
                         const LpFrame *f)
{
    size_t *n = &x->n_kept[replica];
    if (x->undo[*n % x->n_undo].instr != instr)
        return;
    const LpInstr *in = &x->p->micro.instr[instr];
    for (uint32_t k = 0; k < in->n_in; k++)
        f->wide[k] = lp_ref_at(f, &in->in[k]);
    in->kernel->undo->keep(in->kernel, f->wide, kept_at(x, replica, *n));
    ++*n;
}

void lp_exec_put_back(LpExec *x)
{
    each_copy(x, false);
    for (int64_t r = 0; r < x->replicas; r++)
        while (x->n_kept[r] > 0) {
            size_t n = --x->n_kept[r];
            const LpInstr *in =
                &x->p->micro.instr[x->undo[n % x->n_undo].instr];
            char *live = *lp_exec_at(x, r, in->out->arg);
            in->kernel->undo->put_back(in->kernel, live + in->out->offset,
                                       kept_at(x, r, n));
        }
}
