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
 * annotate it, host passes lower a copy. */
#ifndef LP_IR_STEP_H
#define LP_IR_STEP_H

#include "src/ir/graph.h"

typedef enum {
    LP_VAR_PARAM,  /* written by the update; if micro_out, carried as well: all
                      replicas then write the one there is, in order */
    LP_VAR_BUFFER, /* if micro_out: carried from micro-batch to micro-batch */
    LP_VAR_ACCUM,  /* gradient buffer of `param`; zero at the start of each
                      device iteration, written by every micro-batch */
    LP_VAR_STATE,  /* optimizer state of `param` */
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
    int param; /* ACCUM, STATE: index of the parameter's variable, -1 */
    LpTensor
        *data; /* retained: PARAM, BUFFER, CONST, STATE, HYPER; else NULL */
} LpVariable;

typedef struct LpStep {
    LpGraph *micro;  /* owned */
    LpGraph *update; /* owned; NULL for inference */
    LpVariable *var;
    size_t n_var, cap_var;
    LpArena names;
    int64_t device_iterations, gradient_accumulation, replicas;
    bool mean_reduction; /* else sum, over accumulation and replicas */
} LpStep;

LpStep *lp_step_new(void); /* owned; NULL when memory is short */
void lp_step_free(LpStep *s);
/* Index of the new variable, -1 when memory is short. Copies the name, retains
 * v->data. */
int lp_step_add(LpStep *s, const LpVariable *v, LpErr *e);
const char *lp_var_role_name(LpVarRole r);
/* The micro-batch loop carries it: forward reads and writes it. */
bool lp_var_carried(const LpVariable *v);

#endif
