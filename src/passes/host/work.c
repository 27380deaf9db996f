/* What each instruction does, for profiles: the nodes whose results it makes
 * and their floating-point operations. Counted as usual: a product of [m, k]
 * and [k, n] has 2 m k n, a convolution the multiplications and additions of
 * its plain algorithm (also where Winograd's runs fewer), any other operator
 * one for each element of its largest operand or result; moving data has
 * none; a loop what its body has in all rounds. */
#include "src/passes/host/lower_impl.h"

#include "src/kernel/copy/copy.h"
#include "src/ops/control.h"
#include "src/ops/layout_cost.h"
#include "src/ops/request.h"

static double numel(const LpGraph *g, LpVal v)
{
    return (double)lp_numel(lp_graph_type(g, v));
}

static double flops(const LpGraph *g, const LpGraphNode *n);

/* Of all rounds of a loop; of the larger side of a branch. */
static double body_flops(const LpGraphNode *n)
{
    double most = 0;
    int at = 0;
    for (const LpGraph *b; (b = lp_node_body(n, &at));) {
        double sum = 0;
        for (size_t i = 0; i < b->n_node; i++)
            if (!(b->node[i].op->flags & LP_OPF_VIEW))
                sum += flops(b, &b->node[i]);
        most = sum > most ? sum : most;
    }
    return n->op == &op_loop ? most * (double)n->attr[LP_LOOP_COUNT].i : most;
}

static double flops(const LpGraph *g, const LpGraphNode *n)
{
    if (lp_has_bodies(n->op))
        return body_flops(n);
    if (n->n_out == 0 || !lp_is_float(lp_graph_type(g, n->out)->dtype) ||
        lp_moves_data(n->op))
        return 0;
    if (n->op->work) { /* its multiplications */
        LpDesc d[LP_MAX_IN + LP_MAX_OUT];
        LpKernelReq r = lp_req_of_node(g, n, d);
        return 2 * n->op->work(&r);
    }
    double most = numel(g, n->out);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (lp_is_value(n->in[i]) && numel(g, n->in[i]) > most)
            most = numel(g, n->in[i]);
    return most;
}

static LpWork work_of(const LpGraph *g, LpNodeId id)
{
    return (LpWork){g, id, (float)flops(g, &g->node[id])};
}

static LpStatus note(const LpLower *l, LpInstr *in)
{
    const LpGraphNode *n = &l->g->node[in->node];
    const LpGraph *b = n->op == &op_chain ? n->attr[LP_CALL_BODY].graph : NULL;
    size_t members = b ? b->n_node : 1;
    LpWork *w = lp_arena_alloc(&l->code->mem, (members + 1) * sizeof *w);
    LP_FAIL_IF(!w, l->err, LP_E_MEMORY, "out of memory");
    in->work = w;
    if (l->partner[in->node] != LP_NO_NODE)
        w[in->n_work++] = work_of(l->g, l->partner[in->node]);
    for (LpNodeId k = 0; k < members; k++)
        w[in->n_work++] = b ? work_of(b, k) : work_of(l->g, in->node);
    in->op = in->n_work == 1 ? n->op : NULL;
    return LP_OK;
}

LpStatus lp_lower_work(LpLower *l)
{
    for (size_t i = 0; i < l->code->n; i++) {
        LpInstr *in = &l->code->instr[i];
        if (in->node != LP_NO_NODE &&
            !(l->g->node[in->node].op->flags & LP_OPF_VIEW))
            LP_TRY(note(l, in));
    }
    return LP_OK;
}
