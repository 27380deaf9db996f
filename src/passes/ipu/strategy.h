/* An execution strategy: in what order the stages of a step run, and what that
 * means for what they keep and exchange. One record each, in strategy_*.c;
 * nothing else knows one from another. Functions that are NULL stand for what
 * the comment says in brackets. */
#ifndef LP_PASSES_IPU_STRATEGY_H
#define LP_PASSES_IPU_STRATEGY_H

#include "src/passes/ipu/ipu.h"

typedef enum {
    LP_ROUTE_DIRECT,
    LP_ROUTE_HOPS, /* from run to run, also through those that do not read it */
    LP_ROUTE_OFF_CHIP
} LpRoute;

typedef enum {
    LP_STREAMING_WITH,    /* I/O tiles, beside the row that needs it */
    LP_STREAMING_IN_TURN, /* nothing while a row computes */
    LP_STREAMING_AHEAD,   /* rows load for the next one: I/O tiles while a row
                             computes, others when it has */
    LP_STREAMING_GROUPS   /* likewise, IPUs that a row leaves idle also do while
                             it computes */
} LpStreaming;

typedef struct LpSchedule LpSchedule; /* schedule.c */

/* Where an operator of the model has been placed, as messages tell it. */
typedef struct LpBlockLocation {
    const LpGraphNode *node;
    const LpOrigin *origin;
    int stage, ipu, phase;
} LpBlockLocation;

struct LpStrategyOps {
    const char *name;
    const LpStrategyOps *alone; /* how a model of one stage runs [like this] */
    bool by_phase;              /* stages go by phase first */
    bool at_once;   /* runs of a row work on different micro-batches: what they
                       send goes and comes between rows */
    bool keeps;     /* what has come of variables stays for all micro-batches of
                       a weight update */
    bool recompute; /* backward makes activations again unless told not to */
    /* LpStagePass.offset of a stage's run [0] */
    int (*offset)(const LpIpuPlan *, int stage, bool backward);
    /* micro-batches that a stash of the stage keeps [1] */
    int (*stash_depth)(const LpIpuPlan *, int stage);
    /* do stashes leave the chip if activations are located off it? [yes] */
    bool (*stash_off_chip)(const LpIpuPlan *, int stage);
    /* how values get from run to run [direct] */
    LpRoute (*route)(const LpIpuPlan *, const LpStagePass *from,
                     const LpStagePass *to);
    /* Is a value that an earlier run of the IPU had still there, so that the
     * run need not bring its own? [yes] */
    bool (*stays)(const LpIpuPlan *, const LpStagePass *, const LpLiveRange *);
    /* Are two runs, one after the other, in one row of a turn? [yes] */
    bool (*one_row)(const LpIpuPlan *, const LpStagePass *,
                    const LpStagePass *);
    /* what streaming memory does while the rows of a turn go on [I/O tiles
     * move what is asked of them while the row computes that needs it] */
    LpStreaming (*streaming)(const LpIpuPlan *);
    /* the rows of one weight update, by the functions below */
    LpStatus (*rows)(const LpIpuPlan *, LpSchedule *);

    /* for front ends: IPU of a stage that is given none [its id] */
    int (*default_ipu)(int stage, int phase);

    /* ---- rules [none], which lp_ipu_analyse checks ----------------------- */
    LpLiveness most_liveness; /* the last one it can [always live] */
    LpStatus (*check_place)(const LpBlockLocation *, LpErr *);
    /* two IPUs of one stage */
    LpStatus (*check_ipus)(const LpBlockLocation *, const LpBlockLocation *,
                           LpErr *);
    /* a place that reads what a later stage makes [it is run again] */
    LpStatus (*check_return)(const LpBlockLocation *reader,
                             const LpBlockLocation *maker, LpErr *);
    LpStatus (*check_batches)(const LpIpuPlan *, LpErr *);
};

/* "operator mm (net.lua:12) of block 'A'". */
typedef struct LpPlaceName {
    char text[200];
} LpPlaceName;
LpPlaceName lp_place_name(const LpBlockLocation *);

#define STRATEGY(name) extern const LpStrategyOps lp_strategy_##name;
#include "src/passes/ipu/strategies.def"
#undef STRATEGY

/* NULL: there is none of that name. */
const LpStrategyOps *lp_strategy_find(const char *name);
extern const char *const lp_strategy_names[]; /* with NULL at the end */

/* Do I/O tiles gather the parameter, which is kept in shares, while a row
 * computes? Rows that repeat gather as much each; phases (gathers_ahead, for
 * micro-batch mb) what the runs of the next one read, the first of a weight
 * update before it computes. */
bool lp_ipu_gathers_beside(const LpIpuPlan *p, const LpVariable *v);
bool lp_ipu_gathers_ahead(const LpIpuPlan *p, int run, int64_t mb);

/* How many IPUs to reserve for replicas of `ipus` IPUs each. */
LpStatus lp_ipus_reserve(LpIpuPlan *p, int64_t ipus);

/* Adds a run to the row that is made, makes that row, closes a loop over the
 * rows that are in none. */
void lp_schedule_run(LpSchedule *s, int run);
LpStatus lp_schedule_row(LpSchedule *s, LpRow row);
LpStatus lp_schedule_loop(LpSchedule *s, int64_t count);
/* All of a pipeline at once, bare (slots.c); *made: false, it has to be made
 * row by row. */
LpStatus lp_schedule_slots(LpSchedule *s, bool *made);
/* The row is for this micro-batch of those that pass a phase together. */
void lp_schedule_part(LpSchedule *s, int64_t part);
/* A turn for every micro-batch, or for those that pass a phase together, all
 * alike but for what I/O tiles move: `turn` makes the rows of the one that
 * begins with that number. */
LpStatus lp_schedule_turns(LpSchedule *s,
                           LpStatus (*turn)(LpSchedule *s, const LpIpuPlan *p,
                                            int64_t number));

#endif
