/* Implicit weight sync. A hook set ties variables of an executor to the host
 * storages that mirror them. After a run that changed the device's copy the
 * storages are marked: the next read of any of them pulls them all, once. */
#ifndef LP_RUNTIME_EXEC_SYNC_H
#define LP_RUNTIME_EXEC_SYNC_H

#include "runtime/exec/exec.h"

typedef struct LpSync LpSync;

/* Owned. The executor is borrowed and must outlive it; free unhooks (without
 * pulling). With `lend` the host's values are lost when they are marked, their
 * memory is given back: whoever ends the mark must have pulled. */
LpStatus lp_sync_new(LpExec *x, bool lend, LpSync **out, LpErr *e);
void lp_sync_free(LpSync *s); /* NULL is fine */

/* May `t` be the host's tensor of a variable: has it the dtype and shape that
 * were compiled? */
LpStatus lp_sync_fits(const LpExec *x, size_t var, const LpTensor *t, LpErr *e);
/* Overwrites such a tensor, however its elements lie. */
LpStatus lp_sync_read(const LpExec *x, size_t var, LpTensor *t, LpErr *e);

/* Variable `var` is mirrored by `t`, which fits and is retained. */
LpStatus lp_sync_add(LpSync *s, size_t var, LpTensor *t, LpErr *e);
/* Forgets all mirrors and the mark. */
void lp_sync_drop(LpSync *s);
/* All mirrors still fit: a module that was converted since must be compiled
 * again. */
LpStatus lp_sync_check(const LpSync *s, LpErr *e);
/* The device's copy is the newer one. */
LpStatus lp_sync_mark(LpSync *s, LpErr *e);
/* The host's copy is to be used: forgets the mark. */
void lp_sync_clear(LpSync *s);
bool lp_sync_marked(const LpSync *s);
/* Copies all mirrored variables to their storages now; a mirror that does not
 * fit any more (lp_sync_check) is left alone. */
LpStatus lp_sync_pull(LpSync *s, LpErr *e);
/* How often that happened. */
int64_t lp_sync_pulls(const LpSync *s);

#endif
