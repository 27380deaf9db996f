/* Threads that share the parts of one section at a time. A section has a fixed
 * number of parts, on which alone its results depend; whoever is there takes
 * them. */
#ifndef LP_BASE_POOL_H
#define LP_BASE_POOL_H

#include <stdbool.h>

/* Which part of how many this thread runs; of 0: none of a section. */
typedef struct LpPart {
    int i, of;
} LpPart;
extern _Thread_local LpPart lp_part;

/* Runs body(data) n times, as each part once: part 0 here. n is 2 to
 * LP_TEAM_MOST (src/base/team.h). false: there are no threads for it, and
 * nothing has run. Not from within a part. */
bool lp_pool_run(void (*body)(void *), void *data, int n);

/* Within a part: waits until all parts are here. */
void lp_pool_barrier(void);

#endif
