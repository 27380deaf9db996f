/* The tables that lowering begins with: places of variables, and how often and
 * by whom a value is read. */
#include "src/kernel/copy/copy.h"
#include "src/passes/host/lower_impl.h"

LpStatus lp_find_readers(const LpGraph *g, const LpVal *out, size_t n_out,
                         LpArena *mem, LpReaders *r, LpErr *e)
{
    r->uses = lp_arena_calloc(mem, g->n_value * sizeof *r->uses);
    r->reader = lp_arena_alloc(mem, g->n_value * sizeof *r->reader);
    LP_FAIL_IF(!r->uses || !r->reader, e, LP_E_MEMORY, "out of memory");
    for (size_t v = 0; v < g->n_value; v++)
        r->reader[v] = LP_NO_NODE;
    for (LpNodeId i = 0; i < g->n_node; i++)
        for (uint32_t k = 0; k < g->node[i].n_in; k++)
            if (lp_is_value(g->node[i].in[k])) {
                r->uses[g->node[i].in[k]]++;
                r->reader[g->node[i].in[k]] = i;
            }
    for (size_t i = 0; i < n_out; i++)
        r->uses[out[i]]++; /* nobody asks for those of holes */
    return LP_OK;
}

LpStatus lp_lower_tables(LpLower *l)
{
    size_t n = l->g->n_value;
    l->location = lp_arena_calloc(&l->mem, n * sizeof *l->location);
    l->alt = lp_arena_calloc(&l->mem, n * sizeof *l->alt);
    l->target = lp_arena_alloc(&l->mem, n * sizeof *l->target);
    l->layout_group = lp_arena_calloc(&l->mem, n * sizeof *l->layout_group);
    l->partner = lp_arena_alloc(&l->mem, l->g->n_node * sizeof *l->partner);
    LP_FAIL_IF(!l->location || !l->alt || !l->target || !l->layout_group ||
                   !l->partner,
               l->err, LP_E_MEMORY, "out of memory");
    LP_TRY(lp_find_readers(l->g, l->out, l->step->n_var, &l->mem, &l->read,
                           l->err));
    for (size_t i = 0; i < n; i++) {
        l->location[i].buf = l->alt[i].buf = LP_NO_BUF;
        l->target[i] = UINT32_MAX;
    }
    for (LpNodeId i = 0; i < l->g->n_node; i++)
        l->partner[i] = LP_NO_NODE;
    for (uint32_t i = 0; i < l->step->n_var; i++) {
        LpVal in = l->in[i], out = l->out[i];
        /* the first variable that wants a value gets it in place */
        if (out != LP_NOVAL && l->target[out] == UINT32_MAX)
            l->target[out] = i;
        if (in != LP_NOVAL) {
            LP_TRY(lp_lower_own(l, in, i));
            l->location[in].desc.layout = lp_weight_layout_of_var(l, i);
        }
    }
    for (size_t i = 0; i < l->g->n_input; i++) {
        LpVal in = l->g->input[i];
        if (l->location[in].buf != LP_NO_BUF)
            l->buf[l->location[in].buf].reads_left = l->read.uses[in];
    }
    return LP_OK;
}
