/* How long threads wait awake. libgomp lets a thread that has run out of work
 * spin for 300,000 rounds before it sleeps; where other programs want the
 * processors too, the rounds take the time of the very thread that is waited
 * for, and a step of small operators becomes many times slower. libgomp reads
 * the number from the environment before main runs and has no call for it, so
 * the program sets it and starts itself once more.
 *
 * The second run takes both variables out again: programs that a script starts
 * get the environment that the user gave. */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/main.h"

#define SPIN "GOMP_SPINCOUNT"
#define OURS "LUPINE_SPIN" /* this is the second run */
#define ROUNDS "1000"

void lp_host_limit_spin(char **argv)
{
    char exe[PATH_MAX];
    if (getenv(OURS)) {
        unsetenv(OURS);
        unsetenv(SPIN);
        return;
    }
    if (getenv(SPIN) || getenv("OMP_WAIT_POLICY") ||
        !realpath("/proc/self/exe", exe) || setenv(SPIN, ROUNDS, 1) != 0)
        return;
    if (setenv(OURS, ROUNDS, 1) == 0)
        execv(exe, argv);
    unsetenv(OURS); /* it could not: the run goes on with libgomp's number */
    unsetenv(SPIN);
}
