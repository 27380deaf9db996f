/* Owning and freeing a program; sizes of variables as it has them. */
#include "runtime/program.h"

static void drop(LpKernel *k)
{
    if (k && k->fini)
        k->fini(k);
    lp_free(k);
}

const LpHome *lp_program_home(const LpProgram *p, size_t var)
{
    uint32_t at = p->home_of ? p->home_of[var] : 0;
    return at ? &p->home[at - 1] : NULL;
}

uint64_t lp_program_var_bytes(const LpProgram *p, size_t var)
{
    const LpHome *h = lp_program_home(p, var);
    return h ? h->bytes : (uint64_t)lp_type_bytes(&p->step->var[var].type);
}

size_t lp_code_width(const LpCode *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        size_t here = (size_t)c->instr[i].n_in + c->instr[i].n_out;
        n = here > n ? here : n;
    }
    return n;
}

void lp_code_fini(LpCode *c)
{
    for (size_t i = 0; i < c->n; i++)
        drop(c->instr[i].kernel);
    lp_free(c->instr);
    lp_arena_fini(&c->mem);
    *c = (LpCode){0};
}

void lp_program_free(LpProgram *p)
{
    if (!p)
        return;
    lp_code_fini(&p->micro);
    lp_code_fini(&p->update);
    for (size_t i = 0; i < p->n_derived; i++) {
        drop(p->derived[i].pack);
        drop(p->derived[i].unpack);
    }
    lp_free(p->derived);
    for (size_t i = 0; i < p->n_home; i++) {
        drop(p->home[i].load);
        drop(p->home[i].save);
        lp_free(p->home[i].layout);
    }
    lp_free(p->home);
    lp_free(p->home_of);
    lp_free(p->lent);
    lp_step_graph_fini(&p->micro_graph);
    lp_step_graph_fini(&p->update_graph);
    lp_step_release(p->step);
    lp_free(p);
}
