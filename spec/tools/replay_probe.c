/* Spoils plans and tells whether the replay of the schedule notices.
 *
 *     replay_probe MICRO_BATCHES auto|none|all STRATEGY LIVENESS SEPARATE OFF
 *         REPLICAS SERIAL IO < GRAPH
 *
 * GRAPH is the text form of a forward: its input "x" is a stream, inputs "b.."
 * are buffers, the others parameters, its first output is the loss, further
 * ones are the new values of buffers; a stage is a phase as well. SEPARATE: 1
 * for separate backward phases; OFF: what is off chip, a sum of 1
 * (activations), 2 (weights), 8 (accumulators), and 16 if all of it moves with
 * its phase; SERIAL: micro-batches that pass
 * a phase together; IO: I/O tiles, which move all of it. The step that trains
 * it is replayed as planned, then with one thing wrong at a time:
 *
 *   hold    a value goes one entry earlier than planned
 *   ring    a stash has one place less
 *   stash   a stash is missing
 *   move    a value is not brought to the run that reads it
 *   share   an IPU has no copy of a parameter that it reads
 *   part    the sum of what an IPU adds to a gradient is not fetched
 *   stream  something is not loaded or not stored
 *   ahead   something is loaded or stored with another row than planned
 *   io      I/O tiles hold more than planned
 *   batch   a run works on the next micro-batch
 *   late    a backward run works one slot late
 *   act     the schedule has no act for something that is moved
 *   time    acts of a row take no time
 *   free    a value has its memory for one entry only
 *   over    a result is written over an operand that is read again
 *   take    a result takes over an operand that is not read element by element
 *   place   a buffer's new value is written over the old one, which is needed
 *   report  a category of the memory, or a step, is not what is held
 *   skip    the steady state begins one slot late
 *
 * Prints "plan same" if the schedule's order gives the bits of micro-batch
 * order, "KIND TRIED CAUGHT" where a fault counts as caught if the replay ends
 * with an error that names what is wrong, a line for each that is not, and
 * "skip" with the error. Exits 2 if there is no plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/replay.h"
#include "runtime/report/report.h"
#include "src/ir/schema.h"
#include "src/ir/text.h"
#include "src/ops/ops.h"
#include "src/passes/compile.h"
#include "src/passes/ipu/strategy.h"

enum { MAX_VARS = 64 };

static char text[1 << 16];
static LpReplayStream stream[MAX_VARS];
static int64_t stream_bytes[MAX_VARS];

static int give_up(const LpErr *e)
{
    fprintf(stderr, "replay_probe: %s\n", e->msg);
    return 2;
}

static void pattern(float *x, int64_t n, int64_t start)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((start + i * 7) % 11 - 5) / 8;
}

/* ---- the step ------------------------------------------------------------ */
static LpStatus add_inputs(LpStep *s, LpErr *e)
{
    const LpGraph *g = s->micro;
    size_t out = 1;
    for (size_t i = 0; i < g->n_input; i++) {
        LpVal in = g->input[i];
        const char *name = g->value[in].name;
        LpVariable v = {.role = *name == 'x'   ? LP_VAR_STREAM_IN
                                : *name == 'b' ? LP_VAR_BUFFER
                                               : LP_VAR_PARAM,
                        .name = name,
                        .type = *lp_graph_type(g, in),
                        .micro_in = in,
                        .param = -1};
        if (v.role == LP_VAR_BUFFER)
            v.micro_out = g->output[out++];
        if (v.role != LP_VAR_STREAM_IN) {
            LP_TRY(lp_tensor_new(&v.type, &v.data, e));
            pattern(lp_tensor_data(v.data), lp_numel(&v.type), (int64_t)i);
        }
        int at = lp_step_add(s, &v, e);
        lp_tensor_release(v.data);
        LP_FAIL_IF(at < 0, e, LP_E_MEMORY, "out of memory");
    }
    LpVariable loss = {.role = LP_VAR_STREAM_OUT,
                       .name = "loss",
                       .type = *lp_graph_type(g, g->output[0]),
                       .micro_out = g->output[0],
                       .param = -1};
    return lp_step_add(s, &loss, e) < 0 ? LP_E_MEMORY : LP_OK;
}

/* Every parameter becomes p - 0.1 * gradient, which has gathered as half. */
static LpStatus make_step(LpStep *s, LpErr *e)
{
    LpUpdateRule rule[MAX_VARS];
    LpAttr alpha = {.kind = LP_ATTR_SCALAR, .s = lp_float(0.1)};
    int n = 0;
    lp_graph_free(s->micro);
    s->micro = NULL;
    LP_TRY(lp_graph_parse(text, &s->micro, e));
    LP_FAIL_IF(s->micro->n_input > MAX_VARS / 4, e, LP_E_VALUE,
               "too many inputs");
    LP_TRY(add_inputs(s, e));
    for (size_t i = 0; i < s->n_var; i++)
        if (s->var[i].role == LP_VAR_PARAM)
            rule[n++] = (LpUpdateRule){.param = (int)i,
                                       .op = lp_op_find("sub"),
                                       .attr = &alpha,
                                       .n_in = 2,
                                       .n_out = 1,
                                       .in = {(int)i, LP_RULE_GRAD},
                                       .out = {(int)i},
                                       .accum = LP_F16,
                                       .count = -1,
                                       .max_norm = -1};
    LpTraining t = {.loss = s->micro->output[0],
                    .loss_scale = -1,
                    .gathered = -1,
                    .rule = rule,
                    .n_rule = n};
    LpCompileSpec spec = {.device_iterations = s->device_iterations,
                          .gradient_accumulation = s->gradient_accumulation,
                          .topology = {.replicas = s->replicas},
                          .mean = s->mean_reduction,
                          .training = &t};
    return lp_complete_step(s, &spec, e);
}

/* Streams of one call; what goes in is random enough to tell slices apart. */
static LpStatus make_streams(const LpStep *s, LpErr *e)
{
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        if (v->role != LP_VAR_STREAM_IN && v->role != LP_VAR_STREAM_OUT)
            continue;
        int64_t n = lp_numel(&v->type) * s->gradient_accumulation * s->replicas;
        /* and a slice that nobody should read */
        float *data = lp_calloc((size_t)(n + lp_numel(&v->type)), sizeof *data);
        LP_FAIL_IF(!data, e, LP_E_MEMORY, "out of memory");
        pattern(data, n, 3);
        stream[i].in = stream[i].out = data;
        stream_bytes[i] = n * (int64_t)sizeof *data;
    }
    return LP_OK;
}

/* ---- replays ------------------------------------------------------------- */
/* The bits of all outputs and variables, hashed into *sum. */
static LpStatus replay(const LpIpuPlan *p, LpReplayOrder order, uint64_t *sum,
                       LpErr *e)
{
    LpReplay *x = NULL;
    LpStatus s = lp_replay_new(p, 1, &x, e);
    if (s == LP_OK)
        s = lp_replay_run(x, order, stream, 7, 0, e);
    *sum = 1469598103934665603u;
    for (size_t i = 0; s == LP_OK && i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        const unsigned char *b = stream[i].out;
        int64_t n = stream_bytes[i];
        if (!b) {
            b = lp_replay_var(x, i, 0);
            n = lp_type_bytes(&v->type);
        }
        for (int64_t k = 0; k < n; k++)
            *sum = (*sum ^ b[k]) * 1099511628211u;
    }
    lp_replay_free(x);
    return s;
}

typedef struct Tally {
    const char *kind;
    int tried, caught;
} Tally;

/* The error must say so, or else `other` (NULL). */
static void try_saying(const LpIpuPlan *p, Tally *t, const char *want,
                       const char *other)
{
    LpErr e = {0};
    uint64_t sum;
    replay(p, LP_REPLAY_SCHEDULE, &sum, &e);
    bool ok = e.code == LP_E_INTERNAL &&
              (strstr(e.msg, want) || (other && strstr(e.msg, other)));
    t->tried++;
    t->caught += ok;
    if (!ok)
        printf("missed %s, wants '%s': %s\n", t->kind, want,
               e.code ? e.msg : "no error");
}

/* The fault concerns value v. */
static void try_fault(const LpIpuPlan *p, Tally *t, LpVal v, const char *other)
{
    char want[64];
    snprintf(want, sizeof want, "the schedule reads value %%%u (", (unsigned)v);
    try_saying(p, t, want, other);
}

static void show(const Tally *t)
{
    printf("%s %d %d\n", t->kind, t->tried, t->caught);
}

static void shorten_holds(LpIpuPlan *p)
{
    Tally t = {.kind = "hold"};
    for (int r = 0; r < p->n_pass; r++)
        for (uint32_t i = 0; i < p->pass[r].n_range; i++) {
            LpLiveRange *h = &p->pass[r].range[i];
            if (h->to == h->from)
                continue;
            h->to--;
            try_fault(p, &t, h->v, NULL);
            h->to++;
        }
    show(&t);
}

static void spoil_stashes(LpIpuPlan *p)
{
    Tally ring = {.kind = "ring"}, all = {.kind = "stash"};
    for (size_t i = 0; i < p->n_stash; i++) {
        LpStash *s = &p->stash[i];
        LpStash kept = *s;
        if (s->depth > 1) {
            s->depth--;
            try_fault(p, &ring, s->v, NULL);
            s->depth++;
        }
        s->v = LP_NOVAL;
        for (size_t k = 0; k < p->n_stash && s->v == LP_NOVAL; k++)
            if (k != i && p->stash[k].stage == s->stage)
                *s = p->stash[k]; /* another one twice */
        if (s->v != LP_NOVAL)
            try_fault(p, &all, kept.v, NULL);
        *s = kept;
    }
    show(&ring);
    show(&all);
}

static void drop_moves(LpIpuPlan *p)
{
    Tally t = {.kind = "move"};
    for (size_t i = 0; i < p->n_copy; i++) {
        LpIpuCopy *m = &p->copy[i], kept = *m;
        m->from = m->to = -1;
        try_fault(p, &t, kept.v,
                  kept.off_chip ? "has store acts of" : "has copy acts of");
        *m = kept;
    }
    show(&t);
}

static void drop_shares(LpIpuPlan *p)
{
    Tally t = {.kind = "share"};
    for (size_t i = 0; i < p->n_replicated; i++) {
        LpReplicatedVar kept = p->replicated[i];
        p->replicated[i] = p->replicated[--p->n_replicated];
        try_fault(p, &t, p->step->var[kept.var].micro_in, NULL);
        p->replicated[p->n_replicated++] = p->replicated[i];
        p->replicated[i] = kept;
    }
    show(&t);
}

/* Noticed is any error of the schedule. */
static void try_any(const LpIpuPlan *p, Tally *t, int run)
{
    LpErr e = {0};
    uint64_t sum;
    replay(p, LP_REPLAY_SCHEDULE, &sum, &e);
    t->tried++;
    t->caught += e.code == LP_E_INTERNAL;
    if (e.code != LP_E_INTERNAL)
        printf("missed %s of run %d: %s\n", t->kind, run,
               e.code ? e.msg : "no error");
}

static void drop_parts(LpIpuPlan *p)
{
    Tally t = {.kind = "part"};
    for (size_t i = 0; i < p->n_partial; i++) {
        LpPartialGrad kept = p->partial[i];
        p->partial[i].var = -1;
        try_any(p, &t, kept.run);
        p->partial[i] = kept;
    }
    show(&t);
}

static void drop_transfers(LpIpuPlan *p)
{
    Tally t = {.kind = "stream"};
    for (size_t i = 0; i < p->n_transfer; i++) {
        LpTransfer *x = &p->transfer[i], kept = *x;
        x->run = p->n_pass;
        try_any(p, &t, kept.run);
        *x = kept;
    }
    show(&t);
}

/* A row loads for itself what the one before it has loaded, or that too early;
 * I/O tiles hold what they do not. */
static void shift_transfers(LpIpuPlan *p)
{
    Tally t = {.kind = "ahead"}, io = {.kind = "io"};
    for (size_t i = 0; i < p->n_transfer; i++) {
        LpTransfer *x = &p->transfer[i], kept = *x;
        if (x->run < 0 || !p->strategy->one_row)
            continue;
        x->edge = x->edge != LP_STREAM_ALONE ? LP_STREAM_ALONE
                  : x->load                  ? LP_STREAM_BETWEEN
                                             : LP_STREAM_BESIDE;
        try_any(p, &t, kept.run);
        *x = kept;
    }
    for (int i = 0; i < p->n_ipus; i++) {
        if (p->memory[i].io == 0)
            continue;
        p->memory[i].io--;
        try_saying(p, &io, " bytes of transfers on I/O tiles, in", NULL);
        p->memory[i].io++;
    }
    show(&t);
    show(&io);
}

static void shift_runs(LpIpuPlan *p)
{
    Tally t = {.kind = "batch"};
    for (size_t i = 0; i < p->n_row; i++)
        for (uint32_t k = 0; k < p->row[i].n; k++) {
            LpAct *a = &p->row[i].act[k];
            if (a->kind != LP_ACT_COMPUTE)
                continue;
            a->offset--;
            try_any(p, &t, a->run);
            a->offset++;
        }
    show(&t);
}

static void delay_backward(LpIpuPlan *p)
{
    Tally t = {.kind = "late"};
    for (size_t i = 0; i < p->n_row; i++)
        for (uint32_t k = 0; k < p->row[i].n; k++) {
            LpAct *a = &p->row[i].act[k];
            if (a->kind != LP_ACT_COMPUTE || !p->pass[a->run].backward)
                continue;
            a->offset++;
            try_any(p, &t, a->run);
            a->offset--;
        }
    show(&t);
}

static void drop_acts(LpIpuPlan *p)
{
    Tally t = {.kind = "act"}, time = {.kind = "time"};
    for (size_t i = 0; i < p->n_row; i++)
        for (uint32_t k = 0; k < p->row[i].n; k++) {
            LpAct *a = &p->row[i].act[k];
            char want[64];
            if (a->kind == LP_ACT_COMPUTE || a->kind == LP_ACT_UPDATE)
                continue;
            snprintf(want, sizeof want, "has %s acts of",
                     lp_act_names[a->kind]);
            int64_t kept = a->bytes;
            a->bytes = 0;
            try_saying(p, &t, want, NULL);
            a->bytes = kept;
        }
    for (size_t i = 0; i < p->n_row; i++) {
        LpRow *r = &p->row[i];
        int64_t without = r->copy_cyc + r->collective_cyc;
        if (without == 0)
            continue;
        r->total_cyc -= without;
        try_saying(p, &time, "has no time for", NULL);
        r->total_cyc += without;
    }
    show(&t);
    show(&time);
}

/* Is the variable read after the run's first entry? */
static bool read_later(const LpIpuPlan *p, int run, LpVal v)
{
    const LpStagePass *r = &p->pass[run];
    for (uint32_t i = 1; i < r->n; i++) {
        const LpGraphNode *d = &p->step->micro->node[r->entry[i].node];
        for (uint32_t k = 0; k < d->n_in; k++)
            if (d->in[k] == v)
                return true;
    }
    return false;
}

/* Some run of the IPU that begins where the span does. */
static bool worth(const LpIpuPlan *p, int ipu, const LpLiveSpan *s)
{
    uint32_t base = 0;
    for (int r = 0; r < p->n_pass && !s->v && !s->update; r++) {
        if (p->pass[r].ipu != ipu)
            continue;
        if (base == s->from && read_later(p, r, p->step->var[s->var].micro_in))
            return true;
        base += p->pass[r].n + 1;
    }
    return s->v != LP_NOVAL;
}

static void free_early(LpIpuPlan *p)
{
    Tally t = {.kind = "free"};
    for (int ipu = 0; ipu < p->n_ipus; ipu++)
        for (uint32_t i = 0; i < p->memory[ipu].n_span; i++) {
            LpLiveSpan *s = &p->memory[ipu].span[i];
            uint32_t kept = s->to;
            if (s->block != i || s->to == s->from || !worth(p, ipu, s))
                continue;
            LpVal v = s->v ? s->v : p->step->var[s->var].micro_in;
            char want[64], other[64];
            snprintf(want, sizeof want, "the %s reads value %%%u (",
                     s->update ? "weight update" : "schedule", (unsigned)v);
            /* where it came too early, or comes later than the first time */
            snprintf(other, sizeof other,
                     p->o.batch_serial > 1 ? "has no memory for value %%%u in"
                                           : "value %%%u is written over it",
                     (unsigned)v);
            s->to = s->from;
            try_saying(p, &t, want, other);
            s->to = kept;
        }
    for (int ipu = 0; ipu < p->n_ipus; ipu++) /* all of them at once */
        for (uint32_t i = 0; i < p->memory[ipu].n_span; i++)
            if (p->memory[ipu].span[i].to > p->memory[ipu].span[i].from)
                p->memory[ipu].span[i].to = p->memory[ipu].span[i].from + 1;
    try_any(p, &t, -1);
    show(&t);
}

static LpLiveRange *range_of(const LpStagePass *r, LpVal v)
{
    for (uint32_t i = 0; i < r->n_range; i++)
        if (r->range[i].v == v)
            return &r->range[i];
    return NULL;
}

static void write_over(LpIpuPlan *p)
{
    Tally t = {.kind = "over"}, place = {.kind = "place"};
    const LpGraph *g = p->step->micro;
    for (int run = 0; run < p->n_pass; run++) {
        const LpStagePass *r = &p->pass[run];
        for (uint32_t i = 0; i < r->n; i++) {
            const LpGraphNode *d = &g->node[r->entry[i].node];
            LpLiveRange *out = range_of(r, d->out);
            for (uint32_t k = 0; k < d->n_in && out && out->block; k++) {
                LpLiveRange *in =
                    lp_is_value(d->in[k]) ? range_of(r, d->in[k]) : NULL;
                if (!in || !in->block || in->alias || in->to <= i ||
                    lp_type_bytes(lp_graph_type(g, in->v)) <
                        lp_type_bytes(lp_graph_type(g, out->v)))
                    continue;
                uint32_t kept = out->block;
                out->block = in->block;
                try_fault(p, &t, in->v, NULL);
                out->block = kept;
            }
        }
        for (uint32_t i = 0; i < r->n_range; i++) {
            LpLiveRange *h = &r->range[i];
            if (h->kind != LP_RANGE_INPUT || h->alias ||
                p->step->var[p->var_of[h->v]].role != LP_VAR_BUFFER)
                continue;
            h->alias = true;
            try_fault(p, &place, h->v, NULL);
            h->alias = false;
        }
    }
    show(&t);
    show(&place);
}

static void take_over(LpIpuPlan *p)
{
    Tally t = {.kind = "take"};
    const LpGraph *g = p->step->micro;
    for (int run = 0; run < p->n_pass; run++) {
        const LpStagePass *r = &p->pass[run];
        for (uint32_t i = 0; i < r->n_range; i++) {
            LpLiveRange *h = &r->range[i];
            if (h->early || h->alias || h->to >= r->n ||
                g->node[r->entry[h->to].node].op->flags & LP_OPF_INPLACE_OK)
                continue;
            const LpGraphNode *d = &g->node[r->entry[h->to].node];
            if ((d->op->flags & LP_OPF_VIEW) || h->from == h->to)
                continue; /* it is read later, through that; by nothing */
            h->early = true;
            try_saying(p, &t, "the plan writes value ", NULL);
            h->early = false;
        }
    }
    show(&t);
}

static void misreport(LpIpuPlan *p)
{
    Tally t = {.kind = "report"};
    for (int ipu = 0; ipu < p->n_ipus; ipu++) {
        LpIpuMemory *m = &p->memory[ipu];
        for (int k = 0; k <= LP_MEM_STASH; k++) {
            int64_t kept = m->bytes[k];
            char want[64];
            snprintf(want, sizeof want, " bytes of %s, in the report",
                     lp_mem_names[k]);
            m->bytes[k] = 0;
            if (kept)
                try_saying(p, &t, want, NULL);
            m->bytes[k] = kept;
        }
        for (uint32_t k = 0; k < m->n_step; k++) {
            int64_t kept = m->step[k].live;
            if (m->step[k].run < 0 || kept == 0)
                continue;
            m->step[k].live--; /* less than it holds */
            try_saying(p, &t, " bytes of values in step ", NULL);
            m->step[k].live = kept + (1 << 30);
            try_saying(p, &t, " bytes of values at once, in the report", NULL);
            m->step[k].live = kept;
        }
    }
    show(&t);
}

static void skip_slot(LpIpuPlan *p)
{
    LpErr e = {0};
    uint64_t sum;
    for (size_t i = 0; i < p->n_loop; i++) {
        LpLoop *l = &p->loop[i];
        LpRow *r = &p->row[l->first_row];
        if (r->kind != LP_ROW_STEADY)
            continue;
        r->first++;
        l->count--;
        replay(p, LP_REPLAY_SCHEDULE, &sum, &e);
        r->first--;
        l->count++;
        printf("skip %s\n", e.code ? e.msg : "no error");
    }
}

/* ---- arguments ----------------------------------------------------------- */
static int choice(const char *word, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, names[i]))
            return i;
    fprintf(stderr, "replay_probe: unknown word '%s'\n", word);
    exit(2);
}

static LpIpuOptions read_options(char **argv)
{
    static const char *const again[] = {"auto", "none", "all"};
    LpIpuOptions o = lp_ipu_options();
    int off = (int)strtol(argv[6], NULL, 10);
    o.recompute = (LpRecompute)choice(argv[2], again, 3);
    o.strategy = lp_strategy_find(argv[3]);
    o.liveness = (LpLiveness)strtol(argv[4], NULL, 10);
    o.separate_backward = !strcmp(argv[5], "1");
    o.batch_serial = strtol(argv[8], NULL, 10);
    o.io_tiles = (int)strtol(argv[9], NULL, 10);
    for (int i = 0; i < LP_N_LOCATIONS; i++) {
        o.location[i].on_chip = !(off >> i & 1);
        o.location[i].io_load = o.io_tiles > 0;
        o.location[i].on_demand = off >> LP_N_LOCATIONS & 1;
    }
    return o;
}

/* A stage is a phase, too. */
static LpStatus analyse(const LpStep *s, const LpIpuOptions *o, LpIpuPlan **p,
                        LpErr *e)
{
    const LpGraph *g = s->micro;
    LpPlacement at = {.phase = lp_calloc(g->n_node, sizeof *at.phase)};
    LP_FAIL_IF(!at.phase, e, LP_E_MEMORY, "out of memory");
    for (LpNodeId n = 0; n < g->n_node; n++)
        at.phase[n] = (int16_t)lp_origin_of(g, n)->stage;
    LpStatus st = lp_ipu_analyse(s, o, &at, p, e);
    if (st == LP_OK)
        st = lp_ipu_expand(*p, e);
    lp_free(at.phase);
    return st;
}

int main(int argc, char **argv)
{
    LpErr e = {0};
    LpIpuPlan *p = NULL;
    uint64_t want, got;
    text[fread(text, 1, sizeof text - 1, stdin)] = '\0';
    LpStep *s = lp_step_new();
    if (argc != 10 || !s || lp_schema_init(&e) != LP_OK)
        return give_up(&e);
    s->gradient_accumulation = strtoll(argv[1], NULL, 10);
    s->replicas = strtoll(argv[7], NULL, 10);
    s->mean_reduction = false;
    LpIpuOptions o = read_options(argv);
    if (!o.strategy || make_step(s, &e) != LP_OK ||
        make_streams(s, &e) != LP_OK || analyse(s, &o, &p, &e) != LP_OK ||
        replay(p, LP_REPLAY_MICRO_BATCHES, &want, &e) != LP_OK ||
        replay(p, LP_REPLAY_SCHEDULE, &got, &e) != LP_OK)
        return give_up(&e);
    printf("plan %s\n", want == got ? "same" : "differs");
    shorten_holds(p);
    spoil_stashes(p);
    drop_moves(p);
    drop_shares(p);
    drop_parts(p);
    drop_transfers(p);
    shift_transfers(p);
    shift_runs(p);
    delay_backward(p);
    drop_acts(p);
    write_over(p);
    take_over(p);
    misreport(p);
    skip_slot(p);
    free_early(p); /* leaves the plan spoiled */
    lp_ipu_plan_free(p);
    lp_step_release(s);
    for (int i = 0; i < MAX_VARS; i++)
        lp_free(stream[i].out);
    return 0;
}
