/* Collectives between replicas: their types, gradients and costs, and what a
 * kernel of theirs tells who runs it. */
#include "src/ops/collective.h"

#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"
#include "src/ops/cost_ctx.h"
#include "src/ops/ops.h"
#include "src/ops/rules.h"

/* replicated_all_reduce, replicated_reduce_scatter, replicated_all_gather */
enum { REDUCTION, REPLICAS, STRIDE, SIZE };

static const char *const reductions[] = {"add",   "mean", "mul", "min",
                                         "max",   "and",  "or",  "square_add",
                                         "local", NULL};
_Static_assert(sizeof reductions / sizeof *reductions == LP_N_REDUCTIONS + 1,
               "a name each");

bool lp_is_collective(const LpOp *op)
{
    return op == &op_replicated_all_reduce ||
           op == &op_replicated_reduce_scatter ||
           op == &op_replicated_all_gather;
}

static LpCollective kind_of(const LpOp *op)
{
    return op == &op_replicated_all_reduce       ? LP_COLL_ALL_REDUCE
           : op == &op_replicated_reduce_scatter ? LP_COLL_REDUCE_SCATTER
                                                 : LP_COLL_ALL_GATHER;
}

static LpReplicaGroups groups_of(const LpAttr *a)
{
    return (LpReplicaGroups){a[REPLICAS].i, a[STRIDE].i, a[SIZE].i};
}

static int reduction_of(const LpAttr *a)
{
    int r = 0;
    while (reductions[r] && strcmp(reductions[r], a[REDUCTION].str) != 0)
        r++;
    return r;
}

/* ---- types --------------------------------------------------------------- */
static LpStatus check(LpInfer *x)
{
    LpReplicaGroups g = groups_of(x->attr);
    int64_t most = INT32_MAX;
    LP_FAIL_IF(reduction_of(x->attr) == LP_N_REDUCTIONS, x->err, LP_E_VALUE,
               "%s: no reduction '%.40s'", x->op->name, x->attr[REDUCTION].str);
    LP_FAIL_IF(g.replicas < 1 || g.replicas > most || g.size < 1 ||
                   g.size > g.replicas || g.stride < 1 ||
                   g.stride > g.replicas ||
                   g.replicas % (g.stride * g.size) != 0,
               x->err, LP_E_VALUE,
               "%s: groups of %lld replicas, %lld apart, do not make up %lld "
               "replicas",
               x->op->name, (long long)g.size, (long long)g.stride,
               (long long)g.replicas);
    return LP_OK;
}

static LpStatus infer_same(LpInfer *x)
{
    LP_TRY(check(x));
    x->out[0] = x->in[0];
    return LP_OK;
}

/* Vectors of the operand's type. */
static LpStatus infer_vector(LpInfer *x)
{
    LP_TRY(check(x));
    int64_t n = lp_numel(&x->in[0]), size = x->attr[SIZE].i, out;
    out = (n + size - 1) / size;
    if (x->op == &op_replicated_all_gather)
        LP_FAIL_IF(!lp_mul_i64(n, size, &out), x->err, LP_E_VALUE,
                   "%s: too many elements", x->op->name);
    x->out[0] = (LpType){.dtype = x->in[0].dtype, .ndim = 1, .shape = {out}};
    return lp_shape_check(&x->out[0], x->err);
}

/* ---- gradients ----------------------------------------------------------- */
/* As PopART has them: the gradient of an all-gather is the replica's own part
 * of it, that of a scatter of its own part the gathered one. */
static LpVal shaped_as(LpBuilder *b, LpVal v, LpVal like)
{
    LpType t = lp_type_of(b, like);
    return lp_reshape(b, v, t.shape, t.ndim);
}

/* PopART has none for it: weights behind a sum get no gradient. */
static void grad_all_reduce(LpGrad *g)
{
    (void)g;
}

static void grad_all_gather(LpGrad *g)
{
    LpAttr a[LP_MAX_ATTR];
    memcpy(a, g->attr, g->op->n_attr * sizeof *a);
    a[REDUCTION] = lp_attr_str(reductions[LP_REDUCE_LOCAL]);
    LpVal own =
        lp_emit(g->b, LP_OP_replicated_reduce_scatter, &g->dout[0], 1, a);
    g->din[0] = shaped_as(g->b, own, g->in[0]);
}

static void grad_reduce_scatter(LpGrad *g)
{
    if (reduction_of(g->attr) != LP_REDUCE_LOCAL) {
        lp_fail(g->b->err, LP_E_NOT_IMPLEMENTED,
                "ReplicatedReduceScatterOp: grad op is only implemented when "
                "CollectiveOperator==CollectiveOperator::Local");
        return;
    }
    LpType t = lp_type_of(g->b, g->in[0]);
    LpVal all =
        lp_emit(g->b, LP_OP_replicated_all_gather, &g->dout[0], 1, g->attr);
    all = lp_slice(g->b, all, 0, 0, lp_numel(&t), 1);
    g->din[0] = shaped_as(g->b, all, g->in[0]);
}

/* ---- kernel -------------------------------------------------------------- */
static void drop(void *state)
{
    lp_free(state);
}

/* Of groups of one replica: kinds differ in shape alone. */
LP_KERNEL_RUN(run)
{
    const LpMeet *m = k->state;
    LP_FAIL_IF(m->groups.size > 1, e, LP_E_NOT_IMPLEMENTED,
               "a collective between replicas needs replicas that run "
               "together: it has to stand in a program of a session itself, "
               "not in a loop, branch or called graph");
    return m->pack.run(&m->pack, in, out, work, rc, e);
}

static LpStatus prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    LpMeet *m = lp_calloc(1, sizeof *m);
    LP_FAIL_IF(!m, e, LP_E_MEMORY, "out of memory");
    LpDesc plain = lp_desc_plain(&r->in[0], r->in[0].dtype);
    *m = (LpMeet){.kind = kind_of(r->op),
                  .reduction = (LpReductionKind)reduction_of(r->attr),
                  .groups = groups_of(r->attr),
                  .dtype = r->in[0].dtype,
                  .n = lp_desc_numel(&r->in[0]),
                  .n_out = lp_desc_numel(&r->out[0])};
    LpStatus s = lp_copy_kernel(&r->in[0], 0, &plain, 1, &m->pack);
    if (s != LP_OK) {
        drop(m);
        return s;
    }
    lp_kernel_own(m, drop, run, k);
    k->threads = 1;
    return LP_OK;
}

const LpMeet *lp_meet_of(const LpKernel *k)
{
    return k->state;
}

/* ---- cost ---------------------------------------------------------------- */
/* A ring of the group's replicas, as of gradients; what is the replica's own is
 * copied between its tiles. */
static void cost(const LpCostReq *r, LpCost *out)
{
    LpCostCtx x = lp_cost_ctx_of(r);
    LpReplicaGroups g = groups_of(r->attr);
    LpCollective kind = kind_of(r->op);
    const LpType *t = kind == LP_COLL_ALL_GATHER ? &r->out[0] : &r->in[0];
    LpCostType type = lp_cost_type(t->dtype);
    bool local = g.size == 1 || (kind != LP_COLL_ALL_GATHER &&
                                 reduction_of(r->attr) == LP_REDUCE_LOCAL);
    int apart = (int)g.stride * (r->ipus > 0 ? r->ipus : 1);
    if (local)
        lp_cost_add(out, lp_cost_exchange(&x, type, lp_numel(&r->out[0]),
                                          lp_numel(&r->out[0])));
    else if (r->system)
        lp_cost_add(out,
                    lp_cost_collective(&x, r->system, kind, type,
                                       lp_type_bytes(t), (int)g.size, apart));
}

/* Sums round to nearest always: no kernel may stand around theirs. */
#define COLLECTIVE(id, infer_, ...)                                            \
    LpOp op_##id = {.flags = LP_OPF_EFFECT | LP_OPF_EXACT,                     \
                    .forms = #id                                               \
                    "(Tensor self, str reduction, int replicas, int stride, "  \
                    "int size) -> Tensor @p",                                  \
                    .infer = infer_,                                           \
                    .prepare = prepare,                                        \
                    .cost = cost,                                              \
                    __VA_ARGS__};

COLLECTIVE(replicated_all_reduce, infer_same, .grad = grad_all_reduce)
COLLECTIVE(replicated_reduce_scatter, infer_vector, .grad = grad_reduce_scatter)
COLLECTIVE(replicated_all_gather, infer_vector, .grad = grad_all_gather)
