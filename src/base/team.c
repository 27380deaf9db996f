/* A parallel section of one thread runs as a call. GNU OpenMP would allocate,
 * enter and free a team for it: a fifth of a microsecond and some system calls,
 * as much as a kernel of a few hundred elements takes. Inside another section,
 * where replicas run side by side, what the body asks of its team is answered
 * here: it is thread 0 of 1, and waits for nobody.
 *
 * The linker puts __wrap_NAME in place of NAME (--wrap). The libraries that
 * have sections of their own, oneDNN and OpenBLAS, find the GOMP_parallel here
 * before that of GNU OpenMP, and get what they asked for. */
#include "src/base/team.h"

#include <dlfcn.h>
#include <omp.h>
#include <stddef.h>
#include <string.h>

typedef void Parallel(void (*body)(void *), void *data, unsigned threads,
                      unsigned flags);
Parallel GOMP_parallel, __wrap_GOMP_parallel;

static _Thread_local int alone; /* sections of one thread within another */
int __wrap_omp_get_thread_num(void), __wrap_omp_get_num_threads(void);
int __real_omp_get_thread_num(void), __real_omp_get_num_threads(void);
void __wrap_GOMP_barrier(void), __real_GOMP_barrier(void);

int __wrap_omp_get_thread_num(void)
{
    return alone ? 0 : __real_omp_get_thread_num();
}

int __wrap_omp_get_num_threads(void)
{
    return alone ? 1 : __real_omp_get_num_threads();
}

void __wrap_GOMP_barrier(void)
{
    if (!alone)
        __real_GOMP_barrier();
}

static Parallel *next; /* GNU OpenMP's */
__attribute__((constructor)) static void find_next(void)
{
    void *at = dlsym(RTLD_NEXT, "GOMP_parallel");
    memcpy(&next, &at, sizeof next);
}

static const LpTeamWatch *watch;

void lp_team_watch(const LpTeamWatch *w)
{
    watch = w;
}

typedef struct Timed {
    void (*body)(void *);
    void *data;
    int n; /* threads that came; thread 0 says */
} Timed;
static LpTeamTime taken[LP_TEAM_MOST];

static void timed_body(void *p)
{
    Timed *t = p;
    int i = omp_get_thread_num(), n = omp_get_num_threads();
    if (i == 0)
        t->n = n;
    if (n > LP_TEAM_MOST) {
        t->body(t->data);
        return;
    }
    int64_t start = watch->clock();
    t->body(t->data);
    taken[i] = (LpTeamTime){start, watch->clock()};
}

static void run(void (*body)(void *), void *data, unsigned threads,
                unsigned flags)
{
    if (!watch || omp_in_parallel()) {
        next(body, data, threads, flags);
        return;
    }
    Timed t = {body, data, 0};
    next(timed_body, &t, threads, flags);
    if (t.n > 1 && t.n <= LP_TEAM_MOST)
        watch->section(watch->ctx, taken, t.n);
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                   unsigned flags)
{
    run(body, data, threads, flags);
}

void __wrap_GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                          unsigned flags)
{
    if (threads != 1) {
        run(body, data, threads, flags);
    } else if (omp_in_parallel()) {
        alone++;
        body(data);
        alone--;
    } else {
        body(data);
    }
}
