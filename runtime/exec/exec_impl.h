/* Inside the executor: the state that exec.c (running) and memory.c (what the
 * device holds) share. */
#ifndef LP_RUNTIME_EXEC_EXEC_IMPL_H
#define LP_RUNTIME_EXEC_EXEC_IMPL_H

#include "runtime/exec/exec.h"

/* How the executor has a variable that no run writes. `st` is the storage of
 * the host's tensor, retained and hooked, while the value exists once: the
 * program reads the host's bytes, or (`gone`) the host's pages were given back
 * and are made again from the device's form when somebody touches them. One
 * that runs write may be `due`: the first run, or whoever writes the host's
 * tensor before it, copies the bytes. */
typedef struct LpBacking {
    LpExec *x;
    LpStorage *st; /* NULL: the executor has bytes of its own */
    void *own;     /* the block that they are in, to free */
    bool still;    /* no run writes it */
    bool unread;   /* only packed copies are read: it has no memory itself */
    bool gone;
    bool due;
} LpBacking;

/* A variable that lies in a tensor of the host. */
typedef struct LpBound {
    uint32_t var;
    bool written; /* by runs */
    LpTensor *t;  /* retained */
} LpBound;

/* An arena that executors share, as large as any of them has needed; counted.
 * What is in it lives for one run. */
typedef struct LpSharedArena {
    int refs;
    const LpExec *by; /* whose run it is; NULL: nobody's */
    void *p;
    size_t bytes;
} LpSharedArena;

/* Of lp_zeros. */
typedef struct LpBlock {
    void *p;
    size_t bytes;
} LpBlock;

/* What running a micro-batch needs besides variables. */
typedef struct LpLane {
    char *arena, *work;
    void **wide;     /* operands of one instruction */
    int64_t replica; /* that it runs, or that failed */
    LpErr err;       /* of its replicas, while they run side by side */
} LpLane;

/* Where a run is to fail: before instruction `at` of the device iteration,
 * counted over replicas and in each over micro-batches. */
typedef struct LpTrap {
    int64_t iteration; /* plus 1; 0: nowhere */
    double share;
    bool now; /* in this iteration */
    int64_t at;
} LpTrap;

/* An instruction that writes a part of a carried buffer: where what was there
 * is among what is kept of a micro-batch. */
typedef struct LpUndo {
    size_t instr, at;
} LpUndo;

struct LpExec {
    LpArena mem; /* of its lists */
    LpProgram *p;
    const LpComm *comm; /* borrowed */
    int64_t replicas;   /* of this process, from number `first` on */
    int64_t first;
    bool grouped; /* every replica has parameters and states of its own */
    bool shows;   /* some output shows an updated variable */
    uint32_t *stream, *sum; /* variables that are streams; accumulators that
                               start at zero */
    uint32_t *handed;       /* `grouped`: parameters that micro-batches write */
    size_t n_stream, n_sum, n_handed;
    LpReduction *reduction; /* as the program's table; `plain`: by variable */
    size_t n_started;       /* and not waited for */
    bool plain; /* sums at the end and in plain form: comm.h says when */
    size_t n_var, n_arg;
    void **ptr; /* [replica][argument]: variables, of which streams are bound
                     by every run, then copies of parameters in other layouts,
                     which replicas share */
    LpBlock *owned; /* blocks to free */
    size_t n_owned, cap_owned;
    LpBacking *backing; /* per variable */
    LpBound *bound;
    size_t n_bound, cap_bound;
    char **backup; /* per variable: carried buffers of all replicas */
    LpUndo *undo;  /* of a micro-batch, in its order */
    size_t n_undo, undo_bytes;
    char **kept;           /* by replica: of all undos of all micro-batches */
    size_t *n_kept;        /* … so many undos */
    LpSharedArena *shared; /* NULL: lanes have arenas of their own */
    LpLane *lane; /* the first is everybody's; the others are of threads that
                     run replicas at the same time */
    int lanes;
    bool meets;      /* replicas meet in collectives: each has a lane */
    char **packed;   /* by replica: the operand of a collective */
    char **meet_out; /* … and where its result goes */
    char *moving;
    bool *fresh;  /* per copy: as the parameter is */
    char **spare; /* per output stream: where unwanted slices go, one for
                       each lane */
    uint64_t seed;
    uint64_t micro_batch; /* since seeding */
    const struct LpHostCalls *host;
    bool running;
    bool gathers;     /* runs end without the update */
    int64_t finished; /* device iterations of the last run */
    int64_t held;     /* … whose update was held */
    LpTrap trap;
    bool always;        /* a profile is asked for, session or not */
    LpProfile *profile; /* NULL: none was taken */
    LpProfile *timing;  /* the same, while it is on */
};

static inline size_t lp_var_bytes(const LpVariable *v)
{
    return (size_t)lp_type_bytes(&v->type);
}

/* Memory of argument i in a replica. */
static inline void **lp_exec_at(const LpExec *x, int64_t replica, size_t i)
{
    return &x->ptr[(size_t)replica * x->n_arg + i];
}

static inline bool lp_per_replica(const LpExec *x, const LpVariable *v)
{
    return v->role == LP_VAR_ACCUM ||
           (v->role == LP_VAR_BUFFER && v->micro_out != LP_NOVAL) ||
           (x->grouped && (v->role == LP_VAR_PARAM || v->role == LP_VAR_STATE));
}

static inline bool lp_is_stream(const LpVariable *v)
{
    return v->role == LP_VAR_STREAM_IN || v->role == LP_VAR_STREAM_OUT;
}

/* trap.c: a device iteration begins; the instruction of this micro-batch before
 * which the run is to fail (there may be no such one); whether it is to behind
 * all of them; that failure. */
void lp_trap_begin(LpExec *x, int64_t iteration);
int64_t lp_trap_before(const LpExec *x, const LpCode *c, int64_t replica,
                       const LpRunCtx *rc);
bool lp_trap_at_end(const LpExec *x);
LpStatus lp_trap_spring(const LpExec *x, LpErr *e);

/* collective.c: whether replicas meet at an instruction; what happens there;
 * whether there are any, and the bytes of the largest operand. */
bool lp_exec_is_meeting(const LpInstr *in);
LpStatus lp_exec_meet(LpExec *x, const LpInstr *at, const LpRunCtx *rc,
                      LpErr *e);
LpStatus lp_exec_find_meetings(LpExec *x, size_t *bytes, LpErr *e);

/* undo.c: memory for what carried buffers are before a device iteration (a
 * block, a list of the executor's: memory.c); the iteration begins; an
 * instruction of a micro-batch is about to run; the iteration was abandoned. */
LpStatus lp_exec_set_up_undo(LpExec *x, LpErr *e);
void lp_exec_keep(LpExec *x);
void lp_exec_keep_before(LpExec *x, int64_t replica, size_t instr,
                         const LpFrame *f);
void lp_exec_put_back(LpExec *x);

/* memory.c: zeros that live as long as the executor. */
void *lp_exec_block(LpExec *x, size_t bytes, LpErr *e);
void *lp_exec_list(LpExec *x, size_t n, size_t size, LpErr *e);

LpStatus lp_exec_set_up(LpExec *x, LpErr *e);
void lp_exec_tear_down(LpExec *x);
bool lp_exec_is_bound(const LpExec *x, size_t var);
/* Around a run: where bound variables lie now; what was written counts. */
LpStatus lp_bound_enter(LpExec *x, LpErr *e);
void lp_bound_leave(LpExec *x);
void lp_bound_free(LpExec *x);
/* The executor has no memory of its own for the variable any more, nor a say in
 * the host's (memory.c). */
LpStatus lp_exec_disown(LpExec *x, size_t var, LpErr *e);
/* Around a run: the shared arena is this executor's (arena.c). */
LpStatus lp_arena_enter(LpExec *x, LpErr *e);
void lp_arena_leave(LpExec *x);
void lp_arena_release(LpSharedArena *a); /* NULL is fine */
/* How large the first lane's is; where it and the variables in it are. */
size_t lp_exec_arena_bytes(const LpExec *x);
void lp_exec_move_arena(LpExec *x, void *to);
/* Takes a block out of those that are freed at the end; its bytes, 0: it is
 * none of them. */
size_t lp_exec_take_block(LpExec *x, const void *p);
/* Copies what is due. */
LpStatus lp_exec_settle(LpExec *x, LpErr *e);
/* Makes the copies that are not as their parameters are. */
LpStatus lp_exec_pack(LpExec *x, LpErr *e);
/* Between an accumulator's memory and the buffers of its reduction, if those
 * are apart: there, or (`back`) back. */
LpStatus lp_exec_move_sum(const LpExec *x, const LpReduction *d, bool back,
                          LpErr *e);

#endif
