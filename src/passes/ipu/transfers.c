/* What comes from streaming memory and goes to it: for every run the parameters
 * and accumulators that it reads and that live there, once each; stashes and
 * values on their way that leave the chip; for the weight update all that lives
 * there. And whether a row brings it for itself or one before it. */
#include "src/base/checked.h"
#include "src/passes/ipu/strategy.h"

static LpStatus add(LpIpuPlan *p, LpTransferOf of, size_t at, int run,
                    bool load, int64_t bytes)
{
    int ipu = run < 0 ? p->var_ipu[at] : p->pass[run].ipu;
    LP_IPU_ADD(p, transfer, p->err,
               (LpTransfer){.of = of,
                            .at = at,
                            .run = run,
                            .ipu = ipu,
                            .load = load,
                            .bytes = bytes});
    return LP_OK;
}

static LpStatus there_and_back(LpIpuPlan *p, size_t var, int run)
{
    int64_t bytes = lp_type_bytes(&p->step->var[var].type);
    LP_TRY(add(p, LP_TRANSFER_VAR, var, run, true, bytes));
    return add(p, LP_TRANSFER_VAR, var, run, false, bytes);
}

static LpStatus read_by(LpIpuPlan *p, LpVal v, int run)
{
    if (p->var_of[v] < 0)
        return LP_OK;
    size_t at = (size_t)p->var_of[v];
    const LpVariable *var = &p->step->var[at];
    if (!lp_ipu_off_chip(p, var))
        return LP_OK;
    if (lp_ipu_turns(p, run) && lp_ipu_holds(p, at, run))
        return LP_OK;
    if (var->role == LP_VAR_PARAM)
        return add(p, LP_TRANSFER_VAR, at, run, true,
                   lp_ipu_kept_bytes(p, var));
    return var->role == LP_VAR_ACCUM ? there_and_back(p, at, run) : LP_OK;
}

/* Accumulators that no entry of a run reads. */
static LpStatus sums(LpIpuPlan *p)
{
    for (size_t i = 0; i < p->n_partial; i++) {
        size_t var = (size_t)p->partial[i].var;
        const LpVariable *v = &p->step->var[var];
        if (!lp_ipu_off_chip(p, v))
            continue;
        LP_TRY(there_and_back(p, var, p->partial[i].run));
        if (i == 0 || p->partial[i - 1].var != p->partial[i].var)
            LP_TRY(there_and_back(p, var, lp_ipu_pass_making(p, v->micro_out)));
    }
    return LP_OK;
}

/* Gradients that are not added up, or would be with more micro-batches than the
 * step has. */
static LpStatus gradients(LpIpuPlan *p)
{
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        if (!lp_ipu_leaves(p, v))
            continue;
        int run = lp_ipu_pass_making(p, v->micro_out);
        if (p->accumulation > 1)
            LP_TRY(there_and_back(p, i, run));
        else
            LP_TRY(add(p, LP_TRANSFER_VAR, i, run, false,
                       lp_type_bytes(&v->type)));
    }
    return LP_OK;
}

static LpStatus values(LpIpuPlan *p)
{
    const LpGraph *g = p->step->micro;
    for (size_t i = 0; i < p->n_stash; i++) {
        const LpStash *s = &p->stash[i];
        int64_t bytes = lp_type_bytes(lp_graph_type(g, s->v));
        for (int back = 0; back < 2 && s->off_chip; back++)
            LP_TRY(add(p, LP_TRANSFER_STASH, i, lp_pass_of(p, s->stage, back),
                       back, bytes));
    }
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        int64_t bytes = lp_type_bytes(lp_graph_type(g, m->v));
        if (!m->off_chip)
            continue;
        LP_TRY(add(p, LP_TRANSFER_COPY, i, m->from, false, bytes));
        LP_TRY(add(p, LP_TRANSFER_COPY, i, m->to, true, bytes));
    }
    return LP_OK;
}

static LpStatus update(LpIpuPlan *p)
{
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        int64_t bytes = lp_ipu_kept_bytes(p, v);
        if (!lp_ipu_off_chip(p, v) || lp_ipu_in_velocity(p, v))
            continue;
        if (v->update_in != LP_NOVAL)
            LP_TRY(add(p, LP_TRANSFER_VAR, i, -1, true, bytes));
        if (v->update_out != LP_NOVAL)
            LP_TRY(add(p, LP_TRANSFER_VAR, i, -1, false, bytes));
    }
    return LP_OK;
}

/* ---- when they move ------------------------------------------------------ */
/* What a row loads for the next one has been stored before, and does not change
 * in it. Rows of a turn, of the micro-batches that pass a phase together one
 * after another, are counted. */
static int64_t rows_between(const LpIpuPlan *p, const LpTransfer *store,
                            const LpTransfer *load)
{
    int64_t k = lp_ipu_serial(p);
    int64_t rows = p->pass[load->run].row - p->pass[store->run].row;
    return rows * k - (load->of == LP_TRANSFER_VAR ? k - 1 : 0);
}

/* From a store of the same tensor to a load of it in the turn, the least;
 * INT64_MAX: there is none. The two of a stash or a copy are neighbours. */
static int64_t nearest(const LpIpuPlan *p, size_t i)
{
    const LpTransfer *t = &p->transfer[i];
    int64_t least = INT64_MAX;
    size_t from = 0, to = p->n_transfer;
    if (t->of != LP_TRANSFER_VAR) {
        from = t->load ? i - 1 : i + 1;
        to = from + 1;
    } else if (p->step->var[t->at].role == LP_VAR_PARAM) {
        return least;
    }
    for (; from < to; from++) {
        const LpTransfer *u = &p->transfer[from];
        if (u->run < 0 || u->of != t->of || u->at != t->at ||
            u->load == t->load)
            continue;
        const LpTransfer *store = t->load ? u : t, *load = t->load ? t : u;
        if (store->run < load->run)
            least = lp_min(least, rows_between(p, store, load));
    }
    return least;
}

/* Has the IPU nothing to compute in a row of the turn? */
static bool is_idle(const LpIpuPlan *p, int ipu, int row)
{
    for (int r = 0; r < p->n_pass; r++)
        if (p->pass[r].row == row && p->pass[r].ipu == ipu)
            return false;
    return true;
}

static const LpLocation *location(const LpIpuPlan *p, const LpTransfer *t)
{
    if (t->of == LP_TRANSFER_VAR)
        return lp_ipu_location(p, &p->step->var[t->at]);
    return lp_ipu_val_location(
        p, t->of == LP_TRANSFER_STASH ? p->stash[t->at].v : p->copy[t->at].v);
}

/* I/O tiles move what its location asks them to. */
static bool by_io_tiles(const LpIpuPlan *p, const LpTransfer *t)
{
    const LpLocation *l = location(p, t);
    return p->o.io_tiles > 0 && l && (l->io_load || l->io_store);
}

/* Does it move with its own phase alone? */
static bool on_demand(const LpIpuPlan *p, const LpTransfer *t)
{
    const LpLocation *l = location(p, t);
    return l && l->on_demand;
}

static LpStreaming streaming(const LpIpuPlan *p)
{
    return p->strategy->streaming ? p->strategy->streaming(p)
                                  : LP_STREAMING_WITH;
}

/* Does one of the first two rows of a turn load the variable, so that no row
 * can be storing it? */
static bool comes_soon(const LpIpuPlan *p, size_t var)
{
    for (size_t i = 0; i < p->n_transfer; i++) {
        const LpTransfer *t = &p->transfer[i];
        if (t->load && t->run >= 0 && t->of == LP_TRANSFER_VAR &&
            t->at == var && p->pass[t->run].row < 2)
            return true;
    }
    return false;
}

/* By I/O tiles from turn to turn: parameters come, sums go. */
static bool wraps(const LpIpuPlan *p, const LpTransfer *t)
{
    int last = p->pass[p->n_pass - 1].row, row = p->pass[t->run].row;
    if (!t->io || t->of != LP_TRANSFER_VAR || on_demand(p, t) ||
        streaming(p) < LP_STREAMING_AHEAD ||
        p->micro_batches <= lp_ipu_serial(p))
        return false;
    return t->load ? row == 0 && p->step->var[t->at].role == LP_VAR_PARAM
                   : row == last && !comes_soon(p, t->at);
}

static LpStreamWhen when(const LpIpuPlan *p, const LpTransfer *t, bool edge,
                         int64_t rows)
{
    const LpStagePass *r = &p->pass[t->run];
    LpStreaming how = streaming(p);
    int other = r->row + (edge ? t->load ? -1 : 1 : 0);
    bool ends = other < 0 || other > p->pass[p->n_pass - 1].row;
    if (edge && t->wraps)
        return LP_STREAM_BESIDE;
    bool idle = how == LP_STREAMING_GROUPS && is_idle(p, r->ipu, other);
    if (how == LP_STREAMING_WITH)
        return t->io ? LP_STREAM_WITH : LP_STREAM_ALONE;
    if (how == LP_STREAMING_IN_TURN || ends || (edge && on_demand(p, t)) ||
        rows < (t->load ? 2 : 3))
        return LP_STREAM_ALONE;
    if (!edge && p->o.parts != LP_PARTS_OVERLAP_COMPUTE)
        return t->io && t->load && p->o.parts == LP_PARTS_OVERLAP_IO
                   ? LP_STREAM_BETWEEN
                   : LP_STREAM_ALONE;
    if (t->io || idle)
        return LP_STREAM_BESIDE;
    return t->load && edge ? LP_STREAM_BETWEEN : LP_STREAM_ALONE;
}

/* Of an optimizer state: before the update or, if that is a phase, with the
 * last row before it. */
static LpStreamWhen before_update(const LpIpuPlan *p, const LpTransfer *t)
{
    LpStreaming how = streaming(p);
    bool state = p->step->var[t->at].role == LP_VAR_STATE;
    if (!t->load || !state || on_demand(p, t) || !lp_ipu_update_is_phase(p) ||
        how == LP_STREAMING_IN_TURN)
        return LP_STREAM_ALONE;
    bool idle = how == LP_STREAMING_GROUPS &&
                is_idle(p, t->ipu, p->pass[p->n_pass - 1].row);
    return t->io || idle ? LP_STREAM_BESIDE : LP_STREAM_BETWEEN;
}

static void find_when(LpIpuPlan *p)
{
    for (size_t i = 0; i < p->n_transfer; i++) {
        LpTransfer *t = &p->transfer[i];
        t->io = by_io_tiles(p, t);
        if (t->run < 0) {
            t->edge = before_update(p, t);
            continue;
        }
        int64_t rows = nearest(p, i);
        t->wraps = wraps(p, t);
        t->edge = when(p, t, true, rows);
        t->when = when(p, t, false, rows);
    }
}

LpStatus lp_ipu_transfers(LpIpuPlan *p)
{
    for (int run = 0; run < p->n_pass; run++)
        for (uint32_t i = 0; i < p->pass[run].n_read; i++)
            LP_TRY(read_by(p, p->pass[run].read[i], run));
    LP_TRY(sums(p));
    LP_TRY(gradients(p));
    LP_TRY(values(p));
    LP_TRY(update(p));
    find_when(p);
    return LP_OK;
}
