/* Rows of the loop, which the strategy orders, and what each costs. */
#include <stdlib.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/passes/ipu/strategy.h"
#include "src/passes/ipu/traffic.h"

/* Variables of one group that runs read in shares. */
typedef struct Gathering {
    size_t first;                       /* of the variables */
    bool beside;                        /* by I/O tiles */
    int64_t (*of_run)[LP_COST_N_TYPES]; /* bytes */
} Gathering;

/* Two IPUs, of which one sends to the other: what a row brings, and what its
 * last such row paid. */
typedef struct Pair {
    int from, to;
    int64_t bytes; /* of the row that is made */
    LpAct act;
    int64_t exchange_cyc, sync_cyc;
} Pair;

/* A value that a run sends. */
typedef struct Sent {
    size_t pair;
    int64_t bytes;
} Sent;

struct LpSchedule {
    LpIpuPlan *p;
    LpTraffic *traffic; /* by run */
    LpRowBuilder b;
    int *runs, n;       /* of the row that is made */
    int *level;         /* of a run within its row */
    Sent *sent;         /* in the order of the runs */
    size_t *first_sent; /* of each run */
    Pair *pair;         /* by `from`, then by `to` */
    Gathering *gathering;
    size_t n_gathering;
    /* of a row, by IPU */
    int64_t *cyc, *way, (*gathered)[LP_COST_N_TYPES];
    size_t *moves,
        *next;      /* transfers of a run, + 1: the first, the one after */
    bool last;      /* the turn has no next one in the update to fetch for */
    bool begins;    /* it has none before it, whose outputs it sends */
    int64_t turn;   /* of the weight update, where turns differ */
    int64_t part;   /* of the micro-batches that pass a phase together */
    int64_t wait;   /* sync of the row's transfers, which they have together */
    int64_t beside; /* cycles of what streams while the row computes */
};

/* `n` figures of every IPU, 0. */
static int64_t *clear(const LpSchedule *s, int64_t *figures, size_t n)
{
    return memset(figures, 0, n * (size_t)s->p->n_ipus * sizeof *figures);
}

/* ---- computing ----------------------------------------------------------- */
/* The slowest IPU decides, of several the first; of the runs of a level. */
static void slowest_ipu(const LpSchedule *s, LpRow *row, int level)
{
    const LpIpuPlan *p = s->p;
    int64_t *cyc = clear(s, s->cyc, 1);
    int worst = -1;
    for (int i = 0; i < s->n; i++) {
        const LpStagePass *r = &p->pass[s->runs[i]];
        if (s->level[s->runs[i]] != level)
            continue;
        cyc[r->ipu] += lp_pass_cyc(r);
        row->busy_cyc += lp_pass_cyc(r);
        row->useful_cyc += lp_pass_cyc(r) - r->recompute_cyc;
        if (worst < 0 || cyc[r->ipu] > cyc[worst] ||
            (cyc[r->ipu] == cyc[worst] && r->ipu < worst))
            worst = r->ipu;
    }
    for (int i = 0; i < s->n && worst >= 0; i++) {
        const LpStagePass *r = &p->pass[s->runs[i]];
        if (r->ipu != worst || s->level[s->runs[i]] != level)
            continue;
        row->compute_cyc += r->compute_cyc;
        row->exchange_cyc += r->exchange_cyc;
        row->sync_cyc += r->sync_cyc;
    }
}

/* The run starts after those of its row that it reads, and after its own
 * forward run (in the turning phase). */
static int ready_level(const LpSchedule *s, int run)
{
    const LpIpuPlan *p = s->p;
    int level = 0, fwd = lp_pass_of(p, p->pass[run].stage, false);
    if (p->pass[run].backward && s->level[fwd] >= level)
        level = s->level[fwd] + 1;
    for (size_t m = 0; m < p->n_copy; m++) {
        const LpIpuCopy *mv = &p->copy[m];
        if (mv->to == run && s->level[mv->from] >= level)
            level = s->level[mv->from] + 1;
    }
    return level;
}

/* Runs of a level work at the same time; returns how many levels there are. */
static int find_levels(LpSchedule *s, LpRowOrder order)
{
    int most = 0;
    for (int r = 0; r < s->p->n_pass; r++)
        s->level[r] = -1;
    for (int i = 0; i < s->n; i++) {
        int level = order == LP_ORDER_IN_TURN      ? i
                    : order == LP_ORDER_WHEN_READY ? ready_level(s, s->runs[i])
                                                   : 0;
        s->level[s->runs[i]] = level;
        most = level >= most ? level + 1 : most;
    }
    return most;
}

static int64_t work_so_far(const LpRow *row)
{
    return row->compute_cyc + row->exchange_cyc + row->sync_cyc;
}

/* Runs of a level start when the levels before are done, those of one IPU one
 * after another. */
static void start_level(const LpSchedule *s, int level)
{
    int64_t *at = clear(s, s->cyc, 1), from = work_so_far(s->b.row);
    for (int i = 0; i < s->n; i++) {
        LpAct *a = &s->b.act[i];
        if (s->level[a->run] != level)
            continue;
        a->start = from + at[a->ipu];
        at[a->ipu] += a->cycles;
    }
}

static LpStatus compute(LpSchedule *s)
{
    LpIpuPlan *p = s->p;
    LpRow *row = s->b.row;
    for (int i = 0; i < s->n; i++) {
        const LpStagePass *r = &p->pass[s->runs[i]];
        LP_TRY(lp_row_add(&s->b, (LpAct){.kind = LP_ACT_COMPUTE,
                                         .run = s->runs[i],
                                         .ipu = r->ipu,
                                         .offset = r->offset,
                                         .cycles = lp_pass_cyc(r)}));
    }
    int levels = find_levels(s, row->order);
    for (int l = 0; l < levels; l++) {
        start_level(s, l);
        slowest_ipu(s, row, l);
    }
    row->work_cyc = work_so_far(row);
    return LP_OK;
}

/* ---- between IPUs -------------------------------------------------------- */
static int by_ipus(const void *a, const void *b)
{
    const Pair *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static bool between_ipus(const LpIpuCopy *m)
{
    return m->from_ipu != m->to_ipu && !m->off_chip;
}

/* The pairs of all copies, each once; returns how many. */
static size_t find_pairs(LpSchedule *s)
{
    const LpIpuPlan *p = s->p;
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < p->n_copy; i++)
        if (between_ipus(&p->copy[i]))
            s->pair[n++] =
                (Pair){.from = p->copy[i].from_ipu, .to = p->copy[i].to_ipu};
    qsort(s->pair, n, sizeof *s->pair, by_ipus);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || by_ipus(&s->pair[i], &s->pair[kept - 1]) != 0)
            s->pair[kept++] = s->pair[i];
    return kept;
}

static void find_sent(LpSchedule *s)
{
    const LpIpuPlan *p = s->p;
    size_t n = find_pairs(s), *next = s->first_sent + 1;
    for (size_t i = 0; i < p->n_copy; i++)
        if (between_ipus(&p->copy[i]))
            next[p->copy[i].from + 1]++;
    for (int r = 0; r < p->n_pass; r++)
        next[r + 1] += next[r];
    for (size_t i = 0; i < p->n_copy; i++) {
        const LpIpuCopy *m = &p->copy[i];
        if (!between_ipus(m))
            continue;
        const Pair key = {.from = m->from_ipu, .to = m->to_ipu},
                   *x = bsearch(&key, s->pair, n, sizeof key, by_ipus);
        int64_t bytes = lp_type_bytes(lp_graph_type(p->step->micro, m->v));
        s->sent[next[m->from]++] = (Sent){(size_t)(x - s->pair), bytes};
    }
}

static LpStatus copy(LpSchedule *s, Pair *x)
{
    LpCost c;
    if (x->bytes == x->act.bytes)
        return lp_row_add(&s->b, x->act);
    LP_TRY(lp_row_copy(&s->b, x->from, x->to, x->bytes, &c));
    x->act = s->b.act[s->b.n_act - 1];
    x->exchange_cyc = c.exchange_cyc;
    x->sync_cyc = c.sync_cyc;
    return LP_OK;
}

/* All links work at once, else one copy follows another. */
static LpStatus copies(LpSchedule *s)
{
    LpIpuPlan *p = s->p;
    LpRow *row = s->b.row;
    bool at_once = row->order == LP_ORDER_AT_ONCE;
    int64_t cyc = 0, sync = 0;
    size_t first = SIZE_MAX, end = 0;
    for (int i = 0; i < s->n; i++)
        for (size_t k = s->first_sent[s->runs[i]];
             k < s->first_sent[s->runs[i] + 1]; k++) {
            const Sent *x = &s->sent[k];
            s->pair[x->pair].bytes += x->bytes;
            first = x->pair < first ? x->pair : first;
            end = x->pair < end ? end : x->pair + 1;
        }
    for (size_t i = first; i < end; i++) {
        Pair *x = &s->pair[i];
        if (x->bytes == 0)
            continue;
        LP_TRY(copy(s, x));
        x->bytes = 0;
        cyc = at_once ? lp_max(cyc, x->exchange_cyc) : cyc + x->exchange_cyc;
        sync += x->sync_cyc;
    }
    row->copy_cyc += cyc;
    if (at_once && sync > 0)
        sync = lp_chip_global_sync_cyc(p->o.chip, p->n_ipus);
    row->sync_cyc += sync;
    return LP_OK;
}

/* ---- host ---------------------------------------------------------------- */
enum {
    HOST_IN,
    HOST_OUT,
    IN_BESIDE,
    OUT_BESIDE,
    LOAD,
    STORE,
    LOAD_BESIDE,
    STORE_BESIDE,
    LOAD_AHEAD,
    ON_IO_TILES,
    N_WAYS
};

/* Of each IPU, in one way. */
static int64_t *bytes_of(const LpSchedule *s, int way)
{
    return s->way + (size_t)way * (size_t)s->p->n_ipus;
}

/* Of one run. Outputs that a call returns at its end wait for that. */
static void host_bytes(const LpSchedule *s, const LpTraffic *t, int ipu)
{
    bytes_of(s, HOST_IN)[ipu] += t->host_in[LP_AHEAD_NONE];
    bytes_of(s, IN_BESIDE)[ipu] += t->host_in[LP_AHEAD_UPDATE];
    if (!s->last || s->part % lp_ipu_serial(s->p) < lp_ipu_serial(s->p) - 1)
        bytes_of(s, IN_BESIDE)[ipu] += t->host_in[LP_AHEAD_MICRO_BATCH];
    if (s->p->o.output_slices > 0)
        return;
    bytes_of(s, HOST_OUT)[ipu] += t->host_out[LP_AHEAD_NONE];
    bytes_of(s, OUT_BESIDE)[ipu] += t->host_out[LP_AHEAD_UPDATE];
    if (!s->begins || s->part % lp_ipu_serial(s->p) > 0)
        bytes_of(s, OUT_BESIDE)[ipu] += t->host_out[LP_AHEAD_MICRO_BATCH];
}

static LpStatus host(LpSchedule *s)
{
    LpIpuPlan *p = s->p;
    LpRow *row = s->b.row;
    int64_t cyc[N_WAYS] = {0}, sync = 0;
    static const LpActKind kind[] = {LP_ACT_HOST_IN, LP_ACT_HOST_OUT,
                                     LP_ACT_HOST_IN, LP_ACT_HOST_OUT};
    clear(s, s->way, N_WAYS);
    for (int i = 0; i < s->n; i++)
        host_bytes(s, &s->traffic[s->runs[i]], p->pass[s->runs[i]].ipu);
    for (int i = 0; i < p->n_ipus; i++)
        bytes_of(s, ON_IO_TILES)[i] =
            bytes_of(s, IN_BESIDE)[i] + bytes_of(s, OUT_BESIDE)[i];
    for (int w = HOST_IN; w <= OUT_BESIDE; w++) {
        size_t first = s->b.n_act;
        LP_TRY(lp_row_transfer(&s->b, kind[w], bytes_of(s, w), &cyc[w], &sync));
        for (size_t i = first; i < s->b.n_act; i++)
            s->b.act[i].beside = w == IN_BESIDE || w == OUT_BESIDE;
    }
    int64_t io = cyc[IN_BESIDE] + cyc[OUT_BESIDE];
    row->host_cyc += cyc[HOST_IN] + cyc[HOST_OUT];
    row->host_cyc += io > row->work_cyc ? io - row->work_cyc : 0;
    s->wait = sync;
    return LP_OK;
}

/* ---- streaming memory ---------------------------------------------------- */
/* While the row computes; I/O tiles hold what they move. */
static void add_beside(const LpSchedule *s, const LpTransfer *t)
{
    bytes_of(s, t->load ? LOAD_BESIDE : STORE_BESIDE)[t->ipu] += t->bytes;
    bytes_of(s, ON_IO_TILES)[t->ipu] += t->io ? t->bytes : 0;
}

/* When the row has computed. */
static void add_ahead(const LpSchedule *s, const LpTransfer *t)
{
    bytes_of(s, LOAD_AHEAD)[t->ipu] += t->bytes;
    bytes_of(s, ON_IO_TILES)[t->ipu] += t->io ? t->bytes : 0;
}

static int last_row(const LpIpuPlan *p)
{
    return p->pass[p->n_pass - 1].row;
}

static int64_t first_of_turn(const LpSchedule *s)
{
    return s->turn * lp_ipu_serial(s->p);
}

/* What moves in the row that the run is in. */
static void own_stream(const LpSchedule *s, const LpTransfer *t)
{
    LpStreamWhen when;
    if (!lp_ipu_moves(s->p, t, first_of_turn(s) + s->part, &when))
        return;
    if (when == LP_STREAM_WITH)
        add_beside(s, t);
    if (when == LP_STREAM_ALONE)
        bytes_of(s, t->load ? LOAD : STORE)[t->ipu] += t->bytes;
}

/* What the row moves for one before or after it. */
static void others_stream(const LpSchedule *s, const LpTransfer *t)
{
    const LpIpuPlan *p = s->p;
    LpStreamWhen when;
    int64_t serial = lp_ipu_serial(p), step = t->load ? 1 : -1;
    int64_t part = (s->part + step + serial) % serial;
    bool edge = part == (t->load ? 0 : serial - 1);
    int row = p->pass[s->runs[0]].row + (edge ? (int)step : 0);
    int64_t mb = first_of_turn(s) + part;
    if (t->wraps && (row < 0 || row > last_row(p))) {
        row = row < 0 ? last_row(p) : 0;
        mb += step * serial;
    }
    if (p->pass[t->run].row != row || mb < 0 || mb >= p->micro_batches ||
        !lp_ipu_moves(p, t, mb, &when))
        return;
    if (when == LP_STREAM_BESIDE)
        add_beside(s, t);
    if (when == LP_STREAM_BETWEEN)
        add_ahead(s, t);
}

/* What the last row of an update moves for that. */
static void update_stream(const LpSchedule *s, const LpTransfer *t)
{
    const LpIpuPlan *p = s->p;
    if (p->pass[s->runs[0]].row != last_row(p) ||
        s->part < lp_ipu_serial(p) - 1)
        return;
    if (t->edge == LP_STREAM_BESIDE)
        add_beside(s, t);
    if (t->edge == LP_STREAM_BETWEEN)
        add_ahead(s, t);
}

static LpStatus stream(LpSchedule *s, const int64_t *load, const int64_t *store,
                       bool beside, int64_t *cyc)
{
    size_t first = s->b.n_act;
    LP_TRY(lp_row_stream(&s->b, load, store, cyc, &s->wait));
    for (size_t i = first; i < s->b.n_act; i++) {
        bool loads = s->b.act[i].kind == LP_ACT_LOAD;
        s->b.act[i].beside = beside;
        s->b.act[i].ahead = loads && load == bytes_of(s, LOAD_AHEAD);
    }
    return LP_OK;
}

static LpStatus streams(LpSchedule *s)
{
    const LpIpuPlan *p = s->p;
    LpRow *row = s->b.row;
    s->beside = 0;
    for (int i = 0; i < s->n; i++)
        for (size_t k = s->moves[s->runs[i]]; k; k = s->next[k - 1])
            own_stream(s, &p->transfer[k - 1]);
    for (size_t i = 0; p->strategy->one_row && i < p->n_transfer; i++)
        if (p->transfer[i].run >= 0)
            others_stream(s, &p->transfer[i]);
        else
            update_stream(s, &p->transfer[i]);
    LP_TRY(stream(s, bytes_of(s, LOAD), NULL, false, &row->stream_cyc));
    LP_TRY(stream(s, bytes_of(s, LOAD_BESIDE), bytes_of(s, STORE_BESIDE), true,
                  &s->beside));
    LP_TRY(stream(s, bytes_of(s, LOAD_AHEAD), bytes_of(s, STORE), false,
                  &row->stream_cyc));
    if (s->beside > row->work_cyc)
        row->stream_cyc += s->beside - row->work_cyc;
    return LP_OK;
}

/* ---- shares of the replicas --------------------------------------------- */
static void add_gathered(const LpSchedule *s, const Gathering *x, int run)
{
    int ipu = s->p->pass[run].ipu;
    for (int t = 0; t < LP_COST_N_TYPES; t++)
        s->gathered[ipu][t] += x->of_run[run][t];
}

/* What the runs of the row read, or of the next one. */
static void gathered(const LpSchedule *s, const Gathering *x, bool ahead)
{
    const LpIpuPlan *p = s->p;
    int row = p->pass[s->runs[0]].row + 1;
    int64_t mb = first_of_turn(s), serial = lp_ipu_serial(p);
    bool wraps = row > last_row(p) && mb + serial < p->micro_batches;
    clear(s, *s->gathered, LP_COST_N_TYPES);
    for (int r = 0; ahead && r < p->n_pass; r++)
        if (p->pass[r].row == (wraps ? 0 : row) &&
            lp_ipu_gathers_ahead(p, r, mb + (wraps ? serial : 0)))
            add_gathered(s, x, r);
    for (int k = 0; !ahead && k < s->n; k++)
        if (!x->beside || !lp_ipu_gathers_ahead(p, s->runs[k], mb))
            add_gathered(s, x, s->runs[k]);
}

static LpStatus gather(LpSchedule *s, const Gathering *x, bool ahead,
                       int64_t *beside)
{
    bool with = x->beside && (ahead || !s->p->strategy->streaming);
    size_t first = s->b.n_act;
    gathered(s, x, ahead);
    LP_TRY(lp_row_collective(&s->b, LP_COLL_ALL_GATHER, x->first, s->gathered,
                             with ? beside : &s->b.row->collective_cyc));
    for (size_t i = first; i < s->b.n_act; i++) {
        LpAct *a = &s->b.act[i];
        a->beside = with;
        bytes_of(s, ON_IO_TILES)[a->ipu] += with ? a->bytes : 0;
    }
    return LP_OK;
}

/* Micro-batches that pass a phase together have the parameters together. I/O
 * tiles gather when they have loaded. */
static LpStatus gathers(LpSchedule *s)
{
    LpRow *row = s->b.row;
    int64_t serial = lp_ipu_serial(s->p), part = s->part % serial;
    int64_t loaded = lp_max(s->beside, row->work_cyc), beside = s->beside;
    for (size_t i = 0; i < s->n_gathering; i++) {
        const Gathering *x = &s->gathering[i];
        if (part == 0)
            LP_TRY(gather(s, x, false, &beside));
        if (x->beside && part == serial - 1)
            LP_TRY(gather(s, x, true, &beside));
    }
    row->collective_cyc += lp_max(beside, loaded) - loaded;
    return LP_OK;
}

/* All but copies between IPUs. */
static LpStatus transfers(LpSchedule *s)
{
    const LpIpuPlan *p = s->p;
    LP_TRY(host(s));
    LP_TRY(streams(s));
    LP_TRY(gathers(s));
    for (int i = 0; i < p->n_ipus; i++)
        p->io[i] = lp_max(p->io[i], bytes_of(s, ON_IO_TILES)[i]);
    s->b.row->sync_cyc += s->wait;
    return LP_OK;
}

/* ---- rows and loops ------------------------------------------------------ */
void lp_schedule_run(LpSchedule *s, int run)
{
    s->runs[s->n++] = run;
}

void lp_schedule_part(LpSchedule *s, int64_t part)
{
    s->part = part;
}

LpStatus lp_schedule_row(LpSchedule *s, LpRow row)
{
    LP_IPU_ADD(s->p, row, s->p->err, row);
    s->b.row = &s->p->row[s->p->n_row - 1];
    LpStatus st = compute(s);
    if (st == LP_OK)
        st = copies(s);
    if (st == LP_OK)
        st = transfers(s);
    s->n = 0;
    return lp_row_finish(&s->b, st);
}

static LpStatus add_loop(LpIpuPlan *p, LpLoop loop)
{
    const LpLoop *last = p->n_loop ? &p->loop[p->n_loop - 1] : NULL;
    loop.first_row = last ? last->first_row + last->n_row : 0;
    loop.n_row = (uint32_t)p->n_row - loop.first_row;
    LP_IPU_ADD(p, loop, p->err, loop);
    return LP_OK;
}

LpStatus lp_schedule_loop(LpSchedule *s, int64_t count)
{
    return add_loop(s->p,
                    (LpLoop){.count = count, .step = (int)lp_ipu_serial(s->p)});
}

LpStatus lp_schedule_slots(LpSchedule *s, bool *made)
{
    return lp_ipu_slots(s->p, made);
}

/* ---- I/O tiles ----------------------------------------------------------- */
static bool any_ahead(const LpSchedule *s, LpAhead ahead)
{
    for (int r = 0; r < s->p->n_pass; r++)
        if (s->traffic[r].host_in[ahead] || s->traffic[r].host_out[ahead])
            return true;
    return false;
}

/* Does it come once for all turns of a weight update? */
static bool any_kept(const LpIpuPlan *p)
{
    bool any = false;
    for (size_t i = 0; i < p->n_transfer && p->strategy->keeps && !any; i++)
        any = p->transfer[i].run >= 0 && p->transfer[i].of == LP_TRANSFER_VAR;
    return any;
}

/* Does anything come by I/O tiles while the turn before computes, or go while
 * the next one does? */
static bool any_wraps(const LpSchedule *s)
{
    const LpIpuPlan *p = s->p;
    bool any = false;
    for (size_t i = 0; i < p->n_transfer && !any; i++)
        any = p->transfer[i].wraps;
    for (size_t i = 0; i < s->n_gathering && p->strategy->streaming; i++)
        for (int r = 0; r < p->n_pass && s->gathering[i].beside; r++)
            for (int t = 0; t < LP_COST_N_TYPES && p->pass[r].row == 0; t++)
                any = any || s->gathering[i].of_run[r][t] > 0;
    return any;
}

LpStatus lp_schedule_turns(LpSchedule *s,
                           LpStatus (*turn)(LpSchedule *s, const LpIpuPlan *p,
                                            int64_t number))
{
    int64_t serial = lp_ipu_serial(s->p), n = s->p->micro_batches / serial;
    bool ahead = any_ahead(s, LP_AHEAD_MICRO_BATCH);
    bool differ = ahead || any_kept(s->p) || any_wraps(s);
    for (int64_t at = 0, count; at < n; at += count) {
        bool edge = differ && (at == 0 || at == n - 1);
        s->begins = ahead && at == 0;
        s->last = ahead && at == n - 1;
        s->turn = at;
        count = edge ? 1 : differ ? n - 2 : n;
        LP_TRY(turn(s, s->p, at * serial));
        LP_TRY(lp_schedule_loop(s, count));
    }
    s->begins = s->last = false;
    s->turn = s->part = 0;
    return LP_OK;
}

/* What no turn hides: the first inputs and, where calls return them so, the
 * last outputs of an update (or `ahead` UPDATE: of a call). */
static LpStatus edge(LpSchedule *s, LpAhead ahead, bool out)
{
    LpIpuPlan *p = s->p;
    int64_t *bytes = clear(s, s->way, 1), all = 0;
    for (int r = 0; r < p->n_pass; r++) {
        const LpTraffic *t = &s->traffic[r];
        int64_t n = out ? t->host_out[ahead] : t->host_in[ahead];
        bytes[p->pass[r].ipu] += n;
        all += n;
    }
    if (all == 0 || (out && p->o.output_slices > 0))
        return LP_OK;
    LP_IPU_ADD(p, row, p->err,
               (LpRow){.kind = out ? LP_ROW_FLUSH : LP_ROW_FILL});
    LpRow *row = s->b.row = &p->row[p->n_row - 1];
    LpStatus st = lp_row_transfer(&s->b, out ? LP_ACT_HOST_OUT : LP_ACT_HOST_IN,
                                  bytes, &row->host_cyc, &row->sync_cyc);
    LP_TRY(lp_row_finish(&s->b, st));
    bool once = ahead == LP_AHEAD_UPDATE;
    return add_loop(p, (LpLoop){.count = 1, .step = 1, .once = once});
}

static LpStatus loop_rows(LpSchedule *s)
{
    LP_TRY(edge(s, LP_AHEAD_UPDATE, false));
    LP_TRY(edge(s, LP_AHEAD_MICRO_BATCH, false));
    LP_TRY(s->p->strategy->rows(s->p, s));
    return edge(s, LP_AHEAD_MICRO_BATCH, true);
}

static LpStatus update(LpIpuPlan *p)
{
    LP_IPU_ADD(p, row, p->err, (LpRow){.kind = LP_ROW_UPDATE});
    LP_TRY(lp_ipu_update_row(p, &p->row[p->n_row - 1]));
    return add_loop(p, (LpLoop){.count = 1});
}

static LpStatus output(LpSchedule *s)
{
    LpIpuPlan *p = s->p;
    LP_IPU_ADD(p, row, p->err, (LpRow){.kind = LP_ROW_OUTPUT});
    LP_TRY(lp_ipu_output_row(p, s->traffic, &p->row[p->n_row - 1]));
    LpLoop loop = {.count = p->o.output_slices, .step = 1, .once = true};
    return add_loop(p, loop);
}

/* Variables that a run reads in shares. */
static LpStatus find_gathering(LpSchedule *s)
{
    LpIpuPlan *p = s->p;
    bool any = false;
    for (size_t i = 0; i < p->step->n_var; i++)
        any |=
            lp_ipu_kept(p, &p->step->var[i]) < lp_numel(&p->step->var[i].type);
    for (size_t i = 0; any && i < p->step->n_var; i++) {
        if (!lp_ipu_leads_group(p, i))
            continue;
        for (int beside = 0; beside < 2; beside++) {
            Gathering *x = &s->gathering[s->n_gathering++];
            x->first = i;
            x->beside = beside;
            x->of_run = lp_ipu_scratch(p, (size_t)p->n_pass, sizeof *x->of_run);
            LP_TRY(p->err->code);
            for (int r = 0; r < p->n_pass; r++)
                lp_ipu_gathered(p, &p->pass[r], i, beside, x->of_run[r]);
        }
    }
    return LP_OK;
}

static LpStatus prepare(LpSchedule *s)
{
    LpIpuPlan *p = s->p;
    size_t n = (size_t)p->n_pass, ipus = (size_t)p->n_ipus;
    s->traffic = lp_ipu_scratch(p, n, sizeof *s->traffic);
    s->level = lp_ipu_scratch(p, n, sizeof *s->level);
    s->runs = lp_ipu_scratch(p, n, sizeof *s->runs);
    s->first_sent = lp_ipu_scratch(p, n + 2, sizeof *s->first_sent);
    s->sent = lp_ipu_scratch(p, p->n_copy, sizeof *s->sent);
    s->pair = lp_ipu_scratch(p, p->n_copy, sizeof *s->pair);
    s->gathering = lp_ipu_scratch(p, 2 * p->step->n_var, sizeof *s->gathering);
    s->cyc = lp_ipu_scratch(p, ipus, sizeof *s->cyc);
    s->way = lp_ipu_scratch(p, ipus * N_WAYS, sizeof *s->way);
    s->gathered = lp_ipu_scratch(p, ipus, sizeof *s->gathered);
    s->moves = lp_ipu_scratch(p, n, sizeof *s->moves);
    s->next = lp_ipu_scratch(p, p->n_transfer, sizeof *s->next);
    p->io = lp_ipu_alloc(p, ipus, sizeof *p->io);
    LP_TRY(p->err->code);
    find_sent(s);
    for (size_t i = p->n_transfer; i-- > 0;)
        if (p->transfer[i].run >= 0) {
            s->next[i] = s->moves[p->transfer[i].run];
            s->moves[p->transfer[i].run] = i + 1;
        }
    LP_TRY(find_gathering(s));
    return lp_ipu_traffic(p, s->traffic);
}

static LpStatus build(LpSchedule *s)
{
    LP_TRY(prepare(s));
    LP_TRY(loop_rows(s));
    if (s->p->step->update)
        LP_TRY(update(s->p));
    LP_TRY(edge(s, LP_AHEAD_UPDATE, true));
    return s->p->o.output_slices > 0 ? output(s) : LP_OK;
}

LpStatus lp_ipu_schedule(LpIpuPlan *p)
{
    LpSchedule s = {.p = p, .b = {.p = p}};
    LpStatus st = build(&s);
    lp_row_fini(&s.b);
    return st;
}
