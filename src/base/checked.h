/* Arithmetic of sizes; every one that is computed from outside input is
 * checked. */
#ifndef LP_BASE_CHECKED_H
#define LP_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline int64_t lp_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t lp_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Each returns false on overflow (of int64_t, of size_t) and leaves *r. */
#define LP_CHECKED(name, type, operation)                                      \
    static inline bool name(type a, type b, type *r)                           \
    {                                                                          \
        type t;                                                                \
        if (__builtin_##operation##_overflow(a, b, &t))                        \
            return false;                                                      \
        *r = t;                                                                \
        return true;                                                           \
    }
LP_CHECKED(lp_add_i64, int64_t, add)
LP_CHECKED(lp_mul_i64, int64_t, mul)
LP_CHECKED(lp_add_size, size_t, add)
LP_CHECKED(lp_mul_size, size_t, mul)
#undef LP_CHECKED

/* Sum and product of counts, which stay at INT64_MAX. */
static inline int64_t lp_add_sat(int64_t a, int64_t b)
{
    int64_t r;
    return lp_add_i64(a, b, &r) ? r : INT64_MAX;
}

static inline int64_t lp_mul_sat(int64_t a, int64_t b)
{
    int64_t r;
    return lp_mul_i64(a, b, &r) ? r : INT64_MAX;
}

#endif
