#include "runtime/program.h"

static void drop(LpKernel *k)
{
    if (k->fini)
        k->fini(k);
    lp_free(k);
}

static void code_fini(LpCode *c)
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
    code_fini(&p->micro);
    code_fini(&p->update);
    for (size_t i = 0; i < p->n_derived; i++)
        drop(p->derived[i].pack);
    lp_free(p->derived);
    lp_step_free(p->step);
    lp_free(p);
}
