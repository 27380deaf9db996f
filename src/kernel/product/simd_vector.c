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

/* At most BLOCK elements: they are summed as float32 in lanes. */
static double dot_block(int64_t n, const float *a, const float *x)
{
    Vector s[AT_ONCE] = {{0}};
    const Vector *u = (const void *)a, *v = (const void *)x;
    int64_t j = 0;
    for (; j + AT_ONCE * LANES <= n; j += AT_ONCE * LANES, u += 4, v += 4) {
        s[0] += u[0] * v[0];
        s[1] += u[1] * v[1];
        s[2] += u[2] * v[2];
        s[3] += u[3] * v[3];
    }
    for (; j + LANES <= n; j += LANES)
        s[0] += *u++ * *v++;
    Vector all = (s[0] + s[1]) + (s[2] + s[3]);
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += all[i];
    for (; j < n; j++)
        sum += a[j] * x[j];
    return (double)sum;
}

static void dots(int64_t rows, int64_t n, const float *a, int64_t rs,
                 const float *x, float *y, int64_t y_step)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j += BLOCK)
            sum +=
                dot_block(n - j < BLOCK ? n - j : BLOCK, a + i * rs + j, x + j);
        y[i * y_step] = (float)sum;
    }
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
