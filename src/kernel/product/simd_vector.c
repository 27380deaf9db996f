/* The loops of vector.h, for one instruction set (LP_SIMD). */
#include <string.h>

#include "src/kernel/product/vector.h"

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
enum { LANES = BYTES / 4, AT_ONCE = 4, BLOCK = 4096, COLUMNS = 1024 };
typedef float Vector __attribute__((vector_size(BYTES), aligned(4)));

/* sum[r] += a's row r times x, at most BLOCK elements: they are summed as
 * float32 in lanes, in one order whatever `rows` is. */
static inline __attribute__((always_inline)) void
dot_block(const int rows, int64_t n, const float *a, int64_t rs, const float *x,
          double *sum)
{
    Vector s[AT_ONCE][2] = {{{0}}};
    const Vector *v = (const void *)x;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES, v += 2)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const Vector *u = (const void *)(a + r * rs + j);
            s[r][0] += u[0] * v[0];
            s[r][1] += u[1] * v[1];
        }
    for (int r = 0; r < rows; r++) {
        Vector all = s[r][0] + s[r][1];
        float part = 0;
        for (int i = 0; i < LANES; i++)
            part += all[i];
        for (int64_t k = j; k < n; k++)
            part += a[r * rs + k] * x[k];
        sum[r] += (double)part;
    }
}

/* Rows of a that are rs apart. */
static inline __attribute__((always_inline)) void
dot_rows(const int rows, int64_t n, const float *a, int64_t rs, const float *x,
         float *y, int64_t y_step)
{
    double sum[AT_ONCE] = {0};
    for (int64_t j = 0; j < n; j += BLOCK)
        dot_block(rows, n - j < BLOCK ? n - j : BLOCK, a + j, rs, x + j, sum);
    for (int r = 0; r < rows; r++)
        y[r * y_step] = (float)sum[r];
}

/* Four rows at once, a quarter of them apart: memory gives four streams half as
 * much again as one (two cores of an EPYC: 24 and 19 GB/s). */
static void dots(int64_t rows, int64_t n, const float *a, int64_t rs,
                 const float *x, float *y, int64_t y_step)
{
    int64_t part = rows / AT_ONCE, i = 0;
    for (; i < part; i++)
        dot_rows(AT_ONCE, n, a + i * rs, part * rs, x, y + i * y_step,
                 part * y_step);
    for (i *= AT_ONCE; i < rows; i++)
        dot_rows(1, n, a + i * rs, 0, x, y + i * y_step, 0);
}

/* Four rows to a pass over y, which stays in the cache. */
static void sums(int64_t rows, int64_t n, const float *a, int64_t rs,
                 const float *x, int64_t x_step, float *y)
{
    for (int64_t at = 0; at < n; at += COLUMNS) {
        int64_t m = n - at < COLUMNS ? n - at : COLUMNS, k = 0;
        float *restrict r = y + at;
        memset(r, 0, (size_t)m * sizeof *r);
        for (; k + AT_ONCE <= rows; k += AT_ONCE) {
            const float *u = a + k * rs + at, *v = u + rs;
            const float *w = v + rs, *z = w + rs, *f = x + k * x_step;
            float p = f[0], q = f[x_step], s = f[2 * x_step], t = f[3 * x_step];
            for (int64_t j = 0; j < m; j++)
                r[j] = (((r[j] + p * u[j]) + q * v[j]) + s * w[j]) + t * z[j];
        }
        for (; k < rows; k++) {
            const float *u = a + k * rs + at;
            float f = x[k * x_step];
            for (int64_t j = 0; j < m; j++)
                r[j] += f * u[j];
        }
    }
}

LpVectorLoopsOf LP_SIMD_NAME(lp_vector) = {{dots, sums}};
