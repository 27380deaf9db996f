/* How long threads wait awake. libgomp lets a thread that has run out of work
 * spin for 300,000 rounds before it sleeps; where other programs want the
 * processors too, the rounds take the time of the very thread that is waited
 * for, and a step of small operators becomes many times slower. A thread that
 * sleeps takes 25 us to wake, though, so that with a processor for each a step
 * of a millisecond is a fifth longer if they sleep at once. So it is ROUNDS, a
 * tenth of a millisecond or two, and a tenth of that where others keep half of
 * the processors busy now. libgomp reads the number from the environment in its
 * constructor, before main runs, and has no call for it.
 *
 * A program's .preinit_array runs before the constructors of the libraries it
 * is linked to (System V ABI, "Initialization and termination functions"). Its
 * function lends an entry of the environment to the number, in place, since
 * the block has no room for another; main puts the entry back, so that the
 * script and the programs it starts see what the user gave. An entry whose
 * name libraries may want in between is not borrowed. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/main.h"

#define SPIN "GOMP_SPINCOUNT="
#define ROUNDS "10000"

static char setting[] = SPIN ROUNDS;
static char **borrowed; /* the entry of the environment, until main */
static char *lender;    /* what stood there */

/* Variables that no constructor reads: those a shell sets for itself. */
static bool idle(const char *entry)
{
    static const char *const names[] = {
        "_=",     "SHLVL=", "OLDPWD=", "PWD=",  "LOGNAME=", "USER=",
        "SHELL=", "MAIL=",  "HOME=",   "TERM=", "PATH="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Do others keep half of the processors or more? The fourth word of
 * /proc/loadavg begins with the number of tasks that run or wait for one, this
 * one included. */
static bool others_run(void)
{
    char text[128];
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *tasks = strchr(text, '/');
    while (tasks && tasks > text && tasks[-1] != ' ')
        tasks--;
    long running = tasks ? strtol(tasks, NULL, 10) : LONG_MAX;
    return running - 1 >= (sysconf(_SC_NPROCESSORS_ONLN) + 1) / 2;
}

/* Whoever is seen each time, and not just by chance. */
static bool busy(void)
{
    for (int i = 0; i < 4; i++) {
        if (!others_run())
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
    return true;
}

static void limit_spin(int argc, char **argv, char **envp)
{
    (void)argc;
    (void)argv;
    char **place = NULL;
    for (char **e = envp; *e; e++) {
        if (strncmp(*e, SPIN, sizeof SPIN - 1) == 0 ||
            strncmp(*e, "OMP_WAIT_POLICY=", 16) == 0)
            return;
        if (!place && idle(*e))
            place = e;
    }
    if (!place)
        return;
    if (busy())
        setting[sizeof setting - 2] = '\0'; /* a digit less */
    borrowed = place;
    lender = *place;
    *place = setting;
}

__attribute__((section(".preinit_array"),
               used)) static void (*const early)(int, char **,
                                                 char **) = limit_spin;

void lp_host_return_environment(void)
{
    if (borrowed)
        *borrowed = lender;
    borrowed = NULL;
}
