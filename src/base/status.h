/* Status codes and the error record. C below the bindings returns an LpStatus
 * and fills an LpErr; only src/bind turns that into a Lua error. The first
 * failure wins: lp_fail on a record that already holds one keeps it. */
#ifndef LP_BASE_STATUS_H
#define LP_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An argument of a hook, which need not use every one. */
#define LP_UNUSED __attribute__((unused))

typedef enum {
    LP_OK = 0,
#define ERROR(code, class, type) LP_E_##code,
#include "src/base/errors.def"
#undef ERROR
    LP_N_STATUS
} LpStatus;

typedef struct LpErr {
    LpStatus code;
    char msg[768];     /* always terminated */
    char context[512]; /* innermost first, one line each; may be empty */
    const char *hint;  /* static, NULL: none. What is to be changed, for front
                          ends: lua/lupine/base/advice.lua */
} LpErr;

/* Fills `e` (which may be NULL) unless it already holds a failure; returns
 * `code`. */
LpStatus lp_fail(LpErr *e, LpStatus code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
LpStatus lp_fail_hint(LpErr *e, LpStatus code, const char *hint,
                      const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
LpStatus lp_vfail(LpErr *e, LpStatus code, const char *fmt, va_list ap);

/* Most that are out of memory say no more. */
LpStatus lp_no_memory(LpErr *e);

/* Appends a line of context ("in layer 'fc2'") to a failure. */
void lp_err_context(LpErr *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

const char *lp_status_class(LpStatus code); /* "ValueError", … */
const char *lp_status_type(LpStatus code);  /* "value_error", … */

#define LP_TRY(call)                                                           \
    do {                                                                       \
        LpStatus lp_try_ = (call);                                             \
        if (lp_try_ != LP_OK)                                                  \
            return lp_try_;                                                    \
    } while (0)

#define LP_FAIL_IF(cond, e, code, ...)                                         \
    do {                                                                       \
        if (cond)                                                              \
            return lp_fail((e), (code), __VA_ARGS__);                          \
    } while (0)

#endif
