/* What a replay holds beside the memory of IPUs: cells, in rings, streaming
 * memory and micro-batch order, and the memory of every replica's variables. */
#include "runtime/exec/replay_state.h"

#include <string.h>

/* ---- cells --------------------------------------------------------------- */
LpCell *lp_cell_new(LpReplay *x, int64_t bytes, LpErr *e)
{
    LpCell *c = lp_calloc(1, sizeof *c);
    void *data = lp_alloc_aligned((size_t)bytes);
    if (!c || !data) {
        lp_free(c);
        lp_free(data);
        lp_no_memory(e);
        return NULL;
    }
    *c = (LpCell){.refs = 1, .bytes = bytes, .data = data};
    x->alive += bytes;
    if (x->alive > x->peak)
        x->peak = x->alive;
    return c;
}

void lp_cell_drop(LpReplay *x, LpCell **at)
{
    LpCell *c = *at;
    *at = NULL;
    if (!c || --c->refs > 0)
        return;
    x->alive -= c->bytes;
    lp_free(c->data);
    lp_free(c);
}

void lp_slot_put(LpReplay *x, LpSlot *p, LpCell *c, int64_t tag)
{
    c->refs++;
    lp_cell_drop(x, &p->cell);
    *p = (LpSlot){c, tag};
}

/* ---- life ---------------------------------------------------------------- */
void lp_replay_renew_replicated(LpReplay *x)
{
    const LpStep *s = x->step;
    for (size_t i = 0; i < x->p->n_replicated * (size_t)s->replicas; i++) {
        size_t var = (size_t)x->p->replicated[i % x->p->n_replicated].var;
        memcpy(x->replicated[i],
               x->var[i / x->p->n_replicated * s->n_var + var],
               (size_t)lp_type_bytes(&s->var[var].type));
    }
}

/* Zeros for as long as the replay. */
static void *room(LpReplay *x, size_t n, size_t size, LpErr *e)
{
    void *p = lp_arena_calloc(&x->mem, (n + 1) * size);
    if (!p)
        lp_no_memory(e);
    return p;
}

static LpStatus set_up_replicated(LpReplay *x, LpErr *e)
{
    const LpStep *s = x->step;
    for (size_t i = 0; i < x->p->n_replicated * (size_t)s->replicas; i++) {
        int var = x->p->replicated[i % x->p->n_replicated].var;
        x->replicated[i] =
            lp_alloc_aligned((size_t)lp_type_bytes(&s->var[var].type));
        LP_FAIL_IF(!x->replicated[i], e, LP_E_MEMORY, "out of memory");
    }
    lp_replay_renew_replicated(x);
    return LP_OK;
}

/* Values that runs make and sums over the micro-batches read. */
static LpStatus set_up_parts(LpReplay *x, LpErr *e)
{
    for (LpNodeId n = 0; n < x->g->n_node; n++) {
        const LpGraphNode *d = &x->g->node[n];
        for (uint32_t i = 0; i < d->n_in && x->p->sum[n].var >= 0; i++) {
            LpVal v = d->in[i];
            LpNodeId m = lp_maker(x->g, v);
            if (m != LP_NO_NODE && x->p->sum[m].var < 0 && !x->part[v])
                x->part[v] = (uint32_t)++x->n_part;
        }
    }
    size_t n = x->n_part * (size_t)x->p->micro_batches;
    x->kept = room(x, n, sizeof *x->kept, e);
    return e->code;
}

static LpStatus set_up_ranges(LpReplay *x, int run, LpErr *e)
{
    const LpStagePass *r = &x->p->pass[run];
    x->range[run] = room(x, x->g->n_value, sizeof **x->range, e);
    LP_TRY(e->code);
    for (uint32_t i = 0; i < r->n_range; i++)
        x->range[run][r->range[i].v] = i + 1;
    return LP_OK;
}

static LpStatus set_up_vars(LpReplay *x, LpErr *e)
{
    const LpStep *s = x->step;
    for (int64_t r = 0; r < s->replicas; r++)
        for (size_t i = 0; i < s->n_var; i++) {
            const LpVariable *v = &s->var[i];
            size_t bytes = (size_t)lp_type_bytes(&v->type);
            void *m = lp_alloc_aligned(bytes);
            LP_FAIL_IF(!m, e, LP_E_MEMORY, "out of memory");
            x->var[(size_t)r * s->n_var + i] = m;
            memset(m, 0, bytes);
            if (!v->data)
                continue;
            LP_TRY(lp_tensor_touch(v->data, false, e));
            const char *host = lp_tensor_data(v->data);
            memcpy(m, host + lp_var_host_slice(s, v, r), bytes);
        }
    return set_up_replicated(x, e);
}

static LpStatus set_up(LpReplay *x, int threads, LpErr *e)
{
    const LpIpuPlan *p = x->p;
    size_t n = (size_t)x->step->replicas;
    const LpGraph *u = x->step->update;
    x->var = room(x, x->step->n_var * n, sizeof *x->var, e);
    x->replicated = room(x, p->n_replicated * n, sizeof *x->replicated, e);
    x->here = room(x, x->g->n_value, sizeof *x->here, e);
    x->now = room(x, u ? u->n_value : 0, sizeof *x->now, e);
    x->ring = room(x, p->n_stash, sizeof *x->ring, e);
    x->link = room(x, p->n_copy, sizeof *x->link, e);
    x->sent = room(x, p->n_copy, sizeof *x->sent, e);
    x->brought = room(x, p->n_transfer, sizeof *x->brought, e);
    size_t parts = (size_t)lp_ipu_serial(p);
    x->stored = room(x, p->n_transfer * parts, sizeof *x->stored, e);
    x->late = room(x, p->n_transfer, sizeof *x->late, e);
    x->wrote = room(x, x->step->n_var, sizeof *x->wrote, e);
    x->ipu = room(x, (size_t)p->n_ipus, sizeof *x->ipu, e);
    x->base = room(x, (size_t)p->n_pass, sizeof *x->base, e);
    x->range = room(x, (size_t)p->n_pass, sizeof *x->range, e);
    x->part = room(x, x->g->n_value, sizeof *x->part, e);
    x->wide = room(x, n, sizeof *x->wide, e);
    x->ahead = room(x, x->step->n_var * n, sizeof *x->ahead, e);
    size_t ipus = (size_t)p->n_ipus;
    x->moved = room(x, LP_N_ACTS * ipus * ipus, sizeof *x->moved, e);
    LP_TRY(e->code);
    for (size_t i = 0; i < p->n_copy; i++)
        x->link[i] = room(x, parts, sizeof(LpSlot), e);
    for (size_t i = 0; i < p->n_stash; i++)
        x->ring[i] = room(x, (size_t)p->stash[i].depth, sizeof(LpSlot), e);
    for (int r = 0; r < p->n_pass; r++)
        LP_TRY(set_up_ranges(x, r, e));
    LP_TRY(lp_replay_lay_out(x, e));
    LP_TRY(set_up_parts(x, e));
    LP_TRY(
        lp_node_kernels_init(&x->micro, x->g, x->step->numerics, threads, e));
    if (u) {
        LP_TRY(
            lp_node_kernels_init(&x->update, u, x->step->numerics, threads, e));
        LP_TRY(lp_replay_set_up_update(x, e));
    }
    return set_up_vars(x, e);
}

LpStatus lp_replay_new(const LpIpuPlan *p, int threads, LpReplay **out,
                       LpErr *e)
{
    LpReplay *x = lp_calloc(1, sizeof *x);
    LP_FAIL_IF(!x, e, LP_E_MEMORY, "out of memory");
    x->p = p;
    x->step = p->step;
    x->g = p->step->micro;
    LpStatus s = set_up(x, threads, e);
    if (s == LP_OK)
        *out = x;
    else
        lp_replay_free(x);
    return s;
}

void lp_replay_clear_run(LpReplay *x)
{
    for (LpVal v = 0; x->here && v < x->g->n_value; v++)
        lp_cell_drop(x, &x->here[v]);
}

/* Everything but variables. */
void lp_replay_clear(LpReplay *x)
{
    const LpIpuPlan *p = x->p;
    lp_replay_clear_run(x);
    for (size_t i = 0; x->ring && i < p->n_stash; i++)
        for (int k = 0; x->ring[i] && k < p->stash[i].depth; k++)
            lp_cell_drop(x, &x->ring[i][k].cell);
    for (size_t i = 0; x->link && i < p->n_copy; i++)
        for (int64_t k = 0; x->link[i] && k < lp_ipu_serial(p); k++) {
            lp_cell_drop(x, &x->link[i][k].cell);
            x->link[i][k].tag = 0;
        }
    for (size_t i = 0; x->sent && i < p->n_copy; i++)
        x->sent[i] = 0;
    for (size_t i = 0; x->brought && x->late && i < p->n_transfer; i++) {
        x->brought[i] = 0;
        x->late[i] = false;
    }
    for (size_t i = 0; x->wrote && i < x->step->n_var; i++)
        x->wrote[i] = 0;
    lp_replay_forget(x);
    for (size_t i = 0; x->kept && i < x->n_part * (size_t)p->micro_batches; i++)
        lp_cell_drop(x, &x->kept[i]);
    const LpGraph *u = x->step->update;
    for (LpVal v = 0; u && x->now && v < u->n_value; v++)
        lp_cell_drop(x, &x->now[v]);
}

void lp_replay_free(LpReplay *x)
{
    if (!x)
        return;
    lp_replay_clear(x);
    size_t n = (size_t)x->step->replicas;
    for (size_t i = 0; x->var && i < x->step->n_var * n; i++)
        lp_free(x->var[i]);
    for (size_t i = 0; x->replicated && i < x->p->n_replicated * n; i++)
        lp_free(x->replicated[i]);
    for (int i = 0; x->ipu && i < x->p->n_ipus; i++)
        lp_free(x->ipu[i].data);
    if (x->micro.g)
        lp_node_kernels_fini(&x->micro);
    if (x->update.g)
        lp_node_kernels_fini(&x->update);
    lp_arena_fini(&x->mem);
    lp_free(x);
}

void *lp_replay_var(const LpReplay *x, size_t var, int64_t replica)
{
    return x->var[(size_t)replica * x->step->n_var + var];
}

int64_t lp_replay_peak(const LpReplay *x)
{
    int64_t all = x->peak;
    for (int i = 0; i < x->p->n_ipus; i++)
        all += x->ipu[i].live;
    return all;
}
