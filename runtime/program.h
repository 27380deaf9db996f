/* The compiled form: what the executor runs. Code is a function: an operand is
 * (space, offset), of the arena (what one call makes) or of an argument, whose
 * memory the caller names. The code of a step's graphs has the step's variables
 * as arguments and then the derived copies; that of a body its inputs and
 * outputs (src/passes/host/body.c). Kernels are prepared once; running
 * allocates nothing and never enters Lua.
 *
 * The program owns everything it points to, a copy of the step's graphs that
 * the host's passes may rewrite among it; the step is shared and stays as it
 * is. */
#ifndef LP_RUNTIME_PROGRAM_H
#define LP_RUNTIME_PROGRAM_H

#include "src/ir/step.h"

typedef enum { LP_SPACE_NONE, LP_SPACE_ARENA, LP_SPACE_ARG } LpSpace;

typedef struct LpRef {
    LpSpace space;   /* NONE: a hole or an immediate */
    uint32_t arg;    /* ARG: its number */
    uint64_t offset; /* bytes */
} LpRef;

/* A node whose result an instruction makes. */
typedef struct LpWork {
    const LpGraph *g; /* the host's, or the body of a chain */
    LpNodeId node;
    float flops;
} LpWork;

typedef struct LpInstr {
    LpKernel *kernel;
    const LpRef *in, *out;
    const LpRef *scratch; /* of the arena; NULL: the executor's, which is
                           * LP_SHARED_SCRATCH at most */
    uint32_t n_in, n_out;
    LpNodeId node; /* of the host's graph; for messages and profiles */
    /* For profiles (src/passes/host/work.c): the operator if it runs one
     * whole, what it computes (nothing: it moves data), bytes of its operands
     * and results. */
    const LpOp *op;
    const LpWork *work;
    uint32_t n_work;
    uint64_t bytes;
} LpInstr;

/* Scratch that caches hold stays in one place for all instructions; a larger
 * one has a place in the arena for as long as its instruction runs. */
#define LP_SHARED_SCRATCH ((size_t)1 << 20)

/* One straight line of instructions. */
typedef struct LpCode {
    LpArena mem;
    LpInstr *instr;
    size_t n, cap;
    uint64_t arena_bytes;
} LpCode;

/* What a call of code is given. */
typedef struct LpFrame {
    void *const *arg;
    char *arena, *work; /* work: LP_SHARED_SCRATCH */
    void **wide;        /* room for the operands of its widest instruction */
} LpFrame;

/* Operands and results of the widest instruction. */
size_t lp_code_width(const LpCode *c);
void lp_code_fini(LpCode *c);

static inline void *lp_ref_at(const LpFrame *f, const LpRef *r)
{
    if (r->space == LP_SPACE_ARENA)
        return f->arena + r->offset;
    return r->space == LP_SPACE_ARG ? (char *)f->arg[r->arg] + r->offset : NULL;
}

static inline LpStatus lp_instr_run(const LpInstr *in, const LpFrame *f,
                                    const LpRunCtx *rc, LpErr *e)
{
    void **pin = f->wide, **out = f->wide + in->n_in;
    for (uint32_t k = 0; k < in->n_in; k++)
        pin[k] = lp_ref_at(f, &in->in[k]);
    for (uint32_t k = 0; k < in->n_out; k++)
        out[k] = lp_ref_at(f, &in->out[k]);
    void *work = in->scratch ? f->arena + in->scratch->offset : f->work;
    return in->kernel->run(in->kernel, pin, out, work, rc, e);
}

/* A copy of a parameter in another layout, made anew whenever the parameter
 * changes. */
typedef struct LpPackedWeights {
    uint32_t var;
    uint64_t bytes;
    LpKernel *pack;   /* operand: the parameter; result: the copy */
    LpKernel *unpack; /* the reverse; NULL: there is none */
} LpPackedWeights;

/* The layout in which a parameter, its accumulator and its optimizer's state
 * lie while the program runs. */
typedef struct LpWeightLayout {
    LpConvLayout *layout; /* owned */
    uint64_t bytes;
    LpKernel *load, *save; /* from plain memory, to plain memory */
} LpWeightLayout;

/* A sum over replicas (src/passes/host/reductions.c). */
typedef struct LpReduce {
    uint32_t var;    /* an accumulator */
    uint32_t after;  /* instructions of the last micro-batch that have run when
                        nothing touches it any more */
    LpGroup group;   /* over which replicas */
    uint64_t layout; /* a hash of how it lies; 0: plain */
} LpReduce;

typedef struct LpProgram {
    LpStep *step;                          /* retained */
    LpStepGraph micro_graph, update_graph; /* the host's own */
    LpCode micro, update;
    int threads; /* that it was lowered for */
    LpTopology topology;
    LpWeightLayout *weight_layout;
    size_t n_weight_layout, cap_weight_layout;
    /* per variable: 1 + index into weight_layout; 0: plain */
    uint32_t *weight_layout_of;
    uint64_t *arena_grad; /* per variable: 1 + the offset in the arena where it
                          lies from its instruction to the update; 0: it has
                          memory of its own; NULL: all have */
    LpPackedWeights *packed;
    size_t n_packed, cap_packed;
    LpReduce *reduce; /* in the order in which they are final; one replica: none
                       */
    size_t n_reduce;
} LpProgram;

/* NULL: the variable is plain. */
const LpWeightLayout *lp_program_weight_layout(const LpProgram *p, size_t var);
uint64_t lp_program_var_bytes(const LpProgram *p, size_t var);

void lp_program_free(LpProgram *p); /* NULL is fine */

#endif
