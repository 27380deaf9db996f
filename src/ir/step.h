/* The step: what a compiled program does, before anyone asks how. Two graphs
 * and a table of variables.
 *
 *   device iteration {
 *     replica { micro-batch { micro graph } }   accumulators gather gradients
 *     reduce accumulators over replicas
 *     update graph                              new parameters, new state
 *   }
 *
 * The table is the signature: every input of either graph is a variable, every
 * output writes one. Weight sync, state_dict, checkpoints, replicas and
 * sharding walk this table. The step alone fixes values: IPU passes only
 * annotate it, host passes lower a copy.
 *
 * A step is counted. It is built by one owner and, once complete, never
 * changes: programs, plans and replays of it stand side by side and each keep
 * a reference. */
#ifndef LP_IR_STEP_H
#define LP_IR_STEP_H

#include "src/ir/graph.h"
#include "src/ir/group.h"

typedef enum {
    LP_VAR_PARAM,  /* written by the update; if micro_out, carried as well: all
                      replicas of a group then write the one there is, in
                      order */
    LP_VAR_BUFFER, /* if micro_out: carried from micro-batch to micro-batch */
    LP_VAR_ACCUM,  /* gradient buffer of `param`, or other sums: -1; zero at the
                      start of each device iteration, or where gradients
                      gather over runs of the first one, written by every
                      micro-batch */
    LP_VAR_STATE,  /* optimizer state of `param`, or of all: -1 */
    LP_VAR_HYPER,  /* hyper-parameter, 0-d, read at run time */
    LP_VAR_STREAM_IN,  /* one slice a micro-batch */
    LP_VAR_STREAM_OUT, /* likewise, returned as the output mode says */
    LP_VAR_CONST,
    LP_N_VAR_ROLES
} LpVarRole;

typedef struct LpVariable {
    LpVarRole role;
    const char *name; /* "fc.weight", "Gradient___fc.weight"; the step's */
    LpType type;      /* as one replica and one micro-batch sees it */
    LpVal micro_in, micro_out;   /* LP_NOVAL: not read / not written there */
    LpVal update_in, update_out; /* likewise */
    int param;     /* ACCUM, STATE: index of the parameter's variable;
                  STREAM_OUT: of the STREAM_IN that was written, or of the
                  variable that the update writes and that the last micro-batch
                  of a device iteration shows; else -1 */
    LpGroup group; /* PARAM: replicas that have the same value */
    /* Retained, of PARAM, BUFFER, CONST, STATE and HYPER, with a leading axis
     * of a grouped one (lp_var_host_type). NULL of others, and of tensors on
     * device meta. */
    LpTensor *data;
} LpVariable;

typedef struct LpStep {
    int refs;
    bool complete;
    bool failed;     /* to be completed: it is neither open nor complete */
    LpGraph *micro;  /* owned */
    LpGraph *update; /* owned; NULL for inference */
    LpVariable *var;
    size_t n_var, cap_var;
    LpArena names;
    int64_t device_iterations, gradient_accumulation, replicas;
    bool mean_reduction; /* else sum, over accumulation and replicas */
    LpNumerics numerics; /* set before lp_complete_step */
} LpStep;

LpStep *lp_step_new(void); /* one reference; NULL when memory is short */
LpStep *lp_step_retain(const LpStep *s); /* of a complete one; to read it */
void lp_step_release(LpStep *s);         /* NULL is fine */
/* Index of the new variable, -1 when memory is short or the step is complete.
 * Copies the name, retains v->data. */
int lp_step_add(LpStep *s, const LpVariable *v, LpErr *e);
const char *lp_var_role_name(LpVarRole r);
/* Every input and output of both graphs against the table (step_verify.c); the
 * error names the variable. Of a completed step. */
LpStatus lp_step_verify(const LpStep *s, LpErr *e);
/* Loops and replicas are at least 1, and the bytes of every stream over all of
 * them countable. */
LpStatus lp_step_check_loops(const LpStep *s, LpErr *e);
/* The micro-batch loop carries it: forward reads and writes it. */
bool lp_var_carried(const LpVariable *v);
/* Of a parameter, or of the one that an accumulator or state belongs to. */
LpGroup lp_var_group(const LpStep *s, const LpVariable *v);
/* The type that the host's tensor has: with the axis of groups, or of replicas,
 * if any. */
LpType lp_var_host_type(const LpStep *s, const LpVariable *v);
/* Where in its bytes the value of a replica is. */
size_t lp_var_host_slice(const LpStep *s, const LpVariable *v, int64_t replica);
bool lp_step_grouped(const LpStep *s); /* some parameter is */
/* An output whose last micro-batch of a device iteration is what a variable is
 * after the update (`param`). */
bool lp_var_shows_update(const LpStep *s, const LpVariable *v);

/* One graph of a step with, by variable, the value that is read and the one
 * that is written there (LP_NOVAL: none). Whoever rewrites a graph has one of
 * these, since the table of a complete step stays as it is. */
typedef struct LpStepGraph {
    LpGraph *g;      /* owned; NULL: the step has no such graph */
    LpVal *in, *out; /* owned, a value per variable */
} LpStepGraph;

/* The micro graph (or the update), copied. */
LpStatus lp_step_graph_copy(const LpStep *s, bool update, LpStepGraph *out,
                            LpErr *e);
/* The graph itself, for as long as the step is built: the step has none until
 * it is put back. */
LpStatus lp_step_graph_take(LpStep *s, bool update, LpStepGraph *out, LpErr *e);
void lp_step_graph_put(LpStep *s, bool update, LpStepGraph *x);
void lp_step_graph_fini(LpStepGraph *x); /* a zeroed one is fine */

/* Text form (src/ir/step_text.c) of a complete step, without the data of its
 * variables: an owned string, freed with lp_free. What is parsed is complete
 * and has gone through the verifiers; its variables have no data. */
char *lp_step_print(const LpStep *s, LpErr *e);
LpStatus lp_step_parse(const char *text, LpStep **out, LpErr *e);
/* The same of a step that may be open, without files and lines of scripts: of
 * steps that compile to the same it is the same. */
char *lp_step_print_key(const LpStep *s, LpErr *e);
/* Gives a variable of a parsed step its data, which it retains: contiguous, of
 * lp_var_host_type. Once, and to roles that have data. */
LpStatus lp_step_bind(LpStep *s, size_t var, LpTensor *data, LpErr *e);

#endif
