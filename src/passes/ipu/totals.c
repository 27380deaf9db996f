/* Figures of a call: its cycles, samples and efficiency. */
#include "src/passes/ipu/ipu.h"

#include "src/base/checked.h"

/* Inputs need not be batched alike: the rows of a micro-batch are the leading
 * dimension that most inputs have, of several the greatest, so that their
 * order does not matter. */
static int64_t batch_rows(const LpStep *s)
{
    int64_t rows = 1;
    int most = 0;
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        if (v->role != LP_VAR_STREAM_IN || v->type.ndim == 0)
            continue;
        int n = 0;
        for (size_t k = 0; k < s->n_var; k++)
            n += s->var[k].role == LP_VAR_STREAM_IN &&
                 s->var[k].type.ndim > 0 &&
                 s->var[k].type.shape[0] == v->type.shape[0];
        if (n > most || (n == most && v->type.shape[0] > rows)) {
            most = n;
            rows = v->type.shape[0];
        }
    }
    return rows;
}

/* Adds so many times x; false if that cannot be counted. */
static bool add_times(int64_t *sum, int64_t x, int64_t times)
{
    return lp_mul_i64(x, times, &x) && lp_add_i64(*sum, x, sum);
}

static bool count_cycles(LpIpuPlan *p)
{
    int64_t loop = 0;
    bool fine = true;
    p->cycles = 0;
    for (size_t i = 0; i < p->n_row && fine; i++) {
        const LpLoop *l = lp_loop_of(p, i);
        fine = add_times(l->once ? &p->cycles : &loop, p->row[i].total_cyc,
                         l->count);
    }
    return fine && add_times(&p->cycles, loop, p->loops);
}

static bool count_samples(LpIpuPlan *p)
{
    int64_t readers = p->o.input_groups ? p->o.input_groups : p->replicas, n;
    p->samples = 0;
    return lp_mul_i64(batch_rows(p->step), p->micro_batches, &n) &&
           lp_mul_i64(n, readers, &n) && add_times(&p->samples, n, p->loops);
}

static int used_ipus(const LpIpuPlan *p)
{
    bool used[LP_MAX_IPUS] = {false};
    int n = 0;
    for (int i = 0; i < p->n_stage; i++) {
        n += !used[p->stage[i].ipu];
        used[p->stage[i].ipu] = true;
    }
    return n;
}

static void efficiency(LpIpuPlan *p)
{
    double busy = 0, wall = 0, useful = 0;
    int n = used_ipus(p);
    for (size_t i = 0; i < p->n_row; i++) {
        const LpRow *r = &p->row[i];
        const LpLoop *l = lp_loop_of(p, i);
        double count = (double)l->count;
        useful +=
            (double)r->useful_cyc * count * (double)(l->once ? 1 : p->loops);
        if (r->kind == LP_ROW_UPDATE || r->kind == LP_ROW_OUTPUT)
            continue;
        busy += (double)r->busy_cyc * count;
        wall += (double)r->work_cyc * count;
    }
    p->efficiency = wall > 0 ? busy / (wall * n) : 0;
    if (p->cycles > 0)
        p->wall_efficiency = useful / ((double)p->cycles * n);
}

LpStatus lp_ipu_totals(LpIpuPlan *p)
{
    LP_FAIL_IF(!count_cycles(p) || !count_samples(p), p->err, LP_E_OVERFLOW,
               "a call of %lld weight updates of %lld micro-batches takes more "
               "cycles or samples than can be counted",
               (long long)p->loops, (long long)p->micro_batches);
    efficiency(p);
    p->seconds = (double)p->cycles / p->o.chip->clock_hz;
    if (p->cycles > 0)
        p->samples_per_second = (double)p->samples / p->seconds;
    return LP_OK;
}
