/* The one entry through which operators run: eager on tensors, or recorded
 * into the running trace. Also eager autograd. Everything here runs under the
 * interpreter's thread. */
#ifndef LP_AUTODIFF_OP_CALL_H
#define LP_AUTODIFF_OP_CALL_H

#include "src/ir/op.h"

/* An operand as the caller has it: a tensor (borrowed), a number, a hole. */
typedef struct LpArg {
    LpTensor *t; /* NULL: a number if is_num, else a hole */
    bool is_num;
    LpScalar num;
} LpArg;

/* Runs `op`. `attr` has op->n_attr entries and is only read. Results are owned
 * by the caller; *n_out is set. On failure nothing is returned. n_in counts
 * list members one by one. */
LpStatus lp_op_call(const LpOp *op, const LpArg *in, int n_in,
                    const LpAttr *attr, LpTensor **out, int *n_out, LpErr *e);

/* The same with a given random site (gradients draw again what was drawn). */
LpStatus lp_op_call_at(const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, uint64_t site, LpTensor **out,
                       int *n_out, LpErr *e);

/* The in-place form: computes and writes the result into in[0].t (which must
 * be a tensor; the result must broadcast to its shape and be castable to its
 * dtype), bumps its version. */
LpStatus lp_op_call_inplace(const LpOp *op, const LpArg *in, int n_in,
                            const LpAttr *attr, LpErr *e);

/* The out= form: the result is written into `out`, resized if needed. `casts`:
 * out's type may be another one that the result can be cast to. */
LpStatus lp_op_call_out(const LpOp *op, const LpArg *in, int n_in,
                        const LpAttr *attr, LpTensor *const *out, int n_out,
                        bool casts, LpErr *e);

/* dst[...] = src with broadcasting and conversion (x[i] = v, copy_). */
LpStatus lp_copy_into(LpTensor *dst, const LpArg *src, LpErr *e);

/* ---- autograd ----------------------------------------------------------- */
bool lp_grad_enabled(void);
void lp_set_grad_enabled(bool on);

/* A backward pass fails at the first rule that gives a NaN. */
bool lp_detect_anomaly(void);
void lp_set_detect_anomaly(bool on);

/* Leaf flag. RuntimeError for integer tensors and for clearing it on a
 * non-leaf. */
LpStatus lp_set_requires_grad(LpTensor *t, bool on, LpErr *e);
bool lp_requires_grad(const LpTensor *t);
bool lp_is_leaf(const LpTensor *t);
const char *lp_grad_fn_name(const LpTensor *t); /* "MulBackward"; NULL: none */
LpTensor *lp_grad_get(const LpTensor *t);       /* borrowed, may be NULL */
/* Retains grad; NULL clears. */
LpStatus lp_grad_set(LpTensor *t, LpTensor *grad, LpErr *e);
void lp_retain_grad(LpTensor *t); /* keep .grad of a non-leaf */
bool lp_retains_grad(const LpTensor *t);

/* A function that is called with a gradient when all of it has arrived; *out,
 * if set, owned and of the same type, replaces it. */
typedef struct LpHook LpHook;
typedef LpStatus (*LpHookFn)(void *ctx, LpTensor *grad, LpTensor **out,
                             LpErr *e);
/* Registers a hook on a tensor that requires a gradient. With `after` (leaves
 * only) it is called when .grad has been accumulated, with the leaf itself.
 * Takes over ctx; release(ctx) is called once, when the hook is removed or its
 * tensor's history goes. *handle is owned by the caller. On failure nothing
 * was taken. */
LpStatus lp_hook_add(LpTensor *t, bool after, LpHookFn fn,
                     void (*release)(void *ctx), void *ctx, LpHook **handle,
                     LpErr *e);
bool lp_hooked(const LpTensor *t); /* functions are called with a leaf's */
void lp_hook_remove(LpHook *h);    /* keeps the handle; NULL is fine */
void lp_hook_release(LpHook *h);   /* the handle; NULL is fine */

/* grads[i] may be NULL (scalar roots only: ones). Accumulates into .grad of
 * leaves, or of `inputs` only when n_inputs > 0. */
LpStatus lp_backward(LpTensor *const *roots, LpTensor *const *grads, int n,
                     LpTensor *const *inputs, int n_inputs, bool retain_graph,
                     bool create_graph, LpErr *e);
/* torch.autograd.grad: results owned, NULL where unused and allowed. */
LpStatus lp_grad(LpTensor *const *roots, LpTensor *const *grads, int n,
                 LpTensor *const *inputs, int n_inputs, bool retain_graph,
                 bool create_graph, bool allow_unused, LpTensor **out,
                 LpErr *e);

/* Itself when contiguous, else a copy; owned. */
LpStatus lp_contiguous(LpTensor *t, LpTensor **out, LpErr *e);

/* Shares storage, not history. */
LpStatus lp_detach(LpTensor *t, LpTensor **out, LpErr *e);

/* ---- random state of eager calls ---------------------------------------- */
void lp_manual_seed(uint64_t seed);
uint64_t lp_initial_seed(void);
void lp_rng_get(uint64_t state[2]); /* seed, calls since seeding */
void lp_rng_set(const uint64_t state[2]);

int lp_num_threads(void);
LpStatus lp_set_num_threads(int n, LpErr *e);
/* Refused where OMP_THREAD_LIMIT is below the fixed width. */
LpStatus lp_set_deterministic(bool on, LpErr *e);
bool lp_deterministic(void);
/* LpKernelReq.split of what is prepared from now on; at first
 * LP_SPLIT_ALL. */
void lp_set_product_split(int n);
int lp_product_split(void);
/* Makes this process a forked worker: one thread from now on, since the
 * parent's pool is not here; prepared kernels are dropped. */
void lp_enter_worker(void);
/* Says that what a worker could do begins or ends here; returns what was set.
 * Deterministic algorithms then have a worker's width, so that the bits do not
 * depend on who does it. */
bool lp_set_task(bool on);
/* What kernels are prepared for: the threads, or the fixed width of
 * deterministic algorithms (1 in a worker and in its tasks). */
int lp_kernel_width(void);

#endif
