/* Checked arithmetic: every size that is computed from outside input. */
#ifndef LP_BASE_CHECKED_H
#define LP_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns false on overflow (of int64_t, of size_t) and leaves *r. */
static inline bool lp_add_i64(int64_t a, int64_t b, int64_t *r)
{
    int64_t t;
    if (__builtin_add_overflow(a, b, &t))
        return false;
    *r = t;
    return true;
}

static inline bool lp_mul_i64(int64_t a, int64_t b, int64_t *r)
{
    int64_t t;
    if (__builtin_mul_overflow(a, b, &t))
        return false;
    *r = t;
    return true;
}

static inline bool lp_add_size(size_t a, size_t b, size_t *r)
{
    size_t t;
    if (__builtin_add_overflow(a, b, &t))
        return false;
    *r = t;
    return true;
}

static inline bool lp_mul_size(size_t a, size_t b, size_t *r)
{
    size_t t;
    if (__builtin_mul_overflow(a, b, &t))
        return false;
    *r = t;
    return true;
}

#endif
