/* The loops of bagloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/copy/bagloops.h"

/* Rows lie anywhere: the beginnings of those to come are fetched ahead. */
enum { AHEAD = 4, LINE = 64, SOME = 512, BLOCK = 64 };

#define FETCH(T, s, j, table, bytes)                                           \
    for (int64_t l = 0; (j) + AHEAD < (s)->n && l < (bytes) && l < SOME;       \
         l += LINE)                                                            \
        __builtin_prefetch(                                                    \
            (const char *)((table) + (s)->index[(j) + AHEAD] * (s)->width) +   \
            l);

#define EIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define ZERO(i) V a##i = {0};
#define PLUS(i) a##i += f * ((const V *)row)[i];
#define OVER(i) ((V *)to)[i] = a##i / share;

/* At: an integer of T's size; a bag has fewer rows than it counts. */
#define BAGS(T, At)                                                            \
    typedef T V##T                                                             \
        __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));       \
    static T share_##T(const LpBags *s, int64_t b)                             \
    {                                                                          \
        int64_t held = 0;                                                      \
        for (int64_t j = s->begin[b]; s->mean && j < s->begin[b + 1]; j++)     \
            held += s->index[j] != s->padding;                                 \
        return (T)(held > 1 ? held : 1);                                       \
    }                                                                          \
    /* eight vectors of columns from c on */                                   \
    static void wide_##T(const LpBags *s, int64_t b, int64_t c, T *to)         \
    {                                                                          \
        typedef V##T V;                                                        \
        const T *table = (const T *)s->from + c, *factor = s->factor;          \
        T share = share_##T(s, b);                                             \
        EIGHT(ZERO)                                                            \
        for (int64_t j = s->begin[b]; j < s->begin[b + 1]; j++) {              \
            const T *row = table + s->index[j] * s->width;                     \
            T f = factor ? factor[j] : 1;                                      \
            FETCH(T, s, j, table, 8 * (int64_t)sizeof(V))                      \
            if (s->index[j] == s->padding)                                     \
                continue;                                                      \
            EIGHT(PLUS)                                                        \
        }                                                                      \
        EIGHT(OVER)                                                            \
    }                                                                          \
    static void narrow_##T(const LpBags *s, int64_t b, int64_t c, int m,       \
                           T *to)                                              \
    {                                                                          \
        const T *table = (const T *)s->from + c, *factor = s->factor;          \
        T sum[BLOCK] = {0}, share = share_##T(s, b);                           \
        for (int64_t j = s->begin[b]; j < s->begin[b + 1]; j++) {              \
            const T *row = table + s->index[j] * s->width;                     \
            T f = factor ? factor[j] : 1;                                      \
            FETCH(T, s, j, table, m *(int64_t)sizeof(T))                       \
            for (int i = 0; i < m && s->index[j] != s->padding; i++)           \
                sum[i] += f * row[i];                                          \
        }                                                                      \
        for (int i = 0; i < m; i++)                                            \
            to[i] = sum[i] / share;                                            \
    }                                                                          \
    static void sum_##T(const LpBags *s, int64_t b0, int64_t b1)               \
    {                                                                          \
        const int wide = 8 * (int)(sizeof(V##T) / sizeof(T));                  \
        for (int64_t b = b0; b < b1; b++) {                                    \
            T *to = (T *)s->to + b * s->width;                                 \
            int64_t c = 0;                                                     \
            for (; c + wide <= s->width; c += wide)                            \
                wide_##T(s, b, c, to + c);                                     \
            if (c < s->width)                                                  \
                narrow_##T(s, b, c, (int)(s->width - c), to + c);              \
        }                                                                      \
    }                                                                          \
    static inline __attribute__((always_inline)) void largest_##T(             \
        const LpBags *s, int64_t b, int64_t c, int m)                          \
    {                                                                          \
        const T *table = (const T *)s->from + c;                               \
        int64_t begin = s->begin[b], *place = s->place + b * s->width + c;     \
        T best[BLOCK] = {0}, *to = (T *)s->to + b * s->width + c;              \
        At at[BLOCK];                                                          \
        memset(at, -1, sizeof at);                                             \
        for (int64_t j = begin; j < s->begin[b + 1]; j++) {                    \
            const T *row = table + s->index[j] * s->width;                     \
            At now = (At)(j - begin);                                          \
            FETCH(T, s, j, table, m *(int64_t)sizeof(T))                       \
            if (s->index[j] == s->padding)                                     \
                continue;                                                      \
            for (int i = 0; i < m; i++) {                                      \
                At less = (row[i] <= best[i]) | (best[i] != best[i]);          \
                At kept = (at[i] >= 0) & less;                                 \
                best[i] = kept ? best[i] : row[i];                             \
                at[i] = kept ? at[i] : now;                                    \
            }                                                                  \
        }                                                                      \
        for (int i = 0; i < m; i++) {                                          \
            to[i] = best[i];                                                   \
            place[i] = at[i] < 0 ? -1 : s->index[begin + at[i]];               \
        }                                                                      \
    }                                                                          \
    static void max_##T(const LpBags *s, int64_t b0, int64_t b1)               \
    {                                                                          \
        for (int64_t b = b0; b < b1; b++) {                                    \
            int64_t c = 0;                                                     \
            for (; c + BLOCK <= s->width; c += BLOCK)                          \
                largest_##T(s, b, c, BLOCK);                                   \
            if (c < s->width)                                                  \
                largest_##T(s, b, c, (int)(s->width - c));                     \
        }                                                                      \
    }                                                                          \
    static void add_##T(const LpBags *s, int64_t c0, int64_t c1)               \
    {                                                                          \
        int64_t width = s->width, bytes = (c1 - c0) * (int64_t)sizeof(T);      \
        const T *factor = s->factor;                                           \
        T *table = (T *)s->to + c0;                                            \
        for (int64_t i = 0; i < s->rows; i++)                                  \
            memset(table + i * width, 0, (size_t)bytes);                       \
        for (int64_t b = 0; b < s->bags; b++) {                                \
            const T *restrict from = (const T *)s->from + b * width + c0;      \
            T share = share_##T(s, b);                                         \
            for (int64_t j = s->begin[b]; j < s->begin[b + 1]; j++) {          \
                T *restrict to = table + s->index[j] * width;                  \
                T f = (factor ? factor[j] : 1) / share;                        \
                FETCH(T, s, j, table, bytes)                                   \
                if (s->index[j] == s->padding)                                 \
                    continue;                                                  \
                for (int64_t i = 0; i < c1 - c0; i++)                          \
                    to[i] += f * from[i];                                      \
            }                                                                  \
        }                                                                      \
    }
BAGS(float, int32_t)
BAGS(double, int64_t)

LpBagLoopsOf LP_SIMD_NAME(lp_bags) = {
    {{sum_float, max_float, add_float}, {sum_double, max_double, add_double}}};
