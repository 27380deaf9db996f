/* Folds of n contiguous elements into one state, for one instruction set
 * (LP_SIMD). Sums and products of float32 run in float lanes; the last
 * lanes are joined in double, in order, and so is everything larger than one
 * call. The lanes are the same in every instruction set, so are the bits. */
#include <string.h>

#include "src/kernel/loops/reduce_kernel.h"

/* 64 lanes while there are 64 elements, halved down to 8 lanes, which take
 * the rest; fewer than 8 elements go to the state one by one. */
#define STEP8(T, step, from)                                                   \
    for (int j = 0; j < 8; j++) {                                              \
        const T v = (from)[j], u = a[j];                                       \
        a[j] = (T)(step);                                                      \
    }
#define FOLD(name, T, STATE, step)                                             \
    static void name(int64_t n, const void *data, void *state)                 \
    {                                                                          \
        enum { LANES = 64 };                                                   \
        const T *x = data;                                                     \
        STATE s = *(STATE *)state;                                             \
        int64_t i = n >= LANES ? LANES : n >= 8 ? 8 : 0;                       \
        if (i > 0) {                                                           \
            T a[LANES];                                                        \
            memcpy(a, x, (size_t)i * sizeof *a);                               \
            if (i == LANES) {                                                  \
                for (; i + LANES <= n; i += LANES)                             \
                    for (int j = 0; j < LANES; j++) {                          \
                        const T v = x[i + j], u = a[j];                        \
                        a[j] = (T)(step);                                      \
                    }                                                          \
                for (int w = LANES / 2; w >= 8; w /= 2)                        \
                    for (int k = 0; k < w; k += 8)                             \
                        for (int j = k; j < k + 8; j++) {                      \
                            const T v = a[j + w], u = a[j];                    \
                            a[j] = (T)(step);                                  \
                        }                                                      \
            }                                                                  \
            for (; i + 8 <= n; i += 8)                                         \
                STEP8(T, step, x + i)                                          \
            for (int j = 0; j < 8; j++) {                                      \
                const STATE v = (STATE)a[j], u = s;                            \
                s = (STATE)(step);                                             \
            }                                                                  \
        }                                                                      \
        for (; i < n; i++) {                                                   \
            const STATE v = (STATE)x[i], u = s;                                \
            s = (STATE)(step);                                                 \
        }                                                                      \
        *(STATE *)state = s;                                                   \
    }

#define GREATER(u, v) ((v) > (u) || (v) != (v) ? (v) : (u))
#define SMALLER(u, v) ((v) < (u) || (v) != (v) ? (v) : (u))
FOLD(sum_f32, float, double, u + v)
FOLD(sum_f64, double, double, u + v)
FOLD(sum_i64, uint64_t, uint64_t, u + v)
FOLD(prod_f32, float, double, u *v)
FOLD(prod_f64, double, double, u *v)
FOLD(prod_i64, uint64_t, uint64_t, u *v)
FOLD(max_f32, float, double, GREATER(u, v))
FOLD(max_f64, double, double, GREATER(u, v))
FOLD(max_i64, int64_t, int64_t, v > u ? v : u)
FOLD(min_f32, float, double, SMALLER(u, v))
FOLD(min_f64, double, double, SMALLER(u, v))
FOLD(min_i64, int64_t, int64_t, v < u ? v : u)

LpFoldLoops LP_SIMD_NAME(lp_loops_fold) = {
    [LP_FOLD_SUM] = {sum_f64, sum_f32, sum_i64},
    [LP_FOLD_PROD] = {prod_f64, prod_f32, prod_i64},
    [LP_FOLD_MAX] = {max_f64, max_f32, max_i64},
    [LP_FOLD_MIN] = {min_f64, min_f32, min_i64},
};
