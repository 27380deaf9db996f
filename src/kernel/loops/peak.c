/* The best of several tries, all threads at once. */
#include "src/kernel/loops/peak.h"

#include <omp.h>
#include <string.h>

#include "src/base/mem.h"

#define TRIES 10

/* The best of each thread, so that a moment of other work on one does not
 * count against all. */
double lp_peak_flops(int threads)
{
    const LpPeakLoop *loop = LP_SIMD_PICK(lp_peak_loop);
    const int64_t rounds = 1000000;
    double total = 0;
    volatile float kept = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        double best = 0;
        float sum = 0;
        for (int i = 0; i < TRIES; i++) {
            double start = omp_get_wtime();
            sum += loop->run(rounds);
            double rate =
                2.0 * loop->chains * (double)rounds / (omp_get_wtime() - start);
            best = rate > best ? rate : best;
        }
        total = best;
#pragma omp critical
        kept = kept + sum;
    }
    return total;
}

double lp_peak_copy(int threads)
{
    const size_t each = (size_t)32 << 20;
    size_t n = each * (size_t)threads;
    char *from = lp_alloc_aligned(n), *to = lp_alloc_aligned(n);
    double best = 0;
    for (int i = 0; from && to && i < TRIES / 2; i++) {
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
        {
            size_t at = each * (size_t)omp_get_thread_num();
            if (i == 0) /* the pages are mapped */
                memset(from + at, 1, each);
            memcpy(to + at, from + at, each);
        }
        double rate = 2.0 * (double)n / (omp_get_wtime() - start);
        best = i > 0 && rate > best ? rate : best;
    }
    lp_free(from);
    lp_free(to);
    return best;
}
