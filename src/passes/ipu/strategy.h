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

typedef struct LpSchedule LpSchedule; /* schedule.c */

/* What a user has placed; name as messages call it: "block 'A'". */
typedef struct LpBlockLocation {
    const char *name;
    int stage, ipu, phase;
} LpBlockLocation;

struct LpStrategyOps {
    const char *name;
    const LpStrategyOps *alone; /* how a model of one stage runs [like this] */
    bool by_phase;              /* stages go by phase first */
    bool may_return; /* forward may come back to a stage (of a phase) that it
                        has left */
    bool recompute;  /* backward makes activations again unless told not to */
    /* what a user may do when activations do not fit */
    const char *less_activations;
    /* LpStagePass.offset of a stage's run [0] */
    int (*offset)(const LpIpuPlan *, int stage, bool backward);
    /* micro-batches that a stash of the stage keeps [1] */
    int (*stash_depth)(const LpIpuPlan *, int stage);
    /* do stashes leave the chip if activations are located off it? [yes] */
    bool (*stash_off_chip)(const LpIpuPlan *);
    /* how values get from run to run [direct] */
    LpRoute (*route)(const LpIpuPlan *, const LpStagePass *from,
                     const LpStagePass *to);
    /* Is a value that an earlier run of the IPU had still there, so that the
     * run need not bring its own? [yes] */
    bool (*stays)(const LpIpuPlan *, const LpStagePass *, const LpLiveRange *);
    /* does streaming memory work beside computing? `io`: I/O tiles move what
     * is asked of them [io] */
    bool (*streams_beside)(const LpIpuPlan *, bool io);
    /* the rows of one weight update, by the functions below */
    LpStatus (*rows)(const LpIpuPlan *, LpSchedule *);

    /* ---- rules for front ends [none] ------------------------------------- */
    /* IPU of a stage that is given none [its id] */
    int (*default_ipu)(int stage, int phase);
    LpStatus (*check_place)(const LpBlockLocation *, LpErr *);
    /* two places of a model, in order */
    LpStatus (*check_pair)(const LpBlockLocation *, const LpBlockLocation *,
                           LpErr *);
    LpStatus (*check_read)(const LpBlockLocation *reader,
                           const LpBlockLocation *maker, LpErr *);
    /* `have` micro-batches between weight updates, or of a call */
    LpStatus (*check_batches)(int stages, bool training, int64_t have, LpErr *);
};

#define STRATEGY(name) extern const LpStrategyOps lp_strategy_##name;
#include "src/passes/ipu/strategies.def"
#undef STRATEGY

/* NULL: there is none of that name. */
const LpStrategyOps *lp_strategy_find(const char *name);
extern const char *const lp_strategy_names[]; /* with NULL at the end */

/* IPUs to reserve for a model up to IPU `highest` (-1: none) on `hardware`
 * (where counts are powers of two; else rounded up if `round`), and how many of
 * them it needs. */
LpStatus lp_ipus_reserved(int highest, int64_t replicas, bool hardware,
                          bool round, int64_t *reserved, int64_t *need,
                          LpErr *e);

/* Adds a run to the row that is made, makes that row, closes a loop over the
 * rows that are in none. */
void lp_schedule_run(LpSchedule *s, int run);
LpStatus lp_schedule_row(LpSchedule *s, LpRow row);
LpStatus lp_schedule_loop(LpSchedule *s, int64_t count);

#endif
