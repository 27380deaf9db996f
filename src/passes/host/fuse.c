/* Which pointwise nodes run as one pass.
 *
 *   %3 = add(%1, %2)            one instruction reading %1, %2, %4 and
 *   %5 = relu(%3)         ->    writing %6 (and %5 if somebody else reads
 *   %6 = mul(%5, %4)            it); %3 never reaches memory
 *
 * Nodes are taken in order. A node joins the groups that make its operands if
 * all have its shape, and nobody outside the merged group reads a member's
 * value before this node, where the group will run. So it does the group of the
 * node before it, if both read a large value, which is then read once. A node
 * that nothing joins stays single. A reader outside stays outside: where it
 * stood the groups could not merge, and they only grow. Time: linear in
 * operands, as groups are bounded. */
#include <string.h>

#include "src/kernel/loops/fused.h"
#include "src/passes/host/lower_impl.h"

enum { LARGE = 1 << 20 }; /* bytes; less stays in the cache */

typedef struct Fuse {
    const LpGraph *g;
    LpFusion *f;
} Fuse;

bool lp_can_fuse(const LpGraphNode *n)
{
    return lp_fusable(n->op) && n->n_in <= LP_PW_MAX_IN && n->n_out == 1;
}

static int externals(const Fuse *x, const LpFuseGroup *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += (int)x->g->node[p->member[i]].n_in;
    return n;
}

LpStatus lp_fuse_alone(LpLower *l, LpNodeId id)
{
    LpFusion *f = &l->fusion;
    LP_FAIL_IF(!LP_GROW(f->group, f->cap_group, f->n_group), l->err,
               LP_E_MEMORY, "out of memory");
    LpFuseGroup *p = &f->group[f->n_group];
    p->member = lp_arena_alloc(&l->mem, LP_FUSED_MAX_NODE * sizeof *p->member);
    LP_FAIL_IF(!p->member, l->err, LP_E_MEMORY, "out of memory");
    p->member[0] = id;
    p->n = 1;
    p->read = false;
    p->product = LP_NO_NODE;
    f->of[id] = (int32_t)f->n_group++;
    return LP_OK;
}

/* Moves group b into a, members ascending. */
static void merge(Fuse *x, int32_t a, int32_t b)
{
    LpFuseGroup *p = &x->f->group[a], *q = &x->f->group[b];
    LpNodeId all[LP_FUSED_MAX_NODE];
    int i = 0, j = 0, n = 0;
    while (i < p->n || j < q->n)
        all[n++] = j == q->n || (i < p->n && p->member[i] < q->member[j])
                       ? p->member[i++]
                       : q->member[j++];
    for (j = 0; j < q->n; j++)
        x->f->of[q->member[j]] = a;
    memcpy(p->member, all, (size_t)n * sizeof *all);
    p->n = n;
    q->n = 0;
}

/* Merges the group of `other`, an earlier node, into that of id, if id can run
 * with it. */
static void try_merge(Fuse *x, LpNodeId id, LpNodeId other)
{
    int32_t at = x->f->of[id], b = x->f->of[other];
    if (b < 0 || b == at)
        return;
    const LpFuseGroup *p = &x->f->group[at], *q = &x->f->group[b];
    if (p->n + q->n <= LP_FUSED_MAX_NODE &&
        externals(x, p) + externals(x, q) <= LP_FUSED_MAX_EXT && !q->read)
        merge(x, at, b);
}

/* A large operand of node id that the node before it reads, too. */
static bool shares_large(const Fuse *x, LpNodeId id, const LpType *mine)
{
    const LpGraphNode *n = &x->g->node[id], *p = n - 1;
    if (x->f->of[id - 1] < 0 || !lp_shape_eq(lp_graph_type(x->g, p->out), mine))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        for (uint32_t k = 0; k < p->n_in && lp_is_value(n->in[i]); k++) {
            const LpType *t = lp_graph_type(x->g, n->in[i]);
            if (n->in[i] == p->in[k] && lp_shape_eq(t, mine) &&
                lp_type_bytes(t) >= LARGE)
                return true;
        }
    return false;
}

static LpStatus join(Fuse *x, LpLower *l, LpNodeId id)
{
    const LpGraphNode *n = &x->g->node[id];
    const LpType *mine = lp_graph_type(x->g, n->out);
    LP_TRY(lp_fuse_alone(l, id));
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!lp_is_value(n->in[i]))
            continue;
        LpNodeId from = x->g->value[n->in[i]].node;
        if (from != LP_NO_NODE &&
            lp_shape_eq(lp_graph_type(x->g, n->in[i]), mine))
            try_merge(x, id, from);
    }
    if (id > 0 && shares_large(x, id, mine))
        try_merge(x, id, id - 1);
    return LP_OK;
}

/* Other groups whose values node id reads stay apart from all later nodes. */
static void note_reads(Fuse *x, LpNodeId id)
{
    const LpGraphNode *n = &x->g->node[id];
    for (uint32_t i = 0; i < n->n_in; i++) {
        const LpGraphNode *from = lp_graph_maker(x->g, n->in[i]);
        int32_t b = from ? x->f->of[from - x->g->node] : -1;
        if (b >= 0 && b != x->f->of[id])
            x->f->group[b].read = true;
    }
}

LpStatus lp_lower_fusion(LpLower *l)
{
    const LpGraph *g = l->g;
    LpFusion *f = &l->fusion;
    Fuse x = {.g = g, .f = f};
    if (!l->o->fuse)
        return LP_OK;
    f->of = lp_arena_alloc(&l->mem, (g->n_node + 1) * sizeof *f->of);
    LP_FAIL_IF(!f->of, l->err, LP_E_MEMORY, "out of memory");
    for (size_t i = 0; i < g->n_node; i++)
        f->of[i] = -1;
    for (LpNodeId i = 0; i < g->n_node; i++) {
        if (lp_can_fuse(&g->node[i]))
            LP_TRY(join(&x, l, i));
        note_reads(&x, i);
    }
    for (size_t i = 0; i < g->n_node; i++)
        if (f->of[i] >= 0 && f->group[f->of[i]].n < 2)
            f->of[i] = -1;
    return LP_OK;
}
