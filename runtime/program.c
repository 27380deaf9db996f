#include "runtime/program.h"

void lp_code_fini(LpCode *c)
{
    for (size_t i = 0; i < c->n; i++) {
        LpKernel *k = c->instr[i].kernel;
        if (k->fini)
            k->fini(k);
        lp_free(k);
    }
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
    lp_step_free(p->step);
    lp_free(p);
}
