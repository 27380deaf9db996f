/* The state of a replay. Private to replay*.c. */
#ifndef LP_RUNTIME_EXEC_REPLAY_STATE_H
#define LP_RUNTIME_EXEC_REPLAY_STATE_H

#include "runtime/exec/replay.h"

/* The value of one micro-batch; shared by a run, a ring and a link. */
typedef struct LpCell {
    int refs;
    int64_t bytes;
    void *data; /* behind the head */
} LpCell;

/* A place for the value of one micro-batch at a time. */
typedef struct LpSlot {
    LpCell *cell;
    int64_t tag; /* its micro-batch */
} LpSlot;

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
    LpSlot **ring;               /* by stash: `depth` places */
    LpSlot *link, *sent;         /* by copy: arrived; on the way */
    uint32_t *drop, *drop_first; /* live ranges by their end, current run */
    void **wide;
    int *ahead;     /* [replica][variable]: inputs that came and are not read */
    int64_t *moved; /* [act][IPU][IPU]: bytes, in the current row */
    int64_t alive, peak;
    /* of the current call */
    const LpReplayStream *stream;
    const LpRow *row;
    LpRunCtx rc;
    const struct LpHostCalls *host;
    int64_t slice, replica, start;
    int64_t mb; /* of the loop */
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
bool lp_replay_in_row(const LpRow *row, int run);
/* All that was moved since the last row, and nothing else, is in the acts. */
LpStatus lp_replay_end_row(LpReplay *x, const LpRow *row, int64_t turn,
                           LpErr *e);
/* Counts what the weight update moves, of one replica, and ends its row. */
LpStatus lp_replay_end_update(LpReplay *x, LpErr *e);

void lp_replay_clear_run(LpReplay *x);
void lp_replay_clear(LpReplay *x); /* everything but variables */

#endif
