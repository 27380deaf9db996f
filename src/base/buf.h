/* A growing string. Failure to grow sticks: later additions do nothing and
 * take returns NULL, so writers test once. Zero-initialised is empty. */
#ifndef LP_BASE_BUF_H
#define LP_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct LpBuf {
    char *p; /* terminated when n > 0 */
    size_t n, cap;
    bool failed;
} LpBuf;

void lp_buf_add(LpBuf *b, const char *s, size_t n);
void lp_buf_str(LpBuf *b, const char *s);
void lp_buf_fmt(LpBuf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The string, owned by the caller (lp_free); NULL when memory was short. The
 * buffer is empty again. */
char *lp_buf_take(LpBuf *b);
void lp_buf_fini(LpBuf *b);

#endif
