/* Owning and freeing a program; sizes of variables as it has them. */
#include "runtime/program.h"

#include "src/kernel/state.h"

const LpWeightLayout *lp_program_weight_layout(const LpProgram *p, size_t var)
{
    uint32_t at = p->weight_layout_of ? p->weight_layout_of[var] : 0;
    return at ? &p->weight_layout[at - 1] : NULL;
}

uint64_t lp_program_var_bytes(const LpProgram *p, size_t var)
{
    const LpWeightLayout *h = lp_program_weight_layout(p, var);
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
        lp_kernel_free(c->instr[i].kernel);
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
    for (size_t i = 0; i < p->n_packed; i++) {
        lp_kernel_free(p->packed[i].pack);
        lp_kernel_free(p->packed[i].unpack);
    }
    lp_free(p->packed);
    for (size_t i = 0; i < p->n_weight_layout; i++) {
        lp_kernel_free(p->weight_layout[i].load);
        lp_kernel_free(p->weight_layout[i].save);
        lp_free(p->weight_layout[i].layout);
    }
    lp_free(p->weight_layout);
    lp_free(p->reduce);
    lp_free(p->weight_layout_of);
    lp_free(p->arena_grad);
    lp_step_graph_fini(&p->micro_graph);
    lp_step_graph_fini(&p->update_graph);
    lp_step_release(p->step);
    lp_free(p);
}
