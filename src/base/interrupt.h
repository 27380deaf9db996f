/* Ctrl-C, as seen below Lua: the host's signal handler sets a flag, long
 * kernels and executors poll it at node boundaries and return
 * LP_E_INTERRUPT; whoever reports the interruption clears it. */
#ifndef LP_BASE_INTERRUPT_H
#define LP_BASE_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

extern volatile sig_atomic_t lp_interrupt_flag; /* set by signal handlers */

bool lp_interrupt_raised(void);
void lp_interrupt_clear(void);

/* Long kernels stop early, with part of their results missing, while somebody
 * said that they may: who runs them and reports LP_E_INTERRUPT afterwards,
 * whatever they wrote (not while what they overwrite is still needed). */
extern bool lp_kernels_may_stop; /* set outside parallel sections */

static inline bool lp_kernel_stops(void)
{
    return lp_interrupt_flag && lp_kernels_may_stop;
}

/* Signals of this thread wait from here on, and no longer. */
void lp_signals_hold(sigset_t *before);
void lp_signals_release(const sigset_t *before);

#endif
