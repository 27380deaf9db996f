/* Folds of n contiguous elements into one state, for one instruction set
 * (LP_SIMD). Sums and products of float32 run in float lanes; the last
 * lanes are joined in double, in order, and so is everything larger than one
 * call. The lanes are the same in every instruction set, so are the bits. */
#include <string.h>

#include "src/kernel/loops/reduce_kernel.h"

/* 256 bytes of lanes, which stay in registers, while there are as many
 * elements, halved down to 8 lanes, which take the rest; fewer than 8 elements
 * go to the state one by one. */
#define STEP8(T, step, from)                                                   \
    for (int j = 0; j < 8; j++) {                                              \
        const T v = (from)[j], u = a[j];                                       \
        a[j] = (T)(step);                                                      \
    }
#define FOLD(name, T, STATE, step)                                             \
    static void name(int64_t n, const void *data, void *state)                 \
    {                                                                          \
        enum { LANES = 256 / sizeof(T) };                                      \
        const T *x = data;                                                     \
        STATE s = *(STATE *)state;                                             \
        int64_t i = 0;                                                         \
        T a[LANES];                                                            \
        if (n >= LANES) {                                                      \
            memcpy(a, x, sizeof a);                                            \
            for (i = LANES; i + LANES <= n; i += LANES)                        \
                for (int j = 0; j < LANES; j++) {                              \
                    const T v = x[i + j], u = a[j];                            \
                    a[j] = (T)(step);                                          \
                }                                                              \
            for (int w = LANES / 2; w >= 8; w /= 2)                            \
                for (int k = 0; k < w; k += 8)                                 \
                    for (int j = k; j < k + 8; j++) {                          \
                        const T v = a[j + w], u = a[j];                        \
                        a[j] = (T)(step);                                      \
                    }                                                          \
        } else if (n >= 8) {                                                   \
            memcpy(a, x, 8 * sizeof *a);                                       \
            i = 8;                                                             \
        }                                                                      \
        for (; i > 0 && i + 8 <= n; i += 8)                                    \
            STEP8(T, step, x + i)                                              \
        for (int j = 0; i > 0 && j < 8; j++) {                                 \
            const STATE v = (STATE)a[j], u = s;                                \
            s = (STATE)(step);                                                 \
        }                                                                      \
        for (; i < n; i++) {                                                   \
            const STATE v = (STATE)x[i], u = s;                                \
            s = (STATE)(step);                                                 \
        }                                                                      \
        *(STATE *)state = s;                                                   \
    }

/* The same where vectors have `op`: those of 8 lanes stay in registers. */
#define FOLD_BY(name, T, STATE, op)                                            \
    static void name(int64_t n, const void *data, void *state)                 \
    {                                                                          \
        typedef T V __attribute__((vector_size(8 * sizeof(T)),                 \
                                   aligned(sizeof(T)), may_alias));            \
        enum { BLOCKS = 256 / sizeof(V), LANES = 8 * BLOCKS };                 \
        const T *x = data;                                                     \
        const V *v = data;                                                     \
        STATE s = *(STATE *)state;                                             \
        int64_t i = 0;                                                         \
        if (n >= 8) {                                                          \
            V a[BLOCKS] = {v[0]};                                              \
            i = 8;                                                             \
            if (n >= LANES) {                                                  \
                _Pragma("GCC unroll 8") for (int b = 1; b < BLOCKS; b++)       \
                    a[b] = v[b];                                               \
                for (i = LANES; i + LANES <= n; i += LANES)                    \
                    _Pragma("GCC unroll 8") for (int b = 0; b < BLOCKS; b++)   \
                        a[b] = a[b] op v[i / 8 + b];                           \
                _Pragma("GCC unroll 8") for (int w = BLOCKS / 2; w > 0;        \
                                             w /= 2)                           \
                    _Pragma("GCC unroll 8") for (int b = 0; b < w; b++) a[b] = \
                        a[b] op a[b + w];                                      \
            }                                                                  \
            V lanes = a[0];                                                    \
            for (; i + 8 <= n; i += 8)                                         \
                lanes = lanes op v[i / 8];                                     \
            for (int j = 0; j < 8; j++)                                        \
                s = s op(STATE) lanes[j];                                      \
        }                                                                      \
        for (; i < n; i++)                                                     \
            s = s op(STATE) x[i];                                              \
        *(STATE *)state = s;                                                   \
    }

#define GREATER(u, v) ((v) > (u) || (v) != (v) ? (v) : (u))
#define SMALLER(u, v) ((v) < (u) || (v) != (v) ? (v) : (u))
FOLD_BY(sum_f32, float, double, +)
FOLD_BY(sum_f64, double, double, +)
FOLD_BY(sum_i64, uint64_t, uint64_t, +)
FOLD_BY(prod_f32, float, double, *)
FOLD_BY(prod_f64, double, double, *)
FOLD_BY(prod_i64, uint64_t, uint64_t, *)
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

/* Four rows at once: each result is read and written once for them. */
#define ROWS(name, T, step)                                                    \
    static void rows_##name(int64_t rows, int64_t bytes, int64_t m,            \
                            const void *data, void *acc)                       \
    {                                                                          \
        const char *at = data;                                                 \
        T *a = acc;                                                            \
        for (; rows >= 4; rows -= 4, at += 4 * bytes) {                        \
            const T *x[4];                                                     \
            for (int k = 0; k < 4; k++)                                        \
                x[k] = (const void *)(at + k * bytes);                         \
            _Pragma("GCC ivdep") for (int64_t j = 0; j < m; j++)               \
            {                                                                  \
                T u = a[j], v = x[0][j];                                       \
                u = (T)(step), v = x[1][j];                                    \
                u = (T)(step), v = x[2][j];                                    \
                u = (T)(step), v = x[3][j];                                    \
                a[j] = (T)(step);                                              \
            }                                                                  \
        }                                                                      \
        for (; rows > 0; rows--, at += bytes) {                                \
            const T *x = (const void *)at;                                     \
            _Pragma("GCC ivdep") for (int64_t j = 0; j < m; j++)               \
            {                                                                  \
                const T u = a[j], v = x[j];                                    \
                a[j] = (T)(step);                                              \
            }                                                                  \
        }                                                                      \
    }

/* As the loops of maximum and minimum have it, as two choices one after the
 * other: four of another form are no vectors. */
#define OR_NAN(name, T, beats)                                                 \
    static inline T name(T u, T v)                                             \
    {                                                                          \
        T more = u beats v ? u : v;                                            \
        return u != u ? u : more;                                              \
    }
OR_NAN(more_f32, float, >)
OR_NAN(less_f32, float, <)
OR_NAN(more_f64, double, >)
OR_NAN(less_f64, double, <)
ROWS(sum_f32, float, u + v)
ROWS(sum_f64, double, u + v)
ROWS(sum_i64, uint64_t, u + v)
ROWS(prod_f32, float, u *v)
ROWS(prod_f64, double, u *v)
ROWS(prod_i64, uint64_t, u *v)
ROWS(max_f32, float, more_f32(u, v))
ROWS(max_f64, double, more_f64(u, v))
ROWS(max_i64, int64_t, v > u ? v : u)
ROWS(min_f32, float, less_f32(u, v))
ROWS(min_f64, double, less_f64(u, v))
ROWS(min_i64, int64_t, v < u ? v : u)

LpRowsLoops LP_SIMD_NAME(lp_loops_rows) = {
    [LP_FOLD_SUM] = {rows_sum_f64, rows_sum_f32, rows_sum_i64},
    [LP_FOLD_PROD] = {rows_prod_f64, rows_prod_f32, rows_prod_i64},
    [LP_FOLD_MAX] = {rows_max_f64, rows_max_f32, rows_max_i64},
    [LP_FOLD_MIN] = {rows_min_f64, rows_min_f32, rows_min_i64},
};

/* ---- positions ----------------------------------------------------------- */
/* The value first, then its place: blocks until one has it. */
#define EXTREME(name, fold, START, BEATS)                                      \
    static int64_t name##_along(int64_t n, const float *x)                     \
    {                                                                          \
        enum { BLOCK = 64 };                                                   \
        double top = START;                                                    \
        int64_t i = 0;                                                         \
        fold(n, x, &top);                                                      \
        const float best = (float)top;                                         \
        for (; i + BLOCK <= n; i += BLOCK) {                                   \
            int found = 0;                                                     \
            for (int j = 0; j < BLOCK; j++) {                                  \
                const float v = x[i + j];                                      \
                found |= (v == best) | ((v != v) & (best != best));            \
            }                                                                  \
            if (found)                                                         \
                break;                                                         \
        }                                                                      \
        while (i + 1 < n && x[i] != best && (x[i] == x[i] || best == best))    \
            i++;                                                               \
        return i;                                                              \
    }                                                                          \
    static void name##_across(int64_t rows, int64_t step, int64_t m,           \
                              const float *x, float *best, int32_t *where)     \
    {                                                                          \
        memcpy(best, x, (size_t)m * sizeof *best);                             \
        memset(where, 0, (size_t)m * sizeof *where);                           \
        for (int64_t i = 1; i < rows; i++) {                                   \
            const float *u = x + i * step;                                     \
            const int32_t here = (int32_t)i;                                   \
            _Pragma("GCC ivdep") for (int64_t j = 0; j < m; j++)               \
            {                                                                  \
                const float v = u[j], b = best[j];                             \
                const int takes = (v BEATS b) | ((v != v) & (b == b));         \
                best[j] = takes ? v : b;                                       \
                where[j] = takes ? here : where[j];                            \
            }                                                                  \
        }                                                                      \
    }
EXTREME(most, max_f32, -INFINITY, >)
EXTREME(least, min_f32, INFINITY, <)

LpExtremePair LP_SIMD_NAME(lp_loops_extreme) = {
    {most_along, most_across},
    {least_along, least_across},
};
