/* How a completed step runs on the simulated system. IPU passes read the step
 * and write the tables below, keyed by node, value or variable id; they never
 * change the step, so no strategy, location or proportion changes a value.
 *
 * Terms. A stage is a stretch of the model on one IPU; a stage pass, or run, is
 * the forward or the backward pass of a stage over one micro-batch. Runs stand
 * in the order in which one micro-batch passes them: F0 .. Fn-1, Bn-1 .. B0. A
 * value that a backward run reads and its own forward run had is stashed: kept
 * in a ring of `depth` micro-batches. Within a run a live range says from which
 * entry to which a value is there; memory and replay both read them.
 *
 * The passes, in order, are the lines of passes.def. */
#ifndef LP_PASSES_IPU_IPU_H
#define LP_PASSES_IPU_IPU_H

#include "runtime/cost/memo.h"
#include "src/ir/step.h"

#define LP_MAX_IPUS 1024 /* of all replicas of one process */

typedef struct LpStrategyOps LpStrategyOps; /* strategy.h */

/* Where tensors of phased execution live between phases. */
typedef enum {
    LP_ALWAYS_LIVE,
    LP_OFF_CHIP_AFTER_FWD,
    LP_OFF_CHIP_AFTER_FWD_NO_OVERLAP,
    LP_OFF_CHIP_AFTER_EACH_PHASE
} LpLiveness;

/* How micro-batches that pass a phase together share its time (PopART,
 * BatchSerializationBatchSchedule). */
typedef enum {
    LP_PARTS_IN_TURN,        /* each loads and stores for itself */
    LP_PARTS_OVERLAP_IO,     /* I/O tiles load for the next one when one has
                                 computed, while that stores */
    LP_PARTS_OVERLAP_COMPUTE /* they do so while one computes, and store while
                                 the next one does */
} LpParts;

/* How an update that is a phase of its own goes over the weights (PopART,
 * ExecutionPhaseSchedule). */
typedef enum {
    LP_UPDATE_INTERLEAVING, /* one after another: load, update, store */
    LP_UPDATE_BATCH         /* all are loaded, then all updated, then stored */
} LpUpdateOrder;

typedef enum {
    LP_RECOMPUTE_AUTO,
    LP_RECOMPUTE_NONE,
    LP_RECOMPUTE_ALL
} LpRecompute;

typedef struct LpLocation {
    bool on_chip, sharded, io_load, io_store;
    bool on_demand; /* phased: it moves with the phase that has it, not ahead of
                       it or behind it (PopART, ExecutionPhaseIOSchedule) */
    int64_t min_off_chip; /* tensors with fewer elements stay on chip */
    int64_t min_sharded;  /* only tensors with more elements are sharded */
} LpLocation;

enum {
    LP_LOC_ACTIVATION,
    LP_LOC_WEIGHT,
    LP_LOC_OPTIMIZER,
    LP_LOC_ACCUMULATOR,
    LP_N_LOCATIONS
};

/* A variable or value by name, "w", "Accl1___w", "Relu:0", that has a location
 * of its own. */
typedef struct LpOwnLocation {
    const char *name;
    LpLocation at;
    bool as_kind; /* on_demand is not said: what holds for its kind */
} LpOwnLocation;

typedef struct LpIpuOptions {
    const LpChip *chip;
    const LpSystem *system;
    const LpStrategyOps *strategy;
    LpLiveness liveness;
    LpRecompute recompute;
    int tiles;    /* of an IPU; 0: all that the chip has */
    int io_tiles; /* of these, set aside for transfers */
    LpDtype partials;
    bool stable_norm;  /* normalisations take mean and variance in two passes */
    int64_t host_sync; /* cycles of a sync with the host; -1: the chip's */
    LpLocation location[LP_N_LOCATIONS];
    const LpOwnLocation *own; /* borrowed until the plan is made */
    size_t n_own;
    bool own_unmet; /* also of no tensor of the step, which the caller tells */
    double proportion[LP_MAX_IPUS];
    bool allow_out_of_memory;
    bool synthetic_data;    /* no host I/O */
    bool separate_backward; /* phased: no phase is forward and backward */
    bool near;              /* phased, liveness 0: activations stay on the chip
                               only if their two phases are at most two apart */
    bool power_of_two;      /* IPUs can be reserved by powers of two only: */
    bool round_ipus;        /* more of them than the model needs, else no */
    int64_t output_slices;  /* returned by a call; 0: one a micro-batch */
    int64_t input_groups;   /* of replicas that read the same rows; 0: each
                               replica has its own */
    /* In place of the step's, for what the same step would cost so; such a plan
     * is not replayed. 0: the step's. */
    int64_t replicas, accumulation;
    int64_t batch_serial; /* phased: micro-batches that pass a phase before the
                             next one, with one load of its weights; 0: 1 */
    LpParts parts;
    LpUpdateOrder update_order;
    LpPlanCache *plans; /* of products; borrowed while the passes run; NULL: one
                           of its own */
} LpIpuOptions;

/* Mk2, pipelined, everything on chip. */
LpIpuOptions lp_ipu_options(void);

/* Where the nodes of step->micro run, by node, in place of what their origins
 * say. NULL: the origins'. */
typedef struct LpPlacement {
    int16_t *ipu, *stage, *phase;
} LpPlacement;

/* ---- tables -------------------------------------------------------------- */
typedef struct LpStage {
    int ipu, phase;
    int id;            /* as the user gave it; of merged ones the first */
    const char *block; /* of its first node */
    bool recomputed;   /* backward starts from the stage's inputs */
} LpStage;

typedef struct LpPassEntry {
    LpNodeId node;
    bool recomputed; /* a forward node run by the backward pass */
} LpPassEntry;

typedef enum {
    LP_RANGE_MADE,
    LP_RANGE_INPUT, /* read from the host, or a buffer carried by the loop */
    LP_RANGE_COPY,  /* came from another run */
    LP_RANGE_STASH
} LpLiveRangeKind;

typedef struct LpLiveRange {
    LpVal v;
    uint32_t from, to; /* entries, inclusive; to = n of the run: until its end
                        */
    LpLiveRangeKind kind;
    bool alias;     /* shares memory with another value or with its variable */
    bool early;     /* its memory is taken over by the result of entry `to` */
    uint32_t block; /* its memory, LpLiveSpan + 1 of its IPU; an alias has one
                       only as what the run leaves at its end; 0: none */
} LpLiveRange;

typedef struct LpStagePass {
    int stage, ipu, phase;
    bool backward;
    int offset; /* rows after that in which its micro-batch entered */
    int row;    /* of its turn, where turns have several */
    LpPassEntry *entry;
    uint32_t n;
    LpVal *read; /* by its entries, once each */
    uint32_t n_read;
    LpLiveRange *range;
    uint32_t n_range;
    int64_t compute_cyc, exchange_cyc, sync_cyc; /* of one micro-batch */
    int64_t recompute_cyc; /* of that, all kinds, by recomputed nodes */
    int64_t flops;
} LpStagePass;

typedef struct LpStash {
    LpVal v;
    int stage, depth;
    bool off_chip;
} LpStash;

/* A value is copied from one run to another. */
typedef struct LpIpuCopy {
    LpVal v;
    int from, to; /* runs */
    int from_ipu, to_ipu;
    bool off_chip; /* through streaming memory */
} LpIpuCopy;

/* A variable that runs of an IPU read which lies on another: the IPU has a
 * copy all the time, which the weight update renews. */
typedef struct LpReplicatedVar {
    int var, ipu;
} LpReplicatedVar;

/* What a run contributes to the accumulator `var`, which another run has: on
 * the accumulator's IPU it is added at once; another IPU sums it over the
 * micro-batches, the weight update fetches the sum. */
typedef struct LpPartialGrad {
    int var, run;
} LpPartialGrad;

/* What comes from streaming memory before a run, or goes there after it. */
typedef enum {
    LP_TRANSFER_VAR,
    LP_TRANSFER_STASH,
    LP_TRANSFER_COPY
} LpTransferOf;

/* When it moves. */
typedef enum {
    LP_STREAM_ALONE,   /* in the row of its run, before that computes or after
                          it */
    LP_STREAM_WITH,    /* while that row computes */
    LP_STREAM_BETWEEN, /* a load: in the row before, when that has computed */
    LP_STREAM_BESIDE   /* while another row computes: a load in the row before,
                          a store in the row after */
} LpStreamWhen;

typedef struct LpTransfer {
    LpTransferOf of;
    size_t at; /* variable, stash or copy */
    int run;   /* -1: the weight update */
    int ipu;
    bool load; /* else a store */
    int64_t bytes;
    /* `edge`: of the micro-batches that pass a phase together the first (a
     * load), the last (a store); variables move with that alone */
    LpStreamWhen when, edge;
    bool io; /* by I/O tiles, while others compute */
    /* a load beside the last row of the turn before, a store beside the first
     * of the next one; alone where the update has no such turn */
    bool wraps;
} LpTransfer;

/* What an operator has for itself (shares.c). */
typedef struct LpShare {
    int tiles;         /* 0: all that compute */
    double proportion; /* of a tile's memory */
    LpDtype partials;  /* LP_DT_NONE: the options' */
    /* it runs beside a longer one of its multi-convolution, which alone
     * takes time */
    bool beside;
    bool dithers; /* a convolution: its first tile is drawn (starts.c) */
} LpShare;

/* Where a tensor that has not all tiles lies (starts.c). */
typedef enum {
    LP_START_ANY,  /* small tensors take turns */
    LP_START_UP,   /* from a tile on */
    LP_START_DOWN, /* likewise, counted from the last tile downwards */
} LpStartKind;

typedef struct LpStart {
    LpStartKind kind;
    int tile;
} LpStart;

typedef struct LpNodeCost {
    const LpCost *cost; /* nodes of one label share it */
    uint32_t label; /* equal for equal work: its code is there once an IPU */
} LpNodeCost;
#define LP_NO_LABEL UINT32_MAX /* of what is no work: it has no code */

/* How far ahead I/O tiles fetch an input while the others compute, and how long
 * they keep an output: as the marker asks (poptorch.OverlapMode). */
typedef enum {
    LP_AHEAD_NONE,
    LP_AHEAD_MICRO_BATCH, /* of the same weight update */
    LP_AHEAD_UPDATE,      /* the next update's first one too */
    LP_N_AHEAD
} LpAhead;

/* ---- schedule ------------------------------------------------------------ */
typedef enum {
    LP_ROW_FILL,
    LP_ROW_STEADY,
    LP_ROW_FLUSH,
    LP_ROW_PHASE,
    LP_ROW_UPDATE,
    LP_ROW_OUTPUT,
    LP_N_ROWS
} LpRowKind;

/* When the runs of a row start. */
typedef enum {
    LP_ORDER_AT_ONCE,   /* on different micro-batches: what one sends arrives
                           at the end of the row, all links work at once */
    LP_ORDER_IN_TURN,   /* one after another */
    LP_ORDER_WHEN_READY /* as soon as what it reads is there */
} LpRowOrder;

typedef enum {
    LP_ACT_COMPUTE,
    LP_ACT_COPY,
    LP_ACT_HOST_IN,
    LP_ACT_HOST_OUT,
    LP_ACT_LOAD,  /* from streaming memory */
    LP_ACT_STORE, /* to it */
    LP_ACT_COLLECTIVE,
    LP_ACT_UPDATE,
    LP_N_ACTS
} LpActKind;

typedef struct LpAct {
    LpActKind kind;
    int run;     /* COMPUTE, else -1 */
    int ipu, to; /* `to`: COPY */
    int offset;  /* its micro-batch: (number of the turn) - offset */
    int64_t bytes;
    int64_t start;  /* cycles after the row's */
    int64_t cycles; /* of one execution */
    bool beside;    /* moves while the row computes */
    bool ahead;     /* LOAD: for the next row, when this one has computed */
} LpAct;

typedef struct LpRow {
    LpRowKind kind;
    LpRowOrder order;
    bool bare;     /* its acts are still to be made */
    int64_t first; /* number of its first turn */
    LpAct *act;
    uint32_t n;
    /* of the slowest IPU; copies, host and streams are those that computing
     * does not hide */
    int64_t compute_cyc, exchange_cyc, sync_cyc;
    int64_t copy_cyc, host_cyc, stream_cyc, collective_cyc;
    int64_t work_cyc; /* computing of the slowest IPU, of all IPUs together: */
    int64_t busy_cyc;
    int64_t useful_cyc; /* of that, what is not computed again */
    int64_t total_cyc;
} LpRow;

/* A loop runs its rows in turn, `count` times; turn k of a row has the number
 * first + k * step. The schedule is a list of them. */
typedef struct LpLoop {
    uint32_t first_row, n_row;
    int64_t count;
    int step;
    bool once; /* in a call, before or after all that is there for every weight
                  update; else one of these */
} LpLoop;

/* ---- memory -------------------------------------------------------------- */
typedef enum {
#define MEMORY(id, name, in_code) LP_MEM_##id,
#include "src/passes/ipu/memory.def"
#undef MEMORY
    LP_N_MEM
} LpMemKind;

#define LP_TILE_CLASSES 64

typedef struct LpLargest {
    const char *name, *scope; /* variable, or operator and its layer */
    int64_t bytes;
    LpMemKind kind;
} LpLargest;
#define LP_N_LARGEST 5

/* What an IPU holds beside what is always live: one period of the loop, step by
 * step (an operator of one of its runs each, then those of the update). */
typedef struct LpLiveStep {
    LpNodeId node; /* LP_NO_NODE: the end of a run */
    int run;       /* -1: the update */
    int64_t live, temporary;
} LpLiveStep;

/* A tensor that is there from step `from` to step `to`: value v, or (LP_NOVAL)
 * variable `var`, which comes for a run, or the update, from streaming memory
 * or from other replicas. What is sent between two periods has a second span,
 * whose `block` is the number of the first. */
typedef struct LpLiveSpan {
    const char *name, *scope;
    LpVal v;
    int var;
    int for_run; /* + 1, that the variable comes for; 0: the update */
    uint32_t from, to, block;
    bool update; /* v is a value of the update */
    int64_t bytes;
} LpLiveSpan;

/* Of a category: bytes of the fullest tile of each class, without gaps. */
typedef struct LpTileBytes {
    int64_t b[LP_TILE_CLASSES];
} LpTileBytes;

typedef struct LpIpuMemory {
    int64_t bytes[LP_N_MEM]; /* over the tiles of the IPU */
    int64_t always, not_always;
    int64_t tile[LP_TILE_CLASSES]; /* with gaps, of a tile of each class */
    LpTileBytes tile_of[LP_N_MEM];
    int64_t tile_always; /* of the fullest tile */
    int64_t tile_code;   /* of every tile, in its first region */
    int64_t max_tile, max_tile_gaps;
    int max_tile_nr;                 /* one tile that needs so much */
    bool in_update;                  /* the peak is in the weight update */
    LpLargest largest[LP_N_LARGEST]; /* at the peak, largest first */
    int64_t off_chip;                /* bytes in streaming memory */
    int64_t io, io_tile; /* bytes that its I/O tiles hold at once, and the
                            fullest of them with its code */
    int64_t constants;   /* of the buffers, over the IPU */
    int64_t interleaved; /* of a tile, at most */
    LpLiveStep *step;
    LpLiveSpan *span;
    uint32_t n_step, n_span;
} LpIpuMemory;

/* What reports and messages call them, by the enumerations' values. */
extern const char *const lp_row_names[];
extern const char *const lp_act_names[];
extern const char *const lp_mem_names[];
extern const char *const lp_ahead_names[];
extern const char *const lp_location_names[];
extern const char *const lp_part_order_names[];
extern const char *const lp_update_order_names[];

/* What a value is, which all passes ask. */
enum {
    LP_VAL_FREE = 1,
    LP_VAL_BACKWARD = 2 /* made by the backward pass */
};

/* ---- all of it ----------------------------------------------------------- */
typedef struct LpIpuPlan {
    const LpStep *step; /* retained */
    LpIpuOptions o;
    LpPlacement placement; /* borrowed while the passes run */
    LpArena mem, scratch;  /* scratch: of the pass that runs */
    LpPlanCache *cache;
    LpCostMemo *memo; /* of that, which has the nodes' costs; retained */
    LpErr *err;

    const LpStrategyOps *strategy; /* o.strategy, or what it is for one stage */
    bool training;
    int n_ipus;
    int64_t reserved_ipus; /* of all replicas */
    LpStage *stage;
    int n_stage;
    int *node_stage; /* of step->micro */
    int *val_stage;  /* -1: a variable that is everywhere the same */
    int *var_of;     /* value of micro -> variable, -1 */
    bool *backward;  /* by node of micro: made by the reverse sweep */
    uint8_t *val_is; /* by value of micro */
    const LpLocation **var_location; /* NULL: always on the chip */
    const LpLocation **val_location; /* NULL: all have the activations' */
    bool *off_chip;                  /* by variable */
    int64_t *kept; /* likewise: elements that a replica keeps */
    int *var_ipu;
    int *update_ipu; /* of step->update's nodes */

    LpStagePass *pass;
    int n_pass;
    LpStash *stash;
    size_t n_stash, cap_stash;
    LpIpuCopy *copy;
    size_t n_copy, cap_copy;
    LpReplicatedVar *replicated;
    size_t n_replicated, cap_replicated;
    LpPartialGrad *partial;
    size_t n_partial, cap_partial;
    /* by node of micro: if it adds parts, for which accumulator; it belongs to
     * no run and is charged to this one; var -1 */
    LpPartialGrad *sum;
    LpTransfer *transfer;
    size_t n_transfer, cap_transfer;

    LpShare *share;                 /* by node of micro */
    LpStart *val_start, *var_start; /* by value of micro, by variable */
    LpNodeCost *cost, *update_cost;
    uint32_t n_label;
    LpAhead *ahead; /* of streams */
    int64_t *io;    /* by IPU: bytes on its I/O tiles, in the row with most */
    LpRow *row;
    size_t n_row, cap_row;
    bool bare, whole; /* some rows are bare; none must be */
    LpLoop *loop;
    size_t n_loop, cap_loop;
    int64_t replicas, accumulation;
    int64_t loops;         /* weight updates in a call */
    int64_t micro_batches; /* of one loop */

    /* by variable, of an accumulator and a velocity in which PopART's combined
     * SGD gathers gradients, which are one tensor: the velocity; else -1 */
    int *velocity;
    LpIpuMemory *memory; /* an IPU */
    int64_t streaming;   /* bytes of the machine that takes most of it */
    /* of a call */
    int64_t cycles;
    int64_t samples;        /* rows that the host gives, shared ones once */
    double efficiency;      /* computing of all IPUs / (IPUs x loop), 0..1 */
    double wall_efficiency; /* useful computing / (IPUs x all cycles), 0..1 */
    double seconds, samples_per_second;
} LpIpuPlan;

/* Runs every pass. `placement`: NULL, the origins' of the step. The plan
 * retains the step. Owned; also set on LP_E_IPU_MEMORY and LP_E_IPU_CODE, which
 * say that a tile overflows, or code that region of it that can hold some. */
LpStatus lp_ipu_analyse(const LpStep *step, const LpIpuOptions *o,
                        const LpPlacement *placement, LpIpuPlan **out,
                        LpErr *e);
void lp_ipu_plan_free(LpIpuPlan *p); /* NULL is fine */
/* Makes what is still to be made of the schedule: a pipeline of n stages has
 * n * n acts, which only its listing needs. */
LpStatus lp_ipu_expand(LpIpuPlan *p, LpErr *e);

/* ---- shared by the passes ------------------------------------------------ */
#define PASS(name, text) LpStatus lp_ipu_##name(LpIpuPlan *p);
#include "src/passes/ipu/passes.def"
#undef PASS

static inline int lp_pass_of(const LpIpuPlan *p, int stage, bool backward)
{
    return backward ? 2 * p->n_stage - 1 - stage : stage;
}
static inline const LpOrigin *lp_origin_of(const LpGraph *g, LpNodeId n)
{
    return &g->origin[g->node[n].origin];
}
/* Same for every micro-batch and stage: needs no stash. */
static inline bool lp_ipu_is_free(const LpIpuPlan *p, LpVal v)
{
    return (p->val_is[v] & LP_VAL_FREE) != 0;
}
/* The node that makes v; LP_NO_NODE: none does. */
static inline LpNodeId lp_maker(const LpGraph *g, LpVal v)
{
    return lp_is_value(v) ? g->value[v].node : LP_NO_NODE;
}
/* Is the value made by the backward pass? */
static inline bool lp_is_backward(const LpIpuPlan *p, LpVal v)
{
    return lp_is_value(v) && (p->val_is[v] & LP_VAL_BACKWARD);
}
/* The run that makes a value of the micro graph; for an input, that reads it
 * from the host. */
int lp_ipu_pass_making(const LpIpuPlan *p, LpVal v);
/* n elements of `size` bytes, zeroed, that live as long as the plan, or as long
 * as the pass that runs; marks: n times -1, for as long. Never NULL for want of
 * elements. NULL when memory is short: then p->err says so. */
void *lp_ipu_alloc(LpIpuPlan *p, size_t n, size_t size);
void *lp_ipu_space(LpIpuPlan *p, size_t n, size_t size); /* not zeroed */
void *lp_ipu_scratch(LpIpuPlan *p, size_t n, size_t size);
int *lp_ipu_marks(LpIpuPlan *p, size_t n);
/* A copy of the list that lives as long as the plan. */
void *lp_ipu_keep(LpIpuPlan *p, const void *list, size_t n, size_t size);
/* Appends to the list x->list of x->n_list elements. */
#define LP_IPU_ADD(x, list, e, ...)                                            \
    do {                                                                       \
        LP_FAIL_IF(!LP_GROW((x)->list, (x)->cap_##list, (x)->n_##list), e,     \
                   LP_E_MEMORY, "out of memory");                              \
        (x)->list[(x)->n_##list++] = (__VA_ARGS__);                            \
    } while (0)
/* Do its results have their operand's numbers as they are? */
bool lp_ipu_rearranges(const LpOp *op);
/* Have the fullest of its tiles, and of its I/O tiles, room for all, code
 * too? */
bool lp_ipu_fits(const LpIpuPlan *p, const LpIpuMemory *m);
/* Tiles of an IPU that compute. */
int lp_ipu_tiles(const LpIpuPlan *p);
/* Context of cost functions on one IPU. */
LpCostCtx lp_ipu_ctx(const LpIpuPlan *p, int ipu);
/* Replicas that share a machine's link to the host. */
int lp_ipu_rivals(const LpIpuPlan *p);
/* Cost of a node. */
LpStatus lp_ipu_node_cost(LpIpuPlan *p, const LpGraph *g, LpNodeId id,
                          const LpShare *s, LpConvPass pass, LpCost *out);
/* What the nodes of a body have, this proportion where they have none of their
 * own; scratch. NULL after a failure, which p->err tells. */
LpShare *lp_ipu_body_shares(LpIpuPlan *p, const LpGraph *body,
                            double proportion);
/* Of one that runs beside another. */
static inline void lp_cost_takes_no_time(LpCost *c)
{
    c->compute_cyc = c->exchange_cyc = c->sync_cyc = 0;
}
/* The loop that a row is in. */
static inline const LpLoop *lp_loop_of(const LpIpuPlan *p, size_t row)
{
    size_t first = 0, end = p->n_loop; /* it is in [first, end) */
    while (end - first > 1) {
        size_t half = first + (end - first) / 2;
        if (row < p->loop[half].first_row)
            end = half;
        else
            first = half;
    }
    return &p->loop[first];
}
static inline int64_t lp_pass_cyc(const LpStagePass *r)
{
    return r->compute_cyc + r->exchange_cyc + r->sync_cyc;
}
/* Does a sum over the micro-batches make the value, so that no run does? */
static inline bool lp_ipu_is_sum(const LpIpuPlan *p, LpVal v)
{
    LpNodeId n = p->step->micro->value[v].node;
    return n != LP_NO_NODE && p->sum[n].var >= 0;
}
/* Is part i the first of its accumulator on its IPU, which is another than the
 * accumulator's and adds them? */
bool lp_ipu_first_partial(const LpIpuPlan *p, size_t i);
/* Is variable `var` on the IPU, its own or as a copy? */
bool lp_ipu_has(const LpIpuPlan *p, int var, int ipu);
/* Is the variable a gradient of one micro-batch that goes to streaming memory
 * when it is made: nothing is added to an accumulator that is there? */
bool lp_ipu_leaves(const LpIpuPlan *p, const LpVariable *v);
/* Does the backward run find parameter `var` there, which its forward run has
 * loaded, if they are in one row? */
bool lp_ipu_holds(const LpIpuPlan *p, size_t var, int run);
/* Are the run and its forward run in one row, for one micro-batch? */
bool lp_ipu_turns(const LpIpuPlan *p, int run);
/* Micro-batches that pass a phase together. */
int64_t lp_ipu_serial(const LpIpuPlan *p);
/* Micro-batches for which a variable that has come from streaming memory is
 * there: these or, where the strategy keeps it, all of a weight update. */
int64_t lp_ipu_together(const LpIpuPlan *p);
/* When the run's transfer moves for micro-batch mb of the weight update; false:
 * it does not, as the variable is there. */
bool lp_ipu_moves(const LpIpuPlan *p, const LpTransfer *t, int64_t mb,
                  LpStreamWhen *when);
/* Is the weight update a phase, after those of its only turn? It goes over the
 * weights as the options say; optimizer states that are not on demand come with
 * the last row before it. */
bool lp_ipu_update_is_phase(const LpIpuPlan *p);
/* Is what it loads in the memory of the IPU a step before the run begins? */
bool lp_ipu_comes_early(const LpTransfer *t);
/* Number of the transfer that loads for a run, or stores after it; -1: none. */
int lp_ipu_transfer(const LpIpuPlan *p, LpTransferOf of, size_t at, int run,
                    bool load);
/* Is a sum of its results the result of a sum? */
bool lp_ipu_is_linear(const LpGraphNode *d);
/* Has the result of a view or marker the memory of its operand? */
static inline bool lp_ipu_is_view(const LpGraphNode *d)
{
    return (d->op->flags & (LP_OPF_VIEW | LP_OPF_MARKER)) != 0;
}
/* Elements of variable `v` that this replica keeps: all, or a share; their
 * bytes. */
static inline int64_t lp_ipu_kept(const LpIpuPlan *p, const LpVariable *v)
{
    return p->kept[v - p->step->var];
}
int64_t lp_ipu_kept_bytes(const LpIpuPlan *p, const LpVariable *v);
/* Of parameters and what belongs to them; NULL: always on the chip. */
static inline const LpLocation *lp_ipu_location(const LpIpuPlan *p,
                                                const LpVariable *v)
{
    return p->var_location[v - p->step->var];
}
/* Of what the forward pass keeps of a value. */
const LpLocation *lp_ipu_val_location(const LpIpuPlan *p, LpVal v);
static inline bool lp_ipu_off_chip(const LpIpuPlan *p, const LpVariable *v)
{
    return p->off_chip[v - p->step->var];
}

/* Is it an accumulator that a velocity is? */
bool lp_ipu_in_velocity(const LpIpuPlan *p, const LpVariable *v);

#endif
