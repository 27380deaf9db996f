/* The state of a replay. Private to replay*.c. */
#ifndef LP_RUNTIME_EXEC_REPLAY_STATE_H
#define LP_RUNTIME_EXEC_REPLAY_STATE_H

#include "runtime/exec/replay.h"

/* The value of one micro-batch. */
typedef struct LpCell {
    int refs;
    int64_t bytes;
    void *data; /* behind the head */
} LpCell;

/* A place for the value of one micro-batch at a time. */
typedef struct LpSlot {
    LpCell *cell;
    int64_t tag; /* its micro-batch, + 1 */
} LpSlot;

/* Whose memory: value v of micro-batch mb, or (LP_NOVAL) variable var that has
 * come for it. */
typedef struct LpHolds {
    LpVal v;
    int var;
    int64_t mb;
} LpHolds;

/* A span of the plan at its address. It holds something from step `start` to
 * step `end` of its IPU, which counts them over all periods. */
typedef struct LpPlaced {
    int64_t at, bytes, start, end;
    LpHolds what;
    LpVal over; /* written over it since */
} LpPlaced;

typedef struct LpIpuBytes {
    char *data;
    LpPlaced *block; /* by span */
    uint32_t line;   /* steps of a period */
    int64_t now, live, peak;
    int64_t io, io_peak; /* on I/O tiles in the row, the most of all rows */
} LpIpuBytes;

struct LpReplay {
    const LpIpuPlan *p;
    const LpStep *step;
    const LpGraph *g;
    LpArena mem;
    LpNodeKernels micro, update;
    void **var;        /* [replica][variable] */
    void **replicated; /* [replica][copy]: copies of variables */
    LpCell **here;     /* by value: what the current run has */
    LpCell **now;      /* the same for the update graph */
    uint32_t *part;    /* by value: part of a gathered sum, + 1 */
    LpCell **kept;     /* [part][micro-batch] */
    size_t n_part;
    LpSlot **ring; /* by stash: `depth` places */
    LpSlot **link; /* by copy and micro-batch of a phase: what has arrived, its
                      cell if off chip */
    int64_t *sent; /* by copy: micro-batch that is on its way, + 1 */
    LpIpuBytes *ipu;
    struct LpReplayUpdate *up; /* replay_update.c; NULL: there is none */
    uint32_t *base;            /* by run: its first step on its IPU */
    uint32_t **range;          /* by run and value: live range + 1 */
    int64_t *wrote; /* by variable: micro-batch that has written it, + 1 */
    struct {
        bool freed;
        LpVal over;
    } lost; /* why the last block was not there */
    void **wide;
    int *ahead;     /* [replica][variable]: inputs that came and are not read */
    int64_t *moved; /* [act][IPU][IPU]: bytes, in the current row */
    int64_t n_row;  /* rows that have begun */
    /* by transfer: the micro-batch for which it has come, + 1; the row with
     * which it is stored (of each micro-batch of a phase); if that is the next
     * one */
    int64_t *brought, *stored;
    bool *late;
    int64_t alive, peak;
    /* of the current call */
    const LpReplayStream *stream;
    const LpRow *row;
    LpRunCtx rc;
    const struct LpHostCalls *host;
    int64_t slice, replica, start;
    int64_t mb, turn; /* of the loop; a turn may have several micro-batches */
    bool updating;
};

/* A cell with one reference; NULL when memory is short. */
LpCell *lp_cell_new(LpReplay *x, int64_t bytes, LpErr *e);
void lp_cell_drop(LpReplay *x, LpCell **at); /* a reference; clears *at */
void lp_slot_put(LpReplay *x, LpSlot *p, LpCell *c, int64_t tag);

/* Memory of variable i in the current replica. */
static inline void *lp_replay_here(const LpReplay *x, size_t i)
{
    return lp_replay_var(x, i, x->replica);
}
/* Copies of variables as they are on their own IPU. */
void lp_replay_renew_replicated(LpReplay *x);

/* The range of a value in a run; NULL: it has none. */
static inline const LpLiveRange *lp_replay_range(const LpReplay *x, int run,
                                                 LpVal v)
{
    uint32_t at = x->range[run][v];
    return at ? &x->p->pass[run].range[at - 1] : NULL;
}

/* ---- memory of IPUs (replay_memory.c) ------------------------------------ */
LpStatus lp_replay_lay_out(LpReplay *x, LpErr *e);
void lp_replay_forget(LpReplay *x); /* all values */
/* Where to write what block (a number + 1) holds from step `start` to step
 * `end`; or from now on, as long as the plan says. */
char *lp_block_put(LpReplay *x, int ipu, uint32_t block, LpHolds what,
                   int64_t start, int64_t end);
char *lp_block_put_now(LpReplay *x, int ipu, uint32_t block, LpHolds what);
/* NULL if that is not there, or not any more (x->lost). `taken`: the entry that
 * reads it takes its memory over. */
char *lp_block_get(LpReplay *x, int ipu, uint32_t block, LpHolds what,
                   bool taken);
/* Counts what an IPU holds while a node of that cost has made so many bytes. */
LpStatus lp_replay_account(LpReplay *x, int ipu, const LpCost *c, int64_t made,
                           LpErr *e);
/* Against the report: the most that each IPU held, what it always holds. */
LpStatus lp_replay_check_peaks(const LpReplay *x, LpErr *e);
LpStatus lp_replay_check_held(const LpReplay *x, LpErr *e);

/* ---- streaming memory (replay_stream.c) ---------------------------------- */
/* An entry of a run. */
typedef struct LpWhen {
    int run;
    uint32_t entry; /* n of the run: its end */
    int64_t mb;
} LpWhen;

/* Does the turning row still have variable i, which its forward run brought? */
bool lp_replay_held(const LpReplay *x, size_t i, int run);
/* Does it stay when it has come? */
bool lp_replay_keeps(const LpReplay *x, size_t var);
/* The block of a variable that comes for the run, or has come for its forward
 * run; 0: none. */
uint32_t lp_replay_visitor_block(const LpReplay *x, size_t var, int run);
/* Of the micro-batches that pass a phase together. */
int64_t lp_replay_part_of(const LpReplay *x, int64_t mb);
/* Has transfer i come for the run, with a row before it? Or it comes now. */
bool lp_replay_has_come(LpReplay *x, const LpWhen *w, int i);
/* Has it been in the memory of the IPU since then? */
bool lp_replay_came_early(const LpReplay *x, const LpWhen *w, int i);
/* Stores transfer i, or the next row will. */
void lp_replay_store(LpReplay *x, const LpWhen *w, int i);
/* What the row loads for the next one; what it stores for the one before. */
LpStatus lp_replay_load_ahead(LpReplay *x, const LpRow *next, int64_t turn,
                              LpErr *e);
void lp_replay_store_late(LpReplay *x);
/* What the last row of an update loads for that. */
LpStatus lp_replay_load_states(LpReplay *x, const LpRow *row, int64_t turn,
                               LpErr *e);
/* What stays for all micro-batches of a weight update has memory from the
 * beginning. */
void lp_replay_begin_kept(LpReplay *x);

/* ---- runs (replay_run.c) ------------------------------------------------- */
LpStatus lp_replay_dead_read(const LpReplay *x, LpVal v, int run, LpErr *e);
/* Is variable i there for the run (-1: the update), or can it be stored? */
bool lp_replay_has(const LpReplay *x, size_t i, int run, bool load);
/* What I/O tiles gather for the run in the row before. */
void lp_replay_gather_ahead(LpReplay *x, const LpWhen *w);
LpStatus lp_replay_run_stage(LpReplay *x, int run, int64_t mb, LpErr *e);
/* What run `from` has sent arrives. */
LpStatus lp_replay_deliver(LpReplay *x, int from, LpErr *e);
/* Writes a slice of an output, or copies a variable out of it. */
void lp_replay_output(LpReplay *x, size_t var, const void *from);

/* ---- the update (replay_update.c) ---------------------------------------- */
LpStatus lp_replay_set_up_update(LpReplay *x, LpErr *e);
/* With the variables of replica r; replicas up to `to` get the results too. */
LpStatus lp_replay_update(LpReplay *x, int64_t r, int64_t to, LpErr *e);

/* ---- acts (replay_acts.c) ------------------------------------------------ */
/* Bytes that an IPU moves in the current row; `to`: COPY, else 0. */
void lp_replay_move(LpReplay *x, LpActKind kind, int ipu, int to,
                    int64_t bytes);
/* What the row moves to and from the host: before its runs, or (`beside`) with
 * them, for others. */
void lp_replay_host(LpReplay *x, const LpRow *row, const LpLoop *loop,
                    int64_t turn, bool beside);
/* Slices of an input that are there and not read. */
int *lp_replay_ahead(const LpReplay *x, size_t var);
/* All that was moved since the last row, and nothing else, is in the acts. */
LpStatus lp_replay_end_row(LpReplay *x, const LpRow *row, int64_t turn,
                           LpErr *e);
/* Counts what the weight update moves, of one replica, and ends its row. */
LpStatus lp_replay_end_update(LpReplay *x, LpErr *e);

void lp_replay_clear_run(LpReplay *x);
void lp_replay_clear(LpReplay *x); /* everything but variables */

#endif
