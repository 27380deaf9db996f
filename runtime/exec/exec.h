/* The executor: owns the device's memory of a program and runs it.
 *
 * Memory. Parameters, state, hyper-parameters and constants exist once (all
 * replicas hold equal values); accumulators, and buffers that a micro-batch
 * writes, once a replica. If values of some parameter differ between groups of
 * replicas, all parameters and states exist once a replica, and each replica
 * runs the update. Values are exchanged in the plain layout of the
 * variable's type.
 *
 * Running. All loops of the step (src/ir/step.h) are here. A step is abandoned
 * only between two instructions of a micro-batch, never inside the update:
 * then buffers and the random counter are those of the last finished device
 * iteration. */
#ifndef LP_RUNTIME_EXEC_EXEC_H
#define LP_RUNTIME_EXEC_EXEC_H

#include "runtime/exec/comm.h"
#include "runtime/exec/profile.h"

/* MODE(NAME, what scripts call it): which slices a call returns */
#define LP_OUT_MODES(MODE)                                                     \
    MODE(FINAL, "final")    /* of the last micro-batch */                      \
    MODE(EVERY_N, "everyn") /* of every period-th device iteration */          \
    MODE(ALL, "all")                                                           \
    MODE(SUM, "sum") /* added up */
#define LP_OUT_MODE(name, text) LP_OUT_##name,
typedef enum { LP_OUT_MODES(LP_OUT_MODE) } LpOutMode;
#undef LP_OUT_MODE

/* What a call binds to a stream variable. */
typedef struct LpStream {
    const void *in; /* STREAM_IN: slices in the order [device iteration]
                       [accumulation step][replica] */
    void *out;      /* STREAM_OUT: lp_exec_out_slices of them, same order */
    LpOutMode mode;
    int64_t period; /* EVERY_N */
    bool guard;     /* STREAM_OUT: what is not finite in it holds the update */
} LpStream;

typedef struct LpExec LpExec;

/* Takes over the program (also on failure). Variables with data start with
 * it, all others with zeros. It runs the replicas of this process; streams have
 * their slices. */
LpStatus lp_exec_new(LpProgram *p, const LpComm *comm, LpExec **out, LpErr *e);
int64_t lp_exec_replicas(const LpExec *x); /* of this process */
void lp_exec_free(LpExec *x);              /* NULL is fine */
const LpProgram *lp_exec_program(const LpExec *x);
/* Replicas that run side by side; 1: one after the other. */
int lp_exec_lanes(const LpExec *x);

/* Host -> device for all replicas, from a contiguous tensor of the variable's
 * type; device (of one replica) -> host: what lies in another layout is
 * converted. The host's tensor of a grouped variable has a slice a group
 * (lp_var_host_type). A variable that no run writes may be left in the tensor's
 * storage, or the storage's pages are given back (memory.c): it is hooked then,
 * and retained. So is the storage of a variable's first values, until the first
 * run copies them. */
LpStatus lp_exec_write(LpExec *x, size_t var, const LpTensor *t, LpErr *e);
LpStatus lp_exec_read(const LpExec *x, size_t var, int64_t replica, void *dst,
                      LpErr *e);
/* One replica's value of a variable that differs between them while the host
 * has one of it (lp_exec_differs), as lp_exec_read gave it. */
LpStatus lp_exec_write_one(LpExec *x, size_t var, int64_t replica,
                           const void *src, LpErr *e);
bool lp_exec_differs(const LpExec *x, size_t var);
/* All groups' values, of each group that has a replica here, for a tensor of
 * the host's type. */
LpStatus lp_exec_read_host(const LpExec *x, size_t var, void *dst, LpErr *e);
/* The variable lies in t's storage, or has its values still there. */
bool lp_exec_shares(const LpExec *x, size_t var, const LpTensor *t);
/* The first run will copy the variable's values from the host's tensor. */
bool lp_exec_due(const LpExec *x, size_t var);
/* Storages whose pages were given back have them again; lp_exec_free does the
 * same, but cannot say that it failed. */
LpStatus lp_exec_let_go(LpExec *x, LpErr *e);

/* The variable lies in the tensor's memory from now on, which is retained: runs
 * read it there, and write it, which counts as writes in place do. Of one
 * replica, without a layout of its own (LpHostOptions). Whoever gives the
 * tensor other memory need not tell; lp_exec_bound says whether all such
 * tensors have the types that were compiled. */
LpStatus lp_exec_bind(LpExec *x, size_t var, LpTensor *t, LpErr *e);
bool lp_exec_bound(const LpExec *x);

/* x and `with` compute in one arena from now on, and with both whoever shares
 * with one of them: of all these one runs at a time. */
LpStatus lp_exec_share(LpExec *x, LpExec *with, LpErr *e);

/* Slices a STREAM_OUT variable yields in one call. */
int64_t lp_exec_out_slices(const LpExec *x, LpOutMode mode, int64_t period);

/* What answers the program's host calls from now on; borrowed, NULL: nothing
 * does. Programs with such calls run replicas one after the other, in the
 * calling thread. */
void lp_exec_set_host(LpExec *x, const struct LpHostCalls *host);
bool lp_exec_running(const LpExec *x);
/* Device iterations of the last run whose update a guarded output held:
 * parameters, states and buffers are as before each of them. */
int64_t lp_exec_held(const LpExec *x);

/* One call. `stream` has an entry a variable (only stream variables are
 * read). On an error `*finished` device iterations have taken effect. */
LpStatus lp_exec_run(LpExec *x, const LpStream *stream, int64_t *finished,
                     LpErr *e);

/* Runs to come end without the update. Accumulators that are added to start at
 * zero, unless they are bound. */
void lp_exec_set_gathers(LpExec *x, bool on);

/* The next run, and no other, fails (LP_E_FAULT) in that device iteration when
 * `share` (0 to 1) of the instructions of its micro-batches are done. Below 0:
 * none does. lp_exec_finished: device iterations that have taken effect since,
 * or in the last run. */
void lp_exec_set_trap(LpExec *x, int64_t iteration, double share);
int64_t lp_exec_finished(const LpExec *x);

/* Takes the time of every run from now on, or only in sessions. */
void lp_exec_set_profile(LpExec *x, bool on);
const LpProfile *lp_exec_profile(const LpExec *x); /* borrowed; NULL: none */

/* Random state: seed and number of micro-batches since seeding. */
void lp_exec_rng_get(const LpExec *x, uint64_t state[2]);
void lp_exec_rng_set(LpExec *x, const uint64_t state[2]);

#endif
