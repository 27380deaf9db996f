/* The main function of a program of named checks: runs the one that the
 * argument names. What is wrong has been printed and counted by the check. */
#ifndef LP_SPEC_TOOLS_CHECKS_H
#define LP_SPEC_TOOLS_CHECKS_H

#include <stdio.h>
#include <string.h>

typedef struct LpCheck {
    const char *name;
    void (*check)(void);
} LpCheck;

/* The exit code: 0, 1 if something was wrong, 2 for another argument. */
static inline int lp_checks_run(int argc, char **argv, const LpCheck *checks,
                                size_t n, const int *wrong)
{
    for (size_t i = 0; i < n; i++)
        if (argc == 2 && strcmp(argv[1], checks[i].name) == 0) {
            checks[i].check();
            if (*wrong)
                printf("%d wrong\n", *wrong);
            return *wrong != 0;
        }
    printf("usage: %s ", argv[0]);
    for (size_t i = 0; i < n; i++)
        printf("%s%s", i ? "|" : "", checks[i].name);
    printf("\n");
    return 2;
}

#endif
