/* Shared by trace.c and trace_call.c. */
#ifndef LP_AUTODIFF_TRACE_IMPL_H
#define LP_AUTODIFF_TRACE_IMPL_H

#include "src/autodiff/trace.h"
#include "src/base/buf.h"
#include "src/base/map.h"

struct LpTrace {
    uint64_t serial;
    LpTrace *outer;            /* borrowed; NULL: no body */
    int32_t ipu, stage, phase; /* of a body: where it begins */
    LpGraph *g;
    LpTraceVar *var;
    size_t n, cap;
    LpMap var_of; /* by address of the user's storage and the stand-in's */
    LpOrigin origin;
    LpOriginId origin_id; /* 0: to be interned */
    bool outside;         /* see lp_trace_set_outside */
    bool guarded;         /* captured tensors may not be written */
    bool narrow;          /* see lp_trace_narrow */
    bool tolerant;        /* what cannot be compiled is noted: */
    LpBuf refused;        /* a line each, the last one from `last` on */
    size_t last;
    void (*on_call)(void *ctx, LpTrace *tr);
    void *on_call_ctx;
    LpMap draws;   /* by hash of a place of the program: how many it made */
    uint64_t *log; /* the place of each */
    size_t n_log, cap_log;
    LpVal *loss;
    size_t n_loss, cap_loss;
    struct Owned {
        void (*release)(void *ctx);
        void *ctx;
    } * owned;
    size_t n_owned, cap_owned;
    uint64_t salt; /* of a resumed trace: its draws are others */
};

/* v is the value of t, as its storage now is. */
LpStatus lp_trace_set_value(LpTrace *tr, LpTensor *t, LpVal v, LpErr *e);

/* A random call's site: its place in the program (module path, file, line; not
 * the folder, which depends on how the script was named, nor a line outside of
 * what is traced) and how many came from that place before; never a running
 * number of the whole trace, so that an edit elsewhere does not change it. */
LpStatus lp_trace_next_draw(LpTrace *tr, uint64_t *site, LpErr *e);

#endif
