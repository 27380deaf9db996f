/* The compile entry, on plain data, for poptorch, popart and lupine.compile:
 * lp_compile. Its parts can be had by themselves, because the road forks
 * between them: lp_complete_step fixes the values; the passes of the simulated
 * system and the host then only read the completed step (lp_ipu_analyse,
 * lp_compile_host), as often as they like. */
#ifndef LP_PASSES_COMPILE_H
#define LP_PASSES_COMPILE_H

#include "src/passes/host/lower.h"
#include "src/passes/ipu/ipu.h"

#define LP_RULE_HOLE (-1) /* or the operand's default */
#define LP_RULE_GRAD (-2) /* the reduced gradient of `param` */
/* Of what the norm is that is clipped: the gradient, times grad_scale; as it
 * was summed, with the loss scale in it; with weight_decay param; or what lr
 * multiplies, the velocity, which may have gathered the gradients undecayed. */
#define LP_CLIPS(X) X(gradient) X(sum) X(decayed) X(velocity) X(gathered)
#define LP_CLIP_ENUM(name) LP_CLIP_##name,
typedef enum { LP_CLIPS(LP_CLIP_ENUM) LP_N_CLIP } LpClip;
#undef LP_CLIP_ENUM

/* How one parameter is updated: an operator of src/ops/nn/optim.c over
 * variables of the step. Operands left out have the form's default; one called
 * grad_scale takes what undoes the mean's divisor and the loss scale and clips
 * the norm of all gradients. */
typedef struct LpUpdateRule {
    int param; /* variable to differentiate for */
    const LpOp *op;
    const LpAttr *attr;
    int n_in, n_out;
    int in[LP_MAX_ATTR]; /* variables, LP_RULE_HOLE or LP_RULE_GRAD */
    int out[LP_MAX_OUT]; /* variables; -1: not kept */
    LpDtype accum;       /* of the gradient's accumulator; NONE: as param */
    int count; /* STATE variable that grows by one before the update, or -1 */
    /* NULL, or what makes a STATE variable anew before the update, which reads
     * that: an operator over `n_first` variables */
    const LpOp *first_op;
    int n_first, first[LP_MAX_IN], first_out;
    /* HYPER variable: most that the norm is of all parameters whose rules have
     * the same variable here, or -1 */
    int max_norm;
    LpClip clip;
} LpUpdateRule;

/* Which gradients say what the loss scale should be: of float16, those of
 * products and convolutions; of these and all other operators but those that
 * rearrange elements or read a variable; those of tensors by name. */
#define LP_TRACKS(X) X(all) X(products) X(named)
#define LP_TRACK_ENUM(name) LP_TRACK_##name,
typedef enum { LP_TRACKS(LP_TRACK_ENUM) LP_N_TRACK } LpTrack;
#undef LP_TRACK_ENUM

/* A loss scale that the program finds by itself (scaling.c). */
typedef struct LpScaling {
    int factor;  /* STATE variable, float32: what loss_scale is multiplied by */
    int counter; /* … int32, starts at -1: turns in the period; -1: each is one
                  */
    LpTrack tracking;
    const char *const *name; /* as anchors have them */
    int n_name;
    double edge;      /* a share of the greatest float16 */
    double threshold; /* the share beyond it from which the factor is halved */
    int64_t period;   /* updates between two changes */
} LpScaling;

typedef struct LpTraining {
    LpVal loss;     /* of step->micro; not a scalar: a gradient of ones */
    int loss_scale; /* HYPER variable that the loss gradient starts at and the
                       update divides by, or -1 */
    int gathered;   /* HYPER variable, or -1: gradients gather over runs until
                     one ends with the update (exec.h), which divides them by
                     it */
    bool running;   /* means divide at every micro-batch, not in the update */
    bool early; /* by the replicas they divide the loss gradient, not there */
    const LpScaling *scaling; /* NULL: loss_scale is the optimizer's */
    const LpUpdateRule *rule;
    int n_rule;
} LpTraining;

/* Gradients as results: output streams, behind all others and in the order of
 * wrt, with the gradients of the output variables `out`, weighted by the input
 * variables `cotangent`, with respect to the inputs or parameters `wrt`; zeros
 * where nothing flows. */
typedef struct LpCotangents {
    const int *out, *cotangent, *wrt;
    int n_out, n_wrt;
} LpCotangents;

/* A tensor by name (anchors.h). */
typedef struct LpAsked {
    const char *name;
    bool final; /* nothing but its last value of a run is wanted */
} LpAsked;

/* What a step is compiled with: plain data, from whatever front end. */
typedef struct LpCompileSpec {
    int64_t device_iterations, gradient_accumulation;
    LpTopology topology;
    bool mean; /* LpStep.mean_reduction */
    LpNumerics numerics;
    const LpTraining *training;     /* NULL: inference */
    const LpCotangents *cotangents; /* NULL: no such results */
    /* Tensors that become output streams, behind all others and in this
     * order. */
    const LpAsked *anchor;
    int n_anchor;
    /* Results of nodes get names that anchors can use: not where a front end
     * has named them itself. */
    bool name_values;
    /* How the completed step runs: not read by lp_complete_step. */
    const LpIpuOptions *ipu;   /* NULL: no plan */
    const LpHostOptions *host; /* NULL: no program */
    /* NULL, or called after each part of lp_compile: "completed", "planned",
     * "lowered". */
    void (*progress)(void *ctx, const char *part);
    void *progress_ctx;
} LpCompileSpec;

/* Owned by who asked. */
typedef struct LpCompiled {
    LpIpuPlan *plan;
    LpProgram *program;
} LpCompiled;

/* Completes the step, plans and lowers it. What was made is in *out also on
 * failure: a program that does not fit the IPUs has a plan. */
LpStatus lp_compile(LpStep *step, const LpCompileSpec *spec, LpCompiled *out,
                    LpErr *e);

/* The half that fixes values: differentiates the micro graph, adds
 * accumulators and the update graph, runs the common passes, verifies the step.
 * The step's variables stay valid; it does not change any more. */
LpStatus lp_complete_step(LpStep *step, const LpCompileSpec *spec, LpErr *e);

/* A part of lp_complete_step (gradients.c). */
LpStatus lp_step_gradients(LpStep *step, const LpCotangents *c, LpErr *e);

/* What the gradient of a variable is called, in `mem`; NULL when memory is
 * short. */
const char *lp_gradient_name(LpArena *mem, const char *variable, LpErr *e);

#endif
