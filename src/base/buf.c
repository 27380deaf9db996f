/* A buffer that doubles. The first allocation that fails sticks. */
#include "src/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"

/* Room for `n` more bytes and the terminator. */
static bool reserve(LpBuf *b, size_t n)
{
    if (b->failed || n > SIZE_MAX / 4 || b->n > SIZE_MAX / 4) {
        b->failed = true;
        return false;
    }
    if (b->n + n + 1 <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap * 2 : 256;
    while (cap < b->n + n + 1)
        cap *= 2;
    char *p = lp_realloc(b->p, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void lp_buf_add(LpBuf *b, const char *s, size_t n)
{
    if (!reserve(b, n))
        return;
    memcpy(b->p + b->n, s, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void lp_buf_str(LpBuf *b, const char *s)
{
    lp_buf_add(b, s, strlen(s));
}

void lp_buf_fmt(LpBuf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

char *lp_buf_take(LpBuf *b)
{
    lp_buf_add(b, "", 0);
    char *p = b->p;
    if (b->failed) {
        lp_free(p);
        p = NULL;
    }
    *b = (LpBuf){0};
    return p;
}

void lp_buf_fini(LpBuf *b)
{
    lp_free(b->p);
    *b = (LpBuf){0};
}
