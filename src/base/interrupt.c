/* A flag that a signal handler may set. */
#include "src/base/interrupt.h"

#include <pthread.h>
#include <stddef.h>

volatile sig_atomic_t lp_interrupt_flag;
bool lp_kernels_may_stop;

bool lp_interrupt_raised(void)
{
    return lp_interrupt_flag != 0;
}

void lp_interrupt_clear(void)
{
    lp_interrupt_flag = 0;
}

void lp_signals_hold(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void lp_signals_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
