/* The text of a report, in the order of Poplar's profile summary: target,
 * graph, memory, execution. */
#include "runtime/report/report.h"

#include <inttypes.h>

#include "src/ir/text.h"
#include "src/passes/ipu/strategy.h"

/* 1234567 as "1,234,567". */
static const char *grouped(int64_t v, char buf[32])
{
    char digits[24];
    int n = 0, k = 0;
    uint64_t u = v < 0 ? (uint64_t)-v : (uint64_t)v;
    do
        digits[n++] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        buf[k++] = '-';
    while (n-- > 0) {
        buf[k++] = digits[n];
        if (n > 0 && n % 3 == 0)
            buf[k++] = ',';
    }
    buf[k] = '\0';
    return buf;
}

static void line(LpBuf *b, const char *label, int64_t v, const char *unit)
{
    char num[32];
    lp_buf_fmt(b, "  %-40s %16s%s%s\n", label, grouped(v, num),
               *unit ? " " : "", unit);
}

static void target(LpBuf *b, const LpIpuPlan *p)
{
    const LpChip *c = p->o.chip;
    int64_t ipus = p->n_ipus * p->replicas;
    lp_buf_fmt(b, "Target:\n  %-40s %s, simulated\n", "Type", c->name);
    line(b, "Number of IPUs", ipus, "");
    line(b, "Number of replicas", p->replicas, "");
    int tiles = lp_ipu_tiles(p) + p->o.io_tiles;
    line(b, "Tiles per IPU", tiles, "");
    if (p->o.io_tiles)
        line(b, "Tiles per IPU set aside for I/O", p->o.io_tiles, "");
    line(b, "Total tiles", tiles * ipus, "");
    line(b, "Memory per tile", c->tile_bytes, "B");
    lp_buf_fmt(b, "  %-40s %16.0f MHz\n", "Clock", c->clock_hz / 1e6);
    lp_buf_fmt(b, "  %-40s %16s\n\n", "Execution strategy",
               p->o.strategy->name);
}

static void graph(LpBuf *b, const LpIpuPlan *p)
{
    const LpGraph *u = p->step->update;
    int64_t moved = 0, stashed = 0, vars = 0;
    const LpGraph *g = p->step->micro;
    for (size_t i = 0; i < p->n_copy; i++)
        if (p->copy[i].from_ipu != p->copy[i].to_ipu)
            moved += lp_type_bytes(lp_graph_type(g, p->copy[i].v));
    for (size_t i = 0; i < p->n_stash; i++)
        stashed +=
            p->stash[i].depth * lp_type_bytes(lp_graph_type(g, p->stash[i].v));
    for (size_t i = 0; i < p->step->n_var; i++)
        vars += lp_type_bytes(&p->step->var[i].type);
    lp_buf_str(b, "Graph:\n");
    line(b, "Operators of a micro-batch", (int64_t)g->n_node, "");
    line(b, "Operators of a weight update", u ? (int64_t)u->n_node : 0, "");
    line(b, "Variables", (int64_t)p->step->n_var, "");
    line(b, "Bytes of variables", vars, "B");
    line(b, "Stages", p->n_stage, "");
    line(b, "Bytes copied between IPUs a micro-batch", moved, "B");
    line(b, "Bytes kept from forward to backward", stashed, "B");
    lp_buf_str(b, "\n");
}

static void memory_of(LpBuf *b, const LpIpuPlan *p, int ipu)
{
    const LpIpuMemory *m = &p->memory[ipu];
    char num[32];
    if (m->always + m->not_always == 0)
        return;
    lp_buf_fmt(b, "  IPU %d:\n", ipu);
    for (int k = 0; k < LP_N_MEM; k++)
        if (m->bytes[k])
            lp_buf_fmt(b, "    %-38s %16s B%s\n", lp_mem_names[k],
                       grouped(m->bytes[k], num),
                       k >= LP_MEM_ACTIVATION ? " (at the peak)" : "");
    line(b, "  Always live", m->always, "B");
    line(b, "  Not always live, peak", m->not_always, "B");
    lp_buf_fmt(b, "    %-38s %16s B", "Fullest tile",
               grouped(m->max_tile, num));
    lp_buf_fmt(b, " (%s B with gaps, %.1f %% of a tile)\n",
               grouped(m->max_tile_gaps, num),
               100.0 * (double)m->max_tile_gaps /
                   (double)p->o.chip->tile_bytes);
    if (m->off_chip)
        line(b, "  In streaming memory", m->off_chip, "B");
}

static void share(LpBuf *b, const char *label, int64_t v, int64_t all)
{
    char num[32];
    lp_buf_fmt(b, "  %-40s %16s (%5.1f %%)\n", label, grouped(v, num),
               all > 0 ? 100.0 * (double)v / (double)all : 0.0);
}

static void execution(LpBuf *b, const LpIpuPlan *p)
{
    LpRow t = {0};
    for (size_t i = 0; i < p->n_row; i++) {
        const LpRow *r = &p->row[i];
        const LpLoop *l = lp_loop_of(p, i);
        int64_t times = l->count * (l->once ? 1 : p->loops);
        t.compute_cyc += times * r->compute_cyc;
        t.exchange_cyc += times * r->exchange_cyc;
        t.sync_cyc += times * r->sync_cyc;
        t.copy_cyc += times * (r->copy_cyc + r->collective_cyc);
        t.host_cyc += times * r->host_cyc;
        t.stream_cyc += times * r->stream_cyc;
    }
    lp_buf_str(b, "Execution of one call:\n");
    line(b, "Total cycles", p->cycles, "");
    share(b, "Tile compute cycles (slowest IPU)", t.compute_cyc, p->cycles);
    share(b, "IPU exchange cycles", t.exchange_cyc, p->cycles);
    share(b, "Global exchange cycles", t.copy_cyc, p->cycles);
    share(b, "Host exchange cycles", t.host_cyc, p->cycles);
    share(b, "Streaming memory cycles", t.stream_cyc, p->cycles);
    share(b, "Sync cycles", t.sync_cyc, p->cycles);
    lp_buf_fmt(b, "  %-40s %16.6f s\n", "Time", p->seconds);
    line(b, "Samples", p->samples, "");
    lp_buf_fmt(b, "  %-40s %16.1f /s\n", "Samples per second",
               p->samples_per_second);
    lp_buf_fmt(b, "  %-40s %16.1f %%\n\n", "IPUs busy during the loop",
               100 * p->efficiency);
}

static void stages(LpBuf *b, const LpIpuPlan *p)
{
    char f[32], w[32];
    lp_buf_fmt(b, "Cycles by stage:\n  %-8s %-6s %16s %16s  %s\n", "Stage",
               "IPU", "forward", "backward", "block");
    for (int s = 0; s < p->n_stage; s++) {
        const LpStagePass *r = &p->pass[s];
        int64_t back =
            p->training ? lp_pass_cyc(&p->pass[lp_pass_of(p, s, true)]) : 0;
        lp_buf_fmt(b, "  %-8d %-6d %16s %16s  %s%s\n", s, r->ipu,
                   grouped(lp_pass_cyc(r), f), grouped(back, w),
                   p->stage[s].block,
                   p->stage[s].recomputed ? " (recomputed)" : "");
    }
    lp_buf_str(b, "\nSchedule:\n");
    for (size_t i = 0; i < p->n_row; i++)
        lp_buf_fmt(b, "  %-8s x %-8" PRId64 " %20s cycles\n",
                   lp_row_names[p->row[i].kind], lp_loop_of(p, i)->count,
                   grouped(p->row[i].total_cyc, f));
    lp_buf_str(b, "\n");
}

static bool operators(LpBuf *b, const LpIpuPlan *p, LpErr *e)
{
    char c[32], i[32];
    size_t n = 0;
    LpOpTotal *t = lp_report_operators(p, &n, e);
    if (!t)
        return false;
    lp_buf_fmt(b, "Cycles by operator type:\n  %-28s %14s %20s\n", "Operator",
               "instances", "cycles");
    for (size_t k = 0; k < n; k++)
        if (t[k].cycles > 0)
            lp_buf_fmt(b, "  %-28s %14s %20s\n", t[k].name,
                       grouped(t[k].instances, i), grouped(t[k].cycles, c));
    lp_free(t);
    return true;
}

char *lp_report_summary(const LpIpuPlan *p, LpErr *e)
{
    LpBuf b = {0};
    target(&b, p);
    graph(&b, p);
    lp_buf_str(&b, "Memory usage:\n");
    for (int i = 0; i < p->n_ipus; i++)
        memory_of(&b, p, i);
    lp_buf_str(&b, "\n");
    execution(&b, p);
    stages(&b, p);
    if (!operators(&b, p, e)) {
        lp_buf_fini(&b);
        return NULL;
    }
    return lp_text_take(&b, e);
}
