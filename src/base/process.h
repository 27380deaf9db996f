/* What this process is: the one that was started, or a forked worker of it
 * (src/io/worker.h). */
#ifndef LP_BASE_PROCESS_H
#define LP_BASE_PROCESS_H

#include <stdbool.h>

bool lp_in_worker(void);
/* Called once, by the worker itself. */
void lp_mark_worker(void);

#endif
