/* Host lowering: a graph of the step becomes straight-line code. */
#ifndef LP_PASSES_HOST_LOWER_H
#define LP_PASSES_HOST_LOWER_H

#include "runtime/program.h"

typedef struct LpHostOptions {
    int threads;
    bool fuse;      /* chains of pointwise operators as one pass */
    bool epilogues; /* of products */
    bool pack;      /* weights of products as packed copies */
    int split;      /* of products' operands: LpKernelReq's */
    bool fast;      /* Winograd's convolution where it pays */
    /* recurrent layers over looked up rows multiply the table */
    bool embedding_hoist;
    /* convolution weights lie as their gradients are made */
    bool weight_layouts;
    int block; /* channels in a block of images: 8 or 16; 0: plain layouts */
    uint64_t remat; /* bytes that a micro graph uses from which on values are
                       made again (remat.c) */
} LpHostOptions;

/* All of it, for this CPU and the threads and precision that are set. */
LpHostOptions lp_host_options(void);

/* Passes that rewrite a graph; inputs and outputs keep their order. */
#define REWRITE(name, text)                                                    \
    LpStatus lp_host_##name(LpGraph **g, const LpHostOptions *o, LpErr *e);
#include "src/passes/host/passes.def"

/* The program of a completed step, which it retains, for the replicas of this
 * process; t NULL: for all. */
LpStatus lp_compile_host(const LpStep *step, const LpTopology *t,
                         const LpHostOptions *o, LpProgram **out, LpErr *e);

/* A kernel for an operator with bodies (src/ops/control.h): their code and who
 * calls it. Operands and results are dense. */
LpStatus lp_prepare_bodies(const LpKernelReq *r, const LpHostOptions *o,
                           LpKernel *k, LpErr *e);

/* Assigns arena offsets to buffers with given lifetimes so that buffers alive
 * at once do not overlap; aligned to 64 bytes. Returns the arena's size.
 * Best fit over the free gaps; n log n. */
typedef struct LpSpan {
    uint64_t bytes;
    uint32_t first, last; /* instruction numbers, inclusive */
    uint64_t offset;      /* out */
} LpSpan;
LpStatus lp_arena_plan(LpSpan *span, size_t n, uint64_t *total, LpErr *e);
/* The same, the largest first; quadratic. */
LpStatus lp_arena_pack(LpSpan *span, size_t n, uint64_t *total, LpErr *e);

#endif
