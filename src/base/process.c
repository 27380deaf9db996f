/* One flag: set after a fork, never taken back. */
#include "src/base/process.h"

static bool worker;

bool lp_in_worker(void)
{
    return worker;
}

void lp_mark_worker(void)
{
    worker = true;
}
