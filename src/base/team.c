/* A parallel section of one thread runs as a call. GNU OpenMP would allocate,
 * enter and free a team for it: a fifth of a microsecond and some system calls,
 * as much as a kernel of a few hundred elements takes. Inside another section
 * the team matters: the body asks which thread of how many it is.
 *
 * The linker puts this in place of GOMP_parallel (--wrap). */
#include <omp.h>

void __real_GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                          unsigned flags) __attribute__((weak));
void __wrap_GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                          unsigned flags);

void __wrap_GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                          unsigned flags)
{
    if (threads == 1 && !omp_in_parallel())
        body(data);
    else
        __real_GOMP_parallel(body, data, threads, flags);
}
