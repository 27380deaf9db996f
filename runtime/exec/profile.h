/* Where a program's host time goes. While a profile is on, the executor takes
 * the time after each instruction and after each part of the loop around them;
 * the time of a row is what passed since the row before, so that the rows of a
 * run add up to it. Threads of a kernel's parallel sections are timed too. Off,
 * it costs one test a call, and one a section.
 *
 * A profile is of one executor but outlives it: names are copies. Those made
 * during a session (all executors that run) stay on one list. Not for several
 * threads at once: executors run in Lua's. */
#ifndef LP_RUNTIME_EXEC_PROFILE_H
#define LP_RUNTIME_EXEC_PROFILE_H

#include "runtime/program.h"
#include "src/base/team.h"

/* Rows of the executor's own work come first, the instructions follow. */
enum {
    LP_PROFILE_ENTER,   /* checks, the loop itself */
    LP_PROFILE_BUFFERS, /* buffers kept in case the step is abandoned */
    LP_PROFILE_ZERO,    /* accumulators */
    LP_PROFILE_STREAMS, /* binding inputs and outputs, adding summed ones */
    LP_PROFILE_SUM,     /* accumulators over replicas */
    LP_PROFILE_OWN
};

typedef enum {
    LP_PART_EXECUTOR,
    LP_PART_PACK, /* copies of parameters in other layouts */
    LP_PART_FORWARD,
    LP_PART_BACKWARD,
    LP_PART_UPDATE,
    LP_N_PARTS
} LpProfilePart;
const char *lp_profile_part_name(LpProfilePart p);

typedef struct LpProfileSource {
    const char *op, *file, *scope;
    int line; /* 0: none */
    float flops;
} LpProfileSource;

typedef struct LpProfileRow {
    const char *label; /* "mm", "mul+add", "copy" */
    LpProfilePart part;
    const LpProfileSource *place; /* what the instruction computes */
    uint32_t n_place;
    int threads;
    double flops;   /* of a call */
    uint64_t bytes; /* of a call */
    uint64_t calls;
    int64_t ns;
} LpProfileRow;

typedef struct LpProfileEvent {
    int64_t start, ns; /* lp_profile_clock */
    uint32_t row;
    int32_t who; /* replica, or -1; of a section: thread */
} LpProfileEvent;

typedef struct LpProfileEvents {
    LpProfileEvent *at;
    size_t n, cap;
} LpProfileEvents;

typedef struct LpProfile {
    LpArena mem;
    int refs;
    unsigned session;
    struct LpProfile *next; /* of the session */
    LpProfileRow *row;
    size_t n_row;
    uint32_t pack, micro, update; /* first rows */
    bool trains;
    uint64_t runs;
    int64_t run_ns, last;           /* of all runs; when the last row ended */
    LpProfileEvents rows, sections; /* rows, and what threads did in them */
    size_t placed;                  /* sections whose row is known */
    uint64_t dropped;               /* beyond LP_PROFILE_EVENTS of either */
    LpTeamWatch watch;
    struct LpProfile *outer; /* whose run this one's is in */
} LpProfile;

#define LP_PROFILE_EVENTS 200000

int64_t lp_profile_clock(void); /* ns, monotonic */

/* A session drops the list of the one before. 0: none is on. */
void lp_profile_begin(void);
void lp_profile_end(void);
unsigned lp_profile_session(void);
const LpProfile *lp_profile_list(void); /* borrowed; newest first */
int64_t lp_profile_run_ns(void); /* in executors since the session began */

void lp_profile_release(LpProfile *p); /* NULL is fine */

/* A run begins. *own is the executor's profile, NULL before its first: it is
 * replaced if it is not of the session that is on. One reference is the
 * executor's, one that of the session's list. */
LpStatus lp_profile_enter(LpProfile **own, const LpProgram *p, LpErr *e);
void lp_profile_lap(LpProfile *p, uint32_t row, int64_t replica);
void lp_profile_leave(LpProfile *p);

#endif
