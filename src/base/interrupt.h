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

#endif
