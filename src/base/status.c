/* Filling error records; names of their codes from errors.def. */
#include "src/base/status.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *class, *type;
} kinds[LP_N_STATUS] = {
    [LP_OK] = {"", "ok"},
#define ERROR(code, class, type) [LP_E_##code] = {class, type},
#include "src/base/errors.def"
#undef ERROR
};

LpStatus lp_vfail(LpErr *e, LpStatus code, const char *fmt, va_list ap)
{
    if (e && e->code == LP_OK) {
        e->code = code;
        e->context[0] = '\0';
        e->hint = NULL;
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    }
    return code;
}

LpStatus lp_fail(LpErr *e, LpStatus code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    lp_vfail(e, code, fmt, ap);
    va_end(ap);
    return code;
}

LpStatus lp_fail_hint(LpErr *e, LpStatus code, const char *hint,
                      const char *fmt, ...)
{
    bool first = e && e->code == LP_OK;
    va_list ap;
    va_start(ap, fmt);
    lp_vfail(e, code, fmt, ap);
    va_end(ap);
    if (first)
        e->hint = hint;
    return code;
}

LpStatus lp_no_memory(LpErr *e)
{
    return lp_fail(e, LP_E_MEMORY, "out of memory");
}

void lp_err_context(LpErr *e, const char *fmt, ...)
{
    if (!e || e->code == LP_OK)
        return;
    size_t n = strlen(e->context);
    if (n + 2 >= sizeof e->context)
        return;
    if (n)
        e->context[n++] = '\n';
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->context + n, sizeof e->context - n, fmt, ap);
    va_end(ap);
}

const char *lp_status_class(LpStatus code)
{
    return kinds[code].class;
}

const char *lp_status_type(LpStatus code)
{
    return kinds[code].type;
}
