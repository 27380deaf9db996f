/* Tracing: while a trace runs, op_call records into its graph instead of
 * computing.
 *
 * Aliasing is by storage. Every user storage that the trace meets has a
 * stand-in: a traced base tensor whose value changes when it is written in
 * place; the user's objects are never altered. A tensor is (storage, chain of
 * views); a view made before a write replays its chain when it is read next.
 * Storages that nobody declared are captured as constants.
 *
 * The body of a loop or a branch is traced in a trace of its own while the one
 * around it waits. What it meets from outside, traced there or a user's, is
 * captured: an input of the body; `user` is what stands for it in the trace
 * around. */
#ifndef LP_AUTODIFF_TRACE_H
#define LP_AUTODIFF_TRACE_H

#include "src/autodiff/op_call.h"
#include "src/ir/graph.h"
#include "src/ir/group.h"

typedef enum {
    LP_TRACE_STREAM,   /* an input that comes with every call */
    LP_TRACE_PARAM,    /* declared: a parameter */
    LP_TRACE_BUFFER,   /* declared: a buffer */
    LP_TRACE_CONSTANT, /* met: a captured tensor */
    LP_TRACE_CAPTURE,  /* met in a body: of the trace around it */
} LpTraceRole;

/* A storage of the trace: graph input, its tensor, its value now. */
typedef struct LpTraceVar {
    LpTraceRole role;
    const char *name;  /* interned; "" for constants */
    LpTensor *user;    /* retained; NULL: a stream without a tensor */
    LpTensor *standin; /* retained: the traced base */
    LpVal input;       /* of the graph */
    bool scaled;   /* a parameter that forward may write, see lp_trace_scale */
    LpGroup group; /* a parameter's; the user's tensor has a slice a group */
} LpTraceVar;

typedef struct LpTrace LpTrace;

/* One test on the hot path: a trace is running. */
extern bool lp_tracing;

/* Owned. The trace owns its graph until lp_trace_take. */
LpStatus lp_trace_new(LpTrace **out, LpErr *e);
void lp_trace_free(LpTrace *tr); /* NULL is fine; its tensors become unusable */

/* Between begin and end op_call records here. */
LpStatus lp_trace_begin(LpTrace *tr, LpErr *e);
void lp_trace_end(LpTrace *tr);
/* A trace inside the running one, begun: the body of a loop, branch or call. */
LpStatus lp_trace_begin_body(LpTrace **out, LpErr *e);
/* After its end: the graph from its variables to these results, counted. An
 * error if the body wrote what it captured or is not on one stage. */
LpStatus lp_trace_body(LpTrace *tr, LpTensor *const *out, int n, LpGraph **body,
                       LpErr *e);
/* Writes to captured tensors are errors from now on. A constant with a write
 * is what PopTorch makes of them: a new value that the next call forgets. What
 * is made while the trace runs may be written. */
void lp_trace_guard_captured(LpTrace *tr);
/* Operators that work eagerly but cannot be compiled are noted instead of
 * failing, so that all of them can be told at once. A trace that noted one
 * makes no step. */
void lp_trace_tolerate(LpTrace *tr);
/* The inputs were narrowed from int64 to int32 for a device that lacks int64:
 * an int64 result may be written into them with out=. */
void lp_trace_narrow(LpTrace *tr);
bool lp_trace_is_narrow(void); /* the current trace, or one around it */
/* Lines of "file:line: why" in order, "" if there are none; borrowed until the
 * trace records on. */
const char *lp_trace_refused(const LpTrace *tr);
/* LpBuilder.excuse of what is recorded by the running trace. */
bool lp_trace_excuse(LpBuilder *b, const char *text);
LpTrace *lp_trace_current(void); /* NULL if none */
/* No trace runs until the one that was suspended (NULL: none) goes on. */
LpTrace *lp_trace_suspend(void);
void lp_trace_go_on(LpTrace *was);

/* Declares a graph input before or during the trace. With `user` its storage
 * is mapped; `type` is then the base's type and may be NULL. Returns the
 * stand-in, borrowed. */
LpStatus lp_trace_declare(LpTrace *tr, LpTraceRole role, const char *name,
                          LpTensor *user, const LpType *type,
                          LpTensor **standin, LpErr *e);

/* A parameter whose values differ between groups of replicas: the stand-in is
 * what one replica sees, without the first dimension of `user`. */
LpStatus lp_trace_declare_grouped(LpTrace *tr, const char *name, LpTensor *user,
                                  LpGroup group, LpTensor **standin, LpErr *e);

/* The value that `t` has now. */
LpStatus lp_trace_value(LpTrace *tr, LpTensor *t, LpVal *v, LpErr *e);

/* Origin stamped on the nodes recorded from now on; copied. */
LpStatus lp_trace_set_origin(LpTrace *tr, const LpOrigin *o, LpErr *e);
const LpOrigin *lp_trace_origin(const LpTrace *tr);
/* The origin's line is of the code that had something traced, not of what is
 * traced: messages name it, but no draw depends on it, so that the same model
 * draws the same wherever it is called from. */
void lp_trace_set_outside(LpTrace *tr, bool outside);
/* Called before every recorded call, to update the origin; ctx borrowed. */
void lp_trace_on_call(LpTrace *tr, void (*fn)(void *ctx, LpTrace *tr),
                      void *ctx);

LpGraph *lp_trace_graph(LpTrace *tr); /* borrowed */
size_t lp_trace_n_vars(const LpTrace *tr);
const LpTraceVar *lp_trace_var(const LpTrace *tr, size_t i);
/* The variable of a user's storage or of its stand-in's, and of the very tensor
 * `user` unless that is NULL; NULL: none yet. */
const LpTraceVar *lp_trace_find(const LpTrace *tr, const LpStorage *st,
                                const LpTensor *user);
/* Forward may write the parameter of the storage in place (Embedding's
 * max_norm); the micro-batch loop then carries it like a buffer. */
void lp_trace_scale(LpTrace *tr, const LpStorage *st);
/* The value that a variable's storage holds at the end. */
LpVal lp_trace_var_now(const LpTrace *tr, size_t i);
/* The graph, now the caller's; the trace must not record any more. */
LpGraph *lp_trace_take(LpTrace *tr);

/* A second trace over the graph of a finished one, for rules that run in the
 * reverse sweep: the graph is borrowed, tensors of the first trace stay
 * usable. lp_trace_know tells it the value of a storage. Free it with
 * lp_trace_leave. */
LpStatus lp_trace_resume(LpGraph *g, uint64_t serial, LpTrace **out, LpErr *e);
LpStatus lp_trace_know(LpTrace *tr, LpTraceRole role, LpTensor *user, LpVal v,
                       LpErr *e);
void lp_trace_leave(LpTrace *tr); /* NULL is fine */
/* Nodes recorded from now on have this origin of the graph. */
void lp_trace_set_origin_id(LpTrace *tr, LpOriginId id);
uint64_t lp_trace_serial(const LpTrace *tr);
/* A tensor that stands for the value, owned. */
LpStatus lp_trace_tensor(LpTrace *tr, LpVal v, LpTensor **out, LpErr *e);
/* release(ctx) is called when the trace is freed. On failure nothing was
 * taken. */
LpStatus lp_trace_own(LpTrace *tr, void (*release)(void *ctx), void *ctx,
                      LpErr *e);

/* Results of loss operators (LP_OPF_LOSS) recorded so far, in order. */
size_t lp_trace_n_losses(const LpTrace *tr);
LpVal lp_trace_loss(const LpTrace *tr, size_t i);

/* ---- for op_call -------------------------------------------------------- */
LpStatus lp_trace_call(const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, const uint64_t *site, LpTensor **out,
                       int *n_out, LpErr *e);
/* Random sites given out so far; rolling back takes back those after the first
 * n, for a call that failed and is tried again. */
size_t lp_trace_rng_mark(void);
void lp_trace_rng_rollback(size_t n);
/* Notes out[0] of a loss operator; releases all n results if it cannot. */
LpStatus lp_trace_mark_loss(LpTensor **out, int n, LpErr *e);
/* dst now has the value of src (same shape and dtype); `what` writes it. */
LpStatus lp_trace_write(LpTensor *dst, LpTensor *src, const char *what,
                        LpErr *e);

#endif
