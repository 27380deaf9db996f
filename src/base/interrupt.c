/* A flag that a signal handler may set. */
#include "src/base/interrupt.h"

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
