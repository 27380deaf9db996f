/* The eager builder: rules run on tensors. Every value lives until the rule
 * returns. A value that stands for a type alone may be asked for its type but
 * not computed with: a rule that does reads more than its record says. */
#include <string.h>

#include "src/autodiff/meta.h"
#include "src/autodiff/trace.h"
#include "src/ops/ops.h"

static LpVal add(LpEager *g, LpEagerVal v)
{
    if (!LP_GROW(g->val, g->cap, g->n)) {
        lp_fail(g->b.err, LP_E_MEMORY, "out of memory");
        lp_tensor_release(v.t);
        return LP_NOVAL;
    }
    g->val[g->n] = v;
    LpVal id = (LpVal)g->n++;
    return v.is_imm ? id | LP_VAL_IMM : id;
}

static LpEagerVal *at(LpEager *g, LpVal v)
{
    return &g->val[v & ~LP_VAL_IMM];
}

static const LpType *keep_type(LpEager *g, const LpType *t)
{
    const LpType *p = lp_arena_memdup(g->b.scratch, t, sizeof *t);
    if (!p)
        lp_fail(g->b.err, LP_E_MEMORY, "out of memory");
    return p ? p : &lp_unmade;
}

LpVal lp_eager_tensor(LpEager *g, LpTensor *t)
{
    LpType type = lp_tensor_type(t);
    return add(g, (LpEagerVal){.t = t, .type = keep_type(g, &type)});
}

LpVal lp_eager_type(LpEager *g, const LpType *t, bool turned)
{
    return add(g, (LpEagerVal){.type = keep_type(g, t), .turned = turned});
}

static LpVal add_imm(LpBuilder *b, LpScalar s)
{
    return add(
        (LpEager *)b,
        (LpEagerVal){.is_imm = true, .imm = s, .type = lp_number_type(s.kind)});
}

LpVal lp_eager_arg(LpEager *g, const LpArg *a)
{
    if (a->t)
        return lp_eager_tensor(g, lp_tensor_retain(a->t));
    return a->is_num ? add_imm(&g->b, a->num) : LP_NOVAL;
}

LpTensor *lp_eager_get(LpEager *g, LpVal v)
{
    if (v == LP_NOVAL)
        return NULL;
    if (at(g, v)->later && !lp_failed(&g->b))
        lp_eager_make(g, v);
    return at(g, v)->t;
}

static int emit(LpBuilder *b, const LpOp *op, const LpVal *in, int n_in,
                const LpAttr *attr, LpVal *out)
{
    LpEager *g = (LpEager *)b;
    if (lp_failed(b))
        return 0;
    if (lp_eager_put_off(g, op, in, n_in, attr, out))
        return lp_failed(b) ? 0 : 1;
    if (lp_eager_sum(g, op, in, attr, out))
        return lp_failed(b) ? 0 : 1;
    for (int i = 0; i < n_in; i++)
        if (in[i] != LP_NOVAL && at(g, in[i])->later &&
            lp_eager_make(g, in[i]) != LP_OK)
            return 0;
    /* to rules, as in a graph, values lie in order */
    const LpTensor *seen =
        op->flags & LP_OPF_OWN_STRIDES ? at(g, in[0])->t : NULL;
    if (seen && (seen->offset || !lp_tensor_contiguous(seen))) {
        LpVal rows;
        emit(b, &op_clone, in, 1, NULL, &rows);
        return emit(b, op, &rows, 1, attr, out); /* none, if that failed */
    }
    LpArg buf[LP_MAX_IN], *args = buf;
    if (n_in > LP_MAX_IN)
        args = lp_arena_alloc(b->scratch, (size_t)n_in * sizeof *args);
    LpTensor *res[LP_MAX_LIST];
    int n_out = 0;
    if (!args) {
        lp_fail(b->err, LP_E_MEMORY, "out of memory");
        return 0;
    }
    for (int i = 0; i < n_in; i++) {
        args[i] = (LpArg){0};
        if (in[i] == LP_NOVAL)
            continue;
        const LpEagerVal *v = at(g, in[i]);
        if (!v->t && !v->is_imm) {
            lp_fail(b->err, LP_E_INTERNAL,
                    "a rule computes (%s) with a value that its record says "
                    "it does not read",
                    op->name);
            return 0;
        }
        args[i] = (LpArg){.t = v->t, .is_num = v->is_imm, .num = v->imm};
    }
    LpStatus s = g->has_site
                     ? lp_op_call_at(op, args, n_in, attr, g->forced_site, res,
                                     &n_out, b->err)
                     : lp_op_call(op, args, n_in, attr, res, &n_out, b->err);
    if (s != LP_OK)
        return 0;
    for (int i = 0; i < n_out; i++)
        out[i] = lp_eager_tensor(g, res[i]);
    return n_out;
}

static const LpType *type(LpBuilder *b, LpVal v)
{
    return at((LpEager *)b, v)->type;
}

static LpScalar imm(LpBuilder *b, LpVal v)
{
    return at((LpEager *)b, v)->imm;
}

static bool turned(LpBuilder *b, LpVal v)
{
    const LpEagerVal *x = at((LpEager *)b, v);
    return !lp_tracing && (x->t ? lp_is_turned(x->t) : x->turned);
}

static void set_site(LpBuilder *b, bool on, uint64_t site)
{
    LpEager *g = (LpEager *)b;
    g->has_site = on;
    g->forced_site = site;
}

void lp_eager_init(LpEager *g, LpErr *e)
{
    *g = (LpEager){.b = {.emit = emit,
                         .type = type,
                         .imm = imm,
                         .turned = turned,
                         .add_imm = add_imm,
                         .set_site = set_site,
                         .excuse = lp_trace_excuse,
                         .on_host = !lp_tracing,
                         .scratch = lp_scratch_enter(),
                         .err = e}};
    lp_eager_type(g, &(LpType){.dtype = LP_DT_NONE}, false); /* LP_NOVAL */
}

LpEager *lp_to_eager(LpBuilder *b)
{
    return b->emit == emit ? (LpEager *)b : NULL;
}

void lp_eager_fini(LpEager *g)
{
    for (size_t i = 0; i < g->n; i++)
        lp_tensor_release(g->val[i].t);
    lp_free(g->val);
    lp_scratch_leave();
}
