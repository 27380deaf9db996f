/* Who ran which part of a parallel section, for a profile: of this project's
 * sections and of its libraries'. */
#ifndef LP_BASE_TEAM_H
#define LP_BASE_TEAM_H

#include <stdint.h>

enum { LP_TEAM_MOST = 1024 }; /* threads; a wider section is not reported */

typedef struct LpTeamTime {
    int64_t start, stop;
} LpTeamTime;

typedef struct LpTeamWatch {
    int64_t (*clock)(void); /* called by each thread of a section */
    /* after a section, by the thread that met it: time[i] is thread i's */
    void (*section)(void *ctx, const LpTeamTime *time, int n);
    void *ctx;
} LpTeamWatch;

/* From now on, until the next call; NULL: nobody watches. Borrowed. Not inside
 * a parallel section. Sections of one thread, and those within another, are not
 * reported. */
void lp_team_watch(const LpTeamWatch *w);

#endif
